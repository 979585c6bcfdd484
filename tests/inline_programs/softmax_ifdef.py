# task: softmax_last
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

#ifndef BLOCK_DIM
#define BLOCK_DIM 64
#endif
#if BLOCK_DIM >= 128 && defined(USE_BIG)
#define ROWS 1
#elif BLOCK_DIM == 128
#define ROWS 2
#else
#define ROWS 4
#endif

#define FULL_MASK 0xffffffff
#define WARP_ALL(op, v) { for (int o = 16; o > 0; o >>= 1) { float w = __shfl_xor_sync(FULL_MASK, v, o); v = op; } }

// ROWS rows a block, one after another; BLOCK_DIM threads share a row
__global__ void softmax_rows(const float* x, float* y, int n, int d) {
    __shared__ float part[BLOCK_DIM / 32];
    for (int r = 0; r < ROWS; ++r) {
        int row = blockIdx.x * ROWS + r;
        if (row >= n) return;
        const float* in = x + (size_t)row * d;
        float m = -1e38f;
        for (int i = threadIdx.x; i < d; i += BLOCK_DIM) m = fmaxf(m, in[i]);
        WARP_ALL(fmaxf(m, w), m)
        if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = m;
        __syncthreads();
        for (int i = 0; i < BLOCK_DIM / 32; ++i) m = fmaxf(m, part[i]);
        __syncthreads();
        float s = 0.f;
        for (int i = threadIdx.x; i < d; i += BLOCK_DIM) s += expf(in[i] - m);
        WARP_ALL(s + w, s)
        if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
        __syncthreads();
        s = 0.f;
        for (int i = 0; i < BLOCK_DIM / 32; ++i) s += part[i];
        __syncthreads();
        for (int i = threadIdx.x; i < d; i += BLOCK_DIM) y[(size_t)row * d + i] = expf(in[i] - m) / s;
    }
}

torch::Tensor softmax(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const int n = x.size(0), d = x.size(1);
    softmax_rows<<<(n + ROWS - 1) / ROWS, BLOCK_DIM>>>(x.data_ptr<float>(), y.data_ptr<float>(), n, d);
    return y;
}
"""
sm = load_inline(name="sm_rows", cpp_sources="torch::Tensor softmax(torch::Tensor x);", cuda_sources=cuda_source, functions=["softmax"], extra_cuda_cflags=["-DBLOCK_DIM=128", "-O2"])

class ModelNew(nn.Module):
    def forward(self, x):
        return sm.softmax(x)
