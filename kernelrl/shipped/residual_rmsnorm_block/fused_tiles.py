"""x + silu(rms_norm(x) @ weight.T) in one kernel with shared tiles, on ordinary FMA units.

A block makes 32 rows x 32 outputs. The row's scale commutes with the product, so it is summed up while the tiles of x
pass by and applied at the end. 2 D flops an output, x read D / 32 times (mostly from L2), nothing else in between."""
import cupy as cp

source = r'''
#include <cuda_fp16.h>
#define T 32

extern "C" __global__ void __launch_bounds__(T * 8)
rmsnorm_block(const half* x, const half* norm_weight, const half* weight, half* out, int N, int D) {
    __shared__ float xs[T][T + 1], ws[T][T + 1];
    const int col = threadIdx.x, first = threadIdx.y;
    const int row0 = blockIdx.x * T, o0 = blockIdx.y * T;
    float sum[4] = {}, squares[4] = {};                // rows first, first + 8, first + 16, first + 24
    for (int d0 = 0; d0 < D; d0 += T) {
        const int d = d0 + col;
        const float g = d < D ? __half2float(norm_weight[d]) : 0.f;
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int r = first + 8 * i;
            const float v = row0 + r < N && d < D ? __half2float(x[(size_t)(row0 + r) * D + d]) : 0.f;
            squares[i] += v * v;                       // this lane's share of the row
            xs[r][col] = v * g;
            ws[r][col] = o0 + r < D && d < D ? __half2float(weight[(size_t)(o0 + r) * D + d]) : 0.f;
        }
        __syncthreads();
        #pragma unroll
        for (int k = 0; k < T; ++k)
            #pragma unroll
            for (int i = 0; i < 4; ++i) sum[i] = fmaf(xs[first + 8 * i][k], ws[col][k], sum[i]);
        __syncthreads();
    }
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int m = 16; m > 0; m /= 2) squares[i] += __shfl_xor_sync(0xffffffffu, squares[i], m);
        const int row = row0 + first + 8 * i, o = o0 + col;
        if (row >= N || o >= D) continue;
        const float h = sum[i] * rsqrtf(squares[i] / D + 1e-5f);
        out[(size_t)row * D + o] = __float2half(__half2float(x[(size_t)row * D + o]) + h / (1.f + expf(-h)));
    }
}'''
kernel = cp.RawKernel(source, "rmsnorm_block")


def forward(x, norm_weight, proj_weight):
    N, D = x.shape
    out = cp.empty(x.shape, dtype=x.dtype)
    kernel(((N + 31) // 32, (D + 31) // 32), (32, 8), (x, norm_weight, proj_weight, out, N, D))
    return out
