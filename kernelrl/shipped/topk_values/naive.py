"""The 8 largest of each row, one thread per row: a sorted list of eight, into which larger values are inserted.

4 bytes read an element, by threads that stand a whole row apart from one another."""
import cupy as cp

topk = cp.RawKernel(r'''
#define K 8
extern "C" __global__ void topk(const float* x, float* out, int rows, int n) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float best[K];
    for (int k = 0; k < K; k++) best[k] = -__int_as_float(0x7f800000);   // minus infinity
    for (int i = 0; i < n; i++) {
        float v = x[row * n + i];
        if (v <= best[K - 1]) continue;
        for (int k = 0; k < K; k++)
            if (v > best[k]) { float t = best[k]; best[k] = v; v = t; }
    }
    for (int k = 0; k < K; k++) out[row * K + k] = best[k];
}''', "topk")


def forward(x):
    rows, n = x.shape
    out = cp.empty((rows, 8), dtype=x.dtype)
    topk(((rows + 63) // 64,), (64,), (x, out, rows, n))
    return out
