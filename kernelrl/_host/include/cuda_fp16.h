// half and half2. Arithmetic is done in float and rounded once, which for + - * / and sqrt gives the GPU's own results.
#pragma once
#include "kernelrl_host.h"
#ifndef KRL_FP16
#define KRL_FP16
namespace krl {
#ifdef __FLT16_MAX__
KRL_INLINE float half_to_float(uint16_t b) { _Float16 h; __builtin_memcpy(&h, &b, 2); return (float)h; }
KRL_INLINE uint16_t float_to_half(float f) { _Float16 h = (_Float16)f; uint16_t b; __builtin_memcpy(&b, &h, 2); return b; }
#else
inline float half_to_float(uint16_t b) {
    int e = b >> 10 & 31, m = b & 1023;
    float v = e == 31 ? (m ? NAN : INFINITY) : e ? std::ldexp((float)(m + 1024), e - 25) : std::ldexp((float)m, -24);
    return b >> 15 ? -v : v;
}
inline uint16_t float_to_half(float f) {
    uint32_t x; __builtin_memcpy(&x, &f, 4);
    uint16_t s = x >> 16 & 0x8000;
    f = std::fabs(f);
    if (f != f) return s | 0x7e00;
    if (f >= 65520.f) return s | 0x7c00;
    if (f < 6.103515625e-05f) return s | (uint16_t)std::nearbyint(f * 16777216.f);
    int e; float m = std::frexp(f, &e);
    return s + (uint16_t)(((e + 14) << 10) + (int)std::nearbyint(m * 2048.f) - 1024);
}
#endif
}
struct alignas(2) __half {
    uint16_t bits;
    __half() = default;
    KRL_INLINE __half(float f) : bits(krl::float_to_half(f)) {}
    KRL_INLINE __half(double f) : bits(krl::float_to_half((float)f)) {}
    KRL_INLINE __half(int i) : bits(krl::float_to_half((float)i)) {}
    KRL_INLINE __half(unsigned i) : bits(krl::float_to_half((float)i)) {}
    KRL_INLINE __half(long i) : bits(krl::float_to_half((float)i)) {}
    KRL_INLINE __half(long long i) : bits(krl::float_to_half((float)i)) {}
    KRL_INLINE __half(unsigned long long i) : bits(krl::float_to_half((float)i)) {}
    KRL_INLINE operator float() const { return krl::half_to_float(bits); }
};
typedef __half half;
struct __half_raw { unsigned short x; };
struct alignas(4) __half2 {
    __half x, y;
    __half2() = default;
    KRL_INLINE __half2(__half a, __half b) : x(a), y(b) {}
    KRL_INLINE explicit __half2(__half a) : x(a), y(a) {}
};
typedef __half2 half2;
#define KRL_T __half
#define KRL_T2 __half2
#define KRL_F(h) krl::half_to_float((h).bits)
#include "host/narrow.h"
#undef KRL_T
#undef KRL_T2
#undef KRL_F
// Conversions under the names that only half has
KRL_INLINE __half __float2half(float f) { return __half(f); }
KRL_INLINE __half __float2half_rn(float f) { return __half(f); }
KRL_INLINE __half __float2half_rz(float f) { return __half(f); }
KRL_INLINE __half __double2half(double f) { return __half(f); }
KRL_INLINE float __half2float(__half h) { return (float)h; }
KRL_INLINE __half2 __float2half2_rn(float f) { return __half2(__half(f), __half(f)); }
KRL_INLINE __half2 __floats2half2_rn(float a, float b) { return __half2(__half(a), __half(b)); }
KRL_INLINE __half2 __float22half2_rn(float2 f) { return __half2(__half(f.x), __half(f.y)); }
KRL_INLINE float2 __half22float2(__half2 h) { return {(float)h.x, (float)h.y}; }
KRL_INLINE __half2 __half2half2(__half h) { return __half2(h, h); }
KRL_INLINE __half2 __halves2half2(__half a, __half b) { return __half2(a, b); }
KRL_INLINE __half2 make_half2(__half a, __half b) { return __half2(a, b); }
#define KRL_INT(I, n) \
    KRL_INLINE I __half2##n##_rn(__half h) { return krl::to_integer<I>(std::nearbyint((float)h)); } KRL_INLINE I __half2##n##_rz(__half h) { return krl::to_integer<I>(std::trunc((float)h)); } \
    KRL_INLINE I __half2##n##_ru(__half h) { return krl::to_integer<I>(std::ceil((float)h)); } KRL_INLINE I __half2##n##_rd(__half h) { return krl::to_integer<I>(std::floor((float)h)); } \
    KRL_INLINE __half __##n##2half_rn(I i) { return __half((float)i); } KRL_INLINE __half __##n##2half_rz(I i) { return __half((float)i); }
KRL_INT(int, int) KRL_INT(unsigned, uint) KRL_INT(short, short) KRL_INT(unsigned short, ushort) KRL_INT(long long, ll)
#undef KRL_INT
KRL_INLINE short __half_as_short(__half h) { return (short)h.bits; }
KRL_INLINE unsigned short __half_as_ushort(__half h) { return h.bits; }
KRL_INLINE __half __short_as_half(short s) { __half h; h.bits = (uint16_t)s; return h; }
KRL_INLINE __half __ushort_as_half(unsigned short s) { __half h; h.bits = s; return h; }
#endif
