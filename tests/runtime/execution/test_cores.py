import os
import subprocess
import sys
import threading

import pytest

from streamkit.core.data import Device
from streamkit.runtime.execution import cores as module
from streamkit.runtime.execution.cores import ParentCores, pin_process, pin_to_shared_cores

needs_affinity = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux's affinity")


def test_cores_are_limited_to_the_affinity_of_the_process(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {os.getpid(): {0, 2, 5}}[pid], raising=False)
    assert module.cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert module.cores() == 7
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert module.cores() == 1


@needs_affinity
@pytest.mark.parametrize(
    ("device", "setting", "cores", "expected_cores"),
    [
        (Device("cuda", 0), "2", range(16), {0, 1}),
        (Device("cuda", 1), "2", range(16), {2, 3}),
        (Device("cuda", 3), "4", range(16), {12, 13, 14, 15}),
        (Device("cuda", 0), "2", range(7), None),  # too few: decoding on the CPU needs them too
        (Device("cuda", 0), "0", range(16), None),
        (Device("cpu"), "2", range(16), None),
        (Device("cuda", 0), "", range(16), {0, 1, 2, 3}),
        (Device("cuda", 0), "", range(32), {0, 1, 2, 3}),  # four are enough
        (Device("cuda", 0), "", range(8), {0, 1}),
        (Device("cuda", 0), "", range(7), None),  # one core would be too few
        (Device("cuda", 0), "1", range(5), {0}),
        (Device("cuda", 5), "3", range(16), {15, 0, 1}),  # wraps around to the first core
        (Device("cuda", 5), "4", range(16), {4, 5, 6, 7}),
        (Device("cuda", 0), "", range(3), None),
    ],
)
def test_threads_that_feed_a_gpu_share_a_few_cores(monkeypatch, device, setting, cores, expected_cores):
    pinned = []
    monkeypatch.setenv("STREAMKIT_SOURCE_CORES", setting)
    monkeypatch.setattr(os, "sched_getaffinity", lambda thread: set(cores))
    monkeypatch.setattr(os, "sched_setaffinity", lambda thread, cpus: pinned.append((thread, set(cpus))))
    pin_to_shared_cores(device)
    assert pinned == ([] if expected_cores is None else [(0, expected_cores)])


@needs_affinity
@pytest.mark.parametrize(
    ("device", "number", "count", "expected_cores"),
    [
        (Device("cuda", 0), 0, 3, [0, 1, 2, 3, 4]),
        (Device("cuda", 1), 1, 3, [5, 6, 7, 8, 9]),
        (Device("cuda", 1), 2, 3, [10, 11, 12, 13, 14]),
        (Device("cuda", 0), 1, 20, None),  # more processes than cores
        (Device("cpu"), 0, 2, None),
    ],
)
def test_processes_that_feed_gpus_have_separate_cores(monkeypatch, device, number, count, expected_cores):
    pinned = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda thread: set(range(16)))
    monkeypatch.setattr(os, "sched_setaffinity", lambda thread, cpus: pinned.append((thread, list(cpus))))
    pin_process(device, number, count)
    assert [cores for _, cores in pinned] == ([] if expected_cores is None else [expected_cores] * len(pinned))
    assert os.getpid() in dict(pinned) or expected_cores is None


@pytest.mark.parametrize(
    "pin", [lambda: pin_process(Device("cuda"), 0, 1), lambda: pin_to_shared_cores(Device("cuda"))]
)
def test_without_affinity_nothing_is_pinned(monkeypatch, pin):
    """As on macOS."""
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    pin()


def pins(monkeypatch, cores, threads=(7, 8)):
    """What each thread is pinned to, in order; threads begin on `cores`, but 8 on the first of these."""
    pinned = []
    now = {thread: set(cores) for thread in threads} | {8: {min(cores)}, os.getpid(): set(cores)}

    def pin(thread, cpus):
        pinned.append((thread, sorted(cpus)))
        now[thread] = set(cpus)
        now[os.getpid()] = now[7]

    monkeypatch.setattr(os, "sched_getaffinity", lambda thread: now[thread])
    monkeypatch.setattr(os, "sched_setaffinity", pin)
    monkeypatch.setattr(os, "listdir", lambda path: {"/proc/self/task": [*map(str, threads)]}[path])
    return pinned


