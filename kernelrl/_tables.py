"""Nested figures as rows, rows as Markdown."""
from typing import Any, Mapping, Sequence

def flat(figures:Mapping[str,Any], prefix:str='')->dict[str,Any]: # Names with dots
    "Nested figures as one row; of a score its value, `.lo` and `.hi`"
    out:dict[str,Any] = {}
    for k,v in figures.items():
        if isinstance(v, Mapping) and set(v)=={'float'}: out[prefix+k] = float(v['float'])
        elif isinstance(v, Mapping) and {'value','lo','hi'}<=set(v): out.update(flat({k:v['value'], f'{k}.lo':v['lo'], f'{k}.hi':v['hi']}, prefix))
        elif isinstance(v, Mapping): out.update(flat(v, f'{prefix}{k}.'))
        else: out[prefix+k] = v
    return out

def markdown(rows:Sequence[Mapping[str,Any]], hide:Sequence[str]=(), width:int=120)->str:
    "A table as Markdown; a column of errors comes last, long cells are cut"
    head = [k for k in dict.fromkeys(k for r in rows for k in r) if k not in hide]
    head = [*[k for k in head if k!='error'], *(['error'] if 'error' in head else [])]
    if not head: return ''
    cell = lambda v: '' if v is None else f'{v:.4g}' if isinstance(v, float) else str(v).replace('|','/').replace('\n',' ')[:width]
    return '\n'.join(['| '+' | '.join(head)+' |', '|'+'---|'*len(head), *('| '+' | '.join(cell(r.get(h)) for h in head)+' |' for r in rows)])+'\n'
