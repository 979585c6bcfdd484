"load_inline programs: those that become Plans, and run right; those that must be refused, and why"
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import pytest
from kernelrl.core import Finding
from kernelrl.inline import Setting, inline_here, task_setting
from kernelrl.program import Plan, Program
from kernelrl.task import Signature, Spec, shipped_tasks
from kernelrl.trace import TraceRefused
sys.path.insert(0, str(Path(__file__).parent.parent/'benchmarks'))
import translate

PROGRAMS = {p.name:(p,t) for p,t in translate.programs()}

def test_there_are_enough():
    assert len(PROGRAMS)>=40 and len({t.name for _,t in PROGRAMS.values()})>=30

@pytest.mark.parametrize('name', PROGRAMS)
def test_translated_at_every_shape(name):
    program,task = PROGRAMS[name]
    for shape in range(len(task.shapes)): assert translate.translate(program, task, shape).launches

# Each is compiled by the machine's C++ compiler: a share of them here, all of them in benchmarks/translate.py
RUN = ['relu_scale_pybind','relu_scale_float4','softmax_switch','log_softmax_tuple','layer_norm_templated','rms_norm_bf16_dispatch','rms_norm_bf16_cast','bmm_f16_dispatch','gemm_bias_relu_wmma','conv2d_3x3_direct','argmax_bool_mask','max_all_scratch',
    'cross_entropy_labels','swiglu_scalar_t','histogram_shared','gather_rows_embedding','topk_heap','permute_0213_generic','permute_0213_view','group_norm_affine','causal_attention_flat','residual_rmsnorm_two_ops','norm_l2_function','softmax_ifdef']

def test_right_on_the_host_device():
    plans = {n:translate.translate(*PROGRAMS[n], 1) for n in RUN}
    with ThreadPoolExecutor(2) as pool: list(pool.map(lambda n: translate.compile_host(plans[n],'run'), RUN))
    assert not {n:w for n in RUN if (w := translate.difference(plans[n], PROGRAMS[n][1], 1))}

def test_a_wrong_kernel_is_seen():
    program,task = PROGRAMS['relu_scale_basic']
    wrong = Program(program.text.replace('x[idx] * scale + bias', 'x[idx] * scale - bias'))
    assert 'scale - bias' in wrong.text and translate.difference(translate.translate(wrong, task, 1), task, 1)

# ---------------------------------------------------------------- what is refused
HEAD = '''import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline
src = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cublas_v2.h>
__global__ void twice(const float* x, float* out, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) out[i] = 2 * x[i]; }
template <typename T> __global__ void typed(const T* x, T* out, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) out[i] = x[i]; }
struct Params { int n; };
__global__ void by_struct(const float* x, float* out, Params p) {}
torch::Tensor run(torch::Tensor x) {
    auto out = torch::empty_like(x);
    int n = x.numel();
    BODY
    return out;
}
"""
ext = load_inline(name="t", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=src, functions=["run"])
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 64)
        self.extra = nn.Parameter(torch.ones(64, 3))
    def forward(self, x):
        return FORWARD
'''
SIG = Signature((Spec('x',(100,64),'float32'),), (Spec('linear_weight',(64,64),'float32'), Spec('linear_bias',(64,),'float32')), (Spec('out0',(100,64),'float32'),))
LAUNCH = 'twice<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);'
BODY_LINE,FORWARD_LINE = 16,27

def answer(body=LAUNCH, forward='ext.run(x)', old='', new='', init='[]', sig=SIG):
    text = HEAD.replace('BODY', body).replace('FORWARD', forward)
    if old: assert old in text; text = text.replace(old, new)
    return inline_here(Program(text), sig, Setting(init))
def refused(*a, **k)->Finding: return Finding.from_dict(answer(*a, **k)['refused'])
def plan(*a, **k)->Plan: return Plan.from_dict(answer(*a, **k)['plan'])

def test_the_frame_of_these_tests(): assert plan().launches[0].args[2].value==6400

