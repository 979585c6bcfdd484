"How many cheats the judge catches and how many honest programs it suspects, on the host device: writes data/benchmarks/cheats.json"
import datetime, json, subprocess, sys, tempfile, time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT/'tests'))
import test_cheats as C
from kernelrl import _bench, trace
from kernelrl.core import atomic_write
from kernelrl.judge import Judge
from kernelrl.verdict import Store
import functools

def git(*args:str)->str: return subprocess.run(['git',*args], cwd=ROOT, capture_output=True, text=True).stdout.strip()

def main(out:Path=ROOT/'data'/'benchmarks'/'cheats.json'):
    t = time.monotonic()
    with Judge('host', 'quick', Store(Path(tempfile.mkdtemp())/'s.sqlite'), secret='benchmark') as j:
        for task in C.TASKS: j.bench.distributions(task)
        _bench.HostBench.RUN_SECONDS = 10.
        _bench.trace = functools.partial(trace.trace, deadline=2.)
        honest = [(f'honest {n}','',task,text) for task,n,text in C.HONEST_BASE]
        verdicts = C.judge_all(j, [*honest, *C.CHEATS, *((f'harmless {i}',w,C.AFFINE,text) for i,w,text in C.IMPOSSIBLE)])
        device,good = repr(j.bench.device),verdicts['honest affine'].timings['candidate'].ms
    rows = [{'id':i, 'what':what, 'task':task.name, 'status':verdicts[i].status, 'gate':verdicts[i].gate, 'finding':verdicts[i].reason.kind if verdicts[i].reason else '', 'caught':C.is_caught(verdicts[i], status, kinds)} for i,what,task,_,status,kinds in C.CHEATS]
    rows += [{'id':i, 'what':what, 'task':C.AFFINE.name, 'status':v.status, 'gate':v.gate, 'finding':'nothing_to_gain', 'caught':v.ok and v.timings['candidate'].ms>=.7*good} for i,what,_ in C.IMPOSSIBLE for v in [verdicts[f'harmless {i}']]]
    reasons = C.all_accepted()
    alarms = [{'program':n, 'why':r} for (_,n,_),r in zip(C.HONEST, reasons) if r]+[{'program':i, 'why':repr(verdicts[i])} for i,*_ in honest if not verdicts[i].ok]
    figures = {'cheats':len(rows), 'caught':sum(r['caught'] for r in rows), 'honest':len(reasons)+len(honest), 'false_alarms':len(alarms), 'catalogue_entries':len({r['id'].rstrip('bcdef') for r in rows}), 'seconds':round(time.monotonic()-t, 1)}
    atomic_write(out, json.dumps({'device':device, 'date':datetime.date.today().isoformat(), 'commit':git('rev-parse','--short','HEAD'), 'command':'python benchmarks/cheats.py', 'protocol':'quick', 'seeds':['benchmark'],
        'figures':figures, 'rows':rows, 'false_alarms':alarms}, indent=1, sort_keys=True)+'\n')
    print(figures)
    for r in rows:
        if not r['caught']: print('missed', r)
    for a in alarms[:10]: print('false alarm', a)

if __name__=='__main__': main()
