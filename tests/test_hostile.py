"Programs that attack the judge, and accidents that befall it: the verdict is never wrong, and the next program is judged rightly"
import functools, itertools, json, os, signal, subprocess, sys, textwrap, threading, time
from pathlib import Path
import psutil
import pytest
from kernelrl import _bench
from kernelrl._bench import HostBench
from kernelrl._pools import scratch_dir
from kernelrl._worker import Worker, WorkerDied
from kernelrl.core import KernelRLError
from kernelrl.nvrtc import CompileError, prepare_source
from kernelrl.judge import Judge, judge_many, judge_one
from kernelrl.program import Arg, Buffer, Fill, Launch, Module, Plan, Program
from kernelrl.task import Signature, Spec, Task
from kernelrl.trace import TraceRefused, trace
from kernelrl.verdict import Store

TASK = Task('affine', '''
import torch, torch.nn as nn
N = 65536
class Model(nn.Module):
    def forward(self, x): return x*2+1
def get_inputs(): return [torch.randn(N)]
def get_init_inputs(): return []
''', shapes=({}, {'N':1000}, {'N':77}))

GOOD = r'''
import cupy as cp
k = cp.RawKernel(r"""
extern "C" __global__ void affine(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.f * x[i] + 1.f;
}""", "affine")
def forward(x):
    y = cp.empty_like(x)
    k(((x.size + 255) // 256,), (256,), (x, y, x.size))
    return y
'''
BODY,LAUNCH = 'if (i < n) y[i] = 2.f * x[i] + 1.f;','k(((x.size + 255) // 256,), (256,), (x, y, x.size))'
VEC = Signature((Spec('x',(1000,),'float32'),), (), (Spec('out0',(1000,),'float32'),))

def kernel(body:str): return GOOD.replace(BODY, body)
def host(code:str, before:str=''): return GOOD.replace('def forward(x):', f'{before}\ndef forward(x):\n'+textwrap.indent(code, '    '))
def cuda(before:str): return GOOD.replace('r"""\n', 'r"""\n'+before+'\n')

_count = itertools.count()
def neighbour(j): # A text of its own, so that it does not come out of the store
    v = judge_one(j, TASK, Program(f'{GOOD}\n# {next(_count)}', 'neighbour'))
    assert v.ok, v

@pytest.fixture(scope='module')
def j(tmp_path_factory):
    with pytest.MonkeyPatch.context() as m:
        with Judge('host', 'quick', Store(tmp_path_factory.mktemp('s')/'s.sqlite'), secret='test') as judge:
            neighbour(judge) # Workers are started and compilers built
            m.setattr(HostBench, 'RUN_SECONDS', 1.5)
            m.setattr(_bench, 'COMPILE_SECONDS', 2.5)
            m.setattr(_bench, 'trace', functools.partial(trace, deadline=.7))
            yield judge