@needs_affinity
@pytest.mark.parametrize(
    ("cores", "busy", "of", "parent_cores"),
    [
        (range(16), {0, 1, 2, 3}, 5, [12, 13, 14, 15]),
        (range(16), {0, 2, 3, 4}, 5, [3, 4, 5, 15]),  # a spare process has replaced one
        (range(16), {0, 1, 2}, 4, [12, 13, 14, 15]),
        (range(17), set(range(5)), 5, [15, 16]),
        (range(8, 24), {0, 1}, 2, list(range(8, 24))),  # none would be left
        (range(16), set(range(5)), 5, list(range(16))),  # one would be
        (range(4), {0, 1, 2}, 5, list(range(4))),  # workers are not pinned either
    ],
)
def test_a_parent_leaves_the_cores_of_its_workers_and_regains_them(monkeypatch, cores, busy, of, parent_cores):
    pinned = pins(monkeypatch, cores)
    with ParentCores(of) as parent:
        assert pinned == []
        parent.leave(busy)
        assert pinned == [(7, parent_cores), (8, parent_cores)]
        assert module.process_cores() == tuple(cores)  # what a new pipeline divides
        parent.leave(busy)
        assert len(pinned) == 2  # nothing has changed
        with ParentCores(of) as other:
            other.leave(busy)
        pinned.clear()
        parent.leave(set())
        assert pinned == [(7, list(cores)), (8, list(cores))]
        parent.leave(busy)
        pinned.clear()
    assert pinned == [(7, list(cores)), (8, [min(cores)])]  # each as it was before
    assert (module._cores_before, module._before) == ([], {})


@needs_affinity
def test_threads_started_meanwhile_regain_all_cores(monkeypatch):
    threads = [7, 8]
    pinned = pins(monkeypatch, range(16), threads)
    with ParentCores(5) as parent:
        parent.leave({0, 1, 2, 3})
        threads.append(9)  # which has the cores of the thread that started it
        os.sched_setaffinity(9, {12, 13, 14, 15})
        parent.leave({1, 2, 3, 4})
        pinned.clear()
    assert pinned == [(7, list(range(16))), (8, [0]), (9, list(range(16)))]


@needs_affinity
def test_the_parent_is_pinned_only_if_workers_are(monkeypatch):
    pinned = pins(monkeypatch, range(16))
    with ParentCores(0) as parent:
        parent.leave({0, 1})
    assert pinned == []


REAL = """
import os, threading
from streamkit.runtime.execution import cores as module
module._FEWEST = 1
all_cores = sorted(os.sched_getaffinity(0))
def now(): return {tuple(sorted(os.sched_getaffinity(int(t)))) for t in os.listdir("/proc/self/task")}
told = threading.Event()
thread = threading.Thread(target=told.wait); thread.start()
try:
    with module.ParentCores(len(all_cores)) as parent:
        parent.leave({0})
        later = threading.Thread(target=told.wait); later.start()
        assert now() == {tuple(all_cores[1:])}, now()
        assert module.cores() == len(all_cores)
        raise KeyError
except KeyError:
    pass
assert now() == {tuple(all_cores)}
told.set()
"""


@needs_affinity
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two cores")
def test_every_thread_of_the_parent_leaves_the_cores():
    subprocess.run([sys.executable, "-c", REAL], check=True)


@needs_affinity
def test_a_worker_divides_its_assigned_cores(monkeypatch):
    """Its parent may have left them before it started this worker."""
    pinned = {}
    monkeypatch.setattr(os, "sched_getaffinity", lambda thread: {14, 15})
    monkeypatch.setattr(os, "sched_setaffinity", lambda thread, cpus: pinned.update({thread: list(cpus)}))
    running = threading.Event()
    thread = threading.Thread(target=running.wait)
    thread.start()
    pin_process(Device("cuda", 0), 1, 5, tuple(range(16)))
    running.set()
    thread.join()
    assert pinned.keys() >= {os.getpid(), thread.native_id}  # threads that run, such as those of CUDA, are pinned, too
    assert all(cores == [3, 4, 5] for cores in pinned.values())
