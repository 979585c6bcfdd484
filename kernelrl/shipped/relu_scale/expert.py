"""relu(x * scale + bias) at the speed of a copy: one kernel, 16 bytes an access, four loads in flight for each thread.

Moves 128 MiB (read x, write out). Eager PyTorch launches three kernels that each read and write everything: 384 MiB.
"""
import cupy as cp
import numpy as np

THREADS = 256
UNROLL = 4  # float4 loads that a thread issues before it uses the first

relu_scale = cp.RawKernel(r'''
constexpr int UNROLL = 4;

__device__ __forceinline__ float act(float x, float scale, float bias) {
    float y = fmaf(x, scale, bias);
    return y < 0.0f ? 0.0f : y;  // fmaxf would turn NaN into 0
}

extern "C" __global__ void __launch_bounds__(256)
relu_scale(const float* __restrict__ x, float* __restrict__ out, float scale, float bias, int n) {
    const float4* x4 = reinterpret_cast<const float4*>(x);
    float4* out4 = reinterpret_cast<float4*>(out);
    int vectors = n / 4;
    int first = blockIdx.x * (UNROLL * blockDim.x) + threadIdx.x;

    float4 v[UNROLL];
    #pragma unroll
    for (int k = 0; k < UNROLL; k++) {
        int i = first + k * blockDim.x;
        if (i < vectors) v[k] = x4[i];
    }
    #pragma unroll
    for (int k = 0; k < UNROLL; k++) {
        int i = first + k * blockDim.x;
        if (i < vectors)
            out4[i] = make_float4(act(v[k].x, scale, bias), act(v[k].y, scale, bias), act(v[k].z, scale, bias), act(v[k].w, scale, bias));
    }

    // The last n % 4 elements fill no float4: the first threads of the grid take one each
    int i = 4 * vectors + first;
    if (i < n) out[i] = act(x[i], scale, bias);
}''', "relu_scale")


def forward(x, scale, bias):
    out = cp.empty_like(x)
    per_block = THREADS * UNROLL * 4
    blocks = (x.size + per_block - 1) // per_block
    relu_scale((blocks,), (THREADS,), (x, out, np.float32(scale), np.float32(bias), x.size))
    return out
