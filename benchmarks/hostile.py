"""200 programs that attack or wreck the judge among 200 good ones, through one judge with several jobs: is each judged rightly, is any good one harmed, how soon is a worker itself again?

    python benchmarks/hostile.py --device host          # writes data/benchmarks/hostile_host.json
    python benchmarks/hostile.py --device cuda          # on a GPU: writes data/benchmarks/hostile.json

The hostile ones are those of tests/test_hostile.py (accidents on the device and the host, files to be included, ways out of the stand-in for CuPy), each kind in several texts. A hostile program is judged rightly when it is refused for one of the
reasons that fit it (a few are harmless after all, and must pass). A good one, from the tests or from the zoo with small shapes, is judged rightly when it passes; one that does not is `contaminated`.

Recovery. Every call of every worker process is noted with the program for which it was made. When a hostile program's call costs a worker its life (killed, died, or ended by the judge for an error), the worker has recovered when it has answered a call for a
good program. `recovery_s` is the time in between in which somebody had the worker: starting it anew, the device's probe, and the answer itself; time in which nobody asked for it does not count, nor do later hostile calls before that.
`worst_recovery_s` is the largest of these. On the host device kernels run in processes of their own, so only tracers and compilers can be hurt. `longest_good_wait_s` is the longest time that any good program took from its beginning to its verdict.
"""
import functools, itertools, random, shutil, sys, tempfile, threading, time
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from _common import ROOT, Clock, options, result, save, say
sys.path.insert(0, str(ROOT/'tests'))
import test_hostile as H
from kernelrl import _bench, _worker
from kernelrl.core import KernelRLError, derive_seed
from kernelrl.judge import Judge, judge_one
from kernelrl.program import Program
from kernelrl.task import Task
from kernelrl.trace import trace
from kernelrl.verdict import Store
from kernelrl.writers import zoo_pairs

# On a GPU some end otherwise than on the host device; '' means that the program is right and must pass
ON_CUDA = {'illegal access':'illegal_access launch_failure', 'wild pointer':'illegal_access launch_failure', 'huge grid':'timeout *', 'device assert':'device_assert launch_failure', 'trap':'illegal_instruction device_assert launch_failure', 'misaligned':'misaligned launch_failure', 'unmatched barrier':'timeout',
    '60 GB of device memory':'out_of_memory *', 'too much static shared memory':'compile_error', 'endless device loop':'timeout'}

def variations(text:str, k:int)->str:
    "The same program with other numbers and words, so that nothing comes out of a store"
    if k==0: return text
    for a,b in (('1 << 28', f'1 << {28+k%3}'), ('0x123456789000ull', f'0x{0x123456789000+4096*k:x}ull'), ('range(10**6)', f'range(10**6+{k})'), ('shared_mem=10**6', f'shared_mem=10**6+{4*k}'), ('30000', str(30000+k)), ('assert(i < 5)', f'assert(i < {5+k})'), ('100<<30', f'{100+k}<<30'), ('60<<30', f'{60-k%3}<<30'), ('5000', str(5000+k)), ('30,0', f'{30+k%3},0'), ('ValueError("no")', f'ValueError("no {k}")')):
        text = text.replace(a, b)
    return text+'\x03'*k if '\x00' in text else f'{text}\n# variation {k}\n'

CANARY = Path(tempfile.gettempdir())/'kernelrl-canary'/'canary.h' # A file that no program may read; beside it, nothing may be written

