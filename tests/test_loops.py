"The training loops, small: SFT, then bi-phase, then LEAP on the real judge; resume, exclusion of what the infrastructure failed"
import copy
import pytest
torch = pytest.importorskip('torch')
from kernelrl.biphase import BiphaseConfig, Item, biphase, roll_out, scheduled
from kernelrl.core import Run
from kernelrl.judge import Judge, judge_all
from kernelrl.leap import LeapConfig, Question, leap
from kernelrl.lm import new_model, sized
from kernelrl.program import Program
from kernelrl.sft import SFTConfig, examples, sft
from kernelrl.task import Task
from kernelrl.tokenizer import train_tokenizer
from kernelrl.verdict import Store, Verdict

def toy(name, torch_text, cuda_text):
    source = f'import torch, torch.nn as nn\nN = 65536\nclass Model(nn.Module):\n    def forward(self, x): return {torch_text}\ndef get_inputs(): return [torch.randn(N)]\ndef get_init_inputs(): return []\n'
    text = f"""import cupy as cp
k = cp.RawKernel(r'''extern "C" __global__ void f(const float* x, float* y, int n) {{ int i = blockIdx.x * 256 + threadIdx.x; if (i < n) y[i] = {cuda_text}; }}''', 'f')
def forward(x):
    y = cp.empty_like(x)
    k(((x.size + 255) // 256,), (256,), (x, y, x.size))
    return y
"""
    return Task(name, source, shapes=({},{'N':1001})), Program(text, name)

PAIRS = [toy('double','2 * x','2 * x[i]'), toy('relu','torch.relu(x)','fmaxf(x[i], 0)')]
TASK = {t.name:t for t,_ in PAIRS}

@pytest.fixture(scope='module')
def world(tmp_path_factory):
    "A tiny model that has seen the programs, and a judge"
    torch.set_num_threads(1)
    tok = train_tokenizer([p.text for _,p in PAIRS], 300)
    shape = sized('tiny', vocab_size=len(tok), max_context=640, max_middle=96)
    model = new_model(shape, 0)
    rows = sft(model, examples(tok, [(t.name,p.text) for t,p in PAIRS], shape), SFTConfig(steps=120, batch=4, warmup=10, lr=4e-3, lo=.3, hi=1.))
    assert rows[-1]['loss']<rows[0]['loss']/3
    with Judge('host', 'quick', Store(tmp_path_factory.mktemp('s')/'s.sqlite'), secret='loops') as j: yield model,tok,lambda pairs: judge_all(j, pairs)

STATUSES = set('ok slow wrong launch compile timeout forbidden suspect unsupported infra'.split())

def canned(status_of):
    "A judge that answers by rule: right programs pass the preflight, a kernel without a body does not"
    def judging(pairs):
        return [Verdict(t.name, p.name, 'wrong' if 'int n) {}' in p.text else 'ok' if p.text==dict((a.name,b.text) for a,b in PAIRS)[t.name] else status_of(i), 'time', task_id=t.id, program_id=p.id) for i,(t,p) in enumerate(pairs)]
    return judging

def test_biphase_with_the_real_judge(world, tmp_path):
    model,tok,ask = world
    c = BiphaseConfig(1, 1, items=2, group=3, save_every=1)
    run = Run(tmp_path/'r', c.to_dict())
    rows = biphase(copy.deepcopy(model), tok, [Item(t,p) for t,p in PAIRS], ask, run, c)
    ledger = run.rows('ledger.jsonl')
    assert [r['phase'] for r in rows]==['infill','whole'] and len(ledger)==12
    assert {r['status'] for r in ledger}<=STATUSES and all(r['s_judge']>0 for r in rows)
    for row in rows: # the reward of a step is the mean of what the judge's statuses earn
        mine = [r for r in ledger if r['step']==row['step']]
        assert row['reward']==pytest.approx(sum(r['reward'] for r in mine)/len(mine))
        assert all((r['reward']>=.5)==(r['status'] in ('ok','slow')) for r in mine)

