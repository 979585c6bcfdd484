// CUDA C++ for a CPU compiler. Included before the kernel's source, precompiled.
// Qualifiers become nothing, `__shared__` becomes one thread-local variable that the runner clears before each block,
// threadIdx and friends become variables that the runner sets whenever it switches to another thread.
#pragma once
// Standard headers first: what follows defines words that they use
#include <array>
#include <assert.h>
#include <climits>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <float.h>
#include <functional>
#include <initializer_list>
#include <limits.h>
#include <limits>
#include <math.h>
#include <numeric>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tuple>
#include <type_traits>
#include <utility>

#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#define __NVCC__ 1
#define __CUDA_ARCH__ 900
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define CUDART_VERSION 13000
#define CUDA_VERSION 13000

#define __global__ __attribute__((noinline))
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define KRL_INLINE inline __attribute__((always_inline))
#define __forceinline__ __attribute__((always_inline))     // without inline, since programs often write both
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#ifdef __clang__
#define __shared__ __attribute__((aligned(16))) static thread_local
#else                                                 // constinit, or g++ keeps a flag that says whether a constructor has run
#define __shared__ __attribute__((aligned(16))) constinit static thread_local
#endif
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __nv_pure__
#define __nv_is_extended_device_lambda_closure_type(T) false

#include "host/abi.h"
#include "host/vector_types.h"

extern "C" {
extern const uint3 threadIdx, blockIdx;      // const: within one thread they never change, so nothing is reloaded
extern const uint3 blockDim, gridDim;      // uint3, since a constructor would make the compiler forget that they are const
extern const unsigned krl_rank;              // index of the thread in its block
extern char* const krl_dynamic_shared;
}
constexpr int warpSize = 32;

#include "host/sync.h"
#include "host/math.h"
#include "host/atomics.h"

// Loads and stores with a cache hint are loads and stores
#define KRL_LOAD(name)  template<class T> KRL_INLINE T name(const T* p) { return *p; }
#define KRL_STORE(name) template<class T> KRL_INLINE void name(T* p, std::type_identity_t<T> v) { *p = v; }
KRL_LOAD(__ldg) KRL_LOAD(__ldcg) KRL_LOAD(__ldca) KRL_LOAD(__ldcs) KRL_LOAD(__ldlu) KRL_LOAD(__ldcv)
KRL_STORE(__stwb) KRL_STORE(__stcg) KRL_STORE(__stcs) KRL_STORE(__stwt)

// memcpy and memset in the widest pieces that the addresses allow, so that each piece is seen by the check mode
namespace krl {
template<class W> KRL_INLINE bool copy_as(void* d, const void* s, size_t n) {
    if (((uintptr_t)d | (uintptr_t)s | n) % sizeof(W)) return false;
    for (size_t i = 0; i < n / sizeof(W); i++) ((W*)d)[i] = ((const W*)s)[i];
    return true;
}
KRL_INLINE void* copy(void* d, const void* s, size_t n) {
    copy_as<uint4>(d, s, n) || copy_as<uint2>(d, s, n) || copy_as<unsigned>(d, s, n) || copy_as<unsigned short>(d, s, n) || copy_as<char>(d, s, n);
    return d;
}
KRL_INLINE void* fill(void* d, int v, size_t n) { for (size_t i = 0; i < n; i++) ((char*)d)[i] = (char)v; return d; }
KRL_INLINE unsigned smem_address(const void* p) { return (unsigned)((const char*)p - krl_dynamic_shared); }

// A dynamic shared array that is declared at file scope: it becomes a pointer wherever it is used
template<class T> struct DynamicShared {
    operator T*() const { return (T*)krl_dynamic_shared; }
    template<class U> explicit operator U*() const { return (U*)krl_dynamic_shared; }
};

// Calling a kernel through an array of addresses of its arguments
template<class... A, size_t... I> KRL_INLINE void call(void (*f)(A...), void** a, std::index_sequence<I...>) { f(*(std::remove_cvref_t<A>*)a[I]...); }
template<class... A> KRL_INLINE void call(void (*f)(A...), void** a) { call(f, a, std::index_sequence_for<A...>()); }
template<class... A> constexpr int count(void (*)(A...)) { return sizeof...(A); }
template<class... A> int size_of(void (*)(A...), int i) { const int sizes[] = {(int)sizeof(A)..., 0}; return sizes[i]; }
}
#define memcpy(d, s, n) ::krl::copy(d, s, n)
#define memset(d, v, n) ::krl::fill(d, v, n)
KRL_INLINE size_t __cvta_generic_to_shared(const void* p) { return krl::smem_address(p); }

#define printf krl_printf
#undef assert
#ifdef NDEBUG
#define assert(e) ((void)0)
#else
#define assert(e) ((e) ? (void)0 : krl_assert_fail(#e, __LINE__))
#endif
#define __trap() krl_trap(__LINE__)
KRL_INLINE long long clock64() { return (long long)krl_clock(); }
KRL_INLINE long clock() { return (long)krl_clock(); }
KRL_INLINE unsigned long long globaltimer() { return krl_clock(); }

// What a CPU cannot imitate well enough to be worth it. The name is read back from the compiler's message.
#define KRL_UNSUPPORTED(text) __attribute__((error("unsupported_on_host: " text)))
#define __cluster_dims__(...) unsupported_on_host_thread_block_clusters
#define asm unsupported_on_host_inline_PTX
#define __asm__ unsupported_on_host_inline_PTX
#define __asm unsupported_on_host_inline_PTX
