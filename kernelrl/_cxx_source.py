"""C++ sources of a `load_inline` program: a preprocessor, translation units, and what of them the device gets."""
import re
from dataclasses import dataclass, field
from typing import Any, Callable, NoReturn
from kernelrl._cxx_values import N, Scope
from kernelrl.program import parse_cuda

# ------------------------------------------------------------------ preprocessor
_TOKEN = re.compile(r'''(?:u8|[uUL])?R"(?P<d>[^()\s\\]{0,16})\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'|//[^\n]*|/\*.*?(?:\*/|\Z)|[A-Za-z_]\w*|\.?\d(?:[\w.']|[eEpP][+-])*|\#\#|\s+|.''', re.S)

@dataclass
class Macro:
    body:str
    params:list[str]|None = None # None: no parentheses

def strip_comments(s:str)->str:
    "Comments become blanks, continued lines one line; as many lines as before"
    s = re.sub(r'(?:[^\n]*\\[ \t]*\n)+[^\n]*', lambda m: re.sub(r'\\[ \t]*\n', ' ', m[0])+'\n'*m[0].count('\n'), s)
    return _TOKEN.sub(lambda m: re.sub(r'[^\n]', ' ', m[0]) if m[0][:2] in ('//','/*') else m[0], s)

def _tokens(s:str)->list[str]: return [m[0] for m in _TOKEN.finditer(s)]

class Preprocessor:
    "Conditionals and macros, lines kept"
    def __init__(self, defines:dict[str,str], refuse:Callable[...,NoReturn]): self.macros,self.refuse = {k:Macro(v) for k,v in defines.items()},refuse
    def run(self, source:str)->str:
        out:list[str] = []
        live:list[list[bool]] = [] # (this branch is on, one was on before)
        text:list[str] = []
        def flush():
            if text: out.append(self.expand('\n'.join(text))); text.clear()
        for i,line in enumerate(strip_comments(source).split('\n'), 1):
            m = re.match(r'\s*#\s*(\w*)\s*(.*?)\s*$', line)
            on = all(b[0] for b in live)
            if not m:
                text.append(line if on else '')
                continue
            word,rest = m[1],m[2]
            if word in ('if','ifdef','ifndef'):
                yes = on and (self.condition(rest, i) if word=='if' else (rest.split()[0] in self.macros if rest else False)==(word=='ifdef'))
                live.append([bool(yes), bool(yes)])
            elif word in ('elif','else') and live:
                before = all(b[0] for b in live[:-1])
                yes = before and not live[-1][1] and (word=='else' or self.condition(rest, i))
                live[-1] = [bool(yes), live[-1][1] or bool(yes)]
            elif word=='endif' and live: live.pop()
            elif on and word=='define':
                flush(); self.define(rest)
                out.append(''); continue
            elif on and word=='undef': flush(); self.macros.pop(rest.strip(), None); out.append(''); continue
            elif on and word=='error': self.refuse('compile_error', f'#error {rest}', i)
            text.append('')
        flush()
        return '\n'.join(out)
    def define(self, rest:str):
        m = re.match(r'(\w+)(\(([^)]*)\))?\s*(.*)$', rest, re.S)
        if m: self.macros[m[1]] = Macro(m[4].strip(), [p.strip() for p in m[3].split(',') if p.strip()] if m[2] else None)
    def condition(self, rest:str, line:int)->bool:
        s = re.sub(r'\bdefined\s*(?:\(\s*(\w+)\s*\)|(\w+))', lambda m: '1' if (m[1] or m[2]) in self.macros else '0', rest)
        s = self.expand(s)
        for w in re.findall(r'\b[A-Za-z_]\w*\b', re.sub(r'\d\w*', '', s)):
            if 'VERSION' in w: self.refuse('inline_unreadable', f'#if on {w}, whose value is not known here', line)
        s = re.sub(r'\b(\d+)[uUlL]+\b', r'\1', s)
        s = re.sub(r'\b[A-Za-z_]\w*\b', lambda m: '1' if m[0]=='true' else '0', s)
        s = re.sub(r'!(?!=)', ' not ', s.replace('&&',' and ').replace('||',' or ').replace('/','//'))
        if not re.fullmatch(r'[\d\s()+\-*/%<>=!andort]*', s): self.refuse('inline_unreadable', f'#if {rest}', line)
        try: return bool(eval(s, {'__builtins__':{}}))
        except Exception: self.refuse('inline_unreadable', f'#if {rest}', line)
    def expand(self, text:str, hidden:frozenset=frozenset())->str:
        toks,out,i = _tokens(text),[],0
        while i<len(toks):
            t = toks[i]
            m = self.macros.get(t)
            if m is None or t in hidden: out.append(t); i += 1; continue
            if m.params is None:
                out.append(self.expand(m.body, hidden|{t})); i += 1; continue
            j = i+1
            while j<len(toks) and toks[j].isspace(): j += 1
            if j>=len(toks) or toks[j]!='(': out.append(t); i += 1; continue
            args,depth,j,lines = [''],1,j+1,0
            while j<len(toks) and depth:
                c = toks[j]
                depth += (c in '([{')-(c in ')]}') if len(c)==1 else 0
                if depth==0: break
                lines += c.count('\n')
                if c==',' and depth==1: args.append('')
                else: args[-1] += c
                j += 1
            body = self.substitute(m, [a.strip() for a in args], hidden)
            out.append(self.expand(body, hidden|{t}).replace('\n',' ')+'\n'*lines)
            i = j+1
        return ''.join(out)
    def substitute(self, m:Macro, args:list[str], hidden)->str:
        params = m.params or []
        value = dict(zip(params, args))
        if params and params[-1].endswith('...'):
            n = len(params)-1
            value = {**dict(zip(params[:n], args)), params[-1][:-3].strip() or '__VA_ARGS__':', '.join(args[n:])}
        body = re.sub(r'(?<!#)#\s*(\w+)', lambda h: '"'+re.sub(r'(["\\])', r'\\\1', value[h[1]])+'"' if h[1] in value else h[0], m.body)
        body = re.sub(r',?\s*##\s*__VA_ARGS__', lambda h: (h[0].split('##')[0]+value.get('__VA_ARGS__','')) if value.get('__VA_ARGS__') else '', body)
        paste = re.compile(r'(\w+)\s*##\s*(\w+)')
        while p := paste.search(body): body = body[:p.start()]+value.get(p[1],p[1])+value.get(p[2],p[2])+body[p.end():]
        return ''.join(self.expand(value[t], hidden) if t in value else t for t in _tokens(body))

