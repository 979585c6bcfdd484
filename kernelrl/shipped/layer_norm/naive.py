"""Layer normalisation in three kernels: mean of each row, its inverse deviation, then the affine map.

Reads x three times (192 MiB) and writes it once (64 MiB). The variance takes a second pass with the mean known, which costs time but no digits: E[x^2] - E[x]^2
would cancel when the mean is large.
"""
import cupy as cp
import numpy as np

module = cp.RawModule(code=r'''
extern "C" __global__ void row_mean(const float* x, float* mean, int rows, int d) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    double total = 0.0;
    for (int j = 0; j < d; j++) total += x[row * d + j];
    mean[row] = (float)(total / d);
}

extern "C" __global__ void row_rstd(const float* x, const float* mean, float* rstd, int rows, int d, float eps) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    double total = 0.0;
    for (int j = 0; j < d; j++) {
        double c = x[row * d + j] - mean[row];
        total += c * c;
    }
    rstd[row] = (float)(1.0 / sqrt(total / d + eps));
}

extern "C" __global__ void affine(const float* x, const float* mean, const float* rstd, const float* weight, const float* bias,
                                  float* out, int n, int d) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = (x[i] - mean[i / d]) * rstd[i / d] * weight[i % d] + bias[i % d];
}''')
row_mean = module.get_function("row_mean")
row_rstd = module.get_function("row_rstd")
affine = module.get_function("affine")


def forward(x, weight, bias):
    rows, d = x.shape
    mean = cp.empty((rows,), dtype=cp.float32)
    rstd = cp.empty((rows,), dtype=cp.float32)
    out = cp.empty_like(x)
    row_blocks = ((rows + 63) // 64,)
    row_mean(row_blocks, (64,), (x, mean, rows, d))
    row_rstd(row_blocks, (64,), (x, mean, rstd, rows, d, np.float32(1e-5)))
    affine(((x.size + 255) // 256,), (256,), (x, mean, rstd, weight, bias, out, x.size, d))
    return out
