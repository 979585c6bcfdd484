"The judge on the host device: gates, store, replay, resume"
import pytest
from kernelrl._worker import WorkerDied, WorkerTimeout
from kernelrl.core import KernelRLError
from kernelrl.judge import Judge, judge_many, judge_one
from kernelrl.program import Program
from kernelrl.task import Task
from kernelrl.verdict import Store, Verdict, write_verdicts

TASK = Task('axpb', '''
import torch, torch.nn as nn
N = 1 << 20
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(1))
    def forward(self, x): return self.w * x + 1
def get_inputs(): return [torch.randn(N)]
def get_init_inputs(): return []
''', shapes=({}, {'N':1001}, {'N':4096}))

GOOD = '''import cupy as cp
k = cp.RawKernel(r"""
extern "C" __global__ void axpb(const float* x, const float* w, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = w[0] * x[i] + 1;
}""", "axpb")
def forward(x, w):
    y = cp.empty_like(x)
    k(((x.size + 255) // 256,), (256,), (x, w, y, x.size))
    return y
'''
BODY = 'if (i < n) y[i] = w[0] * x[i] + 1;'

@pytest.fixture(scope='module')
def j(tmp_path_factory):
    with Judge('host', 'quick', Store(tmp_path_factory.mktemp('store')/'s.sqlite'), secret='test') as judge: yield judge

def one(j, text, name=''): return judge_one(j, TASK, Program(text, name))

def test_good(j):
    v = one(j, GOOD, 'good')
    assert v.ok and v.source=='estimated' and v.checks==2 and v.device.kind=='host' and v.date and len(v.key)==16
    assert v.speedup.source=='estimated' and 'estimated' in repr(v)
    assert Verdict.from_json(v.to_json())==v
    assert set(v.seconds)=={'trace','compile','correct','sanitize','time'}

@pytest.mark.parametrize('old,new,status,gate,kind', [
    ('return y', 'return cp.add(x, 1)', 'forbidden', 'trace', 'library_call'),
    ('x, w, y, x.size', 'x, w, y', 'launch', 'trace', 'arg_count'),
    ('import cupy as cp', 'import cupy as cp; (', 'compile', 'trace', 'syntax_error'),
    ('w[0] *', 'q[0] *', 'compile', 'compile', 'compile_error'),
    ('"""\nextern', '"""\n#include "/etc/passwd"\nextern', 'forbidden', 'compile', 'include_refused'),
    (BODY, 'if (i < n) asm volatile("");'+BODY, 'unsupported', 'launch', 'unsupported_on_host'),
    (BODY, BODY+' volatile float* z = y; while (n) z[0] = 1;', 'timeout', 'launch', 'timeout'),
    (BODY, 'if (i < n) y[i] = w[0] * x[i];', 'wrong', 'correct', 'mismatch'),
    (BODY, 'if (i < n-1) y[i] = w[0] * x[i] + 1;', 'wrong', 'correct', 'stale_or_unwritten'),
    (BODY, 'if (i <= n) y[i] = i<n ? w[0] * x[i] + 1 : 0;', 'wrong', 'correct', 'oob'),
    (BODY, '__shared__ float s[256]; s[threadIdx.x] = i < n ? x[i] : 0; float v = s[255-threadIdx.x]; (void)v; '+BODY+' if (v == 1e30f) y[0] = 0;', 'wrong', 'sanitize', 'race')])
def test_gates(j, monkeypatch, old, new, status, gate, kind):
    from kernelrl._bench import HostBench
    monkeypatch.setattr(HostBench, 'RUN_SECONDS', 3.)
    assert old in GOOD
    v = one(j, GOOD.replace(old, new))
    assert (v.status,v.gate)==(status,gate) and v.reason.kind in (kind,'uninit_shared' if kind=='race' else kind), v
    assert v.feedback().startswith(f'<err> status={"infra" if status=="unsupported" else status} stage={gate}')
    assert one(j, GOOD+f'# after {kind}').ok

def test_compile_error_has_the_line_of_the_source(j):
    v = one(j, GOOD.replace('w[0] *', 'q[0] *'))
    assert v.reason.line==4 and '"q" is undefined' in v.reason.message

def test_feedback_tells_no_secret(j):
    text = one(j, GOOD.replace(BODY, 'if (i < n) y[i] = w[0] * x[i];')).feedback()
    assert 'mismatch:' in text and len(text)<500
    for s in ('seed','/root','/tmp','secret'): assert s not in text

