"""The sender with a client that does what it is told; real brokers are in test_delivery.py."""

import json
import re

import pytest
from support.messages import collect

from streamkit.core.counters import Counters
from streamkit.emit.client import Client, RecordRejected, SendError
from streamkit.emit.segment_file import SpoolRecord
from streamkit.emit.sender import LOST, NAME, NOT_DEAD_LETTERED, REFUSED, SENT, Sender
from streamkit.emit.spool import Spool


class Scripted(Client):
    """Fails as often as it is told to, and keeps what it takes."""

    where = "mqtt://broker:1883"
    secrets = ("hunter2",)

    def __init__(self, connects=(), delivers=(), never=()):
        self.connects = list(connects)
        self.delivers = list(delivers)
        self.never = set(never)
        self.received = []

    def connect(self):
        if self.connects and (error := self.connects.pop(0)) is not None:
            raise error

    def deliver(self, messages):
        if self.delivers and (done := self.delivers.pop(0)) is not None:
            self.received += messages[:done]
            raise SendError("cut", done)
        for done, message in enumerate(messages):
            if json.loads(message.body)["n"] in self.never:
                raise RecordRejected("too large", done)
            self.received.append(message)


@pytest.fixture
def run(tmp_path):
    spools = []

    def go(client, count=10):
        counters = Counters()
        logged = collect()
        spool = Spool(tmp_path / "s")
        spools.append(spool)
        spool.append([SpoolRecord(b"t/%d" % n, b"k", b'{"n":%d}' % n) for n in range(count)])
        Sender(spool, client, 0.3, counters).run(lambda: not spool.waiting)
        return [json.loads(message.body)["n"] for message in client.received], counters, logged, spool

    yield go
    for spool in spools:
        spool.close()


def test_records_are_sent_in_order_each_with_its_id(run):
    client = Scripted()
    numbers, counters, logged, spool = run(client)
    assert numbers == list(range(10))
    assert counters.values == {SENT: 10}
    assert logged == []
    first = client.received[0]
    assert (first.id, first.topic, first.key) == (spool.id(1), "t/0", "k")
    assert first.body == b'{"id":"%b","n":0}' % spool.id(1).encode()


def test_sending_resumes_at_the_first_unacknowledged_record(run):
    numbers, counters, logged, _ = run(Scripted(delivers=[4, 0, None]))
    assert numbers == list(range(10))
    assert (counters[SENT], counters[LOST]) == (10, 2)
    assert len(logged) == 2


def test_an_unreachable_broker_is_logged_once_without_secrets_and_reconnected(run):
    errors = [SendError("no hunter2 connection"), OSError("hunter2"), SendError("again"), None]
    numbers, counters, logged, _ = run(Scripted(connects=errors))
    assert numbers == list(range(10))
    assert counters[LOST] == 3
    at = r"mqtt://broker:1883 at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d: "  # each text has its time, so that none is a repeat
    lost, numbers = logged
    assert re.fullmatch(
        at + r"no \*\*\* connection; records wait in the spool; the emitter retries until it succeeds", lost
    )
    assert re.fullmatch(at + "accepts records again; 10 are waiting", numbers)


class HoldingClient(Scripted):
    """Holds all records back, and fails `failures` times where it is to acknowledge them."""

    def __init__(self, failures):
        super().__init__()
        self.failures = failures

    def deliver(self, messages):
        self.received += messages
        self.held += len(messages)

    def idle(self):
        if self.failures:
            self.failures -= 1
            raise SendError("the disk is full")
        self.held = 0

    def close(self):
        self.held = 0


def test_records_that_are_held_back_are_not_accepted(run):
    _, counters, logged, _ = run(HoldingClient(failures=2))
    assert (counters[SENT], counters[LOST]) == (10, 2)
    lost, accepted = logged
    assert "the disk is full; records wait in the spool" in lost
    assert accepted.endswith("accepts records again; 10 are waiting")


def test_a_broker_may_refuse_several_records_of_a_batch(run):
    class Telling(Scripted):
        def deliver(self, messages):
            self.received += messages
            return {3: "no queue", 0: "too large"}

    numbers, counters, logged, spool = run(Telling())
    assert numbers == list(range(10)), "each is sent once"
    assert (counters[SENT], counters[REFUSED]) == (8, 2)
    assert [text.partition(";")[0] for text in logged] == [
        "mqtt://broker:1883 refuses a record for t/0: too large",
        "mqtt://broker:1883 refuses a record for t/3: no queue",
    ]
    assert spool.waiting == 0


