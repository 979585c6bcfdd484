"""The explorer in a real JupyterLab, in a Chromium without a window: run the page, click through the tabs while a model trains, collect console errors, take pictures.

    python benchmarks/explorer_shot.py        # writes data/benchmarks/explorer.json and figures/explorer_*.png

Needs playwright (pip install playwright) and a Chromium ($BROWSER_PATH, or one on the path; playwright's own otherwise). Playwright may live in another environment than
kernelrl: JupyterLab and the training run are started from .venv where there is one.
"""
import argparse, contextlib, datetime, json, os, shutil, signal, socket, subprocess, sys, tempfile, time, urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT/'.venv/bin/python' if (ROOT/'.venv/bin/python').exists() else Path(sys.executable)
FLAGS = ['--no-sandbox','--disable-gpu','--disable-quic','--no-first-run','--disable-background-networking','--disable-component-update','--disable-sync']
SETTINGS = {'apputils-extension/notification.jupyterlab-settings':{'fetchNews':'false','checkForUpdates':False}, 'notebook-extension/tracker.jupyterlab-settings':{'windowingMode':'none'}}

TRAIN = '''
import sys, warnings, torch
from kernelrl.core import Run
from kernelrl.follower import keeping_samples
from kernelrl.judge import Judge, judge_all
from kernelrl.leap import LeapConfig, Question, leap
from kernelrl.lm import new_model, sized
from kernelrl.program import Program
from kernelrl.sft import SFTConfig, examples, sft
from kernelrl.task import Task
from kernelrl.tokenizer import train_tokenizer
from kernelrl.verdict import Store
torch.set_num_threads(1); warnings.simplefilter('ignore')
def toy(name, torch_text, cuda_text):
    source = f'import torch, torch.nn as nn\\nN = 65536\\nclass Model(nn.Module):\\n    def forward(self, x): return {torch_text}\\ndef get_inputs(): return [torch.randn(N)]\\ndef get_init_inputs(): return []\\n'
    text = f"""import cupy as cp
k = cp.RawKernel(r\'\'\'
extern "C" __global__ void f(const float* x, float* y, int n) {{
    int i = blockIdx.x * 256 + threadIdx.x; if (i < n) y[i] = {cuda_text};
}}\'\'\', 'f')
def forward(x):
    y = cp.empty_like(x)
    k(((x.size + 255) // 256,), (256,), (x, y, x.size))
    return y
"""
    return Question(Task(name, source, shapes=({},{'N':1001})), Program(text, name))
questions = [toy('double', '2 * x', '2 * x[i]'), toy('relu', 'torch.relu(x)', 'fmaxf(x[i], 0)')]
tok = train_tokenizer([q.program.text for q in questions], 300)
model = new_model(sized('tiny', vocab_size=len(tok), max_context=640, max_middle=96), 0)
sft(model, [e for e in examples(tok, [(q.asked,q.program.text) for q in questions], model.config) if e[0].after], SFTConfig(steps=120, batch=4, warmup=10, lr=4e-3, lo=.3, hi=1.))
c = LeapConfig(500, questions=2, group=6, turns=2, hole='core', save_every=1000)
with Judge('host', 'quick', Store(sys.argv[1]+'/store.sqlite'), secret='shot') as j:
    run = Run(sys.argv[1]+'/runs/leap', c.to_dict())
    leap(model, tok, questions, keeping_samples(lambda pairs: judge_all(j, pairs), run), run, c)
'''

def free_port()->int:
    with socket.socket() as s: s.bind(('127.0.0.1', 0)); return s.getsockname()[1]

@contextlib.contextmanager
def ended(args:list[str], **kw):
    "A process group that is gone afterwards"
    p = subprocess.Popen(args, start_new_session=True, **kw)
    try: yield p
    finally:
        with contextlib.suppress(ProcessLookupError): os.killpg(p.pid, signal.SIGTERM)
        try: p.wait(20)
        except subprocess.TimeoutExpired: os.killpg(p.pid, signal.SIGKILL); p.wait()

