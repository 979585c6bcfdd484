"Values made anew before each timed run: the referee's numpy and the device's kernel give the same bits"
import numpy as np, pytest
from kernelrl._fresh import KINDS, SOURCE, draw_marks, factors, freshen, marks_of, seed_of
from kernelrl.device import compile_module, nvrtc_version
from kernelrl.host import compile_host, run_host
from kernelrl.program import Arg, Buffer, Launch, Module, Plan

def array(dtype:str, n:int=5000):
    x = np.random.default_rng(0).standard_normal(n)*np.logspace(-6, 4, n)
    x[:4] = 0., -0., np.inf, -np.inf
    if dtype=='bfloat16': return (x.astype('f4').view('u4')>>16).astype('u2')
    with np.errstate(over='ignore', under='ignore'): return x.astype(dtype)

@pytest.mark.parametrize('dtype', KINDS)
def test_numpy_and_the_kernel_agree(dtype):
    x,seed = array(dtype),seed_of(123, 1)
    ctype = {'float32':'float','float64':'double','float16':'half','bfloat16':'__nv_bfloat16'}[dtype]
    bufs = Buffer('x','input',x.shape,dtype),Buffer('y','output',x.shape,dtype)
    plan = Plan((Module(SOURCE),), bufs, (Launch(f'fresh_{KINDS[dtype]}',0,(3,1,1),(256,1,1),0,(Arg(ctype+'*',0),Arg(ctype+'*',1),Arg('unsigned long long',value=x.size),Arg('unsigned long long',value=seed))),), (1,))
    r,[y] = run_host(compile_host(plan), plan, [x])
    want = freshen(x, dtype, 123, 1)
    assert r.status=='ok' and (y.view(want.dtype)==want).all() and (want[4:]!=x[4:]).mean()>.9

def test_factors_are_all_over_and_differ_by_seed_array_and_element():
    f = factors(seed_of(1, 0), 100_000)
    assert f.min()>=3840 and f.max()<=4351 and len(set(f))==256 and abs(f.mean()-f.min()-127.5)<1
    means = {round(factors(seed_of(s, a), 1000).mean()-4096) for s in range(40) for a in range(2)}
    assert len(means)>50 and min(means)<-60 and max(means)>60 # A common part, so that sums and means move too

def test_integers_stay(): assert freshen(np.arange(5), 'int64', 1, 0).tolist()==[0,1,2,3,4]

@pytest.mark.skipif(not nvrtc_version(), reason='no NVRTC')
def test_it_compiles_for_a_gpu(): assert len(compile_module(Module(SOURCE), [f'fresh_{k}' for k in KINDS.values()], 'sm_90').resources)==4

@pytest.mark.parametrize('samples,marks', [(6,1), (12,1), (25,1), (50,2)])
def test_marks_lie_anywhere_and_the_first_is_always_reached(samples, marks):
    drawn = [sorted(draw_marks(samples, np.random.default_rng(s))) for s in range(500)]
    assert marks_of(samples)==marks and all(len(d)==marks and d[0]<22 and d[-1]<2+2*samples for d in drawn)
    assert {d[0] for d in drawn}==set(range(min(22, 2+2*samples))) and max(d[-1] for d in drawn)>min(20, 2*samples-2)