BOMB = 'template<int N, long P> struct F { static const int v = F<N-1,2*P>::v + F<N-1,2*P+1>::v; };\ntemplate<long P> struct F<0,P> { static const int v = 1; };\n__device__ int bomb() { return F<30,0>::v; }'
HOSTILE = {
    'illegal access': (kernel('y[i + (1 << 28)] = 1.f; '+BODY), 'oob crash'),
    'wild pointer': (kernel('if (i == 0) *(float*)0x123456789000ull = 1.f; '+BODY), 'oob crash'),
    'endless device loop': (kernel(BODY+' volatile float* z = y; while (n) z[0] = 1.f;'), 'timeout'),
    'huge grid': (GOOD.replace(LAUNCH, 'k((2**31-1,), (256,), (x, y, x.size))').replace('int i = blockIdx.x', 'long i = (long)blockIdx.x'), 'timeout'),
    'too much dynamic shared memory': (GOOD.replace('x.size))\n', 'x.size), shared_mem=10**6)\n'), 'launch_config'),
    'too much static shared memory': (kernel('__shared__ volatile float s[30000]; s[threadIdx.x] = 1.f; '+BODY), 'compile_error'),
    'device assert': (kernel('assert(i < 5); '+BODY), 'device_assert'),
    'trap': (kernel('__trap();'), 'device_assert'),
    'misaligned': (kernel('if (i == 0) *(float4*)(y + 1) = make_float4(1,2,3,4); '+BODY), 'misaligned crash'),
    'unmatched barrier': (kernel('if (threadIdx.x < 7) __syncthreads(); else while (((volatile float*)y)[0] != 5.f); '+BODY), 'timeout deadlock'),
    'host exception': (host('raise ValueError("no")'), 'python_error'),
    'host exit': (host('raise SystemExit(0)'), 'python_error'),
    'endless host loop': (host('while True: pass'), 'host_timeout'),
    'endless generator': (host('for i in iter(int, 1): pass'), 'host_timeout'),
    '100 GB of host memory': (host('s = "x"*(100<<30)'), 'host_crash'),
    '100 GB of device memory': (host('cp.empty((100<<30,), cp.int8)'), 'too_much_memory'),
    '60 GB of device memory': (host('cp.empty((60<<30,), cp.int8)'), 'out_of_memory'),
    'millions of buffers': (host('for i in range(10**6): cp.empty((1,))'), 'host_timeout malformed_plan host_crash too_many_buffers'),
    'millions of launches': (GOOD.replace(LAUNCH, f'\n    for i in range(10**6): {LAUNCH}'), 'too_many_launches'),
    'recursion': (host('f = lambda x: f(x)+1\nf(x)'), 'host_crash'),
    'nested parentheses': ('x = '+'('*5000+')'*5000, 'syntax_error host_crash'),
    'nested minus': ('x = '+'-'*100000+'1', 'host_crash syntax_error'),
    'big power': (host('y = 10**(10**9)'), 'host_timeout host_crash'),
    'compile bomb': (cuda(BOMB).replace('2.f *', '2.f + 0*bomb() +'), 'compile_timeout'),
    'endless constexpr': (cuda('constexpr long f() { long s = 0; for (long i = 0; i < 1000000000000; i++) s += i; return s; }\n__device__ long z = f();'), 'compile_error compile_timeout'),
    'endless macro': (cuda('\n'.join(['#define A0 int']+[f'#define A{i} '+f'A{i-1} '*16 for i in range(1,9)]+['A8 a;'])), 'compile_error compile_timeout'),
    'not Python': ('extern "C" __global__ void f() {}', 'syntax_error'),
    'empty': ('', 'no_forward'),
    'not text': ('\x00\x01\x02', 'syntax_error python_error'),
    'NUL in the kernel': (kernel('\\0'+BODY).replace('r"""','"""'), 'compile_error'),
    'lone surrogates': (GOOD+'# \udcff\ud800', ''),
    'other alphabets': (GOOD.replace('# ', '')+'# 中文 \N{ZERO WIDTH SPACE}\u202e', ''),
    '10 MB': (GOOD+'#'*(10<<20), 'source_too_large'),
    '10 MB made in Python': (host('cp.RawKernel("/*"+"x"*(10<<20)+"*/ __global__ void f() {}", "f")((1,), (1,), ())'), 'malformed_plan host_timeout source_too_large'),
    'a name with a line break': (host('cp.RawKernel("template<int N> __global__ void f() {}", "f<1/*\\nreport /tmp/kernelrl-evil\\n*/>")((1,), (1,), ())'), 'no_such_kernel'),
    'a name with code': (host('cp.RawKernel("__global__ void f() {}", "f, ::krl::leave(0,0)")((1,), (1,), ())'), 'no_such_kernel'),
    'options': (GOOD.replace('"affine")', '"affine", options=("-I/etc","--include-path=/"))'), 'option_refused'),
    'print without end': (host('while True: print("x"*10**6)'), 'host_timeout'),
}

@pytest.mark.parametrize('name', HOSTILE)
def test_hostile_program(j, name):
    text,kinds = HOSTILE[name]
    v = judge_one(j, TASK, Program(text, name))
    if kinds:
        assert v.reason and v.reason.kind in kinds.split() and v.status not in ('ok','slow','infra'), v
    else: assert v.ok, v
    assert not Path('/tmp/kernelrl-evil').exists()
    neighbour(j)

def test_printing_gigabytes_on_the_device_is_bounded(j):
    v = judge_one(j, TASK, Program(kernel('for (int r = 0; r < 300; r++) printf("%d %s\\n", i, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"); '+BODY)))
    assert v.ok or v.status in ('timeout','unsupported'), v
    assert len(v.to_json())<100_000
    neighbour(j)

# ---------------------------------------------------------------- files of this machine
@pytest.fixture(scope='module')
def canary(tmp_path_factory):
    f = tmp_path_factory.mktemp('c')/'canary.h'
    f.write_text('canary_424242 root:x:0\n')
    return f

