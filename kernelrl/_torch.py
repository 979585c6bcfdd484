"""The Python side of a `load_inline` program: a stand-in for `torch` in which modules hold named parameters and nothing computes.

Factories and views work, as far as shapes go. Every other function of PyTorch may be named, passed around and stored; calling it is refused by its name.
"""
import ast, itertools, math
from typing import Any
from kernelrl import _tensors as X
from kernelrl._tensors import DT, DTYPES, Device, Parameter, Phase, Size, Storage, Tensor
from kernelrl.trace import _T, Namespace

class Named:
    "Something of PyTorch's that has a name here and nothing else"
    def __init__(self, path:str): self._path = path
    def __getattr__(self, name):
        if name.startswith('_'): raise AttributeError(name)
        return Named(f'{self._path}.{name}')
    def __repr__(self): return f'<{self._path}>'
    def __call__(self, *a, **k):
        if Phase.name!='forward': _T.rec.refuse('inline_unreadable', f'{self._path} before forward is not read')
        _T.rec.refuse('library_call', f'{self._path} does the work; write it as a CUDA kernel')

class Space(Namespace):
    "A module of the stand-in; other names are only names"
    def __getattr__(self, name):
        if name.startswith('_'): raise AttributeError(name)
        return Named(f'{self._name}.{name}')

class Settings:
    "torch.backends and the like: they may be set, which has no effect"
    def __getattr__(self, name):
        if name.startswith('__'): raise AttributeError(name)
        s = Settings()
        object.__setattr__(self, name, s)
        return s
    def __call__(self, *a, **k): return self

class Context:
    "torch.no_grad() and the like: as a context and as a decorator"
    def __init__(self, *a, **k): pass
    def __enter__(self): return self
    def __exit__(self, *e): return False
    def __call__(self, f): return f

# ------------------------------------------------------------------ functions
def _new(fill=None):
    def f(*size, dtype=None, device=None, requires_grad=False, memory_format=None, layout=None, pin_memory=False, out=None, size_=None):
        return X.make(X.ints(size), dtype or DTYPES['float32'], Device(device if device is not None else 'cpu'), fill)
    return f
def _like(fill=None):
    def f(x, dtype=None, device=None, memory_format=None, requires_grad=False, layout=None):
        return X.make(tuple(x.shape), dtype or x.dtype, Device(device) if device is not None else x.device, fill)
    return f
def _full(size, fill_value, dtype=None, device=None, requires_grad=False):
    if isinstance(fill_value, Tensor): _T.rec.refuse('library_call', 'torch.full with a tensor; write it as a CUDA kernel')
    d = dtype or DTYPES['bool' if isinstance(fill_value, bool) else 'int64' if isinstance(fill_value, int) else 'float32']
    return X.make(X.ints((size,)), d, Device(device if device is not None else 'cpu'), fill_value)
def _full_like(x, fill_value, dtype=None, device=None): return X.make(tuple(x.shape), dtype or x.dtype, x.device, fill_value)
def _drawn(*size, dtype=None, device=None, requires_grad=False, generator=None): return X.drawn(X.ints(size), dtype, device)
def _tensor(data, dtype=None, device=None, requires_grad=False):
    if Phase.name=='forward': _T.rec.refuse('host_data', 'uploads data from Python in forward; constants belong into the kernel')
    shape,d = [],data
    while isinstance(d, (list,tuple)): shape.append(len(d)); d = d[0] if d else 0.
    return X.drawn(shape, dtype or DTYPES['bool' if isinstance(d, bool) else 'int64' if isinstance(d, int) else 'float32'], device)
def _arange(*a, dtype=None, device=None, start=0, end=None, step=1, requires_grad=False):
    r = list(a) or [start, end, step]
    lo,hi,st = (0,r[0],1) if len(r)==1 else (r[0],r[1],r[2] if len(r)>2 else 1)
    return X.drawn((max(0, math.ceil((hi-lo)/st)),), dtype or DTYPES['int64' if all(isinstance(v, int) for v in r) else 'float32'], device)
def _view(name): return lambda x, *a, **k: getattr(x, name)(*a, **k)

