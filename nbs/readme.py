"README.md from index.ipynb: hidden cells and directives left out, outputs kept"
import re
from pathlib import Path
import nbformat

def readme(path:Path)->str:
    out = []
    for c in nbformat.read(path, 4).cells:
        if re.search(r'^#\s*\|\s*(hide|default_exp)', c.source, re.M): continue
        if c.cell_type=='markdown': out.append(re.sub(r'\]\(((?:\w+/)*\w+\.ipynb)\)', r'](nbs/\1)', c.source).replace('](../','](')); continue
        source = re.sub(r'^#\s*\|.*\n?', '', c.source, flags=re.M).strip()
        if source: out.append(f'```python\n{source}\n```')
        for o in c.get('outputs', []):
            data = o.get('data', {})
            text = data.get('text/markdown') or data.get('text/plain') or o.get('text')
            if text: out.append(text if 'text/markdown' in data else '\n'.join('    '+l for l in text.rstrip().splitlines()))
    return '<!-- made from nbs/index.ipynb by `make readme`; edit that -->\n\n'+'\n\n'.join(out)+'\n'

if __name__=='__main__':
    root = Path(__file__).parent
    (root.parent/'README.md').write_text(readme(root/'index.ipynb'))
