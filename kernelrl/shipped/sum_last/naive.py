"""Sum of each row, one thread for each row.

Reads 64 MiB, but badly: neighbouring threads read 16 KiB apart, so every load of a warp touches 32 cache lines. A thread adds thousands of numbers one
after another, which in float would lose digits that PyTorch's tree of partial sums keeps; so the running sum is a double.
"""
import cupy as cp

row_sum = cp.RawKernel(r'''
extern "C" __global__ void row_sum(const float* x, float* out, int rows, int d) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    double total = 0.0;
    for (int j = 0; j < d; j++) total += x[row * d + j];
    out[row] = (float)total;
}''', "row_sum")


def forward(x):
    rows, d = x.shape
    out = cp.empty((rows,), dtype=cp.float32)
    row_sum(((rows + 63) // 64,), (64,), (x, out, rows, d))
    return out
