"The package's shape: modules import alone, import leftward, equal their notebooks; the README equals its page"
import ast, importlib.util, json, re, subprocess, sys
from pathlib import Path
import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT/'nbs').glob('[0-9]*.ipynb'))
ORDER = [re.sub(r'^\d+[a-z]?_', '', p.stem) for p in PAGES]
LIGHT = [m for m in ORDER if ORDER.index(m)<(ORDER.index('lm') if 'lm' in ORDER else len(ORDER))]

def fresh(code:str): return subprocess.run([sys.executable,'-c',code], cwd=ROOT, capture_output=True, text=True, timeout=120)

def test_every_page_is_a_module_and_every_module_has_a_page():
    assert {p.stem for p in (ROOT/'kernelrl').glob('[!_]*.py')}==set(ORDER)

def test_pages_import_alone_without_a_gpu_stack():
    "Each module in a process of its own state: imported first, nothing heavy comes along"
    code = '''
import sys, importlib
for m in %r:
    for k in [k for k in sys.modules if k.startswith("kernelrl")]: del sys.modules[k]
    importlib.import_module(f"kernelrl.{m}")
    bad = {"torch","cupy","transformers","fastcore","nbdev","IPython"} & set(sys.modules)
    assert not bad, (m, bad)
''' % LIGHT
    r = fresh(code)
    assert r.returncode==0, r.stderr

def test_import_is_light():
    r = fresh('from kernelrl import Task, Program, judge; import sys; assert callable(judge); print(*sorted({m.split(".")[0] for m in sys.modules}))')
    assert r.returncode==0, r.stderr
    assert not {'torch','cupy','scipy','pandas','pyarrow','transformers','peft','plotly','ipywidgets','papermill','tyro','datasets'}&set(r.stdout.split())

@pytest.mark.parametrize('mod', ORDER)
def test_imports_leftward(mod):
    for n in ast.walk(ast.parse((ROOT/f'kernelrl/{mod}.py').read_text())):
        if isinstance(n, ast.ImportFrom) and n.level==1 and n.module and not n.module.startswith('_'):
            assert ORDER.index(n.module)<ORDER.index(mod), f'{mod} imports {n.module}, which stands to its right'

def test_exported():
    "The package on disk is what the notebooks say"
    before = {p:p.read_bytes() for p in (ROOT/'kernelrl').glob('*.py') if p.stem in ORDER or p.stem=='_modidx'}
    subprocess.run([Path(sys.executable).parent/'nbdev_export'], check=True, cwd=ROOT, capture_output=True)
    changed = [p.name for p,b in before.items() if p.read_bytes()!=b]
    for p,b in before.items(): p.write_bytes(b)
    assert not changed, f'{changed} differ from their notebooks: run nbdev_export, or nbdev_update if you edited the module'

def test_readme_in_sync():
    spec = importlib.util.spec_from_file_location('readme', ROOT/'nbs/readme.py')
    m = importlib.util.module_from_spec(spec); spec.loader.exec_module(m)
    assert (ROOT/'README.md').read_text()==m.readme(ROOT/'nbs/index.ipynb'), 'README.md is not what index.ipynb says: run make readme'

def prose(path): return [path.read_text()] if path.suffix=='.md' else [''.join(c['source']) for c in json.loads(path.read_text())['cells'] if c['cell_type']=='markdown']

def test_links_lead_somewhere():
    pages = [p for p in (*ROOT.glob('*.md'), *ROOT.glob('data/**/*.md'), *ROOT.glob('figures/*.md'), *ROOT.glob('nbs/**/*.ipynb')) if '.ipynb_checkpoints' not in p.parts]
    links = [(p,l) for p in pages for text in prose(p) for l in re.findall(r'\]\(([^)#\s]+)', text) if not re.match(r'[a-z]+:', l)]
    assert len(links)>50
    assert not [f'{p.name}: {l}' for p,l in links if not (p.parent/l).exists()]

@pytest.mark.parametrize('page', [p for p in (ROOT/'nbs').rglob('*.ipynb') if '.ipynb_checkpoints' not in p.parts], ids=lambda p: p.stem)
def test_page_is_clean(page):
    "Valid, no merge marks, not bloated, no address of this machine in it"
    text = page.read_text()
    cells = json.loads(text)['cells']
    assert '<<<<<<<' not in text
    assert len(text)<500_000, f'{page.name} has {len(text)//1000} kB'
    for c in cells:
        out = json.dumps(c.get('outputs', []))
        assert not re.search(r'/root/|/home/|/work/|/tmp/\w|0x7f[0-9a-f]{6,}', out), out[:300]
    assert not any(o.get('output_type')=='error' for c in cells for o in c.get('outputs', []))
