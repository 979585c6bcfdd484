"Figures from files: numbers that can be checked by hand, bad input in one sentence, nothing lost on the way to disk"
import json, math
from dataclasses import replace
import numpy as np, pytest
from kernelrl.core import Finding, KernelRLError, Run
from kernelrl.device import Device
from kernelrl.chart import Origin, log_axis
from kernelrl.learning import binned, by_quarter, learning_charts, learning_figure, outcome_charts, stage_figure, status_rows
from kernelrl._tables import flat, markdown
from kernelrl.report import browser, draw, find, no_pictures, write
from kernelrl.results import interval_rows, read_result, read_sweep, sweep_charts
from kernelrl.runlog import RunLog, arms, band, comparison, curve_of, read_run, smooth, spent
from kernelrl.speedups import fast_p_chart, speed_chart, speed_rows
from kernelrl.waterfall import lineage_chart, lineage_figure, lineage_rows, read_lineage
from kernelrl.curves import Curve
from kernelrl.timing import Speedup, Timing
from kernelrl.verdict import Verdict, write_verdicts

pytest.importorskip('plotly')
H200 = Device('cuda', 'NVIDIA H200', 'sm_90')

def verdict(task, program, ratio=None, status='ok', source='measured', spread=.05, **kw):
    s = (Speedup(ratio, ratio*(1-spread), ratio*(1+spread), source=source),) if ratio else ()
    t = {'candidate':Timing(.01, .009, .011, 30), 'eager_graph':Timing(.01*(ratio or 1), .009, .011, 30)} if ratio else {}
    return Verdict(task, program, status, 'time' if ratio else 'compile', f'id {task}', f'id {program}', None if ratio else Finding('compile_error','no'), speedups=s, timings=t, device=H200, source=source, protocol='strict', date='2026-11-30', **kw)

VERDICTS = [verdict('a','x',4.), verdict('a','y',2.05), verdict('b','x',.5), verdict('b','z',status='compile')]

def run_log(name, n=10, seed=0, rise=.05, seconds=2., **config):
    metrics = [dict(step=i, acc1=rise*i, acc=rise*i, tokens=100, turns=4, s_rollout=seconds/2, s_judge=seconds/4, s_update=seconds/4, excluded=0) for i in range(n)]
    ledger = [dict(step=i, task=f't{g}', group=g, sample=s, turn=1, status='ok' if s<rise*i*2 else 'wrong', tokens_gen=25) for i in range(n) for g in range(2) for s in range(2)]
    return RunLog(name, f'runs/{name}', {'seed':seed, **config}, {'commit':'abc'}, metrics, ledger)

def on_disk(path, log):
    run = Run(path, log.config)
    for r in log.metrics: run.add('metrics.jsonl', **r)
    for r in log.ledger: run.add('ledger.jsonl', **r)

# Data set

def test_speedups_keep_failures_apart():
    c = speed_chart(VERDICTS)
    assert [r['decision'] for r in c.rows]==['kept','interval_spans_bar','slower_than_bar','compile/compile_error']
    assert c.rows[-1]['speedup'] is None and sum(len(t.x) for t in c.fig.data)==3 # A failure is no dot
    assert '1 failed' in repr(c.origin) and 'measured on NVIDIA H200' in repr(c.origin) and 'strict' in repr(c.origin)

def test_the_builds_own_decisions_count():
    rows = speed_rows(VERDICTS, {'rows':[{'task':'a','program':'x','decision':'near_duplicate'}], 'at_least':1.9})
    assert rows[0]['decision']=='near_duplicate' and rows[1]['decision']=='kept' # The others by the build's own bar
    assert speed_rows([verdict('a','y',2.05)], {'at_least':1.9})[0]['decision']=='kept'

