import contextlib
import itertools
import threading
import time
from types import SimpleNamespace

import pytest

from streamkit.core.data import Device
from streamkit.core.tasks import OrderedExecutor
from streamkit.core.tracing import Spans
from streamkit.runtime.execution.ordered_executor import ThreadedExecutor

CPU = Device()


def both():
    return pytest.mark.parametrize("ahead", [OrderedExecutor(), ThreadedExecutor(CPU, 1)], ids=["in turn", "threads"])


def squares(part):
    for number in range(part, part + 3):
        time.sleep(0.001 * (part % 2))
        yield number * number


def alive():
    return [thread for thread in threading.enumerate() if thread.name.startswith("ahead/")]


@both()
@pytest.mark.parametrize("depth", [1, 100])
def test_results_are_in_the_order_of_the_parts(ahead, depth):
    results = list(ahead.run(iter(range(0, 60, 3)), [squares] * 4, depth))
    assert results == [n * n for n in range(60)]
    assert not alive()


@both()
def test_an_empty_input_gives_no_results(ahead):
    assert list(ahead.run(iter(()), [squares], 1)) == []


def test_workers_run_concurrently():
    together = threading.Barrier(3, timeout=10)

    def work(part):
        together.wait()
        yield part

    assert list(ThreadedExecutor(CPU, 1).run(iter(range(3)), [work] * 3, 1)) == [0, 1, 2]


def test_the_number_of_workers_is_limited_by_the_parts():
    used = []

    def worker(number):
        def work(part):
            used.append(number)
            yield part

        return work

    parts = (part for part in range(3) if time.sleep(0.05) is None)  # each is done before the next one comes
    assert list(ThreadedExecutor(CPU, 1).run(parts, [worker(n) for n in range(4)], 1)) == [0, 1, 2]
    assert used == [0, 0, 0]


def test_waiting_results_are_bounded():
    computed = [0]
    taken = itertools.count()

    def work(part):
        for n in range(50):
            computed[0] += 1
            yield part, n

    results = ThreadedExecutor(CPU, 1).run((next(taken) for _ in itertools.count()), [work] * 2, 5)
    assert next(results) == (0, 0)
    time.sleep(0.2)
    # the first part's results were taken as they stood; each of two workers holds 5 that wait and one more
    assert computed[0] <= 5 + 2 * 6
    assert next(taken) <= 4
    results.close()
    assert not alive()


@both()
@pytest.mark.parametrize("where", ["parts", "worker"])
def test_an_error_is_raised_after_earlier_results(ahead, where):
    def parts():
        yield from (0, 10)
        if where == "parts":
            raise OSError("broken")
        yield from (20, 30, 40)

    def work(part):
        yield part
        if part == 20:
            raise OSError("broken")
        yield part + 1

    results = []
    with pytest.raises(OSError, match="broken"):
        results.extend(result for result in keep(ahead.run(parts(), [work] * 3, 1), results))
    assert results == [0, 1, 10, 11] + [20] * (where == "worker")
    assert not alive()


def keep(results, into):
    for result in results:
        into.append(result)
        yield from ()


@pytest.mark.parametrize("take", [0, 1, 7])
def test_closing_ends_every_thread(take):
    results = ThreadedExecutor(CPU, 1).run(itertools.count(), [squares] * 3, 2)
    for _ in range(take):
        next(results)
    results.close()
    assert not alive()


def test_a_closed_worker_releases_its_results():
    class Thing:
        alive = 0

        def __init__(self):
            type(self).alive += 1

        def __del__(self):
            type(self).alive -= 1

    def work(part):
        while True:
            yield Thing()

    results = ThreadedExecutor(CPU, 1).run(iter(range(3)), [work] * 3, 4)
    next(results)
    results.close()
    del results
    assert Thing.alive == 0


@pytest.mark.parametrize("seed", range(5))
def test_results_do_not_depend_on_worker_speed(seed):
    import random

    def work(part):
        chance = random.Random(part + 1000 * seed)
        for n in range(chance.randrange(20)):
            time.sleep(chance.choice((0, 0, 0, 0.002)))
            yield part, n

    expected = list(itertools.chain.from_iterable(OrderedExecutor().run(iter([p]), [work], 1) for p in range(12)))
    assert list(ThreadedExecutor(CPU, 1).run(iter(range(12)), [work] * 3, 2)) == expected


def test_closing_waits_until_the_workers_are_done():
    done = []

    def work(part):
        try:
            yield from itertools.count()
        finally:
            time.sleep(0.03)
            done.append(part)

    results = ThreadedExecutor(CPU, 1).run(iter(range(1)), [work], 1)
    assert next(results) == 0
    results.close()
    assert done == [0]


def test_a_gpu_is_current_where_the_parts_are_processed():
    here = threading.local()

    @contextlib.contextmanager
    def current(index):
        here.index = index
        yield
        here.index = None

    def work(part):
        yield part, here.index

    device = SimpleNamespace(kind="cuda", index=3, xp=SimpleNamespace(cuda=SimpleNamespace(Device=current)))
    results = list(ThreadedExecutor(device, 1).run(iter(range(4)), [work] * 2, 1))
    assert results == [(part, 3) for part in range(4)]


def test_the_timeline_distinguishes_work_and_waits():
    noted = set()

    class Noted(Spans):
        def call(self, name, call, *, waiting=False):
            noted.add((name, waiting))
            return call

        def each(self, name, items, *, waiting=False, about=None):
            noted.add((name, waiting))
            return items

    assert list(ThreadedExecutor(CPU, 1, Noted).run(iter([0]), [squares], 1)) == [0, 1, 4]
    waits = {"wait for decoding", "wait for a part", "wait for its turn"}
    assert noted == {(name, True) for name in waits} | {("read a part", False), ("decode", False)}


def test_only_sources_read_at_once_are_counted():
    assert ThreadedExecutor(Device("cuda"), 100).sources == 32
    assert ThreadedExecutor(Device("cuda"), 7).sources == 7
