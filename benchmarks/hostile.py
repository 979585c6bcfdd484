"""200 programs that attack or wreck the judge among 200 good ones, through one judge with several jobs: is each judged rightly, is any good one harmed, how soon is a worker itself again?

    python benchmarks/hostile.py --device host          # writes data/benchmarks/hostile_host.json
    python benchmarks/hostile.py --device cuda          # on a GPU: writes data/benchmarks/hostile.json, in four to six minutes

The hostile ones are those of tests/test_hostile.py (accidents on the device and the host, files to be included, ways out of the stand-in for CuPy), each kind in several texts. A hostile program is judged rightly when it is refused for one of the
reasons that fit it (a few are harmless after all, and must pass). A good one, from the tests or from the zoo with small shapes, is judged rightly when it passes; one that does not is `contaminated`.

Recovery. After the mix, one program of each kind that had cost a worker its life is judged alone, and at once behind it a good one, its neighbour, which needs all kinds of workers. `worst_recovery_s` is the longest time from the verdict on the hostile
one to the neighbour's right verdict: starting the worker anew, the device's probe and all gates are in it. `launcher_start_s` is what a launcher takes to open the device and prove it, the median and the longest.
In the mix every call of every worker process is noted with the program for which it was made. When a hostile program's call costs a worker its life (killed, died, or ended by the judge for an error), its neighbour is the next good program for which that
worker gives an answer; `worst_recovery_in_mix_s` is the longest time from such an end to the neighbour's right verdict, waiting behind other hostile programs included, and `worst_restart_s` the part in which somebody had the worker.
`not_recovered` counts workers that no good program used after their last death, though good ones went on after the mix. On the host device kernels run in processes of their own, so only tracers and compilers can be hurt.
`longest_good_wait_s` is the longest time that any good program took from its beginning to its verdict.

All workers have started and served before the mix begins; then the limits are set low, so that what hangs is ended soon: a kernel may take 2 s (1.5 on the host device), all timed runs of a program three times as long, a source 5 s (2.5), a program's Python 1 s.
"""
import functools, itertools, random, shutil, statistics, sys, tempfile, threading, time
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
    '60 GB of device memory':'out_of_memory *', 'endless device loop':'timeout'}
MAY_PASS = {'incbin in parts'} # An asm statement outside of functions is host code: NVRTC leaves it out, and what is left is right

def variations(text:str, k:int)->str:
    "The same program with other numbers and words, so that nothing comes out of a store"
    if k==0: return text
    for a,b in (('1 << 28', f'1 << {28+k%3}'), ('0x123456789000ull', f'0x{0x123456789000+4096*k:x}ull'), ('range(10**6)', f'range(10**6+{k})'), ('shared_mem=10**6', f'shared_mem=10**6+{4*k}'), ('30000', str(30000+k)), ('assert(i < 5)', f'assert(i < {5+k})'), ('100<<30', f'{100+k}<<30'), ('60<<30', f'{60-k%3}<<30'), ('5000', str(5000+k)), ('30,0', f'{30+k%3},0'), ('ValueError("no")', f'ValueError("no {k}")')):
        text = text.replace(a, b)
    return text+'\x03'*k if '\x00' in text else f'{text}\n# variation {k}\n'

CANARY = Path(tempfile.gettempdir())/'kernelrl-canary'/'canary.h' # A file that no program may read; beside it, nothing may be written

def hostile_kinds(device:str)->list[tuple[str,str,str]]:
    "The accidents, and what fits them on this device"
    return [(name, text, ON_CUDA.get(name, fit) if device=='cuda' else fit) for name,(text,fit) in H.HOSTILE.items()]+[('prints gigabytes', H.kernel('for (int r = 0; r < 300; r++) printf("%d %s\\n", i, "'+'x'*64+'"); '+H.BODY), 'timeout unsupported_on_host *')]

