"""The C++ side of a `load_inline` program: a preprocessor and an interpreter for host code, enough for wrappers that allocate and launch.

Host functions are run over their syntax tree, with C++'s own rules for numbers, on tensors without values (`_tensors`). Launches and fills go to the recorder of the
running trace. Whatever cannot be known is refused with its name and line; nothing is guessed.
"""
import math, re, struct
from dataclasses import replace
from typing import Any, NoReturn
from kernelrl import _tensors as X
from kernelrl._cxx_lib import Libraries
from kernelrl._cxx_source import Preprocessor, Unit, declarator_of, device_source, head_of, kids, txt, walk
from kernelrl._cxx_values import (Closure, Dim3, DTYPE_OF, f32, FLOATS, HALVES, Iter, Kern, Missing, N, NULLOPT, NUM, Opaque, Opts, Props, Ptr, Ref, Scope, STEPS, Stream, Sym, Tup,
    UNDEF, UNSET, Var, Vec, _BITS, _Break, _CONST, _Continue, _DT_NAMES, _GUARDS, _LIBRARY, _ORDER, _Return)
from kernelrl._tensors import DT, DTYPES, Device, Tensor
from kernelrl.program import CTYPES, _ALIASES, ctype, parse_cuda
from kernelrl.trace import Refusal, _T

