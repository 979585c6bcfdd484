"""Index of the largest element of each row, a block for each row, the row held in registers.

Reads 64 MiB: every thread loads its (up to) four float4 before it compares. What travels through shuffles and shared memory is a pair of value and index;
of equal values the smaller index wins, so the answer does not depend on the order of the reduction.
"""
import cupy as cp

module = cp.RawModule(code=r'''
constexpr int ITEMS = 4;
template<int V> struct alignas(4 * V) Pack { float v[V]; };
struct Best { float value; int index; };

__device__ __forceinline__ Best none() { return {__int_as_float(0xff800000), 0x7fffffff}; }  // minus infinity, and after every index

__device__ __forceinline__ Best better(Best a, Best b) {
    bool nan_a = a.value != a.value, nan_b = b.value != b.value;
    bool tie = nan_a ? nan_b : a.value == b.value;
    bool take_b = tie ? b.index < a.index : nan_b || (!nan_a && b.value > a.value);
    return take_b ? b : a;
}

__device__ __forceinline__ Best warp_best(Best best) {
    #pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        Best other = {__shfl_xor_sync(0xffffffff, best.value, offset), __shfl_xor_sync(0xffffffff, best.index, offset)};
        best = better(best, other);
    }
    return best;
}

template<int V>
__global__ void __launch_bounds__(1024) row_argmax(const float* __restrict__ x, long long* __restrict__ out, int d) {
    const Pack<V>* row = reinterpret_cast<const Pack<V>*>(x + (size_t)blockIdx.x * d);
    Pack<V> held[ITEMS];
    #pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        int i = threadIdx.x + k * blockDim.x;
        if (i < d / V) held[k] = row[i];
    }
    Best best = none();
    #pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        int i = threadIdx.x + k * blockDim.x;
        if (i < d / V)
            #pragma unroll
            for (int c = 0; c < V; c++) best = better(best, Best{held[k].v[c], i * V + c});
    }

    __shared__ Best of_warp[32];
    best = warp_best(best);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x < 32) {
        best = warp_best(threadIdx.x < blockDim.x / 32 ? of_warp[threadIdx.x] : none());
        if (threadIdx.x == 0) out[blockIdx.x] = best.index;
    }
}''', name_expressions=["row_argmax<4>", "row_argmax<1>"])


def forward(x):
    rows, d = x.shape
    out = cp.empty((rows,), dtype=cp.int64)
    v = 4 if d % 4 == 0 else 1
    threads = (d + 4 * v * 32 - 1) // (4 * v * 32) * 32  # whole warps, four packs for each thread
    module.get_function(f"row_argmax<{v}>")((rows,), (threads,), (x, out, d))
    return out