def test_error_bars_are_the_interval():
    [t] = [t for t in speed_chart(VERDICTS).fig.data if t.name.startswith('kept')]
    assert t.x[0]-t.error_x.arrayminus[0]==pytest.approx(3.8) and t.x[0]+t.error_x.array[0]==pytest.approx(4.2)

def test_many_programs_are_drawn_by_rank():
    c = speed_chart([verdict(f't{i}', 'p', .5+i/20) for i in range(120)])
    assert c.fig.layout.xaxis.title.text=='rank, the fastest first' and sum(len(t.x) for t in c.fig.data)==120
    assert max(max(t.x) for t in c.fig.data)==120

def test_fast_p_is_that_of_evals():
    c = fast_p_chart(VERDICTS)
    at = lambda p, sure=False: [r['value'] for r in c.rows if r['sure']==sure and r['p']<=p][-1]
    assert at(0)==pytest.approx(.75) # Task a: 2 of 2, task b: 1 of 2
    assert c.rows[0]['N']==4 and at(3.9)==pytest.approx(.25)
    assert at(2)==pytest.approx(.5) and at(2, True)==pytest.approx(.25) # 2.05 [1.95, 2.15] is above 2, but not surely

def test_measured_and_estimated_do_not_mix():
    with pytest.raises(KernelRLError, match='2 origins'): speed_chart([VERDICTS[0], verdict('c','x',3.,source='estimated')])
    assert 'estimated for NVIDIA H200' in repr(speed_chart([verdict('c','x',3.,source='estimated')]).origin)

def test_nothing_right_is_said_not_drawn(tmp_path):
    write_verdicts(tmp_path/'verdicts.jsonl', [VERDICTS[-1]])
    r = draw(find([tmp_path]))
    assert any('no program was right' in x for x in r.left_out) and [c.name for c in r.charts]==[f'{tmp_path.name}__speedups']

def test_the_figure_carries_its_origin():
    text = speed_chart(VERDICTS, files=['data/cuke/verdicts.jsonl'], build={'commit':'abc123'}).fig.layout.annotations[-1].text
    assert 'commit abc123' in text.replace('<br>',' ') and 'data/cuke/verdicts.jsonl' in text.replace('<br>',' ')

def test_names_from_outside_are_no_html():
    fig = speed_chart([verdict('<img src=x onerror=alert(1)>','p',3.)]).fig
    assert '<img' not in ''.join(fig.layout.yaxis.ticktext)

# Runs

def test_spent_adds_up():
    s = spent(run_log('r', 5))
    assert s['seconds']==pytest.approx([2,4,6,8,10]) and s['calls']==[4,8,12,16,20] and s['tokens'][-1]==500 and s['steps'][-1]==5
    without = run_log('r', 5); [m.pop('turns') for m in without.metrics]
    assert spent(without)['calls'][-1]==len(without.ledger) # Counted in the ledger where the metrics do not say

def test_arms_are_runs_that_differ_in_the_seed():
    got = arms([run_log('leap-0', seed=0, turns=3), run_log('leap-1', seed=1, turns=3), run_log('grpo-0', seed=0, turns=1)])
    assert {k:[r.seed for r in v] for k,v in got.items()}=={'leap':[0,1], 'grpo-0':[0]}
    assert len(arms([run_log('x', seed=0), run_log('copy', seed=0)]))==2 # The same seed twice is not two seeds
    assert set(arms([run_log('0', seed=0, lr=.1), run_log('1', seed=1, lr=.1), run_log('best', seed=0, lr=.2)]))=={'lr=0.1','best'} # No name in common: by what differs

def test_band_is_students_for_few_seeds():
    b = band([Curve((0,10),(0.,v)) for v in (.4,.5,.6)], 3)
    half = 4.303*np.std([.4,.5,.6], ddof=1)/math.sqrt(3)
    assert b[-1]['mean']==pytest.approx(.5) and b[-1]['hi']-b[-1]['mean']==pytest.approx(half, rel=1e-3)
    assert band([Curve((0,1),(0.,1.))])[0]['lo'] is None # One seed says nothing of others
    assert band([Curve((0,1),(0.,1.)), Curve((2,3),(0.,1.))])==[] # No cost in common

