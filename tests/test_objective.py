"Rewards, advantages, likelihoods and the loss, each against a plain twin; who learns nothing"
import itertools, math, random
import pytest

torch = pytest.importorskip('torch')
pytest.importorskip('transformers')
from kernelrl.core import KernelRLError
from kernelrl.lm import Canvas, new_model, plain_logp, roughen, sized, view_logps
from kernelrl.objective import (EXCLUDED, Reward, RewardTable, as_group, clipped_loss, coupled_views, k3, leave_one_out, likelihood_views, onestep_views, rank, spread, turn_credit, zscore)
from kernelrl.sampler import Decoding, batch_of, generator, sample, sampled_logps, trace_views
from kernelrl.timing import Speedup
from kernelrl.verdict import Verdict

torch.set_num_threads(1)
INF = math.inf
PASSED,FAILED = ('ok','slow'),('wrong','launch','compile','timeout','forbidden')
f64 = lambda x: torch.tensor(x, dtype=torch.float64)

def verdict(status, ratio=None):
    s = (Speedup(ratio, ratio, ratio),) if ratio is not None else ()
    return Verdict('softmax', 'mine', status, 'time' if status in PASSED else 'correct', speedups=s)

@pytest.fixture(scope='module')
def model(): return roughen(new_model(sized('tiny', vocab_size=60))).eval()

@pytest.fixture(scope='module')
def samples(model):
    holes = [Canvas((20,21,22), (23,24), 16), Canvas((30,), (), 8), Canvas((31,32), (33,), 24), Canvas((40,)*9, (), 16)]
    return sample(model, holes, [generator('obj',i) for i in range(4)], Decoding(steps=8, threshold=.3))

# --- rewards

def test_every_status_has_a_reward_and_a_kind():
    t = RewardTable()
    assert [t.of(verdict(s)) for s in PASSED]==[Reward(1.,'number')]*2
    assert [t.of(verdict(s)) for s in FAILED]==[Reward(0.,'model')]*5
    assert [t.of(verdict(s)) for s in EXCLUDED]==[Reward(None,'infra')]*3
    assert set(PASSED+FAILED+EXCLUDED)==set('ok slow wrong launch compile timeout forbidden suspect unsupported infra'.split())

def test_the_table_can_be_read():
    text = repr(RewardTable(compile=-.25, speed=.5))
    assert all(s in text for s in PASSED+FAILED+EXCLUDED) and '-0.25' in text and '+0.5 for each doubling' in text and text.count('left out')==3

def test_the_table_goes_to_disk(): assert RewardTable.from_json(RewardTable(wrong=-1., speed=.2).to_json())==RewardTable(wrong=-1., speed=.2)

@pytest.mark.parametrize('ratio,value', [(.25,1.), (1.,1.), (2.,1.5), (4.,2.), (8.,2.5), (1000.,2.5)])
def test_speed(ratio, value): assert RewardTable(speed=.5).of(verdict('ok', ratio)).value==pytest.approx(value)

def test_speed_pays_for_right_programs_only(): assert RewardTable(speed=.5).of(verdict('wrong', 8.)).value==0

@pytest.mark.parametrize('table,v', [(RewardTable(ok=math.nan), verdict('ok')), (RewardTable(forbidden=-INF), verdict('forbidden')), (RewardTable(speed=1.), verdict('ok', math.nan)), (RewardTable(speed=1.), verdict('ok'))])
def test_nonsense_raises_with_the_task(table, v):
    with pytest.raises(ValueError, match='mine on softmax'): table.of(v)

# --- advantages

def loo(r, alive):
    out = []
    for i in range(len(r)):
        others = [r[j] for j in range(len(r)) if j!=i and alive[j]]
        out.append(r[i]-sum(others)/len(others) if alive[i] and others else 0.)
    return out

def z(r, alive):
    live = [x for x,a in zip(r,alive) if a]
    if len(set(live))<2: return [0.]*len(r)
    m = sum(live)/len(live)
    s = math.sqrt(sum((x-m)**2 for x in live)/len(live))
    return [(x-m)/s if a else 0. for x,a in zip(r,alive)]