INCLUDES = {
    'absolute': '#include "{f}"', 'angle brackets': '#include <{f}>', 'relative': '#include "../../../../../../../../../{f}"', 'past an allowed folder': '#include <cub/../../../../../../../../../..{f}>', 'dots in the middle': '#include <cuda/std/../../../../../../../../..{f}>',
    'splice': '#inc\\\nlude "{f}"', 'splice with a blank': '#inc\\ \nlude "{f}"', 'splice, CRLF': '#inc\\\r\nlude "{f}"', 'splice after hash': '#\\\ninclude "{f}"', 'comment': '#/*x*/include "{f}"', 'comments': '/*a*/ # /**/ include /**/ "{f}"', 'long comment': '# /*'+'x'*5000+'\n*/ include "{f}"',
    'macro': '#define F "{f}"\n#include F', 'macro call': '#define F(x) x\n#include F("{f}")', 'digraph': '%:include "{f}"', 'trigraph': '??=include "{f}"', 'trigraph splice': '#inc??/\nlude "{f}"',
    'form feed': '\f#include "{f}"', 'vertical tab': '\v#include "{f}"', 'form feed after hash': '#\finclude "{f}"', 'carriage return': '__device__ int a;\r#include "{f}"', 'NUL': '\0#include "{f}"', 'NUL in the middle': '#inc\0lude "{f}"',
    'raw string': 'const char* s = R"(\n)";\n#include "{f}"', 'raw string that is none': 'const char* q = "R\\"(";\n#include "{f}"\n// )"', 'raw string with a delimiter': '__device__ const char* u = R"a(/*)a";\n#include "{f}"\n__device__ const char* v = "*/";', 'raw string, delimiter too long': '#if 0\nR"12345678901234567(/*)12345678901234567"\n#endif\n#include "{f}"\n/**/',
    'apostrophe': "#if 0\n'/*\n#endif\n#include \"{f}\"\n#if 0\n*/'\n#endif", 'apostrophe in a macro': "#define A '/*\n#include \"{f}\"\n#define B */'", 'quote': '#if 0\n"/*\n#endif\n#include "{f}"\n#if 0\n*/"\n#endif', 'digit separator': "__device__ int z = 1'0;/*'*/\n#include \"{f}\"\n/*'*/",
    'commented line that goes on': '// hi \\\n#include "nope"\n#include "{f}"', 'has_include': '#if __has_include("{f}")\n#error canary_424242\n#endif', 'has_include, spliced': '#if __has_inc\\\nlude("{f}")\n#error canary_424242\n#endif',
    'embed': '__device__ const char e[] = {{\n#embed "{f}"\n}};', 'import': '#import "{f}"', 'include_next': '#include_next "{f}"', 'line': '#line 1 "{f}"\n__device__ int bad = oops;', 'incbin': 'asm(".incbin \\"{f}\\"");', 'incbin in parts': 'asm(".inc" "bin \\"{f}\\"");', 'pragma': '_Pragma("include_alias")',
    'precompiled header': '#pragma GCC pch_preprocess "{f}"', 'dependency': '#pragma GCC dependency "{f}"', 'module': 'import "{f}";', 'no-break space': '\u00a0#include "{f}"', 'line separator': '__device__ int a;\u2028#include "{f}"', 'byte order mark': '\ufeff#include "{f}"', 'a folder': '#include "/proc/self"', 'a device': '#include "/dev/stdin"',
}

@pytest.mark.parametrize('name', INCLUDES)
def test_no_file_is_read(j, canary, name):
    k = GOOD.split('r"""')[1].split('"""')[0]
    pre = INCLUDES[name].replace('{{','{').replace('}}','}').replace('{f}', str(canary))
    text = GOOD.replace(f'r"""{k}"""', repr(pre+'\n'+k)).replace('"affine")', '"affine", ("-std=c++14",))' if 'tri' in name else '"affine")')
    v = judge_one(j, TASK, Program(text, name))
    assert '424242' not in v.to_json()
    assert v.status in ('forbidden','compile','unsupported','launch'), v

def test_no_file_is_read_by_the_host_compiler_alone(canary):
    from kernelrl.host import compile_host, Unsupported
    k = '__global__ void k(float* x) {}'
    for pre in ('#line 1 "{f}"\nint bad = oops;', 'int bad = oops; // {f}', '#inc\\\nlude "{f}"', "#if 0\n'/*\n#endif\n#include \"{f}\"\n#if 0\n*/'\n#endif"):
        plan = Plan((Module(pre.replace('{f}',str(canary))+'\n'+k),), (Buffer('x','output',(4,),'float32'),), (Launch('k',0,(1,1,1),(1,1,1),0,(Arg('float*',0),)),), (0,))
        with pytest.raises((CompileError,Unsupported)) as e: compile_host(plan)
        assert '424242' not in repr(e.value.finding)
    neighbour_plan = Plan((Module(k),), plan.buffers, plan.steps, (0,))
    assert compile_host(neighbour_plan).libraries