@contextlib.contextmanager
def lab(tmp:Path): # The address of the page
    "JupyterLab on a copy of the page, with settings of its own"
    port,token = free_port(),'shot'
    (tmp/'nbs').mkdir()
    shutil.copy(ROOT/'nbs/19_explorer.ipynb', tmp/'nbs')
    for name,value in SETTINGS.items():
        f = tmp/'settings/@jupyterlab'/name
        f.parent.mkdir(parents=True, exist_ok=True); f.write_text(json.dumps(value))
    env = {**os.environ, 'HOME':str(tmp), 'JUPYTER_CONFIG_DIR':str(tmp/'config'), 'JUPYTER_DATA_DIR':str(tmp/'share'), 'JUPYTER_RUNTIME_DIR':str(tmp/'run'), 'JUPYTERLAB_SETTINGS_DIR':str(tmp/'settings'), 'JUPYTERLAB_WORKSPACES_DIR':str(tmp/'workspaces'), 'OMP_NUM_THREADS':'1', 'JUPYTER_PLATFORM_DIRS':'1'}
    args = [str(PYTHON),'-m','jupyter','lab','--no-browser','--allow-root','--ip=127.0.0.1',f'--port={port}',f'--IdentityProvider.token={token}',f'--ServerApp.root_dir={tmp}','--LabApp.news_url=','--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate']
    with open(tmp/'lab.log','w') as log, ended(args, env=env, cwd=tmp, stdout=log, stderr=log) as p:
        until = time.monotonic()+120
        while True:
            try: urllib.request.urlopen(f'http://127.0.0.1:{port}/api/status?token={token}', timeout=2); break
            except OSError:
                if p.poll() is not None or time.monotonic()>until: sys.exit(f'JupyterLab did not start:\n{(tmp/"lab.log").read_text()[-2000:]}')
                time.sleep(.3)
        yield f'http://127.0.0.1:{port}/lab/workspaces/auto-s/tree/nbs/19_explorer.ipynb?token={token}&reset'

def shown(pg, selector:str, seconds:float):
    "Wait for something; a cell that failed ends it at once, with what it says"
    until,failed = time.monotonic()+seconds,'[data-mime-type="application/vnd.jupyter.error"]'
    while not pg.locator(selector).count():
        if pg.locator(failed).count(): sys.exit(f'a cell of the page failed:\n{pg.locator(failed).first.inner_text()[-2000:]}')
        if time.monotonic()>until: sys.exit(f'{selector} did not appear within {seconds:g} s')
        pg.wait_for_timeout(500)

def browse(address:str, pictures:Path, errors:list[str])->dict:
    "Run the page, use every tab, take pictures"
    from playwright.sync_api import sync_playwright
    chrome = os.environ.get('BROWSER_PATH') or next((p for n in ('chromium','chromium-browser','google-chrome') if (p := shutil.which(n))), None)
    with sync_playwright() as pw:
        b = pw.chromium.launch(executable_path=chrome, args=FLAGS)
        pg = b.new_page(viewport=dict(width=1420, height=1100))
        pg.on('console', lambda m: errors.append(m.text[:300]) if m.type=='error' else None)
        pg.on('pageerror', lambda e: errors.append(str(e)[:300]))
        pg.goto(address)
        pg.wait_for_selector('.jp-Notebook .jp-Cell', timeout=120_000)
        pg.wait_for_selector('.jp-Notebook-ExecutionIndicator[data-status="idle"]', timeout=120_000)
        pg.keyboard.press('Control+b') # Hide the file browser
        pg.click('.jp-Notebook .jp-Cell >> nth=0')
        pg.click('.lm-MenuBar-itemLabel:text-is("Run")'); pg.click('.lm-Menu-itemLabel:text-is("Run All Cells")')
        tabs = pg.locator('.jupyter-widget-tab, .widget-tab').last
        shown(pg, '.krl-table tbody tr', 300)
        tabs.scroll_into_view_if_needed()
        tab = lambda name: tabs.locator('.lm-TabBar-tab', has_text=name).click()
        def shot(name:str):
            pg.wait_for_timeout(900)
            tabs.screenshot(path=str(pictures/f'explorer_{name}.png'))
        # data set: filter, select a line, click a point
        pg.wait_for_selector('.krl-table tbody tr', timeout=60_000)
        tabs.locator('.krl-table tbody tr >> nth=2').click()
        pg.wait_for_function("() => document.querySelector('.krl-table tr.krl-on')")
        shot('data')
        first = tabs.locator('.krl-table tbody tr').count()
        tabs.locator('input[placeholder="part of a task or program"]').fill('gelu')
        pg.wait_for_function(f"() => document.querySelectorAll('.krl-table tbody tr').length < {first}", timeout=30_000)
        tabs.locator('.krl-table tbody tr', has_text='naive').first.click()
        tabs.get_by_role('button', name='show this kernel').click()
        # kernel: count on the host device, beside the source
        tabs.get_by_role('button', name='count memory traffic').click()
        pg.wait_for_selector('.krl-bar', state='attached', timeout=120_000)
        shot('kernel')
        tab('lineage')
        pg.wait_for_selector('.krl-diff', timeout=30_000)
        tabs.get_by_label('lineage').select_option(index=0)
        shot('lineage')
        # run: it has to move by itself
        tab('run')
        line = lambda: next((t for t in tabs.locator('.widget-html-content, .jupyter-widgets.widget-html').all_inner_texts() if ': step ' in t), '')
        until = time.monotonic()+240
        while not line() and time.monotonic()<until: pg.wait_for_timeout(500)
        seen = {line()}
        while len(seen)<4 and time.monotonic()<until: pg.wait_for_timeout(700); seen.add(line())
        shot('run')
        pg.screenshot(path=str(pictures/'explorer_jupyterlab.png'))
        b.close()
    return {'updates_seen':len(seen)-1, 'rows':first}

