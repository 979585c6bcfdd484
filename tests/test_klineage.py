"Backward walks, skills with their conditions, admission, proposers, and the optimiser: what gets in is right, what is recorded is true"
import json, threading
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import pytest
from kernelrl.conditions import BARE, Flip, Precondition, flip_table, flips, forced, labelled, moved, predicate, sight
from kernelrl.core import Finding, KernelRLError
from kernelrl.judge import Judge, judge_all
from kernelrl.klineage import faster, gain, lineage_figure, load_lineage, save_lineage, slower, walk_back
from kernelrl.rules import Candidate, Context, Proposer, Rules, Templates, apply_everywhere, audit, features, fresh, parses, written_with
from kernelrl.optimise import CHECK, Trail, confirmed, optimise, recheck, with_skills
from kernelrl.program import Program
from kernelrl.proposers import ChatPolicy, PolicyProposer, Replay, Several, chat_proposer, code_of
from kernelrl.skills import Effect, Skill, Skilled, Trip, admit, lift, load_skills, save_skills
from kernelrl.task import shipped_programs, shipped_tasks
from kernelrl.timing import Speedup
from kernelrl.verdict import Store, Verdict
from kernelrl.walk import TRANSFORMS
from kernelrl.writers import variants, write
from kernelrl.zoo import zoo_tasks

def shipped(task, name, **timed):
    [t] = shipped_tasks([task])
    return replace(t, shapes=(timed, *t.shapes[1:])),Program(dict(shipped_programs(task))[name], name)
RELU,NAIVE = shipped('relu_scale', 'naive', N=512)
FOUR = shipped('relu_scale', 'float4')[1]
EVEN = replace(shipped_tasks(['sum_last'])[0], shapes=({'N':256,'D':1024}, {'N':24,'D':256}))

@pytest.fixture(scope='module')
def judge(tmp_path_factory):
    with Judge('host', 'quick', Store(tmp_path_factory.mktemp('s')/'s.sqlite'), secret='test klineage') as j: yield j

@pytest.fixture(scope='module')
def right(judge):
    with Judge('host', 'right', judge.store, secret='test klineage') as j: yield lambda pairs: judge_all(j, pairs)

@pytest.fixture(scope='module')
def lineage(judge, tmp_path_factory): return walk_back(EVEN, BARE, judge, path=tmp_path_factory.mktemp('l')/'bare.jsonl')

def verdict(status='ok', ratio=1., width=1.01, source='measured'): return Verdict('t', 'p', status, 'time' if status in ('ok','slow') else 'correct', reason=None if status in ('ok','slow') else Finding(status, status), speedups=(Speedup(ratio, ratio/width, ratio*width, source=source),))
def canned(speed, status=lambda p: 'ok', asked=None, source='measured'):
    "A judge by rule"
    def judging(pairs):
        if asked is not None: asked.extend(pairs)
        return [replace(verdict(status(p), speed(p), source=source), task=t.name, task_id=t.id, program_id=p.id) for t,p in pairs]
    return judging

@dataclass
class Says:
    "A proposer that says what it was told to"
    texts:list
    move:str = 'restrict'
    name:str = 'says'
    def propose(self, context): return fresh([Candidate(Program(t), self.move, self.name) for t in self.texts], context)

# ---- the walk

def test_walk_takes_out_one_thing_at_a_time(lineage):
    assert lineage.end=='complete' and [s.move for s in lineage.steps]==['unroll','vector','vector_loop','shuffle','launch_bounds','restrict']
    for a,b,s in zip(lineage.programs, lineage.programs[1:], lineage.steps):
        assert (s.expert,s.simple)==(a,b) and s.reversible and s.gain.source=='estimated' and not slower(s.gain)
        assert s.move in features(EVEN, a)-features(EVEN, b) and not audit(features(EVEN, a), features(EVEN, b), s.move)
    assert all(v.ok for v in lineage.verdicts) and features(EVEN, lineage.programs[-1])==frozenset()
    assert {c.name for s in lineage.steps if s.move=='vector' for c in s.conditions}=={'aligned(row[4*j], 16)'}

