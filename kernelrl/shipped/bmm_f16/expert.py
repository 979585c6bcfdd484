"""Batched matrix product on the tensor cores through wmma: 128 x 64 outputs a block, 32 x 32 for each of its 8 warps.

b keeps its row-major layout in shared memory (wmma takes it as it is), both tiles are double-buffered, and every
global access is 16 bytes. 2 K flops an output, but at K = 128 the 50 MB of traffic weigh as much as the 4.3 GFLOP."""
import cupy as cp

source = r'''
#include <cuda_fp16.h>
#include <mma.h>
namespace wm = nvcuda::wmma;

#define BM 128
#define BN 64
#define BK 32
#define LDA (BK + 8)       // padded rows: eight of them cover all banks
#define LDB (BN + 8)
#define A_TILE (BM * LDA)
#define B_TILE (BK * LDB)

// p[row][col .. col+7], zeros outside; vec says that rows are 16-byte aligned
__device__ __forceinline__ uint4 piece(const half* __restrict__ p, int row, int rows, int col, int cols, bool vec) {
    uint4 v = make_uint4(0, 0, 0, 0);
    if (row >= rows || col >= cols) return v;
    p += (size_t)row * cols + col;
    if (vec) return *reinterpret_cast<const uint4*>(p);
    half* h = reinterpret_cast<half*>(&v);
    for (int i = 0; i < 8; ++i) if (col + i < cols) h[i] = p[i];
    return v;
}

extern "C" __global__ void __launch_bounds__(256, 2)
bmm(const half* __restrict__ a, const half* __restrict__ b, half* __restrict__ c, int M, int N, int K) {
    __shared__ __align__(128) half as[2][A_TILE];
    __shared__ __align__(128) half bs[2][B_TILE];
    const int t = threadIdx.x, lane = t & 31, warp = t >> 5;
    const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
    const int wr = (warp & 3) * 32, wc = (warp >> 2) * 32;
    const bool va = K % 8 == 0, vb = N % 8 == 0;
    a += (size_t)blockIdx.z * M * K;
    b += (size_t)blockIdx.z * K * N;
    c += (size_t)blockIdx.z * M * N;

    const int ar = t / 4, ac = t % 4 * 8;      // two pieces of a (rows ar, ar + 64) and one of b a thread
    const int br = t / 8, bc = t % 8 * 8;
    uint4 ra0 = piece(a, m0 + ar, M, ac, K, va), ra1 = piece(a, m0 + ar + 64, M, ac, K, va), rb = piece(b, br, K, n0 + bc, N, vb);

    wm::fragment<wm::accumulator, 16, 16, 16, float> acc[2][2];
    for (int i = 0; i < 4; ++i) wm::fill_fragment(acc[i / 2][i % 2], 0.f);

    const int steps = (K + BK - 1) / BK;
    for (int step = 0; step < steps; ++step) {
        half* A = as[step & 1], *B = bs[step & 1];
        *reinterpret_cast<uint4*>(A + ar * LDA + ac) = ra0;
        *reinterpret_cast<uint4*>(A + (ar + 64) * LDA + ac) = ra1;
        *reinterpret_cast<uint4*>(B + br * LDB + bc) = rb;
        __syncthreads();                       // one barrier a step: the other buffer is free by the time it is written again
        if (step + 1 < steps) {
            const int k = (step + 1) * BK;
            ra0 = piece(a, m0 + ar, M, k + ac, K, va);
            ra1 = piece(a, m0 + ar + 64, M, k + ac, K, va);
            rb = piece(b, k + br, K, n0 + bc, N, vb);
        }
        #pragma unroll
        for (int k = 0; k < BK; k += 16) {
            wm::fragment<wm::matrix_a, 16, 16, 16, half, wm::row_major> fa[2];
            wm::fragment<wm::matrix_b, 16, 16, 16, half, wm::row_major> fb[2];
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                wm::load_matrix_sync(fa[i], A + (wr + 16 * i) * LDA + k, LDA);
                wm::load_matrix_sync(fb[i], B + k * LDB + wc + 16 * i, LDB);
            }
            #pragma unroll
            for (int i = 0; i < 4; ++i) wm::mma_sync(acc[i / 2][i % 2], fa[i / 2], fb[i % 2], acc[i / 2][i % 2]);
        }
    }
    __syncthreads();

    // out through a 16 x 16 patch per warp, in the memory of the tiles of a
    float* patch = reinterpret_cast<float*>(&as[0][0]) + warp * 16 * 20;
    const int r = lane / 2, q = lane % 2 * 8;
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        wm::store_matrix_sync(patch, acc[i / 2][i % 2], 20, wm::mem_row_major);
        __syncwarp();
        const int m = m0 + wr + i / 2 * 16 + r, n = n0 + wc + i % 2 * 16 + q;
        uint4 v;
        half2* h = reinterpret_cast<half2*>(&v);
        #pragma unroll
        for (int e = 0; e < 4; ++e) h[e] = __floats2half2_rn(patch[r * 20 + q + 2 * e], patch[r * 20 + q + 2 * e + 1]);
        if (m < M && n < N) {
            half* o = c + (size_t)m * N + n;
            if (vb) *reinterpret_cast<uint4*>(o) = v;
            else for (int e = 0; e < 8; ++e) if (n + e < N) o[e] = reinterpret_cast<half*>(&v)[e];
        }
        __syncwarp();
    }
}'''
bmm = cp.RawKernel(source, "bmm")


def forward(a, b):
    B, M, K = a.shape
    N = b.shape[2]
    c = cp.empty((B, M, N), dtype=a.dtype)
    bmm(((N + 63) // 64, (M + 127) // 128, B), (256,), (a, b, c, M, N, K))
    return c
