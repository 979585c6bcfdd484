"Every transform does what it says, refuses where it must, and what gets through is right"
import itertools, json, random, re
from pathlib import Path
import pytest
from kernelrl._syntax import Source, text, trips, walk
from kernelrl.core import Finding
from kernelrl.program import Program
from kernelrl.task import shipped_programs, shipped_tasks
from kernelrl.transforms import Edit, HostGate, Refused, Site, Transform, site_at, traces
from kernelrl.walk import TRANSFORMS, Step, random_walk, tally

ROOT = Path(__file__).parent.parent
TASKS = {t.name:t for t in shipped_tasks()}
PROGRAMS = [(t,n,x) for t in TASKS for n,x in shipped_programs(t)]
GATE = HostGate(distributions=('own',))
def shipped(task, name='expert'): return dict(shipped_programs(task))[name]
def find(t, d, source, plans=()): return TRANSFORMS[t,d].find(source, plans)
def apply(t, d, source, i=0, plans=()): return TRANSFORMS[t,d].apply(source, [s for s in find(t, d, source, plans) if not s.refused][i])

def wrap(body, params='const float* __restrict__ x, float* out, int n', head='', launch='k(((n + 255) // 256,), (256,), (x, out, n))', name='k', qual='extern "C" '):
    "A program around the body of a kernel"
    return f'import cupy as cp\nk = cp.RawKernel(r"""\n{head}\n{qual}__global__ void {name}({params}) {{\n{body}\n}}""", "{name}")\ndef forward(x):\n    n = x.size\n    out = cp.empty_like(x)\n    {launch}\n    return out\n'

def plans_of(source, sizes=(4773, 200000)):
    "Traces of a program over relu-like signatures"
    from kernelrl.task import Signature, Spec
    from kernelrl.trace import trace
    return tuple(trace(Program(source), Signature((Spec('x', (n,), 'float32'),), (), (Spec('out', (n,), 'float32'),))) for n in sizes)

# ---- the table

def test_all_thirteen_rows_in_both_directions():
    easy = {'vector','padding','unroll','grid_stride','restrict','fast_math','launch_bounds','template','cache_hint'}
    assert {n for n,_ in TRANSFORMS}==easy|{'vector_struct'}|{'vector_loop','shuffle','variance','half2'}
    assert all((n,d) in TRANSFORMS for n,_ in TRANSFORMS for d in ('simplify','optimise'))
    assert all(t.doc and t.explain().startswith(f'{d} {n}: ') for (n,d),t in TRANSFORMS.items())

# ---- one small kernel for each: what stands there, what it becomes

