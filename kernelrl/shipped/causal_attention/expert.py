"""Causal flash attention on the tensor cores (wmma): key tiles beyond the diagonal are never loaded, and only the
diagonal tile is masked. 2 D flops per pair of positions instead of 4 D.

A block has 64 queries and 8 warps; two teams of four warps take alternate key tiles and meet at the end. Query tiles
differ in work by up to S / 64 times, so the grid starts with the longest and pairs it with the shortest.
The head width is a macro: a kernel is compiled for each width that is asked for."""
import functools

import cupy as cp
import numpy as np

source = r'''
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

#define TILE 64                  // queries a block, keys a tile
#define LD 72                    // padded row of a tile
#define MINUS_INF (-__int_as_float(0x7f800000))
#define EVERYONE 0xffffffffu
typedef wmma::fragment<wmma::accumulator, 16, 16, 16, float> Acc;
typedef wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> FragA;
typedef wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> FragKey;
typedef wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> FragValue;

// `count` rows of HEAD halves, 16 bytes at a time; rows past the end of the sequence become zeros
__device__ __forceinline__ void copy_rows(half* to, const half* __restrict__ from, int first, int count, int S, int t, int threads) {
    for (int i = t; i < count * HEAD / 8; i += threads) {
        int r = i / (HEAD / 8), c = i % (HEAD / 8) * 8;
        *(uint4*)(to + r * LD + c) = first + r < S ? *(const uint4*)(from + (size_t)(first + r) * HEAD + c) : make_uint4(0, 0, 0, 0);
    }
}

extern "C" __global__ void __launch_bounds__(256, 2)
causal_flash(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v, half* __restrict__ out, int S, float scale) {
    extern __shared__ __align__(128) unsigned char memory[];
    half* K = (half*)memory;                        // [2 teams][64][LD]
    half* V = K + 2 * TILE * LD;
    float* spaces = (float*)(V + 2 * TILE * LD);    // [8 warps][16][LD]
    __shared__ float partner_max[TILE], partner_sum[TILE];

    const int t = threadIdx.x, lane = t & 31, warp = t >> 5, team = warp >> 2;
    const int row = lane >> 1, side = lane & 1;     // two lanes per query
    const int tiles = gridDim.y, y = blockIdx.y, longest = (tiles + 1) / 2;
    const int tile = y < longest ? tiles - 1 - y : y - longest;          // n-1, n-2, .., n/2, 0, 1, ..
    const int mine = tile * TILE + (warp & 3) * 16; // first of this warp's 16 queries
    const size_t head = (size_t)blockIdx.x * S * HEAD;
    q += head; k += head; v += head; out += head;
    float* space = spaces + warp * 16 * LD;
    half* hspace = (half*)space;

    copy_rows(hspace, q, mine, 16, S, lane, 32);
    __syncwarp();
    FragA query[HEAD / 16];
    Acc acc[HEAD / 16];
    #pragma unroll
    for (int d = 0; d < HEAD / 16; d++) {
        wmma::load_matrix_sync(query[d], hspace + 16 * d, LD);
        wmma::fill_fragment(acc[d], 0.f);
    }

    float running_max = MINUS_INF, running_sum = 0.f;
    for (int pair = 0; pair <= tile; pair += 2) {
        __syncthreads();
        copy_rows(K, k, pair * TILE, 2 * TILE, S, t, 256);
        copy_rows(V, v, pair * TILE, 2 * TILE, S, t, 256);
        __syncthreads();
        const int keys = pair + team;
        if (keys > tile) continue;                  // the second team has nothing left: whole warps go on together

        #pragma unroll
        for (int j = 0; j < 4; j++) {
            Acc s;
            wmma::fill_fragment(s, 0.f);
            #pragma unroll
            for (int d = 0; d < HEAD / 16; d++) {
                FragKey b;
                wmma::load_matrix_sync(b, K + (team * TILE + 16 * j) * LD + 16 * d, LD);
                wmma::mma_sync(s, query[d], b, s);
            }
            wmma::store_matrix_sync(space + 16 * j, s, LD, wmma::mem_row_major);
        }
        __syncwarp();

        float p[32], tile_max = MINUS_INF;
        #pragma unroll
        for (int j = 0; j < 8; j++) *(float4*)(p + 4 * j) = *(const float4*)(space + row * LD + 8 * j + 4 * side);
        #pragma unroll
        for (int e = 0; e < 32; e++) {
            p[e] *= scale;                          // log2(e) is in it: exp2f below
            if (keys == tile && keys * TILE + e / 4 * 8 + side * 4 + e % 4 > mine + row) p[e] = MINUS_INF;
            tile_max = fmaxf(tile_max, p[e]);
        }
        tile_max = fmaxf(tile_max, __shfl_xor_sync(EVERYONE, tile_max, 1));

        // Rescale only if some maximum grew by more than 2^8. Each row's factor is spread over a 16 x 16 tile and loaded as
        // an accumulator: the one portable way to multiply the rows of a fragment.
        if (__any_sync(EVERYONE, tile_max > running_max + 8.f)) {
            float new_max = fmaxf(running_max, tile_max), shrink = exp2f(running_max - new_max);
            __syncwarp();
            #pragma unroll
            for (int e = 0; e < 8; e++) space[row * LD + 8 * side + e] = shrink;
            __syncwarp();
            Acc factor;
            wmma::load_matrix_sync(factor, space, LD, wmma::mem_row_major);
            #pragma unroll
            for (int d = 0; d < HEAD / 16; d++)
                for (int e = 0; e < factor.num_elements; e++) acc[d].x[e] *= factor.x[e];
            running_sum *= shrink;
            running_max = new_max;
        }
        __syncwarp();
        #pragma unroll
        for (int j = 0; j < 8; j++) {
            #pragma unroll
            for (int e = 4 * j; e < 4 * j + 4; e++) { p[e] = exp2f(p[e] - running_max); running_sum += p[e]; }
            half2* w = (half2*)(hspace + row * LD + 8 * j + 4 * side);
            w[0] = __floats2half2_rn(p[4 * j], p[4 * j + 1]);
            w[1] = __floats2half2_rn(p[4 * j + 2], p[4 * j + 3]);
        }
        __syncwarp();
        #pragma unroll
        for (int j = 0; j < 4; j++) {
            FragA w;
            wmma::load_matrix_sync(w, hspace + 16 * j, LD);
            #pragma unroll
            for (int d = 0; d < HEAD / 16; d++) {
                FragValue b;
                wmma::load_matrix_sync(b, V + (team * TILE + 16 * j) * LD + 16 * d, LD);
                wmma::mma_sync(acc[d], w, b, acc[d]);
            }
        }
        __syncwarp();
    }

    #pragma unroll
    for (int d = 0; d < HEAD / 16; d++) wmma::store_matrix_sync(space + 16 * d, acc[d], LD, wmma::mem_row_major);
    running_sum += __shfl_xor_sync(EVERYONE, running_sum, 1);
    const int slot = (warp & 3) * 16 + row;
    if (team == 1 && side == 0) { partner_max[slot] = running_max; partner_sum[slot] = running_sum; }
    __syncthreads();
    if (team == 1 || mine + row >= S) return;

    const float top = fmaxf(running_max, partner_max[slot]);
    const float a = exp2f(running_max - top), b = exp2f(partner_max[slot] - top);
    const float norm = 1.f / (a * running_sum + b * partner_sum[slot]);
    const float* ours = space + row * LD, *theirs = ours + 4 * 16 * LD;
    #pragma unroll
    for (int c = 8 * side; c < HEAD; c += 16) {
        uint4 packed;
        half2* h = (half2*)&packed;
        #pragma unroll
        for (int e = 0; e < 8; e += 2)
            h[e / 2] = __floats2half2_rn((a * ours[c + e] + b * theirs[c + e]) * norm, (a * ours[c + e + 1] + b * theirs[c + e + 1]) * norm);
        *(uint4*)(out + (size_t)(mine + row) * HEAD + c) = packed;
    }
}'''
SHARED = 4 * 64 * 72 * 2 + 8 * 16 * 72 * 4


@functools.lru_cache(None)
def compiled(D):
    if D % 16 or D > 64: raise ValueError("heads of 16, 32, 48 or 64 only")
    kernel = cp.RawKernel(source, "causal_flash", options=(f"-DHEAD={D}",))
    kernel.max_dynamic_shared_size_bytes = SHARED
    return kernel


def forward(q, k, v):
    B, H, S, D = q.shape
    out = cp.empty(q.shape, dtype=q.dtype)
    compiled(D)((B * H, (S + 63) // 64), (256,), (q, k, v, out, S, np.float32(D ** -0.5 * 1.4426950408889634)), shared_mem=SHARED)
    return out
