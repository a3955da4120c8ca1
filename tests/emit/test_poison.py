"""One record that a broker never takes: it alone is given up, counted and kept; all others arrive, in order."""

import json
import time

import pytest
from support.brokers import place  # noqa: F401  a fixture
from support.mails import event, mailing_fixture  # noqa: F401  a fixture
from support.messages import collect
from support.smtp import mail_server  # noqa: F401  a fixture

from streamkit.core.counters import Counters
from streamkit.core.stage import Context, default_registry
from streamkit.emit.segment_file import SpoolRecord
from streamkit.emit.sender import NAME, POISON, REFUSED, SENT

COUNT, BAD = 60, 23
HEAD = {"schema": "streamkit/1", "source": "gate", "pts_s": 0.0}
MB = 1_000_000


def record(topic, key=b"", **more):
    return SpoolRecord(topic, key, json.dumps({**HEAD, **more}).encode())


@pytest.fixture
def flow(tmp_path):
    """Send records with one that is poison among them; return the counters, the messages and the dead letters."""
    stages = []

    def go(there, *, poison, send="frames", **options):
        stage = default_registry().get(there.kind)(
            **there.options(), send=send, timeout=10.0, max_backoff=0.5, spool={"path": str(tmp_path / "s")}, **options
        )
        counters, logged = Counters(), collect()
        stage.context = Context("out", counters=counters)
        stage.open()
        stages.append(stage)
        topic, key = (*stage._topics.fill(("gate",)), b"", b"")[:2]
        stage.queue.append([
            poison(topic, key) if n == BAD else record(topic, key, frame=n) for n in range(COUNT)
        ])  # fmt: skip
        until_s = time.monotonic() + 60
        stage.sender.run(lambda: not stage.queue.waiting or time.monotonic() > until_s)
        assert stage.queue.waiting == 0, logged
        dead = [json.loads(line) for line in (tmp_path / "s" / NAME).read_text().splitlines()]
        return counters, logged, dead

    yield go
    for stage in stages:
        stage.queue.close()


def limited_mosquitto(there):
    command = there.broker.command

    def with_limit():
        arguments = command()
        with open(arguments[-1], "a") as file:
            file.write("max_packet_size 5000\n")
        return arguments

    there.broker.command = with_limit
    there.restart()


def limited_redis(there):
    import redis

    with redis.Redis(port=there.broker.port, password=there.broker.password) as client:
        client.config_set("proto-max-bulk-len", 1_048_576)


def closed_exchange(there):
    with there.channel() as channel:
        channel.exchange_declare("closed", "topic", internal=True)


def strict_postgres(there):
    import psycopg

    options = {"user": "streamkit", "password": there.broker.password, "dbname": "postgres"}
    with psycopg.connect(host="127.0.0.1", port=there.broker.port, **options) as client:
        client.execute(
            "CREATE TABLE frames (id text PRIMARY KEY, source text, frame bigint, pts_s double precision, "
            "time timestamptz, error text, record jsonb, CHECK (error IS NULL))"
        )


def strict_sqlite(there):
    import sqlite3

    connection = sqlite3.connect(there.folder / "out.db")
    columns = "id TEXT PRIMARY KEY, source TEXT, frame INTEGER, pts_s REAL, time TEXT, error TEXT, record TEXT"
    connection.execute(f"CREATE TABLE frames ({columns}, CHECK (error IS NULL))")
    connection.close()


def large(size):
    return lambda topic, key: record(topic, key, frame=BAD, text="x" * size)


def elsewhere(**to):
    return lambda topic, key: record(to.get("topic", topic), to.get("key", key), frame=BAD)


KINDS = {
    "mqtt, too large": ("mqtt", limited_mosquitto, large(6000), REFUSED, "bytes, and the broker accepts 5000"),
    "mqtt, topic": ("mqtt", None, elsewhere(topic=b"streamkit/a\x1bb"), POISON, "the connection is lost"),
    "redis": ("redis", limited_redis, large(2 * MB), POISON, "the records are not accepted"),
    "kafka": ("kafka", None, large(2 * MB), REFUSED, "too large"),
    "webhook": (
        "webhook", None, lambda topic, key: record(topic, key, frame=BAD, text="poison"), POISON, "no answer: ",
    ),
    "amqp": ("amqp", closed_exchange, elsewhere(key=b"closed"), POISON, "ACCESS_REFUSED"),
    "nats": ("nats", None, elsewhere(topic=b"streamkit." + b"x" * 5000), POISON, "the connection is lost"),
    "postgres, constraint": (
        "postgres", strict_postgres, lambda topic, key: record(topic, key, frame=BAD, error="no"), REFUSED,
        "violates check constraint",
    ),
    "postgres, text": (
        "postgres", None, lambda topic, key: record(topic, key, frame=BAD, error="a\0b"), REFUSED, "Unicode",
    ),
    "sqlite": (
        "sqlite", strict_sqlite, lambda topic, key: record(topic, key, frame=BAD, error="no"), REFUSED,
        "CHECK constraint failed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_a_record_that_is_always_refused_is_the_only_loss(name, place, flow, request):  # noqa: F811
    kind, prepare, poison, count, why = KINDS[name]
    there = place(kind)
    if prepare is not None:
        prepare(there)
    counters, logged, dead = flow(there, poison=poison)
    assert (counters[SENT], counters[count]) == (COUNT - 1, 1), logged
    assert counters[POISON] + counters[REFUSED] == 1
    (letter,) = dead
    assert letter["record"]["frame"] == BAD
    assert why in letter["why"], letter["why"]
    assert any("it is given up, counted, and kept in " in text and NAME in text for text in logged)
    frames = [record["frame"] for record in there.got()]
    first = list(dict.fromkeys(frames))  # what was on its way when a connection ended comes again
    assert first == [n for n in range(COUNT) if n != BAD]


def test_a_mail_that_makes_the_server_hang_up_is_dropped(mail_server, mailing):  # noqa: F811
    server = mail_server()
    server.hang_up_at = b"poison"
    mailer = mailing(server, batch_window=0.0)
    mailer.flow(event(kind="one"), event(kind="poison"), event(kind="three"))
    assert mailer.counters[POISON] == 1
    assert mailer.counters[SENT] == 2
    subjects = " ".join(str(mail["Subject"]) for mail in server.got)
    assert "one at gate" in subjects
    assert "three at gate" in subjects
    assert "poison" not in subjects