def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument('--figures', type=Path, default=ROOT/'figures', help='where pictures go')
    a.add_argument('--all', action='store_true', help='keep the pictures of all tabs, not only those for the README')
    a.add_argument('--result', type=Path, default=ROOT/'data/benchmarks/explorer.json', help='what was found')
    a = a.parse_args()
    errors:list[str] = []
    t = time.monotonic()
    with tempfile.TemporaryDirectory() as d, contextlib.ExitStack() as stack:
        tmp = Path(d)
        (tmp/'runs').mkdir()
        (tmp/'train.py').write_text(TRAIN)
        log = stack.enter_context(open(tmp/'train.log','w'))
        training = stack.enter_context(ended([str(PYTHON), str(tmp/'train.py'), str(tmp)], cwd=ROOT, stdout=log, stderr=log, env={**os.environ, 'OMP_NUM_THREADS':'1'}))
        while not (tmp/'runs/leap/metrics.jsonl').exists():
            if training.poll() is not None: sys.exit(f'the training run ended:\n{(tmp/"train.log").read_text()[-2000:]}')
            time.sleep(.5)
        a.figures.mkdir(parents=True, exist_ok=True)
        (tmp/'shots').mkdir()
        found = browse(stack.enter_context(lab(tmp)), tmp/'shots', errors)
        for p in (tmp/'shots').glob('*.png'):
            if a.all or p.stem in ('explorer_data','explorer_run'): shutil.copy(p, a.figures)
    commit = subprocess.run(['git','describe','--always','--dirty'], capture_output=True, text=True, cwd=ROOT).stdout.strip()
    sizes = {p.name:p.stat().st_size//1024 for p in sorted(a.figures.glob('explorer_*.png'))}
    out = {'device':'host (CPU), JupyterLab in headless Chromium', 'date':datetime.date.today().isoformat(), 'commit':commit, 'command':'python benchmarks/explorer_shot.py', 'protocol':'all cells of nbs/19_explorer.ipynb, four tabs, a LEAP run that trains meanwhile', 'seeds':[0],
        'figures':{'console_errors':len(errors), 'tabs':4, **found, 'seconds':round(time.monotonic()-t)}, 'rows':[{'error':e} for e in errors]}
    a.result.parent.mkdir(parents=True, exist_ok=True)
    a.result.write_text(json.dumps(out, indent=1)+'\n')
    print(json.dumps(out['figures']), sizes, *errors[:5], sep='\n')
    sys.exit(bool(errors) or found['updates_seen']<1)

if __name__=='__main__': main()
