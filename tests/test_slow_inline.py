"The slow path: a ModelNew run as it is, in a process of its own, on the judge's checks. A real build takes most of a minute, so those here are marked slow and have no CUDA; benchmarks/translate.py builds that"
import json, os, shutil, subprocess, sys, time
from dataclasses import replace
from pathlib import Path
import pytest
sys.path.insert(0, str(Path(__file__).parent.parent/'benchmarks'))
import judge_throughput, translate
from _common import Clock
from kernelrl import _slow_inline as S
from kernelrl._slow_inline import Built, Kept, build_error, end_session, judge_slow
from kernelrl.core import Finding, KernelRLError
from kernelrl.judge import Judge
from kernelrl.program import Program
from kernelrl.task import Task
from kernelrl.verdict import Store, Verdict

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

# ---------------------------------------------------------------- builds that are kept
class Compiler:
    "Stands for load_inline: it writes a Python module where that would write a library"
    calls = 0
    def __call__(self, name, cpp_sources, functions=None, build_directory=None, verbose=False):
        import importlib.util
        self.calls += 1
        if 'error' in cpp_sources: raise RuntimeError(f'main.cpp:3:7: error: {cpp_sources}')
        assert not (Path(build_directory)/'lock').exists(), 'torch would wait for ever'
        path = Path(build_directory)/f'{name}.py'
        path.write_text(f'value = {cpp_sources}')
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

def test_a_build_is_kept_by_its_content(tmp_path):
    real = Compiler()
    first = Kept(real, tmp_path)
    assert first('a', '1').value==1 and first('a', cpp_sources='1', verbose=True).value==1 and first('a', '2').value==2 and first('a', '2', ['f']).value==2 and real.calls==3
    again = Kept(real, tmp_path)
    assert again('a', '1').value==1 and again('a', '2').value==2 and real.calls==3, 'a new process loads'
    assert again.seconds<=first.seconds and again.calls==2

def test_a_build_that_was_killed_is_built_again(tmp_path):
    real = Compiler()
    Kept(real, tmp_path)('a', '1')
    [folder] = tmp_path.iterdir()
    (folder/'built.json').unlink()
    (folder/'lock').touch() # As older versions of torch leave it
    assert Kept(real, tmp_path)('a', '1').value==1 and real.calls==2

def test_a_failed_build_is_told_and_tried_again(tmp_path):
    kept = Kept(Compiler(), tmp_path)
    for n in (1,2):
        with pytest.raises(RuntimeError) as e: kept('a', 'an error')
        assert kept.failed is e.value and kept.real.calls==n
    assert [p.read_text() for p in tmp_path.rglob('failed.txt')]==['main.cpp:3:7: error: an error']

@pytest.mark.parametrize('log,said', [
    ("Error building extension 'g': [1/3] /usr/local/cuda/bin/nvcc -c cuda.cu\nFAILED: cuda.cuda.o\n/tmp/b/g/cuda.cu(44): error: namespace \"at\" has no member \"ceil_div\"\n      g.x = 1;", 'cuda.cu line 44: namespace "at" has no member "ceil_div"'),
    ("Error building extension 'g': [2/2] c++\n/tmp/b/main.cpp: In function:\n/tmp/b/main.cpp:7:12: error: 'x' was not declared", "main.cpp line 7: 'x' was not declared"),
    ("Error building extension 'g': [1/3] c++ -c\n/tmp/b/main.cpp:1:10: fatal error: cusparse.h: No such file or directory", 'main.cpp line 1: cusparse.h: No such file or directory'),
    ("Error building extension 'g': [1/1] c++ main.o -shared\n/usr/bin/ld: cannot find -lcudart: No such file or directory\ncollect2: error: ld returned 1 exit status", 'ld: cannot find -lcudart: No such file or directory'),
    ('/tmp/b/g.so: undefined symbol: _Z3runN2at6TensorE', 'g.so: undefined symbol: _Z3runN2at6TensorE'),
    ('', 'the build said nothing'),
])
def test_what_a_failed_build_says(log, said):
    assert build_error(log)==Finding('compile_error', said)

