import ctypes
import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import cv2
import pytest

from streamkit.runtime.execution import host
from streamkit.runtime.execution.cores import cores
from streamkit.runtime.execution.host import HeapTrimmer, configure_process, lower_priority, share_heaps


def test_opencv_starts_no_threads_and_pyav_is_loaded():
    before = cv2.getNumThreads()
    try:
        cv2.setNumThreads(2)
        configure_process()
        assert cv2.getNumThreads() == 1
        assert "av" in sys.modules
    finally:
        cv2.setNumThreads(before)


HEAPS = """
import ctypes, sys, threading
from streamkit.runtime.execution.host import share_heaps
share_heaps()
there, told = threading.Barrier(13), threading.Event()
def live():
    kept = [bytes(1000 + n) for n in range(1000)]
    there.wait()
    told.wait()
threads = [threading.Thread(target=live) for _ in range(12)]
for one in threads: one.start()
there.wait()
ctypes.CDLL(None).malloc_stats()
told.set()
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_stats"), reason="needs glibc")
@pytest.mark.parametrize(("heaps_setting", "heaps"), [(None, max(2, cores())), ("1", 1), ("5", 5)])
def test_threads_share_heaps(heaps_setting, heaps):
    env = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    env |= {"MALLOC_ARENA_MAX": heaps_setting} if heaps_setting else {}
    completed = subprocess.run([sys.executable, "-c", HEAPS], env=env, capture_output=True, text=True, check=True)
    assert completed.stderr.count("Arena ") == heaps


@pytest.mark.parametrize(("cores", "heaps"), [(1, 2), (2, 2), (3, 3), (64, 64)])
def test_there_is_one_heap_per_core_and_at_least_two(monkeypatch, cores, heaps):
    calls = []
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    monkeypatch.setattr(host, "cores", lambda: cores)
    library = SimpleNamespace(mallopt=lambda *values: calls.append(values))
    monkeypatch.setattr(host, "ctypes", SimpleNamespace(CDLL=lambda name: library))
    share_heaps()
    assert calls == [(-8, heaps)]  # M_ARENA_MAX
    monkeypatch.setenv("MALLOC_ARENA_MAX", "3")
    share_heaps()
    assert len(calls) == 1


def test_heaps_are_not_configured_on_other_c_libraries(monkeypatch):
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    monkeypatch.setattr(host, "ctypes", SimpleNamespace(CDLL=lambda name: SimpleNamespace()))
    share_heaps()
    trimmer = HeapTrimmer()
    trimmer.count_close()
    assert not trimmer.trim_if_due(100.0)


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_heaps_are_trimmed_and_threads_niced_only_on_linux(monkeypatch, platform):
    calls = []
    library = SimpleNamespace(malloc_trim=calls.append)
    monkeypatch.setattr(host, "ctypes", SimpleNamespace(CDLL=lambda name: library))
    monkeypatch.setattr(os, "setpriority", lambda *values: calls.append(values))
    monkeypatch.setattr(os, "getpriority", lambda *values: 0)
    monkeypatch.setattr(host, "sys", SimpleNamespace(platform=platform))
    trimmer = HeapTrimmer()
    trimmer.count_close()
    assert not trimmer.trim_if_due(100.0)
    lower_priority()
    assert calls == []
    monkeypatch.setattr(host, "sys", SimpleNamespace(platform="".join("linux")))
    trimmer = HeapTrimmer()
    trimmer.count_close()
    assert trimmer.trim_if_due(100.0)
    assert calls == [0]
    lower_priority()
    assert calls[1:] == [(os.PRIO_PROCESS, threading.get_native_id(), 10)]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nice applies to the process")
@pytest.mark.parametrize(("before", "after"), [(0, 10), (9, 10), (15, 15)])
def test_a_thread_that_reads_a_file_gets_a_lower_priority(monkeypatch, before, after):
    calls = []
    me = (os.PRIO_PROCESS, threading.get_native_id())
    monkeypatch.setattr(os, "getpriority", lambda *thread: {me: before}[thread])
    monkeypatch.setattr(os, "setpriority", lambda *values: calls.append(values))
    lower_priority()
    assert calls == [(*me, after)]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nice applies to the process")
def test_a_forbidden_priority_change_is_ignored(monkeypatch):
    def refuse(*values):
        raise PermissionError

    monkeypatch.setattr(os, "setpriority", refuse)
    lower_priority()


def test_heaps_are_trimmed_every_five_seconds_at_most():
    trimmer = HeapTrimmer()
    calls = []
    trimmer._trim = calls.append
    trimmed = []
    for now_s in (0.0, 4.5, 5.0, 9.9, 10.0):
        trimmer.count_close()
        trimmed.append(trimmer.trim_if_due(now_s))
    assert trimmed == [True, False, True, False, True]
    assert calls == [0, 0, 0]


def test_heaps_are_trimmed_after_a_close_at_a_limited_rate():
    trimmer = HeapTrimmer(every_s=5.0)
    calls = []
    trimmer._trim = calls.append
    assert not trimmer.trim_if_due(100.0)
    trimmer.count_close()
    assert [trimmer.trim_if_due(now_s) for now_s in (100.0, 101.0)] == [True, False]
    trimmer.count_close()
    assert [trimmer.trim_if_due(now_s) for now_s in (104.9, 105.0, 111.0)] == [False, True, False]
    assert calls == [0, 0]


TRIMMED = """
from streamkit.runtime.execution.host import HeapTrimmer
def free_mib():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 2**20
kept = [b"x" * 100_000 for _ in range(1000)]
last = kept[-1]  # keeps the top of the heap
before = free_mib()
del kept
trimmer = HeapTrimmer()
trimmer.count_close()
held = free_mib()
assert trimmer.trim_if_due(0.0)
print(before - held, held - free_mib())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's heaps")
def test_trimming_returns_memory_to_the_system():
    completed = subprocess.run([sys.executable, "-c", TRIMMED], capture_output=True, text=True, check=True)
    used, returned = map(float, completed.stdout.split())
    assert used < 20
    assert returned > 70
