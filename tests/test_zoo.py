"The zoo: tasks are sound, programs are right, distinct and reproducible, and no composition is on two sides of a split"
import re
from concurrent.futures import ThreadPoolExecutor
from functools import cache
import numpy as np
import pytest
from kernelrl.audit import audit
from kernelrl.core import KernelRLError, derive_seed
from kernelrl.host import compile_host, run_host
from kernelrl.nvrtc import compile_module, nvrtc_version
from kernelrl.program import Plan, cuda_strings
from kernelrl.reference import Reference
from kernelrl.task import load_tasks
from kernelrl.trace import trace_here
from kernelrl.verify import compare
from kernelrl.writers import FLAGS, allowed, ladder, variants, write, zoo_pairs
from kernelrl.zoo import CORES, ELEMENTWISE, FAMILIES, Recipe, composition, make_task, recipe, split, step, zoo_tasks

SEED, N = 0, 64

@pytest.fixture(autouse=True, scope='module')
def one_thread():
    "The tensors are small: more threads only wait for each other"
    import torch
    n = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n)

@cache
def pairs(): return tuple(zoo_pairs(SEED, N))

def plan_of(task, program, shape):
    answer = trace_here(program, task.signature(shape)) # Ours, so it need not be locked in
    assert 'plan' in answer, (recipe(task), program.name, answer)
    return Plan.from_dict(answer['plan'])

def normal(program):
    "The text without comments, spaces and strings of documentation"
    text = re.sub(r'^""".*?"""', '', program.text, flags=re.S)
    return re.sub(r'\s+', '', re.sub(r'  // [^\n]*', '', text))

# ---- tasks

def test_operators_are_enough():
    assert len(ELEMENTWISE)+len(CORES)>=16
    used = {step(s)[0].name for t in zoo_tasks(SEED, 400) for s in recipe(t).steps}
    assert used=={*ELEMENTWISE, *CORES}, 'every operator is drawn'

def test_tasks_are_kernelbench_files(tmp_path):
    for t in zoo_tasks(SEED, 30):
        (tmp_path/'t.py').write_text(t.source)
        again = load_tasks(tmp_path/'t.py')[0]
        assert again.id==t.id and again.level==t.level
        assert make_task(recipe(t), SEED)==t

def test_tasks_are_sound():
    "No answer that does no work passes; nothing is lost in float64"
    bad = {t.name:audit(t) for t in zoo_tasks(SEED, 100)+zoo_tasks(7, 20)}
    assert not {k:v for k,v in bad.items() if v}

def test_levels_and_dtypes():
    tasks = zoo_tasks(SEED, 100)
    assert {t.level for t in tasks}=={1,2,3}
    assert {s.dtype for t in tasks for s in t.signature().inputs}>={'float32','float16','int64'}
    assert {recipe(t).family for t in tasks}==set(FAMILIES)
    for t in tasks: assert 4<<20<=sum(s.nbytes for s in t.signature().inputs+t.signature().outputs) or recipe(t).family=='gemm', (t, 'the timed shape is large')

def test_no_composition_in_two_splits():
    sides = {}
    for seed in range(6):
        for t in zoo_tasks(seed, 80): sides.setdefault(composition(t), set()).add(split(t))
    assert all(len(s)==1 for s in sides.values())
    count = [sum(s=={name} for s in sides.values())/len(sides) for name in ('train','valid','test')]
    assert np.allclose(count, (.8,.1,.1), atol=.05), count
    a = Recipe(('silu','scale(0.5)','softmax'), 'float16'); b = Recipe(('silu','scale(0.25)','softmax'), 'float32')
    assert split(make_task(a, 1))==split(make_task(b, 2))

def test_same_seed_same_tasks():
    assert [t.to_json() for t in zoo_tasks(3, 25)]==[t.to_json() for t in zoo_tasks(3, 50)][:25]
    assert {t.id for t in zoo_tasks(3, 25)}!={t.id for t in zoo_tasks(4, 25)}

# ---- programs

def test_pairs_are_many_and_distinct():
    ps = pairs()
    assert len(ps)>=400
    assert len({(t.id, normal(p)) for t,p in ps})==len(ps)
    assert [p.text for _,p in zoo_pairs(SEED, 12)]==[p.text for _,p in ps][:len(list(zoo_pairs(SEED, 12)))]

def test_each_flag_changes_the_program():
    "In one and the same style, no two variants of a task are the same text"
    for family in FAMILIES:
        for t in zoo_tasks(SEED, 3, [family]):
            texts = [normal(write(t, v)) for v in variants(t)]
            assert len(set(texts))==len(texts)

def test_ladders_take_one_step_at_a_time():
    for t in zoo_tasks(SEED, 60):
        steps, every = ladder(t), variants(t)
        assert steps[0]==() and set(steps)<=set(every)
        for a,b in zip(steps, steps[1:]): assert set(a)<set(b) and len(b)==len(a)+1
        for v in every[1:]: assert any(set(u)<set(v) and len(u)==len(v)-1 for u in every), v

