"""Stages that look across sources, over real processes: the parent runs them, and gives what one process gives."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.commands import Here
from support.fleets import Runs, runs_fixture, until  # noqa: F401  a fixture
from support.live_fleets import LOOP, Live

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read
from streamkit.runtime.prepare import prepare
from streamkit.runtime.preview.gallery import Gallery
from streamkit.runtime.run import RunConfig

PLUGIN = '''
import time
import numpy as np
from streamkit import BatchStage, FrameStage, StreamStage, stage

@stage("twice", writes="events")
class Twice(FrameStage):
    """Emits two events at each frame."""

    def process(self, frame):
        frame.emit("first", at=frame.index)
        frame.emit("second", by=frame.source)

@stage("across", reads="detections", writes=("events", "rank"), scope="pipeline", changeable=("text", "pause_s"))
class Across(StreamStage):
    """Counts the objects and events of the n-th frames of all sources; the last of these to come has the event."""

    sources: int = 2
    text: str = ""
    pause_s: float = 0.0

    def open(self):
        self.seen, self.nth, self.frames = {}, {}, 0

    def changed(self):
        if self.text == "bad":
            raise ValueError("no such text")

    def process(self, batch, states):
        time.sleep(self.pause_s)
        counts = [0] * len(batch.frames)
        for name in list(batch.tables):
            table = batch.table(name)
            counts = np.bincount(table.batch_row, minlength=len(batch.frames)).tolist()
            batch.tables[name] = table.with_columns(rank=(table.score * 100).astype(np.int32))[table.score > 0.45]
        for frame, count in zip(batch.frames, counts):
            self.frames += 1
            frame.facts["frames"] = self.frames
            nth = self.nth[frame.source] = self.nth.get(frame.source, -1) + 1
            known = self.seen.setdefault(nth, [])
            known.append((frame.source, count, len(frame.events)))
            if len(known) == self.sources:
                frame.emit("total", at=nth, of=sorted(known), text=self.text)
        return batch

@stage("left", writes="events")
class Left(FrameStage):
    """A branch, which fails on one frame."""

    def process(self, frame):
        if frame.source == "a" and frame.index == 5:
            raise ValueError("not five")
        frame.emit("left")

@stage("right", writes="events")
class Right(BatchStage):
    """Another branch; declares no scope."""

    def process(self, batch):
        for frame in batch.frames:
            frame.emit("right")
        return batch
'''
WHOLE = """
sources:
  a: samples/street.mp4
  b: {uri: samples/street.mp4, start: 3s}
  c: {uri: samples/street.mp4, start: 5s}
stages:
  before: {stage: jsonl, path: "OUT/before-{source}.jsonl"}
  detect: {model: demo, min_score: 0.4}
  twice: {}
  track: {}
  across: {sources: 3}
  left: {from: across}
  right: {from: across}
  all: {stage: jsonl, path: OUT/all.jsonl, from: [left, right]}
  own: {stage: jsonl, path: "OUT/{source}.jsonl", from: across}
"""
LIVE = """
  across: {}
  all: {stage: jsonl, path: OUT/all.jsonl}
