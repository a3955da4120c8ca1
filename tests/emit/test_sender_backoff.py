"""How long a sender waits between two tries, and which record it gives up, on a clock that the test moves."""

import json

import pytest
from support.messages import collect

from streamkit.core.counters import Counters
from streamkit.emit import sender as module
from streamkit.emit.client import WINDOW, Client, RecordRejected, SendError
from streamkit.emit.segment_file import SpoolRecord
from streamkit.emit.sender import LOST, NAME, POISON, REFUSED, SENT, Sender
from streamkit.emit.spool import Spool


class Clock:
    """Time that passes while somebody sleeps."""

    def __init__(self):
        self.now_s = 100.0

    def monotonic(self):
        return self.now_s

    def time(self):
        return 1e9 + self.now_s

    def sleep(self, seconds):
        self.now_s += seconds


class Chance:
    """Returns a fixed share of its range, and records the range."""

    def __init__(self, share):
        self.share = share
        self.ranges = set()

    def uniform(self, low, high):
        self.ranges.add((low, high))
        return low + self.share * (high - low)


@pytest.fixture
def clock(monkeypatch):
    fake_clock = Clock()
    monkeypatch.setattr(module, "time", fake_clock)
    return fake_clock


@pytest.fixture
def flow(tmp_path):
    spools = []

    def go(client, count, max_wait_s=4.0, tries=10**6):
        counters = Counters()
        logged = collect()
        spool = Spool(tmp_path / f"s{len(spools)}", 10_000_000, counters=counters)
        spools.append(spool)
        spool.append([SpoolRecord(b"t", b"", b'{"n":%d}' % n) for n in range(count)])
        sender = Sender(spool, client, max_wait_s, counters)
        sender.run(lambda: not spool.waiting or len(client.tries_s) >= tries)
        dead = spool.folder / NAME
        lines = [json.loads(line) for line in dead.read_text().splitlines()] if dead.exists() else []
        return counters, logged, lines, spool

    yield go
    for spool in spools:
        spool.close()


class Down(Client):
    """Cannot be connected to, but at some tries."""

    where = "mqtt://broker:1883"

    def __init__(self, clock, up=()):
        self._clock = clock
        self._up = up
        self.tries_s = []

    def connect(self):
        self.tries_s.append(self._clock.now_s)
        if len(self.tries_s) not in self._up:
            raise SendError("no connection")

    def deliver(self, messages):
        raise SendError("cut", 1)

    @property
    def waits_s(self):
        return [round(b - a, 6) for a, b in zip(self.tries_s, self.tries_s[1:], strict=False)]


@pytest.mark.parametrize(("share", "factor"), [(1.0, 1.0), (0.0, 0.5)])
def test_waits_double_up_to_the_maximum_with_jitter_of_half(share, factor, clock, flow, monkeypatch):
    chance = Chance(share)
    monkeypatch.setattr(module, "random", chance)
    client = Down(clock)
    flow(client, 10, max_wait_s=4.0, tries=9)
    wanted_s = [0.25, 0.5, 1, 2, 4, 4, 4, 4]
    steps = [pytest.approx(factor * step_s, abs=0.051) for step_s in wanted_s]  # it looks up every 50 ms
    assert client.waits_s == steps
    assert all(wait_s >= factor * step_s - 1e-6 for wait_s, step_s in zip(client.waits_s, wanted_s, strict=True))
    assert chance.ranges == {(0.5, 1.0)}, "emitters that lost one broker do not all come back at one moment"


def test_the_first_wait_is_within_the_maximum(clock, flow, monkeypatch):
    monkeypatch.setattr(module, "random", Chance(1.0))
    client = Down(clock)
    flow(client, 10, max_wait_s=0.3, tries=5)
    assert client.waits_s == [pytest.approx(0.25, abs=0.051), *[pytest.approx(0.3, abs=0.051)] * 3]


