"The dashboard: pure tables and pictures, and the widgets without a browser (construct, turn a control, look at the children)"
import importlib.util, json, os, subprocess, sys, threading, time
from dataclasses import replace
from pathlib import Path
import pytest
for m in ('plotly','ipywidgets','anywidget'): pytest.importorskip(m)
import plotly.graph_objects as go
from kernelrl.core import Finding, KernelRLError, Run
from kernelrl.entries import Entry, chosen, entry_row, read_entries, read_lineages, scatter_figure, timing_figure, verdict_html, versions
from kernelrl.explorer import DataTab, Explorer, KernelTab, LineageTab, RunTab
from kernelrl.follower import Follower, Tail, keeping_samples, run_figures, run_line
from kernelrl.listing import count_traffic, diff_html, highlighted, source_html, traffic_notes
from kernelrl.widgets import live, redraw
from kernelrl.program import Program
from kernelrl.runlog import RunLog
from kernelrl.task import shipped_programs, shipped_tasks
from kernelrl.verdict import Verdict

ROOT = Path(__file__).parent.parent

@pytest.fixture(scope='module')
def entries(): return read_entries()

def wait_for(what, seconds=20.):
    until = time.monotonic()+seconds
    while not what():
        assert time.monotonic()<until, 'waited too long'
        time.sleep(.02)

def step(run, i, status='ok', **kw):
    run.add('metrics.jsonl', step=i, reward=i/10, tokens=10, s_rollout=1., s_judge=1., s_update=1.)
    run.add('ledger.jsonl', step=i, task='t', group=0, sample=0, turn=1, status=status, **kw)

# Tables and pictures

def test_entries_are_replayed_and_know_their_texts(entries):
    assert {e.verdict.source for e in entries}=={'replayed'}
    assert all(Program(e.text).id==e.verdict.program_id for e in entries if e.text and e.verdict.program_id)
    assert sum(bool(e.text and e.prompt) for e in entries)>.5*len(entries)

def test_filters_are_exact(entries):
    kept = chosen(entries, decision='kept')
    assert kept and len(kept)+len([e for e in entries if e.decision!='kept'])==len(entries)
    assert chosen(entries, 'no such task')==[] and chosen(entries, status='compile')==[e for e in entries if e.verdict.status=='compile']

def test_a_failure_has_a_row_but_no_dot():
    bad = Entry('t', 'p', Verdict('t','p','wrong','correct', reason=Finding('mismatch','<b>no</b>')), 'wrong/mismatch')
    assert entry_row(bad)[2:]==[None]*4+['wrong/mismatch'] and sum(len(t.x or ()) for t in scatter_figure([bad]).data)==0
    assert '&lt;b&gt;no' in verdict_html(bad) and '<b>no' not in verdict_html(bad)
    timing_figure(bad.verdict) # Nothing was timed: an empty picture, no error

def test_no_letter_of_a_source_is_lost():
    import html, re
    for t in shipped_tasks()[:12]:
        for _,text in shipped_programs(t.name):
            back = [html.unescape(re.sub('<[^>]*>', '', l)) for l in highlighted(text)]
            assert back==text.split('\n')

@pytest.mark.parametrize('text', ['def (', 'x = "<script>alert(1)</script>"', "cp.RawKernel('__global__ void f() {}', 'f')", 'a\r\nb', '\u00e9 = "\u00fc __global__"'])
def test_any_text_can_be_shown(text):
    out = source_html(text)
    assert '<script>' not in out and out.count('<tr>')==text.rstrip().count('\n')+1

def test_traffic_stands_beside_the_right_lines():
    [t] = [t for t in shipped_tasks() if t.name=='transpose2d']
    text = dict(shipped_programs('transpose2d'))['naive']
    notes = traffic_notes(text, count_traffic(t, Program(text)))
    lines = text.split('\n')
    assert notes and all('[' in lines[i-1] for i in notes)
    assert max(s for s,_ in notes.values())<=1 and '32.0 sectors a request' in ' '.join(w for _,w in notes.values()) # A transpose without a tile: one side is not coalesced