def test_second_call_comes_from_the_store(j, monkeypatch):
    one(j, GOOD, 'good')
    monkeypatch.setattr(j.bench, 'trace', lambda *a, **kw: pytest.fail('judged again'))
    assert one(j, GOOD, 'good').program=='good' and one(j, GOOD, 'renamed').program=='renamed'

def test_another_protocol_is_another_verdict(j):
    with Judge('host', 'standard', j.store, secret='test') as k: assert k.key(TASK, Program(GOOD))!=j.key(TASK, Program(GOOD))

def test_many_in_any_order(j):
    pairs = [(TASK, Program(GOOD+f'# {i}', f'p{i}')) for i in range(6)]+[(TASK, Program(GOOD.replace('+ 1;','+ 2;'), 'bad'))]
    vs = {v.program:v for v in judge_many(j, pairs, progress=False)}
    assert sum(v.ok for v in vs.values())==6 and vs['bad'].status=='wrong'

def test_replay(j, tmp_path):
    v = one(j, GOOD, 'good')
    write_verdicts(tmp_path/'verdicts.jsonl', [v])
    with Judge('replay', 'quick', j.store, replay=tmp_path) as r:
        got = judge_one(r, TASK, Program(GOOD, 'good'))
        assert got.source=='replayed' and got.speedup.source=='replayed' and got.speedup.ratio==v.speedup.ratio
        assert judge_one(r, TASK, Program(GOOD+'# new')).status=='infra'
    with pytest.raises(KernelRLError, match='no verdicts to replay'): Judge('replay', replay=tmp_path/'none')

def test_resume_takes_only_what_was_measured_under_the_same_conditions(j, tmp_path):
    v = one(j, GOOD, 'good')
    write_verdicts(tmp_path/'v.jsonl', [v])
    with Judge('host', 'quick', Store(tmp_path/'other.sqlite'), secret='test') as k:
        assert k.adopt(tmp_path/'v.jsonl')==1
        assert judge_one(k, TASK, Program(GOOD)).date==v.date and len(k.store)==1
    with Judge('host', 'strict', Store(tmp_path/'third.sqlite'), secret='test') as k:
        k.adopt(tmp_path/'v.jsonl')
        assert k.store.verdict(k.key(TASK, Program(GOOD))) is None

def test_bad_settings():
    with pytest.raises(KernelRLError, match='no such protocol'): Judge('host', 'fast')
    with pytest.raises(KernelRLError, match='no such device'): Judge('tpu')
    with pytest.raises(KernelRLError, match='not in the table'): Judge('host', gpu='GTX 1').bench

def _with_compiler(j, answers):
    "The judge's bench with a compiler that answers, or dies, as told"
    from contextlib import contextmanager
    class Told:
        stopped = False
        @contextmanager
        def take(self, which=None): yield self
        def call(self, request, deadline):
            a = answers.pop(0)
            if isinstance(a, Exception): raise a
            return a
    return Told()

@pytest.mark.parametrize('answers,status,kind', [
    ([{'broken':'NVRTC cannot be loaded'}], 'infra', 'infra'),
    ([WorkerDied('signal SIGSEGV'), WorkerDied('signal SIGSEGV')], 'compile', 'compile_error'),
    ([WorkerTimeout()], 'timeout', 'compile_timeout')])
def test_who_is_to_blame_for_a_compiler_that_fails(j, monkeypatch, answers, status, kind):
    monkeypatch.setattr(j.bench, 'compilers', _with_compiler(j, answers))
    v = one(j, GOOD.replace('x[i]', f'x[i]+{len(answers)}.f*0.f+{len(kind)}.f*0.f'))
    assert (v.status,v.reason.kind)==(status,kind) and not answers

def test_a_compiler_that_died_once_is_asked_again(j, monkeypatch):
    real = j.bench.compilers
    answers = [WorkerDied('signal SIGKILL')]
    told = _with_compiler(j, answers)
    def call(request, deadline):
        if answers: raise answers.pop()
        return real.call(request, deadline)
    monkeypatch.setattr(told, 'call', call)
    monkeypatch.setattr(j.bench, 'compilers', told)
    assert one(j, GOOD.replace('x[i]', 'x[i]+7.f*0.f')).ok