def test_a_refusal_shows_no_secret_in_messages_and_files(run, tmp_path):
    class Telling(Scripted):
        def deliver(self, messages):
            if len(messages) > 1:
                return {0: "user:hunter2 may not write"}
            raise RecordRejected("hunter2 may not write either", 0, whole=True)

    (tmp_path / "one").mkdir()
    _, _, logged, spool = run(Telling(), count=3)
    spool.append([SpoolRecord(b"hunter2/x", b"k", b'{"n":9}')])
    sender = Sender(spool, Telling(), 0.3, Counters())
    sender.run(lambda: not spool.waiting)
    dead = (spool.folder / "dead-letters.jsonl").read_text()
    assert [json.loads(line)["why"] for line in dead.splitlines()] == [
        "user:*** may not write",
        "*** may not write either",
    ]
    assert len(logged) == 2
    assert not any("hunter2" in text for text in logged)


def test_the_dead_letter_file_takes_a_tenth_of_the_spool(tmp_path):
    class No(Scripted):
        def deliver(self, messages):
            return dict.fromkeys(range(len(messages)), "no")

    counters = Counters()
    logged = collect()
    spool = Spool(tmp_path / "s", 1_000_000)
    spool.append([SpoolRecord(b"t", b"", b'{"x":"%b"}' % (b"x" * 30_000))] * 5)
    Sender(spool, No(), 0.3, counters).run(lambda: not spool.waiting)
    assert 90_000 < (spool.folder / NAME).stat().st_size <= 100_000
    assert (counters[REFUSED], counters[NOT_DEAD_LETTERED]) == (5, 2)
    assert logged[-1].startswith(f"{spool.folder / NAME} has reached its limit of 0.1 MB;")
    spool.close()


def test_a_permanently_refused_record_is_dropped_alone(run, tmp_path):
    numbers, counters, logged, _ = run(Scripted(never={3, 7}))
    assert numbers == [0, 1, 2, 4, 5, 6, 8, 9]
    assert (counters[SENT], counters[REFUSED]) == (8, 2)
    assert logged[0] == (
        "mqtt://broker:1883 refuses a record for t/3: too large; it is given up, counted, and kept in "
        f"{tmp_path}/s/dead-letters.jsonl"
    )


class Holding(Scripted):
    """Acknowledges nothing before it has ten, or before the end."""

    def deliver(self, messages):
        super().deliver(messages)
        self.held += len(messages)
        self.idle()

    def idle(self):
        if self.held >= 10 or self.draining():
            self.held = 0

    def close(self):
        self.held = 0


@pytest.fixture
def holding(tmp_path):
    """Let records come, four at each of the first calls of `over`; return the numbers sent, and what was at each call:
    how many waited, and how far the sender was."""

    def go(client, calls):
        spool = Spool(tmp_path / "s")
        counters = Counters()
        waited = []
        delivered = []
        sender = Sender(spool, client, 0.3, counters)

        def over():
            waited.append(spool.waiting)
            delivered.append(sender.delivered)
            if 1 < len(waited) <= 1 + calls:
                held = sender._held
                spool.append([SpoolRecord(b"t", b"", b'{"n":%d}' % n) for n in range(4)])
                assert sender.undelivered == waited[-1] + 4 - held
                assert held == min(client.held, waited[-1])
            sender.draining = len(waited) > 1 + calls
            return len(waited) > calls and not spool.waiting

        sender.run(over)
        spool.close()
        assert counters[SENT] == 4 * calls
        numbers = [int(message.id.rpartition("-")[2]) for message in client.received]
        return numbers, waited[: calls + 2], delivered[: calls + 2]

    return go


def test_records_that_a_client_buffers_stay_in_the_spool(holding):
    assert holding(Holding(), 4) == ([*range(1, 17)], [0, 0, 4, 8, 0, 4], [0, 0, 4, 8, 12, 16])


def test_buffered_records_are_sent_again_after_a_failure(holding):
    numbers, waited, delivered = holding(Holding(delivers=[None, None, 0]), 3)
    assert numbers == [*range(1, 9), *range(1, 13)]
    assert (waited, delivered) == ([0, 0, 4, 8, 12], [0, 0, 4, 8, 8])


def test_the_end_of_a_run_flushes_buffered_records(holding):
    assert holding(Holding(), 1) == ([1, 2, 3, 4], [0, 0, 4], [0, 0, 4])
