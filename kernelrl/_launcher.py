"""The process that owns a CUDA context: it launches Plans on inputs that it is handed, and times them. It never holds the right answer to the inputs a candidate works on.

In the timing stage PyTorch's baseline runs in this process too, but on inputs drawn from another seed, so that the answer to the candidate's inputs is still nowhere in its context.
"""
import contextlib, os, threading, time
from pathlib import Path
import numpy as np
from kernelrl import _arrays, _fresh, device as D
from kernelrl._pools import LATE
from kernelrl._worker import serve
from kernelrl.core import Finding
from kernelrl.nvrtc import Cubin
from kernelrl.program import Plan
from kernelrl.reference import Reference
from kernelrl.task import Task
from kernelrl.timing import bench, resolution

class State:
    "What this process holds"
    loaded:D.Loaded|None = None
    key:tuple|None = None
    watch:D.Stopwatch
    gpu:D.Device
    resolution:float
    baselines:dict[tuple,tuple] = {}
    anew:dict # Kernels that make new values

S = State()
WARM_SECONDS = .1 # A device that was idle runs slowly at first
HOT_SECONDS = .005 # One that was not
BASELINE_BYTES = 8<<30 # PyTorch's share, before it starts anew

def _load(req:dict)->D.Loaded:
    "Load a Plan, or keep the one that is loaded"
    plan = Plan.from_dict(req['plan'])
    key = plan.id,tuple(len(c['image']) for c in req['cubins'])
    if S.key!=key:
        if S.loaded: S.loaded.free()
        S.loaded = S.key = None
        S.loaded = D.Loaded(plan, [Cubin.from_dict(c) for c in req['cubins']])
        S.key = key
    assert S.loaded
    return S.loaded

LARGE = 1<<30

def _unload():
    "Give large buffers back: a neighbour may need the room"
    if S.loaded and sum(b.nbytes for b in S.loaded.plan.buffers)>LARGE: S.loaded.free(); S.loaded = S.key = None

def device(req:dict)->dict: return {'device':S.gpu.to_dict()}

@contextlib.contextmanager
def on_gpu(seconds:float, alone:bool=False):
    "Hold the GPU. When the work is not done in time this process ends; waiting for others does not count"
    with D.gpu_lock(alone) as idle:
        t = threading.Timer(seconds, os._exit, (LATE,))
        t.daemon = True
        t.start()
        try: yield idle
        finally: t.cancel()

def run(req:dict)->dict:
    "Run a Plan on the same inputs with different poison; equal outputs are written once"
    t = time.perf_counter()
    loaded,inputs = _load(req),_arrays.load(req['inputs'])
    names:list[dict] = []
    found:list[Finding] = []
    for k in range(req['repeats']):
        outs,more = D.run_once(loaded, inputs, (0xff,0x7f)[k%2], lambda: on_gpu(req['deadline']), upload=k==0)
        found += more
        if any(f.severity=='error' for f in more): break
        same = names and all(map(D.same_bytes, outs, (a.reshape(-1).view('u1') for a in _arrays.load(names[0]))))
        names.append(names[0] if same else _arrays.save(Path(f'{req["path"]}.{k}'), _shaped(loaded.plan, outs)))
    return {'outputs':names, 'found':[f.to_dict() for f in found], 'seconds':time.perf_counter()-t}

def _shaped(plan:Plan, outs:list)->list:
    "Raw bytes of the outputs as arrays"
    return [a.view(_raw_dtype(b.dtype)).reshape(b.shape) for a,b in zip(outs, (plan.buffers[i] for i in plan.outputs))]

def _raw_dtype(dtype:str)->str: return 'uint16' if dtype=='bfloat16' else dtype

def _baseline(req:dict):
    "PyTorch's reference on inputs of its own: as called, and captured as a graph on our stream"
    import torch
    key = Task.from_dict(req['task']).id,req['shape']
    if key in S.baselines: return S.baselines[key]
    if torch.cuda.memory_allocated()>BASELINE_BYTES: S.baselines.clear(); torch.cuda.empty_cache()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    call = Reference(Task.from_dict(req['task']), req['shape'], 'cuda').callable(arrays=_arrays.load(req['baseline']))
    stream = torch.cuda.ExternalStream(S.watch.stream.ptr)
    graph,keep,why = torch.cuda.CUDAGraph(),None,''
    with D.gpu_lock(), torch.no_grad():
        with torch.cuda.stream(stream):
            for _ in range(3): call()
        stream.synchronize()
        try:
            with torch.cuda.graph(graph, stream=torch.cuda.Stream()): keep = call()
        except Exception as e: why = str(e) or type(e).__name__
        torch.cuda.synchronize()
    def eager():
        with torch.cuda.stream(stream), torch.no_grad(): call()
    def replay():
        with torch.cuda.stream(stream): graph.replay()
    S.baselines[key] = {'eager':eager, **({} if why else {'eager_graph':replay})}, keep, why
    return S.baselines[key]