def ranks(k, alive):
    live = [x for x,a in zip(k,alive) if a]
    return [(sum(y>x for y in live)-sum(y<x for y in live))/max(len(live)-1,1) if a else 0. for x,a in zip(k,alive)]

@pytest.mark.parametrize('fast,plain,pool', [(leave_one_out,loo,(0.,.3,1.,1.7)), (zscore,z,(0.,.3,1.,1.7)), (rank,ranks,(1.,2.,3.,INF))])
@pytest.mark.parametrize('G', [1,2,3,8,16])
def test_advantages_equal_their_plain_twins(fast, plain, pool, G):
    rnd = random.Random(G)
    r = [[rnd.choice(pool) for _ in range(G)] for _ in range(60)]
    a = [[rnd.random()<.8 for _ in range(G)] for _ in range(60)]
    got = fast(f64(r), torch.tensor(a))
    assert torch.allclose(got.double(), f64([plain(x, y) for x,y in zip(r,a)]), atol=1e-12)
    assert torch.equal(got[7], fast(f64(r[7]), torch.tensor(a[7])))                  # many groups at once, or one
    assert torch.equal(fast(f64(r)), fast(f64(r), torch.ones(60,G,dtype=bool)))

@pytest.mark.parametrize('f', [leave_one_out, zscore, rank])
def test_equal_rewards_teach_nothing(f):
    for x in (.1+.2, 1/3, 0., -1e9): assert (f(torch.full((8,), x))==0).all() and (f(torch.full((8,), x, dtype=torch.float64))==0).all()

@pytest.mark.parametrize('f', [leave_one_out, zscore])
def test_nan_raises_and_says_where(f):
    with pytest.raises(ValueError, match=r'\[\[1, 2\]\]'): f(f64([[0,1,0],[0,1,math.nan]]))
    assert torch.isfinite(f(f64([0,1,math.nan]), torch.tensor([True,True,False]))).all()     # excluded: never looked at

def test_zscore_of_a_lone_winner(): assert zscore(f64([1]+[0]*7))[0].item()==pytest.approx(2.6457513)

WORKED = {'easy': ([1]*6+[2,INF], [.29]*6+[-.71,-1.]), 'middle': ([1,1,2,2]+[INF]*4, [.86,.86,.29,.29]+[-.57]*4), 'hard': ([3]+[INF]*7, [1.]+[-.14]*7),
    'seven at once, one later': ([1]*7+[2], [.14]*7+[-1.]), 'one later': ([2]+[INF]*7, [1.]+[-.14]*7)}

@pytest.mark.parametrize('name', WORKED)
def test_worked_groups(name):
    k,want = WORKED[name]
    assert [round(x, 2) for x in rank(f64(k)).tolist()]==want

@pytest.mark.parametrize('G', [2,3,4,5])
def test_rank_properties_by_exhaustion(G):
    for k in itertools.product([1,2,3,INF], repeat=G):
        r = rank(f64(k))
        assert r.sum().abs()<1e-12 and r.abs().max()<=1                                                          # zero sum, range
        assert torch.equal(r, rank(f64([{1:-7.,2:.5,3:.6}.get(x, INF) for x in k])))                             # only the order matters
        assert torch.equal(r[list(range(G))[::-1]], rank(f64(k[::-1])))                                          # not who is who
        if len(set(k))==1: assert (r==0).all()
        binary = f64([x<INF for x in k])
        assert torch.allclose(rank(f64([1. if x<INF else INF for x in k])), leave_one_out(binary), atol=1e-12)   # two tiers: leave-one-out
        c = binary
        assert torch.allclose(leave_one_out(c), G/(G-1)*(c-c.mean()), atol=1e-12)

def test_rank_with_speed():
    k,s = f64([1,1,1,2,INF]),f64([.70,.69,.10,5.,9.])
    r = rank(k, tie=s)
    assert torch.allclose(r, f64([3,3,0,-2,-4])/4) and abs(r.sum())<1e-12
    assert torch.equal(rank(k, tie=s, noise=100.), rank(k))
    assert (rank(f64([INF]*4), tie=f64([1,2,3,4]))==0).all()