def test_nvcc_may_be_a_script_somewhere_else(tmp_path, monkeypatch):
    for d in ('cuda/bin','cuda/include','scripts/bin'): (tmp_path/d).mkdir(parents=True)
    for f in ('cuda/bin/nvcc','cuda/include/cuda_runtime.h'): (tmp_path/f).touch()
    nvcc = tmp_path/'scripts'/'bin'/'nvcc'
    nvcc.write_text(f'#!/bin/sh\necho "#$ TOP={tmp_path}/cuda/bin/.." >&2\n')
    nvcc.chmod(0o755)
    monkeypatch.setenv('PATH', f'{nvcc.parent}:/usr/bin:/bin')
    for k in ('CUDA_HOME','CUDA_PATH'): monkeypatch.delenv(k, raising=False)
    assert S.cuda_home.__wrapped__()==(tmp_path/'cuda').resolve()

def test_compilers_go_with_their_session():
    "ninja gives each a process group of its own"
    p = subprocess.Popen([sys.executable, '-c', 'import subprocess, time; q = subprocess.Popen(["sleep","1000"], process_group=0); print(q.pid, flush=True); time.sleep(1000)'], stdout=subprocess.PIPE, text=True, start_new_session=True)
    child = int(p.stdout.readline())
    assert os.getsid(child)==p.pid and os.getpgid(child)==child
    end_session(p.pid)
    assert p.wait(10)==-9
    p.stdout.close()
    for _ in range(100):
        if not alive(child): return
        time.sleep(.05)
    raise AssertionError('the child lives on')

def alive(pid:int)->bool:
    try: return Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0]!='Z'
    except OSError: return False

CPP = '''
import torch, torch.nn as nn
from torch.utils.cpp_extension import load_inline
N = 4096
ext = load_inline(name='scaled', cpp_sources='torch::Tensor run(torch::Tensor x, torch::Tensor w, double c, int64_t k) { return torch::relu(x*w*c+k); }', functions=['run'], verbose=True)
class ModelNew(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k, self.w = k, nn.Parameter(torch.zeros(N))
    def forward(self, x, c): return ext.run(x, self.w, c, self.k), x>0
'''

builds = pytest.mark.skipif(not (shutil.which('ninja') and shutil.which('c++')), reason='there is no ninja or no C++ compiler')

@pytest.mark.slow
@builds
def test_a_real_build(j, tmp_path):
    first = Built(TASK, Program(CPP, 'p'), tmp_path, 'cpu').build()
    first.close()
    assert not first.failed, first.log
    b = Built(TASK, Program(CPP, 'p'), tmp_path, 'cpu').build()
    try: v = judge_slow(j, b)
    finally: b.close()
    assert v.ok and v.checks==2, v
    assert b.took==first.took>b.seconds['compile'], 'the second time it is loaded'

@pytest.mark.slow
@builds
def test_the_words_of_the_compiler(tmp_path):
    b = Built(TASK, Program(CPP.replace('torch::relu(', 'torch::rellu('), 'p'), tmp_path, 'cpu').build()
    b.close()
    assert b.failed.kind=='compile_error' and 'main.cpp line 2' in b.failed.message and 'rellu' in b.failed.message, b.failed

@pytest.mark.slow
@builds
def test_a_compiler_that_hangs(tmp_path, monkeypatch):
    cxx,pid = tmp_path/'cxx',tmp_path/'pid'
    cxx.write_text(f'#!/bin/sh\ncase "$*" in *" -c "*) echo $$ > {pid}; sleep 1000;; *) exec c++ "$@";; esac\n')
    cxx.chmod(0o755)
    monkeypatch.setenv('CXX', str(cxx))
    b = Built(TASK, Program(CPP, 'p'), tmp_path/'built', 'cpu').build(15.)
    assert b.failed.kind=='compile_timeout' and not alive(int(pid.read_text()))
    b.close()
    late = Built(TASK, Program(CPP, 'p'), tmp_path/'built', 'cpu', until=time.monotonic()+15)
    with pytest.raises(KernelRLError, match='no time'): late.build() # Our own clock says nothing about the program
    late.close()

