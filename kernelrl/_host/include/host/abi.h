// What a compiled kernel and the runner agree on. Both sides include this file; nothing else is shared.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace krl {

// Operations in which the lanes of a warp meet. Each lane brings a value and leaves with a result.
enum WarpOp {
    SYNC, SHFL, SHFL_UP, SHFL_DOWN, SHFL_XOR,                      // move a value between lanes
    BALLOT, ANY, ALL, MATCH_ANY, MATCH_ALL,                        // votes
    ADD, MIN_U, MAX_U, MIN_S, MAX_S, AND, OR, XOR,                 // __reduce_*_sync
    MMA                                                            // wmma: the value is a pointer to an Mma
};

enum BarrierOp { COUNT, EVERY, SOME };                             // __syncthreads_count, _and, _or

// One lane's share of a matrix multiplication D = A B + C. Elements lie in fragments as `element_row/col` say.
struct Mma { int m, n, k; bool integer; const float *a, *b; const float* c; float* d; const int* ci; int* di; };

// Where element e of lane l sits in a fragment of R rows and C columns: two neighbours in every 8 x 8 tile, tiles
// down the rows first. This is the layout of the hardware's m16n8k16. B holds its neighbours along k.
constexpr int fragment_row(bool b, int e, int lane, int rows, int cols) {
    int tile = e / 2, tr = b ? tile % (rows / 8) : tile % (rows / 8);
    (void)cols;
    return tr * 8 + (b ? lane % 4 * 2 + e % 2 : lane / 4);
}
constexpr int fragment_col(bool b, int e, int lane, int rows, int cols) {
    int tile = e / 2, tc = tile / (rows / 8);
    (void)cols;
    return tc * 8 + (b ? lane / 4 : lane % 4 * 2 + e % 2);
}

}  // namespace krl

extern "C" {
// Barriers. `line` is the line of the call in the kernel's source.
void krl_barrier(int line);
int krl_barrier_reduce(int op, int value, int line);
uint64_t krl_warp(int op, uint32_t mask, uint64_t value, int arg, int width, int line);
uint32_t krl_active_mask(int line);
void krl_fence(int scope);                                         // 0 block, 1 device
void krl_spin();                                                   // a thread waits for another one: let others run

// Memory that atomics touch. The runner looks at them in check mode, so they must not be instrumented as plain accesses.
void krl_atomic(const volatile void* p, int size);
uint64_t krl_peek(const volatile void* p, int size);
void krl_poke(volatile void* p, uint64_t bits, int size);

// Leaving, and speaking
void krl_assert_fail(const char* expression, int line);
void krl_trap(int line);
int krl_printf(const char* format, ...) __attribute__((format(printf, 1, 2)));
uint64_t krl_clock();
}
