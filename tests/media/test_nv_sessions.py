import threading
import time
from types import SimpleNamespace

import pytest

from streamkit.media import nv_sessions
from streamkit.media.nv_sessions import NvdecSession, SessionKey, acquire, clear, release

HD = SessionKey(0, "h264", 1920, 1080, 420, 8, low_delay=False, parameters=b"sps")


class Decoder:
    fails = False

    def __init__(self):
        self.ends = 0

    def Decode(self, packet):
        if self.fails:
            raise RuntimeError("no")
        self.ends += 1
        return []


@pytest.fixture
def idle(monkeypatch):
    """Room for three sessions of 1080p, all made without a GPU."""
    clear()
    made = []

    def make(kind, nvc):
        made.append(kind)
        return NvdecSession(kind, Decoder(), SimpleNamespace(synchronize=lambda: None))

    monkeypatch.setattr(nv_sessions, "_create", make)
    monkeypatch.setattr(nv_sessions, "_limit", lambda device: 3 * HD.size)
    yield made
    clear()


def test_what_is_left_is_used_again(idle):
    session, used = acquire(HD, None)
    assert not used
    release(session, "the empty packet")
    assert session.decoder.ends == 1
    again, used = acquire(HD, None)
    assert (again, used) == (session, True)
    assert acquire(HD, None)[0] is not session
    assert idle == [HD, HD]


@pytest.mark.parametrize(
    "change",
    [
        {"device": 1}, {"codec": "hevc"}, {"width": 1280}, {"height": 720}, {"chroma": 422}, {"bits": 10},
        {"low_delay": True}, {"parameters": b"other"},
    ],
)  # fmt: skip
def test_only_a_session_just_like_it_will_do(idle, change):
    release(acquire(HD, None)[0], None)
    assert not acquire(HD._replace(**change), None)[1]
    assert acquire(HD, None)[1]


def test_those_idle_longest_are_closed(idle):
    kinds = [HD._replace(parameters=bytes([n])) for n in range(4)]
    sessions = [acquire(kind, None)[0] for kind in kinds]
    elsewhere = acquire(HD._replace(device=1), None)[0]
    release(elsewhere, None)
    for session in sessions:
        release(session, None)
    assert sessions[0].decoder is None
    assert [acquire(kind, None)[1] for kind in kinds] == [False, True, True, True]
    assert elsewhere.decoder is not None


def test_a_session_larger_than_all_that_may_be_idle_is_closed(idle):
    session = acquire(HD._replace(width=8192, height=8192), None)[0]
    release(session, None)
    assert session.decoder is None


def test_a_session_that_fails_is_not_kept(idle):
    session = acquire(HD, None)[0]
    session.decoder.fails = True
    release(session, "the empty packet")
    assert session.decoder is None
    assert not acquire(HD, None)[1]


def test_threads_never_get_the_same_one(idle):
    out, twice = set(), []

    def work():
        for _ in range(300):
            session, _ = acquire(HD, None)
            if id(session) in out:
                twice.append(session)
            out.add(id(session))
            time.sleep(0)
            out.discard(id(session))
            release(session, None)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert twice == []
    assert len(nv_sessions._idle) <= 3
    assert all(session.decoder is not None for session in nv_sessions._idle)
