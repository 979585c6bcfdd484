"""A process that executes notebooks for a sweep, one after another. Jobs come as lines on stdin, and what became of them goes as lines to stdout; when stdin ends, because
the sweep is over or was killed, whatever still runs here is killed too. `python -m kernelrl._sweeper drive FOLDER SPEC SETTINGS` is a whole sweep without a terminal."""
import json, os, queue, sys, threading, time
from pathlib import Path

def main()->None:
    out = os.fdopen(os.dup(1), 'w', buffering=1)
    os.dup2(2, 1)   # Nothing else may write to the line of answers
    jobs:queue.Queue[dict] = queue.Queue()
    threading.Thread(target=_listen, args=(jobs,), daemon=True).start()
    while True:
        job = jobs.get()
        for unused in ('rfc3987_syntax','pyarrow'): sys.modules.setdefault(unused, None)   # type: ignore  # Seconds of imports, optional for papermill, of no use here
        import papermill   # A second more, the first time; it does not count against the run
        print(json.dumps({'folder':job['folder'], 'status':'begun'}), file=out, flush=True)
        result = execute(job, papermill.execute_notebook)
        print(json.dumps({'folder':job['folder'], 'status':result['status'] if _finish(job, result) else 'lost'}), file=out, flush=True)

def _listen(jobs:'queue.Queue[dict]'):
    import psutil
    for line in sys.stdin.buffer: jobs.put(json.loads(line))
    for p in psutil.Process().children(recursive=True):
        try: p.kill()
        except psutil.Error: pass
    os._exit(0)

def execute(job:dict, run)->dict:
    "Run one notebook; what became of it"
    from papermill.exceptions import PapermillExecutionError
    folder = Path(job['folder'])
    for name in ('record.json','executed.part.ipynb'): (folder/name).unlink(missing_ok=True)
    os.environ.update(KERNELRL_SWEEP_RUN=job['folder'], KERNELRL_RECORD=str(folder/'record.json'))
    begun = time.time()
    for attempt in range(3):
        try:
            run(job['notebook'], str(folder/'executed.part.ipynb'), job['parameters'], kernel_name=job['kernel'], language='python', progress_bar=False, cwd=job['cwd'], start_timeout=120)
            return {'status':'done', 'error':None, 'seconds':time.time()-begun}
        except PapermillExecutionError as e:
            return {'status':'failed', 'error':{'name':e.ename, 'message':str(e.evalue), 'cell':_failed_cell(folder/'executed.part.ipynb'), 'line':e.source.strip().split('\n')[0][:200]}, 'seconds':time.time()-begun}
        except Exception as e:   # The kernel would not start, or died
            if attempt<2 and not _any_cell_ran(folder/'executed.part.ipynb') and not _final(e): continue
            return {'status':'failed', 'error':{'name':type(e).__name__, 'message':str(e)[:500], 'cell':None, 'line':''}, 'seconds':time.time()-begun}
    raise AssertionError

def _final(e:Exception)->bool:
    from jupyter_client.kernelspec import NoSuchKernel
    return isinstance(e, (NoSuchKernel,OSError,ValueError))

def _failed_cell(path:Path)->int|None:
    "Papermill puts cells of its own before the one that failed"
    try: return next((i for i,c in enumerate(json.loads(path.read_text())['cells']) if any(o['output_type']=='error' for o in c.get('outputs',[]))), None)
    except (OSError,ValueError): return None

def _any_cell_ran(path:Path)->bool:
    try: return any((c.get('metadata',{}).get('papermill',{}).get('start_time')) for c in json.loads(path.read_text())['cells'])
    except (OSError,ValueError): return False

def _finish(job:dict, result:dict)->bool:
    "Put the executed notebook in its place, then say so; only while the run is still ours"
    from kernelrl.core import atomic_write, canonical
    folder = Path(job['folder'])
    try: ours = json.loads((folder/'lock.json').read_text()).get('owner')==job['owner']
    except (OSError,ValueError): ours = False
    if not ours: return False
    if (folder/'executed.part.ipynb').exists(): os.replace(folder/'executed.part.ipynb', folder/'executed.ipynb')
    atomic_write(folder/'done.json', canonical({**result, 'parameters':job['parameters'], 'code':job['code']}))
    return True

def drive(out:str, spec:str, settings:str):
    "A sweep in a process of its own"
    from kernelrl.sweep import Sweep
    Sweep.open(out, spec).run(**json.loads(settings))

if __name__=='__main__':
    if sys.argv[1:2]==['drive']: drive(*sys.argv[2:])
    else:
        try: main()
        except KeyboardInterrupt: os._exit(1)
