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


def test_without_the_runtime_the_work_is_done_at_once():
    made = Background(lambda item, over: (item, over()))
    assert [made.offer(1), made.offer(2)] == [True, True]
    assert (made.results(), made.results(), made.unfinished()) == ([(1, False), (2, False)], [], [])
    made.close(0.0)


def test_a_full_queue_refuses_and_results_come_from_several_threads():
    go, most, lock = threading.Event(), [0, 0], threading.Lock()

    def work(item, over):
        with lock:
            most[0] += 1
            most[1] = max(most)
        go.wait()
        with lock:
            most[0] -= 1
        return item, STAGE.get()

    made = ThreadedBackground(work, workers=2, depth=3, name="ask")
    assert [made.offer(number) for number in range(2)] == [True, True]
    wait_for(lambda: most[0] == 2)
    assert [made.offer(number) for number in range(2, 6)] == [True, True, True, False]
    assert made.unfinished() == [0, 1, 2, 3, 4]
    go.set()
    wait_for(lambda: made.unfinished() == [])
    assert sorted(made.results()) == [(number, "ask") for number in range(5)]
    assert most[1] == 2
    made.close(5.0)
    assert not any(thread.is_alive() for thread in made._threads)


def test_what_waits_is_discarded_at_the_end_and_what_runs_is_told():
    def work(item, over):
        wait_for(over)
        return item

    made = ThreadedBackground(work, workers=1, depth=3)
    for number in range(3):
        made.offer(number)
    wait_for(lambda: made._queue.waiting == 2)
    made.close(5.0)
    assert (made.results(), made.unfinished()) == ([0], [1, 2])


def test_work_that_hangs_is_left():
    go = threading.Event()
    made = ThreadedBackground(lambda item, over: go.wait(), workers=1, depth=1)
    made.offer(1)
    made.close(0.1)
    assert made.unfinished() == [1]
    go.set()
    made.close(5.0)


def test_a_mistake_of_the_work_is_told_and_ends_no_thread():
    logged = collect()
    made = ThreadedBackground(lambda item, over: 1 // item, workers=1, depth=2, name="ask")
    made.offer(0)
    wait_for(lambda: made.unfinished() == [])
    made.offer(1)
    wait_for(lambda: made.unfinished() == [])
    made.close(5.0)
    assert made.results() == [1]
    assert logged == ["ask failed in the background: ZeroDivisionError: integer division or modulo by zero"]
