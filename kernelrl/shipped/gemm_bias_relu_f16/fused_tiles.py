"""Linear layer and ReLU in one kernel with 32 x 32 shared tiles, on ordinary FMA units.

Bias and ReLU ride along with the last store, so the M x N result is written once and never read. 2 K flops an output;
each of them takes two shared reads and a conversion from half, and the tensor cores stand idle."""
import cupy as cp

source = r'''
#include <cuda_fp16.h>
constexpr int T = 32;

extern "C" __global__ void __launch_bounds__(T * 8)
linear_relu(const half* __restrict__ x, const half* __restrict__ weight, const half* __restrict__ bias, half* __restrict__ out,
            int M, int N, int K) {
    __shared__ float xs[T][T + 1], ws[T][T + 1];       // converted once on the way in; padded: columns are read too
    const int col = threadIdx.x, first = threadIdx.y;  // a thread makes rows first, first + 8, first + 16, first + 24
    const int m0 = blockIdx.y * T, n = blockIdx.x * T + col;
    float sum[4] = {};
    for (int k0 = 0; k0 < K; k0 += T) {
        for (int r = first; r < T; r += 8) {
            const int m = m0 + r, wn = blockIdx.x * T + r, k = k0 + col;
            xs[r][col] = m < M && k < K ? __half2float(x[(size_t)m * K + k]) : 0.f;
            ws[r][col] = wn < N && k < K ? __half2float(weight[(size_t)wn * K + k]) : 0.f;
        }
        __syncthreads();
        #pragma unroll
        for (int k = 0; k < T; ++k)
            #pragma unroll
            for (int i = 0; i < 4; ++i) sum[i] = fmaf(xs[first + 8 * i][k], ws[col][k], sum[i]);
        __syncthreads();
    }
    if (n >= N) return;
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int m = m0 + first + 8 * i;
        const float v = sum[i] + __half2float(bias[n]);
        if (m < M) out[(size_t)m * N + n] = __float2half(v < 0.f ? 0.f : v);
    }
}'''
linear_relu = cp.RawKernel(source, "linear_relu")


def forward(x, linear_weight, linear_bias):
    M, K = x.shape
    N = linear_weight.shape[0]
    out = cp.empty((M, N), dtype=x.dtype)
    linear_relu(((N + 31) // 32, (M + 31) // 32), (32, 8), (x, linear_weight, linear_bias, out, M, N, K))
    return out