# ------------------------------------------------------------------ nn
class Module:
    "torch.nn.Module: attributes, parameters in order, children"
    def __init__(self, *a, **k): object.__setattr__(self, '_names', []); object.__setattr__(self, 'training', True)
    def __setattr__(self, name, value):
        if isinstance(value, (Parameter,Module)) :
            if '_names' not in vars(self): raise AttributeError('cannot assign parameters or modules before Module.__init__() call')
            if name not in self._names: self._names.append(name)
        object.__setattr__(self, name, value)
    def __call__(self, *a, **k): return self.forward(*a, **k)
    def forward(self, *a, **k): raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')
    def register_parameter(self, name, param): setattr(self, name, param)
    def register_buffer(self, name, tensor, persistent=True):
        if tensor is not None and name not in self._names: self._names.append(name)
        object.__setattr__(self, name, tensor)
    def add_module(self, name, module): setattr(self, str(name), module)
    register_module = add_module
    def _entries(self, prefix=''):
        "(name, tensor) of all parameters and buffers"
        own = [(n, getattr(self, n)) for n in self._names]
        yield from ((prefix+n, t) for n,t in own if isinstance(t, Tensor))
        for n,m in own:
            if isinstance(m, Module): yield from m._entries(f'{prefix}{n}.')
    def named_parameters(self, prefix='', recurse=True): return ((n,t) for n,t in self._entries() if isinstance(t, Parameter))
    def parameters(self, recurse=True): return (t for _,t in self.named_parameters())
    def named_buffers(self): return ((n,t) for n,t in self._entries() if not isinstance(t, Parameter))
    def buffers(self): return (t for _,t in self.named_buffers())
    def state_dict(self): return dict(self._entries())
    def children(self): return (getattr(self, n) for n in self._names if isinstance(getattr(self, n), Module))
    def named_children(self): return ((n,getattr(self, n)) for n in self._names if isinstance(getattr(self, n), Module))
    def modules(self): return itertools.chain([self], *(m.modules() for m in self.children()))
    def apply(self, fn):
        for m in self.modules(): fn(m)
        return self
    def train(self, mode=True):
        for m in self.modules(): object.__setattr__(m, 'training', mode)
        return self
    def eval(self): return self.train(False)
    def _cast(self, dtype):
        for _,t in self._entries():
            if t.dtype.is_floating_point: t.dtype = dtype
        return self
    def to(self, *a, dtype=None, device=None, **k):
        d = next((v for v in (*a,dtype) if isinstance(v, DT)), None)
        return self._cast(d) if d else self
    def half(self): return self._cast(DTYPES['float16'])
    def bfloat16(self): return self._cast(DTYPES['bfloat16'])
    def float(self): return self._cast(DTYPES['float32'])
    def double(self): return self._cast(DTYPES['float64'])
    def cuda(self, device=None): return self
    def requires_grad_(self, *a): return self
    def zero_grad(self, *a, **k): pass
    def reset_parameters(self): pass
    def extra_repr(self): return ''
    def load_state_dict(self, *a, **k): _T.rec.refuse('host_data', 'load_state_dict in a program; weights come from the task')

def _param(shape, dtype=None): return Parameter(Tensor(Storage(why='a parameter'), shape, dtype or DTYPES['float32'], device=Device('cpu')))
def _many(v, n): return tuple(v) if isinstance(v, (tuple,list)) else (v,)*n

class Work(Module):
    "A module of PyTorch's that computes: it holds parameters, calling it is refused"
    def forward(self, *a, **k): _T.rec.refuse('library_call', f'nn.{type(self).__name__} does the work; use its weight in a CUDA kernel')

