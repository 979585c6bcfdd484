"""Train `nano` on one GPU and show what it learnt: the studies sft, biphase and leap one after another, in one process.

    python benchmarks/train_h200.py runs/h200 --limit 540 --pack OUT     # again, with the same folder, to go on

First a small case of everything, so that a broken machine says so within two minutes. A stage that is done is not done again; one that is under way goes on from its last checkpoint, also after a kill. `--pack` writes few, small files, after
every study and at the end: each model as NAME.tar (half precision), and all.tar.gz with what was shown, measured and logged; in a fresh folder, `--unpack OUT` takes them up again. Checkpoints of a stage that is under way are too large for that:
it goes on in the same folder, or begins again. At home, after an --unpack: python nbs/run_cuda.py studies/sft FOLDER/out/sft.out.json --merge
A finished run can be shown again without a GPU, say after a study was changed: `--unpack OUT --no-check --device host`, with the same `--set`; what is done is read, not done again, and keeps its times, device and commands.
"""
import argparse, os, re, shutil, sys, tarfile, time
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

def shipped(model:Path)->bool: return (model/'README.md').exists() # The last file of a model that is written

def pack(folder:Path, out:Path):
    "Few files, none large; each is there completely, or as it was before"
    out.mkdir(parents=True, exist_ok=True)
    def tar(name:str, mode:str, files:list[Path]):
        with tarfile.open(out/f'{name}.part', mode) as t:
            for f in files: t.add(f, str(f.relative_to(folder)))
        os.replace(out/f'{name}.part', out/name)
    for m in MODELS:
        if shipped(folder/m): tar(f'{m.split("/")[0]}.tar', 'w', [folder/m])
    tar('all.tar.gz', 'w:gz', [f for f in sorted(folder.rglob('*.json*')) if 'model' not in f.parts and f.relative_to(folder).parts[0]!='check' and f.parent.name!='sft' and f.suffix in ('.json','.jsonl')])
    print(f'packed: {", ".join(f"{f.name} {f.stat().st_size/1e6:.1f} MB" for f in sorted(out.iterdir()) if f.is_file())}', flush=True)

def unpack(folder:Path, out:Path):
    "Take up what was packed"
    for f in sorted((*out.glob('*.tar'), *out.glob('*.tar.gz'))):
        with tarfile.open(f) as t: t.extractall(folder, filter='data')

if __name__=='__main__':
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('folder', type=Path)
    p.add_argument('--limit', type=float, default=540., help='seconds after which everything is saved and the program ends')
    p.add_argument('--device', default='cuda', help='of the judge: cuda or host')
    p.add_argument('--pack', type=Path, help='folder for what is to be taken home')
    p.add_argument('--unpack', type=Path, help='folder from an earlier --pack, for an empty folder')
    p.add_argument('--studies', default='sft,biphase,leap', help='with nothing, only the small case')
    p.add_argument('--no-check', action='store_true', help='leave out the small case')
    p.add_argument('--set', nargs='*', default=[], metavar='STUDY:NAME=VALUE', help='other parameters, such as sft:steps=2000')
    a = p.parse_args()
    began,folder,left = time.monotonic(),a.folder.resolve(),lambda: a.limit-(time.monotonic()-began)
    if a.unpack and not (folder/'sft').exists(): unpack(folder, a.unpack)
    for m in [top/m for top in (folder, folder/'check') for m in MODELS]:
        if m.exists() and not shipped(m): print(f'{m.relative_to(folder)}: was cut off while it was written; it is written again', flush=True); shutil.rmtree(m)
    status = 0
    if not a.no_check and not (folder/'check'/'ok').exists():
        for n in ('sft','biphase','leap'):
            if status := study(n, folder/'check', folder/'check'/'out', a.device, left(), TINY[n].split()): break
        if status==75: print(f'to be continued: the time was up in the small case, in {n}', flush=True); sys.exit(status)
        if status: sys.exit(f'the small case failed in {n}: nothing else was tried')
        (folder/'check'/'ok').touch()
        print(f'small case: {time.monotonic()-began:.0f} s', flush=True)
    try:
        for n in filter(None, a.studies.split(',')):
            words = [w.partition(':')[2] for w in a.set if w.partition(':')[0] in (n, 'all')]
            if status := study(n, folder, folder/'out', a.device, left(), words): break
            if a.pack: pack(folder, a.pack)
    finally:
        if a.pack: pack(folder, a.pack)
    print(f'{"all done" if not status else "to be continued" if status==75 else "failed"} after {time.monotonic()-began:.0f} s', flush=True)
    sys.exit(status)