def test_what_cannot_be_counted_is_said():
    [t] = [t for t in shipped_tasks() if t.name=='gelu_tanh']
    with pytest.raises(KernelRLError, match='cannot be counted'): count_traffic(t, Program('import cupy as cp\ndef forward(x): return cp.tanh(x)'))

def test_versions_go_from_slow_to_fast(entries):
    task = max({e.task for e in entries}, key=lambda t: len(versions(entries, t)))
    rows = versions(entries, task)
    assert len(rows)>1 and rows[0]['ratio']==1 and all(r['ratio']>=1 for r in rows)
    assert f'{task} (versions)' in read_lineages(entries)
    assert list(read_lineages(entries, [('a/walk.jsonl','gemm',rows)]))[0]=='gemm (walk)'

def test_diff_marks_what_changed():
    out = diff_html('a\nb\n<c>', 'a\nB\n<c>')
    assert out.count('krl-add')==out.count('krl-del')==1 and '&lt;c&gt;' in out and 'nothing to compare' in diff_html('', 'x')

def test_run_line_and_figures():
    log = RunLog('r', '', {'infill_steps':2,'whole_steps':2}, {}, [{'step':0,'phase':'infill','reward':.5,'s_judge':30.}], [])
    assert run_line(log)=='r: step 1 of 4 (infill), about 2 min left; mean reward 0.5' and 'no step is finished' in run_line(RunLog('r','',{},{},[],[]))
    assert set(run_figures(RunLog('', '', {}, {}, [], [])))==set(run_figures(log))

# Following a run

def test_tail_reads_only_what_is_new_and_survives_a_rewrite(tmp_path):
    run = Run(tmp_path/'r', {}); tail = Tail(run, 'metrics.jsonl')
    assert not tail.look() and tail.rows==[]
    for i in range(50): run.add('metrics.jsonl', step=i)
    assert tail.look() and len(tail.rows)==50 and not tail.look()
    kept = tail.rows
    run.add('metrics.jsonl', step=50)
    assert tail.look() and tail.rows is kept and len(kept)==51 # Added, not read again
    run.write('metrics.jsonl', ''.join(json.dumps({'step':i,'again':1})+'\n' for i in range(80))) # Longer than before, but another file
    assert tail.look() and [r['step'] for r in tail.rows]==list(range(80)) and all(r['again'] for r in tail.rows)
    run.write('metrics.jsonl', '{"step":0}\n')
    assert tail.look() and tail.rows==[{'step':0}]

def test_a_half_written_line_is_read_later(tmp_path):
    run = Run(tmp_path/'r', {}); tail = Tail(run, 'metrics.jsonl')
    f = open(tmp_path/'r/metrics.jsonl', 'w')
    f.write('{"step":0}\n{"st'); f.flush()
    assert tail.look() and len(tail.rows)==1
    f.write('ep":1}\n'); f.close()
    assert tail.look() and [r['step'] for r in tail.rows]==[0,1]

def counted(follower): # Its looks from now on
    looks,look = [],follower.look
    def counting(): looks.append(1); return look()
    follower.look = counting
    return looks

def test_follower_calls_back_from_its_thread_and_ends(tmp_path):
    run,calls = Run(tmp_path/'r', {}),[]
    f = Follower(tmp_path/'r', lambda f: calls.append((threading.current_thread().name, len(f.log.metrics), len(f.log.ledger))), every=.02).start()
    step(run, 0)
    wait_for(lambda: calls and calls[-1][1:]==(1,1)) # A step is two lines in two files: it may be seen in two looks
    n,looks = len(calls),counted(f)
    wait_for(lambda: len(looks)>5)
    assert len(calls)==n and calls[0][0]=='kernelrl-follower' # Looked, nothing new, nothing drawn
    f.stop(); assert not f.alive
    step(run, 1); time.sleep(.1)
    assert len(calls)==n

