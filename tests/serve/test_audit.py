"""The audit log: its file, its filters, its bounds, and what it never has."""

import asyncio

import pytest
from support.clock import FakeClock
from support.full_disk import refusing_writes, small_disk
from support.messages import collect

from streamkit.core.errors import OutputError
from streamkit.serve import audit as module
from streamkit.serve.audit import Audited, AuditFilter, AuditLog, action_of, without_secrets


@pytest.fixture
def clock():
    return FakeClock(1_000_000_000.0)


@pytest.fixture
def log(tmp_path, clock):
    return AuditLog(tmp_path / "data" / "audit.db", clock)


def test_entries_survive_a_restart(log, tmp_path):
    log.add("anna", "sources.add", "gate", {"options": {"fps": 5}}, role="operator", address="10.0.0.7", status=201)
    for audit_log in (log, AuditLog(tmp_path / "data" / "audit.db", log._clock)):
        (entry,) = audit_log.entries()
        assert (entry.who, entry.role, entry.address) == ("anna", "operator", "10.0.0.7")
        assert (entry.action, entry.target, entry.detail) == ("sources.add", "gate", {"options": {"fps": 5}})
        assert (entry.time_s, entry.status, entry.outcome) == (1_000_000_000.0, 201, "done")


def test_the_log_file_is_readable_by_its_owner_only(log, tmp_path):
    assert (tmp_path / "data" / "audit.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("wanted", "roles"),
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
def test_entries_are_filtered(log, clock, wanted, roles):
    for letter, who, action, target, status, detail in (
        ("a", "anna", "sources.add", "gate", 201, {}),
        ("b", "ben", "sources.pause", "gate", 403, {}),
        ("c", "anna", "tokens.add", "carl", 201, {}),
        ("d", "ben", "sources.remove", "yard", 204, {}),
        ("e", "carl", "stages.change", "detect", 200, {"values": {"x": "the needle"}}),
    ):
        log.add(who, action, target, detail, role=letter, status=status)
        clock.now_s += 1
    assert "".join(entry.role for entry in log.entries(AuditFilter(**wanted))) == roles


def test_the_number_of_entries_in_an_answer_is_limited(log):
    for n in range(5):
        log.add("anna", "x.y", str(n))
    assert [entry.target for entry in log.entries(limit=2)] == ["4", "3"]


def test_entries_of_last_year_are_deleted(log, clock):
    log.add("anna", "old.one")
    clock.now_s += module.RETENTION_S
    log.prune()
    assert log.entries()
    clock.now_s += 1
    log.prune()
    assert log.entries() == []


def test_the_number_of_entries_is_bounded_separately_for_rejected_ones(log, monkeypatch):
    monkeypatch.setattr(module, "_PRUNE_EVERY", 5)
    monkeypatch.setattr(module, "MAX_ENTRIES", 20)
    monkeypatch.setattr(module, "MAX_REJECTED", 3)
    log.add("anna", "a.done")
    for n in range(9):
        log.add("", "session.add", str(n), status=401)
    assert [entry.target for entry in log.entries(AuditFilter(failed=True))] == ["8", "7", "6"]
    assert log.entries(AuditFilter(who="anna"))
    for n in range(40):
        log.add("ben", "b.done", str(n))
    assert [entry.target for entry in log.entries()] == [str(n) for n in range(39, 19, -1)]


def test_secrets_are_masked_by_field_name_and_in_addresses(log, tmp_path):
    secret = "geheim-4711"
    log.add(
        "anna",
        "sources.add",
        "gate",
        {
            "uri": f"rtsp://ann:{secret}@10.0.0.7/live?token={secret}",
            "options": {
                "password": secret,
                "deep": [{"api_key": secret}, f"http://h/?pass={secret}"],
                "keyframes": True,
            },
        },
    )
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


def test_an_unwritable_file_is_reported(tmp_path):
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


def test_a_value_without_secrets_is_unchanged():
    assert without_secrets({"a": [1, None, True, "x"], "b": {"c": 2.5}}) == {"a": [1, None, True, "x"], "b": {"c": 2.5}}


def test_entries_wait_while_the_file_cannot_be_written_and_are_stored_with_their_times(log, clock, tmp_path):
    logged = collect()
    with refusing_writes(tmp_path / "data" / "audit.db", "entries"):
        log.add("anna", "sources.add", "gate")
        clock.now_s += 7
        log.add("ben", "sources.remove", "yard", {"password": "geheim-4711"})
        assert log.entries() == []
        assert log.write_waiting() == "2 entries wait: the disk is full"
        assert not log.full
    assert log.write_waiting() == ""
    later, first = log.entries()
    assert (first.who, first.target, first.time_s) == ("anna", "gate", 1_000_000_000.0)
    assert (later.who, later.detail, later.time_s) == ("ben", {"password": "***"}, 1_000_000_007.0)
    first_problem, end = logged
    assert first_problem.startswith("entries of the audit log wait until they can be written: cannot use the audit ")
    assert end == "the audit log is written again, with 2 entries that waited"
    log.add("carl", "sources.add", "roof")
    assert [entry.who for entry in log.entries()] == ["carl", "ben", "anna"]


def test_the_next_entry_flushes_waiting_entries(log, tmp_path):
    with refusing_writes(tmp_path / "data" / "audit.db", "entries"):
        log.add("anna", "sources.add", "gate")
    log.add("ben", "sources.add", "yard")
    assert [entry.who for entry in log.entries()] == ["ben", "anna"]


def test_entries_still_unwritten_at_the_end_are_logged(log, tmp_path):
    logged = collect()
    with refusing_writes(tmp_path / "data" / "audit.db", "entries"):
        log.add("anna", "sources.add", "gate", {"fps": 5}, role="operator", address="10.0.0.7", request_id="r7")
        log.close()
    assert logged[1] == (
        "an entry is missing in the audit log: 2001-09-09T01:46:40Z anna (operator) from 10.0.0.7: sources.add gate "
        '{"fps": 5}, status 200, done, request r7'
    )
    log.close()
    assert [entry.who for entry in log.entries()] == ["anna"]


def answered(log, method="POST"):
    """The status with which a request of a known client is answered, and whether it came to the application."""
    reached = []
    statuses = []

    async def app(scope, receive, send):
        reached.append(scope["path"])
        await send({"type": "http.response.start", "status": 204, "headers": []})

    async def send(message):
        statuses.append(message.get("status"))

    scope = {"type": "http", "method": method, "path": "/api/v1/x", "state": {"name": "anna", "role": "admin"}}
    asyncio.run(Audited(app, log, "/api/v1")(scope, None, send))
    return statuses[0], bool(reached)


def test_changes_are_refused_once_too_many_entries_wait(log, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_WAITING", 3)
    with refusing_writes(tmp_path / "data" / "audit.db", "entries"):
        assert [answered(log) for _ in range(4)] == [(204, True)] * 3 + [(503, False)]
        assert answered(log, "GET") == (204, True)
    assert log.write_waiting() == ""
    assert answered(log) == (204, True)
    assert len(log.entries()) == 4


def test_the_problem_of_a_full_disk_names_the_fix(tmp_path):
    with small_disk(tmp_path / "disk") as disk:
        logged = collect()
        log = AuditLog(disk.folder / "audit.db")
        disk.fill()
        for number in range(200):
            log.add("anna", "sources.add", f"{number} {'x' * 400}")
        assert "entries wait: database or disk is full" in log.write_waiting()
        assert "free some space on its disk" in logged[0]
        disk.free()
        assert log.write_waiting() == ""
        assert len(log.entries(limit=500)) == 200
