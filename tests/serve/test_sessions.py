"""Sessions of browsers: when they end."""

import json

import pytest
from support.clock import FakeClock

from streamkit.serve import sessions as module
from streamkit.serve.sessions import IDLE_S, MAX_AGE_S, Sessions


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def sessions(clock):
    return Sessions(clock)


def test_a_cookie_opens_its_session_only(sessions):
    cookie = sessions.open("a", "10.0.0.1", "browser")
    other_cookie = sessions.open("a", "10.0.0.2", "x" * 999)
    assert cookie != other_cookie
    assert len(cookie) >= 43  # 256 bits
    assert (sessions.use(cookie).address, sessions.use(other_cookie).address) == ("10.0.0.1", "10.0.0.2")
    assert len(sessions.use(other_cookie).agent) == 120
    for wrong in ("", "x", cookie[:-1], sessions.use(cookie).id, "\udce4"):
        assert sessions.use(wrong) is None


def test_stored_session_data_does_not_open_a_session(sessions):
    cookie = sessions.open("a", "", "")
    assert cookie not in repr(sessions._open)
    assert all(sessions.use(digest) is None for digest in sessions._open)


def test_an_idle_session_expires(sessions, clock):
    cookie = sessions.open("a", "", "")
    clock.now_s += IDLE_S
    id_ = sessions.use(cookie).id
    clock.now_s += IDLE_S
    assert sessions.active(id_)
    assert sessions.all()
    clock.now_s += 1
    assert not sessions.active(id_)
    assert sessions.use(cookie) is None
    clock.now_s -= 10
    assert sessions.use(cookie) is None


def test_checking_a_session_does_not_extend_it(sessions, clock):
    id_ = sessions.use(sessions.open("a", "", "")).id
    for _ in range(13):
        assert sessions.active(id_)
        clock.now_s += IDLE_S / 13
    clock.now_s += 1
    assert not sessions.active(id_)


def test_an_active_session_expires_after_a_week(sessions, clock):
    cookie = sessions.open("a", "", "")
    started_s = clock.now_s
    while clock.now_s + IDLE_S / 2 <= started_s + MAX_AGE_S:
        clock.now_s += IDLE_S / 2
        assert sessions.use(cookie)
    clock.now_s = started_s + MAX_AGE_S + 1
    assert sessions.use(cookie) is None
    assert sessions.all() == []


def test_sessions_end_individually_or_by_token(sessions):
    cookies = [sessions.open(key, "", "") for key in "aab"]
    ids = [sessions.use(cookie).id for cookie in cookies]
    assert sessions.end(ids[0])
    assert not sessions.end(ids[0])
    assert [bool(sessions.use(cookie)) for cookie in cookies] == [False, True, True]
    sessions.end_of("a")
    assert [bool(sessions.use(cookie)) for cookie in cookies] == [False, False, True]
    assert [session.id for session in sessions.all()] == [ids[2]]


def test_the_number_of_sessions_is_bounded(sessions, clock, monkeypatch):
    monkeypatch.setattr(module, "_MAX_SESSIONS", 3)
    cookies = []
    for _ in range(4):
        clock.now_s += 1
        cookies.append(sessions.open("a", "", ""))
    assert [bool(sessions.use(cookie)) for cookie in cookies] == [False, True, True, True]


# -------------------------------------------------------------------------------------------------------- restarts


def test_only_active_sessions_survive_a_restart(clock, tmp_path):
    path = tmp_path / "data" / "sessions.json"
    first = Sessions(clock, path)
    open_cookie = first.open("a", "10.0.0.1", "browser")
    ended_cookie = first.open("b", "", "")
    first.end_of("b")
    assert path.stat().st_mode & 0o777 == 0o600
    assert open_cookie not in path.read_text()
    second = Sessions(clock, path)
    assert second.use(open_cookie) == first.use(open_cookie)
    assert second.use(ended_cookie) is None
    clock.now_s += IDLE_S + 1
    assert Sessions(clock, path).use(open_cookie) is None


def test_the_last_use_is_saved_once_a_minute(clock, tmp_path):
    path = tmp_path / "sessions.json"
    sessions = Sessions(clock, path)
    cookie = sessions.open("a", "", "")
    for seconds, saved_s in ((59, 1000), (1, 1060), (30, 1060)):
        clock.now_s += seconds
        sessions.use(cookie)
        assert next(iter(json.loads(path.read_text()).values()))["used_s"] == saved_s


@pytest.mark.parametrize("text", ["{", "[]", '{"a": {"id": 1}}', '{"a": 3}'])
def test_a_damaged_file_ends_the_sessions_and_is_logged(clock, tmp_path, text, caplog):
    path = tmp_path / "sessions.json"
    path.write_text(text)
    sessions = Sessions(clock, path)
    assert "cannot be read, so that browsers must sign in again" in caplog.text
    cookie = sessions.open("a", "", "")
    assert Sessions(clock, path).use(cookie) is not None


def test_an_unwritable_file_ends_no_session(clock, tmp_path, caplog):
    (tmp_path / "data").write_text("a file")
    sessions = Sessions(clock, tmp_path / "data" / "sessions.json")
    assert sessions.use(sessions.open("a", "", "")) is not None
    assert "so that a restart ends them" in caplog.text
