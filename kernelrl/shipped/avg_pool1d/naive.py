"""Average of 8 neighbours, one thread per output: eight loads, seven of which a neighbour makes too.

8 bytes of compulsory traffic an output, 8 flops."""
import cupy as cp

avg_pool = cp.RawKernel(r'''
extern "C" __global__ void avg_pool(const float* x, float* out, int L, int OL, int total) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    int row = i / OL, o = i % OL;
    float sum = 0.0f;
    for (int k = o - 4; k < o + 4; k++)
        if (k >= 0 && k < L) sum += x[row * L + k];
    out[i] = sum / 8.0f;
}''', "avg_pool")


def forward(x):
    B, C, L = x.shape
    out = cp.empty((B, C, L + 1), dtype=x.dtype)
    avg_pool(((out.size + 255) // 256,), (256,), (x, out, L, L + 1, out.size))
    return out