class Linear(Work):
    def __init__(self, in_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        self.in_features,self.out_features = in_features,out_features
        self.weight = _param((out_features,in_features), dtype)
        self.bias = _param((out_features,), dtype) if bias else None

class Embedding(Work):
    def __init__(self, num_embeddings, embedding_dim, padding_idx=None, max_norm=None, norm_type=2., scale_grad_by_freq=False, sparse=False, _weight=None, device=None, dtype=None):
        super().__init__()
        self.num_embeddings,self.embedding_dim,self.padding_idx = num_embeddings,embedding_dim,padding_idx
        self.weight = _param((num_embeddings,embedding_dim), dtype)

def _conv(n:int, transposed:bool):
    class Conv(Work):
        def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, *more, dilation=1, groups=1, bias=True, output_padding=0, padding_mode='zeros', device=None, dtype=None):
            super().__init__()
            names = ('output_padding','groups','bias','dilation') if transposed else ('dilation','groups','bias','padding_mode')
            given = {'dilation':dilation,'groups':groups,'bias':bias,'output_padding':output_padding,'padding_mode':padding_mode,**dict(zip(names, more))}
            self.in_channels,self.out_channels,self.groups,self.padding_mode = in_channels,out_channels,given['groups'],given['padding_mode']
            self.kernel_size,self.stride,self.dilation,self.output_padding = (_many(v, n) for v in (kernel_size,stride,given['dilation'],given['output_padding']))
            self.padding = padding if isinstance(padding, str) else _many(padding, n)
            a,b = (in_channels,out_channels) if transposed else (out_channels,in_channels)
            self.weight = _param((a, b//self.groups, *self.kernel_size), dtype)
            self.bias = _param((out_channels,), dtype) if given['bias'] else None
    Conv.__name__ = Conv.__qualname__ = f'Conv{"Transpose" if transposed else ""}{n}d'
    return Conv

class LayerNorm(Work):
    def __init__(self, normalized_shape, eps=1e-5, elementwise_affine=True, bias=True, device=None, dtype=None):
        super().__init__()
        self.normalized_shape,self.eps,self.elementwise_affine = _many(normalized_shape, 1),eps,elementwise_affine
        self.weight = _param(self.normalized_shape, dtype) if elementwise_affine else None
        self.bias = _param(self.normalized_shape, dtype) if elementwise_affine and bias else None

class RMSNorm(Work):
    def __init__(self, normalized_shape, eps=None, elementwise_affine=True, device=None, dtype=None):
        super().__init__()
        self.normalized_shape,self.eps,self.elementwise_affine = _many(normalized_shape, 1),eps,elementwise_affine
        self.weight = _param(self.normalized_shape, dtype) if elementwise_affine else None

class GroupNorm(Work):
    def __init__(self, num_groups, num_channels, eps=1e-5, affine=True, device=None, dtype=None):
        super().__init__()
        self.num_groups,self.num_channels,self.eps,self.affine = num_groups,num_channels,eps,affine
        self.weight,self.bias = (_param((num_channels,), dtype) if affine else None for _ in range(2))

def _batch_norm(name:str, affine_:bool, track:bool):
    class Norm(Work):
        def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=affine_, track_running_stats=track, device=None, dtype=None):
            super().__init__()
            self.num_features,self.eps,self.momentum,self.affine,self.track_running_stats = num_features,eps,momentum,affine,track_running_stats
            self.weight,self.bias = (_param((num_features,), dtype) if affine else None for _ in range(2))
            for k,shape,d in (('running_mean',(num_features,),'float32'),('running_var',(num_features,),'float32'),('num_batches_tracked',(),'int64')):
                self.register_buffer(k, Tensor(Storage(why='a buffer that the task does not have'), shape, DTYPES[d], device=Device('cpu')) if track_running_stats else None)
    Norm.__name__ = Norm.__qualname__ = name
    return Norm

class PReLU(Work):
    def __init__(self, num_parameters=1, init=0.25, device=None, dtype=None):
        super().__init__()
        self.num_parameters,self.weight = num_parameters,_param((num_parameters,), dtype)

_PLAIN = '''ReLU inplace=False|ReLU6 inplace=False|LeakyReLU negative_slope=0.01 inplace=False|ELU alpha=1.0 inplace=False|SELU inplace=False|CELU alpha=1.0|GELU approximate='none'|SiLU inplace=False|Mish inplace=False|Sigmoid|Tanh|Softplus beta=1.0 threshold=20.0|Softsign|Hardtanh min_val=-1.0 max_val=1.0 inplace=False|
Hardswish inplace=False|Hardsigmoid inplace=False|Softmax dim=None|LogSoftmax dim=None|MaxPool1d kernel_size stride=None padding=0 dilation=1 return_indices=False ceil_mode=False|MaxPool2d kernel_size stride=None padding=0 dilation=1 return_indices=False ceil_mode=False|MaxPool3d kernel_size stride=None padding=0 dilation=1 return_indices=False ceil_mode=False|
AvgPool1d kernel_size stride=None padding=0 ceil_mode=False count_include_pad=True|AvgPool2d kernel_size stride=None padding=0 ceil_mode=False count_include_pad=True|AvgPool3d kernel_size stride=None padding=0 ceil_mode=False count_include_pad=True|AdaptiveAvgPool1d output_size|AdaptiveAvgPool2d output_size|AdaptiveAvgPool3d output_size|
MSELoss reduction='mean'|L1Loss reduction='mean'|CrossEntropyLoss weight=None ignore_index=-100 reduction='mean' label_smoothing=0.0|KLDivLoss reduction='mean' log_target=False|SmoothL1Loss reduction='mean' beta=1.0|HuberLoss reduction='mean' delta=1.0|HingeEmbeddingLoss margin=1.0 reduction='mean'|TripletMarginLoss margin=1.0 p=2.0 eps=1e-06 swap=False reduction='mean'|CosineSimilarity dim=1 eps=1e-08|BCELoss reduction='mean'|NLLLoss reduction='mean'|Upsample size=None scale_factor=None mode='nearest' align_corners=None'''

def _plain(spec:str):
    "A module without parameters, from its name and the names and defaults of its arguments"
    name,*args = spec.split()
    names = [a.partition('=')[0] for a in args]
    defaults = {k:ast.literal_eval(v) for k,_,v in (a.partition('=') for a in args) if v}
    class Plain(Work):
        def __init__(self, *a, **k):
            super().__init__()
            for key,value in {**defaults, **dict(zip(names, a)), **k}.items(): setattr(self, key, value)
            if name.endswith('d') and 'Pool' in name and getattr(self, 'stride', 0) is None: self.stride = self.kernel_size
    Plain.__name__ = Plain.__qualname__ = name
    return name,Plain

class Identity(Module):
    def forward(self, x): return x
class Flatten(Module):
    def __init__(self, start_dim=1, end_dim=-1): super().__init__(); self.start_dim,self.end_dim = start_dim,end_dim
    def forward(self, x): return x.flatten(self.start_dim, self.end_dim)
class Dropout(Module):
    def __init__(self, p=0.5, inplace=False): super().__init__(); self.p = p
    def forward(self, x):
        if self.p and self.training: _T.rec.refuse('library_call', 'nn.Dropout draws random numbers; a right answer cannot depend on them')
        return x
class Sequential(Module):
    def __init__(self, *modules):
        super().__init__()
        for i,m in enumerate(modules): setattr(self, str(i), m)
    def __iter__(self): return self.children()
    def __len__(self): return len(self._names)
    def __getitem__(self, i): return list(self.children())[i]
    def forward(self, x):
        for m in self: x = m(x)
        return x
class ModuleList(Sequential):
    def __init__(self, modules=()): super().__init__(*modules)
    def append(self, m): setattr(self, str(len(self)), m); return self
    forward = Module.forward
class ModuleDict(Module):
    def __init__(self, modules=None):
        super().__init__()
        for k,m in (modules or {}).items(): setattr(self, k, m)
    def __getitem__(self, k): return getattr(self, k)
    def items(self): return self.named_children()
class ParameterList(Module):
    def __init__(self, values=()):
        super().__init__()
        for i,p in enumerate(values): setattr(self, str(i), p)
    def __getitem__(self, i): return getattr(self, str(i))
    def __len__(self): return len(self._names)

class Function:
    "torch.autograd.Function: apply runs forward"
    @classmethod
    def apply(cls, *a): return cls.forward(Function._Ctx(), *a) # type: ignore[attr-defined]
    class _Ctx:
        def save_for_backward(self, *a): pass
        def mark_non_differentiable(self, *a): pass
        def set_materialize_grads(self, *a): pass

# ------------------------------------------------------------------ torch itself
class _NoOp(Space):
    "nn.init: parameters have the task's values"
    def __getattr__(self, name):
        if name.startswith('_'): raise AttributeError(name)
        return lambda t=None, *a, **k: (math.sqrt(2.) if name=='calculate_gain' else (1,1) if 'fan' in name else t)

def torch_stand_in(load_inline:Any)->Space: # Everything a program may use of torch
    "The module `torch` of one trace"
    def refuse(kind, what): return lambda *a, **k: _T.rec.refuse(kind, what)
    conv = {c.__name__:c for t in (False,True) for n in (1,2,3) for c in [_conv(n,t)]}
    norms = {f'{k}Norm{n}d':_batch_norm(f'{k}Norm{n}d', k=='Batch', k=='Batch') for k in ('Batch','Instance') for n in (1,2,3)}
    plain = dict(_plain(s.strip()) for s in _PLAIN.split('|') if s.strip())
    functional = Space(_name='F')
    nn = Space(_name='nn', Module=Module, Parameter=Parameter, Linear=Linear, Embedding=Embedding, LayerNorm=LayerNorm, RMSNorm=RMSNorm, GroupNorm=GroupNorm, PReLU=PReLU, Identity=Identity, Flatten=Flatten, Dropout=Dropout, Dropout1d=Dropout, Dropout2d=Dropout,
        Sequential=Sequential, ModuleList=ModuleList, ModuleDict=ModuleDict, ParameterList=ParameterList, Buffer=lambda t, persistent=True: t, functional=functional, init=_NoOp(_name='nn.init'), **conv, **norms, **plain)
    nn.modules = nn
    ext = Space(_name='cpp_extension', load_inline=load_inline, load=refuse('file_access', 'cpp_extension.load reads files; give the sources to load_inline'), CUDA_HOME='', is_ninja_available=lambda: True)
    sync = lambda *a: _T.rec.note('no_op', 'synchronising has no effect in a trace')
    cuda = Space(_name='torch.cuda', is_available=lambda: True, device_count=lambda: 1, current_device=lambda: 0, synchronize=sync, empty_cache=lambda: None, get_device_capability=lambda *a: (9,0), get_device_name=lambda *a: 'NVIDIA H200', manual_seed=lambda *a: None, manual_seed_all=lambda *a: None, set_device=lambda *a: None, device=Context,
        Stream=refuse('stream', 'makes a stream of its own; the judge owns the stream'), Event=refuse('stream', 'makes an event; the judge owns the clock'), stream=refuse('stream', 'runs on a stream of its own; the judge owns the stream'), CUDAGraph=refuse('stream', 'makes a CUDA graph; the judge replays the launches'))
    create = {'empty':_new(), 'zeros':_new(0), 'ones':_new(1), 'full':_full, 'empty_like':_like(), 'zeros_like':_like(0), 'ones_like':_like(1), 'full_like':_full_like, 'rand':_drawn, 'randn':_drawn, 'tensor':_tensor, 'as_tensor':_tensor, 'arange':_arange,
        'randint':lambda lo, hi=None, size=None, **k: X.drawn(size if size is not None else hi, k.get('dtype') or DTYPES['int64'], k.get('device')), 'randperm':lambda n, **k: X.drawn((n,), DTYPES['int64']), 'linspace':lambda a, b, steps, **k: X.drawn((steps,), k.get('dtype')), 'eye':lambda n, m=None, **k: X.drawn((n,m or n), k.get('dtype')),
        'randn_like':lambda x, **k: X.drawn(x.shape, x.dtype, x.device), 'rand_like':lambda x, **k: X.drawn(x.shape, x.dtype, x.device)}
    views = {n:_view(n) for n in ('reshape','squeeze','unsqueeze','flatten','transpose','permute','t','chunk','split','unbind','narrow','select','swapaxes','numel','is_floating_point')}
    off = {n:Context for n in ('no_grad','enable_grad','inference_mode','set_grad_enabled')}
    none = lambda *a, **k: None
    torch = Space(_name='torch', Tensor=Tensor, Size=Size, device=Device, dtype=DT, nn=nn, cuda=cuda, backends=Settings(), manual_seed=none, seed=none, set_float32_matmul_precision=none, use_deterministic_algorithms=none, is_tensor=lambda x: isinstance(x, Tensor),
        autograd=Space(_name='torch.autograd', Function=Function, function=Space(_name='torch.autograd.function', Function=Function)), utils=Space(_name='torch.utils', cpp_extension=ext), contiguous_format='contiguous_format', preserve_format='contiguous_format', strided='strided', pi=math.pi, inf=math.inf, nan=math.nan, e=math.e,
        FloatTensor=Tensor, HalfTensor=Tensor, LongTensor=Tensor, IntTensor=Tensor, **X.BY_NAME, **create, **views, **off)
    return torch
