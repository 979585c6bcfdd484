"""What the libraries mean to C++ host code: torch's macros, factories and tensors, the CUDA runtime, a part of std, and launches."""
import math, re, struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable, NoReturn
from kernelrl import _tensors as X
from kernelrl._cxx_source import kids, txt, walk
from kernelrl._cxx_values import (Closure, DTYPE_OF, FLOATS, HALVES, Iter, Kern, N, NULLOPT, NUM, Opaque, Opts, Props, Ptr, Ref, SCALAR, Scope, Stream, Sym, Tup, UNDEF, UNSET, Var,
    Vec, VIEWS, _ATTRS, _CONST, _CUDA_OK, _DISPATCH, _SYNC)
from kernelrl._tensors import DT, DTYPES, Device, Tensor
from kernelrl.program import ArgError, Arg, CTYPES, Launch, check_pointer, check_scalar, kernels
from kernelrl.trace import LIMITS, NAME, Refusal, _T, _cluster, _dim3

class Libraries:
    "The half of the interpreter that knows names"
    unit:Any
    refuse:Callable[...,NoReturn]
    unread:Callable[...,NoReturn]
    work:Callable[...,NoReturn]
    if TYPE_CHECKING:
        def __getattr__(self, name)->Any: ... # The other half: `_cxx.Interpreter`

    # ---- macros of torch
    def check(self, n, name, a, scope):
        nodes = kids(a)
        m = re.fullmatch(r'TORCH_CHECK_(EQ|NE|LT|LE|GT|GE)', name)
        if m: ok = self.truth(self.binary({'EQ':'==','NE':'!=','LT':'<','LE':'<=','GT':'>','GE':'>='}[m[1]], self.eval(nodes[0], scope), self.eval(nodes[1], scope), n))
        else: ok = self.truth(self.eval(nodes[0], scope))
        if ok: return None
        said = ''.join(str(self.message(c, scope)) for c in nodes[(2 if m else 1):])
        self.refuse('host_check', f'the check {txt(nodes[0])[:80]} fails{": "+said[:150] if said else ""}', n)
    def message(self, c, scope):
        return ''.join(txt(s) for s in walk(c, 'string_content')) if c.type in ('string_literal','concatenated_string') else '...'
    def dispatch(self, n, name, a, scope):
        nodes = kids(a)
        base = name.removeprefix('AT_DISPATCH_')
        if base=='INDEX_TYPES': kinds,extra,alias = {'int32','int64'},0,'index_t'
        else:
            m = re.fullmatch(r'(.*?)(?:_AND(\d?))?', base)
            if base in _DISPATCH: kinds,extra = set(_DISPATCH[base]),0
            elif m and m[1] in _DISPATCH and base.endswith(('_AND','_AND2','_AND3','_AND4','_AND5')): kinds,extra = set(_DISPATCH[m[1]]),int(m[2] or 1)
            else: self.unread(name, n)
            alias = 'scalar_t'
        for c in nodes[:extra]: kinds.add(self.eval(c, scope).name)
        d = self.eval(nodes[extra], scope)
        if not isinstance(d, DT): self.unread(f'{name} on {self.kind(d)}', n)
        if d.name not in kinds: self.refuse('host_check', f'{name} has no case for {d.name}', n)
        body = next((l for l in walk(nodes[-1], 'lambda_expression')), None)
        if body is None: self.unread(f'{name} without a lambda', n)
        inner = Scope(scope)
        inner.types[alias] = SCALAR[d.name]
        return self.call(self.eval(body, inner), [], inner, n)

    # ---- CUDA runtime
    def cuda_call(self, n, name, a, scope):
        ok = N(0,'int')
        if name in _CUDA_OK: self.args(a, scope); return ok
        if name in _SYNC: _T.rec.note('no_op', 'synchronising has no effect in a trace'); return ok
        if name in ('cudaGetErrorString','cudaGetErrorName'): return 'no error'
        if name=='cudaFuncSetAttribute':
            k,what,size = (self.args(a, scope)+[None]*3)[:3]
            if isinstance(k, Kern) and isinstance(what, Sym) and isinstance(size, N):
                if what.name=='cudaFuncAttributeMaxDynamicSharedMemorySize': self.shared[k.name, self.targ_names(k)] = size.v
                return ok
            self.unread('this call of cudaFuncSetAttribute', n)
        if name=='cudaGetDevice': self.out(a, 0, scope, N(0,'int')); return ok
        if name=='cudaGetDeviceCount': self.out(a, 0, scope, N(1,'int')); return ok
        if name in ('cudaGetDeviceProperties',):
            r = self.eval(kids(a)[0], scope)
            if isinstance(r, Ref): r.set(Props())
            return ok
        if name=='cudaDeviceGetAttribute':
            what = self.eval(kids(a)[1], scope)
            if not isinstance(what, Sym) or what.name not in _ATTRS: self.refuse('device_query', f'{txt(kids(a)[1])} of the device is not known here', n)
            self.out(a, 0, scope, N(_ATTRS[what.name],'int'))
            return ok
        if name in ('cudaMalloc','cudaMallocAsync'): return self.malloc(n, a, scope)
        if name in ('cudaFree','cudaFreeAsync'): return ok
        if name in ('cudaMemset','cudaMemsetAsync'): return self.memset(n, self.args(a, scope))
        if name.startswith('cudaMemcpyToSymbol') or name.startswith('cudaGetSymbol'): self.refuse('device_global', f'{name} writes device memory from the host; pass a tensor instead', n)
        if name.startswith('cudaMemcpy'): self.refuse('library_call', f'{name} copies; write it as a CUDA kernel', n)
        if name.startswith(('cudaStream','cudaEvent','cudaGraph')): self.refuse('stream', f'{name}: streams, events and graphs belong to the judge', n)
        if name.startswith('cudaOccupancy'): self.refuse('device_query', f'{name}: what it answers is not known here; choose the grid from the shapes', n)
        if name=='cudaLaunchKernel': return self.launch_kernel(n, a, scope)
        if name.startswith('cudaLaunchCooperative'): self.refuse('unsupported', 'cooperative launches (grid-wide synchronisation) are not supported; use two launches', n)
        self.unread(f'the call of {name}', n)
    def out(self, a, i, scope, v):
        r = self.eval(kids(a)[i], scope)
        if not isinstance(r, Ref): self.unread(f'{txt(kids(a)[i])} as an address')
        r.set(v)
    def malloc(self, n, a, scope):
        r,size = self.eval(kids(a)[0], scope),self.number(kids(a)[1], scope)
        t = r.t[:-1] if isinstance(r, Ref) and r.t.endswith('*') else ''
        if t not in DTYPE_OF: self.unread('this cudaMalloc', n)
        d = DTYPES[DTYPE_OF[t]] if DTYPE_OF[t] in DTYPES else self.unread(f'cudaMalloc of {t}', n)
        tensor = X.make((-(-size.v//d.itemsize),), d, Device('cuda'))
        r.set(Ptr(tensor, t))
        return N(0,'int')
    def memset(self, n, args):
        p,v,size = args[:3]
        if not isinstance(p, Ptr) or p.tensor is None or p.offset or v.v!=0 or size.v!=p.tensor.nbytes: self.unread('a memset other than all of a tensor to 0', n)
        self.method_of(lambda: p.tensor.zero_(), n)
        return N(0,'int')

    # ---- the standard library
    def std(self, n, name, tnode, a, scope):
        short = name.removeprefix('std::')
        if short in ('min','max','fmin','fmax','fminf','fmaxf'): return self.minmax(n, name, short, tnode, self.args(a, scope), scope)
        if '::' in short or short=='numeric_limits': 
            if m := re.fullmatch(r'(?:std::)?numeric_limits<(.*)>::(max|min|lowest|infinity|epsilon)', name): return self.limits(self.type(m[1], scope, n), m[2], n)
            return NotImplemented
        if short in ('ceil','floor','sqrt','exp','log','log2','log10','fabs','round','trunc','rsqrt','cbrt','exp2','tanh','sin','cos') or short in ('ceilf','floorf','sqrtf','expf','logf','log2f','fabsf','roundf','truncf'):
            v = self.args(a, scope)[0]
            if not isinstance(v, N): self.work(v, name, n)
            base = short[:-1] if short.endswith('f') and short not in ('f',) else short
            t = 'float' if short!=base or v.t=='float' and name.startswith('std::') else 'float' if v.t=='float' else 'double'
            x = self.cast(v, t).v
            f = {'ceil':math.ceil,'floor':math.floor,'trunc':math.trunc,'fabs':abs,'round':lambda y: math.floor(abs(y)+.5)*(1 if y>=0 else -1)}.get(base) or getattr(math, base, None)
            if f is None: return NotImplemented
            try: return self.cast(N(float(f(x)),'double'), t)
            except (ValueError,OverflowError): self.refuse('host_check', f'{name}({x})', n)
        if short in ('pow','powf'):
            x,y = self.args(a, scope)
            t = 'float' if short=='powf' or x.t==y.t=='float' else 'double'
            try: return self.cast(N(float(x.v)**float(y.v),'double'), t)
            except (ValueError,OverflowError,ZeroDivisionError,TypeError): self.refuse('host_check', f'pow({x}, {y})', n)
        if short=='abs':
            v = self.args(a, scope)[0]
            if not isinstance(v, N): self.work(v, name, n)
            return N(abs(v.v), self.promote(v.t))
        if short in ('make_tuple','make_pair','forward_as_tuple') and name.startswith('std::') or name in ('make_tuple','make_pair'): return Tup(self.args(a, scope))
        if name in ('std::move','std::forward','std::as_const'): return self.args(a, scope)[0]
        if name in ('std::get',):
            v = self.args(a, scope)[0]
            i = int(self.targs(tnode, scope)[0])
            if isinstance(v, Vec) and i<len(v.items): return v.items[i]
            self.unread(f'std::get<{i}>', n)
        if name in ('std::swap',):
            p,q = (self.lvalue(c, scope) for c in kids(a))
            x,y = p.get(),q.get()
            p.set(y); q.set(x)
            return None
        if name in ('std::to_string',): return str(self.plain(self.args(a, scope)[0]))
        if name in ('std::multiplies','std::plus'): return (lambda x,y: self.arith('*',x,y,n)) if 'mult' in name else (lambda x,y: self.arith('+',x,y,n))
        if name in ('std::accumulate','std::reduce'):
            args = self.args(a, scope)
            b,e,acc = args[:3]
            f = args[3] if len(args)>3 else lambda x,y: self.arith('+',x,y,n)
            t = acc.t
            for i in b.vec.items[b.i:e.i]: acc = self.cast(self.apply(f, [acc, i], n), t)
            return acc
        if name in ('std::reverse',):
            b,e = self.args(a, scope)
            b.vec.items[b.i:e.i] = b.vec.items[b.i:e.i][::-1]
            return None
        if name in ('std::make_optional',): return self.args(a, scope)[0]
        if name in ('std::size',): return N(len(self.args(a, scope)[0].items),'unsigned long')
        if name=='std::clamp':
            v,lo,hi = self.args(a, scope)
            return lo if v.v<lo.v else hi if v.v>hi.v else v
        return NotImplemented
    def apply(self, f, values, n):
        return f(*values) if callable(f) else self.call(f, [], f.scope, n, values=values) if isinstance(f, Closure) else self.unread('this function', n)
    def minmax(self, n, name, short, tnode, args, scope):
        pick = min if 'min' in short else max
        if len(args)==1 and isinstance(args[0], Vec): args = args[0].items
        if not all(isinstance(x, N) for x in args) or not args: self.work(next((x for x in args if not isinstance(x, N)), None), name, n)
        if tnode is not None: t = self.targs(tnode, scope)[0]
        elif name.startswith('std::'):
            t = args[0].t
            if any(x.t!=t for x in args): self.refuse('compile_error', f'{name} takes values of one type, not {" and ".join(x.t for x in args)}; write {name}<int64_t>(...)', n)
        else:
            t = args[0].t
            for x in args[1:]: t = self.common(t, x.t)
            if short.startswith('f'): t = 'float' if short.endswith('f') else 'double'
        return pick((self.cast(x, t) for x in args), key=lambda x: x.v)
    def limits(self, t, what, n):
        if t in ('float','double'):
            v = {'max':_CONST['FLT_MAX' if t=='float' else 'DBL_MAX'][0], 'infinity':math.inf, 'epsilon':2.**-23 if t=='float' else 2.**-52, 'min':2.**-126 if t=='float' else 2.**-1022}
            v['lowest'] = -v['max']
            return N(v[what], t)
        if t in CTYPES and t not in FLOATS and t!='bool':
            bits = 8*struct.calcsize('<'+CTYPES[t][0])
            lo,hi = (0, 2**bits-1) if t.startswith('unsigned') else (-2**(bits-1), 2**(bits-1)-1)
            if what in ('max','min','lowest'): return N(hi if what=='max' else lo, t)
        self.unread(f'numeric_limits<{t}>::{what}', n)

    # ---- torch
    def torch(self, n, name, tnode, a, scope):
        m = re.match(r'((?:(?:at|torch|c10)::)+)(.*)$', name)
        short = m[2] if m else name
        if short in ('cuda::getCurrentCUDAStream','getCurrentCUDAStream','cuda::getDefaultCUDAStream'): self.args(a, scope); return Stream()
        if short in ('cuda::getStreamFromPool','cuda::getStreamFromExternal'): self.refuse('stream', f'{name}: a stream of its own; the judge owns the stream', n)
        if short in ('cuda::getCurrentDeviceProperties','cuda::getDeviceProperties'): return Props()
        if short in ('cuda::current_device','cuda::device_count'): return N(int('count' in short),'int')
        if short in ('cuda::warp_size',): return N(32,'int')
        if short in ('cuda::synchronize','cuda::device_synchronize'): _T.rec.note('no_op', 'synchronising has no effect in a trace'); return None
        if short in ('device_of','cuda::set_device'): self.args(a, scope); return Device('cuda')
        if short in ('ceil_div','divup','cuda::ATenCeilDiv') and m:
            x,y = self.args(a, scope)
            t = self.common(x.t, y.t)
            return self.arith('/', self.arith('-', self.arith('+', x, y, n), N(1,t), n), y, n)
        if not m: return NotImplemented
        if short in ('dtype','device','TensorOptions','requires_grad'): return self.opts([v for v in self.args(a, scope) if not isinstance(v, N)])
        if short=='typeMetaToScalarType': return self.args(a, scope)[0]
        if short=='elementSize': return N(self.args(a, scope)[0].itemsize,'unsigned long')
        if short in ('empty','zeros','ones','full','empty_like','zeros_like','ones_like','full_like'): return self.factory(n, name, short, self.args(a, scope))
        if short in ('Device',): return self.construct('device', self.args(a, scope), n)
        if short in ('nullopt',): return NULLOPT
        if short in ('IntArrayRef','ArrayRef','Scalar','optional','Tensor','make_optional','SmallVector','DimVector') or short.startswith('cuda::') or short.endswith('Guard'): return NotImplemented
        if short in ('str',): return ''
        if short in ('numel',): return N(self.args(a, scope)[0].numel(),'long')
        if short in VIEWS:
            args = self.args(a, scope)
            if args and isinstance(args[0], Tensor): return self.tensor_method(n, args[0], short, args[1:], None, scope)
        self.refuse('library_call', f'{name} does the work; write it as a CUDA kernel', n)
    def factory(self, n, name, short, args):
        args = [v for v in args if v is not NULLOPT]
        like = args.pop(0) if short.endswith('_like') else None
        if like is not None and not isinstance(like, Tensor): self.unread(f'{name} of {self.kind(like)}', n)
        shape = tuple(like.shape) if like is not None else self.shape(args.pop(0), n)
        fill = {'zeros':0,'zeros_like':0,'ones':1,'ones_like':1}.get(short)
        o = Opts(like.dtype, like.device) if like is not None else self.opts([])
        if short.startswith('full'):
            v = args.pop(0)
            if not isinstance(v, N): self.unread(f'{name} with {self.kind(v)}', n)
            fill = v.v
            if like is None and v.t not in FLOATS: o = replace(o, dtype=DTYPES['bool' if v.t=='bool' else 'int64'])
        for v in args:
            if isinstance(v, Opts): o = v
            elif isinstance(v, DT): o = replace(o, dtype=v)
            elif isinstance(v, Device): o = replace(o, device=v)
            elif isinstance(v, str) and v=='contiguous_format': pass
            else: self.unread(f'{name} with {self.kind(v)}', n)
        return self.method_of(lambda: X.make(shape, o.dtype, o.device, fill), n)
    def shape(self, v, n)->tuple:
        items = v.items if isinstance(v, Vec) else [v]
        if not all(isinstance(i, N) and i.t not in FLOATS for i in items): self.unread(f'{self.kind(v)} as a shape', n)
        return tuple(i.v for i in items)

    # ---- methods
    def method_of(self, f, n):
        "Run an operation of a tensor; what it throws is the program's own mistake"
        self.at = n
        try: return f()
        except (RuntimeError,IndexError,TypeError,ValueError) as e: self.refuse('host_check', f'{str(e)[:200]}', n)
    def method(self, n, f, a, scope):
        obj = self.eval(f.child_by_field_name('argument'), scope)
        fld = f.child_by_field_name('field')
        tnode = fld.child_by_field_name('arguments') if fld.type in ('template_method','dependent_name') else None
        name = txt(fld.child_by_field_name('name') if tnode is not None else fld)
        name = name.removeprefix('template').strip()
        args = self.args(a, scope)
        if isinstance(obj, Ref): obj = obj.get()
        self.at = n
        if obj is UNSET: self.refuse('inline_unreadable', 'a variable is used before it has a value', n)
        if name in ('has_value','value','value_or') and not isinstance(obj, Opaque):
            if name=='has_value': return N(obj is not NULLOPT,'bool')
            if obj is NULLOPT and name=='value': self.refuse('host_check', 'the value of an empty optional', n)
            return args[0] if obj is NULLOPT else obj
        if obj is NULLOPT: self.refuse('host_check', f'.{name}() of an empty optional', n)
        if obj is UNDEF:
            if name=='defined': return N(False,'bool')
            self.refuse('host_check', f'.{name}() of an undefined tensor', n)
        if isinstance(obj, Tensor): return self.tensor_method(n, obj, name, args, tnode, scope)
        if isinstance(obj, Vec): return self.vec_method(n, obj, name, args)
        if isinstance(obj, Opts): return self.opts_method(n, obj, name, args)
        if isinstance(obj, Device):
            if name in ('is_cuda','is_cpu'): return N((obj.type=='cuda')==(name=='is_cuda'),'bool')
            if name=='type': return obj
            if name=='index': return N(0 if obj.type=='cuda' else -1,'signed char')
            if name=='str': return str(obj)
        if isinstance(obj, DT):
            if name=='itemsize': return N(obj.itemsize,'unsigned long')
            if name in ('toScalarType','scalarType'): return obj
            if name=='name': return obj.name
        if isinstance(obj, Stream):
            if name in ('stream','unwrap'): return obj
            if name=='synchronize': _T.rec.note('no_op', 'synchronising has no effect in a trace'); return None
        if isinstance(obj, str):
            if name=='c_str': return obj
            if name in ('size','length'): return N(len(obj),'unsigned long')
            if name=='empty': return N(not obj,'bool')
        if isinstance(obj, N) and name in ('to','toDouble','toFloat','toInt','toLong'): # at::Scalar
            return self.cast(obj, self.targs(tnode, scope)[0] if name=='to' else {'toDouble':'double','toFloat':'float','toInt':'int','toLong':'long'}[name])
        if isinstance(obj, Opaque): return obj
        self.unread(f'the call of .{name} on {self.kind(obj)}', n)
    def opts_method(self, n, o:Opts, name, args):
        if name=='dtype':
            if not args: return o.dtype
            if isinstance(args[0], DT): return replace(o, dtype=args[0])
        if name=='device':
            if not args: return o.device
            return replace(o, device=self.construct('device', args, n))
        if name in ('layout','requires_grad','memory_format','pinned_memory'): return o
        self.unread(f'TensorOptions::{name}', n)
    def vec_method(self, n, o:Vec, name, args):
        k = len(o.items)
        if name in ('size','length'): return N(k,'unsigned long')
        if name=='empty': return N(k==0,'bool')
        if name in ('vec','data','toVec'): return Vec(o.items, o.t)
        if name in ('begin','cbegin'): return Iter(o, 0)
        if name in ('end','cend'): return Iter(o, k)
        if name in ('back','front','at'):
            i = self.plain(args[0]) if args else k-1 if name=='back' else 0
            if not 0<=i<k: self.refuse('host_check', f'.{name}() outside of {k} elements', n)
            return o.items[i]
        if name in ('push_back','emplace_back'): o.items.append(self.conv(args[0], o.t, n)); return None
        if name=='pop_back' and k: o.items.pop(); return None
        if name in ('reserve','clear','shrink_to_fit'):
            if name=='clear': o.items.clear()
            return None
        if name=='resize' and args[0].v<=64:
            fill = self.conv(args[1], o.t, n) if len(args)>1 else self.cast(N(0,'int'), o.t) if o.t in NUM else self.default(o.t, n)
            o.items[:] = (o.items+[fill]*args[0].v)[:args[0].v]
            return None
        if name=='equals': return self.equal(o, args[0])
        if name=='slice': return Vec(o.items[args[0].v:args[0].v+args[1].v] if len(args)>1 else o.items[args[0].v:], o.t)
        if name=='insert' and len(args)==2 and isinstance(args[0], Iter): o.items.insert(args[0].i, self.conv(args[1], o.t, n)); return Iter(o, args[0].i)
        if name=='insert' and len(args)==3 and isinstance(args[1], Iter): o.items[args[0].i:args[0].i] = args[1].vec.items[args[1].i:args[2].i]; return Iter(o, args[0].i)
        if name=='erase' and len(args)==1 and isinstance(args[0], Iter): del o.items[args[0].i]; return args[0]
        self.unread(f'vector::{name}', n)
    def tensor_method(self, n, x:Tensor, name, args, tnode, scope):
        p = [self.plain(v) for v in args]
        go = lambda: self.method_of(lambda: self.wrap(getattr(x, name)(*p)), n)
        if name in ('data_ptr','data','const_data_ptr','mutable_data_ptr'):
            if tnode is None: return Ptr(x, 'void')
            t = self.targs(tnode, scope)[0]
            if t not in DTYPE_OF: self.unread(f'data_ptr<{t}>', n)
            if t in ('half','bfloat16'): self.refuse('compile_error', f'there is no data_ptr<{"__half" if t=="half" else "__nv_bfloat16"}>(); write data_ptr<at::{"Half" if t=="half" else "BFloat16"}>() and reinterpret_cast', n)
            if DTYPE_OF[t]!=x.dtype.name: self.refuse('arg_dtype', f'data_ptr<{t}>() of a {x.dtype.name} tensor', n)
            return Ptr(x, t)
        if name in ('size','stride','numel','dim','ndimension','nbytes','element_size','storage_offset','is_contiguous','get_device'):
            if name=='nbytes': return N(x.nbytes,'unsigned long')
            return go()
        if name in ('sizes','strides','sym_sizes'): return Vec([N(int(v),'long') for v in (x.shape if 'size' in name else x._strides)], 'long')
        if name=='itemsize': return N(x.itemsize,'unsigned long')
        if name in ('is_cuda','defined','is_cpu'): return N(x.is_cuda if name=='is_cuda' else not x.is_cuda if name=='is_cpu' else True,'bool')
        if name in ('scalar_type','dtype','type'): 
            if name=='type' and args: self.unread('.type(...)', n)
            return x.dtype
        if name=='device': return x.device
        if name=='options': return Opts(x.dtype, x.device)
        if name=='is_floating_point': return N(x.dtype.is_floating_point,'bool')
        if name in ('requires_grad','is_sparse','is_quantized','is_complex','is_neg','is_conj'): return N(False,'bool')
        if name=='suggest_memory_format': return 'contiguous_format'
        if name in ('set_requires_grad','requires_grad_','variable_data','tensor_data'): return x
        if name=='to':
            if any(isinstance(v, Opts) for v in args): p = [d for v in args if isinstance(v, Opts) for d in (v.dtype, v.device)]
            return self.method_of(lambda: x.to(*[v for v in p if not isinstance(v, bool)]), n)
        if name in ('new_empty','new_zeros','new_ones','new_full'):
            return self.factory(n, 'Tensor::'+name, name[4:], args[:1+(name=='new_full')]+[Opts(x.dtype,x.device)]+args[1+(name=='new_full'):])
        if name in ('view','reshape','permute') and any(isinstance(v, DT) for v in args): self.unread('a view as another dtype', n)
        if name in ('packed_accessor32','packed_accessor64','packed_accessor','accessor'): self.unread(f'.{name} (pass data_ptr<T>() and the sizes instead)', n)
        if name in VIEWS or name in ('zero_','fill_'): return go()
        if name in X.READS or name=='item': self.refuse('reads_value', f'.{name}() reads the values of a tensor; values are only known to the kernels', n)
        if name in ('record_stream','unsafeGetTensorImpl','storage','is_same'): self.unread(f'.{name}', n)
        self.refuse('library_call', f'Tensor::{name} is a library operation; write it as a CUDA kernel', n)

    # ---- launches
    def launch(self, n, f, config, a, scope):
        if self.unit is not self.cuda: self.refuse('compile_error', 'launches a kernel in cpp_sources, which the C++ compiler builds; move it to cuda_sources', n)
        k = self.eval(f, scope)
        if not isinstance(k, Kern): self.unread(f'launching {txt(f)[:40]}', n)
        cfg = [self.eval(c, scope) for c in kids(config)]
        self.start(n, k, cfg, self.args(a, scope))
    def launch_kernel(self, n, a, scope):
        args = self.args(a, scope)
        if len(args)<4 or not isinstance(args[0], Kern) or not isinstance(args[3], Vec): self.unread('this cudaLaunchKernel', n)
        self.start(n, args[0], [args[1], args[2], *args[4:6]], [r.get() if isinstance(r, Ref) else self.unread('this argument of cudaLaunchKernel', n) for r in args[3].items], exact=True)
        return N(0,'int')
    def start(self, n, k:Kern, cfg, values, exact=False):
        self.at = n
        source,expanded = self.device_source,self.cuda.expanded
        grid,block = ((d.x,d.y,d.z) for d in (self.dim3(c, n) for c in cfg[:2]))
        shared = cfg[2].v if len(cfg)>2 and isinstance(cfg[2], N) else 0 if len(cfg)<3 else self.unread('this amount of shared memory', n)
        if len(cfg)>3: self.stream(cfg[3], n)
        expr,params,targs = self.instance(n, k, values, expanded)
        try: grid,block = _dim3(grid,'grid'),_dim3(block,'block')
        except Refusal as e: self.lined(e, n)
        if not 0<=shared<=LIMITS['shared']: self.refuse('launch_config', f'{k.name}: {shared} bytes of dynamic shared memory; a block can have at most {LIMITS["shared"]}', n)
        if shared>max(48<<10, self.shared.get((k.name, targs), 0)): self.refuse('launch_config', f'{k.name}: {shared} bytes of dynamic shared memory need cudaFuncSetAttribute({k.name}, cudaFuncAttributeMaxDynamicSharedMemorySize, {shared})', n)
        args = tuple(self.arg(n, expr, i, p, v, c, exact) for i,(p,v,c) in enumerate(zip(params, values, self.consts(k.name, expanded))))
        _T.rec.step(Launch(expr, _T.rec.module(source, self.options), grid, block, shared, args, _cluster(source, k.name, None, grid)))
    def lined(self, e:Refusal, n)->NoReturn:
        if not hasattr(e, 'cxx'): e.cxx = (self.unit.name, n.start_point[0]+1) # type: ignore[attr-defined]
        raise e
    def consts(self, name, source)->list[bool]: return ['const' in t.split('*')[0].split() for t,_ in kernels(source)[name].params]
    def targ_names(self, k:Kern)->tuple[str,...]: return tuple(self.device_type(t) if not re.fullmatch(r'-?\d+|true|false', t) else t for t in k.targs)
    def instance(self, n, k:Kern, values, source):
        "The name expression of a launch and its parameter list; template arguments that are not given are deduced"
        try: kernel = kernels(source)[k.name]
        except LookupError: self.refuse('no_such_kernel', f'the CUDA source has no __global__ function {k.name} ({", ".join(kernels(source)) or "none at all"}); write it out, not through a macro', n)
        targs = list(self.targ_names(k))
        if len(self.cuda.kernels.get(k.name, []))!=1: self.unread(f'the kernel {k.name}, of which there are {len(self.cuda.kernels.get(k.name, []))},', n)
        if len(values)!=len(kernel.params): self.refuse('arg_count', f'{k.name} takes {len(kernel.params)} arguments ({", ".join(f"{t.strip()} {p}" for t,p in kernel.params)}) but {len(values)} were passed', n)
        for name,default in kernel.templates[len(targs):]:
            got = {self.device_type(v.elem if isinstance(v, Ptr) else v.t) for (t,_),v in zip(kernel.params, values) if isinstance(v, (Ptr,N)) and ' '.join(re.sub(r'\b(const|__restrict__|__restrict|volatile)\b|[*&]', ' ', t).split())==name and ('*' in t)==isinstance(v, Ptr)}
            if len(got)==1: targs.append(got.pop())
            elif len(got)>1: self.refuse('compile_error', f'{k.name}: {name} would be {" and ".join(sorted(got))}', n)
            elif default: break
            else: self.refuse('compile_error', f'{k.name}: the template parameter {name} cannot be deduced; write {k.name}<...>', n)
        if len(targs)>len(kernel.templates): self.refuse('compile_error', f'{k.name} has {len(kernel.templates)} template parameters but {len(targs)} were given', n)
        local = k.name+(f'<{", ".join(targs)}>' if kernel.templates and targs else '')
        expr = self.cuda.kernels[k.name][0][0]+local
        if not NAME.fullmatch(expr): self.unread(f'the kernel name {expr}', n)
        inner = Scope(self.cuda.scope)
        given = [*targs, *(d for _,d in kernel.templates[len(targs):])]
        for (name,_),v in zip(kernel.templates, given):
            if re.fullmatch(r'-?\d+|true|false', v): inner.vars[name] = Var('auto', N(v=='true','bool') if v in ('true','false') else N(int(v),'int'))
            else: inner.types[name] = ('later', v, Scope(self.cuda.scope))
        unit,self.unit = self.unit,self.cuda
        params = [(self.type(t, inner, n), p) for t,p in kernel.params]
        self.unit = unit
        return expr,params,tuple(targs)
    def arg(self, n, kernel, i, param, v, const, exact)->Arg:
        ct,name = param
        base = ct[:-1] if ct.endswith('*') else ct
        plain = HALVES.get(base, base.removeprefix('struct '))+('*' if ct.endswith('*') else '')
        where = f'{kernel}: argument {i} ({name})'
        try:
            if ct.endswith('*'):
                if isinstance(v, N) and v.v==0 and v.t=='int': v = Ptr(None, 'void')
                if isinstance(v, Tensor): raise ArgError('arg_type', f'is a tensor but the parameter is {ct}; pass its data_ptr<...>()')
                if not isinstance(v, Ptr): raise ArgError('arg_type', f'is {self.kind(v)} but the parameter is {ct}')
                if v.tensor is None: return Arg(plain, value=0)
                base = base.removeprefix('struct ')
                if v.elem.removeprefix('struct ')!=base and base!='void': raise ArgError('arg_type', f'is a {v.elem}* but the parameter is {ct}; write reinterpret_cast<{base}*>(...)')
                a = v.tensor._array(const)
                offset = a._offset+v.offset
                try: note = check_pointer(plain, a.dtype.name, offset)
                except ArgError as e: # The program casts on purpose, or data_ptr<T>() had refused
                    if e.kind!='arg_dtype' and not (e.kind=='arg_type' and not ct.endswith('**') and offset==0): raise
                    note = f'{a.dtype.name} read through {plain}'
                if note: _T.rec.note('reinterpreted', f'argument {i} ({name}): {note}', kernel)
                if not 0<=offset<=_T.rec.buffers[a._buffer].nbytes: raise ArgError('arg_range', f'starts {offset} bytes into a buffer of {_T.rec.buffers[a._buffer].nbytes}')
                return Arg(plain, a._buffer, offset)
            if not isinstance(v, N):
                raise ArgError('arg_type', f'is {self.kind(v)} but the parameter is {ct}, which this judge cannot pass; pass pointers and plain numbers')
            if plain not in CTYPES: raise ArgError('arg_type', f'is passed by value but the parameter has type {ct}, which this judge cannot pass; use a pointer or plain scalars')
            if exact and self.promote(v.t)!=self.promote(base) : raise ArgError('arg_type', f'is {v.t} but the parameter is {ct}')
            return Arg(plain, value=check_scalar(plain, self.cast(v, plain).v))
        except ArgError as e: self.refuse(e.kind, f'{where} {e}', n)
        except Refusal as e:
            if hasattr(e, 'cxx'): raise
            e.args = (f'line {n.start_point[0]+1} of the {self.unit.name}: {where} {e}',)
            self.lined(e, n)