CASES = [
    ('restrict','simplify', wrap('out[0] = x[n];'), 'const float* x, float* out, int n'),
    ('restrict','optimise', wrap('out[0] = x[n];', 'const float *x, float* out, int n'), 'const float *__restrict__ x, float* __restrict__ out, int n'),
    ('launch_bounds','simplify', wrap('out[0] = x[n];', name='k').replace('void k', 'void __launch_bounds__(256, 2) k'), '__global__ void k(const'),
    ('launch_bounds','optimise', wrap('out[0] = x[n];'), 'void __launch_bounds__(1024) k('),
    ('unroll','simplify', wrap('    #pragma unroll 4\n    for (int i = 0; i < 4; i++) out[i] = x[i]; // four'), 'n) {\n    for (int i = 0; i < 4; i++) out[i] = x[i]; // four\n'),
    ('unroll','optimise', wrap('    for (int i = 1; i <= 16; i *= 2) out[i] = x[i];'), '    #pragma unroll\n    for (int i = 1; i <= 16; i *= 2)'),
    ('padding','simplify', wrap('__shared__ float t[8][32 + 1];\nint i = threadIdx.x % 32; t[0][i] = x[i]; out[i] = t[0][i];'), 't[8][32];'),
    ('padding','optimise', wrap('__shared__ float t[32][32];\nint i = threadIdx.x % 32; t[0][i] = x[i]; out[i] = t[i][0];'), 't[32][32 + 1];'),
    ('vector','simplify', wrap('float4 v = *reinterpret_cast<const float4*>(x + 4 * n); out[0] = v.x;'), 'make_float4(x[4 * n], x[4 * n + 1], x[4 * n + 2], x[4 * n + 3])'),
    ('vector','simplify', wrap('const float4* q = reinterpret_cast<const float4*>(x);\nfloat4 v = q[n]; out[0] = v.x;'), 'v = make_float4(x[4 * n], x[4 * n + 1], x[4 * n + 2], x[4 * n + 3])'),
    ('vector','simplify', wrap('*(float2*)&out[n] = make_float2(x[0], 1.f); '), '{ const float2 whole = make_float2(x[0], 1.f); out[n] = whole.x; out[n + 1] = whole.y; }'),
    ('vector','optimise', wrap('float4 v = make_float4(x[4 * n], x[4 * n + 1], x[4 * n + 2], x[4 * n + 3]); out[0] = v.x;'), 'v = *reinterpret_cast<const float4*>(x + 4 * n);'),
    ('vector','optimise', wrap('out[2 * n] = x[0]; out[2 * n + 1] = x[1];'), '*reinterpret_cast<float2*>(out + 2 * n) = make_float2(x[0], x[1]);'),
    ('vector_struct','simplify', wrap('out[0] = x[n];', head='struct alignas(16) P { float v[4]; };'), 'struct P { float v[4]; };'),
    ('vector_struct','optimise', wrap('out[0] = x[n];', head='struct P { float v[4]; };'), 'struct alignas(16) P { float v[4]; };'),
    ('fast_math','simplify', wrap('out[0] = 2.f * __fdividef(x[0], 1.f + __expf(x[1]));'), '2.f * (x[0] / (1.f + __expf(x[1])))'),
    ('fast_math','simplify', wrap('out[0] = rsqrtf(x[0] + 1.f);'), 'out[0] = 1.0f / sqrtf(x[0] + 1.f);'),
    ('fast_math','optimise', wrap('out[0] = expf(x[0]);'), 'out[0] = __expf(x[0]);'),
    ('fast_math','optimise', wrap('out[0] = 1.0f / sqrtf(x[0]);'), 'out[0] = rsqrtf(x[0]);'),
    ('cache_hint','simplify', wrap('out[0] = 2.f * __ldg(x + n);'), 'out[0] = 2.f * (*(x + n));'),
    ('cache_hint','simplify', wrap('__stcs(&out[n], x[0]);'), 'out[n] = x[0];'),
    ('cache_hint','optimise', wrap('out[n] = 2.f;'), '__stcs(&out[n], 2.f);'),
    ('grid_stride','simplify', wrap('for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) out[i] = x[i];', launch='k((min((n + 255) // 256, 9),), (256,), (x, out, n))'), 'if (int i = blockIdx.x * 256 + threadIdx.x; i < n) out[i] = x[i];'),
    ('grid_stride','simplify', wrap('for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) out[i] = x[i];', launch='k((min((n + 255) // 256, 9),), (256,), (x, out, n))'), 'k(((n + 255) // 256,), (256,)'),
    ('grid_stride','optimise', wrap('    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) out[i] = x[i];'), '    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = x[i];'),
    ('vector_loop','optimise', wrap('    float s = 0.f;\n    for (int j = 0; j < n; j++) s += x[j] * j;\n    out[0] = s;'), 's += quad.w * (j + 3);'),
    ('shuffle','simplify', wrap('    float v = x[0];\n    for (int o = 16; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, o));\n    out[0] = v;'), 'for (int l = first + 1; l < last; l++) all = fmaxf(all, lanes[l]);'),
    ('half2','simplify', wrap('half2 h = __hmul2(a, b);', 'half2 a, half2 b'), '__floats2half2_rn(__low2float(a) * __low2float(b), __high2float(a) * __high2float(b))'),
    ('half2','optimise', wrap('half2 h = __halves2half2(__float2half(x[0]), __float2half(x[1]));'), '__floats2half2_rn(x[0], x[1])'),
]

