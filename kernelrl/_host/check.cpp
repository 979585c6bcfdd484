// The check mode. The compiler calls a __tsan_* function before each access to memory (-fsanitize=thread); these are ours,
// not ThreadSanitizer's. They know buffers, shared memory and barriers, so they find accesses out of bounds, misaligned
// vectors, races and reads of memory that nobody wrote. They also see which addresses the 32 lanes of a warp ask for
// together, and count 32-byte sectors and shared-memory bank conflicts for each place in the program.
#include "runtime.h"
#include <algorithm>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unordered_map>

extern "C" char __executable_start, _end;         // the linker's names for where the runner's own image begins and ends

namespace krl {

enum Op { LOAD, STORE, ATOMIC };
enum Space { GLOBAL, SHARED };

// ---------------------------------------------------------------- time
// A clock that ticks at each synchronisation of the block. Two accesses are ordered when a barrier, or for lanes of one
// warp a warp operation, lies between them. The clock runs on from block to block, so nothing has to be cleared.
static uint32_t now = 1, block_start, launch_start, last_barrier, last_warp_sync[32];
static std::vector<uint32_t> block_starts;       // of this launch
static std::vector<uint64_t> block_numbers;
static std::vector<uint32_t> block_fences;       // last __threadfence of each block
static bool acquired;                            // this block has read a flag: an atomic or a volatile load

// ---------------------------------------------------------------- shadow memory
// For each piece of memory: who wrote it last, who read it last, when, and at which place in the program.
struct Cell {
    uint32_t wrote, read;                        // clock; 0 never
    uint16_t writer : 10, by_atomic : 1, : 5;
    uint16_t reader : 10, several : 2, : 4;      // several readers: 1 of one warp, 2 of several warps, 3 of several blocks
    uint16_t write_site, read_site;
};
static_assert(sizeof(Cell) == 16);

struct Shadow {
    uintptr_t lo = 0, hi = 0;
    int shift = 2;                               // a cell for 4 bytes; finer once a narrower access is seen
    Cell* cells = nullptr;
    size_t mapped = 0;
    void reset(uintptr_t from, size_t bytes) {
        release();
        lo = from; hi = from + bytes;
        allocate();
    }
    void allocate() {
        mapped = (((hi - lo) >> shift) + 2) * sizeof(Cell);
        cells = (Cell*)mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (cells == MAP_FAILED) leave("crash", "out of memory for the check mode");
    }
    void release() { if (cells) munmap(cells, mapped); cells = nullptr; }
    void refine(int finer) {
        Cell* old = cells;
        size_t n = (hi - lo) >> shift, bytes = mapped;
        int f = shift - finer;
        shift = finer;
        allocate();
        for (size_t i = 0; i < n; i++) if (old[i].wrote || old[i].read) for (int j = 0; j < 1 << f; j++) cells[(i << f) + j] = old[i];
        munmap(old, bytes);
    }
};
static std::vector<Shadow> buffer_shadow;
static Shadow static_shadow, dynamic_shadow;

// ---------------------------------------------------------------- traffic
// What the lanes of a warp asked for when they passed a place for the k-th time since they last met
struct Request { uint32_t lanes; uint32_t address[32]; };
struct Site {
    uint64_t pc; uint8_t space, op; uint16_t size;
    uint64_t requests, sectors, ways, accesses, bytes;
    uint32_t seen[32];                           // passes of each lane since the warp last met
    uint64_t dropped;                            // passes beyond the limit, counted but not looked at
    bool open;
    std::vector<Request> group;
};
static const uint32_t PASSES = 4096;

struct LaunchCount {
    std::string kernel;
    int library;
    uint64_t blocks, sampled, mma, barriers, accesses;
    double instructions;
    std::vector<Site> sites;
    std::vector<std::pair<uint64_t,uint64_t>> unique, half;   // per buffer: 32-byte sectors touched; the same after half of the blocks
    std::vector<std::pair<uint32_t,uint64_t>> passes;         // basic block -> how often
    double mma_flops;
};
static std::vector<LaunchCount> counts;
static LaunchCount* count;
static std::vector<uint16_t> site_at[2][2];      // pc - text_lo -> index + 1, by kind of memory and whether it is written
static std::vector<uint16_t> open_sites;
static std::vector<uint32_t> block_passes;       // pc - text_lo -> executions
static std::vector<std::vector<uint64_t>> touched;            // per buffer, a bit for each 32 bytes
static std::vector<uint64_t> touched_count, touched_half;
static Library* lib;
static Warp* warp;                               // whose lanes are running
static uint64_t blocks_done;
static uintptr_t static_lo, static_len, dynamic_lo, dynamic_len;

static inline uint16_t site_index(uint64_t pc, int space, int op, int size) {
    size_t at = pc - lib->text_lo;
    std::vector<uint16_t>& table = site_at[space][op != LOAD];
    if (at >= table.size()) at = 0;              // not from the kernel's own code
    uint16_t& i = table[at];
    if (!i) {
        if (count->sites.size() >= 65000) return 0;
        count->sites.push_back(Site{});
        Site& s = count->sites.back();
        s.pc = pc - lib->base; s.space = space; s.op = op; s.size = size;
        i = (uint16_t)count->sites.size();
    }
    return i - 1;
}

// Sectors: distinct 32-byte pieces of one request
static unsigned sectors(const Request& r, int size) {
    uint32_t seen[128];
    unsigned n = 0;
    uint32_t last = ~0u;
    for (uint32_t m = r.lanes; m; m &= m - 1) {
        uint32_t a = r.address[__builtin_ctz(m)];
        for (uint32_t s = a / 32; s <= (a + size - 1) / 32; s++) {
            if (s == last) continue;
            last = s;
            bool known = false;
            for (unsigned i = n; i-- && !known;) known = seen[i] == s;
            if (!known && n < 128) seen[n++] = s;
        }
    }
    return n;
}

// Wavefronts: 32 banks of 4 bytes; lanes that ask for different words of one bank take turns. 8-byte accesses are served
// a half-warp at a time, 16-byte accesses a quarter-warp at a time.
static unsigned wavefronts(const Request& r, int size) {
    int lanes_together = size <= 4 ? 32 : size <= 8 ? 16 : 8;
    unsigned total = 0;
    for (int from = 0; from < 32; from += lanes_together) {
        uint32_t words[32][32];
        uint8_t n[32] = {0};
        unsigned most = 0;
        for (int l = from; l < from + lanes_together; l++) {
            if (!(r.lanes >> l & 1)) continue;
            for (uint32_t w = r.address[l] / 4; w <= (r.address[l] + size - 1) / 4; w++) {
                unsigned b = w & 31;
                bool known = false;
                for (int i = 0; i < n[b] && !known; i++) known = words[b][i] == w;
                if (!known && n[b] < 32) words[b][n[b]++] = w;
                most = std::max<unsigned>(most, n[b]);
            }
        }
        total += most;
    }
    return total;
}

// The lanes of the warp have met: what each place saw is complete
static void close_requests() {
    for (uint16_t i : open_sites) {
        Site& s = count->sites[i];
        uint64_t req = 0, sec = 0, way = 0;
        for (Request& r : s.group) {
            if (!r.lanes) continue;
            req++;
            if (s.space == SHARED) way += wavefronts(r, s.size); else sec += sectors(r, s.size);
            r.lanes = 0;
        }
        double scale = 1;
        if (s.dropped) { uint64_t kept = 0; for (uint32_t n : s.seen) kept += std::min(n, PASSES); scale = 1 + (double)s.dropped / (double)std::max<uint64_t>(kept, 1); }
        s.requests += (uint64_t)(req * scale); s.sectors += (uint64_t)(sec * scale); s.ways += (uint64_t)(way * scale);
        s.dropped = 0;
        s.open = false;
        memset(s.seen, 0, sizeof s.seen);
    }
    open_sites.clear();
}

static inline void note_request(uint16_t index, uintptr_t offset, int size) {
    Site& s = count->sites[index];
    if (!s.open) { s.open = true; open_sites.push_back(index); }
    count->accesses++;
    s.accesses++;
    s.bytes += size;
    uint32_t lane = current->lane, pass = s.seen[lane]++;
    if (pass >= PASSES) { s.dropped++; return; }
    if (pass >= s.group.size()) s.group.resize(std::max<size_t>(4, s.group.size() * 2), Request{});
    Request& r = s.group[pass];
    r.lanes |= 1u << lane;
    r.address[lane] = (uint32_t)offset;
}

// ---------------------------------------------------------------- findings
static Fact fact(const char* kind, uint64_t pc, int size, int op) {
    Fact f;
    f.kind = kind; f.kernel = launch->kernel; f.library = launch->library; f.pc = pc - lib->base;
    f.size = size; f.write = op; f.thread = current->rank; f.block = {0, 0, 0};
    uint64_t b = block_number; Dim g = launch->grid;
    f.block = {unsigned(b % g.x), unsigned(b / g.x % g.y), unsigned(b / g.x / g.y)};
    return f;
}

static void outside(uintptr_t a, int size, int op, uint64_t pc) {
    Fact f = fact("oob", pc, size, op);
    if (dynamic_len && a >= dynamic_lo && a < dynamic_lo + dynamic_len + 4096) { f.buffer = "dynamic shared memory"; f.offset = (int64_t)(a - dynamic_lo); }
    else if (static_len && a + 65536 >= static_lo && a < static_lo + static_len + 65536) { f.buffer = "shared memory"; f.offset = (int64_t)(a - static_lo); }
    else nearest_buffer(a, f);
    report(f);
}

static Dim block_index_at(uint32_t time) {
    size_t i = std::upper_bound(block_starts.begin(), block_starts.end(), time) - block_starts.begin();
    uint64_t b = i ? block_numbers[i - 1] : 0;
    Dim g = launch->grid;
    return {unsigned(b % g.x), unsigned(b / g.x % g.y), unsigned(b / g.x / g.y)};
}

// Has the block that did something at `time` fenced it off since, and has this block looked at a flag?
static bool published(uint32_t time) {
    if (!acquired) return false;
    size_t i = std::upper_bound(block_starts.begin(), block_starts.end(), time) - block_starts.begin();
    return i && block_fences[i - 1] >= time;
}

// Two stores of the same value are not worth a word (all lanes of a warp write the block's sum). What the second one
// stores is seen only after it has happened, so the judgement waits for the next access.
static struct { bool waiting; uintptr_t address; int size; uint8_t old[16]; Fact fact; } pending;
static void settle() {
    pending.waiting = false;
    if (memcmp((void*)pending.address, pending.old, pending.size)) report(pending.fact);
}

static void race(const char* note, uint64_t pc, int size, int op, uint16_t other_site, unsigned other, uint32_t time, const std::string& name, int64_t offset, uintptr_t address, bool same_value_is_fine) {
    Fact f = fact("race", pc, size, op);
    f.note = note; f.buffer = name; f.offset = offset; f.other = other;
    f.other_pc = count->sites.size() > other_site ? count->sites[other_site].pc : 0;
    f.other_block = time < block_start ? block_index_at(time) : f.block;
    if (same_value_is_fine && size <= 16) {
        if (pending.waiting) settle();
        pending.waiting = true; pending.address = address; pending.size = size; pending.fact = f;
        memcpy(pending.old, (void*)address, size);
    }
    else report(f);
}

// One cell of shadow memory meets one access. Returns quickly when all is well.
static inline void meet(Cell& c, Space space, int op, bool is_volatile, uint16_t site, int size, uint64_t pc, uintptr_t address, const std::string& name, uintptr_t base) {
    uint32_t me = current->rank, my_warp = me >> 5;
    bool write = op != LOAD, atomic = op == ATOMIC;
    uint32_t since = space == SHARED ? block_start : launch_start;
    auto ordered = [&](uint32_t time, uint32_t who) {           // with what this thread does now
        if (time < block_start) return published(time);
        return who == me || time < last_barrier || (who >> 5 == my_warp && time < last_warp_sync[my_warp]);
    };
    int64_t offset = (int64_t)(address - base);
    if (c.wrote >= since && c.wrote && !(atomic && c.by_atomic) && !ordered(c.wrote, c.writer) && !is_volatile)
        race(write ? "writes what was written" : c.by_atomic ? "reads what an atomic changed" : "reads what was written", pc, size, op, c.write_site, c.writer, c.wrote, name, offset, address, write && !atomic);
    if (write && c.read >= since && c.read) {
        bool clash;
        if (c.read < block_start) clash = !published(c.read);
        else if (c.several == 3) clash = !acquired;
        else if (c.read < last_barrier) clash = false;
        else if (c.several == 2) clash = true;
        else { bool mine = c.reader >> 5 == my_warp; clash = !(mine && c.read < last_warp_sync[my_warp]) && (c.several || c.reader != me); }
        if (clash) race("writes what was read", pc, size, op, c.read_site, c.reader, c.read, name, offset, address, false);
    }
    if (write) {
        // an atomic does not hide a plain store that is still unordered
        if (atomic && c.wrote >= since && !c.by_atomic && c.wrote >= last_barrier && c.wrote >= block_start) return;
        c.wrote = now; c.writer = me; c.by_atomic = atomic; c.write_site = site;
    } else {
        unsigned several = 0;
        if (c.read >= since && c.read) {
            if (c.several == 3 || c.read < block_start) several = 3;
            else if (c.read < last_barrier) several = 0;
            else if (c.reader == me) several = c.several;
            else if (c.reader >> 5 != my_warp || c.several == 2) several = 2;
            else several = c.read < last_warp_sync[my_warp] ? 0 : 1;
        }
        c.read = now; c.reader = me; c.several = several; c.read_site = site;
    }
}

// ---------------------------------------------------------------- the one place through which every access goes
static inline void meet_all(Shadow& s, Space space, int op, bool is_volatile, uint16_t site, uintptr_t a, int size, uint64_t pc, const std::string& name, bool* uninitialised) {
    int width = size < 4 ? size : 4;
    if (width < 1 << s.shift || a & ((1 << s.shift) - 1)) { int finer = a & 1 || width == 1 ? 0 : a & 2 || width < 4 ? 1 : 2; if (finer < s.shift) s.refine(finer); }
    uint32_t since = space == SHARED ? block_start : 1;
    for (size_t i = (a - s.lo) >> s.shift, e = (a - s.lo + size - 1) >> s.shift; i <= e; i++) {
        Cell& c = s.cells[i];
        if (op != STORE && c.wrote < since) *uninitialised = true;
        meet(c, space, op, is_volatile, site, size, pc, a, name, s.lo);
    }
}

static const std::string STATIC_NAME = "shared memory", DYNAMIC_NAME = "dynamic shared memory";
static int last_buffer;

static inline void access(uintptr_t a, int size, int op, uint64_t pc, bool is_volatile = false) {
    if (pending.waiting) settle();
    bool in_static = a - static_lo < static_len, in_dynamic = a - dynamic_lo < dynamic_len;
    if (!in_static && !in_dynamic && a - (uintptr_t)arena < (uintptr_t)(arena_end - arena)) {
        if (dynamic_len && a >= dynamic_lo && a < dynamic_lo + dynamic_len + 256) outside(a, size, op, pc);
        return;                                                      // the thread's own stack
    }
    if (!current) return;
    if ((size & (size - 1)) == 0 && a & (size - 1)) {
        Fact f = fact("misaligned", pc, size, op);
        for (Buffer& b : buffers) if (a - b.lo() < b.size) { f.buffer = b.name; f.offset = (int64_t)(a - b.lo()); }
        if (in_static || in_dynamic) { f.buffer = in_static ? STATIC_NAME : DYNAMIC_NAME; f.offset = (int64_t)(a - (in_static ? static_lo : dynamic_lo)); }
        report(f);
    }
    bool fresh = false;
    if (in_static || in_dynamic) {
        Shadow& s = in_static ? static_shadow : dynamic_shadow;
        if (a + size > s.hi) { outside(a, size, op, pc); return; }
        uint16_t site = site_index(pc, SHARED, op, size);
        note_request(site, a - s.lo, size);
        meet_all(s, SHARED, op, is_volatile, site, a, size, pc, in_static ? STATIC_NAME : DYNAMIC_NAME, &fresh);
        if (fresh) { Fact f = fact("uninit_shared", pc, size, op); f.buffer = in_static ? STATIC_NAME : DYNAMIC_NAME; f.offset = (int64_t)(a - s.lo); report(f); }
        return;
    }
    int b = last_buffer;
    if (!(a - buffers[b].lo() < buffers[b].size)) {
        for (b = 0; b < (int)buffers.size(); b++) if (a - buffers[b].lo() < buffers[b].size) break;
        if (b == (int)buffers.size()) {
            if (a - lib->lo < lib->hi - lib->lo) return;             // __device__ and __constant__ variables
            if (a >= (uintptr_t)&__executable_start && a < (uintptr_t)&_end) return;   // threadIdx and its like
            outside(a, size, op, pc);
            return;
        }
        last_buffer = b;
    }
    Buffer& buf = buffers[b];
    if (a + size > buf.hi()) { outside(a, size, op, pc); return; }
    uint16_t site = site_index(pc, GLOBAL, op, size);
    uintptr_t offset = a - buf.lo();
    note_request(site, offset + (uintptr_t)b * 0x1000000, size);     // buffers apart from each other, and 32-byte aligned
    for (uintptr_t s = offset >> 5; s <= (offset + size - 1) >> 5; s++) {
        uint64_t bit = 1ull << (s & 63), &word = touched[b][s >> 6];
        if (!(word & bit)) { word |= bit; touched_count[b]++; }
    }
    meet_all(buffer_shadow[b], GLOBAL, op, is_volatile, site, a, size, pc, buf.name, &fresh);
    if (fresh && buf.poisoned) { Fact f = fact("uninit_global", pc, size, op); f.buffer = buf.name; f.offset = (int64_t)offset; report(f); }
    if (is_volatile && op == LOAD) acquired = true;
}

// A copy of a struct is so many loads or stores of the widest kind that fits
static void range(uintptr_t a, size_t n, int op, uint64_t pc) {
    while (n) {
        int w = 16;
        while (w > 1 && ((a & (w - 1)) || (size_t)w > n)) w /= 2;
        access(a, w, op, pc);
        a += w; n -= w;
    }
}

// ---------------------------------------------------------------- called by the scheduler
void check_launch(Launch& l, uint64_t blocks, uint64_t sampled) {
    lib = &libraries[l.library];
    counts.push_back(LaunchCount{});
    count = &counts.back();
    count->kernel = l.kernel; count->library = l.library; count->blocks = blocks; count->sampled = sampled;
    size_t text = lib->text_hi - lib->text_lo + 1;
    for (auto& v : site_at) for (auto& w : v) w.assign(text, 0);
    block_passes.assign(text, 0);
    launch_start = ++now;
    block_starts.clear(); block_numbers.clear(); block_fences.clear();
    if (buffer_shadow.empty()) {
        buffer_shadow.resize(buffers.size());
        for (size_t i = 0; i < buffers.size(); i++) {
            buffer_shadow[i].shift = buffers[i].elem >= 4 ? 2 : buffers[i].elem == 2 ? 1 : 0;
            buffer_shadow[i].reset(buffers[i].lo(), buffers[i].size);
        }
    }
    touched.resize(buffers.size());
    for (size_t i = 0; i < buffers.size(); i++) touched[i].assign(buffers[i].size / 2048 + 2, 0);
    touched_count.assign(buffers.size(), 0);
    touched_half.assign(buffers.size(), 0);
    static_lo = (uintptr_t)lib->tls; static_len = lib->tls_size;
    dynamic_lo = (uintptr_t)krl_dynamic_shared; dynamic_len = l.shared;
    static_shadow.shift = dynamic_shadow.shift = 2;
    static_shadow.reset(static_lo, static_len);
    dynamic_shadow.reset(dynamic_lo, dynamic_len);
    last_buffer = 0;
    warp = nullptr;
    blocks_done = 0;
}
void check_block(unsigned threads) {
    (void)threads;
    block_start = last_barrier = ++now;
    for (uint32_t& t : last_warp_sync) t = now;
    block_starts.push_back(now); block_numbers.push_back(block_number); block_fences.push_back(0);
    acquired = false;
}
void check_switch(Thread* t) { if (t->warp != warp) { if (warp) close_requests(); warp = t->warp; } }
void check_barrier() { close_requests(); last_barrier = ++now; count->barriers++; }
void check_warp(Warp* w, uint32_t lanes) {
    if (lanes == w->live) close_requests();
    last_warp_sync[w->lane[__builtin_ctz(lanes)]->rank >> 5] = ++now;
}
void check_fence() { block_fences.back() = now; }
void check_mma(double flops) { count->mma_flops += flops; }
void check_atomic(uintptr_t p, int size, uintptr_t pc) {
    acquired = true;
    access(p, size, ATOMIC, pc);
}
void check_fill(int b) { buffers[b].poisoned = false; }
void check_block_end() {
    if (pending.waiting) settle();
    close_requests();
    warp = nullptr;
    ++now;
    if (++blocks_done == (count->sampled + 1) / 2) touched_half = touched_count;
}
void check_launch_end() {
    for (size_t i = 0; i < buffers.size(); i++) { count->unique.push_back({i, touched_count[i]}); count->half.push_back({i, touched_half[i]}); }
    for (size_t i = 0; i < block_passes.size(); i++) if (block_passes[i]) count->passes.push_back({uint32_t(i + lib->text_lo - lib->base), block_passes[i]});
    for (Site& s : count->sites) { s.group.clear(); s.group.shrink_to_fit(); }
}

void check_write_json(FILE* f) {
    fprintf(f, ",\"launches\":[");
    for (size_t i = 0; i < counts.size(); i++) {
        LaunchCount& c = counts[i];
        fprintf(f, "%s{\"library\":%d,\"blocks\":%llu,\"sampled\":%llu,\"barriers\":%llu,\"accesses\":%llu,\"mma_flops\":%.17g,\"sites\":[", i ? "," : "", c.library,
                (unsigned long long)c.blocks, (unsigned long long)c.sampled, (unsigned long long)c.barriers, (unsigned long long)c.accesses, c.mma_flops);
        bool first = true;
        for (Site& s : c.sites) {
            fprintf(f, "%s[%llu,%d,%d,%d,%llu,%llu,%llu,%llu]", first ? "" : ",", (unsigned long long)s.pc, s.space, s.op, s.size,
                    (unsigned long long)s.requests, (unsigned long long)s.sectors, (unsigned long long)s.ways, (unsigned long long)s.bytes);
            first = false;
        }
        fprintf(f, "],\"unique\":[");
        for (size_t b = 0; b < c.unique.size(); b++) fprintf(f, "%s[%llu,%llu]", b ? "," : "", (unsigned long long)c.unique[b].second, (unsigned long long)c.half[b].second);
        fprintf(f, "],\"passes\":[");
        for (size_t b = 0; b < c.passes.size(); b++) fprintf(f, "%s[%u,%llu]", b ? "," : "", c.passes[b].first, (unsigned long long)c.passes[b].second);
        fprintf(f, "]}");
    }
    fprintf(f, "]");
}

}  // namespace krl

