"The studies: SFT, then bi-phase, then LEAP with nano on the host device; what they say is what their files say; the model that comes along; the demo"
import copy, json, sys
from pathlib import Path
import pytest
torch = pytest.importorskip('torch')
from kernelrl.biphase import BiphaseConfig, Item, biphase
from kernelrl.core import KernelRLError, Run
from kernelrl.curriculum import Stages, OutOfTime, expected, right, tries
from kernelrl.demo import HELD_OUT, demo, drawn, turns
from kernelrl.judge import Judge, judge_all
from kernelrl.leap import LeapConfig, Question, leap
from kernelrl.lm import n_params
from kernelrl.sampler import Decoding
from kernelrl.sft import SFTConfig, bound, examples, pretrained, sft
from kernelrl.verdict import Store

ROOT = Path(__file__).resolve().parent.parent
STUDIES = {'sft':('compile','pass1'), 'biphase':('pass1_before','pass1_after','s_per_step'), 'leap':('pass1_before','pass1_after','s_per_step')}
cells = lambda name: json.loads((ROOT/f'nbs/studies/{name}.ipynb').read_text())['cells']
source = lambda c: ''.join(c['source'])
same = lambda rows: [{k:v for k,v in r.items() if not k.startswith('s_')} for r in rows]

@pytest.fixture(scope='module')
def nano():
    torch.set_num_threads(1)
    return pretrained('nano')

@pytest.fixture(scope='module')
def asked(tmp_path_factory):
    with Judge('host', 'right', Store(tmp_path_factory.mktemp('s')/'s.sqlite'), secret='studies') as j:
        seen = []
        def ask(pairs):
            vs = judge_all(j, pairs)
            seen.extend(vs)
            return vs
        yield ask,seen

@pytest.fixture(scope='module')
def few(): return drawn((201,), ('zoo_sigmoid','zoo_relu_col_max'), 'train')

@pytest.fixture(scope='module')
def taught(nano, few, tmp_path_factory):
    "SFT: nano reads a few more programs, in two goes"
    m,tok = copy.deepcopy(nano[0]),nano[1]
    data = examples(tok, [(l.prompt,l.program.text) for l in few], m.config)
    before,c,file = bound(m, data, 1),SFTConfig(4, batch=2, lr=2e-4, warmup=1, lo=.2, hi=1.),tmp_path_factory.mktemp('sft')/'sft.pt'
    n = [0]
    def log(row): n[0] = row['step']+1
    assert len(sft(m, data, c, file, log, lambda: n[0]>=2))==2
    rows = sft(copy.deepcopy(nano[0]), data, c, file) # Goes on from the file, whatever model it is given
    again = copy.deepcopy(nano[0])
    assert sft(again, data, c)==rows # As if it had not been stopped
    assert bound(again, data, 1)<.8*before
    return again,tok

def killed_after(ask, n):
    calls = []
    def judging(pairs):
        calls.append(1)
        if len(calls)>n: raise KeyboardInterrupt
        return ask(pairs)
    return judging

def test_sft_then_biphase_then_leap(taught, few, asked, tmp_path):
    "Each stage begins with the model of the one before; killed, it arrives where it would have; the ledger holds what the judge said"
    (model,tok),(ask,seen) = taught,asked
    start = {k:v.clone() for k,v in model.state_dict().items()}
    b = BiphaseConfig(1, 1, items=2, group=3, cores=1, beta=.02, lr=5e-5, steps_a_block=4, save_every=1)
    items = [Item(l.task, l.program, l.prompt, i/2) for i,l in enumerate(few)]
    with pytest.raises(KeyboardInterrupt): biphase(copy.deepcopy(model), tok, items, killed_after(ask, 2), Run(tmp_path/'b', b.to_dict()), b)
    assert [r['step'] for r in Run(tmp_path/'b').rows('metrics.jsonl')]==[0]
    m,seen[:] = copy.deepcopy(model),[]
    rows = biphase(m, tok, items, ask, Run(tmp_path/'b', b.to_dict()), b)
    whole = copy.deepcopy(model)
    assert same(biphase(whole, tok, items, ask, Run(tmp_path/'w', b.to_dict()), b))==same(rows)
    assert all(torch.equal(x, y) for x,y in zip(m.parameters(), whole.parameters()))
    ledger = Run(tmp_path/'w').rows('ledger.jsonl')
    assert [r['phase'] for r in ledger]==['infill']*6+['whole']*3+['infill']*3 # cores=1: one task of the second phase stays an infilling
    said = {v.program_id:v.status for v in seen}
    assert all(said[r['program']]==r['status'] and r['reward']==(r['status'] in ('ok','slow')) for r in ledger)
    for row in rows: assert row['reward']==pytest.approx(sum(r['reward'] for r in ledger if r['step']==row['step'])/6)
    moved = any(r['frac_groups_with_signal'] for r in rows)
    assert moved==any(not torch.equal(v, start[k]) for k,v in m.state_dict().items())

    l = LeapConfig(1, questions=2, group=3, turns=2, t_min=1, hole='core', lr=5e-5, beta=.02, steps_a_block=4, save_every=1)
    seen.clear()
    [row] = leap(m, tok, [Question(x.task, x.program, x.prompt) for x in few], ask, Run(tmp_path/'l', l.to_dict()), l)
    ledger = Run(tmp_path/'l').rows('ledger.jsonl')
    said = {v.program_id:v.status for v in seen}
    assert all(said[r['program']]==r['status'] for r in ledger)
    first = [r for r in ledger if r['turn']==1]
    failed = {(r['group'],r['sample']) for r in first if r['status'] not in ('ok','slow')}
    assert len(first)==6 and {(r['group'],r['sample']) for r in ledger if r['turn']==2}==failed and row['acc1']==pytest.approx(1-len(failed)/6)
    by_turn,groups = turns(ledger)
    assert sum(g['second turns'] for g in groups)==len(failed) and by_turn[-1]['passed by this turn']==sum(r['status'] in ('ok','slow') for r in ledger)