@pytest.mark.parametrize('name,direction,source,want', CASES, ids=lambda v: v if isinstance(v, str) and len(v)<20 else '')
def test_case(name, direction, source, want):
    site = next(s for s in find(name, direction, source) if not s.refused)
    new = TRANSFORMS[name,direction].apply(source, site)
    assert want in new, new
    spans = sorted((e.start, e.end) for e in site.edits)      # all else is as it was, to the byte
    kept = lambda data,cuts: b'|'.join(data[a:b] for a,b in zip([0,*(e for _,e in cuts)], [*(s for s,_ in cuts), len(data)]))
    shift,cuts = 0,[]
    for e in sorted(site.edits, key=lambda e: (e.start, e.end)):
        a = e.start+shift; cuts.append((a, a+len(e.text.encode()))); shift += len(e.text.encode())-(e.end-e.start)
    assert kept(source.encode(), spans)==kept(new.encode(), cuts)
    assert Site.from_json(site.to_json())==site

# ---- where they must refuse

NO = [
    ('vector','optimise', wrap('float2 v = make_float2(x[2 * n + 1], x[2 * n + 2]); out[0] = v.x;'), (4773, 200000), 'aligned'),
    ('vector','optimise', wrap('float4 v = make_float4(x[n], x[n + 1], x[n + 2], x[n + 3]); out[0] = v.x;'), (4773, 200000), 'aligned'),
    ('vector','optimise', wrap('__shared__ float t[8][33]; int i = threadIdx.x;\nt[i][0] = x[0]; t[i][1] = x[1]; t[i][2] = x[2]; t[i][3] = x[3]; out[0] = t[0][0];'), (4773,), 'aligned'),
    ('vector','optimise', wrap('float* y = out; (y)[0] = x[0]; (y)[1] = (y)[0];'), (), 'independent'),
    ('vector','optimise', wrap('reinterpret_cast<float*>(out)[0] = x[0]; reinterpret_cast<float*>(out)[1] = out[0];'), (), 'independent'),
    ('vector','optimise', wrap('out[0] = x[1]; out[1] = x[0];', 'float* x, float* out, int n', launch='k(((n + 255) // 256,), (256,), (out, out, n))'), (4773,), 'independent'),
    ('vector','simplify', wrap('int i = 0; float4 v = *reinterpret_cast<const float4*>(x + i++); out[0] = v.x;'), (), 'pure'),
    ('padding','optimise', wrap('__shared__ float t[32][32];\nint i = threadIdx.x % 32; t[0][i] = x[i]; out[i] = t[1][i];'), (), 'column_access'),
    ('padding','simplify', wrap('__shared__ float t[8][32 + 1];\nint i = threadIdx.x % 32; t[0][i + 1] = x[i]; out[i] = t[0][i];'), (), 'covers'),
    ('unroll','optimise', wrap('    for (int i = 0; i < n; i++) out[i] = x[i];'), (4773, 200000), 'trip_const'),
    ('grid_stride','optimise', wrap('int i = blockIdx.x * blockDim.x + threadIdx.x;\nif (i >= n) return;\nif (x[i] < 0) return;\nout[i] = x[i];'), (4773,), 'no_jump'),
    ('grid_stride','optimise', wrap('int i = blockIdx.x * blockDim.x + threadIdx.x;\nif (i >= n) return;\n__syncthreads();\nout[i] = x[i];'), (4773,), 'no_exchange'),
    ('grid_stride','simplify', wrap('for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) out[i] = x[i];', launch='k((9,), (256,), (x, out, n))'), (4773,), 'launch_found'),
    ('vector_loop','optimise', wrap('for (int j = 0; j < n; j++) out[j] = out[j] + x[j];'), (4773,), 'independent'),
    ('cache_hint','optimise', wrap('int i = threadIdx.x; atomicAdd(&out[i], 1.f); float v = out[i + n];'), (4773,), 'whole'),
    ('cache_hint','optimise', wrap('int i = threadIdx.x; out[i] = x[i];', 'float* x, float* out, int n', launch='k(((n + 255) // 256,), (256,), (out, out, n))'), (4773,), 'read_only'),
]

@pytest.mark.parametrize('name,direction,source,sizes,condition', NO, ids=lambda v: v if isinstance(v, str) and len(v)<20 else '')
def test_refusal(name, direction, source, sizes, condition):
    sites = find(name, direction, source, plans_of(source, sizes) if sizes else ())
    assert sites and sites[0].refused and sites[0].refused.name.startswith(condition), sites and sites[0].conditions
    with pytest.raises(Refused, match=condition): TRANSFORMS[name,direction].apply(source, sites[0])
    assert TRANSFORMS[name,direction].apply(source, sites[0], force=True)!=source # What a counterfactual trial does

