"""A run continues through an edit of the YAML when zones move; counts and track ids continue over a rebuild."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.cameras import WAIT_S, source, until
from support.messages import collect

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read
from streamkit.core.errors import ConfigError
from streamkit.runtime.multiprocess.fleet import WorkerFleet
from streamkit.runtime.reload import watching

PLUGIN = '''
import time

import numpy as np
from streamkit import Detections, FrameStage, Sink, stage

@stage("walker", reads="pixels", writes=("detections",), labels_attribute="names")
class Walker(FrameStage):
    """One person after the other, each of whom walks across the middle of the frame."""

    names = ("person",)

    def process(self, frame):
        step = frame.index % 40
        x = 100 + 5 * step
        box = [] if step > 20 else [[x - 20, 50, x + 20, 150]]
        frame.detections = Detections(
            np.array(box, np.float32).reshape(-1, 4), np.ones(len(box), np.float32), np.zeros(len(box), np.int32),
            labels=self.names,
        )

@stage("people", writes=("detections", "track_id", "embedding"))
class People(FrameStage):
    """Two people who stand still."""

    def process(self, frame):
        boxes = np.array([[10, 10, 30, 50], [60, 10, 80, 50]], np.float32)
        frame.detections = Detections(
            boxes, np.ones(2, np.float32), np.zeros(2, np.int32), track_id=np.array([1, 2]), labels=("person",),
            extra={"embedding": np.eye(4, dtype=np.float32)[:2]},
        )

@stage("events_of")
class EventsOf(Sink):
    """Write a line for each event: run, source, stage, kind, track, in, out."""

    path: str

    def open(self):
        self._file, self._run = open(self.path, "a", buffering=1), time.monotonic_ns()

    def write(self, frame):
        for event in frame.events:
            counts = event.data.get("in", event.data.get("identity", "")), event.data.get("out", "")
            print(self._run, frame.source, event.stage, event.kind, event.track_id, *counts, sep=",", file=self._file)

    def close(self):
        self._file.close()
'''
CAMERA = "{uri: 'test://?width=320&height=240&fps=200&frames=0', pace: realtime}"
LEFT = "[[80, 0], [140, 0], [140, 240], [80, 240]]"
RIGHT = "[[160, 0], [240, 0], [240, 240], [160, 240]]"
AWAY = "[[300, 0], [320, 0], [320, 20], [300, 20]]"
LINE = "[[150, 0], [150, 240]]"
STAGES = f"""
  walker: {{}}
  track: {{track_ttl: 60ms, confirm: 0s, max_frame_gap: 10s}}
  door: {{stage: line_counter, line: {LINE}, track_ttl: 60ms, margin: 5}}
  zone: {{polygon: {{till: {AWAY}}}, track_ttl: 60ms}}
  crowd: {{stage: rule, when: "occupancy(zone.till) > 0"}}
  other: {{stage: rule, when: "count(person) > 5"}}