def test_smoothing_looks_back_only():
    assert smooth([0,0,3], 3)==[0,0,1] and curve_of(run_log('r', 6), 'acc1', 'calls').x==(4,8,12,16,20,24)
    assert curve_of(run_log('r', 1), 'acc1', 'steps') is None

def test_equal_cost_not_equal_steps():
    "The dear arm is as good per step, and half as good per second"
    cheap,dear = ([run_log(f'{n}-{s}', 40, s, seconds=c, arm=n) for s in (0,1,2)] for n,c in (('cheap',1.),('dear',2.)))
    rows = {r['cost']:r for r in comparison(arms(dear+cheap), 'acc1')}
    sooner = rows['seconds']['times sooner at share right in the first turn'].split(': ')[1]
    assert float(sooner.split('x')[0])==pytest.approx(2, rel=.05)
    assert rows['calls']['at the same cost'].startswith('+0.0')
    assert 'cheap against dear' in rows['seconds']['arms']

def test_learning_charts_say_when_there_is_no_interval():
    [c,_] = learning_charts([run_log('only', 12)])
    assert 'no interval over seeds' in c.note and not any(t.fill for t in c.fig.data)
    [c,_] = learning_charts([run_log(f'r-{s}', 12, s) for s in (0,1)])
    assert sum(t.fill=='toself' for t in c.fig.data)==4 and all(r['lo']<=r['mean']<=r['hi'] for r in c.rows)

def test_a_phase_is_marked_in_the_panel_of_steps():
    r = run_log('bi', 8)
    r = replace(r, metrics=[{**m, 'phase':'infill' if m['step']<5 else 'whole'} for m in r.metrics])
    fig,_,_ = learning_figure({'bi':[r]}, 'acc1')
    assert [s.x0 for s in fig.layout.shapes]==[5.5] and fig.layout.annotations[0].text=='whole'

def test_bins_cover_every_step_once():
    rows = [{'step':s} for s in range(137)]
    b = binned(rows, 60)
    assert len(b)<=60 and [r for x in b for r in x]==rows
    fig,numbers = stage_figure(run_log('r', 137))
    assert sum(t.y[0] for t in fig.data)==pytest.approx(2.) and numbers[-1]['to']==136

def test_status_counts_everything():
    r = run_log('r', 9)
    ledger = r.ledger+[{**r.ledger[0], 'turn':2, 'status':'infra'}]
    first,later = status_rows(ledger),status_rows(ledger, True)
    assert sum(x['n'] for x in first)+sum(x['n'] for x in later)==len(ledger) and later[0]['infra']==1

def test_pass_k_of_the_same_task_in_several_steps():
    groups = by_quarter(run_log('r', 16).ledger)
    assert list(groups)==['steps 1 to 4','steps 13 to 16']
    charts = outcome_charts(groups, 'r', Origin())
    k1 = {row['line']:row['value'] for row in charts[0].rows if row['samples']==1}
    rows = {g:[x['status']=='ok' for x in v] for g,v in groups.items()}
    assert k1==pytest.approx({g:np.mean(v) for g,v in rows.items()}) and {row['N'] for row in charts[0].rows}=={16}

def test_infrastructure_failures_are_no_failures():
    rows = [dict(task='t', sample=i, turn=1, status=s) for i,s in enumerate(['ok','wrong','infra','infra'])]
    [c] = outcome_charts({'g':rows}, 'g', Origin())
    assert c.rows[0]['value']==pytest.approx(.5) and c.rows[0]['left_out']==2