def test_lineage_on_disk(lineage, tmp_path):
    assert load_lineage(save_lineage(tmp_path/'l.jsonl', lineage))==lineage
    kinds = [json.loads(l)['kind'] for l in (tmp_path/'l.jsonl').read_text().splitlines()]
    assert kinds==['start']+['step']*len(lineage.steps)+['end']
    (tmp_path/'x.jsonl').write_text('{"kind":"other"}\n')
    with pytest.raises(KernelRLError, match='holds no lineage'): load_lineage(tmp_path/'x.jsonl')
    fig = lineage_figure(lineage)
    assert list(fig.data[0].y)==[v.speedup.ratio for v in reversed(lineage.verdicts)] and fig.layout.xaxis.ticktext[1:]==tuple(s.move for s in reversed(lineage.steps))
    assert 'aligned(row[4*j], 16)' in lineage._repr_markdown_()

def test_walk_resumes_where_it_was_killed(tmp_path):
    path,ask = tmp_path/'w.jsonl',canned(lambda p: 1+len(p.text)/1e5)
    whole = walk_back(EVEN, BARE, ask, path=tmp_path/'whole.jsonl')
    left = [5]
    def dying(pairs):
        left[0] -= 1
        if left[0]<0: raise KeyboardInterrupt
        return ask(pairs)
    with pytest.raises(KeyboardInterrupt): walk_back(EVEN, BARE, dying, path=path)
    part = load_lineage(path)
    assert part.end=='' and 0<len(part.steps)<len(whole.steps) and part.steps==whole.steps[:len(part.steps)]
    asked = []
    again = walk_back(EVEN, BARE, canned(lambda p: 1+len(p.text)/1e5, asked=asked), path=path)
    assert (again.steps,again.end)==(whole.steps,whole.end) and not {p.id for _,p in asked}&{p.id for p in part.programs}
    with pytest.raises(KernelRLError, match='another program'): walk_back(RELU, FOUR, ask, path=path)

def test_walk_ends():
    assert walk_back(EVEN, BARE, canned(lambda p: 1.), max_steps=2).end=='step_limit'
    l = walk_back(EVEN, BARE, canned(lambda p: 1., lambda p: 'ok' if p.text==BARE.text else 'wrong'))
    assert (l.end,l.steps,len(l.rejected))==('rejection_limit',(),4) and {r.why.split(':')[0] for r in l.rejected if r.verdicts}=={'wrong'}
    with pytest.raises(KernelRLError, match='cannot begin'): walk_back(EVEN, BARE, canned(lambda p: 1., lambda p: 'wrong'))
    with pytest.raises(KernelRLError, match='broke down'): walk_back(EVEN, BARE, canned(lambda p: 1., lambda p: 'ok' if p.text==BARE.text else 'infra'))

def test_a_simplification_that_is_faster_is_none():
    l = walk_back(EVEN, BARE, canned(lambda p: 1. if p.text==BARE.text else 2.))
    assert not l.steps and any(r.verdicts for r in l.rejected) and all('faster' in r.why for r in l.rejected if r.verdicts)

def test_liars_stay_out(judge):
    bad = [NAIVE.text.replace('if (i < n)', 'if (i <= n)'), NAIVE.text.replace('i < n', 'i < n && i'), FOUR.text, 'no program']
    l = walk_back(RELU, NAIVE, judge, Says(bad), max_rejections=9)
    assert not l.steps and len(l.rejected)==4 and l.end=='complete'
    assert [r.why.split(':')[0] for r in l.rejected]==['wrong','wrong','vector came in','does not parse'] or 'came in' in l.rejected[2].why

