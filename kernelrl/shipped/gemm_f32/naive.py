"""Matrix product, one thread per output: a row of a times a column of b, straight from device memory.

2 K flops and 8 K bytes of loads an output: the caches do all the work."""
import cupy as cp

gemm = cp.RawKernel(r'''
extern "C" __global__ void gemm(const float* a, const float* b, float* c, int M, int N, int K) {
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= M || col >= N) return;
    float sum = 0.0f;
    for (int k = 0; k < K; k++) sum += a[row * K + k] * b[k * N + col];
    c[row * N + col] = sum;
}''', "gemm")


def forward(a, b):
    M, K = a.shape
    N = b.shape[1]
    c = cp.empty((M, N), dtype=a.dtype)
    gemm(((N + 31) // 32, (M + 7) // 8), (32, 8), (a, b, c, M, N, K))
    return c
