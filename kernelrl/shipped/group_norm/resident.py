"""Group normalisation in one kernel: a whole group lives on one multiprocessor, half in registers and half in shared memory.

A group of 100352 floats is 392 KiB, more than shared memory holds (227 KB), but a multiprocessor also has 256 KB of registers. A block of 1024 threads keeps up
to 11 float4 a thread in registers and 14 in shared memory, so x is read once: 49 MiB in, 49 MiB out, and 128 groups on 132 multiprocessors. A thread reads back
only what it stored itself, so the data needs no barrier. A group that does not fit (or has other than 8 channels) needs expert.py.
"""
import cupy as cp
import numpy as np

THREADS, IN_REGISTERS, IN_SHARED, CHANNELS = 1024, 11, 14, 8

module = cp.RawModule(code=r'''
constexpr int THREADS = 1024, IN_REGISTERS = 11, CHANNELS = 8;
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
    for (int offset = 16; offset > 0; offset /= 2)
        a = merge(a, {__shfl_xor_sync(0xffffffff, a.count, offset), __shfl_xor_sync(0xffffffff, a.mean, offset),
                      __shfl_xor_sync(0xffffffff, a.deviations, offset)});
    return a;
}

template<int V>
__global__ void __launch_bounds__(THREADS) group_norm(const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
                                                      float* __restrict__ out, int packs, int pixels, int groups, float eps) {
    extern __shared__ __align__(16) float memory[];
    __shared__ Moments of_warp[THREADS / 32];
    __shared__ float2 affine[CHANNELS];  // out = (x - mean) * .x + .y
    Pack<V>* kept = reinterpret_cast<Pack<V>*>(memory);
    const Pack<V>* from = reinterpret_cast<const Pack<V>*>(x) + (size_t)blockIdx.x * packs;
    Pack<V>* to = reinterpret_cast<Pack<V>*>(out) + (size_t)blockIdx.x * packs;
    int t = threadIdx.x, rest = packs - IN_REGISTERS * THREADS;  // the first packs go to registers, the rest to shared memory

    Pack<V> held[IN_REGISTERS] = {};
    #pragma unroll
    for (int k = 0; k < IN_REGISTERS; k++)
        if (t + k * THREADS < packs) held[k] = from[t + k * THREADS];

    // Sums relative to the thread's first element: a large offset or a constant group costs no digits
    Moments m = {0.0f, 0.0f, 0.0f};
    float origin = held[0].v[0], sum = 0.0f;
    #pragma unroll 2
    for (int i = t; i < rest; i += THREADS) {
        Pack<V> p = from[IN_REGISTERS * THREADS + i];
        kept[i] = p;
        for (int c = 0; c < V; c++) sum += p.v[c] - origin;
    }
    #pragma unroll
    for (int k = 0; k < IN_REGISTERS; k++)
        if (t + k * THREADS < packs)
            for (int c = 0; c < V; c++) sum += held[k].v[c] - origin;
    m.count = (packs - t + THREADS - 1) / THREADS * V;  // 0 for a thread without a pack
    m.mean = origin + sum / fmaxf(m.count, 1.0f);
    for (int i = t; i < rest; i += THREADS)
        for (int c = 0; c < V; c++) m.deviations += (kept[i].v[c] - m.mean) * (kept[i].v[c] - m.mean);
    #pragma unroll
    for (int k = 0; k < IN_REGISTERS; k++)
        if (t + k * THREADS < packs)
            for (int c = 0; c < V; c++) m.deviations += (held[k].v[c] - m.mean) * (held[k].v[c] - m.mean);

    m = warp_merge(m);
    if (t % 32 == 0) of_warp[t / 32] = m;
    __syncthreads();
    m = warp_merge(of_warp[t % 32]);
    if (t < CHANNELS) {
        int channel = blockIdx.x % groups * CHANNELS + t;
        float scale = rsqrtf(m.deviations / m.count + eps) * weight[channel];
        affine[t] = make_float2(scale, bias[channel]);
    }
    __syncthreads();

    int packs_in_plane = pixels / V;
    #pragma unroll
    for (int k = 0; k < IN_REGISTERS; k++) {
        int i = t + k * THREADS;
        if (i >= packs) return;
        float2 f = affine[i / packs_in_plane];
        for (int c = 0; c < V; c++) held[k].v[c] = fmaf(held[k].v[c] - m.mean, f.x, f.y);
        to[i] = held[k];
    }
    for (int j = t; j < rest; j += THREADS) {
        int i = IN_REGISTERS * THREADS + j;
        float2 f = affine[i / packs_in_plane];
        Pack<V> p = kept[j];
        for (int c = 0; c < V; c++) p.v[c] = fmaf(p.v[c] - m.mean, f.x, f.y);
        to[i] = p;
    }
}''', name_expressions=["group_norm<4>", "group_norm<1>"])


def forward(x, norm_weight, norm_bias):
    batches, channels, height, width = x.shape
    groups, pixels = channels // CHANNELS, height * width
    v = 4 if pixels % 4 == 0 else 1
    packs = CHANNELS * pixels // v
    if packs > (IN_REGISTERS + IN_SHARED) * THREADS: raise ValueError("this group does not fit a multiprocessor")
    shared = max(0, packs - IN_REGISTERS * THREADS) * 4 * v
    kernel = module.get_function(f"group_norm<{v}>")
    kernel.max_dynamic_shared_size_bytes = IN_SHARED * THREADS * 16
    out = cp.empty_like(x)
    kernel((batches * groups,), (THREADS,), (x, norm_weight, norm_bias, out, packs, pixels, groups, np.float32(1e-5)), shared_mem=shared)
    return out
