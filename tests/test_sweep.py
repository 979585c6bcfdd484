"Sweeps: checked parameters, resume after kill -9, two sweeps at once, nothing left running"
import json, os, signal, socket, subprocess, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import psutil, pytest
from kernelrl.core import KernelRLError, atomic_write
from kernelrl.locks import STALE, alive, claim, release
from kernelrl.study import Parameter, check, parameters, read_settings
from kernelrl.sweep import Sweep, SweepRun, run_on_ray, start, stop, watch

pytest.importorskip('papermill')

def notebook(path:Path, params:str, *cells:str, tag:str='parameters')->Path:
    code = lambda text,tags: {'cell_type':'code', 'execution_count':None, 'id':f'c{abs(hash(text))%10**8}', 'metadata':{'tags':tags}, 'outputs':[], 'source':text}
    nb = {'cells':[code(params, [tag]), *[code(c, []) for c in cells]], 'metadata':{'kernelspec':{'display_name':'p','language':'python','name':'gone'}}, 'nbformat':4, 'nbformat_minor':5}
    path.write_text(json.dumps(nb))
    return path

BUSY = '''
import os, time
with open(log, 'a') as f: f.write(f'begin {i}\\n')
time.sleep(nap)
with open(log, 'a') as f: f.write(f'end {i}\\n')
'''
RECORD = 'if keep:\n    from kernelrl.study import record\n    record(square=i*i)'

@pytest.fixture
def busy(tmp_path): return notebook(tmp_path/'busy.ipynb', f'i:int = 0 # Which\nnap:float = 0.0\nkeep:bool = False\nlog:str = {str(tmp_path/"log.txt")!r}', BUSY, RECORD)

def lines(tmp_path:Path)->list[str]: return (tmp_path/'log.txt').read_text().splitlines() if (tmp_path/'log.txt').exists() else []
def wait_for(what, seconds=60):
    until = time.monotonic()+seconds
    while not what():
        assert time.monotonic()<until, 'waited too long'
        time.sleep(.2)
def belongs(out:Path)->list[int]:
    "Processes of this sweep that are still there"
    found = []
    for p in psutil.process_iter():
        try:
            if p.pid!=os.getpid() and p.status()!=psutil.STATUS_ZOMBIE and (str(out) in p.environ().get('KERNELRL_SWEEP_RUN','') or str(out) in ' '.join(p.cmdline())): found.append(p.pid)
        except psutil.Error: pass
    return found
def shell(nb:Path, out:Path, n:int, nap:float, workers:int=2)->subprocess.Popen:
    code = f'from kernelrl.sweep import Sweep; Sweep({str(nb)!r}, [{{"i":i, "nap":{nap}, "keep":i==5}} for i in range({n})], {str(out)!r}).run({workers}, progress=False)'
    return subprocess.Popen([sys.executable,'-c',code], start_new_session=True, stderr=subprocess.PIPE)

# ---- before anything runs

def test_parameters_are_read_not_run(tmp_path):
    nb = notebook(tmp_path/'a.ipynb', 'n = 3 # how many\nlr:float = 1e-3\nwhere = __import__("os").abort()\nmode:"Literal" = "a"; z = (1,2)')
    p = parameters(nb)
    assert p==(Parameter('n',3,'int','how many'), Parameter('lr',1e-3,'float'), Parameter('where',None,'',computed=True), Parameter('mode','a','Literal'), Parameter('z',[1,2],'list'))
    assert 'where' not in Sweep(nb, {'n':4}, tmp_path).cases[0].parameters # Left to the notebook

@pytest.mark.parametrize('given,says', [({'ii':1}, "did you mean 'i'"), ({'i':'1'}, 'takes int'), ({'i':True}, 'takes int'), ({'i':1.0}, 'takes int'), ({'log':3}, 'takes str'), ({'nap':None}, 'takes float')])
def test_wrong_settings_are_refused_before_the_first_run(busy, tmp_path, given, says):
    with pytest.raises(KernelRLError, match=says): Sweep(busy, [{'i':1}, given], tmp_path/'out')
    assert not (tmp_path/'out').exists()