def hostile(n:int, device:str)->list[tuple[str,str,str]]: # (name, text, findings that fit; '' only a pass fits, * a pass too, + any refusal of the trace, @ statuses that fit)
    "Programs of every kind in turn, until there are enough"
    CANARY.parent.mkdir(exist_ok=True)
    CANARY.write_text('canary_424242 root:x:0\n')
    kinds = hostile_kinds(device)
    source = H.GOOD.split('r"""')[1].split('"""')[0]
    include = lambda pre: H.GOOD.replace(f'r"""{source}"""', repr(pre.replace('{{','{').replace('}}','}').replace('{f}', str(CANARY))+'\n'+source))
    files = [(f'include: {k}', include(pre).replace('"affine")', '"affine", ("-std=c++14",))') if 'tri' in k else include(pre), '@forbidden compile unsupported launch'+' *'*(k in MAY_PASS and device=='cuda')) for k,pre in H.INCLUDES.items()]
    outs = [(f'escape: {k}', H.host(code.replace('CANARY', repr(str(CANARY.with_name('written'))))), '+') for k,code in H.ESCAPES.items() if k not in ('hasattr','submodule')]
    rng = random.Random(0)
    rng.shuffle(files); rng.shuffle(outs)
    out = [(f'{name} {k}', variations(text, k), fit) for k in range(3) for name,text,fit in kinds]
    rest = [x for pair in itertools.zip_longest(files, outs) for x in pair if x]
    out = (out+rest)[:n] if len(out)>=n else out+rest[:n-len(out)]
    if len(out)<n: raise SystemExit(f'only {len(out)} hostile programs are known; ask for fewer')
    return out

def more(n:int, what:str)->list[tuple[Task,Program]]:
    "Right programs, each with a CUDA source of its own, so that it needs a compiler"
    return [(H.TASK, Program(H.GOOD.replace('extern', f'// {what} {k}\nextern'), f'good {what} {k}')) for k in range(n)]

def good(n:int, seed:int)->list[tuple[Task,Program]]:
    "Right programs, half of them from the zoo at its small shapes"
    zoo = []
    for t,p in zoo_pairs(seed, n):
        if len(zoo)>=n//2: break
        if len(t.shapes)>1: zoo.append((replace(t, shapes=t.shapes[1:]), replace(p, name=f'good {t.name} {p.name} {len(zoo)}')))
    return more(n-len(zoo), 'affine')+zoo

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
    def recoveries(self, got:dict)->tuple[list[dict],list[tuple[str,str]]]: # What `judge_mixed` gave -> (recoveries, workers that have not recovered and by whom they were hurt)
        "For each worker that a hostile program cost its life: how long until a good one that it served had its right verdict"
        by,out,still = defaultdict(list),[],[]
        for x in sorted(self.log, key=lambda x: x[3]): by[id(x[0])].append(x)
        for calls in by.values():
            hurt = None # Which worker, by whom, when, and the time spent on it since
            for _,module,begun,end,what,program in calls:
                bad = program.startswith('bad ')
                if bad and what in ('died','killed'): hurt = [module, program, end, 0.]
                elif hurt and not bad and what!='killed':
                    hurt[3] += end-begun
                    v,_,at = got.get(program, (None,0.,0.))
                    if what=='answered' and v and v.ok: out.append({'worker':hurt[0], 'hurt_by':hurt[1], 'recovery_s':round(at-hurt[2],3), 'restart_s':round(hurt[3],3), 'answered_for':program}); hurt = None
            if hurt: still.append((hurt[0], hurt[1]))
        return out,still
    def starts(self)->list[float]:
        "Seconds that launchers took to open the device"
        return [end-begun for _,_,begun,end,what,_ in self.log if what=='greeted']

def judge_mixed(j:Judge, rows:list, calls:Calls, clock:Clock, jobs:int)->dict:
    "Judge all, several at once; name -> (verdict or None, seconds, when it came)"
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
                now = time.monotonic()
                out[program.name] = v,now-t,now
                if len(out)%25==0: say(f'{len(out)}/{len(rows)} judged after {clock.seconds:.0f} s')
    threads = [threading.Thread(target=work) for _ in range(jobs)]
    for t in threads: t.start()
    for t in threads: t.join()
    return out