// ---------------------------------------------------------------- what the compiler calls
using namespace krl;
#define PC ((uint64_t)__builtin_return_address(0))
#define HOOKS(n) \
    void __tsan_read##n(void* a) { access((uintptr_t)a, n, LOAD, PC); } \
    void __tsan_write##n(void* a) { access((uintptr_t)a, n, STORE, PC); } \
    void __tsan_unaligned_read##n(void* a) { access((uintptr_t)a, n, LOAD, PC); } \
    void __tsan_unaligned_write##n(void* a) { access((uintptr_t)a, n, STORE, PC); } \
    void __tsan_read##n##_pc(void* a, void* pc) { access((uintptr_t)a, n, LOAD, (uint64_t)pc); } \
    void __tsan_write##n##_pc(void* a, void* pc) { access((uintptr_t)a, n, STORE, (uint64_t)pc); } \
    void __tsan_read_write##n(void* a) { access((uintptr_t)a, n, LOAD, PC); access((uintptr_t)a, n, STORE, PC); } \
    void __tsan_volatile_read##n(void* a) { access((uintptr_t)a, n, LOAD, PC, true); } \
    void __tsan_volatile_write##n(void* a) { access((uintptr_t)a, n, STORE, PC, true); }
extern "C" {
HOOKS(1) HOOKS(2) HOOKS(4) HOOKS(8) HOOKS(16)
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void*, void*) {}
void __tsan_vptr_read(void*) {}
void __tsan_read_range(void* a, size_t n) { range((uintptr_t)a, n, LOAD, PC); }
void __tsan_write_range(void* a, size_t n) { range((uintptr_t)a, n, STORE, PC); }
// clang turns copies of structs into these
void* __tsan_memcpy(void* d, const void* s, size_t n) { range((uintptr_t)s, n, LOAD, PC); range((uintptr_t)d, n, STORE, PC); return memcpy(d, s, n); }
void* __tsan_memmove(void* d, const void* s, size_t n) { range((uintptr_t)s, n, LOAD, PC); range((uintptr_t)d, n, STORE, PC); return memmove(d, s, n); }
void* __tsan_memset(void* d, int v, size_t n) { range((uintptr_t)d, n, STORE, PC); return memset(d, v, n); }
void __sanitizer_cov_trace_pc() {
    size_t at = PC - (lib ? lib->text_lo : 0);
    if (at < block_passes.size()) block_passes[at]++;
}
}
