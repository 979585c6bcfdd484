// nvcuda::wmma. Fragments are laid out as the hardware's m16n8k16 does; the runner multiplies whole tiles.
#pragma once
#include "cuda_fp16.h"
#include "cuda_bf16.h"
namespace nvcuda { namespace wmma {
struct matrix_a; struct matrix_b; struct accumulator; struct row_major; struct col_major;
namespace precision { struct tf32; }
enum layout_t { mem_row_major, mem_col_major };

template<class T> struct stored { typedef T type; };
template<> struct stored<precision::tf32> { typedef float type; };

template<class Use, int M, int N, int K, class T, class Layout = void> struct fragment {
    typedef typename stored<T>::type element_type;
    static constexpr bool is_a = std::is_same_v<Use, matrix_a>, is_b = std::is_same_v<Use, matrix_b>;
    static constexpr int rows = is_b ? K : M, cols = is_a ? K : N, own = rows * cols / 32;
    // as in CUDA, fragments of half hold every element of A and B twice
    static constexpr int num_elements = own * ((is_a || is_b) && std::is_same_v<T, __half> ? 2 : 1), num_storage_elements = num_elements;
    element_type x[num_elements];
};

template<class F, class T> KRL_INLINE void fill_fragment(F& f, T v) { for (auto& e : f.x) e = (typename F::element_type)v; }
KRL_INLINE float __float_to_tf32(float f) { return __uint_as_float((__float_as_uint(f) + 0x1000) & 0xffffe000u); }

template<class F, class T> KRL_INLINE void load(F& f, const T* p, unsigned ld, bool column_major) {
    int lane = krl_rank & 31;
    for (int e = 0; e < F::own; e += 2) {
        int r = krl::fragment_row(F::is_b, e, lane, F::rows, F::cols), c = krl::fragment_col(F::is_b, e, lane, F::rows, F::cols);
        size_t at = column_major ? (size_t)c * ld + r : (size_t)r * ld + c;
        size_t step = F::is_b == column_major ? 1 : ld;            // from an element to its neighbour
        struct alignas(2 * sizeof(T)) Two { T a, b; };
        if (step == 1 && (uintptr_t)(p + at) % sizeof(Two) == 0) { Two t = *(const Two*)(p + at); f.x[e] = t.a; f.x[e + 1] = t.b; }
        else { f.x[e] = p[at]; f.x[e + 1] = p[at + step]; }
    }
    for (int e = F::own; e < F::num_elements; e++) f.x[e] = f.x[e - F::own];
    __syncwarp();
}
template<class Use, int M, int N, int K, class T, class L> KRL_INLINE void load_matrix_sync(fragment<Use, M, N, K, T, L>& f, const typename stored<T>::type* p, unsigned ld) { load(f, p, ld, std::is_same_v<L, col_major>); }
template<int M, int N, int K, class T> KRL_INLINE void load_matrix_sync(fragment<accumulator, M, N, K, T>& f, const T* p, unsigned ld, layout_t layout) { load(f, p, ld, layout == mem_col_major); }
template<int M, int N, int K, class T> KRL_INLINE void store_matrix_sync(T* p, const fragment<accumulator, M, N, K, T>& f, unsigned ld, layout_t layout) {
    int lane = krl_rank & 31;
    for (int e = 0; e < f.own; e += 2) {
        int r = krl::fragment_row(false, e, lane, M, N), c = krl::fragment_col(false, e, lane, M, N);
        struct alignas(2 * sizeof(T)) Two { T a, b; };
        T* q = layout == mem_col_major ? p + (size_t)c * ld + r : p + (size_t)r * ld + c;
        if (layout == mem_row_major && (uintptr_t)q % sizeof(Two) == 0) *(Two*)q = Two{f.x[e], f.x[e + 1]};
        else { q[0] = f.x[e]; q[layout == mem_col_major ? ld : 1] = f.x[e + 1]; }
    }
    __syncwarp();
}
template<int M, int N, int K, class TA, class LA, class TB, class LB, class TD, class TC>
inline void mma_sync(fragment<accumulator, M, N, K, TD>& d, const fragment<matrix_a, M, N, K, TA, LA>& a, const fragment<matrix_b, M, N, K, TB, LB>& b, const fragment<accumulator, M, N, K, TC>& c, KRL_LINE) {
    constexpr bool integer = std::is_integral_v<TD>;
    constexpr int na = M * K / 32, nb = K * N / 32, nd = M * N / 32;
    float fa[na], fb[nb], fc[nd], fd[nd];
    int ic[nd], id[nd];
    for (int i = 0; i < na; i++) fa[i] = (float)a.x[i];
    for (int i = 0; i < nb; i++) fb[i] = (float)b.x[i];
    for (int i = 0; i < nd; i++) { if constexpr (integer) ic[i] = c.x[i]; else fc[i] = (float)c.x[i]; }
    krl::Mma m{M, N, K, integer, fa, fb, fc, fd, ic, id};
    krl_warp(krl::MMA, 0xffffffffu, (uint64_t)&m, 0, 32, line);
    for (int i = 0; i < nd; i++) { if constexpr (integer) d.x[i] = id[i]; else d.x[i] = (TD)fd[i]; }
}
}}
using nvcuda::wmma::__float_to_tf32;