# ------------------------------------------------------------------ sources
@dataclass
class Unit:
    "One translation unit: cpp_sources or cuda_sources"
    name:str # the CUDA source, the C++ source
    text:str # As written
    expanded:str = ''
    tree:Any = None
    functions:dict[str,list] = field(default_factory=dict) # Host functions with a body
    declared:set[str] = field(default_factory=set)
    kernels:dict[str,list[tuple[str,int]]] = field(default_factory=dict) # Name -> (namespaces before it, where) of each definition
    scope:Scope = field(default_factory=Scope)
    globals:dict[str,list[tuple]] = field(default_factory=dict) # Name -> (namespaces, declaration, declarator); evaluated when asked for
    enums:dict[str,N] = field(default_factory=dict) # 'Mode::fast' -> value
    twice:set[str] = field(default_factory=set) # Names that stand for two things
    macros:dict[str,Macro] = field(default_factory=dict)
    structs:set[str] = field(default_factory=set)

def kids(n, *kinds): return [c for c in n.named_children if not kinds or c.type in kinds]
def txt(n)->str: return n.text.decode()
def walk(n, *kinds):
    if n.type in kinds: yield n
    for c in n.children: yield from walk(c, *kinds)
def head_of(n)->str:
    "What stands before a function's body"
    body = n.child_by_field_name('body')
    return n.text[:(body.start_byte-n.start_byte) if body else None].decode()
def declarator_of(n):
    d = n.child_by_field_name('declarator')
    while d is not None and d.type not in ('function_declarator',): d = d.child_by_field_name('declarator') or next(iter(kids(d,'function_declarator','pointer_declarator','reference_declarator')), None)
    return d