# ---------------------------------------------------------------- the comparison
def test_agreement_is_strict():
    ok = Verdict('t', 'p', 'ok', 'time', seeds=(1,2))
    bad = lambda status, kind, seeds=(1,): Verdict('t', 'p', status, 'correct', reason=Finding(kind, ''), seeds=seeds)
    assert translate.agree(ok, ok) and translate.agree(replace(ok, status='slow'), ok)
    assert not translate.agree(ok, replace(ok, seeds=(1,3))), 'other inputs'
    assert translate.agree(bad('wrong','mismatch'), bad('wrong','mismatch')) and translate.agree(bad('wrong','stale_or_unwritten'), bad('wrong','nonfinite'))
    assert not translate.agree(bad('wrong','mismatch'), bad('wrong','mismatch',(1,2))), 'another check failed'
    for a,b in ((ok,bad('wrong','mismatch',(1,2))), (bad('wrong','nonfinite'),bad('wrong','mismatch')), (bad('wrong','mismatch'),bad('launch','illegal_access')), (bad('wrong','mismatch'),bad('compile','compile_error'))):
        assert not translate.agree(a, b) and not translate.agree(b, a)

def test_both_sides(j, tmp_path):
    kept,builds = [],translate.Builds(Clock(300.), tmp_path, 1, 'cpu')
    rows = translate.both(j, [(TASK, Program(GOOD, 'p'))], builds, lambda rows: kept.append(len(rows)))
    assert kept==[1] and [(r['fast'],r['slow'],r['slow_kind'],r['agree'],r['checks']) for r in rows]==[('forbidden','ok','',False,2)], rows # No kernel: the judge refuses what runs well

def test_no_time_is_no_row(j, tmp_path):
    assert translate.both(j, [(TASK, Program(GOOD, 'p'))], translate.Builds(Clock(50.), tmp_path, 1, 'cpu'))==[]

def test_throughput_is_resumed(tmp_path):
    from argparse import Namespace
    a = Namespace(out=tmp_path/'r.json', programs=2, inline=1, seeds=[1], resume=True)
    r = judge_throughput.Report(a)
    assert not r.resumed()
    r.device = 'a GPU, 2 cores'
    r.add({'programs':2}, [{'program':'p', 'id':'1', 'task':'t', 'status':'ok', 'ours_s':1.}], ends='ours')
    r.write()
    assert not judge_throughput.Report(a).resumed(), 'the same programs alone are missing'
    r.add({'same_s':1.}, ends='same')
    r.add({'inline_programs':1}, [{'id':'1', 'eval_s':2.}])
    r.write()
    again = judge_throughput.Report(a)
    assert again.resumed() and again.figures=={'programs':2, 'same_s':1.} and 'eval_s' not in again.rows['1'] and again.parts==['published']
    for k,v in (('resume',False), ('programs',3)): assert not judge_throughput.Report(Namespace(**{**vars(a), k:v})).resumed()
    assert json.loads(a.out.read_text())['unfinished']==['published']

def test_a_child_that_is_late_is_ended(tmp_path):
    a = judge_throughput._child('build', tmp_path, 2., text='import time; time.sleep(1000)')
    assert 'no answer' in a['error'] and a['seconds']<30
    assert 'ZeroDivisionError' in judge_throughput._child('build', tmp_path, 60., text='1/0')['error']

def test_the_published_way_tells_right_from_wrong(tmp_path):
    one = lambda text: judge_throughput._child('eval', tmp_path, 100., text=text, task=TASK.source, device='cpu', trials=2, timed=2)
    right,wrong = one(GOOD.replace('torch.zeros(N)', 'torch.randn(N)')),one(GOOD)
    assert right['right']==2 and right['ms']>0 and right['reference_ms']>0, right
    assert wrong['right']==0 and wrong['ms'] is None, wrong # It starts from other weights than the reference
