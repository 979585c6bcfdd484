"""`judge()` over many programs, killed with `kill -9` at random moments: does it end with the same verdicts, and is anything computed twice after it was stored?

    python benchmarks/kill_resume.py                 # writes data/benchmarks/kill_resume.json

A round begins with an empty store, is killed at so many random moments, begun again after each, and left to end after the last. Every process logs when it begins to compute a verdict and when that verdict is in the store;
beside the log, what the store held when a process began is read from the store itself. Runs on the host device.
"""
import importlib, os, random, signal, sqlite3, subprocess, sys, tempfile, time
from pathlib import Path
from _common import Clock, options, result, save, say
from kernelrl.core import canonical, derive_seed, read_jsonl
from kernelrl.program import Program
from kernelrl.task import Task
from kernelrl.verdict import Store, Verdict

J = importlib.import_module("kernelrl.judge") # The package itself exports the function of that name

TASK = Task('affine', '''
import torch, torch.nn as nn
N = 2000
class Model(nn.Module):
    def forward(self, x): return x*2+1
def get_inputs(): return [torch.randn(N)]
def get_init_inputs(): return []
''', shapes=({}, {'N':300}, {'N':77}))

TEXT = '''import cupy as cp
k = cp.RawKernel(r"""
extern "C" __global__ void affine(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; // form FORM
    if (i < n) y[i] = 2.f * x[i] + 1.f;
}""", "affine")
def forward(x): # program NUMBER
    y = cp.empty_like(x)
    k(((x.size + BLOCK - 1) // BLOCK,), (BLOCK,), (x, y, x.size))
    return y
'''
FAULTS = {7:('+ 1.f', '+ 1.5f'), 8:('2.f * x[i]', '2.f * z[i]'), 9:('    return y', '    return cp.add(y, 0)')} # Wrong, does not compile, calls the library

