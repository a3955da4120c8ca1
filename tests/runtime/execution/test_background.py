"""Work beside the pipeline: bounded, side by side, never waited for, and ended in time."""

import threading
import time

from support.messages import collect

from streamkit.core.logs import STAGE
from streamkit.core.tasks import Background
from streamkit.runtime.execution.background import ThreadedBackground


def wait_for(condition):
    until_s = time.monotonic() + 10
    while not condition() and time.monotonic() < until_s:
        time.sleep(0.005)
    assert condition()


def test_work_runs_synchronously_without_the_runtime():
    background = Background(lambda item, over: (item, over()))
    assert [background.offer(1), background.offer(2)] == [True, True]
    assert (background.results(), background.results(), background.unfinished()) == ([(1, False), (2, False)], [], [])
    background.close(0.0)


def test_a_full_queue_refuses_work_and_several_threads_return_results():
    go = threading.Event()
    calls = [0, 0]
    lock = threading.Lock()

    def work(item, over):
        with lock:
            calls[0] += 1
            calls[1] = max(calls)
        go.wait()
        with lock:
            calls[0] -= 1
        return item, STAGE.get()

    background = ThreadedBackground(work, workers=2, depth=3, name="ask")
    assert [background.offer(number) for number in range(2)] == [True, True]
    wait_for(lambda: calls[0] == 2)
    assert [background.offer(number) for number in range(2, 6)] == [True, True, True, False]
    assert background.unfinished() == [0, 1, 2, 3, 4]
    go.set()
    wait_for(lambda: background.unfinished() == [])
    assert sorted(background.results()) == [(number, "ask") for number in range(5)]
    assert calls[1] == 2
    background.close(5.0)
    assert not any(thread.is_alive() for thread in background._threads)


def test_waiting_work_is_discarded_at_the_end_and_running_work_returned():
    def work(item, over):
        wait_for(over)
        return item

    background = ThreadedBackground(work, workers=1, depth=3)
    for number in range(3):
        background.offer(number)
    wait_for(lambda: background._queue.waiting == 2)
    background.close(5.0)
    assert (background.results(), background.unfinished()) == ([0], [1, 2])


def test_hanging_work_is_abandoned():
    go = threading.Event()
    background = ThreadedBackground(lambda item, over: go.wait(), workers=1, depth=1)
    background.offer(1)
    background.close(0.1)
    assert background.unfinished() == [1]
    go.set()
    background.close(5.0)


def test_an_error_of_the_work_is_reported_and_ends_no_thread():
    logged = collect()
    background = ThreadedBackground(lambda item, over: 1 // item, workers=1, depth=2, name="ask")
    background.offer(0)
    wait_for(lambda: background.unfinished() == [])
    background.offer(1)
    wait_for(lambda: background.unfinished() == [])
    background.close(5.0)
    assert background.results() == [1]
    assert logged == ["ask failed in the background: ZeroDivisionError: integer division or modulo by zero"]