def test_a_run_says_who_judged(tmp_path):
    on_disk(tmp_path/'r', run_log('r', 12))
    assert 'device not recorded' in repr(learning_charts([read_run(tmp_path/'r')])[0].origin) # Nothing is made up
    Run(tmp_path/'r').write('env.json', json.dumps({'commit':'abc', 'device':'NVIDIA H200', 'source':'measured', 'protocol':'quick', 'date':'2026-11-30'}))
    for c in learning_charts([read_run(tmp_path/'r')]):
        assert 'measured on NVIDIA H200; protocol quick; 2026-11-30; commit abc' in repr(c.origin)

def test_all_runs_are_named_or_counted():
    [c,_] = learning_charts([run_log(f'r-{s}', 12, s) for s in range(5)])
    assert 'runs/r-0, runs/r-1, runs/r-2 and 2 more' in repr(c.origin) and len(c.origin.files)==5

# Lineages, sweeps, results

def test_steps_without_a_difference_are_not_called_faster():
    c = lineage_chart([{'label':'a','ratio':1.0001,'accepted':True},{'label':'b','ratio':1.,'accepted':True}], 'x', Origin(source='estimated'))
    assert {t.name for t in c.fig.data if t.showlegend is None}=={'no difference'} and c.title=='x: none of 2 steps makes a difference in the estimate'

def test_a_study_that_keeps_its_figures_at_the_top(tmp_path):
    f = tmp_path/'s.json'
    f.write_text(json.dumps({'study':'s', 'answer':'Yes.', 'pass1':.5, 'pass1_interval':[.4,.6], 'steps':60, 'reward':[.1,.2], 'device':'NVIDIA H200', 'env':{'commit':'abc'}, 'ok':True}))
    r = draw(find([f]))
    [c] = r.charts
    assert c.rows==[{'name':'pass1','value':.5,'lo':.4,'hi':.6}] and c.note=='Yes.' and 'NVIDIA H200; commit abc' in repr(c.origin)
    assert r.tables[0][1]==[{'pass1':.5,'steps':60}]

def test_waterfall_multiplies_and_rejections_lead_nowhere():
    rows = lineage_rows([{'label':'tile','ratio':3.,'accepted':True},{'skill':'vec','gain':{'ratio':2.,'lo':1.8,'hi':2.2},'accepted':False,'reason':'oob'},{'name':'slow','ratio':.5,'accepted':True}])
    fig,out = lineage_figure(rows)
    assert [r['to'] for r in out]==pytest.approx([3,6,1.5]) and [r['from'] for r in out]==pytest.approx([1,3,3])
    ends = {c[0]:(t.x[i],t.y[i]) for t in fig.data if t.mode=='markers' for i,c in enumerate(t.customdata)}
    assert ends=={'tile':(3.,0), 'vec':(6.,1), 'slow':(1.5,2)} # Each bar ends at its own label
    assert [fig.layout.yaxis.ticktext[i] for i in fig.layout.yaxis.tickvals]==['tile','vec','slow']
    assert {t.name for t in fig.data if t.showlegend is None}=={'faster','slower','rejected by the gate'}
    assert '1.50 times' in lineage_chart(rows, 'x').title

def test_lineage_of_a_backward_walk_reads_upwards(tmp_path):
    step = lambda kind,move,r,why='': {'kind':kind,'step':{'move':move,'gain':r and {'ratio':r,'lo':r,'hi':r},'why':why,'expert':{'text':f'with {move}'},'simple':{'text':f'without {move}'}}}
    f = tmp_path/'walk.jsonl'
    f.write_text('\n'.join(map(json.dumps, [{'kind':'start','task':{'name':'gemm'}}, step('step','unroll',1.1), step('step','tile',4.), step('rejected','vec',None,'race'), {'kind':'end','end':'complete'}])))
    name,rows,_ = read_lineage(f)
    assert name=='gemm' and [(r['label'],r['accepted']) for r in rows]==[('tile',True),('unroll',True),('vec',False)] and rows[0]['before']=='without tile'
    [c] = draw(find([f])).charts
    assert c.name=='walk__lineage' and '1 rejected' in repr(c.origin)

