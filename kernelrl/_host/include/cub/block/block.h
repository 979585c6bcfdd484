// The few block- and warp-wide collectives of CUB that kernels use, written anew and kept simple
#pragma once
#include "../../kernelrl_host.h"
#ifndef KRL_CUB
#define KRL_CUB
namespace cub {
struct Sum { template<class T> T operator()(const T& a, const T& b) const { return a + b; } };
struct Max { template<class T> T operator()(const T& a, const T& b) const { return a < b ? b : a; } };
struct Min { template<class T> T operator()(const T& a, const T& b) const { return b < a ? b : a; } };
enum BlockReduceAlgorithm { BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY, BLOCK_REDUCE_RAKING, BLOCK_REDUCE_WARP_REDUCTIONS };
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };

template<class T, int W = 32> struct WarpReduce {
    struct TempStorage { char unused; };
    WarpReduce(TempStorage&) {}
    template<class F> T Reduce(T v, F f, KRL_LINE) {
        for (int d = W / 2; d; d /= 2) { T o = __shfl_down_sync(mask(), v, d, W, line); if ((int)(krl_rank % W) + d < W) v = f(v, o); }
        return v;
    }
    template<class F> T Reduce(T v, F f, int valid, KRL_LINE) {
        for (int d = W / 2; d; d /= 2) { T o = __shfl_down_sync(mask(), v, d, W, line); if ((int)(krl_rank % W) + d < valid) v = f(v, o); }
        return v;
    }
    T Sum(T v, KRL_LINE) { return Reduce(v, cub::Sum(), line); }
    static unsigned mask() { unsigned lane = krl_rank & 31; return W == 32 ? 0xffffffffu : ((1u << W % 32) - 1) << lane / W * W; }
};

template<class T, int X, int A = 0, int Y = 1, int Z = 1> struct BlockReduce {
    static constexpr int N = X * Y * Z, WARPS = (N + 31) / 32;
    struct TempStorage { T of_warp[WARPS]; };
    TempStorage& t;
    BlockReduce(TempStorage& t) : t(t) {}
    // only thread 0 gets the answer
    template<class F> T Reduce(T v, F f, int valid, KRL_LINE) {
        int me = (int)krl_rank, in_warp = min(32, min(N, valid) - me / 32 * 32);
        for (int d = 16; d; d /= 2) { T o = __shfl_down_sync(0xffffffffu, v, d, 32, line); if (me % 32 + d < in_warp) v = f(v, o); }
        if (me % 32 == 0) t.of_warp[me / 32] = v;
        krl_barrier(line);
        if (me == 0) for (int w = 1; w * 32 < min(N, valid); w++) v = f(v, t.of_warp[w]);
        return v;
    }
    template<class F> T Reduce(T v, F f) { return Reduce(v, f, N); }
    T Sum(T v) { return Reduce(v, cub::Sum(), N); }
    T Sum(T v, int valid) { return Reduce(v, cub::Sum(), valid); }
    template<class F, int I> T Reduce(T (&v)[I], F f) { T s = v[0]; for (int i = 1; i < I; i++) s = f(s, v[i]); return Reduce(s, f, N); }
    template<int I> T Sum(T (&v)[I]) { return Reduce(v, cub::Sum()); }
};

template<class T, int X, int A = 0, int Y = 1, int Z = 1> struct BlockScan {
    static constexpr int N = X * Y * Z, WARPS = (N + 31) / 32;
    struct TempStorage { T of_warp[WARPS]; };
    TempStorage& t;
    BlockScan(TempStorage& t) : t(t) {}
    template<class F> T scan(T v, F f, T& total, int line) {
        int me = (int)krl_rank;
        for (int d = 1; d < 32; d *= 2) { T o = __shfl_up_sync(0xffffffffu, v, (unsigned)d, 32, line); if (me % 32 >= d) v = f(o, v); }
        if (me % 32 == 31 || me == N - 1) t.of_warp[me / 32] = v;
        krl_barrier(line);
        T before{};
        for (int w = 0; w < WARPS; w++) { if (w == me / 32) { if (w) v = f(before, v); } T s = t.of_warp[w]; before = w ? f(before, s) : s; }
        total = before;
        return v;
    }
    template<class F> void InclusiveScan(T v, T& out, F f, KRL_LINE) { T total; out = scan(v, f, total, line); }
    template<class F> void InclusiveScan(T v, T& out, F f, T& total, KRL_LINE) { out = scan(v, f, total, line); }
    void InclusiveSum(T v, T& out, KRL_LINE) { T total; out = scan(v, cub::Sum(), total, line); }
    void InclusiveSum(T v, T& out, T& total, KRL_LINE) { out = scan(v, cub::Sum(), total, line); }
    void ExclusiveSum(T v, T& out, T& total, KRL_LINE) { T s = scan(v, cub::Sum(), total, line); out = s - v; }
    void ExclusiveSum(T v, T& out, KRL_LINE) { T total; ExclusiveSum(v, out, total, line); }
};
}
#endif