"""


def plugin(folder: Path) -> None:
    """Add the stages of this file to those that every run has."""
    (path,) = folder.glob("*.py")
    path.write_text(path.read_text() + PLUGIN)


def live_of(folder: Path, sources: dict[str, str], stages: str = LIVE, head: str = "") -> Live:
    live = Live(folder, sources, stages, head)
    plugin(folder)
    return live


def totals(records: list[dict[str, Any]]) -> list[Any]:
    events = [event["data"] for record in records for event in record["events"] if event["kind"] == "total"]
    return sorted(events, key=lambda total: total["at"])


def without_totals(record: dict[str, Any]) -> dict[str, Any]:
    """A record without what depends on which source came first."""
    events = [event for event in record["events"] if event["kind"] != "total"]
    return {**record, "events": events, "frames": None}


@dataclass
class WholeRun:
    """A run of WHOLE: its records by output, its report, and its profile."""

    records: dict[str, list[dict[str, Any]]]
    report: dict[str, Any]
    profile: list[dict[str, Any]]


@pytest.fixture(scope="module")
def whole_runs(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, WholeRun]:
    """Runs of WHOLE with one and with two processes."""
    runs = Runs(root, tmp_path_factory.mktemp("whole"))
    plugin(runs.folder)
    run_by_processes = {}
    for processes in (1, 2):
        runs.out = runs.folder / str(processes)
        profile = runs.folder / f"profile-{processes}.json"
        completed = runs.run(WHOLE, "--limit", 30, "--profile", profile, processes=processes)
        assert completed.returncode == 1, completed.stderr
        assert completed.stderr.count("left failed on a frame 5 ") == 1
        records = {name: runs.records(name) for name in ("all", "a", "b", "c", "before-a")}
        run_by_processes[processes] = WholeRun(records, runs.report, json.loads(profile.read_text())["traceEvents"])
    return run_by_processes


def test_objects_of_all_sources_are_counted_as_in_one_process(whole_runs: dict[int, WholeRun]) -> None:
    single, several = (whole_runs[processes].records for processes in (1, 2))
    reports = {processes: run.report for processes, run in whole_runs.items()}
    whole = totals(several["all"])
    assert totals(single["all"]) == whole
    assert [data["at"] for data in whole] == list(range(30))
    assert any(count for data in whole for _, count, _ in data["of"])
    assert {events for data in whole for _, _, events in data["of"]} == {2}, "complete with those of earlier stages"
    for name in ("a", "b", "c", "before-a"):
        assert list(map(without_totals, single[name])) == list(map(without_totals, several[name]))
    for source in "abc":
        source_records = [
            [without_totals(r) for r in records["all"] if r["source"] == source] for records in (single, several)
        ]
        assert source_records[0] == source_records[1]
        assert len(source_records[1]) == 30
        kinds = Counter(event["kind"] for record in source_records[1] for event in record["events"])
        assert {kinds[kind] for kind in ("first", "second", "right")} == {30}, "each once where branches meet"
    assert [record["frames"] for record in several["all"]] == list(range(1, 91)), "the order of arrival, also below it"
    assert all("rank" in thing for record in several["a"] for thing in record["objects"])
    for key in ("exit_code", "frames", "detections", "events", "counts", "sources"):
        assert reports[1][key] == reports[2][key]
    assert reports[2]["events"]["total"] == 30
    assert list(reports[1]["stages"]) == list(reports[2]["stages"])
    for id_, stage in reports[1]["stages"].items():
        for key in ("frames", "failed"):
            assert stage.get(key) == reports[2]["stages"][id_].get(key)


def test_stages_of_the_parent_are_on_the_timeline_and_in_the_graph(
    runs: Runs, root: Path, here: Here, whole_runs: dict[int, WholeRun]
) -> None:
    events = whole_runs[2].profile
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    frames = Counter[tuple[str, str]]()
    for event in events:
        if event["name"] in ("across", "right", "track") and "frames" in event.get("args", {}):
            frames[names[event["pid"]], event["name"]] += event["args"]["frames"]
    assert frames["streamkit", "across"] == frames["streamkit", "right"] == 90
    assert frames["worker 0", "track"] + frames["worker 1", "track"] == 90
    assert not frames["streamkit", "track"]
    plugin(runs.folder)
    completed = here("graph", runs.write(WHOLE), "--set", "device.processes=2", "--device", "cpu", cwd=root)
    assert completed.stdout.splitlines()[-1] == "parent process, for all sources: across, left, right, all, own"


def test_a_stage_that_needs_pixels_below_a_parent_stage_is_refused_with_the_fix(
    runs: Runs, root: Path, here: Here
) -> None:
    plugin(runs.folder)
    path = runs.write(WHOLE.replace("from: across}\n  right", "from: across}\n  draw: {from: across}\n  right", 1))
    expected = (
        "draw reads pixels below across, which looks across sources (scope: pipeline); set from: track at draw, or "
        "name one device with processes: 1"
    )
    for command in ("run", "check", "graph"):
        completed = here(command, path, "--device", "cpu", "--set", "device.processes=2", cwd=root)
        assert (completed.returncode, expected in completed.stderr) == (2, True)
    for command in ("check", "graph"):
        assert here(command, path, "--device", "cpu", cwd=root).returncode == 0


def test_options_alarms_watchdog_and_viewers_reach_parent_stages(tmp_path: Path) -> None:
    detect = "\n  detect: {model: demo}" + LIVE
    live = live_of(tmp_path, {"a": LOOP, "b": LOOP}, detect, "watchdog: 1s\nalarms: {stuck: stage_call_s > 1}\n")
    gallery = Gallery()
    live.run = prepare(build(read(live.path)), live.path, {}, RunConfig(keep_running=True), gallery=gallery)
    with live.running(gallery=gallery):
        run = live.run
        live.more("a")
        live.more("b")
        run.set("across", {"text": "second"})
        until(lambda: {total["text"] for total in totals(live.records()[-20:])} == {"second"})
        run.set("across", {"text": "bad"})
        until(lambda: run.changeable("across")["text"] == "second")
        assert "no such text" in "".join(live.logged)
        until(lambda: totals(live.records()[-4:]))
        assert totals(live.records())[-1]["text"] == "second"
        assert run.meters()["across"]["frames"] > 20
        assert {"across", "all"} <= run.queues().keys()
        assert run.events["total"] > 5
        shown = gallery.events(1000)
        assert {entry.event.kind for entry in shown if entry.event.stage == "across"} == {"total"}
        run.set("across", {"pause_s": 2.5})
        until(lambda: any("alarm stuck raised" in text and "across" in text for text in live.logged))
        until(lambda: any(text.startswith("across hangs: ") and "sleep(self.pause_s)" in text for text in live.logged))
        run.set("across", {"pause_s": 0})


def test_a_parent_stage_keeps_its_state_if_a_worker_dies(tmp_path: Path) -> None:
    live = live_of(tmp_path, {"a": LOOP, "b": LOOP}, "\n  detect: {model: demo}" + LIVE)
    with live.running():
        live.more("a")
        live.more("b")
        live.kill("a")
        until(lambda: live.run.restarted == 1)
        live.more("a")
        live.more("b")
    records = live.records()
    assert [record["frames"] for record in records] == list(range(1, len(records) + 1))
    for source in "ab":
        indices = live.indices(source)
        assert indices == sorted(set(indices))
