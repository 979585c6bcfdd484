// Runs one plan and ends. Its arguments are a job file that kernelrl/host.py wrote and the process that waits for it.
//
// Buffers are files, mapped between pages that cannot be touched. Before a kernel's library is loaded the process gives
// up what a kernel has no use for: new processes, sockets, writing files. It is killed from outside when it takes too long.
#include "runtime.h"
#include <dlfcn.h>
#include <algorithm>
#include <errno.h>
#include <fcntl.h>
#include <fstream>
#include <iostream>
#include <link.h>
#include <signal.h>
#include <sstream>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#define KRL_SANDBOX 1
#endif

extern "C" { extern Dim blockIdx; }

namespace krl {

extern std::string kernel_log;
std::vector<Buffer> buffers;
std::vector<Library> libraries;
std::vector<Fact> facts;

struct Step { int fill = -1; std::string pattern; Launch launch; };
static std::vector<Step> steps;
static int report_fd = -1, order, current_step;
static volatile int* progress;                   // the step that runs, for whoever has to kill us
static uint64_t sample_blocks, sample_dice;
static bool sandboxed;
static int poison_byte = 0xff;      // what outputs and scratch are filled with before a run
static size_t memory_limit = 8ull << 30, file_limit = 1 << 20;
static unsigned cpu_limit = 60;

// ---------------------------------------------------------------- the report
static std::string json_text(const std::string& s) {
    std::string r = "\"";
    for (unsigned char c : s) {
        if (c == '"' || c == '\\') { r += '\\'; r += (char)c; }
        else if (c < 32 || c > 126) { char b[8]; snprintf(b, sizeof b, "\\u%04x", c); r += b; }
        else r += (char)c;
    }
    return r + "\"";
}

void report(Fact f) {
    for (Fact& o : facts) if (o.kind == f.kind && o.pc == f.pc && o.line == f.line && o.kernel == f.kernel && o.buffer == f.buffer && o.note == f.note) { o.times++; return; }
    if (facts.size() < 64) facts.push_back(f);
}

void leave(const char* status, const std::string& message) {
    FILE* f = fdopen(report_fd, "w");
    if (!f) _exit(3);
    fprintf(f, "{\"status\":%s,\"message\":%s,\"step\":%d,\"sandboxed\":%s,\"log\":%s,\"facts\":[", json_text(status).c_str(), json_text(message).c_str(), current_step, sandboxed ? "true" : "false", json_text(kernel_log).c_str());
    for (size_t i = 0; i < facts.size(); i++) {
        Fact& a = facts[i];
        fprintf(f, "%s{\"kind\":%s,\"kernel\":%s,\"buffer\":%s,\"note\":%s,\"library\":%d,\"line\":%d,\"other_line\":%d,\"pc\":%llu,\"other_pc\":%llu,\"offset\":%lld,\"size\":%d,\"write\":%d,"
                   "\"thread\":%u,\"other\":%u,\"block\":[%u,%u,%u],\"other_block\":[%u,%u,%u],\"times\":%llu}", i ? "," : "", json_text(a.kind).c_str(), json_text(a.kernel).c_str(), json_text(a.buffer).c_str(),
                json_text(a.note).c_str(), a.library, a.line, a.other_line, (unsigned long long)a.pc, (unsigned long long)a.other_pc, (long long)a.offset, a.size, a.write, a.thread, a.other,
                a.block.x, a.block.y, a.block.z, a.other_block.x, a.other_block.y, a.other_block.z, (unsigned long long)a.times);
    }
    fprintf(f, "]");
#ifdef KRL_CHECK
    check_write_json(f);
#endif
    fprintf(f, "}\n");
    fflush(f);
    _exit(0);
}

void nearest_buffer(uintptr_t a, Fact& f) {
    uint64_t best = 1ull << 30;                                    // further away than this it belongs to nobody
    for (Buffer& b : buffers) {
        uint64_t d = a < b.lo() ? b.lo() - a : a < b.hi() ? 0 : a - b.hi();
        if (d < best) { best = d; f.buffer = b.name; f.offset = (int64_t)(a - b.lo()); }
    }
}

// ---------------------------------------------------------------- crashes
static void on_signal(int number, siginfo_t* info, void* context) {
    static bool again;
    if (again) _exit(4);
    again = true;
    uintptr_t a = (uintptr_t)info->si_addr;
    uint64_t pc = 0;
#if defined(__x86_64__)
    pc = (uint64_t)((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    pc = (uint64_t)((ucontext_t*)context)->uc_mcontext.pc;
#endif
    Fact f;
    f.kind = "crash";
    f.note = strsignal(number);
    if (launch) {
        f.kernel = launch->kernel; f.library = launch->library; f.block = blockIdx;
        if (current) f.thread = current->rank;
        Library& l = libraries[launch->library];
        if (pc >= l.lo && pc < l.hi) f.pc = pc + 1 - l.base;       // + 1: places are return addresses everywhere else
    }
    if (number == SIGSEGV || number == SIGBUS) {
        if (a >= (uintptr_t)arena && a < (uintptr_t)arena_end) {
            if (a < (uintptr_t)stacks) { f.kind = "oob"; f.buffer = "dynamic shared memory"; f.offset = (int64_t)(a - (uintptr_t)krl_dynamic_shared); }
            else f.note = "the local arrays of a thread need more than 240 KB";
        } else {
            nearest_buffer(a, f);
            if (!f.buffer.empty()) f.kind = "oob";
        }
    }
    bool known = false;                                            // the check mode has said it already
    for (Fact& o : facts) known |= o.kind == "oob" && o.kernel == f.kernel;
    if (!known || f.kind != "oob") report(f);
    leave("crash", strsignal(number));
}

static void catch_signals() {
    static char stack[64 << 10];
    stack_t s{};
    s.ss_sp = stack; s.ss_size = sizeof stack;
    sigaltstack(&s, nullptr);
    struct sigaction a{};
    a.sa_sigaction = on_signal;
    a.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int n : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) sigaction(n, &a, nullptr);
}

// ---------------------------------------------------------------- limits
static void limit(int what, rlim_t n) { struct rlimit r{n, n}; setrlimit(what, &r); }

static void set_limits() {
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_AS, memory_limit);
    limit(RLIMIT_CPU, cpu_limit);
    limit(RLIMIT_FSIZE, file_limit);
}

#ifdef KRL_SANDBOX
// System calls that the rest of the run may make; everything else fails with EPERM. Opening files is for the loader only.
static bool allow_calls(bool open_files) {
    std::vector<int> calls = {SYS_read, SYS_pread64, SYS_write, SYS_writev, SYS_close, SYS_fstat, SYS_newfstatat, SYS_lseek, SYS_mmap, SYS_mprotect, SYS_munmap, SYS_mremap, SYS_madvise, SYS_brk,
        SYS_exit, SYS_exit_group, SYS_rt_sigreturn, SYS_rt_sigprocmask, SYS_rt_sigaction, SYS_sigaltstack, SYS_futex, SYS_clock_gettime, SYS_getpid, SYS_gettid, SYS_tgkill, SYS_getrandom, SYS_fcntl};
    if (open_files) calls.push_back(SYS_prctl);                    // to tighten the rules once more
#ifdef __x86_64__
    const uint32_t machine = AUDIT_ARCH_X86_64;
#else
    const uint32_t machine = AUDIT_ARCH_AARCH64;
#endif
    auto load = [](uint32_t at) { return sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at); };
    auto end = [](uint32_t verdict) { return sock_filter BPF_STMT(BPF_RET | BPF_K, verdict); };
    std::vector<sock_filter> p;
    p.push_back(load(offsetof(seccomp_data, arch)));
    p.push_back(sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, machine, 1, 0));
    p.push_back(end(SECCOMP_RET_KILL_PROCESS));
    p.push_back(load(offsetof(seccomp_data, nr)));
    for (int c : calls) { p.push_back(sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)c, 0, 1)); p.push_back(end(SECCOMP_RET_ALLOW)); }
    if (open_files) {
        p.push_back(sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3));
        p.push_back(load(offsetof(seccomp_data, args[2])));
        p.push_back(sock_filter BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_WRONLY | O_RDWR | O_CREAT | O_TRUNC, 1, 0));
        p.push_back(end(SECCOMP_RET_ALLOW));
    }
    p.push_back(end(SECCOMP_RET_ERRNO | EPERM));
    sock_fprog program{(unsigned short)p.size(), p.data()};
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}
#else
static bool allow_calls(bool) { return false; }
#endif

