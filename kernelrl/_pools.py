"""Workers in numbers: pools that threads take workers from, and a folder for the arrays between them."""
import contextlib, os, shutil, tempfile, threading, time
from pathlib import Path
import psutil
from kernelrl._worker import Worker, WorkerDied, WorkerTimeout
from kernelrl.core import KernelRLError

LATE = 75 # Exit code of a launcher whose candidate did not end in time

class Infra(Exception): "The judge failed, not the program"
class Stopped(BaseException): "The judge was told to stop"

class Pool:
    "A fixed number of workers of one kind, handed to one thread at a time"
    def __init__(self, module:str, n:int, args:list[str]=[]):
        self.workers = [Worker(module, args) for _ in range(n)]
        self._free,self._changed,self.stopped = list(self.workers),threading.Condition(),False
    @contextlib.contextmanager
    def take(self, which:int|None=None):
        "A worker, for as long as the block lasts; `which` asks for one in particular"
        with self._changed:
            wanted = lambda: next((w for w in self._free if which is None or w is self.workers[which]), None)
            self._changed.wait_for(lambda: self.stopped or wanted())
            if self.stopped: raise Stopped()
            w = wanted()
            assert w
            self._free.remove(w)
        try: yield w
        finally:
            with self._changed: self._free.insert(0, w); self._changed.notify_all()
    def call(self, request:dict, deadline:float, which:int|None=None)->dict:
        "One request to any worker; `Infra` when it dies or says that it is broken"
        with self.take(which) as w:
            try: a = w.call(request, deadline)
            except (WorkerDied,WorkerTimeout) as e:
                if self.stopped: raise Stopped() from None
                raise Infra(f'{w.cmd[2]}: {str(e) or f"no answer in {deadline:g} s"}') from None
        if 'broken' in a: raise Infra(a['broken'])
        return a
    def stop(self):
        with self._changed: self.stopped = True; self._changed.notify_all()
        for w in self.workers: w.kill()

def scratch_dir()->Path:
    "A private folder for arrays: in memory where there is room, removed when the process ends or by the next one"
    base = os.environ.get('KERNELRL_TMP')
    roots = [Path(base)] if base else [r for r in (Path('/dev/shm'), Path(tempfile.gettempdir())) if r.is_dir()]
    for r in roots:
        with contextlib.suppress(OSError):
            for old in r.glob('kernelrl-judge-*'):
                if not psutil.pid_exists(int(old.name.split('-')[2])): shutil.rmtree(old, ignore_errors=True)
            if r==roots[-1] or shutil.disk_usage(r).free>1<<30: return Path(tempfile.mkdtemp(prefix=f'kernelrl-judge-{os.getpid()}-', dir=r))
    raise KernelRLError(f'{roots[0] if roots else base}: no folder for temporary arrays; set KERNELRL_TMP to one that you may write to')

class Cases:
    "Inputs of checks as files, drawn once each by the referee; those not used for a while go when they take too much room"
    def __init__(self, folder:Path, draw, max_bytes:int):
        self.folder,self.draw,self.max_bytes = folder,draw,max_bytes
        self._lock,self._count = threading.Lock(),0
        self._known:dict[tuple,dict] = {}
    def get(self, key:tuple, request:dict)->dict:
        "What `_arrays.load` needs for these inputs"
        with self._lock:
            if key not in self._known:
                self._count += 1
                self._known[key] = {'lock':threading.Lock(), 'path':self.folder/f'in{self._count}'}
            entry = self._known[key]
            entry['used'] = time.monotonic()
        with entry['lock']:
            if 'meta' not in entry: entry['meta'] = self.draw({**request, 'path':str(entry['path'])})['inputs']
        self._trim()
        return entry['meta']
    def _trim(self, rest:float=120.):
        "Drop old files; one that was asked for in the last two minutes may still be in use"
        with self._lock:
            sizes = {k:e['path'].stat().st_size for k,e in self._known.items() if 'meta' in e}
            for k in sorted(sizes, key=lambda k: self._known[k]['used']):
                if sum(sizes.values())<=self.max_bytes or time.monotonic()-self._known[k]['used']<rest: break
                self._known.pop(k)['path'].unlink(missing_ok=True); sizes.pop(k)
