// What half and bfloat16 have in common. Included once for each, with KRL_T, KRL_T2 and KRL_F (to float) defined.
#define KRL_OP(op) \
    KRL_INLINE KRL_T operator op(KRL_T a, KRL_T b) { return KRL_T(KRL_F(a) op KRL_F(b)); } \
    KRL_INLINE KRL_T& operator op##=(KRL_T& a, KRL_T b) { return a = KRL_T(KRL_F(a) op KRL_F(b)); } \
    KRL_INLINE KRL_T2 operator op(KRL_T2 a, KRL_T2 b) { return KRL_T2(a.x op b.x, a.y op b.y); } \
    KRL_INLINE KRL_T2& operator op##=(KRL_T2& a, KRL_T2 b) { return a = a op b; }
KRL_OP(+) KRL_OP(-) KRL_OP(*) KRL_OP(/)
#undef KRL_OP
KRL_INLINE KRL_T operator-(KRL_T a) { KRL_T r; r.bits = a.bits ^ 0x8000; return r; }
KRL_INLINE KRL_T operator+(KRL_T a) { return a; }
KRL_INLINE KRL_T2 operator-(KRL_T2 a) { return KRL_T2(-a.x, -a.y); }
#define KRL_COMPARE(op) KRL_INLINE bool operator op(KRL_T a, KRL_T b) { return KRL_F(a) op KRL_F(b); }
KRL_COMPARE(==) KRL_COMPARE(!=) KRL_COMPARE(<) KRL_COMPARE(>) KRL_COMPARE(<=) KRL_COMPARE(>=)
#undef KRL_COMPARE
// Mixed with another arithmetic type: as if that one had been converted first
#define KRL_MIXED(S) \
    KRL_INLINE KRL_T& operator+=(KRL_T& a, S b) { return a = KRL_T(KRL_F(a) + (float)b); } KRL_INLINE KRL_T& operator-=(KRL_T& a, S b) { return a = KRL_T(KRL_F(a) - (float)b); } \
    KRL_INLINE KRL_T& operator*=(KRL_T& a, S b) { return a = KRL_T(KRL_F(a) * (float)b); } KRL_INLINE KRL_T& operator/=(KRL_T& a, S b) { return a = KRL_T(KRL_F(a) / (float)b); }
KRL_MIXED(float) KRL_MIXED(double) KRL_MIXED(int)
#undef KRL_MIXED

// One-operand and two-operand functions, for one value and for pairs
#define KRL_1(name, expression) \
    KRL_INLINE KRL_T h##name(KRL_T v) { float a = KRL_F(v); return KRL_T(expression); } \
    KRL_INLINE KRL_T2 h2##name(KRL_T2 v) { return KRL_T2(h##name(v.x), h##name(v.y)); }
KRL_1(exp, expf(a)) KRL_1(exp2, exp2f(a)) KRL_1(exp10, exp10f(a)) KRL_1(log, logf(a)) KRL_1(log2, log2f(a)) KRL_1(log10, log10f(a)) KRL_1(sin, sinf(a)) KRL_1(cos, cosf(a))
KRL_1(sqrt, sqrtf(a)) KRL_1(rsqrt, rsqrtf(a)) KRL_1(rcp, 1.f / a) KRL_1(ceil, ceilf(a)) KRL_1(floor, floorf(a)) KRL_1(trunc, truncf(a)) KRL_1(rint, nearbyintf(a)) KRL_1(tanh, tanhf(a))
#undef KRL_1
#define KRL_2(name, expression) \
    KRL_INLINE KRL_T name(KRL_T u, KRL_T v) { float a = KRL_F(u), b = KRL_F(v); return KRL_T(expression); } \
    KRL_INLINE KRL_T2 name##2(KRL_T2 u, KRL_T2 v) { return KRL_T2(name(u.x, v.x), name(u.y, v.y)); }