@pytest.mark.parametrize('body,kind,word', [
    ('out = at::matmul(x, x.t());', 'library_call', 'at::matmul'),
    ('out = torch::relu(x);', 'library_call', 'torch::relu'),
    ('out = x.softmax(-1);', 'library_call', 'Tensor::softmax'),
    ('out = x + x;', 'library_call', r'operator +'),
    ('out = x.t().contiguous();', 'library_call', 'contiguous'),
    ('out.copy_(x);', 'library_call', 'copy_'),
    ('cublasHandle_t h; cublasCreate(&h);', 'library_call', 'cublasHandle_t'),
    ('auto h = at::cuda::getCurrentCUDABlasHandle();', 'library_call', 'getCurrentCUDABlasHandle'),
    ('cudnnConvolutionForward(x);', 'library_call', 'cudnnConvolutionForward'),
    ('cublasSgemm(h, 0, 0);', 'library_call', 'cublasSgemm'),
    ('cub::DeviceReduce::Sum(nullptr, n);', 'library_call', 'cub::DeviceReduce::Sum'),
    ('thrust::sort(x);', 'library_call', 'thrust::sort'),
    ('cudaMemcpy(out.data_ptr(), x.data_ptr(), n * 4, cudaMemcpyDeviceToDevice);', 'library_call', 'cudaMemcpy'),
    ('float m = x.max().item<float>();', 'library_call', 'Tensor::max'),
    ('float m = x.item<float>();', 'reads_value', 'item'),
    ('const float* p = x.data_ptr<float>(); float s = 0; for (int i = 0; i < n; i++) s += p[i];', 'reads_value', 'device memory'),
    ('auto a = x.accessor<float, 2>();', 'inline_unreadable', 'accessor'),
    ('do_something(x);', 'inline_unreadable', 'do_something'),
    ('some_lib::Handle h;', 'inline_unreadable', 'some_lib::Handle'),
    ('static torch::Tensor cache = torch::empty_like(x); cache = out;', 'inline_unreadable', 'static'),
    ('long s = 0; for (int i = 0; i < 1000000000; i++) s += i;', 'inline_unreadable', 'too long'),
    ('goto end; end:', 'inline_unreadable', 'goto'),
    ('int blocks; twice<<<blocks, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);', 'inline_unreadable', 'blocks'),
    ('Params p; by_struct<<<1, 1>>>(x.data_ptr<float>(), out.data_ptr<float>(), p);', 'inline_unreadable', 'Params'),
    ('cudaStream_t s; cudaStreamCreate(&s);', 'stream', 'cudaStreamCreate'),
    ('int b; cudaOccupancyMaxActiveBlocksPerMultiprocessor(&b, twice, 256, 0);', 'device_query', 'cudaOccupancy'),
    ('TORCH_CHECK(x.dim() == 3, "x must be 3-D");', 'host_check', 'x must be 3-D'),
    ('if (x.size(0) % 32) throw std::runtime_error("rows must be a multiple of 32");', 'host_check', 'multiple of 32'),
    ('x.size(5);', 'host_check', 'out of range'),
    ('AT_DISPATCH_INTEGRAL_TYPES(x.scalar_type(), "f", [&] { typed<scalar_t><<<1, 1>>>(x.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), n); });', 'host_check', 'float32'),
    ('typed<<<1, 1>>>(x.data_ptr<float>(), out.data_ptr<double>(), n);', 'arg_dtype', 'float32'),
    ('auto o = torch::empty({n}, x.options().dtype(torch::kDouble)); typed<<<1, 1>>>(x.data_ptr<float>(), o.data_ptr<double>(), n);', 'compile_error', 'double and float'),
    ('auto o = torch::empty({n}, x.options().dtype(torch::kHalf)); twice<<<1, 1>>>(x.data_ptr<float>(), o.data_ptr<at::Half>(), n);', 'arg_type', 'reinterpret_cast'),
    ('auto o = torch::empty({n}, torch::kFloat32); twice<<<1, 1>>>(x.data_ptr<float>(), o.data_ptr<float>(), n);', 'host_data', 'on the CPU'),
    ('twice<<<1, 1>>>(x, out, n);', 'arg_type', 'data_ptr'),
    ('twice<<<1, 1>>>(x.data_ptr<float>(), out.data_ptr<float>());', 'arg_count', 'takes 3'),
    ('twice<<<1, 2048>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);', 'launch_config', '2048'),
    ('twice<<<0, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);', 'launch_config', '0'),
    ('twice<<<1, 1, 100000>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);', 'launch_config', 'cudaFuncSetAttribute'),
    ('int big = x.numel() * 1000000; ', 'arg_range', 'does not fit into int'),
    ('int b = std::min(n, x.size(0));', 'compile_error', 'int and long'),
    ('x.zero_(); '+LAUNCH, 'writes_input', 'is an input'),
    ('nosuch<<<1, 1>>>(n);', 'inline_unreadable', 'nosuch'),
    ('int z = n / (n - 6400);', 'host_check', 'divides by zero'),
    ('int q = 3', 'inline_unreadable', 'syntax'),
])
def test_refused_in_the_wrapper(body, kind, word):
    f = refused(body)
    assert f.kind==kind and word in f.message, f
    assert f.line==BODY_LINE or 'syntax' in f.message, f

