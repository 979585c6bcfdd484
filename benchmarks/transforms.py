"""Apply transforms at random until N have been judged, then judge what was accepted again, more strictly.

    python benchmarks/transforms.py --applications 2000 --seed 0 --out data/studies/transforms.json

Runs on the host device (no GPU). Every walk starts from a program of the package or of the zoo that passes the stricter judge itself: that is the control.
`--log PREFIX` keeps one line for each step, so that a run that was stopped goes on where it was.
"""
import argparse, datetime, itertools, json, random, subprocess, sys, tempfile
from dataclasses import replace
from pathlib import Path
from kernelrl.core import append_jsonl, atomic_write, derive_seed, read_jsonl
from kernelrl.program import Program
from kernelrl.task import shipped_programs, shipped_tasks
from kernelrl.transforms import HostGate
from kernelrl.walk import Step, random_walk, tally
from kernelrl.writers import zoo_pairs

ROOT = Path(__file__).parent.parent
STRICT = HostGate(seeds=(20_011,), modes=(('run','shuffle'),('check','shuffle')))

def starts(seed:int):
    "Programs to start from, shipped and of the zoo in turn, for ever"
    rng,round_ = random.Random(derive_seed('starts', seed)),0
    while True:
        pairs = [(t,Program(text, f'{t.name}/{n}')) for t in shipped_tasks() for n,text in shipped_programs(t.name)]
        zoo = [(t,replace(p, name=f'{t.name}/{p.name}')) for t,p in zoo_pairs(derive_seed('zoo', seed, round_)%2**31, 40)]
        rng.shuffle(pairs); rng.shuffle(zoo)
        for a,b in zip(pairs, zoo): yield from (a,b)
        round_ += 1

def walk(args, worker:int):
    "The walks that one worker is due; one line of its log for each step"
    log = f'{args.log}.{worker}'
    rows,gate = list(read_jsonl(log)) if Path(log).exists() else [],HostGate()
    begun,done = sum(r['kind']=='begun' for r in rows),sum(r['kind']=='step' for r in rows)
    most = args.applications//args.jobs+(worker<args.applications%args.jobs)
    for i,(task,program) in enumerate(itertools.islice(starts(args.seed), worker, None, args.jobs)):
        if done>=most: break
        if i<begun: continue # Walked before this run was stopped
        append_jsonl(log, {'kind':'begun', 'program':program.name})
        ok,why = STRICT(task, program)
        append_jsonl(log, {'kind':'start', 'program':program.name, 'ok':ok, 'why':repr(why) if why else ''})
        if not ok: continue
        rng,kept = random.Random(derive_seed('walk', args.seed, worker, i)),set()
        for step,new in random_walk(task, program, min(args.steps, most-done), rng, gate):
            why = None
            if step.accepted and new.id not in kept: _,why = STRICT(task, new); kept.add(new.id)
            append_jsonl(log, {'kind':'step', **step.to_dict(), 'program':program.name, 'wrong':repr(why) if why else '', **({'text':new.text} if why else {})})
            done += 1
        print(f'worker {worker}: {done} of {most}; {program.name}', file=sys.stderr, flush=True)

def report(args)->dict:
    "What the logs of all workers say"
    rows = [r for k in range(args.jobs) for r in read_jsonl(f'{args.log}.{k}')]
    steps = [r for r in rows if r['kind']=='step']
    counts = tally([Step.from_dict(r) for r in steps])
    total,wrong = counts.pop('all'),[r for r in steps if r['wrong']]
    figures = {'applications':total['applied'], 'accepted':total['accepted'], 'rejected_by_gate':total['applied']-total['accepted'], 'wrong_accepted':len(wrong), 'sure':total['sure'], 'sure_accepted':total['sure_accepted'],
        'programs_started_from':sum(r['kind']=='start' and r['ok'] for r in rows), 'control_failed':sum(r['kind']=='start' and not r['ok'] for r in rows), 'distinct_programs':len({r['end'] for r in steps}), 'transforms_used':len(counts)}
    git = subprocess.run(['git','rev-parse','--short','HEAD'], cwd=ROOT, capture_output=True, text=True)
    return {'device':'host (right or wrong only; no speed)', 'date':datetime.date.today().isoformat(), 'commit':git.stdout.strip(), 'command':f'python benchmarks/transforms.py --applications {args.applications} --steps {args.steps} --seed {args.seed} --jobs {args.jobs}',
        'protocol':'gate: check and run mode, small shapes, all distributions, 1 seed; audit of what was accepted: another seed, all distributions, threads in shuffled order in both modes', 'seeds':[args.seed], 'figures':figures,
        'rows':[{'transform':k, **v} for k,v in sorted(counts.items())]+[{'wrong':r} for r in wrong]}

def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--applications', type=int, default=2000)
    ap.add_argument('--steps', type=int, default=16, help='of each walk')
    ap.add_argument('--seed', type=int, default=0)
    ap.add_argument('--jobs', type=int, default=1, help='worker processes; part of what the seed means')
    ap.add_argument('--out', default=str(ROOT/'data/studies/transforms.json'))
    ap.add_argument('--log', default='', help='prefix of the workers\' logs; a stopped run goes on from them')
    ap.add_argument('--worker', type=int, default=-1, help=argparse.SUPPRESS)
    args = ap.parse_args()
    if args.worker>=0: return walk(args, args.worker)
    with tempfile.TemporaryDirectory() as folder:
        args.log = args.log or f'{folder}/walk'
        workers = [subprocess.Popen([sys.executable, __file__, *(f'--{k}={getattr(args, k)}' for k in ('applications','steps','seed','jobs','log')), f'--worker={k}']) for k in range(args.jobs)]
        if any([w.wait() for w in workers]): sys.exit('a worker failed')
        out = report(args)
    atomic_write(args.out, json.dumps(out, indent=1)+'\n')
    print(json.dumps(out['figures']))

if __name__=='__main__': main()