def test_bad_notebooks(tmp_path):
    for make,says in ((lambda: notebook(tmp_path/'a.ipynb', 'n = 3', tag='other'), 'no cell tagged'), (lambda: notebook(tmp_path/'b.ipynb', 'n = = 3'), 'not Python'), (lambda: tmp_path/'nowhere.ipynb', 'cannot be read'), (lambda: atomic_write(tmp_path/'c.ipynb', 'text'), 'not a notebook')):
        with pytest.raises(KernelRLError, match=says): parameters(make())

def test_numpy_and_command_line_values_become_plain(busy):
    import numpy as np
    known = parameters(busy)
    assert check(known, {'i':np.int64(3), 'nap':np.float32(.5)})=={'i':3,'nap':.5}
    assert type(check(known, {'nap':1})['nap']) is float
    assert read_settings(known, ['i=1,2','log=1,x'])=={'i':[1,2], 'log':['1','x']}
    for words in (['i'], ['i='], ['i=1','i=2']):
        with pytest.raises(KernelRLError): read_settings(known, words)

def test_names_depend_on_the_setting_alone(busy, tmp_path):
    a = {c.name for c in Sweep(busy, {'i':[1,2]}, tmp_path).cases}
    b = {c.name for c in Sweep(busy, [{'nap':0, 'i':2},{'i':3},{'i':1}], tmp_path).cases}
    assert a<b and len(b)==3
    assert all(len(c.name)<90 and '/' not in c.name for c in Sweep(busy, [{'log':'/'+'x'*500}], tmp_path).cases)

# ---- locks

def test_locks(tmp_path):
    me = claim(tmp_path/'run', 'me')
    lock = tmp_path/'run'/'lock.json'
    assert me=='ours' and alive(lock) and claim(tmp_path/'run', 'you')=='held'
    release(tmp_path/'run', 'you'); assert lock.exists()
    old = json.loads(lock.read_text())
    lock.write_text(json.dumps({**old, 'start':old['start']-100}))      # the same number, another process
    assert not alive(lock)
    lock.write_text(json.dumps({**old, 'host':'elsewhere'}))
    assert alive(lock)
    os.utime(lock, (time.time()-2*STALE,)*2)
    assert not alive(lock) and claim(tmp_path/'run', 'you')=='ours'
    lock.write_text('half a lo'); assert not alive(lock)
    release(tmp_path/'run', 'you')
    (tmp_path/'run'/'done.json').write_text('{}'); assert claim(tmp_path/'run', 'you')=='done'

def test_a_stale_lock_is_taken_once(tmp_path):
    "Eight sweeps find the same stale lock at the same moment"
    gone = subprocess.Popen(['true']); gone.wait()
    for trial in range(5):
        run = tmp_path/f'run{trial}'
        atomic_write(run/'lock.json', json.dumps({'pid':gone.pid, 'host':socket.gethostname(), 'start':0., 'owner':'dead'}))
        together = threading.Barrier(8)
        def take(k): together.wait(); return claim(run, str(k))
        with ThreadPoolExecutor(8) as pool: said = list(pool.map(take, range(8)))
        assert sorted(said)==['held']*7+['ours']

# ---- runs

def test_killed_at_half_and_started_again(busy, tmp_path):
    out = tmp_path/'out'
    p = shell(busy, out, 6, .7)
    wait_for(lambda: sum(l.startswith('end') for l in lines(tmp_path))>=3)
    p.kill(); p.wait()
    wait_for(lambda: not belongs(out), 30)                      # kill -9 of the sweep: its workers and kernels end by themselves
    s = Sweep(busy, [{'i':i, 'nap':.7, 'keep':i==5} for i in range(6)], out)
    before = {x.case.name:(out/x.case.name/'done.json').stat().st_mtime_ns for x in s.states if x.status=='done'}
    assert 1<=len(before)<6 and 'running' not in s.counts
    s.run(2, progress=False)
    assert s.counts=={'done':6} and sorted(r['i'] for r in s.table)==list(range(6)) and s.table[5]['square']==25
    assert all((out/n/'done.json').stat().st_mtime_ns==t for n,t in before.items())   # not run again
    ran = [l for l in lines(tmp_path) if l.startswith('end')]
    for i in range(6):
        name = next(c.name for c in s.cases if c.parameters['i']==i)
        if name in before: assert ran.count(f'end {i}')==1
    begun = len(lines(tmp_path))
    s.run(progress=False)
    assert len(lines(tmp_path))==begun and len((out/'results.jsonl').read_text().splitlines())==6 and not list(out.glob('*/lock.json'))

