"""relu(x * scale + bias), four elements a thread: one 16-byte load, one 16-byte store.

Reads 64 MiB and writes 64 MiB, with a quarter of the memory instructions of the naive version. If the size is no multiple of four, one more thread does the rest.
"""
import cupy as cp
import numpy as np

relu_scale = cp.RawKernel(r'''
__device__ float act(float x, float scale, float bias) {
    float y = x * scale + bias;
    return y < 0.0f ? 0.0f : y;
}

extern "C" __global__ void relu_scale(const float4* x, float4* out, float scale, float bias, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n / 4) {
        float4 v = x[i];
        out[i] = make_float4(act(v.x, scale, bias), act(v.y, scale, bias), act(v.z, scale, bias), act(v.w, scale, bias));
    } else if (i == n / 4) {
        const float* x1 = reinterpret_cast<const float*>(x);
        float* out1 = reinterpret_cast<float*>(out);
        for (int j = 4 * i; j < n; j++) out1[j] = act(x1[j], scale, bias);
    }
}''', "relu_scale")


def forward(x, scale, bias):
    out = cp.empty_like(x)
    threads = x.size // 4 + 1
    relu_scale(((threads + 255) // 256,), (256,), (x, out, np.float32(scale), np.float32(bias), x.size))
    return out
