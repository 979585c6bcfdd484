"""relu(x * scale + bias), one thread for each element.

Reads 64 MiB and writes 64 MiB: already a third of what three separate operations move, since the products stay in a register.
"""
import cupy as cp
import numpy as np

relu_scale = cp.RawKernel(r'''
extern "C" __global__ void relu_scale(const float* x, float* out, float scale, float bias, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float y = x[i] * scale + bias;
        out[i] = y < 0.0f ? 0.0f : y;  // written so that NaN stays NaN
    }
}''', "relu_scale")


def forward(x, scale, bias):
    out = cp.empty_like(x)
    relu_scale(((x.size + 255) // 256,), (256,), (x, out, np.float32(scale), np.float32(bias), x.size))
    return out
