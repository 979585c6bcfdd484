"""Tensors without values, as PyTorch spells them: what the two interpreters of page `inline` (one for a program's Python, one for its C++ wrapper) share.

A tensor is a view of a storage. A storage is a buffer of the Plan, or it is not on the GPU and says why. Views are made freely; whatever would read a value or
launch a kernel of PyTorch's own is refused by its name.
"""
import math
from typing import Any
from kernelrl.program import DTYPE_BYTES, Fill
from kernelrl.trace import _T, Array, Dtype

class DT:
    "A dtype of PyTorch"
    def __init__(self, name:str): self.name,self.itemsize,self.is_floating_point,self.is_complex = name,DTYPE_BYTES[name],'float' in name,False
    def __eq__(self, o): return isinstance(o, DT) and o.name==self.name
    def __hash__(self): return hash(self.name)
    def __repr__(self): return f'torch.{self.name}'

DTYPES = {n:DT(n) for n in DTYPE_BYTES}
TORCH_NAMES = {'float32':'float32 float', 'float64':'float64 double', 'float16':'float16 half', 'bfloat16':'bfloat16', 'int8':'int8', 'uint8':'uint8', 'int16':'int16 short', 'int32':'int32 int', 'int64':'int64 long', 'bool':'bool'}
BY_NAME = {alias:DTYPES[n] for n,aliases in TORCH_NAMES.items() for alias in aliases.split()} # What Python calls them

class Size(tuple):
    "A shape: a tuple that knows its product"
    def numel(self): return math.prod(self)
    def __getitem__(self, i): return Size(tuple.__getitem__(self, i)) if isinstance(i, slice) else tuple.__getitem__(self, i)
    def __add__(self, o): return Size(tuple(self)+tuple(o))
    def __repr__(self): return f'torch.Size({list(self)})'

class Device:
    "cuda or cpu"
    type:str
    index:int|None
    def __init__(self, type:Any='cuda', index:int|None=None):
        if isinstance(type, Device): type,index = type.type,type.index
        if isinstance(type, int): type,index = 'cuda',type
        name,_,i = str(type).partition(':')
        if name not in ('cuda','cpu') or (i not in ('','0')) or index not in (None,0): _T.rec.refuse('device_query', f'there is no device {type}{"" if index is None else ":"+str(index)}; a program has one GPU, cuda:0')
        self.type,self.index = name,0 if name=='cuda' else None
    def __eq__(self, o): return isinstance(o, (Device,str)) and Device(o).type==self.type
    def __hash__(self): return hash(self.type)
    def __repr__(self): return f"device(type='{self.type}')"
    def __str__(self): return 'cuda:0' if self.type=='cuda' else 'cpu'

class Storage:
    "Memory that views share: a buffer, or the reason why there is none"
    def __init__(self, buffer:int|None=None, why:str='', fill:Any=None, shape:tuple=(), dtype:str=''):
        self.buffer,self.why,self.fill,self.shape,self.dtype = buffer,why,fill,shape,dtype
    def take(self, const:bool)->int:
        "The buffer, made now if the tensor was made before `forward`"
        if self.buffer is not None: return self.buffer
        if self.why: _T.rec.refuse('host_data', f'is {self.why}')
        if self.fill is not None and not const: _T.rec.refuse('inline_unreadable', 'is made once, before forward, with values that a kernel may change; make it in forward, or take a const pointer')
        self.buffer = _T.rec.allocate(f'tmp{len(_T.rec.buffers)}', 'scratch', self.shape, self.dtype)
        if self.fill is not None: _T.rec.step(Fill(self.buffer, self.fill))
        return self.buffer

class Phase:
    name = 'import' # import, init or forward

def contiguous_strides(shape)->tuple:
    out,step = [],1
    for n in reversed(shape): out.append(step); step *= max(n,1)
    return tuple(reversed(out))