def test_gain_adds_up_both_intervals():
    g = gain(verdict(ratio=2., width=1.1), verdict(ratio=3., width=1.2))
    import math
    assert g.ratio==pytest.approx(1.5) and math.log(g.hi/g.ratio)==pytest.approx(math.hypot(math.log(1.1), math.log(1.2))) and g.lo*g.hi==pytest.approx(g.ratio**2)
    assert faster(g) and not faster(gain(verdict(width=1.2), verdict(ratio=1.1, width=1.2))) and faster(gain(verdict(ratio=2.), verdict(ratio=3.))) and slower(gain(verdict(ratio=3.), verdict(ratio=2.)))
    assert faster(gain(verdict(width=3., source='estimated'), verdict(ratio=1.1, width=3., source='estimated'))) # By the ratio, and it says so
    assert gain(verdict(source='estimated'), verdict()).source=='estimated' and gain(verdict(), replace(verdict(), speedups=())) is None

# ---- rules and templates

def test_rules_apply_everywhere_and_alone():
    t,p = shipped('layer_norm', 'expert')
    c = Context(t, p, 'simplify', n=64)
    text,used = apply_everywhere(TRANSFORMS['unroll','simplify'], c)
    assert len(used)==5 and '#pragma unroll' not in text
    cs = Rules().propose(c)
    assert len({x.program.id for x in cs})==len(cs) and sum(x.move=='unroll' for x in cs)==6 and all(parses(x.program.text) for x in cs)
    assert {x.program.id for x in Rules().propose(replace(c, seen=frozenset({cs[0].program.id})))}=={x.program.id for x in cs[1:]}
    assert isinstance(Rules(), Proposer) and isinstance(Templates(), Proposer)

def test_templates_know_only_their_own():
    t = next(t for t in zoo_tasks(0, 8) if len(variants(t))>6)
    flags = max(variants(t), key=len)
    assert written_with(t, write(t, flags, 1))==(flags,1) and written_with(t, Program(write(t, flags).text+'#')) is None and written_with(RELU, NAIVE) is None
    down = Templates().propose(Context(t, write(t, flags), 'simplify'))
    assert down and all(len(written_with(t, c.program)[0])==len(flags)-1 for c in down)
    up = Templates().propose(Context(t, down[0].program, 'optimise'))
    assert write(t, flags).text in [c.program.text for c in up]

# ---- conditions

def test_predicates_forget_what_is_one_kernels_own():
    assert [predicate(n) for n in ('aligned(x[(a,b)+1], 16)','trip_const(k)','dtype_in(outputs, 16 bits)','blockdim_le(64)','covers(grid, n)')]==['aligned(_, 16)','trip_const(_)','dtype_in(outputs, 16 bits)','blockdim_le(_)','covers(grid, _)']

def test_flip_table_attributes_conditions(lineage, right):
    trials,said = flips(lineage, right)
    by = {(f.move,f.setting):f for f in trials}
    for move,setting,pred in (('vector','odd','aligned(_, 16)'),('vector','address','aligned(_, 16)'),('shuffle','48 threads','blockdim_mod(32)')):
        f = by[move,setting]
        assert f.rejected and f.broken==(pred,), f
        assert labelled(pred, 'correct', [x for x in trials if x.move==move], {}).label=='necessary'
    assert not any(f.rejected for f in trials if f.move in ('restrict','launch_bounds','unroll','vector_loop'))
    assert not any(f.rejected for f in trials if f.setting=='even') and not by['unroll','odd'].fair # Wrong before and after: no trial
    assert len(said)==len(lineage.programs) and '**ok**' in flip_table(lineage, said)

def test_moved_inputs_keep_a_right_program_right(right):
    for later,place in ((1,False),(0,False),(0,True)):
        p = moved(RELU, NAIVE, later, place)
        assert right([(replace(RELU, shapes=RELU.shapes[1:]), p)])[0].ok, p.text
    assert moved(EVEN, BARE, 0, True) is None

