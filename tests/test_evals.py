"Evals: every formula against a slow twin, every interval against a simulation, nothing left out in silence"
import dataclasses, itertools, json, math
import numpy as np
import pytest
from kernelrl.core import Finding, KernelRLError
from kernelrl.device import Device
from kernelrl.curves import Curve, area, crossing, curve, equal_budget, time_ratio, time_to
from kernelrl.evals import Difference, Measure, Outcome, Score, acc_at_turn, attempts, difference, fast_p, geomean, outcomes, pass_at_k, pass_k, score, speed_ratio
from kernelrl.intervals import Z, bootstrap, clustered, paired, student, wilson
from kernelrl.judge import shipped_verdicts
from kernelrl.timing import Speedup
from kernelrl.verdict import Verdict, as_replayed, load_verdicts

def verdict(task, status='ok', ratio=2., lo=None, source='measured', date='2026-01-01', **kw):
    s = (Speedup(ratio, ratio*.9 if lo is None else lo, ratio*1.1, source=source),) if status in ('ok','slow') else ()
    return Verdict(task, 'p', status, 'time', speedups=s, source=source, protocol='strict', date=date, device=Device('cuda','NVIDIA H200','sm_90'), **kw)

def world(T, S, rng, turns=1): # Tasks of different difficulty
    p = rng.beta(.7, 1., T)
    return [(f't{i}', s, 1, bool(rng.random()<p[i]), float(rng.lognormal(.3,.6))) for i in range(T) for s in range(S)]

# ---- what is counted

def test_three_forms_one_outcome():
    v = outcomes([verdict('a'), verdict('a','wrong',reason=Finding('mismatch','x'),seconds={'compile':1.,'time':.5}), verdict('b','infra')])
    assert [(o.sample,o.ok,o.infra,o.speedup,o.lo) for o in v]==[(0,True,False,2.,1.8), (1,False,False,None,None), (0,False,True,None,None)]
    assert v[1].seconds==1.5 and v[0].origin=='measured on NVIDIA H200, strict'
    d = outcomes([{'task':'a','sample':1,'turn':2,'status':'slow','speedup':.5,'tokens_gen':30,'t_gen':1.,'t_time':None}])
    assert d==[Outcome('a',1,2,True,.5,tokens=30,seconds=1.)]==outcomes(d)
    assert outcomes([('a',1,2,True,.5)])[0].speedup==.5
    assert Outcome.from_json(d[0].to_json())==d[0]

@pytest.mark.parametrize('status,ok,ours', [('ok',1,0),('slow',1,0),('wrong',0,0),('compile',0,0),('timeout',0,0),('forbidden',0,0),('suspect',0,0),('unsupported',0,1),('infra',0,1),('timeout_infra',0,1)])
def test_statuses(status, ok, ours):
    o = outcomes([{'task':'a','status':status}])[0]
    assert (o.ok,o.infra)==(bool(ok),bool(ours))

def test_a_row_that_is_there_twice_is_an_error():
    with pytest.raises(KernelRLError, match='there twice'): score([('a',0,1,True,2.)]*2)

def test_infrastructure_failures_change_the_count_and_nothing_else():
    rng = np.random.default_rng(1)
    rows = world(20, 3, rng)
    a = fast_p(rows, 1)
    b = fast_p([*rows, *(Outcome(f't{i}', 99, infra=True) for i in range(7))], 1)
    assert dataclasses.replace(b, left_out=0)==a and b.left_out==7 and '7 infrastructure failures left out' in repr(b)
    assert '1 infrastructure failure left' in repr(fast_p([*rows, Outcome('t0',99,infra=True)], 1))

def test_broken_off_attempts():
    O = lambda turn,ok=False,infra=False: Outcome('a',0,turn,ok,infra=infra)
    assert attempts([O(1), O(2,infra=True)])[1]==1                       # broken off: unknown
    assert attempts([O(1), O(2,True), O(3,infra=True)])[1]==0            # had succeeded before
    assert attempts([O(1,infra=True), O(1), O(2,True)])[1]==0            # repeated
    assert attempts([O(1,infra=True), O(2,True)])[1]==1                  # turn 1 is unknown, so Acc@1 would be
    with pytest.raises(KernelRLError, match='no score of nothing'): score([O(1,infra=True)])

# ---- formulas

def test_wilson():
    for n in (1,5,40):
        for k in range(n+1):
            lo,hi = wilson(k,n)
            assert 0<=lo<=k/n<=hi<=1 and np.allclose(wilson(n-k,n), (1-hi,1-lo))
            for p in (lo,hi):
                if 0<p<1: assert abs(abs(k/n-p)-Z*math.sqrt(p*(1-p)/n))<1e-9
    assert wilson(0,0)==(0,1) and wilson(0,10)[0]==0 and wilson(10,10)[1]==1

