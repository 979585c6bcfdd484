"What the verifier accepts and refuses, on more cases than the page can show"
import re, tracemalloc, zlib
import numpy as np
import pytest
from kernelrl.core import Finding
from kernelrl.verify import (PROTOCOLS, Check, ErrorReport, Protocol, Twin, Verified, Yardstick, allowance, checks, compare, from_float64, poison, poisoned,
    storage, to_float64, unwritten, verify, verify_one, widen, yardstick)

F8 = np.float64
rng = np.random.default_rng()
SALT = 11

@pytest.fixture(autouse=True)
def own_seed(request): globals()['rng'] = np.random.default_rng(zlib.crc32(request.node.name.encode())+SALT)   # the same numbers, whichever tests run

def normal(*s): return rng.standard_normal(s).astype('f4')
def keep(x, bits):
    b,d = x.astype('f4').view('u4'),23-bits
    return ((b+(1<<d-1)-1+(b>>d&1))>>d<<d).view('f4')
def one_by_one(x, dtype='f4'): return np.cumsum(x, 1, dtype=dtype)[:,-1]

# --- number formats

def test_bfloat16_agrees_with_torch():
    torch = pytest.importorskip('torch')
    x = np.concatenate([normal(10000)*10.**rng.integers(-38, 38, 10000), [0., -0., np.inf, -np.inf, np.nan, 3.4e38, 1e-45]]).astype('f4')
    want = torch.tensor(x).bfloat16()
    got = from_float64(x.astype(F8), 'bfloat16')
    np.testing.assert_array_equal(to_float64(got, 'bfloat16'), want.double().numpy())

@pytest.mark.parametrize('dtype', ['float64','float32','float16','int8','uint8','int16','int32','int64'])
def test_round_trip(dtype):
    x = np.array([0, 1, -3, 100]) if dtype!='uint8' else np.array([0, 1, 3, 100])
    raw = from_float64(x.astype(F8), dtype)
    assert raw.dtype==storage(dtype)
    np.testing.assert_array_equal(to_float64(raw, dtype), x)

# --- honest programs are not refused

@pytest.mark.parametrize('rows', [1, 2, 4, 8, 64])
@pytest.mark.parametrize('signed', [True, False])
def test_sums_in_any_order_pass(rows, signed):
    for _ in range(60 if rows<64 else 20):
        x = normal(rows,4096) if signed else rng.random((rows,4096)).astype('f4')
        r,t = x.astype(F8).sum(1), x.sum(1)
        moved = (x*(1+2.**-23*rng.uniform(-1, 1, x.shape))).sum(1)      # a single sum may be near zero, and PyTorch right by luck
        yard = widen(yardstick(r, t, 'float32'), r, moved)
        for y in (one_by_one(x[:,::-1]), one_by_one(np.cumsum(x.reshape(-1,64), 1, dtype='f4')[:,-1].reshape(rows,-1))):
            assert compare(y, r, t, 'float32', yard=yard).ok

def test_sums_one_by_one_pass_where_outputs_are_many():
    worst = max(compare(one_by_one(x), x.astype(F8).sum(1), x.sum(1), 'float32').used for x in (normal(64,4096) for _ in range(20)))
    assert .1<worst<1

@pytest.mark.parametrize('scale', [1, 4, 30, 100])
def test_fast_exponential_passes_and_half_does_not(scale):
    x = normal(32,1024)*scale
    def softmax(x, exp): e = exp(x-x.max(1, keepdims=True)); return e/e.sum(1, keepdims=True)
    r,t = softmax(x.astype(F8), np.exp),softmax(x, np.exp)
    fast = softmax(x, lambda v: (np.exp(v)*(1+rng.uniform(-2,2,v.shape)*2.**-23)).astype('f4'))
    assert compare(fast, r, t, 'float32').used<.2
    for low in (t.astype('f2').astype('f4'), softmax(keep(x,10), np.exp), keep(t,10)): assert not compare(low, r, t, 'float32').ok

@pytest.mark.parametrize('dtype', ['float16','bfloat16'])
def test_half_tasks(dtype):
    a,b = (to_float64(from_float64(normal(32,1024), dtype), dtype) for _ in range(2))
    r = a@b.T
    t = from_float64(r, dtype)
    twice = from_float64(to_float64(from_float64(r*1.1, dtype), dtype)/1.1, dtype)
    assert compare(t, r, t, dtype).ok and compare(twice, r, t, dtype).ok
    s = np.zeros_like(r)
    for k in range(1024): s = to_float64(from_float64(s+a[:,k:k+1]*b.T[k], dtype), dtype)
    assert not compare(from_float64(s, dtype), r, t, dtype).ok

def test_float64_task():
    x = rng.standard_normal((16,4096))
    r = x.sum(1)
    assert compare(one_by_one(x, 'f8'), r, r, 'float64').ok
    assert not compare(one_by_one(x.astype('f4')).astype('f8'), r, r, 'float64').ok

