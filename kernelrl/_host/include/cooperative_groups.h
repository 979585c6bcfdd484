// Cooperative groups: the block, tiles of a warp, and the lanes that happen to be together
#pragma once
#include "kernelrl_host.h"
#ifndef KRL_CG
#define KRL_CG
namespace cooperative_groups {
template<class T> struct plus { T operator()(T a, T b) const { return a + b; } };
template<class T> struct less { T operator()(T a, T b) const { return a < b ? a : b; } };
template<class T> struct greater { T operator()(T a, T b) const { return a < b ? b : a; } };
template<class T> struct bit_and { T operator()(T a, T b) const { return a & b; } };
template<class T> struct bit_or { T operator()(T a, T b) const { return a | b; } };
template<class T> struct bit_xor { T operator()(T a, T b) const { return a ^ b; } };

struct thread_block {
    struct arrival_token {};
    static void sync(KRL_LINE) { krl_barrier(line); }
    static unsigned thread_rank() { return krl_rank; }
    static unsigned size() { return blockDim.x * blockDim.y * blockDim.z; }
    static unsigned num_threads() { return size(); }
    static uint3 thread_index() { return threadIdx; }
    static uint3 group_index() { return blockIdx; }
    static dim3 group_dim() { return blockDim; }
    static dim3 dim_threads() { return blockDim; }
};
KRL_INLINE thread_block this_thread_block() { return {}; }

// Lanes of one warp, given by a mask. `rank` counts its lanes.
struct lanes {
    unsigned mask, rank, count;
    unsigned thread_rank() const { return rank; }
    unsigned size() const { return count; }
    unsigned num_threads() const { return count; }
    unsigned lane_of(unsigned r) const { unsigned m = mask; while (r--) m &= m - 1; return m ? __builtin_ctz(m) : krl_rank & 31; }
    void sync(KRL_LINE) const { __syncwarp(mask, line); }
    unsigned ballot(int p, KRL_LINE) const { return pack(__ballot_sync(mask, p, line)); }
    int any(int p, KRL_LINE) const { return __any_sync(mask, p, line); }
    int all(int p, KRL_LINE) const { return __all_sync(mask, p, line); }
    template<class T> unsigned match_any(T v, KRL_LINE) const { return pack(__match_any_sync(mask, v, line)); }
    template<class T> unsigned match_all(T v, int& p, KRL_LINE) const { return pack(__match_all_sync(mask, v, &p, line)); }
    template<class T> T shfl(T v, int r, KRL_LINE) const { return __shfl_sync(mask, v, (int)lane_of((unsigned)r % count), 32, line); }
    template<class T> T shfl_down(T v, unsigned d, KRL_LINE) const { return __shfl_sync(mask, v, (int)lane_of(rank + d < count ? rank + d : rank), 32, line); }
    template<class T> T shfl_up(T v, unsigned d, KRL_LINE) const { return __shfl_sync(mask, v, (int)lane_of(rank >= d ? rank - d : rank), 32, line); }
    template<class T> T shfl_xor(T v, unsigned x, KRL_LINE) const { return __shfl_sync(mask, v, (int)lane_of((rank ^ x) < count ? rank ^ x : rank), 32, line); }
    unsigned pack(unsigned b) const {                              // bits of the group's lanes, next to each other
        unsigned r = 0, i = 0;
        for (unsigned m = mask; m; m &= m - 1) r |= (b >> __builtin_ctz(m) & 1) << i++;
        return r;
    }
};
struct coalesced_group : lanes { unsigned meta_group_rank() const { return 0; } unsigned meta_group_size() const { return 1; } };
KRL_INLINE coalesced_group from_mask(unsigned mask) {
    coalesced_group g;
    g.mask = mask; g.count = __popc(mask); g.rank = __popc(mask & ((1u << (krl_rank & 31)) - 1));
    return g;
}
KRL_INLINE coalesced_group coalesced_threads(KRL_LINE) { return from_mask(krl_active_mask(line)); }
KRL_INLINE coalesced_group binary_partition(const coalesced_group& g, bool p, KRL_LINE) { unsigned b = __ballot_sync(g.mask, p, line); return from_mask(p ? b & g.mask : ~b & g.mask); }

template<unsigned N, class Parent = void> struct thread_block_tile : lanes {
    static_assert(N <= 32, "unsupported_on_host: tiles of more than a warp");
    thread_block_tile() {
        unsigned lane = krl_rank & 31;
        count = N; rank = lane % N;
        mask = N == 32 ? 0xffffffffu : ((1u << N % 32) - 1) << lane / N * N;
    }
    static constexpr unsigned size() { return N; }
    static constexpr unsigned num_threads() { return N; }
    unsigned meta_group_rank() const { return krl_rank / N; }
    unsigned meta_group_size() const { return (blockDim.x * blockDim.y * blockDim.z + N - 1) / N; }
    unsigned lane_of(unsigned r) const { return (krl_rank & 31) / N * N + r; }
    template<class T> T shfl(T v, int r, KRL_LINE) const { return __shfl_sync(mask, v, r, N, line); }
    template<class T> T shfl_down(T v, unsigned d, KRL_LINE) const { return __shfl_down_sync(mask, v, d, N, line); }
    template<class T> T shfl_up(T v, unsigned d, KRL_LINE) const { return __shfl_up_sync(mask, v, d, N, line); }
    template<class T> T shfl_xor(T v, unsigned x, KRL_LINE) const { return __shfl_xor_sync(mask, v, (int)x, N, line); }
};
template<unsigned N, class P = void> struct tiled : thread_block_tile<N, P> {};
template<unsigned N, class G> KRL_INLINE thread_block_tile<N, G> tiled_partition(const G&) { return {}; }
KRL_INLINE coalesced_group tiled_partition(const thread_block&, unsigned n) { unsigned lane = krl_rank & 31; return from_mask(n >= 32 ? 0xffffffffu : ((1u << n) - 1) << lane / n * n); }
template<class G> KRL_INLINE void sync(const G& g, KRL_LINE) { g.sync(line); }

// Every lane gets the combination of all lanes' values, in lane order
template<class G, class T, class F> inline T reduce(const G& g, T v, F f, KRL_LINE) {
    T r = g.shfl(v, 0, line);
    for (unsigned i = 1; i < g.size(); i++) r = f(r, g.shfl(v, (int)i, line));
    return r;
}
template<class G, class T, class F> inline T inclusive_scan(const G& g, T v, F f, KRL_LINE) {
    for (unsigned d = 1; d < g.size(); d *= 2) { T o = g.shfl_up(v, d, line); if (g.thread_rank() >= d) v = f(o, v); }
    return v;
}
template<class G, class T> inline T inclusive_scan(const G& g, T v, KRL_LINE) { return inclusive_scan(g, v, plus<T>(), line); }
template<class G, class T, class F> inline T exclusive_scan(const G& g, T v, F f, KRL_LINE) { T s = g.shfl_up(inclusive_scan(g, v, f, line), 1, line); return g.thread_rank() ? s : T(); }
template<class G, class T> inline T exclusive_scan(const G& g, T v, KRL_LINE) { return exclusive_scan(g, v, plus<T>(), line); }

template<class G, class T> inline void memcpy_async(const G& g, T* d, const T* s, size_t bytes) {
    if ((((uintptr_t)d | (uintptr_t)s | bytes) & 15) == 0) for (size_t i = g.thread_rank(); i < bytes / 16; i += g.size()) ((uint4*)d)[i] = ((const uint4*)s)[i];
    else if ((((uintptr_t)d | (uintptr_t)s | bytes) & 3) == 0) for (size_t i = g.thread_rank(); i < bytes / 4; i += g.size()) ((unsigned*)d)[i] = ((const unsigned*)s)[i];
    else for (size_t i = g.thread_rank(); i < bytes; i += g.size()) ((char*)d)[i] = ((const char*)s)[i];
}
template<class G> inline void wait(const G& g, KRL_LINE) { g.sync(line); }
template<unsigned N, class G> inline void wait_prior(const G& g, KRL_LINE) { g.sync(line); }

struct grid_group {
    void sync() const KRL_UNSUPPORTED("grid-wide sync");
    unsigned long long thread_rank() const { return (unsigned long long)(blockIdx.x + gridDim.x * (blockIdx.y + (unsigned long long)gridDim.y * blockIdx.z)) * thread_block::size() + krl_rank; }
    unsigned long long size() const { return (unsigned long long)gridDim.x * gridDim.y * gridDim.z * thread_block::size(); }
    unsigned long long num_threads() const { return size(); }
    unsigned long long num_blocks() const { return (unsigned long long)gridDim.x * gridDim.y * gridDim.z; }
    unsigned long long block_rank() const { return blockIdx.x + gridDim.x * (blockIdx.y + (unsigned long long)gridDim.y * blockIdx.z); }
    static constexpr bool is_valid() { return true; }
};
KRL_INLINE grid_group this_grid() { return {}; }
}
#endif
