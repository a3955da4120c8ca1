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


def test_requests_and_messages_may_have_any_size():
    generator = ChildGenerator(doubled, b"")
    assert bytes(generator.receive()) == b""
    for size in (0, 1, 70_000, 5_000_000):
        generator.send(b"x" * size)
        message = generator.receive()
        assert len(message) == 2 * size
        assert not message.readonly
        assert set(bytes(message)) <= {ord("x")}
    pid = generator.pid
    generator.close()
    assert not psutil.pid_exists(pid)


def test_an_unread_child_waits_and_ends_with_its_parent():
    generator = ChildGenerator(endless)
    generator.send(b"")
    assert len(generator.receive()) == 1 << 20
    child = psutil.Process(generator.pid)
    before = child.cpu_times()
    time.sleep(0.3)
    assert child.cpu_times().user - before.user < 0.2  # it waits
    generator._socket.close()
    generator._child.join(30.0)
    assert generator._child._process.returncode == 0


def test_an_error_of_the_child_is_reported():
    logged = collect()
    generator = ChildGenerator(failing)
    generator.send(b"")
    assert bytes(generator.receive()) == b"one"
    assert generator.receive() is None
    assert generator.ended == "failed: ValueError: out of luck"
    assert logged == ["about to fail"]
    generator.close()


def test_a_message_after_much_log_output_is_received():
    logged = collect()
    generator = ChildGenerator(talkative)
    generator.send(b"")
    assert bytes(generator.receive()) == b"done"
    generator.close()
    assert len(logged) >= 3900


def test_a_wait_is_stopped_by_another_thread():
    generator = ChildGenerator(doubled, b"first")
    generator.receive()
    assert generator.running
    messages = []
    thread = threading.Thread(target=lambda: messages.append(generator.receive()))
    thread.start()
    time.sleep(0.2)
    generator.stop()
    thread.join(10)
    assert messages == [None]
    assert not generator.running
    generator.close()


def test_a_killed_child_is_reported():
    generator = ChildGenerator(endless)
    os.kill(generator.pid, signal.SIGKILL)
    generator.send(b"")
    assert generator.receive() is None
    assert generator.ended == "was killed by SIGKILL"
    generator.close()
    generator.close()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux's affinity")
@pytest.mark.skipif(os.cpu_count() == 1, reason="needs two cores")
def test_a_child_runs_on_all_cores_of_the_process():
    cores = []

    def pinned():
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        generator = ChildGenerator(on_cores)
        generator.send(b"")
        cores.append(bytes(generator.receive()).decode())
        generator.close()

    thread = threading.Thread(target=pinned)
    thread.start()
    thread.join()
    assert cores == [repr(sorted(os.sched_getaffinity(os.getpid())))]
