"""The 8 largest of each row, one warp per row: 32 sorted lists in registers, merged at the end by shuffles.

4 bytes read an element, coalesced. Nearly every value still costs a warp the eight compare-exchanges of an insertion,
because some lane or other can use it."""
import cupy as cp

topk = cp.RawKernel(r'''
#define K 8

__device__ void insert(float* best, float v) {
    #pragma unroll
    for (int k = 0; k < K; k++) { float hi = fmaxf(best[k], v); v = fminf(best[k], v); best[k] = hi; }
}

extern "C" __global__ void topk(const float* x, float* out, int rows, int n) {
    int lane = threadIdx.x % 32, row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    float best[K], theirs[K];
    #pragma unroll
    for (int k = 0; k < K; k++) best[k] = -__int_as_float(0x7f800000);   // minus infinity
    for (int i = lane; i < n; i += 32) {
        float v = x[(size_t)row * n + i];
        if (v > best[K - 1]) insert(best, v);
    }
    for (int d = 16; d > 0; d /= 2) {                                    // take in the list of the lane d further on
        #pragma unroll
        for (int k = 0; k < K; k++) theirs[k] = __shfl_down_sync(0xffffffffu, best[k], d);
        #pragma unroll
        for (int k = 0; k < K; k++) insert(best, theirs[k]);
    }
    if (lane > 0) return;
    #pragma unroll
    for (int k = 0; k < K; k++) out[row * K + k] = best[k];
}''', "topk")


def forward(x):
    rows, n = x.shape
    out = cp.empty((rows, 8), dtype=x.dtype)
    topk(((rows + 7) // 8,), (256,), (x, out, rows, n))
    return out
