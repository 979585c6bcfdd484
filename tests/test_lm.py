"The attention rule, the exact cache, the trace, the hole whose surroundings cannot change, learning that can be killed"
import itertools, math, os, random, subprocess, sys
from dataclasses import replace
import pytest

torch = pytest.importorskip('torch')
pytest.importorskip('transformers')
import kernelrl.lm as lm
from kernelrl.core import KernelRLError, Policy
from kernelrl.lm import Batch, Cache, Canvas, KernelLM, PAD, SPECIALS, Views, collate, finish, n_params, new_model, plain_logp, roughen, rule, sized, view_logps
from kernelrl.program import Program
from kernelrl.sampler import Decoding, LMPolicy, Sample, batch_of, commit, draw, generator, sample, sampled_logps, trace_views
from kernelrl.sft import LORA_TARGETS, SFTConfig, add_lora, bound, chosen, complementary, examples, sft
from kernelrl.task import shipped_programs, shipped_tasks
from kernelrl.tokenizer import canvas, decode, encode, splice, train_tokenizer, written

torch.set_num_threads(1)
TEXTS = [text for t in shipped_tasks() for _,text in shipped_programs(t.name)]
EOS = SPECIALS.index('<eos>')

@pytest.fixture(scope='module')
def model(): return roughen(new_model(sized('tiny', vocab_size=90))).eval()

@pytest.fixture(scope='module')
def tok(): return train_tokenizer(TEXTS, 1024)

def ragged(n, seed=0, suffix=True):
    r = random.Random(seed)
    some = lambda k: tuple(r.randrange(len(SPECIALS), 90) for _ in range(k))
    return [Canvas(some(r.randrange(1,14)), some(r.randrange(0,9)) if suffix else (), 8*r.randrange(1,6)) for _ in range(n)]

def luck(n, tag=''): return [generator('test',tag,i) for i in range(n)]

def gaps(model, samples, views=None, batch=None, temperature=1.):
    with torch.no_grad(): return (view_logps(model, batch or batch_of(samples), views or trace_views(samples), temperature)-sampled_logps(samples)).abs()

# --- the trainer's numbers are the sampler's

WAYS = {'generation': (False, Decoding(steps=4, threshold=None)), 'dynamic': (False, Decoding(steps=8, threshold=.2)), 'infilling': (True, Decoding(steps=4, threshold=None)),
    'infilling, dynamic': (True, Decoding(steps=8, threshold=.2)), 'one token a pass': (True, Decoding(steps=8, threshold=None)), 'one pass a block': (True, Decoding(steps=1)),
    'drawn confidence': (True, Decoding(steps=8, threshold=.1, confidence='drawn')), 'cold': (True, Decoding(steps=4, threshold=.4, temperature=.6))}

@pytest.mark.parametrize('way', WAYS)
def test_trainer_equals_sampler(model, way):
    suffix,d = WAYS[way]
    s = sample(model, ragged(12, suffix=suffix), luck(12, way), d)
    assert len({len(x.middle) for x in s})>1 and len({len(x.canvas.before) for x in s})>1     # a ragged batch it is
    if d.threshold and d.steps==8: assert any(max(x.step[k:k+8])<7 for x in s for k in range(0, len(x.middle), 8))   # some block took fewer passes
    g = gaps(model, s, temperature=d.temperature)
    assert g.max()<=1e-4
    assert sampled_logps(s).abs().max()>1

def test_negative_controls(model, monkeypatch):
    s = sample(model, ragged(12), luck(12), Decoding(steps=4, threshold=.4))
    b = batch_of(s)
    shifted = Batch(b.ids, torch.cat([b.pos[:,:b.width], b.pos[:,b.width:]+1], 1), b.kind, b.width)
    assert gaps(model, s, batch=shifted).max()>1
    assert gaps(model, s, batch=Batch(b.ids, torch.arange(b.ids.shape[1]).expand_as(b.ids), b.kind, b.width)).max()>1   # suffix not at its place
    right = lm.rule
    monkeypatch.setattr(lm, 'rule', lambda kind, blk: right(kind, blk)|((kind[:,None]==1)&(kind[:,:,None]>=2)&(blk[:,None]==blk[:,:,None])))
    assert gaps(model, s).max()>1                                                              # a view that sees its own clean block