def test_wilson_holds_what_it_promises():
    for n in (5,20,100):
        held = [sum(math.comb(n,k)*p**k*(1-p)**(n-k) for k in range(n+1) if wilson(k,n)[0]<=p<=wilson(k,n)[1]) for p in np.linspace(.02,.98,49)]
        assert np.mean(held)>.945 and min(held)>.83

def test_pass_k():
    for n in range(1,7):
        for c in range(n+1):
            for k in range(1,n+1): assert math.isclose(pass_k(n,c,k), np.mean([min(s)<c for s in itertools.combinations(range(n),k)]), abs_tol=1e-12)
    assert pass_k(10,0,3)==0 and pass_k(10,8,3)==1

def test_student():
    for df,t in ((1,12.706),(4,2.776),(19,2.093),(20,2.086),(30,2.042),(60,2.000),(1000,1.962)): assert abs(student(df)-t)<6e-4

def test_scores_against_plain_loops():
    rows = world(15, 4, np.random.default_rng(2))
    by = {t:[r for r in rows if r[0]==t] for t in dict.fromkeys(r[0] for r in rows)}
    for p in (0,1,2.5):
        good = {t:[r[3] and (p==0 or r[4]>p) for r in rs] for t,rs in by.items()}
        assert math.isclose(fast_p(rows,p).value, np.mean([np.mean(g) for g in good.values()]))
        assert fast_p(rows,p).n==sum(map(sum,good.values())) and fast_p(rows,p).N==60
        assert math.isclose(pass_at_k(rows,2,p).value, np.mean([pass_k(4,sum(g),2) for g in good.values()]))
    assert math.isclose(geomean(rows,'left_out').value, math.exp(np.mean([np.mean([math.log(r[4]) for r in rs if r[3]]) for rs in by.values() if any(r[3] for r in rs)])))
    assert math.isclose(geomean(rows,'baseline').value, math.exp(np.mean([np.mean([math.log(r[4]) if r[3] else 0 for r in rs]) for rs in by.values()])))
    naive = {t:.1+i/20 for i,t in enumerate(by)}
    assert math.isclose(geomean(rows,'naive',naive).value, math.exp(np.mean([np.mean([math.log(r[4] if r[3] else naive[t]) for r in rs]) for t,rs in by.items()])))

def test_each_task_counts_the_same():
    rows = [('easy',s,1,True,2.) for s in range(9)]+[('hard',0,1,False)]
    assert score(rows).value==.5 and (score(rows).n,score(rows).N)==(9,10)

def test_exactly_p_is_not_faster_than_p():
    assert fast_p([('a',0,1,True,2.)],2).n==0 and fast_p([('a',0,1,True,2.0001)],2).n==1

def test_sure_uses_the_lower_end():
    vs = [verdict('a',ratio=1.2,lo=.95), verdict('b',ratio=1.2,lo=1.1)]
    assert (fast_p(vs,1).n, fast_p(vs,1,sure=True).n)==(2,1)
    assert fast_p(vs,1,sure=True).name=='fast_1 for sure'

def test_acc_at_turn():
    rng = np.random.default_rng(3)
    first = {(t,s):int(rng.integers(1,6)) for t in range(12) for s in range(3)} # Turn of success; 4 and 5 mean never
    rows = [(f't{t}',s,i,i==at) for (t,s),at in first.items() for i in range(1,min(at,3)+1)]
    acc = acc_at_turn(rows)
    assert [a.n for a in acc]==[sum(at<=k for at in first.values()) for k in (1,2,3)] and [a.name for a in acc]==['Acc@1','Acc@2','Acc@3']
    assert all(a.value<=b.value for a,b in zip(acc,acc[1:])) and all(a.N==36 for a in acc)

def test_budget():
    rows = [Outcome('a',0,1,False,tokens=50), Outcome('a',0,2,True,tokens=60), Outcome('b',0,1,False,tokens=10)]
    s = [score(rows, Measure(budget=b, by='tokens')) for b in (100,110)]
    assert [x.n for x in s]==[0,1] and '1 unsolved task spent less' in s[1].note
    with pytest.raises(KernelRLError, match='leave it at 1'): score(rows, Measure(k=2, budget=1))

