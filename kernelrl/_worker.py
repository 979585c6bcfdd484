"""Worker processes: a client that can always kill them, and the loop that they run.

A worker is `python -m kernelrl._something`: never a fork of the caller, never a pickled cell. It reads one JSON request a line and answers with one JSON line.
The client gives each call a deadline that starts when the call starts; a worker that is late, dead or babbling is killed with its whole process group.
"""
import json, os, select, signal, subprocess, sys, tempfile, threading, time, weakref
from kernelrl.core import KernelRLError

class WorkerTimeout(Exception): "The worker did not answer before the deadline; it was killed"
class WorkerDied(Exception):
    "The worker ended without an answer; the message holds the end of its log"
    code:int|None = None # Its exit code

_live:'weakref.WeakSet[Worker]' = weakref.WeakSet()

class Worker:
    "One worker process; started at the first call, restarted after it was killed"
    def __init__(self, module:str, args:list[str]=[], env:dict|None=None):
        self.cmd,self.env,self.served = [sys.executable,'-m',module,*args],env,0
        self.p:subprocess.Popen|None = None
        _live.add(self)

    def start(self):
        self.log = tempfile.TemporaryFile()
        try:
            self.p = subprocess.Popen(self.cmd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, start_new_session=True, env={**os.environ, 'PYTHONUNBUFFERED':'1', **(self.env or {}), 'KERNELRL_CALLER':str(os.getpid())})
        except OSError as e: raise KernelRLError(f'{self.cmd[2]}: the worker process could not be started ({e.strerror}); close some programs and try again') from None
        os.set_blocking(self.p.stdout.fileno(), False)
        self.served = 0

    def call(self, request:dict, deadline:float)->dict:
        "Send `request`, wait at most `deadline` seconds for the answer"
        if self.p is None or self.p.poll() is not None: self.kill(); self.start()
        end = time.monotonic()+deadline
        try:
            p = self.p
            assert p and p.stdin and p.stdout
            try: p.stdin.write((json.dumps(request)+'\n').encode()); p.stdin.flush()
            except BrokenPipeError: raise self._died() from None
            line = self._readline(p.stdout.fileno(), end)
            try: answer = json.loads(line)
            except (ValueError,RecursionError): raise WorkerDied('it answered with something that is not one line of JSON') from None
        except BaseException: # also KeyboardInterrupt: an unread answer must never meet the next request
            self.kill(); raise
        self.served += 1
        return answer

    def _readline(self, fd:int, end:float)->bytes:
        buf = bytearray()
        while True:
            left = end-time.monotonic()
            if left<=0: raise WorkerTimeout()
            if not select.select([fd],[],[],min(left,1.0))[0]: continue
            part = os.read(fd, 1<<20)
            if not part: raise self._died()
            buf += part
            if buf.endswith(b'\n'): return bytes(buf)

    def _died(self)->WorkerDied:
        "How the worker ended and the end of its log"
        p = self.p
        if p is None: return WorkerDied('it was stopped')
        try: p.wait(15) # Its pipe closes at once, but one that leaves a kernel behind on a GPU takes seconds to end; its code says why it did
        except subprocess.TimeoutExpired: pass
        self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, self.log.tell()-2000))
        rc = p.returncode
        how = f'signal {signal.Signals(-rc).name}' if rc and rc<0 else f'exit code {rc}'
        e = WorkerDied(f'{how}: {self.log.read().decode(errors="replace").strip()[-1500:]}')
        e.code = rc
        return e

    def kill(self):
        "End the worker and everything that it started"
        p,self.p = self.p,None
        if p is None: return
        try: os.killpg(p.pid, signal.SIGKILL)
        except ProcessLookupError: pass
        for f in (p.stdin,p.stdout):
            try: f and f.close()
            except OSError: pass
        try: p.wait(10)
        except subprocess.TimeoutExpired: pass
        self.log.close()

def kill_all():
    "End every worker of this process"
    for w in list(_live): w.kill()

import atexit; atexit.register(kill_all)

def leave():
    "End this worker and its process group at once"
    os.killpg(0, signal.SIGKILL)

def serve(handle, setup=None, leave=leave):
    "The loop of a worker: answer requests until the caller goes away. Whatever prints, prints to the log"
    out = os.fdopen(os.dup(1),'wb')
    os.dup2(2,1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_caller, args=(leave,), daemon=True).start()
    if setup: setup()
    for line in sys.stdin.buffer:
        out.write((json.dumps(handle(json.loads(line)))+'\n').encode())
        out.flush()
    os._exit(0) # The caller has gone; taking torch and CUDA down in good order takes seconds

_caller = int(os.environ.get('KERNELRL_CALLER') or os.getppid()) # From the caller itself: it may be dead before this line runs

def caller_gone()->bool:
    "Whether the process that started this worker is dead, so that nobody waits for an answer"
    return os.getppid()!=_caller

def _leave_with_caller(leave):
    "A worker whose caller was killed leaves, even while its main thread hangs in a kernel"
    while not caller_gone(): time.sleep(.5)
    leave()
