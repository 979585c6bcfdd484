// CUDA's mathematical functions that C++ does not have. The fast ones (__expf, __sinf, ...) are computed accurately:
// a tolerance that a GPU's __expf would exceed is not found here. Directed rounding (_rz, _ru, _rd) rounds to nearest.
#pragma once
// min and max with CUDA's own overloads (not templates, so that a program may bring its own template)
#define KRL_MINMAX(A, B, R) \
    KRL_INLINE constexpr R min(A a, B b) { return (R)a < (R)b ? (R)a : (R)b; } \
    KRL_INLINE constexpr R max(A a, B b) { return (R)a > (R)b ? (R)a : (R)b; }
KRL_MINMAX(int, int, int)                            KRL_MINMAX(unsigned, unsigned, unsigned)
KRL_MINMAX(int, unsigned, unsigned)                  KRL_MINMAX(unsigned, int, unsigned)
KRL_MINMAX(long, long, long)                         KRL_MINMAX(unsigned long, unsigned long, unsigned long)
KRL_MINMAX(long, unsigned long, unsigned long)       KRL_MINMAX(unsigned long, long, unsigned long)
KRL_MINMAX(long long, long long, long long)          KRL_MINMAX(unsigned long long, unsigned long long, unsigned long long)
KRL_MINMAX(long long, unsigned long long, unsigned long long) KRL_MINMAX(unsigned long long, long long, unsigned long long)
#undef KRL_MINMAX
#define KRL_MINMAX(A, B, R) \
    KRL_INLINE R min(A a, B b) { return std::fmin((R)a, (R)b); } \
    KRL_INLINE R max(A a, B b) { return std::fmax((R)a, (R)b); }
KRL_MINMAX(float, float, float) KRL_MINMAX(double, double, double) KRL_MINMAX(float, double, double) KRL_MINMAX(double, float, double)
#undef KRL_MINMAX
KRL_INLINE unsigned umin(unsigned a, unsigned b) { return a < b ? a : b; }
KRL_INLINE unsigned umax(unsigned a, unsigned b) { return a > b ? a : b; }
using std::abs; using std::isnan; using std::isinf; using std::isfinite; using std::signbit;

// Fast versions. Macros, since glibc declares some of these names itself.
#define __expf expf
#define __exp10f exp10f
#define __exp2f exp2f
#define __logf logf
#define __log2f log2f
#define __log10f log10f
#define __sinf sinf
#define __cosf cosf
#define __tanf tanf
#define __tanhf tanhf
#define __powf powf
#define __sincosf sincosf
KRL_INLINE float __fdividef(float a, float b) { return a / b; }
KRL_INLINE float fdividef(float a, float b) { return a / b; }
KRL_INLINE float __saturatef(float x) { return x > 0.f ? (x < 1.f ? x : 1.f) : 0.f; }

KRL_INLINE float rsqrtf(float x) { return (float)(1. / std::sqrt((double)x)); }
KRL_INLINE double rsqrt(double x) { return 1. / std::sqrt(x); }
KRL_INLINE float rsqrt(float x) { return rsqrtf(x); }
KRL_INLINE float __frsqrt_rn(float x) { return rsqrtf(x); }
KRL_INLINE float rcbrtf(float x) { return 1.f / cbrtf(x); }
KRL_INLINE float rhypotf(float a, float b) { return 1.f / hypotf(a, b); }
KRL_INLINE float norm3df(float a, float b, float c) { return sqrtf(a * a + b * b + c * c); }
KRL_INLINE float norm4df(float a, float b, float c, float d) { return sqrtf(a * a + b * b + c * c + d * d); }
KRL_INLINE float rnorm3df(float a, float b, float c) { return rsqrtf(a * a + b * b + c * c); }
KRL_INLINE float sinpif(float x) { return (float)std::sin(M_PI * std::remainder((double)x, 2.)); }
KRL_INLINE float cospif(float x) { return (float)std::cos(M_PI * std::remainder((double)x, 2.)); }
KRL_INLINE double sinpi(double x) { return std::sin(M_PI * std::remainder(x, 2.)); }
KRL_INLINE double cospi(double x) { return std::cos(M_PI * std::remainder(x, 2.)); }
KRL_INLINE void sincospif(float x, float* s, float* c) { *s = sinpif(x); *c = cospif(x); }
KRL_INLINE float normcdff(float x) { return .5f * erfcf(-x * (float)M_SQRT1_2); }
KRL_INLINE double normcdf(double x) { return .5 * erfc(-x * M_SQRT1_2); }
inline double erfinv(double y) {                     // Giles' start, then two Newton steps
    double w = -std::log((1 - y) * (1 + y)), x = (w < 5 ? 1 : 1.2) * y * .8862;
    if (y <= -1 || y >= 1) return y == 1 ? INFINITY : y == -1 ? -INFINITY : NAN;
    if (w > 1) x = std::copysign(std::sqrt(w), y) * .9;
    for (int i = 0; i < 30; i++) { double e = std::erf(x) - y, d = 2 / std::sqrt(M_PI) * std::exp(-x * x); if (e == 0 || d == 0) break; double s = e / d; x -= s / (1 + x * s); if (std::fabs(s) < 1e-16) break; }
    return x;
}
inline double erfcinv(double y) { return erfinv(1 - y); }
inline float erfinvf(float y) { return (float)erfinv((double)y); }
inline float erfcinvf(float y) { return (float)erfinv(1 - (double)y); }
inline float normcdfinvf(float p) { return (float)(M_SQRT2 * erfinv(2 * (double)p - 1)); }
inline float erfcxf(float x) { return (float)(std::exp((double)x * x) * std::erfc((double)x)); }

