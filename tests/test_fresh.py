"Values made anew before each timed run: the referee's numpy and the device's kernel give the same bits"
import numpy as np, pytest
from kernelrl._fresh import KINDS, SOURCE, draw_marks, factors, freshen, marks_of, seed_of
from kernelrl.host import compile_host, run_host
from kernelrl.nvrtc import compile_module, nvrtc_version
from kernelrl.program import Arg, Buffer, Launch, Module, Plan, Program
from kernelrl.reference import Reference
from kernelrl.task import Task
from kernelrl.trace import trace

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

TASK = Task('two_and_a_number', '''
import torch, torch.nn as nn
class Model(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.w = nn.Parameter(torch.randn(d))
        self.b = nn.Parameter(torch.randn(d))
    def forward(self, x, k, i, y): return x*k+y*self.w+self.b*i
def get_inputs(): return [torch.randn(3, 8), 2.5, torch.arange(8), torch.randn(3, 8)]
def get_init_inputs(): return [8]
''')

PROGRAM = '''
import cupy as cp
k = cp.RawKernel('extern "C" __global__ void f(const float* x, const long long* i, const float* y, const float* w, const float* b, float* out, float k) {}', "f")
def forward(x, k_, i, y, w, b):
    out = cp.empty_like(x)
    k((1,), (32,), (x, i, y, w, b, out, k_))
    return out
'''

def test_the_referee_numbers_arrays_as_the_launcher_does():
    "The launcher counts the inputs and parameters of a plan; scalars have no place there"
    pytest.importorskip('torch')
    r,fresh,seed = Reference(TASK),12345,1
    plan = trace(Program(PROGRAM), r.signature)
    assert [(plan.buffers[i].name,plan.buffers[i].dtype) for i in plan.role('input','param')]==[('x','float32'),('i','int64'),('y','float32'),('w','float32'),('b','float32')]
    given = lambda f: [a for a,s in zip(r.inputs(seed, fresh=f), r.signature.inputs) if s.value is None]+r.params(seed, f)
    for k,(a,b) in enumerate(zip(given(0), given(fresh), strict=True)):
        assert (b==freshen(a, str(a.dtype), fresh, k)).all() and (a.dtype==np.int64)==(a==b).all()
