"""The slow path of a program in the published format: a real build with `torch.utils.cpp_extension.load_inline`, in a process of its own, run on the checks of the judge.

It exists for those who ask (`judge_slow`), to see that the translation agrees with what the program really does. The program's Python and C++ run in that process as they are: nothing stops
them from opening files or from deceiving their own process, so this is for programs that one trusts. The process is given inputs and parameters only; the referee draws them and compares.
No speed is measured here.

Built libraries stay in the folder that one gives, each under a name made of sources, flags and the versions of torch, Python and the compilers. Building needs no GPU (`Built(..., device='cpu')` with the architecture of the GPU that is meant);
who builds again in the same folder only loads.
"""
import fcntl, functools, importlib.util, inspect, json, math, os, re, shutil, signal, subprocess, sys, sysconfig, time
from pathlib import Path
from typing import Any
from kernelrl import _arrays, device as D
from kernelrl._worker import Worker, WorkerDied, WorkerTimeout, serve
from kernelrl.core import Finding, KernelRLError, atomic_write, digest
from kernelrl.inline import Setting, _with_setting, task_setting
from kernelrl.program import Program
from kernelrl.reference import _raw, _tensor
from kernelrl.task import Signature, Spec, Task

BUILD_SECONDS,RUN_SECONDS = 900.,120.

# ---------------------------------------------------------------- load_inline that keeps what it built
class Enough(Exception): "The extension is built, and that was all that was asked"

class Kept:
    "Stands where load_inline stood: the same call, built in a folder of its own, or loaded if that was done before"
    def __init__(self, real, folder:Path):
        self.real,self.folder = real,folder
        self.modules:dict[str,Any] = {}
        self.failed:Exception|None = None # What the last failed build said
        self.seconds = 0. # That building took, when it was done
        self.calls = 0
        self.enough = False # Stop once something is built
    def __call__(self, *args, **kw):
        self.calls += 1
        given = {k:v for k,v in inspect.signature(self.real).bind(*args, **kw).arguments.items() if k not in ('verbose','build_directory')}
        if not given.get('is_python_module', True): return self.real(*args, **kw)
        key = digest('load_inline', sorted((k,repr(v)) for k,v in given.items()), _tools())
        if key not in self.modules:
            try: self.modules[key] = self._module(self.folder/key, given)
            except Exception as e: self.failed = e; raise
        if self.enough: raise Enough()
        return self.modules[key]
    def _module(self, folder:Path, given:dict):
        "Build under a lock that ends with this process; a library without its note was never finished"
        folder.mkdir(parents=True, exist_ok=True)
        note = folder/'built.json'
        with open(folder/'building','w') as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if note.exists(): return self._load(folder, json.loads(note.read_text()))
            (folder/'lock').unlink(missing_ok=True) # Of a build that was killed; torch would wait for it for ever
            t = time.perf_counter()
            try: module = self.real(**given, build_directory=str(folder), verbose=False) # A quiet build has the compiler's words in its exception
            except Exception as e: (folder/'failed.txt').write_text(str(e)); raise
            took = round(time.perf_counter()-t, 2)
            atomic_write(note, json.dumps({'name':module.__name__, 'file':Path(module.__file__).name, 'seconds':took}))
            self.seconds += took
            return module
    def _load(self, folder:Path, note:dict):
        spec = importlib.util.spec_from_file_location(note['name'], folder/note['file'])
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.seconds += note['seconds']
        return module

@functools.cache
def _tools()->list[str]:
    "The versions of all that builds"
    import torch
    def version(*cmd):
        try: return subprocess.run([*cmd,'--version'], capture_output=True, text=True).stdout.strip()
        except OSError: return ''
    nvcc = str(Path(os.environ['CUDA_HOME'])/'bin'/'nvcc') if os.environ.get('CUDA_HOME') else 'nvcc'
    return [torch.__version__, sys.version, os.environ.get('TORCH_CUDA_ARCH_LIST',''), version(os.environ.get('CXX','c++')), version(nvcc), *(f'{k}={os.environ[k]}' for k in ('NVCC_PREPEND_FLAGS','NVCC_APPEND_FLAGS') if k in os.environ)]

