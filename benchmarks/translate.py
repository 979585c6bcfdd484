"""How many programs in the published format (`ModelNew` with `load_inline`) become a Plan, whether the Plans are right, and whether a real build says the same.

    python benchmarks/translate.py                          # translated, and run on the host device: no GPU is needed
    nice python benchmarks/translate.py --build-only --folder runs/inline    # each is built with load_inline: needs nvcc and no GPU, so it can run beside a training
    python benchmarks/translate.py --slow --skip-host --folder runs/inline   # on a GPU machine with nvcc: both are judged on the same checks; what is built in the folder is only loaded

The programs are those of tests/inline_programs. With --slow every eighth is also tried with a fault (its last block does nothing), so that agreement is seen on wrong programs too. Both sides agree if the status and the kind of the reason are the same on the same
seeds; ok and slow are both right. One pair of reasons counts as the same: what was never written holds the judge's pattern here and NaN (in integers the largest one) there.

The file given by --out (or, where there is none, data/benchmarks/translate.json) is written after every program, so a run that was cut short is completed by the next: it keeps the rows of the same code on the same device. A program that the time limit cuts off,
or that the judge could not judge, has no row; `compared` counts the rows, `of_candidates` what there is to compare. Where nothing can be built, the old comparison is kept as it is.
"""
import datetime, functools, json, re, statistics, sys, tempfile, time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
import os
from _common import ROOT, Clock, code, commit, options, result, save, say
from kernelrl._pools import Infra
from kernelrl._slow_inline import Built, can_build, judge_slow
from kernelrl.core import KernelRLError
from kernelrl.host import compile_host, run_host
from kernelrl.inline import task_setting
from kernelrl.judge import Judge, judge_many
from kernelrl.program import Program
from kernelrl.reference import Reference
from kernelrl.task import Task, shipped_tasks
from kernelrl.toolchain import find_compiler
from kernelrl.trace import TraceRefused, trace
from kernelrl.verdict import Store, Verdict
from kernelrl.verify import compare

FOLDER = ROOT/'tests'/'inline_programs'

@functools.cache
def programs()->list[tuple[Program,Task]]: # In order of name
    "The programs, each with the task that its first line names"
    tasks = {t.name:t for t in shipped_tasks()}
    texts = [(p.stem, p.read_text('utf-8')) for p in sorted(FOLDER.glob('*.py'))]
    return [(Program(text, name), tasks[text.partition('\n')[0].removeprefix('# task: ')]) for name,text in texts]

# ---------------------------------------------------------------- on the host device
def translate(program:Program, task:Task, shape:int): # A Plan; TraceRefused
    "One program at one shape of its task"
    return trace(program, task.signature(shape), setting=task_setting(task, shape))

def difference(plan, task:Task, shape:int, seed:int=1)->str: # '' if all outputs are right
    "Run a Plan on the host device and compare it with the float64 reference"
    ref = Reference(task, shape)
    arrays = [a for a,s in zip(ref.inputs(seed), ref.signature.inputs) if s.value is None]+ref.params(seed)
    run,outs = run_host(compile_host(plan,'run'), plan, arrays, mode='run')
    if run.status!='ok': return f'{run.status}: {run.message}'
    wide,native = ref.expected(seed)
    reports = [compare(o, w, n, s.dtype) for o,w,n,s in zip(outs, wide, native, ref.signature.outputs)]
    return '; '.join(map(repr, (r for r in reports if not r.ok)))

def row(program:Program, task:Task)->dict:
    "What becomes of one program at the small shapes"
    out = {'program':program.name, 'id':program.id, 'task':task.name, 'translated':True, 'right':True, 'reason':''}
    for shape in range(1, len(task.shapes)):
        try: plan = translate(program, task, shape)
        except TraceRefused as e: return {**out, 'translated':False, 'right':False, 'reason':repr(e.finding)}
        if wrong := difference(plan, task, shape): out |= {'right':False, 'reason':wrong}
    return out

# ---------------------------------------------------------------- a real build
def faulty(p:Program)->Program|None: # None where the kernel's body cannot be found
    "The program with a last block that does nothing"
    m = re.search(r'__global__\s+void[^;{]*\{', p.text)
    return m and Program(f'{p.text[:m.end()]} if (blockIdx.x + 1 == gridDim.x && gridDim.x > 1) return; {p.text[m.end():]}', f'{p.name} (faulty)')

def candidates()->list[tuple[Task,Program]]:
    "All programs, and every eighth with a fault"
    bad = [(t, f) for p,t in programs()[::8] if (f := faulty(p))]
    return [(t,p) for p,t in programs()]+bad