def test_labels():
    f = Flip('m', 't', 's', ('p(_)',), 'ok', 'wrong', 'race')
    seen = {'address':True}
    say = lambda *fs, name='aligned(_, 16)', kind='correct', seen=seen: labelled(name, kind, [replace(x, broken=(name,) if x.broken==('p(_)',) else x.broken) for x in fs], seen).label
    assert say(f)=='necessary' and say(*[replace(f, status='ok')]*3)=='vacuous' and say(*[replace(f, status='ok')]*2)=='untested' and say(*[replace(f, status='ok')]*3, seen={'address':False})=='untested'
    assert say(*[replace(f, status='ok')]*3, name='no_alias(_)')=='untested' # No mutant of that class: a gate may be blind to it
    assert say(replace(f, control='wrong'))=='untested' and say(replace(f, status='infra'))=='untested' and say(replace(f, broken=('a','b')))=='untested' and say()=='untested'
    assert say(replace(f, reason='mismatch'), kind='numeric')=='numeric' and say(replace(f, reason='oob'), kind='numeric')=='necessary'
    good = replace(f, status='ok')
    assert say(replace(good, gain=Speedup(1., .99, 1.01)), kind='performance')=='performance' and say(replace(good, gain=Speedup(1.3, 1.2, 1.4)), kind='performance')=='vacuous'
    assert say(replace(good, gain=Speedup(1.3, .4, 4., source='estimated')), kind='performance')=='untested'

def test_sight_finds_blind_gates(right):
    assert sight(right)=={'bounds':True, 'barrier':True, 'address':True, 'digits':True}
    assert not any(sight(canned(lambda p: 1.)).values()) # Accepts all
    assert not any(sight(canned(lambda p: 1., lambda p: 'wrong')).values()) # Accepts nothing
    assert not any(sight(canned(lambda p: 1., lambda p: 'infra')).values())

def test_forced_trials_find_a_needed_condition(right):
    pool = [(replace(t, shapes=t.shapes[1:]),Program(x)) for t in shipped_tasks(['sum_last']) for _,x in shipped_programs(t.name)]
    found = forced('vector_loop', pool, right)
    assert any(f.broken==('divisible(_, 4)',) and f.rejected for f in found) and all(len(f.broken)==1 and f.setting=='forced' for f in found)

# ---- skills

def told(move='vector', ratio=1.5, ok=True, **k): return Skill(move, move, 'a', 'b', effects=(Effect('sum_last', '', (), Speedup(ratio, ratio, ratio)),), trips=(Trip('x', 'p', True),) if ok else (), **k)

def test_lift_and_admit(lineage, judge, tmp_path):
    skills = lift([lineage, lineage])
    assert {s.move for s in skills}=={s.move for s in lineage.steps} and all(len(s.effects)==2 and not s.admitted for s in skills) # One card for one idea
    vector = next(s for s in skills if s.move=='vector')
    ask = lambda pairs: judge_all(judge, pairs)
    assert not admit(vector, [(EVEN,BARE)], ask).trips # Its own task does not count
    held = admit(vector, [(RELU,NAIVE),(RELU,FOUR)], ask)
    assert held.admitted and [t.task for t in held.trips]==['relu_scale'] and held.trips[0].gain is not None
    refused = admit(vector, [(RELU,FOUR)], canned(lambda p: 2. if p.text!=FOUR.text and 'float4 v' not in p.text else 1.))
    assert refused.admitted or 'slower' in refused.trips[0].why or 'finds no place' in refused.trips[0].why
    wrong = admit(vector, [(RELU,FOUR)], canned(lambda p: 1., lambda p: 'wrong'))
    assert not wrong.admitted and wrong.trips and wrong.trips[0].why
    assert load_skills(save_skills(tmp_path/'b.jsonl', [held, *skills]))==[held, *skills]
    assert 'aligned' in held._repr_markdown_() and '```diff' in held._repr_markdown_() and 'Not admitted' in vector._repr_markdown_()
    with pytest.raises(KernelRLError, match='no such file'): load_skills(tmp_path/'none.jsonl')

