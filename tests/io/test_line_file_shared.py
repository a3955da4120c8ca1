"""A file that grows is one run's at a time: through rotation, forks and full disks."""

import os
import subprocess
import sys
from contextlib import contextmanager

import pytest
from support.full_disk import FullDisk

from streamkit.core.counters import Counters
from streamkit.core.errors import OutputError
from streamkit.io.line_file import LineFile
from streamkit.io.outputs import lock

GROWING = """
import os, sys
from streamkit.io.line_file import LineFile
from streamkit.io.outputs import lock
file = LineFile(sys.argv[1])
file.open()
file.write(b"theirs\\n", 1e9)
file.flush()
if "fork" in sys.argv and os.fork():
    os._exit(0)
print("begun", flush=True)
sys.stdin.read()
"fork" in sys.argv or file.close()
"""


@pytest.mark.parametrize("if_exists", [None, "append", "overwrite"])
def test_a_file_written_by_another_run_is_refused_unchanged(tmp_path, if_exists):
    """Lines of two runs in one file would be whole, but what wrote them could not be told."""
    path = tmp_path / "a.jsonl"
    with growing(path) as running:
        file = LineFile(str(path), if_exists=if_exists)
        with pytest.raises(
            OutputError, match=r"a\.jsonl: another run is writing it; wait until that run ends, or set another path"
        ):
            begin(file)
        file.close()
        assert path.read_bytes() == b"theirs\n"
        running.communicate(timeout=20)
    file = LineFile(str(path), if_exists=if_exists)  # it has come to its end
    begin(file)
    file.close()
    assert path.read_bytes() == (b"mine\n" if if_exists == "overwrite" else b"theirs\nmine\n")
    assert os.listdir(tmp_path) == ["a.jsonl"]


def test_a_forked_process_does_not_keep_an_appended_file_locked(tmp_path):
    path = tmp_path / "a.jsonl"
    with growing(path, "fork") as running:
        running.wait()
        file = LineFile(str(path))
        begin(file)
        file.close()
    assert path.read_bytes() == b"theirs\nmine\n"


def test_a_file_rotated_while_locking_is_not_mistaken_for_the_new_one(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    theirs = LineFile(str(path), rotate={"size": 10})
    begin(theirs)
    theirs.flush()

    def late_lock(handle):
        monkeypatch.undo()
        theirs.write(b"theirs2\n", 1e9)  # puts aside what the handle is of
        theirs.flush()
        lock(handle)

    monkeypatch.setattr("streamkit.io.outputs.lock", late_lock)
    file = LineFile(str(path), if_exists="overwrite")
    with pytest.raises(OutputError, match="another run is writing it"):
        begin(file)
    file.close()
    theirs.close()
    assert sorted(file_path.read_bytes() for file_path in tmp_path.iterdir()) == [b"mine\n", b"theirs2\n"]


def test_a_full_disk_at_the_end_leaves_no_lock(tmp_path):
    path = tmp_path / "a.txt"
    out = LineFile(str(path))
    begin(out)
    out.flush()
    out.write(b"lost\n", 1e9)
    out._waiting += b"lost, too\n"
    out._out = FullDisk(out._out, 0)
    with pytest.raises(OutputError, match="the disk is full") as caught:
        out.close()
    again = LineFile(str(path))
    begin(again)
    again.close()
    assert path.read_bytes() == b"mine\nmine\n"
    assert caught.value is not None, "what was raised may live on"


def test_a_name_taken_by_another_run_during_rotation_ends_the_output(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    counters = Counters()
    out = LineFile(str(path), rotate={"size": 6}, counters=counters)
    begin(out)
    rename = os.rename

    def renamed(old, new):
        rename(old, new)
        begin(other)

    other = LineFile(str(path))
    monkeypatch.setattr("os.rename", renamed)
    for _ in range(2):
        with pytest.raises(OutputError, match="another run is writing it"):
            out.write(b"more\n", 1e9)
    out.close()
    other.close()
    assert counters["lines lost"] == 1
    assert path.read_bytes() == b"mine\n"


@contextmanager
def growing(path, *how):
    """A run that appends to `path`, until its standard input is closed."""
    line = [sys.executable, "-c", GROWING, str(path), *how]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout.readline() == "begun\n"
        yield running
        running.kill()


def begin(line_file):
    line_file.open()
    line_file.write(b"mine\n", 1e9)