SAME = {frozenset(p) for p in (('stale_or_unwritten','nonfinite'), ('stale_or_unwritten','mismatch'))}

def agree(fast:Verdict, slow:Verdict)->bool:
    "Both right, or the same status for the same reason; on the same seeds"
    if fast.seeds!=slow.seeds or fast.ok!=slow.ok: return False
    return fast.ok or fast.status==slow.status and (fast.reason.kind==slow.reason.kind or frozenset((fast.reason.kind,slow.reason.kind)) in SAME)

class Builds:
    "Builds at the same time, until there is no time for another one"
    def __init__(self, clock:Clock, folder:Path, at_once:int, device:str):
        self.clock,self.folder,self.device,self.at_once,self.longest = clock,folder,device,at_once,60.
        self.cores = 2 if (os.cpu_count() or 1)>=2*at_once else 1
    def one(self, t:Task, p:Program, then)->tuple|None: # None where the time was over, or the judge failed
        "Build, do what is asked with it, clean up"
        if self.clock.left<1.5*self.longest: return None
        began,b = time.monotonic(),Built(t, p, self.folder, self.device, self.cores, until=self.clock.end)
        try: return b.build(),then(b)
        except (Infra,KernelRLError) as e: say(f'{p.name}: not judged: {e}')
        finally:
            b.close()
            self.longest = max(self.longest, time.monotonic()-began)
    def all(self, pairs:list, then):
        "Task, program, build and what came of it, in the order in which they are done"
        pool = ThreadPoolExecutor(self.at_once)
        try:
            futures = {pool.submit(self.one, t, p, then):(t,p) for t,p in pairs}
            for f in as_completed(futures):
                if f.result(): yield (*futures[f],*f.result())
        finally: pool.shutdown(cancel_futures=True)

def build_only(builds:Builds, pairs:list)->int: # An exit code
    "Build all, judge nothing"
    bad,n = [],0
    for t,p,b,_ in builds.all(pairs, lambda b: None):
        n += 1
        if b.failed: bad.append(p.name)
        say(f'{n}/{len(pairs)} {p.name}: '+(f'{b.failed}\n{b.log[-3000:]}' if b.failed else f'{b.took:.0f} s to build, here in {b.seconds["compile"]:.0f} s'))
    print(json.dumps({'built':n-len(bad), 'of':len(pairs), 'failed':bad}))
    return int(n-len(bad)<len(pairs))

def both(j:Judge, pairs:list[tuple[Task,Program]], builds:Builds, keep=lambda rows: None)->list[dict]:
    "Judge translations, build the same programs, judge the builds; a row for each that came to its end"
    fast = {v.program:v for v in judge_many(j, pairs, progress=False)}
    say(f'{len(fast)} translations judged: {sum(v.ok for v in fast.values())} right, {sum(v.status=="infra" for v in fast.values())} not judged')
    rows:list[dict] = []
    for t,p,b,s in builds.all([(t,p) for t,p in pairs if fast[p.name].status!='infra'], lambda b: judge_slow(j, b)):
        q = fast[p.name]
        rows.append({'program':p.name, 'id':p.id, 'task':t.name, 'task_id':t.id, 'fast':q.status, 'slow':s.status, 'agree':agree(q, s), 'fast_kind':q.reason.kind if q.reason else '', 'slow_kind':s.reason.kind if s.reason else '', 'fast_reason':repr(q.reason) if q.reason else '',
            'slow_reason':repr(s.reason) if s.reason else '', 'checks':s.checks, 'fast_checks':q.checks, 'build_s':b.took, 'code':code()})
        say(f'{len(rows)}/{len(pairs)} {p.name}: {q.status} and {s.status}; {b.took:.0f} s to build, here in {s.seconds["compile"]:.0f} s, judged in {s.seconds["correct"]:.0f} s')
        keep(rows)
    return rows

