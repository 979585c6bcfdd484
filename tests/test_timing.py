"Whether the intervals keep their promise, and whether the estimate ranks as it should"
import math, zlib
from math import comb
from types import SimpleNamespace
import numpy as np
import pytest
from kernelrl.roofline import FACTOR, GPUS, HINTS, LaunchCost, costs, estimate, estimate_eager, estimate_speedup, faster_than_physics, floor_ms, in_flight, launch_cost, resident
from kernelrl.timing import (BETWEEN, STUDENT, Bench, Speedup, Timing, abba, across, bench, by_process, disagree, drifting, median_interval, rank, resolution, rounds, speedup,
    summarise, too_short)

rng = np.random.default_rng()

@pytest.fixture(autouse=True)
def own_seed(request): globals()['rng'] = np.random.default_rng(zlib.crc32(request.node.name.encode())+SALT)   # the same numbers, whichever tests run

SALT = 5
def noisy(n, jitter=.01, tail=.05): return np.exp(jitter*rng.standard_normal(n)+np.where(rng.random(n)<tail, rng.exponential(.3, n), 0))

# --- intervals

@pytest.mark.parametrize('n', [1, 5, 6, 7, 10, 25, 51, 100, 400])
def test_rank_against_binomials(n):
    k = rank(n)
    below = lambda j: sum(comb(n,i) for i in range(j))/2**n      # fewer than j heads
    assert below(k)<=.025+1e-12 and below(k+1)>.025

@pytest.mark.parametrize('n', [6, 8, 12, 25, 50])
@pytest.mark.parametrize('tail', [.02, .2])
def test_median_interval_covers(n, tail):
    truth = float(np.median(noisy(300000, tail=tail)))
    hits = np.mean([lo<=truth<=hi for _,lo,hi in (median_interval(noisy(n, tail=tail)) for _ in range(600))])
    assert hits>=.93      # 0.95 and the error of 600 trials

def test_student_table():
    stats = pytest.importorskip('scipy.stats')
    np.testing.assert_allclose(STUDENT, [stats.t.ppf(.975, d) for d in range(1, len(STUDENT)+1)], atol=6e-4)

def test_student_table_by_simulation():
    x = rng.standard_normal((20000,3))
    t = x.mean(1)/x.std(1, ddof=1)*math.sqrt(3)
    assert abs((abs(t)>STUDENT[1]).mean()-.05)<.006

def pretend(P, n, jitter=.01, between=.005, tail=.03, ratio=1.):
    A,B = [],[]
    for _ in range(P):
        t = np.exp(np.cumsum(rng.standard_normal(4*n))*.001)*noisy(4*n, jitter, tail)
        t = t.reshape(n,4)
        A.append(t[:,[0,3]].ravel()*math.exp(rng.normal(0, between))/ratio); B.append(t[:,[1,2]].ravel())
    return A,B

@pytest.mark.parametrize('P,n', [(1,12), (1,25), (3,12), (3,25), (5,25)])
@pytest.mark.parametrize('jitter,tail', [(.002,.02), (.01,.03), (.05,.1)])
def test_a_against_a(P, n, jitter, tail):
    s = [speedup(*pretend(P, n, jitter, .005, tail)) for _ in range(250)]
    assert np.mean([v.lo<=1<=v.hi for v in s])>=.92
    assert np.mean([v.lo>1 for v in s])<=.05      # "faster" by mistake

def test_a_against_a_pooled_is_95_percent():
    s = [speedup(*pretend(P, 12, .01, .005)) for P in (1,3,5) for _ in range(300)]
    assert np.mean([v.lo<=1<=v.hi for v in s])>=.945

def test_at_least_two_is_rarely_wrong_at_exactly_two():
    s = [speedup(*pretend(3, 20, ratio=2.)) for _ in range(300)]
    assert np.mean([v.at_least(2) for v in s])<=.045
    assert np.mean([speedup(*pretend(3, 20, ratio=2.2)).at_least(2) for _ in range(50)])>.9

def test_three_processes_that_disagree_are_wide():
    A,B = pretend(3, 20, .001, 0)
    assert (lambda s: (s.hi-s.lo)/s.ratio)(speedup(A, B))<.02
    A = [a*f for a,f in zip(A, (1,1.05,.95))]
    assert (lambda s: (s.hi-s.lo)/s.ratio)(speedup(A, B))>.15

def test_one_process_is_never_surer_than_the_assumed_spread():
    s = speedup(*pretend(1, 400, 1e-6, 0, 0))
    assert math.log(s.hi/s.lo)/2>=1.96*BETWEEN*.99

