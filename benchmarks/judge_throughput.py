"""How many programs a second the judge gets through, from text to verdict, and how that compares with building each with `load_inline`.

    python benchmarks/judge_throughput.py                    # on a GPU: writes data/benchmarks/judge_throughput.json
    python benchmarks/judge_throughput.py --resume           # the published way alone, if the rest of such a run is in the file
    python benchmarks/judge_throughput.py --device host --programs 20 --inline 1 --out /tmp/t.json

Ours: distinct programs of the zoo (and the load_inline programs below, translated) under `quick` with an empty store: trace, compile, correctness on the task's shapes, timing with an interval. The clock runs from the opening of the judge to
the last verdict, so starting all workers is inside. /proc/locks is read many times a second to see how long the GPU was held, and by whom.

The published way, after that, on load_inline programs of tests/inline_programs that were also among ours: all extensions built at the same time on all cores, each in its own folder; then one program after the other in a fresh process,
as KernelBench evaluates on one GPU: the same seed for both models, 5 trials of allclose and, if all are right, 3 warm-up calls and 100 timed ones with CUDA events behind a clearing of L2, of the program and of the reference, since ours gives a speedup too.
Then ours again on the same programs alone, with another empty store. `load_inline_ratio` is the published seconds for a program over ours on the same programs, each from nothing to the last answer, with the start of all processes; `load_inline_ratio_once_open` leaves out the
opening of our judge, and `load_inline_ratio_many` takes our seconds from the first, long run, whose programs are mostly others. A program that is not built there counts with what was spent on trying.

The file is written every ten seconds and after every program; `unfinished` names what is missing. On the host device nothing is fast and a program that needs a GPU is wrong: it shows that the script runs, and no ratio is given.
"""
import json, os, subprocess, sys, tempfile, threading, time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import numpy as np
import psutil
from _common import Clock, code, options, result, save, say
from kernelrl._slow_inline import build_env, can_build, end_session
from kernelrl.core import KernelRLError, cache_dir
from kernelrl.judge import Judge, judge_many
from kernelrl.program import Program
from kernelrl.task import Task, shipped_programs, shipped_tasks
from kernelrl.verdict import Store
from kernelrl.writers import zoo_pairs

INLINE = ('relu_scale_float4 bias_gelu_half softmax_shared sum_last_two_stage transpose2d_tile gelu_tanh_tuned rms_norm_bf16_dispatch swiglu_half2 cross_entropy_labels cumsum_scan argmax_long permute_0213_view max_pool2d_args kl_div_fused norm_l2_double rope_strided '
    'histogram_shared mse_loss_atomic').split()

# ---------------------------------------------------------------- how the GPU and the cores are used
class Watch(threading.Thread):
    "Looks now and then who holds the lock on the GPU, and how busy cores and GPU are"
    def __init__(self, every:float=.005):
        super().__init__(daemon=True)
        self.every,self.ended,self.seen,self.cpu,self.gpu = every,threading.Event(),Counter(),[],[]
    def run(self):
        last = 0.
        psutil.cpu_percent()
        self.smi = _smi()
        while not self.ended.wait(self.every):
            self.seen[self._holder()] += 1
            if time.monotonic()-last>1: last = time.monotonic(); self.cpu.append(psutil.cpu_percent())
        if self.smi:
            self.smi.terminate()
            self.gpu = [int(x) for x in self.smi.communicate()[0].split() if x.isdigit()]
    def _holder(self)->str:
        "alone (somebody times), shared, or free"
        try: inode = (cache_dir()/'gpu.lock').stat().st_ino; text = Path('/proc/locks').read_text()
        except OSError: return 'unknown'
        held = [l.split() for l in text.splitlines() if l.split()[5].endswith(f':{inode}')]
        held = [f for f in held if '->' not in f]
        return 'free' if not held else 'alone' if any(f[3]=='WRITE' for f in held) else 'shared'
    def stop(self)->dict:
        self.ended.set(); self.join()
        n = sum(self.seen.values()) or 1
        return {'gpu_lock':{k:round(v/n,3) for k,v in sorted(self.seen.items())}, 'cpu_percent':round(float(np.mean(self.cpu)),1) if self.cpu else None, 'gpu_percent':round(float(np.mean(self.gpu)),1) if self.gpu else None}

