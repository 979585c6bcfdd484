# task: gemm_bias_relu_f16
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

src = r"""
#include <torch/extension.h>
#include <ATen/ceil_div.h>
#include <mma.h>
using namespace nvcuda;

// one warp computes a 16 x 16 tile; edges are padded in shared memory
__global__ void k(const half* __restrict__ x, const half* __restrict__ w, const half* __restrict__ b, half* __restrict__ y, int M, int N, int K) {
    __shared__ __align__(32) half sx[16 * 16];
    __shared__ __align__(32) half sw[16 * 16];
    __shared__ __align__(32) float so[16 * 16];
    const int m0 = blockIdx.y * 16, n0 = blockIdx.x * 16, lane = threadIdx.x;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fill_fragment(fc, 0.0f);
    for (int k0 = 0; k0 < K; k0 += 16) {
        for (int i = lane; i < 256; i += 32) {
            int r = i / 16, c = i % 16;
            sx[i] = (m0 + r < M && k0 + c < K) ? x[(size_t)(m0 + r) * K + k0 + c] : __float2half(0.f);
            sw[i] = (n0 + r < N && k0 + c < K) ? w[(size_t)(n0 + r) * K + k0 + c] : __float2half(0.f);
        }
        __syncwarp();
        wmma::load_matrix_sync(fa, sx, 16);
        wmma::load_matrix_sync(fb, sw, 16);
        wmma::mma_sync(fc, fa, fb, fc);
        __syncwarp();
    }
    wmma::store_matrix_sync(so, fc, 16, wmma::mem_row_major);
    __syncwarp();
    for (int i = lane; i < 256; i += 32) {
        int r = m0 + i / 16, c = n0 + i % 16;
        if (r < M && c < N) y[(size_t)r * N + c] = __float2half(fmaxf(so[i] + __half2float(b[c]), 0.f));
    }
}

torch::Tensor run(torch::Tensor x, torch::Tensor w, c10::optional<torch::Tensor> bias) {
    TORCH_CHECK(bias.has_value(), "a bias is needed");
    auto b = bias.value();
    auto y = torch::empty({x.size(0), w.size(0)}, x.options().dtype(torch::kHalf));
    dim3 g;
    g.x = at::ceil_div(w.size(0), (int64_t)16);
    g.y = at::ceil_div(x.size(0), (int64_t)16);
    #define P(t) reinterpret_cast<half*>((t).data_ptr<c10::Half>())
    k<<<g, 32>>>(P(x), P(w), P(b), P(y), x.size(0), w.size(0), x.size(1));
    #undef P
    return y;
}
"""

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        K, N = 1024, 2048
        self.linear = nn.Linear(K, N).half()
        self.ext = load_inline(name="wmma_linear", cpp_sources="torch::Tensor run(torch::Tensor x, torch::Tensor w, c10::optional<torch::Tensor> bias);", cuda_sources=src, functions=["run"])

    def forward(self, x):
        w, b = self.linear.weight, self.linear.bias
        return self.ext.run(x, w, b)