# ---------------------------------------------------------------- in the process of its own
_models:dict[str,Any] = {}
_kept:Kept|None = None

def _keeps()->Kept:
    "load_inline as every program of this process gets it"
    global _kept
    if _kept is None:
        from torch.utils import cpp_extension
        cpp_extension.load_inline = _kept = Kept(cpp_extension.load_inline, Path(os.environ['TORCH_EXTENSIONS_DIR']))
    return _kept

def _model(req:dict, setting:dict):
    "ModelNew at one shape; the first call builds its extension"
    import torch
    key = repr(setting)
    if key not in _models:
        _keeps()
        s = Setting.from_dict(setting)
        env:dict[str,Any] = {'__name__':'program'}
        exec(compile(_with_setting(req['text'], s), '<program>', 'exec'), env)
        torch.manual_seed(0)
        with torch.no_grad(): _models[key] = env['ModelNew'](*(s.arguments() or [])).to(req['device']).eval()
    return _models[key]

def build(req):
    "Run the program's module and make a ModelNew, for every setting that one of the shapes has"
    t,kept = time.perf_counter(),_keeps()
    for setting,specs in req['cases']:
        calls = kept.calls
        model = _model(req, setting)
        if kept.calls==calls and 'load_inline' in req['text']: _first_call(model, specs, kept)
    return {'seconds':time.perf_counter()-t, 'built':round(kept.seconds, 2)}

def _first_call(model, specs:list[dict], kept:Kept):
    "Some programs build when forward is called: call it on the CPU, as far as load_inline"
    import torch
    xs = [s.value if s.value is not None else torch.zeros(s.shape, dtype=getattr(torch, s.dtype)) for s in map(Spec.from_dict, specs)]
    kept.enough = True
    try:
        with torch.no_grad(): model(*xs)
    except Exception as e:
        if e is kept.failed: raise
    finally: kept.enough = False

def bind(model, params:dict[str,Any])->list[Finding]:
    "Give a real module the parameters of the task, by the rules of the translation: by name, else by a shape that only one has"
    entries = {id(t):(k.replace('.','_'),t) for k,t in reversed(list(model.state_dict(keep_vars=True).items()))}.values()
    free,left,found = dict(params),[],[]
    for name,t in entries:
        if name not in free: left.append((name,t)); continue
        p = free.pop(name)
        if t.ndim!=p.ndim or t.dtype!=p.dtype: found.append(Finding('parameter_shape', f'{name} is declared as {t.dtype}{list(t.shape)}; the task has {p.dtype}{list(p.shape)}'))
        else: t.data = p
    alike = lambda a,b: a.shape==b.shape and a.dtype==b.dtype
    for name,t in left:
        same = [k for k,p in free.items() if alike(p, t)]
        if len(same)==1 and sum(alike(t, o) for _,o in left)==1: t.data = free.pop(same[0])
        else: found.append(Finding('parameter_name', f'the task has no parameter {name}; it stays as the program made it', severity='warning'))
    return found

def run(req):
    "Run forward on given inputs, with fresh memory full of NaN; outputs go to files"
    import torch
    model,raw,dev = _model(req, req['setting']),_arrays.load(req['inputs']),req['device']
    ins,pars = ([Spec.from_dict(s) for s in req[k]] for k in ('specs','params'))
    given = iter(raw)
    xs = [s.value if s.value is not None else _tensor(next(given), s.dtype, dev) for s in ins]
    params = {s.name:_tensor(next(given), s.dtype, dev) for s in pars}
    found = bind(model, params)
    if any(f.severity=='error' for f in found): return {'outputs':[], 'found':[f.to_dict() for f in found]}
    torch.use_deterministic_algorithms(True, warn_only=True) # torch.empty is then filled
    names = []
    for k in range(req['repeats']):
        with torch.no_grad(), D.gpu_lock(device='cpu' if dev=='cpu' else 'cuda'):
            out = model(*xs)
            if dev!='cpu': torch.cuda.synchronize()
        outs = list(out) if isinstance(out, (tuple,list)) else [out]
        if odd := next((type(o).__name__ for o in outs if not isinstance(o, torch.Tensor)), None): raise TypeError(f'forward returned a {odd}')
        names.append(_arrays.save(Path(f'{req["path"]}.{k}'), [_raw(o) for o in outs]))
    after = [_raw(x) for x,s in zip(xs, ins) if s.value is None]+[_raw(p) for p in params.values()]
    specs = [s for s in ins if s.value is None]+pars
    found += [Finding('input_changed', f'the program changed its input {s.name}') for a,b,s in zip(after, raw, specs) if a.tobytes()!=b.tobytes()]
    return {'outputs':names, 'found':[f.to_dict() for f in found]}