def test_what_cannot_be_said_is_refused():
    ok = [('a',0,1,True)]
    for f in (lambda: fast_p(ok,1), lambda: geomean(ok,'left_out'), lambda: fast_p([('a',0,1,True,2.)],1,sure=True)):
        with pytest.raises(KernelRLError, match='speedup'): f()
    assert fast_p(ok,0).n==1
    with pytest.raises(TypeError): geomean(ok)                          # no default for failures
    for bad in ('1.0','unimproved',None):
        with pytest.raises(KernelRLError, match='say what a failed program counts as'): geomean(ok,bad)
    with pytest.raises(KernelRLError, match='belong together'): geomean(ok,'naive')
    with pytest.raises(KernelRLError, match='task a: no speedup of its naive'): geomean([('a',0,1,False)],'naive',{'b':1.})
    with pytest.raises(KernelRLError, match='no program is right'): geomean([('a',0,1,False)],'left_out')
    with pytest.raises(KernelRLError, match='2 origins'): score([verdict('a'), verdict('b',source='estimated')])
    with pytest.raises(KernelRLError, match='pass@3 needs 3'): pass_at_k([('a',0,1,True)],3)

# ---- intervals

def test_clustered_intervals_hold_what_they_promise():
    rng,truth = np.random.default_rng(4),.7/1.7
    for T,S in ((10,4),(40,8)):
        hits = np.zeros(2)
        for _ in range(800):
            v = rng.binomial(S, rng.beta(.7,1.,T))/S
            hits += [lo<=truth<=hi for lo,hi in (clustered(v,T*S), wilson(v.sum()*S,T*S))]
        assert .93<=hits[0]/800 and hits[1]/800<.9
    assert clustered([1.]*5,20)==wilson(5,5) and clustered([0.,1.,1.],3)==wilson(2,3)

def test_bootstrap_holds_what_it_promises():
    rng = np.random.default_rng(5)
    for n in (3,5,8,20):
        hits = sum(lo<=0<=hi for _,lo,hi,_ in (bootstrap(np.mean, rng.standard_normal(n), n_boot=300) for _ in range(250)))/250
        assert hits>.9, (n,hits)
    ratio = lambda a,b: a.mean()/b.mean()
    hits = sum(lo<=2<=hi for _,lo,hi,_ in (bootstrap(ratio, 2+.3*rng.standard_normal(4), 1+.1*rng.standard_normal(7)) for _ in range(300)))/300
    assert hits>.92
    assert bootstrap(np.mean,[1.])[1:3]==(-math.inf,math.inf)
    assert bootstrap(np.mean,list(range(9)))==bootstrap(np.mean,list(range(9)))

def test_paired_difference():
    for b,a,n in ((7,2,50),(0,0,10),(10,0,10),(1,0,250)):
        p,q = (b+1)/(n+2),(a+1)/(n+2)
        half = Z*math.sqrt((p+q-(p-q)**2)/(n+2))
        v,lo,hi = paired([1]*b+[-1]*a+[0]*(n-a-b))
        assert math.isclose(v,(b-a)/n) and math.isclose(lo,max(-1,p-q-half)) and math.isclose(hi,min(1,p-q+half))
    rng = np.random.default_rng(6)
    for n,gap in ((15,0.),(60,.15)):
        hits = 0
        for _ in range(1000):
            p = rng.beta(.6,.6,n)*(1-gap)
            lo,hi = paired((rng.random(n)<p+gap).astype(float)-(rng.random(n)<p))[1:]
            hits += lo<=gap<=hi
        assert hits/1000>.93

def test_pairing_sees_what_two_intervals_do_not():
    a = [(f't{i}',0,1,i<20) for i in range(40)]
    b = [(f't{i}',0,1,i<28) for i in range(40)]
    d = difference(a,b,names=('old','new'))
    assert (d.sign,d.up,d.down,d.equal)==('+',8,0,32) and math.isclose(d.value,.2)
    assert score(a).hi>score(b).lo                                      # which overlap
    e = difference(b,a)
    assert e.sign=='-' and math.isclose(e.lo,-d.hi) and difference(a,a).sign=='?'
    assert 'new has more' in repr(d) and 'old - new' not in repr(d)
    with pytest.raises(KernelRLError, match='t40 is only in new'): difference(a,[*b,('t40',0,1,True)],names=('old','new'))
    lost = difference(a,[Outcome(*r,infra=r[0]=='t3') for r in b])
    assert lost.left_out==1 and '1 task lost' in lost.note and lost.up+lost.down+lost.equal==39

def test_speed_ratio():
    rng = np.random.default_rng(7)
    base = [(f't{i}',0,1,True,float(rng.lognormal())) for i in range(30)]
    twice = [(*r[:4],r[4]*2*float(np.exp(.1*rng.standard_normal()))) for r in base]
    d = speed_ratio(base,twice,'left_out')
    assert d.lo<2<d.hi and d.hi-d.lo<.4 and d.sign=='+' and speed_ratio(twice,base,'left_out').sign=='-'
    fails = [(*r[:3],False,None) if i<10 else r for i,r in enumerate(twice)]
    assert speed_ratio(base,fails,'left_out').up==20 and 'without a right program' in speed_ratio(base,fails,'left_out').note
    assert speed_ratio(base,fails,'baseline').up+speed_ratio(base,fails,'baseline').down==30