# ------------------------------------------------------------------ what the device gets
_HOST = re.compile(r'\b(torch|pybind11|py|c10|at)::(?!Half\b|BFloat16\b|acc_type\b|opmath_type\b)|\bstd::(vector|string|tuple|optional|pair|map|unordered_map|function|shared_ptr|unique_ptr|mutex|cout|cerr|ostream|runtime_error|once_flag|atomic)\b|\bcuda(Stream|Error|Event|Graph|DeviceProp)\w*\b|\bcuda[A-Z]\w*\s*\(|\bcu(blas|dnn|sparse|solver|fft)\w*|<<<|\b(TORCH|AT|C10|PYBIND11)_[A-Z_0-9]+\b|\b(Tensor|TensorOptions|IntArrayRef)\b')
_HEADERS = re.compile(r'[<"](torch/|ATen/|c10/|pybind11/|cublas|cudnn|cusparse|cusolver|nvToolsExt|cuda_runtime|cuda\.h|cuda_profiler|optional|tuple|array|sstream|map|unordered_map|stdexcept|numeric|mutex|initializer_list|thread|iomanip|atomic|string_view|exception|ostream|fstream|set|list|deque|random|cstdarg|complex|ratio|variant|any|iterator|new|bitset|numbers|Python\.h|cub/cub\.cuh)')
_HALF = """struct Half { unsigned short x; Half() = default; __device__ Half(const __half& v) : x(__half_as_ushort(v)) {} __device__ Half(float v) : x(__half_as_ushort(__float2half(v))) {} __device__ Half(double v) : Half((float)v) {} __device__ Half(int v) : Half((float)v) {} __device__ Half(unsigned v) : Half((float)v) {} __device__ Half(long v) : Half((float)v) {} __device__ Half(long long v) : Half((float)v) {} __device__ Half(bool v) : Half((float)v) {} __device__ operator float() const { return __half2float(__ushort_as_half(x)); } __device__ operator __half() const { return __ushort_as_half(x); } };"""
_OPS = ' '.join(f'__device__ inline T operator{o}(const T& a, const T& b) {{ return T((float)a {o} (float)b); }} __device__ inline float operator{o}(T a, float b) {{ return (float)a {o} b; }} __device__ inline float operator{o}(float a, T b) {{ return a {o} (float)b; }} __device__ inline double operator{o}(T a, double b) {{ return (float)a {o} b; }} __device__ inline double operator{o}(double a, T b) {{ return a {o} (float)b; }} __device__ inline T operator{o}(T a, int b) {{ return T((float)a {o} (float)b); }} __device__ inline T operator{o}(int a, T b) {{ return T((float)a {o} (float)b); }} __device__ inline T operator{o}(T a, long b) {{ return T((float)a {o} (float)b); }} __device__ inline T operator{o}(long a, T b) {{ return T((float)a {o} (float)b); }} __device__ inline T& operator{o}=(T& a, const T& b) {{ return a = a {o} b; }}' for o in '+-*/')+' __device__ inline T operator-(const T& a) { return T(-(float)a); } '+' '.join(f'__device__ inline bool operator{o}({a} a, {b} b) {{ return (float)a {o} (float)b; }}' for o in ('==','!=','<','>','<=','>=') for a,b in (('T','T'),*((x,y) for u in ('int','long','float','double') for x,y in (('T',u),(u,'T'))))) # The host device has __half's own, and they would compete
_ACC = 'template<class T, bool C = true> struct acc_type { typedef T type; }; template<bool C> struct acc_type<c10::Half, C> { typedef float type; }; template<bool C> struct acc_type<c10::BFloat16, C> { typedef float type; }; template<class T> struct OpMathType { typedef typename acc_type<T>::type type; }; template<class T, bool C = true> using acc_type_t = typename acc_type<T, C>::type; template<class T> using opmath_type = typename acc_type<T>::type;'