KRL_2(__hadd, a + b) KRL_2(__hsub, a - b) KRL_2(__hmul, a * b) KRL_2(__hadd_rn, a + b) KRL_2(__hsub_rn, a - b) KRL_2(__hmul_rn, a * b) KRL_2(__hdiv, a / b)
KRL_2(__hmax, fmaxf(a, b)) KRL_2(__hmin, fminf(a, b))
KRL_2(__hmax_nan, a != a || b != b ? NAN : fmaxf(a, b)) KRL_2(__hmin_nan, a != a || b != b ? NAN : fminf(a, b))
KRL_2(__hadd_sat, __saturatef(a + b)) KRL_2(__hsub_sat, __saturatef(a - b)) KRL_2(__hmul_sat, __saturatef(a * b))
#undef KRL_2
KRL_INLINE KRL_T2 __h2div(KRL_T2 a, KRL_T2 b) { return a / b; }
KRL_INLINE KRL_T __hfma(KRL_T a, KRL_T b, KRL_T c) { return KRL_T(fmaf(KRL_F(a), KRL_F(b), KRL_F(c))); }
KRL_INLINE KRL_T2 __hfma2(KRL_T2 a, KRL_T2 b, KRL_T2 c) { return KRL_T2(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)); }
KRL_INLINE KRL_T __hfma_sat(KRL_T a, KRL_T b, KRL_T c) { return KRL_T(__saturatef(fmaf(KRL_F(a), KRL_F(b), KRL_F(c)))); }
KRL_INLINE KRL_T __hfma_relu(KRL_T a, KRL_T b, KRL_T c) { return KRL_T(fmaxf(fmaf(KRL_F(a), KRL_F(b), KRL_F(c)), 0.f)); }
KRL_INLINE KRL_T2 __hfma2_relu(KRL_T2 a, KRL_T2 b, KRL_T2 c) { return KRL_T2(__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)); }
KRL_INLINE KRL_T __hneg(KRL_T a) { return -a; }
KRL_INLINE KRL_T2 __hneg2(KRL_T2 a) { return -a; }
KRL_INLINE KRL_T __habs(KRL_T a) { KRL_T r; r.bits = a.bits & 0x7fff; return r; }
KRL_INLINE KRL_T2 __habs2(KRL_T2 a) { return KRL_T2(__habs(a.x), __habs(a.y)); }
#define KRL_TEST(name, op) \
    KRL_INLINE bool __h##name(KRL_T a, KRL_T b) { return KRL_F(a) op KRL_F(b); } \
    KRL_INLINE KRL_T2 __h##name##2(KRL_T2 a, KRL_T2 b) { return KRL_T2(KRL_T(a.x op b.x ? 1.f : 0.f), KRL_T(a.y op b.y ? 1.f : 0.f)); } \
    KRL_INLINE bool __hb##name##2(KRL_T2 a, KRL_T2 b) { return a.x op b.x && a.y op b.y; }
KRL_TEST(eq, ==) KRL_TEST(ne, !=) KRL_TEST(lt, <) KRL_TEST(le, <=) KRL_TEST(gt, >) KRL_TEST(ge, >=)
#undef KRL_TEST
KRL_INLINE bool __hisnan(KRL_T a) { return KRL_F(a) != KRL_F(a); }
KRL_INLINE int __hisinf(KRL_T a) { float f = KRL_F(a); return std::isinf(f) ? (f > 0 ? 1 : -1) : 0; }
KRL_INLINE float __low2float(KRL_T2 a) { return KRL_F(a.x); }
KRL_INLINE float __high2float(KRL_T2 a) { return KRL_F(a.y); }
#define KRL_PAIR(A, B) \
    KRL_INLINE KRL_T __low2##A(KRL_T2 a) { return a.x; } KRL_INLINE KRL_T __high2##A(KRL_T2 a) { return a.y; } \
    KRL_INLINE KRL_T2 __low2##B(KRL_T2 a) { return KRL_T2(a.x, a.x); } KRL_INLINE KRL_T2 __high2##B(KRL_T2 a) { return KRL_T2(a.y, a.y); }
KRL_PAIR(half, half2) KRL_PAIR(bfloat16, bfloat162)
#undef KRL_PAIR
KRL_INLINE KRL_T2 __lowhigh2highlow(KRL_T2 a) { return KRL_T2(a.y, a.x); }
KRL_INLINE KRL_T2 __lows2half2(KRL_T2 a, KRL_T2 b) { return KRL_T2(a.x, b.x); }
KRL_INLINE KRL_T2 __highs2half2(KRL_T2 a, KRL_T2 b) { return KRL_T2(a.y, b.y); }
KRL_INLINE KRL_T2 atomicAdd(KRL_T2* p, KRL_T2 v) { return krl::rmw(p, [=](KRL_T2 o) { return o + v; }); }