def test_a_folder_that_fails_is_said_and_tried_again(tmp_path):
    run = Run(tmp_path/'r', {}); step(run, 0)
    seen = []
    f = Follower(tmp_path/'r', lambda f: seen.append(f.error), every=.02)
    broken = f.tails['ledger.jsonl'].look
    f.tails['ledger.jsonl'].look = lambda: (_ for _ in ()).throw(OSError('disk is gone'))
    f.start(); wait_for(lambda: any('disk is gone' in e for e in seen))
    f.tails['ledger.jsonl'].look = broken
    wait_for(lambda: seen[-1]==''); f.stop()

def test_keeping_samples_changes_no_verdict(tmp_path):
    run = Run(tmp_path/'r', {}); step(run, 0)
    ask = keeping_samples(lambda pairs: [Verdict(t.name, p.name, 'ok', 'time') for t,p in pairs], run, 1)
    [t] = [t for t in shipped_tasks() if t.name=='gelu_tanh']
    assert [v.program for v in ask([(t,Program('a','a')),(t,Program('b','b'))])]==['a','b']
    assert [(r['step'],r['text']) for r in run.rows('samples.jsonl')]==[(1,'a')]

# Widgets

def test_redraw_keeps_lines_that_are_the_same():
    w = live(go.Figure(go.Scatter(x=[1], y=[1], name='a')))
    line = w.data[0]
    redraw(w, go.Figure(go.Scatter(x=[1,2], y=[3,4], name='a'), layout_title_text='new'))
    assert w.data[0] is line and list(line.y)==[3,4] and w.layout.title.text=='new'
    redraw(w, go.Figure([go.Bar(x=[1], y=[2], name='b')]))
    assert [t.type for t in w.data]==['bar']
    redraw(w, go.Figure()); assert len(w.data)==0

def test_filter_changes_table_and_plot(entries):
    got = []
    tab = DataTab(entries, got.append, lambda: got.append('open'))
    assert len(tab.table.rows)==len(entries) and tab.open.disabled
    tab.table.selected = 1
    assert got==[entries[1]] and not tab.open.disabled
    tab.task.value = entries[0].task
    assert {r[0] for r in tab.table.rows}=={entries[0].task} and tab.table.selected==-1 and tab.open.disabled
    assert sum(len(t.x) for t in tab.plot.data)==sum(e.verdict.ok and bool(e.verdict.speedup) for e in tab.shown)
    tab.open.click(); assert got[-1]=='open'

def test_a_click_on_a_point_selects_its_line(entries):
    got = []
    tab = DataTab(entries, got.append, lambda: None)
    tab.decision.value = 'kept'
    trace = tab.plot.data[0]
    class Points: point_inds = [3]
    tab._clicked(trace, Points, None)
    assert got[-1] is tab.shown[trace.customdata[3]] and tab.table.selected==trace.customdata[3]

def test_kernel_tab_follows_both_ways(entries):
    tab = KernelTab(entries)
    several = next(t for t in {e.task for e in entries} if sum(e.task==t for e in entries)>1)
    a,b = [e for e in entries if e.task==several][:2]
    tab.show(a); assert (tab.task.value,tab.program.label)==(a.task,a.program)
    tab.program.value = entries.index(b)
    assert tab.entry is b and b.verdict.program and f'{b.verdict.speedup.ratio:.2f}x' in tab.verdict.value
    other = next(e for e in entries if e.task!=several)
    tab.task.value = other.task
    assert tab.entry.task==other.task

def test_counting_leaves_the_kernel_free_and_shows_the_result(entries):
    e = next(e for e in entries if (e.task,e.program)==('gelu_tanh','naive'))
    tab = KernelTab(entries); tab.show(e)
    tab.count.click()
    assert tab.count.disabled and 'krl-bar' not in tab.source.value # It returned at once
    wait_for(lambda: not tab.count.disabled, 60)
    assert 'krl-bar' in tab.source.value and 'scaled to all' in tab.said.value

