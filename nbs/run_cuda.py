"""Run a page's `#| cuda` cells on a GPU machine that has no Jupyter, and bring their outputs home.

    python nbs/run_cuda.py 03_device outputs.json            # on the GPU: run the page from top to bottom, keep what the cuda cells showed
    python nbs/run_cuda.py 03_device outputs.json --merge    # at home: store it in the page
"""
import ast, contextlib, io, json, os, re, sys
from pathlib import Path

HERE = Path(__file__).parent
FLAG = lambda name, source: re.search(rf'^#\s*\|\s*{name}', source, re.M)

def show(value)->dict:
    "What Jupyter would store for the last value of a cell"
    data = {'text/plain':repr(value)}
    if hasattr(value, '_repr_markdown_'): data['text/markdown'] = value._repr_markdown_()
    return {'output_type':'execute_result', 'execution_count':None, 'metadata':{}, 'data':data}

def run_cell(source:str, env:dict)->list[dict]:
    "Execute one cell; its printed text and its last value"
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    text,value = io.StringIO(),None
    with contextlib.redirect_stdout(text):
        exec(compile(tree, '<cell>', 'exec'), env)
        if last: value = eval(compile(ast.Expression(last.value), '<cell>', 'eval'), env)
    out = [{'output_type':'stream', 'name':'stdout', 'text':text.getvalue()}] if text.getvalue() else []
    return out+([show(value)] if value is not None else [])

def run(page:str)->dict[str,list]: # Cell id -> outputs, of the cuda cells
    "Run a page from top to bottom"
    env,out = {'__name__':'__main__'},{}
    os.chdir(HERE)
    for c in json.loads((HERE/f'{page}.ipynb').read_text())['cells']:
        source = ''.join(c['source'])
        if c['cell_type']!='code' or FLAG('(eval: *false|slow|notest|default_exp)', source): continue
        shown = run_cell(source, env)
        if FLAG('cuda', source): out[c['id']] = shown
    return out

def merge(page:str, outputs:dict[str,list]):
    "Put outputs into a page"
    path = HERE/f'{page}.ipynb'
    nb = json.loads(path.read_text())
    for c in nb['cells']:
        if c['id'] in outputs: c['outputs'] = outputs[c['id']]
    path.write_text(json.dumps(nb, indent=1, ensure_ascii=False, sort_keys=True)+'\n')

if __name__=='__main__':
    page,file = sys.argv[1:3]
    file = Path(file).absolute()
    if '--merge' in sys.argv: merge(page, json.loads(file.read_text()))
    else: file.write_text(json.dumps(run(page), indent=1))
