"""Run notebooks on a machine that has Python and torch but no Jupyter, and bring their outputs home.

    python nbs/run_cuda.py 03_device outputs.json                          # there: run a page from top to bottom, keep what its `#| cuda` cells showed
    python nbs/run_cuda.py studies/sft outputs.json size=tiny steps=10     # there: run a whole study with these parameters, keep what every cell showed
    python nbs/run_cuda.py studies/sft outputs.json --merge                # at home: store it in the notebook

A study that stops because its time was up (parameter `limit_seconds`) exits with 75: call it again and it goes on. Its file is written after every cell; only that of a run which came to its end is merged.
What notebooks take of IPython is here too. A figure that needs plotly is left out where there is none, and its cell says so: carry the wheel to have it.
"""
import ast, contextlib, importlib.machinery, io, json, os, re, sys, time, traceback, types
from pathlib import Path

HERE = Path(__file__).parent
FLAG = lambda name, source: re.search(rf'^#\s*\|\s*{name}', source, re.M)
MIMES = {'_repr_markdown_':'text/markdown', '_repr_html_':'text/html', '_repr_svg_':'image/svg+xml', '_repr_json_':'application/json'}

def show(value)->dict:
    "What Jupyter would store for the last value of a cell"
    data = {'text/plain':repr(value)}
    if hasattr(value, '_repr_mimebundle_'):
        with contextlib.suppress(Exception):
            bundle = value._repr_mimebundle_()
            data.update(bundle[0] if isinstance(bundle, tuple) else bundle or {})
    if hasattr(value, 'to_plotly_json'): data['application/vnd.plotly.v1+json'] = json.loads(value.to_json())
    for method,mime in MIMES.items():
        if hasattr(value, method) and not isinstance(value, type) and (x := getattr(value, method)()) is not None: data[mime] = x
    return {'output_type':'execute_result', 'execution_count':None, 'metadata':{}, 'data':data}

class Markdown:
    "IPython's, where there is no IPython"
    def __init__(self, data:str): self.data = data
    def _repr_markdown_(self)->str: return self.data
    def __repr__(self): return '<IPython.core.display.Markdown object>'

def stand_in():
    "Let `from IPython.display import Markdown` be possible here"
    with contextlib.suppress(ImportError):
        import IPython.display # noqa: F401
        return
    for name in ('IPython','IPython.display'):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__spec__ = importlib.machinery.ModuleSpec(name, None)
    sys.modules['IPython'].display = sys.modules['IPython.display']
    sys.modules['IPython.display'].Markdown = Markdown

def keep(file:Path, out:dict):
    "Write outputs completely or not at all"
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(file.name+'.part')
    part.write_text(json.dumps(out, indent=1))
    os.replace(part, file)

class Tee(io.StringIO):
    "Keeps what is printed, and lets it through"
    def write(self, s): sys.__stdout__.write(s); sys.__stdout__.flush(); return super().write(s)

def run_cell(source:str, env:dict, out=io.StringIO)->list[dict]:
    "Execute one cell; its printed text and its last value"
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    text,value = out(),None
    with contextlib.redirect_stdout(text):
        exec(compile(tree, '<cell>', 'exec'), env)
        try:
            if last and not source.rstrip().endswith(';'): value = eval(compile(ast.Expression(last.value), '<cell>', 'eval'), env)
        except ModuleNotFoundError as e:
            if tree.body or (e.name or '').partition('.')[0]!='plotly': raise
            print('This figure was not drawn: there is no plotly on the machine of this run.') # Nothing but a figure to be shown
        if last and source.rstrip().endswith(';'): exec(compile(ast.Module([last], []), '<cell>', 'exec'), env)
    said = [{'output_type':'stream', 'name':'stdout', 'text':text.getvalue()}] if text.getvalue() else []
    return said+([show(value)] if value is not None else [])

def cells(page:str)->list[dict]: return [c for c in json.loads((HERE/f'{page}.ipynb').read_text())['cells'] if c['cell_type']=='code']

def run(page:str, file:Path)->dict[str,list]: # Cell id -> outputs, of the cuda cells
    "Run a page from top to bottom; what its `#| cuda` cells showed is in the file after each of them"
    env,out,t = {'__name__':'__main__'},{},time.time()
    os.chdir(HERE)
    for c in cells(page):
        source = ''.join(c['source'])
        if FLAG('(eval: *false|slow|notest|default_exp)', source): continue
        shown = run_cell(source, env)
        if FLAG('cuda', source): out[c['id']] = shown; keep(file, out)
    print(f'{page}: done in {time.time()-t:.1f} s, {len(out)} cells for the GPU', flush=True)
    return out

