"""The process that owns a CUDA context: it launches Plans on inputs that it is handed, and times them. It never holds the right answer to the inputs a candidate works on.

In the timing stage PyTorch's baseline runs in this process too, but on inputs drawn from another seed, so that the answer to the candidate's inputs is still nowhere in its context.
"""
import time
from pathlib import Path
import numpy as np
from kernelrl import _arrays, device as D
from kernelrl._worker import serve
from kernelrl.core import Finding
from kernelrl.program import Plan
from kernelrl.task import Reference, Task
from kernelrl.timing import bench, resolution

class State:
    "What this process holds"
    loaded:D.Loaded|None = None
    key:tuple|None = None
    watch:D.Stopwatch
    gpu:D.Device
    resolution:float
    baselines:dict[tuple,tuple] = {}

S = State()
WARM_SECONDS = .1
BASELINE_BYTES = 8<<30 # PyTorch's share, before it starts anew

def _load(req:dict)->D.Loaded:
    "Load a Plan, or keep the one that is loaded"
    plan = Plan.from_dict(req['plan'])
    key = plan.id,tuple(len(c['image']) for c in req['cubins'])
    if S.key!=key:
        if S.loaded: S.loaded.free()
        S.loaded = S.key = None
        S.loaded = D.Loaded(plan, [D.Cubin.from_dict(c) for c in req['cubins']])
        S.key = key
    assert S.loaded
    return S.loaded

def device(req): return {'device':S.gpu.to_dict()}

def run(req):
    "Run a Plan twice on the same inputs with different poison"
    t = time.perf_counter()
    loaded,inputs = _load(req),_arrays.load(req['inputs'])
    first,found = D.run_once(loaded, inputs, 0xff, D.gpu_lock)
    second,more = D.run_once(loaded, inputs, 0x7f, D.gpu_lock)
    plan = loaded.plan
    shaped = [[a.view(_raw_dtype(plan.buffers[i].dtype)).reshape(plan.buffers[i].shape) for a,i in zip(outs, plan.outputs)] for outs in (first,second)]
    names = [_arrays.save(Path(f'{req["path"]}.{k}'), outs) for k,outs in enumerate(shaped)]
    return {'outputs':names, 'found':[f.to_dict() for f in (*found,*more)], 'seconds':time.perf_counter()-t}

def _raw_dtype(dtype:str)->str: return 'uint16' if dtype=='bfloat16' else dtype

def _baseline(req:dict):
    "PyTorch's reference on inputs of its own: as called, and captured as a graph on our stream"
    import torch
    key = Task.from_dict(req['task']).id,req['shape']
    if key in S.baselines: return S.baselines[key]
    if torch.cuda.memory_allocated()>BASELINE_BYTES: S.baselines.clear(); torch.cuda.empty_cache()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    call = Reference(Task.from_dict(req['task']), req['shape'], 'cuda').callable(req['baseline_seed'])
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

def timed(req):
    "One process's share of a timing: ABBA rounds of the candidate and the baseline, then each alone, warm, and eager PyTorch as called"
    S.key = None # a fresh copy: new addresses, and nothing that an earlier run left in `__device__` variables
    loaded,inputs = _load(req),_arrays.load(req['inputs'])
    baselines,_,why = _baseline(req)
    m,w,outputs = loaded.memory,S.watch,loaded.plan.outputs
    m.upload(inputs)
    with D.gpu_lock():
        m.poison()
        loaded.launch(w.stream); w.stream.synchronize()
        graph = D.capture(loaded, w.stream)
    kept = D.Copies(m, outputs, w.stream)
    ours,theirs = (lambda: graph.launch(w.stream)),baselines.get('eager_graph', baselines['eager'])
    with D.gpu_lock(alone=True):
        peek,count = int(np.random.default_rng(req['order_seed']).integers(20)),[0]
        def clock(run):
            last = run is ours and count[0]>peek
            ms = w.one(run, lambda: m.poison(0x7f if last else 0xff, w.stream.ptr), hold=run is not baselines['eager'])
            if run is ours:
                if count[0]==peek: kept.copy()
                count[0] += 1
            return ms
        end = time.monotonic()+WARM_SECONDS # a device that was idle runs slowly at first
        while time.monotonic()<end: w.one(theirs); w.one(ours)
        b = bench(ours, theirs, clock, samples=req['samples'], min_ms=req['min_ms'], cap_s=req['cap_s'], seed=req['order_seed'], res=S.resolution)
        few = max(6, len(b.a)//4)
        solo = [[clock(f) for _ in range(few)] for f in (ours, theirs)]
        warm = D.sample_warm(w, {'candidate':ours, 'baseline':theirs}, few)
        eager = [w.one(baselines['eager'], hold=False) for _ in range(few)]
        clock(ours)
    stash = [kept.download(), [m.download(i) for i in outputs]] # of one timed replay in the middle, and of the last
    found = m.broken_guards()
    kept.free()
    bufs = [loaded.plan.buffers[i] for i in outputs]
    out = _arrays.save(Path(req['path']), [a.view(_raw_dtype(d.dtype)).reshape(d.shape) for outs in stash for a,d in zip(outs,bufs)])
    return {'bench':b.to_dict(), 'solo':solo, 'warm':warm, 'eager':eager, 'outputs':out, 'found':[f.to_dict() for f in found], 'uncapturable':why}

OPS = {'device':device, 'run':run, 'timed':timed}

def handle(req:dict)->dict:
    try: return OPS[req['op']](req)
    except D.LaunchError as e: return {'failed':e.finding.to_dict()}
    except MemoryError as e: return {'failed':Finding('out_of_memory', str(e)).to_dict()}
    except Exception as e:
        f = D.cuda_finding(e)
        return {'failed':f.to_dict()} if 'CUDA' in str(e) or 'cuda' in str(e) else {'broken':f'{type(e).__name__}: {e}'}

def setup():
    "Open the device and prove with a known kernel that it works"
    S.gpu = D.cuda_device()
    D.probe(S.gpu.arch)
    S.watch = D.Stopwatch(S.gpu.l2_bytes)
    with D.gpu_lock(alone=True): S.resolution = resolution(S.watch.one)

if __name__=='__main__': serve(handle, setup)
