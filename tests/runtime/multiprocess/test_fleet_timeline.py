"""`--profile` over several processes: one timeline of all, in which every process has its tracks."""

import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from support.fleets import PATTERN, Runs, runs_fixture, shares_of, until  # noqa: F401  a fixture
from support.timelines import check, spans

from streamkit.runtime.multiprocess import messages
from streamkit.runtime.multiprocess.children import ParentConnection
from streamkit.runtime.multiprocess.messages import SourceOrder
from streamkit.runtime.multiprocess.worker import WorkerConfig, work

PIPELINE = """
sources:
  a: {uri: samples/street.mp4, pace: realtime}
  b: {uri: samples/street.mp4, pace: realtime}
stages:
  detect: {model: demo}
  all: {stage: jsonl, path: OUT/all.jsonl}
  one: {stage: jsonl, path: "OUT/{source}.jsonl"}
"""


def timeline(path: Path) -> tuple[dict[str, Any], dict[str, dict[str, list[dict[str, Any]]]]]:
    """The file, once it keeps the format's rules; and its spans, by process and name."""
    profile = check(json.loads(path.read_text()))
    names = {e["pid"]: e["args"]["name"] for e in profile["traceEvents"] if e["name"] == "process_name"}
    by_process: dict[str, dict[str, list[dict[str, Any]]]] = {name: defaultdict(list) for name in names.values()}
    for span in spans(profile):
        by_process[names[span["pid"]]][span["name"]].append(span)
    return profile, by_process


def times(some: list[dict[str, Any]]) -> tuple[float, float]:
    """When the first of these spans begins, and when the last one ends, in seconds."""
    return min(span["ts"] for span in some) / 1e6, max(span["ts"] + span["dur"] for span in some) / 1e6


def test_all_processes_share_a_timeline(runs: Runs) -> None:
    completed = runs.run(PIPELINE, "--limit", 40, "--profile", runs.folder / "p.json")
    assert completed.returncode == 0, completed.stderr
    profile, processes = timeline(runs.folder / "p.json")
    assert list(processes) == ["streamkit", "worker 0", "worker 1"]
    for source, name in (("a", "worker 0"), ("b", "worker 1")):
        worker = processes[name]
        assert [span["args"]["source"] for span in worker["decode"]] == [source] * len(worker["decode"])
        assert len(worker["decode"]) >= 40
        report = runs.report["sources"][source]
        dropped = sum(report.get("dropped", {}).values())  # on a busy machine
        for stage in ("detect.infer", "all", "one"):
            assert sum(span["args"]["frames"] for span in worker[stage]) == report["frames"] - dropped
    parent = processes["streamkit"]
    assert sum(span["args"]["frames"] for span in parent["all"]) == runs.report["frames"]
    assert not parent["decode"]
    (start_a, ended_a), (start_b, ended_b) = (times(processes[f"worker {n}"]["decode"]) for n in range(2))
    together_s = min(ended_a, ended_b) - max(start_a, start_b)
    assert together_s > 0.5 * (max(ended_a, ended_b) - min(start_a, start_b)), "the clock is the same"
    assert times(parent["all"])[0] > min(start_a, start_b)
    assert profile["otherData"]["shares of time"]["source"]["threads"] == 2
    assert "processes without events" not in profile["otherData"]
    assert f"profile: {runs.folder / 'p.json'}, " in completed.stderr


class Late(ParentConnection):
    """A parent that waits for other processes before it sends `Go`."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.ready = threading.Event()
        self.sent_begin = False

    def send(self, message: Any) -> None:
        self.sent.append(message)
        if message == messages.Ready():
            self.ready.set()

    def orders(self) -> Iterator[messages.Order]:
        if not self.sent_begin:
            self.sent_begin = True
            yield messages.Begin()
        assert self.ready.wait(60)
        time.sleep(2.0)
        yield messages.Go()
        yield messages.Finish()


def test_totals_of_workers_start_when_all_processes_are_ready(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(f"sources: {{a: '{PATTERN.format(frames=3)}'}}\nstages: {{jsonl: {{path: '{tmp_path}/a.jsonl'}}}}")
    link = Late()
    here, there = Pipe(duplex=False)
    work(link, WorkerConfig(path, None, {}, "cpu", (SourceOrder("a", 1),), (), trace=100), there)
    here.close()
    trace, end = link.sent[-2:]
    assert end == messages.End(0), "the parent does not wait longer after the end"
    (lane,) = (track for track in trace.recording.tracks if track.name == "jsonl/0")
    assert lane.wait_s["wait for input"] < 2.0, "it has waited longer, but for the others"


def test_a_dead_process_does_not_affect_the_timeline_of_the_others(runs: Runs) -> None:
    running = runs.start(PIPELINE, "--limit", 60, "--profile", runs.folder / "p.json")
    until(lambda: (runs.out / ".all.jsonl.part").exists() and (runs.out / ".all.jsonl.part").stat().st_size)
    shares_of(running)[0].kill()
    _, log = running.communicate(timeout=60)
    assert "Traceback" not in log
    profile, processes = timeline(runs.folder / "p.json")
    assert list(processes) == ["streamkit", "worker 1"]
    assert profile["otherData"]["processes without events"] == ["worker 0"]
    assert "profile: no events of worker 0, which died" in log
    decoded = defaultdict(int)
    for span in processes["worker 1"]["decode"]:
        decoded[span["args"]["source"]] += 1
    assert decoded["b"] >= 60, "from its beginning to its end"
    assert decoded["a"] >= 60, "which was restarted there"
