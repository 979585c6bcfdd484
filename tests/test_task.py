"Every shipped task is sound, and everything that can be wrong with a file is said"
import ast, json, subprocess, sys
import numpy as np
import pytest
from kernelrl.core import KernelRLError
from kernelrl.audit import agrees, audit
from kernelrl.eager import eager_ops
from kernelrl.reference import Reference
from kernelrl.task import DISTRIBUTIONS, DTYPES, Task, Tolerance, load_tasks, shipped_programs, shipped_tasks

TASKS = shipped_tasks()
NAMES = [t.name for t in TASKS]
by_name = dict(zip(NAMES, TASKS))
GOOD = 'import torch\nimport torch.nn as nn\nN = 8\nclass Model(nn.Module):\n    def forward(self, x): return torch.relu(x) * 2\ndef get_inputs(): return [torch.randn(N, 5)]\n'
KNOWN: dict[str, set[str]] = {}  # findings of the audit that are a stated property of a task

def make(forward, inputs='[torch.randn(6, 10)]', init='', name='t', **kw):
    "A task of a few lines"
    src = f'import torch, torch.nn as nn\nclass Model(nn.Module):\n  def __init__(self):\n    super().__init__()\n    {init}\n  def forward(self, x): return {forward}\ndef get_inputs(): return {inputs}\n'
    return Task(name, src, **kw)

def kinds(task, **kw): return {f.kind for f in audit(task, **kw)}

def test_imports_without_torch():
    code = "import sys, kernelrl.task as t; t.shipped_tasks(); assert not {'torch','pyarrow','cupy'} & set(sys.modules)"
    subprocess.run([sys.executable, '-c', code], check=True)

# ---- the shipped tasks

def test_the_set():
    assert len(TASKS)>=28 and len(set(NAMES))==len(NAMES) and len({t.id for t in TASKS})==len(TASKS)
    dtypes = {s.dtype for t in TASKS for s in t.signature().inputs}
    assert {'float32','float16','bfloat16','int64','int32'}<=dtypes
    assert any(s.value is not None for t in TASKS for s in t.signature().inputs), 'a scalar input'
    assert {t.level for t in TASKS}=={1,2,3}

def test_room_for_twice_the_speed():
    moved = lambda t: sum(o.bytes_read+o.bytes_written for o in eager_ops(t))/t.signature().nbytes
    assert sum(moved(t)>=2 for t in TASKS)>=15

@pytest.mark.parametrize('name', NAMES)
def test_shape_sets(name):
    t = by_name[name]
    assert len(t.shapes)>=3 and t.shapes[0]=={} and t.doc and t.licence
    assert set(t.distributions)<=set(DISTRIBUTIONS) and 'own' in t.distributions
    assert t.signature(0).nbytes<300e6
    for i in range(1, len(t.shapes)):
        assert all(np.prod(s.shape)<=400_000 for s in t.signature(i).inputs+t.signature(i).outputs), 'small enough to be emulated'
    tree = ast.parse(t.source)
    assert not any(isinstance(n, ast.Attribute) and n.attr in ('item','tolist','cpu','nonzero') for n in ast.walk(tree)), 'can be captured in a graph'

@pytest.mark.parametrize('name', NAMES)
def test_signature_is_what_runs(name):
    t = by_name[name]
    for i in range(1, len(t.shapes)):
        ref, sig = Reference(t, i), t.signature(i)
        wide, native = ref.expected(7)
        for arrays,specs in ((ref.inputs(7), sig.inputs), (ref.params(7), sig.params), (native, sig.outputs)):
            assert [a.shape for a in arrays]==[s.shape for s in specs]
            assert [a.dtype.itemsize for a in arrays]==[DTYPES[s.dtype] for s in specs]
        assert [w.dtype==np.float64 for w in wide]==['float' in s.dtype for s in sig.outputs]
        assert all(np.isfinite(w).all() for w in wide)
        assert all(agrees(n, w, n, s.dtype) for n,w,s in zip(native, wide, sig.outputs))

@pytest.mark.parametrize('name', NAMES)
def test_audit_is_clean(name):
    assert kinds(by_name[name])==KNOWN.get(name, set()), audit(by_name[name])

