import ctypes
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from support import fake_gpu

from streamkit.media import nv_sessions
from streamkit.media.nv_sessions import (
    NvdecSession,
    SessionKey,
    SessionSample,
    acquire,
    clear,
    discard,
    idle_count,
    keep_only,
    make_ahead,
    release,
    remember_first_packet,
    samples,
)

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
    created = []

    def make(kind, nvc):
        created.append(kind)
        return NvdecSession(kind, Decoder(), SimpleNamespace(synchronize=lambda: None))

    monkeypatch.setattr(nv_sessions, "_create", make)
    monkeypatch.setattr(nv_sessions, "_limit", lambda device: 3 * HD.size)
    yield created
    clear()


def test_released_sessions_are_reused(idle):
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
        {"device": 1},
        {"codec": "hevc"},
        {"width": 1280},
        {"height": 720},
        {"chroma": 422},
        {"bits": 10},
        {"low_delay": True},
        {"parameters": b"other"},
    ],
)
def test_only_equal_sessions_are_reused(idle, change):
    release(acquire(HD, None)[0], None)
    assert not acquire(HD._replace(**change), None)[1]
    assert acquire(HD, None)[1]


def test_the_longest_idle_sessions_are_closed(idle):
    kinds = [HD._replace(parameters=bytes([n])) for n in range(4)]
    sessions = [acquire(kind, None)[0] for kind in kinds]
    elsewhere = acquire(HD._replace(device=1), None)[0]
    release(elsewhere, None)
    for session in sessions:
        release(session, None)
    assert sessions[0].decoder is None
    assert [acquire(kind, None)[1] for kind in kinds] == [False, True, True, True]
    assert elsewhere.decoder is not None


def test_a_session_above_the_idle_limit_is_closed(idle):
    session = acquire(HD._replace(width=8192, height=8192), None)[0]
    release(session, None)
    assert session.decoder is None


def test_a_failing_session_is_not_retained(idle):
    session = acquire(HD, None)[0]
    session.decoder.fails = True
    release(session, "the empty packet")
    assert session.decoder is None
    assert not acquire(HD, None)[1]


def test_threads_never_get_the_same_session(idle):
    out = set()
    twice = []

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
    assert nv_sessions.idle_count() <= 3
    assert all(session.decoder is not None for session in nv_sessions._idle)


@pytest.fixture
def none_used(idle, monkeypatch):
    monkeypatch.setattr(nv_sessions, "_used", nv_sessions.Counter())
    monkeypatch.setattr(nv_sessions, "_first_packets", {})
    return idle


def packet_of(data):
    packet = fake_gpu.PacketData()
    buffer = bytearray(data)
    packet.keeps = (ctypes.c_char * len(buffer)).from_buffer(buffer)
    packet.bsl_data = ctypes.addressof(packet.keeps)
    packet.bsl = len(data)
    return packet


def test_sessions_in_use_are_listed_with_the_first_packet_of_their_kind(none_used):
    first, second, hevc = (acquire(key, None)[0] for key in (HD, HD, HD._replace(codec="hevc")))
    for session, data in ((first, b"first"), (second, b"second"), (hevc, b"hevc")):
        remember_first_packet(session, packet_of(data))
    assert samples() == [SessionSample(HD, b"first", 2), SessionSample(hevc.key, b"hevc", 1)]
    release(first, None)
    discard(hevc)
    assert samples() == [SessionSample(HD, b"first", 1)]
    release(second, None)
    assert samples() == []
    again, used = acquire(HD, None)
    assert used
    remember_first_packet(again, packet_of(b"third"))
    assert samples() == [SessionSample(HD, b"third", 1)]


def test_a_failed_session_is_neither_retained_nor_counted(none_used):
    session, _ = acquire(HD, None)
    discard(session)
    assert session.decoder is None
    assert acquire(HD, None)[0] is not session


def test_sessions_are_prepared_up_to_the_number_or_the_memory(none_used, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", fake_gpu.cupy)
    sample = SessionSample(HD, b"key frame", 2)
    assert [make_ahead(sample, fake_gpu.nvc) for _ in range(3)] == [True, True, False]
    assert [session.decoder.ends for session in nv_sessions._idle] == [2, 2]  # the keyframe and the end
    hevc = SessionSample(HD._replace(codec="hevc"), b"key frame", 5)
    assert [make_ahead(hevc, fake_gpu.nvc) for _ in range(2)] == [True, False]  # room for three
    assert samples() == []  # none is in use
    assert acquire(HD, None)[1]


def test_a_failing_session_is_not_prepared(none_used, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", fake_gpu.cupy)

    def fails_at_the_end(decoder, packet):
        if not packet.bsl:
            raise RuntimeError("no")

    monkeypatch.setattr(Decoder, "Decode", fails_at_the_end)
    assert not make_ahead(SessionSample(HD, b"key frame", 2), fake_gpu.nvc)
    assert idle_count() == 0


def test_idle_sessions_above_the_demand_are_closed(none_used):
    other = HD._replace(codec="hevc")
    sessions = [acquire(key, None)[0] for key in (HD, HD, other)]
    for session in sessions:
        release(session, None)
    keep_only([SessionSample(HD, b"", 1)])
    assert [session.decoder is not None for session in sessions] == [True, False, False]
    assert idle_count() == 1
    keep_only([])
    assert idle_count() == 0
