"""Rates between two snapshots of a run; the watch against threads that hold the interpreter's lock."""

import hashlib
import random
import resource
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from streamkit.bench import load
from streamkit.bench.load import RunSnapshot
from streamkit.runtime.execution.future import side_by_side
from streamkit.runtime.execution.meters import Histogram
from streamkit.runtime.observe.gil_sampler import GilSampler

needs_counts = pytest.mark.skipif(
    not hasattr(resource, "RUSAGE_THREAD") or not getattr(sys, "_is_gil_enabled", lambda: True)(),
    reason="this system keeps no count of a thread's switches, or there is no lock",
)


class Holder:
    """Holds the lock for some 0.3 ms x `share` at a time; in between it hashes, which needs no lock."""

    def __init__(self, share):
        self.share = share
        self.held_s = 0.0
        self.all_s = 0.0

    def __call__(self, stopped):
        chance = random.Random(1)
        data = memoryview(bytes(4_000_000))
        start_s = time.perf_counter()
        hashlib.sha256(data)
        a_second = len(data) / (time.perf_counter() - start_s)
        start_s = time.perf_counter()
        while not stopped():
            turn = time.perf_counter()
            while time.perf_counter() < turn + 3e-4 * self.share * chance.uniform(0.5, 1.5):
                pass
            self.held_s += time.perf_counter() - turn
            hashlib.sha256(data[: int(3e-4 * (1 - self.share) * chance.uniform(0.5, 1.5) * a_second) + 4096])
        self.all_s = time.perf_counter() - start_s


def watched(*works, seconds=1.5):
    watch = GilSampler()
    with side_by_side(watch, *works):
        time.sleep(seconds)
    return watch


@pytest.mark.alone
@needs_counts
def test_the_lock_is_free_without_other_threads():
    watch = watched(seconds=0.5)
    assert watch.samples > 50
    assert watch.free > 0.95


@pytest.mark.alone
@needs_counts
def test_a_thread_that_holds_the_lock_leaves_no_share():
    def spin(stopped):
        while not stopped():
            sum(range(100))

    assert watched(spin, seconds=0.5).free < 0.3


@pytest.mark.alone
@needs_counts
def test_the_held_share_of_the_lock_is_measured():
    little = Holder(0.2)
    much = Holder(0.7)
    free = watched(little).free
    # wide: while the machine is busy a holder that waits for a core keeps the lock, which its own clock does not tell
    assert abs((1 - free) - little.held_s / little.all_s) < 0.15
    assert watched(much).free < free - 0.2


def test_there_is_no_share_before_the_first_sample():
    if getattr(sys, "_is_gil_enabled", lambda: True)():
        assert GilSampler().free is None


# -------------------------------------------------------------------------------------------------------- snapshots


def snapshot(frames, counted_s, latency=None):
    return RunSnapshot(0.0, 0.0, frames, counted_s, 0, None, (0, 0), {}, latency or {})


def test_each_process_is_measured_over_its_sampling_time():
    before = snapshot([10, 100], [1.0, 1.4])
    after = snapshot([40, 150], [2.0, 1.9])
    assert after.rate_since(before) == pytest.approx(30 + 100)


def test_a_process_without_new_counts_adds_nothing():
    assert snapshot([10, 7], [1.0, 3.0]).rate_since(snapshot([0, 7], [0.0, 3.0])) == 10


def test_latency_is_that_of_the_last_output():
    early = Histogram()
    fast = Histogram()
    slow = Histogram()
    for _ in range(100):
        early.add(3.0)
    slow.counts = early.counts.copy()
    for _ in range(50):
        fast.add(0.010)
        slow.add(0.040)
    after = snapshot([0], [0.0], {"fast": fast.counts, "slow": slow.counts})
    latency = after.latency_since(snapshot([0], [0.0], {"slow": np.array(early.counts)}))
    assert latency["p50_ms"] == pytest.approx(40, rel=0.1), "what came before does not count"


def test_an_idle_or_io_waiting_core_is_not_busy(tmp_path, monkeypatch):
    (tmp_path / "stat").write_text(
        "cpu  9 9 9 9 9 9 9 9 0 0\n"
        "cpu0 100 20 30 1000 500 4 5 6 7 8\n"  # user nice system idle iowait irq softirq steal guest guest_nice
        "cpu1 1 1 1 1 1 1 1 1 1 1\n"
        "cpu3 200 0 0 700 100 0 0 0 0 0\n"
        "intr 5 5\n"
    )
    monkeypatch.setattr(load, "Path", lambda name: tmp_path / Path(name).name)
    monkeypatch.setattr(load.os, "sched_getaffinity", lambda pid: {0, 3})
    monkeypatch.setattr(load.os, "sysconf", lambda name: 100)
    assert load.core_times() == (3.65, 26.65)


def test_unreported_cores_are_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr(load, "Path", lambda name: tmp_path / "none")
    assert load.core_times() is None
