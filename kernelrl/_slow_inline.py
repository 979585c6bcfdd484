"""The slow path of a program in the published format: a real build with `torch.utils.cpp_extension.load_inline`, in a process of its own, run on the checks of the judge.

It exists for those who ask (`judge_slow`), to see that the translation agrees with what the program really does. The program's Python and C++ run in that process as they are: nothing stops
them from opening files or from deceiving their own process, so this is for programs that one trusts. The process is given inputs and parameters only; the referee draws them and compares.
No speed is measured here.
"""
import os, time
from pathlib import Path
from typing import Any
from kernelrl import _arrays, device as D
from kernelrl._worker import Worker, WorkerDied, WorkerTimeout, serve
from kernelrl.core import Finding, KernelRLError
from kernelrl.inline import Setting, _with_setting, task_setting
from kernelrl.program import Program
from kernelrl.task import Signature, Spec, Task, _raw, _tensor

BUILD_SECONDS,RUN_SECONDS = 900.,120.

# ---------------------------------------------------------------- in the process of its own
_models:dict[str,Any] = {}

def _model(req:dict):
    "ModelNew at one shape; the first call builds its extension"
    import torch
    key = repr(req['setting'])
    if key not in _models:
        setting = Setting.from_dict(req['setting'])
        env:dict[str,Any] = {'__name__':'program'}
        exec(compile(_with_setting(req['text'], setting), '<program>', 'exec'), env)
        torch.manual_seed(0)
        with torch.no_grad(): _models[key] = env['ModelNew'](*(setting.arguments() or [])).to(req['device']).eval()
    return _models[key]

def build(req):
    "Run the program's module and make a ModelNew"
    t = time.perf_counter()
    _model(req)
    return {'seconds':time.perf_counter()-t}

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
    model,raw,dev = _model(req),_arrays.load(req['inputs']),req['device']
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

OPS = {'build':build, 'run':run}

def handle(req:dict)->dict:
    try: return OPS[req['op']](req)
    except KernelRLError as e: return {'broken':str(e)}
    except Exception as e:
        text = str(e).strip()
        if req['op']=='build':
            f = D.first_error(text) if 'error:' in text else Finding('compile_error' if 'extension' in text else 'python_error', f'{type(e).__name__}: {text[-300:]}')
            return {'failed':f.to_dict(), 'log':text[-20000:]}
        f = D.cuda_finding(e)
        return {'failed':(f if f.kind!='launch_failure' else Finding('launch_failure', f'{type(e).__name__}: {text.splitlines()[0][:200] if text else ""}')).to_dict()}

# ---------------------------------------------------------------- on the judge's side
class Built:
    "A program that is built for real; kept until it is closed"
    def __init__(self,
        task:Task, program:Program,
        folder:str|Path, # Where the extension is built; one for each program
        device:str='cuda', # cpu for extensions without CUDA
        cores:int=1, # Compilers at a time
        arch:str='' # 9.0; the architecture of the GPU here if none is given
    ):
        Path(folder).mkdir(parents=True, exist_ok=True)
        env = {'TORCH_EXTENSIONS_DIR':str(folder), 'MAX_JOBS':str(cores), **({'TORCH_CUDA_ARCH_LIST':arch} if arch else {})}
        self.task,self.program,self.device = task,program,device
        self.seconds:dict[str,float] = {}
        self.worker = Worker('kernelrl._slow_inline', env=env)
        self.failed:Finding|None = None
    def _ask(self, shape:int, deadline:float, **request)->dict:
        try: a = self.worker.call({'text':self.program.text, 'setting':task_setting(self.task, shape).to_dict(), 'device':self.device, **request}, deadline)
        except WorkerTimeout: a = {'failed':Finding('compile_timeout' if request['op']=='build' else 'timeout', f'no answer in {deadline:g} s').to_dict()}
        except WorkerDied as e: a = {'failed':Finding('crash', f'the process of the program died ({str(e).splitlines()[0][:120]})').to_dict()}
        if 'broken' in a: raise KernelRLError(a['broken'])
        return a
    def build(self)->'Built':
        "Build it; what went wrong is in `failed`"
        t = time.perf_counter()
        a = self._ask(0, BUILD_SECONDS, op='build')
        self.seconds['compile'] = round(time.perf_counter()-t, 3)
        if 'failed' in a: self.failed = Finding.from_dict(a['failed'])
        return self
    def run(self, sig:Signature, shape:int, inputs:dict, path:Path, repeats:int)->tuple[list[dict],list[Finding],Finding|None]:
        "Outputs as files, what was noticed, and why it failed if it did"
        a = self._ask(shape, RUN_SECONDS, op='run', inputs=inputs, specs=[s.to_dict() for s in sig.inputs], params=[s.to_dict() for s in sig.params], path=str(path), repeats=repeats)
        if 'failed' in a: return [],[],Finding.from_dict(a['failed'])
        return a['outputs'],[Finding.from_dict(f) for f in a['found']],None
    def close(self): self.worker.kill()

def can_build()->str: # '' if so
    "Why nothing can be built with load_inline and run here"
    import shutil, torch
    from torch.utils.cpp_extension import CUDA_HOME
    if not torch.cuda.is_available(): return 'torch sees no GPU here'
    if not (shutil.which('nvcc') or CUDA_HOME and (Path(CUDA_HOME)/'bin'/'nvcc').exists()): return 'there is no nvcc here'
    return '' if shutil.which('ninja') else 'there is no ninja here'

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

if __name__=='__main__':
    os.environ.setdefault('MAX_JOBS', '2')
    serve(handle)