def test_a_delivery_resets_the_wait_and_a_connection_does_not(clock, flow, monkeypatch):
    """Try 4 connects and delivers nothing; the wait must go on growing."""
    monkeypatch.setattr(module, "random", Chance(1.0))
    client = Down(clock, up={4})
    flow(client, 10, max_wait_s=100.0, tries=6)
    assert client.waits_s == [pytest.approx(step_s, abs=0.051) for step_s in (0.25, 0.5, 1, 2, 4)]

    class Once(Down):
        """Takes what it is given at its third try, and then nothing any more."""

        def deliver(self, messages):
            if len(self.tries_s) > 3 or self.taken:
                raise SendError("cut")
            self.taken = True

        def idle(self):
            raise SendError("cut")

        taken = False

    client = Once(clock, up=set(range(3, 100)))
    counters = Counters()
    spool = flow(Down(clock), 0, tries=1)[3]
    spool.append([SpoolRecord(b"t", b"", b"{}")])
    sender = Sender(spool, client, 100.0, counters)
    sender.run(lambda: len(client.tries_s) >= 6)
    assert client.waits_s == [pytest.approx(step_s, abs=0.051) for step_s in (0.25, 0.5, 0.25, 0.5, 1)]


def test_the_failure_time_is_that_of_the_first_failure_since_a_connection(clock, flow):
    seen = []

    class Answering(Down):
        def connect(self):
            seen.append(self.sender.failing_since_s)
            super().connect()

    client = Answering(clock, up={3})
    spool = flow(Down(clock), 0, tries=1)[3]
    spool.append([SpoolRecord(b"t", b"", b"{}"), SpoolRecord(b"t", b"", b"{}")])
    client.sender = Sender(spool, client, 1.0, Counters())
    client.sender.run(lambda: len(client.tries_s) >= 5)
    first, second, third, after, later = seen
    assert first is None
    assert second == third == client.tries_s[0]
    assert after == later == client.tries_s[2]


class Breaks(Client):
    """Ends the connection over some records; nothing of what came with them is known to have arrived."""

    where = "mqtt://broker:1883"

    def __init__(self, poison, error=None):
        self.poison = set(poison)
        self.received = []
        self.sizes = []
        self.tries_s = []
        self.error = error or (lambda: SendError("cut", disconnected=True))

    def connect(self):
        self.tries_s.append(0.0)

    def deliver(self, messages):
        numbers = [json.loads(message.body)["n"] for message in messages]
        self.sizes.append(len(numbers))
        if self.poison & set(numbers):
            raise self.error()
        self.received += numbers