def test_two_sweeps_share_the_work(busy, tmp_path):
    ps = [shell(busy, tmp_path/'out', 3, .3, 1) for _ in range(2)]
    assert [p.wait(120) for p in ps]==[0,0], [p.stderr.read() for p in ps]
    assert sorted(lines(tmp_path))==sorted(f'{w} {i}' for i in range(3) for w in ('begin','end'))
    assert Sweep.open(tmp_path/'out').counts=={'done':3}

def test_ctrl_c_leaves_nothing_running(busy, tmp_path):
    p = shell(busy, tmp_path/'out', 2, 60, 1)
    wait_for(lambda: lines(tmp_path))
    assert len(belongs(tmp_path/'out'))>=2
    p.send_signal(signal.SIGINT)
    assert p.wait(60)!=0 and b'KeyboardInterrupt' in p.stderr.read()
    wait_for(lambda: not belongs(tmp_path/"out"), 30)
    assert not list((tmp_path/'out').glob('*/lock.json')) and not list((tmp_path/'out').glob('*/done.json'))

def test_failed_overdue_and_dying_runs_are_kept(tmp_path):
    nb = notebook(tmp_path/'bad.ipynb', 'how = "well"', 'import os, time\nif how=="raise": raise ValueError("no such kernel")\nif how=="hang": time.sleep(100)\nif how=="die": os._exit(3)', 'ok = 1')
    s = Sweep(nb, {'how':['well','raise','die']}, tmp_path/'out').run(progress=False)
    assert s.counts=={'done':1,'failed':2}
    errors = {x.case.parameters['how']:x for x in s.failures}
    assert errors['raise'].error['name']=='ValueError' and 'no such kernel' in repr(errors['raise'])
    assert 'Dead' in errors['die'].error['name']
    kept = json.loads((s.out/errors['raise'].case.name/'executed.ipynb').read_text())
    assert any(o['output_type']=='error' for c in kept['cells'] for o in c.get('outputs',[]))
    at = kept['cells'][errors['raise'].error['cell']]
    assert errors['raise'].error['line'] in ''.join(at['source'])
    late = Sweep(nb, {'how':'hang'}, tmp_path/'out').run(deadline=3, progress=False)
    assert late.failures[0].error['name']=='Timeout' and not belongs(s.out)
    s2 = Sweep(nb, [{'how':'raise'}], tmp_path/'out').run(progress=False); assert s2.failures      # not tried again
    notebook(nb, 'how = "well"', 'from kernelrl.study import record; record(ok=2)')
    with pytest.raises(KernelRLError, match='another version of bad.ipynb'): s2.run(progress=False)
    s2.run(changed='again', progress=False)
    assert s2.counts=={'done':1} and s2.table[0]['ok']==2 and (s2.out/s2.cases[0].name/'executed.1.ipynb').exists()

def test_started_watched_stopped(busy, tmp_path):
    s = Sweep(busy, {'i':[1,2], 'nap':60}, tmp_path/'out')
    pid = start(s)
    wait_for(lambda: lines(tmp_path))
    assert s.counts=={'running':1,'waiting':1}
    with pytest.raises(KernelRLError, match='already being run'): start(s)
    stop(s)
    wait_for(lambda: not belongs(s.out), 30)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status()==psutil.STATUS_ZOMBIE
    assert s.counts=={'killed':1,'waiting':1} and watch(s, .1, progress=False).counts==s.counts

def test_command(busy, tmp_path, capsys):
    with pytest.raises(KernelRLError, match="did you mean 'nap'"): SweepRun(busy, ('napp=1',), out=tmp_path/'o').run()
    SweepRun(busy, ('i=3,4',), out=tmp_path/'o', dry=True).run()
    assert capsys.readouterr().out.count('waiting')==2 and not lines(tmp_path)
    (tmp_path/'c.jsonl').write_text('{"i": 5, "keep": true}\n')
    SweepRun(busy, cases=tmp_path/'c.jsonl', out=tmp_path/'o').run()
    assert '| 25 |' in capsys.readouterr().out

def test_without_ray_it_says_so(busy, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'ray', None)
    with pytest.raises(KernelRLError, match='pip install ray'): run_on_ray(Sweep(busy, {'i':1}, tmp_path/'out'))
    assert not (tmp_path/'out').exists()