// ---------------------------------------------------------------- the job
static std::string from_hex(const std::string& h) {
    std::string r;
    for (size_t i = 0; i + 1 < h.size(); i += 2) r += (char)std::stoi(h.substr(i, 2), nullptr, 16);
    return r;
}

// A file between two reserved stretches of address space: what leaves the buffer hits nothing
static void map_buffer(Buffer& b, const std::string& path, size_t offset) {
    const size_t gap = 1 << 20;
    int fd = open(path.c_str(), O_RDWR);
    char* all = (char*)mmap(nullptr, b.mapped + 2 * gap, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fd < 0 || all == MAP_FAILED || mmap(all + gap, b.mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) leave("crash", "out of memory for buffer " + b.name);
    close(fd);
    b.base = all + gap;
    b.data = b.base + offset;
}

static void read_job(const char* path) {
    std::ifstream in(path);
    std::string text, word;
    while (std::getline(in, text)) {
        std::istringstream line(text);
        line >> word;
        if (word == "report") { line >> word; report_fd = open(word.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600); }
        else if (word == "progress") {
            line >> word;
            int fd = open(word.c_str(), O_RDWR);
            void* p = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            if (fd >= 0 && p != MAP_FAILED) progress = (volatile int*)p;
        }
        else if (word == "limits") line >> memory_limit >> cpu_limit >> file_limit;
        else if (word == "order") line >> order;
        else if (word == "poison") line >> poison_byte;
        else if (word == "sample") line >> sample_blocks >> sample_dice;
        else if (word == "library") { Library l{}; line >> l.path; libraries.push_back(l); }
        else if (word == "buffer") {
            Buffer b{};
            std::string file;
            size_t offset;
            int poisoned;                  // 2: zeros, since a kernel may follow what blocks that are not run would have written
            line >> b.name >> b.mapped >> offset >> b.size >> b.elem >> poisoned >> file;
            b.poisoned = poisoned; b.zeros = poisoned == 2;
            map_buffer(b, file, offset);
            buffers.push_back(b);
        }
        else if (word == "fill") { Step s; line >> s.fill >> word; s.pattern = from_hex(word); steps.push_back(s); }
        else if (word == "launch") {
            Step s;
            Launch& l = s.launch;
            line >> l.library >> word >> l.grid.x >> l.grid.y >> l.grid.z >> l.block.x >> l.block.y >> l.block.z >> l.shared;
            l.entry = nullptr;
            l.arg_bytes.push_back(word);                           // the entry's name, until the library is loaded
            std::getline(line >> std::ws, l.kernel);
            steps.push_back(s);
        }
        else if (word == "pointer") {
            size_t b, offset;
            line >> b >> offset;
            char* p = buffers[b].data + offset;
            steps.back().launch.arg_bytes.push_back(std::string((char*)&p, sizeof p));
        }
        else if (word == "value") { line >> word; steps.back().launch.arg_bytes.push_back(from_hex(word)); }
    }
}

// ---------------------------------------------------------------- loading kernels
static int find_library(struct dl_phdr_info* info, size_t, void* data) {
    Library* l = (Library*)data;
    if (!info->dlpi_name || l->path != info->dlpi_name) return 0;
    l->base = info->dlpi_addr;
    l->lo = ~0ull;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr)& h = info->dlpi_phdr[i];
        if (h.p_type == PT_LOAD) {
            l->lo = std::min<uintptr_t>(l->lo, l->base + h.p_vaddr);
            l->hi = std::max<uintptr_t>(l->hi, l->base + h.p_vaddr + h.p_memsz);
            if (h.p_flags & PF_X) { l->text_lo = l->base + h.p_vaddr; l->text_hi = l->text_lo + h.p_memsz; }
        }
        if (h.p_type == PT_TLS) { l->tls = (char*)info->dlpi_tls_data; l->tls_size = h.p_memsz; }
    }
    return 1;
}