@pytest.mark.parametrize('forward,kind,word', [
    ('F.softmax(ext.run(x), dim=-1)', 'library_call', 'F.softmax'),
    ('torch.matmul(x, self.linear.weight.t())', 'library_call', 'torch.matmul'),
    ('self.linear(x)', 'library_call', 'nn.Linear'),
    ('ext.run(x) + self.linear.bias', 'library_call', 'add'),
    ('ext.run(x) @ x', 'library_call', '@'),
    ('ext.run(x).relu_()', 'library_call', 'relu_'),
    ('torch.special.erf(x)', 'library_call', 'torch.special.erf'),
    ('ext.run(x.half())', 'library_call', 'float16'),
    ('ext.run(x.t().contiguous())', 'library_call', 'contiguous'),
    ('ext.run(x) if x.sum() > 0 else x', 'library_call', 'sum'),
    ('ext.run(x[0, 0].item())', 'reads_value', '.item()'),
    ('ext.run(torch.tensor([1.0, 2.0]))', 'host_data', 'uploads'),
    ('ext.run(self.extra)', 'host_data', 'extra'),
    ('ext.run(x, 1.0)', 'python_error', 'takes 1 arguments'),
    ('ext.run(2.0)', 'python_error', 'does not convert to Tensor'),
    ('ext.go(x)', 'python_error', 'go'),
    ('torch.ops.mine.run(x)', 'library_call', 'torch.ops.mine.run'),
    ('torch.compile(self.linear)(x)', 'library_call', 'torch.compile'),
    ('x', 'no_launch', 'no kernel'),
    ('ext.run(x)[:50]', 'output_shape', '[50, 64]'),
    ('(ext.run(x), ext.run(x))', 'output_count', '2 values'),
    ('ext._it', 'introspection', '_it'),
])
def test_refused_in_forward(forward, kind, word):
    f = refused(forward=forward)
    assert f.kind==kind and word in f.message, f
    if not kind.startswith(('no_','output','introspection')): assert f.line in (FORWARD_LINE,BODY_LINE), f

@pytest.mark.parametrize('old,new,kind,word', [
    ('functions=["run"]', 'functions=["walk"]', 'compile_error', 'walk'),
    ('cpp_sources="torch::Tensor run(torch::Tensor x);"', 'cpp_sources="int f();"', 'compile_error', 'not declared'),
    (', functions=["run"]', '', 'compile_error', 'nothing is bound'),
    ('functions=["run"]', 'functions=["run"], extra_cuda_cflags=["--mystery"]', 'option_refused', '--mystery'),
    ('functions=["run"]', 'functions=["run"], extra_include_paths=["/etc"]', 'file_access', 'headers'),
    ('import torch\n', 'import torch, subprocess\n', 'import_refused', 'subprocess'),
    ('import torch\n', 'import torch, os\nos.system("ls")\n', 'file_access', 'os.system'),
    ('class ModelNew', 'class Model', 'no_forward', 'ModelNew'),
    ('super().__init__()', 'pass', 'python_error', 'before Module.__init__'),
    ('def __init__(self)', 'def __init__(self, a)', 'python_error', 'missing 1'),
    ('load_inline(name', 'torch.utils.cpp_extension.load(name', 'file_access', 'reads files'),
    ('twice(const float* x', 'twice(const int* x', 'arg_type', 'float*'),
])
def test_refused_elsewhere(old, new, kind, word):
    f = refused(old=old, new=new)
    assert f.kind==kind and word in f.message, f

