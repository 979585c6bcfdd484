# task: gemm_f32
import torch
from torch import nn, Tensor
from torch.utils.cpp_extension import load_inline

KERNEL = r"""
#include <torch/extension.h>
#include <algorithm>
namespace kern {
constexpr int BM = 32, BN = 32, BK = 8, TM = 4;
inline int ceil_div(int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); }

__global__ void __launch_bounds__(BM * BN / TM) gemm(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, const int M, const int N, const int K) {
    __shared__ float As[BM * BK], Bs[BK * BN];
    const int tid = threadIdx.x, col = tid % BN, row0 = tid / BN * TM;
    float acc[TM] = {0.f};
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int i = tid; i < BM * BK; i += blockDim.x) { int r = blockIdx.y * BM + i / BK, k = k0 + i % BK; As[i] = r < M && k < K ? A[(int64_t)r * K + k] : 0.f; }
        for (int i = tid; i < BK * BN; i += blockDim.x) { int k = k0 + i / BN, c = blockIdx.x * BN + i % BN; Bs[i] = k < K && c < N ? B[(int64_t)k * N + c] : 0.f; }
        __syncthreads();
        for (int k = 0; k < BK; ++k) { float b = Bs[k * BN + col]; for (int t = 0; t < TM; ++t) acc[t] += As[(row0 + t) * BK + k] * b; }
        __syncthreads();
    }
    const int c = blockIdx.x * BN + col;
    for (int t = 0; t < TM; ++t) { int r = blockIdx.y * BM + row0 + t; if (r < M && c < N) C[(int64_t)r * N + c] = acc[t]; }
}
}  // namespace kern

torch::Tensor mm(torch::Tensor A, torch::Tensor B)
{
    const auto M = A.size(0), K = A.size(1), N = B.size(1);
    auto C = torch::empty({M, N}, torch::TensorOptions().dtype(torch::kFloat).device(A.device()).requires_grad(false));
    kern::gemm<<<dim3(kern::ceil_div(N, kern::BN), kern::ceil_div(M, kern::BM), 1), dim3(kern::BM * kern::BN / kern::TM)>>>(
        A.data_ptr<float>(), B.data_ptr<float>(), C.data_ptr<float>(), (int)M, (int)N, (int)K);
    return C;
}
"""

class MatMul(torch.autograd.Function):
    ext = load_inline(name="register_gemm", cpp_sources="torch::Tensor mm(torch::Tensor A, torch::Tensor B);", cuda_sources=KERNEL, functions=["mm"])
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return MatMul.ext.mm(a, b)
    @staticmethod
    def backward(ctx, g):
        raise NotImplementedError

class ModelNew(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return MatMul.apply(a.contiguous(), b.contiguous())
