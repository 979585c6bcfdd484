# task: rms_norm
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_src = r"""
#include <cuda_bf16.h>
#include <torch/extension.h>
#include <c10/cuda/CUDAGuard.h>
using bf16 = __nv_bfloat16;

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
    for (int m = 16; m >= 1; m >>= 1) v += __shfl_xor_sync(0xffffffff, v, m, 32);
    return v;
}

__global__ void rmsnorm_warp(const bf16* __restrict__ x, const bf16* __restrict__ w, bf16* __restrict__ out, const int rows, const int d, const float eps) {
    const int row = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (row >= rows) return;
    const int lane = threadIdx.x & 31;
    x += (size_t)row * d; out += (size_t)row * d;
    float s = 0.f;
    for (int i = lane; i < d; i += 32) { float v = __bfloat162float(x[i]); s = fmaf(v, v, s); }
    s = rsqrtf(warp_sum(s) / (float)d + eps);
    for (int i = lane; i < d; i += 32) out[i] = __float2bfloat16(__bfloat162float(x[i]) * s * __bfloat162float(w[i]));
}

void rmsnorm_out(torch::Tensor& out, const torch::Tensor& x, const torch::Tensor& w, double eps) {
    const c10::cuda::CUDAGuard guard(x.device());
    TORCH_CHECK(x.dtype() == torch::kBFloat16 && w.dtype() == torch::kBFloat16, "bf16 only");
    const int warps = 8;
    const int64_t rows = x.numel() / x.size(-1);
    const dim3 grid(static_cast<unsigned>((rows + warps - 1) / warps));
    rmsnorm_warp<<<grid, warps * 32>>>(
        reinterpret_cast<const bf16*>(x.data_ptr<at::BFloat16>()), reinterpret_cast<const bf16*>(w.data_ptr<at::BFloat16>()),
        reinterpret_cast<bf16*>(out.data_ptr<at::BFloat16>()), rows, x.size(-1), eps);
}
"""
cpp_src = "void rmsnorm_out(torch::Tensor& out, const torch::Tensor& x, const torch::Tensor& w, double eps);"
_mod = None

def get_mod():
    global _mod
    if _mod is None:
        _mod = load_inline(name="rmsnorm_out_ext", cpp_sources=cpp_src, cuda_sources=cuda_src, functions=["rmsnorm_out"])
    return _mod

D = 2048

class ModelNew(nn.Module):
    def __init__(self, eps=1e-5):
        super().__init__()
        self.register_parameter("weight", nn.Parameter(torch.empty(D, dtype=torch.bfloat16)))
        self.reset_parameters()
        self.eps = eps

    def reset_parameters(self):
        nn.init.ones_(self.weight)

    def forward(self, x):
        out = torch.empty_like(x)
        get_mod().rmsnorm_out(out, x, self.weight, self.eps)
        return out