def _smi():
    try: return subprocess.Popen(['nvidia-smi','--query-gpu=utilization.gpu','--format=csv,noheader,nounits','-lms','500'], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except OSError: return None

# ---------------------------------------------------------------- ours
def inline_programs(names:list[str])->list[tuple[Task,Program]]:
    tasks = {t.name:t for t in shipped_tasks()}
    folder = Path(__file__).resolve().parent.parent/'tests'/'inline_programs'
    texts = [(n, (folder/f'{n}.py').read_text('utf-8')) for n in names]
    return [(tasks[t.partition('\n')[0].removeprefix('# task: ')], Program(t, n)) for n,t in texts]

def distinct(n:int, seeds:list[int], first:list[tuple[Task,Program]])->list[tuple[Task,Program]]:
    "So many pairs, no two alike: of the zoo, seed by seed, the given ones spread among them"
    out = {}
    for s in seeds:
        for t,p in zoo_pairs(s, 60):
            if len(out)+len(first)>=n: break
            out.setdefault((t.id,p.id), (t,p))
    pairs = list(out.values())
    for k,x in enumerate(first): pairs.insert(k*max(1, len(pairs)//max(1,len(first))), x)
    return pairs[:max(n, len(first))]

def self_check(device:str):
    "A right program, a wrong one and one that does not compile"
    task = shipped_tasks(['relu_scale'])[0]
    text = dict(shipped_programs('relu_scale'))['naive']
    want = {'right':'ok slow', 'wrong':'wrong', 'broken':'compile'}
    prefix,core,suffix = Program(text).cut()
    texts = {'right':text, 'wrong':prefix+suffix, 'broken':f'{prefix} int q = nowhere; {core}{suffix}'}
    with tempfile.TemporaryDirectory() as top, Judge(device, 'quick', Store(Path(top)/'s.sqlite'), jobs=3) as j:
        for v in judge_many(j, [(task, Program(x, k)) for k,x in texts.items()], progress=False):
            if v.status not in want[v.program].split(): raise SystemExit(f'self-check: {v}')
    say('self-check: a right, a wrong and a broken program are told apart')

def ours(pairs:list, device:str, clock:Clock, until:float, jobs:int|None, keep=lambda *what: None)->tuple[dict,dict,list]:
    "Judge all pairs with an empty store; figures, what was seen, verdicts"
    watch,got,last = Watch(),[],0.
    watch.start()
    with tempfile.TemporaryDirectory() as top:
        begun = time.monotonic()
        j = Judge(device, 'quick', Store(Path(top)/'s.sqlite'), jobs=jobs)
        try:
            name = repr(j.bench.device)
            opened = seconds = time.monotonic()-begun
            for v in (many := judge_many(j, pairs, progress=False)):
                got.append(v)
                seconds = time.monotonic()-begun
                if seconds-last>10:
                    last = seconds
                    say(f'{len(got)}/{len(pairs)} verdicts, {len(got)/seconds:.1f} a second; {dict(Counter(x.status for x in got))}')
                    keep(*_told(got, seconds, opened, name, j.jobs), got)
                if clock.seconds>until: say('no time is left'); break
            many.close()
        finally: j.close()
    figures,seen = _told(got, seconds, opened, name, j.jobs)
    return figures,{**seen, **watch.stop()},got

def _told(got:list, seconds:float, opened:float, name:str, jobs:int)->tuple[dict,dict]:
    stages = {k:[v.seconds[k] for v in got if k in v.seconds] for k in dict.fromkeys(k for v in got for k in v.seconds)}
    seen = {'device':name, 'opened_s':round(opened,2), 'jobs':jobs, 'status':dict(Counter(v.status for v in got)), 'stages':{k:{'sum_s':round(sum(x),2), 'median_s':round(float(np.median(x)),4), 'p95_s':round(float(np.quantile(x,.95)),4)} for k,x in stages.items()},
        'infra':[repr(v.reason) for v in got if v.status=='infra'][:20]}
    return {'programs':len(got), 'seconds':round(seconds,2), 'verdicts_per_s':round(len(got)/seconds,2), 'verdicts_per_s_once_open':round(len(got)/max(seconds-opened,1e-9),2), 'infra':sum(v.status=='infra' for v in got), 'tasks':len({v.task_id for v in got}), 'right':sum(v.ok for v in got)},seen

# ---------------------------------------------------------------- the published way
def child_build(req:dict):
    "What building takes: run the program's module"
    exec(compile(req['text'], '<program>', 'exec'), {'__name__':'program'})

def child_eval(req:dict)->dict:
    "Correctness and time as KernelBench measures them, in this process"
    import torch
    dev = req['device']
    sync = torch.cuda.synchronize if dev=='cuda' else (lambda: None)
    ref,new = {'__name__':'ref'},{'__name__':'program'}
    exec(compile(req['task'], '<task>', 'exec'), ref)
    exec(compile(req['text'], '<program>', 'exec'), new)
    up = lambda xs: [x.to(dev) if isinstance(x, torch.Tensor) else x for x in xs]
    with torch.no_grad():
        models = []
        for cls in (ref['Model'], new['ModelNew']):
            torch.manual_seed(42)
            models.append(cls(*ref['get_init_inputs']()).to(dev))
        right = 0
        for trial in range(req['trials']):
            torch.manual_seed(1000+trial)
            xs = up(ref['get_inputs']())
            a,b = models[0](*xs),models[1](*xs)
            sync()
            as_list = lambda v: list(v) if isinstance(v, (tuple,list)) else [v]
            tol = lambda t: 1e-2 if t.dtype in (torch.float16,torch.bfloat16) else 1e-4
            right += all(p.shape==q.shape and torch.allclose(p.to(torch.float64), q.to(torch.float64), atol=tol(p), rtol=tol(p)) for p,q in zip(as_list(a), as_list(b), strict=True))
        torch.manual_seed(42)
        xs = up(ref['get_inputs']())
        ms = [_timed(m, xs, req['timed'], dev, sync) for m in models[::-1]] if right==req['trials'] else [None]*2
    return {'right':right, 'trials':req['trials'], 'ms':ms[0], 'reference_ms':ms[1]}

def _timed(model, xs:list, n:int, dev:str, sync)->float: # Mean milliseconds
    import torch
    clear = torch.empty((256<<20)//4, dtype=torch.int32, device=dev)
    for _ in range(3): model(*xs); sync()
    total = 0.
    for _ in range(n):
        clear.fill_(42)
        if dev=='cuda':
            a,b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            sync(); a.record(); model(*xs); b.record(); sync()
            total += a.elapsed_time(b)
        else:
            t = time.perf_counter(); model(*xs); total += 1e3*(time.perf_counter()-t)
    return total/n

def child(what:str):
    req = json.load(sys.stdin)
    out = os.fdopen(os.dup(1), 'w'); os.dup2(2, 1)
    try: a = (child_build if what=='build' else child_eval)(req) or {}
    except Exception as e: a = {'error':f'{type(e).__name__}: {str(e)[-400:]}'}
    out.write(json.dumps(a)); out.flush()
    os._exit(0)

def _child(what:str, folder:Path, seconds:float, **req)->dict:
    "One child process, its answer and its seconds; killed with all its compilers when it is late"
    t = time.monotonic()
    p = subprocess.Popen([sys.executable, __file__, '--child', what], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **build_env(folder, 2)}, start_new_session=True)
    try:
        said,log = p.communicate(json.dumps(req), timeout=max(0., seconds))
        try: a = json.loads(said)
        except ValueError: a = {'error':f'exit code {p.returncode}: {log[-300:]}'}
    except subprocess.TimeoutExpired: a = {'error':f'no answer in {seconds:.0f} s'}
    finally: # also after an interrupt
        end_session(p.pid)
        p.wait()
        for f in (p.stdin,p.stdout,p.stderr): f.close()
    return {**a, 'seconds':time.monotonic()-t}

BUILD_SECONDS,EVAL_SECONDS = 300.,180.

def published(pairs:list[tuple[Task,Program]], device:str, clock:Clock, keep, trials:int=5, timed:int=100)->tuple[dict,list]: # No figures if it was cut short before anything was evaluated
    "Build all at once, evaluate one after the other"
    rows:list[dict] = []
    with tempfile.TemporaryDirectory() as top:
        t = time.monotonic()
        with ThreadPoolExecutor(min(os.cpu_count() or 1, len(pairs))) as pool: built = list(pool.map(lambda tp: _child('build', Path(top)/tp[1].name, min(BUILD_SECONDS, clock.left), text=tp[1].text), pairs))
        build = time.monotonic()-t
        say(f'{len(pairs)} extensions built in {build:.0f} s; failed: {sum("error" in b for b in built)}')
        for (task,p),b in zip(pairs, built):
            e = {'seconds':0.} if 'error' in b else _child('eval', Path(top)/p.name, min(EVAL_SECONDS, clock.left), text=p.text, task=task.source, device='cpu' if device=='host' else device, trials=trials, timed=timed)
            if clock.over: say('no time is left for the rest'); break
            rows.append({'program':p.name, 'id':p.id, 'task':task.name, 'build_s':round(b['seconds'],2), 'eval_s':round(e.pop('seconds'),2), **({'error':b['error']} if 'error' in b else e)})
            say(rows[-1])
            keep(_spent(rows, build, len(pairs), trials), rows)
    return _spent(rows, build, len(pairs), trials),rows

def _spent(rows:list[dict], build:float, of:int, trials:int)->dict:
    evals = sum(r['eval_s'] for r in rows)
    return {'inline_programs':len(rows), 'inline_right':sum(r.get('right')==trials for r in rows), 'inline_failed':sum('error' in r for r in rows), 'inline_build_s':round(build,1), 'inline_eval_s':round(evals,1), 'inline_s_per_program':round(build/of+evals/len(rows),3)} if rows else {}

class Report:
    "What is known so far; written whenever there is more"
    def __init__(self, a):
        self.a,self.figures,self.seen,self.device = a,{},{},''
        self.rows:dict[str,dict] = {} # By program
        self.parts = ['ours','same','published'] if a.inline else ['ours'] # That are missing
        self.command = f'python benchmarks/judge_throughput.py --programs {a.programs} --inline {a.inline}'
    def resumed(self)->bool:
        "Take our part from the file, if the same code wrote it and it came to its end"
        old = json.loads(self.a.out.read_text()) if self.a.resume and self.a.out.exists() else {}
        if (old.get('code'),old.get('command'))!=(code(),self.command) or {'ours','same'}&set(old['unfinished']):
            if self.a.resume: say(f'{self.a.out.name} holds nothing that this code and command wrote to its end: all is measured anew')
            return False
        self.parts = ['published']*bool(self.a.inline)
        self.figures,self.seen,self.device = {k:v for k,v in old['figures'].items() if 'inline' not in k},old['seen'],old['device']
        self.rows = {r['id']:{k:r[k] for k in ('program','id','task','status','ours_s')} for r in old['rows'] if 'ours_s' in r}
        return True
    def add(self, figures:dict, rows:list[dict]=(), ends:str=''):
        self.figures |= figures
        self.parts = [k for k in self.parts if k!=ends]
        for r in rows: self.rows.setdefault(r['id'], {}).update(r)
    def write(self):
        save(self.a.out, result(self.device, self.command, 'quick, empty store, from opening the judge to the last verdict; published way: builds in parallel on all cores, then 5 x allclose and 100 timed calls in a fresh process each',
            self.a.seeds, self.figures, list(self.rows.values()), seen=self.seen, code=code(), unfinished=self.parts))

def ours_part(r:Report, a, clock:Clock, inline:list):
    "All programs, then those of the published way alone"
    ids = {p.id for _,p in inline}
    def keep(figures, seen, got):
        r.device,r.seen = f'{seen.pop("device")}, {os.cpu_count()} cores',seen
        r.add(figures, [{'program':v.program, 'id':v.program_id, 'task':v.task, 'status':v.status, 'ours_s':round(sum(x for k,x in v.seconds.items() if k!='alone'),3)} for v in got if v.program_id in ids])
        r.write()
    pairs = distinct(a.programs, a.seeds, inline)
    say(f'{len(pairs)} programs on {len({t.id for t,_ in pairs})} tasks')
    keep(*ours(pairs, a.device, clock, a.limit_seconds*(.4 if inline else .95), a.jobs, keep))
    r.add({}, ends='ours')
    if inline:
        same,seen,got = ours(inline, a.device, clock, a.limit_seconds*.5, a.jobs)
        r.seen['same_programs'] = seen
        if len(got)==len(inline): r.add({'same_right':same['right'], 'same_s':same['seconds'], 'same_once_open_s':round(same['seconds']-seen['opened_s'],2)}, ends='same')
    r.write()

def published_part(r:Report, a, clock:Clock, inline:list):
    "The published way, and the ratios once it is through"
    if why := can_build(a.device=='cuda'): return say(f'{why}: the published way is left out')
    def keep(figures, rows): r.add(figures, rows); r.write()
    r.add(*published(inline, a.device, clock, keep))
    f = r.figures
    if f.get('inline_programs')==len(inline): r.add({}, ends='published')
    if not r.parts and a.device=='cuda':
        s = f['inline_s_per_program']
        r.add({'load_inline_ratio':round(s*len(inline)/f['same_s'],1), 'load_inline_ratio_once_open':round(s*len(inline)/f['same_once_open_s'],1), 'load_inline_ratio_many':round(s*f['verdicts_per_s'],1)})
    r.write()

def main():
    p = options(__doc__, 'judge_throughput', 540)
    p.add_argument('--device', default='cuda', choices=['cuda','host'])
    p.add_argument('--programs', type=int, default=1040)
    p.add_argument('--seeds', type=int, nargs='+', default=[1,2,3,4,5], help='of the zoo')
    p.add_argument('--jobs', type=int, default=None)
    p.add_argument('--inline', type=int, default=16, help=f'load_inline programs that are also built, at most {len(INLINE)}; 0 leaves that out')
    p.add_argument('--resume', action='store_true', help='take our part from the file given by --out, if the same code wrote it')
    p.add_argument('--child', choices=['build','eval'], help='(used by the script itself)')
    a = p.parse_args()
    if a.child: return child(a.child)
    clock,inline,r = Clock(a.limit_seconds),inline_programs(INLINE[:a.inline]),Report(a)
    if r.resumed(): say(f'ours is taken from {a.out.name}: {r.figures}')
    else:
        self_check(a.device)
        ours_part(r, a, clock, inline)
    if inline: published_part(r, a, clock, inline)

if __name__=='__main__':
    try: main()
    except KernelRLError as e: sys.exit(str(e))