@pytest.mark.parametrize('piece', ['extern ','__shared__ ','extern __shared__ float s[','{','{}','__align__(','alignas(','__attribute__((','/*','R"(','R"a(','"',"'",'#include <','#','\\\n','#define a ','using a=','typedef a ','namespace a ','extern alignas(( '])
def test_a_source_cannot_keep_the_judge_busy(piece):
    from kernelrl.toolchain import host_source
    text = piece*((1<<18)//len(piece))
    t = time.monotonic()
    try: prepare_source(text)
    except CompileError: pass
    host_source(text, ['k'])
    assert time.monotonic()-t<60 # One pass or two take a second; a pass for every letter would take hours

# ---------------------------------------------------------------- ways out of the stand-in
GLOBALS = '''
box = []
class W:
    def SETTER(self, n, v): box.append(v)
'''
ESCAPES = {
    'os': 'import os\nos.environ', 'ctypes': 'import ctypes\nctypes.CDLL(None)', 'subprocess': 'import subprocess', 'importlib': 'import importlib', 'submodule': 'import numpy.ctypeslib', 'from numpy': 'from numpy import os', 'from functools': 'from functools import __globals__', 'from cupy': 'from cupy import __class__ as c', 'dunder import': '__import__("os")', 'relative import': 'from . import trace',
    'open': 'open(CANARY, "w").write("x")', 'eval': 'eval("1")', 'exec': 'exec("1")', 'compile': 'compile("1","","eval")', 'globals': 'globals()', 'builtins': '__builtins__["open"]', 'builtins rebound': 'import math as __builtins__', 'builtins global': 'global __builtins__\n__builtins__ = {}', 'type': '().__class__.__base__.__subclasses__()',
    'getattr': 'getattr((), "__cl"+"ass__")', 'getattr of a str subclass': 'class S(str):\n    def startswith(self, *a): return False\n    def __hash__(self): return 1\n    def __eq__(self, o): return False\ngetattr(cp.empty, S("__globals__"))["builtins"].open', 'hasattr': 'assert hasattr(cp.empty, "__globals__")',
    'frames': '(i for i in ()).gi_frame.f_back.f_globals', 'coroutine': 'async def f(): pass\nf().cr_code.replace(co_names=("__globals__",))', 'async generator': 'async def f(): yield\nf().ag_code', 'traceback': 'try: 1/0\nexcept Exception as e: e.__traceback__.tb_frame', 'exception group': 'try: 1/0\nexcept* ZeroDivisionError as e: e.exceptions[0].__traceback__',
    'match': 'match cp.empty:\n    case object(__globals__=g): g["builtins"].open', 'match builtins': 'match len:\n    case object(__self__=b): b.open', 'match args': 'class M:\n    __match_args__ = ("__globals__",)\n    __class__ = 1', 'match metaclass': 'class M(type):\n    def __instancecheck__(cls, o): return True\nclass A(metaclass=M):\n    __match_args__ = ("__globals__",)\nmatch cp.empty:\n    case A(g): g["builtins"].open',
    'format': '"{0.__globals__[builtins]}".format(cp.empty)', 'format env': 'raise ValueError("{0.__init__.__globals__[re].enum.sys.modules[os].environ}".format(cp.RawKernel))', 'format, hidden': 'f = "for"+"mat"\nraise ValueError(getattr("{0.__init__.__globals__}", f)(cp.RawKernel))', 'str.format': 'raise ValueError(str.format("{0.__init__.__globals__}", cp.RawKernel))', 'format_map': 'raise ValueError("{a.__init__.__globals__}".format_map({"a":cp.RawKernel}))', 'map format': 'raise ValueError(list(map(str.format, ["{0.__init__.__globals__}"], [cp.RawKernel])))',
    'format of a subclass': 'class S(str): pass\nraise ValueError(S("{0.__init__.__globals__}").format(cp.RawKernel))', 'format nested': 'raise ValueError("{0:{1.__init__.__globals__}}".format("", cp.RawKernel))',
    'update_wrapper': 'import functools'+GLOBALS.replace('SETTER','__setattr__')+'functools.update_wrapper(W(), cp.empty, assigned=("__globals__",), updated=())\nbox[0]["builtins"].open', 'wraps': 'import functools\nfunctools.wraps(cp.empty, assigned=("__globals__",))', 'typing.get_type_hints': 'import typing\nclass A: pass\nA.x = 1\ntyping.get_type_hints(A)', 'typing.ForwardRef': 'import typing\ntyping.ForwardRef("().x")', 'singledispatch': 'import functools\nfunctools.singledispatch(len)',
    'decorator': '@(lambda f: f.__globals__)\ndef g(): pass', 'metaclass': 'class M(type):\n    def __prepare__(*a): return {}\nclass A(metaclass=M): pass', 'init_subclass': 'class A:\n    def __init_subclass__(cls): cls.__base__.__subclasses__()\nclass B(A): pass', 'class_getitem': 'class A:\n    def __class_getitem__(c, i): return i.__globals__\nA[cp.empty]', 'set_name': 'class D:\n    def __set_name__(s, o, n): o.__mro__\nclass A:\n    d = D()', 'del': 'class A:\n    def __del__(self): self.x.__globals__\nA()', 'reduce': '(1).__reduce_ex__(2)', 'getattribute': 'class A:\n    def __getattribute__(s, n): return cp.empty.__globals__\nA().x',
    'setattr': 'setattr(cp, "empty", 1)', 'delattr': 'delattr(cp, "empty")', 'vars': 'vars(cp)', 'private': 'cp.empty((1,))._buffer = 0', 'private of self': 'self = cp.empty((1,))\nself._buffer = 10**9\nk((1,), (1,), (self, self, 0))', 'mro': 'int.mro()[1]', 'base exception': 'try: cp.matmul(x, x)\nexcept BaseException: pass', 'bare except': 'try: cp.matmul(x, x)\nexcept: pass', 'finally': 'def f():\n    try: cp.matmul(x, x)\n    finally: return 1\nf()', 'suppress': 'import contextlib',
    'walrus': '(open := 1)\n__import__("os")', 'lambda default': '(lambda f=__import__: f("os"))()', 'annotation': 'a: __import__("os") = 1', 'f-string': 'f"{().__class__}"', 'print': 'print("x", file=open(CANARY,"w"))', 'breakpoint': 'breakpoint()', 'help': 'help()', 'exit': 'exit()', 'license': 'license()', 'memoryview': 'memoryview(b"x")', 'namedtuple': 'import functools\nfunctools.namedtuple("A", "x, __class__=open(CANARY)")',
    'cupy file': 'cp.load(CANARY)', 'cupy module': 'cp.RawModule(path=CANARY)', 'cupy fromfile': 'cp.fromfile(CANARY)', 'cupy global': 'cp.RawModule(code="__device__ int a;").get_global("a")', 'cupy stream': 'cp.cuda.Stream()', 'cupy graph': 'cp.cuda.Graph()', 'cupy kernel of its own': 'cp.ElementwiseKernel("T x", "T y", "y = x", "f")', 'cupy elementwise': 'x + x', 'numpy': 'import numpy as np\nnp.ones(3)', 'numpy load': 'import numpy as np\nnp.load(CANARY)', 'bool of an array': 'if x[0]: pass', 'values': 'x.get()', 'dlpack': 'x.__dlpack__()', 'data pointer': 'x.data.ptr', 'cuda array interface': 'x.__cuda_array_interface__',
}

@pytest.fixture(scope='module')
def tracer():
    os.environ['KERNELRL_CANARY'] = 'secret_env_424242'
    w = Worker('kernelrl._tracer')
    yield w
    w.kill()

@pytest.mark.parametrize('name', ESCAPES)
def test_no_way_out_of_the_stand_in(tracer, tmp_path, name):
    f = tmp_path/'canary'
    code = ESCAPES[name].replace('CANARY', repr(str(f)))
    try: trace(Program(host(code)), VEC, deadline=3., worker=tracer)
    except TraceRefused as e: refused = e.finding
    else: refused = None
    assert not f.exists()
    assert '424242' not in repr(refused)
    if name not in ('hasattr','submodule'): assert refused and refused.kind not in ('host_timeout',), name
    pid = tracer.p.pid
    assert trace(Program(GOOD), VEC, worker=tracer).launches and tracer.p.pid==pid

HARMLESS = ['"{:.2f} {a!r:>4}".format(1.5, a="b")', '"{0.kernel[3]}".format', 'from typing import Optional, Sequence\ndef g(a:Optional[int]=None)->Sequence[int]: return [a]\ng()', 'import functools\n@functools.wraps(len)\ndef g(): pass\ng()', 'input = x\nassert input.size', 'class A:\n    def __init__(self): self._n = 3\n    def __call__(self): return self._n\nassert A()()==3',
    'class A:\n    def __init__(self, n): self.n = n\nclass B(A):\n    def __init__(self): super().__init__(2)\nassert B().n==2', 'match x.ndim:\n    case 1: pass\n    case _: raise ValueError', 'import itertools, textwrap, math\nassert list(itertools.chain([1],[2]))==[1,2]', 'vars = [1]\nassert vars[0]']

@pytest.mark.parametrize('code', HARMLESS)
def test_ordinary_python_is_let_through(tracer, code): assert trace(Program(host(code)), VEC, worker=tracer).launches

BROKEN_OUT = '''
import json, os, signal, socket, sys, tempfile
from kernelrl import _tracer as C, trace as T
def tried(f):
    try: return repr(f())
    except BaseException as e: return type(e).__name__
def out(program, signature): # As if a program had got out of the stand-in altogether
    import ctypes
    libc = ctypes.CDLL(None)
    def unlimited():
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (64,64)); return os.open('/etc/hostname', os.O_RDONLY)
    others = [i for i in range(4,256) if tried(lambda: os.fstat(i)).startswith('os.stat')]
    return {'refused':{'kind':'x', 'message':json.dumps({'open':tried(lambda: os.open('/etc/hostname', os.O_RDONLY)), 'unlimited':tried(unlimited), 'write':tried(lambda: os.open(sys.argv[1]+'/a', os.O_CREAT|os.O_WRONLY)),
        'unlink':tried(lambda: os.unlink(sys.argv[1]+'/keep')), 'rename':tried(lambda: os.rename(sys.argv[1]+'/keep', sys.argv[1]+'/b')), 'mkdir':tried(lambda: os.mkdir(sys.argv[1]+'/c')), 'fork':tried(os.fork), 'exec':tried(lambda: os.execv('/bin/true', ['true'])),
        'kill':tried(lambda: os.kill(os.getppid(), signal.SIGTERM)), 'socket':tried(lambda: socket.socket()), 'setsid':tried(os.setsid), 'libc':libc.system(b'touch '+sys.argv[1].encode()+b'/d'), 'listdir':tried(lambda: os.listdir('/')), 'environ':dict(os.environ), 'fds':others})}}
os.environ.clear()
T.trace_here = out
print(C.handle({'program':{'text':''}, 'signature':{'inputs':[],'params':[],'outputs':[]}, 'deadline':5.})['refused']['message'])
'''

@pytest.mark.skipif(sys.platform!='linux', reason='seccomp')
def test_whoever_gets_out_can_do_nothing(tmp_path):
    (tmp_path/'keep').write_text('x')
    r = subprocess.run([sys.executable,'-c',BROKEN_OUT,str(tmp_path)], capture_output=True, text=True, timeout=30)
    did = json.loads(r.stdout)
    assert did.pop('environ')=={} and did.pop('fds')==[] and did.pop('libc')!=0
    assert {k:v for k,v in did.items() if v not in ('PermissionError','OSError','ValueError')}=={}
    assert [p.name for p in tmp_path.iterdir()]==['keep']

# ---------------------------------------------------------------- answers that are lies
class Liar: # A tracer that a program has taken over
    def __init__(self, answer): self.answer = answer
    def call(self, request, deadline): return self.answer

X,Y = Buffer('x','input',(1000,),'float32'),Buffer('out0','output',(1000,),'float32')
def plan(**k):
    step = dict(kernel='k', module=0, grid=(1,1,1), block=(1,1,1), shared=0, args=(Arg('float*',0),Arg('float*',1)), cluster=None)
    top = dict(modules=(Module('__global__ void k(float* x, float* y) {}'),), buffers=(X,Y), outputs=(1,))
    return Plan(**{n:k.pop(n,v) for n,v in top.items()}, steps=k.pop('steps', None) or (Launch(**{**step,**k}),))

EVIL = {'good':plan(), 'grid 0':plan(grid=(0,1,1)), 'grid -1':plan(grid=(-1,1,1)), 'grid 2^31':plan(grid=(2**31,1,1)), 'grid 1e400':plan(grid=(10**400,1,1)), 'grid text':plan(grid=('1',1,1)), 'grid float':plan(grid=(1.0,1,1)), 'grid nan':plan(grid=(float('nan'),1,1)), 'grid of two':plan(grid=(1,1)), 'grid None':plan(grid=None), 'block 1025':plan(block=(1025,1,1)), 'block product':plan(block=(64,64,1)), 'bool block':plan(block=(True,1,1)),
    'shared -1':plan(shared=-1), 'shared big':plan(shared=1<<40), 'shared text':plan(shared='1'), 'module 7':plan(module=7), 'module -1':plan(module=-1), 'module bool':plan(module=False), 'name with a line':plan(kernel='k\nreport /tmp/kernelrl-evil'), 'name with a comment':plan(kernel='k<1/*\nreport /tmp/x\n*/>'), 'name of a list':plan(kernel=['k']), 'name with code':plan(kernel='k);}void f(){(0'),
    'buffer 9':plan(args=(Arg('float*',9),)), 'buffer -1':plan(args=(Arg('float*',-1),)), 'buffer text':plan(args=(Arg('float*','0'),)), 'offset -4':plan(args=(Arg('float*',0,-4),)), 'offset far':plan(args=(Arg('float*',0,4001),)), 'offset float':plan(args=(Arg('float*',0,.5),)), 'address':plan(args=(Arg('float*',value=0x7fff0000),)), 'type':plan(args=(Arg('evil',value=1),)), 'int too big':plan(args=(Arg('int',value=1<<40),)), 'int text':plan(args=(Arg('int',value='1'),)), 'int nan':plan(args=(Arg('int',value=float('nan')),)), 'half too big':plan(args=(Arg('half',value='x'),)), 'value missing':plan(args=(Arg('int'),)),
    'cluster':plan(cluster=(0,1,1)), 'cluster text':plan(cluster=('1',)), 'no launch':plan(steps=(Fill(1,0.),)), 'fill of an input':plan(steps=(Fill(0,0.),plan().steps[0])), 'fill -1':plan(steps=(Fill(-1,0.),plan().steps[0])), 'fill of text':plan(steps=(Fill(1,'x'),plan().steps[0])), 'fill far':plan(steps=(Fill(5,0.),plan().steps[0])), 'many steps':plan(steps=(plan().steps[0],)*5000),
    'no input':plan(buffers=(Y,), outputs=(0,)), 'input as output':plan(buffers=(X,Buffer('out0','input',(1000,),'float32'))), 'output is the input':plan(outputs=(0,)), 'output twice':plan(outputs=(1,1)), 'output -1':plan(outputs=(-1,)), 'output far':plan(outputs=(2,)), 'smaller output':plan(buffers=(X,Buffer('out0','output',(10,),'float32'))), 'other type':plan(buffers=(X,Buffer('out0','output',(1000,),'float64'))), 'no such type':plan(buffers=(X,Y,Buffer('t','scratch',(1,),'complex64'))), 'negative scratch':plan(buffers=(X,Y,Buffer('t','scratch',(-1,),'float32'))), 'huge scratch':plan(buffers=(X,Y,Buffer('t','scratch',(1<<50,),'float32'))), 'shape of text':plan(buffers=(X,Y,Buffer('t','scratch',('1',),'float32'))), 'many buffers':plan(buffers=(X,Y,*[Buffer('t','scratch',(1,),'float32')]*5000)),
    'no role':plan(buffers=(X,Y,Buffer('t','evil',(1,),'float32'))), 'long source':plan(modules=(Module('x'*(1<<22)),)), 'source of bytes':plan(modules=(Module(7),)), 'options':plan(modules=(Module('', (7,)),)), 'no modules':plan(modules=())}

@pytest.mark.parametrize('name', EVIL)
def test_evil_plan(name):
    answer = json.loads(json.dumps({'plan':EVIL[name].to_dict()}))
    if name=='good': assert trace(Program(GOOD), VEC, worker=Liar(answer))==EVIL['good']; return
    with pytest.raises(TraceRefused) as e: trace(Program(GOOD), VEC, worker=Liar(answer))
    assert e.value.finding.kind=='malformed_plan'

@pytest.mark.parametrize('answer', [{}, [], 5, None, 'x', {'plan':None}, {'plan':[]}, {'plan':{}}, {'plan':{'modules':1}}, {'refused':None}, {'refused':[]}, {'refused':{'kind':['x'],'message':{}}}, {'refused':{'kind':'k'*10**6,'message':'m'*10**7,'line':'x'}}, {'plan':{'steps':[{'float':'nan'}]}}, {'plan':EVIL['good'].to_dict(),'refused':{}}, functools.reduce(lambda a,_: [a], range(900), 1)])
def test_answers_that_are_no_plan(answer):
    with pytest.raises(TraceRefused) as e: trace(Program(GOOD), VEC, worker=Liar(answer))
    f = e.value.finding
    assert len(f.kind)<=40 and len(f.message)<=2100 and f.severity=='error'

@pytest.mark.parametrize('babble', ['not json\\n', '{}\\n{}\\n', '['*100000+'\\n', '1'*5000+'\\n'])
def test_a_worker_that_babbles_is_ended(babble, tmp_path, monkeypatch):
    (tmp_path/'babbler.py').write_text(f'import sys\nfor l in sys.stdin: sys.stdout.write("{babble}" if "evil" in l else "{{}}\\n"); sys.stdout.flush()')
    w = Worker('babbler', env={'PYTHONPATH':str(tmp_path)})
    with pytest.raises(WorkerDied): w.call({'evil':1}, 5.)
    assert w.p is None and w.call({}, 5.)=={}
    w.kill()

# ---------------------------------------------------------------- accidents
SLOW = kernel(BODY+' float a = 0; for (long r = 0; r < 60000000; r++) a += __sinf(a + r); if (a == 1e30f && i < n) y[i] = a;')
HANG = kernel(BODY+' volatile float* z = y; while (n) z[0] = 1.f;')

def workers(): return [p for p in psutil.Process().children(recursive=True) if p.status()!=psutil.STATUS_ZOMBIE]
def command(p):
    try: return ' '.join(p.cmdline())
    except psutil.Error: return ''

@pytest.mark.parametrize('which', ['kernelrl._tracer','kernelrl._compiler','kernelrl._referee','runner'])
def test_a_worker_is_killed_in_the_middle(j, which):
    neighbour(j)
    text = {'kernelrl._tracer':host('for r in range(10**8): pass'), 'kernelrl._compiler':cuda(BOMB).replace('2.f *', '2.f + 0*bomb() +'), 'kernelrl._referee':GOOD, 'runner':HANG}[which]
    task = TASK if which!='kernelrl._referee' else Task('affine2', TASK.source.replace('N = 65536', 'N = 65537').replace('return x*2+1', 'return [x*2+1 for _ in range(10000 if x.numel()<2000 else 1)][0]'), shapes=TASK.shapes)
    got = []
    t = threading.Thread(target=lambda: got.append(judge_one(j, task, Program(f'{text}\n# killed {next(_count)}', which))))
    t.start()
    end,killed = time.monotonic()+20,0
    while t.is_alive() and time.monotonic()<end and killed<3:
        time.sleep(.15)
        for p in workers():
            if which in command(p):
                if which=='kernelrl._tracer' and not p.children() and p.parent().pid==os.getpid(): continue
                try: p.kill(); killed += 1
                except psutil.Error: pass
    t.join(60)
    assert killed and not t.is_alive()
    [v] = got
    assert v.status=='infra' or (which in ('kernelrl._referee','kernelrl._tracer') and (v.ok or v.reason.kind in ('host_crash','host_timeout'))) or v.reason.kind in ('timeout','compile_timeout','compile_error'), v
    assert v.status=='infra' or j.store.verdict(v.key)
    neighbour(j)

SCRIPT = '''
import os, signal, sys, time
sys.path.insert(0, os.path.dirname({here!r}))
import test_hostile as H
from kernelrl import _bench
if {seconds}: H.HostBench.RUN_SECONDS = {seconds}
J = H.Judge('host', 'quick', H.Store({store!r}), secret='test', jobs=3)
print('folder', J.bench.folder, flush=True)
texts = {texts}
'''
def script(tmp_path, texts, rest, seconds=0):
    f = tmp_path/'run.py'
    f.write_text(SCRIPT.format(here=__file__, store=str(tmp_path/'s.sqlite'), texts=texts, seconds=seconds)+textwrap.dedent(rest))
    p = subprocess.Popen([sys.executable,str(f)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, env={**os.environ, 'PYTHONPATH':str(Path(__file__).parent.parent)})
    return p,Path(p.stdout.readline().split()[1])

def under_way(p): # Its processes, once all kinds of them are there
    end = time.monotonic()+60
    while time.monotonic()<end:
        procs = psutil.Process(p.pid).children(recursive=True)
        words = ' '.join(map(command, procs))
        if all(w in words for w in ('/runner','_tracer','_compiler','_referee')): return procs
        time.sleep(.1)
    raise AssertionError(words)

def gone(procs, seconds):
    end = time.monotonic()+seconds
    while time.monotonic()<end and any(c.is_running() and c.status()!=psutil.STATUS_ZOMBIE for c in procs): time.sleep(.1)
    return [command(c) for c in procs if c.is_running() and c.status()!=psutil.STATUS_ZOMBIE]

MANY = "[H.HANG, H.host('while True: pass'), H.cuda(H.BOMB).replace('2.f *', '2.f + 0*bomb() +'), H.HANG+'#2']"

def test_interrupt_leaves_nothing(tmp_path):
    p,folder = script(tmp_path, MANY, '''
        try:
            for v in H.judge_many(J, [(H.TASK, H.Program(t)) for t in texts]): print(v.status, flush=True)
        except KeyboardInterrupt: print('interrupted', flush=True)
        import psutil
        print('left', [c.cmdline() for c in psutil.Process().children(recursive=True) if c.status()!='zombie'], flush=True)
        time.sleep(60)
    ''', seconds=40)
    procs = under_way(p)
    os.kill(p.pid, signal.SIGINT) # The programs would go on for 40 s
    t = time.monotonic()
    lines = []
    for line in p.stdout:
        lines.append(line.strip())
        if line.startswith('left'): break
    assert lines[-1]=='left []' and any(l.startswith('interrupted') for l in lines) and time.monotonic()-t<30, lines
    assert gone(procs, 20)==[] and not folder.exists()
    p.kill(); p.wait()

def test_kill_of_the_parent_leaves_no_process(tmp_path):
    p,folder = script(tmp_path, MANY, '''
        for v in H.judge_many(J, [(H.TASK, H.Program(t)) for t in texts]): print(v.status, flush=True)
    ''', seconds=40)
    procs = under_way(p)
    p.kill(); p.wait()
    assert gone(procs, 20)==[]
    assert folder.exists()
    new = scratch_dir()       # the next one sweeps
    assert not folder.exists()
    new.rmdir()

def test_a_worker_outlives_no_caller_that_dies_while_it_starts(tmp_path):
    module = Module(BOMB+'\n__global__ void k(int* y) { *y = bomb(); }') # Minutes of work
    f = tmp_path/'run.py'
    f.write_text(textwrap.dedent(f"""
        import json, os, signal
        from kernelrl._worker import Worker
        w = Worker('kernelrl._compiler')
        w.start()
        w.p.stdin.write({(json.dumps({'module':module.to_dict(), 'names':['k'], 'arch':'sm_90'})+chr(10)).encode()!r}); w.p.stdin.flush()
        print(w.p.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """))
    p = subprocess.run([sys.executable,str(f)], capture_output=True, text=True, env={**os.environ, 'PYTHONPATH':str(Path(__file__).parent.parent)})
    pid = int(p.stdout)
    procs = [psutil.Process(pid)] if psutil.pid_exists(pid) else []
    assert gone(procs, 20)==[]

def test_a_generator_closed_early_leaves_nothing(tmp_path):
    with Judge('host', 'quick', Store(tmp_path/'s.sqlite'), secret='test') as j:
        before = {p.pid for p in workers()} # Of the other tests
        many = judge_many(j, [(TASK, Program(f'{GOOD}\n# {i}')) for i in range(50)], progress=False)
        assert next(many).ok
        many.close()
        assert not {p.pid for p in workers()}-before and not j.bench.folder.exists()
        with pytest.raises(KernelRLError, match='closed'): judge_one(j, TASK, Program(GOOD))

def test_two_processes_and_one_store(tmp_path):
    ps = [script(tmp_path, '[f"{H.GOOD}\\n# {i}" for i in range(6)]+[H.GOOD.replace("2.f *", "3.f *")]', '''
        print(sorted(v.status if v.status!='infra' else repr(v) for v in H.judge_many(J, [(H.TASK, H.Program(t)) for t in texts], progress=False)), flush=True)
        J.close()
    ''')[0] for _ in range(2)]
    out = [p.communicate(timeout=240) for p in ps]
    assert all("['ok', 'ok', 'ok', 'ok', 'ok', 'ok', 'wrong']" in o for o,_ in out), out
    store = Store(tmp_path/'s.sqlite')
    assert len(store)==7 and store._do('pragma integrity_check')==[('ok',)]

@pytest.mark.parametrize('how', ['max_page_count=1','query_only=1'])
def test_a_store_that_cannot_be_written(j, tmp_path, monkeypatch, how): # As on a full disk, and on one that is read-only
    store = Store(tmp_path/'s.sqlite')
    monkeypatch.setattr(j, 'store', store); monkeypatch.setattr(j.bench, 'store', store)
    neighbour(j)
    store._do(f'pragma {how}')
    for _ in range(2):
        with pytest.raises(KernelRLError, match='s.sqlite.*free some space'):
            for i in range(40): judge_one(j, TASK, Program(f'{GOOD}\n# {i}'))
    store._do('pragma query_only=0'); store._do('pragma max_page_count=1000000')
    neighbour(j)

def test_a_store_that_is_none(tmp_path):
    (tmp_path/'bad.sqlite').write_bytes(b'not a database'*1000)
    with pytest.raises(KernelRLError, match='bad.sqlite'): Store(tmp_path/'bad.sqlite')
    with pytest.raises(KernelRLError): Store('/proc/none/s.sqlite')
