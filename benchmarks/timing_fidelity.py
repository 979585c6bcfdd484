"""Can the clock be believed? The same kernel against itself, and a kernel of known length, through the clock of the judge and through two others.

    python benchmarks/timing_fidelity.py              # on a GPU: writes data/benchmarks/timing_fidelity.json
    python benchmarks/timing_fidelity.py --device host --processes 3 --out /tmp/t.json      # the same path with a clock made of sleeps and noise: a test of this script, not of a clock

Each process is fresh, opens the device as a launcher does and uses its parts: `Stopwatch`, `Loaded`, graphs, `timing.bench`, `timing.speedup`. The next processes start up while one measures, and measure one at a time.

* A/A: `y = 2x+1` at about 5 us, 50 us and 1 ms, loaded twice, at two places in memory. Each comparison is one run of `bench` as the protocols `quick` and `standard` ask; its 95 % interval should hold 1.0. Comparisons across three processes,
  as `strict` makes them, are formed from the same samples. `aa_coverage` is the share of all intervals that hold 1.0;
  `aa_coverage_without_between` the share if one process is taken to know all, without the 0.5 % that `timing` assumes to lie between processes. `aa_spread_50us`: the largest ratio of a process minus the smallest, over all processes, each at its first `standard` comparison.
* Spin: one thread that waits until its multiprocessor's clock has advanced by a given count. The length is that count over the clock's frequency, which the same kernel measures against the device's nanosecond timer over 20 ms. Every launch of a
  graph has a cost of its own; the reading of the same kernel told to wait for nothing is subtracted, and is given as `launch_us`. `spin_error` is the worst over the lengths of |reading - launch - length| / max(length, 15 us): 0.02 is
  then 2 %, or 0.3 us for what is shorter than 15 us.
* `cupyx.profiler.benchmark` (mean) and `triton.testing.do_bench` (median) measure the same kernels twice in the same processes: rows with their spread, and their spin error by the same rule and without the subtraction.
"""
import json, os, subprocess, sys, time
from pathlib import Path
import numpy as np
from _common import Clock, options, result, save, say
from kernelrl import timing as T
from kernelrl.core import derive_seed
from kernelrl.verify import PROTOCOLS

SIZES = {'5us':1<<18, '50us':14_000_000, '1ms':530_000_000} # Elements of y = 2x+1, cold, on a device that moves about 4.3 TB/s
SPINS = (2,5,10,20,50,100,1000) # Microseconds
LIN = 'extern "C" __global__ void lin(const float* x, float* y, int n) { int i = blockIdx.x*blockDim.x+threadIdx.x; if (i<n) y[i] = 2.f*x[i]+1.f; }'
SPIN = r'''extern "C" __global__ void spin(long long* out, long long cycles) {
    unsigned long long a, b; long long t = clock64();
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(a));
    while (clock64()-t < cycles);
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(b));
    out[0] = clock64()-t; out[1] = (long long)(b-a);
}'''