def test_counting_says_what_it_cannot(entries):
    e = next(e for e in entries if e.text)
    bad = replace(e, text='import cupy as cp\ndef forward(*xs): return cp.tanh(xs[0])')
    tab = KernelTab([bad]); tab.count_now()
    assert 'cannot be counted' in tab.said.value and not tab.count.disabled

def test_lineage_tab_shows_steps_and_their_diff():
    rows = [{'label':'tile','ratio':3.,'accepted':True,'before':'a','text':'b'},{'label':'vec','ratio':None,'accepted':False,'before':'b','text':'c','reason':'oob'}]
    tab = LineageTab({'one':rows, 'two (versions)':[{**rows[0],'label':'naive'}]})
    assert [l for l,_ in tab.steps.options]==['0 tile: 3.00x','1 vec: rejected']
    tab.steps.value = 0; assert 'krl-add' in tab.diff.value and '>+b<' in tab.diff.value
    tab.which.value = 'two (versions)'; assert len(tab.steps.options)==1 and 'nobody says' in tab.note.value
    assert 'no lineage' in LineageTab({}).note.value

def test_run_tab_follows_switches_and_stops(tmp_path):
    a,b = Run(tmp_path/'a', {'steps':4}),Run(tmp_path/'deep/b', {'steps':4})
    step(b, 0); step(a, 0); os.utime(tmp_path/'deep/b/metrics.jsonl', (1,1))
    tab = RunTab(tmp_path, every=.02)
    try:
        assert tab.which.value==str(tmp_path/'a') and len(tab.which.options)==2 and 'a: step 1 of 4' in tab.line.value
        for i in (1,2): step(a, i, 'wrong', text=f'x = {i}')
        wait_for(lambda: 'step 3 of 4' in tab.line.value)
        wait_for(lambda: {t.name for t in tab.plots['status'].data}=={'ok','wrong'} and '<span class="mi">2</span>' in tab.samples.value)
        first = tab.follower
        tab.which.value = str(tmp_path/'deep/b')
        assert not first.alive and 'b: step 1' in tab.line.value
        tab.follow.value = False; assert not tab.follower.alive
        tab.which.value = str(tmp_path/'nowhere'); assert 'holds no run' in tab.line.value
    finally: tab.close()

def test_explorer_ties_the_tabs_together(tmp_path, entries):
    x = Explorer(runs=tmp_path)
    i = next(i for i,e in enumerate(x.data.shown) if len(versions(x.entries, e.task))>1)
    x.data.table.selected = i
    assert x.kernel.entry is x.data.shown[i] and x.lineage.which.value==f'{x.data.shown[i].task} (versions)'
    x.data.open.click(); assert x.widget.selected_index==1
    assert 'No run lies in' in x.run.line.value
    x.close()

def test_bad_folders_are_one_sentence(tmp_path):
    with pytest.raises(KernelRLError, match='no verdicts'): Explorer(tmp_path)

def test_the_module_is_light():
    code = "import sys, kernelrl.explorer, kernelrl.report; assert not {'plotly','ipywidgets','anywidget','torch','cupy','pyarrow','pygments'}&set(sys.modules), set(sys.modules)&{'plotly','ipywidgets','torch','cupy','pyarrow','pygments'}"
    subprocess.run([sys.executable,'-c',code], check=True, cwd=ROOT)

@pytest.mark.skipif(not importlib.util.find_spec('playwright'), reason='playwright is not installed: the page in a real JupyterLab is not tried (benchmarks/explorer_shot.py)')
def test_in_a_real_jupyterlab(tmp_path):
    r = subprocess.run([sys.executable, str(ROOT/'benchmarks/explorer_shot.py'), '--figures', str(tmp_path), '--result', str(tmp_path/'r.json')], capture_output=True, text=True, timeout=600)
    assert r.returncode==0, r.stdout[-2000:]+r.stderr[-2000:]
    assert json.loads((tmp_path/'r.json').read_text())['figures']['console_errors']==0
