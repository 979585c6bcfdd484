"The slow path: a ModelNew run as it is, in a process of its own, on the judge's checks. Here without a build, which takes most of a minute; benchmarks/translate.py builds"
import pytest
from kernelrl._slow_inline import Built, judge_slow
from kernelrl.judge import Judge
from kernelrl.program import Program
from kernelrl.task import Task
from kernelrl.verdict import Store

TASK = Task('scaled', '''
import torch, torch.nn as nn
N = 4096
class Model(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k
        self.w = nn.Parameter(torch.randn(N))
    def forward(self, x, c): return torch.relu(x*self.w*c+self.k), x>0
def get_inputs(): return [torch.randn(3, N), 1.5]
def get_init_inputs(): return [2]
''', shapes=({}, {'N':300}, {'N':77}))

GOOD = '''
import torch, torch.nn as nn
N = 4096
class ModelNew(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k, self.w = k, nn.Parameter(torch.zeros(N))
    def forward(self, x, c):
        out = torch.empty_like(x)
        assert N==self.w.numel()==x.shape[1]
        out[:] = torch.relu(x*self.w*c+self.k)
        return out, x>0
'''

@pytest.fixture(scope='module')
def j(tmp_path_factory):
    with Judge('host', 'quick', Store(tmp_path_factory.mktemp('s')/'s.sqlite'), secret='test') as judge: yield judge

def slow(j, tmp_path, text):
    b = Built(TASK, Program(text, 'p'), tmp_path, 'cpu').build()
    try: return judge_slow(j, b)
    finally: b.close()

def test_right(j, tmp_path):
    v = slow(j, tmp_path, GOOD)
    assert v.ok and v.checks==2 and len(v.errors)==2 and not v.speedups and v.protocol=='quick, built with load_inline' and set(v.seconds)=={'compile','correct'}, v

@pytest.mark.parametrize('old,new,status,kind', [
    ('*c+self.k)', '*c+1.0)', 'wrong', 'mismatch'),
    pytest.param('out[:] =', 'out[:, 1:] = (lambda v: v[:, 1:])(torch.relu(x*self.w*c+self.k)); y =', 'wrong', 'nonfinite', marks=pytest.mark.slow), # Fresh memory is no zero
    pytest.param('return out, x>0', 'x.zero_(); return out, x>0', 'wrong', 'input_changed', marks=pytest.mark.slow),
    pytest.param('return out, x>0', 'return out', 'wrong', 'shape', marks=pytest.mark.slow),
    pytest.param('return out, x>0', 'return out.double(), x>0', 'wrong', 'shape', marks=pytest.mark.slow),
    pytest.param('return out, x>0', 'raise RuntimeError("CUDA error: misaligned address")', 'launch', 'launch_failure', marks=pytest.mark.slow),
    ('return out, x>0', 'import os; os._exit(0)', 'launch', 'crash'),
    pytest.param('nn.Parameter(torch.zeros(N))', 'nn.Parameter(torch.zeros(N, N))', 'wrong', 'parameter_shape', marks=pytest.mark.slow),
    ('def __init__(self, k):', 'def __init__(self, k, more):', 'compile', 'python_error'),
])
def test_not_right(j, tmp_path, old, new, status, kind):
    assert old in GOOD
    v = slow(j, tmp_path, GOOD.replace(old, new))
    assert (v.status,v.reason.kind)==(status,kind), v
