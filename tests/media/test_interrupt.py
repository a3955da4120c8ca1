import socket
import threading
import time

import av
import pytest

from streamkit.media.interrupt import Interrupt


@pytest.fixture
def silent():
    """A port where somebody listens and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def waited_s(port):
    begun_s = time.monotonic()
    with pytest.raises((av.FFmpegError, OSError)):
        av.open(f"http://127.0.0.1:{port}/a", timeout=(60, 60))
    return time.monotonic() - begun_s


def test_another_thread_ends_a_wait_and_all_later_ones(silent):
    interrupt = Interrupt()
    timer = threading.Timer(0.5, interrupt.stop)
    timer.start()
    with interrupt:
        assert 0.4 < waited_s(silent) < 20  # not 60
        assert waited_s(silent) < 20
    timer.join()


def test_a_deadline_ends_a_wait(silent):
    interrupt = Interrupt()
    interrupt.deadline_s = time.monotonic() + 0.5
    with interrupt:
        assert 0.4 < waited_s(silent) < 20


def test_others_wait_on(silent):
    stopped = Interrupt()
    stopped.stop()
    with stopped:
        pass
    other = threading.Thread(target=stopped.__enter__)  # watched on its own thread only
    other.start()
    other.join()
    begun_s = time.monotonic()
    with pytest.raises((av.FFmpegError, OSError)):
        av.open(f"http://127.0.0.1:{silent}/a", timeout=(1, 1))
    assert time.monotonic() - begun_s > 0.9