def test_shrinking_the_trace_is_not_exact_and_says_what_it_hides(model):
    s = sample(model, ragged(8), luck(8), Decoding(steps=8, threshold=None))
    assert trace_views(s).hidden.shape[0]==8 and trace_views(s, 2).hidden.shape[0]==4
    assert gaps(model, s).max()<1e-4<gaps(model, s, trace_views(s, 2)).max()

def test_packed_views_equal_plain_rows(model):
    r = random.Random(1)
    items = [(c, finish([r.randrange(10,90) for _ in range(r.randrange(1,20))], 8, EOS)) for c in ragged(4)]
    b = collate(items)
    g = generator('views')
    hidden = torch.rand(3, *b.middle.shape, generator=g)<.6
    where = torch.randint(0, 3, (*b.middle.shape,2), generator=g)
    weight = torch.rand(where.shape, generator=g)
    with torch.no_grad(): packed = view_logps(model, b, Views(hidden, where, weight), block=8)
    with torch.no_grad():
        for n,(c,m) in enumerate(items):
            for j in range(0, len(m), 3):
                slow = sum(weight[n,j,k]*plain_logp(model, c, m, set(hidden[where[n,j,k],n].nonzero().flatten().tolist()), j, 8) for k in range(2))
                assert abs(packed[n,j]-slow)<1e-4

def test_collate_multiple_changes_nothing(model):
    s = sample(model, ragged(5), luck(5), Decoding(steps=2))
    items = [(x.canvas, x.middle) for x in s]
    a,b = collate(items),collate(items, multiple=32)
    assert b.width%32==0 and b.middle.shape[1]%32==0
    va,vb = trace_views(s),None
    L = b.middle.shape[1]-a.middle.shape[1]
    pad = torch.nn.functional.pad
    vb = Views(pad(va.hidden, (0,L), value=True), pad(va.where, (0,0,0,L)), pad(va.weight, (0,0,0,L)))
    with torch.no_grad(): assert (view_logps(model, a, va)-view_logps(model, b, vb)[:,:a.middle.shape[1]]).abs().max()<1e-5

# --- rows do not see one another

def test_batch_invariance_of_log_probabilities(model):
    s = sample(model, ragged(6), luck(6), Decoding(steps=4))
    with torch.no_grad():
        together = view_logps(model, batch_of(s), trace_views(s))
        for i,x in enumerate(s): assert (view_logps(model, batch_of([x]), trace_views([x]))[0]-together[i,:len(x.middle)]).abs().max()<1e-4

def test_batch_invariance_of_samples(model):
    holes = ragged(10)
    for d in (Decoding(steps=4, threshold=.4), Decoding(temperature=0.)):
        s = sample(model, holes, luck(10), d)
        assert [sample(model, [h], [generator('test','',i)], d)[0].middle for i,h in enumerate(holes)]==[x.middle for x in s]
        order = [3,1,4,0,2]
        assert [x.middle for x in sample(model, [holes[i] for i in order], [generator('test','',i) for i in order], d)]==[s[i].middle for i in order]

def test_padding_does_not_matter(model):
    s = sample(model, ragged(6), luck(6), Decoding(steps=4))
    b = batch_of(s)
    assert (b.kind==PAD).any()
    other = Batch(torch.where(b.kind==PAD, 55, b.ids), torch.where(b.kind==PAD, 7, b.pos), b.kind, b.width)
    with torch.no_grad(): a,c = (view_logps(model, x, trace_views(s)) for x in (b,other))
    assert torch.equal(a, c) and torch.isfinite(a).all()

