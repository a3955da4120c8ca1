"""The watch against threads that hold the interpreter's lock a known share of the time."""

import hashlib
import random
import resource
import sys
import time

import pytest

from streamkit.bench.lock import LockWatch
from streamkit.runtime.execution.future import side_by_side

needs_counts = pytest.mark.skipif(
    not hasattr(resource, "RUSAGE_THREAD") or not getattr(sys, "_is_gil_enabled", lambda: True)(),
    reason="this system keeps no count of a thread's switches, or there is no lock",
)


class Holder:
    """Holds the lock for some 0.3 ms x `share` at a time; in between it hashes, which needs no lock."""

    def __init__(self, share):
        self.share, self.held_s, self.all_s = share, 0.0, 0.0

    def __call__(self, stopped):
        chance, data = random.Random(1), memoryview(bytes(4_000_000))
        begun = time.perf_counter()
        hashlib.sha256(data)
        a_second = len(data) / (time.perf_counter() - begun)
        begun = time.perf_counter()
        while not stopped():
            turn = time.perf_counter()
            while time.perf_counter() < turn + 3e-4 * self.share * chance.uniform(0.5, 1.5):
                pass
            self.held_s += time.perf_counter() - turn
            hashlib.sha256(data[: int(3e-4 * (1 - self.share) * chance.uniform(0.5, 1.5) * a_second) + 4096])
        self.all_s = time.perf_counter() - begun


def watched(*works, seconds=1.5):
    watch = LockWatch()
    with side_by_side(watch, *works):
        time.sleep(seconds)
    return watch


@pytest.mark.alone
@needs_counts
def test_alone_the_lock_is_free():
    watch = watched(seconds=0.5)
    assert watch.turns > 50
    assert watch.free > 0.95


@pytest.mark.alone
@needs_counts
def test_a_thread_that_never_lets_go_leaves_nothing():
    def spin(stopped):
        while not stopped():
            sum(range(100))

    assert watched(spin, seconds=0.5).free < 0.3


@pytest.mark.alone
@needs_counts
def test_it_tells_the_share_that_is_held():
    little, much = Holder(0.2), Holder(0.7)
    free = watched(little).free
    # wide: while the machine is busy a holder that waits for a core keeps the lock, which its own clock does not tell
    assert abs((1 - free) - little.held_s / little.all_s) < 0.15
    assert watched(much).free < free - 0.2


def test_before_it_has_looked_it_says_nothing():
    if getattr(sys, "_is_gil_enabled", lambda: True)():
        assert LockWatch().free is None
