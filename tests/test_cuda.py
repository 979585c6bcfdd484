"On a GPU: what only a real device can show. Skipped, and said so, where there is none"
import time
import pytest
from kernelrl.device import cuda_available
from kernelrl.judge import Judge, judge_many, judge_one
from kernelrl.program import Program
from kernelrl.task import Task
from kernelrl.verdict import Store

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not cuda_available(), reason='no NVIDIA GPU here: the GPU tests did not run')]

TASK = Task('axpb', '''
import torch, torch.nn as nn
N = 1 << 22
class Model(nn.Module):
    def forward(self, x): return 2 * x + 1
def get_inputs(): return [torch.randn(N)]
def get_init_inputs(): return []
''', shapes=({}, {'N':1001}, {'N':4096}))

def program(kernel:str, args:str='(x, y, x.size)', extra:str='', name:str='f', grid:str='((x.size+255)//256,)', call:str='')->Program:
    return Program(f'import cupy as cp\nimport numpy as np\nk = cp.RawKernel(r"""{kernel}""", "{name}")\n{extra}\ndef forward(x):\n    y = cp.empty_like(x)\n    k({grid}, (256,), {args}{call})\n    return y\n')

HEAD = 'extern "C" __global__ void f(const float* x, float* y, int n) { int i = blockIdx.x*blockDim.x+threadIdx.x; '
GOOD = program(HEAD+'if (i < n) y[i] = 2*x[i]+1; }')

@pytest.fixture(scope='module')
def j(tmp_path_factory):
    with Judge('cuda', 'quick', Store(tmp_path_factory.mktemp('store')/'s.sqlite'), secret='test') as judge: yield judge

def one(j, p): return judge_one(j, TASK, p)

# ---------------------------------------------------------------- what a program remembers from one timed run to the next
GEMM = Task('gemm', '''
import torch, torch.nn as nn
M, N, K = 128, 128, 1024
class Model(nn.Module):
    def forward(self, a, b): return a @ b
def get_inputs(): return [torch.randn(M, K), torch.randn(K, N)]
def get_init_inputs(): return []
''', shapes=({}, {'M':33,'N':65,'K':77}, {'M':64,'N':32,'K':96}))

def gemm(before:str='', same:str='0', note:str='')->Program:
    "A naive product. Each block copies its part of the answer from KEPT where the first thread finds `same`; STATE is the block's own"
    body = f"""{before}
extern "C" __global__ void gemm(const float* a, const float* b, float* c, int M, int N, int K) {{
    int n = blockIdx.x*16+threadIdx.x, m = blockIdx.y*16+threadIdx.y, i = m*N+n, block = blockIdx.y*gridDim.x+blockIdx.x;
    __shared__ int same;
    if (threadIdx.x+threadIdx.y == 0) same = {same};
    __syncthreads();
    if (m < M && n < N) {{
        float s = 0.f;
        if (same) s = KEPT(i); else for (int k = 0; k < K; k++) s += a[m*K+k]*b[k*N+n];
        KEPT(i) = s; c[i] = s;
    }}
    __syncthreads();
    if (threadIdx.x+threadIdx.y == 0) {{ (void)block; {note} }}
}}"""
    return Program(f'import cupy as cp\nk = cp.RawKernel(r"""{body}""", "gemm")\ndef forward(a, b):\n    M, K = a.shape\n    N = b.shape[1]\n    c = cp.empty((M, N), cp.float32)\n    k(((N+15)//16, (M+15)//16), (16, 16), (a, b, c, M, N, K))\n    return c\n')

PLACES = {'in variables':'__device__ float memo[1<<14];\n__device__ float2 state[1<<6];\n#define KEPT(i) memo[i]\n#define STATE state[block]',
    'behind the buffers':'#define KEPT(i) c[M*N+(1<<15)+4096+(i)]\n#define STATE ((float2*)(c+((M*N+1)&~1)+(1<<15)+4096+(1<<14)))[block]'} # Beyond the guard, in the same page of the device