def test_sweep_from_its_folder(tmp_path):
    settings = [{'lr':lr,'seed':s} for lr in (.1,.2) for s in (0,1)]+[{'lr':9.,'seed':0}]
    (tmp_path/'sweep-ab.json').write_text(json.dumps({'notebook':'/x/study.ipynb','kernel':'python3','settings':settings}))
    for i,p in enumerate(settings[:2]+settings[3:]):
        d = tmp_path/f'case{i}'; d.mkdir()
        bad = p['lr']==9.
        (d/'done.json').write_text(json.dumps({'status':'failed' if bad else 'done','error':{'name':'E','message':'diverged'} if bad else None,'parameters':p,'seconds':1.,'code':'c'}))
        if not bad: (d/'record.json').write_text(json.dumps({'loss':p['lr']+p['seed'],'acc':{'value':.5,'lo':.4,'hi':.6},'name':'text'}))
    s = read_sweep(tmp_path)
    [c] = sweep_charts(s)
    assert {r['column'] for r in c.rows}=={'loss','acc'} and '3 of 5 runs are done, 1 failed' in repr(c.origin)
    assert next(r['mean'] for r in c.rows if r['setting']=='lr=0.1' and r['column']=='loss')==pytest.approx(.6)

def test_figures_with_intervals_are_found_deep():
    rows = interval_rows({'arm':{'pass1':{'value':.5,'lo':.4,'hi':.6,'name':'x'}}, 'n':3})
    assert rows==[{'name':'arm.pass1','value':.5,'lo':.4,'hi':.6}] and flat({'a':{'b':1}})=={'a.b':1}

def test_study_rows_that_are_outcomes_are_scored_by_arm(tmp_path):
    f = tmp_path/'s.json'
    f.write_text(json.dumps({'figures':{}, 'rows':[dict(task=f't{i}', sample=s, arm=a, status='ok' if s<(a=='after') else 'wrong') for i in range(4) for s in range(2) for a in ('before','after')]}))
    [c] = draw(find([f])).charts
    assert {(r['line'],r['samples'],r['value']) for r in c.rows}=={('before',1,0.),('before',2,0.),('after',1,.5),('after',2,1.)}

@pytest.mark.parametrize('lo,hi', [(.01,100),(.8,3),(.9,1.2),(1,1.2),(1,1.001),(1e-4,1e5)])
def test_log_axis_always_has_ticks(lo, hi):
    a = log_axis(lo, hi)
    assert 2<=len(a['tickvals'])<=12 and max(a['tickvals'])>lo*.9 and a['tickvals']==sorted(a['tickvals']) and a['range'][0]<=math.log10(lo) and a['range'][1]>=math.log10(hi)

# Files

@pytest.fixture
def folder(tmp_path):
    write_verdicts(tmp_path/'in/cuke/verdicts.jsonl', VERDICTS)
    for s in (0,1): on_disk(tmp_path/f'in/runs/leap-{s}', run_log(f'leap-{s}', 12, s))
    on_disk(tmp_path/'in/runs/empty', run_log('empty', 0))
    (tmp_path/'in/bench.json').write_text(json.dumps({'figures':{'n':3,'share':{'value':.5,'lo':.4,'hi':.6}}, 'rows':[], 'device':'x'}))
    (tmp_path/'in/other.json').write_text('[1, 2]')
    return tmp_path/'in'

def test_find_knows_what_is_there(folder):
    m = find([folder])
    assert (len(m.verdicts),len(m.runs),len(m.results))==(1,2,1)