def hostile(n:int, device:str)->list[tuple[str,str,str]]: # (name, text, findings that fit; '' only a pass fits, * a pass too, + any refusal of the trace, @ statuses that fit)
    "Programs of every kind in turn, until there are enough"
    CANARY.parent.mkdir(exist_ok=True)
    CANARY.write_text('canary_424242 root:x:0\n')
    kinds = []
    for name,(text,fit) in H.HOSTILE.items(): kinds.append((name, text, ON_CUDA.get(name, fit) if device=='cuda' else fit))
    kinds.append(('prints gigabytes', H.kernel('for (int r = 0; r < 300; r++) printf("%d %s\\n", i, "'+'x'*64+'"); '+H.BODY), 'timeout unsupported_on_host *'))
    source = H.GOOD.split('r"""')[1].split('"""')[0]
    include = lambda pre: H.GOOD.replace(f'r"""{source}"""', repr(pre.replace('{{','{').replace('}}','}').replace('{f}', str(CANARY))+'\n'+source))
    files = [(f'include: {k}', include(pre).replace('"affine")', '"affine", ("-std=c++14",))') if 'tri' in k else include(pre), '@forbidden compile unsupported launch') for k,pre in H.INCLUDES.items()]
    outs = [(f'escape: {k}', H.host(code.replace('CANARY', repr(str(CANARY.with_name('written'))))), '+') for k,code in H.ESCAPES.items() if k not in ('hasattr','submodule')]
    rng = random.Random(0)
    rng.shuffle(files); rng.shuffle(outs)
    out = [(f'{name} {k}', variations(text, k), fit) for k in range(3) for name,text,fit in kinds]
    rest = [x for pair in itertools.zip_longest(files, outs) for x in pair if x]
    out = (out+rest)[:n] if len(out)>=n else out+rest[:n-len(out)]
    if len(out)<n: raise SystemExit(f'only {len(out)} hostile programs are known; ask for fewer')
    return out

def good(n:int, seed:int)->list[tuple[Task,Program]]:
    "Right programs, half of them from the zoo at its small shapes"
    zoo = []
    for t,p in zoo_pairs(seed, n):
        if len(zoo)>=n//2: break
        if len(t.shapes)>1: zoo.append((replace(t, shapes=t.shapes[1:]), replace(p, name=f'good {t.name} {p.name} {len(zoo)}')))
    plain = [(H.TASK, Program(f'{H.GOOD}\n# good {k}', f'good affine {k}')) for k in range(n-len(zoo))]
    return plain+zoo

# ---------------------------------------------------------------- who was hurt, and when it was itself again
class Calls:
    "Notes every call of every worker, with the program for which it was made"
    def __init__(self):
        self.of,self.log,self.lock = threading.local(),[],threading.Lock()
        real,kill = _worker.Worker.call,_worker.Worker.kill
        def call(w, request, deadline):
            t = time.monotonic()
            try: a = real(w, request, deadline)
            except BaseException: self.note(w, t, 'died'); raise
            self.note(w, t, 'failed' if 'failed' in a or 'broken' in a else 'greeted' if request.get('op')=='device' else 'answered')
            return a
        def killed(w):
            had = w.p is not None
            kill(w)
            if had: self.note(w, time.monotonic(), 'killed')
        _worker.Worker.call,_worker.Worker.kill = call,killed
    def note(self, w, begun:float, what:str):
        with self.lock: self.log.append((w, w.cmd[2], begun, time.monotonic(), what, getattr(self.of, 'program', '')))
    def recoveries(self)->list[dict]:
        "For each worker that a hostile program cost its life: how long until it had answered a good one"
        by,out = defaultdict(list),[]
        for x in sorted(self.log, key=lambda x: x[3]): by[id(x[0])].append(x)
        for calls in by.values():
            hurt = None # By whom, and the time spent on it since
            for _,module,begun,end,what,program in calls:
                bad = program.startswith('bad ')
                if bad and what in ('died','killed'): hurt = [module, program, 0.]
                elif hurt and not bad and what!='killed':
                    hurt[2] += end-begun
                    if what=='answered': out.append({'worker':hurt[0], 'hurt_by':hurt[1], 'recovery_s':round(hurt[2],3), 'answered_for':program}); hurt = None
        return out

def judge_mixed(j:Judge, rows:list, calls:Calls, clock:Clock, jobs:int)->dict:
    "Judge all, several at once; name -> (verdict or None, seconds)"
    out,todo,lock = {},iter(rows),threading.Lock()
    def work():
        while True:
            with lock: row = next(todo, None)
            if row is None or clock.over: return
            task,program = row
            calls.of.program = program.name
            t = time.monotonic()
            try: v = judge_one(j, task, program)
            except KernelRLError as e: v = None; say(f'{program.name}: {e}')
            with lock:
                out[program.name] = v,time.monotonic()-t
                if len(out)%25==0: say(f'{len(out)}/{len(rows)} judged')
    threads = [threading.Thread(target=work) for _ in range(jobs)]
    for t in threads: t.start()
    for t in threads: t.join()
    return out

def fits(v, kinds:str)->bool:
    "Whether a verdict is right for a hostile program"
    if v is None or '424242' in v.to_json(): return False
    if v.ok: return kinds=='' or '*' in kinds
    if v.status=='infra' or kinds=='': return False
    if kinds[0]=='@': return v.status in kinds[1:].split()
    if kinds=='+': return v.gate=='trace' and v.reason.kind not in ('host_timeout',)
    return v.reason.kind in kinds.split()

