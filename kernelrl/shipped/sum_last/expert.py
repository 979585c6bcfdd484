"""Sum of each row, one warp for each row: no shared memory and no barrier.

Reads 64 MiB in 16-byte loads. The loop is unrolled with a constant step, so several loads of a lane are on their way at once, and all 4096 warps fit on the
chip together. Every lane has four running sums and the lanes are joined by a butterfly of shuffles: no sum is longer than 32 terms, which keeps the rounding
error at that of a tree.
"""
import cupy as cp

WARPS = 4  # rows for each block

module = cp.RawModule(code=r'''
template<int V> struct alignas(4 * V) Pack { float v[V]; };

template<int V>
__global__ void __launch_bounds__(128) row_sum(const float* __restrict__ x, float* __restrict__ out, int rows, int d) {
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    int lane = threadIdx.x % 32;
    if (row >= rows) return;  // the whole warp leaves, so the shuffles below still have all their lanes
    const Pack<V>* packs = reinterpret_cast<const Pack<V>*>(x + (size_t)row * d);

    float acc[V] = {};
    #pragma unroll 8
    for (int i = lane; i < d / V; i += 32) {
        Pack<V> p = packs[i];
        #pragma unroll
        for (int k = 0; k < V; k++) acc[k] += p.v[k];
    }

    float total = 0.0f;
    #pragma unroll
    for (int k = 0; k < V; k++) total += acc[k];
    #pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) total += __shfl_xor_sync(0xffffffff, total, offset);
    if (lane == 0) out[row] = total;
}''', name_expressions=["row_sum<4>", "row_sum<1>"])


def forward(x):
    rows, d = x.shape
    out = cp.empty((rows,), dtype=cp.float32)
    kernel = module.get_function("row_sum<4>" if d % 4 == 0 else "row_sum<1>")
    kernel(((rows + WARPS - 1) // WARPS,), (32 * WARPS,), (x, out, rows, d))
    return out