def test_exact_operators_leave_room_for_an_ulp_but_not_for_half():
    x = normal(1000)
    r = np.maximum(x.astype(F8), 0)
    t = r.astype('f4')
    assert compare(np.nextafter(t, np.float32(9)), r, t, 'float32').ok
    assert not compare(t.astype('f2').astype('f4'), r, t, 'float32').ok

# --- dishonest ones are

@pytest.mark.parametrize('K', [64, 512, 4096])
def test_fewer_digits_fail_a_float32_product(K):
    a,b = normal(24,K),normal(K,24)
    r,t = a.astype(F8)@b.astype(F8),a@b
    for bits in (10, 7):
        report = compare((keep(a,bits).astype(F8)@keep(b,bits).astype(F8)).astype('f4'), r, t, 'float32')
        assert report.used>10 and report.reason==('low_precision' if K>64 or bits==10 else report.reason)
    s = np.zeros((24,24), 'f2')
    for k in range(K): s = s+(a[:,k:k+1]*b[k]).astype('f2')
    assert not compare(s.astype('f4'), r, t, 'float32').ok

def test_the_rms_line_sees_what_the_maximum_forgives():
    r = np.ones(10000)
    t = r.astype('f4'); t[0] += 1e-3                       # one unlucky element of PyTorch's
    y = (1+1e-3*rng.uniform(-1,1,10000)).astype('f4')      # everything that bad
    report = compare(y, r, t, 'float32')
    assert report.mismatched==0 and report.reason=='low_precision' and not report.ok

@pytest.mark.parametrize('scale', [1e-30, 1e-6, 1., 1e20])
def test_lazy_answers_fail_at_every_scale(scale):
    r = rng.standard_normal(4096)*scale
    t = r.astype('f4')
    for y in (0*t, np.full_like(t, r.mean()), np.ones_like(t), -t, np.roll(t,1)): assert not compare(y, r, t, 'float32').ok
    assert compare(t, r, t, 'float32').ok

def test_one_wrong_element_in_a_million():
    r = rng.standard_normal(1<<20); t = r.astype('f4'); y = t.copy(); y[777777] += .01
    report = compare(y.reshape(1024,1024), r.reshape(1024,1024), t.reshape(1024,1024), 'float32')
    assert report.mismatched==1 and report.worst==divmod(777777,1024)

@pytest.mark.parametrize('at', [0, (1<<18)-1, 1<<18, (1<<18)+1, (1<<19)+4])
def test_chunk_edges(at):
    r = np.ones((1<<19)+5); t = r.astype('f4')
    for bad in (2., np.nan, np.inf):
        y = t.copy(); y[at] = bad
        report = compare(y, r, t, 'float32')
        assert (report.ok, report.worst)==(False, (at,))

def test_nonfinite_values():
    r = np.array([np.nan, np.inf, -np.inf, 0., 1.]); t = r.astype('f4')
    assert compare(t, r, t, 'float32').ok
    for i,v in ((0,0.), (0,np.inf), (1,-np.inf), (1,3e38), (2,np.nan), (3,np.nan), (4,np.inf)):
        y = t.copy(); y[i] = v
        assert compare(y, r, t, 'float32').reason=='nonfinite', (i,v)

def test_all_nan_expected_and_empty():
    r = np.full(4, np.nan)
    assert compare(r.astype('f4'), r, r.astype('f4'), 'float32').ok
    assert not compare(np.zeros(4,'f4'), r, r.astype('f4'), 'float32').ok
    e = np.zeros((0,3))
    assert compare(e.astype('f4'), e, e.astype('f4'), 'float32').ok

def test_scalar_output():
    r = np.array(2.); t = r.astype('f4')
    assert compare(t, r, t, 'float32').ok
    assert compare(np.array(2.1,'f4'), r, t, 'float32').worst==()

def test_shape_and_type_must_fit():
    r = np.ones((2,3)); t = r.astype('f4')
    for y in (t.T, t.ravel(), t.astype('f8'), t.astype('f2')):
        report = compare(y, r, t, 'float32')
        assert report.reason=='shape' and 'f32' in report.feedback()

def test_integers_are_exact():
    t = np.array([5, -7, 2**53+1], 'i8')
    assert compare(t, t.astype(F8), t, 'int64').ok
    for i,v in ((0,6), (2,2**53)):
        y = t.copy(); y[i] = v
        assert compare(y, t.astype(F8), t, 'int64').mismatched==1
    tie = compare(np.array([2],'i8'), np.array([2.]), np.array([1],'i8'), 'int64')   # exact argmax differs from PyTorch's
    assert tie.ok

