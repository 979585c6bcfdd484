// bfloat16: the upper half of a float
#pragma once
#include "kernelrl_host.h"
#ifndef KRL_BF16
#define KRL_BF16
namespace krl {
KRL_INLINE float bf16_to_float(uint16_t b) { uint32_t x = (uint32_t)b << 16; float f; __builtin_memcpy(&f, &x, 4); return f; }
KRL_INLINE uint16_t float_to_bf16(float f) {
    uint32_t x; __builtin_memcpy(&x, &f, 4);
    if (f != f) return 0x7fff;
    return (uint16_t)((x + 0x7fff + (x >> 16 & 1)) >> 16);
}
}
struct alignas(2) __nv_bfloat16 {
    uint16_t bits;
    __nv_bfloat16() = default;
    KRL_INLINE __nv_bfloat16(float f) : bits(krl::float_to_bf16(f)) {}
    KRL_INLINE __nv_bfloat16(double f) : bits(krl::float_to_bf16((float)f)) {}
    KRL_INLINE __nv_bfloat16(int i) : bits(krl::float_to_bf16((float)i)) {}
    KRL_INLINE __nv_bfloat16(unsigned i) : bits(krl::float_to_bf16((float)i)) {}
    KRL_INLINE __nv_bfloat16(long long i) : bits(krl::float_to_bf16((float)i)) {}
    KRL_INLINE operator float() const { return krl::bf16_to_float(bits); }
};
typedef __nv_bfloat16 nv_bfloat16;
struct __nv_bfloat16_raw { unsigned short x; };
struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
    __nv_bfloat162() = default;
    KRL_INLINE __nv_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) : x(a), y(b) {}
    KRL_INLINE explicit __nv_bfloat162(__nv_bfloat16 a) : x(a), y(a) {}
};
typedef __nv_bfloat162 nv_bfloat162;
#define KRL_T __nv_bfloat16
#define KRL_T2 __nv_bfloat162
#define KRL_F(h) krl::bf16_to_float((h).bits)
#include "host/narrow.h"
#undef KRL_T
#undef KRL_T2
#undef KRL_F
KRL_INLINE __nv_bfloat16 __float2bfloat16(float f) { return __nv_bfloat16(f); }
KRL_INLINE __nv_bfloat16 __float2bfloat16_rn(float f) { return __nv_bfloat16(f); }
KRL_INLINE __nv_bfloat16 __double2bfloat16(double f) { return __nv_bfloat16(f); }
KRL_INLINE float __bfloat162float(__nv_bfloat16 h) { return (float)h; }
KRL_INLINE __nv_bfloat162 __float2bfloat162_rn(float f) { return __nv_bfloat162(__nv_bfloat16(f), __nv_bfloat16(f)); }
KRL_INLINE __nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return __nv_bfloat162(__nv_bfloat16(a), __nv_bfloat16(b)); }
KRL_INLINE __nv_bfloat162 __float22bfloat162_rn(float2 f) { return __nv_bfloat162(__nv_bfloat16(f.x), __nv_bfloat16(f.y)); }
KRL_INLINE float2 __bfloat1622float2(__nv_bfloat162 h) { return {(float)h.x, (float)h.y}; }
KRL_INLINE __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 h) { return __nv_bfloat162(h, h); }
KRL_INLINE __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return __nv_bfloat162(a, b); }
KRL_INLINE __nv_bfloat162 make_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return __nv_bfloat162(a, b); }
KRL_INLINE int __bfloat162int_rn(__nv_bfloat16 h) { return krl::to_integer<int>(std::nearbyint((float)h)); }
KRL_INLINE int __bfloat162int_rz(__nv_bfloat16 h) { return krl::to_integer<int>((float)h); }
KRL_INLINE __nv_bfloat16 __int2bfloat16_rn(int i) { return __nv_bfloat16((float)i); }
KRL_INLINE short __bfloat16_as_short(__nv_bfloat16 h) { return (short)h.bits; }
KRL_INLINE unsigned short __bfloat16_as_ushort(__nv_bfloat16 h) { return h.bits; }
KRL_INLINE __nv_bfloat16 __short_as_bfloat16(short s) { __nv_bfloat16 h; h.bits = (uint16_t)s; return h; }
KRL_INLINE __nv_bfloat16 __ushort_as_bfloat16(unsigned short s) { __nv_bfloat16 h; h.bits = s; return h; }
#endif
