"The data set: what is kept and why, near-duplicates, splits, repair pairs, the files, resume"
import itertools, json, os, re, signal, subprocess, sys, time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
import pyarrow as pa, pyarrow.parquet as pq
import pytest
import kernelrl.funnel
from kernelrl import cli
from kernelrl.alike import ALIKE, Seen, likeness, shingles
from kernelrl.core import Finding, KernelRLError, read_jsonl
from kernelrl.cuke import adopt, build
from kernelrl.device import Device
from kernelrl.faults import FAULTS, broken, edits
from kernelrl.funnel import Entry, decision, funnel, screening
from kernelrl.judge import Judge, judge_one, shipped_verdicts
from kernelrl.program import Program
from kernelrl.repair import repairs
from kernelrl.rows import composition, pass_rates, splits
from kernelrl.sources import pairs_from, picks, room, shipped_pairs, zoo_with_room
from kernelrl.task import Task, shipped_programs, shipped_tasks
from kernelrl.timing import Speedup, Timing
from kernelrl.verdict import Store, Verdict, load_verdicts, write_verdicts
from kernelrl.writers import variants, write
from kernelrl.zoo import split, zoo_tasks

GPU = Device('cuda', 'NVIDIA H200', 'sm_90')

def verdict(t:Task, p:Program, ratio:float=3., width:float=.02, status:str='ok', **kw)->Verdict:
    "A verdict as a GPU might have given it"
    if status not in ('ok','slow'): return Verdict(t.name, p.name, status, 'correct', t.id, p.id, Finding('mismatch', 'it is wrong'), device=GPU, protocol='strict', key=p.id, **kw)
    ms = {'candidate':.01, 'eager_graph':.01*ratio, 'eager':.02*ratio}
    s = lambda b,r: Speedup(r, r*(1-width), r*(1+width), b)
    return Verdict(t.name, p.name, status, 'time', t.id, p.id, timings={k:Timing(v, v, v, 6, (v,)*6) for k,v in ms.items()}, speedups=(s('eager_graph', ratio), s('eager', 2*ratio)), device=GPU, protocol='strict', checks=12, key=p.id, **kw)

def recorded(path:Path, verdicts:list[Verdict], **kw)->Judge:
    "The real judge, replaying these verdicts"
    write_verdicts(path, verdicts)
    return Judge('replay', 'strict', Store(path.with_suffix('.sqlite')), replay=path, **kw)

@pytest.fixture(scope='module')
def host(tmp_path_factory):
    with Judge('host', 'quick', Store(tmp_path_factory.mktemp('cuke')/'s.sqlite'), jobs=2, secret='test') as j: yield j

T,P = shipped_pairs(['rms_norm'])[0]

def small()->tuple[Task,list[Program]]:
    "A task that a CPU judges in no time, and programs for it"
    t = zoo_tasks(0, 3, ['row'])[0]
    ps = picks(t, 6)
    return Task('small', re.sub(r'^N, D = .*', 'N, D = 96, 128', t.source, flags=re.M), t.shapes, distributions=t.distributions), ps

# --- what is kept

@pytest.mark.parametrize('ratio,width,code', [(3,.02,'kept'), (2.03,.02,'interval_spans_bar'), (1.9,.02,'slower_than_bar'), (2,0,'kept')])
def test_bar(ratio, width, code): assert decision(verdict(T, P, ratio, width))==code

def test_reasons():
    assert decision(verdict(T, P, status='wrong'))=='wrong/mismatch'
    assert decision(replace(verdict(T, P), speedups=()))=='not_timed'
    assert decision(verdict(T, P, findings=(Finding('too_short', 'it is', severity='warning'),)))=='too_short_to_tell'
    slow_vs_graph_fast_vs_eager = replace(verdict(T, P, 1.5), speedups=(Speedup(1.5,1.45,1.55,'eager_graph'), Speedup(9,8.9,9.1,'eager')))
    assert decision(slow_vs_graph_fast_vs_eager)=='slower_than_bar'

# --- near-duplicates

def test_alike_looks_through_clothes():
    text = dict(shipped_programs('rms_norm'))['expert']
    other = '# mine\n'+text.replace('squares','s2').replace('row','line').replace('    ','  ').replace(';\n',';  // and so on\n')
    assert text!=other and likeness(shingles(text), shingles(other))>.97
    assert likeness(shingles(text), shingles(dict(shipped_programs('rms_norm'))['naive']))<ALIKE

