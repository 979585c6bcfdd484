"""The process that runs candidates' Python: one forked child for each program, with nothing to open and little to spend.

This process imports neither numpy nor CUDA and has one thread, so that forking it is safe and takes a few milliseconds. The child has no open files but the
pipe its answer goes through, may make no system calls but those that a computation needs, and is killed at the deadline. Its answer is data, and is checked
as such by `kernelrl.trace.check_plan`.
"""
import __future__, ctypes, itertools, json, os, platform, resource, select, signal, struct, sys, time, typing, unicodedata # All that a program may import is there before it is closed in
from kernelrl import trace as T
from kernelrl._worker import caller_gone, leave
from kernelrl.inline import Setting, inline_here
from kernelrl.core import Finding
from kernelrl.program import Program, kernels
from kernelrl.task import Signature

# read write close fstat lseek mmap mprotect munmap brk rt_sigaction rt_sigprocmask rt_sigreturn mremap madvise getpid exit sigaltstack gettid futex clock_gettime exit_group getrandom
_CALLS = {'x86_64':(0xC000003E, (0,1,3,5,8,9,10,11,12,13,14,15,25,28,39,60,131,186,202,228,231,318)), 'aarch64':(0xC00000B7, (63,64,57,80,62,222,226,215,214,134,135,139,216,233,172,93,132,178,98,113,94,278))}
_libc = ctypes.CDLL(None, use_errno=True)

def _filter()->tuple|None:
    "A seccomp program that refuses every system call that is not listed, None where there is no such thing"
    if sys.platform!='linux' or platform.machine() not in _CALLS: return None
    arch,calls = _CALLS[platform.machine()]
    n = len(calls)
    ins = [(0x20,0,0,4), (0x15,1,0,arch), (0x06,0,0,0x80000000), (0x20,0,0,0), *((0x15,n-i,0,c) for i,c in enumerate(calls)), (0x06,0,0,0x00050001), (0x06,0,0,0x7fff0000)]
    code = ctypes.create_string_buffer(b''.join(struct.pack('<HBBI', *i) for i in ins))
    return ctypes.create_string_buffer(struct.pack('<H6xQ', len(ins), ctypes.addressof(code))),code
_SECCOMP = _filter()

def _limit(deadline:float, fd:int, tracer:int, memory:int=2<<30):
    "Close the child in: no files but the pipe `fd`, no system calls, no core, little memory, a bounded time"
    null = os.open(os.devnull, os.O_RDWR)
    for i in (0,1,2): os.dup2(null, i)
    os.dup2(fd, 3)
    os.closerange(4, 1024)
    resource.setrlimit(resource.RLIMIT_CORE, (0,0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0,0))
    resource.setrlimit(resource.RLIMIT_AS, (memory,memory))
    resource.setrlimit(resource.RLIMIT_CPU, (int(deadline)+1,int(deadline)+2))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0,0))
    if sys.platform=='linux': _libc.prctl(1, signal.SIGKILL) # When the tracer dies
    if os.getppid()!=tracer: os._exit(0) # It has died already
    if _SECCOMP and not _libc.prctl(38, 1, 0, 0, 0): _libc.prctl(22, 2, _SECCOMP[0]) # Where the kernel has it

def _child(req:dict, fd:int, tracer:int):
    "Trace in the child and write the answer"
    _limit(req['deadline'], fd, tracer)
    program,signature = Program.from_dict(req['program']),Signature.from_dict(req['signature'])
    answer = T.trace_here(program, signature) if program.format=='cupy' else inline_here(program, signature, Setting.from_dict(req.get('setting') or {}))
    data = json.dumps(answer).encode()
    while data: data = data[os.write(3, data):]

def _read(fd:int, deadline:float)->bytes|None:
    "All that the child writes; None if it was late"
    out,end = bytearray(),time.monotonic()+deadline
    while True:
        left = end-time.monotonic()
        if left<=0 or len(out)>MAX_ANSWER: return None
        if caller_gone(): leave()
        if not select.select([fd],[],[],min(left,.5))[0]: continue
        part = os.read(fd, 1<<16)
        if not part: return bytes(out)
        out += part

MAX_ANSWER = 64<<20

def handle(req:dict)->dict:
    "One request: fork, trace, answer"
    r,w = os.pipe()
    tracer,pid = os.getpid(),os.fork()
    if pid==0:
        try: _child(req, w, tracer)
        finally: os._exit(0)
    os.close(w)
    data = _read(r, req['deadline'])
    os.close(r)
    os.kill(pid, signal.SIGKILL)
    _,status = os.waitpid(pid, 0)
    if data is None: return {'refused':Finding('host_timeout', f'forward ran for more than {req["deadline"]:g} s without ending; it should only allocate and launch').to_dict()}
    try: answer = json.loads(data)
    except (ValueError,RecursionError): answer = None
    if isinstance(answer, dict): return answer
    why = 'ran out of memory or time' if os.WIFSIGNALED(status) else 'ended the process'
    return {'refused':Finding('host_crash', f'the Python part of the program {why}; it should only allocate and launch').to_dict()}

def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.clear() # Nothing of the caller's to be read
    out = os.fdopen(os.dup(1),'wb',buffering=0)
    os.dup2(2,1)
    kernels('__global__ void warm_up() {}')
    for line in sys.stdin.buffer: out.write((json.dumps(handle(json.loads(line)))+'\n').encode())

if __name__=='__main__': main()