def main():
    p = options(__doc__, 'hostile', 1500)
    p.add_argument('--device', default='cuda', choices=['cuda','host'])
    p.add_argument('--n', type=int, default=200, help='hostile programs, and as many good ones')
    p.add_argument('--jobs', type=int, default=None, help='programs at once')
    p.add_argument('--run-seconds', type=float, default=None, help='what a kernel may take')
    p.add_argument('--protocol', default='quick')
    p.add_argument('--seed', type=int, default=0)
    a = p.parse_args()
    if a.device=='host' and a.out.name=='hostile.json': a.out = a.out.with_name('hostile_host.json')
    jobs = a.jobs or (2 if a.device=='host' else 8)
    bad,fine = [(H.TASK, Program(t, f'bad {n}'), k) for n,t,k in hostile(a.n, a.device)],good(a.n, derive_seed('hostile', a.seed)%2**31)
    rows = [x[:2] for x in bad]+fine
    random.Random(derive_seed('mix', a.seed)).shuffle(rows)
    with tempfile.TemporaryDirectory() as top, Judge(a.device, a.protocol, Store(Path(top)/'s.sqlite'), jobs=jobs, secret='hostile') as j:
        for text,ok in ((H.GOOD, True), (H.kernel(';'), False)): # The judge is in order
            if judge_one(j, H.TASK, Program(f'{text}\n# self-check', 'self-check')).ok!=ok: raise SystemExit('self-check: a right program failed, or one that does nothing passed')
        (_bench.HostBench if a.device=='host' else _bench.CudaBench).RUN_SECONDS = a.run_seconds or (1.5 if a.device=='host' else 2.)
        _bench.COMPILE_SECONDS,_bench.trace = (2.5 if a.device=='host' else 5.),functools.partial(trace, deadline=1.)
        calls,clock = Calls(),Clock(a.limit_seconds)
        got = judge_mixed(j, rows, calls, clock, jobs)
        seconds = clock.seconds
        alone = [judge_one(j, t, Program(p.text+'\n# alone', p.name)).ok for t,p in fine[:3]] # The judge is still in order
        device = repr(j.bench.device)
    if CANARY.with_name('written').exists() or Path('/tmp/kernelrl-evil').exists(): raise SystemExit('a program wrote a file')
    shutil.rmtree(CANARY.parent)
    right_bad = {p.name:fits(got[p.name][0], k) for _,p,k in bad if p.name in got}
    right_good = {p.name:bool(got[p.name][0] and got[p.name][0].ok) for _,p in fine if p.name in got}
    back = calls.recoveries()
    figures = {'total':len(got), 'right':sum(right_bad.values())+sum(right_good.values()), 'hostile':len(right_bad), 'hostile_right':sum(right_bad.values()), 'good':len(right_good), 'contaminated':sum(not r for r in right_good.values()), 'worst_recovery_s':max((r['recovery_s'] for r in back), default=0.), 'workers_hurt':len(back),
        'longest_good_wait_s':round(max(got[n][1] for n in right_good),2), 'in_order_afterwards':all(alone), 'seconds':round(seconds,1)}
    row = lambda n,ok: {'program':n, 'right':ok, 'status':got[n][0].status if got[n][0] else 'none', 'gate':got[n][0].gate if got[n][0] else '', 'kind':got[n][0].reason.kind if got[n][0] and got[n][0].reason else '', 'seconds':round(got[n][1],2)}
    out = [*(row(n,ok) for n,ok in right_bad.items()), *(row(n,ok) for n,ok in right_good.items())]
    save(a.out, result(device, f'python benchmarks/hostile.py --device {a.device} --n {a.n} --jobs {jobs} --seed {a.seed}', f'{a.protocol}, {jobs} jobs; a kernel may take {a.run_seconds or (1.5 if a.device=="host" else 2.)} s', [a.seed,'hostile'], figures, out, recoveries=sorted(back, key=lambda r: -r['recovery_s'])[:20], kinds=dict(Counter(r['kind'] for r in out))))
    for r in out:
        if not r['right']: print(r, got[r['program']][0] and got[r['program']][0].reason)

if __name__=='__main__': main()