def test_alike_sees_another_algorithm_and_another_function():
    for t in zoo_tasks(3, 6, ['map','row','loss']):
        a,b = (shingles(write(t, v, 5).text) for v in ((), variants(t)[-1]))
        assert likeness(a, b)<ALIKE
    one = 'import cupy as cp\nk = cp.RawKernel(r"""__global__ void k(float* x) { x[0] = expf(x[0]); }""", "k")'
    assert likeness(shingles(one), shingles(one.replace('expf','sinf')))<1

def test_alike_reads_what_is_no_python(): assert shingles('def forward(: """__global__')

def test_minhash_finds_what_comparing_all_finds():
    sets = {f'{t.name} {i}':shingles(write(t, v, i).text) for t in zoo_tasks(1, 12) for i,v in enumerate(variants(t)[:4])}
    seen,all_ = Seen(),list(sets.items())
    for n,s in all_[::2]: seen.add(n, s)
    for n,s in all_[1::2]:
        best = max((likeness(s, o),m) for m,o in all_[::2])
        found = seen.nearest(s)
        assert (found is None)==(best[0]<ALIKE)
        if found: assert found[1]==best[0]

# --- the funnel, on recorded verdicts

def variants_of(n:int)->list[Program]: return picks(zoo_tasks(0, 3, ['row'])[0], n)

def run(tmp_path, screened:dict, decided:dict, **kw)->dict[str,Entry]:
    t = zoo_tasks(0, 3, ['row'])[0]
    quick = recorded(tmp_path/'quick.jsonl', [verdict(t, p, *a) for p,*a in screened.values()])
    strict = recorded(tmp_path/'strict.jsonl', [verdict(t, p, *a) for p,*a in decided.values()])
    return {p.name:e for _,p,e in funnel(strict, quick, [(t,p) for p,*_ in screened.values()], **kw)}

def looks(p:Program, name:str)->Program: return Program(p.text.replace('import cupy as cp', '"A copy."\nimport cupy as cp'), name)

def test_screen_sends_on_only_what_may_reach_the_bar(tmp_path):
    naive,a,b,c = variants_of(4)
    es = run(tmp_path, {'naive':(naive,.5), 'a':(a,3.), 'b':(b,1.99,.01), 'c':(c,3.,.02,'wrong')}, {'a':(a,2.5), 'b':(b,2.2)})
    assert {n:e.decision for n,e in es.items()}=={naive.name:'screened_out', a.name:'kept', b.name:'kept', c.name:'wrong/mismatch'}
    assert es[naive.name].screen is None and es[naive.name].verdict.speedup.ratio==.5
    assert es[a.name].screen.speedup.ratio==3 and es[a.name].verdict.speedup.ratio==2.5

def test_of_near_duplicates_the_fastest_is_judged_and_the_next_only_if_it_fails(tmp_path):
    _,a,b = variants_of(3)
    slower,faster = looks(a,'slower'),a
    es = run(tmp_path, {'slower':(slower,3.), 'a':(faster,4.), 'b':(b,3.5)}, {'a':(faster,4.), 'b':(b,3.5)})
    assert es['slower'].decision=='near_duplicate' and es['slower'].like==a.name and es['slower'].verdict.speedup.ratio==3
    es = run(tmp_path, {'slower':(slower,3.), 'a':(faster,4.)}, {'a':(faster,4.,.02,'wrong'), 'slower':(slower,3.)})
    assert (es[a.name].decision,es['slower'].decision)==('wrong/mismatch','kept')

def test_without_a_screen_near_duplicates_go_too(tmp_path):
    _,a,b = variants_of(3)
    t = zoo_tasks(0, 3, ['row'])[0]
    ps = [(looks(a,'slower'),2.5), (a,3.), (b,2.6)]
    j = recorded(tmp_path/'v.jsonl', [verdict(t, p, r) for p,r in ps])
    built = build(j, [(t,p) for p,_ in ps], progress=False)
    assert built.counts()=={'kept':2, 'near_duplicate':1} and built.complete and built.planned==3

def test_one_problem_in_two_sizes_is_kept_once(tmp_path):
    t,p = shipped_pairs(['rms_norm'])[0]
    u = Task('rms_norm_small', t.source.replace('8192','4096'), t.shapes, provenance=t.provenance, licence=t.licence)
    assert u.id!=t.id
    q = looks(p,'again')
    b = build(recorded(tmp_path/'v.jsonl', [verdict(t, p, 3.), verdict(u, q, 4.)]), [(t,p),(u,q)], progress=False)
    assert [(r.task,r.name) for r in b.rows]==[('rms_norm_small','again')] and b.counts()=={'kept':1, 'near_duplicate':1}

