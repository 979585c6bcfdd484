"""What a source rule can see of a program: syntax trees over its text, the values an expression can take, where its kernels are launched.

Everything here is local and cautious: `None` means "cannot be told from the text", never "no". Positions are bytes of the program's UTF-8 text.
"""
import ast, functools, itertools, math, re
from dataclasses import dataclass
from typing import Any, Iterable, TypeVar
from kernelrl.program import Plan, cuda_strings, parse_cuda

VECTOR = {f'{t}{n}':(t if t!='uint' else 'unsigned int', n) for t in ('float','int','uint','double') for n in (2,4)}
SIZES = {'float':4,'int':4,'unsigned int':4,'unsigned':4,'double':8,'half':2,'__half':2,'__nv_bfloat16':2,'long long':8,'char':1,'unsigned char':1,'short':2,'bool':1,'size_t':8,
    **{v:n*(8 if t=='double' else 4) for v,(t,n) in VECTOR.items()}, 'half2':4, '__half2':4, '__nv_bfloat162':4, 'float3':12}
PRAGMA = re.compile(r'#[ \t]*pragma[ \t]+unroll[^\n]*') # Blanked out for the parser, which does not take one as the body of a loop
_INF = math.inf
T = TypeVar('T')

def all_known(values:Iterable[T|None])->list[T]|None:
    "The values, or None when one of them is"
    out,n = [],0
    for n,v in enumerate(values, 1):
        if v is not None: out.append(v)
    return out if len(out)==n else None

def walk(node, *kinds:str):
    "All nodes of these kinds at and below `node`, in order of their text"
    if node.type in kinds: yield node
    for c in node.children: yield from walk(c, *kinds)

def text(node)->str: return node.text.decode()

def squeeze(s:str)->str:
    "Text without spaces and comments, to compare pieces of code by"
    return re.sub(r'\s+', '', re.sub(r'//[^\n]*|/\*.*?\*/', '', s, flags=re.S))

def peel(node):
    "The expression inside redundant parentheses"
    while node is not None and node.type=='parenthesized_expression' and node.named_child_count==1: node = node.named_children[0]
    return node

def atom(s:str)->str:
    "`s` as an operand: in parentheses unless it is one word or a call or subscript"
    s = s.strip()
    if re.fullmatch(r'[\w.]+|\d+', s): return s
    if re.fullmatch(r'[\w.]+(\[[^\[\]]*\]|\([^()]*\))+', s): return s
    return f'({s})'

def pure(node)->bool:
    "May this expression be evaluated twice? (No calls but casts and conversions, no assignments)"
    if any(True for _ in walk(node, 'assignment_expression', 'update_expression', 'lambda_expression')): return False
    return all(re.match(r'(reinterpret_cast|static_cast|const_cast|min|max)\b|__half2float$|__float2half$|__bfloat162float$', text(c.child_by_field_name('function'))) for c in walk(node, 'call_expression'))

def names_in(node)->set[str]: return {text(n) for n in walk(node, 'identifier')}

@dataclass(frozen=True)
class Value:
    "A range and a divisor: `lo <= v <= hi`, and `step` divides v (0 when v is 0)"
    lo:float = -_INF
    hi:float = _INF
    step:int = 1
    @property
    def const(self)->int|None: return int(self.lo) if self.lo==self.hi else None
    def multiple(self, k:int)->bool: return self.step%k==0
ANY = Value()
def _lit(n:int)->Value: return Value(n, n, abs(n))
def span_of(values)->Value:
    "The range of some known integers"
    vs = list(values)
    return Value(min(vs), max(vs), functools.reduce(math.gcd, (abs(v) for v in vs))) if vs else ANY

def _mul(a:float, b:float)->float: return 0 if a==0 or b==0 else a*b