def test_a_type_is_no_argument():
    for task in ('permute_0213','gather_rows'):
        x = shipped(task)
        assert [s.refused.name for s in find('template', 'simplify', x)][0].startswith('value_only')

def test_path_sensitive_alignment():
    "Under `if (n % 4 == 0)` a size is a multiple of four"
    s = wrap('if (n % 4 == 0) { float4 v = make_float4(x[n], x[n + 1], x[n + 2], x[n + 3]); out[0] = v.x; }')
    [site] = find('vector', 'optimise', s, plans_of(s))
    assert site.sure, site.conditions

@pytest.mark.parametrize('align,holds', [('__align__(16) ', True), ('', None)])
def test_shared_memory_without_a_size_has_its_declared_alignment(align, holds):
    s = wrap(f'extern __shared__ {align}char t[];\nreinterpret_cast<float*>(t)[0] = x[0]; reinterpret_cast<float*>(t)[1] = x[1];')
    [site] = find('vector', 'optimise', s)
    assert site.conditions[0].holds is holds, site.conditions

def test_a_site_of_another_text_is_refused():
    s = CASES[0][2]
    site = find('restrict', 'simplify', s)[0]
    with pytest.raises(Refused, match='another text'): TRANSFORMS['restrict','simplify'].apply(s.replace('const float*', 'const int*'), site)

def test_what_would_not_parse_is_refused():
    bad = Transform('bad', 'simplify', lambda src: iter([site_at(src.kernels[0], src.kernels[0].at(src.kernels[0].body), [Edit(*src.kernels[0].at(src.kernels[0].body), '{ if ( }')])]))
    with pytest.raises(Refused, match='parse'): bad.apply(CASES[0][2], bad.find(CASES[0][2])[0])

def test_strings_with_escapes_are_left_alone():
    s = CASES[0][2]
    assert find('restrict', 'simplify', s.replace('r"""', 'f"""').replace('{', '{{').replace('}', '}}'))==[]
    assert find('restrict', 'simplify', s.replace('r"""', '"""').replace('out[0]', '/* \\\\ */ out[0]'))==[]
    assert find('restrict', 'simplify', s.replace('r"""', '"""'))
    assert find('restrict', 'simplify', s.replace('out[0]', '/* ü€ */ out[0]'))[0].span[0]==s.encode().index(b'(const float*')

# ---- what is known about values

def test_values_are_sound():
    "Ranges and divisors hold for every value that an expression takes"
    rng = random.Random(0)
    def expr(depth):
        if depth==0: return rng.choice(['a','b',str(rng.randrange(9)),'4','8'])
        op = rng.choice(['+','-','*','/','%','&','<<','>>','?','min'])
        l,r = expr(depth-1),expr(depth-1)
        if op in '/%&': r = str(rng.choice([1,2,3,4,7,8,31,32]))
        if op in ('<<','>>'): r = str(rng.randrange(4))
        return f'({l} < 3 ? {l} : {r})' if op=='?' else f'min({l}, {r})' if op=='min' else f'({l} {op} {r})'
    for _ in range(300):
        e = expr(3)
        src = Source(wrap(f'for (int a = 0; a < 12; a += 4) for (int b = 1; b < 7; b++) out[{e}] = 0;'))
        fn = src.kernels[0]
        sub = next(walk(fn.body, 'subscript_expression'))
        node = sub.child_by_field_name('indices').named_children[0]
        v = fn.value(node)
        for a,b in itertools.product(range(0,12,4), range(1,7)):
            got = _value(node, {'a':a,'b':b})
            assert v.lo<=got<=v.hi and (got%v.step==0 if v.step else got==0), (e, v, a, b, got)

