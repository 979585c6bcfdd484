# task: attention
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

attn_source = r"""
#include <torch/extension.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <cmath>

// one block per query row: scores in dynamic shared memory, softmax, weighted sum
__global__ void attn_kernel(const half* Q, const half* K, const half* V, half* O, const int S, const int D, const float scale) {
    extern __shared__ float smem[];
    float* q = smem;            // D
    float* p = smem + D;        // S
    __shared__ float red[128];
    const size_t head = (size_t)blockIdx.y * S * D;
    const half* qrow = Q + head + (size_t)blockIdx.x * D;
    for (int i = threadIdx.x; i < D; i += blockDim.x) q[i] = __half2float(qrow[i]);
    __syncthreads();
    float m = -INFINITY;
    for (int j = threadIdx.x; j < S; j += blockDim.x) {
        float s = 0.f;
        for (int i = 0; i < D; ++i) s += q[i] * __half2float(K[head + (size_t)j * D + i]);
        p[j] = s * scale;
        m = fmaxf(m, p[j]);
    }
    red[threadIdx.x] = m; __syncthreads();
    for (int k = 64; k; k >>= 1) { if (threadIdx.x < k) red[threadIdx.x] = fmaxf(red[threadIdx.x], red[threadIdx.x + k]); __syncthreads(); }
    m = red[0]; __syncthreads();
    float l = 0.f;
    for (int j = threadIdx.x; j < S; j += blockDim.x) { p[j] = __expf(p[j] - m); l += p[j]; }
    red[threadIdx.x] = l; __syncthreads();
    for (int k = 64; k; k >>= 1) { if (threadIdx.x < k) red[threadIdx.x] += red[threadIdx.x + k]; __syncthreads(); }
    l = red[0];
    for (int i = threadIdx.x; i < D; i += blockDim.x) {
        float o = 0.f;
        for (int j = 0; j < S; ++j) o += p[j] * __half2float(V[head + (size_t)j * D + i]);
        O[head + (size_t)blockIdx.x * D + i] = __float2half(o / l);
    }
}

torch::Tensor attention(torch::Tensor q, torch::Tensor k, torch::Tensor v) {
    TORCH_CHECK(q.sizes() == k.sizes() && k.sizes() == v.sizes(), "q, k, v must have the same shape");
    const int B = q.size(0), H = q.size(1), S = q.size(2), D = q.size(3);
    auto o = torch::empty_like(q);
    const float scale = 1.0f / std::sqrt(static_cast<float>(D));
    const int smem = (S + D) * sizeof(float);
    TORCH_CHECK(smem <= 96 * 1024, "sequence too long");
    if (smem >= (48 << 10)) {
        cudaFuncSetAttribute(attn_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem);
    }
    dim3 grid(S, B * H);
    attn_kernel<<<grid, 128, smem>>>(
        reinterpret_cast<half*>(q.data_ptr<at::Half>()), reinterpret_cast<half*>(k.data_ptr<at::Half>()),
        reinterpret_cast<half*>(v.data_ptr<at::Half>()), reinterpret_cast<half*>(o.data_ptr<at::Half>()), S, D, scale);
    return o;
}
"""
attn = load_inline(name="attn", cpp_sources="torch::Tensor attention(torch::Tensor q, torch::Tensor k, torch::Tensor v);", cuda_sources=attn_source, functions=["attention"], extra_cuda_cflags=["-O3", "-use_fast_math"])

class ModelNew(nn.Module):
    def __init__(self):
        super(ModelNew, self).__init__()

    def forward(self, q, k, v):
        return attn.attention(q.contiguous(), k.contiguous(), v.contiguous())
