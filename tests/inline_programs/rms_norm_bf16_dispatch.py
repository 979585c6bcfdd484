# task: rms_norm
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

src = """
#include <torch/extension.h>
#include <ATen/AccumulateType.h>
#include <cuda_bf16.h>

template <typename scalar_t>
__global__ void rms_norm_kernel(const scalar_t* __restrict__ x, const scalar_t* __restrict__ w, scalar_t* __restrict__ y, int cols, float eps) {
    using acc_t = at::acc_type<scalar_t, true>;
    __shared__ float sm[32];
    const scalar_t* row = x + blockIdx.x * (long long)cols;
    float ss = 0.f;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) {
        float v = static_cast<float>(row[i]);
        ss += v * v;
    }
    for (int offset = 16; offset > 0; offset /= 2) ss += __shfl_down_sync(0xffffffff, ss, offset);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (lane == 0) sm[warp] = ss;
    __syncthreads();
    if (warp == 0) {
        ss = lane < blockDim.x / 32 ? sm[lane] : 0.f;
        for (int offset = 16; offset > 0; offset /= 2) ss += __shfl_down_sync(0xffffffff, ss, offset);
        if (lane == 0) sm[0] = rsqrtf(ss / cols + eps);
    }
    __syncthreads();
    float inv = sm[0];
    for (int i = threadIdx.x; i < cols; i += blockDim.x)
        y[blockIdx.x * (long long)cols + i] = static_cast<scalar_t>(static_cast<float>(row[i]) * inv * static_cast<float>(w[i]));
}

torch::Tensor rms_norm(torch::Tensor x, torch::Tensor w, double eps) {
    TORCH_CHECK(x.scalar_type() == w.scalar_type());
    auto y = torch::empty_like(x);
    int cols = x.size(1), rows = x.size(0);
    AT_DISPATCH_FLOATING_TYPES_AND2(at::ScalarType::Half, at::ScalarType::BFloat16, x.scalar_type(), "rms_norm", [&]() {
        rms_norm_kernel<scalar_t><<<rows, 256>>>(x.data_ptr<scalar_t>(), w.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), cols, (float)eps);
    });
    return y;
}
"""
m = load_inline(name="rms", cpp_sources="torch::Tensor rms_norm(torch::Tensor x, torch::Tensor w, double eps);", cuda_sources=src, functions=["rms_norm"])
D = 2048
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter((1.0 + 0.2 * torch.randn(D)).bfloat16())
    def forward(self, x):
        return m.rms_norm(x, self.weight, 1e-5)
