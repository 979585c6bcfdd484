"""What the judge's gates need of a device, for the GPU and for the host: compile, run a check, sanitize, time. The gates themselves are on page `judge`."""
import contextlib, itertools, os, threading
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
import psutil
from kernelrl import _arrays
from kernelrl._fresh import marks_of
from kernelrl._pools import LATE, Cases, Infra, Pool, Stopped, scratch_dir
from kernelrl._worker import WorkerDied, WorkerTimeout
from kernelrl.core import Finding, KernelRLError, derive_seed, digest
from kernelrl.device import Device
from kernelrl.eager import OpCost
from kernelrl.host import Unsupported, compile_host, run_host
from kernelrl import timing as T
from kernelrl.nvrtc import CompileError, Cubin
from kernelrl.program import Plan, Program
from kernelrl.roofline import GPU, GPUS, estimate, estimate_eager, estimate_speedup, faster_than_physics, floor_ms
from kernelrl.task import Signature
from kernelrl.toolchain import find_compiler
from kernelrl.trace import trace
from kernelrl.verdict import Store
from kernelrl.verify import Check, ErrorReport, Protocol

class Failed(Exception):
    "The program failed here; `finding` says how"
    def __init__(self, finding:Finding): super().__init__(repr(finding)); self.finding = finding

@dataclass
class Timed:
    "What a timing gave"
    timings:dict = field(default_factory=dict)
    speedups:tuple = ()
    findings:list = field(default_factory=list)
    errors:list = field(default_factory=list) # Comparison of the timed outputs
    floor_ms:float|None = None
    alone:float = 0. # Seconds that nobody else could use the GPU
    def add(self, found):
        "Each kind once is enough"
        for f in found:
            if f.kind not in {g.kind for g in self.findings}: self.findings.append(f)

