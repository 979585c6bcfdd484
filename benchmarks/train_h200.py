"""Train `nano` on one GPU and show what it learnt: the studies sft, biphase and leap one after another, in one process.

    python benchmarks/train_h200.py runs/h200 --limit 540 --pack OUT     # again, with the same folder, to go on

First a small case of everything, so that a broken machine says so within a minute. A stage that is done is not done again; one that is under way goes on from its last checkpoint. `--pack` writes few, small files:
each model as NAME.tar (half precision), and all.tar.gz with what was shown, measured and logged; in a fresh folder, `--unpack OUT` takes them up again. At home: python nbs/run_cuda.py studies/sft OUT/sft.out.json --merge
A finished run can be shown again without a GPU, say after a study was changed: `--unpack OUT --no-check --device host`, with the same `--set`; what is done is read, not done again, and keeps its times, device and commands.
"""
import argparse, re, sys, tarfile, time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT/'nbs')]
MODELS = ('sft','biphase-0/model','leap-sft-0/model')
COMMAND = re.sub(r' --(un)?pack \S+', '', ' '.join(['python3', 'benchmarks/train_h200.py', *sys.argv[1:]])) # Where things were packed does not matter
TINY = dict(sft='size=tiny zoo_seeds=1 tasks=40 each=2 families=map longest=800 room=256 vocab=700 faults=16 steps=20 batch=8 held_out=8 samples=1',
    biphase='tasks=6 explore=1 baseline=1 infill_steps=1 whole_steps=1 items=2 cores=1 group=4 families=map samples=1', leap='tasks=6 explore=1 baseline=1 steps=1 questions=2 group=4 turns=2 families=map samples=1')

def study(name:str, folder:Path, out:Path, device:str, limit:float, words:list[str])->int:
    "Run one study; its exit status"
    from run_cuda import run_study
    out.mkdir(parents=True, exist_ok=True)
    return run_study(f'studies/{name}', [f'folder={folder}', f'device={device}', f'limit_seconds={max(limit, 1.):.0f}', f'figures={out}', f'command={COMMAND}', *words], out/f'{name}.out.json')

def pack(folder:Path, out:Path):
    "Few files, none large"
    out.mkdir(parents=True, exist_ok=True)
    for m in MODELS:
        if (folder/m/'config.json').exists():
            with tarfile.open(out/f'{m.split("/")[0]}.tar', 'w') as t: t.add(folder/m, m)
    with tarfile.open(out/'all.tar.gz', 'w:gz') as t:
        for f in sorted(folder.rglob('*.json*')):
            if 'model' not in f.parts and f.relative_to(folder).parts[0]!='check' and f.parent.name!='sft': t.add(f, str(f.relative_to(folder)))
    print(f'packed: {", ".join(f"{f.name} {f.stat().st_size/1e6:.1f} MB" for f in sorted(out.iterdir()) if f.is_file())}', flush=True)

def unpack(folder:Path, out:Path):
    "Take up what was packed"
    for f in sorted(out.glob('*.tar*')):
        with tarfile.open(f) as t: t.extractall(folder, filter='data')

if __name__=='__main__':
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('folder', type=Path)
    p.add_argument('--limit', type=float, default=540., help='seconds after which everything is saved and the program ends')
    p.add_argument('--device', default='cuda', help='of the judge: cuda or host')
    p.add_argument('--pack', type=Path, help='folder for what is to be taken home')
    p.add_argument('--unpack', type=Path, help='folder from an earlier --pack, for an empty folder')
    p.add_argument('--studies', default='sft,biphase,leap')
    p.add_argument('--no-check', action='store_true', help='leave out the small case')
    p.add_argument('--set', nargs='*', default=[], metavar='STUDY:NAME=VALUE', help='other parameters, such as sft:steps=2000')
    a = p.parse_args()
    began,folder,left = time.monotonic(),a.folder.resolve(),lambda: a.limit-(time.monotonic()-began)
    if a.unpack and not (folder/'sft').exists(): unpack(folder, a.unpack)
    status = 0
    if not a.no_check and not (folder/'check'/'ok').exists():
        for n in ('sft','biphase','leap'):
            if status := study(n, folder/'check', folder/'check'/'out', a.device, left(), TINY[n].split()): break
        if status: sys.exit(f'the small case failed in {n}: nothing else was tried')
        (folder/'check'/'ok').touch()
        print(f'small case: {time.monotonic()-began:.0f} s', flush=True)
    try:
        for n in a.studies.split(','):
            words = [w.partition(':')[2] for w in a.set if w.partition(':')[0] in (n, 'all')]
            if status := study(n, folder, folder/'out', a.device, left(), words): break
    finally:
        if a.pack: pack(folder, a.pack)
    print(f'{"all done" if not status else "to be continued" if status==75 else "failed"} after {time.monotonic()-began:.0f} s', flush=True)
    sys.exit(status)
