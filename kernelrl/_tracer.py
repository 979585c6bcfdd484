"""The process that runs candidates' Python: one forked child for each program, with nothing to open and little to spend.

This process imports neither numpy nor CUDA and has one thread, so that forking it is safe and takes a few milliseconds. The child has no open files but the
pipe its answer goes through, may open none, and is killed at the deadline. Its answer is data, and is checked as such by `kernelrl.trace.check_plan`.
"""
import json, os, resource, select, signal, sys, time
from kernelrl import trace as T
from kernelrl.core import Finding
from kernelrl.program import Program, kernels
from kernelrl.task import Signature

def _limit(deadline:float, memory:int=2<<30):
    "Close the child in: no files, no core, little memory, a bounded time"
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0,1,2): os.dup2(null, fd)
    resource.setrlimit(resource.RLIMIT_CORE, (0,0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0,0))
    resource.setrlimit(resource.RLIMIT_AS, (memory,memory))
    resource.setrlimit(resource.RLIMIT_CPU, (int(deadline)+1,int(deadline)+2))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0,0))

def _child(req:dict, fd:int):
    "Trace in the child and write the answer to `fd`"
    os.set_inheritable(fd, False)
    _limit(req['deadline'])
    answer = T.trace_here(Program.from_dict(req['program']), Signature.from_dict(req['signature']))
    data = json.dumps(answer).encode()
    while data: data = data[os.write(fd, data):]

def _read(pid:int, fd:int, deadline:float)->bytes|None:
    "All that the child writes; None if it was late"
    out,end = bytearray(),time.monotonic()+deadline
    while True:
        left = end-time.monotonic()
        if left<=0 or len(out)>1<<28: return None
        if not select.select([fd],[],[],left)[0]: return None
        part = os.read(fd, 1<<16)
        if not part: return bytes(out)
        out += part

def handle(req:dict)->dict:
    "One request: fork, trace, answer"
    r,w = os.pipe()
    pid = os.fork()
    if pid==0:
        os.close(r)
        try: _child(req, w)
        finally: os._exit(0)
    os.close(w)
    data = _read(pid, r, req['deadline'])
    os.close(r)
    os.kill(pid, signal.SIGKILL)
    _,status = os.waitpid(pid, 0)
    if data is None: return {'refused':Finding('host_timeout', f'forward ran for more than {req["deadline"]:g} s without ending; it should only allocate and launch').to_dict()}
    try: return json.loads(data)
    except ValueError: pass
    why = 'ran out of memory or time' if os.WIFSIGNALED(status) else 'ended the process'
    return {'refused':Finding('host_crash', f'the Python part of the program {why}; it should only allocate and launch').to_dict()}

def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = os.fdopen(os.dup(1),'wb',buffering=0)
    os.dup2(2,1)
    kernels('__global__ void warm_up() {}')
    for line in sys.stdin.buffer: out.write((json.dumps(handle(json.loads(line)))+'\n').encode())

if __name__=='__main__': main()
