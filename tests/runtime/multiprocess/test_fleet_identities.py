"""Identities outlive the process that reads a camera, and, with `state`, the parent process."""

from pathlib import Path
from typing import Any

from support.fleets import until
from support.live_fleets import CAMERA, Live

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read
from streamkit.core.data import Device
from streamkit.runtime.pipeline import PipelineRun
from streamkit.runtime.run import RunConfig

PLUGIN = '''
import numpy as np
from streamkit import Detections, FrameStage, stage

@stage("people", writes=("detections", "track_id", "embedding", "who"))
class People(FrameStage):
    """Two people. A process that begins later numbers their tracks the other way round."""

    def open(self):
        self.swapped = None

    def process(self, frame):
        if self.swapped is None:
            self.swapped = frame.index > 0
        who = np.array([1, 0] if self.swapped else [0, 1])
        frame.detections = Detections(
            np.array([[10, 10, 30, 50], [60, 10, 80, 50]], np.float32)[who], np.ones(2, np.float32),
            np.zeros(2, np.int32), track_id=np.array([1, 2]), labels=("person",),
            extra={"embedding": np.eye(4, dtype=np.float32)[who], "who": who},
        )
'''
STAGES = """
  people: {}
  identify: {confirm: 100ms}
  all: {stage: jsonl, path: OUT/all.jsonl}
"""


def live_of(folder: Path) -> Live:
    live = Live(folder, {"a": CAMERA, "b": CAMERA}, STAGES, f"state: {folder / 'state.db'}\n")
    path = folder / "live.py"
    path.write_text(path.read_text() + PLUGIN)
    return live


def identities(records: list[dict[str, Any]]) -> set[tuple[int, int]]:
    """Who has which identity, in some records."""
    return {(o["who"], o["identity"]) for record in records for o in record["objects"] if "identity" in o}


def test_identities_survive_a_killed_process_and_a_restart_of_the_parent(tmp_path: Path) -> None:
    live = live_of(tmp_path)
    with live.running():
        live.more("a")
        live.more("b")
        before = identities(live.records())
        assert {who for who, _ in before} == {0, 1}
        assert len(before) == 2, "one identity each, on both cameras"
        live.kill("a")
        until(lambda: live.run.restarted == 1)
        live.more("a")
        live.more("b")
        restarted = [index for index, record in enumerate(live.records("all", "a")) if record["events"]]
        assert restarted
    assert identities(live.records()) == before

    (tmp_path / "out" / "all.jsonl").unlink()
    other = tmp_path / "other.py"  # the other person comes first this time
    other.write_text((tmp_path / "live.py").read_text().replace("frame.index > 0", "True"))
    live.path.write_text(live.path.read_text().replace("live.py", "other.py"))
    assert PipelineRun(build(read(live.path, device="cpu")), Device("cpu"), RunConfig(limit=30)).run() == 0
    assert identities(live.records()) == before
    seen = [event["data"] for record in live.records() for event in record["events"] if event["kind"] == "seen"]
    assert not any("new" in data for data in seen)