def test_a_record_that_ends_the_connection_is_identified_and_dropped_alone(clock, flow):
    client = Breaks({700})
    counters, logged, dead, spool = flow(client, 2000)
    assert client.received == [n for n in range(2000) if n != 700], "in order, and nothing twice"
    assert (counters[SENT], counters[POISON], counters[REFUSED]) == (1999, 1, 0)
    assert client.sizes[:4] == [WINDOW, WINDOW // 8, WINDOW // 4, WINDOW // 2], "smaller, and larger again"
    assert client.sizes.count(1) >= 4
    (letter,) = dead
    assert (letter["topic"], letter["key"], letter["record"]) == ("t", "", {"id": spool.id(701), "n": 700})
    assert letter["why"] == "it was sent alone 4 times, and each time cut"
    assert letter["time"].endswith("Z")
    assert (spool.folder / NAME).stat().st_mode & 0o777 == 0o600
    text = f"mqtt://broker:1883 refuses a record for t: {letter['why']}; it is given up, counted, and kept in "
    assert text + str(spool.folder / NAME) in logged


@pytest.mark.parametrize("strikes", [1, 2, 3])
def test_three_failures_in_a_row_drop_no_record(strikes, clock, flow):
    """A broker that is restarted a few times over one record is no proof against it."""

    class Recovers(Breaks):
        def deliver(self, messages):
            if self.sizes.count(1) == strikes and self.sizes[-1] == 1:
                self.poison.clear()
            return super().deliver(messages)

    client = Recovers({0})
    counters, _, dead, _ = flow(client, 5)
    assert client.received == list(range(5))
    assert (counters[SENT], counters[POISON], dead) == (5, 0, [])


def test_only_consecutive_failures_of_the_same_record_count(clock, flow):
    class Alternates(Breaks):
        """Breaks three times over each record, and then takes it."""

        left = 3

        def deliver(self, messages):
            if len(messages) == 1 and self.left == 0:
                self.left = 3
                self.received += [json.loads(message.body)["n"] for message in messages]
                return
            if len(messages) == 1:
                self.left -= 1
            raise SendError("cut", disconnected=True)

    client = Alternates(())
    counters, _, dead, _ = flow(client, 6)
    assert client.received == list(range(6))
    assert (counters[SENT], counters[POISON], dead) == (6, 0, [])


@pytest.mark.parametrize("error", [lambda: SendError("no disk"), lambda: OSError("no disk"), MemoryError])
def test_a_temporary_refusal_drops_no_record(error, clock, flow):
    client = Breaks({3}, error)
    counters, _, dead, spool = flow(client, 5, tries=40)
    assert (spool.waiting, counters[POISON], dead) == (5, 0, [])
    assert counters[LOST] == 39, "the run ends with the last"
    assert set(client.sizes) == {5}


def test_an_unexpected_error_is_attributed_to_the_record(clock, flow):
    client = Breaks({3}, lambda: UnicodeError("odd"))
    counters, _, dead, spool = flow(client, 5)
    assert (spool.waiting, counters[POISON], counters[SENT]) == (0, 1, 4)
    assert dead[0]["why"] == "it was sent alone 4 times, and each time UnicodeError: odd"


def test_a_record_that_breaks_the_bisection_is_identified(clock, flow):
    class Both(Breaks):
        def deliver(self, messages):
            if len(messages) > 1:
                self.sizes.append(len(messages))
                raise RecordRejected("one of them", 0)
            super().deliver(messages)

    client = Both({2})
    counters, _, dead, _ = flow(client, 20)
    assert sorted(set(client.received)) == [n for n in range(20) if n != 2]
    assert (counters[POISON], len(dead)) == (1, 1)


def test_the_bisection_waits_briefly(clock, flow, monkeypatch):
    monkeypatch.setattr(module, "random", Chance(1.0))
    start_s = clock.now_s
    counters, *_ = flow(Breaks({500}), 1000, max_wait_s=100.0)
    assert counters[POISON] == 1
    assert clock.now_s - start_s < 5, "a run that ends waits 5 s for a broker to take something"


def test_gathered_records_fill_the_window_exactly(clock, tmp_path):
    client = Breaks(())
    client.gather_s = 60.0
    spool = Spool(tmp_path / "s")
    sender = Sender(spool, client, 1.0, Counters())
    sender._window = 4
    calls = []

    def add(*numbers):
        spool.append([SpoolRecord(b"t", b"", b'{"n":%d}' % n) for n in numbers])

    def over():
        calls.append(len(client.sizes))
        if len(calls) == 3:  # the sender has the first three, and waits for others
            add(3, 4, 5, 6, 7)
        sender.draining = bool(client.sizes)
        return sender.draining and not spool.waiting

    add(0, 1, 2)
    sender.run(over)
    spool.close()
    assert client.received == list(range(8))
    assert client.sizes == [4, 4]


@pytest.mark.parametrize(("gather_s", "failures", "sizes"), [(60.0, 0, [2]), (0.0, 0, [1, 1]), (60.0, 1, [1, 1])])
def test_records_are_gathered_for_the_clients_window_but_not_after_a_failure(
    gather_s, failures, sizes, clock, tmp_path
):
    client = Breaks(())
    client.gather_s = gather_s
    spool = Spool(tmp_path / "s")
    spool.append([SpoolRecord(b"t", b"", b'{"n":0}')])
    sender = Sender(spool, client, 1.0, Counters())
    sender._failures = failures
    calls = []

    def over():
        calls.append(len(client.sizes))
        if len(calls) == 4:  # the sender has the first, and waits for another
            spool.append([SpoolRecord(b"t", b"", b'{"n":1}')])
        sender.draining = len(calls) > 8
        return len(calls) > 4 and not spool.waiting

    sender.run(over)
    spool.close()
    assert client.received == [0, 1]
    assert client.sizes == sizes