"""


class ReloadingPipeline:
    """A pipeline on a thread that reloads its edited file, and the events that it has written."""

    def __init__(
        self, folder: Path, sources: str = f"  a: {CAMERA}\n", head: str = "cpu", stages: str = STAGES
    ) -> None:
        self.folder = folder
        self.path = folder / "p.yaml"
        self.events_path = folder / "events.csv"
        (folder / "plugin.py").write_text(PLUGIN)
        self.head = head
        self.sources = sources
        self.edit(stages)
        self.logged = collect()
        self.run: Any = watching(self.path, lambda: build(read(self.path, may_be_empty=True)), None, poll_s=0.1)

    def text(self, stages: str, sources: str | None = None) -> str:
        sources = self.sources if sources is None else sources
        sink = f"  written: {{stage: events_of, path: {self.events_path}, from: other}}\n"
        return f"device: {self.head}\nplugins: [plugin.py]\nsources:\n{sources}stages:{stages}{sink}"

    def edit(self, stages: str, sources: str | None = None) -> None:
        self.path.write_text(self.text(stages, sources))

    def rebuild(self, stages: str, sources: str | None = None) -> None:
        """Edit the file and wait for the rebuilt pipeline."""
        before = self.run.current
        self.edit(stages, sources)
        until(lambda: self.run.current is not before and self.run.ready)

    def events(self, stage: str, *, last_run: bool = False) -> list[list[str]]:
        """Return source, kind, track, in and out of each event of a stage."""
        rows = [line.split(",") for line in self.events_path.read_text().splitlines() if line.count(",") == 6]
        runs = {rows[-1][0]} if last_run else {row[0] for row in rows}
        return [[row[1], *row[3:]] for row in rows if row[2] == stage and row[0] in runs]

    def wait_for_events(self, stage: str, count: int = 4) -> None:
        """Wait for `count` further events of a stage."""
        events_before = len(self.events(stage))
        until(lambda: len(self.events(stage)) >= events_before + count)

    @contextmanager
    def running(self) -> Iterator["ReloadingPipeline"]:
        thread = threading.Thread(target=self.run.run, daemon=True)
        thread.start()
        try:
            until(lambda: self.run.ready)
            yield self
        finally:
            self.run.stop()
            thread.join(WAIT_S)
            assert not thread.is_alive()


def crossing_totals(rows: list[list[str]]) -> list[int]:
    """Return the total of crossings that each event `crossed` reports."""
    return [int(entered) + int(left) for *_, entered, left in rows]


def test_rules_below_use_a_moved_zone_without_a_rebuild(tmp_path):
    pipeline = ReloadingPipeline(tmp_path)
    with pipeline.running():
        pipeline.wait_for_events("door")
        first = pipeline.run.current
        assert pipeline.events("crowd") == []
        pipeline.edit(STAGES.replace(AWAY, RIGHT))
        pipeline.wait_for_events("crowd")
        assert {row[1] for row in pipeline.events("crowd")} == {"raised", "cleared"}
        pipeline.edit(STAGES.replace(AWAY, "[[310, 0], [320, 0], [320, 20], [310, 20]]"))
        until(lambda: len(pipeline.logged) == 2)
        pipeline.wait_for_events("door", 2)
        raised = pipeline.events("crowd")
        pipeline.wait_for_events("door")
        assert pipeline.events("crowd") == raised
        assert pipeline.run.current is first
        assert pipeline.logged == [f"{pipeline.path}: options of zone changed: polygon"] * 2
    crossed = crossing_totals(pipeline.events("door"))
    assert crossed == list(range(1, len(crossed) + 1))


def test_rules_below_use_a_zone_moved_through_the_api(tmp_path):
    pipeline = ReloadingPipeline(tmp_path)
    with pipeline.running():
        pipeline.run.set("zone", {"polygon": {"till": [[160, 0], [240, 0], [240, 240], [160, 240]]}})
        pipeline.wait_for_events("crowd", 2)
        with pytest.raises(ConfigError, match=r"the rule crowd cannot follow: .*till"):
            pipeline.run.set("zone", {"polygon": {"desk": [[0, 0], [90, 0], [90, 90]]}})
        pipeline.wait_for_events("crowd", 2)


def test_an_area_used_by_a_rule_cannot_be_removed_alone(tmp_path):
    pipeline = ReloadingPipeline(tmp_path)
    pipeline.edit(STAGES.replace("till: [[", "desk: [["))
    with pipeline.running():
        until(lambda: pipeline.run.rejected or len(pipeline.logged) > 1)
        assert "till" in pipeline.run.rejected


def test_rules_use_a_stored_zone_after_a_restart(tmp_path):
    pipeline = ReloadingPipeline(tmp_path, head=f"cpu\nstate: {tmp_path}/state.db")
    with pipeline.running():
        pipeline.run.set("zone", {"polygon": {"till": [[160, 0], [240, 0], [240, 240], [160, 240]]}})
        pipeline.wait_for_events("crowd", 2)
    restarted = ReloadingPipeline(tmp_path, head=f"cpu\nstate: {tmp_path}/state.db")
    with restarted.running():
        restarted.wait_for_events("crowd", 2)


def assert_counts_and_track_ids_continue(pipeline: ReloadingPipeline, ids: str) -> None:
    for id_ in ids:
        crossed = [row for row in pipeline.events("door") if row[0] == id_]
        assert crossing_totals(crossed) == list(range(1, len(crossed) + 1))
        tracks = [int(row[2]) for row in crossed]
        assert tracks == sorted(tracks)
        assert len(set(tracks)) == len(tracks)


def test_counts_and_track_ids_continue_over_a_rebuild(tmp_path):
    pipeline = ReloadingPipeline(tmp_path, sources=f"  a: {CAMERA}\n  b: {CAMERA}\n")
    with pipeline.running():
        pipeline.wait_for_events("door", 6)
        pipeline.rebuild(f"{STAGES}  more: {{stage: rule, when: 'count(person) > 6'}}\n")
        events_before = len(pipeline.events("door"))
        assert sum(n for name, n in pipeline.run.counts().items() if name.startswith("door ")) >= events_before
        assert pipeline.run.events["crossed"] >= events_before
        pipeline.wait_for_events("door", 6)
        pipeline.rebuild(STAGES)
        pipeline.wait_for_events("door", 6)
        assert pipeline.run.meters()["door"]["frames"] > pipeline.run.current.meters()["door"]["frames"]
    assert pipeline.run.report(130)["restarts"] == 2
    assert pipeline.run.events["crossed"] == pipeline.run.report(130)["events"]["crossed"]
    assert_counts_and_track_ids_continue(pipeline, "ab")


@pytest.mark.slow
def test_processes_use_a_moved_zone_and_hand_over_their_counts(tmp_path):
    pipeline = ReloadingPipeline(tmp_path, sources=f"  a: {CAMERA}\n  b: {CAMERA}\n", head="{use: cpu, processes: 2}")
    with pipeline.running():
        first = pipeline.run.current
        assert isinstance(first, WorkerFleet)
        pipeline.wait_for_events("door", 4)
        assert pipeline.events("crowd") == []
        pipeline.edit(STAGES.replace(AWAY, RIGHT))
        until(lambda: {row[0] for row in pipeline.events("crowd")} == {"a", "b"})
        assert pipeline.run.current is first
        os.kill(first.sources.owner("a").child.pid, signal.SIGKILL)  # its successor uses the moved zone
        until(lambda: first.restarted and pipeline.run.states["a"].state == "running")
        events_before = len([row for row in pipeline.events("crowd") if row[0] == "a"])
        until(lambda: len([row for row in pipeline.events("crowd") if row[0] == "a"]) > events_before + 2)
        pipeline.rebuild(f"{STAGES}  more: {{stage: rule, when: 'count(person) > 6'}}\n")
        pipeline.wait_for_events("door", 6)
    assert_counts_and_track_ids_continue(pipeline, "b")  # the killed process loses the counts of source a


def test_moved_lines_and_edited_sources_start_at_zero_after_a_rebuild(tmp_path):
    lines = STAGES.replace(LINE, f"{{one: {LINE}, two: [[160, 0], [160, 240]]}}")
    pipeline = ReloadingPipeline(tmp_path, f"  a: {CAMERA}\n  b: {CAMERA}\n", stages=lines)
    with pipeline.running():
        pipeline.wait_for_events("door", 8)
        edited = lines.replace("[[160, 0], [160, 240]]", "[[161, 0], [161, 240]]")
        slower = CAMERA.replace("fps=200", "fps=190")
        pipeline.rebuild(f"{edited}  more: {{stage: rule, when: person}}\n", f"  a: {CAMERA}\n  b: {slower}\n")
        pipeline.wait_for_events("door", 8)
        rows = pipeline.events("door", last_run=True)
    # of the lines `one` and `two`
    first = {id_: crossing_totals([row for row in rows if row[0] == id_])[:2] for id_ in "ab"}
    assert first["b"] == [1, 1]
    assert first["a"][0] > 1
    assert first["a"][1] == 1
    assert min(int(row[2]) for row in rows if row[0] == "b") == 1
    assert min(int(row[2]) for row in rows if row[0] == "a") > 1


def test_a_removed_source_starts_at_zero_when_an_edit_adds_it_again(tmp_path):
    pipeline = ReloadingPipeline(tmp_path, sources=f"  a: {CAMERA}\n  b: {CAMERA}\n")
    with pipeline.running():
        pipeline.wait_for_events("door", 4)
        pipeline.edit(STAGES, f"  a: {CAMERA}\n")
        until(lambda: "b" not in pipeline.run.states)
        pipeline.rebuild(f"{STAGES}  more: {{stage: rule, when: person}}\n", f"  a: {CAMERA}\n  b: {CAMERA}\n")
        pipeline.wait_for_events("door", 4)
        rows = pipeline.events("door", last_run=True)
    assert crossing_totals([row for row in rows if row[0] == "b"])[0] == 1
    assert crossing_totals([row for row in rows if row[0] == "a"])[0] > 1


def test_a_source_readded_after_a_rebuild_starts_at_zero(tmp_path):
    pipeline = ReloadingPipeline(tmp_path)
    with pipeline.running():
        pipeline.wait_for_events("door", 4)
        pipeline.rebuild(f"{STAGES}  more: {{stage: rule, when: person}}\n")
        pipeline.wait_for_events("door", 2)
        pipeline.run.remove("a")
        added = source(pipeline.run, "a", uri="test://?width=320&height=240&fps=200&frames=0", pace="realtime")
        pipeline.run.add(added)
        pipeline.wait_for_events("door", 3)
    assert min(crossing_totals(pipeline.events("door", last_run=True))) == 1


def test_identities_survive_a_rebuild(tmp_path):
    stages = "\n  people: {}\n  identify: {confirm: 50ms}\n  other: {stage: rule, when: person, track_ttl: 1s}\n"
    pipeline = ReloadingPipeline(tmp_path, stages=stages)
    with pipeline.running():
        until(lambda: len(pipeline.events("identify")) == 2)
        pipeline.rebuild(stages.replace("track_ttl: 1s", "track_ttl: 2s"))
        until(lambda: len(pipeline.events("other")) == 2 + 2)  # raised for each person, once in each run
        until(lambda: pipeline.run.current.frames > 400)  # an identity is events_before after a second
        assert pipeline.events("identify", last_run=True) == []  # nobody comes
    assert [row[3] for row in pipeline.events("identify")] == ["1", "2"]


def test_no_state_is_left_after_the_run(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "tmp").mkdir()
    pipeline = ReloadingPipeline(tmp_path)
    with pipeline.running():
        pipeline.wait_for_events("door", 2)
        assert list((tmp_path / "tmp").iterdir()) == []
        pipeline.rebuild(f"{STAGES}  more: {{stage: rule, when: person}}\n")
        (folder,) = (tmp_path / "tmp").iterdir()
        assert folder.stat().st_mode & 0o777 == 0o700
    assert list((tmp_path / "tmp").iterdir()) == []