def test_across_is_never_narrower_than_inside():
    mid,lo,hi = across([(0.,-.1,.1)]*4)
    assert hi>=.05-1e-12 and lo<=-.05+1e-12

def test_too_few():
    for f in (lambda: summarise([1.]*5), lambda: speedup([1.]*10, [1.]*10)):
        with pytest.raises(ValueError, match='too few'): f()

def test_other_lengths():
    a,b = noisy(25),noisy(24)
    assert speedup(a, b).n==12 and len(rounds(a,b))==12
    with pytest.raises(ValueError): speedup([a,a], [b])

def test_samples_by_process():
    assert [len(p) for p in by_process([1.,2.])]==[2] and [len(p) for p in by_process([[1.],[2.,3.]])]==[1,2] and len(by_process(np.ones((3,4))))==3

def test_records():
    A,B = pretend(3, 10)
    for r in (summarise(A), speedup(A,B), GPUS['H200'], bench(lambda: .1, lambda: .2, lambda run: run() or 0., samples=6)):
        assert type(r).from_json(r.to_json())==r
    t = summarise(A, keep=10)
    assert len(t.samples)==10 and t.n==60 and t.processes==3

def test_reprs():
    assert repr(Speedup(1.93,1.9,1.96))=='1.93x [1.90, 1.96] vs eager_graph (cold)'
    assert 'estimated for H200' in repr(Speedup(1.9,.9,3.8,source='estimated',device='H200')) and 'estimated' in repr(Timing(1,.5,2,0,source='estimated'))
    assert 'replayed for H200' in repr(Timing(1.,.9,1.1,9,source='replayed',device='H200'))

# --- order and drift

def test_abba_is_balanced():
    for _ in range(20):
        o = abba(7, rng)
        assert len(o)==28 and all(o[i:i+4] in ('ABBA','BAAB') for i in range(0,28,4))
    assert len({abba(5, np.random.default_rng(i)) for i in range(10)})>3

def test_linear_drift_cancels():
    who = np.array(list(abba(20, rng))); t = np.exp(np.linspace(0,.5,80))*np.where(who=='A',1,2)
    s = speedup(t[who=='A'], t[who=='B'])
    assert s.ratio==pytest.approx(2, rel=1e-9)