def test_leap_with_the_real_judge(world, tmp_path):
    model,tok,ask = world
    c = LeapConfig(1, questions=2, group=3, turns=2, t_min=1, hole='core', save_every=1)
    run = Run(tmp_path/'r', c.to_dict())
    [row] = leap(copy.deepcopy(model), tok, [Question(t,p) for t,p in PAIRS], ask, run, c)
    ledger = run.rows('ledger.jsonl')
    first,second = ([r for r in ledger if r['turn']==t] for t in (1,2))
    failed = {(r['group'],r['sample']) for r in first if r['status'] not in ('ok','slow')}
    assert len(first)==6 and {r['status'] for r in ledger}<=STATUSES
    assert {(r['group'],r['sample']) for r in second}==failed # who failed tries once more, nobody else
    assert row['turns']==len(ledger) and row['acc1']==pytest.approx(1-len(failed)/6)

def test_infilling_never_touches_prefix_and_suffix(world):
    model,tok,_ = world
    items = [Item(t,p) for t,p in PAIRS]
    for step in range(3):
        for r in roll_out(model, tok, items, [0,1], BiphaseConfig(9, 0, items=2, group=24), step):
            prefix,_,suffix = items[r.item].program.cut()
            assert r.text.startswith(prefix) and r.text.endswith(suffix)

def test_nothing_is_learnt_from_what_the_infrastructure_failed(world, tmp_path):
    model,tok,_ = world
    for loop,c,items in ((biphase, BiphaseConfig(2, 0, items=2, group=3), [Item(t,p) for t,p in PAIRS]), (leap, LeapConfig(2, questions=2, group=3, turns=2, hole='core'), [Question(t,p) for t,p in PAIRS])):
        m = copy.deepcopy(model)
        before = {k:v.clone() for k,v in m.state_dict().items()}
        rows = loop(m, tok, items, lambda pairs: canned(lambda i: 'infra')(pairs) if len(pairs)==2 else [Verdict(t.name, p.name, 'infra', 'launch', t.id, p.id) for t,p in pairs], Run(tmp_path/loop.__name__, c.to_dict()), c)
        assert all(r['excluded']==6 for r in rows)
        assert all(torch.equal(v, before[k]) for k,v in m.state_dict().items())

def test_a_reward_moves_the_model_towards_it(world, tmp_path):
    "Rollouts that are rewarded become likelier: the sampler's own sum of log-probabilities of the first of each group"
    from kernelrl.lm import view_logps
    from kernelrl.objective import likelihood_views
    from kernelrl.sampler import batch_of
    model,tok,_ = world
    m,items = copy.deepcopy(model),[Item(t,p) for t,p in PAIRS]
    c = BiphaseConfig(1, 0, items=2, group=4, lr=1e-4)
    rollouts = roll_out(m, tok, items, scheduled(items, 0, 1, 2, c.seed), c, 0)
    good = [r.sample for r in rollouts[::4]]
    def likelihood():
        batch = batch_of(good)
        with torch.no_grad(): return float(view_logps(m, batch, likelihood_views('trace', good, batch)).sum())
    before = likelihood()
    wanted = {r.text for r in rollouts[::4]}
    biphase(m, tok, items, lambda pairs: canned(lambda i: 'x')(pairs) if len(pairs)==2 else [Verdict(t.name, '', 'ok' if p.text in wanted else 'wrong', 'time', t.id, p.id) for t,p in pairs], Run(tmp_path/'r', c.to_dict()), c)
    assert likelihood()>before

def test_leap_resumes_where_it_was_killed(world, tmp_path):
    model,tok,_ = world
    questions,c = [Question(t,p) for t,p in PAIRS],LeapConfig(3, questions=2, group=3, turns=2, hole='core', save_every=1)
    rule = canned(lambda i: ('wrong','ok','compile')[i%3])
    whole = leap(copy.deepcopy(model), tok, questions, rule, Run(tmp_path/'a', c.to_dict()), c)
    class Killed(Exception): pass
    calls = []
    def dies(pairs):
        calls.append(1)
        if len(calls)==5: raise Killed
        return rule(pairs)
    with pytest.raises(Killed): leap(copy.deepcopy(model), tok, questions, dies, Run(tmp_path/'b', c.to_dict()), c)
    again = leap(copy.deepcopy(model), tok, questions, rule, Run(tmp_path/'b', c.to_dict()), c)
    same = lambda rows: [{k:v for k,v in r.items() if not k.startswith('s_')} for r in rows]
    assert same(again)==same(whole)
    assert Run(tmp_path/'b').rows('ledger.jsonl') and {r['step'] for r in Run(tmp_path/'b').rows('ledger.jsonl')}=={0,1,2}
