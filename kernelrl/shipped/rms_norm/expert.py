"""RMS normalisation in bfloat16, a warp for each row; the length of the row is a template argument.

With the number of packs a lane holds known to the compiler the row stays in registers, still packed as eight bfloat16 in 16 bytes, and nothing is shared
between warps: no shared memory, no barrier. 64 MiB moved where eager PyTorch's six kernels move about 224.
"""
import functools

import cupy as cp
import numpy as np

SOURCE = r'''
#include <cuda_bf16.h>

template<int V> struct alignas(2 * V) Pack { __nv_bfloat16 v[V]; };

template<int V, int ITEMS>  // V elements in a pack, ITEMS packs for each lane
__global__ void __launch_bounds__(128) rms_norm(const __nv_bfloat16* __restrict__ x, const __nv_bfloat16* __restrict__ weight,
                                                __nv_bfloat16* __restrict__ out, int rows, int d, float eps) {
    int row = blockIdx.x * 4 + threadIdx.x / 32;
    int lane = threadIdx.x % 32;
    if (row >= rows) return;
    const Pack<V>* from = reinterpret_cast<const Pack<V>*>(x + (size_t)row * d);
    const Pack<V>* scale = reinterpret_cast<const Pack<V>*>(weight);
    Pack<V>* to = reinterpret_cast<Pack<V>*>(out + (size_t)row * d);

    Pack<V> held[ITEMS];
    #pragma unroll
    for (int k = 0; k < ITEMS; k++)
        if (lane + 32 * k < d / V) held[k] = from[lane + 32 * k];

    float squares = 0.0f;
    #pragma unroll
    for (int k = 0; k < ITEMS; k++)
        if (lane + 32 * k < d / V)
            for (int c = 0; c < V; c++) squares = fmaf(__bfloat162float(held[k].v[c]), __bfloat162float(held[k].v[c]), squares);
    #pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) squares += __shfl_xor_sync(0xffffffff, squares, offset);
    float rrms = rsqrtf(squares / d + eps);

    #pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        if (lane + 32 * k >= d / V) break;
        Pack<V> w = scale[lane + 32 * k];
        for (int c = 0; c < V; c++) w.v[c] = __float2bfloat16(__bfloat162float(held[k].v[c]) * rrms * __bfloat162float(w.v[c]));
        to[lane + 32 * k] = w;
    }
}'''


@functools.cache
def specialised(v, items):
    name = f"rms_norm<{v}, {items}>"
    return cp.RawModule(code=SOURCE, name_expressions=[name]).get_function(name)


def forward(x, weight):
    rows, d = x.shape
    out = cp.empty_like(x)
    v = 8 if d % 8 == 0 else 1
    items = (d // v + 31) // 32
    specialised(v, items)(((rows + 3) // 4,), (128,), (x, weight, out, rows, d, np.float32(1e-5)))
    return out