def ints(args, what:str='shape')->tuple[int,...]:
    "The numbers of a shape, given as one list or one by one"
    a = tuple(args[0]) if len(args)==1 and isinstance(args[0], (tuple,list)) else tuple(args)
    if not all(isinstance(n, int) for n in a): raise TypeError(f'{what} {a} must be ints')
    return tuple(int(n) for n in a)

def cast_fill(value, dtype:str): return bool(value) if dtype=='bool' else float(value) if 'float' in dtype else int(value)

def make(shape, dtype:DT, device:Device, fill=None)->'Tensor':
    "torch.empty, zeros, ones, full"
    shape = ints((tuple(shape),))
    if any(n<0 for n in shape): raise ValueError(f'a dimension of {list(shape)} is negative')
    if fill is not None: fill = cast_fill(fill, dtype.name)
    if device.type=='cpu' and Phase.name=='forward': return Tensor(Storage(why='on the CPU, where it was made; give device=x.device'), shape, dtype, device=device)
    if Phase.name!='forward': return Tensor(Storage(None, '', fill, shape, dtype.name), shape, dtype, device=device)
    i = _T.rec.allocate(f'tmp{len(_T.rec.buffers)}', 'scratch', shape, dtype.name)
    if fill is not None: _T.rec.step(Fill(i, fill))
    return Tensor(Storage(i), shape, dtype, device=device)

def drawn(shape, dtype:DT|None=None, device:Any=None, why:str='drawn or computed before forward, so its values are not the task\'s; only parameters with the names of the task\'s have values')->'Tensor':
    "A tensor of the host whose values nobody knows"
    if Phase.name=='forward': _T.rec.refuse('library_call', 'draws or computes numbers with a library operation; write it as a CUDA kernel')
    return Tensor(Storage(why=why), ints((tuple(shape),)), dtype or DTYPES['float32'], device=Device(device or 'cpu'))

def _broadcast(a, b)->tuple:
    n = max(len(a),len(b))
    a,b = (1,)*(n-len(a))+tuple(a), (1,)*(n-len(b))+tuple(b)
    return tuple(max(p,q) for p,q in zip(a,b))

READS = {'item':'.item()', 'tolist':'.tolist()', 'cpu':'.cpu()', 'numpy':'.numpy()', 'nonzero':'.nonzero()', 'any':'.any()', 'all':'.all()', 'equal':'.equal()', 'allclose':'.allclose()', 'data_ptr':'.data_ptr()'}