def test_own_factor_overrides():
    class Loose: k = 1e5
    class Floor: k,floor = None,1e3
    r = np.ones(1000); t = r.astype('f4'); y = t+np.float32(1e-3)
    assert not compare(y, r, t, 'float32').ok and compare(y, r, t, 'float32', Loose()).ok and compare(y, r, t, 'float32', Floor()).ok

def test_weak_share():
    r = np.r_[1e6, np.full(999, 1e-3)]; t = r.astype('f4')
    report = compare(np.r_[t[:1], 0*t[1:]], r, t, 'float32')
    assert report.ok and report.weak==.999

def test_widening_never_shortens():
    a,b = Yardstick(1., 1e-3, 1e-4, 10),np.ones(10)
    assert widen(a, b, b)==a
    assert widen(a, b, b*1.1).torch_max==pytest.approx(.1)

def test_reports_are_records():
    r = np.ones((2,3)); t = r.astype('f4')
    for y in (t, 0*t, t.T, t*np.nan):
        report = compare(y, r, t, 'float32')
        again = ErrorReport.from_json(report.to_json())
        assert again.to_json()==report.to_json()

def test_feedback_line():
    r = np.zeros((64,64)); r[3,17] = 1.25; t = r.astype('f4'); y = t.copy(); y[3,17] = 0
    line = compare(y, r, t, 'float32').feedback()
    assert line=='mismatch: 1/4096 max_abs=1.2e+00 at [3,17] got 0.0 want 1.25  shape=[64,64] dtype=f32'
    assert len(re.findall('want', line))==1

def test_memory_is_bounded():
    r = np.ones(4<<20); t = r.astype('f4'); y = t.copy()
    tracemalloc.start()
    compare(y, r, t, 'float32')
    peak = tracemalloc.get_traced_memory()[1]; tracemalloc.stop()
    assert peak<r.nbytes

# --- poison

@pytest.mark.parametrize('dtype', ['float64','float32','float16','bfloat16','int8','uint8','int16','int32','int64','bool'])
def test_poison(dtype):
    for repeat in (0, 1):
        b = poisoned((4,5), dtype, repeat)
        assert b.dtype==storage(dtype) and unwritten(b, dtype, repeat)==20 and unwritten(b, dtype, 1-repeat)==0
        if repeat==0 and dtype in ('float64','float32','float16','bfloat16'): assert np.isnan(to_float64(b, dtype)).all()
        assert set(b.tobytes())=={(0xff,0x7f)[repeat]}      # what the devices fill with
    assert poison(dtype,0)!=poison(dtype,1) and poison(dtype,2)==poison(dtype,0)

# --- plans of checks

class T:
    shapes = ({}, {'N':7}, {'N':1}); distributions = ('own','normal','shifted','sparse','constant')

def test_plans():
    plans = {n: checks(T, p, 's') for n,p in PROTOCOLS.items()}
    assert {n: len(p) for n,p in plans.items()}=={'right':3,'quick':3,'standard':6,'strict':25}
    for p in plans.values():
        assert {c.shape for c in p}=={0,1,2} and p[-1].shape==0 and len({c.seed for c in p})==len(p)
        assert len({c.distribution for c in p})>1
    assert {(c.shape,c.distribution) for c in plans['strict']}=={(s,d) for s in range(3) for d in T.distributions}

def test_few_shapes_and_limits():
    class One: shapes = ({},); distributions = ('own',)
    assert [len(checks(One, p, 's')) for p in PROTOCOLS.values()]==[2,2,4,10]
    assert {c.shape for c in checks(T, Protocol('x',1,1,1,shapes=2), 's')}=={0,1}

def test_secrets_stay_secret():
    cs = checks(T, PROTOCOLS['strict'], 'secret')
    assert not any(str(c.seed) in repr(cs) for c in cs)
    assert cs[0].seed!=checks(T, PROTOCOLS['strict'], 'other')[0].seed

# --- verify, with an integer and a float output

SHAPES = ((64,), (9,), (1,))
def make(c): return [np.random.default_rng(c.seed).standard_normal(SHAPES[c.shape]).astype('f4')]
def sizes(c): return [(SHAPES[c.shape],'float32'), (SHAPES[c.shape],'int8'), ((1,),'bool')]
def right(ins, outs):
    outs[0][:] = ins[0]*2; outs[1][:] = np.sign(ins[0]); outs[2][:] = ins[0].sum()>0
def answer(c):
    x = make(c)[0].astype(F8)
    return [x*2, np.sign(x), np.array([x.sum()>0]).astype(F8)],[(x*2).astype('f4'), np.sign(x).astype('i1'), np.array([x.sum()>0])]
DT = ['float32','int8','bool']
PLAN = checks(T, PROTOCOLS['standard'], 'test')
def go(p, **kw): return verify(Twin(p, make, sizes), answer, PLAN, DT, **kw)

