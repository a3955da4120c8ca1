"""Records in databases: columns, repeats, tables that are otherwise."""

import json
import os
import signal
import sqlite3

import pytest
from support.brokers import place  # noqa: F401  a fixture

from streamkit.emit.client import Message, RecordRejected, SendError, address
from streamkit.stages.sinks.brokers.postgres import SCHEMES, PostgresClient
from streamkit.stages.sinks.brokers.sqlite import SqliteClient

HEAD = {"schema": "streamkit/1", "source": "gate", "frame": 3, "pts_s": 0.12, "time": "2026-08-01T12:00:00.250Z"}
RECORDS = {
    "frames": {**HEAD, "objects": [], "events": []},
    "objects": {
        **HEAD,
        "object": {"box": [1.5, 2, 3, 4.25], "score": 0.5, "class_id": 2, "label": "it's", "track_id": 9},
    },
    "events": {**HEAD, "event": {"kind": "crossed", "stage": "line", "track_id": 9, "data": {"to": "in"}}},
}
ROWS = {
    "frames": {"error": None},
    "objects": {"label": "it's", "track_id": 9, "score": 0.5, "x1": 1.5, "y1": 2.0, "x2": 3.0, "y2": 4.25},
    "events": {"stage": "line", "kind": "crossed", "track_id": 9},
}


def message(number, fields):
    return Message(f"s-{number}", "", "", json.dumps({"id": f"s-{number}", **fields}).encode())


@pytest.mark.parametrize("send", RECORDS)
def test_sqlite_has_a_row_for_each_record_and_none_for_duplicates(send, tmp_path):
    client = SqliteClient(str(tmp_path / "sub" / "x.db"), send, send)
    for _ in range(2):
        client.connect()
        client.deliver([message(n, RECORDS[send]) for n in range(3)])
        client.close()
    connection = sqlite3.connect(tmp_path / "sub" / "x.db")
    connection.row_factory = sqlite3.Row
    rows = [dict(row) for row in connection.execute(f"SELECT * FROM {send} ORDER BY rowid")]
    connection.close()
    assert [row["id"] for row in rows] == ["s-0", "s-1", "s-2"]
    assert json.loads(rows[0].pop("record")) == {"id": "s-0", **RECORDS[send]}
    head = {key: HEAD[key] for key in ("source", "frame", "pts_s", "time")}
    assert rows[0] == {"id": "s-0", **head, **ROWS[send]}
    assert (tmp_path / "sub" / "x.db").stat().st_mode & 0o077 == 0