class Tensor:
    "A view of a storage, with a shape, a dtype and strides (in elements), and no values"
    def __init__(self, storage:Storage, shape, dtype:DT, strides=None, offset:int=0, device:Device|None=None):
        self._st,self.shape,self.dtype,self._offset,self.device = storage,Size(shape),dtype,offset,device or Device()
        self._strides = contiguous_strides(self.shape) if strides is None else tuple(strides)
        self.requires_grad = False
    ndim = property(lambda s: len(s.shape))
    data = property(lambda s: s)
    T = property(lambda s: s.t())
    mT = property(lambda s: s.transpose(-1,-2))
    is_cuda = property(lambda s: s.device.type=='cuda')
    itemsize = property(lambda s: s.dtype.itemsize)
    nbytes = property(lambda s: s.numel()*s.itemsize)
    grad = is_sparse = is_quantized = property(lambda s: None)
    layout = property(lambda s: 'strided')
    is_leaf = property(lambda s: True)
    def __repr__(self): return f'tensor{list(self.shape)}:{self.dtype}'
    def __len__(self): return self.shape[0] if self.shape else _T.rec.refuse('python_error', 'len() of a tensor without dimensions')
    def __getattr__(self, name):
        if name.startswith('_') and not name.endswith('_'): raise AttributeError(name)
        if name in READS: _T.rec.refuse('reads_value', f'{READS[name]} reads the values of a tensor; values are only known to the kernels')
        if Phase.name!='forward':
            if name.endswith('_'): return lambda *a,**k: self
            if name in _SAME_SHAPE: return lambda *a,**k: drawn(self.shape, self.dtype, self.device)
            _T.rec.refuse('inline_unreadable', f'tensor.{name} before forward: what comes out is not known')
        _T.rec.refuse('library_call', f'tensor.{name} is a library operation; write it as a CUDA kernel')
    # ---- what it is
    def _dim(self, d:int)->int:
        n = max(self.ndim,1)
        if not -n<=d<n: raise IndexError(f'Dimension out of range (expected to be in range of [{-n}, {n-1}], but got {d})')
        return d%n
    def size(self, dim=None):
        if dim is None: return self.shape
        if not self.shape: raise IndexError('dimension specified as 0 but tensor has no dimensions')
        return self.shape[self._dim(dim)]
    def stride(self, dim=None): return self._strides if dim is None else self._strides[self._dim(dim)]
    def numel(self): return math.prod(self.shape)
    nelement = numel
    def dim(self): return self.ndim
    ndimension = dim
    def storage_offset(self): return self._offset
    def element_size(self): return self.itemsize
    def is_contiguous(self, memory_format=None):
        if memory_format not in (None,'contiguous_format'): _T.rec.refuse('inline_unreadable', 'memory formats other than the contiguous one are not read')
        return self.numel()==0 or all(n==1 or s==t for n,s,t in zip(self.shape, self._strides, contiguous_strides(self.shape)))
    def is_floating_point(self): return self.dtype.is_floating_point
    def get_device(self): return 0 if self.is_cuda else -1
    # ---- the same tensor
    def contiguous(self, memory_format=None):
        if not self.is_contiguous(memory_format): return self._work('contiguous() of a transposed or sliced tensor copies it')
        return self
    def _work(self, what:str):
        if Phase.name!='forward': return drawn(self.shape, self.dtype, self.device)
        _T.rec.refuse('library_call', f'{what}; write it as a CUDA kernel')
    def detach(self): return self
    def requires_grad_(self, *a): return self
    def cuda(self, device=None, non_blocking=False, memory_format=None): return self.to('cuda')
    def to(self, *args, dtype=None, device=None, non_blocking=False, copy=False, memory_format=None):
        for a in args:
            if isinstance(a, Tensor): dtype,device = a.dtype,a.device
            elif isinstance(a, DT): dtype = a
            elif isinstance(a, (str,Device)): device = a
        if copy: return self._work('.to(copy=True) copies')
        if dtype is not None and dtype!=self.dtype:
            if Phase.name!='forward': return drawn(self.shape, dtype, device or self.device)
            self._work(f'.to({dtype}) of a {self.dtype} tensor converts it')
        if device is not None and Device(device)!=self.device:
            if Device(device).type=='cpu': _T.rec.refuse('reads_value', 'moves a tensor to the CPU; values are only known to the kernels')
            if Phase.name=='forward': _T.rec.refuse('host_data', f'uploads a tensor in forward: it is {self._st.why or "on the CPU"}')
            return Tensor(self._st, self.shape, self.dtype, self._strides, self._offset, Device(device))
        return self
    def type(self, dtype=None): return self.to(dtype) if dtype is not None else repr(self.dtype)
    def type_as(self, o): return self.to(o.dtype)
    # ---- views
    def _view(self, shape, strides=None, offset=None): return Tensor(self._st, shape, self.dtype, strides, self._offset if offset is None else offset, self.device)
    def _shape(self, shape)->tuple:
        shape = list(ints(shape))
        if shape.count(-1)==1:
            rest = -math.prod(shape)
            if rest<=0 or self.numel()%rest: raise RuntimeError(f"shape '{shape}' is invalid for input of size {self.numel()}")
            shape[shape.index(-1)] = self.numel()//rest
        if math.prod(shape)!=self.numel() or any(n<0 for n in shape): raise RuntimeError(f"shape '{shape}' is invalid for input of size {self.numel()}")
        return tuple(shape)
    def view(self, *shape):
        if len(shape)==1 and isinstance(shape[0], DT): return self._bits(shape[0])
        new = self._shape(shape)
        if self.is_contiguous(): return self._view(new)
        strides = _view_strides(self.shape, self._strides, new)
        if strides is None: raise RuntimeError('view size is not compatible with input tensor\'s size and stride; use .reshape(...) instead')
        return self._view(new, strides)
    def _bits(self, d:DT):
        if d.itemsize!=self.itemsize: _T.rec.refuse('inline_unreadable', f'.view({d}) of {self.dtype} changes the size of elements, which is not read')
        return Tensor(self._st, self.shape, d, self._strides, self._offset, self.device)
    def reshape(self, *shape):
        new = self._shape(shape)
        strides = contiguous_strides(new) if self.is_contiguous() else _view_strides(self.shape, self._strides, new)
        if strides is not None: return self._view(new, strides)
        if Phase.name!='forward': return drawn(new, self.dtype, self.device)
        self._work('reshape of a transposed or sliced tensor copies it')
    def view_as(self, o): return self.view(tuple(o.shape))
    def reshape_as(self, o): return self.reshape(tuple(o.shape))
    def flatten(self, start_dim=0, end_dim=-1):
        if not self.shape: return self.reshape(1)
        a,b = self._dim(start_dim),self._dim(end_dim)
        return self.reshape(*self.shape[:a], math.prod(self.shape[a:b+1]), *self.shape[b+1:])
    def ravel(self): return self.reshape(-1)
    def unflatten(self, dim, sizes):
        d = self._dim(dim)
        return self.reshape(*self.shape[:d], *self.select_shape(d, sizes), *self.shape[d+1:])
    def select_shape(self, d, sizes):
        known = math.prod(n for n in sizes if n!=-1)
        return [self.shape[d]//known if n==-1 else n for n in sizes]
    def squeeze(self, dim=None):
        drop = range(self.ndim) if dim is None else [self._dim(d) for d in (dim if isinstance(dim,(tuple,list)) else [dim])]
        keep = [i for i,n in enumerate(self.shape) if not (i in drop and n==1)]
        return self._view([self.shape[i] for i in keep], [self._strides[i] for i in keep])
    def unsqueeze(self, dim):
        n = self.ndim+1
        if not -n<=dim<n: raise IndexError(f'Dimension out of range: {dim}')
        d = dim%n
        step = self.shape[d]*self._strides[d] if d<self.ndim else 1
        return self._view([*self.shape[:d], 1, *self.shape[d:]], [*self._strides[:d], step, *self._strides[d:]])
    def permute(self, *dims):
        dims = [self._dim(d) for d in ints(dims,'dims')]
        if sorted(dims)!=list(range(self.ndim)): raise RuntimeError(f'permute(dims) of {dims} does not fit {self.ndim} dimensions')
        return self._view([self.shape[d] for d in dims], [self._strides[d] for d in dims])
    def transpose(self, a, b):
        d = list(range(self.ndim))
        a,b = self._dim(a),self._dim(b)
        if d: d[a],d[b] = d[b],d[a]
        return self.permute(d) if d else self
    swapaxes = transpose
    def t(self):
        if self.ndim>2: raise RuntimeError('t() expects a tensor with <= 2 dimensions')
        return self.transpose(0,1) if self.ndim==2 else self
    def expand(self, *sizes):
        sizes = list(ints(sizes))
        lead = len(sizes)-self.ndim
        if lead<0: raise RuntimeError('expand: too few sizes')
        shape,strides = [],[]
        for i,n in enumerate(sizes):
            have,step = (1,0) if i<lead else (self.shape[i-lead],self._strides[i-lead])
            if n==-1: n = have
            if have!=n and have!=1: raise RuntimeError(f'expand: {list(self.shape)} does not expand to {sizes}')
            shape.append(n); strides.append(step if have==n else 0)
        return self._view(shape, strides)
    def expand_as(self, o): return self.expand(*o.shape)
    def narrow(self, dim, start, length):
        d = self._dim(dim)
        start = start+self.shape[d] if start<0 else start
        if not 0<=start<=start+length<=self.shape[d]: raise RuntimeError(f'start ({start}) + length ({length}) exceeds dimension size ({self.shape[d]})')
        return self._view([*self.shape[:d], length, *self.shape[d+1:]], self._strides, self._offset+start*self._strides[d])
    def select(self, dim, index):
        d = self._dim(dim)
        if not self.shape or not -self.shape[d]<=index<self.shape[d]: raise IndexError(f'select(): index {index} out of range')
        return self._view([*self.shape[:d], *self.shape[d+1:]], [*self._strides[:d], *self._strides[d+1:]], self._offset+index%self.shape[d]*self._strides[d])
    def chunk(self, chunks, dim=0):
        n = self.shape[self._dim(dim)]
        return self.split(-(-n//chunks), dim)
    def split(self, size, dim=0):
        n = self.shape[self._dim(dim)]
        sizes = list(size) if isinstance(size,(tuple,list)) else [size]*(n//size)+([n%size] if n%size else [])
        starts = [sum(sizes[:i]) for i in range(len(sizes))]
        return tuple(self.narrow(dim, a, m) for a,m in zip(starts, sizes))
    def unbind(self, dim=0): return tuple(self.select(dim, i) for i in range(self.shape[self._dim(dim)]))
    def __getitem__(self, key):
        key = list(key) if isinstance(key, tuple) else [key]
        i = next((i for i,k in enumerate(key) if k is Ellipsis), None)
        if i is not None: key[i:i+1] = [slice(None)]*(self.ndim-len([k for k in key if k is not None and k is not Ellipsis]))
        out,d = self,0
        for k in key:
            if k is None: out = out.unsqueeze(d); d += 1
            elif isinstance(k, slice):
                if k.step not in (None,1):
                    a,b,st = k.indices(out.shape[d])
                    if st<1: raise ValueError('step must be greater than zero')
                    n = len(range(a,b,st))
                    out = out._view([*out.shape[:d], n, *out.shape[d+1:]], [*out._strides[:d], out._strides[d]*st, *out._strides[d+1:]], out._offset+a*out._strides[d])
                else:
                    a,b,_ = k.indices(out.shape[d])
                    out = out.narrow(d, a, max(b-a,0))
                d += 1
            elif isinstance(k, int) and not isinstance(k, bool): out = out.select(d, k)
            elif Phase.name!='forward': return drawn(self.shape, self.dtype, self.device)
            else: _T.rec.refuse('library_call', f'indexing with {type(k).__name__} gathers values; write it as a CUDA kernel')
        return out
    # ---- new ones
    def _like(self, dtype=None, device=None): return dtype or self.dtype, Device(device) if device is not None else self.device
    def new_empty(self, *shape, dtype=None, device=None, **k): return make(ints(shape), *self._like(dtype, device))
    def new_zeros(self, *shape, dtype=None, device=None, **k): return make(ints(shape), *self._like(dtype, device), 0)
    def new_ones(self, *shape, dtype=None, device=None, **k): return make(ints(shape), *self._like(dtype, device), 1)
    def new_full(self, shape, fill_value, dtype=None, device=None, **k): return make(ints((shape,)), *self._like(dtype, device), fill_value)
    def zero_(self): return self.fill_(0)
    def fill_(self, value):
        "Set all of a storage to a constant"
        if Phase.name!='forward': return self
        if not isinstance(value, (bool,int,float)): _T.rec.refuse('library_call', 'fill_ with a tensor copies values; write it as a CUDA kernel')
        i = self._st.take(False)
        b = _T.rec.buffers[i]
        if b.role in ('input','param'): _T.rec.refuse('writes_input', f'fills {b.name}, which is an input; allocate an output')
        if not self.is_contiguous() or self.nbytes!=b.nbytes or self.dtype.name!=b.dtype: _T.rec.refuse('library_call', 'filling a part of a tensor; fill all of it, or do it in a kernel')
        _T.rec.step(Fill(i, cast_fill(value, b.dtype)))
        return self
    # ---- on its way into a kernel, and back to the trace
    def _array(self, const:bool=True)->Array:
        "The trace's own kind of array"
        if self.device.type!='cuda': _T.rec.refuse('host_data', f'is {self._st.why or "on the CPU; a tensor that is no parameter stays there"}')
        return Array(self._st.take(const), tuple(self.shape), Dtype(self.dtype.name), tuple(s*self.itemsize for s in self._strides), self._offset*self.itemsize)

_SAME_SHAPE = set('exp log sqrt rsqrt pow abs neg sin cos tanh sigmoid clone cpu clamp clip round floor ceil mul add sub div contiguous triu tril reciprocal square'.split())

def _view_strides(shape, strides, new)->tuple|None:
    "Strides under which `new` is a view of a tensor that is not contiguous, None if it needs a copy"
    if math.prod(shape)==0: return contiguous_strides(new)
    out,j = [0]*len(new),len(new)-1
    d = len(shape)-1
    base,size,seen = (strides[d] if shape else 1),1,1
    for d in range(len(shape)-1,-1,-1):
        size *= shape[d]
        if d==0 or (shape[d-1]!=1 and strides[d-1]!=size*base): # A block of dimensions that lie one in the other
            while j>=0 and (seen<size or new[j]==1):
                out[j] = seen*base
                seen *= new[j]
                j -= 1
            if seen!=size: return None
            if d>0: base,size,seen = strides[d-1],1,1
    return tuple(out) if j==-1 else None

for _n,_d in (('float','float32'),('double','float64'),('half','float16'),('bfloat16','bfloat16'),('int','int32'),('long','int64'),('bool','bool')): setattr(Tensor, _n, lambda self, _d=_d: self.to(DTYPES[_d]))

def _arith(name:str):
    def op(self, *others):
        if Phase.name!='forward':
            o = next((o for o in others if isinstance(o, Tensor)), None)
            return drawn(_broadcast(self.shape, o.shape) if o is not None else self.shape, self.dtype, self.device)
        _T.rec.refuse('library_call', f'arithmetic on tensors ({name}) is a library operation; write it as a CUDA kernel')
    return op

for _n in 'add sub mul truediv floordiv mod pow and or xor radd rsub rmul rtruediv rpow neg abs invert eq ne lt le gt ge iadd isub imul itruediv'.split(): setattr(Tensor, f'__{_n}__', _arith(_n))
for _n in 'matmul rmatmul imatmul'.split(): setattr(Tensor, f'__{_n}__', lambda self, o: _T.rec.refuse('library_call', 'the operator @ is a matrix product of the library; write it as a CUDA kernel'))
for _n in 'bool int float complex index contains'.split(): setattr(Tensor, f'__{_n}__', lambda self, *a, _n=_n: _T.rec.refuse('reads_value', f'reads the values of a tensor ({_n}); values are only known to the kernels'))
Tensor.__iter__ = lambda self: iter(self.unbind(0)) # type: ignore[attr-defined]
setattr(Tensor, '__setitem__', lambda self, k, v: self.fill_(v) if k is Ellipsis or isinstance(k, slice) and k==slice(None) else self._work('assigning to a part of a tensor copies values'))
Tensor.__hash__ = object.__hash__ # type: ignore[assignment]

class Parameter(Tensor):
    "A parameter of a module: its values are the task's"
    def __init__(self, data:Tensor|None=None, requires_grad:bool=True):
        d = data if data is not None else Tensor(Storage(why='empty'), (0,), DTYPES['float32'])
        super().__init__(Storage(why='a parameter that the task does not have'), d.shape, d.dtype, device=Device('cpu'))
        self.requires_grad = requires_grad
    @property
    def data(self): return self
    @data.setter
    def data(self, value): pass
