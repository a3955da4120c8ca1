"""A sink for which nobody waits: real threads, a real pipeline."""

import threading
import time

import pytest
from support.rtsp import wait_until

from streamkit.core.errors import OutputError
from streamkit.core.stage import Collecting, Sink, default_registry, stage
from streamkit.runtime.execution.runners import DROPPED


def sink(**hooks):
    """A sink that may drop, and does what the hooks say; `seen` is what it was given, by source."""
    seen = {}
    opened = []
    closed = []
    with Collecting(default_registry()):

        @stage("slow", target="url", may_drop=True)
        class Slow(Sink):
            """Take its time."""

            url: str = "x/{source}"

            def probe(self):
                hooks.get("probe", lambda url: None)(self.url)

            def open(self):
                opened.append((self.url, threading.current_thread().name))

            def write(self, frame):
                hooks.get("write", lambda frame: None)(frame)
                seen.setdefault(frame.source, []).append(frame.index)

            def close(self):
                closed.append(self.url)
                hooks.get("close", lambda: None)()

    Slow.seen = seen
    Slow.opened = opened
    Slow.closed = closed
    return Slow


TEXT = """
sources: {a: "test://?frames=200", b: "test://?frames=200"}
stages:
  slow: {url: "x/{source}"}
  collect: {}
"""


def test_each_source_has_an_instance_and_a_thread(run_pipeline):
    slow = sink(write=lambda frame: time.sleep(0.001))
    processed = run_pipeline(TEXT, extra=[slow])
    assert processed.code == 0
    assert sorted(slow.opened) == [("x/a", "slow/a"), ("x/b", "slow/b")]
    assert sorted(slow.closed) == ["x/a", "x/b"]
    for source in "ab":
        assert [record["frame"] for record in processed.records[source]] == list(range(200)), (
            "all go on to the stages behind"
        )
        assert slow.seen[source] == sorted(set(slow.seen[source]))
        assert slow.seen[source][-1] == 199, "the newest is written, whatever was dropped"
    written = sum(map(len, slow.seen.values()))
    assert written + processed.report["counts"].get(DROPPED, 0) == 400


def test_a_blocking_instance_does_not_delay_the_others(run_pipeline):
    gate = threading.Event()

    def write(frame):
        if frame.source == "a":
            gate.wait(60)

    slow = sink(write=write, close=gate.set)
    opener = threading.Thread(target=lambda: (wait_until(lambda: slow.seen.get("b", [0])[-1] >= 150), gate.set()))
    opener.start()
    processed = run_pipeline(TEXT, extra=[slow])
    opener.join()
    assert len(processed.records["a"]) == 200
    assert len(slow.seen["b"]) > 5
    assert processed.report["counts"][DROPPED] > 0


def test_an_error_of_an_instance_is_reported_and_the_run_continues(run_pipeline):
    def write(frame):
        if frame.index == 199:
            raise ValueError("no such thing")

    processed = run_pipeline(TEXT, extra=[sink(write=write)])
    assert len(processed.records["a"]) == len(processed.records["b"]) == 200
    assert processed.report["counts"]["frames failed"] == 2
    assert any("slow failed on a frame 199" in text and "no such thing" in text for text in processed.logged)


def test_an_instance_that_cannot_continue_fails_alone(run_pipeline):
    def write(frame):
        raise OutputError("the end of it")

    processed = run_pipeline(TEXT, extra=[sink(write=write)])
    assert len(processed.records["a"]) == 200
    assert processed.report["counts"]["instances failed"] == 2
    assert any("slow failed: the end of it" in text for text in processed.logged)


def test_an_invalid_configuration_is_refused_before_the_first_frame(run_pipeline):
    def probe(url):
        raise OutputError(f"nobody takes {url}")

    with pytest.raises(OutputError, match="nobody takes x/a"):
        run_pipeline(TEXT, extra=[sink(probe=probe)])


def test_an_instance_that_hangs_at_the_end_is_abandoned(run_pipeline, monkeypatch):
    from streamkit.runtime.execution import runners

    monkeypatch.setattr(runners, "_GRACE_S", 0.2)
    gate = threading.Event()
    processed = run_pipeline(TEXT, extra=[sink(write=lambda frame: gate.wait(60))])
    assert any("slow/a does not end and is abandoned" in text for text in processed.logged)
    assert len(processed.records["a"]) == 200
    gate.set()