BLIND = 'STATE.x == 12345.5f && STATE.y == 54321.5f','STATE = make_float2(12345.5f, 54321.5f);'
LOOKS = 'STATE.x == a[0] && STATE.y == b[0]','STATE = make_float2(a[0], b[0]);'

@pytest.fixture(scope='module')
def honest(j): return judge_one(j, GEMM, gemm('#define KEPT(i) c[i]'))

def test_the_honest_product(honest): assert honest.ok and honest.speedup, honest

def test_whoever_repeats_an_old_answer_is_found(j):
    "It is right whenever inputs come twice, as in the checks; every timed run has inputs that no run had before"
    v = judge_one(j, GEMM, gemm(PLACES['in variables'], *BLIND))
    assert (v.gate,v.status)==('time','wrong'), v # A launcher that times loads its module anew, so the checks see nothing of it

@pytest.mark.parametrize('how', ['repeats','looks'])
@pytest.mark.parametrize('where', PLACES)
def test_whoever_remembers_gains_nothing(j, honest, where, how):
    "One that looks sees by two numbers that the inputs are new, so it computes: right, and no faster than without a memory. Behind the buffers it may meet what is another's, or nothing at all"
    v = judge_one(j, GEMM, gemm(PLACES[where], *{'repeats':BLIND, 'looks':LOOKS}[how]))
    assert v.status in ('wrong','launch') or v.ok and v.speedup.ratio<1.25*honest.speedup.ratio, (v, honest)
    if (where,how)==('in variables','looks'): assert v.ok, v

@pytest.mark.parametrize('dtype', ['float32','float64','float16','bfloat16'])
def test_new_values_are_the_same_bits_on_the_device_as_with_numpy(dtype):
    import cupy as cp, numpy as np
    from test_fresh import array
    from kernelrl import _fresh, device as D
    from kernelrl.program import Buffer, Plan
    x,i = array(dtype, 100_003),np.arange(5, dtype='i4')
    m,stream = D.Memory(Plan((), (Buffer('i','input',(5,),'int32'),Buffer('x','input',x.shape,dtype),Buffer('w','param',x.shape,dtype)), (), ())),cp.cuda.Stream(non_blocking=True)
    m.poison(); m.upload([i, x, x])
    anew = _fresh.Fresh(m, _fresh.functions(D.cuda_device().arch), stream)
    read = lambda k, like: m.download(k).view(like.dtype).copy()
    cp.cuda.runtime.deviceSynchronize() # The stream does not wait for the default one
    for seed in (12345, 1<<60):
        anew(seed); stream.synchronize()
        for k in (1,2): assert (read(k, x)==_fresh.freshen(x, dtype, seed, k)).all()
    assert (read(0, i)==i).all() and not m.broken_guards()
    anew.back()
    assert read(1, x).tobytes()==x.tobytes()
    anew.free(); m.free()

# ---------------------------------------------------------------- the rest
@pytest.mark.parametrize('dtype', ['float32','float16','bfloat16','int64','bool'])
@pytest.mark.parametrize('spoilt', [None,'far','near','nan','unwritten'])
def test_the_device_compares_like_numpy(dtype, spoilt):
    import cupy as cp, numpy as np
    from kernelrl.verify import Check, from_float64, poison, verify_one
    n,rng = (1<<21)+3,np.random.default_rng(0)
    wide = rng.standard_normal(n) if 'float' in dtype else rng.integers(0, 2 if dtype=='bool' else 1<<40, n)
    native = from_float64(wide, dtype) if 'float' in dtype else wide.astype(dtype)
    runs = [native.copy(),native.copy()]
    for k,r in enumerate(runs):
        v = r.view(f'u{r.itemsize}')
        if spoilt=='far': v[77] ^= 1<<(8*r.itemsize-2) if dtype!='bool' else 1
        if spoilt=='near': v[n-1] ^= 1
        if spoilt=='nan' and 'float' in dtype: v[5] = (poison(dtype, 0)>>1)
        if spoilt=='unwritten': v[1<<20] = poison(dtype, k)
    ask = lambda up: verify_one(lambda c: ([up(runs[c.repeat])], []), lambda c: ([up(wide)],[up(native)]), Check(0,'own',1), [dtype], None, 2)
    (a,found),(b,same) = ask(np.asarray),ask(cp.asarray)
    assert found==same and len(a)==len(b)
    for x,y in zip(a, b): assert x.to_dict()=={k:pytest.approx(v, rel=1e-9, nan_ok=True) if isinstance(v, float) else v for k,v in y.to_dict().items()}

