"""Attention as three kernels: all scores, a softmax over each row of them, and the weighted sum of the values.

4 D flops per pair of positions; the scores (4 bytes a pair) make six trips through memory."""
import cupy as cp
import numpy as np

source = r'''
#include <cuda_fp16.h>

// one thread per pair of positions
extern "C" __global__ void scores(const half* q, const half* k, float* s, int S, int D, float scale) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    int head = blockIdx.z;
    if (i >= S || j >= S) return;
    float sum = 0.0f;
    for (int d = 0; d < D; d++)
        sum += __half2float(q[(head * S + i) * D + d]) * __half2float(k[(head * S + j) * D + d]);
    s[(head * S + i) * S + j] = sum * scale;
}

// one thread per row
extern "C" __global__ void softmax(float* s, int rows, int S) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float* r = s + (size_t)row * S;
    float most = r[0], sum = 0.0f;
    for (int j = 1; j < S; j++) most = fmaxf(most, r[j]);
    for (int j = 0; j < S; j++) sum += expf(r[j] - most);
    for (int j = 0; j < S; j++) r[j] = expf(r[j] - most) / sum;
}

// one thread per output
extern "C" __global__ void weigh(const float* s, const half* v, half* out, int S, int D, int total) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= total) return;
    int d = t % D, i = t / D, head = i / S;
    float sum = 0.0f;
    for (int j = 0; j < S; j++) sum += s[i * S + j] * __half2float(v[(head * S + j) * D + d]);
    out[t] = __float2half(sum);
}'''
module = cp.RawModule(code=source)
scores, softmax, weigh = (module.get_function(name) for name in ("scores", "softmax", "weigh"))


def forward(q, k, v):
    B, H, S, D = q.shape
    s = cp.empty((B, H, S, S), dtype=cp.float32)
    out = cp.empty(q.shape, dtype=q.dtype)
    scores(((S + 31) // 32, (S + 7) // 8, B * H), (32, 8), (q, k, s, S, D, np.float32(D ** -0.5)))
    softmax(((B * H * S + 127) // 128,), (128,), (s, B * H * S, S))
    weigh(((out.size + 255) // 256,), (256,), (s, v, out, S, D, out.size))
    return out
