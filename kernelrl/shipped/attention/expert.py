"""Flash attention on the tensor cores through wmma: scores live in shared memory for the moment of a softmax, never beyond.

A block serves 64 queries with 8 warps: warp w takes queries 16 (w % 4) .., and the two groups of four warps take every
other tile of 64 keys; at the end the halves are merged by their maxima. A row's sums are rescaled only when its maximum
has grown by more than 2^8, which changes nothing in the quotient and is rare.
4 D flops per pair of positions, 8 bytes per element of q in all (q, k, v in, result out)."""
import cupy as cp
import numpy as np

source = r'''
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

constexpr int QUERIES = 64, KEYS = 64, GROUPS = 2, WARPS = 4 * GROUPS;
constexpr int LD = 72;                                    // row of a tile, in halves or floats: 64 and padding against bank conflicts
constexpr int SCRATCH = 16 * LD;                          // floats of private space a warp has
using Acc = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;
using Left = wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major>;

// rows from .. from + ROWS of p as a tile in shared memory, zeros beyond the last row
template <int D, int ROWS, int THREADS> __device__ void load_tile(half* tile, const half* __restrict__ p, int from, int rows, int thread) {
    #pragma unroll
    for (int i = thread; i < ROWS * D / 8; i += THREADS) {
        const int r = i / (D / 8), c = i % (D / 8) * 8;
        uint4 x = make_uint4(0, 0, 0, 0);
        if (from + r < rows) x = *reinterpret_cast<const uint4*>(p + (size_t)(from + r) * D + c);
        *reinterpret_cast<uint4*>(tile + r * LD + c) = x;
    }
}

template <int D> __global__ void __launch_bounds__(WARPS * 32, 2)
flash(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v, half* __restrict__ out, int S, float scale) {
    extern __shared__ __align__(128) unsigned char memory[];
    half* ks = reinterpret_cast<half*>(memory);           // GROUPS tiles of keys, then as many of values
    half* vs = ks + GROUPS * KEYS * LD;
    float* scratches = reinterpret_cast<float*>(vs + GROUPS * KEYS * LD);
    __shared__ float stats[2][QUERIES];                   // maxima and sums of the second group

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = warp / 4;
    const int row = lane / 2, side = lane % 2;            // two lanes share a query; each sees every other four keys
    const int q0 = blockIdx.x * QUERIES + warp % 4 * 16;
    const size_t head = (size_t)blockIdx.y * S * D;
    q += head; k += head; v += head; out += head;
    float* scratch = scratches + warp * SCRATCH;
    half* weights = reinterpret_cast<half*>(scratch);     // the same space, as halves

    load_tile<D, 16, 32>(weights, q, q0, S, lane);
    __syncwarp();
    Left query[D / 16];
    Acc sums[D / 16];
    #pragma unroll
    for (int d = 0; d < D / 16; ++d) {
        wmma::load_matrix_sync(query[d], weights + 16 * d, LD);
        wmma::fill_fragment(sums[d], 0.f);
    }
    float most = -__int_as_float(0x7f800000), total = 0.f;

    for (int base = 0; base < S; base += GROUPS * KEYS) {
        __syncthreads();
        load_tile<D, GROUPS * KEYS, WARPS * 32>(ks, k, base, S, threadIdx.x);
        load_tile<D, GROUPS * KEYS, WARPS * 32>(vs, v, base, S, threadIdx.x);
        __syncthreads();
        const int k0 = base + group * KEYS;
        if (k0 >= S) continue;                            // a whole group skips the last tile together
        const half* key = ks + group * KEYS * LD, *value = vs + group * KEYS * LD;

        #pragma unroll
        for (int j = 0; j < KEYS / 16; ++j) {             // scores of 16 queries with 64 keys
            Acc s;
            wmma::fill_fragment(s, 0.f);
            #pragma unroll
            for (int d = 0; d < D / 16; ++d) {
                wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b;
                wmma::load_matrix_sync(b, key + 16 * j * LD + 16 * d, LD);
                wmma::mma_sync(s, query[d], b, s);
            }
            wmma::store_matrix_sync(scratch + 16 * j, s, LD, wmma::mem_row_major);
        }
        __syncwarp();
        float p[KEYS / 8][4], top = -__int_as_float(0x7f800000);
        #pragma unroll
        for (int j = 0; j < KEYS / 8; ++j) {
            *reinterpret_cast<float4*>(p[j]) = *reinterpret_cast<const float4*>(scratch + row * LD + 8 * j + 4 * side);
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                p[j][e] = k0 + 8 * j + 4 * side + e < S ? p[j][e] * scale : -__int_as_float(0x7f800000);   // in powers of two
                top = fmaxf(top, p[j][e]);
            }
        }
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        if (__any_sync(0xffffffffu, top > most + 8.f)) {  // a fragment's layout is a secret: bring the row factors in the same layout
            const float higher = fmaxf(top, most), shrink = exp2f(most - higher);
            float* f = scratch + row * LD + 8 * side;
            __syncwarp();
            #pragma unroll
            for (int e = 0; e < 8; ++e) f[e] = shrink;
            __syncwarp();
            Acc factor;
            wmma::load_matrix_sync(factor, scratch, LD, wmma::mem_row_major);
            #pragma unroll
            for (int d = 0; d < D / 16; ++d)
                for (int e = 0; e < factor.num_elements; ++e) sums[d].x[e] *= factor.x[e];
            total *= shrink;
            most = higher;
        }
        __syncwarp();
        #pragma unroll
        for (int j = 0; j < KEYS / 8; ++j) {              // scores become weights, 2^(s - most) <= 2^8, in half
            #pragma unroll
            for (int e = 0; e < 4; ++e) { p[j][e] = exp2f(p[j][e] - most); total += p[j][e]; }
            half2* w = reinterpret_cast<half2*>(weights + row * LD + 8 * j + 4 * side);
            w[0] = __floats2half2_rn(p[j][0], p[j][1]);
            w[1] = __floats2half2_rn(p[j][2], p[j][3]);
        }
        __syncwarp();
        #pragma unroll
        for (int j = 0; j < KEYS / 16; ++j) {
            Left w;
            wmma::load_matrix_sync(w, weights + 16 * j, LD);
            #pragma unroll
            for (int d = 0; d < D / 16; ++d) {
                wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b;
                wmma::load_matrix_sync(b, value + 16 * j * LD + 16 * d, LD);
                wmma::mma_sync(sums[d], w, b, sums[d]);
            }
        }
        __syncwarp();
    }

    #pragma unroll
    for (int d = 0; d < D / 16; ++d) wmma::store_matrix_sync(scratch + 16 * d, sums[d], LD, wmma::mem_row_major);
    total += __shfl_xor_sync(0xffffffffu, total, 1);
    const int slot = warp % 4 * 16 + row;
    if (group == 1 && side == 0) { stats[0][slot] = most; stats[1][slot] = total; }
    __syncthreads();
    if (group == 1 || q0 + row >= S) return;
    const float higher = fmaxf(most, stats[0][slot]), a = exp2f(most - higher), b = exp2f(stats[0][slot] - higher);
    const float inverse = 1.f / (a * total + b * stats[1][slot]);
    const float* other = scratch + 4 * SCRATCH;           // the same queries in the second group
    #pragma unroll
    for (int c = 8 * side; c < D; c += 16) {
        __align__(16) half2 h[4];
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int at = row * LD + c + 2 * e;
            h[e] = __floats2half2_rn((a * scratch[at] + b * other[at]) * inverse, (a * scratch[at + 1] + b * other[at + 1]) * inverse);
        }
        *reinterpret_cast<uint4*>(out + (size_t)(q0 + row) * D + c) = *reinterpret_cast<uint4*>(h);
    }
}'''
module = cp.RawModule(code=source, options=("--std=c++17",), name_expressions=["flash<32>", "flash<64>"])
SHARED = 2 * 2 * 64 * 72 * 2 + 8 * 16 * 72 * 4            # keys and values of two groups, scratch of eight warps


def forward(q, k, v):
    B, H, S, D = q.shape
    if D not in (32, 64): raise ValueError("heads of 32 or 64 only")
    out = cp.empty(q.shape, dtype=q.dtype)
    kernel = module.get_function(f"flash<{D}>")
    kernel.max_dynamic_shared_size_bytes = SHARED
    kernel(((S + 63) // 64, B * H), (256,), (q, k, v, out, S, np.float32(D ** -0.5 * 1.4426950408889634)), shared_mem=SHARED)
    return out
