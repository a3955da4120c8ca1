"""Work beside the caller's: it runs while the block does, stops with it, and its errors come out."""

import sys
import threading
import time
from functools import partial
from types import SimpleNamespace

import pytest

from streamkit.ops.cuda import driver
from streamkit.runtime.execution.future import PeriodicTimer, ThreadFuture, held_until, join, side_by_side, start


def test_tasks_run_concurrently_and_stop_with_the_block():
    meeting = threading.Barrier(3, timeout=5)
    done = []

    def work(stopped):
        meeting.wait()
        while not stopped():
            time.sleep(0.001)
        done.append(threading.current_thread())

    with side_by_side(work, work) as stopped:
        meeting.wait()
        assert not stopped()
        assert done == []
    assert len(done) == 2
    assert not any(thread.is_alive() for thread in done)


def wait(ended, stopped):
    while not stopped():
        time.sleep(0.001)
    ended.append(True)


def test_an_error_stops_the_other_tasks_and_is_raised():
    ended = []

    def fails(stopped):
        raise ValueError("no")

    def run():
        with side_by_side(partial(wait, ended), fails) as stopped:
            while not stopped():
                time.sleep(0.001)

    with pytest.raises(ValueError, match="no"):
        run()
    assert ended == [True]


def test_an_error_of_the_block_ends_the_tasks():
    ended = []
    with pytest.raises(KeyError), side_by_side(partial(wait, ended)):
        raise KeyError
    assert ended == [True]


def test_a_future_returns_its_result():
    go = threading.Event()

    def work(dropped):
        assert threading.current_thread() is not threading.main_thread()
        assert go.wait(5)
        return 7

    later = ThreadFuture(work)
    assert not later.ready
    go.set()
    assert later.result() == 7
    assert later.ready


def test_an_error_of_the_task_is_raised_with_its_result():
    def work(dropped):
        raise LookupError("no such plan")

    with pytest.raises(LookupError, match="no such plan"):
        ThreadFuture(work).result()


def test_dropping_a_future_ends_its_task():
    ended = []

    def work(dropped):
        while not dropped():
            time.sleep(0.001)
        ended.append(True)

    ThreadFuture(work).drop()
    assert ended == [True]


def test_a_held_task_starts_when_released():
    begin = threading.Event()
    done = []
    later = held_until(begin)(lambda dropped: done.append(dropped()) or 7)
    time.sleep(0.1)
    assert (done, later.ready, later.at_once) == ([], False, False)
    begin.set()
    assert (later.result(), done) == (7, [False])


def test_a_dropped_held_task_never_starts():
    done = []
    later = held_until(threading.Event())(lambda dropped: done.append(1))
    later.drop()
    assert (later.ready, done) == (True, [])


def test_a_hanging_task_does_not_keep_the_process_alive():
    go = threading.Event()
    thread = start("hangs", go.wait)
    assert thread.daemon
    assert thread.name == "hangs"
    go.set()
    join(thread)
    assert not thread.is_alive()


def test_a_join_returns_soon_after_the_thread_ends():
    thread = start("short", lambda: time.sleep(0.05))
    start_s = time.monotonic()
    join(thread)
    assert time.monotonic() - start_s > 0.03


def test_leaving_a_hanging_task_is_bounded_in_time():
    go = threading.Event()
    future = ThreadFuture(lambda dropped: go.wait())
    start_s = time.monotonic()
    future.leave(0.05)
    assert time.monotonic() - start_s > 0.03
    assert not future.ready
    go.set()
    future.leave(None)
    assert future.ready


def test_a_periodic_timer_ticks_until_its_block_ends():
    ticks: list[float] = []
    start_s = time.monotonic()
    with PeriodicTimer(0.02, lambda: ticks.append(time.monotonic() - start_s)):
        until_s = start_s + 10
        while len(ticks) < 5 and time.monotonic() < until_s:
            time.sleep(0.001)
    count = len(ticks)
    assert count >= 5
    assert all(tick >= 0.02 * number for number, tick in enumerate(ticks, 1))
    time.sleep(0.06)
    assert len(ticks) == count


def test_a_periodic_timer_does_not_tick_before_its_time():
    ticks: list[int] = []
    with PeriodicTimer(60.0, lambda: ticks.append(1)):
        time.sleep(0.02)
    assert ticks == []


def test_a_thread_future_is_not_synchronous():
    """Whoever starts it must look again later."""
    assert ThreadFuture.at_once is False


def test_a_join_wakes_often_for_signals():
    waits = []

    class Slow(threading.Thread):
        def is_alive(self):
            return len(waits) < 3

        def join(self, timeout=None):
            waits.append(timeout)

    join(Slow())
    assert len(waits) == 3
    assert all(0.05 <= wait <= 0.5 for wait in waits)


def test_threads_of_a_run_allow_cuda_graph_capture_by_others(monkeypatch):
    modes = []
    calls = SimpleNamespace(cuThreadExchangeStreamCaptureMode=lambda mode: modes.append(mode._obj.value))
    monkeypatch.setattr(driver, "_calls", lambda: calls)
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    start("without a GPU", lambda: None).join()
    assert modes == []
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace())
    seen = []
    start("with one", lambda: seen.extend(modes)).join()
    assert seen == [2]  # before its work begins
