"""Softmax of each row with the row in registers: read once, exp taken once for each element, written once.

A block for each row. All loads are issued before anything is computed, then two reductions (maximum, sum) go through shuffles and one shared slot for each
warp. 128 MiB moved, which is also what PyTorch's own fused softmax moves: here there is little to win.
"""
import cupy as cp

ITEMS = 4  # packs for each thread

module = cp.RawModule(code=r'''
constexpr int ITEMS = 4;
template<int V> struct alignas(4 * V) Pack { float v[V]; };

struct Max { __device__ float operator()(float a, float b) const { return fmaxf(a, b); } };
struct Sum { __device__ float operator()(float a, float b) const { return a + b; } };

template<typename Op>
__device__ __forceinline__ float warp_reduce(float v, Op op) {
    #pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) v = op(v, __shfl_xor_sync(0xffffffff, v, offset));
    return v;
}

// Every warp reduces the warps' results again for itself, so one barrier is enough
template<typename Op>
__device__ __forceinline__ float block_reduce(float v, float neutral, Op op, float* slots) {
    int lane = threadIdx.x % 32;
    v = warp_reduce(v, op);
    if (lane == 0) slots[threadIdx.x / 32] = v;
    __syncthreads();
    return warp_reduce(lane < blockDim.x / 32 ? slots[lane] : neutral, op);
}

template<int V>
__global__ void __launch_bounds__(1024) softmax(const float* __restrict__ x, float* __restrict__ out, int d) {
    __shared__ float maxima[32], sums[32];
    const float lowest = __int_as_float(0xff800000);  // minus infinity
    const Pack<V>* from = reinterpret_cast<const Pack<V>*>(x + (size_t)blockIdx.x * d);
    Pack<V>* to = reinterpret_cast<Pack<V>*>(out + (size_t)blockIdx.x * d);
    int packs = d / V;

    Pack<V> row[ITEMS];
    #pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        int i = threadIdx.x + k * blockDim.x;
        if (i < packs) row[k] = from[i];
        else for (int c = 0; c < V; c++) row[k].v[c] = lowest;  // exp makes it 0
    }

    float top = lowest;
    #pragma unroll
    for (int k = 0; k < ITEMS * V; k++) top = fmaxf(top, row[k / V].v[k % V]);
    top = block_reduce(top, lowest, Max(), maxima);

    float total = 0.0f;
    #pragma unroll
    for (int k = 0; k < ITEMS * V; k++) {
        float e = expf(row[k / V].v[k % V] - top);
        row[k / V].v[k % V] = e;
        total += e;
    }
    float scale = 1.0f / block_reduce(total, 0.0f, Sum(), sums);

    #pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        int i = threadIdx.x + k * blockDim.x;
        for (int c = 0; c < V; c++) row[k].v[c] *= scale;
        if (i < packs) to[i] = row[k];
    }
}''', name_expressions=["softmax<4>", "softmax<1>"])


def forward(x):
    rows, d = x.shape
    out = cp.empty_like(x)
    v = 4 if d % 4 == 0 else 1
    warps = (d + 32 * ITEMS * v - 1) // (32 * ITEMS * v)
    module.get_function(f"softmax<{v}>")((rows,), (32 * warps,), (x, out, d))
    return out