def alone(j:Judge, names:set, clock:Clock)->list[dict]:
    "One hostile program at a time, and a good one behind it"
    out = []
    for k,(name,text,_) in enumerate(x for x in hostile_kinds(j.kind) if x[0] in names):
        if clock.over: say(f'no time is left: {len(out)} of {len(names)} kinds were judged alone'); break
        bad = judge_one(j, H.TASK, Program(variations(text, 7), f'bad {name} 7'))
        t = time.monotonic()
        [(task,p)] = more(1, f'behind {k}')
        v = judge_one(j, task, p)
        out.append({'kind':name, 'status':bad.status, 'neighbour':v.status, 'right':v.ok, 'recovery_s':round(time.monotonic()-t, 3)})
        say(f'{name}: {bad.status}, then {v.status} after {out[-1]["recovery_s"]:.1f} s')
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
    p = options(__doc__, 'hostile', 400)
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
        calls,clock = Calls(),Clock(a.limit_seconds)
        first = judge_mixed(j, [(t, Program(f'{p.text}\n# start', f'good start {k}')) for k,(t,p) in enumerate((fine[:jobs]+fine[-2*jobs:]))], calls, clock, jobs) # All workers are there
        say(f'{sum(x[0] is not None and x[0].ok for x in first.values())} of {len(first)} good programs passed before the mix; {clock.seconds:.0f} s')
        run_seconds = a.run_seconds or (1.5 if a.device=='host' else 2.)
        bench = _bench.HostBench if a.device=='host' else _bench.CudaBench
        bench.RUN_SECONDS = run_seconds
        if a.device=='cuda': bench.TIMED_SECONDS,_bench.JAM_SECONDS = 3*run_seconds,120.
        _bench.COMPILE_SECONDS,_bench.trace = (2.5 if a.device=='host' else 5.),functools.partial(trace, deadline=1.)
        began = clock.seconds
        got = judge_mixed(j, rows, calls, clock, jobs)
        seconds,settled = clock.seconds-began,{}
        for k in range(4): # Until all are themselves again
            settled |= judge_mixed(j, more(2*jobs, f'after {k}'), calls, Clock(60.), jobs)
            back,hurt = calls.recoveries({**got, **settled})
            if not hurt: break
        lonely = alone(j, {r['hurt_by'].removeprefix('bad ').rpartition(' ')[0] for r in back}|{by.removeprefix('bad ').rpartition(' ')[0] for _,by in hurt}, clock)
        device = repr(j.bench.device)
    if CANARY.with_name('written').exists() or Path('/tmp/kernelrl-evil').exists(): raise SystemExit('a program wrote a file')
    shutil.rmtree(CANARY.parent)
    right_bad = {p.name:fits(got[p.name][0], k) for _,p,k in bad if p.name in got}
    right_good = {p.name:bool(got[p.name][0] and got[p.name][0].ok) for _,p in fine if p.name in got}
    starts,worst = calls.starts(),lambda rs, key: max((r[key] for r in rs), default=0.)
    figures = {'total':len(got), 'right':sum(right_bad.values())+sum(right_good.values()), 'hostile':len(right_bad), 'hostile_right':sum(right_bad.values()), 'good':len(right_good), 'contaminated':sum(not r for r in right_good.values())+sum(not r['right'] for r in lonely), 'worst_recovery_s':worst(lonely, 'recovery_s'), 'median_recovery_s':statistics.median([r['recovery_s'] for r in lonely]) if lonely else 0., 'kinds_alone':len(lonely),
        'worst_recovery_in_mix_s':worst(back, 'recovery_s'), 'worst_restart_s':worst(back, 'restart_s'), 'workers_hurt':len(back)+len(hurt), 'not_recovered':len(hurt), **({'launcher_start_s':round(statistics.median(starts),2), 'launcher_start_worst_s':round(max(starts),2)} if starts else {}),
        'longest_good_wait_s':round(max((got[n][1] for n in right_good), default=0.),2), 'in_order_afterwards':all(x[0] is not None and x[0].ok for x in settled.values()), 'seconds':round(seconds,1)}
    row = lambda n,ok: {'program':n, 'right':ok, 'status':got[n][0].status if got[n][0] else 'none', 'gate':got[n][0].gate if got[n][0] else '', 'kind':got[n][0].reason.kind if got[n][0] and got[n][0].reason else '', 'seconds':round(got[n][1],2)}
    out = [*(row(n,ok) for n,ok in right_bad.items()), *(row(n,ok) for n,ok in right_good.items())]
    save(a.out, result(device, f'python benchmarks/hostile.py --device {a.device} --n {a.n} --jobs {jobs} --seed {a.seed}', f'{a.protocol}, {jobs} jobs; a kernel may take {run_seconds:g} s', [a.seed,'hostile'], figures, out, alone=lonely, recoveries=sorted(back, key=lambda r: -r['recovery_s'])[:20], kinds=dict(Counter(r['kind'] for r in out))))
    for r in out:
        if not r['right']: print(r, got[r['program']][0] and got[r['program']][0].reason)

if __name__=='__main__': main()
