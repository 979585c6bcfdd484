"What the benchmark scripts share: how they start, what a result says of itself, and a clock that ends them in time"
import argparse, datetime, functools, json, os, sys, time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT)) # Runs from a clone that is not installed
os.environ['PYTHONPATH'] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get('PYTHONPATH')])) # So do the workers
from kernelrl.core import atomic_write, digest, environment # noqa: E402

def options(doc:str, name:str, limit:float|None=None)->argparse.ArgumentParser:
    "A parser with what every script has: --out, and --limit-seconds where it may take long"
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--out', type=Path, default=ROOT/'data'/'benchmarks'/f'{name}.json', help='where the result goes')
    if limit is not None: p.add_argument('--limit-seconds', type=float, default=limit, help='nothing new is begun after so long; what is done is written')
    return p

def commit()->str: return os.environ.get('KERNELRL_COMMIT') or environment()['commit']

@functools.cache
def code()->str:
    "A name for all of the package's code: what another code measured is not continued"
    return digest([p.read_text('utf-8') for p in sorted((ROOT/'kernelrl').glob('*.py'))])

def result(device:str, command:str, protocol:str, seeds:list, figures:dict, rows:list, **more)->dict:
    "A result in the form of all files under data/"
    return {'device':device, 'date':datetime.date.today().isoformat(), 'commit':commit(), 'command':command, 'protocol':protocol, 'seeds':seeds, 'figures':figures, 'rows':rows, **more}

def save(path:Path, r:dict):
    "Write a result, and say its figures"
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, json.dumps(r, indent=1, sort_keys=True)+'\n')
    print(json.dumps(r['figures']), flush=True)

def say(*words): print(f'[{time.strftime("%H:%M:%S")}]', *words, file=sys.stderr, flush=True)

class Clock:
    "Seconds since the start, and whether the limit is over"
    def __init__(self, limit:float): self.start,self.limit = time.monotonic(),limit
    @property
    def end(self)->float: return self.start+self.limit # On the monotonic clock
    @property
    def seconds(self)->float: return time.monotonic()-self.start
    @property
    def left(self)->float: return self.limit-self.seconds
    @property
    def over(self)->bool: return self.left<=0
