// How the threads of a block take turns on one CPU thread.
//
// A thread runs until it ends or has to wait for others. One that ends leaves its stack to the next, so a kernel without
// barriers runs as a plain loop. One that waits keeps its stack and another goes on: a fiber. When nothing can go on
// and threads are left, they wait for one another for ever.
#include "runtime.h"
#include <random>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <chrono>
#include <algorithm>

// The variables that a kernel reads as constants. They are set whenever another thread gets its turn.
extern "C" {
Dim threadIdx, blockIdx, blockDim, gridDim;
unsigned krl_rank;
char* krl_dynamic_shared;
}

namespace krl {

Thread* current;
Launch* launch;
uint64_t block_number;
char *arena, *arena_end, *stacks;

static const size_t STACK = 256 << 10, ARGUMENTS = 64 << 10, THREADS = 1024, SHARED = 256 << 10, GAP = 64 << 10;

// ---------------------------------------------------------------- fibers
// switch_to(&mine, theirs): remember where I am, go on where the other one stopped.
#if defined(__x86_64__)
extern "C" void krl_switch(void** save, void* load);
asm(R"(.text
.globl krl_switch
.type krl_switch,@function
krl_switch:
  push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15
  mov %rsp,(%rdi)
  mov %rsi,%rsp
  pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp
  ret
.size krl_switch,.-krl_switch
)");
static void switch_to(void** save, void* load) { krl_switch(save, load); }
static void* new_fiber(char* top, void (*f)()) {
    void** s = (void**)((uintptr_t)top & ~63ull);
    *--s = nullptr;                            // keeps the stack aligned as after a call
    *--s = (void*)f;
    for (int i = 0; i < 6; i++) *--s = nullptr;
    return s;
}
#else
#include <ucontext.h>
static std::vector<ucontext_t*> contexts;
static void switch_to(void** save, void* load) {
    if (!*save) { contexts.push_back(new ucontext_t); *save = contexts.back(); }
    swapcontext((ucontext_t*)*save, (ucontext_t*)load);
}
static void* new_fiber(char* top, void (*f)()) {
    ucontext_t* c = new ucontext_t;
    getcontext(c);
    size_t size = STACK - 16384;
    c->uc_stack.ss_sp = (char*)((uintptr_t)top & ~63ull) - size;
    c->uc_stack.ss_size = size;
    c->uc_link = nullptr;
    makecontext(c, f, 0);
    return c;
}
#endif

// ---------------------------------------------------------------- the block that runs
static std::vector<Thread> threads;
static std::vector<Warp> warps;
static std::vector<uint32_t> start_order;      // ranks, in the order in which they start
static size_t next_start;
static std::vector<Thread*> ready;             // ring buffer
static size_t ready_head, ready_tail, ready_mask;
static int live, arrived, barrier_line, reduce_sum, reduce_result, order;
static std::vector<void*> idle_stacks;         // stacks without a thread
static size_t stacks_made;
static void* main_sp;
static std::mt19937 dice;

static void make_ready(Thread* t) { t->state = READY; ready[ready_tail++ & ready_mask] = t; }

static void set_current(Thread* t) {
#ifdef KRL_CHECK
    check_switch(t);
#endif
    current = t;
    t->state = RUNNING;
    threadIdx = t->index;
    krl_rank = t->rank;
}

static void fiber_main();
static void* take_stack() {
    if (!idle_stacks.empty()) { void* s = idle_stacks.back(); idle_stacks.pop_back(); return s; }
    char* low = stacks + stacks_made * STACK;
    mprotect(low, 4096, PROT_NONE);            // a thread that needs more ends here
    size_t stagger = stacks_made++ * 7 % 61 * 64;   // or all tops would share one set of the cache
    return new_fiber(low + STACK - 4096 - stagger, fiber_main);
}

static Fact here(const char* kind, int line) {
    Fact f;
    f.kind = kind;
    f.kernel = launch ? launch->kernel : "";
    f.library = launch ? launch->library : -1;
    f.line = line;
    f.block = blockIdx;
    if (current) f.thread = current->rank;
    return f;
}

// ---------------------------------------------------------------- warp operations
static uint64_t from_lane(Warp* w, Thread* t, uint32_t group) {
    int l = (int)t->lane, width = t->width > 0 && t->width <= 32 ? t->width : 32, base = l & ~(width - 1), s = l;
    switch (t->op) {
        case SHFL: s = base + (t->arg & (width - 1)); break;
        case SHFL_UP: s = l - t->arg; if (s < base) s = l; break;
        case SHFL_DOWN: s = l + t->arg; if (s >= base + width) s = l; break;
        case SHFL_XOR: s = l ^ t->arg; if (s >= base + width || s < 0) s = l; break;
    }
    return group >> s & 1 ? w->lane[s]->value : t->value;      // from a lane that is not there: undefined, here the own value
}

static uint64_t reduce(Warp* w, int op, uint32_t group) {
    uint64_t r = 0;
    bool first = true;
    for (uint32_t m = group; m; m &= m - 1, first = false) {
        int l = __builtin_ctz(m);
        uint64_t v = w->lane[l]->value;
        switch (op) {
            case BALLOT: r |= v << l; break;
            case ADD: r += v; break;
            case OR: case ANY: r |= v; break;
            case XOR: r ^= v; break;
            case AND: case ALL: r = first ? v : r & v; break;
            case MIN_U: r = first || v < r ? v : r; break;
            case MAX_U: r = first || v > r ? v : r; break;
            case MIN_S: r = first || (int64_t)v < (int64_t)r ? v : r; break;
            case MAX_S: r = first || (int64_t)v > (int64_t)r ? v : r; break;
        }
    }
    return r;
}

static uint32_t equal_lanes(Warp* w, uint32_t group, uint64_t v) {
    uint32_t r = 0;
    for (uint32_t m = group; m; m &= m - 1) if (w->lane[__builtin_ctz(m)]->value == v) r |= m & -m;
    return r;
}

// All 32 lanes have brought their fragments: one loop multiplies the whole tile
static void multiply(Warp* w) {
    static float a[32 * 32], b[32 * 32];
    Mma* first = (Mma*)w->lane[0]->value;
    int M = first->m, N = first->n, K = first->k;
    for (int l = 0; l < 32; l++) {
        Mma* f = (Mma*)w->lane[l]->value;
        for (int e = 0; e < M * K / 32; e++) a[fragment_row(false, e, l, M, K) * K + fragment_col(false, e, l, M, K)] = f->a[e];
        for (int e = 0; e < K * N / 32; e++) b[fragment_row(true, e, l, K, N) * N + fragment_col(true, e, l, K, N)] = f->b[e];
    }
    for (int l = 0; l < 32; l++) {
        Mma* f = (Mma*)w->lane[l]->value;
        for (int e = 0; e < M * N / 32; e++) {
            int r = fragment_row(false, e, l, M, N), c = fragment_col(false, e, l, M, N);
            if (f->integer) { int s = f->ci[e]; for (int k = 0; k < K; k++) s += (int)a[r * K + k] * (int)b[k * N + c]; f->di[e] = s; }
            else { float s = f->c[e]; for (int k = 0; k < K; k++) s += a[r * K + k] * b[k * N + c]; f->d[e] = s; }
        }
    }
#ifdef KRL_CHECK
    check_mma(2. * M * N * K);
#endif
}

static void finish_warp(Warp* w, uint32_t group) {
    Thread* first = w->lane[__builtin_ctz(group)];
    int op = first->op;
    for (uint32_t m = group; m; m &= m - 1) {
        Thread* t = w->lane[__builtin_ctz(m)];
        if (t->op != op || t->line != first->line) {
            Fact f = here("divergent_barrier", t->line);
            f.note = "warp"; f.other_line = first->line; f.thread = t->rank; f.other = first->rank;
            report(f);
            break;
        }
    }
    uint64_t all = op == MMA || op == SYNC || op <= SHFL_XOR ? 0 : reduce(w, op, group);
    if (op == MMA) { if (group == 0xffffffffu) multiply(w); else leave("crash", "wmma needs all 32 lanes of the warp"); }
    for (uint32_t m = group; m; m &= m - 1) {
        Thread* t = w->lane[__builtin_ctz(m)];
        if (t->op >= SHFL && t->op <= SHFL_XOR) t->result = from_lane(w, t, group);
        else if (t->op == MATCH_ANY) t->result = equal_lanes(w, group, t->value);
        else if (t->op == MATCH_ALL) t->result = equal_lanes(w, group, t->value) == group ? group : 0;
        else t->result = all;
    }
    w->arrived &= ~group;
#ifdef KRL_CHECK
    check_warp(w, group);
#endif
    if (order == REVERSE) { for (int l = 31; l >= 0; l--) if (group >> l & 1) make_ready(w->lane[l]); }
    else for (uint32_t m = group; m; m &= m - 1) make_ready(w->lane[__builtin_ctz(m)]);
}

// Does somebody's group have everyone it waits for? Lanes that have ended are not waited for.
static void try_warp(Warp* w) {
    for (int l = 0; l < 32; l++) {
        if (!(w->arrived >> l & 1)) continue;
        uint32_t need = w->lane[l]->mask & w->live;
        if ((w->arrived & need) == need) finish_warp(w, need);
    }
}

// ---------------------------------------------------------------- barriers
static void release_barrier() {
    arrived = 0;
    reduce_result = reduce_sum;
    reduce_sum = 0;
#ifdef KRL_CHECK
    check_barrier();
#endif
    for (uint32_t r : start_order) if (threads[r].state == AT_BARRIER) make_ready(&threads[r]);
}

// Nothing can go on. Either somebody asked who is here (__activemask), and now we know, or it is a deadlock.
static void quiesce() {
    for (Warp& w : warps) {
        uint32_t group = 0;
        int line = 0;
        for (int l = 0; l < 32; l++) {
            Thread* t = w.lane[l];
            if (!t || t->state != ASKS_ACTIVE) continue;
            if (!group) line = t->line;
            if (t->line == line) group |= 1u << l;
        }
        for (uint32_t m = group; m; m &= m - 1) { Thread* t = w.lane[__builtin_ctz(m)]; t->result = group; make_ready(t); }
    }
    if (ready_head != ready_tail) return;
    Fact f = here("deadlock", 0);
    int at_barrier = 0, in_warp = 0;
    for (Thread& t : threads) {
        if (t.state == AT_BARRIER) { at_barrier++; f.line = t.line; f.thread = t.rank; }
        if (t.state == IN_WARP) { in_warp++; f.other_line = t.line; f.other = t.rank; }
    }
    f.note = std::to_string(at_barrier) + " " + std::to_string(in_warp);
    report(f);
    leave("deadlock", "");
}

static Thread* pop_ready() {
    if (ready_head == ready_tail) quiesce();
    return ready[ready_head++ & ready_mask];
}

// The current thread waits; somebody else goes on. Comes back when the thread has been made ready and chosen.
static void wait() {
    Thread* me = current;
    if (ready_head == ready_tail && next_start < start_order.size()) { switch_to(&me->sp, take_stack()); return; }
    Thread* t = pop_ready();
    set_current(t);
    if (t != me) switch_to(&me->sp, t->sp);
}

static void thread_ends(Thread* t) {
    t->state = DONE;
    live--;
    Warp* w = t->warp;
    w->live &= ~(1u << t->lane);
    if (arrived && arrived == live) release_barrier();
    if (w->arrived) try_warp(w);
}

// The life of a stack: run threads until one of them is somebody who waited on another stack
static void fiber_main() {
    for (;;) {
        Thread* t = &threads[start_order[next_start++]];
        set_current(t);
        launch->entry(launch->args);
        thread_ends(current);
        if (ready_head == ready_tail && next_start < start_order.size()) continue;
        void* sp = main_sp;
        if (live) { Thread* r = pop_ready(); set_current(r); sp = r->sp; }
        idle_stacks.push_back(nullptr);          // the switch writes the place to come back to
        switch_to(&idle_stacks.back(), sp);
    }
}

static void run_block() {
    size_t n = threads.size();
    if (launch->shared) memset(krl_dynamic_shared, 0xff, launch->shared);
    Library& lib = libraries[launch->library];
    if (lib.tls_size) memset(lib.tls, 0xff, lib.tls_size);
    for (Warp& w : warps) w.live = w.arrived = 0;
    for (Thread& t : threads) { t.state = NEW; t.warp->live |= 1u << t.lane; }
    next_start = ready_head = ready_tail = 0;
    live = (int)n; arrived = 0; reduce_sum = 0;
    if (order == SHUFFLE) {                      // warps in any order, lanes of a warp in any order
        std::vector<uint32_t> w((n + 31) / 32);
        for (size_t i = 0; i < w.size(); i++) w[i] = (uint32_t)i;
        std::shuffle(w.begin(), w.end(), dice);
        start_order.clear();
        for (uint32_t i : w) {
            size_t at = start_order.size();
            for (uint32_t r = i * 32; r < std::min<size_t>(n, i * 32 + 32); r++) start_order.push_back(r);
            std::shuffle(start_order.begin() + at, start_order.end(), dice);
        }
    }
    current = nullptr;
#ifdef KRL_CHECK
    check_block((unsigned)n);
#endif
    switch_to(&main_sp, take_stack());
    current = nullptr;
#ifdef KRL_CHECK
    check_block_end();
#endif
}

void set_up_arena() {
    size_t n = ARGUMENTS + SHARED + GAP + (THREADS + 1) * STACK;
    arena = (char*)mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (arena == MAP_FAILED) leave("crash", "out of memory for thread stacks");
    arena_end = arena + n;
    stacks = arena + ARGUMENTS + SHARED + GAP;
    mprotect(stacks - GAP, GAP, PROT_NONE);
}

void run_launch(Launch& l, int thread_order, uint64_t sample_blocks, uint64_t sample_dice) {
    launch = &l;
    order = thread_order;
    dice.seed(1);
    Dim b = l.block, g = l.grid;
    size_t n = (size_t)b.x * b.y * b.z;
    uint64_t blocks = (uint64_t)g.x * g.y * g.z, count = sample_blocks && sample_blocks < blocks ? sample_blocks : blocks;
    blockDim = b; gridDim = g;

    // the arguments live in the arena, where the check mode lets kernels read freely
    l.args = (void**)arena;
    char* at = arena + ARGUMENTS / 2;
    for (size_t i = 0; i < l.arg_bytes.size(); i++, at += 16) { memcpy(at, l.arg_bytes[i].data(), l.arg_bytes[i].size()); l.args[i] = at; }
    // dynamic shared memory ends at a page that cannot be touched
    char* shared_end = arena + ARGUMENTS + SHARED;
    krl_dynamic_shared = shared_end - (l.shared + 255) / 256 * 256;

    threads.assign(n, Thread{});
    warps.assign((n + 31) / 32, Warp{});
    start_order.resize(n);
    for (size_t i = 0; i < n; i++) {
        Thread& t = threads[i];
        t.index = {unsigned(i % b.x), unsigned(i / b.x % b.y), unsigned(i / b.x / b.y)};
        t.rank = (uint32_t)i; t.lane = i & 31; t.warp = &warps[i / 32];
        t.warp->lane[i & 31] = &t;
        start_order[i] = (uint32_t)(order == REVERSE ? n - 1 - i : i);
    }
    size_t ring = 1;
    while (ring < 2 * n) ring *= 2;
    ready.assign(ring, nullptr);
    ready_mask = ring - 1;
    idle_stacks.reserve(THREADS + 1);
#ifdef KRL_CHECK
    check_launch(l, blocks, count);
#endif
    std::mt19937_64 pick(sample_dice);               // of each stretch of the grid one block, which no kernel can know
    for (uint64_t i = 0; i < count; i++) {
        uint64_t from = i * blocks / count, to = (i + 1) * blocks / count;
        block_number = count == blocks ? i : sample_dice ? from + pick() % (to - from) : (from + to) / 2;
        blockIdx = {unsigned(block_number % g.x), unsigned(block_number / g.x % g.y), unsigned(block_number / g.x / g.y)};
        run_block();
    }
#ifdef KRL_CHECK
    check_launch_end();
#endif
    launch = nullptr;
}

// ---------------------------------------------------------------- output of kernels, bounded
std::string kernel_log;
static const size_t LOG_LIMIT = 16 << 10;

}  // namespace krl