def test_the_time_is_up(tmp_path, monkeypatch):
    t = zoo_tasks(0, 3, ['row'])[0]
    ps = variants_of(6)
    j = recorded(tmp_path/'v.jsonl', [verdict(t, p) for p in ps], jobs=1)
    clock = [0]
    monkeypatch.setattr(kernelrl.funnel, 'time', SimpleNamespace(monotonic=lambda: clock[0]))
    def slowly(): # A program a second
        for p in ps: clock[0] += 1; yield t,p
    got = list(funnel(j, j, slowly(), until=3))
    assert len(got)==3 and all(e.decision=='undecided' for _,_,e in got)
    monkeypatch.undo()
    with pytest.raises(KernelRLError, match='the time was up'): build(j, [(t,ps[0])], progress=False, seconds=0)

def test_screening_shares_the_workers(host):
    s = screening(host, 'standard')
    assert s.bench is host.bench and s.store is host.store and s.protocol.name=='standard' and host.protocol.name=='quick'
    assert s.key(T, P)!=host.key(T, P)

# --- splits, level

def test_splits_share_no_composition():
    tasks = [*zoo_tasks(0, 200), *zoo_tasks(1, 100), *shipped_tasks()]
    side = splits(tasks)
    by = {s:{composition(t) for t in tasks if side[t.id]==s} for s in ('train','test')}
    assert not by['train']&by['test'] and .1<len(by['test'])/(len(by['train'])+len(by['test']))<.3
    for t in tasks[:200]: assert (side[t.id]=='train')==(split(t)=='train') # As the zoo holds out

def test_a_shipped_task_follows_the_zoo():
    "softmax of the package and softmax of the zoo stand on one side"
    zoo = [t for t in zoo_tasks(0, 400, ['row']) if composition(t)=='softmax']
    mine = Task('my_softmax', 'import torch\nclass Model(torch.nn.Module):\n    def forward(self, x): return torch.softmax(x, 1)\ndef get_inputs(): return [torch.randn(8, 8)]\n')
    side = splits([*zoo, mine])
    assert zoo and side[mine.id]==side[zoo[0].id]

def test_pass_rate_counts_near_duplicates_and_not_our_failures():
    e = lambda d,status='ok': Entry(verdict(T, P, status=status), d)
    assert pass_rates([e('kept'), e('near_duplicate'), e('screened_out'), e('wrong/mismatch','wrong'), e('infra/x','infra'), e('undecided')])=={T.id:.5}

# --- sources

def test_room_tells_a_fusion_from_a_single_pass():
    rooms = {t.name:room(t) for t in shipped_tasks(['gelu_tanh','bias_gelu','sum_last','gemm_f32'])}
    assert rooms['gelu_tanh']>8 and rooms['bias_gelu']>4 and rooms['sum_last']<1.1 and rooms['gemm_f32']==1

def test_zoo_source_gives_enough_that_differs():
    pairs = list(zoo_with_room(0, 24))
    assert len({t.id for t,_ in pairs})==24 and len({(t.id,p.id) for t,p in pairs})==len(pairs)>24*4
    for t,group in itertools.groupby(pairs, key=lambda d: d[0]):
        ps = [p for _,p in group]
        assert ps[0].name=='naive' and room(t)>=3.5
        assert all(likeness(shingles(a.text), shingles(b.text))<.9 for a,b in itertools.combinations(ps, 2))

def test_zoo_source_is_the_same_again():
    ids = lambda: [(t.id,p.id) for t,p in zoo_with_room(5, 4)]
    assert ids()==ids()

def inline_pair()->tuple[Task,Program]:
    text = (Path(__file__).parent/'inline_programs/bias_gelu_half.py').read_text()
    return shipped_tasks([text.split('\n')[0].removeprefix('# task: ')])[0], Program(text, 'bias_gelu_half')

def test_answers_of_others(tmp_path):
    t,p = inline_pair()
    assert p.format=='load_inline'
    rows = [{'id':1, 'pytorch_code':t.source, 'cuda_code':f'Here:\n```python\n{p.text}\n```'}, {'id':2, 'pytorch_code':t.source, 'cuda_code':''}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path/'answers.parquet')
    (tmp_path/'answers.json').write_text(json.dumps(rows))
    (tmp_path/'folder').mkdir()
    (tmp_path/'folder/3_Bias.py').write_text(t.source)
    (tmp_path/'folder/3_Bias_mine.py').write_text(p.text)
    for source in ('answers.parquet','answers.json','folder'):
        [(task,program)] = pairs_from(str(tmp_path/source))
        assert program.format=='load_inline' and program.text.strip()==p.text.strip() and task.source.strip()==t.source.strip(), source

