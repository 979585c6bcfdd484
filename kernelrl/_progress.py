"""One line that says how far a long job is: a live bar in a terminal, an updated line in a notebook, a plain line now and then in a log."""
import sys, time
from collections import Counter

class Progress:
    def __init__(self, total:int, what:str, show:bool=True):
        self.total,self.what,self.done,self.start,self.last = total,what,0,time.monotonic(),0.
        self.counts:Counter[str] = Counter()
        self.mode = ('notebook' if _in_notebook() else 'terminal' if sys.stderr.isatty() else 'log') if show and total>1 else 'none'
        if self.mode=='terminal':
            from rich.progress import BarColumn, MofNCompleteColumn, Progress as Rich, TextColumn, TimeRemainingColumn
            from rich.console import Console
            self.bar = Rich(TextColumn('{task.description}'), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn('{task.fields[counts]}'), console=Console(stderr=True))
            self.bar.start(); self.id = self.bar.add_task(what, total=total, counts='')
        if self.mode=='notebook':
            from IPython.display import display
            self.handle = display({'text/plain':self._line()}, raw=True, display_id=True)
    def _line(self)->str:
        left = (time.monotonic()-self.start)/max(self.done,1)*(self.total-self.done)
        return f'{self.what} {self.done}/{self.total}'+(f', about {left:.0f} s left' if 0<self.done<self.total else '')+(': ' if self.counts else '')+', '.join(f'{n} {k}' for k,n in self.counts.most_common())
    def add(self, kind:str):
        "One more is done"
        self.done += 1; self.counts[kind] += 1
        now = time.monotonic()
        if self.mode=='terminal': self.bar.update(self.id, advance=1, counts=', '.join(f'{n} {k}' for k,n in self.counts.most_common()))
        elif self.mode=='notebook' and (now-self.last>.3 or self.done==self.total): self.handle.update({'text/plain':self._line()}, raw=True); self.last = now
        elif self.mode=='log' and now-self.last>15: print(self._line(), file=sys.stderr, flush=True); self.last = now
    def close(self):
        if self.mode=='terminal': self.bar.stop()
        if self.mode=='notebook': self.handle.update({'text/plain':f'{self.what} {self.done}/{self.total}: '+', '.join(f'{n} {k}' for k,n in sorted(self.counts.items()))}, raw=True)

def _in_notebook()->bool:
    try: from IPython import get_ipython
    except ImportError: return False
    return 'IPython' in sys.modules and get_ipython() is not None and 'IPKernelApp' in get_ipython().config