def test_arguments_that_nobody_knows():
    assert refused(old='def __init__(self)', new='def __init__(self, a)', init=None).kind=='inline_unreadable'

def test_a_refusal_cannot_be_caught():
    f = refused(old='        return ext.run(x)', new='        try: return torch.relu(x)\n        except Exception: return ext.run(x)')
    assert f.kind=='library_call'

# ---------------------------------------------------------------- what C++ and pybind11 do
def wrapper(body, sig=SIG): return plan(body+'\n'+LAUNCH, sig=sig)
def value(expression, ctype='long'):
    "A number as the wrapper computes it, seen as a launch argument"
    p = plan(old='__global__ void twice(const float* x, float* out, int n)', new=f'__global__ void show({ctype} v) {{}}\n__global__ void twice(const float* x, float* out, int n)', body=f'show<<<1, 1>>>({expression}); '+LAUNCH)
    return p.launches[0].args[0].value

@pytest.mark.parametrize('expression,ctype,want', [
    ('7 / 2', 'long', 3), ('-7 / 2', 'long', -3), ('-7 % 3', 'long', -1), ('7u - 8u', 'unsigned int', 2**32-1), ('7u - 8u', 'long', 2**32-1), ('1 << 10', 'long', 1024), ('~0', 'long', -1), ('0xffffffff', 'long', 2**32-1), ("1'000'000", 'long', 10**6),
    ('(int)3.9f', 'long', 3), ('static_cast<int>(-3.9)', 'long', -3), ('1 / 2.0f', 'float', .5), ('0.1f', 'double', 0.10000000149011612), ('0.1', 'double', .1), ('16777217', 'float', 16777216.), ('1e30f * 1e30f', 'double', float('inf')),
    ('sizeof(float4)', 'long', 16), ('sizeof(scalar)', 'long', 2), ('x.size(0) * x.size(-1)', 'long', 6400), ('x.sizes().size()', 'long', 2), ('x.stride(0)', 'long', 64), ('x.view({-1}).size(0)', 'long', 6400), ('n > 3 ? 1 : 2', 'long', 1), ('n > 3 ? 1 : 2.5', 'double', 1.),
    ('!n', 'bool', False), ('std::ceil(n / 7.0)', 'long', 915), ('std::max<int64_t>(n, 1LL << 40)', 'long', 1<<40), ('std::max({1, 5, 3})', 'long', 5), ('at::ceil_div(n, 7)', 'long', 915), ('int64_t(n) * n * n', 'long', 6400**3), ('[](int a) { return a * a; }(5)', 'long', 25),
    ('std::numeric_limits<float>::max()', 'double', 3.4028234663852886e38), ('std::accumulate(x.sizes().begin(), x.sizes().end(), int64_t{1}, std::multiplies<int64_t>())', 'long', 6400), ('__builtin', 'long', None), ('true + true', 'long', 2), ("'a'", 'long', 97), ('n & (n - 1)', 'long', 6144), ('x.scalar_type() == at::kFloat', 'bool', True),
    ('x.options().dtype(at::kHalf).dtype() == torch::kFloat16', 'bool', True), ('std::get<1>(std::make_tuple(1, 2))', 'long', 2), ('x.dim() == 2 && x.is_contiguous() && !x.t().is_contiguous()', 'bool', True), ('x.nbytes()', 'long', 25600), ('powf(2.0f, 10)', 'long', 1024), ('std::pow(2, 0.5)', 'double', 2**.5), ('ROUND(n, 1024)', 'long', 7168),
])
def test_numbers(expression, ctype, want):
    if want is None:
        with pytest.raises(KeyError): value(expression, ctype)
        return
    p = answer(old='__global__ void twice(const float* x, float* out, int n)', new=f'#define ROUND(a, b) (((a) + (b) - 1) / (b) * (b))\nusing scalar = __half;\n__global__ void show({ctype} v) {{}}\n__global__ void twice(const float* x, float* out, int n)', body=f'show<<<1, 1>>>({expression}); '+LAUNCH)
    assert Plan.from_dict(p['plan']).launches[0].args[0].value==want if 'plan' in p else p

def test_lambdas_capture_as_they_say():
    p = wrapper('int a = 1; auto by_value = [=]() { return a; }; auto by_ref = [&]() { return a; }; a = 2; if (by_value() != 1 || by_ref() != 2) throw 1;')
    assert p.launches

