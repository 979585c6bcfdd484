"""The process that knows the answers: it draws inputs, computes the reference in float64 and compares. No candidate's code or memory ever comes here."""
import sys
from collections import OrderedDict
from pathlib import Path
from kernelrl import _arrays
from kernelrl._worker import serve
from kernelrl.core import KernelRLError
from kernelrl.device import gpu_lock
from kernelrl.task import Reference, Task, eager_ops
from kernelrl.verify import Check, verify_one

_refs:OrderedDict[tuple,Reference] = OrderedDict()
DEVICE = 'cpu'

def _reference(req:dict)->Reference:
    "The reference of a task and shape; the last few are kept"
    task = Task.from_dict(req['task'])
    key = task.id,req.get('shape', req.get('check', {}).get('shape', 0))
    if key not in _refs: _refs[key] = Reference(task, key[1], DEVICE, keep=1<<30 if DEVICE!='cpu' else 1<<28, lock=lambda: gpu_lock(device=DEVICE))
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

def verify(req):
    "Compare the outputs of one or more runs with the answer"
    r,check = _reference(req),Check.from_dict(req['check'])
    runs = [_arrays.load(m) for m in req['runs']]
    reports,found = verify_one(lambda c: (runs[c.repeat], []), lambda c: r.expected(c.seed, c.distribution), check, [s.dtype for s in r.signature.outputs], r.task.tolerance, len(runs), lambda c: r.jittered(c.seed, c.distribution))
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