def slow_part(a, clock:Clock, old:dict, write)->dict:
    "The comparison, and where it was made; written after every program"
    pairs = candidates()[:a.most]
    if why := can_build(a.device=='cuda'):
        ids = {(p.id,t.id) for t,p in candidates()}
        rows = [r for r in old.get('rows',[]) if (r['id'],r['task_id']) in ids]
        say(f'{why}: nothing is built, {len(rows)} comparisons are kept from {a.out.name}')
        return {**old, 'rows':rows} if rows else {}
    with tempfile.TemporaryDirectory() as top, Judge(a.device, a.protocol, Store(Path(top)/'s.sqlite'), secret='translate') as j:
        head = {'device':repr(j.bench.device), 'protocol':a.protocol, 'commit':commit(), 'date':datetime.date.today().isoformat()}
        names = {(p.id,t.id) for t,p in pairs}
        kept = [r for r in old.get('rows',[]) if r.get('code')==code() and (r['id'],r['task_id']) in names] if (old.get('device'),old.get('protocol'))==(head['device'],head['protocol']) else []
        done = {(r['id'],r['task_id']) for r in kept}
        part = lambda rows: {**head, 'rows':sorted(kept+rows, key=lambda r: r['program'])}
        todo = [(t,p) for t,p in pairs if (p.id,t.id) not in done]
        builds = Builds(clock, a.folder or Path(top)/'built', a.at_once, 'cuda' if a.device=='cuda' else 'cpu')
        return part(both(j, todo, builds, lambda rows: write(part(rows))) if todo else [])

def main():
    p = options(__doc__, 'translate', 540)
    p.add_argument('--slow', action='store_true', help='compare with real builds')
    p.add_argument('--build-only', action='store_true', help='build what --slow will ask for; no GPU is used')
    p.add_argument('--folder', type=Path, default=None, help='where built extensions stay; without it they are thrown away at the end')
    p.add_argument('--device', default='cuda', choices=['cuda','host'], help='host tries the script without a GPU: what needs one then fails')
    p.add_argument('--protocol', default='right', help='of the comparison')
    p.add_argument('--at-once','--jobs', type=int, default=os.cpu_count() or 1, help='programs built at the same time; as many as there are cores if not given')
    p.add_argument('--most', type=int, default=None, help='programs to build, at most')
    p.add_argument('--skip-host', action='store_true', help='keep the rows of the host device from the file; those of changed programs are made')
    a = p.parse_args()
    clock,ours = Clock(a.limit_seconds),ROOT/'data'/'benchmarks'/'translate.json'
    if a.build_only:
        if not a.folder: p.error('--build-only needs a --folder')
        if why := can_build(gpu=False): sys.exit(f'nothing can be built: {why}')
        return build_only(Builds(clock, a.folder, a.at_once, 'cpu'), candidates()[:a.most])
    if a.slow and a.device=='host' and a.out.resolve()==ours.resolve(): p.error('a comparison on the host device is no result; give another --out')
    file = a.out if a.out.exists() else ours
    old = json.loads(file.read_text()) if file.exists() else {}
    have = {r['id']:r for r in old.get('rows', [])} if a.skip_host else {}
    rows = [have.get(p.id) or row(p, t) for p,t in programs()]
    slow = old.get('slow', {})
    if a.slow: slow = slow_part(a, clock, slow, lambda part: write(a.out, rows, part))
    write(a.out, rows, slow)
    for r in rows:
        if r['reason']: print(f'{r["program"]}: {r["reason"]}')
    for r in slow.get('rows',[]):
        if not r['agree']: print(f'{r["program"]}: {r["fast"]} {r["fast_reason"]} but built: {r["slow"]} {r["slow_reason"]}')

def write(out:Path, rows:list[dict], slow:dict):
    "The file, with or without the comparison"
    n,translated = len(rows),sum(r['translated'] for r in rows)
    figures = {'programs':n, 'translated':translated, 'translated_share':round(translated/n, 4), 'right':sum(r['right'] for r in rows)}
    if both := slow.get('rows'):
        wrong = [r for r in both if r['program'].endswith('(faulty)')]
        figures |= {'compared':len(both), 'of_candidates':len(candidates()), 'disagreements':sum(not r['agree'] for r in both), 'right_in_both':sum({r['fast'],r['slow']}<={'ok','slow'} for r in both), 'compared_faulty':len(wrong), 'faulty_refused_by_both':sum(not {r['fast'],r['slow']}&{'ok','slow'} for r in wrong),
            'build_median_s':round(statistics.median(r['build_s'] for r in both), 1)}
    save(out, result(f'host ({find_compiler().name})'+(f'; built and compared on {slow["device"]}' if both else ''), 'python benchmarks/translate.py'+(' --slow' if both else ''), 'small shapes against float64 on the host device'+(f'; real load_inline builds, both on the checks of the protocol {slow["protocol"]}' if both else '; a real load_inline build needs a GPU and was not compared'),
        [1], figures, rows, **({'slow':slow} if both else {})))

if __name__=='__main__': sys.exit(main())
