# task: causal_attention
import math
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

src = r'''
#include <torch/extension.h>

template <typename T, int HEAD>
__global__ void causal(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v, T* __restrict__ o, int S, float scale) {
    // a warp per query; each lane owns HEAD / 32 elements of the head
    constexpr int E = HEAD / 32;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = blockIdx.x * (blockDim.x / 32) + warp;
    if (row >= S) return;
    const long base = (long)blockIdx.y * S * HEAD;
    float qr[E], acc[E], m = -1e30f, l = 0.f;
    for (int e = 0; e < E; ++e) { qr[e] = (float)q[base + (long)row * HEAD + e * 32 + lane] * scale; acc[e] = 0.f; }
    for (int j = 0; j <= row; ++j) {
        float s = 0.f;
        for (int e = 0; e < E; ++e) s += qr[e] * (float)k[base + (long)j * HEAD + e * 32 + lane];
        for (int w = 16; w; w >>= 1) s += __shfl_xor_sync(0xffffffffu, s, w);
        const float nm = fmaxf(m, s), a = __expf(m - nm), p = __expf(s - nm);
        l = l * a + p;
        for (int e = 0; e < E; ++e) acc[e] = acc[e] * a + p * (float)v[base + (long)j * HEAD + e * 32 + lane];
        m = nm;
    }
    for (int e = 0; e < E; ++e) o[base + (long)row * HEAD + e * 32 + lane] = T(acc[e] / l);
}

at::Tensor causal_attention(at::Tensor q, at::Tensor k, at::Tensor v, double scale) {
    const auto B = q.size(0);
    const auto H = q.size(1);
    const auto S = q.size(2);
    const auto D = q.size(3);
    auto qf = q.view({B * H, S, D}), kf = k.view({-1, S, D}), vf = v.reshape({B * H, S, D});
    auto out = at::empty({B * H, S, D}, q.options());
    constexpr int WARPS = 4;
    const dim3 grid((S + WARPS - 1) / WARPS, B * H);
    AT_DISPATCH_REDUCED_FLOATING_TYPES(q.scalar_type(), "causal_attention", [&] {
        if (D == 64) causal<scalar_t, 64><<<grid, WARPS * 32>>>(qf.data_ptr<scalar_t>(), kf.data_ptr<scalar_t>(), vf.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), S, scale);
        else if (D == 32) causal<scalar_t, 32><<<grid, WARPS * 32>>>(qf.data_ptr<scalar_t>(), kf.data_ptr<scalar_t>(), vf.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), S, scale);
        else TORCH_CHECK(false, "head dimension ", D);
    });
    return out.view({B, H, S, D});
}
'''
ext = load_inline(name='causal', cpp_sources='at::Tensor causal_attention(at::Tensor q, at::Tensor k, at::Tensor v, double scale);', cuda_sources=src, functions=['causal_attention'])

class ModelNew(nn.Module):
    def forward(self, q, k, v):
        return ext.causal_attention(q, k, v, 1.0 / math.sqrt(q.size(-1)))
