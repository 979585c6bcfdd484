"""Linear layer in half precision, then ReLU: two kernels, one thread per output, accumulation in float.

2 K flops an output; the M x N result goes to memory and back between the two."""
import cupy as cp

source = r'''
#include <cuda_fp16.h>

extern "C" __global__ void linear(const half* x, const half* weight, const half* bias, half* y, int M, int N, int K) {
    int n = blockIdx.x * blockDim.x + threadIdx.x;
    int m = blockIdx.y * blockDim.y + threadIdx.y;
    if (m >= M || n >= N) return;
    float sum = 0.0f;
    for (int k = 0; k < K; k++) sum += __half2float(x[m * K + k]) * __half2float(weight[n * K + k]);
    y[m * N + n] = __float2half(sum + __half2float(bias[n]));
}

extern "C" __global__ void relu(const half* y, half* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = __half2float(y[i]);
    out[i] = __float2half(v < 0.0f ? 0.0f : v);
}'''
module = cp.RawModule(code=source)


def forward(x, linear_weight, linear_bias):
    M, K = x.shape
    N = linear_weight.shape[0]
    y = cp.empty((M, N), dtype=x.dtype)
    out = cp.empty((M, N), dtype=x.dtype)
    linear, relu = module.get_function("linear"), module.get_function("relu")
    linear(((N + 31) // 32, (M + 7) // 8), (32, 8), (x, linear_weight, linear_bias, y, M, N, K))
    relu(((M * N + 255) // 256,), (256,), (y, out, M * N))
    return out