# ---- curves

def test_curves():
    c = Curve((0.,10.,30.),(0.,1.,2.))
    assert (c.at(5),c.at(20),dataclasses.replace(c,steps=True).at(29.9))==(.5,1.5,1.)
    assert math.isclose(area(c),(5+30)/30) and math.isclose(area(dataclasses.replace(c,steps=True)),20/30) and math.isclose(area(c,5,20),((.5+1)/2*5+(1+1.5)/2*10)/15)
    for bad in (((0.,1.),(1.,)), ((0.,0.),(1.,1.)), ((0.,1.),(1.,math.nan)), ((0.,),(1.,))):
        with pytest.raises(ValueError): Curve(*bad)
    with pytest.raises(KernelRLError, match='31 is outside'): area(c,0,31)
    assert curve([{'calls':1,'acc':.5},{'calls':2},{'calls':3,'acc':1}],'acc').x==(1.,3.)
    assert Curve.from_json(c.to_json())==c

def seeds(rate,n,end,r=0): return [Curve(tuple(x := np.arange(0,end+1,50.)), tuple(1-np.exp(-x*rate*(1+.05*math.sin(s+r))/500)), 'tokens', seed=s) for s in range(n)]

def test_equal_budget_stops_where_the_first_curve_ends():
    at,mean = equal_budget(seeds(1,4,2000), seeds(2,4,1000,9), names=('a','b'))
    assert at.name=='at 1000 tokens' and at.sign==mean.sign=='+' and (at.up,at.group)==(4,'seeds')
    a,b = seeds(1,4,2000),seeds(2,4,1000,9)
    assert math.isclose(at.value, np.mean([y.at(1000)-x.at(1000) for x,y in zip(a,b)]))
    assert equal_budget(a,[dataclasses.replace(c,x=tuple(2*v for v in c.x)) for c in b])[0].value<1e-2
    with pytest.raises(KernelRLError, match='seed by seed'): equal_budget(a,b[:3])
    with pytest.raises(KernelRLError, match='different units'): equal_budget(a,[dataclasses.replace(c,unit='calls') for c in b])

def test_time_ratio():
    for n in (3,8):
        r = time_ratio(seeds(1,n,3000), seeds(1.5,n,3000,2), .7, n_boot=200)
        assert r.lo<1.5<r.hi<2 and r.n==r.N==2*n and r.how==('jackknife' if n<6 else 'bootstrap')
    assert abs(time_to(seeds(1,1,3000),.7)-500*-math.log(.3))<5
    y = np.array([0,.5,.4,.9]); assert crossing(np.arange(4.),y,.45)==.9 and crossing(np.arange(4.),y,.45,True)==1. and crossing(np.arange(4.),y,1.)==math.inf
    never = [dataclasses.replace(c,y=tuple(min(v,.5) for v in c.y)) for c in seeds(1,6,3000)]
    r = time_ratio(never,seeds(1,6,3000),.7,n_boot=100)
    assert (r.value,r.hi,r.n)==(math.inf,math.inf,6)

# ---- the record

def test_records_come_back_equal_and_read_well():
    for r in (fast_p(world(9,2,np.random.default_rng(8)),1), time_ratio(seeds(1,3,900),seeds(1,3,900),.99), difference([('a',0,1,True)],[('a',0,1,False)])):
        assert type(r).from_json(r.to_json())==r
    s = Score('fast_2',.5,.4,.6,10,20,20,left_out=2,origin='replayed from NVIDIA H200, strict')
    assert repr(s)=='fast_2: 50.0 % [40.0, 60.0] (10 of 20; 2 infrastructure failures left out; replayed from NVIDIA H200, strict)'
    assert repr(Difference('right',('a','b'),.05,-.01,.11,4,1,45))=='right, b - a: +5.0 points [-1.0, +11.0]: not decided (tasks: 4 up, 1 down, 45 equal)'

def test_shipped_verdicts_make_a_labelled_board():
    vs = [as_replayed(v) for v in load_verdicts(shipped_verdicts()/'shipped'/'verdicts.jsonl') if v.program=='expert']
    s = fast_p(vs,1)
    assert s.N==len(vs)==s.groups and 'replayed' in repr(s) and vs[0].date in repr(s) and vs[0].device.name in repr(s)
    assert json.loads(s.to_json())['n']==sum(v.ok and v.speedup.ratio>1 for v in vs)