def timed(req:dict)->dict:
    "One process's share of a timing: ABBA rounds of the candidate and the baseline; then, if asked, each alone, warm, and eager PyTorch as called"
    t = time.perf_counter()
    S.key = None # a fresh copy: new addresses, and nothing that an earlier run left in `__device__` variables
    loaded,inputs = _load(req),_arrays.load(req['inputs'])
    baselines,_,why = _baseline(req)
    m,w,plan = loaded.memory,S.watch,loaded.plan
    m.upload(inputs)
    with on_gpu(req['deadline']):
        m.poison()
        loaded.launch(w.stream); w.stream.synchronize()
        graph = D.capture(loaded, w.stream)
    rng = np.random.default_rng(req['order_seed'])
    marks = _fresh.draw_marks(req['samples'], rng) # Which runs are compared with the answer
    anew,copies = _fresh.Fresh(m, S.anew, w.stream),[D.Copies(m, plan.outputs, w.stream) for _ in range(len(marks)+1)]
    taken:list[int] = []
    ours,theirs,eager = (lambda: graph.launch(w.stream)),baselines.get('eager_graph', baselines['eager']),baselines['eager']
    count = 0
    def clock(run, cold:bool=True):
        nonlocal count
        mark = marks.get(count) if run is ours else None
        def before(): # Outputs filled and values never seen before, each time alike: nothing tells which run is looked at
            m.poison(0xff, w.stream.ptr, guards=False)
            if run is ours: anew(int(rng.integers(1<<62))<<1 if mark is None else req['fresh'][mark])
        ms = w.one(run, before, cold, hold=run is not eager)
        if mark is not None: copies[mark].copy(); taken.append(mark)
        count += run is ours
        return ms
    with on_gpu(req['deadline'], alone=True) as idle:
        start = time.perf_counter()
        warm_until = time.monotonic()+(HOT_SECONDS if idle<.05 else WARM_SECONDS)
        while time.monotonic()<warm_until: w.one(theirs); w.one(ours)
        b = bench(ours, theirs, clock, samples=req['samples'], min_ms=req['min_ms'], cap_s=req['cap_s'], seed=req['order_seed'], res=S.resolution)
        beside = _beside(clock, ours, theirs, eager, max(6, len(b.a)//4)) if req['beside'] else {}
        marks = {count:len(copies)-1} # The last, too
        clock(ours)
        held = time.perf_counter()-start
    anew.back()
    found = m.broken_guards()+m.changed(inputs)
    seen = [[req['fresh'][k], _arrays.save(Path(f'{req["path"]}.{k}'), _shaped(plan, copies[k].download()))] for k in taken]
    anew.free()
    for c in copies: c.free()
    return {'bench':b.to_dict(), **beside, 'marks':seen, 'found':[f.to_dict() for f in found], 'uncapturable':why, 'held':held, 'seconds':time.perf_counter()-t}

def _beside(clock, ours, theirs, eager, n:int)->dict:
    "The same two one at a time, with a warm cache, and PyTorch as called"
    return {'solo':[[clock(f) for _ in range(n)] for f in (ours, theirs)], 'warm':[[clock(f, cold=False) for _ in range(n)] for f in (ours, theirs)], 'eager':[clock(eager) for _ in range(n)]}

OPS = {'device':device, 'run':run, 'timed':timed}

def handle(req:dict)->dict:
    try:
        a = OPS[req['op']](req)
        _unload()
        return a
    except D.LaunchError as e: return {'failed':e.finding.to_dict()}
    except MemoryError as e: return {'failed':Finding('out_of_memory', str(e)).to_dict()}
    except Exception as e:
        f = D.cuda_finding(e)
        return {'failed':f.to_dict()} if 'CUDA' in str(e) or 'cuda' in str(e) else {'broken':f'{type(e).__name__}: {e}'}

def setup():
    "Open the device and prove with a known kernel that it works"
    threading.Thread(target=__import__, args=('torch',), daemon=True).start() # the first timing needs it
    S.gpu = D.cuda_device()
    D.probe(S.gpu.arch)
    S.watch = D.Stopwatch(S.gpu.l2_bytes)
    S.anew = _fresh.functions(S.gpu.arch)
    with D.gpu_lock(alone=True): S.resolution = resolution(S.watch.one)

if __name__=='__main__': serve(handle, setup)