def test_references_and_loops():
    wrapper('auto add = [](std::vector<int64_t>& v, int k) { v.push_back(k); }; std::vector<int64_t> v; for (int i = 0; i < 5; ++i) { if (i == 1) continue; if (i == 4) break; add(v, i); } TORCH_CHECK(v.size() == 3 && v.back() == 3); int i = 0; do { i++; } while (i < 3); TORCH_CHECK(i == 3);')

K = '__global__ void twice(const float* x, float* out, int n)'
def with_code(code, body): return answer(old=K, new=code+'\n'+K, body=body+' '+LAUNCH)

@pytest.mark.parametrize('code,body', [ # Each would give a wrong number if it were read carelessly
    ('namespace a { constexpr int N = 4; } namespace b { constexpr int N = 8; }', 'TORCH_CHECK(a::N == 4 && b::N == 8);'),
    ('enum class A { X, Y }; enum class B { X = 5, Y };', 'TORCH_CHECK(int(A::X) == 0 && int(B::Y) == 6);'),
    ('', 'std::vector<int64_t> v = {1}; const auto& r = v; v.push_back(2); TORCH_CHECK(r.size() == 2);'),
    ('', 'std::vector<int64_t> v = {1}; auto f = [v]() { return v.size(); }; v.push_back(2); TORCH_CHECK(f() == 1);'),
    ('', 'std::vector<int64_t> v = {1, 2}, w = v; for (auto& s : v) s *= 3; TORCH_CHECK(v[1] == 6 && w[1] == 2);'),
    ('static int f(int a, int& b) { b = 7; a = 9; return a; }', 'int a = 1, b = 2; f(a, b); TORCH_CHECK(a == 1 && b == 7);'),
    ('#define SQ(a) a * a', 'TORCH_CHECK(SQ(1 + 2) == 5);'),
    ('#define A 1\n#define B A\n#undef A\n#define A 2', 'TORCH_CHECK(B == 2);'),
    ('#if defined(__CUDACC__) && !defined(NOT_THERE) && (3 / 2 == 1)\nconstexpr int yes = 1;\n#else\nconstexpr int yes = 0;\n#endif', 'TORCH_CHECK(yes);'),
    ('template <typename T, int N = 3> int size_of() { return sizeof(T) * N; }', 'TORCH_CHECK(size_of<double>() == 24 && size_of<float, 2>() == 8);'),
    ('', 'int i = 5; int j = i++; int k = ++i; TORCH_CHECK(i == 7 && j == 5 && k == 7);'),
    ('', 'int k = 0; switch (n) { case 6400: k += 1; case 2: k += 10; break; default: k += 100; } TORCH_CHECK(k == 11);'),
    ('', 'unsigned a = 1; int b = -1; TORCH_CHECK(!(b < a)); TORCH_CHECK(int64_t(b) < int64_t(a));'),
    ('', 'float third = 1.0f / 3; TORCH_CHECK(third != 1.0 / 3 && third == 1.0f / 3.0f);'),
    ('', 'dim3 g(2, 3); auto h = g; h.x = 9; TORCH_CHECK(g.x == 2 && g.z == 1 && h.x == 9);'),
    ('', 'std::vector<int64_t> s = x.sizes().vec(); s.insert(s.begin(), 5); std::swap(s[0], s[1]); TORCH_CHECK(s[0] == 100 && s[1] == 5);'),
    ('', 'std::optional<torch::Tensor> o; TORCH_CHECK(!o.has_value()); o = x; TORCH_CHECK(o.has_value() && o->dim() == 2 && (*o).size(1) == 64);'),
    ('', 'auto [a, b] = std::make_tuple(x.size(0), x.size(1)); TORCH_CHECK(a == 100 && b == 64);'),
    ('', 'auto p = x.permute({1, 0}); TORCH_CHECK(p.size(0) == 64 && p.stride(0) == 1 && p.transpose(0, 1).is_contiguous());'),
])
def test_read_as_cpp_means_it(code, body):
    a = with_code(code, body)
    assert 'plan' in a, a

