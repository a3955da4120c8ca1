"""The limits of a folder that several processes write: what is kept of all, and what is removed."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from streamkit.core.counters import Counters
from streamkit.io.outputs import AtomicFile
from streamkit.io.retention import FileRetention, removing_alone

WRITER = """
import os, sys, time
from streamkit.core.counters import Counters
from streamkit.io.outputs import AtomicFile
from streamkit.io.retention import FileRetention

source, count, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
counters = Counters()
kept = FileRetention("clips/{source}/{time}-{kind}.mp4", {"size": size}, None, counters)
sys.stdin.readline()
for number in range(count):
    path = kept.path(source, "s", "k", 1785585600 + number / 10, 0.0)
    AtomicFile(path).write(b"x" * 100)
    at = path.stat().st_mtime_ns if path.exists() else 0
    print(path, at, flush=True)
    kept.tidy_soon()
    kept.tidy(float(number))
    time.sleep(0.001)
print(counters.values["clips removed: over size"], counters.values["clips not removed"])
"""


def writers(folder: Path, size: int, count: int = 150) -> tuple[dict[str, int], list[list[int]], int]:
    """Let two processes write clips; return when each was written, what each has counted, and the most there were."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, source, str(count), str(size)],
            cwd=folder,
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for source in ("gate", "yard")
    ]
    for process in running:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    texts: list[str] = [""] * 2

    def read(place: int) -> None:
        texts[place] = running[place].communicate(timeout=60)[0]

    readers = [threading.Thread(target=read, args=(place,)) for place in range(2)]
    for reader in readers:
        reader.start()
    peak_count = 0
    while any(reader.is_alive() for reader in readers):
        peak_count = max(peak_count, len(list(folder.glob("clips/*/[0-9]*.mp4"))))
        time.sleep(0.002)
    assert [process.returncode for process in running] == [0, 0]
    written: dict[str, int] = {}
    counted = []
    for text in texts:
        *lines, last = text.splitlines()
        counted.append([int(word) for word in last.split()])
        written |= {path: int(at) for path, at in (line.split() for line in lines)}
    return written, counted, peak_count


def test_two_processes_remove_the_oldest_clips_of_both(tmp_path):
    written, counted, peak_count = writers(tmp_path, 2000)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.glob("clips/*/*.mp4")}
    assert len(written) == 300
    assert len(left) == 20
    assert peak_count <= 20 + 2, "each process has at most one file too many, until it tidies"
    assert sum(removed for removed, _ in counted) == 280, "none was removed, or counted, twice"
    assert [failed for _, failed in counted] == [0, 0]
    youngest_removed = max(at for path, at in written.items() if path not in left)
    assert all(written[path] >= youngest_removed for path in left)
    assert not list(tmp_path.rglob("*.part"))


def test_a_process_waits_while_another_removes_and_then_counts_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, other = (FileRetention("c/{source}/{time}.mp4", {"size": 300}, None, Counters()) for _ in range(2))
    for number in range(5):
        AtomicFile(first.path("gate", "s", "k", 1785585600 + number, 0.0)).write(b"x" * 100)
    with removing_alone(first.root):
        waiting = threading.Thread(target=other.tidy, args=(0.0,))
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
        assert len(list(tmp_path.rglob("*.mp4"))) == 5
        for path in sorted(tmp_path.rglob("*.mp4"))[:2]:
            path.unlink()
    waiting.join(10)
    assert len(list(tmp_path.rglob("*.mp4"))) == 3
    assert not other._counters.values


def test_space_freed_by_another_process_removes_no_further_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file_retention = FileRetention("c/{source}/{time}.mp4", None, 1000, Counters())
    AtomicFile(file_retention.path("gate", "s", "k", 1785585600, 0.0)).write(b"x" * 100)
    free = iter([10, 2000, 2000])
    monkeypatch.setattr(file_retention, "_free", lambda: next(free))
    assert file_retention.room()
    assert len(list(tmp_path.rglob("*.mp4"))) == 1


def test_a_folder_removed_while_a_file_is_created_is_recreated(tmp_path, monkeypatch):
    """Retention removes the folder of a source with its last file; the source's process may begin the next one."""
    from streamkit.io import outputs

    folder = tmp_path / "gate"
    real = outputs.open_locked
    times = []

    def opened(path, flags):
        if len(times) < 3:
            times.append(path)
            folder.rmdir()
        return real(path, flags)

    monkeypatch.setattr(outputs, "open_locked", opened)
    AtomicFile(folder / "a.mp4").write(b"x")
    assert (folder / "a.mp4").read_bytes() == b"x"
    assert len(times) == 3


def test_retention_applies_without_lock_support(tmp_path, monkeypatch):
    from streamkit.io import retention

    def refuse(*_):
        raise OSError(95, "not supported")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(retention.fcntl, "flock", refuse)
    file_retention = FileRetention("c/{source}/{time}.mp4", {"size": 100}, None, Counters())
    for number in range(3):
        AtomicFile(file_retention.path("gate", "s", "k", 1785585600 + number, 0.0)).write(b"x" * 100)
    file_retention.tidy(0.0)
    assert len(list(tmp_path.rglob("*.mp4"))) == 1