# ---------------------------------------------------------------- a process that measures
class Cuda:
    "Kernels and clock as a launcher has them"
    def __init__(self):
        from kernelrl import device as D
        from kernelrl._launcher import HOT_SECONDS, WARM_SECONDS
        self.D,self.warm_seconds = D,(WARM_SECONDS,HOT_SECONDS)
        self.gpu = D.cuda_device()
        self.watch = D.Stopwatch(self.gpu.l2_bytes)
        self.code = {n:D.compile_module(_module(s), [n], self.gpu.arch) for n,s in (('lin',LIN),('spin',SPIN))}
        self.name,self.others = repr(self.gpu),self._others()
    def lock(self): return self.D.gpu_lock(alone=True)
    def resolution(self)->float: return T.resolution(self.watch.one)
    def lin(self, n:int):
        from kernelrl.program import Arg, Buffer, Launch
        bufs = Buffer('x','input',(n,),'float32'),Buffer('out0','output',(n,),'float32')
        return self._ready('lin', bufs, Launch('lin',0,(-(-n//256),1,1),(256,1,1),0,(Arg('float*',0),Arg('float*',1),Arg('int',value=n))), (1,))
    def spin(self, cycles:int):
        from kernelrl.program import Arg, Buffer, Launch
        return self._ready('spin', (Buffer('out0','output',(2,),'int64'),), Launch('spin',0,(1,1,1),(1,1,1),0,(Arg('long*',0),Arg('long',value=cycles))), (0,))
    def _ready(self, name:str, buffers:tuple, launch, outputs:tuple):
        from kernelrl.program import Plan
        loaded = self.D.Loaded(Plan((_module(LIN if name=='lin' else SPIN),), buffers, (launch,), outputs), [self.code[name]])
        from cupy.cuda import runtime
        loaded.memory.poison()
        for i in loaded.plan.role('input'): runtime.memset(loaded.memory.ptr(i), 0x3f, loaded.plan.buffers[i].nbytes) # 0.747 everywhere
        loaded.launch(self.watch.stream); self.watch.stream.synchronize()
        return Kernel(loaded, self.D.capture(loaded, self.watch.stream), self.watch)
    def warm(self, kernel):
        end = time.monotonic()+self.warm_seconds[0]
        while time.monotonic()<end: self.watch.one(kernel)
    def clock(self, kernel, candidate)->float:
        "As the launcher calls it: the outputs of the candidate are filled before each run, whoever's run it is"
        return self.watch.one(kernel, candidate.poison)
    def _others(self)->dict:
        "The clocks of others: name -> a function that measures a kernel, in milliseconds"
        from cupyx.profiler import benchmark
        def cupyx(k):
            with self.watch.stream: return float(benchmark(k.launch, n_repeat=60, n_warmup=5).gpu_times.mean()*1e3)
        out = {'cupyx.profiler.benchmark':cupyx}
        try:
            import torch
            from triton.testing import do_bench
            stream = torch.cuda.ExternalStream(self.watch.stream.ptr)
            def triton(k):
                with torch.cuda.stream(stream): return float(do_bench(k.launch, warmup=5, rep=30, return_mode='median'))
            out['triton.testing.do_bench'] = triton
        except ImportError: pass
        return out

class Kernel:
    "A loaded kernel: called, it replays its graph"
    def __init__(self, loaded, graph, watch): self.loaded,self.graph,self.watch = loaded,graph,watch
    def __call__(self): self.graph.launch(self.watch.stream)
    def launch(self): self.loaded.launch(self.watch.stream)
    def poison(self): self.loaded.memory.poison(0xff, self.watch.stream.ptr, guards=False)
    def read(self): self.watch.stream.synchronize(); return self.loaded.memory.download(0).view('i8').copy()
    def free(self): self.loaded.free()

def _module(source:str):
    from kernelrl.program import Module
    return Module(source)

class Pretend:
    "A clock made of numbers: what the script itself can be tested with"
    name = 'pretended (no device: this tests the script)'
    def __init__(self):
        self.rng,self.ghz = np.random.default_rng(os.getpid()),1.98
        self.others = {'another clock':lambda k: self._noisy(k())+.004}
    def lock(self): import contextlib; return contextlib.nullcontext()
    def resolution(self)->float: return T.resolution(lambda run: self._noisy(.0015))
    def _noisy(self, ms:float)->float: return ms*(1+.004*self.rng.standard_normal())
    def lin(self, n:int): return lambda: n*8/4.3e9+.0025
    def spin(self, cycles:int):
        k = lambda: (cycles+700)/self.ghz*1e-6+.0025
        k.read = lambda: np.array([cycles+700, round((cycles+700)/self.ghz)])
        return k
    def warm(self, kernel): pass
    def clock(self, kernel, candidate)->float: return self._noisy(kernel())

def measure(dev, seed:int, repeats:int)->dict:
    "All that one process measures"
    out:dict = {'device':dev.name, 'aa':[], 'others':[], 'spin':[]}
    with dev.lock():
        res = out['resolution_us'] = dev.resolution()*1e3
        for size,n in SIZES.items():
            a,b = dev.lin(n),dev.lin(n)
            dev.warm(a)
            for r in range(repeats):
                for name in ('standard','quick'):
                    p = PROTOCOLS[name]
                    x = T.bench(a, b, lambda k: dev.clock(k, a), samples=p.samples, min_ms=p.min_ms, cap_s=2., seed=derive_seed('aa', seed, size, r, name)%2**32, res=res/1e3)
                    out['aa'].append({'size':size, 'protocol':name, 'repeat':r, 'a':[round(v,6) for v in x.a], 'b':[round(v,6) for v in x.b], 'stopped':x.stopped, 'found':[f.kind for f in x.findings]})
            for tool,f in dev.others.items(): out['others'].append({'size':size, 'tool':tool, 'ms':[f(a), f(b)]})
            for k in (a,b): getattr(k, 'free', lambda: None)()
        long = dev.spin(int(20e-3*1.98e9))
        for _ in range(2): dev.clock(long, long)
        cycles,ns = long.read()
        ghz = out['ghz'] = float(cycles)/float(ns)
        ask = lambda us: dev.spin(int(us*1e3*ghz))
        idle = ask(0)
        few = lambda k: float(np.median([dev.clock(k, k) for _ in range(25)]))*1e3
        dev.warm(idle)
        out['launch_us'] = few(idle)
        none,_ = idle.read() # Reading the clocks takes its time too
        for us in SPINS:
            k = ask(us)
            reading = few(k)
            cycles,_ = k.read() # What it did wait, a loop's turn more than asked for
            out['spin'].append({'us':float(cycles-none)/ghz/1e3, 'reading_us':reading, 'others':{tool:f(k)*1e3 for tool,f in dev.others.items()}})
    return out

def child(a):
    dev = {'cuda':Cuda, 'host':Pretend}[a.device]()
    print('ready', flush=True)
    sys.stdin.readline()
    print(json.dumps(measure(dev, a.child, a.repeats)), flush=True)
    os._exit(0)

# ---------------------------------------------------------------- all of them
def run(a, clock:Clock)->list[dict]:
    "One process after the other; two more are starting while one measures"
    start = lambda k: subprocess.Popen([sys.executable, __file__, '--child', str(k), '--device', a.device, '--repeats', str(a.repeats)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    waiting,out,n = [start(k) for k in range(min(3, a.processes))],[],min(3, a.processes)
    while waiting:
        p = waiting.pop(0)
        try:
            if clock.over: say('no time is left for more processes'); p.kill(); continue
            if p.stdout.readline().strip()!='ready': raise SystemExit('a process did not start; see above')
            p.stdin.write('go\n'); p.stdin.flush()
            out.append(json.loads(p.stdout.readline()))
            say(f'process {len(out)} of {a.processes}: resolution {out[-1]["resolution_us"]:.2f} us, a launch {out[-1]["launch_us"]:.2f} us, {out[-1]["ghz"]:.4f} GHz')
        finally: p.stdin.close(); p.wait()
        if n<a.processes and not clock.over: waiting.append(start(n)); n += 1
    return out

def intervals(procs:list[dict])->list[dict]:
    "Every comparison with its interval: in one process each, and across three"
    rows = []
    def add(size, protocol, A, B, k, **more):
        s = T.speedup(A, B, 'itself')
        lo,hi = (np.exp(v) for v in T.median_interval(T.rounds(np.array(A[0]), np.array(B[0])))[1:])
        rows.append({'size':size, 'protocol':protocol, 'processes':k, 'ratio':round(s.ratio,5), 'lo':round(s.lo,5), 'hi':round(s.hi,5), 'holds':s.lo<=1<=s.hi, 'bare':bool(lo<=1<=hi) if k==1 else None, 'us':round(float(np.median(np.concatenate(A)))*1e3,3), **more})
    for i,p in enumerate(procs):
        for x in p['aa']: add(x['size'], x['protocol'], [x['a']], [x['b']], 1, process=i, repeat=x['repeat'], stopped=x['stopped'], found=x['found'])
    for g in range(len(procs)//3):
        for x in zip(*(p['aa'] for p in procs[3*g:3*g+3])):
            if x[0]['protocol']=='standard': add(x[0]['size'], 'standard', [y['a'] for y in x], [y['b'] for y in x], 3, process=f'{3*g}-{3*g+2}', repeat=x[0]['repeat'])
    return rows

def spread(values)->float: return round(float(max(values)-min(values)), 5) if len(values) else float('nan')

def wrong_by(us:float, reading:float)->float: return abs(reading-us)/max(us, 15.)

def write_samples(path:Path, procs:list[dict]):
    "Every single reading, for whoever wants to compute all of it again"
    import pyarrow as pa, pyarrow.parquet as pq
    flat = [(i, x['size'], x['protocol'], x['repeat'], who, k, ms) for i,p in enumerate(procs) for x in p['aa'] for who in 'ab' for k,ms in enumerate(x[who])]
    pq.write_table(pa.table(dict(zip(('process','size','protocol','repeat','which','order','ms'), map(list, zip(*flat))))), path, compression='zstd')

def report(procs:list[dict])->tuple[dict,list]:
    "Figures and rows"
    rows = intervals(procs)
    share = lambda keep: round(float(np.mean([r['holds'] for r in rows if keep(r)])), 4)
    first = lambda size: [r['ratio'] for r in rows if r['size']==size and r['protocol']=='standard' and r['processes']==1 and r['repeat']==0]
    spins = [{'us':round(s['us'],3), 'reading_us':round(s['reading_us'],3), 'launch_us':round(p['launch_us'],3), 'error':round(wrong_by(s['us'], s['reading_us']-p['launch_us']),5), 'process':i} for i,p in enumerate(procs) for s in p['spin']]
    lengths = sorted({round(s['us']) for s in spins})
    by = {l:float(np.median([s['error'] for s in spins if round(s['us'])==l])) for l in lengths}
    figures = {'aa_coverage':share(lambda r: True), 'intervals':len(rows), 'aa_coverage_one_process':share(lambda r: r['processes']==1), 'aa_coverage_three_processes':share(lambda r: r['processes']==3) if len(procs)>2 else None,
        **{f'aa_spread_{s}':spread(first(s)) for s in SIZES}, 'aa_coverage_without_between':round(float(np.mean([r['bare'] for r in rows if r['processes']==1])),4), 'half_width_50us':round(float(np.median([(r['hi']-r['lo'])/2 for r in rows if r['size']=='50us' and r['processes']==1])),5), 'spin_error':round(max(by.values()),5), 'spin_error_worst_single':max(s['error'] for s in spins),
        'launch_us':round(float(np.median([p['launch_us'] for p in procs])),3), 'resolution_us':round(float(np.median([p['resolution_us'] for p in procs])),3), 'processes':len(procs)}
    tools = []
    for tool in dict.fromkeys(o['tool'] for p in procs for o in p['others']):
        pairs = {s:[o['ms'] for p in procs for o in p['others'] if o['tool']==tool and o['size']==s] for s in SIZES}
        tools.append({'tool':tool, **{f'us_{s}':round(float(np.median(v))*1e3,2) for s,v in pairs.items()}, **{f'aa_spread_{s}':spread([b/a for a,b in v]) for s,v in pairs.items()},
            'spin_error_raw':round(max(float(np.median([wrong_by(s['us'], s['others'][tool]) for p in procs for s in p['spin'] if round(s['us'])==l])) for l in lengths),4), 'spin_10us_read_as':round(float(np.median([s['others'][tool] for p in procs for s in p['spin'] if round(s['us'])==10])),3)})
    own = {'tool':'kernelrl', **{f'us_{s}':round(float(np.median([r['us'] for r in rows if r['size']==s])),2) for s in SIZES}, **{f'aa_spread_{s}':spread(first(s)) for s in SIZES},
        'spin_error_raw':round(max(float(np.median([wrong_by(s['us'], s['reading_us']) for s in spins if round(s['us'])==l])) for l in lengths),4), 'spin_10us_read_as':round(float(np.median([s['reading_us'] for s in spins if round(s['us'])==10])),3)}
    return figures,[own,*tools,*({'kind':'spin', **s} for s in spins),*({'kind':'aa', **r} for r in rows)]

def main():
    p = options(__doc__, 'timing_fidelity', 150)
    p.add_argument('--device', default='cuda', choices=['cuda','host'])
    p.add_argument('--processes', type=int, default=10)
    p.add_argument('--repeats', type=int, default=3, help='comparisons of each kind in a process')
    p.add_argument('--child', type=int, default=None, help='(used by the script itself)')
    a = p.parse_args()
    if a.child is not None: return child(a)
    clock = Clock(a.limit_seconds)
    procs = run(a, clock)
    if len(procs)<2: raise SystemExit('fewer than two processes measured: there is nothing to report')
    figures,rows = report(procs)
    save(a.out, result(f'{procs[0]["device"]}', f'python benchmarks/timing_fidelity.py --processes {a.processes} --repeats {a.repeats}', 'cold L2, graphs, ABBA as in quick and standard; processes one at a time on a device that nobody else uses', list(range(len(procs))), {**figures, 'seconds':round(clock.seconds,1)}, rows))
    write_samples(a.out.with_name(a.out.stem+'_samples.parquet'), procs)
    for r in rows[:3]: print(r)

if __name__=='__main__': main()