def prelude(code:str)->str: # '' or lines that end in a #line
    "What the host's headers would have brought: 16-bit types of torch, a part of std, cub's parts"
    parts = []
    torchy = re.search(r'\b(at|c10|torch)::(Half|BFloat16|acc_type|opmath_type)|\bscalar_t\b|\btemplate\b', code) is not None
    if torchy or re.search(r'\b(__half\w*|half2?|__\w*2half\w*|__h[a-z]+2?)\b', code): parts.append('#include <cuda_fp16.h>')
    if torchy or 'bfloat16' in code: parts.append('#include <cuda_bf16.h>')
    for what,where in (('Block','block'),('Warp','warp')):
        for op in ('reduce','scan','load','store','radix_sort','exchange','shuffle'):
            if re.search(rf'\bcub\s*::\s*{what}{op.title().replace("_","")}\b', code): parts.append(f'#include <cub/{where}/{where}_{op}.cuh>')
    if re.search(r'\bstd\s*::', code): parts += ['#ifndef KRL_INLINE', *(f'#include <cuda/std/{h}>' for h in ('cmath','limits','type_traits','utility','cstdint')), 'namespace std { using namespace cuda::std; template<class T> __host__ __device__ constexpr const T& max(const T& a, const T& b) { return a < b ? b : a; } template<class T> __host__ __device__ constexpr const T& min(const T& a, const T& b) { return b < a ? b : a; } }', '#endif']
    if torchy:
        bf = _HALF.replace('__half_as_ushort','__bfloat16_as_ushort').replace('__ushort_as_half','__ushort_as_bfloat16').replace('__float2half','__float2bfloat16').replace('__half2float','__bfloat162float').replace('__half','__nv_bfloat16').replace('Half','BFloat16')
        ops = lambda t: re.sub(r'\bT\b', t, _OPS)
        parts.append(f'namespace c10 {{ {_HALF} {bf} {ops("Half")} {ops("BFloat16")} }} namespace at {{ using c10::Half; using c10::BFloat16; {_ACC} }} namespace torch {{ using c10::Half; using c10::BFloat16; }}')
    return '\n'.join([*parts, '#line 1 "kernel.cu"', '']) if parts else ''

def device_source(u:'Unit')->str: # CUDA C++ for the device: as many lines, the host's blank
    "Take host functions, headers and bindings out of a source"
    data = u.text.encode()
    out = bytearray(data)
    def blank(n):
        for i in range(n.start_byte, n.end_byte):
            if out[i]!=10: out[i] = 32
    def device_head(head:str)->bool:
        words = set(re.findall(r'\w+', head))
        return bool(words & {'__global__','__device__'}) or any(re.search(r'__device__|__global__', u.macros[w].body) for w in words if w in u.macros)
    def visit(n):
        for c in n.named_children:
            inner = next((i for i in kids(c) if i.type in ('function_definition','declaration','struct_specifier','class_specifier','alias_declaration')), c) if c.type=='template_declaration' else c
            t,code = inner.type,txt(inner)
            if c.type=='preproc_include':
                if _HEADERS.search(code): blank(c)
            elif c.type in ('namespace_definition','preproc_if','preproc_ifdef','preproc_else','preproc_elif','declaration_list'): visit(c.child_by_field_name('body') or c if c.type=='namespace_definition' else c)
            elif c.type=='linkage_specification':
                b = c.child_by_field_name('body')
                if b.type=='declaration_list': visit(b)
                elif not device_head(head_of(b)): blank(c)
            elif t=='function_definition':
                if not device_head(head_of(inner)) and not ('constexpr' in head_of(inner).split() and not _HOST.search(code)): blank(c)
            elif t=='declaration':
                if device_head(code) or re.search(r'\b__(constant|shared)__\b', code): continue
                if declarator_of(inner) is not None or _HOST.search(code) or not re.search(r'\b(const|constexpr)\b', code): blank(c)
            elif t=='using_declaration':
                if re.search(r'\b(at|torch|c10|std|py|pybind11)\b', code): blank(c)
            elif t in ('alias_declaration','type_definition','struct_specifier','class_specifier'):
                if _HOST.search(code) and not device_head(code): blank(c)
            elif t in ('preproc_def','preproc_function_def','enum_specifier','namespace_alias_definition','comment','preproc_call','static_assert_declaration','identifier','template_instantiation'): pass
            elif t=='expression_statement' and re.match(r'\s*(TORCH_LIBRARY|PYBIND11)', code): blank(c)
            elif c.is_error and device_head(code): pass
            elif _HOST.search(code): blank(c)
    visit(parse_cuda(u.text).root_node)
    code = out.decode()
    return prelude(strip_comments(code))+code