def test_sqlite_syncs_commits_and_readers_do_not_block_it(tmp_path):
    client = SqliteClient(str(tmp_path / "x.db"), "frames", "frames")
    client.connect()
    modes = [client._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
    assert modes == ["wal", 1]
    with sqlite3.connect(tmp_path / "x.db") as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM frames").fetchone() == (0,)
        client.deliver([message(1, RECORDS["frames"])])
    reader.close()
    client.close()


def test_a_duplicate_does_not_change_the_row_of_sqlite(tmp_path):
    client = SqliteClient(str(tmp_path / "x.db"), "frames", "frames")
    first, other = ({**RECORDS["frames"], "frame": frame} for frame in (3, 4))
    client.connect()
    client.deliver([message(0, first), message(1, first)])
    client.deliver([message(0, other), message(1, other), message(2, other), message(2, first)])
    client.close()
    with sqlite3.connect(tmp_path / "x.db") as connection:
        rows = connection.execute("SELECT rowid, id, frame, record FROM frames ORDER BY rowid").fetchall()
    connection.close()
    assert [row[:3] for row in rows] == [(1, "s-0", 3), (2, "s-1", 3), (3, "s-2", 4)]
    assert [json.loads(row[3])["frame"] for row in rows] == [3, 3, 4]


def test_a_duplicate_does_not_change_the_row_of_postgres(place):  # noqa: F811
    import psycopg

    there = place("postgres")
    client = PostgresClient(address(there.options()["url"], SCHEMES), "frames", "frames")
    first, other = ({**RECORDS["frames"], "frame": frame} for frame in (3, 4))
    client.connect()
    client.deliver([message(0, first), message(1, first)])
    client.deliver([message(0, other), message(1, other), message(2, other), message(2, first)])
    options = {"user": "streamkit", "password": there.broker.password, "dbname": "postgres"}
    with psycopg.connect(host="127.0.0.1", port=there.broker.port, **options) as connection:
        rows = connection.execute("SELECT id, frame, record FROM frames ORDER BY id").fetchall()
        assert [(row[0], row[1], row[2]["frame"]) for row in rows] == [("s-0", 3, 3), ("s-1", 3, 3), ("s-2", 4, 4)]
        connection.execute(
            "CREATE FUNCTION deny() RETURNS trigger LANGUAGE plpgsql AS $$ "
            "BEGIN RAISE EXCEPTION 'no' USING ERRCODE = NEW.record ->> 'error'; END $$"
        )
        connection.execute("CREATE TRIGGER deny BEFORE INSERT ON frames FOR EACH ROW EXECUTE FUNCTION deny()")
        connection.commit()
        for state in ("22001", "23514", "44000", "54001", "P0001"):  # the row's own fault
            with pytest.raises(RecordRejected, match="no"):
                client.deliver([message(5, {**first, "error": state})])
        for state in (
            "53100",
            "53200",
            "55P03",
            "57014",
            "XX000",
            "42501",
        ):  # a full disk, a lock, a missing right, ...
            with pytest.raises(SendError, match="no") as caught:
                client.deliver([message(5, {**first, "error": state})])
            assert not isinstance(caught.value, RecordRejected)
            assert not caught.value.disconnected
    client.close()


@pytest.mark.parametrize(
    ("constraint", "body", "why"),
    [
        ("CHECK (frame < 10)", {"frame": 10}, "CHECK constraint failed"),
        ("CHECK (json_valid(record) AND frame IS NOT NULL)", {"frame": None}, "CHECK constraint failed"),
        ("UNIQUE (frame)", {"frame": 1}, "UNIQUE constraint failed"),
    ],
)
def test_a_row_that_violates_a_constraint_is_refused(constraint, body, why, tmp_path):
    database = sqlite3.connect(tmp_path / "x.db")
    columns = "id TEXT PRIMARY KEY, source TEXT, frame INTEGER, pts_s REAL, time TEXT, error TEXT, record TEXT"
    database.execute(f"CREATE TABLE frames ({columns}, {constraint})")
    database.close()
    client = SqliteClient(str(tmp_path / "x.db"), "frames", "frames")
    client.connect()
    client.deliver([message(1, {**HEAD, "frame": 1})])
    with pytest.raises(RecordRejected, match=why) as caught:
        client.deliver([message(2, {**HEAD, "frame": 2}), message(3, {**HEAD, **body})])
    assert caught.value.done == 0, "a transaction is done whole or not at all"
    client.deliver([message(2, {**HEAD, "frame": 2})])
    client.close()
    with sqlite3.connect(tmp_path / "x.db") as connection:
        assert connection.execute("SELECT frame FROM frames ORDER BY rowid").fetchall() == [(1,), (2,)]
    connection.close()


def test_postgres_has_a_row_for_each_record_and_none_for_duplicates(place):  # noqa: F811
    import psycopg
    from psycopg.rows import dict_row

    there = place("postgres")
    at = address(there.options()["url"], SCHEMES)
    options = {"user": "streamkit", "password": there.broker.password, "dbname": "postgres"}
    with psycopg.connect(host="127.0.0.1", port=there.broker.port, row_factory=dict_row, **options) as connection:
        for send, fields in RECORDS.items():
            client = PostgresClient(at, f"public.{send}", send)
            for _ in range(2):
                client.connect()
                client.deliver([message(n, fields) for n in range(3)])
                client.close()
            rows = connection.execute(f"SELECT * FROM {send} ORDER BY id").fetchall()
            connection.commit()
            assert [row["id"] for row in rows] == ["s-0", "s-1", "s-2"]
            assert rows[0].pop("record") == {"id": "s-0", **fields}
            assert rows[0].pop("time").isoformat().startswith("2026-08-01T12:00:00.25")
            assert rows[0] == {"id": "s-0", "source": "gate", "frame": 3, "pts_s": 0.12, **ROWS[send]}
        connection.execute("CREATE TABLE other (id text PRIMARY KEY, source text)")
        connection.commit()
        client = PostgresClient(at, "other", "events")
        with pytest.raises(
            SendError, match="the table other has no column frame, pts_s, time, stage, kind, track_id, record"
        ):
            client.connect()
        client.close()


def test_the_error_of_a_table_with_other_columns_names_the_fix(tmp_path):
    database = sqlite3.connect(tmp_path / "x.db")
    database.execute("CREATE TABLE events (id TEXT PRIMARY KEY, source, frame, pts_s, time, kind, record)")
    database.close()
    client = SqliteClient(str(tmp_path / "x.db"), "events", "events")
    message = "the table events has no column stage, track_id, which send: events needs; set another table, or add"
    with pytest.raises(SendError, match=message):
        client.connect()
    client.close()


@pytest.mark.parametrize(
    ("timeout_s", "over", "reason"), [(1.0, False, "no answer within 1 s"), (3600.0, True, "the run")]
)
def test_a_postgres_that_hangs_in_a_statement_is_disconnected(timeout_s, over, reason, place):  # noqa: F811
    there = place("postgres")
    client = PostgresClient(address(there.options()["url"], SCHEMES), "frames", "frames")
    client.connect()
    client.deliver([message(0, RECORDS["frames"])])
    client.timeout_s = timeout_s
    client.over = lambda: over
    backend = client._connection.info.backend_pid
    os.kill(backend, signal.SIGSTOP)  # the kernel goes on acknowledging what is sent to it
    try:
        with pytest.raises(SendError, match=reason):
            client.deliver([message(1, RECORDS["frames"])])
        client.close()
    finally:
        os.kill(backend, signal.SIGCONT)
    client.timeout_s = 10.0
    client.over = lambda: False
    client.connect()
    client.deliver([message(n, RECORDS["frames"]) for n in range(3)])
    client.close()
    assert [record["id"] for record in sorted(there.received(), key=lambda record: record["id"])] == [
        "s-0",
        "s-1",
        "s-2",
    ]
