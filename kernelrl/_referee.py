"""The process that knows the answers: it draws inputs, computes the reference in float64 and compares. No candidate's code or memory ever comes here."""
import contextlib, sys
from collections import OrderedDict
from pathlib import Path
from kernelrl import _arrays
from kernelrl._worker import serve
from kernelrl.core import KernelRLError
from kernelrl.device import gpu_lock
from kernelrl.eager import eager_ops
from kernelrl.reference import Reference
from kernelrl.task import Task
from kernelrl.verify import Check, verify_one

_held = False

@contextlib.contextmanager
def on_gpu():
    "The GPU together with others, but not while somebody times; asked for again inside, it is there already"
    global _held
    if _held or DEVICE=='cpu':
        yield
        return
    with gpu_lock():
        _held = True
        try: yield
        finally: _held = False

_refs:OrderedDict[tuple,Reference] = OrderedDict()
DEVICE = 'cpu'

def _reference(req:dict)->Reference:
    "The reference of a task and shape; the last few are kept"
    task = Task.from_dict(req['task'])
    key = task.id,req.get('shape', req.get('check', {}).get('shape', 0))
    if key not in _refs: _refs[key] = Reference(task, key[1], DEVICE, keep=1<<30 if DEVICE!='cpu' else 1<<28, lock=on_gpu)
    _refs.move_to_end(key)
    while len(_refs)>8: _refs.popitem(last=False)
    return _refs[key]

def signature(req): return {'signature':Task.from_dict(req['task']).signature(req['shape']).to_dict()}
def ops(req): return {'ops':[o.to_dict() for o in eager_ops(Task.from_dict(req['task']), req['shape'])]}

def usable(req):
    "The distributions under which the reference stays finite"
    names,notes = _reference(req).usable(req['seed'])
    return {'names':list(names), 'notes':[n.to_dict() for n in notes]}

def case(req):
    "Draw inputs and parameters into a file"
    r = _reference(req)
    arrays = [a for a,s in zip(r.inputs(req['seed'], req['distribution']), r.signature.inputs) if s.value is None]+r.params(req['seed'])
    return {'inputs':_arrays.save(Path(req['path']), arrays)}

LARGE = 1<<20 # Bytes of an output from which on a GPU compares faster, where there is one
_answers:OrderedDict[tuple,tuple] = OrderedDict()

def _up(arrays:list)->list:
    import cupy as cp
    return [cp.asarray(a) for a in arrays]

def _answer_up(r:Reference, check:Check)->tuple:
    "The answer in float64 and PyTorch's own, on the GPU; the last few are kept"
    key = r.task.id,r.shape,check.seed,check.distribution,check.fresh
    if key not in _answers: _answers[key] = tuple(map(_up, r.expected(check.seed, check.distribution, check.fresh)))
    _answers.move_to_end(key)
    while len(_answers)>1 and sum(a.nbytes for pair in _answers.values() for arrays in pair for a in arrays)>4<<30: _answers.popitem(last=False)
    return _answers[key]

def verify(req):
    "Compare the outputs of one or more runs with the answer; large ones on the GPU, where there is one"
    r,check = _reference(req),Check.from_dict(req['check'])
    large = DEVICE!='cpu' and any(s.nbytes>=LARGE for s in r.signature.outputs)
    answer = _answer_up(r, check) if large else r.expected(check.seed, check.distribution, check.fresh)
    with on_gpu() if large else contextlib.nullcontext():
        runs = [_up(_arrays.load(m)) if large else _arrays.load(m) for m in req['runs']]
        moved = lambda c: (_up if large else list)(r.jittered(c.seed, c.distribution, fresh=c.fresh))
        reports,found = verify_one(lambda c: (runs[c.repeat], []), lambda c: answer, check, [s.dtype for s in r.signature.outputs], r.task.tolerance, len(runs), moved)
    return {'reports':[e.to_dict() for e in reports], 'found':[f.to_dict() for f in found]}

OPS = {f.__name__:f for f in (signature, ops, usable, case, verify)}

def handle(req:dict)->dict:
    try: return OPS[req['op']](req)
    except KernelRLError as e: return {'broken':str(e)}
    except Exception as e: return {'broken':f'{type(e).__name__}: {e}'}

def setup():
    import torch
    torch.set_num_threads(max(1, torch.get_num_threads()//int(sys.argv[2]) if len(sys.argv)>2 else 1))

if __name__=='__main__':
    DEVICE = sys.argv[1] if len(sys.argv)>1 else 'cpu'
    serve(handle, setup)