@pytest.mark.parametrize('name', NAMES)
def test_distributions_are_usable(name):
    t = by_name[name]
    usable, notes = Reference(t, 1).usable()
    assert usable==t.distributions and not notes

def test_argmax_has_no_ties():
    ref = Reference(by_name['argmax_last'], 1)
    for d in ref.usable()[0]:
        x = np.sort(ref.inputs(0, d)[0], axis=1)
        assert (x[:,-1]>x[:,-2]).all()

def test_programs_are_text():
    for n in NAMES:
        for name,text in shipped_programs(n): assert name!='task' and 'forward' in text
    with pytest.raises(KernelRLError, match='did you mean .*transpose2d'): shipped_programs('transpose')

# ---- answers

def test_same_seed_same_numbers():
    t = by_name['rms_norm']
    a, b = Reference(t, 1), Reference(t, 1)
    b.inputs(99); b.expected(5, 'sparse')   # what was asked before does not matter
    for f in (lambda r: r.inputs(3, 'heavy'), lambda r: r.params(3), lambda r: r.expected(3)[0], lambda r: r.expected(3)[1]):
        assert all(np.array_equal(x, y) for x,y in zip(f(a), f(b)))
    assert not np.array_equal(a.params(3)[0], a.params(4)[0])

def test_random_and_global_state_are_left_alone():
    import random, torch
    torch.manual_seed(0); np.random.seed(0); random.seed(0)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    Reference(by_name['layer_norm'], 1).expected(1); audit(by_name['sum_last']); by_name['mse_loss'].signature()
    assert torch.equal(before[0], torch.get_rng_state()) and before[1]==np.random.get_state()[1].tolist() and before[2]==random.getstate()
    assert torch.get_default_dtype()==torch.float32 and not torch.are_deterministic_algorithms_enabled()

def test_inputs_survive_an_in_place_reference():
    ref = Reference(make('x.mul_(0)'))
    before = ref.inputs(1)[0].copy()
    ref.expected(1)
    assert np.array_equal(before, ref.inputs(1)[0]) and before.any()

def test_integers_are_never_cast():
    t = by_name['cross_entropy']
    for d in t.distributions:
        labels = Reference(t, 1).inputs(1, d)[1]
        assert labels.dtype==np.int64 and labels.max()<129

def test_constant_weights_are_varied():
    ref = Reference(make('self.n(x)', init='self.n = nn.LayerNorm(10)'))
    w, b = ref.params(1)
    assert np.ptp(w)>0 and np.ptp(b)>0

def test_buffers_start_afresh():
    ref = Reference(make('self.n(x)', init='self.n = nn.BatchNorm1d(10)'))
    first = ref.answer(ref.inputs(1), ref.params(1))
    for _ in range(3): again = ref.answer(ref.inputs(1), ref.params(1))
    assert np.array_equal(first[0], again[0])
    assert [s.name for s in ref.signature.params][-1]=='n_num_batches_tracked' and ref.signature.params[-1].dtype=='int64'

def test_float64_follows_constants_and_plain_tensors():
    ref = Reference(make('x @ self.w + torch.ones(10)', init='self.w = torch.full((10,10), 0.1)'))
    (wide,), (x,) = ref.expected(1)[0], ref.inputs(1)
    assert abs(wide-(x.astype(float) @ np.full((10,10), np.float32(.1), float)+1)).max()<1e-13

def test_baseline_takes_nothing_and_leaves_the_reference_alone():
    import torch
    ref = Reference(by_name['gemm_bias_relu_f16'], 1)
    call = ref.callable(2)
    assert torch.equal(call(), call()) and call().dtype==torch.float16 and not call().requires_grad
    assert np.array_equal(call().numpy(), ref.expected(2)[1][0]) and not np.array_equal(call().numpy(), ref.expected(3)[1][0])

def test_memory_is_bounded():
    ref = Reference(by_name['softmax_last'], 1, keep=100_000)
    for s in range(20): ref.expected(s)
    assert len(ref._memory.kept)<=4

def test_scalar_input():
    sig = by_name['relu_scale'].signature(1)
    assert [s.value for s in sig.inputs]==[None,1.5,.25] and [s.shape for s in sig.inputs[1:]]==[(),()]
    ref = Reference(by_name['relu_scale'], 1)
    assert float(ref.inputs(0, 'scaled')[1])==1.5
    assert np.allclose(ref.expected(0)[0][0], np.maximum(ref.inputs(0)[0].astype(float)*1.5+.25, 0), rtol=0, atol=1e-14)