class Bench:
    "What both devices share: the compilers, the referee, the files between processes"
    kind = source = ''
    RUN_SECONDS = 30.
    def __init__(self, store:Store, jobs:int, referee:str='cpu'):
        self.store,self.jobs = store,jobs
        cpus = len(os.sched_getaffinity(0))
        self.folder = scratch_dir()
        self.tracers = Pool('kernelrl._tracer', max(1, min(4, cpus//2)))
        self.compilers = Pool('kernelrl._compiler', max(1, min(cpus, 16, jobs))) if nvrtc_version_cheap() else None
        n = max(1, min(6, cpus//2)) # referees: each knows some of the tasks
        self.referees = Pool('kernelrl._referee', n, [referee, str(n)])
        self.cases = Cases(self.folder, self._draw, min(8<<30, psutil.virtual_memory().available//4))
        self._files = itertools.count()
        self._once:dict[tuple,Future] = {}
        self._lock = threading.Lock()
        self._dealt:dict[str,int] = {}
        self.cpus,self.stopping = threading.Semaphore(cpus),threading.Event()

    def once(self, key:tuple, make):
        "What `make` gives, computed once however many threads ask"
        with self._lock:
            mine = key not in self._once
            f = self._once.setdefault(key, Future())
        if mine:
            try: f.set_result(make())
            except BaseException as e:
                with self._lock: self._once.pop(key, None)
                f.set_exception(e)
        return f.result()

    def trace(self, program:Program, sig:Signature, setting=None)->Plan:
        "What the program allocates and launches; `TraceRefused` if it does anything else"
        with self.tracers.take() as w:
            try: return trace(program, sig, worker=w, setting=setting)
            except (WorkerDied,WorkerTimeout) as e:
                if self.tracers.stopped: raise Stopped() from None
                raise Infra(f'the tracer ended: {e}') from None

    def ask(self, task, request:dict, deadline:float=300.)->dict:
        "A question to the referee that knows this task"
        return self.referees.call({'task':task.to_dict(), **request}, deadline, self._referee_of(task.id))
    def _draw(self, req): return self.referees.call({'op':'case', **req}, 300., self._referee_of(req['task_id']))
    def _referee_of(self, task_id:str)->int:
        "Tasks are dealt to the referees in turn, and stay where their answers are"
        with self._lock: return self._dealt.setdefault(task_id, len(self._dealt)%len(self.referees.workers))
    def inputs(self, task, shape:int, seed:int, distribution:str)->dict:
        "The file with the inputs of a check"
        return self.cases.get((task.id,shape,seed,distribution), {'task':task.to_dict(), 'task_id':task.id, 'shape':shape, 'seed':seed, 'distribution':distribution})
    def file(self, name:str)->Path: return self.folder/f'{name}{next(self._files)}'

    def compare(self, task, check:Check, runs:list[dict], repeats:int)->tuple[list[ErrorReport],list[Finding]]:
        "Have the referee compare the outputs of one or more runs; their files are removed"
        try: a = self.ask(task, {'op':'verify', 'check':check.to_dict(), 'runs':runs, 'repeats':repeats})
        finally:
            for r in runs: Path(r['path']).unlink(missing_ok=True)
        return [ErrorReport.from_dict(r) for r in a['reports']], [Finding.from_dict(f) for f in a['found']]

    def nvrtc(self, module, names:list[str], arch:str)->Cubin:
        "Compile a module with NVRTC, or take it from the store; `Failed` with the compiler's words"
        key = digest('cubin', module, sorted(names), arch, nvrtc_version_cheap(), COMPILER)
        def make():
            body = self.store.get('cubin', key)
            if body: return Cubin.from_json(body)
            a = self._ask_compiler({'module':module.to_dict(), 'names':sorted(names), 'arch':arch})
            if 'refused' in a: raise Failed(Finding.from_dict(a['refused']))
            cubin = Cubin.from_dict(a['cubin'])
            self.store.put('cubin', key, cubin.to_json().encode())
            return cubin
        return self.once(('cubin',key), make)

    def _ask_compiler(self, request:dict)->dict:
        "The program is to blame for a source that takes too long, or that ends two compilers; for anything else we are"
        assert self.compilers is not None # Who asks has seen that NVRTC is here
        with self.compilers.take() as w:
            for again in (False,True):
                try: a = w.call(request, COMPILE_SECONDS)
                except WorkerTimeout: raise Failed(Finding('compile_timeout', f'NVRTC did not finish in {COMPILE_SECONDS:g} s; the source needs too long to compile')) from None
                except WorkerDied:
                    if self.compilers.stopped: raise Stopped() from None
                    if again: raise Failed(Finding('compile_error', 'the compiler crashed on this source, twice')) from None
                    continue
                if 'broken' in a: raise Infra(a['broken'])
                return a
        raise Infra('the compiler gave no answer')

    def must_move(self, task)->tuple[int,int]:
        "Bytes that any program must read and write; arrays that are only gathered from need not be read whole"
        sig = Signature.from_dict(self.ask(task, {'op':'signature','shape':0})['signature'])
        ops = [o['name'] for o in self.ask(task, {'op':'ops','shape':0})['ops']]
        gathers = any(k in o for o in ops for k in ('embedding','gather','index','take'))
        reads = sum(s.nbytes for s in (*sig.inputs,*sig.params) if s.value is None and not (gathers and 'float' in s.dtype))
        return reads,sum(s.nbytes for s in sig.outputs)

    def floor(self, task, spec:GPU)->float:
        "Milliseconds that any program needs"
        reads,writes = self.once(('traffic',task.id), lambda: self.must_move(task))
        return floor_ms(reads, writes, 0., spec)

    def distributions(self, task)->tuple[str,...]:
        "The task's input distributions under which its reference stays finite"
        return self.once(('usable',task.id), lambda: tuple(self.ask(task, {'op':'usable', 'shape':min(1,len(task.shapes)-1), 'seed':0})['names']))

    def sanitize(self, task, plans:dict[int,Plan], secret:str)->list[Finding]:
        "The small shapes on the host device in check mode: bounds, races, barriers, reads before writes"
        try: find_compiler()
        except KernelRLError: return [Finding('not_sanitized', 'no C++ compiler here, so the program was not run in check mode', severity='warning')]
        found:list[Finding] = []
        for shape in sorted(plans, key=lambda s: sum(b.nbytes for b in plans[s].buffers))[:2]:
            if sum(b.nbytes for b in plans[shape].buffers)>64<<20: continue
            try: binary = self.once(('check',digest(plans[shape].modules, [s.kernel for s in plans[shape].launches])), lambda: compile_host(plans[shape], 'check'))
            except (Unsupported,CompileError) as e: return [Finding('not_sanitized', f'not run in check mode: {e.finding.message[:160]}', severity='note')]
            inputs = _arrays.load(self.inputs(task, shape, derive_seed('sanitize', secret, task.id, shape), 'own'))
            for order in ('forward','shuffle'):
                with self.cpus: r,_ = run_host(binary, plans[shape], inputs, order=order, deadline=self.RUN_SECONDS, stop=self.stopping)
                if self.stopping.is_set(): raise Stopped()
                if r.status=='timeout': return [*found, Finding('not_sanitized', 'check mode took too long', severity='note')]
                found += [f for f in r.findings if (f.kind,f.line) not in {(g.kind,g.line) for g in found}]
                if any(f.severity=='error' for f in found): return found
        return found

    def close(self):
        import shutil
        self.stopping.set()
        if hasattr(self, '_room'):
            with self._room: self._room.notify_all()
        for p in (self.tracers, self.compilers, self.referees, getattr(self,'launchers',None)):
            if p: p.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

COMPILE_SECONDS = 60.
JAM_SECONDS = 900. # Beyond the deadline: waiting for the GPU, reading and writing arrays
COMPILER = 2 # Raise when compile_module changes what it makes of a source

def nvrtc_version_cheap()->str:
    "The version of the NVRTC wheel, without importing it; '' where there is none"
    import importlib.metadata as md, importlib.util
    if importlib.util.find_spec('cupy') is None: return ''
    for name in ('nvidia-cuda-nvrtc','nvidia-cuda-nvrtc-cu13','nvidia-cuda-nvrtc-cu12'):
        try: return md.version(name)
        except md.PackageNotFoundError: continue
    return 'system'

class CudaBench(Bench):
    "The GPU: launchers own a context each, and take turns on the device"
    kind,source = 'cuda','measured'
    RUN_SECONDS = 10. # A run of a candidate on one check
    TIMED_SECONDS = 60. # All timed runs in one process
    def __init__(self, store:Store, jobs:int, launchers:int):
        super().__init__(store, jobs, 'cuda')
        self.launchers = Pool('kernelrl._launcher', launchers)
        self.device = Device.from_dict(self.launchers.call({'op':'device'}, 120.)['device'])
        self._room,self._used,self._line = threading.Condition(),0,list[object]()
        self._capacity = max(self.device.memory_bytes*9//10-launchers*(10<<30), self.device.memory_bytes//2)

    @contextlib.contextmanager
    def room(self, plan:Plan):
        "Wait in line until the device has room for a plan beside those of others"
        need,turn = min(2*sum(b.nbytes for b in plan.buffers), self._capacity),object()
        with self._room:
            self._line.append(turn) # Who comes first is first: small plans may not keep a large one waiting for ever
            self._room.wait_for(lambda: self.stopping.is_set() or self._line[0] is turn and self._used+need<=self._capacity)
            self._line.remove(turn)
            self._used += need
            self._room.notify_all()
        try: yield
        finally:
            with self._room: self._used -= need; self._room.notify_all()

    def _launch(self, request:dict, deadline:float, which:int|None=None)->dict:
        "Ask a launcher; a failure in a context that had served others is confirmed in a fresh one"
        for _ in range(2):
            with self.launchers.take(which) as w:
                try:
                    if w.p is None or w.p.poll() is not None or w.served>400:
                        w.kill(); w.call({'op':'device'}, 120.)
                except (WorkerDied,WorkerTimeout) as e: raise Infra(f'no launcher could be started: {e}') from None
                used = w.served>1
                try: a = w.call({**request, 'deadline':deadline}, deadline+JAM_SECONDS)
                except WorkerTimeout: raise Infra(f'a launcher gave no answer for {deadline+JAM_SECONDS:g} s') from None
                except WorkerDied as e:
                    if self.launchers.stopped: raise Stopped() from None
                    if e.code==LATE: raise Failed(Finding('timeout', f'did not end within {deadline:g} s on the device')) from None
                    a = {'failed':Finding('crash', f'the process that launched it died ({str(e).splitlines()[0][:80]})').to_dict()}
                if 'broken' in a: w.kill(); raise Infra(a['broken'])
                if 'failed' not in a: return a
                w.kill()
            if not used: break
        raise Failed(Finding.from_dict(a['failed']))

    def compile(self, plan:Plan)->list[Cubin]:
        "Machine code for each module of a plan"
        return [self.nvrtc(m, sorted({s.kernel for s in plan.launches if s.module==i}), self.device.arch) for i,m in enumerate(plan.modules)]

    def run(self, task, plan:Plan, built:list[Cubin], check:Check, repeats:int)->tuple[list[dict],list[Finding]]:
        "Outputs of two runs, as files"
        request = {'op':'run', 'plan':plan.to_dict(), 'cubins':[c.to_dict() for c in built], 'inputs':self.inputs(task, check.shape, check.seed, check.distribution), 'path':str(self.file('out')), 'repeats':repeats}
        with self.room(plan): a = self._launch(request, self.RUN_SECONDS)
        return a['outputs'], [Finding.from_dict(f) for f in a['found']]

    def time(self, task, plan:Plan, built:list[Cubin], protocol:Protocol, secret:str)->Timed:
        "ABBA rounds in each of several processes; the outputs of timed runs are compared too"
        rounds,out = [],Timed()
        if not protocol.processes: return out
        baseline = self.inputs(task, 0, derive_seed('baseline', task.id), 'own')
        for r in range(protocol.processes):
            check = Check(0, 'own', derive_seed('timed', secret, task.id, r))
            request = {'op':'timed', 'plan':plan.to_dict(), 'cubins':[c.to_dict() for c in built], 'inputs':self.inputs(task, 0, check.seed, 'own'), 'task':task.to_dict(), 'shape':0,
                'baseline':baseline, 'order_seed':check.seed, 'samples':protocol.samples, 'min_ms':protocol.min_ms, 'cap_s':2., 'beside':protocol.beside, 'fresh':[derive_seed('fresh', secret, task.id, r, k)|1 for k in range(marks_of(protocol.samples)+1)], 'path':str(self.file('timed'))}
            with self.room(plan): a = self._launch(request, self.TIMED_SECONDS, (int(task.id, 16)+r)%len(self.launchers.workers) if protocol.processes>1 else None)
            rounds.append(a)
            for fresh,outputs in a['marks']: # Timed runs whose values the referee can make too
                reports,found = self.compare(task, replace(check, fresh=fresh), [outputs], 1)
                out.errors += reports
                out.add(found)
            out.add(Finding.from_dict(f) for f in a['found'])
            out.alone += a['held']
        self._conclude(out, rounds, task)
        return out

    def _conclude(self, out:Timed, rounds:list[dict], task):
        "Timings and speedups of all processes, and what makes them doubtful"
        b = [T.Bench.from_dict(r['bench']) for r in rounds]
        name = 'eager' if any(r['uncapturable'] for r in rounds) else 'eager_graph'
        if name=='eager': out.add([Finding('baseline_not_captured', f'PyTorch could not be recorded as a CUDA graph ({rounds[0]["uncapturable"][:100]}); the baseline is eager as called', severity='warning')])
        A,B,gpu = [x.a for x in b],[x.b for x in b],self.device.name
        out.timings = {'candidate':T.summarise(A, 'cold', gpu), name:T.summarise(B, 'cold', gpu)}
        out.speedups = (T.speedup(A, B, name, 'cold', gpu),)
        out.add(f for x in b for f in x.findings)
        if 'solo' in rounds[0]: self._beside(out, rounds, A, name, gpu)
        spec = gpu_named(gpu)
        if spec:
            out.floor_ms = self.floor(task, spec)
            out.add(f for f in [faster_than_physics(out.timings['candidate'], out.floor_ms)] if f)

    def _beside(self, out:Timed, rounds:list[dict], A:list, name:str, gpu:str):
        "With a warm cache, against eager PyTorch as called, and whether each alone gives the same ratio"
        of = lambda part,k: [r[part][k] for r in rounds]
        solo,warm,eager = (of('solo',0),of('solo',1)),(of('warm',0),of('warm',1)),[r['eager'] for r in rounds]
        out.timings |= {'candidate_warm':T.summarise(warm[0], 'warm', gpu), f'{name}_warm':T.summarise(warm[1], 'warm', gpu)}
        out.speedups += (T.speedup(warm[0], warm[1], name, 'warm', gpu, paired=False),)
        if name!='eager':
            out.timings['eager'] = T.summarise(eager, 'cold', gpu)
            out.speedups += (T.speedup(A, eager, 'eager', 'cold', gpu, paired=False),)
        out.add(f for f in [T.disagree(out.speedups[0], T.speedup(solo[0], solo[1], name, 'cold', gpu, paired=False))] if f)

    def versions(self)->tuple: return (nvrtc_version_cheap(), *_versions('torch','cupy-cuda13x','cupy-cuda12x'))
    def can_check(self, task, check:Check)->bool: return True
    def cubins(self, built:list[Cubin])->list[Cubin]: return built

HOST = 'host 2' # Raise when a change can change verdicts of the host device alone

class HostBench(Bench):
    "The CPU: every run in a process of its own; speeds are estimated from what was counted"
    kind = 'host'
    source = 'estimated'
    RUN_SECONDS = 30. # A run of a candidate on one check
    SAMPLE = 48 # Blocks of the timed shape whose traffic is counted
    def __init__(self, store:Store, jobs:int, gpu:str):
        spec = gpu_named(gpu)
        if not spec: raise KernelRLError(f'gpu {gpu!r}: not in the table; choose one of {", ".join(GPUS)}')
        self.spec = spec
        find_compiler()
        super().__init__(store, jobs, 'cpu')
        self.max_bytes = psutil.virtual_memory().available//3
        self.device = Device('host', f'NVIDIA {self.spec.name}', self.spec.arch, sms=self.spec.sms, l2_bytes=self.spec.l2_bytes)

    def compile(self, plan:Plan)->dict:
        "NVRTC first, where there is one: its errors are the real ones. Then the machine's own compiler"
        arch,need = self.device.arch,sum(b.nbytes for b in plan.buffers)
        if need>self.max_bytes: raise Failed(Finding('out_of_memory', f'{need/2**30:.1f} GiB of buffers; {self.max_bytes/2**30:.1f} GiB can be had here'))
        cubins = [self.nvrtc(m, sorted({s.kernel for s in plan.launches if s.module==i}), arch) for i,m in enumerate(plan.modules)] if self.compilers else []
        return {'cubins':cubins, 'plan':plan, 'run':self._host(plan, 'run', bool(cubins))}
    def cubins(self, built:dict)->list[Cubin]: return built['cubins']

    def _host(self, plan:Plan, mode:str, known_good:bool):
        "A binary for this machine; `Failed` when the source is wrong, or is more than this device can do"
        def make():
            with self.cpus:
                try: return compile_host(plan, mode)
                except Unsupported as e: raise Failed(e.finding) from None
                except CompileError as e:
                    if not known_good: raise Failed(e.finding) from None
                    raise Failed(Finding('unsupported_on_host', f'NVRTC compiles it but the host device does not ({e.finding.message[:160]}); judge it on a CUDA device', line=e.finding.line)) from None
        return self.once(('host',mode,digest(plan.modules, [s.kernel for s in plan.launches])), make)

    def _run(self, binary, plan:Plan, inputs:list, deadline:float, **how):
        for _ in range(2):
            with self.cpus: r,outs = run_host(binary, plan, inputs, deadline=deadline, stop=self.stopping, **how)
            if self.stopping.is_set(): raise Stopped()
            if r.status!='timeout' or r.seconds>=deadline: return r,outs
        raise Infra('the process that ran the kernels was killed by somebody else')

    def run(self, task, plan:Plan, built:dict, check:Check, repeats:int)->tuple[list[dict],list[Finding]]:
        "Outputs of runs with the threads of a block in different orders"
        inputs = _arrays.load(self.inputs(task, check.shape, check.seed, check.distribution))
        outs:list[dict] = []
        found:list[Finding] = []
        for i in range(repeats):
            r,arrays = self._run(built['run'], plan, inputs, order=('forward','reverse')[i%2], deadline=self.RUN_SECONDS, poison=(0xff,0x7f)[i%2])
            found += [f for f in r.findings if f.kind not in {g.kind for g in found}]
            if r.status!='ok': raise Failed(next((f for f in r.findings if f.severity=='error'), Finding(r.status, r.message)))
            if any(f.severity=='error' for f in r.findings): break
            outs.append(_arrays.save(self.file('out'), arrays))
        return outs,found

    def time(self, task, plan:Plan, built:dict, protocol:Protocol, secret:str)->Timed:
        "Check the timed shape, count the traffic of some of its blocks, estimate from it and from the operators of the reference"
        out,check = Timed(),Check(0, 'own', derive_seed('timed', secret, task.id, 0))
        inputs = _arrays.load(self.inputs(task, 0, check.seed, 'own'))
        if not self.can_check(task, check) and not self._check_timed(out, task, plan, built, inputs, check) or not protocol.processes: return out
        r,_ = self._run(self._host(plan, 'check', bool(built['cubins'])), plan, inputs, sample_blocks=self.SAMPLE, deadline=self.RUN_SECONDS, poison=0x7f, dice=derive_seed('blocks', secret, plan.id)>>31)
        if r.status=='timeout': raise Failed(Finding('timeout', f'{self.SAMPLE} blocks of the timed shape did not end within {self.RUN_SECONDS:g} s on the host device'))
        if r.status!='ok': raise Failed(next((f for f in r.findings if f.severity=='error'), Finding(r.status, r.message)))
        ops = self.once(('ops',task.id), lambda: [OpCost.from_dict(o) for o in self.ask(task, {'op':'ops','shape':0})['ops']])
        regs = max((x.registers for c in built['cubins'] for x in c.resources), default=None)
        out.timings = {'candidate':estimate(r.traffic, self.spec, regs, flops=sum(o.flops for o in ops)), 'eager_graph':estimate_eager(ops, self.spec)}
        out.speedups = (estimate_speedup(r.traffic, ops, self.spec, regs),)
        out.floor_ms = self.floor(task, self.spec)
        out.add([Finding('estimated', f'speed estimated for {self.device.name} from traffic counted on {sum(t.sampled for t in r.traffic)} of {sum(t.blocks for t in r.traffic)} blocks', severity='note')])
        return out

    def _check_timed(self, out:Timed, task, plan:Plan, built:dict, inputs:list, check:Check)->bool:
        "One run of the whole timed shape: what is fast there must be right there"
        r,arrays = self._run(built['run'], plan, inputs, deadline=self.RUN_SECONDS)
        if r.status=='timeout': raise Failed(Finding('unsupported_on_host', f'the timed shape did not end within {self.RUN_SECONDS:g} s on this CPU, so it was not checked; judge it on a CUDA device'))
        out.add(r.findings)
        if r.status!='ok': raise Failed(next((f for f in r.findings if f.severity=='error'), Finding(r.status, r.message)))
        if any(f.severity=='error' for f in r.findings): return False
        out.errors,found = self.compare(task, check, [_arrays.save(self.file('timed'), arrays)], 1)
        out.add(found)
        return not any(f.severity=='error' for f in found)

    def can_check(self, task, check:Check)->bool: return check.shape!=0 or len(task.shapes)==1 # the timed shape is large for a CPU: once, before its blocks are counted
    def versions(self)->tuple: return (HOST, nvrtc_version_cheap(), find_compiler().version, *_versions('torch'))

def _versions(*packages:str)->list[str]:
    import importlib.metadata as md
    out = []
    for p in packages:
        try: out.append(f'{p} {md.version(p)}')
        except md.PackageNotFoundError: pass
    return out

def gpu_named(name:str)->GPU|None:
    "The entry of the GPU table for a device's name"
    return next((g for k,g in GPUS.items() if k in name.replace(' ','')), None)
