"""Checkpoints of a training run: model and optimiser in one file of the run's folder, written beside the old one and renamed."""
import io
from kernelrl.core import Run, canonical

def save(run:Run, model, opt, step:int):
    "Write a checkpoint after `step` steps"
    import torch
    data = io.BytesIO()
    torch.save({'model':model.state_dict(), 'opt':opt.state_dict(), 'step':step}, data)
    run.fs.pipe_file(run.file('checkpoint.pt.part'), data.getvalue())
    run.fs.mv(run.file('checkpoint.pt.part'), run.file('checkpoint.pt'))

def resume(run:Run, model, opt)->int:
    "Load the last checkpoint, if there is one, and forget the rows written after it; returns the step to go on with"
    import torch
    step = 0
    if run.fs.exists(run.file('checkpoint.pt')):
        state = torch.load(io.BytesIO(run.fs.cat_file(run.file('checkpoint.pt'))), map_location=next(model.parameters()).device, weights_only=True)
        model.load_state_dict(state['model']); opt.load_state_dict(state['opt'])
        step = state['step']
    for log in ('metrics.jsonl','ledger.jsonl'):
        rows = run.rows(log)
        if any(r['step']>=step for r in rows): run.write(log, ''.join(canonical(r)+'\n' for r in rows if r['step']<step))
    return step
