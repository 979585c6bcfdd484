"`judge()` killed with kill -9: it ends with the same verdicts, and computes nothing twice"
import random, sys
from pathlib import Path
import pytest
from kernelrl.core import append_jsonl

sys.path.insert(0, str(Path(__file__).resolve().parent.parent/'benchmarks'))
import kill_resume as K

N,JOBS = 30,2

@pytest.fixture(scope='module')
def undisturbed(tmp_path_factory): # Its verdicts, and how long it took until the first and until the last
    f = tmp_path_factory.mktemp('whole')
    assert not K.run(f, N, JOBS, None)
    at = [r['at'] for r in K.read_jsonl(f/'log.jsonl')]
    stored = [r['at'] for r in K.read_jsonl(f/'log.jsonl') if 'stored' in r]
    return K.verdicts(f), stored[0]-at[0], at[-1]-at[0]

def test_they_are_what_they_are_meant_to_be(undisturbed):
    by = [undisturbed[0][f'p{i:03}']['status'] for i in range(N)]
    assert [by.count(s) for s in ('ok','wrong','compile','forbidden')]==[21,3,3,3]

def test_killed_three_times(undisturbed, tmp_path):
    want,start,whole = undisturbed
    r = K.round_(tmp_path, N, JOBS, K.moments(random.Random(1), 3, whole, start), want)
    assert r['verdicts']==N and r['differ']==[] and r['twice']==[] and r['sound'] and r['killed'], r
    assert N<=r['begun']<=N+JOBS*len(r['killed'])

def test_the_count_of_twice_can_fail(tmp_path):
    for row in ({'held':['a']}, {'begun':'b'}, {'stored':'b'}, {'begun':'a'}, {'begun':'b'}, {'begun':'c'}): append_jsonl(tmp_path/'log.jsonl', row)
    assert K.twice(tmp_path)==['a','b']