// Arithmetic with a named rounding: all of them round to nearest here, and are never fused into an FMA
namespace krl {
template<class T> KRL_INLINE T rounded(T x) {
#if defined(__x86_64__)
    asm("" : "+x"(x));
#elif defined(__aarch64__)
    asm("" : "+w"(x));
#endif
    return x;
}
}
#define KRL_ROUNDED(suffix) \
    KRL_INLINE float __fadd_##suffix(float a, float b) { return krl::rounded(a + b); } \
    KRL_INLINE float __fsub_##suffix(float a, float b) { return krl::rounded(a - b); } \
    KRL_INLINE float __fmul_##suffix(float a, float b) { return krl::rounded(a * b); } \
    KRL_INLINE float __fdiv_##suffix(float a, float b) { return a / b; } \
    KRL_INLINE float __frcp_##suffix(float a) { return 1.f / a; } \
    KRL_INLINE float __fsqrt_##suffix(float a) { return sqrtf(a); } \
    KRL_INLINE float __fmaf_##suffix(float a, float b, float c) { return fmaf(a, b, c); } \
    KRL_INLINE double __dadd_##suffix(double a, double b) { return krl::rounded(a + b); } \
    KRL_INLINE double __dsub_##suffix(double a, double b) { return krl::rounded(a - b); } \
    KRL_INLINE double __dmul_##suffix(double a, double b) { return krl::rounded(a * b); } \
    KRL_INLINE double __ddiv_##suffix(double a, double b) { return a / b; } \
    KRL_INLINE double __drcp_##suffix(double a) { return 1. / a; } \
    KRL_INLINE double __dsqrt_##suffix(double a) { return std::sqrt(a); } \
    KRL_INLINE double __fma_##suffix(double a, double b, double c) { return std::fma(a, b, c); } \
    KRL_INLINE float __double2float_##suffix(double a) { return (float)a; } \
    KRL_INLINE float __int2float_##suffix(int a) { return (float)a; } \
    KRL_INLINE float __uint2float_##suffix(unsigned a) { return (float)a; } \
    KRL_INLINE float __ll2float_##suffix(long long a) { return (float)a; } \
    KRL_INLINE float __ull2float_##suffix(unsigned long long a) { return (float)a; } \
    KRL_INLINE double __ll2double_##suffix(long long a) { return (double)a; } \
    KRL_INLINE double __ull2double_##suffix(unsigned long long a) { return (double)a; }
KRL_ROUNDED(rn) KRL_ROUNDED(rz) KRL_ROUNDED(ru) KRL_ROUNDED(rd)
#undef KRL_ROUNDED
KRL_INLINE double __int2double_rn(int a) { return a; }
KRL_INLINE double __uint2double_rn(unsigned a) { return a; }