def test_source_that_cannot_be_used(tmp_path, capsys):
    pq.write_table(pa.table({'a':['x']}), tmp_path/'t.parquet')
    for source,word in ((tmp_path/'nowhere','no such file'), (tmp_path/'t.parquet','wanted is one of')):
        with pytest.raises(SystemExit) as e: cli.main(['cuke','build','--device','host','--source',str(source),'--store',str(tmp_path/'s'),'--out',str(tmp_path/'o')])
        assert e.value.code.startswith('kernelrl: ') and word in e.value.code and source.name in e.value.code

# --- faults and repair pairs

def test_a_fault_is_one_edit_outside_comments():
    for t in zoo_tasks(2, 12):
        p = write(t, variants(t)[-1], 3)
        for f in FAULTS.values():
            for a,b,new in edits(p, f):
                assert p.text[a:b]!=new
                line = p.text[p.text.rfind('\n', 0, a)+1:a]
                assert ('#' if f.where=='python' else ' //') not in line.replace('#pragma','').replace('#define','')
    p = write(zoo_tasks(2, 1)[0], (), 0)
    assert [b.text for _,b in broken(p, 5, 1)]==[b.text for _,b in broken(p, 5, 1)]!=[b.text for _,b in broken(p, 5, 2)]
    assert len({f.name for f,_ in broken(p, 5, 1)})==len(list(broken(p, 5, 1)))==5

def test_repair_pairs_are_judged_for_real(host):
    t,(p,*_) = small()
    assert judge_one(host, t, p).ok
    pairs,count = repairs(host, [(t,p,'train')], 6, 1)
    assert count['planned']==sum(v for k,v in count.items() if k!='planned') and count['refused']==len(pairs)>=3
    for r in pairs:
        assert r.fixed==p.text!=r.broken and r.feedback.startswith('<err>') and r.status in r.feedback and r.fault in FAULTS
        assert judge_one(host, t, Program(r.broken)).status==r.status

# --- on disk

@pytest.fixture(scope='module')
def built(tmp_path_factory):
    "A build from recorded verdicts: three tasks with room, some programs kept"
    d = tmp_path_factory.mktemp('built')
    tasks = [next(t for t in zoo_tasks(0, 60) if split(t)==s and room(t)>3) for s in ('train','test')]
    pairs = [(t,p) for t in tasks for p in picks(t, 4)]+shipped_pairs(['gelu_tanh'])
    j = recorded(d/'v.jsonl', [verdict(t, p, .7 if p.name=='naive' else 3.+i/10) for i,(t,p) in enumerate(pairs)])
    return build(j, pairs, d/'out', progress=False, screen='quick'), d/'out', pairs

def test_layout(built):
    b,out,pairs = built
    assert {p.relative_to(out).as_posix() for p in out.rglob('*') if p.is_file()}=={'README.md','build.json','table.md','verdicts.jsonl','screen.jsonl','data/train-00000-of-00001.parquet','data/test-00000-of-00001.parquet'}
    rows = [r for s in ('train','test') for r in pq.read_table(out/f'data/{s}-00000-of-00001.parquet').to_pylist()]
    assert len(rows)==len(b.rows)==sum(p.name!='naive' for _,p in pairs)-b.counts().get('near_duplicate', 0)
    for r in rows:
        assert r['prefix']+r['core']+r['suffix']==r['program'] and r['core'].strip() and '__global__' not in r['core'] and r['lo']>=2
        plan = json.loads(r['plan'])
        assert plan['buffers'] and all(s['grid'] and s['block'] for s in plan['steps'] if 'kernel' in s)
        assert r['licence']=='Apache-2.0' and r['provenance'] and r['split'] in ('train','test') and Verdict.from_json(r['verdict']).program_id==r['program_id']
        assert r['speedup_eager']==pytest.approx(2*r['speedup'])

def test_figures_and_table_are_of_this_build(built):
    b,out,pairs = built
    f = json.loads((out/'build.json').read_text())
    assert f['complete'] is True and f['figures']['kept']==len(b.rows) and f['figures']['judged']==len(pairs) and f['figures']['train']+f['figures']['test']==len(b.rows)
    assert sum(f['decisions'].values())==len(pairs)
    text = (out/'README.md').read_text()
    assert f'{len(b.rows)} CUDA programs for 3 PyTorch tasks' in text and 'NVIDIA H200' in text
    assert (out/'table.md').read_text().count('\n| ')>=len(pairs)

def test_card_front_is_yaml(built):
    yaml = pytest.importorskip('yaml')
    front = yaml.safe_load((built[1]/'README.md').read_text().split('---')[1])
    assert front['license']=='apache-2.0' and [f['split'] for f in front['configs'][0]['data_files']]==['train','test']

