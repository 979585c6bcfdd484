"""How many programs in the published format (`ModelNew` with `load_inline`) become a Plan, and whether the Plans give the right answer.

The programs are those of tests/inline_programs; the kernels run on the host device, so no GPU is needed. Whether a Plan and a real `load_inline` build agree can only
be measured on a GPU: that figure is not in this file's result.

    python benchmarks/translate.py
"""
import datetime, json, subprocess, sys
from pathlib import Path
from kernelrl.core import atomic_write
from kernelrl.host import compile_host, find_compiler, run_host
from kernelrl.inline import task_setting
from kernelrl.program import Program
from kernelrl.task import Reference, Task, shipped_tasks
from kernelrl.trace import TraceRefused, trace
from kernelrl.verify import compare

ROOT = Path(__file__).parent.parent
FOLDER = ROOT/'tests'/'inline_programs'

def programs()->list[tuple[Program,Task]]: # In order of name
    "The programs, each with the task that its first line names"
    tasks = {t.name:t for t in shipped_tasks()}
    texts = [(p.stem, p.read_text('utf-8')) for p in sorted(FOLDER.glob('*.py'))]
    return [(Program(text, name), tasks[text.partition('\n')[0].removeprefix('# task: ')]) for name,text in texts]

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
    out = {'program':program.name, 'task':task.name, 'translated':True, 'right':True, 'reason':''}
    for shape in range(1, len(task.shapes)):
        try: plan = translate(program, task, shape)
        except TraceRefused as e: return {**out, 'translated':False, 'right':False, 'reason':repr(e.finding)}
        if wrong := difference(plan, task, shape): out |= {'right':False, 'reason':wrong}
    return out

def main():
    rows = [row(p, t) for p,t in programs()]
    n,translated,right = len(rows),sum(r['translated'] for r in rows),sum(r['right'] for r in rows)
    git = subprocess.run(['git','rev-parse','HEAD'], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    result = {'device':f'host ({find_compiler().name})', 'date':datetime.date.today().isoformat(), 'commit':git, 'command':'python benchmarks/translate.py', 'protocol':'small shapes against float64 on the host device; a real load_inline build needs a GPU and was not compared',
        'seeds':[1], 'figures':{'programs':n, 'translated':translated, 'translated_share':round(translated/n, 4), 'right':right}, 'rows':rows}
    path = ROOT/'data'/'benchmarks'/'translate.json'
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, json.dumps(result, indent=1)+'\n')
    print(json.dumps(result['figures']), *(f'{r["program"]}: {r["reason"]}' for r in rows if r['reason']), sep='\n')

if __name__=='__main__': sys.exit(main())