def test_padding_gets_no_gradient(model):
    s = sample(model, ragged(6), luck(6), Decoding(steps=4))
    b = batch_of(s)
    marked = Batch(torch.where(b.kind==PAD, 89, b.ids), b.pos, b.kind, b.width)
    only_pad = not any(89 in (*x.canvas.before, *x.canvas.after, *x.middle) for x in s)
    loss = model.hidden(*lm.pack(marked, trace_views(s).hidden, 8, 1))[:,:b.width][b.kind[:,:b.width]==0].sum()
    g, = torch.autograd.grad(loss, model.embed.weight)
    assert torch.isfinite(g).all() and (not only_pad or (g[89]==0).all())

# --- the cache

def test_cache_is_exact(model):
    "Block after block through the cache equals everything at once"
    c = Canvas(tuple(range(20,29)), (30,31), 24)
    m = tuple(range(40,64))
    b = collate([(c,m)])
    P,L = b.width,24
    mask = rule(b.kind, torch.cat([torch.zeros(P), torch.arange(L)//8]).long()[None])
    with torch.no_grad():
        whole = model.hidden(b.ids, b.pos, mask)
        cache = Cache(model.config, 1, P+L)
        parts = [model.hidden(b.ids[:,:P], b.pos[:,:P], torch.ones(1,P,P,dtype=bool), cache)]
        cache.filled = P
        for k in range(P, P+L, 8):
            noise = torch.randint(10, 90, (1,8))
            model.hidden(noise, b.pos[:,k:k+8], torch.ones(1,8,k+8,dtype=bool), cache)      # noisy passes leave no trace
            parts.append(model.hidden(b.ids[:,k:k+8], b.pos[:,k:k+8], torch.ones(1,8,k+8,dtype=bool), cache))
            cache.filled += 8
    assert (torch.cat(parts, 1)-whole).abs().max()<1e-4

def test_context_never_sees_the_middle(model):
    c = Canvas(tuple(range(20,29)), (30,31), 16)
    b,d = collate([(c,tuple(range(40,56)))]),collate([(c,tuple(range(60,76)))])
    blk = torch.cat([torch.zeros(11), torch.arange(16)//8]).long()[None]
    with torch.no_grad(): x,y = (model.hidden(z.ids, z.pos, rule(z.kind, blk)) for z in (b,d))
    assert (x[:,:11]-y[:,:11]).abs().max()<1e-5<(x[:,11:]-y[:,11:]).abs().max()

# --- drawing and committing

def test_specials_are_never_written(model):
    s = sample(model, ragged(40), luck(40), Decoding(steps=2, temperature=3.))
    assert min(min(x.middle) for x in s)>=EOS

def test_every_place_is_committed_once_and_at_least_one_a_pass(model):
    for d in (Decoding(steps=3, threshold=None), Decoding(steps=8, threshold=.3), Decoding(steps=20)):
        for x in sample(model, ragged(10), luck(10), d):
            passes = 1
            for k in range(0, len(x.middle), 8):
                steps = sorted(set(x.step[k:k+8]))
                assert steps==list(range(len(steps))) and len(steps)<=min(d.steps,8)
                passes += len(steps)
            assert x.forwards==passes

def test_static_schedule():
    d,h,sizes = Decoding(steps=3, threshold=None),torch.ones(1,8,dtype=bool),[]
    for s in range(3):
        now = commit(torch.rand(1,8), h, s, d)
        sizes.append(int(now.sum())); h = h&~now
    assert sizes==[3,3,2] and not h.any()

def test_ends(model):
    for x in sample(model, ragged(60), luck(60), Decoding(steps=2, temperature=2.)):
        blocks = [x.middle[k:k+8] for k in range(0, len(x.middle), 8)]
        assert all(EOS not in b for b in blocks[:-1]) and x.ended==(EOS in blocks[-1]) and (x.ended or len(x.middle)==x.canvas.room)

def test_confidence_is_not_truncated():
    logits = torch.randn(50, 30, generator=generator('c'))
    u = torch.rand(50, generator=generator('u'))
    full = draw(logits, u, Decoding())[2]
    for d in (Decoding(top_k=1), Decoding(top_p=.1), Decoding(temperature=0.), Decoding(temperature=.2)): assert torch.allclose(draw(logits, u, d)[2], full)

@pytest.mark.parametrize('u', [0., 1-2**-24])
def test_the_ends_of_the_unit_interval_draw_something_possible(u):
    logits = torch.tensor([[-1e9,-1e9,0.,1.,-40.]])
    for d in (Decoding(), Decoding(top_p=.5), Decoding(top_k=1), Decoding(temperature=0.)):
        t,lp,_ = draw(logits, torch.tensor([u]), d)
        assert torch.isfinite(lp).all() and t.item() in (2,3)

def test_product_of_commits_is_the_probability():
    "All 2-token texts of a 3-token alphabet, by exhaustion: with confidence `top` the commits' probabilities of all texts sum to one"
    model = roughen(new_model(sized('tiny', vocab_size=12)), scale=.8).eval()
    c,total = Canvas((10,11), (), 2),0.
    plain = lambda m, hidden, j: plain_logp(model, c, m, hidden, j, 2)
    with torch.no_grad():
        first = max((0,1), key=lambda j: max(plain(tuple(t if i==j else 10 for i in range(2)), {0,1}, j) for t in range(9,12)))
        for m in itertools.product(range(9,12), repeat=2): total += math.exp(plain(m, {0,1}, first)+plain(m, {1-first}, 1-first))
        assert abs(total-1)<1e-4
        n = 3000
        s = sample(model, [c]*n, luck(n), Decoding(steps=2, threshold=None), block=2)
        seen = {}
        for x in s: seen[x.middle] = seen.get(x.middle, 0)+1
        chi = sum((k/n-math.exp(p))**2/math.exp(p)*n for m,k in seen.items() for p in [float(plain(m, {0,1}, first)+plain(m, {1-first}, 1-first))])
        assert chi<26.1       # 8 degrees of freedom, 0.1%

def test_sample_replays_token_by_token(model):
    h = ragged(3)
    a = sample(model, h, luck(3), Decoding(steps=4))
    assert [Sample.from_json(x.to_json()) for x in a]==a
    b = sample(model, [x.canvas for x in (Sample.from_json(y.to_json()) for y in a)], luck(3), a[0].decoding)
    assert b==a

def test_rooms_are_whole_blocks(model):
    with pytest.raises(ValueError, match='whole blocks'): sample(model, [Canvas((20,), (), 12)], luck(1))

# --- sizes, disk, precision

@pytest.mark.parametrize('size,millions', [('nano',5.3), ('small',26.7), ('base',60.8)])
def test_sizes(size, millions):
    with torch.device('meta'): m = KernelLM(sized(size))
    assert abs(n_params(m)/1e6-millions)<.1

def test_round_trip_gives_identical_samples(model, tmp_path):
    model.save_pretrained(tmp_path)
    from transformers import AutoModel
    for again in (KernelLM.from_pretrained(tmp_path), AutoModel.from_pretrained(tmp_path)):
        assert again.config.to_dict()['block_size']==8
        assert sample(again.eval(), ragged(5), luck(5))==sample(model, ragged(5), luck(5))

def test_another_process_gives_the_same(model, tok, tmp_path):
    "Samples of a model from disk, and a tokenizer trained there"
    from kernelrl.core import digest
    model.save_pretrained(tmp_path)
    code = f'''
import torch; torch.set_num_threads(1)
from kernelrl.core import digest
from kernelrl.lm import KernelLM, Canvas
from kernelrl.sampler import sample, generator
from kernelrl.task import shipped_programs, shipped_tasks
from kernelrl.tokenizer import train_tokenizer
print(sample(KernelLM.from_pretrained({str(tmp_path)!r}).eval(), [Canvas((20,21),(22,),16)], [generator('p')])[0].to_json())
print(digest(train_tokenizer([t for k in shipped_tasks() for _,t in shipped_programs(k.name)], 1024).get_vocab()))'''
    r = subprocess.run([sys.executable,'-c',code], capture_output=True, text=True, timeout=300, env={**os.environ,'PYTHONHASHSEED':'7','TOKENIZERS_PARALLELISM':'true'})
    assert r.returncode==0, r.stderr
    s,vocab = r.stdout.strip().splitlines()[-2:]
    assert Sample.from_json(s)==sample(model, [Canvas((20,21),(22,),16)], [generator('p')])[0] and vocab==digest(tok.get_vocab())

def test_fresh_weights_leave_the_global_random_state_alone():
    before = torch.get_rng_state()
    a,b,c = new_model(sized('tiny'), 1),new_model(sized('tiny'), 1),new_model(sized('tiny'), 2)
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(p, q) for p,q in zip(a.parameters(), b.parameters())) and not torch.equal(a.embed.weight, c.embed.weight)
    assert (a.layers[0].attn.o_proj.weight==0).all() and (a.layers[0].down_proj.weight==0).all()

def test_sampling_and_training_leave_the_global_random_state_alone(model, tok):
    before = torch.get_rng_state()
    sample(model, ragged(3), luck(3))
    m = new_model(sized('tiny', vocab_size=90))
    sft(m, [(c, finish([20,21], 8, EOS)) for c in ragged(3)], SFTConfig(steps=2, batch=2))
    assert torch.equal(before, torch.get_rng_state())

def test_low_precision_is_close_and_the_head_is_not_low(model):
    s = sample(model, ragged(4), luck(4), Decoding(steps=2))
    with torch.no_grad():
        exact = view_logps(model, batch_of(s), trace_views(s))
        with torch.autocast('cpu', torch.bfloat16): half = view_logps(model, batch_of(s), trace_views(s))
        assert half.dtype==torch.float32 and (half-exact).abs().mean()<.1
        with torch.autocast('cpu', torch.bfloat16): low = sample(model, ragged(4), luck(4), Decoding(steps=2))
        assert all(math.isfinite(sum(x.logp)) for x in low)

def test_compiles_without_graph_breaks(model):
    ids = torch.randint(10, 90, (2,9), generator=generator('i'))
    with torch.no_grad(): assert torch.equal(torch.compile(model, backend='aot_eager', fullgraph=True)(ids).logits, model(ids).logits)

# --- tokenizer

def test_tokenizer_is_lossless(tok):
    r = random.Random(0)
    wild = [''.join(chr(r.choice([r.randrange(32,127), r.randrange(9,14), r.randrange(0x80,0xd7ff), r.randrange(0x1f300,0x1f600)])) for _ in range(60)) for _ in range(200)]
    for t in TEXTS+wild+[' '*k+'\n'*k for k in range(12)]+[f'{a} {b}' for a in SPECIALS for b in SPECIALS]:
        ids = encode(tok, t)
        assert decode(tok, ids)==t and all(i>EOS for i in ids)

def test_tokenizer_round_trip_on_disk(tok, tmp_path):
    from transformers import AutoTokenizer, PreTrainedTokenizerFast
    tok.save_pretrained(tmp_path)
    for again in (PreTrainedTokenizerFast.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)):
        assert all(encode(again, t)==encode(tok, t) for t in TEXTS[:20]+['<eos><mask>']) and again.eos_token_id==EOS
        assert len(again)==len(tok)

def test_tokenizer_defaults_do_not_read_markers_from_text(tok):
    "Also when called as transformers users do"
    assert all(i>EOS for i in tok('a <eos> b <mask>', add_special_tokens=False)['input_ids'])

def test_digits_stand_alone(tok):
    assert [decode(tok, [i]) for i in encode(tok, '1024')]==list('1024')

# --- holes

def test_a_few_hundred_infillings_change_nothing_around_the_hole(tok):
    m = roughen(new_model(sized('tiny', vocab_size=len(tok))), scale=.7).eval()
    cuts = [Program(t).cut() for t in TEXTS]
    cuts = sorted((c for c in cuts), key=lambda c: len(c[0])+len(c[2]))[:25]+[('/* <suf> <mask> ünïcödé 🙂 */\n', '', '\n\t\r\n// <pre> <eos> end  '), ('', 'x', '')]
    holes = [canvas(tok, 'fill it', p, s, room=8) for p,_,s in cuts for _ in range(12)]
    out = sample(m, holes, luck(len(holes)), Decoding(steps=2, temperature=2.))
    assert len(out)>=300
    for i,x in enumerate(out):
        p,_,s = cuts[i//12]
        text = splice(tok, x.canvas, x.middle)
        assert x.canvas==holes[i] and text==p+written(tok, x.middle)+s and text.encode().startswith(p.encode()) and text.encode().endswith(s.encode())

def test_the_right_core_gives_the_program_back(tok):
    for t in TEXTS:
        p,core,s = Program(t).cut()
        c = canvas(tok, 'x', p, s)
        assert splice(tok, c, finish(encode(tok, core), 16, EOS))==t

def test_the_suffix_stands_behind_the_room():
    for n in (1,5,9):
        b = collate([(Canvas((20,21), (22,), 16), finish(range(30,30+n), 8, EOS))])
        assert b.pos[0,:3].tolist()==[0,1,18] and b.pos[0,3]==2

def test_policy(tok):
    m = roughen(new_model(sized('tiny', vocab_size=len(tok))), scale=.7).eval()
    p = LMPolicy(m, tok, room=16, batch=4)
    assert isinstance(p, Policy)
    a = p.complete(['one','two'], n=3)
    assert [len(x) for x in a]==[3,3] and len({c.text for c in a[0]})>1 and p.complete(['two'], n=3)==a[1:]
    assert [[c.text for c in x] for x in replace(p, batch=1).complete(['one','two'], n=3)]==[[c.text for c in x] for x in a] and replace(p, seed=9).complete(['one'], n=3)!=a[:1]
    assert math.isfinite(a[0][0].info['logp']) and a[0][0].tokens in (8,16)

# --- learning

@pytest.fixture(scope='module')
def lesson(tok):
    config = sized('tiny', vocab_size=len(tok), max_context=256, max_middle=128)
    data = examples(tok, [(t.name,text) for t in shipped_tasks() for _,text in shipped_programs(t.name)], config)
    return config,sorted(data, key=lambda e: len(e[0].before)+len(e[0].after)+len(e[1]))[:6]

def test_complementary_masks_cover_every_token_once(lesson):
    b = collate(lesson[1])
    for i in range(20):
        v,w = complementary(b, 8, generator(i))
        assert (v.hidden.sum(0)==1).all() and v.hidden.gather(0, v.where[:,:,0][None]).all()
        assert w.min()>=.5/.9-1e-6 and w.max()<=.5/.1+1e-6
    shares = torch.stack([complementary(b, 8, generator(i))[0].hidden[0].float() for i in range(800)]).mean((0,1))
    assert (shares-.5).abs().max()<.07

def test_noise_levels_are_stratified_over_blocks():
    "A row's blocks have one level from each of K equal parts of the range"
    b = collate([(Canvas((20,), (), 64), tuple(range(20,84)))])
    for i in range(20):
        _,w = complementary(b, 8, generator(i))
        v,_ = complementary(b, 8, generator(i))
        t = torch.where(v.hidden[0,0], .5/w[0], 1-.5/w[0]).reshape(8,8)
        assert torch.allclose(t, t[:,:1].expand_as(t), atol=1e-5)
        assert sorted(((t[:,0]-.1)/.8*8).floor().clamp(0,7).tolist())==list(range(8))

def test_both_holes(tok):
    config = sized('tiny', vocab_size=len(tok), max_context=10**6, max_middle=10**4)
    data = examples(tok, [('x',t) for t in TEXTS[:5]], config)
    assert len(data)==10 and [bool(c.after) for c,_ in data]==[True,False]*5
    assert all(splice(tok, c, m)==TEXTS[i//2] for i,(c,m) in enumerate(data))

def test_learning_learns_and_resumes(lesson, tmp_path):
    config,data = lesson
    c = SFTConfig(steps=14, batch=3, warmup=3, lr=4e-3, save_every=5, ema=.9)
    whole = new_model(config)
    rows = sft(whole, data, c)
    assert sum(r['loss'] for r in rows[-3:])<sum(r['loss'] for r in rows[:3])-1.5
    def stop(row):
        if row['step']==8: raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt): sft(new_model(config), data, c, tmp_path/'c.pt', stop)
    part = new_model(config, seed=5)
    assert sft(part, data, c, tmp_path/'c.pt')==rows
    assert all(torch.equal(a, b) for a,b in zip(whole.parameters(), part.parameters()))
    with pytest.raises(KernelRLError, match='another configuration'): sft(part, data, replace(c, lr=1.), tmp_path/'c.pt')

def test_after_learning_trainer_still_equals_sampler(lesson):
    config,data = lesson
    m = new_model(config)
    sft(m, data, SFTConfig(steps=12, batch=3, warmup=2, lr=4e-3))
    s = sample(m, [c for c,_ in data], luck(6), Decoding(steps=8, threshold=.2))
    assert gaps(m, s).max()<=1e-4

def test_order_of_data():
    c = SFTConfig(batch=5)
    seen = sum((chosen(i, 7, c) for i in range(14)), [])
    assert all(sorted(seen[k:k+7])==list(range(7)) for k in range(0, 70, 7)) and seen[:7]!=seen[7:14]

def test_nothing_to_learn():
    with pytest.raises(KernelRLError, match='no example fits'): sft(new_model(sized('tiny')), [])

@pytest.mark.filterwarnings('ignore::FutureWarning')
def test_lora(lesson, tmp_path):
    pytest.importorskip('peft')
    config,data = lesson
    with pytest.raises(KernelRLError, match='attn_out, ff_proj match no layer'): add_lora(new_model(config), targets=('q_proj','attn_out','ff_proj'))
    base = roughen(new_model(config), scale=.5)
    frozen = {n:p.clone() for n,p in base.named_parameters()}
    m = add_lora(base, r=4)
    names = [n for n,p in m.named_parameters() if p.requires_grad]
    assert names and all('lora_' in n for n in names) and all(sum(f'.{t}.' in n for n in names)==2*config.num_hidden_layers for t in LORA_TARGETS)
    before = bound(m, data, 1)
    sft(m, data, SFTConfig(steps=6, batch=3, warmup=2, lr=1e-2))
    assert bound(m, data, 1)!=before
    with m.disable_adapter(): assert abs(bound(m, data, 1)-before)<1e-5
    assert all(torch.equal(p, frozen[n.replace('base_model.model.','').replace('.base_layer','')]) for n,p in m.named_parameters() if 'lora_' not in n)
    s = sample(m, [c for c,_ in data], luck(6))
    assert gaps(m, s).max()<=1e-4
    from peft import PeftModel
    m.save_pretrained(tmp_path)
    plain = roughen(new_model(config), scale=.5)
    assert sample(PeftModel.from_pretrained(plain, tmp_path).eval(), [c for c,_ in data], luck(6))==s

# --- on a GPU

@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason='no GPU')
def test_cuda_trainer_equals_sampler():
    m = roughen(new_model(sized('tiny', vocab_size=90))).cuda().eval()
    s = sample(m, ragged(64), luck(64), Decoding(steps=8, threshold=.4))
    with torch.no_grad(): g = (view_logps(m, batch_of(s).to('cuda'), trace_views(s).to('cuda')).cpu()-sampled_logps(s)).abs().max()
    assert g<=1e-4
