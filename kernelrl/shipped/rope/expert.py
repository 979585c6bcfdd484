"""Rotary embedding: a thread takes eight elements of the first half of a head and their eight partners, in two heads that share the loads of the tables.

Reads 32 MiB and writes 32 MiB; eager PyTorch's five kernels (two products, negation, concatenation, sum) move about 320 MiB. A block is three-dimensional:
x along half a head, y over heads, z over positions, so no index is divided.
"""
import cupy as cp

module = cp.RawModule(code=r'''
#include <cuda_fp16.h>

constexpr int DOWN = 8;  // threads down the heads, each with two heads

template<int V> struct alignas(2 * V) Pack { half v[V]; };

template<int V>
__device__ __forceinline__ Pack<V> load(const half* p) { return *reinterpret_cast<const Pack<V>*>(p); }
template<int V>
__device__ __forceinline__ void store(half* p, Pack<V> v) { *reinterpret_cast<Pack<V>*>(p) = v; }

template<int V>
__global__ void rope(const half* __restrict__ x, const half* __restrict__ cosine, const half* __restrict__ sine, half* __restrict__ out,
                     int positions, int heads, int d) {
    int j = threadIdx.x * V;
    int position = blockIdx.x * blockDim.z + threadIdx.z;
    if (position >= positions) return;
    int batch = blockIdx.y, first = blockIdx.z * 2 * DOWN + threadIdx.y;
    size_t start = ((size_t)batch * positions + position) * heads * d + j;

    Pack<V> a[2], b[2];
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        int head = first + h * DOWN;
        if (head < heads) {
            a[h] = load<V>(x + start + head * d);
            b[h] = load<V>(x + start + head * d + d / 2);
        }
    }

    int table = position * d + j;
    Pack<V> cos_a = load<V>(cosine + table), cos_b = load<V>(cosine + table + d / 2);
    Pack<V> sin_a = load<V>(sine + table), sin_b = load<V>(sine + table + d / 2);
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        int head = first + h * DOWN;
        if (head >= heads) return;
        #pragma unroll
        for (int k = 0; k < V; k++) {
            float u = __half2float(a[h].v[k]), w = __half2float(b[h].v[k]);
            a[h].v[k] = __float2half(u * __half2float(cos_a.v[k]) - w * __half2float(sin_a.v[k]));
            b[h].v[k] = __float2half(w * __half2float(cos_b.v[k]) + u * __half2float(sin_b.v[k]));
        }
        store<V>(out + start + head * d, a[h]);
        store<V>(out + start + head * d + d / 2, b[h]);
    }
}''', name_expressions=["rope<8>", "rope<1>"])


def forward(x, cos, sin):
    batches, positions, heads, d = x.shape
    out = cp.empty_like(x)
    v = 8 if d // 2 % 8 == 0 else 1
    across = d // 2 // v
    at_once = max(1, 16 // across)  # positions for each block, so that it has about 128 threads
    grid = ((positions + at_once - 1) // at_once, batches, (heads + 15) // 16)
    module.get_function(f"rope<{v}>")(grid, (across, 8, at_once), (x, cos, sin, out, positions, heads, d))
    return out