def build_error(log:str)->Finding:
    "The first error in what a failed build said: of a compiler, else of the linker, else of the loader"
    if m := re.search(r'([\w.]+\.(?:cu|cpp|cuh|h|hpp))(?:\((\d+)\)|:(\d+):\d+): (?:catastrophic |fatal )?error(?: #?[\w-]+)?: (.+)', log): return Finding('compile_error', f'{m[1]} line {m[2] or m[3]}: {m[4]}'[:300])
    lines = [l.strip() for l in log.splitlines() if l.strip()]
    line = next((l for k in ('undefined reference','undefined symbol','cannot find','ptxas','fatal','rror:','FAILED') for l in lines if k in l), lines[-1] if lines else 'the build said nothing')
    return Finding('compile_error', re.sub(r'/[\w./+-]+/', '', line)[:300])

OPS = {'build':build, 'run':run}

def handle(req:dict)->dict:
    try: return OPS[req['op']](req)
    except KernelRLError as e: return {'broken':str(e)}
    except Exception as e:
        text = str(e).strip()
        if _kept and e is _kept.failed: return {'failed':build_error(text).to_dict(), 'log':text[-20000:]}
        if req['op']=='build': return {'failed':Finding('python_error', f'{type(e).__name__}: {text[-300:]}').to_dict()}
        f = D.cuda_finding(e)
        return {'failed':(f if f.kind!='launch_failure' else Finding('launch_failure', f'{type(e).__name__}: {text.splitlines()[0][:200] if text else ""}')).to_dict()}

# ---------------------------------------------------------------- what a build needs of the machine
@functools.cache
def cuda_home()->Path|None: # None where there is no CUDA to build with
    "Where CUDA lies; nvcc on the PATH may be a script somewhere else, so it is asked"
    def said():
        if nvcc := shutil.which('nvcc'):
            try: out = subprocess.run([nvcc,'--dryrun','-c','x.cu'], capture_output=True, text=True, timeout=20).stderr
            except (OSError, subprocess.TimeoutExpired): out = ''
            yield from re.findall(r'^#\$ TOP=(.+)$', out, re.M)
            yield Path(nvcc).resolve().parent.parent
        yield '/usr/local/cuda'
    for p in (Path(h).resolve() for h in (os.environ.get('CUDA_HOME'), os.environ.get('CUDA_PATH'), *said()) if h):
        if (p/'bin'/'nvcc').exists() and (p/'include'/'cuda_runtime.h').exists(): return p
    return None

@functools.cache
def arch_here()->str:
    "TORCH_CUDA_ARCH_LIST, else that of the first GPU, else that of an H200"
    if given := os.environ.get('TORCH_CUDA_ARCH_LIST'): return given
    try: said = subprocess.run(['nvidia-smi','--query-gpu=compute_cap','--format=csv,noheader'], capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired): said = ''
    return next(iter(re.findall(r'^\d+\.\d+$', said, re.M)), '9.0')