def test_drifting():
    assert np.mean([drifting(noisy(50)) is not None for _ in range(300)])<.02
    assert all(drifting(noisy(50)*np.linspace(1,1.1,50)) for _ in range(30))
    assert all(drifting(noisy(50)*np.linspace(1.1,1,50)) for _ in range(30))
    throttled = [drifting(noisy(50)*np.where((np.arange(50)//5)%3==0, 1.25, 1)) for _ in range(30)]
    assert sum(f is not None and 'two speeds' in f.message for f in throttled)>=25
    mixed = [drifting(noisy(100)*np.random.default_rng(i).choice([1,1.05], 100)) for i in range(100)]
    assert sum(f is not None for f in mixed)<10 # two values in no order are noise, not a clock
    assert drifting(np.ones(50)) is None and drifting([1.,2.]) is None

def test_disagree():
    a = Speedup(1.75,1.7,1.8); b = Speedup(.83,.8,.86)
    assert disagree(a,b).kind=='interleaving' and disagree(a,a) is None

def test_solo_intervals_cover():
    s = [speedup(noisy(30), noisy(30), paired=False) for _ in range(300)]
    assert np.mean([v.lo<=1<=v.hi for v in s])>=.95

# --- bench

class Clock:
    "Time passes by what the runs take"
    def __init__(self, cost=.001): self.t,self.cost,self.calls = 0.,cost,0
    def now(self): return self.t
    def __call__(self, run): ms = (run() or 0.)+self.cost; self.t += ms/1e3; self.calls += 1; return ms
def kernel(ms, jitter=.01): return lambda: ms*math.exp(jitter*rng.standard_normal())

def test_bench_stops_by_width_time_or_rounds():
    c = Clock()
    assert bench(kernel(1,1e-4), kernel(2,1e-4), c, now=c.now).stopped=='width'
    assert bench(kernel(1,.2), kernel(2,.2), c, samples=15, now=c.now).stopped=='rounds'
    slow = bench(kernel(3000), kernel(3000), c, cap_s=5, now=c.now)
    assert slow.stopped=='time' and len(slow.a)==12 and speedup(slow.a, slow.b).n==6

def test_bench_waits_for_min_ms():
    c = Clock(0.)
    few,many = (bench(kernel(.01,1e-4), kernel(.01,1e-4), c, samples=100, min_ms=m, now=c.now) for m in (.01,1.))
    assert len(few.a)==20 and sum(many.a)>=1.

def test_bench_order_and_warmup():
    seen = []
    r = bench(lambda: seen.append('A') or 1., lambda: seen.append('B') or 1., Clock(), samples=6, warmup=3, min_ms=1e9)
    assert ''.join(seen[6:])==r.order and r.order==abba(6, np.random.default_rng(0)) and seen[:6]==list('AB'*3)
    assert len(r.a)==len(r.b)==12

def test_bench_reports_drift_and_short():
    n = [0]
    def heating(): n[0] += 1; return .1*(1+n[0]*.005)
    assert 'drifting' in {f.kind for f in bench(heating, kernel(.1), Clock(0.)).findings}
    assert [f.kind for f in bench(kernel(.0005), kernel(.0005), Clock()).findings]==['too_short']
    assert bench(kernel(.1), kernel(.1), Clock()).findings==()

def test_optional_stopping_keeps_the_promise():
    hits = []
    for i in range(500):
        r = bench(kernel(.1), kernel(.1), Clock(), samples=50, seed=i)
        _,lo,hi = median_interval(rounds(np.array(r.a), np.array(r.b)))
        hits.append(lo<=0<=hi)
    assert np.mean(hits)>=.92

def test_resolution_and_too_short():
    assert resolution(Clock(.002))==pytest.approx(.002)
    assert too_short(.0039,.002).severity=='warning' and too_short(.004,.002) is None

# --- physics

def test_floor():
    H = GPUS['H200']
    assert floor_ms(4<<30, 0, 0, H)==pytest.approx((4<<30)/4300e6)
    assert floor_ms(0, H.l2_bytes, 0, H)==0 and floor_ms(H.l2_bytes, 0, 0, H, cache='warm')==0     # may stay in L2
    assert floor_ms(0, 0, 1e12, H)<1e12/67e9                                                       # three TF32 products beat the fp32 units
    assert floor_ms(0, 0, 1e12, GPUS['T4'])==pytest.approx(1e12/8.1e9)

def test_faster_than_physics_needs_the_whole_interval():
    assert faster_than_physics(Timing(.5,.4,.6,9), 1.).kind=='faster_than_physics'
    assert faster_than_physics(Timing(.85,.8,.91,9), 1.) is None

# --- the estimate

def launch(kernel='k', blocks=1024, block=256, shared=0, loads=(), stores=0, unique=0, instructions=0, wavefronts=0, mma=0, atomics=0, barriers=0):
    warps = blocks*block//32
    lines = tuple(SimpleNamespace(kernel=kernel, line=i, space='global', op='load', size=4, requests=warps*times, sectors=warps*times*s, ways=0, bytes=0) for i,(times,s) in enumerate(loads))
    return SimpleNamespace(kernel=kernel, grid=(blocks,1,1), block=(block,1,1), shared=shared, blocks=blocks, sampled=blocks, instructions=float(instructions), mma_flops=float(mma),
        global_load_sectors=float(sum(l.sectors for l in lines)), global_store_sectors=float(stores), atomics=float(atomics), unique_bytes=float(unique), shared_wavefronts=float(wavefronts),
        barriers=float(barriers), lines=lines)

def gemm(kind, N=1024):
    steps,small = N*N//32*N, 3*4*N*N      # warps times k
    kw = dict(blocks=N*N//256, unique=small, stores=N*N//8)
    if kind=='uncoalesced': return launch(kind, loads=((N,32),(N,1)), instructions=6*32*steps, **kw)
    if kind=='naive': return launch(kind, loads=((N,1),(N,4)), instructions=6*32*steps, **kw)
    if kind=='tiled': return launch(kind, loads=((N//32,4),(N//32,4)), wavefronts=2*steps, instructions=4*32*steps, shared=8192, barriers=2*N//32*N*N//256, **kw)
    if kind=='registers': return launch(kind, loads=((N//32,4),(N//32,4)), wavefronts=steps/4, instructions=1.3*32*steps, shared=8192, barriers=2*N//32*N*N//256, **kw)
    if kind=='cpu_counts_too_much': return launch(kind, loads=((N//32,4),(N//32,4)), wavefronts=steps/4, instructions=20*32*steps, shared=8192, **kw)
    if kind=='wmma': return launch(kind, loads=((N//64,4),(N//64,4)), wavefronts=steps/8, instructions=.1*32*steps, mma=2*N**3, shared=8192, **kw)

@pytest.mark.parametrize('name', list(GPUS))
def test_ladder_of_products_is_ranked(name):
    us = [estimate([gemm(k)], GPUS[name], flops=2*1024**3).ms for k in ('uncoalesced','naive','tiled','registers','wmma')]
    assert us==sorted(us, reverse=True) and us[0]>3*us[1] and us[1]>us[2]
    assert 2*1024**3/us[3]/1e9<GPUS[name].fp32_tflops      # never above the peak

def test_a_high_count_does_not_turn_the_ladder_over():
    us = {k: estimate([gemm(k)], GPUS['H200'], flops=2*1024**3).ms for k in ('naive','tiled','cpu_counts_too_much')}
    assert us['cpu_counts_too_much']<us['tiled']<us['naive']

def test_limits_have_names_and_hints():
    named = {costs([t], GPUS['H200'])[0].limit for t in (gemm('naive'), gemm('tiled'), gemm('wmma'), launch(atomics=1e8, unique=4), launch(loads=((1,4),), unique=2**28),
        launch(loads=((1,16),), stores=0, unique=2**28, blocks=2**16))}
    assert {'l1','shared','atomics'}<=named<=set(HINTS)

def test_few_blocks_are_slow():
    t = [estimate([launch(blocks=b, instructions=1e9)], GPUS['H200']).ms for b in (1, 33, 132, 1320)]
    assert t[0]>20*t[1] and t[1]>2*t[2] and t==sorted(t, reverse=True)

def test_occupancy_matters_for_latency():
    t = launch(blocks=2**14, loads=((1,4),), unique=2**24)
    assert launch_cost(t, GPUS['H200'], registers=255).us>1.5*launch_cost(t, GPUS['H200'], registers=32).us
    t.shared = 200_000
    assert launch_cost(t, GPUS['H200']).resident==1

def test_estimate_adds_launches_and_is_labelled():
    one,two = (estimate([launch(unique=1e6)]*k, GPUS['H200']) for k in (1,2))
    assert two.ms-one.ms>=GPUS['H200'].launch_us/1e3*.9
    assert (one.source,one.device,one.n,one.hi/one.lo)==('estimated','H200',0,pytest.approx(FACTOR**2))

def test_what_a_launch_wrote_is_near():
    H = GPUS['H200']
    first = launch(loads=((1,4),), stores=2**19, unique=2**26)
    alone,after = (costs(ts, H)[-1] for ts in ([first], [first,first]))
    assert dict(after.terms)['dram']<dict(alone.terms)['dram']

def test_warm_is_not_slower():
    for size in (2**12, 2**20, 2**26):
        t = launch(blocks=max(1,size//256), loads=((1,4),), stores=size//8, unique=8*size)
        assert estimate([t], GPUS['H200'], cache='warm').ms<=estimate([t], GPUS['H200']).ms

def op(r, w, flops=0., matmul=''): return SimpleNamespace(name='op', bytes_read=r, bytes_written=w, flops=flops, matmul=matmul)

def test_eager():
    H = GPUS['H200']
    big = estimate_eager([op(2*2*8192**2, 2*8192**2, 2*8192**3, 'bfloat16')], H)
    assert 2*8192**3/big.ms/1e9==pytest.approx(790, rel=.02)      # what an H200 was measured to attain
    assert estimate_eager([op(4,4)]*10, H).ms*1e3==pytest.approx(10*H.launch_us+H.start_us, rel=.01)
    assert estimate_eager([op(2**24,2**24)]*2, H).ms<2*estimate_eager([op(2**24,2**24)], H).ms
    assert estimate_eager([], H).ms>0

def test_speedup_estimate_is_wide_and_fuses():
    fused = launch(blocks=2**14, loads=((1,16),), stores=2**21, unique=2**27)
    s = estimate_speedup([fused], [op(2**26,2**26)]*4, GPUS['H200'])
    assert s.source=='estimated' and 1.5<s.ratio<4 and s.hi/s.lo==pytest.approx(FACTOR**2) and not s.at_least(2)

def test_in_flight_and_resident():
    t = launch(loads=((1,4),(1,4)))
    assert in_flight(t, 1024*8)==256 and in_flight(launch(), 1)==128 and in_flight(launch(loads=((9,32),)*9), 1024*8)==2048
    assert resident(GPUS['H200'], 2048)>=1 and resident(GPUS['H200'], 33)==32

def test_costs_are_records():
    c = costs([gemm('tiled')], GPUS['H200'])[0]
    assert LaunchCost.from_json(c.to_json())==c and c.limit in repr(c)
    b = bench(lambda: 1., lambda: 1., Clock(), samples=6)
    assert Bench.from_dict(b.to_dict())==b
