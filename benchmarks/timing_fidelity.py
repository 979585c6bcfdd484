"""Can the clock be believed? The same kernel against itself, and a kernel of known length, through the clock of the judge and through two others.

    python benchmarks/timing_fidelity.py              # on a GPU: writes data/benchmarks/timing_fidelity.json, about a minute
    python benchmarks/timing_fidelity.py --device host --processes 3 --out /tmp/t.json      # the same path with a clock made of sleeps and noise: a test of this script, not of a clock

Each process is fresh, opens the device as a launcher does and uses its parts: `Stopwatch`, `Loaded`, graphs, `Fresh`, `timing.bench`, `timing.speedup`. All of them are started first; then one after the other measures, while nothing starts and nobody else runs.

* A/A: `y = 2x+1` at about 5 us, 50 us and 1 ms, on random numbers. For every comparison both are loaded anew, at other places in memory; before each run outputs are filled, and the candidate's inputs made anew, as the launcher does. Each comparison
  is one run of `bench` as the protocols `quick` and `standard` ask; its 95 % interval should hold 1.0. Comparisons across three processes, as `strict` makes them, are formed from the same samples, each process in one of them.
  `aa_coverage` is the share of all intervals that hold 1.0, `aa_coverage_lo` and `_hi` its own 95 % interval (Wilson; it takes the comparisons for independent, though those of one process share a device in one state).
  What to expect: exact 95 % intervals hold 1.0 in 95 % of comparisons on average. With the defaults there are 345: independent ones would give 92.7 to 97.3 % nineteen times out of twenty, and 95 % or more only about every second time.
  The judge's intervals are wider than exact ones by design: ranks come in steps (medians of 10, 12, 15 and 25 rounds: 97.9, 96.1, 96.5, 95.7 %), and to one process 0.5 % is added for what differs from load to load. If that is less than
  0.5 % (`pair_sd_*`: the standard deviation of the log ratio over all pairs that were loaded), nearly every interval must hold 1.0; if it is more, fewer than 95 % will. So read `aa_coverage` beside `half_width_*`: it could be bought with width.
  `aa_coverage_without_between` is the share if one process is taken to know all, without the 0.5 %. `aa_coverage_all_triples` forms every three of the processes instead of disjoint ones: the same expectation, less noise, not independent.
  `aa_spread_50us`: the largest ratio of a process minus the smallest, over all processes, each at its first `standard` comparison.
* Spin: one thread that waits until its multiprocessor's clock has advanced by a given count. The length is that count over the clock's frequency, which the same kernel measures against the device's nanosecond timer over 20 ms, before the lengths and
  after them (`clock_moved`: the largest relative difference). Every launch of a graph has a cost of its own; the reading of the same kernel told to wait for nothing is subtracted, and is given as `launch_us`.
  `spin_error` is the worst over the lengths of |reading - launch - length| / max(length, 15 us), the median of the processes at each length: 0.02 is then 2 %, or 0.3 us for what is shorter than 15 us.
* `cupyx.profiler.benchmark` (mean) and `triton.testing.do_bench` (median) measure the same kernels twice in the same processes: rows with their spread, and their spin error by the same rule and without the subtraction.
"""
import json, os, subprocess, sys, threading, time
from itertools import combinations
from pathlib import Path
import numpy as np
from _common import Clock, options, result, save, say
from kernelrl import timing as T
from kernelrl.core import derive_seed
from kernelrl.intervals import wilson
from kernelrl.verify import PROTOCOLS

SIZES = {'5us':1<<18, '50us':14_000_000, '1ms':530_000_000} # Elements of y = 2x+1, cold, on a device that moves about 4.3 TB/s
SPINS = (1,2,5,10,20,50,100,1000) # Microseconds
START_SECONDS,MEASURE_SECONDS = 150.,60. # A process that takes longer is given up
LIN = 'extern "C" __global__ void lin(const float* x, float* y, int n) { int i = blockIdx.x*blockDim.x+threadIdx.x; if (i<n) y[i] = 2.f*x[i]+1.f; }'
NOISE = r'''extern "C" __global__ void noise(float* x, unsigned n, unsigned seed) {
    for (unsigned i = blockIdx.x*blockDim.x+threadIdx.x; i < n; i += gridDim.x*blockDim.x) {
        unsigned h = i*0x9e3779b9u+seed; h ^= h >> 16; h *= 0x85ebca6bu; h ^= h >> 13; h *= 0xc2b2ae35u; h ^= h >> 16;
        x[i] = h*0x1p-32f-.5f;
    }
}'''
SPIN = r'''extern "C" __global__ void spin(long long* out, long long cycles) {
    unsigned long long a, b; long long t = clock64();
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(a));
    while (clock64()-t < cycles);
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(b));
    out[0] = clock64()-t; out[1] = (long long)(b-a);
}'''