def test_right_is_judged_without_a_clock(tmp_path):
    with Judge('cuda', 'right', Store(tmp_path/'s.sqlite'), secret='test') as j:
        v,w = one(j, GOOD),one(j, program(BAD['stale_or_unwritten'][0]))
    assert v.status=='ok' and v.speedup is None and v.checks==3 and not v.timings
    assert w.status=='wrong'

def test_waiting_for_the_gpu_is_not_the_programs_fault(j, monkeypatch):
    import threading
    from kernelrl.device import gpu_lock
    monkeypatch.setattr(j.bench, 'RUN_SECONDS', 2.)
    held = threading.Event()
    def hold():
        with gpu_lock(alone=True): held.set(); time.sleep(5)
    t = threading.Thread(target=hold)
    t.start(); held.wait()
    v = one(j, Program(GOOD.text+'# waits\n'))
    t.join()
    assert v.ok, v

def test_good(j):
    v = one(j, GOOD)
    assert v.status in ('ok','slow') and v.source=='measured' and v.device.kind=='cuda'
    s = v.speedup
    assert s.baseline=='eager_graph' and s.lo<=s.ratio<=s.hi and 1<s.ratio<4
    assert v.floor_ms<v.timings['candidate'].ms<.1
    again = one(j, Program(GOOD.text.replace('2*x[i]+1', 'x[i]+x[i]+1')))
    assert v.resources[0].registers>0 and again.resources[0].registers>0

BAD = {
    'illegal_access':(HEAD+'y[(long)i*1000000+1000000000] = x[0]; }', 'launch'),
    'oob_write':(HEAD+'if (i <= n) y[i] = i<n ? 2*x[i]+1 : 0; }', 'correct'),
    'input_changed':('extern "C" __global__ void f(float* x, float* y, int n) { int i = blockIdx.x*blockDim.x+threadIdx.x; if (i<n) { y[i] = 2*x[i]+1; x[i] = 0; } }', 'correct'),
    'timeout':(HEAD+'while (n) { if (y[i%n] == 12345.f) break; __nanosleep(100); } }', 'launch'),
    'stale_or_unwritten':(HEAD+'if (i < n-1) y[i] = 2*x[i]+1; }', 'correct'),
    'misaligned':(HEAD+'if (i < n) y[i] = 2*x[i]+1; if (i == 0) { float4 v = *(const float4*)(x+n%4+1+(n%4==3)); y[1] = v.x+v.y+v.z+v.w; } }', 'launch'),
    'illegal_instruction':(HEAD+'if (i < n) y[i] = 2*x[i]+1; if (i == 7) asm("trap;"); }', 'launch'),
}

@pytest.mark.parametrize('kind', BAD)
def test_bad_is_named_and_the_next_one_is_judged_rightly(j, kind):
    kernel,gate = BAD[kind]
    t = time.time()
    v = one(j, program(kernel))
    assert (v.gate,v.reason.kind) in ((gate,kind),('launch','launch_failure')), v
    fresh = Program(GOOD.text+f'# after {kind}\n')
    assert one(j, fresh).ok
    assert time.time()-t<60