class Interpreter(Libraries):
    "Runs host functions of one extension"
    def __init__(self, cpp:str, cuda:str, options:tuple=(), defines:dict[str,str]={}):
        self.at:Any = None
        self.unit:Any = None
        self.options,self.steps,self.depth = options,0,0
        self.shared:dict[tuple,int] = {} # (kernel, template arguments) -> bytes that cudaFuncSetAttribute allows
        self.cuda,self.cpp = Unit('CUDA source', cuda),Unit('C++ source', cpp)
        self.units = [u for u in (self.cuda,self.cpp) if u.text.strip()]
        base = {'__cplusplus':'201703', '__linux__':'1', '__x86_64__':'1', '__GNUC__':'11', 'TORCH_EXTENSION_NAME':'TORCH_EXTENSION_NAME', **defines}
        for u in self.units:
            self.unit = u
            pp = Preprocessor({**base, **({'__CUDACC__':'1','__NVCC__':'1'} if u is self.cuda else {})}, lambda k,m,line: self.refuse(k, m, line=line))
            u.expanded = pp.run(u.text)
            u.macros = pp.macros
            u.tree = parse_cuda(u.expanded).root_node
            self.collect(u, u.tree, '')
        self.unit = self.cuda
        self.device_source = device_source(self.cuda)

    # ---- refusals
    def refuse(self, kind:str, message:str, node=None, line:int|None=None)->NoReturn: # type: ignore[override]
        node = node if node is not None else self.at
        line = line or (node.start_point[0]+1 if node is not None else None)
        name = self.unit.name if self.unit else 'C++ source'
        try: _T.rec.refuse(kind, f'line {line} of the {name}: {message}')
        except Refusal as e:
            e.cxx = (name, line) # type: ignore[attr-defined]
            raise
    def unread(self, what:str, node=None)->NoReturn: self.refuse('inline_unreadable', f'{what} is not read', node)

    # ---- what the sources define
    def collect(self, u:Unit, node, space:str):
        for n in node.named_children:
            if n.type=='namespace_definition':
                name = n.child_by_field_name('name')
                body = n.child_by_field_name('body')
                if body is not None: self.collect(u, body, space+(txt(name)+'::' if name is not None else ''))
            elif n.type=='linkage_specification':
                body = n.child_by_field_name('body')
                self.collect(u, body, space) if body.type=='declaration_list' else self.collect_one(u, body, space)
            else: self.collect_one(u, n, space)
    def collect_one(self, u:Unit, n, space:str):
        inner = next((c for c in kids(n) if c.type in ('function_definition','declaration','alias_declaration','struct_specifier','class_specifier')), n) if n.type=='template_declaration' else n
        if inner.type in ('function_definition','declaration') and (d := declarator_of(inner)) is not None:
            name = d.child_by_field_name('declarator')
            if name is None: return
            key = txt(name).split('::')[-1]
            head = head_of(inner)
            if '__global__' in head:
                if inner.type=='function_definition' or key not in u.kernels: u.kernels.setdefault(key, [])[:] = [*(k for k in u.kernels.get(key, []) if k[1]), (space, inner.start_byte if inner.type=='function_definition' else 0)]
            elif inner.type=='declaration': u.declared.add(key)
            elif '__device__' not in head or '__host__' in head:
                u.functions.setdefault(key, []).append((n, inner, d))
                u.declared.add(key)
        elif inner.type=='declaration' and n is inner:
            for d in n.children_by_field_name('declarator'):
                i = next(walk(d, 'identifier'), None)
                if i is not None: u.globals.setdefault(txt(i), []).append((space, n, d))
        elif n.type in ('alias_declaration','type_definition'): self.alias(n, u.scope, u)
        elif n.type=='enum_specifier': self.enum(n, u)
        elif inner.type in ('struct_specifier','class_specifier') and inner.child_by_field_name('name') is not None: u.structs.add(txt(inner.child_by_field_name('name')))
        for e in kids(inner, 'struct_specifier','class_specifier'):
            if e.child_by_field_name('name') is not None: u.structs.add(txt(e.child_by_field_name('name')))
    def alias(self, n, scope:Scope, u:Unit):
        name = n.child_by_field_name('name') or n.child_by_field_name('declarator')
        t = n.child_by_field_name('type')
        if name is None or t is None or name.type!='type_identifier': return
        if scope is u.scope and txt(name) in scope.types and scope.types[txt(name)]!=('later', txt(t), scope): u.twice.add(txt(name))
        scope.types[txt(name)] = ('later', txt(t), scope)
    def enum(self, n, u:Unit):
        body,v = n.child_by_field_name('body'),-1
        for e in kids(body, 'enumerator') if body is not None else []:
            value = e.child_by_field_name('value')
            self.unit = u
            v = self.eval(value, u.scope).v if value is not None else v+1
            k = txt(e.child_by_field_name('name'))
            if k in u.scope.vars: u.twice.add(k)
            u.scope.vars[k] = Var('int', N(v,'int'), 'an enumerator')
            if n.child_by_field_name('name') is not None: u.enums[f'{txt(n.child_by_field_name("name"))}::{k}'] = N(v,'int')
        name = n.child_by_field_name('name')
        if name is not None: u.scope.types[txt(name)] = 'int'

    # ---- types
    def type(self, text:str, scope:Scope, node=None)->str:
        t = re.sub(r'\b(const|constexpr|static|inline|volatile|typename|struct|class|enum|mutable|register|extern|__restrict__|__restrict|__forceinline__)\b', ' ', text)
        t = ' '.join(t.replace('&',' ').split())
        t = re.sub(r'\s*::\s*', '::', t)
        stars = len(t)-len(t.rstrip('* '))
        stars = t[len(t.rstrip('* ')):].count('*')
        t = t.rstrip('* ').removeprefix('::')
        base,_,targs = t.partition('<')
        base = base.strip()
        if targs and not t.endswith('>'):
            if m := re.fullmatch(r'(?:std::)?(conditional|remove_const|remove_reference|remove_cv|decay)<(.*)>::type', t): t,base,targs = f'std::{m[1]}_t<{m[2]}>',f'std::{m[1]}_t',m[2]+'>'
            else: self.unread(f'the type {text.strip()}', node)
        if not targs:
            found = scope.type(base)
            if found is None and self.unit is not None:
                for u in self.units:
                    if base.split('::')[-1] in u.twice: self.unread(f'{base}, which stands for several types,', node)
                    if base.split('::')[-1] in u.scope.types and base.split('::')[0] not in ('std','at','torch','c10'): found = u.scope.types[base.split('::')[-1]]
            if found is not None:
                if isinstance(found, tuple): found = self.type(found[1], found[2], node)
                return found+'*'*stars
        short = re.sub(r'^(?:(?:std|at|torch|c10|cuda)::)+', '', base)
        args = self.split(targs[:-1]) if targs else []
        return self._named(short, base, args, scope, node, text)+'*'*stars
    def _named(self, short, base, args, scope, node, text)->str:
        if base in _ALIASES or short in _ALIASES: return _ALIASES.get(base) or _ALIASES[short]
        if short in ('Half','BFloat16') and base!=short: return 'c10::'+short
        if short in NUM or short in ('auto','void','Tensor','dim3','Scalar','string','TensorOptions'): return short
        if short in ('vector','SmallVector','ArrayRef','array','initializer_list','OptionalArrayRef'): return f'vector<{self.type(args[0], scope, node) if args else ""}>'
        if short in ('IntArrayRef','SymIntArrayRef','IntList','DimVector'): return 'vector<long>'
        if short in ('TensorList','ITensorListRef'): return 'vector<Tensor>'
        if short=='optional': return f'optional<{self.type(args[0], scope, node)}>'
        if short in ('tuple','pair'): return f'tuple<{", ".join(self.type(a, scope, node) for a in args)}>'
        if short in ('ScalarType','Dtype','TypeMeta'): return 'dtype'
        if short in ('Device','DeviceType'): return 'device'
        if short in ('CUDAStream','cudaStream_t','Stream'): return 'stream'
        if short in ('cudaError_t','cudaError'): return 'int'
        if short=='cudaDeviceProp': return 'props'
        if short=='string_view' or base=='char': return 'string'
        if short in _GUARDS: return 'guard'
        if short=='function': return 'auto'
        if short in ('remove_const_t','remove_reference_t','remove_cv_t','decay_t'): return self.type(args[0], scope, node)
        if short=='conditional_t' and len(args)==3:
            c = self.eval(parse_cuda(f'bool krl_c = {args[0]};').root_node.named_children[0].child_by_field_name('declarator').child_by_field_name('value'), scope)
            return self.type(args[1] if self.truth(c) else args[2], scope, node)
        if short=='acc_type' and args: return {'c10::Half':'float','c10::BFloat16':'float'}.get(t := self.type(args[0], scope, node), t)
        if _LIBRARY.match(base): self.refuse('library_call', f'{base}: the library does the work; write it as a CUDA kernel', node)
        if re.fullmatch(r'(char|uchar|short|ushort|int|uint|long|ulong|longlong|ulonglong|float|double|half|__half|bfloat16|__nv_bfloat16)[1234]', short) or short in ('half2','bfloat162','__nv_bfloat162'): return ctype(short)
        if any(base.split('::')[-1] in u.structs for u in self.units): return 'struct '+base+(f'<{", ".join(self.targ_text(a, scope, node) for a in args)}>' if args else '')
        self.unread(f'the type {text.strip()}', node)
    def split(self, s:str)->list[str]:
        out,depth,cur = [],0,''
        for c in s:
            depth += (c in '<([{')-(c in '>)]}')
            if c==',' and depth==0: out.append(cur.strip()); cur = ''
            else: cur += c
        return [*out, cur.strip()] if cur.strip() else out
    def device_type(self, t:str)->str: # As it is written in a kernel's name expression
        return t.removeprefix('struct ').replace('bfloat16','__nv_bfloat16') if t!='half' else '__half'
    def targ_text(self, a:str, scope, node)->str:
        "A template argument as text"
        a = a.strip()
        if re.fullmatch(r'-?\d+|true|false', a): return a
        if re.fullmatch(r'[A-Za-z_]\w*', a) and (v := self.variable(a, scope)) is not None:
            if isinstance(v.v, N): return self.literal(v.v, node)
        return self.device_type(self.type(a, scope, node))
    def literal(self, v:N, node)->str:
        if v.t=='bool': return 'true' if v.v else 'false'
        if v.t in FLOATS: self.unread('a float as template argument', node)
        return str(v.v)
    def targs(self, node, scope)->list[str]:
        "Template arguments of an expression: types as canonical names, values as literals"
        out = []
        for a in kids(node):
            if a.type=='type_descriptor':
                name = txt(a)
                if re.fullmatch(r'\w+', name) and scope.type(name) is None and (v := self.variable(name, scope)) is not None and isinstance(v.v, N): out.append(self.literal(v.v, a))
                else: out.append(self.type(name, scope, a))
            else: out.append(self.literal(self.number(a, scope), a))
        return out

    # ---- variables
    def variable(self, name:str, scope:Scope)->Var|None:
        v = scope.find(name)
        if v is not None: return v
        for u in sorted(self.units, key=lambda u: u is not self.unit):
            if name in u.twice or len(u.globals.get(name, []))>1: self.unread(f'{name}, which stands for several things,')
            if name in u.scope.vars: return u.scope.vars[name]
            if name in u.globals: return self.global_(u, name, u.globals[name][0], u.scope)
        return None
    def global_(self, u:Unit, name, entry, scope:Scope)->Var|None:
        _,n,d = entry
        before,self.unit = self.unit,u
        const = any(c.type=='type_qualifier' for c in kids(n))
        self.declare(n, scope, only=d, frozen='a global variable'+('' if const else ' that is not const'))
        self.unit = before
        return scope.vars.get(name)
    def qualified(self, name:str)->Any:
        "A constant of a namespace or of an enum"
        parts = name.split('::')
        for u in self.units:
            if '::'.join(parts[-2:]) in u.enums: return u.enums['::'.join(parts[-2:])]
            fit = [g for g in u.globals.get(parts[-1], []) if (g[0]+parts[-1]==name or (g[0]+parts[-1]).endswith('::'+name))]
            if len(fit)==1 and (v := self.global_(u, parts[-1], fit[0], Scope(u.scope))) is not None: return v.v
        return None
    def lvalue(self, n, scope)->Ref:
        if n.type=='parenthesized_expression': return self.lvalue(kids(n)[0], scope)
        if n.type=='identifier':
            v = self.variable(txt(n), scope)
            if v is None: self.unread(f'the name {txt(n)}', n)
            def put(x):
                if v.frozen: self.refuse('inline_unreadable', f'assigns {txt(n)}, which is {v.frozen}: what it holds at the next call is not known', n)
                v.v = x
            return Ref(lambda: v.v, put, v.t)
        if n.type=='subscript_expression':
            o,i = self.eval(n.child_by_field_name('argument'), scope),self.index(n, scope)
            if isinstance(o, Vec):
                if not 0<=i<len(o.items): self.refuse('host_check', f'index {i} is outside of a vector of {len(o.items)}', n)
                return Ref(lambda: o.items[i], lambda x: o.items.__setitem__(i, x), o.t)
        if n.type=='field_expression':
            o,f = self.eval(n.child_by_field_name('argument'), scope),txt(n.child_by_field_name('field'))
            if isinstance(o, Dim3) and f in ('x','y','z'): return Ref(lambda: N(getattr(o,f),'unsigned int'), lambda x: setattr(o, f, x.v), 'unsigned int')
        if n.type=='pointer_expression' and txt(n.child_by_field_name('operator'))=='*':
            o = self.eval(n.child_by_field_name('argument'), scope)
            if isinstance(o, Ref): return o
        self.unread(f'assigning to {txt(n)[:60]}', n)
    def index(self, n, scope)->int:
        ks = kids(n.child_by_field_name('indices'))
        if len(ks)!=1: self.unread('an index', n)
        return self.number(ks[0], scope).v

    # ---- conversions
    def number(self, n, scope)->N:
        v = self.eval(n, scope)
        if not isinstance(v, N): self.unread(f'{txt(n)[:60]} as a number ({self.kind(v)})', n)
        return v
    def kind(self, v)->str: return v.what if isinstance(v, (Missing,Opaque)) else v.t if isinstance(v, N) else type(v).__name__.lower()
    def truth(self, v)->bool:
        if isinstance(v, N): return bool(v.v)
        if v is NULLOPT: return False
        if isinstance(v, Ptr): return v.tensor is not None
        if isinstance(v, Tensor): return True # An optional that holds one
        self.unread(f'{self.kind(v)} as a condition')
    def cast(self, v, t:str)->N:
        "A number as another type, as C++ converts it"
        if t in FLOATS:
            x = float(v.v)
            return N(x if t=='double' else f32(x) if t=='float' else x, t)
        if t=='bool': return N(bool(v.v), t)
        x = v.v
        if isinstance(x, float):
            if not math.isfinite(x): self.refuse('arg_range', f'{x} is converted to {t}')
            x = math.trunc(x)
        x = int(x)
        base = {'char':'signed char'}.get(t,t)
        bits = 8*struct.calcsize('<'+CTYPES[base][0])
        if base.startswith('unsigned'): return N(x % (1<<bits), t)
        if not -(1<<bits-1)<=x<1<<bits-1: self.refuse('arg_range', f'{x} does not fit into {t}; use int64_t')
        return N(x, t)
    def conv(self, v, t:str, node=None):
        "A value as the type of what it is put into"
        if t in ('auto',''): return Vec(v.items, v.t) if type(v) is Vec else Dim3(v.x,v.y,v.z) if isinstance(v, Dim3) else v
        if v is UNSET: self.refuse('inline_unreadable', 'reads a variable that has no value yet', node)
        if isinstance(v, Vec) and not v.t and t in NUM and type(v) is Vec: v = v.items[0] if len(v.items)==1 else N(0,'int') if not v.items else v
        if t in NUM and isinstance(v, N): return self.cast(v, t)
        if t in NUM and isinstance(v, Ptr) and t=='bool': return N(v.tensor is not None, t)
        if t.endswith('*'): return self.pointer(v, t[:-1], node)
        if t=='Tensor' and (isinstance(v, Tensor) or v is UNDEF): return v
        if t=='Tensor' and type(v) is Vec and not v.t and not v.items: return UNDEF
        if t.startswith('vector<') and isinstance(v, Vec): return Vec([self.conv(i, t[7:-1], node) for i in v.items], t[7:-1])
        if t=='vector<long>' and isinstance(v, N): return Vec([self.cast(v,'long')], 'long')
        if t.startswith('optional<'):
            if v is NULLOPT or type(v) is Vec and not v.t and not v.items: return NULLOPT
            return self.conv(v, t[9:-1], node)
        if t.startswith('tuple<') and isinstance(v, Vec):
            ts = self.split(t[6:-1])
            if len(ts)==len(v.items): return Tup([self.conv(i, s, node) for i,s in zip(v.items, ts)])
        if t=='dim3': return self.dim3(v, node)
        if t in ('string',) and isinstance(v, str): return v
        if t=='dtype' and isinstance(v, DT): return v
        if t=='device' and isinstance(v, Device): return v
        if t=='TensorOptions' and isinstance(v, (Opts,DT,Device)): return self.opts([v])
        if t=='stream': return self.stream(v, node)
        if t=='Scalar' and isinstance(v, N): return v
        if t=='props' and isinstance(v, Props) or t=='props*' or t=='guard': return v
        if t=='void': return None
        if t.startswith('struct '): self.unread(f'a value of type {t[7:]}', node)
        self.refuse('inline_unreadable', f'{self.kind(v)} as {t}', node)
    def pointer(self, v, elem:str, node)->Any:
        if isinstance(v, N) and v.v==0: return Ptr(None, elem)
        if isinstance(v, (Ref,Props)) or isinstance(v, str) and elem=='char': return v
        if not isinstance(v, Ptr): self.refuse('inline_unreadable', f'{self.kind(v)} as a pointer', node)
        if v.tensor is None or elem in ('void','auto') or v.elem==elem: return replace(v, elem=v.elem if elem=='auto' else elem)
        self.refuse('compile_error', f'a {v.elem}* is no {elem}*; write reinterpret_cast<{elem}*>(...)', node)
    def dim3(self, v, node)->Dim3:
        if isinstance(v, Dim3): return Dim3(v.x, v.y, v.z)
        items = v.items if isinstance(v, Vec) else [v]
        if not all(isinstance(i, N) for i in items) or len(items)>3: self.unread(f'{self.kind(v)} as dim3', node)
        return Dim3(*(self.cast(i,'unsigned int').v if i.v>=0 else self.refuse('launch_config', f'a dimension of {i.v}', node) for i in items))
    def stream(self, v, node)->Stream:
        if isinstance(v, Stream): return v
        if isinstance(v, N) and v.v==0 or isinstance(v, Ptr) and v.tensor is None: return Stream()
        self.refuse('stream', f'{self.kind(v)} as a stream; launch on at::cuda::getCurrentCUDAStream()', node)
    def opts(self, args)->Opts:
        o = Opts(device=Device('cpu'))
        for a in args:
            if isinstance(a, Opts): o = a
            elif isinstance(a, DT): o = replace(o, dtype=a)
            elif isinstance(a, Device): o = replace(o, device=a)
            elif isinstance(a, Sym) and 'contiguous' in a.name.lower() or a is NULLOPT: pass
            else: self.unread(f'{self.kind(a)} as tensor options')
        return o
    def plain(self, v):
        "For a method of a tensor: C++ values as Python's"
        if isinstance(v, N): return v.v
        if isinstance(v, Vec): return [self.plain(i) for i in v.items]
        if v is NULLOPT: return None
        return v
    def wrap(self, v, t='long'):
        if isinstance(v, bool): return N(v,'bool')
        if isinstance(v, int): return N(v,t)
        if isinstance(v, float): return N(v,'double')
        if isinstance(v, (tuple,list)): return Vec([self.wrap(i) for i in v], 'Tensor' if v and isinstance(v[0], Tensor) else 'long')
        return v

    # ---- statements
    def run(self, n, scope:Scope):
        self.steps += 1
        if self.steps>STEPS: self.refuse('inline_unreadable', 'the host code runs for too long; a wrapper should only allocate and launch', n)
        if n.is_error or n.is_missing: self.refuse('inline_unreadable', f'syntax that is not understood: {txt(n)[:60]}', n)
        self.at = n
        do = getattr(self, 's_'+n.type, None)
        if do is None: self.unread(f'a {n.type.replace("_"," ")}', n)
        return do(n, scope)
    def s_compound_statement(self, n, scope):
        inner = Scope(scope)
        for c in kids(n): self.run(c, inner)
    def s_comment(self, n, scope): pass
    def s_expression_statement(self, n, scope):
        for c in kids(n): self.eval(c, scope)
    def s_declaration(self, n, scope): self.declare(n, scope)
    def s_alias_declaration(self, n, scope): scope.types[txt(n.child_by_field_name('name'))] = self.type(txt(n.child_by_field_name('type')), scope, n)
    def s_type_definition(self, n, scope): scope.types[txt(n.child_by_field_name('declarator'))] = self.type(txt(n.child_by_field_name('type')), scope, n)
    def s_using_declaration(self, n, scope): pass
    def s_static_assert_declaration(self, n, scope): pass
    def s_else_clause(self, n, scope):
        for c in kids(n): self.run(c, scope)
    def condition(self, n, scope)->bool:
        for c in kids(n):
            if c.type=='init_statement':
                for d in kids(c): self.run(d, scope)
        v = n.child_by_field_name('value') if n.type=='condition_clause' else n
        if v.type=='declaration': self.unread('a declaration as a condition', n)
        return self.truth(self.eval(v, scope))
    def s_if_statement(self, n, scope):
        inner = Scope(scope)
        if self.condition(n.child_by_field_name('condition'), inner): self.run(n.child_by_field_name('consequence'), inner)
        elif (a := n.child_by_field_name('alternative')) is not None: self.run(a, inner)
    def body(self, n, scope)->bool: # False: the loop ends
        try: self.run(n, Scope(scope))
        except _Break: return False
        except _Continue: pass
        return True
    def s_for_statement(self, n, scope):
        inner = Scope(scope)
        if (i := n.child_by_field_name('initializer')) is not None: (self.run if i.type=='declaration' else self.eval)(i, inner)
        c,u = n.child_by_field_name('condition'),n.child_by_field_name('update')
        while c is None or self.condition(c, inner):
            if not self.body(n.child_by_field_name('body'), inner): break
            if u is not None: self.eval(u, inner)
    def s_while_statement(self, n, scope):
        while self.condition(n.child_by_field_name('condition'), scope):
            if not self.body(n.child_by_field_name('body'), scope): break
    def s_do_statement(self, n, scope):
        while True:
            if not self.body(n.child_by_field_name('body'), scope): break
            if not self.condition(n.child_by_field_name('condition'), scope): break
    def s_for_range_loop(self, n, scope):
        seq = self.eval(n.child_by_field_name('right'), scope)
        if not isinstance(seq, Vec): self.unread(f'a loop over {self.kind(seq)}', n)
        d = n.child_by_field_name('declarator')
        t = self.type(txt(n.child_by_field_name('type')), scope, n)
        if d.type=='reference_declarator' and b'const' not in n.text[:d.start_byte-n.start_byte]:
            name = txt(kids(d)[0])
            for i in range(len(seq.items)):
                inner = Scope(scope)
                inner.vars[name] = v = Var(seq.t or 'auto', seq.items[i])
                go = self.body(n.child_by_field_name('body'), inner)
                seq.items[i] = v.v
                if not go: break
            return
        for item in list(seq.items):
            inner = Scope(scope)
            self.bind(d, t, item, inner, '')
            if not self.body(n.child_by_field_name('body'), inner): break
    def s_switch_statement(self, n, scope):
        v = self.eval(n.child_by_field_name('condition').child_by_field_name('value'), scope)
        cases = kids(n.child_by_field_name('body'), 'case_statement')
        same = lambda c: (value := c.child_by_field_name('value')) is not None and self.truth(self.equal(v, self.eval(value, scope)))
        start = next((i for i,c in enumerate(cases) if same(c)), None)
        if start is None: start = next((i for i,c in enumerate(cases) if c.child_by_field_name('value') is None), None)
        if start is None: return
        inner = Scope(scope)
        try:
            for c in cases[start:]:
                value = c.child_by_field_name('value')
                for s in kids(c):
                    if value is None or s.id!=value.id: self.run(s, inner)
        except _Break: pass
    def s_return_statement(self, n, scope):
        ks = kids(n)
        raise _Return(self.eval(ks[0], scope) if ks else None)
    def s_break_statement(self, n, scope): raise _Break()
    def s_continue_statement(self, n, scope): raise _Continue()
    def s_throw_statement(self, n, scope):
        text = ' '.join(txt(s) for s in walk(n, 'string_content'))
        self.refuse('host_check', f'the wrapper throws: {text[:200] or txt(n)[:80]}', n)
    def s_try_statement(self, n, scope): self.run(n.child_by_field_name('body'), scope)
    def s_struct_specifier(self, n, scope): self.unread('a struct in a function', n)

    # ---- declarations
    def declare(self, n, scope, only=None, frozen:str=''):
        ty = n.child_by_field_name('type')
        head = ' '.join(txt(c) for c in kids(n) if c.type in ('storage_class_specifier','type_qualifier'))
        if 'static' in head.split() and 'const' not in head: frozen = 'static'
        text = txt(ty)
        t = 'auto' if 'auto' in text.split() or ty.type=='placeholder_type_specifier' else self.type(text, scope, n)
        for d in n.children_by_field_name('declarator'):
            if only is not None and d.id!=only.id: continue
            value = d.child_by_field_name('value') if d.type=='init_declarator' else None
            target = d.child_by_field_name('declarator') if d.type=='init_declarator' else d
            if target.type=='function_declarator': target,value = target.child_by_field_name('declarator'),self.as_arguments(target, scope, n)
            self.declare_one(target, t, value, scope, frozen, n, 'const' in head)
    def as_arguments(self, d, scope, n):
        "`dim3 grid(a, b * c);` looks like a function's declaration; if the names are variables, it is none"
        ps = d.child_by_field_name('parameters')
        first = next(walk(ps, 'type_identifier','identifier','qualified_identifier'), None)
        if first is None or self.variable(txt(first), scope) is None and not self.functions(txt(first)): self.unread(f'{txt(n)[:60]}, which declares a function,', n)
        again = parse_cuda('\n'*n.start_point[0]+f'void krl() {{ krl{txt(ps)}; }}').root_node
        return next(walk(again, 'argument_list'))
    def declare_one(self, d, t, value, scope, frozen, n, const):
        ref = False
        while d.type in ('pointer_declarator','reference_declarator'):
            if d.type=='pointer_declarator': t = t+'*' if t!='auto' else t
            else: ref = True
            d = d.child_by_field_name('declarator') or kids(d)[-1]
        if d.type=='array_declarator':
            size = d.child_by_field_name('size')
            v = self.eval(value, scope) if value is not None else Vec([])
            items = [self.conv(i, t, n) for i in v.items]
            count = self.number(size, scope).v if size is not None else len(items)
            scope.vars[txt(d.child_by_field_name('declarator'))] = Var('auto', Vec(items+[N(0,t) if items and t in NUM else UNSET]*(count-len(items)), t), '')
            return
        if ref and const and value is not None and value.type=='identifier' and (v := self.variable(txt(value), scope)) is not None and t in ('auto', v.t):
            scope.vars[txt(d)] = v
            return
        if ref and not const and value is not None and value.type in ('identifier','subscript_expression'):
            r = self.lvalue(value, scope)
            if value.type=='identifier': scope.vars[txt(d)] = self.variable(txt(value), scope) # type: ignore[assignment]
            else: self.unread('a reference to an element', n) if not isinstance(r.get(), (Tensor,Vec)) else scope.vars.__setitem__(txt(d), Var('auto', r.get(), 'a reference'))
            return
        if value is None: v = self.default(t, n)
        elif value.type=='argument_list': v = self.construct(t, self.args(value, scope), n)
        elif value.type=='initializer_list': v = self.construct(t, [self.eval(c, scope) for c in kids(value)], n, brace=True)
        else: v = self.eval(value, scope)
        self.bind(d, t, v, scope, frozen)
    def bind(self, d, t, v, scope, frozen):
        if d.type=='reference_declarator': d = kids(d)[-1]
        if d.type=='structured_binding_declarator':
            names = [txt(c) for c in kids(d,'identifier')]
            if not isinstance(v, Vec) or len(v.items)!=len(names): self.unread(f'taking {self.kind(v)} apart', d)
            for k,i in zip(names, v.items): scope.vars[k] = Var('auto', i)
            return
        if d.type not in ('identifier','type_identifier'): self.unread(f'the declaration of {txt(d)[:40]}', d)
        v = v if v is UNSET else self.conv(v, t, d)
        if frozen in ('static','a global variable that is not const') and isinstance(v, (Vec,Dim3)): self.unread(f'{txt(d)}, which keeps what is put into it for the next call,', d)
        scope.vars[txt(d)] = Var(t if t!='auto' else v.t if isinstance(v, N) else t, v, frozen)
    def default(self, t, n):
        if t=='Tensor': return UNDEF
        if t.startswith('vector<'): return Vec([], t[7:-1])
        if t.startswith('optional<'): return NULLOPT
        if t=='dim3': return Dim3()
        if t=='string': return ''
        if t=='props': return Props()
        if t=='guard': return Opaque('guard')
        if t=='TensorOptions': return self.opts([])
        if t.startswith('tuple<'): return Tup([self.default(s, n) for s in self.split(t[6:-1])])
        if t in NUM or t.endswith('*') or t in ('dtype','stream'): return UNSET
        self.unread(f'a variable of type {t.removeprefix("struct ")}', n)
    def construct(self, t:str, args:list, n, brace:bool=False):
        if t.startswith('vector<'):
            e = t[7:-1]
            if brace or len(args)==1 and type(args[0]) is Vec and not args[0].t: return Vec([self.conv(a, e, n) for a in (args if brace else args[0].items)], e)
            if len(args)==2 and isinstance(args[0], Iter): return Vec([self.conv(a, e, n) for a in args[0].vec.items[args[0].i:args[1].i]], e)
            if len(args)==1 and isinstance(args[0], Vec): return self.conv(args[0], t, n)
            if 1<=len(args)<=2 and isinstance(args[0], N) and 0<=args[0].v<=64: return Vec([self.conv(args[1], e, n) if len(args)==2 else self.cast(N(0,'int'),e) if e in NUM else self.default(e, n)]*args[0].v, e)
            self.unread('this way to make a vector', n)
        if t=='dim3': return self.dim3(Vec(args), n)
        if t=='guard': return Opaque('guard')
        if t=='TensorOptions': return self.opts(args)
        if t=='device':
            for a in args[1:]:
                if self.plain(a) not in (0,-1): self.refuse('device_query', 'a device other than cuda:0', n)
            return Device(args[0].name if isinstance(args[0], Sym) else args[0])
        if t.startswith('tuple<'): return self.conv(Tup(args), t, n)
        if brace and not args: return N(self.cast(N(0,'int'),t).v, t) if t in NUM else Ptr(None, t[:-1]) if t.endswith('*') else self.default(t, n)
        if not args: return N(self.cast(N(0,'int'),t).v, t) if t in NUM else self.default(t, n)
        if t=='string' and isinstance(args[0], str): return args[0]
        if t=='auto' and brace and len(args)==1: return args[0]
        if len(args)==1: return self.conv(args[0], t, n)
        self.unread(f'making a {t.removeprefix("struct ")}', n)

    # ---- expressions
    def eval(self, n, scope)->Any:
        self.steps += 1
        if self.steps>STEPS: self.refuse('inline_unreadable', 'the host code runs for too long; a wrapper should only allocate and launch', n)
        if n.is_error or n.is_missing: self.refuse('inline_unreadable', f'syntax that is not understood: {txt(n)[:60]}', n)
        do = getattr(self, 'x_'+n.type, None)
        if do is None: self.unread(f'the expression {txt(n)[:60]}', n)
        return do(n, scope)
    def x_parenthesized_expression(self, n, scope): return self.eval(kids(n)[0], scope)
    def x_condition_clause(self, n, scope): return self.eval(n.child_by_field_name('value'), scope)
    def x_number_literal(self, n, scope)->N:
        s = txt(n).replace("'",'').lower()
        if s[0] in '+-': # The grammar takes a sign for a part of the number
            v = self.literal_number(s[1:].strip(), n)
            return self.cast(N(-v.v if s[0]=='-' else v.v, v.t), v.t)
        return self.literal_number(s, n)
    def literal_number(self, s:str, n)->N:
        if not s.startswith('0x') and re.search(r'[.e]', s):
            return N(f32(float(s[:-1])),'float') if s.endswith('f') else N(float(s.rstrip('l')),'double')
        m = re.fullmatch(r'(0x[0-9a-f]+|0b[01]+|\d+)([ul]*)(f?)', s)
        if not m: self.unread(f'the number {s}', n)
        if m[3]: return N(float(m[1]),'float')
        v = int(m[1], 8) if re.fullmatch(r'0\d+', m[1]) else int(m[1], 0)
        for t in ('int','unsigned int','long','unsigned long') if 'l' not in m[2] else ('long','unsigned long') if m[2].count('l')==1 else ('long long','unsigned long long'):
            uns = t.startswith('unsigned')
            if ('u' in m[2])>uns or uns and 'u' not in m[2] and not s.startswith('0'): continue
            if v<(1<<_BITS[t]-(not uns)): return N(v,t)
        self.unread(f'the number {s}', n)
    def x_true(self, n, scope): return N(True,'bool')
    def x_false(self, n, scope): return N(False,'bool')
    def x_null(self, n, scope): return Ptr(None,'void')
    def x_string_literal(self, n, scope): return ''.join(txt(c) for c in kids(n))
    def x_concatenated_string(self, n, scope): return ''.join(self.eval(c, scope) for c in kids(n))
    def x_raw_string_literal(self, n, scope): return txt(n)
    def x_char_literal(self, n, scope): return N(ord(txt(n)[1]),'char') if len(txt(n))==3 else self.unread('a character', n)
    def x_initializer_list(self, n, scope): return Vec([self.eval(c, scope) for c in kids(n)])
    def x_comma_expression(self, n, scope):
        self.eval(n.child_by_field_name('left'), scope)
        return self.eval(n.child_by_field_name('right'), scope)
    def x_conditional_expression(self, n, scope):
        yes = self.truth(self.eval(n.child_by_field_name('condition'), scope))
        a,b = n.child_by_field_name('consequence'),n.child_by_field_name('alternative')
        v = self.eval(a if yes else b, scope)
        if isinstance(v, N): # The common type of both, where the other has no effect on anything
            other = b if yes else a
            t = self.static_type(other, scope)
            if t: return self.cast(v, self.common(v.t, t))
            if other.type not in ('number_literal','identifier'): return v if v.t in ('double',) else self.loose(v, other, scope)
        return v
    def static_type(self, n, scope)->str|None:
        "The type of an expression that may be looked at without running it"
        if n.type=='parenthesized_expression': return self.static_type(kids(n)[0], scope)
        if n.type=='number_literal': return self.x_number_literal(n, scope).t
        if n.type in ('true','false'): return 'bool'
        if n.type=='identifier': return v.v.t if (v := self.variable(txt(n), scope)) and isinstance(v.v, N) else None
        if n.type=='unary_expression': return self.static_type(n.child_by_field_name('argument'), scope)
        if n.type=='cast_expression' and (t := self.type(self.desc(n), scope, n)) in NUM: return t
        if n.type=='binary_expression':
            if txt(n.child_by_field_name('operator')) in ('==','!=','<','>','<=','>=','&&','||'): return 'bool'
            a,b = (self.static_type(n.child_by_field_name(s), scope) for s in ('left','right'))
            return self.common(a, b) if a and b else None
        if n.type=='conditional_expression':
            a,b = (self.static_type(n.child_by_field_name(s), scope) for s in ('consequence','alternative'))
            return self.common(a, b) if a and b else None
        if n.type=='call_expression':
            f = n.child_by_field_name('function')
            if f.type=='field_expression' and txt(f.child_by_field_name('field')) in ('size','numel','dim','stride','nbytes'): return 'long'
            if f.type=='template_function' and txt(f.child_by_field_name('name')) in ('static_cast',): return self.type(txt(kids(f.child_by_field_name('arguments'))[0]), scope, n)
            if f.type=='primitive_type': return self.type(txt(f), scope, n)
            if f.type=='identifier' and (fs := self.functions(txt(f))) and len(fs)==1 and re.fullmatch(r'[\w :]+', fs[0].ret) and (known := self.try_type(fs[0].ret, scope)) in NUM: return known
            if txt(f).replace('std::','') in ('min','max'): return self.static_type(kids(n.child_by_field_name('arguments'))[0], scope)
        return None
    def loose(self, v:N, other, scope)->N:
        self.unread(f'the type of {txt(other)[:50]} in a ternary', other)
    def x_identifier(self, n, scope):
        name = txt(n)
        v = self.variable(name, scope)
        if v is not None:
            if v.v is UNSET: self.refuse('inline_unreadable', f'{name} is read before it has a value', n)
            return v.v
        return self.named(name, n, scope)
    x_type_identifier = x_namespace_identifier = x_field_identifier = x_identifier
    def x_qualified_identifier(self, n, scope):
        return self.named(re.sub(r'\s+', '', txt(n)).removeprefix('::'), n, scope)
    def named(self, name:str, n, scope):
        short = re.sub(r'^(?:(?:at|torch|c10|std|cuda)::)+', '', name)
        if name in _CONST: return N(*_CONST[name])
        if short in _DT_NAMES: return DTYPES[_DT_NAMES[short]]
        if short in ('kCUDA','DeviceType::CUDA'): return Device('cuda')
        if short in ('kCPU','DeviceType::CPU'): return Device('cpu')
        if short in ('nullopt','none'): return NULLOPT
        if short in ('kStrided',): return Sym('strided_contiguous')
        if short in ('MemoryFormat::Contiguous',): return 'contiguous_format'
        if short.startswith('MemoryFormat::'): self.unread(f'the memory format {short}', n)
        if name in ('std::cout','std::cerr','stderr','stdout','std::endl','endl'): return Opaque(name)
        last = name.split('::')[-1]
        if '<' not in name and any(last in u.kernels for u in self.units): return Kern(last)
        if f := self.functions(last): return f[0]
        if '::' in name and '<' not in name and (v := self.qualified(name)) is not None: return v
        if m := re.fullmatch(r'(?:std::)?is_same(?:_v)?<(.*)>(?:::value)?', name):
            a,b = (self.type(t, scope, n) for t in self.split(m[1]))
            return N(a==b,'bool')
        if m := re.fullmatch(r'(?:std::)?is_(floating_point|integral)(?:_v)?<(.*)>(?:::value)?', name):
            t = self.type(m[2], scope, n)
            return N((t in ('float','double')) if m[1]=='floating_point' else t in NUM and t not in FLOATS,'bool')
        if m := re.fullmatch(r'(?:torch|c10|at)::CppTypeToScalarType<(.*)>::value', name): return DTYPES[DTYPE_OF[self.type(m[1], scope, n)]]
        if re.match(r'cuda[A-Z]', name): return Sym(name)
        m = re.match(r'([\w:]+)<(.*)>$', name)
        if m and any(m[1].split('::')[-1] in u.kernels for u in self.units): return Kern(m[1].split('::')[-1], tuple(self.targs(self.template_args(n), scope)))
        self.unread(f'the name {name}', n)
    def template_args(self, n): return next(walk(n, 'template_argument_list'))
    def x_template_function(self, n, scope):
        name = txt(n.child_by_field_name('name'))
        if any(name.split('::')[-1] in u.kernels for u in self.units): return Kern(name.split('::')[-1], tuple(self.targs(n.child_by_field_name('arguments'), scope)))
        return self.named(re.sub(r'\s+',' ',txt(n)), n, scope)
    x_template_type = x_template_function
    def x_lambda_expression(self, n, scope)->Closure:
        cap = n.child_by_field_name('captures')
        text = txt(cap) if cap is not None else '[]'
        inner = scope
        if '=' in text and re.search(r'\w\s*=', text): self.unread('a capture with an initialiser', n)
        if '=' in text or re.search(r'[\[,]\s*\w', text):
            inner = scope.copy()
            for m in re.findall(r'&\s*(\w+)', text):
                if (v := self.variable(m, scope)) is not None: inner.vars[m] = v
        d = n.child_by_field_name('declarator')
        params = kids(d.child_by_field_name('parameters')) if d is not None else []
        trailing = next((c for c in kids(d) if c.type=='trailing_return_type'), None) if d is not None else None
        return Closure(params, n.child_by_field_name('body'), inner, self.unit, self.type(txt(kids(trailing)[0]), scope, n) if trailing is not None else 'auto')
    def x_unary_expression(self, n, scope):
        op,v = txt(n.child_by_field_name('operator')),self.eval(n.child_by_field_name('argument'), scope)
        if op=='!': return N(not self.truth(v),'bool')
        if not isinstance(v, N): self.work(v, f'operator {op}', n)
        v = self.cast(v, self.promote(v.t))
        if op=='-': return self.cast(N(-v.v, v.t), v.t)
        if op=='+': return v
        if op=='~' and v.t not in FLOATS: return self.cast(N(~v.v, v.t), v.t)
        self.unread(f'operator {op}', n)
    def x_pointer_expression(self, n, scope):
        op,a = txt(n.child_by_field_name('operator')),n.child_by_field_name('argument')
        if op=='&':
            if a.type in ('identifier','template_function','qualified_identifier') and (a.type!='identifier' or self.variable(txt(a), scope) is None): return self.eval(a, scope)
            return self.lvalue(a, scope)
        v = self.eval(a, scope)
        if isinstance(v, Ref): return v.get()
        if isinstance(v, Iter): return v.vec.items[v.i]
        if isinstance(v, (Tensor,Vec,N)): return v # Of an optional
        if isinstance(v, Ptr): self.refuse('reads_value', 'reads device memory on the host; values are only known to the kernels', n)
        self.unread(f'operator * on {self.kind(v)}', n)
    def x_update_expression(self, n, scope):
        r = self.lvalue(n.child_by_field_name('argument'), scope)
        old = r.get()
        if not isinstance(old, N): self.unread(f'{txt(n)}', n)
        new = self.cast(N(old.v+(1 if txt(n.child_by_field_name('operator'))=='++' else -1), old.t), old.t)
        r.set(new)
        return old if n.child_by_field_name('argument').start_byte==n.start_byte else new
    def x_assignment_expression(self, n, scope):
        l,r = n.child_by_field_name('left'),n.child_by_field_name('right')
        op = txt(n.child_by_field_name('operator')) if n.child_by_field_name('operator') is not None else '='
        if op=='=' and l.type=='call_expression' and txt(l.child_by_field_name('function')) in ('std::tie','tie'):
            v = self.eval(r, scope)
            targets = kids(l.child_by_field_name('arguments'))
            if not isinstance(v, Vec) or len(v.items)!=len(targets): self.unread(f'std::tie of {self.kind(v)}', n)
            for t,i in zip(targets, v.items):
                if txt(t)!='std::ignore': ref = self.lvalue(t, scope); ref.set(self.conv(i, ref.t, n))
            return v
        v = self.eval(r, scope)
        ref = self.lvalue(l, scope)
        if op!='=':
            old = ref.get()
            if isinstance(old, str) and op=='+=': ref.set(old+str(v)); return ref.get()
            v = self.binary(op[:-1], old, v, n)
        v = self.conv(v, ref.t, n)
        ref.set(v)
        return v
    def x_subscript_expression(self, n, scope):
        o = self.eval(n.child_by_field_name('argument'), scope)
        i = self.index(n, scope)
        if isinstance(o, Vec):
            if not 0<=i<len(o.items): self.refuse('host_check', f'index {i} is outside of {len(o.items)} elements', n)
            if o.items[i] is UNSET: self.refuse('inline_unreadable', 'an element is read before it has a value', n)
            return o.items[i]
        if isinstance(o, Tensor): return self.method_of(lambda: o.select(0, i), n)
        if isinstance(o, Ptr): self.refuse('reads_value', 'reads device memory on the host; values are only known to the kernels', n)
        self.unread(f'indexing {self.kind(o)}', n)
    def x_field_expression(self, n, scope):
        o,f = self.eval(n.child_by_field_name('argument'), scope),txt(n.child_by_field_name('field'))
        if isinstance(o, Ref): o = o.get()
        if isinstance(o, Dim3) and f in ('x','y','z'): return N(getattr(o, f),'unsigned int')
        if isinstance(o, Props):
            if f in Props.fields: return N(Props.fields[f],'unsigned long' if 'Mem' in f else 'int')
            self.refuse('device_query', f'{f} of the device is not known here', n)
        if isinstance(o, Tup) and f in ('first','second'): return o.items[f=='second']
        self.unread(f'{txt(n)[:60]}', n)
    def desc(self, n)->str: return txt(n.child_by_field_name('type'))
    def x_cast_expression(self, n, scope): return self.convert(self.type(self.desc(n), scope, n), self.eval(n.child_by_field_name('value'), scope), n, 'const' in self.desc(n))
    def convert(self, t, v, n, const=False):
        "An explicit cast"
        if t=='void': return None
        if t.endswith('*'):
            if isinstance(v, Ptr): return replace(v, elem=t[:-1])
            if isinstance(v, (Kern,Ref,Closure)): return v
            if isinstance(v, N) and v.v==0: return Ptr(None, t[:-1])
        if isinstance(v, Ptr) or t=='stream' and not isinstance(v, Stream): self.unread(f'a cast to {t}', n)
        return self.conv(v, t, n)
    def x_compound_literal_expression(self, n, scope):
        t = self.type(txt(n.child_by_field_name('type')), scope, n)
        return self.construct(t, [self.eval(c, scope) for c in kids(n.child_by_field_name('value'))], n, brace=True)
    def x_sizeof_expression(self, n, scope):
        ty,value = n.child_by_field_name('type'),n.child_by_field_name('value')
        if ty is None:
            while value.type=='parenthesized_expression': value = kids(value)[0]
            v = scope.find(txt(value)) if value.type=='identifier' else None
            if v is not None and isinstance(v.v, N): return self.sizeof(v.v.t, n)
            if value.type not in ('identifier','qualified_identifier','template_type'): self.unread(txt(n), n)
        return self.sizeof(self.type(txt(ty if ty is not None else value), scope, n), n)
    def sizeof(self, t, n)->N:
        if t.endswith('*'): return N(8,'unsigned long')
        if t in NUM: return N(X.DTYPE_BYTES[DTYPE_OF[t]],'unsigned long')
        m = re.fullmatch(r'(.*?)([1234])', t)
        if m and ctype(m[1]) in CTYPES and m[2]!='3': return N(X.DTYPE_BYTES[CTYPES[ctype(m[1])][1]]*int(m[2]),'unsigned long')
        self.unread(f'sizeof({t.removeprefix("struct ")})', n)

    # ---- operators
    def promote(self, t:str)->str: return 'float' if t in ('half','bfloat16',*HALVES) else t if t in FLOATS or t in _ORDER else 'int'
    def common(self, a:str, b:str)->str:
        a,b = self.promote(a),self.promote(b)
        for f in ('double','float'):
            if f in (a,b): return f
        if _ORDER[a]<_ORDER[b]: a,b = b,a
        if a.startswith('unsigned') or not b.startswith('unsigned') or _BITS[a]>_BITS[b]: return a
        return 'unsigned '+a
    def work(self, v, what, n)->NoReturn:
        if isinstance(v, Tensor): self.refuse('library_call', f'{what} on tensors is a library operation; write it as a CUDA kernel', n)
        self.unread(f'{what} on {self.kind(v)}', n)
    def x_binary_expression(self, n, scope):
        op = txt(n.child_by_field_name('operator'))
        a = self.eval(n.child_by_field_name('left'), scope)
        if op in ('&&','and'): return N(self.truth(a) and self.truth(self.eval(n.child_by_field_name('right'), scope)),'bool')
        if op in ('||','or'): return N(self.truth(a) or self.truth(self.eval(n.child_by_field_name('right'), scope)),'bool')
        return self.binary(op, a, self.eval(n.child_by_field_name('right'), scope), n)
    def equal(self, a, b)->N:
        if isinstance(a, N) and isinstance(b, N): return self.arith('==', a, b, None)
        if isinstance(a, Ptr) and isinstance(b, (Ptr,N)) or isinstance(b, Ptr) and isinstance(a, N):
            null = lambda p: p.tensor is None if isinstance(p, Ptr) else p.v==0
            if null(a) or null(b): return N(null(a)==null(b),'bool')
        for k in (DT,Device,str,Sym):
            if isinstance(a, k) and isinstance(b, k): return N(a==b,'bool')
        if isinstance(a, Missing) or isinstance(b, Missing): return N(a is b,'bool')
        if isinstance(a, Vec) and isinstance(b, Vec): return N(len(a.items)==len(b.items) and all(self.equal(x,y).v for x,y in zip(a.items,b.items)),'bool')
        if isinstance(a, Iter) and isinstance(b, Iter): return N(a.i==b.i,'bool')
        self.work(a if isinstance(a, Tensor) else b, 'comparison', None)
    def binary(self, op, a, b, n):
        if isinstance(a, Opaque) and op=='<<': return a
        if op=='==': return self.equal(a, b)
        if op=='!=': return N(not self.equal(a, b).v,'bool')
        if isinstance(a, N) and isinstance(b, N): return self.arith(op, a, b, n)
        if isinstance(a, N) and isinstance(b, (Ptr,Iter)) and op=='+': a,b = b,a
        if isinstance(a, Ptr) and isinstance(b, N) and op in '+-' and a.tensor is not None:
            return replace(a, offset=a.offset+(b.v if op=='+' else -b.v)*self.sizeof(a.elem, n).v)
        if isinstance(a, Iter) and isinstance(b, N) and op in '+-': return Iter(a.vec, a.i+(b.v if op=='+' else -b.v))
        if isinstance(a, Iter) and isinstance(b, Iter) and op=='-': return N(a.i-b.i,'long')
        if isinstance(a, str) and op=='+': return a+str(b if isinstance(b, str) else '')
        self.work(a if isinstance(a, Tensor) else b, f'operator {op}', n)
    def arith(self, op, a:N, b:N, n)->N:
        if op in ('<<','>>'):
            t = self.promote(a.t)
            if t in FLOATS or b.t in FLOATS or not 0<=b.v<_BITS[t]: self.unread(f'{a.v} {op} {b.v}', n)
            return self.cast(N(a.v<<b.v if op=='<<' else a.v>>b.v, t), t)
        t = self.common(a.t, b.t)
        x,y = self.cast(a, t).v,self.cast(b, t).v
        if op in ('==','!=','<','>','<=','>='): return N({'==':x==y,'!=':x!=y,'<':x<y,'>':x>y,'<=':x<=y,'>=':x>=y}[op],'bool')
        if op in ('/','%') and y==0 and (t not in FLOATS or op=='%'): self.refuse('host_check', 'divides by zero', n)
        if op=='/' : v = (x/y if y else math.copysign(math.inf,x) if x else math.nan) if t in FLOATS else abs(x)//abs(y)*(1 if (x<0)==(y<0) else -1)
        elif op=='%' and t not in FLOATS: v = x-(abs(x)//abs(y)*(1 if (x<0)==(y<0) else -1))*y
        elif op in '+-*': v = x+y if op=='+' else x-y if op=='-' else x*y
        elif op in '&|^' and t not in FLOATS: v = x&y if op=='&' else x|y if op=='|' else x^y
        else: self.unread(f'operator {op}', n)
        return self.cast(N(v, t), t)

    # ---- calls
    def args(self, n, scope)->list: return [self.eval(c, scope) for c in kids(n) if c.type!='comment']
    def functions(self, name:str)->list[Closure]:
        out = []
        for u in sorted(self.units, key=lambda u: u is not self.unit):
            for top,fn,d in u.functions.get(name, []):
                types = [(k, txt(k)) for k in kids(top.child_by_field_name('parameters'))] if top.type=='template_declaration' else []
                out.append(Closure([p for p in kids(d.child_by_field_name('parameters')) if p.type!='comment' and txt(p)!='void'], fn.child_by_field_name('body'), u.scope, u, txt(fn.child_by_field_name('type')) if fn.child_by_field_name('type') is not None else 'void', name, types))
            if out: break
        return out
    def x_call_expression(self, n, scope):
        self.at = n
        f,a = n.child_by_field_name('function'),n.child_by_field_name('arguments')
        config = next((c for c in n.children if c.type=='kernel_call_syntax'), None)
        if config is not None: return self.launch(n, f, config, a, scope)
        if f.type=='field_expression': return self.method(n, f, a, scope)
        if f.type=='parenthesized_expression': f = kids(f)[0]
        if f.type=='lambda_expression': return self.call(self.eval(f, scope), kids(a), scope, n)
        if f.type=='primitive_type': return self.construct(self.type(txt(f), scope, n), self.args(a, scope), n)
        name = re.sub(r'\s+', '', txt(f)).removeprefix('::')
        tnode = None
        if '<' in name and name.endswith('>'): # the template arguments of the last name
            tnode = [t for t in walk(f, 'template_argument_list')]
            tnode = next((t for t in tnode if t.end_byte==f.end_byte), None)
            name = re.sub(r'\s+', '', f.text[:tnode.start_byte-f.start_byte].decode()).removeprefix('::') if tnode is not None else name
        return self.call_named(n, name, tnode, a, scope)
    def call_named(self, n, name, tnode, a, scope):
        if '::' not in name and (v := self.variable(name, scope)) is not None:
            if isinstance(v.v, Closure): return self.call(v.v, kids(a), scope, n)
            if callable(v.v): return v.v(*self.args(a, scope))
        last = name.split('::')[-1]
        library = re.match(r'(at|torch|c10|std|cuda|thrust|cub)::', name)
        if not library and (fs := self.functions(last)): return self.overload(fs, n, tnode, a, scope)
        if any(last in u.kernels for u in self.units) and not library: self.unread(f'calling the kernel {last} without <<<...>>>', n)
        if _LIBRARY.match(name): self.refuse('library_call', f'{name} does the work; write it as a CUDA kernel', n)
        if name.startswith('AT_DISPATCH_'): return self.dispatch(n, name, a, scope)
        if name in ('TORCH_CHECK','TORCH_INTERNAL_ASSERT','AT_ASSERTM','AT_ASSERT','assert','TORCH_CHECK_VALUE','TORCH_CHECK_TYPE','TORCH_INTERNAL_ASSERT_DEBUG_ONLY','AT_CHECK','TORCH_CHECK_ARG','TORCH_CHECK_NOT_IMPLEMENTED') or re.fullmatch(r'TORCH_CHECK_(EQ|NE|LT|LE|GT|GE)', name): return self.check(n, name, a, scope)
        if name in ('C10_CUDA_CHECK','AT_CUDA_CHECK','C10_CUDA_KERNEL_LAUNCH_CHECK','CUDA_CHECK','TORCH_CUDA_CHECK','AT_CUDA_KERNEL_LAUNCH_CHECK','C10_CUDA_CHECK_WARN'): self.args(a, scope); return None
        if name in ('TORCH_WARN','TORCH_WARN_ONCE','printf','fprintf','std::fflush','fflush','puts','static_assert','TORCH_WARN_DEPRECATION','std::ignore'): return None
        if name in ('exit','abort','std::exit','std::abort','AT_ERROR','std::terminate'): self.refuse('host_check', f'the wrapper calls {name}', n)
        if name in ('static_cast','reinterpret_cast','const_cast','dynamic_cast'):
            return self.convert(self.type(txt(kids(tnode)[0]), scope, n), self.args(a, scope)[0], n)
        if name.startswith('cuda') and '::' not in name: return self.cuda_call(n, name, a, scope)
        if (r := self.std(n, name, tnode, a, scope)) is not NotImplemented: return r
        if (r := self.torch(n, name, tnode, a, scope)) is not NotImplemented: return r
        t = self.try_type(name+(txt(tnode) if tnode is not None else ''), scope)
        if t: return self.construct(t, self.args(a, scope), n)
        if name.startswith('cu') and re.match(r'cu[A-Z]', name): self.unread(f'{name} of the driver API', n)
        self.unread(f'the call of {name}', n)
    def try_type(self, text, scope)->str|None:
        before = _T.rec.refused
        try: return self.type(text, scope)
        except Refusal as e:
            if e.kind=='library_call': raise
            _T.rec.refused = before
            return None
    def overload(self, fs, n, tnode, a, scope):
        count = len(kids(a))
        fit = [f for f in fs if sum(p.type!='optional_parameter_declaration' for p in f.params)<=count<=len(f.params)]
        if len(fit)!=1: self.unread(f'the call of {fs[0].name} with {count} arguments ({len(fit)} of its definitions fit)', n)
        return self.call(fit[0], kids(a), scope, n, tnode)
    def call(self, f:Closure, nodes, scope, n, tnode=None, values:list|None=None):
        "Call a host function with arguments that are expressions, or values from Python"
        if f.body is None: self.unread(f'{f.name}, which has no body', n)
        if self.depth>50: self.refuse('host_crash', f'{f.name} recurses without end', n)
        broken = next((b for b in walk(f.body, 'ERROR')), None) if f.body.has_error else None
        unit,at = self.unit,self.at
        if f.body.has_error:
            self.unit = f.unit
            self.refuse('inline_unreadable', f'syntax that is not understood: {txt(broken)[:60] if broken is not None else "something is missing"}', broken if broken is not None else f.body)
        inner = Scope(f.scope)
        got = values if values is not None else [None]*len(nodes)
        explicit = self.targs(tnode, scope) if tnode is not None else []
        kinds = [(k.type, self.param_name(k)) for k,_ in f.types]
        for (kind,name),e in zip(kinds, explicit): self.bind_template(kind, name, e, inner)
        args:list[tuple[Any,Any]] = []
        for i,p in enumerate(f.params):
            if i>=len(got): args.append((p, UNSET)); continue
            changes = values is None and self.is_ref(p) and 'const' not in txt(p).split()
            if changes and nodes[i].type=='identifier' and (shared := self.variable(txt(nodes[i]), scope)) is not None: args.append((p, shared)); continue
            v = self.eval(nodes[i], scope) if values is None else got[i]
            if changes and nodes[i].type=='subscript_expression' and isinstance(v, N): self.unread('a reference to an element', nodes[i])
            args.append((p, v))
        self.unit = f.unit
        for p,v in args: self.deduce(p, v.v if isinstance(v, Var) else v, [k for k in kinds if k[1] not in inner.types and k[1] not in inner.vars], inner)
        for (kind,name),(k,_) in zip(kinds, f.types):
            if name not in inner.types and name not in inner.vars:
                d = k.child_by_field_name('default_type') or k.child_by_field_name('default_value')
                if d is None: self.unread(f'the template parameter {name} of {f.name}, which', n)
                self.bind_template(kind, name, self.type(txt(d), inner, n) if 'type' in kind else self.literal(self.number(d, inner), n), inner)
        for p,v in args: self.parameter(p, v, inner, f)
        self.depth += 1
        try: self.run(f.body, inner); out = None
        except _Return as r: out = r.v
        finally: self.depth -= 1
        ret = self.type(f.ret, inner, f.body) if f.ret not in ('auto','void','') and not re.fullmatch(r'(static |inline )*auto.*', f.ret) else f.ret
        out = self.conv(out, ret, f.body) if ret not in ('auto','void','') else out
        self.unit,self.at = unit,at
        return out
    def param_name(self, k)->str:
        d = k.child_by_field_name('declarator') or k.child_by_field_name('name')
        ids = [c for c in walk(d if d is not None else k, 'type_identifier','identifier')]
        return txt(ids[-1] if d is not None or 'type' not in k.type else ids[0]) if ids else ''
    def bind_template(self, kind, name, value:str, inner):
        if 'type' in kind: inner.types[name] = value
        else: inner.vars[name] = Var('auto', N(value=='true','bool') if value in ('true','false') else N(int(value),'int'), 'a template parameter')
    def deduce(self, p, v, open_, inner):
        t = ' '.join(re.sub(r'\b(const|__restrict__)\b|[&*]', ' ', txt(p.child_by_field_name('type'))).split())
        for kind,name in open_:
            if t!=name: continue
            if isinstance(v, Ptr): inner.types[name] = v.elem
            elif isinstance(v, N): inner.types[name] = v.t
            elif isinstance(v, Tensor): inner.types[name] = 'Tensor'
            elif isinstance(v, (Closure,Kern)): inner.types[name] = 'auto'
    def is_ref(self, p)->bool: return any(True for _ in walk(p.child_by_field_name('declarator') or p, 'reference_declarator'))
    def parameter(self, p, v, inner, f:Closure):
        d = p.child_by_field_name('declarator')
        name = next((txt(i) for i in walk(d, 'identifier')), '') if d is not None else ''
        t = self.type(txt(p.child_by_field_name('type')), inner, p)
        if d is not None: t += '*'*sum(1 for _ in walk(d, 'pointer_declarator','abstract_pointer_declarator')) if t!='auto' else ''
        if v is UNSET:
            default = p.child_by_field_name('default_value')
            if default is None: self.unread(f'a call of {f.name} without {name}', p)
            v = self.eval(default, inner)
        if isinstance(v, Var): inner.vars[name] = v; return
        inner.vars[name] = Var(t, self.conv(v, t, p))
    def parameter_type(self, p, scope)->str:
        d = p.child_by_field_name('declarator')
        self.at = p
        return self.type(txt(p.child_by_field_name('type')), scope, p)+('*'*sum(1 for _ in walk(d, 'pointer_declarator','abstract_pointer_declarator')) if d is not None else '')

    # ---- from Python
    def enter(self, name:str, values:list, closure:Closure|None=None):
        "Call a bound function with values that came from Python"
        self.steps = 0
        fs = [closure] if closure is not None else self.functions(name)
        try:
            if len(fs)!=1: self.refuse('inline_unreadable', f'{name} is defined {len(fs)} times', self.units[0].tree)
            f = fs[0]
            self.unit,self.at = f.unit,f.body
            return self.call(f, [], f.scope, f.body, values=values)
        except Refusal as e:
            if not hasattr(e, 'cxx') and self.at is not None and self.unit is not None:
                e.cxx = (self.unit.name, self.at.start_point[0]+1) # type: ignore[attr-defined]
                e.args = (f'line {self.at.start_point[0]+1} of the {self.unit.name}: {e}',)
            raise