@pytest.mark.parametrize('code,body,kind', [
    ('namespace a { __global__ void k(int n) {} } namespace b { __global__ void k(int n) {} }', 'a::k<<<1, 1>>>(n);', 'inline_unreadable'),
    ('namespace a { constexpr int N = 4; } namespace b { constexpr int N = 8; }', 'int k = N;', 'inline_unreadable'),
    ('int f(int a) { return 1; } int f(long a) { return 2; }', 'int k = f(3);', 'inline_unreadable'),
    ('static std::vector<int64_t> seen;', 'seen.push_back(1);', 'inline_unreadable'),
    ('static int calls = 0;', 'calls += 1;', 'inline_unreadable'),
    ('template <int N> __global__ void k(int n) {}', 'cudaFuncSetAttribute(k<1>, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536); k<2><<<1, 1, 65536>>>(n);', 'launch_config'),
    ('#if CUDART_VERSION > 12000\n#endif', '', 'inline_unreadable'),
    ('template <typename T> __global__ void k(T a, T b) {}', 'k<<<1, 1>>>(n, 1.0f);', 'compile_error'),
    ('struct Cfg { static constexpr int N = 4; };', 'int k = Cfg::N;', 'inline_unreadable'),
])
def test_refused_rather_than_guessed(code, body, kind):
    a = with_code(code, body)
    assert 'refused' in a and a['refused']['kind']==kind, a

def test_the_live_branch_gives_the_parameter_list():
    p = Plan.from_dict(with_code('#ifdef NOPE\n__global__ void k(double a) {}\n#else\n__global__ void k(float a) {}\n#endif', 'k<<<1, 1>>>(n);')['plan'])
    assert p.launches[0].args[0].ctype=='float'

def test_more_ways_to_launch():
    p = Plan.from_dict(with_code('typedef float real;\n#define KERNEL(name) __global__ void name(real a, unsigned b)\nextern "C" __global__ void plain(const real* a, size_t b) {}',
        'const float* px = x.data_ptr<float>(); size_t b = 3; void* args[] = {&px, &b}; cudaLaunchKernel((void*)plain, dim3(1), dim3(32), args, 0, 0); float* tmp; cudaMalloc(&tmp, n * sizeof(float)); twice<<<1, 1>>>(x.data_ptr<float>(), tmp, n); cudaFree(tmp);')['plan'])
    assert [(l.kernel,[a.ctype for a in l.args]) for l in p.launches[:2]]==[('plain',['float*','unsigned long']), ('twice',['float*','float*','int'])]

def test_views_are_offsets():
    p = plan('auto y = x.narrow(0, 10, 5).select(1, 3); twice<<<1, 5>>>(y.data_ptr<float>(), out.data_ptr<float>(), 5); '+LAUNCH)
    assert p.launches[0].args[0].offset==(10*64+3)*4
    assert plan('twice<<<1, 5>>>(x.data_ptr<float>() + 64, out.data_ptr<float>(), 5); '+LAUNCH).launches[0].args[0].offset==256

def test_fills_come_before_the_launch():
    p = plan('auto t = torch::full({3}, 1.5, x.options()); twice<<<1, 3>>>(t.data_ptr<float>(), out.data_ptr<float>(), 3);')
    assert [type(s).__name__ for s in p.steps]==['Fill','Launch'] and p.steps[0].value==1.5

def test_names_of_kernels():
    p = plan('typed<<<1, 3>>>(x.data_ptr<float>(), out.data_ptr<float>(), 3); AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "f", ([&] { auto k = typed<scalar_t>; k<<<1, 1>>>(x.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), n); }));')
    assert [l.kernel for l in p.launches]==['typed<float>']*2

def test_the_device_source_keeps_its_lines():
    source = plan().modules[0].source
    lines = source.split('#line 1 "kernel.cu"\n')[-1].split('\n')
    assert 'void twice' in lines[4] and not [l for l in lines if 'torch' in l or '<<<' in l]

def test_constants_follow_the_shape():
    task = shipped_tasks(['layer_norm'])[0]
    assert task_setting(task, 1).constants=={'N':(8192,37), 'D':(2048,129)} and task_setting(task, 1).init=='[]'

def test_a_cupy_program_is_not_ours():
    sig = Signature((Spec('x',(4,),'float32'),), (), (Spec('o',(4,),'float32'),))
    with pytest.raises(TraceRefused): translate.trace(Program('from torch.utils.cpp_extension import load_inline\nload_inline()\n'), sig)