def _binary(op:str, a:Value, b:Value)->Value:
    if op=='+': return Value(a.lo+b.lo, a.hi+b.hi, math.gcd(a.step,b.step))
    if op=='-': return Value(a.lo-b.hi, a.hi-b.lo, math.gcd(a.step,b.step))
    if op=='*':
        ps = [_mul(x,y) for x in (a.lo,a.hi) for y in (b.lo,b.hi)]
        return Value(min(ps), max(ps), a.step*b.step)
    k = b.const
    if op=='/' and k and k>0 and a.lo>=0: return Value(a.lo//k, a.hi//k if a.hi<_INF else _INF, a.step//k if a.step and a.step%k==0 else 0 if a.step==0 else 1)
    if op=='%' and k and k>0 and a.lo>=0: return Value(0, min(a.hi, k-1), math.gcd(a.step,k))
    if op=='&' and k is not None and k>=0: return Value(0, k, k&-k if k else 0)
    if op=='&' and k is not None and k<0 and a.lo>=0: return Value(0, a.hi, math.gcd(a.step, -k) if -k&(-k-1)==0 and a.step%-k else -k) # t & ~31
    if op=='>>' and k is not None and a.lo>=0: return _binary('/', a, _lit(1<<k))
    if op=='<<' and k is not None: return _binary('*', a, _lit(1<<k))
    return ANY

@dataclass
class Function:
    "A function with a body: a kernel, or a `__device__` helper"
    source:'Source'
    node:Any
    offset:int # Of its CUDA string in the program
    name:str
    kernel:bool
    templates:tuple[str,...] # Names of its template parameters
    params:dict[str,str] # Name -> type as written, '*' included
    here:Any = None # The place that is asked about: conditions of the branches around it hold
    @property
    def body(self): return self.node.child_by_field_name('body')
    def at(self, node)->tuple[int,int]: return node.start_byte+self.offset, node.end_byte+self.offset
    def nodes(self, *kinds:str): return list(walk(self.body, *kinds))
    def pragmas(self)->list[tuple[int,int]]: # Bytes in the program
        "Where its `#pragma unroll` lines stand"
        a,b = self.at(self.node)
        return [(a+m.start(), a+m.end()) for m in re.finditer(PRAGMA.pattern.encode(), self.source.data[a:b])]
    @functools.cached_property
    def declared(self)->dict[str,list]: # Name -> [(type, declarator, initial value or None)]
        "Local variables; a name declared twice has two entries"
        out:dict[str,list] = {}
        for d in self.nodes('declaration'): self._declare(d, out)
        return out
    def _declare(self, d, out):
        base = d.child_by_field_name('type')
        if base is None: return
        for c in d.named_children:
            init = c.child_by_field_name('value') if c.type=='init_declarator' else None
            decl = c.child_by_field_name('declarator') if c.type=='init_declarator' else c
            if decl.type not in ('identifier','pointer_declarator','array_declarator'): continue
            ids = [n for n in walk(decl, 'identifier')]
            if ids: out.setdefault(text(ids[0]), []).append((text(base)+('*' if decl.type=='pointer_declarator' else ''), decl, init))
    def expand(self, node)->str:
        "The text of an expression with names replaced by what they were set to, once"
        s = squeeze(text(peel(node)))
        for _ in range(3):
            old,s = s,re.sub(r'(?<![\w.])[A-Za-z_]\w*(?![\w(.])', lambda m: self._set_once(m[0], whole=m[0]==s), s)
            if s==old: break
        return s
    def _set_once(self, name:str, whole:bool)->str:
        ds = self.declared.get(name, [])
        if len(ds)!=1 or ds[0][2] is None or name in self.written or ds[0][1].type!='identifier': return name
        return squeeze(text(ds[0][2])) if whole else squeeze(atom(text(ds[0][2])))
    def in_memory(self, name:str, depth:int=0)->bool:
        "Is this a pointer into a buffer or a shared array? (Not a local array, which lives in registers)"
        if name in self.params and name not in self.declared: return '*' in self.params[name]
        ds = self.declared.get(name, [])
        if len(ds)!=1 or depth>5: return False
        arr = self.array(name)
        if arr: return '__shared__' in text(arr[2]).split('[')[0]
        first = next((i for i in walk(ds[0][2], 'identifier') if text(i) not in ('reinterpret_cast','static_cast')), None) if ds[0][2] is not None else None
        return ds[0][0].endswith('*') and first is not None and self.in_memory(text(first), depth+1)
    @functools.cached_property
    def written(self)->dict[str,list]: # Name -> assignment and update nodes whose target is that plain name
        out:dict[str,list] = {}
        for n in self.nodes('assignment_expression','update_expression'):
            t = peel(n.child_by_field_name('left') or n.child_by_field_name('argument'))
            if t is not None and t.type=='identifier': out.setdefault(text(t), []).append(n)
        return out
    @functools.cached_property
    def stored(self)->set[str]: # Names of pointers and arrays that something is stored through, or that are handed on
        out = set()
        for n in self.nodes('assignment_expression','update_expression'):
            t = peel(n.child_by_field_name('left') or n.child_by_field_name('argument'))
            if t is not None and t.type!='identifier': out |= {text(i) for i in list(walk(t, 'identifier'))[:1]} | (names_in(t) if t.type=='pointer_expression' else set())
        for c in self.nodes('call_expression'):
            f,args = c.child_by_field_name('function'),c.child_by_field_name('arguments')
            if re.match(r'reinterpret_cast|static_cast|const_cast|__ld\w+|make_', text(f)): continue
            for a in args.named_children:
                if peel(a).type in ('identifier','pointer_expression','binary_expression') : out |= names_in(a)
        return out
    def type_of(self, name:str)->str|None: # 'float*', 'float', ...; None when unknown or declared twice with two types
        types = {d[0] for d in self.declared.get(name, [])}
        if not types and name in self.params: types = {self.params[name]}
        if len(types)!=1: return None
        return clean_type(types.pop())
    def array(self, name:str): # (element type, [size nodes], declaration node) of a local or shared array
        "The declaration of an array, if `name` is one"
        ds = self.declared.get(name, [])
        if len(ds)!=1 or ds[0][1].type!='array_declarator': return None
        sizes:list = []
        d = ds[0][1]
        while d.type=='array_declarator':
            sizes.insert(0, d.child_by_field_name('size'))
            d = d.child_by_field_name('declarator')
        decl = ds[0][1]
        while decl.type!='declaration': decl = decl.parent
        return clean_type(ds[0][0]), sizes, decl
    def launches(self): # (plan, launch) of this kernel
        return [(p,l) for p in self.source.plans for l in p.launches if l.kernel.split('<')[0].split('::')[-1].strip()==self.name]
    def arguments(self, name:str)->list: # (plan, Arg) that a parameter had
        "What the plans pass for one parameter"
        if name not in self.params: return []
        i = list(self.params).index(name)
        return [(p,l.args[i]) for p,l in self.launches() if i<len(l.args)]
    def fresh(self, want:str, taken:Iterable[str]=())->str:
        "A name that this source does not use yet"
        used = {text(n) for _,root in self.source.parts for n in walk(root, 'identifier','field_identifier','type_identifier')}.union(taken)
        return next(n for n in itertools.chain([want], (f'{want}{i}' for i in itertools.count(2))) if n not in used)

    # ---- values
    def value(self, node, depth:int=0)->Value:
        "The range and divisor of an integer expression"
        node = peel(node)
        if node is None or depth>12: return ANY
        v = lambda n: self.value(n, depth+1)
        t = node.type
        if t=='number_literal':
            try: return _lit(int(re.sub(r"[uUlL']+$", '', text(node)), 0))
            except ValueError: return ANY
        if t=='identifier': return self._name(text(node), node, depth)
        if t=='field_expression': return self._builtin(text(node))
        if t=='cast_expression': return v(node.child_by_field_name('value'))
        if t=='unary_expression' and text(node)[0]=='-': a = v(node.child_by_field_name('argument')); return Value(-a.hi, -a.lo, a.step)
        if t=='unary_expression' and text(node)[0]=='~': n = v(node.child_by_field_name('argument')).const; return _lit(~n) if n is not None else ANY
        if t=='binary_expression': return _binary(text(node.child_by_field_name('operator')), v(node.child_by_field_name('left')), v(node.child_by_field_name('right')))
        if t=='conditional_expression':
            a,b = v(node.child_by_field_name('consequence')),v(node.child_by_field_name('alternative'))
            return Value(min(a.lo,b.lo), max(a.hi,b.hi), math.gcd(a.step,b.step))
        if t=='call_expression' and text(node.child_by_field_name('function')) in ('min','max'):
            a,b = (v(n) for n in node.child_by_field_name('arguments').named_children[:2])
            f = min if text(node)[:3]=='min' else max
            return Value(f(a.lo,b.lo), f(a.hi,b.hi), math.gcd(a.step,b.step))
        return ANY
    def _builtin(self, s:str)->Value:
        m = re.fullmatch(r'(threadIdx|blockIdx|blockDim|gridDim)\.([xyz])', s)
        if not m: return ANY
        k,size = 'xyz'.index(m[2]),'block' if m[1] in ('threadIdx','blockDim') else 'grid'
        known = [getattr(l,size)[k] for _,l in self.launches()] if self.kernel else []
        if m[1] in ('blockDim','gridDim'): return span_of(known) if known else Value(1, 1024 if size=='block' else _INF)
        return Value(0, max(known)-1 if known else 1023 if size=='block' else _INF, 0 if known and max(known)==1 else 1)
    def _name(self, name:str, node, depth:int)->Value:
        loop = self._loop_of(name, node)
        if loop is not None: return self._loop_value(loop, name, depth)
        ds = self.declared.get(name, [])
        if len(ds)==1:
            if ds[0][2] is None or name in self.written or ds[0][1].type!='identifier': return ANY
            return self.value(ds[0][2], depth+1)
        if ds: return ANY
        if name in self.written: return ANY
        if name in self.params and (k := self.known_divisor(name, node)): # Only launches that come here count
            v = span_of(a.value for _,a in self.arguments(name) if type(a.value) is int and a.value%k==0)
            return Value(v.lo, v.hi, v.step*k//math.gcd(v.step,k) if v.step else k)
        if name in self.params: return span_of(a.value for _,a in self.arguments(name)) if all(type(a.value) is int for _,a in self.arguments(name)) else ANY
        if name in self.templates:
            i = self.templates.index(name)
            vs = [l.kernel.partition('<')[2].rstrip('> ').split(',')[i:i+1] for _,l in self.launches()]
            return span_of(int(v[0]) for v in vs) if vs and all(v and v[0].strip().isdigit() for v in vs) else ANY
        return self.source.constant(name, self, depth)
    def known_divisor(self, name:str, node)->int|None:
        "k, where `node` stands in the branch of an `if (name % k == 0 && ...)`"
        return self._divisor_at(name, node) or (self._divisor_at(name, self.here) if self.here is not None else None)
    def _divisor_at(self, name:str, n)->int|None:
        while n is not None and n.parent is not None and n.id!=self.node.id:
            up = n.parent
            if up.type=='if_statement' and (then := up.child_by_field_name('consequence')) is not None and then.id==n.id:
                conds = '&&'.join(self.declared[w][0][2] is not None and squeeze(text(self.declared[w][0][2])) or w if re.fullmatch(r'\w+', w) and len(self.declared.get(w, []))==1 and w not in self.written else w
                    for w in squeeze(text(up.child_by_field_name('condition')))[1:-1].split('&&'))
                if '||' not in conds and (m := re.search(rf'(?:^|&&)\(?{name}%(\d+)==0\)?(?:&&|$)', conds)): return int(m[1])
            n = up
        return None
    def _loop_of(self, name:str, node):
        n = node
        while n is not None and n.id!=self.node.id:
            if n.type=='for_statement':
                init = n.child_by_field_name('initializer')
                if init is not None and init.type=='declaration' and any(text(i.child_by_field_name('declarator'))==name for i in init.named_children if i.type=='init_declarator'): return n
            n = n.parent
        return None
    def _loop_value(self, loop, name:str, depth:int)->Value:
        h = header(loop)
        if h is None or h.var!=name or depth>10 or any(_inside(w, loop.child_by_field_name('body')) for w in self.written.get(name, [])): return ANY
        first,last,by = self.value(h.start, depth+2),self.value(h.bound, depth+2),self.value(h.step, depth+2) if h.step is not None else _lit(1)
        if h.op in ('<','<=') and h.update=='+=' : return Value(first.lo, last.hi-(h.op=='<'), math.gcd(first.step, by.step))
        if h.op in ('>','>=') and h.update in ('-=','/=','>>='): return Value(last.lo+(h.op=='>'), first.hi, 1)
        return ANY

    # ---- alignment
    def aligned(self, node, size:int, depth:int=0)->tuple[bool|None,str]:
        "Is this address a multiple of `size` bytes? With the reason"
        node = peel(node)
        if node is None or depth>8: return None,'too deep to follow'
        t = node.type
        if t=='call_expression' and 'cast' in text(node.child_by_field_name('function')): return self.aligned(node.child_by_field_name('arguments').named_children[0], size, depth+1)
        if t=='cast_expression': return self.aligned(node.child_by_field_name('value'), size, depth+1)
        if t=='binary_expression' and text(node.child_by_field_name('operator'))=='+':
            base,index = node.child_by_field_name('left'),node.child_by_field_name('right')
            ok,why = self.aligned(base, size, depth+1)
            elem = SIZES.get((self.pointee(base) or ''))
            if ok is not True: return ok,why
            return self._step(index, elem, size, why)
        if t=='pointer_expression' and text(node)[0]=='&': return self._element(peel(node.child_by_field_name('argument')), size, depth)
        if t=='identifier': return self._pointer(text(node), size, depth)
        return None,f'{text(node)} is not an address that can be followed'
    def _step(self, index, elem:int|None, size:int, why:str)->tuple[bool|None,str]:
        if elem is None: return None,f'the element size of {text(index)} is not known'
        v = self.value(index)
        if v.multiple(max(1, size//elem)): return True,f'{why}, {squeeze(text(index))} is a multiple of {size//elem}'
        if v.const is not None or v.lo>=0 and v.hi<size//elem and v.hi>0: return False,f'{squeeze(text(index))} steps by {elem} bytes'
        if bad := self._breaks(index, size//elem): return False,bad
        return None,f'whether {squeeze(text(index))} is a multiple of {size//elem} cannot be told'
    def _breaks(self, node, k:int, depth:int=0)->str: # '' when nothing is known to break it
        "A term that certainly takes a value that k does not divide: row * d, where d is 129 in one launch"
        node = peel(node)
        if node is None or depth>6 or self.value(node).multiple(k): return ''
        t = node.type
        if (c := self.value(node).const) is not None: return f'{squeeze(text(node))} is {c}'
        if t=='cast_expression': return self._breaks(node.child_by_field_name('value'), k, depth+1)
        l,r = (node.child_by_field_name(f) for f in ('left','right'))
        op = text(node.child_by_field_name('operator')) if t=='binary_expression' else ''
        if op in ('+','-'):
            a,b = self._breaks(l, k, depth+1),self._breaks(r, k, depth+1)
            return a if not b else b if not a else '' # Two odd terms may make an even sum
        if op=='*':
            for a,b in ((l,r),(r,l)):
                if (bad := self._breaks(a, k, depth+1)) and self.value(b).lo<=1<=self.value(b).hi and self.value(b).step==1: return bad
            return ''
        if t=='identifier' and text(node) in self.params and text(node) not in self.written:
            odd = [a.value for _,a in self.arguments(text(node)) if type(a.value) is int and a.value%k]
            return f'{text(node)} is {odd[0]} in one launch' if odd else ''
        ds = self.declared.get(text(node), []) if t=='identifier' else []
        return self._breaks(ds[0][2], k, depth+1) if len(ds)==1 and ds[0][2] is not None and text(node) not in self.written and self._loop_of(text(node), node) is None else ''
    def _element(self, node, size:int, depth:int)->tuple[bool|None,str]:
        idx:list = []
        while node.type=='subscript_expression':
            idx.insert(0, node.child_by_field_name('indices').named_children[0])
            node = peel(node.child_by_field_name('argument'))
        if node.type!='identifier':
            ok,why = self.aligned(node, size, depth+1) if len(idx)==1 else (None,'not a plain array element')
            return self._step(idx[0], SIZES.get(self.pointee(node) or ''), size, why) if ok is True else (ok,why)
        arr = self.array(text(node))
        if arr is None:
            ok,why = self._pointer(text(node), size, depth)
            elem = SIZES.get((self.type_of(text(node)) or '').removesuffix('*'))
            return self._step(idx[0], elem, size, why) if ok is True and len(idx)==1 else (ok,why)
        elem,sizes,decl = arr
        size_of = SIZES.get(elem)
        if size_of is None: return None,f'{elem} has no known size'
        m = re.search(r'(?:__align__|alignas)\s*\(\s*(\d+)\s*\)', text(decl))
        base = max(int(m[1]) if m else 1, size_of)
        stride = size_of
        steps:list[int] = []
        for s in reversed(sizes):
            steps.insert(0, stride)
            if s is None: break # extern __shared__ T name[]: only the first dimension has no size, and no step needs it
            n = self.value(s).const
            if n is None: return None,f'the size {text(s)} is not a known number'
            stride *= n
        for i,st in zip(idx, steps):
            if (st*self.value(i).step)%size and st*self.value(i).step!=0:
                return (False if st%size and st>size_of else None), f'a step of {squeeze(text(i))} in {text(node)} is {st} bytes'
        if base%size: return None,f'{text(node)} is declared with {base}-byte alignment only'
        return True,f'{text(node)} is aligned to {base} bytes and every index keeps it'
    def _pointer(self, name:str, size:int, depth:int)->tuple[bool|None,str]:
        ds = self.declared.get(name, [])
        if len(ds)==1 and ds[0][1].type=='array_declarator': return self._element(next(n for n in walk(ds[0][1], 'identifier')), size, depth)
        if len(ds)>1: return None,f'{name} is declared twice'
        if ds:
            if ds[0][2] is None: return None,f'{name} has no initial value'
            ok,why = self.aligned(ds[0][2], size, depth+1)
        else:
            args = self.arguments(name)
            if not args: return None,f'no launch is known that passes {name}'
            off = [a.offset for _,a in args if a.offset%size]
            if off: return False,f'{name} starts {off[0]} bytes into its buffer'
            ok,why = True,f'{name} starts at a multiple of 256 bytes'
        for w in self.written.get(name, []):
            if ok is not True: break
            op = text(w.child_by_field_name('operator')) if w.child_by_field_name('operator') is not None else ''
            if op!='+=': return None,f'{name} is changed by {squeeze(text(w))}'
            ok,why = self._step(w.child_by_field_name('right'), SIZES.get((self.type_of(name) or '').removesuffix('*')), size, why)
        return ok,why
    def pointee(self, node)->str|None: # 'float' for a float*; None when unknown
        "The type that an address expression points to"
        node = peel(node)
        if node.type=='identifier':
            arr = self.array(text(node))
            if arr: return arr[0] if len(arr[1])==1 else None
            t = self.type_of(text(node))
            return t[:-1] if t and t.endswith('*') else None
        if node.type=='binary_expression': return self.pointee(node.child_by_field_name('left'))
        if node.type=='call_expression' and (m := re.search(r'cast\s*<\s*(?:const\s+)?([\w ]+?)\s*\*\s*>', text(node.child_by_field_name('function')))): return clean_type(m[1])
        if node.type=='cast_expression': return clean_type(text(node.child_by_field_name('type'))).removesuffix('*')
        if node.type=='pointer_expression' and text(node)[0]=='&': return self.element(peel(node.child_by_field_name('argument')))
        if node.type=='subscript_expression':
            n,depth = node,0
            while n.type=='subscript_expression': n = peel(n.child_by_field_name('argument')); depth += 1
            arr = self.array(text(n)) if n.type=='identifier' else None
            return arr[0] if arr and len(arr[1])==depth+1 else None
        return None
    def element(self, node)->str|None: # Type of a[i][j]
        "The type of an array element"
        depth = 0
        while node.type=='subscript_expression': node = peel(node.child_by_field_name('argument')); depth += 1
        if node.type!='identifier' or not depth: return None
        arr = self.array(text(node))
        if arr: return arr[0] if len(arr[1])==depth else None
        t = self.type_of(text(node))
        return t[:-1] if t and t.endswith('*') and depth==1 else None

def clean_type(t:str)->str: return ' '.join(re.sub(r'\b(const|volatile|__restrict__|static|extern|__shared__|constexpr|typename)\b|__align__\s*\(\d+\)', ' ', t).replace('*',' * ').split()).replace(' *','*')

def _inside(node, outer)->bool: return outer is not None and outer.start_byte<=node.start_byte and node.end_byte<=outer.end_byte

@dataclass(frozen=True)
class Header:
    "The parts of `for (T var = start; var op bound; var update step)`; step None means 1"
    type:str
    var:str
    start:Any
    op:str
    bound:Any
    update:str
    step:Any

def header(loop)->Header|None:
    "A for loop's header in its usual form"
    init,cond,upd = (loop.child_by_field_name(f) for f in ('initializer','condition','update'))
    if init is None or init.type!='declaration' or cond is None or upd is None or cond.type not in ('binary_expression','identifier'): return None
    ds = [c for c in init.named_children if c.type=='init_declarator']
    if len(ds)!=1 or ds[0].child_by_field_name('declarator').type!='identifier': return None
    var = text(ds[0].child_by_field_name('declarator'))
    t = text(init.child_by_field_name('type'))
    op,bound = ('>', None) if cond.type=='identifier' else (text(cond.child_by_field_name('operator')), cond.child_by_field_name('right'))
    if cond.type!='identifier' and text(cond.child_by_field_name('left'))!=var or cond.type=='identifier' and text(cond)!=var: return None
    if upd.type=='update_expression' and text(upd.child_by_field_name('argument'))==var: update,step = text(upd.child_by_field_name('operator'))[0]+'=',None
    elif upd.type=='assignment_expression' and text(upd.child_by_field_name('left'))==var: update,step = text(upd.child_by_field_name('operator')),upd.child_by_field_name('right')
    else: return None
    return Header(t, var, ds[0].child_by_field_name('value'), op, bound, update, step)

def trips(fn:Function, loop)->int|None:
    "How often a loop runs, when that is a number in the text"
    h = header(loop)
    if h is None: return None
    a,b,s = fn.value(h.start).const,fn.value(h.bound).const if h.bound is not None else 0,fn.value(h.step).const if h.step is not None else 1
    if a is None or b is None or not s: return None
    n = 0
    ok = {'<':lambda v: v<b, '<=':lambda v: v<=b, '>':lambda v: v>b, '>=':lambda v: v>=b}.get(h.op)
    move = {'+=':lambda v: v+s, '-=':lambda v: v-s, '*=':lambda v: v*s, '/=':lambda v: v//s, '>>=':lambda v: v>>s, '<<=':lambda v: v<<s}.get(h.update)
    if not ok or not move: return None
    while ok(a) and n<=4096: a = move(a); n += 1
    return n if n<=4096 else None

@dataclass
class HostCall:
    "A kernel launch in the Python part, with the byte spans of its pieces"
    call:ast.Call
    kernels:set[str] # What it may launch
    func:tuple[int,int]
    grid:tuple[int,int]
    block:tuple[int,int]
    args:tuple[int,int]
    given:list[ast.expr] # The arguments of the kernel

class Source:
    "A program's text with its syntax trees; `plans` are its traces, where they are known"
    def __init__(self, text:str, plans:tuple[Plan,...]=()):
        self.text,self.data,self.plans = text,text.encode(),tuple(plans)
        self.lines = [0, *(m.end() for m in re.finditer(b'\n', self.data))]
        self.tree = ast.parse(text)
        self.parts = [(a, parse_cuda(PRAGMA.sub(lambda m: ' '*len(m[0]), self.data[a:b].decode())).root_node) for a,b in cuda_strings(text) if self._verbatim(a, b)]
    def _verbatim(self, a:int, b:int)->bool:
        "Is the literal's value the text between its quotes? (No escapes, not an f-string)"
        head = self.data[max(0,a-5):a].decode(errors='ignore')
        prefix = (m[1] if (m := re.search(r'([a-zA-Z]*)("""|\'\'\'|"|\')$', head)) else '').lower()
        return 'f' not in prefix and ('r' in prefix or b'\\' not in self.data[a:b])
    def span(self, n:Any)->tuple[int,int]: return self.lines[n.lineno-1]+n.col_offset, self.lines[n.end_lineno-1]+n.end_col_offset
    def get(self, a:int, b:int)->str: return self.data[a:b].decode()
    @functools.cached_property
    def functions(self)->list[Function]:
        out = []
        for offset,root in self.parts:
            for d in walk(root, 'function_definition'):
                decl = d.child_by_field_name('declarator')
                while decl is not None and decl.type!='function_declarator': decl = decl.child_by_field_name('declarator')
                body = d.child_by_field_name('body')
                if decl is None or body is None or body.type!='compound_statement': continue
                head = text(d)[:decl.start_byte-d.start_byte]
                params = {}
                for p in decl.child_by_field_name('parameters').named_children:
                    if 'parameter_declaration' not in p.type: continue
                    ids = list(walk(p.child_by_field_name('declarator') or p, 'identifier'))
                    if ids: params[text(ids[0])] = text(p)[:ids[0].start_byte-p.start_byte]
                temps = tuple(text(list(walk(p, 'identifier','type_identifier'))[-1]) for p in d.parent.child_by_field_name('parameters').named_children) if d.parent.type=='template_declaration' else ()
                out.append(Function(self, d, offset, text(decl.child_by_field_name('declarator')), '__global__' in head, temps, params))
        return out
    @property
    def kernels(self)->list[Function]: return [f for f in self.functions if f.kernel]
    @functools.cached_property
    def _constants(self)->dict:
        out = {}
        for _,root in self.parts:
            for d in root.children:
                if d.type=='preproc_def' and d.child_by_field_name('value') is not None: out[text(d.child_by_field_name('name'))] = text(d.child_by_field_name('value')).split('//')[0].strip()
                if d.type=='declaration' and re.search(r'\b(constexpr|const)\b', text(d)):
                    for c in d.named_children:
                        if c.type=='init_declarator' and c.child_by_field_name('declarator').type=='identifier': out[text(c.child_by_field_name('declarator'))] = text(c.child_by_field_name('value'))
        return out
    def constant(self, name:str, fn:Function, depth:int)->Value:
        "A `constexpr` or `#define` at file level"
        s = self._constants.get(name)
        if s is None or depth>10: return ANY
        root = parse_cuda(f'int q = ({s});').root_node
        inits = list(walk(root, 'init_declarator'))
        return fn.value(inits[0].child_by_field_name('value'), depth+1) if inits and not root.has_error else ANY
    def function(self, name:str)->Function|None: return next((f for f in self.functions if f.name==name), None)

    # ---- the Python part
    @functools.cached_property
    def _bindings(self)->dict[str,list[ast.AST]]:
        out:dict[str,list] = {}
        for n in ast.walk(self.tree):
            if isinstance(n, ast.Assign):
                for t in n.targets:
                    names = [t] if isinstance(t, ast.Name) else [e for e in getattr(t,'elts',[]) if isinstance(e, ast.Name)]
                    values = n.value.elts if isinstance(n.value, ast.Tuple) and len(getattr(t,'elts',()))==len(n.value.elts) else [n.value]*len(names)
                    g = n.value
                    if isinstance(g, ast.GeneratorExp) and len(g.generators)==1 and isinstance(g.generators[0].iter, (ast.Tuple,ast.List)) and len(g.generators[0].iter.elts)==len(names): values = g.generators[0].iter.elts
                    for name,v in zip(names, values): out.setdefault(name.id, []).append(v)
            if isinstance(n, ast.FunctionDef): out.setdefault(n.name, []).append(n)
        return out
    def _may_launch(self, expr:ast.AST, seen:frozenset=frozenset())->set[str]:
        "Names of kernels that an expression may stand for"
        out:set[str] = set()
        known = {k.name for k in self.kernels}
        if isinstance(expr, ast.Call) and isinstance(expr.func, ast.Attribute) and expr.func.attr=='get_function': return self._may_launch(expr.args[0], seen) if expr.args else out
        for n in ast.walk(expr):
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr=='get_function' and n is not expr: return set().union(*(self._may_launch(m, seen) for m in ast.walk(expr) if isinstance(m, ast.Call) and isinstance(m.func, ast.Attribute) and m.func.attr=='get_function'))
        for n in ast.walk(expr):
            if isinstance(n, ast.Constant) and isinstance(n.value, str):
                base = n.value.split('<')[0].strip()
                if base in known: out.add(base)
            if isinstance(n, ast.Name) and n.id not in seen:
                for v in self._bindings.get(n.id, []): out |= self._may_launch(v, seen|{n.id})
        return out
    @functools.cached_property
    def host_calls(self)->list[HostCall]:
        out = []
        forward = next((n for n in self.tree.body if isinstance(n, ast.FunctionDef) and n.name=='forward'), None)
        for c in ast.walk(forward) if forward else ():
            if not isinstance(c, ast.Call) or len(c.args)<3 or not isinstance(c.args[2], ast.Tuple): continue
            ks = self._may_launch(c.func)
            if ks: out.append(HostCall(c, ks, self.span(c.func), self.span(c.args[0]), self.span(c.args[1]), self.span(c.args[2]), c.args[2].elts))
        return out
    def calls_of(self, kernel:str)->list[HostCall]|None: # None when a launch may go either way
        "The launches of one kernel in `forward`"
        calls = [c for c in self.host_calls if kernel in c.kernels]
        return calls if calls and all(c.kernels=={kernel} for c in calls) else None
    def bound_once(self, name:str)->ast.expr|None:
        "The one value that a Python name is bound to"
        v = self._bindings.get(name, [])
        return v[0] if len(v)==1 and isinstance(v[0], ast.expr) else None

def line_at(src:'Source', a:int)->tuple[int,int]: # Of the line around byte a, newline included
    return src.data.rfind(b'\n', 0, a)+1, (src.data.find(b'\n', a)+1 or len(src.data))

def indent_at(src:'Source', a:int)->str|None: # None when something stands before it on its line
    head = src.get(line_at(src, a)[0], a)
    return head if not head.strip() else None

def parenthesise(node)->bool: # Does this expression stand where a quotient needs parentheses?
    return node.parent.type in ('binary_expression','unary_expression','cast_expression','subscript_expression','field_expression','pointer_expression')


def parents(n):
    while n.parent is not None: n = n.parent; yield n

def infix(node)->tuple: # (left, operator, right); (None, '', None) for anything else
    "The parts of a binary expression or an assignment"
    if node is None or node.type not in ('binary_expression','assignment_expression'): return None,'',None
    return node.child_by_field_name('left'), text(node.child_by_field_name('operator')), node.child_by_field_name('right')