def given(words:list[str], source:str)->str:
    "The cell of parameters that papermill would put in; unknown names are refused, text stays text"
    known = {n.target.id:ast.unparse(n.annotation) for n in ast.parse(source).body if isinstance(n, ast.AnnAssign)}
    lines = []
    for w in words:
        name,_,text = w.partition('=')
        if name not in known: raise SystemExit(f'{w}: is no parameter of this study; it has {", ".join(known)}')
        lines.append(f'{name} = {text!r}' if known[name]=='str' else f'{name} = {known[name]}({ast.literal_eval(text)!r})')
    return '\n'.join(lines)

def run_study(page:str, words:list[str], file:Path)->int: # Exit status
    "Run all cells in order, as a notebook would; what was shown is in the file after every cell"
    env,out,t = {'__name__':'__main__'},{'page':page, 'parameters':words, 'cells':{}, 'done':False},time.time()
    os.chdir((HERE/page).parent)
    stand_in()
    for c in cells(page):
        source = ''.join(c['source'])
        if 'injected-parameters' in c['metadata'].get('tags', []): continue # Of the run that is shown, not of this one
        try:
            out['cells'][c['id']] = run_cell(source, env, Tee)
            if 'parameters' in c['metadata'].get('tags', []): exec(given(words, source), env)
        except BaseException as e:
            if type(e).__name__!='OutOfTime': traceback.print_exc()
            keep(file, out)
            print(f'{page}: stopped after {time.time()-t:.0f} s: {type(e).__name__}: {e}', flush=True)
            return 75 if type(e).__name__=='OutOfTime' else 1
        out['answer'] = env.get('answer', '')
        keep(file, out)
    out.update(done=True, seconds=round(time.time()-t, 1))
    keep(file, out)
    print(f'{page}: done in {out["seconds"]} s', flush=True)
    return 0

ELSEWHERE = ('folder','device','figures','limit_seconds','command','ship_to') # Parameters that say where, not what

def parameters(outputs:dict, source:str)->dict|None:
    "The cell with which papermill says what a run was given, where it was given anything"
    words = [w for w in outputs.get('parameters', []) if w.partition('=')[0] not in ELSEWHERE]
    return {'cell_type':'code', 'execution_count':None, 'id':'parameters', 'metadata':{'tags':['injected-parameters']}, 'outputs':[], 'source':'# Parameters of the run that is shown\n'+given(words, source)} if words else None

def merge(page:str, outputs:dict):
    "Put outputs into a notebook; a study also gets its answer into its first cell, and what it was given behind the cell of parameters"
    if 'cells' in outputs and not outputs.get('done'): raise SystemExit(f'{page}: this run did not come to its end; run it again with the same folder, then merge')
    if not outputs: raise SystemExit(f'{page}: there are no outputs to merge')
    path = HERE/f'{page}.ipynb'
    nb = json.loads(path.read_text())
    nb['cells'] = [c for c in nb['cells'] if 'injected-parameters' not in c['metadata'].get('tags', [])]
    at = next((i for i,c in enumerate(nb['cells']) if 'parameters' in c['metadata'].get('tags', [])), None)
    if at is not None and (cell := parameters(outputs, ''.join(nb['cells'][at]['source']))): nb['cells'].insert(at+1, cell)
    for c in nb['cells']:
        if c['id'] in outputs.get('cells', outputs): c['outputs'] = outputs.get('cells', outputs)[c['id']]
    if outputs.get('answer'):
        first = nb['cells'][0]
        first['source'] = re.sub(r'(?m)^> .*$', lambda m: '> '+outputs['answer'], ''.join(first['source']), count=1)
    path.write_text(json.dumps(nb, indent=1, ensure_ascii=False, sort_keys=True)+'\n')

if __name__=='__main__':
    page,file = sys.argv[1:3]
    file = Path(file).absolute()
    if '--merge' in sys.argv: merge(page, json.loads(file.read_text()))
    elif page.startswith('studies/'): sys.exit(run_study(page, sys.argv[3:], file))
    else: run(page, file)