def test_right_passes_and_comes_back():
    v = go(right)
    assert v.ok and v.feedback()=='' and v.done==6 and len(v.reports)==18
    assert Verified.from_json(v.to_json())==v

@pytest.mark.parametrize('i', [0,1,2])
def test_each_output_must_be_written(i):
    def p(ins, outs):
        kept = outs[i].copy(); right(ins, outs); outs[i][:] = kept
    v = go(p)
    assert v.kind=='stale_or_unwritten' and f'output {i}' in v.feedback()

def test_an_int8_equal_to_the_pattern_is_not_unwritten():
    value = poison('int8',0).view('i1')
    def p(ins, outs): outs[0][:] = value
    def ref(c): return [np.full(SHAPES[c.shape], float(value))],[np.full(SHAPES[c.shape], value)]
    for repeats in (1,2): assert verify(Twin(p, make, lambda c: sizes(c)[1:2]), ref, PLAN, ['int8'], repeats=repeats).ok

@pytest.mark.parametrize('where', [-1, 1])
def test_guards_on_both_sides(where):
    def p(ins, outs):
        right(ins, outs); b = outs[0].base; b[63 if where<0 else 64+outs[0].size] = 1
    assert go(p).kind=='guard'

def test_inputs_may_not_change_even_if_restored_wrongly():
    def p(ins, outs): right(ins, outs); ins[0][0] = np.nextafter(ins[0][0], np.float32(9))
    assert go(p).kind=='input_changed'

def test_device_errors_stop_before_the_reference_is_asked():
    asked = []
    def run(c): return None, (Finding('oob','thread 3 reads past the end of x', kernel='k', line=4),)
    v = verify(run, lambda c: asked.append(c), PLAN, DT)
    assert (v.kind, v.done, asked)==('oob', 1, [])

def test_warnings_of_the_device_are_kept():
    def run(c): outs,f = Twin(right, make, sizes)(c); return outs,(*f, Finding('bank_conflict','8 ways', severity='warning'))
    v = verify(run, answer, PLAN, DT)
    assert v.ok and [f.kind for f in v.findings]==['bank_conflict']

def test_missing_output():
    assert verify(lambda c: (Twin(right, make, sizes)(c)[0][:1],()), answer, PLAN, DT).kind=='shape'

def test_repeats_carry_their_number_and_same_seed():
    seen = []
    def run(c): seen.append(c); return Twin(right, make, sizes)(c)
    verify_one(run, answer, PLAN[0], DT, repeats=3)
    assert [c.repeat for c in seen]==[0,1,2] and len({c.seed for c in seen})==1

def test_shape_specialised_is_told_apart_from_wrong():
    def only_timed(ins, outs): right(ins, outs); outs[0][:] += 0 if len(ins[0])==64 else 1
    def wrong(ins, outs): right(ins, outs); outs[0][:] += 1
    assert go(only_timed).kind=='shape_specialised' and go(wrong).kind=='mismatch' and go(only_timed, explain=False).kind=='mismatch'
    assert 'mismatch' in {f.kind for f in go(only_timed).findings}

def test_sometimes_right_is_a_race_and_other_bits_a_warning():
    class P:
        def __init__(self, d): self.d,self.n = d,0
        def __call__(self, ins, outs): right(ins, outs); self.n += 1; outs[0][0] += self.d*(self.n%2==0)
    v = go(P(1.))
    assert not v.ok and 'nondeterministic' in {f.kind for f in v.findings}
    class Q(P):
        def __call__(self, ins, outs): right(ins, outs); self.n += 1; outs[0][:] = np.nextafter(outs[0], np.float32(9)) if self.n%2==0 else outs[0]
    v = go(Q(0))
    assert v.ok and [(f.kind,f.severity) for f in v.findings]==[('nondeterministic','warning')]

def test_jitter_is_asked_only_on_a_near_failure():
    asked = []
    def jitter(c): asked.append(c); return answer(c)[0]
    assert go(right, jittered=jitter).ok and not asked
    def off(ins, outs): right(ins, outs); outs[0][:] += 1e-4
    assert not go(off, jittered=jitter, explain=False).ok and len(asked)==1
    def far(c): e = answer(c)[0]; return [e[0]+1e-4, *e[1:]]
    assert go(off, jittered=far).ok

def test_feedback_never_shows_a_seed():
    def wrong(ins, outs): right(ins, outs); outs[0][:] += 1
    v = go(wrong)
    assert not any(str(c.seed) in v.feedback()+repr(v)+''.join(f.message for f in v.findings) for c in v.checks)

def test_allowance_shrinks_with_evidence():
    assert allowance('float32',1)>allowance('float32',10)>allowance('float32',10**6)>=16
    assert allowance('float32',10**6,k=3)==pytest.approx(3, rel=1e-4)

def test_check_is_a_record():
    c = Check(1,'own',5)
    assert Check.from_json(c.to_json())==c
