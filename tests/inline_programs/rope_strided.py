# task: rope
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

rope_source = r"""
#include <torch/extension.h>
#include <cuda_fp16.h>

__global__ void rope_kernel(const __half* __restrict__ x, const __half* __restrict__ cos_t, const __half* __restrict__ sin_t, __half* __restrict__ out,
                            int S, int H, int D, int64_t xs_b, int64_t xs_s, int64_t xs_h) {
    const int half_d = D / 2;
    const int h = blockIdx.y, s = blockIdx.x % S, b = blockIdx.x / S;
    const int64_t base = b * xs_b + s * xs_s + h * xs_h;
    for (int i = threadIdx.x; i < half_d; i += blockDim.x) {
        float x1 = __half2float(x[base + i]), x2 = __half2float(x[base + i + half_d]);
        float c1 = __half2float(cos_t[s * D + i]), c2 = __half2float(cos_t[s * D + i + half_d]);
        float s1 = __half2float(sin_t[s * D + i]), s2 = __half2float(sin_t[s * D + i + half_d]);
        out[base + i] = __float2half(x1 * c1 - x2 * s1);
        out[base + i + half_d] = __float2half(x2 * c2 + x1 * s2);
    }
}

torch::Tensor rope(torch::Tensor x, torch::Tensor cos, torch::Tensor sin) {
    TORCH_CHECK(x.dim() == 4, "x is [B, S, H, D]");
    const auto B = x.size(0), S = x.size(1), H = x.size(2), D = x.size(3);
    TORCH_CHECK(D % 2 == 0, "D must be even");
    TORCH_CHECK(cos.numel() == S * D && sin.numel() == S * D, "tables must be [S, 1, D]");
    TORCH_CHECK(x.stride(3) == 1);
    auto out = torch::empty_like(x);
    const dim3 grid(B * S, H);
    const int threads = std::max<int64_t>(32, std::min<int64_t>(D / 2, 256));
    rope_kernel<<<grid, threads>>>(
        reinterpret_cast<const __half*>(x.data_ptr<at::Half>()),
        reinterpret_cast<const __half*>(cos.data_ptr<at::Half>()),
        reinterpret_cast<const __half*>(sin.data_ptr<at::Half>()),
        reinterpret_cast<__half*>(out.data_ptr<at::Half>()),
        static_cast<int>(S), static_cast<int>(H), static_cast<int>(D), x.stride(0), x.stride(1), x.stride(2));
    return out;
}
"""
rope_ext = load_inline(name="rope_ext", cpp_sources="torch::Tensor rope(torch::Tensor x, torch::Tensor cos, torch::Tensor sin);", cuda_sources=rope_source, functions=["rope"])

class ModelNew(nn.Module):
    def forward(self, x, cos, sin):
        cos = cos.squeeze(1)
        sin = sin.squeeze(1)
        return rope_ext.rope(x, cos, sin)