def test_pass1_is_what_the_rows_say(nano, asked, tmp_path):
    "nano fills in a held-out kernel greedily, and pass@1 is the share of tasks whose rows say ok"
    lessons = drawn((100,*HELD_OUT[0]), ('zoo_gelu',*HELD_OUT[1]), 'test')
    rows = tries(*nano, lessons, asked[0], Run(tmp_path/'t', {}), 2, core=True, d=Decoding(temperature=0.))
    by = [[r['status'] in ('ok','slow') for r in rows if r['task']==l.task.id] for l in lessons]
    assert right(rows).value==pytest.approx(sum(sum(x)/len(x) for x in by)/len(by)) and right(rows).groups==2
    assert any(map(any, by)) # It can do one of the two, or the model that comes along is broken
    for r,l in zip(rows, lessons*2):
        prefix,_,suffix = l.program.cut()
        assert r['text'].startswith(prefix) and r['text'].endswith(suffix)

def test_the_model_that_comes_along(nano):
    folder = ROOT/'data/nano'
    files = {f.name:f.stat().st_size for f in folder.iterdir()}
    assert {'model.safetensors','tokenizer.json','config.json','README.md'}<=set(files) and sum(files.values())<12e6
    assert n_params(nano[0])==5345280
    card,found = (folder/'README.md').read_text(),json.loads((ROOT/'data/studies/sft.json').read_text())
    assert found['answer'] in card and found['command'] in card and '## Limits' in card
    with pytest.raises(KernelRLError, match='holds no model; work in a clone'): pretrained(ROOT/'data/nowhere')

@pytest.mark.parametrize('name', STUDIES)
def test_a_study_says_what_its_file_says(name):
    "The first line is the answer of the JSON file, and the outputs are there; or it says that it has not run, and there is neither"
    first,file = source(cells(name)[0]),ROOT/f'data/studies/{name}.json'
    [line] = [l for l in first.splitlines() if l.startswith('> ')]
    shown = [c for c in cells(name) if c.get('outputs')]
    if not file.exists(): assert line.startswith('> Not run on a GPU yet') and not shown; return
    found = json.loads(file.read_text())
    assert line=='> '+found['answer'] and set(STUDIES[name])<=set(found) and len(shown)>=6
    assert 'H200' in found['device'] and found['command'].startswith('python3 benchmarks/train_h200.py') and (ROOT/'benchmarks/train_h200.py').exists()
    assert all(f'{100*found[k]:.1f} %' in line for k in STUDIES[name] if k.startswith('pass1'))
    assert any(found['answer'] in json.dumps(c['outputs'], ensure_ascii=False) for c in shown)

def test_what_a_study_was_given_is_shown_and_not_used_again():
    sys.path.insert(0, str(ROOT/'nbs'))
    from run_cuda import parameters
    tagged = next(source(c) for c in cells('biphase') if 'parameters' in c['metadata'].get('tags', []))
    cell = parameters({'parameters':['folder=/x','lr=3e-4','device=cuda']}, tagged)
    assert cell['metadata']['tags']==['injected-parameters'] and 'lr = float(0.0003)' in cell['source'] and 'folder' not in cell['source']
    settings,env = json.loads((ROOT/'data/studies/biphase.json').read_text())['settings'],{}
    for c in cells('biphase'):
        if {'parameters','injected-parameters'}&set(c['metadata'].get('tags', [])): exec(source(c), env)
    assert all(settings[k]==env[k] for k in ('lr','cores','beta','infill_steps','whole_steps','items','group','negative','temperature'))
    with pytest.raises(SystemExit, match='is no parameter of this study'): parameters({'parameters':['speed=1']}, tagged)

def test_stages_keep_time_place_and_command(tmp_path):
    s = Stages(tmp_path/'s.json', lambda: 'A', 'first')
    with pytest.raises(OutOfTime): s('x', lambda: [1], 2)
    s = Stages(tmp_path/'s.json', lambda: 'B', 'second')
    assert s('x', lambda: [1,2], 2)==[1,2]
    later = Stages(tmp_path/'s.json', lambda: 'C', 'third')
    later('x', lambda: [1,2], 2)
    assert (later.figures['device'],later.figures['command'])==('A and B','first; second')

def test_the_first_models_share_is_that_of_the_same_task_and_hole():
    ledger = [dict(step=0, task='a', phase=p, turn=1) for p in ('infill','whole')]+[dict(step=1, task='a', phase='whole', turn=t) for t in (1,2)]
    first = {'infill':[dict(name='a', status='ok')], 'whole':[dict(name='a', status=s) for s in ('ok','wrong','compile','infra','wrong')]}
    assert expected(ledger, first)==[pytest.approx((1+.25)/2), pytest.approx(.25)]
    assert expected(ledger, {'whole':first['whole']})==[None, pytest.approx(.25)]

def test_a_step_of_the_demo_that_cannot_be_done_says_so_and_the_next_goes_on(tmp_path, monkeypatch):
    import kernelrl.sft
    def gone(name='nano'): raise KernelRLError('data/nano: holds no model')
    monkeypatch.setattr(kernelrl.sft, 'pretrained', gone)
    said = []
    found = demo(tmp_path, ('lineage',), 'host', said.append)
    assert list(found)==['infill','leap','report'] and all(isinstance(x, KernelRLError) for x in found.values())
    assert sum(s.startswith('This step was left out: data/nano: holds no model') for s in said)==2
