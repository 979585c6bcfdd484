// The scheduler's own view: threads, warps, the block that is running. Included by runtime.cpp, check.cpp and runner.cpp.
#pragma once
#include "include/host/abi.h"
#include <string>
#include <vector>

struct Dim { unsigned x, y, z; };

namespace krl {

enum State : uint8_t { NEW, READY, RUNNING, AT_BARRIER, IN_WARP, ASKS_ACTIVE, DONE };
enum Order { FORWARD, REVERSE, SHUFFLE };

struct Warp;
struct Thread {
    Dim index;
    uint32_t rank, lane;
    State state;
    Warp* warp;
    void* sp;                      // where it stopped
    int line;                      // of the barrier or warp operation that it waits in
    int op, arg, width;            // what it brought to a warp operation
    uint32_t mask;
    uint64_t value, result;
};
struct Warp { uint32_t live, arrived; Thread* lane[32]; };

// One kernel launch, as the runner read it from the job
struct Launch {
    std::string kernel;
    int library;
    void (*entry)(void**);
    Dim grid, block;
    size_t shared;
    std::vector<std::string> arg_bytes;
    void** args;                   // addresses of the arguments, for entry
};

struct Buffer {
    std::string name;
    char *base, *data;             // the file's mapping, and the array in it: what lies between is guard
    size_t mapped, size;
    int elem;
    bool poisoned, zeros;          // holds no value yet; is filled with zeros then
    uintptr_t lo() const { return (uintptr_t)data; }
    uintptr_t hi() const { return (uintptr_t)data + size; }
};

struct Library {                   // a compiled module, where the loader put it
    std::string path;
    void* handle;
    uintptr_t base, lo, hi, text_lo, text_hi;
    char* tls;                     // its static __shared__ variables
    size_t tls_size, tls_module;
};

// What went wrong, in numbers; hostrun.py makes the sentence
struct Fact {
    std::string kind, kernel, buffer, note;
    int library = -1, line = 0, other_line = 0;
    uint64_t pc = 0, other_pc = 0;
    int64_t offset = 0;            // of the address in the buffer
    int size = 0, write = 0;
    unsigned thread = 0, other = 0;
    Dim block{}, other_block{};
    uint64_t times = 1;
};

extern "C" char* krl_dynamic_shared;
extern Thread* current;
extern Launch* launch;
extern uint64_t block_number;      // linear index of the block that runs
extern std::vector<Buffer> buffers;
extern std::vector<Library> libraries;
extern std::vector<Fact> facts;
extern char *arena, *arena_end;    // launch arguments, dynamic shared memory, fiber stacks
extern char* stacks;               // where the stacks begin


void run_launch(Launch& l, int order, uint64_t sample_blocks, uint64_t sample_dice);
void report(Fact f);               // adds it, or counts it when the same was seen at the same place
[[noreturn]] void leave(const char* status, const std::string& message);   // write the report and end the process
void set_up_arena();
void nearest_buffer(uintptr_t a, Fact& f);   // names the buffer that address `a` is nearest to, and how far from its start it lies

#ifdef KRL_CHECK
void check_launch(Launch& l, uint64_t blocks, uint64_t sampled);
void check_block(unsigned threads);
void check_switch(Thread* t);
void check_barrier();
void check_warp(Warp* w, uint32_t lanes);
void check_atomic(uintptr_t p, int size, uintptr_t pc);
void check_fence();
void check_mma(double flops);
void check_block_end();
void check_launch_end();
void check_fill(int buffer);
void check_write_json(FILE* f);
#endif
}
