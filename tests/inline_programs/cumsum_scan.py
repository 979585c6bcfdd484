# task: cumsum_last
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

#define BLOCK_THREADS 256
#define ITEMS_PER_THREAD 2

// one block walks over a row, chunk by chunk, with a Hillis-Steele scan
__global__ void cumsum_kernel(const float* __restrict__ in, float* __restrict__ out, int cols) {
    __shared__ float s[BLOCK_THREADS];
    __shared__ float carry;
    if (threadIdx.x == 0) carry = 0.0f;
    const float* x = in + (size_t)blockIdx.x * cols;
    float* y = out + (size_t)blockIdx.x * cols;
    for (int start = 0; start < cols; start += BLOCK_THREADS * ITEMS_PER_THREAD) {
        int i0 = start + threadIdx.x * ITEMS_PER_THREAD;
        float a = i0 < cols ? x[i0] : 0.0f;
        float b = i0 + 1 < cols ? x[i0 + 1] : 0.0f;
        s[threadIdx.x] = a + b;
        __syncthreads();
        for (int o = 1; o < BLOCK_THREADS; o <<= 1) {
            float t = threadIdx.x >= o ? s[threadIdx.x - o] : 0.0f;
            __syncthreads();
            s[threadIdx.x] += t;
            __syncthreads();
        }
        float before = carry + (threadIdx.x ? s[threadIdx.x - 1] : 0.0f);
        if (i0 < cols) y[i0] = before + a;
        if (i0 + 1 < cols) y[i0 + 1] = before + a + b;
        __syncthreads();
        if (threadIdx.x == BLOCK_THREADS - 1) carry += s[threadIdx.x];
        __syncthreads();
    }
}

torch::Tensor cumsum_forward(const torch::Tensor x, const int64_t dim) {
    TORCH_CHECK((dim == -1) || (dim == x.dim() - 1), "cumsum along the last dimension only");
    torch::Tensor out = torch::empty_like(x);
    const uint32_t rows = x.numel() / x.size(-1);
    const int cols = x.size(-1);
    c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream();
    cumsum_kernel<<<rows, BLOCK_THREADS, 0, stream.stream()>>>(x.data_ptr<float>(), out.data_ptr<float>(), cols);
    return out;
}
"""
cs = load_inline(name="cs", cpp_sources="torch::Tensor cumsum_forward(const torch::Tensor x, const int64_t dim);", cuda_sources=cuda_source, functions=["cumsum_forward"])

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.dim = 1
    def forward(self, x):
        return cs.cumsum_forward(x, dim=self.dim) if False else cs.cumsum_forward(x, self.dim)