def test_everything_on_disk_is_strict_and_complete(folder, tmp_path):
    r = draw(find([folder]))
    assert not r.left_out and len({c.name for c in r.charts})==len(r.charts)
    write(r, tmp_path/'out', static=False)
    for c in r.charts:
        d = json.loads((tmp_path/f'out/{c.name}.json').read_text(), parse_constant=lambda x: pytest.fail(f'{c.name}: {x} is not JSON'))
        assert len(d['rows'])==len(c.rows)>0 and d['origin']['files']
    page,text = (tmp_path/'out/report.html').read_text(),(tmp_path/'out/report.md').read_text()
    assert all(f'id="{c.name}"' in page and f'{c.name}.json' in text for c in r.charts)
    assert 'switched off' in text and 'cdn.plot.ly' in page

def test_writing_twice_gives_the_same_bytes(folder, tmp_path):
    first = {}
    for _ in range(2):
        write(draw(find([folder])), tmp_path/'out', static=False)
        now = {p.name:p.read_bytes() for p in (tmp_path/'out').iterdir()}
        assert not first or now==first
        first = now

def test_offline_reports_need_no_network(folder, tmp_path):
    write(draw(find([folder/'cuke'])), tmp_path/'out', static=False, offline=True)
    assert 'https://' not in (tmp_path/'out/report.html').read_text().replace('https://plotly.com','') and (tmp_path/'out/plotly.min.js').stat().st_size>1e6

@pytest.mark.skipif(bool(no_pictures()), reason=no_pictures() or 'pictures')
def test_static_pictures_are_drawn_once(folder, tmp_path):
    write(draw(find([folder/'bench.json'])), tmp_path/'out')
    svg = tmp_path/'out/bench__figures.svg'
    assert svg.read_text().startswith('<svg') and 'bench__figures.svg' in (tmp_path/'out/report.md').read_text()
    svg.write_text('<svg>mine</svg>')
    write(draw(find([folder/'bench.json'])), tmp_path/'out')
    assert svg.read_text()=='<svg>mine</svg>' # The figure did not change

def test_without_a_browser_it_is_said(folder, tmp_path, monkeypatch):
    monkeypatch.setenv('PATH', '/nowhere'); monkeypatch.delenv('BROWSER_PATH', raising=False)
    assert browser()=='' and write(draw(find([folder/'bench.json'])), tmp_path/'out').exists()
    assert 'No static pictures' in (tmp_path/'out/report.md').read_text()

def test_the_command(folder, tmp_path, capsys):
    from kernelrl import cli
    cli.main(['report', str(folder), '--out', str(tmp_path/'out'), '--no-static'])
    assert (tmp_path/'out/report.html').exists() and 'cuke__speedups: 1 of 4 programs were kept' in capsys.readouterr().out
    with pytest.raises(SystemExit) as e: cli.main(['report', str(tmp_path/'nowhere')])
    assert str(e.value).startswith('kernelrl: ') and 'is not there' in str(e.value) and '\n' not in str(e.value)

def test_bad_input_is_one_sentence(tmp_path):
    with pytest.raises(KernelRLError, match='is not there'): find([tmp_path/'nowhere'])
    with pytest.raises(KernelRLError, match='holds nothing to report on'): find([tmp_path])
    (tmp_path/'x.json').write_text('{"a"')
    with pytest.raises(KernelRLError, match='is not JSON'): read_result(tmp_path/'x.json')
    (tmp_path/'verdicts.jsonl').write_text('{"a":1}\n')
    with pytest.raises(KernelRLError, match='line 1 is not a verdict'): find([tmp_path/'verdicts.jsonl'])

def test_a_run_that_is_being_written(tmp_path):
    on_disk(tmp_path/'r', run_log('r', 3))
    with open(tmp_path/'r/metrics.jsonl', 'a') as f: f.write('{"step":3,"acc')
    assert len(read_run(tmp_path/'r').metrics)==3

def test_markdown_is_a_table():
    assert markdown([{'a':1.23456,'b':'x|y'},{'b':None,'c':2}]).splitlines()==['| a | b | c |','|---|---|---|','| 1.235 | x/y |  |','|  |  | 2 |']
