"""Linear layer and ReLU on the tensor cores through wmma: 128 x 128 outputs a block, 32 x 64 a warp (2 x 4 fragments).

Tiles of 32 along K are double-buffered in shared memory: the next one travels through registers while this one is
multiplied. Bias and ReLU are applied as the float accumulators pass through shared memory on their way to half.
2 K flops an output. wmma reaches roughly half of what wgmma does on Hopper, so cuBLAS stays ahead of this."""
import cupy as cp

source = r'''
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

constexpr int BM = 128, BN = 128, BK = 32, THREADS = 256;
constexpr int LD = BK + 8;                                    // 80-byte rows: eight of them cover all banks
constexpr int TILE = BM * LD;                                 // halves of one operand tile
constexpr int PATCH = 16 * 20;                                // floats of a warp's way out

// eight halves of row r from column k on, zero outside the matrix
template <bool VEC> __device__ __forceinline__ uint4 load8(const half* __restrict__ p, int r, int rows, int k, int n) {
    if (r >= rows) return make_uint4(0, 0, 0, 0);
    p += (size_t)r * n + k;
    if constexpr (VEC) return k < n ? *reinterpret_cast<const uint4*>(p) : make_uint4(0, 0, 0, 0);
    else {
        __align__(16) half h[8];
        #pragma unroll
        for (int i = 0; i < 8; ++i) h[i] = k + i < n ? p[i] : __float2half(0.f);
        return *reinterpret_cast<uint4*>(h);
    }
}

template <bool VEC> __global__ void __launch_bounds__(THREADS, 2)
gemm_bias_relu(const half* __restrict__ x, const half* __restrict__ weight, const half* __restrict__ bias, half* __restrict__ out,
               int M, int N, int K) {
    __shared__ __align__(128) half tiles[4 * TILE];           // x, weight, x, weight
    const int t = threadIdx.x, lane = t % 32, warp = t / 32;
    const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
    const int wm = warp % 4 * 32, wn = warp / 4 * 64;         // this warp's corner in the block tile
    const int lr = t / 4, lk = t % 4 * 8;                     // loading: 4 threads a row, rows lr and lr + 64

    wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc[2][4];
    #pragma unroll
    for (int i = 0; i < 2; ++i)
        #pragma unroll
        for (int j = 0; j < 4; ++j) wmma::fill_fragment(acc[i][j], 0.f);

    uint4 rx[2], rw[2];
    for (int k0 = -BK, s = 1; k0 < K; k0 += BK, s ^= 1) {     // the first turn only loads
        const bool more = k0 + BK < K;
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (!more) break;
            rx[i] = load8<VEC>(x, m0 + lr + 64 * i, M, k0 + BK + lk, K);
            rw[i] = load8<VEC>(weight, n0 + lr + 64 * i, N, k0 + BK + lk, K);
        }
        if (k0 >= 0) {
            const half* xs = tiles + 2 * s * TILE, *ws = xs + TILE;
            #pragma unroll
            for (int k = 0; k < BK; k += 16) {
                wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a[2];
                wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b;
                #pragma unroll
                for (int i = 0; i < 2; ++i) wmma::load_matrix_sync(a[i], xs + (wm + 16 * i) * LD + k, LD);
                #pragma unroll
                for (int j = 0; j < 4; ++j) {
                    wmma::load_matrix_sync(b, ws + (wn + 16 * j) * LD + k, LD);
                    #pragma unroll
                    for (int i = 0; i < 2; ++i) wmma::mma_sync(acc[i][j], a[i], b, acc[i][j]);
                }
            }
        }
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (!more) break;
            half* xs = tiles + 2 * (s ^ 1) * TILE + (lr + 64 * i) * LD + lk;
            *reinterpret_cast<uint4*>(xs) = rx[i];
            *reinterpret_cast<uint4*>(xs + TILE) = rw[i];
        }
        __syncthreads();
    }

    float* patch = reinterpret_cast<float*>(tiles) + warp * PATCH;      // the tiles are done with
    const int r = lane / 2, c = lane % 2 * 8;                           // two lanes a row, eight columns each
    #pragma unroll
    for (int i = 0; i < 2; ++i)
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            wmma::store_matrix_sync(patch, acc[i][j], 20, wmma::mem_row_major);
            __syncwarp();
            const int m = m0 + wm + 16 * i + r, n = n0 + wn + 16 * j + c;
            __align__(16) half h[8];
            #pragma unroll
            for (int e = 0; e < 8; ++e) {
                float v = patch[r * 20 + c + e] + (n + e < N ? __half2float(bias[n + e]) : 0.f);
                h[e] = __float2half(v < 0.f ? 0.f : v);
            }
            half* o = out + (size_t)m * N + n;
            if (m < M && N % 8 == 0) { if (n < N) *reinterpret_cast<uint4*>(o) = *reinterpret_cast<uint4*>(h); }
            else if (m < M) for (int e = 0; e < 8; ++e) if (n + e < N) o[e] = h[e];
            __syncwarp();
        }
}'''
module = cp.RawModule(code=source, options=("--std=c++17",), name_expressions=["gemm_bias_relu<true>", "gemm_bias_relu<false>"])


def forward(x, linear_weight, linear_bias):
    M, K = x.shape
    N = linear_weight.shape[0]
    out = cp.empty((M, N), dtype=x.dtype)
    kernel = module.get_function("gemm_bias_relu<true>" if K % 8 == 0 else "gemm_bias_relu<false>")
    kernel(((N + 127) // 128, (M + 127) // 128), (256,), (x, linear_weight, linear_bias, out, M, N, K))
    return out
