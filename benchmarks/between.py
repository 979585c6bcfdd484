"""Was the step too long? Weights between those of a first and a last model, and how many held-out tasks each can do: whole programs written greedily and drawn at temperature 1, cores drawn.

    python benchmarks/between.py FOLDER          # FOLDER holds test.jsonl and the models, as benchmarks/train_h200.py leaves or unpacks them
"""
import argparse, copy, torch, transformers
from pathlib import Path
from kernelrl.core import Run, atomic_write, canonical, environment
from kernelrl.curriculum import kept, right, tries
from kernelrl.judge import Judge, judge_all
from kernelrl.sampler import Decoding
from kernelrl.sft import example, pretrained

def between(a, b, share:float):
    "A model whose weights lie between those of two"
    m = copy.deepcopy(a)
    with torch.no_grad():
        for x,y in zip(m.parameters(), b.parameters()): x.lerp_(y, share)
    return m

if __name__=='__main__':
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('folder', type=Path)
    p.add_argument('--first', default='sft')
    p.add_argument('--last', default='biphase-0/model')
    p.add_argument('--shares', type=float, nargs='+', default=[0., 1/6, 1/3, 2/3, 1.], help='of the way from the first to the last')
    p.add_argument('--every', type=int, default=8, help='which of the held-out tasks')
    p.add_argument('--device', default='auto', help='of the judge')
    p.add_argument('--out', type=Path, default=Path('data/benchmarks/between.json'))
    a = p.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    dev = 'cuda' if torch.cuda.is_available() else 'cpu'
    (first,tok),(last,_) = (pretrained(a.folder/x, dev) for x in (a.first,a.last))
    size = lambda ps: sum((p.double()**2).sum() for p in ps)**.5
    with torch.no_grad(): moved = float(size(y-x for x,y in zip(first.parameters(), last.parameters()))/size(first.parameters()))
    c = first.config
    test = [l for l in kept(a.folder/'test.jsonl', lambda: []) if example(tok, l.prompt, l.program.text, False, c.block_size, c.max_middle, c.max_context)][::a.every]
    found = []
    with Judge(a.device, 'right', a.folder/'verdicts.sqlite', jobs=None if dev=='cuda' else 1, secret='study') as j:
        for share in a.shares:
            m,row = between(first, last, share),{'share':round(share, 3)}
            for name,kw in (('greedy',dict(d=Decoding(temperature=0.))), ('core',dict(core=True)), ('drawn',{})):
                s = right(tries(m, tok, test, lambda ps: judge_all(j, ps), Run(a.folder/f'between-{share:.2f}-{name}', {}), batch=40, **kw))
                row |= {name:s.value, f'{name}_interval':[s.lo, s.hi]}
                print(f'{share:.2f} of the way: {name} {s}', flush=True)
            found.append(row)
        atomic_write(a.out, canonical({'study':'between', 'first':a.first, 'last':a.last, 'weights_moved':moved, 'tasks':len(test), 'rows':found, 'device':repr(j.bench.device) if dev=='cuda' else 'host device, no GPU', 'protocol':'right', 'env':environment(),
            'command':f'python benchmarks/between.py runs/h200 --every {a.every} --shares {" ".join(f"{s:.3g}" for s in a.shares)}'})+'\n')