static void load_libraries() {
    for (Library& l : libraries) {
        l.handle = dlopen(l.path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (!l.handle) leave("crash", std::string("the compiled kernel could not be loaded: ") + dlerror());
        if (auto touch = (void* (*)())dlsym(l.handle, "krl_touch_shared")) touch();    // the loader makes thread-local memory on first use
        dl_iterate_phdr(find_library, &l);
    }
    for (Step& s : steps) {
        if (s.fill >= 0) continue;
        Launch& l = s.launch;
        std::string name = l.arg_bytes[0];
        l.arg_bytes.erase(l.arg_bytes.begin());
        void* h = libraries[l.library].handle;
        l.entry = (void (*)(void**))dlsym(h, ("krl_entry_" + name).c_str());
        auto size = (int (*)(int))dlsym(h, ("krl_size_" + name).c_str());
        if (!l.entry || !size) leave("crash", "the compiled kernel lacks " + l.kernel);
        Fact f;
        f.kind = "launch_config"; f.kernel = l.kernel;
        if (size(-1) != (int)l.arg_bytes.size()) f.note = "takes " + std::to_string(size(-1)) + " arguments and was given " + std::to_string(l.arg_bytes.size());
        else for (size_t i = 0; i < l.arg_bytes.size() && f.note.empty(); i++)
            if (size((int)i) != (int)l.arg_bytes[i].size()) f.note = "argument " + std::to_string(i) + " has " + std::to_string(l.arg_bytes[i].size()) + " bytes where the kernel's parameter has " + std::to_string(size((int)i));
        if (!f.note.empty()) { report(f); leave("crash", l.kernel + " " + f.note); }
    }
}

static void fill(const Step& s) {
    Buffer& b = buffers[s.fill];
    for (size_t i = 0; i + s.pattern.size() <= b.size; i += s.pattern.size()) memcpy(b.data + i, s.pattern.data(), s.pattern.size());
#ifdef KRL_CHECK
    check_fill(s.fill);
#endif
}

}  // namespace krl

int main(int argc, char** argv) {
    using namespace krl;
    if (argc != 3) return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);                // nobody is left to read the report
    if (getppid() != atoi(argv[2])) return 2;
    read_job(argv[1]);
    set_up_arena();
    set_limits();
    catch_signals();
    for (Buffer& b : buffers) if (b.poisoned) memset(b.data, b.zeros ? 0 : poison_byte, b.size);
    sandboxed = allow_calls(true);
    load_libraries();
    sandboxed = sandboxed && allow_calls(false);
    for (Step& s : steps) {
        if (progress) *progress = current_step;
        if (s.fill >= 0) fill(s);
        else run_launch(s.launch, order, sample_blocks, sample_dice);
        current_step++;
    }
    leave("ok", "");
}
