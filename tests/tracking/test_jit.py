"""Compiled code is kept, and what was kept is not used when any of its sources has changed."""

import shutil
import subprocess
import sys
from pathlib import Path

import streamkit.tracking
from streamkit.tracking.jit import sources_stamp

CODE = """
from streamkit.stage import Context
from streamkit.stages.track import Track
from streamkit.tracking import advance as module
from streamkit.tracking.jit import compiled, is_kept

@compiled
def look(lane, tracks, looks, objects, first, end, st, last_id, ids):
    return last_id

module.look = look  # nearly all that there is to compile, and nothing of how it is kept
advance, said = module.advance, []
before = is_kept(advance)
stage = Track()
stage.context = Context("track", say=said.append)
stage.open()
print(before, len(said), sum(advance.stats.cache_hits.values()), sum(advance.stats.cache_misses.values()))
"""


def test_it_is_compiled_once_and_said(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))

    def started():
        return subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True).stdout.split()

    assert started() == ["False", "1", "0", "1"]
    assert started() == ["True", "0", "1", "0"]


def test_a_change_of_any_source_is_noticed(tmp_path, monkeypatch):
    import streamkit.tracking.jit as jit

    folder = Path(streamkit.tracking.__file__).parent
    for path in folder.glob("*.py"):
        shutil.copy(path, tmp_path)
    before = sources_stamp()
    monkeypatch.setattr(jit, "__file__", str(tmp_path / "jit.py"))
    assert sources_stamp() == before
    with (tmp_path / "kalman.py").open("a") as file:
        file.write("# another")
    assert sources_stamp() != before