def test_hugging_face_loads_it(built, tmp_path):
    pytest.importorskip('datasets')
    code = f'from datasets import load_dataset; d = load_dataset({str(built[1])!r}); print(d["train"].num_rows, d["test"].num_rows, d["train"][0]["task"])'
    r = subprocess.run([sys.executable,'-c',code], capture_output=True, text=True, env={**os.environ, 'HF_HOME':str(tmp_path), 'HF_DATASETS_OFFLINE':'1', 'HF_HUB_OFFLINE':'1'}, timeout=120)
    assert r.returncode==0, r.stderr[-800:]
    n = {s:pq.read_metadata(built[1]/f'data/{s}-00000-of-00001.parquet').num_rows for s in ('train','test')}
    assert r.stdout.split()[:2]==[str(n['train']), str(n['test'])]

def test_what_was_built_replays(built, tmp_path):
    b,out,pairs = built
    j = Judge('replay', 'strict', Store(tmp_path/'s'), replay=out)
    for r in b.rows:
        t,p = next((t,p) for t,p in pairs if (t.id,p.id)==(r.task_id,r.program_id))
        v = judge_one(j, t, p)
        assert v.source=='replayed' and v.speedup.lo==r.lo

def test_data_that_ships_replays(tmp_path):
    "The verdicts that come with the repository, in whatever layout they are"
    vs = load_verdicts(shipped_verdicts()/'cuke'/'verdicts.jsonl')
    j = Judge('replay', 'strict', Store(tmp_path/'s'))
    known = {(v.task_id,v.program_id) for v in vs}
    pairs = [(t,p) for t,p in shipped_pairs() if (t.id,p.id) in known]
    b = build(j, pairs, progress=False)
    assert len(pairs)>=40 and len(b.rows)>=15 and all(r.device=='NVIDIA H200' and r.source=='replayed' and r.lo>=2 for r in b.rows)

# --- resume

@pytest.mark.slow
def test_killed_and_resumed(tmp_path):
    "kill -9 in the middle: what was judged is taken over by another store, and not judged again"
    t,ps = small()
    (tmp_path/'src/small').mkdir(parents=True)
    (tmp_path/'src/small/task.py').write_text(t.source)
    for p in ps: (tmp_path/f'src/small/{p.name.replace(" ","_")}.py').write_text(p.text)
    out,argv = tmp_path/'o',[sys.executable,'-m','kernelrl','cuke','build','--device','host','--protocol','quick','--source',str(tmp_path/'src'),'--faults','0','--out',str(tmp_path/'o'),'--jobs','1']
    p = subprocess.Popen([*argv,'--store',str(tmp_path/'s1'),'--secret','first'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    part = out/'verdicts.part.jsonl'
    end = time.monotonic()+90
    while time.monotonic()<end and len(list(read_jsonl(part)))<2: time.sleep(.02)
    os.killpg(p.pid, signal.SIGKILL); p.wait()
    first = {v['key']:v['seeds'] for v in read_jsonl(part)}
    assert 2<=len(first)<len(ps) and not (out/'verdicts.jsonl').exists()
    with open(part,'a') as f: f.write('{"half a li')
    r = subprocess.run([*argv,'--store',str(tmp_path/'s2'),'--secret','second','--resume',str(out)], capture_output=True, text=True, timeout=120)
    assert r.returncode==0 and f'{len(first)} verdicts taken' in r.stderr, r.stderr[-500:]
    last = {v.key:list(v.seeds) for v in load_verdicts(out/'verdicts.jsonl')}
    assert len(last)==len(ps) and all(last[k]==s for k,s in first.items())
    assert any(s not in first.values() for s in last.values()) and not part.exists()

def test_resume_from_something_else(tmp_path):
    j = Judge('replay', 'quick', Store(tmp_path/'s'))
    (tmp_path/'x.jsonl').write_text('{"a":1}\n')
    for path in (tmp_path/'nowhere.jsonl', tmp_path/'x.jsonl', tmp_path):
        with pytest.raises(KernelRLError, match='give the folder of a build'): adopt(j, path)

def test_the_first_line_of_the_study_says_what_the_data_set_holds():
    import json
    root = shipped_verdicts()
    head = ''.join(json.loads((root.parent/'nbs'/'studies'/'cuke.ipynb').read_text())['cells'][0]['source'])
    f = json.loads((root/'cuke'/'build.json').read_text())['figures']
    assert f"Of {f['judged']} programs judged" in head and f"{f['kept']} are, on {f['tasks_kept']} of {f['tasks']} tasks" in head
