"""Group normalisation in two kernels over the same grid: the moments of every 4096-element piece of a group, then the affine map.

A group of 100352 elements is too much for a block (PyTorch gives it one all the same), so 25 blocks share it and leave (mean, squared deviations); in the
second kernel every warp merges these for itself. The second kernel runs through the blocks backwards: what the first one read last is still in the 60 MB L2
cache. 49 MiB read, 49 MiB written, and the second reading partly from L2.
"""
import cupy as cp
import numpy as np

PIECE = 4096  # elements for a block: 256 threads x 16

module = cp.RawModule(code=r'''
constexpr int PIECE = 4096, THREADS = 256;
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

// grid: x = piece, y = group
template<int V>
__global__ void __launch_bounds__(THREADS) piece_moments(const float* __restrict__ x, float2* __restrict__ moments, int group_size) {
    constexpr int ITEMS = PIECE / THREADS / V;
    int start = blockIdx.x * PIECE;
    int packs = min(PIECE, group_size - start) / V;
    const Pack<V>* from = reinterpret_cast<const Pack<V>*>(x + (size_t)blockIdx.y * group_size + start);

    Pack<V> p[ITEMS] = {};
    #pragma unroll
    for (int k = 0; k < ITEMS; k++)
        if (threadIdx.x + k * THREADS < packs) p[k] = from[threadIdx.x + k * THREADS];

    Moments m = {0.0f, 0.0f, 0.0f};
    #pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        if (threadIdx.x + k * THREADS >= packs) break;
        m.count += V;
        for (int c = 0; c < V; c++) m.mean += p[k].v[c] - p[0].v[0];
    }
    m.mean = p[0].v[0] + m.mean / fmaxf(m.count, 1.0f);
    #pragma unroll
    for (int k = 0; k < ITEMS; k++)
        if (threadIdx.x + k * THREADS < packs)
            for (int c = 0; c < V; c++) m.deviations += (p[k].v[c] - m.mean) * (p[k].v[c] - m.mean);

    __shared__ Moments of_warp[THREADS / 32];
    int lane = threadIdx.x % 32;
    m = warp_merge(m);
    if (lane == 0) of_warp[threadIdx.x / 32] = m;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    m = warp_merge(lane < THREADS / 32 ? of_warp[lane] : Moments{0.0f, 0.0f, 0.0f});
    if (lane == 0) moments[blockIdx.y * gridDim.x + blockIdx.x] = make_float2(m.mean, m.deviations);
}

template<int V>
__global__ void __launch_bounds__(THREADS) normalise(const float* __restrict__ x, const float2* __restrict__ moments, const float* __restrict__ weight,
                                                     const float* __restrict__ bias, float* __restrict__ out, int group_size, int pixels, int groups, float eps) {
    constexpr int ITEMS = PIECE / THREADS / V;
    int piece = gridDim.x - 1 - blockIdx.x, group = gridDim.y - 1 - blockIdx.y;  // backwards
    int start = piece * PIECE;
    int packs = min(PIECE, group_size - start) / V;
    const Pack<V>* from = reinterpret_cast<const Pack<V>*>(x + (size_t)group * group_size + start);
    Pack<V>* to = reinterpret_cast<Pack<V>*>(out + (size_t)group * group_size + start);

    Pack<V> p[ITEMS];
    #pragma unroll
    for (int k = 0; k < ITEMS; k++)
        if (threadIdx.x + k * THREADS < packs) p[k] = from[threadIdx.x + k * THREADS];

    Moments m = {0.0f, 0.0f, 0.0f};  // while these loads are on their way
    for (int i = threadIdx.x % 32; i < gridDim.x; i += 32) {
        float2 other = moments[group * gridDim.x + i];
        m = merge(m, {(float)min(PIECE, group_size - i * PIECE), other.x, other.y});
    }
    m = warp_merge(m);
    float rstd = rsqrtf(m.deviations / group_size + eps);

    int first_channel = group % groups * (group_size / pixels);
    #pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        int i = threadIdx.x + k * THREADS;
        if (i >= packs) break;
        int channel = first_channel + (start + i * V) / pixels;  // V divides pixels: a pack has one channel
        float scale = rstd * weight[channel], shift = bias[channel];
        for (int c = 0; c < V; c++) p[k].v[c] = fmaf(p[k].v[c] - m.mean, scale, shift);
        to[i] = p[k];
    }
}''', name_expressions=[f"{name}<{v}>" for name in ("piece_moments", "normalise") for v in (4, 1)])


def forward(x, norm_weight, norm_bias):
    batches, channels, height, width = x.shape
    groups, pixels = channels // 8, height * width
    group_size = channels // groups * pixels
    grid = ((group_size + PIECE - 1) // PIECE, batches * groups)
    moments = cp.empty((*grid[::-1], 2), dtype=cp.float32)
    out = cp.empty_like(x)
    v = 4 if pixels % 4 == 0 else 1
    module.get_function(f"piece_moments<{v}>")(grid, (256,), (x, moments, group_size))
    module.get_function(f"normalise<{v}>")(grid, (256,), (x, moments, norm_weight, norm_bias, out, group_size, pixels, groups, np.float32(1e-5)))
    return out
