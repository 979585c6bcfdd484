"""How many programs in the published format (`ModelNew` with `load_inline`) become a Plan, whether the Plans are right, and whether a real build says the same.

    python benchmarks/translate.py                          # translated, and run on the host device: no GPU is needed
    python benchmarks/translate.py --slow --skip-host       # on a GPU machine with nvcc: each is built with load_inline too, and both are judged on the same checks

The programs are those of tests/inline_programs. With --slow every eighth is also tried with a fault (its last block does nothing), so that agreement is seen on wrong programs too. What a run does not come to is kept from
the file given by --out (or, where there is none, from data/benchmarks/translate.json) if the program is still the same, and the file is written after every build, so a run that was cut short is completed by the next. Where nothing can be built, the old comparison is kept as it is.
"""
import functools, json, re, sys, tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
import os
from _common import ROOT, Clock, options, result, save, say
from kernelrl._slow_inline import Built, can_build, judge_slow
from kernelrl.host import compile_host, find_compiler, run_host
from kernelrl.inline import task_setting
from kernelrl.judge import Judge, judge_many
from kernelrl.program import Program
from kernelrl.task import Reference, Task, shipped_tasks
from kernelrl.trace import TraceRefused, trace
from kernelrl.verdict import Store
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

def agree(fast:str, slow:str)->bool: # Statuses; a wrong answer may come as an error of the launch
    right = {'ok','slow'}
    return fast in right and slow in right or fast==slow and fast!='infra' or {fast,slow}<={'wrong','launch'}

def both(j:Judge, pairs:list[tuple[Task,Program]], clock:Clock, at_once:int, device:str='cuda', keep=lambda rows: None)->list[dict]:
    "Judge translations, build the same programs, judge the builds; a row for each that came to its end"
    fast = {v.program:v for v in judge_many(j, pairs, progress=False)}
    say(f'{len(fast)} translations judged: {sum(v.ok for v in fast.values())} right')
    rows:list[dict] = []
    longest = [60.]
    with tempfile.TemporaryDirectory() as top, ThreadPoolExecutor(at_once) as pool:
        def one(t, p):
            if clock.left<1.5*longest[0]: return None # It would not come to its end
            b = Built(t, p, Path(top)/re.sub(r'\W','_',p.name), device, 2 if os.cpu_count()>=2*at_once else 1).build()
            try: return judge_slow(j, b)
            finally: b.close()
        futures = [pool.submit(one, t, p) for t,p in pairs]
        for f,(t,p) in ((f, pairs[futures.index(f)]) for f in as_completed(futures)):
            s,q = f.result(),fast[p.name]
            if s is None: continue
            rows.append({'program':p.name, 'id':p.id, 'task':t.name, 'fast':q.status, 'slow':s.status, 'agree':agree(q.status, s.status), 'fast_reason':repr(q.reason) if q.reason else '', 'slow_reason':repr(s.reason) if s.reason else '', 'checks':s.checks, 'build_s':s.seconds['compile']})
            longest[0] = max(longest[0], sum(s.seconds.values()))
            say(f'{len(rows)}/{len(pairs)} {p.name}: {q.status} and {s.status}; built in {s.seconds["compile"]:.0f} s')
            keep(rows)
    return rows

def slow_rows(a, clock:Clock, old:list[dict], write)->tuple[list[dict],str]:
    "The comparison, and where it was made; written after every build"
    pairs = candidates()
    ids = {p.id for _,p in pairs}
    kept = [r for r in old if r['id'] in ids]
    if why := can_build():
        say(f'{why}: nothing is built, {len(kept)} comparisons are kept from {a.out.name}')
        return kept,''
    done = {r['id'] for r in kept}
    todo = [(t,p) for t,p in pairs if p.id not in done][:a.most]
    if not todo: return kept,''
    with tempfile.TemporaryDirectory() as top, Judge('cuda', a.protocol, Store(Path(top)/'s.sqlite'), secret='translate') as j:
        where = repr(j.bench.device)
        new = both(j, todo, clock, a.at_once or max(1, os.cpu_count() or 1), keep=lambda rows: write(kept+rows, where))
        return kept+new, where

def main():
    p = options(__doc__, 'translate', 540)
    p.add_argument('--slow', action='store_true', help='compare with real builds')
    p.add_argument('--protocol', default='right', help='of the comparison')
    p.add_argument('--at-once', type=int, default=0, help='builds at the same time; as many as there are cores if not given')
    p.add_argument('--most', type=int, default=10**6, help='programs to build, at most')
    p.add_argument('--skip-host', action='store_true', help='keep the rows of the host device from the file')
    a = p.parse_args()
    clock,file = Clock(a.limit_seconds),a.out if a.out.exists() else ROOT/'data'/'benchmarks'/'translate.json'
    old = json.loads(file.read_text()) if file.exists() else {}
    ids = {p.id for p,_ in programs()}
    rows = [r for r in old.get('rows', []) if r.get('id') in ids] if a.skip_host else []
    if len(rows)<len(ids): rows = [row(p, t) for p,t in programs()]
    slow,where,protocol = (old.get('slow', {}).get(k, d) for k,d in (('rows',[]), ('device',''), ('protocol','')))
    if a.slow:
        slow,here = slow_rows(a, clock, slow, lambda s,w: write(a.out, rows, s, w, a.protocol))
        where,protocol = here or where,a.protocol if here else protocol
    write(a.out, rows, slow, where, protocol)
    for r in rows:
        if r['reason']: print(f'{r["program"]}: {r["reason"]}')
    for r in slow:
        if not r['agree']: print(f'{r["program"]}: {r["fast"]} {r["fast_reason"]} but built: {r["slow"]} {r["slow_reason"]}')

def write(out:Path, rows:list[dict], slow:list[dict], where:str, protocol:str):
    "The file, with or without the comparison"
    n,translated = len(rows),sum(r['translated'] for r in rows)
    figures = {'programs':n, 'translated':translated, 'translated_share':round(translated/n, 4), 'right':sum(r['right'] for r in rows)}
    if slow: figures |= {'compared':len(slow), 'compared_faulty':sum(r['fast'] not in ('ok','slow') for r in slow), 'disagreements':sum(not r['agree'] for r in slow), 'of_candidates':len(candidates())}
    save(out, result(f'host ({find_compiler().name})'+(f'; built and compared on {where}' if slow else ''), 'python benchmarks/translate.py'+(' --slow' if slow else ''), 'small shapes against float64 on the host device'+(f'; real load_inline builds, both on the checks of the protocol {protocol}' if slow else '; a real load_inline build needs a GPU and was not compared'),
        [1], figures, rows, **({'slow':{'device':where, 'protocol':protocol, 'rows':sorted(slow, key=lambda r: r['program'])}} if slow else {})))

if __name__=='__main__': sys.exit(main())