def _value(n, env):
    "Evaluate a syntax tree as C would"
    while n.type=='parenthesized_expression': n = n.named_children[0]
    t = n.type
    if t=='number_literal': return int(text(n))
    if t=='identifier': return env[text(n)]
    if t=='call_expression': return min(_value(a, env) for a in n.child_by_field_name('arguments').named_children)
    if t=='conditional_expression': return _value(n.child_by_field_name('consequence' if _value(n.child_by_field_name('condition'), env) else 'alternative'), env)
    l,r,op = _value(n.child_by_field_name('left'), env),_value(n.child_by_field_name('right'), env),text(n.child_by_field_name('operator'))
    if op=='/': return int(l/r)
    if op=='%': return l-r*int(l/r)
    return {'+':lambda: l+r, '-':lambda: l-r, '*':lambda: l*r, '&':lambda: l&r, '<<':lambda: l<<r, '>>':lambda: l>>r, '<':lambda: l<r}[op]()

@pytest.mark.parametrize('loop,n', [('int i = 0; i < 4; ++i', 4), ('int o = 16; o > 0; o /= 2', 5), ('int o = 16; o; o >>= 1', 5), ('int i = 3; i <= 12; i += 3', 4), ('int i = 8; i >= 0; i--', 9), ('int i = 0; i < n; i++', None), ('int i = 0; i < 1; i += 0', None)])
def test_trips(loop, n):
    fn = Source(wrap(f'for ({loop}) out[0] = 1.f;')).kernels[0]
    assert trips(fn, next(walk(fn.body, 'for_statement')))==n

def test_every_launch_of_every_shipped_program_is_found():
    lost = [(t,n,k.name) for t,n,x in PROGRAMS for k in Source(x).kernels if not Source(x).calls_of(k.name)]
    assert not lost

# ---- on real text

@pytest.mark.parametrize('direction', ['simplify','optimise'])
def test_every_site_of_every_program_applies(direction):
    n = 0
    for task,name,x in PROGRAMS:
        if name=='naive' and direction=='simplify': continue
        src = Source(x)
        for (t,d),tr in TRANSFORMS.items():
            if d!=direction: continue
            sites = [s for s in tr.find(src) if not s.refused]
            for s in sites[:1]: assert tr.apply(x, s)!=x, (task, name, s); n += 1
    assert n>100

ROUND = [('restrict','swiglu','expert'), ('unroll','softmax_last','expert'), ('padding','transpose2d','expert'), ('vector','transpose2d','registers'), ('vector','max_pool2d','expert'), ('vector_struct','layer_norm','expert'),
    ('fast_math','swiglu','expert'), ('half2','swiglu','half2'), ('half2','bmm_f16','expert')]

@pytest.mark.parametrize('name,task,program', ROUND, ids=lambda v: v)
def test_simplify_then_optimise_gives_the_text_back(name, task, program):
    x = shipped(task, program)
    for site in [s for s in find(name, 'simplify', x) if not s.refused][:3]:
        between = TRANSFORMS[name,'simplify'].apply(x, site)
        back = {TRANSFORMS[name,'optimise'].apply(between, s, force=True) for s in find(name, 'optimise', between)}
        assert x in back

BACK = [('vector_loop','sum_last','naive'), ('variance','layer_norm','warp_per_row'), ('shuffle','sum_last','block_per_row'), ('cache_hint','rope','naive'), ('grid_stride','gelu_tanh','naive'), ('template','gather_rows','naive')]

@pytest.mark.parametrize('name,task,program', BACK, ids=lambda v: v)
def test_optimise_then_simplify(name, task, program):
    "Right both times; the text is the same where only one text says it"
    t,x = TASKS[task],shipped(task, program)
    fast = apply(name, 'optimise', x, plans=traces(t, Program(x)))
    plain = apply(name, 'simplify', fast, i=-1, plans=traces(t, Program(fast)))
    assert GATE(t, Program(fast))==(True, None) and GATE(t, Program(plain))==(True, None)
    if name in ('vector_loop','variance','shuffle','cache_hint'): assert plain.split()==x.split() # Blank lines may move

# ---- the gate is not blind: each kind of mistake is found