def test_task_round_trip_and_identity():
    for t in TASKS: assert Task.from_json(t.to_json())==t
    a = make('x*2')
    b = Task('other name', a.source, provenance='elsewhere', licence='MIT')
    assert a.id==b.id and a.id!=make('x*2', tolerance=Tolerance(k=3.)).id and len({a, b})==2

def test_unknown_names():
    t = make('x*2')
    with pytest.raises(KernelRLError, match='no such distribution; choose from own'): Reference(t).inputs(0, 'gaussian')
    with pytest.raises(KernelRLError, match='has no shape 3'): t.signature(3)
    with pytest.raises(KernelRLError, match='has no constant M; it has none'): t.signature({'M':3})
    with pytest.raises(KernelRLError, match='torch sees no such device'): Reference(t, device='xpu')

def test_derived_constants_follow():
    t = Task('t', 'import torch, torch.nn as nn\nN: int = 4\nM, K = 2*N, 3\nM2 = M*M\nclass Model(nn.Module):\n  def forward(self, x): return x\ndef get_inputs(): return [torch.ones(N, M, K, M2)]\n')
    assert t.signature().outputs[0].shape==(4,8,3,64)
    assert t.signature({'N':2}).outputs[0].shape==(2,4,3,16)
    assert t.signature({'M':5, 'K':1}).outputs[0].shape==(4,5,1,25)

# ---- the audit

@pytest.mark.parametrize('task,kind', [
    (make('torch.softmax(x, 1).mean(1)'), 'passes_constant'),
    (make('x - x'), 'passes_zeros'),
    (make('torch.ones_like(x)'), 'passes_constant'),
    (make('x * 1.0'), 'passes_identity'),
    (make('x.reshape(10, 6)'), 'passes_identity'),
    (make('torch.full((4,), 3.0) + torch.arange(4) + 0*x.sum()'), 'seed_insensitive'),
    (make('x[:3].sum(1)'), 'half_input'),
    (make('x[3:].sum(1)'), 'half_input'),
    (make('x * 2 + self.w * 0', init='self.w = nn.Parameter(torch.randn(10))'), 'weight_insensitive'),
    (make('x / (x - x)'), 'nonfinite_reference'),
    (make('nn.functional.dropout(x)'), 'nondeterministic_reference'),
    (make('torch.sin(x.float())'), 'no_float64'),
    (make('x @ torch.ones(10, 10, dtype=torch.float32)'), 'no_float64'),
    (make('x * 2', '[torch.randn(0, 3)]'), 'empty_tensor')])
def test_audit_names_it(task, kind): assert kind in kinds(task)

def test_audit_takes_a_check():
    t = make('x * 2')
    assert kinds(t)==set()
    assert {'passes_zeros','passes_constant','half_input'}<=kinds(t, check=lambda *a: True)

def test_audit_of_a_maximum():
    "The maximum lies in one half of the inputs or the other; that is no reason to refuse the task"
    assert kinds(by_name['max_all'])==set()

def test_unused_bias_is_a_warning():
    t = make('self.b(self.c(x[None, None]))', init='self.c = nn.Conv2d(1, 4, 3); self.b = nn.InstanceNorm2d(4)')
    f, = audit(t)
    assert (f.kind,f.severity)==('weight_insensitive','warning') and 'c_bias' in f.message

# ---- files

def test_folder_of_kernelbench(tmp_path):
    (tmp_path/'level2').mkdir()
    for n in ('10_B.py','9_A.py','_skip.py'): (tmp_path/'level2'/n).write_text(GOOD)
    assert [(t.name,t.problem_id,t.level) for t in load_tasks(tmp_path/'level2')]==[('9_A',9,2),('10_B',10,2)]
    assert len(load_tasks(tmp_path))==2
    assert load_tasks(str(tmp_path/'level2'/'9_A.py'))[0].signature({'N':3}).outputs[0].shape==(3,5)