def test_skills_keep_off_where_their_conditions_fail():
    plain = lambda: Context(replace(EVEN, shapes=({'N':24,'D':255},)), Program(TRANSFORMS['vector','simplify'].apply(BARE.text, TRANSFORMS['vector','simplify'].find(BARE.text)[0])))
    assert Skilled((told(),)).propose(replace(plain(), task=EVEN))
    assert Skilled((told(),)).propose(plain())==[]
    assert Skilled((told(pre=(Precondition('aligned(_, 16)', label='vacuous'),)),)).propose(plain()) # It was found not to matter (falsely): the judge has to say no
    assert Skilled((told(ok=False),)).propose(replace(plain(), task=EVEN))==[] and Skilled((told(ok=False),), True).propose(replace(plain(), task=EVEN))
    both = Skilled((told('restrict', 1.1),told('launch_bounds', 2.))).propose(Context(RELU, NAIVE))
    assert [c.move for c in both]==['launch_bounds','restrict'] and both[0].expected==pytest.approx(2.)

# ---- the optimiser

def test_optimise_keeps_its_budget_and_its_word():
    asked:list = []
    t = optimise(RELU, NAIVE, 5, canned(lambda p: len(p.text)/1000, asked=asked), Rules())
    assert len(asked)==5==t.calls and t.improved and t.best.id in {a.program.id for a in t.attempts} and t.path[-1].program.id==t.best.id and t.path[0].parent==NAIVE.id
    assert t.ratio==max(a.gain.ratio for a in t.attempts)
    same = optimise(RELU, NAIVE, 6, canned(lambda p: 1.), Rules())
    assert (same.best,same.improved,same.ratio)==(NAIVE,False,1.)
    assert optimise(RELU, NAIVE, 1, canned(lambda p: 1.), Rules()).attempts==() and Trail.from_json(t.to_json())==t
    with pytest.raises(KernelRLError, match='at least 1'): optimise(RELU, NAIVE, 0, canned(lambda p: 1.))
    with pytest.raises(KernelRLError, match='only a right program'): optimise(RELU, NAIVE, 3, canned(lambda p: 1., lambda p: 'wrong'))

@pytest.mark.parametrize('status', ['wrong','compile','launch','timeout','forbidden','suspect','unsupported','infra'])
def test_optimise_never_returns_what_was_not_judged_right(status):
    t = optimise(RELU, NAIVE, 8, canned(lambda p: 9., lambda p: 'ok' if p.text==NAIVE.text else status), Rules())
    assert t.best==NAIVE and not t.improved and t.outcomes=={status:len(t.attempts)} and t.attempts

def test_optimise_needs_to_be_sure():
    wide = lambda pairs: [verdict(ratio=1. if p.text==NAIVE.text else 1.2, width=1.3) for _,p in pairs]
    assert not optimise(RELU, NAIVE, 4, wide, Rules()).improved

def test_optimise_goes_through_a_small_loss():
    "A step that costs a little is passed when something good is known to wait behind it; a template's prerequisites come along"
    t = next(t for t in zoo_tasks(0, 24) if 'softmax' in t.name)
    speed = {():1., ('fuse',):.9, ('fuse','block'):.8, ('fuse','block','shuffle'):5.}
    ask = canned(lambda p: speed.get(written_with(t, p)[0], .1))
    r = optimise(t, write(t), 4, ask, Skilled((told('flag:fuse', 1.),told('flag:shuffle', 4.))))
    assert [a.move for a in r.path]==['flag:shuffle'] and r.ratio==pytest.approx(5.) and written_with(t, r.best)[0]==('fuse','block','shuffle')
    r = optimise(t, write(t), 5, ask, Templates())
    assert {a.move for a in r.attempts}>={'flag:fuse','flag:block','flag:shuffle'} and r.ratio==pytest.approx(5.)

