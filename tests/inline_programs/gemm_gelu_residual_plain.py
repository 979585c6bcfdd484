# task: gemm_gelu_residual
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

code = """
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <math.h>

#define BLOCK 16

__device__ inline float gelu(float v) { return 0.5f * v * (1.0f + erff(v * 0.70710678118654752440f)); }

__global__ void fused_kernel(const float* x, const float* w, const float* b, const float* res, float* out, int M, int N, int K)
{
    __shared__ float tx_[BLOCK][BLOCK];
    __shared__ float tw_[BLOCK][BLOCK + 1];
    int m = blockIdx.y * BLOCK + threadIdx.y;
    int n = blockIdx.x * BLOCK + threadIdx.x;
    float sum = 0.0f;
    for (int t = 0; t < (K + BLOCK - 1) / BLOCK; t++) {
        int k = t * BLOCK + threadIdx.x;
        tx_[threadIdx.y][threadIdx.x] = (m < M && k < K) ? x[m * K + k] : 0.0f;
        int wn = blockIdx.x * BLOCK + threadIdx.y;
        tw_[threadIdx.y][threadIdx.x] = (wn < N && k < K) ? w[wn * K + k] : 0.0f;
        __syncthreads();
        for (int i = 0; i < BLOCK; i++) sum += tx_[threadIdx.y][i] * tw_[threadIdx.x][i];
        __syncthreads();
    }
    if (m < M && n < N) out[m * N + n] = res[m * N + n] + gelu(sum + b[n]);
}

torch::Tensor fused_linear_gelu_residual(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, torch::Tensor residual) {
    // Get dimensions
    const int M = x.size(0);
    const int K = x.size(1);
    const int N = weight.size(0);

    TORCH_CHECK(weight.size(1) == K, "weight has wrong shape");
    TORCH_CHECK(bias.numel() == N && residual.sizes() == torch::IntArrayRef({M, N}), "bias or residual has wrong shape");

    auto output = torch::empty({M, N}, x.options());
    dim3 block(BLOCK, BLOCK);
    dim3 grid((N + BLOCK - 1) / BLOCK, (M + BLOCK - 1) / BLOCK);
    fused_kernel<<<grid, block>>>(
        x.data_ptr<float>(),
        weight.data_ptr<float>(),
        bias.data_ptr<float>(),
        residual.data_ptr<float>(),
        output.data_ptr<float>(),
        M, N, K
    );
    return output;
}
"""

fused_op = load_inline(
    name="fused_linear_gelu_residual",
    cpp_sources="torch::Tensor fused_linear_gelu_residual(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, torch::Tensor residual);",
    cuda_sources=code,
    functions=["fused_linear_gelu_residual"],
    extra_cflags=["-O2"],
)

M, N, K = 4096, 1024, 256

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(K, N)
        self.fused_op = fused_op

    def forward(self, x, residual):
        return self.fused_op.fused_linear_gelu_residual(x, self.linear.weight, self.linear.bias, residual)
