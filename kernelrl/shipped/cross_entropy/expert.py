"""Mean cross entropy without ever writing log-probabilities: the loss of a row is logsumexp(row) - row[label].

A block for each row, which is read once into registers (64 MiB in all). Eager PyTorch writes the whole log-softmax (another 64 MiB) only to pick one number
from each row. Threads reduce a maximum and a sum of exponentials relative to their own maximum, and merge the pairs, so one barrier is enough. A second
kernel of one block takes the mean, in a fixed order.
"""
import cupy as cp

ITEMS = 8

module = cp.RawModule(code=r'''
constexpr int ITEMS = 8;
constexpr float LOWEST = -3.402823466e+38f;  // finite, so that no difference of maxima is NaN
template<int V> struct alignas(4 * V) Pack { float v[V]; };

__device__ __forceinline__ void merge(float& top, float& total, float other_top, float other_total) {
    float m = fmaxf(top, other_top);
    total = total * expf(top - m) + other_total * expf(other_top - m);
    top = m;
}

__device__ __forceinline__ void warp_merge(float& top, float& total) {
    #pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        float other_top = __shfl_xor_sync(0xffffffff, top, offset);
        float other_total = __shfl_xor_sync(0xffffffff, total, offset);
        merge(top, total, other_top, other_total);
    }
}

template<int V>
__global__ void __launch_bounds__(1024) row_loss(const float* __restrict__ logits, const long long* __restrict__ labels, float* __restrict__ loss, int d) {
    __shared__ float tops[32], totals[32];
    const float* row = logits + (size_t)blockIdx.x * d;
    const Pack<V>* packs = reinterpret_cast<const Pack<V>*>(row);

    Pack<V> p[ITEMS];
    #pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        int i = threadIdx.x + k * blockDim.x;
        if (i < d / V) p[k] = packs[i];
        else for (int c = 0; c < V; c++) p[k].v[c] = LOWEST;
    }
    float top = LOWEST;
    #pragma unroll
    for (int k = 0; k < ITEMS * V; k++) top = fmaxf(top, p[k / V].v[k % V]);
    float total = 0.0f;
    #pragma unroll
    for (int k = 0; k < ITEMS; k++)
        if (threadIdx.x + k * blockDim.x < d / V)
            for (int c = 0; c < V; c++) total += expf(p[k].v[c] - top);

    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    warp_merge(top, total);
    if (lane == 0) {
        tops[warp] = top;
        totals[warp] = total;
    }
    __syncthreads();
    if (warp > 0) return;
    top = lane < blockDim.x / 32 ? tops[lane] : LOWEST;
    total = lane < blockDim.x / 32 ? totals[lane] : 0.0f;
    warp_merge(top, total);
    if (lane == 0) loss[blockIdx.x] = logf(total) - (row[labels[blockIdx.x]] - top);
}

extern "C" __global__ void __launch_bounds__(512) mean(const float* __restrict__ loss, float* out, int rows) {
    __shared__ float sums[16];
    float total = 0.0f;
    for (int i = threadIdx.x; i < rows; i += 512) total += loss[i];
    for (int offset = 16; offset > 0; offset /= 2) total += __shfl_down_sync(0xffffffff, total, offset);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = total;
    __syncthreads();
    if (threadIdx.x > 0) return;
    total = 0.0f;
    for (int w = 0; w < 16; w++) total += sums[w];
    out[0] = total / rows;
}''', name_expressions=["row_loss<4>", "row_loss<1>", "mean"])


def forward(logits, labels):
    rows, d = logits.shape
    loss = cp.empty((rows,), dtype=cp.float32)
    out = cp.empty((), dtype=cp.float32)
    v = 4 if d % 4 == 0 else 1
    warps = (d + 32 * ITEMS * v - 1) // (32 * ITEMS * v)
    module.get_function(f"row_loss<{v}>")((rows,), (32 * warps,), (logits, labels, loss, d))
    module.get_function("mean")((1,), (512,), (loss, out, rows))
    return out