def test_cheats_are_judged(judge):
    library = 'import cupy as cp\ndef forward(x, scale, bias): return cp.maximum(x * scale + bias, 0)\n'
    texts = [library, NAIVE.text.replace('if (i < n)', 'if (i < 0)'), NAIVE.text.replace('* scale', '* scale * 1.001f'), 'words', FOUR.text]
    t = optimise(RELU, NAIVE, 9, judge, Says(texts))
    assert (t.best.text,t.outcomes)==(FOUR.text,{'forbidden':1, 'wrong':2, 'compile':1, 'ok':1}) and t.improved
    with Judge('host', 'standard', judge.store, secret='test another') as second:
        again = recheck([(RELU,NAIVE),(RELU,FOUR),(RELU,Program(texts[1]))], second, CHECK)
    assert [bool(r.wrong) for r in again.values()]==[False,False,True] and confirmed(t, again).ratio>1.02
    again[RELU.id,t.best.id] = replace(again[RELU.id,t.best.id], wrong='found out')
    assert confirmed(t, again) is None

# ---- proposers

def test_replay_goes_both_ways(lineage, tmp_path):
    r = Replay(save_lineage(tmp_path/'a.jsonl', lineage))
    for s in lineage.steps:
        assert [c.program.text for c in r.propose(Context(EVEN, s.expert, 'simplify'))]==[s.simple.text] and [c.program.text for c in r.propose(Context(EVEN, s.simple))]==[s.expert.text]
    assert r.propose(Context(RELU, lineage.expert, 'simplify'))==[] and len(Replay(tmp_path).steps)==len(r.steps)
    assert walk_back(EVEN, BARE, canned(lambda p: 1.), r).programs==lineage.programs
    assert [c.by for c in Several((Rules(),r)).propose(Context(EVEN, lineage.programs[-1]))][:2]==['rules','replay'] or len(r.steps)

class Server:
    "A real server on this machine, with answers as told: (status, body, seconds to wait)"
    def __init__(self, *answers):
        self.answers,self.asked = list(answers),[]
        me = self
        class H(BaseHTTPRequestHandler):
            def log_message(self, *a): pass
            def do_POST(self):
                me.asked.append((self.path, dict(self.headers), json.loads(self.rfile.read(int(self.headers['Content-Length'])))))
                status,body,wait = (me.answers.pop(0) if len(me.answers)>1 else me.answers[0])
                me.gate.wait(wait)
                try:
                    self.send_response(status); self.end_headers(); self.wfile.write(body.encode())
                except OSError: pass # The client has gone
        self.gate,self.http = threading.Event(),ThreadingHTTPServer(('127.0.0.1',0), H)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
    def __enter__(self): return self
    def __exit__(self, *a): self.gate.set(); self.http.shutdown(); self.http.server_close()
    @property
    def url(self): return f'http://127.0.0.1:{self.http.server_port}/v1'

def says(*texts): return json.dumps({'choices':[{'message':{'role':'assistant','content':t}} for t in texts]})

def test_endpoint(judge, monkeypatch):
    monkeypatch.setenv('TEST_KEY', 'sesame')
    with Server((503,'',0),(429,'',0),(200,says(f'Sure.\n```python\n{FOUR.text}```'),0)) as s:
        p = chat_proposer(s.url, 'tiny', n=2, key_env='TEST_KEY', pause=.01)
        got = p.propose(Context(RELU, NAIVE, feedback='<err> status=wrong'))
        assert [c.program.text for c in got]==[FOUR.text] and 'sesame' not in repr(p)
        path,head,body = s.asked[-1]
        assert path=='/v1/chat/completions' and head['Authorization']=='Bearer sesame' and body['model']=='tiny' and 'status=wrong' in body['messages'][1]['content'] and NAIVE.text.strip() in body['messages'][1]['content']
        assert [b['n'] for _,_,b in s.asked]==[2,2,2,1] # This one gives a single answer at a time; it is asked again
        assert optimise(RELU, NAIVE, 3, judge, p).best.text==FOUR.text

