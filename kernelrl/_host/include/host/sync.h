// Barriers and warp-level operations: thin, typed covers of krl_barrier and krl_warp.
// `line` is filled in by the compiler with the line of the call.
#pragma once
#define KRL_LINE int line = __builtin_LINE()

KRL_INLINE void __syncthreads(KRL_LINE) { krl_barrier(line); }
KRL_INLINE int __syncthreads_count(int p, KRL_LINE) { return krl_barrier_reduce(krl::COUNT, p != 0, line); }
KRL_INLINE int __syncthreads_and(int p, KRL_LINE) { return krl_barrier_reduce(krl::EVERY, p != 0, line); }
KRL_INLINE int __syncthreads_or(int p, KRL_LINE) { return krl_barrier_reduce(krl::SOME, p != 0, line); }
KRL_INLINE void __threadfence() { krl_fence(1); }
KRL_INLINE void __threadfence_system() { krl_fence(1); }
KRL_INLINE void __threadfence_block() { krl_fence(0); }
KRL_INLINE void __nanosleep(unsigned) { krl_spin(); }

namespace krl {
template<class T> KRL_INLINE uint64_t bits(T v) {
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    uint64_t r = 0; __builtin_memcpy(&r, (const void*)&v, sizeof v); return r;
}
template<class T> KRL_INLINE T from_bits(uint64_t b) { T r; __builtin_memcpy((void*)&r, &b, sizeof r); return r; }
template<class T> KRL_INLINE T shuffle(int op, unsigned mask, T v, int arg, int width, int line) { return from_bits<T>(krl_warp(op, mask, bits(v), arg, width, line)); }
}

#define KRL_SHUFFLE(name, op, A) template<class T> KRL_INLINE T name(unsigned mask, T v, A arg, int width = 32, KRL_LINE) { return krl::shuffle(krl::op, mask, v, (int)arg, width, line); }
KRL_SHUFFLE(__shfl_sync, SHFL, int)
KRL_SHUFFLE(__shfl_up_sync, SHFL_UP, unsigned)
KRL_SHUFFLE(__shfl_down_sync, SHFL_DOWN, unsigned)
KRL_SHUFFLE(__shfl_xor_sync, SHFL_XOR, int)
#undef KRL_SHUFFLE

KRL_INLINE void __syncwarp(unsigned mask = 0xffffffffu, KRL_LINE) { krl_warp(krl::SYNC, mask, 0, 0, 32, line); }
KRL_INLINE unsigned __ballot_sync(unsigned mask, int p, KRL_LINE) { return (unsigned)krl_warp(krl::BALLOT, mask, p != 0, 0, 32, line); }
KRL_INLINE int __any_sync(unsigned mask, int p, KRL_LINE) { return (int)krl_warp(krl::ANY, mask, p != 0, 0, 32, line); }
KRL_INLINE int __all_sync(unsigned mask, int p, KRL_LINE) { return (int)krl_warp(krl::ALL, mask, p != 0, 0, 32, line); }
KRL_INLINE unsigned __activemask(KRL_LINE) { return krl_active_mask(line); }
template<class T> KRL_INLINE unsigned __match_any_sync(unsigned mask, T v, KRL_LINE) { return (unsigned)krl_warp(krl::MATCH_ANY, mask, krl::bits(v), 0, 32, line); }
template<class T> KRL_INLINE unsigned __match_all_sync(unsigned mask, T v, int* pred, KRL_LINE) {
    unsigned r = (unsigned)krl_warp(krl::MATCH_ALL, mask, krl::bits(v), 0, 32, line);
    *pred = r != 0; return r;
}
#define KRL_REDUCE(name, T, op) KRL_INLINE T name(unsigned mask, T v, KRL_LINE) { return (T)krl_warp(krl::op, mask, (uint64_t)(int64_t)v, 0, 32, line); }
KRL_REDUCE(__reduce_add_sync, unsigned, ADD)   KRL_REDUCE(__reduce_add_sync, int, ADD)
KRL_REDUCE(__reduce_min_sync, unsigned, MIN_U) KRL_REDUCE(__reduce_min_sync, int, MIN_S)
KRL_REDUCE(__reduce_max_sync, unsigned, MAX_U) KRL_REDUCE(__reduce_max_sync, int, MAX_S)
KRL_REDUCE(__reduce_and_sync, unsigned, AND)   KRL_REDUCE(__reduce_or_sync, unsigned, OR)   KRL_REDUCE(__reduce_xor_sync, unsigned, XOR)
#undef KRL_REDUCE