MUTANTS = [ # task, program, text, its replacement, kind of the finding
    ('relu_scale','naive', 'if (i < n)', 'if (i <= n)', 'oob'), ('relu_scale','expert', 'if (i < n) out[i]', 'if (i < 0) out[i]', 'stale_or_unwritten|mismatch|nonfinite'),
    ('sum_last','block_per_row', '        __syncthreads();\n', '', 'race|uninit_shared'), ('transpose2d','expert', 'tile[four + 1][c]', 'tile[four + 2][c]', 'mismatch'),
    ('gelu_tanh','naive', '(x.size + 255)', '(x.size - 255)', 'stale_or_unwritten|nonfinite|mismatch'), ('softmax_last','naive', 'float top = in[0];', 'float top = in[0', 'compile_error'),
    ('swiglu','half2', 'if n % 2: ', 'if n % 2 and 0: ', 'stale_or_unwritten|nonfinite'), ('gather_rows','naive', 'forward(index, embed_weight)', 'forward(index)', 'forward_signature')]

@pytest.mark.parametrize('task,program,old,new,kind', MUTANTS, ids=lambda v: v if len(v)<14 else '')
def test_gate_catches(task, program, old, new, kind):
    x = shipped(task, program)
    assert old in x
    ok,why = GATE(TASKS[task], Program(x.replace(old, new)))
    assert not ok and re.fullmatch(kind, why.kind), why

def test_forced_misalignment_is_caught():
    "The condition said no, and it was right"
    t = TASKS['sum_last']
    loop = apply('vector_loop', 'optimise', shipped('sum_last', 'naive'), plans=traces(t, Program(shipped('sum_last', 'naive'))))
    site = find('vector', 'optimise', loop, traces(t, Program(loop)))[0]
    assert site.refused
    ok,why = GATE(t, Program(TRANSFORMS['vector','optimise'].apply(loop, site, force=True)))
    assert not ok and why.kind=='misaligned'

# ---- random walks

def test_walk_follows_the_gate_it_is_given():
    t,p,seen = TASKS['relu_scale'],Program(shipped('relu_scale')),[]
    def gate(task, program): seen.append(program); return len(seen)%2==1, None if len(seen)%2 else Finding('no', 'not today')
    steps = list(random_walk(t, p, 6, random.Random(5), gate))
    assert len(seen)==len(steps)>=5 and [s.accepted for s,_ in steps]==[i%2==0 for i in range(len(steps))]
    for (a,_),(b,_) in zip(steps, steps[1:]): assert b.start==(a.end if a.accepted else a.start)
    assert list(random_walk(t, p, 6, random.Random(5), lambda *_: (True, None)))[0][0].end==steps[0][0].end # The same seed, the same step
    assert Step.from_json(steps[0][0].to_json())==steps[0][0]

def test_a_short_walk_stays_right():
    t = TASKS['swiglu']
    steps = list(random_walk(t, Program(shipped('swiglu', 'half2')), 5, random.Random(2), GATE))
    assert steps and all(s.accepted for s,_ in steps if s.sure and not s.numeric), steps
    last = [p for s,p in steps if s.accepted][-1]
    assert HostGate(seeds=(77,), modes=(('run','shuffle'),))(t, last)==(True, None)

def test_tally_counts():
    s = lambda **k: Step(**{**dict(task='t', start='a', end='b', transform='x', direction='simplify', sure=True, numeric=False, accepted=True), **k})
    t = tally([s(), s(accepted=False, reason='oob'), s(sure=False)])
    assert t['all']==t['simplify x']=={'applied':3, 'accepted':2, 'sure':2, 'sure_accepted':1, 'reasons':{'oob':1}}

def test_the_study_holds():
    "The stored result: 2,000 applications, none of them wrong and accepted"
    path = ROOT/'data/studies/transforms.json'
    if not path.exists(): pytest.skip('not measured yet')
    f = json.loads(path.read_text())['figures']
    assert f['applications']>=2000 and f['wrong_accepted']==0 and f['accepted']+f['rejected_by_gate']==f['applications']
    assert f['sure_accepted']>=.95*f['sure']

def test_names_do_not_run_out():
    used = ', '.join(['quad = 0.f', *(f'quad{i} = 0.f' for i in range(2,130))])
    new = apply('vector_loop', 'optimise', wrap(f'    float {used};\n    float s = quad;\n    for (int j = 0; j < n; j++) s += x[j] * j;\n    out[0] = s + quad129;'), plans=())
    assert 's += quad130.w * (j + 3);' in new