@pytest.mark.parametrize('answer,tries,message', [((401,'',0),1,'status 401'), ((500,'',0),2,'status 500 .*2 times'), ((200,'<html>',0),1,'not JSON'), ((200,'{}',0),1,r'no choices\[\]'), ((200,'{"choices":[]}',0),1,'no choices'), ((200,says('x'),20),2,'no answer within 0.3 s')])
def test_endpoint_failures_are_one_sentence(answer, tries, message):
    with Server(answer) as s:
        with pytest.raises(KernelRLError, match=message) as e: ChatPolicy(s.url, 'tiny', tries=2, pause=.01, timeout=.3).complete(['?'])
        assert len(s.asked)==tries and '\n' not in str(e.value) and s.url in str(e.value)

def test_endpoint_that_is_not_there():
    with pytest.raises(KernelRLError, match='no connection'): ChatPolicy('http://127.0.0.1:9/v1', 'tiny', tries=2, pause=.01).complete(['?'])
    with pytest.raises(KernelRLError): ChatPolicy('nonsense', 'tiny', tries=1).complete(['?'])

def test_code_of():
    assert code_of('a\n```\nx\n```\n```python\ndef forward(): pass\n```')=='def forward(): pass\n' and code_of('```cuda\nk\n```')=='k\n' and code_of('plain')=='plain'

def test_policy_fills_in_and_cannot_touch_the_rest():
    torch = pytest.importorskip('torch')
    from kernelrl.lm import new_model, sized
    from kernelrl.sampler import LMPolicy
    from kernelrl.tokenizer import train_tokenizer
    torch.set_num_threads(1)
    tok = train_tokenizer([NAIVE.text], 300)
    lm = PolicyProposer(LMPolicy(new_model(sized('tiny', vocab_size=len(tok), max_context=768, max_middle=32), 0), tok, seed=3, name='tiny'), n=3)
    got = lm.propose(Context(RELU, NAIVE))
    prefix,_,suffix = NAIVE.cut()
    assert got and all(c.program.text.startswith(prefix) and c.program.text.endswith(suffix) and c.by=='tiny' for c in got)
    assert [c.program.text for c in got]==[c.program.text for c in lm.propose(Context(RELU, NAIVE))] # The same seed, the same programs
    assert lm.propose(Context(RELU, Program('no kernel here')))==[]

def test_the_book_that_ships():
    "The stored study: what it says is what its files say"
    from pathlib import Path
    path = Path(__file__).parent.parent/'data/studies/klineage.json'
    if not path.exists(): pytest.skip('not measured yet')
    d = json.loads(path.read_text())
    f = d['figures']
    assert f['wrong_accepted']==0 and f['targets']>=8 and 0<=f['improved']<=f['targets'] and f['geomean']>=1
    assert d['source'] in ('measured','estimated') and d['device'] and d['protocol'] and d['seeds'] and d['commit']
    mine = [r for r in d['rows'] if r.get('arm')=='skills']
    assert len(mine)==f['targets']
    import math
    assert f['geomean']==pytest.approx(math.exp(sum(math.log(r['confirmed']) for r in mine)/len(mine)))
    skills = load_skills(path.parent/'klineage'/'skills.jsonl')
    assert sum(s.admitted for s in skills)==f['admitted'] and len(with_skills(path.parent/'klineage'/'skills.jsonl').skills)==f['admitted']
    lines = [load_lineage(p) for p in sorted((path.parent/'klineage').glob('*.jsonl')) if p.stem!='skills']
    assert len(lines)==f['lineages']>=4 and sum(len(l.steps) for l in lines)==f['steps']
