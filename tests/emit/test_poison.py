"""One record that a broker never takes: it alone is given up, counted and kept; all others arrive, in order."""

import json
import time

import pytest
from support.brokers import PLACES, place  # noqa: F401  a fixture
from support.mails import event, mailing_fixture  # noqa: F401  a fixture
from support.messages import collect

from streamkit.core.counters import Counters
from streamkit.core.stage import Context, default_registry
from streamkit.emit.segment_file import SpoolRecord
from streamkit.emit.sender import NAME, POISON, REFUSED, SENT

COUNT = 60
BAD = 23
HEAD = {"schema": "streamkit/1", "source": "gate", "pts_s": 0.0}


def record(topic, key=b"", **more):
    return SpoolRecord(topic, key, json.dumps({**HEAD, **more}).encode())


@pytest.fixture
def flow(tmp_path):
    """Send records with one that is poison among them; return the counters, the messages and the dead letters."""
    stages = []

    def go(there, poison):
        stage = default_registry().get(there.kind)(
            **there.options(), send="frames", timeout=10.0, max_backoff=0.5, spool={"path": str(tmp_path / "s")}
        )
        counters = Counters()
        logged = collect()
        stage.context = Context("out", counters=counters)
        stage.open()
        stages.append(stage)
        topic, key = (*stage._topics.fill(("gate",)), b"", b"")[:2]
        records = [record(topic, key, frame=n) for n in range(COUNT)]
        records[BAD] = record(poison.topic or topic, poison.key or key, frame=BAD, **poison.fields)
        stage.queue.append(records)
        until_s = time.monotonic() + 60
        stage.sender.run(lambda: not stage.queue.waiting or time.monotonic() > until_s)
        assert stage.queue.waiting == 0, logged
        dead = [json.loads(line) for line in (tmp_path / "s" / NAME).read_text().splitlines()]
        return counters, logged, dead

    yield go
    for stage in stages:
        stage.queue.close()


POISONS = {
    f"{kind}, {poison.name}" if poison.name else kind: (kind, poison)
    for kind, place_class in PLACES.items()
    for poison in place_class.poisons
}


def test_every_place_has_a_record_that_it_never_takes():
    assert {kind for kind, _ in POISONS.values()} == PLACES.keys()


@pytest.mark.parametrize("name", POISONS)
def test_a_record_that_is_never_taken_is_the_only_loss(name, place, flow):  # noqa: F811
    kind, poison = POISONS[name]
    there = place(kind)
    poison.prepare(there)
    counters, logged, dead = flow(there, poison)
    assert (counters[SENT], counters[poison.counter]) == (COUNT - 1, 1), logged
    assert counters[POISON] + counters[REFUSED] == 1
    (letter,) = dead
    assert letter["record"]["frame"] == BAD
    assert poison.why in letter["why"], letter["why"]
    assert any("it is given up, counted, and kept in " in text and NAME in text for text in logged)
    frames = [record["frame"] for record in there.received()]
    first = list(dict.fromkeys(frames))  # what was on its way when a connection ended comes again
    assert first == [n for n in range(COUNT) if n != BAD]


def test_a_mail_that_makes_the_server_hang_up_is_dropped(mail_server, mailing):
    server = mail_server()
    server.hang_up_at = b"Poison"
    mailer = mailing(server, batch_window=0.0)
    mailer.flow(event(kind="one"), event(kind="poison"), event(kind="three"))
    assert mailer.counters[POISON] == 1
    assert mailer.counters[SENT] == 2
    subjects = " ".join(str(mail["Subject"]) for mail in server.received)
    assert "One for track 7 at gate" in subjects
    assert "Three for track 7 at gate" in subjects
    assert "Poison" not in subjects
