"""The end of a run with an emitter: as long as something is taken it is waited for."""

import itertools
import threading
import time
from types import SimpleNamespace

import pytest
from support.messages import collect

from benchmarks.emitters import add_stages
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Device
from streamkit.core.stage import default_registry
from streamkit.emit.spool import FULL
from streamkit.runtime.execution.runners import _drain
from streamkit.runtime.pipeline import PipelineRun


class Sent:
    """A sender that gets on by one each time that it is looked at, and has `more` before the spool is empty."""

    draining = False

    def __init__(self, more, steps, failing_since_s=None):
        self.failing_since_s = failing_since_s
        self.more = more
        self.steps = steps
        self._delivered = 0

    @property
    def delivered(self):
        self.more -= 1
        self._delivered += self._delivered < self.steps
        return self._delivered


class Waiting:
    acknowledged = 0

    def __init__(self, sender):
        self._sender = sender

    @property
    def waiting(self):
        return max(0, self._sender.more)


def ended(more, steps, drain_timeout, **failing):
    sender = Sent(more, steps, **failing)
    before_s = time.monotonic()
    _drain(SimpleNamespace(sender=sender, queue=Waiting(sender), drain_timeout=drain_timeout))
    assert sender.draining
    return sender.more, time.monotonic() - before_s


def test_buffered_records_of_a_client_count_as_taken():
    """Each step comes in time, all together take longer than `drain_timeout`; only the last is acknowledged."""
    more, took_s = ended(40, 10**9, 0.3)
    assert more <= 0
    assert took_s > 0.3


def test_draining_stops_when_nothing_is_taken():
    more, _ = ended(10**9, 3, 0.1)
    assert more > 0


def test_repeatedly_buffered_records_are_not_progress():
    """As where a disk stays full: each try takes the same records, and loses them."""
    sender = Sent(10**9, 0)
    taken = itertools.cycle([0, 500, 1000])
    flapping = type("Flapping", (Sent,), {"delivered": property(lambda self: next(taken))})
    sender.__class__ = flapping
    before_s = time.monotonic()
    _drain(SimpleNamespace(sender=sender, queue=Waiting(sender), drain_timeout=0.5))
    assert time.monotonic() - before_s > 0.4


@pytest.mark.alone
def test_only_a_recently_lost_broker_gets_the_rest_of_the_drain_time():
    now_s = time.monotonic()
    _, took_s = ended(10**9, 0, 1.0, failing_since_s=now_s - 0.5)
    assert 0.3 < took_s < 0.9
    _, took_s = ended(10**9, 0, 1.0, failing_since_s=now_s - 3600)
    assert took_s < 0.3


def test_a_run_blocked_by_a_full_spool_can_be_stopped(tmp_path):
    """With `block` a pipeline waits for a broker as long as it takes, but not once it is told to stop."""
    registry = default_registry()
    logged = collect()
    add_stages(registry)
    text = f"""
      sources: {{gate: {{stage: numbered_frames, uri: none, count: 1000000000}}}}
      stages:
        ten_objects: {{}}
        out:
          {{stage: mqtt, url: "mqtt://127.0.0.1:9", drain_timeout: 300ms,
            spool: {{path: "{tmp_path}", size: 1MB, when_full: block}}}}
    """
    running = PipelineRun(build(read_text(text, registry=registry)), Device("cpu"))
    codes = []
    thread = threading.Thread(target=lambda: codes.append(running.run()))
    thread.start()
    until_s = time.monotonic() + 30
    while not any("the pipeline waits until there is room" in text for text in logged):
        assert time.monotonic() < until_s
        time.sleep(0.05)
    running.stop()
    thread.join(60)
    assert codes == [130]
    assert running.hung_threads == []
    counts = running.report(130)["counts"]
    assert counts["records left in the spool"] + counts[FULL] == running.frames
