"""Do infillings leave prefix and suffix alone? Fills the body of shipped kernels N times and compares bytes.

    python benchmarks/infill_bytes.py --n 10000
"""
import argparse, json, platform, sys, time
from pathlib import Path
import torch
from kernelrl.core import atomic_write, environment
from kernelrl.lm import new_model, roughen, sized
from kernelrl.program import Program
from kernelrl.sampler import Decoding, generator, sample
from kernelrl.task import shipped_programs, shipped_tasks
from kernelrl.tokenizer import canvas, splice, train_tokenizer, written

HARD = [('/* <suf> <mask> ünïcödé 🙂 */\n', '\n\t\r\n// <pre> <eos> end  '), ('', ''), ('é', '\u0301'), (' '*17, '\n'*9)] # Prefixes and suffixes that would break a careless tokenizer

def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--n', type=int, default=10000, help='infillings')
    p.add_argument('--batch', type=int, default=100, help='rows at once')
    p.add_argument('--seed', type=int, default=0)
    p.add_argument('--device', default='cpu')
    p.add_argument('--max-context', type=int, default=400, help='programs with a longer context are left out')
    p.add_argument('--out', type=Path, default=Path('data/benchmarks/infill_bytes.json'))
    a = p.parse_args()
    torch.set_num_threads(1)
    texts = [t for k in shipped_tasks() for _,t in shipped_programs(k.name)]
    tok = train_tokenizer(texts, 1024)
    model = roughen(new_model(sized('tiny', vocab_size=len(tok)), a.seed), a.seed, .7).eval().to(a.device) # Knows nothing, writes anything
    around = [(x,z) for x,_,z in (Program(t).cut() for t in texts)]
    around = [(x,z,c) for x,z in around+HARD for c in [canvas(tok, 'fill', x, z, room=8)] if len(c.before)+len(c.after)<=a.max_context]
    around.sort(key=lambda x: len(x[2].before)+len(x[2].after)) # Rows of a batch have similar lengths
    jobs = [around[i*len(around)//a.n] for i in range(a.n)]
    started,changed,ended,distinct = time.perf_counter(),0,0,set()
    for k in range(0, a.n, a.batch):
        part = jobs[k:k+a.batch]
        for (prefix,suffix,c),s in zip(part, sample(model, [c for *_,c in part], [generator(a.seed, 'infill', k+i) for i in range(len(part))], Decoding(steps=2, temperature=2.))):
            text,middle = splice(tok, s.canvas, s.middle),written(tok, s.middle)
            changed += s.canvas!=c or text.encode()!=prefix.encode()+middle.encode()+suffix.encode()
            ended += s.ended
            distinct.add(middle)
        if k%2000==0: print(f'{k+len(part)} filled, {changed} changed something around the hole', file=sys.stderr, flush=True)
    figures = {'infillings':a.n, 'changed':changed, 'distinct_middles':len(distinct), 'ended':ended, 'programs':len(around), 'seconds':round(time.perf_counter()-started, 1)}
    env = environment()
    atomic_write(a.out, json.dumps({'device':platform.machine() if a.device=='cpu' else torch.cuda.get_device_name(), 'date':time.strftime('%Y-%m-%d'), 'commit':env['commit'], 'command':f'python benchmarks/infill_bytes.py --n {a.n} --seed {a.seed}',
        'protocol':'prefix and suffix compared byte for byte', 'seeds':[a.seed], 'figures':figures, 'rows':[]}, indent=1, sort_keys=True)+'\n')
    print(json.dumps(figures))
    return 1 if changed else 0

if __name__=='__main__': sys.exit(main())
