# task: layer_norm
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_src = r'''
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <optional>

template <typename T> struct Welford { T mean, m2, n; };

template <int BLOCK, bool AFFINE>
__global__ void ln(const float* __restrict__ x, const float* __restrict__ g, const float* __restrict__ b, float* __restrict__ y, int d, float eps) {
    extern __shared__ float row[];
    __shared__ float part[BLOCK / 32];
    const float* in = x + (size_t)blockIdx.x * d;
    float s = 0.f;
    for (int i = threadIdx.x; i < d; i += BLOCK) { row[i] = in[i]; s += in[i]; }
    for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
    __syncthreads();
    s = 0.f;
    for (int i = 0; i < BLOCK / 32; ++i) s += part[i];
    const float mean = s / d;
    __syncthreads();
    float v = 0.f;
    for (int i = threadIdx.x; i < d; i += BLOCK) { float t = row[i] - mean; v += t * t; }
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = 0.f;
    for (int i = 0; i < BLOCK / 32; ++i) v += part[i];
    const float inv = rsqrtf(v / d + eps);
    for (int i = threadIdx.x; i < d; i += BLOCK) {
        float t = (row[i] - mean) * inv;
        if constexpr (AFFINE) t = t * g[i] + b[i];
        y[(size_t)blockIdx.x * d + i] = t;
    }
}

torch::Tensor layernorm(torch::Tensor x, std::optional<torch::Tensor> gamma, std::optional<torch::Tensor> beta, double eps) {
    const auto d = static_cast<int>(x.size(-1));
    const auto n = static_cast<int>(x.numel() / d);
    auto y = at::empty_like(x);
    auto stream = at::cuda::getCurrentCUDAStream();
    constexpr int BLOCK = 128;
    const int smem = d * sizeof(float);
    const bool affine = gamma.has_value() && beta.has_value();
    const float* g = gamma.has_value() ? gamma->data_ptr<float>() : nullptr;
    const float* b = beta.has_value() ? beta.value().data_ptr<float>() : nullptr;
    if (affine) {
        auto kernel = ln<BLOCK, true>;
        if (smem > 48 * 1024) cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem);
        kernel<<<n, BLOCK, smem, stream>>>(x.data_ptr<float>(), g, b, y.data_ptr<float>(), d, static_cast<float>(eps));
    } else {
        ln<BLOCK, false><<<n, BLOCK, smem, stream>>>(x.data_ptr<float>(), nullptr, nullptr, y.data_ptr<float>(), d, static_cast<float>(eps));
    }
    return y;
}
'''
ln = load_inline(name="ln", cpp_sources="#include <optional>\ntorch::Tensor layernorm(torch::Tensor x, std::optional<torch::Tensor> gamma, std::optional<torch::Tensor> beta, double eps);",
                 cuda_sources=cuda_src, functions=["layernorm"], extra_cuda_cflags=["-O3", "--expt-relaxed-constexpr"])

D = 2048

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(1.0 + 0.2 * torch.randn(D))
        self.bias = nn.Parameter(torch.randn(D))

    def forward(self, x):
        return ln.layernorm(x, self.weight, self.bias, 1e-5)
