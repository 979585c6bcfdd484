"""What C++ host code computes with: numbers that know their type, vectors, pointers into tensors, kernels, closures; and the names of the libraries."""
import math, re, struct
from dataclasses import dataclass, field
from typing import Any, Callable
from kernelrl._tensors import DT, DTYPES, Device
from kernelrl.program import CTYPES

# ------------------------------------------------------------------ values
_ORDER = {t:i for i,t in enumerate(['int','unsigned int','long','unsigned long','long long','unsigned long long'])}
_BITS = {'int':32,'unsigned int':32,'long':64,'unsigned long':64,'long long':64,'unsigned long long':64}
HALVES = {'c10::Half':'half', 'c10::BFloat16':'bfloat16'}
FLOATS = {'float','double','half','bfloat16',*HALVES}
NUM = {*CTYPES,*HALVES}
SCALAR = {'float32':'float','float64':'double','float16':'c10::Half','bfloat16':'c10::BFloat16','int8':'signed char','uint8':'unsigned char','int16':'short','int32':'int','int64':'long','bool':'bool'} # dtype -> scalar_t
DTYPE_OF = {**{c:d for c,(_,d) in CTYPES.items()}, 'c10::Half':'float16', 'c10::BFloat16':'bfloat16'}

class N:
    "A number and its C++ type"
    __slots__ = ('v','t')
    def __init__(self, v, t): self.v,self.t = v,t
    def __repr__(self): return f'{self.v}'

class Missing:
    def __init__(self, what): self.what = what
NULLOPT,UNDEF,UNSET = Missing('nullopt'),Missing('an undefined tensor'),Missing('a variable without a value')

class Vec:
    "std::vector, std::array, IntArrayRef; a braced list has no element type"
    def __init__(self, items, t=''): self.items,self.t = list(items),t
class Tup(Vec): "std::tuple, std::pair"
class Dim3:
    def __init__(self, x=1, y=1, z=1): self.x,self.y,self.z = x,y,z
@dataclass
class Iter:
    vec:Any
    i:int
@dataclass(frozen=True)
class Opts:
    dtype:DT = DTYPES['float32']
    device:Device = Device('cpu')
@dataclass
class Ptr:
    tensor:Any # None: a null pointer
    elem:str
    offset:int = 0 # Bytes, on top of the tensor's own
    const:bool = False
@dataclass
class Ref:
    "The address of a variable"
    get:Callable
    set:Callable
    t:str = ''
@dataclass(frozen=True)
class Kern:
    name:str
    targs:tuple[str,...] = ()
@dataclass(frozen=True)
class Sym:
    "A constant of a library that only has a name"
    name:str
class Stream: pass
class Props:
    fields = {'multiProcessorCount':132, 'warpSize':32, 'maxThreadsPerBlock':1024, 'maxThreadsPerMultiProcessor':2048, 'sharedMemPerBlock':49152, 'sharedMemPerBlockOptin':232448, 'sharedMemPerMultiprocessor':233472, 'regsPerBlock':65536, 'l2CacheSize':62914560, 'major':9, 'minor':0}
@dataclass
class Opaque:
    what:str
@dataclass
class Closure:
    params:list
    body:Any
    scope:'Scope'
    unit:Any # Where it stands
    ret:str = 'auto'
    name:str = 'a lambda'
    types:list = field(default_factory=list) # Template parameters
@dataclass
class Var:
    t:str
    v:Any
    frozen:str = '' # Why it may not be assigned
    def copy(self): return type(self.v)(self.v.items, self.v.t) if isinstance(self.v, Vec) else Dim3(self.v.x, self.v.y, self.v.z) if isinstance(self.v, Dim3) else self.v
class Scope:
    def __init__(self, parent=None): self.vars,self.types,self.parent = {},{},parent
    def find(self, name)->Var|None:
        s = self
        while s is not None:
            if name in s.vars: return s.vars[name]
            s = s.parent
        return None
    def type(self, name):
        s = self
        while s is not None:
            if name in s.types: return s.types[name]
            s = s.parent
        return None
    def copy(self)->'Scope': # For a lambda that captures by value
        out,chain,s = Scope(),[],self
        while s is not None: chain.append(s); s = s.parent
        for s in reversed(chain):
            out.vars.update({k:Var(v.t, v.copy(), 'captured by value') for k,v in s.vars.items()})
            out.types.update(s.types)
        return out

class _Break(Exception): pass
class _Continue(Exception): pass
class _Return(Exception):
    def __init__(self, v): self.v = v