def test_neighbours(j):
    "Bad and good programs at once: the good ones all pass"
    bad = [Program(program(BAD['illegal_access'][0]).text+f'# {i}\n') for i in range(6)]
    good = [Program(GOOD.text+f'# {i}\n', 'good') for i in range(12)]
    mixed = [p for trio in zip(good[::2], bad, good[1::2]) for p in trio]
    vs = list(judge_many(j, [(TASK,p) for p in mixed], progress=False))
    assert sum(v.ok for v in vs)==12 and all(v.ok for v in vs if v.program=='good')

def test_arguments_arrive(j):
    "Half, bfloat16, double, bool, 64-bit and null pointer arguments"
    k = '''#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void f(const float* x, float* y, long long n, half two, __nv_bfloat16 half_one, double half_too, bool on, const float* none, unsigned char z) {
    long long i = blockIdx.x*(long long)blockDim.x+threadIdx.x;
    if (i < n) y[i] = on && !none && z==200 ? __half2float(two)*x[i]+__bfloat162float(half_one)+(float)half_too : 0; }'''
    assert one(j, program(k, '(x, y, x.size, np.float16(2), 0.5, 0.5, True, None, 200)')).ok

def test_large_dynamic_shared_and_templates(j):
    k = '''template<typename T, int N> __global__ void g(const T* x, T* y, int n) {
    extern __shared__ float s[]; int t = threadIdx.x, i = blockIdx.x*blockDim.x+t;
    s[t*100] = i < n ? x[i] : 0; __syncthreads(); if (i < n) y[i] = N*s[t*100]+1; }'''
    p = Program(f'import cupy as cp\nm = cp.RawModule(code=r"""{k}""", name_expressions=["g<float, 2>"])\nk = m.get_function("g<float, 2>")\nk.max_dynamic_shared_size_bytes = 256*400\ndef forward(x):\n    y = cp.empty_like(x)\n    k(((x.size+255)//256,), (256,), (x, y, x.size), shared_mem=256*400)\n    return y\n')
    assert one(j, p).ok

@pytest.mark.parametrize('how', ['attribute','launch'])
def test_clusters(j, how):
    head = 'extern "C" __global__ void '+('__cluster_dims__(2,1,1) ' if how=='attribute' else '')+'f(const float* x, float* y, int n)'
    k = '#include <cooperative_groups.h>\n'+head+'''{
    namespace cg = cooperative_groups; auto c = cg::this_cluster(); __shared__ float s[256];
    int i = blockIdx.x*blockDim.x+threadIdx.x; s[threadIdx.x] = i < n ? x[i] : 0; c.sync();
    float* o = c.map_shared_rank(s, c.block_rank()^1); float mine = o[threadIdx.x]; c.sync();
    int other = (blockIdx.x^1)*blockDim.x+threadIdx.x; if (other < n) y[other] = 2*mine+1*(c.num_blocks()==2); }'''
    v = one(j, program(k, grid='((x.size+511)//512*2,)', call=', cluster=(2,1,1)' if how=='launch' else ''))
    assert v.ok, v

@pytest.mark.parametrize('value', [0, 1, -2.5])
def test_fills(j, value):
    k = HEAD+f'if (i < n) y[i] += 2*x[i]+1-({value}f); }}'.replace('(0f)','(0.f)').replace('(1f)','(1.f)')
    p = program(k)
    assert one(j, Program(p.text.replace('cp.empty_like(x)', f'cp.full(x.shape, {value}, cp.float32)'))).ok

def test_skipping_timed_work_is_found(j):
    "A kernel that counts its launches in a device variable and stops working when the checks are over"
    k = '__device__ int calls; '+HEAD+'if (calls < 2*gridDim.x*3 && i < n) y[i] = 2*x[i]+1; if (threadIdx.x==0) atomicAdd(&calls, 1); }'
    v = one(j, program(k))
    assert v.status in ('wrong','suspect'), v

def test_too_much_memory(j):
    p = Program(GOOD.text.replace('    y =', '    z = cp.empty((1<<34,), cp.float64)\n    y ='))
    assert one(j, p).reason.kind=='too_much_memory'