@pytest.mark.parametrize('kind', ['parquet','jsonl','json'])
def test_tables(tmp_path, kind):
    rows, p = [{'code':GOOD, 'level':3, 'name':f'n{i}', 'problem_id':i} for i in range(2)], tmp_path/f'b.{kind}'
    if kind=='parquet':
        import pyarrow as pa, pyarrow.parquet as pq
        pq.write_table(pa.Table.from_pylist(rows), p)
    else: p.write_text(json.dumps(rows) if kind=='json' else '\n'.join(map(json.dumps, rows))+'\n\n')
    assert [(t.name,t.level,t.problem_id,t.provenance) for t in load_tasks(p)]==[('n0',3,0,p.name),('n1',3,1,p.name)]

@pytest.mark.parametrize('file,content,says', [
    ('a.py', GOOD[:-4], 'line 6 is not Python'),
    ('a.py', b'\xff\xfe', 'is not UTF-8 text'),
    ('a.py', b'x = 1\0', 'is not Python'),
    ('a.py', 'x = 1\n', 'defines no Model and no get_inputs'),
    ('a.py', GOOD.replace('get_inputs','inputs'), 'defines no get_inputs'),
    ('a.py', GOOD+'SHAPES = [{"D": 3}]\n', 'has no constant D; it has N'),
    ('a.py', GOOD+'SHAPES = {"N": 3}\n', 'SHAPES must be a list of dicts'),
    ('a.py', GOOD+'SHAPES = [{"N": N*2}]\n', 'line 7: SHAPES must be a plain literal'),
    ('a.py', GOOD+'LEVEL = "hard"\n', 'LEVEL is .hard.; write a whole number'),
    ('a.py', GOOD+'DISTRIBUTIONS = ("own", "wild")\n', 'DISTRIBUTIONS names wild; choose from own'),
    ('a.jsonl', '{"prompt": "p", "answer": 1}', 'has the columns prompt, answer; wanted are code'),
    ('a.jsonl', json.dumps({'code':GOOD,'name':'n'})+'\n{"code": ', 'line 2 is not JSON'),
    ('a.jsonl', json.dumps({'code':GOOD,'name':'n','level':'hard'}), 'row 0: level and problem_id must be whole numbers'),
    ('a.jsonl', json.dumps({'code':'def','name':'n'}), r'row 0 \(n\): line 1 is not Python'),
    ('a.json', '{"rows"', 'line 1 is not JSON'),
    ('a.json', '[1, 2]', 'row 0 has the columns int'),
    ('a.json', '[]', 'holds no rows'),
    ('a.parquet', b'PAR1 nonsense', 'is not a Parquet file that can be read'),
    ('a.csv', 'code,name', 'is neither a .py file nor')])
def test_what_is_wrong_with_a_file(tmp_path, file, content, says):
    p = tmp_path/file
    p.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(KernelRLError, match=says) as e: load_tasks(p)
    assert file in str(e.value) and '\n' not in str(e.value) and '; ' in str(e.value), 'names the file and the way out'

def test_missing_and_empty(tmp_path):
    with pytest.raises(KernelRLError, match='no such file or folder; give'): load_tasks(tmp_path/'no')
    with pytest.raises(KernelRLError, match='holds no .py task; give'): load_tasks(tmp_path)

@pytest.mark.parametrize('task,says', [
    (make('{"y": x}'), 'returns a dict; it must return a tensor'),
    (make('(x, None)'), 'returns a NoneType'),
    (make('()'), 'returns nothing'),
    (make('x', '[torch.ones(2), 3]'), 'gives 2 inputs, and Model.forward takes 1'),
    (make('x', '[]'), 'gives 0 inputs, and Model.forward needs 1'),
    (make('x', '["text"]'), 'x is a str; inputs are tensors and numbers'),
    (make('x', '[torch.ones(2, dtype=torch.complex64)]'), 'x is complex64'),
    (make('torch.nope(x)'), r'its reference fails at line 6 \(AttributeError'),
    (Task('t', 'import no_such_package\n'+GOOD), r'its source fails at line 1 \(ModuleNotFoundError')])
def test_what_is_wrong_with_a_task(task, says):
    with pytest.raises(KernelRLError, match=says) as e: task.signature()
    assert '\n' not in str(e.value)
    if 'source' not in says: assert isinstance(task._repr_markdown_(), str), 'a broken task can still be looked at'
