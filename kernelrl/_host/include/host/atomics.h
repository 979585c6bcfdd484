// Atomics. One thread runs at a time, so a load, a computation and a store are atomic already;
// what remains is to tell the check mode that this access was an atomic one.
#pragma once
namespace krl {
template<class T> KRL_INLINE T peek(const T* p) {
    if constexpr (sizeof(T) <= 8) return from_bits<T>(krl_peek(p, sizeof(T)));
    else { T r; for (size_t i = 0; i < sizeof(T) / 4; i++) ((uint32_t*)&r)[i] = (uint32_t)krl_peek((const uint32_t*)p + i, 4); return r; }
}
template<class T> KRL_INLINE void poke(T* p, T v) {
    if constexpr (sizeof(T) <= 8) krl_poke(p, bits(v), sizeof(T));
    else for (size_t i = 0; i < sizeof(T) / 4; i++) krl_poke((uint32_t*)p + i, ((uint32_t*)&v)[i], 4);
}
// Replace *p by f(*p) and return what was there
template<class T, class F> KRL_INLINE T rmw(T* p, F f) {
    krl_atomic(p, sizeof(T));
    T old = peek(p);
    poke(p, (T)f(old));
    return old;
}
template<class T> T compare_and_swap(T* p, T expected, T v) {
    krl_atomic(p, sizeof(T));
    T old = peek(p);
    if (bits(old) == bits(expected)) poke(p, v);
    else krl_spin();
    return old;
}
}
#define KRL_ATOMIC_AS(name, expression) template<class T> KRL_INLINE T name(T* p, std::type_identity_t<T> v) { return krl::rmw(p, [=](T old) -> T { return expression; }); }
#define KRL_ATOMIC(name, expression) KRL_ATOMIC_AS(name, expression) KRL_ATOMIC_AS(name##_block, expression) KRL_ATOMIC_AS(name##_system, expression)
KRL_ATOMIC(atomicAdd, old + v)
KRL_ATOMIC(atomicSub, old - v)
KRL_ATOMIC(atomicMin, v < old ? v : old)
KRL_ATOMIC(atomicMax, old < v ? v : old)
KRL_ATOMIC(atomicAnd, old & v)
KRL_ATOMIC(atomicOr, old | v)
KRL_ATOMIC(atomicXor, old ^ v)
KRL_ATOMIC(atomicInc, old >= v ? 0 : old + 1)
KRL_ATOMIC(atomicDec, old == 0 || old > v ? v : old - 1)
#undef KRL_ATOMIC
#undef KRL_ATOMIC_AS

// The exchange that takes a lock may have to wait for the thread that holds it
#define KRL_ATOMIC(name) \
    template<class T> KRL_INLINE T name(T* p, std::type_identity_t<T> v) { T old = krl::rmw(p, [=](T) { return v; }); if (krl::bits(old) == krl::bits(v)) krl_spin(); return old; }
KRL_ATOMIC(atomicExch) KRL_ATOMIC(atomicExch_block) KRL_ATOMIC(atomicExch_system)
#undef KRL_ATOMIC
#define KRL_ATOMIC(name) template<class T> KRL_INLINE T name(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> v) { return krl::compare_and_swap(p, expected, v); }
KRL_ATOMIC(atomicCAS) KRL_ATOMIC(atomicCAS_block) KRL_ATOMIC(atomicCAS_system)
#undef KRL_ATOMIC
KRL_INLINE float2 atomicAdd(float2* p, float2 v) { return krl::rmw(p, [=](float2 o) { return float2{o.x + v.x, o.y + v.y}; }); }
KRL_INLINE float4 atomicAdd(float4* p, float4 v) { return krl::rmw(p, [=](float4 o) { return float4{o.x + v.x, o.y + v.y, o.z + v.z, o.w + v.w}; }); }