def programs(n:int, forms:int=60)->list[Program]:
    "Right and wrong ones; some share their CUDA source"
    text = lambda i: TEXT.replace('FORM', str(i*forms//n)).replace('NUMBER', str(i)).replace('BLOCK', str(32<<i%5))
    return [Program(text(i).replace(*FAULTS.get(i%10, ('',''))), f'p{i:03}') for i in range(n)]

# ---------------------------------------------------------------- the process that is killed
def work(folder:Path, n:int, jobs:int):
    "Judge all programs with the store of `folder`; log what is computed"
    log = os.open(folder/'log.jsonl', os.O_WRONLY|os.O_APPEND|os.O_CREAT)
    note = lambda **row: os.write(log, (canonical({'pid':os.getpid(), 'at':round(time.time(),3), **row})+'\n').encode())
    gates,add = J._through_the_gates,Store.add
    def through(j, job): note(begun=j.key(job.task, job.program)); return gates(j, job)
    def stored(store, key, v): add(store, key, v); note(stored=key)
    J._through_the_gates,Store.add = through,stored
    note(held=sorted(keys(folder)))
    got = list(J.judge(TASK, programs(n), False, device='host', protocol='quick', store=folder/'store.sqlite', secret='kill_resume', jobs=jobs))
    (folder/'done.part').write_text('\n'.join(v.to_json() for v in got))
    os.replace(folder/'done.part', folder/'done.jsonl')

def keys(folder:Path)->set[str]:
    "Names of the verdicts in the store, read with SQLite alone"
    if not (folder/'store.sqlite').exists(): return set()
    db = sqlite3.connect(folder/'store.sqlite', timeout=60)
    try: return {k for (k,) in db.execute("select key from items where kind='verdict'")}
    except sqlite3.OperationalError: return set() # Killed before the table was made
    finally: db.close()

# ---------------------------------------------------------------- the one that kills
def run(folder:Path, n:int, jobs:int, seconds:float|None)->bool:
    "Start the work; kill it after `seconds`. True if it was killed before its end"
    p = subprocess.Popen([sys.executable, __file__, '--work', str(folder), '--n', str(n), '--jobs', str(jobs)], env={**os.environ, 'OMP_NUM_THREADS':'1'}, start_new_session=True)
    try: rc = p.wait(seconds)
    except subprocess.TimeoutExpired:
        os.kill(p.pid, signal.SIGKILL)
        p.wait()
        return True
    if rc: raise SystemExit(f'the work ended by itself with {rc}')
    return False

def verdicts(folder:Path)->dict[str,dict]:
    "Verdicts by program, without what a clock or a calendar said"
    out = {}
    for row in read_jsonl(folder/'done.jsonl'):
        v = Verdict.from_dict(row).to_dict()
        out[v['program']] = {k:x for k,x in v.items() if k not in ('seconds','date')}
    return out

def twice(folder:Path)->list[str]:
    "Verdicts that were computed although they were stored before"
    stored:set[str] = set()
    out = []
    for r in read_jsonl(folder/'log.jsonl'):
        if 'held' in r: stored |= set(r['held'])
        if 'stored' in r: stored.add(r['stored'])
        if r.get('begun') in stored: out.append(r['begun'])
    return out

def round_(folder:Path, n:int, jobs:int, moments:list[float], want:dict)->dict:
    "One round: killed at each of the moments, then left to end"
    killed = []
    for t in moments:
        if run(folder, n, jobs, t): killed.append({'after':round(t,2), 'stored':len(keys(folder))})
        else: break # It had ended
    if not (folder/'done.jsonl').exists(): run(folder, n, jobs, None)
    got,log = verdicts(folder),list(read_jsonl(folder/'log.jsonl'))
    check = sqlite3.connect(folder/'store.sqlite').execute('pragma integrity_check').fetchall()
    return {'killed':killed, 'verdicts':len(got), 'differ':sorted(k for k in want if got.get(k)!=want[k]), 'twice':twice(folder), 'begun':sum('begun' in r for r in log), 'sound':check==[('ok',)]}

def moments(rng:random.Random, kills:int, whole:float, start:float)->list[float]:
    "Seconds after each beginning: points drawn over one run, which every new process reaches later by what it needs to start"
    at = sorted(rng.uniform(0, whole) for _ in range(kills))
    return [at[0], *(start+b-max(a,start) if b>start else rng.uniform(0, start) for a,b in zip(at, at[1:]))]

def main():
    p = options(__doc__, 'kill_resume', 900)
    p.add_argument('--n', type=int, default=300, help='programs')
    p.add_argument('--rounds', type=int, default=20)
    p.add_argument('--kills', type=int, default=1, help='in each round')
    p.add_argument('--seed', type=int, default=0)
    p.add_argument('--jobs', type=int, default=4)
    p.add_argument('--work', type=Path, help='(used by the script itself)')
    a = p.parse_args()
    if a.work: return work(a.work, a.n, a.jobs)
    clock,rng,rows = Clock(a.limit_seconds),random.Random(derive_seed('kill_resume', a.seed)),[]
    with tempfile.TemporaryDirectory() as top:
        def fresh(name): f = Path(top)/name; f.mkdir(); return f
        tiny = fresh('tiny')
        run(tiny, 5, a.jobs, None)
        if len(verdicts(tiny))!=5: raise SystemExit('five programs did not give five verdicts')
        first,second = fresh('first'),fresh('second')
        run(first, a.n, a.jobs, None) # Compiles what the others find compiled
        begun = time.time(); run(second, a.n, a.jobs, None); whole = time.time()-begun
        start = next(r['at'] for r in read_jsonl(second/'log.jsonl') if 'stored' in r)-begun
        want = verdicts(second)
        if want!=verdicts(first): raise SystemExit('two runs that nobody disturbed differ: ' + ', '.join(k for k in want if want[k]!=verdicts(first).get(k)))
        say(f'{a.n} programs take {whole:.1f} s, {start:.1f} s of it until the first is stored; {sum(v["status"] in ("ok","slow") for v in want.values())} of them are right')
        for r in range(a.rounds):
            if clock.left<1.5*whole: say('no time is left for another round'); break
            rows.append({'round':r, **round_(fresh(f'r{r}'), a.n, a.jobs, moments(rng, a.kills, whole, start), want)})
            say(f'round {r}: killed at {[k["after"] for k in rows[-1]["killed"]]} s with {[k["stored"] for k in rows[-1]["killed"]]} stored; {len(rows[-1]["differ"])} differ, {len(rows[-1]["twice"])} twice')
    figures = {'programs':a.n, 'rounds':len(rows), 'kills':sum(len(r['killed']) for r in rows), 'rounds_with_the_same_verdicts':sum(not r['differ'] and r['verdicts']==a.n for r in rows), 'computed_twice':sum(len(r['twice']) for r in rows),
        'begun_again_unstored':sum(r['begun']-a.n for r in rows), 'stores_sound':sum(r['sound'] for r in rows), 'undisturbed_s':round(whole,1), 'right':sum(v['status'] in ('ok','slow') for v in want.values())}
    save(a.out, result('host', f'python benchmarks/kill_resume.py --n {a.n} --rounds {a.rounds} --kills {a.kills} --seed {a.seed} --jobs {a.jobs}', f'quick; {a.n} programs on one task; SIGKILL to the judging process at moments uniform over the length of an undisturbed run', [a.seed, 'kill_resume'], figures, rows))
    return int(figures['computed_twice']>0 or figures['rounds_with_the_same_verdicts']<figures['rounds'])

if __name__=='__main__': sys.exit(main())
