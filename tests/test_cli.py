"The command line: help that reads well, and one clear sentence for bad input, with nothing left behind"
import re, subprocess, sys
import pyarrow as pa, pyarrow.parquet as pq
import pytest
from kernelrl import cli

def said(capsys, *argv)->str:
    "What the command printed as it refused"
    with pytest.raises(SystemExit) as e: cli.main([str(a) for a in argv])
    assert e.value.code not in (0, None)
    return f'{e.value.code} {capsys.readouterr()}'

def sentence(capsys, *argv)->str:
    "The one sentence that it ended with"
    with pytest.raises(SystemExit) as e: cli.main([str(a) for a in argv])
    text = e.value.code
    assert isinstance(text, str) and text.startswith('kernelrl: ') and '\n' not in text and len(text)<400
    return text

def test_missing_program(capsys, tmp_path):
    text = sentence(capsys, 'judge', 'rms_norm', tmp_path/'mine.py', '--device', 'host')
    assert 'mine.py' in text and 'give a Python file' in text

def test_unknown_task(capsys, tmp_path): assert 'no_such' in sentence(capsys, 'judge', 'no_such', tmp_path/'mine.py')

def test_program_is_not_text(capsys, tmp_path):
    (tmp_path/'mine.py').write_bytes(b'\xff\xfe\x00binary')
    assert 'not UTF-8' in sentence(capsys, 'judge', 'rms_norm', tmp_path/'mine.py', '--device', 'host')

def test_task_file_is_not_python(capsys, tmp_path):
    (tmp_path/'t.py').write_text('class Model(:\n')
    text = sentence(capsys, 'audit', '--tasks', tmp_path/'t.py')
    assert 't.py' in text and 'line 1' in text

def test_empty_folder(capsys, tmp_path): assert str(tmp_path) in sentence(capsys, 'audit', '--tasks', tmp_path)

def test_wrong_columns(capsys, tmp_path):
    pq.write_table(pa.table({'source':['x'], 'title':['y']}), tmp_path/'d.parquet')
    text = sentence(capsys, 'audit', '--tasks', tmp_path/'d.parquet')
    assert 'd.parquet' in text and 'code' in text and 'source' in text

def test_no_driver(capsys, tmp_path):
    from kernelrl.device import cuda_available
    if cuda_available(): pytest.skip('there is a GPU here')
    assert 'device="host"' in sentence(capsys, 'cuke', 'build', '--device', 'cuda', '--out', tmp_path/'o', '--store', tmp_path/'s')

def test_no_compiler(capsys, tmp_path, monkeypatch):
    import kernelrl.toolchain as toolchain
    toolchain.find_compiler.cache_clear() if hasattr(toolchain.find_compiler,'cache_clear') else None
    monkeypatch.setattr(toolchain, '_version', lambda command: '')
    text = sentence(capsys, 'cuke', 'build', '--device', 'host', '--out', tmp_path/'o', '--store', tmp_path/'s')
    toolchain.find_compiler.cache_clear() if hasattr(toolchain.find_compiler,'cache_clear') else None
    assert 'g++' in text

def test_output_cannot_be_written(capsys, tmp_path):
    (tmp_path/'file').write_text('')
    assert 'choose another' in sentence(capsys, 'cuke', 'build', '--device', 'host', '--tasks', 'rms_norm', '--out', tmp_path/'file'/'o', '--store', tmp_path/'s')

def test_store_is_not_a_database(capsys, tmp_path):
    (tmp_path/'s').write_text('no database '*200)
    assert 'cannot be used as a store' in sentence(capsys, 'cuke', 'build', '--device', 'host', '--tasks', 'rms_norm', '--out', tmp_path/'o', '--store', tmp_path/'s')

def test_full_disk(tmp_path):
    "No file may grow: the sentence names the place, and nothing half-written stays"
    code = f'''
import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096,4096))
from kernelrl.core import KernelRLError, atomic_write
try: atomic_write({str(tmp_path/"out"/"rows")!r}, "x"*100000)
except KernelRLError as e: print(e)
'''
    r = subprocess.run([sys.executable,'-c',code], capture_output=True, text=True)
    assert 'could not be written' in r.stdout and 'rows' in r.stdout, r
    assert list((tmp_path/'out').iterdir())==[]

@pytest.mark.parametrize('argv', [[], ['cuke'], ['klineage'], ['store'], *(n.split() for n in cli.COMMANDS)])
def test_help(capsys, argv, monkeypatch):
    "A line for each option, with its default"
    monkeypatch.setenv('COLUMNS', '100')
    with pytest.raises(SystemExit) as e: cli.main([*argv,'--help'])
    assert e.value.code==0
    text = capsys.readouterr().out
    options = [l.strip(' │|') for l in text.splitlines() if re.match(r'\W*--\w', l)]
    assert 'usage: kernelrl' in text and len(text)>200 and len(options)>=(15 if argv==['cuke','build'] else 0)
    assert all(o.endswith(')') for o in options), options

def test_a_group_is_no_command(capsys):
    assert 'say kernelrl cuke build' in sentence(capsys, 'cuke') # Nothing is built by half a command
    assert 'export, prune' in said(capsys, 'store')

def test_no_program_is_said(capsys): assert 'no program was given' in sentence(capsys, 'judge', 'rms_norm')

def test_audit_of_one(capsys):
    cli.main(['audit','--tasks','relu_scale'])
    assert 'clean' in capsys.readouterr().out

def test_judge_a_file(capsys, tmp_path):
    from kernelrl.task import shipped_programs
    (tmp_path/'mine.py').write_text(dict(shipped_programs('transpose2d'))['naive'])
    cli.main(['judge','transpose2d',str(tmp_path/'mine.py'),'--device','host','--protocol','quick','--store',str(tmp_path/'s')])
    assert 'mine on transpose2d' in capsys.readouterr().out
