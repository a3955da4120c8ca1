"""A broker that is away for an hour: what the spool may hold is all there, and what it may not is counted exactly."""

import json
import tempfile
from pathlib import Path

import pytest
from support.brokers import PLACES
from support.messages import collect

from benchmarks import emitters
from streamkit.core.counters import Counters
from streamkit.emit.client import Client, SendError
from streamkit.emit.segment_file import SpoolRecord
from streamkit.emit.sender import LOST, SENT, Sender
from streamkit.emit.spool import FULL, OLD, Spool

HOUR_S = 3600
PER_S = 10
ALL = HOUR_S * PER_S


class Back(Client):
    """A broker that is there again after some tries; while it takes what has waited, `live` records come in."""

    def __init__(self, live=lambda: None, tries=2):
        self.live = live
        self.tries = tries
        self.received = []

    def connect(self):
        self.tries -= 1
        if self.tries >= 0:
            raise SendError("not there")

    def deliver(self, messages):
        self.received += [json.loads(message.body)["n"] for message in messages]
        self.live()


class Hour:
    """A spool into which records come in, a second after the other of its own clock."""

    def __init__(self, folder, **options):
        self.now_s = 1e9
        self.count = 0
        self.counters = Counters()
        self.logged = collect()
        self._folder = folder / "s"
        self._options = options
        self.spool = self._open()

    def _open(self):
        return Spool(self._folder, **self._options, counters=self.counters, clock=lambda: self.now_s)

    def passes(self, seconds=HOUR_S):
        for _ in range(seconds):
            self.now_s += 1
            numbers = range(self.count, self.count + PER_S)
            self.spool.append([SpoolRecord(b"t", b"", b'{"n":%d,"source":"gate","objects":[]}' % n) for n in numbers])
            self.count += PER_S
            assert self.spool.size_bytes <= self._options.get("size", 1e9)

    def restart(self):
        self.spool.close()
        self.spool = self._open()

    def send(self, client):
        Sender(self.spool, client, 0.3, self.counters).run(lambda: not self.spool.waiting)
        return client.received


@pytest.fixture
def hour(tmp_path):
    hours = []

    def begin(**options):
        hours.append(Hour(tmp_path, **options))
        return hours[-1]

    yield begin
    for opened in hours:
        opened.spool.close()


def test_an_hour_of_records_is_sent_in_order_with_new_records(hour):
    outage = hour(age_s=2 * HOUR_S)
    outage.passes()
    assert outage.spool.waiting == ALL

    def live():
        if outage.count < ALL + 30 * PER_S:
            outage.passes(1)

    client = Back(live)
    assert outage.send(client) == list(range(ALL + 30 * PER_S))
    assert outage.counters.values == {SENT: ALL + 30 * PER_S, LOST: 2}
    assert sum(
        "not there; records wait in the spool; the emitter retries until it succeeds" in text for text in outage.logged
    )


def test_an_hour_of_records_survives_a_restart_of_the_pipeline(hour):
    outage = hour()
    for _ in range(4):
        outage.passes(HOUR_S // 4)
        outage.restart()
    assert outage.send(Back()) == list(range(ALL))


def test_records_above_the_spools_size_are_counted_and_the_newest_remain(hour):
    outage = hour(size=1_000_000)
    outage.passes()
    dropped = outage.counters[FULL]
    assert 0 < dropped < ALL
    assert outage.send(Back()) == list(range(dropped, ALL))
    assert outage.counters.values == {FULL: dropped, SENT: ALL - dropped, LOST: 2}


def test_records_above_the_spools_age_are_counted(hour):
    half = HOUR_S // 2
    outage = hour(age_s=half)
    outage.passes()
    numbers = outage.send(Back())
    assert numbers == list(range(ALL - PER_S * (half + 1), ALL)), "those of the last half an hour, to the second"
    assert outage.counters.values == {OLD: ALL - len(numbers), SENT: len(numbers), LOST: 2}


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [name for name in emitters.EMITTERS if name != "sqlite"])
def test_the_backlog_is_sent_at_five_times_the_live_rate_without_delaying_live_records(name):
    if (reason := PLACES[name].server.missing()) is not None:
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="streamkit-hour-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # some do not run as root
        measured = emitters.measure(name, Path(folder))
    assert measured["caught_up_live_per_s"] >= 5 * emitters.LIVE_PER_S
    assert measured["live_took_longer"] < 1.15