def f32(v:float)->float:
    try: return struct.unpack('<f', struct.pack('<f', v))[0]
    except OverflowError: return math.inf if v>0 else -math.inf

_LIBRARY = re.compile(r'^(cublas|cudnn|cusparse|cusolver|cufft|curand|nccl|cutensor|thrust::|cub::Device|cutlass::|at::native|at::cuda::blas|at::cuda::getCurrentCUDABlas|at::cuda::getCurrentCUDASparse)|^cudnn')
_CUDA_OK = {'cudaGetLastError','cudaPeekAtLastError','cudaSetDevice','cudaFuncSetCacheConfig','cudaFuncSetSharedMemConfig','cudaDeviceSetCacheConfig','cudaDeviceSetSharedMemConfig','cudaCtxResetPersistingL2Cache'}
_SYNC = {'cudaDeviceSynchronize','cudaStreamSynchronize','cudaThreadSynchronize','synchronize'}
_DT_NAMES = {**{'k'+a:d for d,a in [('float32','Float32'),('float32','Float'),('float64','Float64'),('float64','Double'),('float16','Float16'),('float16','Half'),('bfloat16','BFloat16'),('int8','Int8'),('int8','Char'),('uint8','UInt8'),('uint8','Byte'),('int16','Int16'),('int16','Short'),('int32','Int32'),('int32','Int'),('int64','Int64'),('int64','Long'),('bool','Bool')]},
    **{'ScalarType::'+a:d for a,d in [('Float','float32'),('Double','float64'),('Half','float16'),('BFloat16','bfloat16'),('Char','int8'),('Byte','uint8'),('Short','int16'),('Int','int32'),('Long','int64'),('Bool','bool')]}}
_ATTRS = {'cudaDevAttrMultiProcessorCount':132, 'cudaDevAttrMaxThreadsPerBlock':1024, 'cudaDevAttrMaxSharedMemoryPerBlock':49152, 'cudaDevAttrMaxSharedMemoryPerBlockOptin':232448, 'cudaDevAttrWarpSize':32, 'cudaDevAttrComputeCapabilityMajor':9, 'cudaDevAttrComputeCapabilityMinor':0, 'cudaDevAttrMaxSharedMemoryPerMultiprocessor':233472, 'cudaDevAttrL2CacheSize':62914560}
_CONST = {'INT_MAX':(2**31-1,'int'), 'INT_MIN':(-2**31,'int'), 'UINT_MAX':(2**32-1,'unsigned int'), 'LLONG_MAX':(2**63-1,'long long'), 'INT64_MAX':(2**63-1,'long'), 'FLT_MAX':(3.4028234663852886e38,'float'), 'FLT_MIN':(1.1754943508222875e-38,'float'), 'FLT_EPSILON':(1.1920928955078125e-07,'float'), 'DBL_MAX':(1.7976931348623157e308,'double'),
    'INFINITY':(math.inf,'float'), 'M_PI':(math.pi,'double'), 'M_SQRT1_2':(math.sqrt(.5),'double'), 'M_SQRT2':(math.sqrt(2),'double'), 'M_2_SQRTPI':(2/math.sqrt(math.pi),'double'), 'M_E':(math.e,'double'), 'cudaSuccess':(0,'int'), 'NULL':(0,'int')}
_INTEGRAL,_FLOATING = {'uint8','int8','int32','int64','int16'},{'float32','float64'}
_DISPATCH = {'FLOATING_TYPES':_FLOATING, 'FLOATING_TYPES_AND_HALF':_FLOATING|{'float16'}, 'ALL_TYPES':_FLOATING|_INTEGRAL, 'INTEGRAL_TYPES':_INTEGRAL, 'REDUCED_FLOATING_TYPES':{'float16','bfloat16'}, 'FLOATING_AND_COMPLEX_TYPES':_FLOATING, 'ALL_TYPES_AND_COMPLEX':_FLOATING|_INTEGRAL}
_GUARDS = {'CUDAGuard','OptionalCUDAGuard','DeviceGuard','OptionalDeviceGuard','NoGradGuard','AutoGradMode','CUDAStreamGuard','InferenceMode','gil_scoped_release','ostringstream','stringstream'}
VIEWS = {'view','reshape','view_as','reshape_as','squeeze','unsqueeze','flatten','permute','transpose','swapaxes','t','expand','expand_as','narrow','select','contiguous','detach','to','type_as','chunk','split','unbind','alias'}
STEPS = 200_000