def build_env(
    folder:str|Path, # Where extensions are built
    cores:int=1, # Compilers at a time
    arch:str='' # 9.0; `arch_here` if none is given
)->dict[str,str]:
    "The environment in which load_inline finds all that it needs, also from a Python that is not activated"
    home,spec,ninja = cuda_home(),importlib.util.find_spec('torch'),importlib.util.find_spec('ninja')
    bins = [str(Path(sys.executable).parent), *([str(Path(ninja.origin).parent.parent/'bin')] if ninja and ninja.origin else []), *([str(home/'bin')] if home else []), os.environ.get('PATH', os.defpath)]
    env = {'TORCH_EXTENSIONS_DIR':str(Path(folder).resolve()), 'MAX_JOBS':str(cores), 'TORCH_CUDA_ARCH_LIST':arch or arch_here(), 'PATH':os.pathsep.join(bins)}
    if home: env['CUDA_HOME'] = str(home)
    if home and spec and spec.origin and not (home/'include'/'cusparse.h').exists(): # PyTorch's headers ask for those of the libraries; its wheels bring them
        more = [str(d) for d in sorted((Path(spec.origin).parent.parent/'nvidia').glob('*/include'))]
        env['CPLUS_INCLUDE_PATH'] = os.pathsep.join(filter(None, [os.environ.get('CPLUS_INCLUDE_PATH'), *more]))
    return env

def can_build(gpu:bool=True)->str: # '' if so
    "Why nothing can be built with load_inline here, and run on a GPU unless that is not wanted"
    env = build_env('.', arch='9.0')
    if not shutil.which('ninja', path=env['PATH']): return 'there is no ninja here'
    if not shutil.which(os.environ.get('CXX','c++')): return 'there is no C++ compiler here'
    if not (Path(sysconfig.get_paths()['include'])/'Python.h').exists(): return "Python's headers are not here"
    if 'CUDA_HOME' not in env: return 'there is no nvcc here'
    import torch
    if not torch.version.cuda: return f'torch {torch.__version__} is built without CUDA'
    return '' if not gpu or torch.cuda.is_available() else 'torch sees no GPU here'

# ---------------------------------------------------------------- on the judge's side
def end_session(leader:int):
    "Kill all that a process has started since it began its session; ninja gives every compiler a process group of its own, so killing the group leaves them"
    def inside(p:int)->bool:
        try: return os.getsid(p)==leader and p!=os.getpid()
        except OSError: return False
    for p in [p for p in map(int, filter(str.isdigit, os.listdir('/proc'))) if inside(p)]: # All are found before the first is killed, whose end others notice
        try: os.kill(p, signal.SIGKILL)
        except ProcessLookupError: pass

class Builder(Worker):
    "A worker that takes its compilers with it"
    def kill(self):
        if self.p: end_session(self.p.pid)
        super().kill()

