"""Work beside the caller's: it runs while the block does, stops with it, and its errors come out."""

import threading
import time

import pytest

from streamkit.runtime.execution.future import ThreadFuture, side_by_side


def test_works_run_side_by_side_and_stop_with_the_block():
    meeting, done = threading.Barrier(3, timeout=5), []

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


def test_an_error_stops_the_others_and_comes_out():
    ended = []

    def fails(stopped):
        raise ValueError("no")

    def waits(stopped):
        while not stopped():
            time.sleep(0.001)
        ended.append(True)

    def run():
        with side_by_side(waits, fails) as stopped:
            while not stopped():
                time.sleep(0.001)

    with pytest.raises(ValueError, match="no"):
        run()
    assert ended == [True]


def test_an_error_of_the_block_ends_the_works():
    ended = []

    def waits(stopped):
        while not stopped():
            time.sleep(0.001)
        ended.append(True)

    with pytest.raises(KeyError), side_by_side(waits):
        raise KeyError
    assert ended == [True]


def test_a_result_that_is_waited_for():
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


def test_what_the_work_raises_comes_with_its_result():
    def work(dropped):
        raise LookupError("no such plan")

    with pytest.raises(LookupError, match="no such plan"):
        ThreadFuture(work).result()


def test_a_result_that_nobody_wants_ends_the_work():
    ended = []

    def work(dropped):
        while not dropped():
            time.sleep(0.001)
        ended.append(True)

    ThreadFuture(work).drop()
    assert ended == [True]