// Conversions to integers saturate and turn NaN into zero, as on the GPU
namespace krl {
template<class I, class F> KRL_INLINE I to_integer(F x) {
    if (!(x == x)) return 0;
    if (x <= (F)std::numeric_limits<I>::min()) return std::numeric_limits<I>::min();
    if (x >= (F)std::numeric_limits<I>::max()) return std::numeric_limits<I>::max();
    return (I)x;
}
}
#define KRL_TO(prefix, F, name, I) \
    KRL_INLINE I __##prefix##2##name##_rn(F x) { return krl::to_integer<I>(std::nearbyint(x)); } \
    KRL_INLINE I __##prefix##2##name##_rz(F x) { return krl::to_integer<I>(std::trunc(x)); } \
    KRL_INLINE I __##prefix##2##name##_ru(F x) { return krl::to_integer<I>(std::ceil(x)); } \
    KRL_INLINE I __##prefix##2##name##_rd(F x) { return krl::to_integer<I>(std::floor(x)); }
KRL_TO(float, float, int, int)   KRL_TO(float, float, uint, unsigned)   KRL_TO(float, float, ll, long long)   KRL_TO(float, float, ull, unsigned long long)
KRL_TO(double, double, int, int) KRL_TO(double, double, uint, unsigned) KRL_TO(double, double, ll, long long) KRL_TO(double, double, ull, unsigned long long)
#undef KRL_TO

#define KRL_CAST(name, A, R) KRL_INLINE R name(A a) { R r; __builtin_memcpy(&r, &a, sizeof r); return r; }
KRL_CAST(__float_as_int, float, int)            KRL_CAST(__int_as_float, int, float)
KRL_CAST(__float_as_uint, float, unsigned)      KRL_CAST(__uint_as_float, unsigned, float)
KRL_CAST(__double_as_longlong, double, long long) KRL_CAST(__longlong_as_double, long long, double)
#undef KRL_CAST
KRL_INLINE int __double2hiint(double d) { return (int)(__double_as_longlong(d) >> 32); }
KRL_INLINE int __double2loint(double d) { return (int)__double_as_longlong(d); }
KRL_INLINE double __hiloint2double(int hi, int lo) { return __longlong_as_double((long long)hi << 32 | (unsigned)lo); }

// Integer intrinsics
KRL_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
KRL_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
KRL_INLINE int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
KRL_INLINE int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
KRL_INLINE int __ffs(int x) { return __builtin_ffs(x); }
KRL_INLINE int __ffsll(long long x) { return __builtin_ffsll(x); }
KRL_INLINE unsigned __brev(unsigned x) { unsigned r = 0; for (int i = 0; i < 32; i++) r |= (x >> i & 1) << (31 - i); return r; }
KRL_INLINE unsigned long long __brevll(unsigned long long x) { return (unsigned long long)__brev((unsigned)x) << 32 | __brev((unsigned)(x >> 32)); }
KRL_INLINE int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
KRL_INLINE unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
KRL_INLINE long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
KRL_INLINE unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned long long)((unsigned __int128)a * b >> 64); }
KRL_INLINE int __mul24(int a, int b) { return (a << 8 >> 8) * (b << 8 >> 8); }
KRL_INLINE unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffff) * (b & 0xffffff); }
KRL_INLINE unsigned __sad(int a, int b, unsigned c) { return c + (unsigned)(a > b ? a - b : b - a); }
KRL_INLINE unsigned __usad(unsigned a, unsigned b, unsigned c) { return c + (a > b ? a - b : b - a); }
KRL_INLINE int __hadd(int a, int b) { return (int)(((long long)a + b) >> 1); }
KRL_INLINE unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned s) { return (unsigned)(((unsigned long long)hi << 32 | lo) << (s & 31) >> 32); }
KRL_INLINE unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned s) { return (unsigned)(((unsigned long long)hi << 32 | lo) >> (s & 31)); }
KRL_INLINE unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
    unsigned long long v = (unsigned long long)b << 32 | a; unsigned r = 0;
    for (int i = 0; i < 4; i++) r |= (unsigned)(v >> ((s >> 4 * i & 7) * 8) & 255) << 8 * i;
    return r;
}
KRL_INLINE int __dp4a(int a, int b, int c) { for (int i = 0; i < 4; i++) c += (int)(signed char)(a >> 8 * i) * (signed char)(b >> 8 * i); return c; }
KRL_INLINE unsigned __dp4a(unsigned a, unsigned b, unsigned c) { for (int i = 0; i < 4; i++) c += (a >> 8 * i & 255) * (b >> 8 * i & 255); return c; }
