# task: mean_middle
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

src = r'''
#include <torch/extension.h>
__global__ void mid_mean(const float* __restrict__ x, float* __restrict__ y, int N, int D) {
    const int d = blockIdx.x * blockDim.x + threadIdx.x;
    if (d >= D) return;
    const float* p = x + (size_t)blockIdx.y * N * D + d;
    float a0 = 0.f, a1 = 0.f;
    int n = 0;
    for (; n + 1 < N; n += 2) { a0 += p[(size_t)n * D]; a1 += p[(size_t)(n + 1) * D]; }
    if (n < N) a0 += p[(size_t)n * D];
    y[(size_t)blockIdx.y * D + d] = (a0 + a1) / (float)N;
}
torch::Tensor mid_mean_keepdim(torch::Tensor x) {
    TORCH_CHECK(x.dim() == 3, "expected [B, N, D]");
    auto B = x.size(0), N = x.size(1), D = x.size(2);
    auto y = torch::empty({B, 1, D}, x.options());
    dim3 grid((D + 127) / 128, B);
    mid_mean<<<grid, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), N, D);
    return y;
}
'''
ext = load_inline('mid_mean_ext', 'torch::Tensor mid_mean_keepdim(torch::Tensor x);', src, functions=['mid_mean_keepdim'])

class ModelNew(nn.Module):
    def forward(self, x):
        B, N, D = x.shape
        y = ext.mid_mean_keepdim(x)
        assert y.shape == (B, 1, D)
        return y.squeeze(1)