# ---------------------------------------------------------------- a process that measures
class Cuda:
    "Kernels and clock as a launcher has them"
    def __init__(self):
        from cupy.cuda import function, runtime
        from kernelrl import _fresh, device as D
        from kernelrl._launcher import HOT_SECONDS, WARM_SECONDS
        from kernelrl.nvrtc import compile_module
        self.D,self.fresh,self.runtime,self.warm_seconds,self.last = D,_fresh,runtime,(HOT_SECONDS,WARM_SECONDS),0.
        self.gpu = D.cuda_device()
        self.watch = D.Stopwatch(self.gpu.l2_bytes)
        self.code = {n:compile_module(_module(s), [n], self.gpu.arch) for n,s in (('lin',LIN),('noise',NOISE),('spin',SPIN))}
        self.anew,self.module = _fresh.functions(self.gpu.arch),function.Module()
        self.module.load(self.code['noise'].image)
        self.noise,self.rng = self.module.get_function('noise'),np.random.default_rng(os.getpid())
        self.name,self.others = repr(self.gpu),self._others()
    def lock(self): return self.D.gpu_lock(alone=True)
    def resolution(self)->float: return T.resolution(self.watch.one)
    def pair(self, n:int, other_way:bool)->tuple: # (candidate, baseline)
        "The same kernel twice, loaded in one order or the other; the candidate's inputs are made anew before its runs"
        ks = [self._lin(n) for _ in range(2)]
        a,b = ks[::-1] if other_way else ks
        a.anew = self.fresh.Fresh(a.loaded.memory, self.anew, self.watch.stream)
        self.runtime.deviceSynchronize() # Our stream does not wait for the default one, on which memory was filled and copied
        return a,b
    def _lin(self, n:int):
        from kernelrl.program import Arg, Buffer, Launch
        bufs = Buffer('x','input',(n,),'float32'),Buffer('out0','output',(n,),'float32')
        return self._ready('lin', LIN, bufs, Launch('lin',0,(-(-n//256),1,1),(256,1,1),0,(Arg('float*',0),Arg('float*',1),Arg('int',value=n))), (1,))
    def spin(self, cycles:int):
        from kernelrl.program import Arg, Buffer, Launch
        return self._ready('spin', SPIN, (Buffer('out0','output',(2,),'int64'),), Launch('spin',0,(1,1,1),(1,1,1),0,(Arg('long*',0),Arg('long',value=cycles))), (0,))
    def _ready(self, name:str, source:str, buffers:tuple, launch, outputs:tuple):
        from kernelrl.program import Plan
        loaded = self.D.Loaded(Plan((_module(source),), buffers, (launch,), outputs), [self.code[name]])
        loaded.memory.poison(0xff, self.watch.stream.ptr)
        for i in loaded.plan.role('input'):
            self.noise((2048,), (256,), [np.uint64(loaded.memory.ptr(i)), np.uint32(buffers[i].shape[0]), np.uint32(self.rng.integers(1<<32))], 0, self.watch.stream)
        loaded.launch(self.watch.stream); self.watch.stream.synchronize()
        return Kernel(loaded, self.D.capture(loaded, self.watch.stream), self.watch)
    def warm(self, a, b):
        "As the launcher does: longer where the device has been idle"
        end = time.monotonic()+self.warm_seconds[time.monotonic()-self.last>=.05]
        while time.monotonic()<end: self.watch.one(b); self.watch.one(a)
    def clock(self, kernel, candidate)->float:
        "As the launcher calls it: the outputs of the candidate are filled before each run, whoever's run it is, and its inputs have new values in its own"
        def before():
            candidate.poison()
            if kernel is candidate and candidate.anew: candidate.anew(int(self.rng.integers(1<<62))<<1)
        ms = self.watch.one(kernel, before)
        self.last = time.monotonic()
        return ms
    def _others(self)->dict:
        "The clocks of others: name -> a function that measures a kernel, in milliseconds; one that does not work here is left out, and said so"
        out = {}
        for name,make in (('cupyx.profiler.benchmark',self._cupyx), ('triton.testing.do_bench',self._triton)):
            try: out[name] = make()
            except Exception as e: say(f'{name}: left out ({type(e).__name__}: {e})')
        return out
    def _cupyx(self):
        from cupyx.profiler import benchmark
        def measure(run):
            with self.watch.stream: return float(benchmark(run, n_repeat=60, n_warmup=5).gpu_times.mean()*1e3)
        measure(lambda: None)
        return lambda k: measure(k.launch)
    def _triton(self):
        import torch
        from triton.testing import do_bench
        stream = torch.cuda.ExternalStream(self.watch.stream.ptr)
        def measure(run):
            with torch.cuda.stream(stream): return float(do_bench(run, warmup=5, rep=30, return_mode='median'))
        measure(lambda: None) # The first call builds its driver
        return lambda k: measure(k.launch)

class Kernel:
    "A loaded kernel: called, it replays its graph"
    def __init__(self, loaded, graph, watch): self.loaded,self.graph,self.watch,self.anew = loaded,graph,watch,None
    def __call__(self): self.graph.launch(self.watch.stream)
    def launch(self): self.loaded.launch(self.watch.stream)
    def poison(self): self.loaded.memory.poison(0xff, self.watch.stream.ptr, guards=False)
    def read(self): self.watch.stream.synchronize(); return self.loaded.memory.download(0).view('i8').copy()
    def free(self):
        self.watch.stream.synchronize()
        self.loaded.free()
        if self.anew: self.anew.free()

def _module(source:str):
    from kernelrl.program import Module
    return Module(source)

class Pretend:
    "A clock made of numbers: what the script itself can be tested with"
    name = 'pretended (no device: this tests the script)'
    between,noise,wrong = .002,.004,0. # What differs from load to load, from run to run, and how much too long all is read
    def __init__(self):
        self.rng,self.ghz = np.random.default_rng(os.getpid()),1.98
        self.others = {'another clock':lambda k: self._noisy(k())+.004}
    def lock(self): import contextlib; return contextlib.nullcontext()
    def resolution(self)->float: return T.resolution(lambda run: self._noisy(.0015))
    def _noisy(self, ms:float)->float: return ms*(1+self.wrong+self.noise*self.rng.standard_normal())
    def pair(self, n:int, other_way:bool)->tuple:
        here = 1+self.between*self.rng.standard_normal()
        return (lambda: (n*8/4.3e9+.0025)*here),(lambda: n*8/4.3e9+.0025)
    def spin(self, cycles:int):
        k = lambda: (cycles+700)/self.ghz*1e-6+.0025
        k.read = lambda: np.array([cycles+700, round((cycles+700)/self.ghz)])
        return k
    def warm(self, a, b): pass
    def clock(self, kernel, candidate)->float: return self._noisy(kernel())

def measure(dev, seed:int, repeats:int)->dict:
    "All that one process measures"
    out:dict = {'device':dev.name, 'aa':[], 'others':[], 'spin':[]}
    with dev.lock():
        res = out['resolution_us'] = dev.resolution()*1e3
        for size,n in SIZES.items():
            for r in range(repeats):
                a,b = dev.pair(n, bool(r%2))
                dev.warm(a, b)
                for name in ('standard','quick'):
                    p = PROTOCOLS[name]
                    x = T.bench(a, b, lambda k: dev.clock(k, a), samples=p.samples, min_ms=p.min_ms, cap_s=2., seed=derive_seed('aa', seed, size, r, name)%2**32, res=res/1e3)
                    out['aa'].append({'size':size, 'protocol':name, 'repeat':r, 'a':[round(v,6) for v in x.a], 'b':[round(v,6) for v in x.b], 'stopped':x.stopped, 'found':[f.kind for f in x.findings]})
                if not r:
                    for tool,f in dev.others.items(): out['others'].append({'size':size, 'tool':tool, 'ms':[f(a), f(b)]})
                for k in (a,b): getattr(k, 'free', lambda: None)()
        spins(dev, out)
    return out

def frequency(dev, long)->float: # GHz
    "How fast the multiprocessors' clock runs, by the device's own timer"
    for _ in range(2): dev.clock(long, long)
    cycles,ns = long.read()
    return float(cycles)/float(ns)

def spins(dev, out:dict):
    "Kernels of known length"
    long = dev.spin(int(20e-3*1.98e9))
    before = frequency(dev, long)
    ask = lambda us: dev.spin(int(us*1e3*before))
    few = lambda k: float(np.median([dev.clock(k, k) for _ in range(25)]))*1e3
    idle = ask(0)
    dev.warm(idle, idle)
    out['launch_us'] = few(idle)
    none,_ = idle.read() # Reading the clocks takes its time too
    rows = []
    for us in SPINS:
        k = ask(us)
        reading = few(k)
        cycles,_ = k.read() # What it did wait, a loop's turn more than asked for
        rows.append((us, float(cycles-none), reading, {tool:f(k)*1e3 for tool,f in dev.others.items()}))
    after = frequency(dev, long)
    out['ghz'],out['clock_moved'] = (before+after)/2,abs(after/before-1)
    out['spin'] = [{'asked':us, 'us':cycles/out['ghz']/1e3, 'reading_us':reading, 'others':others} for us,cycles,reading,others in rows]

def child(a):
    dev = {'cuda':Cuda, 'host':Pretend}[a.device]()
    print('ready', flush=True)
    if sys.stdin.readline().strip()=='go': print(json.dumps(measure(dev, a.child, a.repeats)), flush=True)
    os._exit(0)

# ---------------------------------------------------------------- all of them
def heard(p:subprocess.Popen, begins:str, seconds:float)->str: # '' if it ended, or was ended, without
    "The next line of a process that begins so; one that is late is ended"
    t = threading.Timer(max(seconds, .1), p.kill)
    t.start()
    try: return next((l for l in p.stdout if l.startswith(begins)), '')
    finally: t.cancel()

def run(a, clock:Clock)->list[dict]:
    "All start together; then one after the other measures"
    start = lambda k: subprocess.Popen([sys.executable, __file__, '--child', str(k), '--device', a.device, '--repeats', str(a.repeats)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    procs,out = [start(k) for k in range(a.processes)],[]
    try:
        ready = [bool(heard(p, 'ready', min(START_SECONDS-clock.seconds, clock.left))) for p in procs]
        say(f'{sum(ready)} of {a.processes} processes have started after {clock.seconds:.0f} s')
        for k,p in enumerate(procs):
            if clock.over: say('no time is left for more processes'); break
            if not ready[k]: continue
            p.stdin.write('go\n'); p.stdin.flush()
            line = heard(p, '{', min(MEASURE_SECONDS, clock.left))
            if not line: say(f'process {k} gave no answer; it does not count'); continue
            p.wait() # Before the next begins
            out.append({**json.loads(line), 'process':k})
            say(f'process {k}: resolution {out[-1]["resolution_us"]:.2f} us, a launch {out[-1]["launch_us"]:.2f} us, {out[-1]["ghz"]:.4f} GHz, after {clock.seconds:.0f} s')
    finally:
        for p in procs: p.kill(); p.wait()
    return out

def intervals(procs:list[dict])->list[dict]:
    "Every comparison with its interval: in one process each, and across three"
    rows = []
    def add(size, protocol, A, B, k, **more):
        s = T.speedup(A, B, 'itself')
        lo,hi = (np.exp(v) for v in T.median_interval(T.rounds(np.array(A[0]), np.array(B[0])))[1:])
        rows.append({'size':size, 'protocol':protocol, 'processes':k, 'ratio':round(s.ratio,5), 'lo':round(s.lo,5), 'hi':round(s.hi,5), 'holds':s.lo<=1<=s.hi, 'bare':bool(lo<=1<=hi) if k==1 else None, 'us':round(float(np.median(np.concatenate(A)))*1e3,3), **more})
    for p in procs:
        for x in p['aa']: add(x['size'], x['protocol'], [x['a']], [x['b']], 1, process=p['process'], repeat=x['repeat'], stopped=x['stopped'], found=x['found'])
    for three in zip(*[iter(procs)]*3):
        for x in across(three): add(x[0]['size'], 'standard', [y['a'] for y in x], [y['b'] for y in x], 3, process=' '.join(str(p['process']) for p in three), repeat=x[0]['repeat'])
    return rows

def across(procs)->list[tuple]: return [x for x in zip(*(p['aa'] for p in procs)) if x[0]['protocol']=='standard']

def all_triples(procs:list[dict])->float|None:
    "The share of intervals that hold 1.0, over every three of the processes"
    held = [s.lo<=1<=s.hi for three in combinations(procs, 3) for x in across(three) for s in [T.speedup([y['a'] for y in x], [y['b'] for y in x], 'itself')]]
    return round(float(np.mean(held)), 4) if held else None

def spread(values)->float: return round(float(max(values)-min(values)), 5)

def wrong_by(us:float, reading:float)->float: return abs(reading-us)/max(us, 15.)

def write_samples(path:Path, procs:list[dict]):
    "Every single reading, for whoever wants to compute all of it again"
    import pyarrow as pa, pyarrow.parquet as pq
    flat = [(p['process'], x['size'], x['protocol'], x['repeat'], who, k, ms) for p in procs for x in p['aa'] for who in 'ab' for k,ms in enumerate(x[who])]
    pq.write_table(pa.table(dict(zip(('process','size','protocol','repeat','which','order','ms'), map(list, zip(*flat))))), path, compression='zstd')

def report(procs:list[dict])->tuple[dict,list]:
    "Figures and rows"
    rows = intervals(procs)
    of = lambda **k: [r for r in rows if all(r[n]==v for n,v in k.items())]
    share = lambda rs: round(float(np.mean([r['holds'] for r in rs])), 4) if rs else None
    first = lambda size: [r['ratio'] for r in of(size=size, protocol='standard', processes=1, repeat=0)]
    single = [{'kind':'spin', 'process':p['process'], 'asked':s['asked'], 'us':round(s['us'],3), 'reading_us':round(s['reading_us'],3), 'launch_us':round(p['launch_us'],3), 'error':round(wrong_by(s['us'], s['reading_us']-p['launch_us']),5)} for p in procs for s in p['spin']]
    worst = lambda error: max(float(np.median([error(s) for p in procs for s in p['spin'] if s['asked']==us])) for us in SPINS)
    held = sum(r['holds'] for r in rows)
    figures = {'aa_coverage':share(rows), 'aa_coverage_lo':round(wilson(held, len(rows))[0],4), 'aa_coverage_hi':round(wilson(held, len(rows))[1],4), 'intervals':len(rows), 'aa_coverage_one_process':share(of(processes=1)), 'aa_coverage_three_processes':share(of(processes=3)), 'aa_coverage_all_triples':all_triples(procs),
        'aa_coverage_without_between':round(float(np.mean([r['bare'] for r in of(processes=1)])),4), **{f'aa_spread_{s}':spread(first(s)) for s in SIZES}, **{f'pair_sd_{s}':round(float(np.std([np.log(r['ratio']) for r in of(size=s, protocol='standard', processes=1)], ddof=1)),5) for s in SIZES},
        **{f'half_width_{s}':round(float(np.median([(r['hi']-r['lo'])/2 for r in of(size=s, processes=1)])),5) for s in SIZES}, 'spin_error':round(float(max(np.median([r['error'] for r in single if r['asked']==us]) for us in SPINS)),5), 'spin_error_worst_single':max(r['error'] for r in single),
        'clock_moved':round(max(p['clock_moved'] for p in procs),5), 'launch_us':round(float(np.median([p['launch_us'] for p in procs])),3), 'resolution_us':round(float(np.median([p['resolution_us'] for p in procs])),3), 'processes':len(procs)}
    row = lambda tool, us, ratios, reading: {'tool':tool, **{f'us_{s}':round(us(s),2) for s in SIZES}, **{f'aa_spread_{s}':spread(ratios(s)) for s in SIZES}, 'spin_error_raw':round(worst(lambda s: wrong_by(s['us'], reading(s))),4), 'spin_10us_read_as':round(float(np.median([reading(s) for p in procs for s in p['spin'] if s['asked']==10])),3)}
    tools = [row('kernelrl', lambda s: float(np.median([r['us'] for r in of(size=s)])), first, lambda s: s['reading_us'])]
    for tool in sorted(set.intersection(*({o['tool'] for o in p['others']} for p in procs))): # Those that worked in every process
        pairs = lambda size: [o['ms'] for p in procs for o in p['others'] if o['tool']==tool and o['size']==size]
        tools.append(row(tool, lambda s: float(np.median(pairs(s)))*1e3, lambda s: [b/a for a,b in pairs(s)], lambda s: s['others'][tool]))
    return figures,[*tools, *single, *({'kind':'aa', **r} for r in rows)]

def main():
    p = options(__doc__, 'timing_fidelity', 200)
    p.add_argument('--device', default='cuda', choices=['cuda','host'])
    p.add_argument('--processes', type=int, default=10)
    p.add_argument('--repeats', type=int, default=5, help='pairs that a process loads for each size; each is compared twice')
    p.add_argument('--child', type=int, default=None, help='(used by the script itself)')
    a = p.parse_args()
    if a.child is not None: return child(a)
    clock = Clock(a.limit_seconds)
    procs = run(a, clock)
    if len(procs)<2: raise SystemExit('fewer than two processes measured: there is nothing to report')
    figures,rows = report(procs)
    save(a.out, result(f'{procs[0]["device"]}', f'python benchmarks/timing_fidelity.py --processes {a.processes} --repeats {a.repeats}', 'cold L2, graphs, new values, ABBA as in quick and standard; processes one at a time on a device that nobody else uses', [p['process'] for p in procs], {**figures, 'processes_started':a.processes, 'seconds':round(clock.seconds,1)}, rows))
    write_samples(a.out.with_name(a.out.stem+'_samples.parquet'), procs)
    for r in rows[:3]: print(r)

if __name__=='__main__': main()