def test_operands_do_not_clash_with_names_in_kernels():
    "What an operand is called, no kernel calls something else"
    for family in FAMILIES:
        for t in zoo_tasks(SEED, 4, [family]):
            own = {step(s)[0].operand for s in recipe(t).steps}
            foreign = {o.operand for o in [*ELEMENTWISE.values(), *CORES.values()] if o.operand}-own
            for v in variants(t):
                program = write(t, v)
                words = {w for a,b in cuda_strings(program.text) for w in re.findall(r'[A-Za-z_]\w*', re.sub('//.*', '', program.text[a:b]))}
                assert not words & foreign, (recipe(t), v, words & foreign)

def test_lengths():
    "A small model can hold them: most sources are short"
    sizes = sorted(b-a for _,p in pairs() for a,b in cuda_strings(p.text))
    assert sizes[0]>100 and sizes[len(sizes)*8//10]<1500 and sizes[-1]<4500

def test_every_pair_traces_at_every_shape():
    for t,p in pairs():
        for shape in range(len(t.shapes)):
            plan = plan_of(t, p, shape)
            assert not plan.notes, (recipe(t), p.name, plan.notes)
            fused = 'fuse' in p.name.split() or 'fuse' not in allowed(t)
            assert not fused or len(plan.launches)==1+(recipe(t).family=='loss' or 'split' in p.name.split()), 'one launch, two for a sum over all'

def test_what_does_not_fit_is_said():
    t = make_task(Recipe(('silu','softmax')))
    with pytest.raises(KernelRLError, match='also needs'): write(t, ('fuse','vector'))
    with pytest.raises(KernelRLError, match='does not apply'): write(t, ('fuse','pad'))
    with pytest.raises(KernelRLError, match='no such operator'): make_task(Recipe(('conv',)))

# ---- on devices

RECIPES = {
    'map': ('silu','bias','mul','row_scale','tanh'), 'row': ('bias','softmax','gain','add'), 'col': ('bias','col_mean','tanh'), 'loss': ('bias','smooth_l1'), 'scan': ('add','bias','cumsum','abs'),
    'transpose': ('add','bias','row_scale','transpose'), 'pool': ('silu','avg_pool(2)','tanh'), 'gemm': ('linear','bias','add','silu'), 'gather': ('gather','bias','mul','row_shift')}

def sample():
    "For each family and dtype as few programs as have every flag, besides the naive one"
    for family,steps in RECIPES.items():
        for dtype in ('float32','float16'):
            if family=='loss' and dtype=='float16': continue # fp16 losses overflow in PyTorch itself
            seed = next(s for s in range(40) if family!='row' or make_task(Recipe(steps, dtype), s).signature().inputs[0].shape[1]<=1024)
            task = make_task(Recipe(steps, dtype), seed)
            chosen, left = [()], set(allowed(task))
            while left:
                v = max(variants(task), key=lambda v: (len(left & set(v)), -len(v)))
                chosen.append(v); left -= set(v)
            for v in dict.fromkeys(chosen): yield task, v
    for core in ('layer_norm','row_var'): # Welford
        task = make_task(Recipe((core,)))
        yield task, max((v for v in variants(task) if 'online' in v), key=len)

SAMPLE = list(sample())

def test_the_sample_has_everything():
    for family in FAMILIES:
        flags = {f for t,v in SAMPLE if recipe(t).family==family for f in v}
        assert flags=={f for t,_ in SAMPLE if recipe(t).family==family for f in allowed(t)}
    assert {f for _,v in SAMPLE for f in v}==set(FLAGS)

@pytest.mark.skipif(nvrtc_version() is None, reason='needs NVRTC')
def test_sample_compiles_for_the_gpu():
    "With NVRTC, for the timed shape: nothing spills"
    for i,(task,flags) in enumerate(SAMPLE):
        plan = plan_of(task, write(task, flags, i), 0)
        for m,module in enumerate(plan.modules):
            cubin = compile_module(module, [l.kernel for l in plan.launches if l.module==m])
            assert all(not r.spill_bytes for r in cubin.resources), (recipe(task), flags, cubin)

def prepare(i, task, flags):
    "What running one program at both small shapes needs (tracer and torch are not for threads)"
    program = write(task, flags, 100+i)
    for shape,dist in ((1,'own'),(2,'shifted')):
        ref, seed = Reference(task, shape), derive_seed('zoo', i)
        yield f'{recipe(task)} {flags} shape {shape} {dist}', plan_of(task, program, shape), [*ref.inputs(seed, dist), *ref.params(seed)], ref.expected(seed, dist), ref.signature.outputs

def run(job):
    "What is wrong with one program at one shape, or nothing"
    what,plan,inputs,(wide,native),outputs = job
    result,outs = run_host(compile_host(plan), plan, inputs, deadline=30)
    if result.status!='ok': return f'{what}: {result}'
    reports = [compare(o, e, n, s.dtype) for o,e,n,s in zip(outs, wide, native, outputs)]
    return '; '.join(f'{what}: {r}' for r in reports if not r.ok)

def test_sample_is_right_on_the_host():
    jobs = [job for i,(task,flags) in enumerate(SAMPLE) for job in prepare(i, task, flags)]
    with ThreadPoolExecutor(2) as pool: wrong = [w for w in pool.map(run, jobs) if w]
    assert not wrong, wrong
