"""At least once, in order for each source, and once after repeats are dropped: with faults that are real."""

import itertools
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

import pytest
from support.brokers import PLACES, place  # noqa: F401  a fixture

from streamkit.core.stage import default_registry
from streamkit.emit.broker import brokers

SPOOL_PROCESS = Path(__file__).parents[1] / "support" / "spool_process.py"
BROKERS = brokers(default_registry())
WITH_GATE = [kind for kind, place_class in PLACES.items() if place_class.server is not None and place_class.has_gate]
WITH_PASSWORD = [kind for kind in WITH_GATE if kind != "webhook"]  # a webhook's requests are signed
FREEZES = [kind for kind in WITH_GATE if PLACES[kind].freezes]
QUICK = ("mqtt", "redis")


def quick_first(kinds):
    """The others go through the same code as the quick ones; in their clients' own tests they meet the fault too."""
    return [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.soak) for kind in kinds]


class Life:
    """A pipeline's process, and what it says it has written into its spool."""

    def __init__(self, options, names, frames, rate):
        self.safe: dict[str, int] = {}
        self.process = subprocess.Popen(
            [sys.executable, str(SPOOL_PROCESS), json.dumps(options), ",".join(names), str(frames), str(rate)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._logged: list[str] = []
        self._readers = [threading.Thread(target=self._read), threading.Thread(target=self._listen)]
        for reader in self._readers:
            reader.start()

    def _read(self):
        for line in self.process.stdout:
            if line.endswith("\n"):  # the last one may be half a line
                source, index = line.split()
                self.safe[source] = int(index)

    def _listen(self):
        self._logged += self.process.stderr

    def wait_for_first(self):
        until_s = time.monotonic() + 300
        while not self.safe and time.monotonic() < until_s and self.process.poll() is None:
            time.sleep(0.01)
        assert self.safe, self.logged

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        return self.end()

    def end(self, timeout=120):
        code = self.process.wait(timeout)
        for reader in self._readers:
            reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return code

    @property
    def logged(self):
        return "".join(self._logged)


def once(records):
    """Frame indices by source, in order of first arrival; how many repeats there were."""
    frames_by_source = defaultdict(list)
    records_by_id = {}
    repeats = 0
    for record in records:
        id_ = record.pop("id")
        if id_ in records_by_id:
            assert records_by_id[id_] == record, "an id stands for one record only"
            repeats += 1
            continue
        records_by_id[id_] = record
        frames_by_source[record["source"]].append(record["frame"])
    return dict(frames_by_source), repeats


def with_spool(there, folder, **more):
    return {"stage": there.kind, **there.options(), "spool": {"path": str(folder / "spool")}, "timeout": "1s", **more}


def bring_the_rest(options):
    """Runs that send what is left in the spool: while a broker that was killed starts, it lets nobody in."""
    until_s = time.monotonic() + 120
    for n in itertools.count():
        last = Life({**options, "timeout": "30s", "drain_timeout": "30s"}, [f"last{n}"], 1, 1)
        assert last.end(900) == 0
        if "are left in" not in last.logged:
            return
        assert time.monotonic() < until_s, last.logged
        time.sleep(0.5)


def survive(there, folder, *, broker_kills, pipeline_kills, rate, shortest_s=0.2, longest_s=0.6, seed=1):
    """Kill both at random moments while frames of two sources flow; then let the rest out, and count."""
    chance = random.Random(seed)
    faults = ["broker"] * broker_kills + ["pipeline"] * pipeline_kills
    chance.shuffle(faults)
    options = with_spool(there, folder)
    safe: dict[str, int] = {}
    number = 0

    def begin():
        nonlocal number
        number += 1
        life = Life(options, [f"gate{number}", f"yard{number}"], 10**9, rate // 2)
        life.wait_for_first()
        return life

    life = begin()
    for fault in faults:
        time.sleep(chance.uniform(shortest_s, longest_s))
        if fault == "broker":
            there.restart()
        else:
            life.kill()
            safe |= life.safe
            life = begin()
    time.sleep(chance.uniform(shortest_s, longest_s))
    life.process.send_signal(signal.SIGKILL)
    life.end()
    safe |= life.safe
    bring_the_rest(options)
    frames_by_source, repeats = once(there.received())
    assert frames_by_source.keys() >= safe.keys()
    for source, frames in frames_by_source.items():
        assert frames == list(range(len(frames))), f"{source}: in order, and none is missing"
        assert len(frames) > safe.get(source, -1), f"{source}: what was written into the spool has arrived"
    return sum(map(len, frames_by_source.values())), repeats


@pytest.mark.parametrize("kind", PLACES)
def test_nothing_is_lost_when_broker_and_pipeline_are_killed(kind, place, tmp_path):  # noqa: F811
    survive(place(kind), tmp_path, broker_kills=1, pipeline_kills=1, rate=1000)


@pytest.mark.soak
@pytest.mark.timeout(1800)  # RabbitMQ takes seconds to start
@pytest.mark.parametrize("kind", PLACES)
def test_nothing_is_lost_in_twenty_kills_of_broker_and_pipeline(kind, place, tmp_path):  # noqa: F811
    seed = random.randrange(10**6)
    there = place(kind)
    records, repeats = survive(
        there, tmp_path, broker_kills=20, pipeline_kills=20, rate=2000, shortest_s=0.2, longest_s=1.5, seed=seed
    )
    print(f"\n{kind}: {records} records, {repeats} repeats, seed {seed}")
    assert records > 20_000


@pytest.mark.parametrize("kind", WITH_GATE)
def test_a_connection_cut_before_the_acknowledgement_gives_repeats_and_no_gap(kind, place, tmp_path):  # noqa: F811
    there = place(kind)
    options = with_spool(there, tmp_path)
    life = Life(options, ["gate"], 1500, 1000)
    life.wait_for_first()
    time.sleep(0.2)
    there.gate.swallow = True
    until_s = time.monotonic() + 10
    while not there.gate.swallowed and time.monotonic() < until_s:
        time.sleep(0.05)
    time.sleep(0.2)
    there.gate.cut()
    there.gate.swallow = False
    assert life.end() == 0
    if "are left in" in life.logged:  # a broker that is slow to let one in again
        bring_the_rest(options)
    frames_by_source, repeats = once(there.received())
    assert frames_by_source["gate"] == list(range(1500))
    if not BROKERS[kind].repeats:  # by its primary key, or its stream
        assert repeats > 0


@pytest.mark.parametrize("kind", quick_first(FREEZES))
def test_a_broker_that_hangs_is_disconnected_and_reconnected(kind, place, tmp_path):  # noqa: F811
    there = place(kind)
    life = Life(with_spool(there, tmp_path, max_backoff="500ms", drain_timeout="60s"), ["gate"], 2500, 1000)
    life.wait_for_first()
    time.sleep(0.1)
    there.broker.freeze()
    time.sleep(1.6)
    there.broker.thaw()
    assert life.end() == 0
    frames_by_source, _ = once(there.received())
    assert frames_by_source == {"gate": list(range(2500))}, life.logged
    assert "records wait in the spool" in life.logged


@pytest.mark.parametrize("kind", quick_first(WITH_PASSWORD))
def test_a_wrong_password_is_reported_without_showing_it_and_loses_nothing(kind, place, tmp_path):  # noqa: F811
    there = place(kind)
    wrong = {**with_spool(there, tmp_path, drain_timeout="500ms"), **there.options("wr0ng/secret")}
    life = Life(wrong, ["gate"], 50, 500)
    assert life.end() == 0, "a broker that does not let us in is a warning"
    assert "50 records are left" in life.logged
    assert "records wait in the spool; the emitter retries" in life.logged
    for secret in ("wr0ng/secret", "wr0ng%2Fsecret", "wr0ng"):
        assert secret not in life.logged
        assert not any(secret.encode() in path.read_bytes() for path in (tmp_path / "spool").iterdir())
    again = Life(with_spool(there, tmp_path), ["last"], 1, 1)
    assert again.end() == 0
    frames_by_source, _ = once(there.received())
    assert frames_by_source == {"gate": list(range(50)), "last": [0]}
    assert "50 records of an earlier run are in" in again.logged
