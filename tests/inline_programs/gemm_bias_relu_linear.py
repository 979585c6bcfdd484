# task: gemm_bias_relu_f16
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cpp_source = """
#include <torch/extension.h>

void linear_relu_launch(const void* x, const void* w, const void* b, void* y, int64_t M, int64_t N, int64_t K);

torch::Tensor linear_relu(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
    TORCH_CHECK(x.is_cuda(), "x must be on the GPU");
    TORCH_CHECK(x.scalar_type() == torch::kFloat16, "x must be half");
    int64_t M = x.size(0);
    int64_t K = x.size(1);
    int64_t N = weight.size(0);
    auto y = torch::empty({M, N}, x.options());
    linear_relu_launch(x.data_ptr(), weight.data_ptr(), bias.data_ptr(), y.data_ptr(), M, N, K);
    return y;
}
"""
cuda_source = """
#include <cuda_fp16.h>
#include <cuda_runtime.h>

// y = relu(x @ w.T + b)
__global__ void linear_relu_kernel(const half* __restrict__ x, const half* __restrict__ w, const half* __restrict__ b, half* __restrict__ y, int M, int N, int K) {
    int n = blockIdx.x * 16 + threadIdx.x;
    int m = blockIdx.y * 16 + threadIdx.y;
    __shared__ float xs[16][17], ws[16][17];
    float acc = 0.0f;
    for (int k0 = 0; k0 < K; k0 += 16) {
        xs[threadIdx.y][threadIdx.x] = (m < M && k0 + threadIdx.x < K) ? __half2float(x[(size_t)m * K + k0 + threadIdx.x]) : 0.0f;
        int wn = blockIdx.x * 16 + threadIdx.y;
        ws[threadIdx.y][threadIdx.x] = (wn < N && k0 + threadIdx.x < K) ? __half2float(w[(size_t)wn * K + k0 + threadIdx.x]) : 0.0f;
        __syncthreads();
        for (int k = 0; k < 16; k++) acc += xs[threadIdx.y][k] * ws[threadIdx.x][k];
        __syncthreads();
    }
    if (m < M && n < N) {
        acc += __half2float(b[n]);
        y[(size_t)m * N + n] = __float2half(acc > 0.0f ? acc : 0.0f);
    }
}

void linear_relu_launch(const void* x, const void* w, const void* b, void* y, int64_t M, int64_t N, int64_t K) {
    dim3 block(16, 16);
    dim3 grid((N + 15) / 16, (M + 15) / 16);
    linear_relu_kernel<<<grid, block>>>((const half*)x, (const half*)w, (const half*)b, (half*)y, (int)M, (int)N, (int)K);
}
"""
fused = load_inline(name="fused_linear_relu", cpp_sources=cpp_source, cuda_sources=cuda_source, functions=["linear_relu"], extra_cuda_cflags=["-O3", "-U__CUDA_NO_HALF_OPERATORS__"])

M, N, K = 2048, 2048, 1024

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(K, N, dtype=torch.float16)

    def forward(self, x):
        return fused.linear_relu(x, self.linear.weight, self.linear.bias)
