import logging
import os
import signal
import threading
import time

import psutil
import pytest
from support.messages import collect

from streamkit.runtime.multiprocess.child_generator import ChildGenerator


def doubled(requests, first):
    yield first
    for request in requests:
        yield request * 2


def endless(requests):
    for _ in requests:
        while True:
            yield bytes(1 << 20)


def failing(requests):
    next(requests)
    logging.getLogger("streamkit.test").warning("about to fail")
    yield b"one"
    raise ValueError("out of luck")


def talkative(requests):
    for _ in requests:
        for number in range(4000):
            logging.getLogger("streamkit.test").warning(f"line {number} of a text that is long enough to fill a pipe")
        yield b"done"


def on_cores(requests):
    for _ in requests:
        yield repr(sorted(os.sched_getaffinity(0))).encode()


def test_requests_and_messages_of_any_size():
    made = ChildGenerator(doubled, b"")
    assert bytes(made.receive()) == b""
    for size in (0, 1, 70_000, 5_000_000):
        made.send(b"x" * size)
        message = made.receive()
        assert len(message) == 2 * size
        assert not message.readonly
        assert set(bytes(message)) <= {ord("x")}
    pid = made._child.pid
    made.close()
    assert not psutil.pid_exists(pid)


def test_a_child_that_is_not_read_waits_and_ends_with_its_parent_s_end():
    made = ChildGenerator(endless)
    made.send(b"")
    assert len(made.receive()) == 1 << 20
    child = psutil.Process(made._child.pid)
    before = child.cpu_times()
    time.sleep(0.3)
    assert child.cpu_times().user - before.user < 0.2  # it waits
    made._socket.close()
    made._child.join(30.0)
    assert made._child._process.returncode == 0


def test_an_error_is_passed_on():
    logged = collect()
    made = ChildGenerator(failing)
    made.send(b"")
    assert bytes(made.receive()) == b"one"
    assert made.receive() is None
    assert made.ended == "failed: ValueError: out of luck"
    assert logged == ["about to fail"]
    made.close()


def test_a_child_that_logs_much_between_two_messages_is_received():
    logged = collect()
    made = ChildGenerator(talkative)
    made.send(b"")
    assert bytes(made.receive()) == b"done"
    made.close()
    assert len(logged) >= 3900


def test_a_wait_is_stopped_by_another_thread():
    made = ChildGenerator(doubled, b"first")
    made.receive()
    assert made.running
    found = []
    thread = threading.Thread(target=lambda: found.append(made.receive()))
    thread.start()
    time.sleep(0.2)
    made.stop()
    thread.join(10)
    assert found == [None]
    assert not made.running
    made.close()


def test_a_killed_child():
    made = ChildGenerator(endless)
    os.kill(made._child.pid, signal.SIGKILL)
    made.send(b"")
    assert made.receive() is None
    assert made.ended == "was killed by SIGKILL"
    made.close()
    made.close()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux's affinity")
@pytest.mark.skipif(os.cpu_count() == 1, reason="needs two cores")
def test_it_runs_on_all_cores_of_the_process():
    found = []

    def pinned():
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        made = ChildGenerator(on_cores)
        made.send(b"")
        found.append(bytes(made.receive()).decode())
        made.close()

    thread = threading.Thread(target=pinned)
    thread.start()
    thread.join()
    assert found == [repr(sorted(os.sched_getaffinity(os.getpid())))]
