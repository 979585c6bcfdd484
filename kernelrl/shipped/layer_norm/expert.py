"""Layer normalisation of a row held in registers, its mean and variance merged from the threads' own by Chan's formula.

A thread takes mean and squared deviations of its 16 elements in two passes over registers, the mean relative to its first element so that neither a large
offset nor a constant row costs digits. Then triples (count, mean, deviations) are merged pairwise: one reduction and one barrier where mean-then-variance needs
two. 128 MiB moved, half of it each way.
"""
import cupy as cp
import numpy as np

module = cp.RawModule(code=r'''
constexpr int ITEMS = 4;
template<int V> struct alignas(4 * V) Pack { float v[V]; };
struct Moments { float count, mean, deviations; };  // deviations = sum of (x - mean)^2

__device__ __forceinline__ Moments merge(Moments a, Moments b) {
    float count = a.count + b.count;
    float share = count > 0.0f ? b.count / count : 0.0f;
    float delta = b.mean - a.mean;
    return {count, a.mean + delta * share, a.deviations + b.deviations + delta * delta * a.count * share};
}

__device__ __forceinline__ Moments warp_merge(Moments a) {
    #pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        Moments b = {__shfl_xor_sync(0xffffffff, a.count, offset), __shfl_xor_sync(0xffffffff, a.mean, offset),
                     __shfl_xor_sync(0xffffffff, a.deviations, offset)};
        a = merge(a, b);
    }
    return a;
}

template<int V>
__global__ void __launch_bounds__(1024) layer_norm(const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
                                                   float* __restrict__ out, int d, float eps) {
    const Pack<V>* from = reinterpret_cast<const Pack<V>*>(x + (size_t)blockIdx.x * d);
    Pack<V>* to = reinterpret_cast<Pack<V>*>(out + (size_t)blockIdx.x * d);
    int packs = d / V;

    Pack<V> row[ITEMS] = {};
    Moments m = {0.0f, 0.0f, 0.0f};
    #pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        int i = threadIdx.x + k * blockDim.x;
        if (i < packs) row[k] = from[i];
    }
    #pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        if (threadIdx.x + k * blockDim.x >= packs) break;
        m.count += V;
        for (int c = 0; c < V; c++) m.mean += row[k].v[c] - row[0].v[0];
    }
    m.mean = row[0].v[0] + m.mean / fmaxf(m.count, 1.0f);
    #pragma unroll
    for (int k = 0; k < ITEMS; k++)
        if (threadIdx.x + k * blockDim.x < packs)
            for (int c = 0; c < V; c++) m.deviations += (row[k].v[c] - m.mean) * (row[k].v[c] - m.mean);

    __shared__ Moments of_warp[32];
    int lane = threadIdx.x % 32;
    m = warp_merge(m);
    if (lane == 0) of_warp[threadIdx.x / 32] = m;
    __syncthreads();
    m = warp_merge(lane < blockDim.x / 32 ? of_warp[lane] : Moments{0.0f, 0.0f, 0.0f});
    float rstd = rsqrtf(m.deviations / d + eps);

    #pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        int i = threadIdx.x + k * blockDim.x;
        if (i >= packs) break;
        Pack<V> w = reinterpret_cast<const Pack<V>*>(weight)[i];
        Pack<V> b = reinterpret_cast<const Pack<V>*>(bias)[i];
        for (int c = 0; c < V; c++) row[k].v[c] = fmaf((row[k].v[c] - m.mean) * rstd, w.v[c], b.v[c]);
        to[i] = row[k];
    }
}''', name_expressions=["layer_norm<4>", "layer_norm<1>"])


def forward(x, weight, bias):
    rows, d = x.shape
    out = cp.empty_like(x)
    v = 4 if d % 4 == 0 else 1
    warps = (d + 128 * v - 1) // (128 * v)  # 4 packs for each thread
    module.get_function(f"layer_norm<{v}>")((rows,), (32 * warps,), (x, weight, bias, out, d, np.float32(1e-5)))
    return out
