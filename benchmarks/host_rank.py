"""How well the host device's estimates rank what was measured on a GPU: the shipped programs, on some of which the estimate was corrected, and programs of the zoo, which nobody looked at before.

    python benchmarks/host_rank.py        # writes data/benchmarks/host_rank.json
"""
import argparse, datetime, json
from pathlib import Path
from random import Random
import numpy as np
from kernelrl.core import atomic_write, environment
from kernelrl.judge import Judge, judge_many
from kernelrl.sources import shipped_pairs, zoo_with_room
from kernelrl.verdict import read_verdicts

ROOT = Path(__file__).parent.parent

def ranks(x:np.ndarray)->np.ndarray:
    "Ranks from 0, ties averaged"
    order = x.argsort()
    r = np.empty(len(x)); r[order] = np.arange(len(x))
    for v in np.unique(x): r[x==v] = r[x==v].mean()
    return r

def spearman(a:np.ndarray, b:np.ndarray)->float: return float(np.corrcoef(ranks(a), ranks(b))[0,1])

def bootstrap(a:np.ndarray, b:np.ndarray, n:int=2000, seed:int=0)->list[float]:
    "95 % interval of the rank correlation, programs resampled"
    rng = np.random.default_rng(seed)
    draws = [rng.integers(len(a), size=len(a)) for _ in range(n)]
    return [round(float(q),4) for q in np.quantile([spearman(a[i], b[i]) for i in draws], [.025,.975])]

def compare(j:Judge, measured:dict, pairs:list)->tuple[dict,list[float],list[dict]]:
    "Figures, interval and rows of the programs that were measured"
    pairs = [(t,p) for t,p in pairs if (t.id,p.id) in measured]
    estimated = {(v.task_id,v.program_id):v for v in judge_many(j, pairs) if v.ok}
    keys = sorted(estimated, key=lambda k: (measured[k].task, measured[k].program))
    m,e = (np.array([d[k].timings['candidate'].ms for k in keys]) for d in (measured, estimated))
    sm,se = (np.array([d[k].speedup.ratio for k in keys]) for d in (measured, estimated))
    ratio = e/m
    figures = {'n':len(keys), 'not_estimated':len(pairs)-len(keys), 'spearman':round(spearman(m,e),4), 'spearman_speedup':round(spearman(sm,se),4), 'median_ratio':round(float(np.median(ratio)),3),
        'within_2x':round(float(((ratio>.5)&(ratio<2)).mean()),3), 'within_3x':round(float(((ratio>1/3)&(ratio<3)).mean()),3)}
    rows = [{'task':measured[k].task, 'program':measured[k].program, 'measured_us':round(x*1e3,2), 'estimated_us':round(y*1e3,2), 'ratio':round(y/x,3)} for k,x,y in zip(keys,m,e)]
    return figures,bootstrap(m,e),sorted(rows, key=lambda r: r['ratio'])

def timed(folder:str)->dict: return {k:v for k,v in read_verdicts(ROOT/'data'/folder).items() if v.ok and 'candidate' in v.timings and v.protocol=='strict'}

def main(zoo:int, out:Path):
    shipped,cuke = timed('shipped'),timed('cuke')
    unseen = sorted(((t,p) for t,p in zoo_with_room(0, 120) if (t.id,p.id) in cuke), key=lambda tp: (tp[0].name, tp[1].id))
    with Judge('host', 'quick', secret='host_rank') as j:
        figures,interval,rows = compare(j, shipped, shipped_pairs())
        also,wide,more = compare(j, cuke, Random(0).sample(unseen, min(zoo, len(unseen)))) if zoo and unseen else ({},[],[])
    first = next(iter(shipped.values()))
    found = {'device':f'host, estimating {first.device.name}; measured on {first.device}', 'date':datetime.date.today().isoformat(), 'commit':environment()['commit'], 'command':'python benchmarks/host_rank.py', 'protocol':first.protocol, 'seeds':['host_rank'],
        'figures':figures, 'intervals':{'spearman':interval, 'zoo_spearman':wide}, 'zoo':also, 'rows':rows, 'zoo_rows':more}
    print(json.dumps({'shipped':figures, 'zoo':also}))
    print(atomic_write(out, json.dumps(found, indent=1)+'\n'))

if __name__=='__main__':
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--zoo', type=int, default=120, help='programs of the zoo to compare, too')
    p.add_argument('--out', type=Path, default=ROOT/'data/benchmarks/host_rank.json')
    a = p.parse_args()
    main(a.zoo, a.out)
