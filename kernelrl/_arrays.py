"""Arrays between processes: one file of raw bytes, memory-mapped on the other side, and a small dict that says what is in it."""
import numpy as np
from pathlib import Path
from kernelrl.core import KernelRLError

def save(path:Path, arrays:list)->dict:
    "Write raw arrays one after another (256-byte aligned); returns what `load` needs"
    parts,at = [],0
    try:
        with open(path,'wb') as f:
            for a in arrays:
                f.seek(at)
                f.write(np.ascontiguousarray(a).reshape(-1).view('u1').data if a.nbytes else b'')
                parts.append([at, str(a.dtype), list(a.shape)])
                at += -(-a.nbytes//256)*256
            f.truncate(at)
    except OSError as e:
        Path(path).unlink(missing_ok=True)
        raise KernelRLError(f'{path.parent}: arrays of {at/2**20:.0f} MiB could not be written ({e.strerror}); free some memory or set KERNELRL_TMP to a folder on a larger disk') from None
    return {'path':str(path), 'parts':parts}

def load(meta:dict)->list[np.ndarray]:
    "The arrays of a file, memory-mapped read-only"
    if not meta['parts']: return []
    raw = np.memmap(meta['path'], 'u1', 'r') if Path(meta['path']).stat().st_size else np.empty(0,'u1')
    out = []
    for at,dtype,shape in meta['parts']:
        d = np.dtype(dtype)
        n = int(np.prod(shape, dtype=np.int64))*d.itemsize
        out.append(raw[at:at+n].view(d).reshape(shape))
    return out
