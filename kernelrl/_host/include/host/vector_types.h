// float4 and its family, with the alignment that CUDA gives them
#pragma once
#define KRL_VECTOR(T, N, align2, align4) \
    struct N##1 { T x; }; \
    struct alignas(align2) N##2 { T x, y; }; \
    struct N##3 { T x, y, z; }; \
    struct alignas(align4) N##4 { T x, y, z, w; }; \
    static inline constexpr N##1 make_##N##1(T x) { return {x}; } \
    static inline constexpr N##2 make_##N##2(T x, T y) { return {x, y}; } \
    static inline constexpr N##3 make_##N##3(T x, T y, T z) { return {x, y, z}; } \
    static inline constexpr N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
KRL_VECTOR(signed char, char, 2, 4)         KRL_VECTOR(unsigned char, uchar, 2, 4)
KRL_VECTOR(short, short, 4, 8)              KRL_VECTOR(unsigned short, ushort, 4, 8)
KRL_VECTOR(int, int, 8, 16)                 KRL_VECTOR(unsigned, uint, 8, 16)
KRL_VECTOR(long, long, 16, 16)              KRL_VECTOR(unsigned long, ulong, 16, 16)
KRL_VECTOR(long long, longlong, 16, 16)     KRL_VECTOR(unsigned long long, ulonglong, 16, 16)
KRL_VECTOR(float, float, 8, 16)             KRL_VECTOR(double, double, 16, 16)
#undef KRL_VECTOR

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};