using namespace krl;

extern "C" {
void krl_barrier(int line) {
    Thread* me = current;
    if (arrived == 0) barrier_line = line;
    else if (line != barrier_line) { Fact f = here("divergent_barrier", line); f.note = "block"; f.other_line = barrier_line; report(f); }
    me->state = AT_BARRIER;
    me->line = line;
    if (++arrived == live) release_barrier();
    wait();
}

int krl_barrier_reduce(int op, int value, int line) {
    reduce_sum += op == EVERY ? !value : value;
    krl_barrier(line);
    return op == COUNT ? reduce_result : op == EVERY ? reduce_result == 0 : reduce_result != 0;
}

uint64_t krl_warp(int op, uint32_t mask, uint64_t value, int arg, int width, int line) {
    Thread* me = current;
    if (!(mask >> me->lane & 1)) { Fact f = here("warp_mask", line); f.offset = mask; report(f); mask = 1u << me->lane; }
    me->op = op; me->value = value; me->arg = arg; me->width = width; me->mask = mask; me->line = line;
    me->state = IN_WARP;
    Warp* w = me->warp;
    w->arrived |= 1u << me->lane;
    uint32_t need = mask & w->live;
    if ((w->arrived & need) == need) finish_warp(w, need);
    wait();
    return me->result;
}

uint32_t krl_active_mask(int line) {
    Thread* me = current;
    me->state = ASKS_ACTIVE;
    me->line = line;
    wait();
    return (uint32_t)me->result;
}

void krl_spin() {
    Thread* me = current;
    make_ready(me);
    if (next_start < start_order.size()) switch_to(&me->sp, take_stack());
    else wait();
}
void krl_fence(int scope) {
    (void)scope;
#ifdef KRL_CHECK
    if (scope) check_fence();
#endif
}

void krl_atomic(const volatile void* p, int size) {
    (void)p; (void)size;
#ifdef KRL_CHECK
    check_atomic((uintptr_t)p, size, (uintptr_t)__builtin_return_address(0));
#endif
}
uint64_t krl_peek(const volatile void* p, int size) { uint64_t v = 0; memcpy(&v, (const void*)p, size); return v; }
void krl_poke(volatile void* p, uint64_t bits, int size) { memcpy((void*)p, &bits, size); }

uint64_t krl_clock() { return (uint64_t)std::chrono::steady_clock::now().time_since_epoch().count(); }

void krl_assert_fail(const char* expression, int line) {
    Fact f = here("device_assert", line);
    f.note = expression;
    report(f);
    leave("crash", "");
}
void krl_trap(int line) {
    report(here("device_assert", line));
    leave("crash", "");
}

int krl_printf(const char* format, ...) {
    char text[1024];
    va_list v;
    va_start(v, format);
    int n = vsnprintf(text, sizeof text, format, v);
    va_end(v);
    if (kernel_log.size() < LOG_LIMIT) kernel_log += text;
    return n;
}
}