class Built:
    "A program that is built for real; kept until it is closed"
    def __init__(self,
        task:Task, program:Program,
        folder:str|Path, # Where extensions are built and kept; many programs may share one
        device:str='cuda', # cpu builds only, unless the extension works without CUDA
        cores:int=1, # Compilers at a time
        arch:str='', # 9.0; the architecture of the GPU here if none is given
        until:float=math.inf # When its time is over, on the monotonic clock; what that cuts off is no verdict but a KernelRLError
    ):
        Path(folder).mkdir(parents=True, exist_ok=True)
        env = {**build_env(folder, cores, arch), 'OMP_NUM_THREADS':str(cores), **({'CUDA_VISIBLE_DEVICES':''} if device=='cpu' else {})}
        self.task,self.program,self.device,self.until = task,program,device,until
        self.seconds:dict[str,float] = {}
        self.worker = Builder('kernelrl._slow_inline', env=env)
        self.failed:Finding|None = None
        self.log = '' # What a failed build said
        self.took = 0. # Seconds of the builds, now or when they were done
    def _ask(self, deadline:float, **request)->dict:
        left = self.until-time.monotonic()
        try: a = self.worker.call({'text':self.program.text, 'device':self.device, **request}, min(deadline, left))
        except WorkerTimeout:
            if left<deadline: raise KernelRLError('no time was left') from None
            a = {'failed':Finding('compile_timeout' if request['op']=='build' else 'timeout', f'no answer in {deadline:.0f} s').to_dict()}
        except WorkerDied as e: a = {'failed':Finding('crash', f'the process of the program died ({str(e).splitlines()[0][:120]})').to_dict(), 'log':str(e)}
        if 'broken' in a: raise KernelRLError(a['broken'])
        return a
    def build(self, seconds:float=BUILD_SECONDS)->'Built':
        "Build it within so many seconds, or load what was built before; what went wrong is in `failed`"
        t = time.perf_counter()
        cases = {repr(s):(s, k) for k in range(len(self.task.shapes)) for s in [task_setting(self.task, k).to_dict()]} # The last shape of each setting, since those are small
        a = self._ask(seconds, op='build', cases=[[s, [x.to_dict() for x in self.task.signature(k).inputs]] for s,k in cases.values()])
        self.seconds['compile'] = round(time.perf_counter()-t, 3)
        if 'failed' in a: self.failed,self.log = Finding.from_dict(a['failed']),a.get('log','')
        self.took = a.get('built', 0.)
        return self
    def run(self, sig:Signature, shape:int, inputs:dict, path:Path, repeats:int)->tuple[list[dict],list[Finding],Finding|None]:
        "Outputs as files, what was noticed, and why it failed if it did"
        a = self._ask(RUN_SECONDS, op='run', setting=task_setting(self.task, shape).to_dict(), inputs=inputs, specs=[s.to_dict() for s in sig.inputs], params=[s.to_dict() for s in sig.params], path=str(path), repeats=repeats)
        if 'failed' in a: return [],[],Finding.from_dict(a['failed'])
        return a['outputs'],[Finding.from_dict(f) for f in a['found']],None
    def close(self): self.worker.kill()

def judge_slow(
    j:Any, # A Judge: its checks, its referee and its protocol are used
    built:Built, # The program, built
): # A Verdict without speeds
    "Run a program that was built with load_inline on the checks that the judge would ask of its translation"
    from kernelrl.judge import JUDGE, Stop, worst
    from kernelrl.verdict import Verdict, status_of
    from kernelrl.verify import checks, run_checks
    from dataclasses import replace
    bench,task,program,t = j.bench,built.task,built.program,time.perf_counter()
    task = replace(task, distributions=bench.distributions(task))
    todo = [c for c in checks(task, j.protocol, j.secret) if bench.can_check(task, c)]
    signature = lambda shape: bench.once(('signature',task.id,shape), lambda: Signature.from_dict(bench.ask(task, {'op':'signature','shape':shape})['signature']))
    task = built.task # The referee knows it by this name
    gate,reason,v = 'time',None,None
    def one(check, repeats):
        runs,found,why = built.run(signature(check.shape), check.shape, bench.inputs(task, check.shape, check.seed, check.distribution), bench.file('slow'), repeats)
        if why: raise Stop('launch', why)
        if any(f.severity=='error' for f in found):
            for r in runs: Path(r['path']).unlink(missing_ok=True)
            return [],found
        reports,more = bench.compare(task, check, runs, len(runs))
        return reports,[*found,*more]
    try:
        if built.failed: raise Stop('compile', built.failed)
        v = run_checks(one, todo, j.protocol.repeats)
        if not v.ok: raise Stop('correct', next(f for f in v.findings if f.severity=='error'))
    except Stop as e: gate,reason = e.gate,e.reason
    return Verdict(task.name, program.name, status_of(reason.kind, gate) if reason else 'ok', gate if reason else 'correct', task.id, program.id, reason, tuple(f for f in v.findings if f is not reason) if v else (), tuple(worst(v.reports)) if v else (),
        protocol=f'{j.protocol.name}, built with load_inline', device=bench.device, checks=v.done-(not v.ok) if v else 0, seeds=tuple(c.seed for c in todo[:v.done]) if v else (), seconds={**built.seconds, 'correct':round(time.perf_counter()-t, 3)}, judge=JUDGE)

def leave():
    "When the caller was killed, compilers go too"
    end_session(os.getsid(0))
    os._exit(1)

if __name__=='__main__': serve(handle, leave=leave)