def test_credit_of_turns():
    assert turn_credit(.5, 3)==pytest.approx([.08,.2,.5]) and turn_credit(-.5, 3)==[-.5]*3 and turn_credit(0., 2)==[0.,0.] and turn_credit(1., 1)==[1.]
    assert turn_credit(1., 3, gamma=1.)==[1.]*3

def test_spans():
    rnd = random.Random(0)
    for _ in range(100):
        cuts = sorted(rnd.sample(range(60), 6))
        spans,credit = [(cuts[i],cuts[i+1]) for i in (0,2,4)],[rnd.uniform(-1,1) for _ in range(3)]
        a = spread(credit, spans, 64)
        for c,(i,j) in zip(credit, spans): assert a[i:j].sum().item()==pytest.approx(c*(j-i))
        outside = torch.ones(64, dtype=bool)
        for i,j in spans: outside[i:j] = False
        assert (a[outside]==0).all()
    with pytest.raises(ValueError): spread([1.], [(0,1),(2,3)], 4)

# --- likelihoods

@pytest.mark.parametrize('shrink', [1,2,3,99])
def test_trace_equals_plain_rows(model, samples, shrink):
    b = batch_of(samples)
    with torch.no_grad():
        got = view_logps(model, b, likelihood_views('trace', samples, b, shrink=shrink))
        for n,s in enumerate(samples):
            for j in range(0, len(s.middle), 2):
                hidden = {i for i in range(len(s.middle)) if s.step[i]//shrink>=s.step[j]//shrink}
                assert abs(got[n,j]-plain_logp(model, s.canvas, s.middle, hidden, j, 8))<1e-4
    if shrink==1: assert (got-sampled_logps(samples)).abs().max()<1e-4
    if shrink==99:
        with torch.no_grad(): assert torch.allclose(got, view_logps(model, b, onestep_views(b)), atol=1e-4)       # one view a block: one-step

@pytest.mark.parametrize('weighted', [True,False])
def test_coupled_equals_plain_rows(model, samples, weighted):
    b = batch_of(samples)
    v = coupled_views(b, generator('c'), weighted=weighted)
    t = .2+.6*torch.rand(len(samples), 1, generator=generator('c'))
    with torch.no_grad():
        got = view_logps(model, b, v)
        for n,s in enumerate(samples):
            m = v.hidden[1,n]
            for j in range(0, len(s.middle), 2):
                full = plain_logp(model, s.canvas, s.middle, set(range(len(s.middle))), j, 8)
                part = plain_logp(model, s.canvas, s.middle, {i for i in range(len(s.middle)) if m[i]==m[j]}, j, 8)
                w = 1/(t[n,0] if m[j] else 1-t[n,0]) if weighted else 1.
                assert abs(got[n,j]-.5*(full+w*part))<1e-4

def test_coupled_masks_are_complementary_and_drawn_once(samples):
    b = batch_of(samples)
    v = likelihood_views('coupled', samples, b, generator('x'))
    assert v.hidden[0].all() and (v.hidden[1]^v.hidden[2]).all()
    assert v.hidden.gather(0, v.where[:,:,1][None]).all()                                     # scored where it is hidden
    assert torch.equal(v.hidden, likelihood_views('coupled', samples, b, generator('x')).hidden)

def test_onestep_equals_plain_rows(model, samples):
    b = batch_of(samples)
    with torch.no_grad():
        got = view_logps(model, b, onestep_views(b))
        for n,s in enumerate(samples):
            for j in range(0, len(s.middle), 2): assert abs(got[n,j]-plain_logp(model, s.canvas, s.middle, set(range(len(s.middle))), j, 8))<1e-4

def test_what_cannot_be_scored_is_refused(model, samples):
    for d in (Decoding(top_p=.9), Decoding(top_k=5), Decoding(temperature=0.)):
        s = sample(model, [Canvas((20,), (), 8)], [generator(0)], d)
        with pytest.raises(KernelRLError, match='no trainer can follow'): likelihood_views('trace', s, batch_of(s))
    with pytest.raises(ValueError, match='trace, coupled and onestep'): likelihood_views('exact', samples, batch_of(samples))
    with pytest.raises(ValueError, match='give a generator'): likelihood_views('coupled', samples, batch_of(samples))

# --- the loss

def plain_loss(logp, old, A, counts, eps, eps_high, beta, ref, norm=None):
    total,n = 0.,norm or sum(map(sum, counts))
    for i in range(len(logp)):
        for j in range(len(logp[i])):
            if not counts[i][j]: continue
            a = A[i][j] if isinstance(A[i], list) else A[i]
            rho = math.exp(logp[i][j]-old[i][j])
            d = ref[i][j]-logp[i][j]
            total += -min(rho*a, min(max(rho, 1-eps), 1+eps_high)*a)/n+beta*(math.exp(d)-d-1)/n
    return total

@pytest.mark.parametrize('seed', range(6))
def test_loss_equals_plain_twin(seed):
    g = generator(seed)
    logp,old,ref = (-3*torch.rand(3,5,7, generator=g, dtype=torch.float64)).unbind()
    A = torch.randn((5,) if seed%2 else (5,7), generator=g, dtype=torch.float64)
    counts = torch.rand(5,7, generator=g)<.6
    for eps,high,beta,norm in ((.2,.2,0.,None), (.2,.28,.1,None), (.5,.5,.04,11.)):
        loss = clipped_loss(logp, old, A, counts, eps, high, beta, ref, norm)
        assert loss.total.item()==pytest.approx(plain_loss(logp.tolist(), old.tolist(), A.tolist(), counts.tolist(), eps, high, beta, ref.tolist(), norm), abs=1e-12)

def test_gradient_of_the_loss_by_differences():
    g = generator('grad')
    logp,old,ref = (-torch.rand(3,2,3, generator=g, dtype=torch.float64)).unbind()
    A,counts = torch.randn(2, generator=g, dtype=torch.float64),torch.tensor([[1,1,0],[1,1,1]]).bool()
    assert torch.autograd.gradcheck(lambda x: clipped_loss(x, old, A, counts, .2, beta=.1, ref=ref).total, logp.requires_grad_())

def test_k3():
    a = torch.linspace(-3, 0, 50, dtype=torch.float64)
    assert (k3(a, a)==0).all() and (k3(a, a.flip(0))>=0).all()
    p,q = torch.randn(2,9, generator=generator('k3'), dtype=torch.float64).log_softmax(-1)
    assert (p.exp()*k3(p, q)).sum().item()==pytest.approx((p.exp()*(p-q)).sum().item(), abs=1e-12)     # unbiased under the policy
    assert k3(f64([-1.]), f64([-2.])).item()==pytest.approx(math.exp(-1)+1-1)

def test_ratio_is_one_at_the_first_inner_step(model, samples):
    b = batch_of(samples)
    for kind in ('trace','coupled','onestep'):
        v = likelihood_views(kind, samples, b, generator('r'))
        with torch.no_grad(): old = view_logps(model, b, v)
        loss = clipped_loss(view_logps(model, b, v), old, f64([1,-1,.5,0.]), b.real)
        assert loss.ratio<1e-6 and loss.clipped==0
    assert clipped_loss(view_logps(model, b, trace_views(samples)), sampled_logps(samples), f64([1,-1,.5,0.]), b.real).ratio<1e-4   # the sampler's own numbers do too

def gradient(model, samples, A, counts=None, norm=None):
    b = batch_of(samples)
    loss = clipped_loss(view_logps(model, b, trace_views(samples)), sampled_logps(samples), A, b.real if counts is None else b.real&counts, norm=norm)
    return loss,torch.autograd.grad(loss.total, [p for p in model.parameters()])

def close(a, b, scale=1.): return all((x*scale-y).abs().max()<=1e-5*max(y.abs().max().item(), 1e-3) for x,y in zip(a,b))

def test_nothing_is_learnt_from_infrastructure_failures(model, samples):
    for bad in EXCLUDED:
        r,alive = as_group([RewardTable().of(verdict(s)) for s in ('ok','wrong','compile',bad)])
        for f in (leave_one_out, zscore):
            A = f(r, alive)
            assert A[3]==0 and torch.equal(A[:3], f(r[:3]))
            l1,g1 = gradient(model, samples, A, alive[:,None])
            l2,g2 = gradient(model, samples[:3], f(r[:3]))
            assert l1.tokens==l2.tokens and close(g1, g2)
    k = f64([1,2,INF,1])
    assert torch.equal(rank(k, torch.tensor([True]*3+[False]))[:3], rank(k[:3])) and rank(k, torch.tensor([True]*3+[False]))[3]==0

def test_an_excluded_group_of_one_or_none():
    for n in (0,1):
        alive = torch.arange(4)<n
        for f in (leave_one_out, zscore, rank): assert (f(f64([1,0,0,1]), alive)==0).all()

def test_a_group_without_a_difference_is_inert(model, samples):
    _,g = gradient(model, samples, leave_one_out(f64([1,1,1,1])))
    assert all((x==0).all() for x in g)
    loss2,with_inert = gradient(model, samples, torch.cat([leave_one_out(f64([1,0])), leave_one_out(f64([1,1]))]))
    loss1,without = gradient(model, samples[:2], leave_one_out(f64([1,0])))
    assert close(with_inert, without, scale=loss2.tokens/loss1.tokens)      # up to the normaliser

def test_no_gradient_on_tokens_that_do_not_count():
    g = generator('env')
    x,old = -torch.rand(2,4,6, generator=g)
    counts = torch.rand(4,6, generator=g)<.5
    for poison in (math.nan, INF, -INF, 1e30):
        y = torch.where(counts, x, poison).requires_grad_()
        loss = clipped_loss(y, torch.where(counts, old, -poison), torch.ones(4), counts, beta=.1, ref=torch.where(counts, old, poison))
        loss.total.backward()
        assert (y.grad[~counts]==0).all() and torch.isfinite(y.grad).all() and (y.grad[counts]!=0).any()

def test_no_gradient_on_environment_tokens(model, samples):
    "The label of a context token is nobody's target: only rows of the middle reach the head"
    seen = []
    hook = model.register_forward_pre_hook(lambda m, a, kw: seen.append(kw['rows']), with_kwargs=True)
    try: gradient(model, samples, f64([1,-1,.5,0.]))
    finally: hook.remove()
    b = batch_of(samples)
    assert (seen[0]>=b.ids.shape[1]).all()                                                    # behind the context and the clean copy

def test_parts_of_a_batch_add_up(model, samples):
    A = f64([1,-1,.5,-.5])
    whole,g = gradient(model, samples, A)
    parts = [gradient(model, samples[i:i+2], A[i:i+2], norm=whole.tokens)[1] for i in (0,2)]
    assert close([a+b for a,b in zip(*parts)], g)

def test_loss_names_what_is_not_finite():
    one = torch.ones(1,1,dtype=bool)
    with pytest.raises(ValueError, match='1 tokens are not finite'): clipped_loss(torch.tensor([[math.nan]]), torch.zeros(1,1), torch.ones(1), one)
    with pytest.raises(ValueError, match='largest ratio'): clipped_loss(torch.tensor([[0.]]), torch.tensor([[-1e4]]), -torch.ones(1), one)

def test_no_tokens_no_loss():
    loss = clipped_loss(torch.zeros(2,3, requires_grad=True), torch.zeros(2,3), torch.ones(2), torch.zeros(2,3,dtype=bool))
    loss.total.backward()
    assert loss.total==0 and loss.tokens==0

def test_policy_gradient_points_the_right_way(model, samples):
    "The gradient at ratio one is that of the advantage-weighted log-probability"
    A = f64([1.,-1.,0.,0.])
    loss,g = gradient(model, samples, A)
    b = batch_of(samples)
    direct = torch.autograd.grad(-(view_logps(model, b, trace_views(samples))*A[:,None].float()).sum()/b.real.sum(), list(model.parameters()))
    assert all((x-y).abs().max()<1e-3*y.abs().max()+1e-7 for x,y in zip(g, direct))
    assert abs(loss.policy-float(-(A[:,None]*b.real).sum()/b.real.sum()))<1e-4
