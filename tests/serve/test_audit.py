"""The audit log: its file, its filters, its bounds, and what it never has."""

import asyncio

import pytest

from streamkit.core.errors import OutputError
from streamkit.serve import audit as module
from streamkit.serve.audit import Audited, AuditFilter, AuditLog, action_of, without_secrets


class Clock:
    now_s = 1_000_000_000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def log(tmp_path, clock):
    return AuditLog(tmp_path / "data" / "audit.db", clock)


def test_an_entry_comes_back_also_after_a_restart(log, tmp_path):
    log.add("anna", "sources.add", "gate", {"options": {"fps": 5}}, role="operator", address="10.0.0.7", status=201)
    for one in (log, AuditLog(tmp_path / "data" / "audit.db", log._clock)):
        (entry,) = one.entries()
        assert (entry.who, entry.role, entry.address) == ("anna", "operator", "10.0.0.7")
        assert (entry.action, entry.target, entry.detail) == ("sources.add", "gate", {"options": {"fps": 5}})
        assert (entry.time_s, entry.status, entry.outcome) == (1_000_000_000.0, 201, "done")


def test_only_its_owner_may_read_it(log, tmp_path):
    assert (tmp_path / "data" / "audit.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, "edcba"),
        ({"who": "anna"}, "ca"),
        ({"action": "sources"}, "dba"),
        ({"action": "sources.add"}, "a"),
        ({"action": "source"}, ""),
        ({"text": "GATE"}, "ba"),
        ({"text": "needle"}, "e"),
        ({"text": "%"}, ""),
        ({"since_s": 1_000_000_003.0}, "ed"),
        ({"until_s": 1_000_000_001.0}, "ba"),
        ({"before": 3}, "ba"),
        ({"failed": True}, "b"),
        ({"failed": False, "who": "ben"}, "d"),
    ],
)
def test_filters(log, clock, wanted, found):
    for letter, who, action, target, status, detail in (
        ("a", "anna", "sources.add", "gate", 201, {}),
        ("b", "ben", "sources.pause", "gate", 403, {}),
        ("c", "anna", "tokens.add", "carl", 201, {}),
        ("d", "ben", "sources.remove", "yard", 204, {}),
        ("e", "carl", "stages.change", "detect", 200, {"values": {"x": "the needle"}}),
    ):
        log.add(who, action, target, detail, role=letter, status=status)
        clock.now_s += 1
    assert "".join(one.role for one in log.entries(AuditFilter(**wanted))) == found


def test_the_number_of_entries_in_an_answer(log):
    for n in range(5):
        log.add("anna", "x.y", str(n))
    assert [one.target for one in log.entries(limit=2)] == ["4", "3"]


def test_entries_of_last_year_are_deleted(log, clock):
    log.add("anna", "old.one")
    clock.now_s += module.KEPT_S
    log.prune()
    assert log.entries()
    clock.now_s += 1
    log.prune()
    assert log.entries() == []


def test_the_number_of_entries_is_bounded_and_rejected_ones_push_out_no_others(log, monkeypatch):
    monkeypatch.setattr(module, "_PRUNE_EVERY", 5)
    monkeypatch.setattr(module, "MAX_ENTRIES", 20)
    monkeypatch.setattr(module, "MAX_REJECTED", 3)
    log.add("anna", "a.done")
    for n in range(9):
        log.add("", "session.add", str(n), status=401)
    assert [one.target for one in log.entries(AuditFilter(failed=True))] == ["8", "7", "6"]
    assert log.entries(AuditFilter(who="anna"))
    for n in range(40):
        log.add("ben", "b.done", str(n))
    assert [one.target for one in log.entries()] == [str(n) for n in range(39, 19, -1)]


def test_secrets_are_masked_by_their_names_and_in_addresses(log, tmp_path):
    secret = "geheim-4711"
    log.add("anna", "sources.add", "gate", {
        "uri": f"rtsp://ann:{secret}@10.0.0.7/live?token={secret}",
        "options": {"password": secret, "deep": [{"api_key": secret}, f"http://h/?pass={secret}"], "keyframes": True},
    })  # fmt: skip
    (entry,) = log.entries()
    assert entry.detail["uri"] == "rtsp://ann:***@10.0.0.7/live?token=***"
    assert entry.detail["options"] == {
        "password": "***",
        "deep": [{"api_key": "***"}, "http://h/?pass=***"],
        "keyframes": True,
    }
    assert secret.encode() not in (tmp_path / "data" / "audit.db").read_bytes()


def test_long_values_are_shortened(log):
    log.add("anna", "a.b", "t" * 9999, {"x": "y" * 9999}, outcome="o" * 9999)
    (entry,) = log.entries()
    assert (len(entry.target), len(entry.detail["x"]), len(entry.outcome)) == (500, 500, 500)
    log.add("anna", "a.b", "", {"many": list(range(9999))})
    assert log.entries()[0].detail == {"fields": "many"}


def test_a_file_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "data").write_text("")
    with pytest.raises(OutputError, match=r"cannot write the audit log .*--data"):
        AuditLog(tmp_path / "data" / "audit.db")
    (tmp_path / "other.db").write_text("this is no database, and is long enough to be seen as one that is damaged" * 99)
    with pytest.raises(OutputError, match="cannot use the audit log"):
        AuditLog(tmp_path / "other.db")


@pytest.mark.parametrize(
    ("method", "route", "action"),
    [
        ("POST", "/sources", "sources.add"),
        ("POST", "/sources/{id:path}/pause", "sources.pause"),
        ("PUT", "/sources/{id:path}", "sources.change"),
        ("DELETE", "/sources/{id:path}", "sources.remove"),
        ("PATCH", "/stages/{id}", "stages.change"),
        ("POST", "/session", "session.add"),
        ("DELETE", "/tokens/{name}", "tokens.remove"),
        ("PUT", "/config/zones/{name}", "config.change"),
        ("BREW", "/", "api.brew"),
    ],
)
def test_actions_are_named_by_their_routes(method, route, action):
    assert action_of(method, route) == action


def test_a_value_without_secrets_stays_as_it_is():
    assert without_secrets({"a": [1, None, True, "x"], "b": {"c": 2.5}}) == {"a": [1, None, True, "x"], "b": {"c": 2.5}}


def test_a_change_is_done_also_if_the_log_cannot_be_written(log, tmp_path, caplog):
    path = tmp_path / "data" / "audit.db"
    path.unlink()
    path.mkdir()
    sent = []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 204, "headers": []})

    async def send(message):
        sent.append(message["status"])

    scope = {"type": "http", "method": "POST", "path": "/api/v1/x", "state": {"name": "anna", "role": "admin"}}
    asyncio.run(Audited(app, log, "/api/v1")(scope, None, send))
    assert sent == [204]
    assert "the audit log lacks a change" in caplog.text
