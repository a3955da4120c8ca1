"""Clips of sources that go, come again or change, by hand, and where disk or memory is short."""

import shutil
import threading
import time
from pathlib import Path

import av
import pytest
from support.clips import write
from support.messages import collect
from support.recorded import run_fixture, shown, ticker, video_fixture  # noqa: F401  fixtures
from support.rtsp import wait_until

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_source, read_text
from streamkit.core.counters import Counters
from streamkit.core.errors import ConfigError, OutputError
from streamkit.core.stage import Context, default_registry
from streamkit.io.outputs import AtomicFile
from streamkit.runtime.execution.device import choose
from streamkit.runtime.pipeline import PipelineRun
from streamkit.stages.video.record import Record


class Running:
    """A pipeline on a thread of its own, on a file played as a camera."""

    def __init__(self, text, folder):
        registry = default_registry()
        registry.add(ticker())
        self.logged = collect()
        self.config = read_text(text, folder=folder, registry=registry)
        self.pipeline = PipelineRun(build(self.config), choose("cpu"))
        self.thread = threading.Thread(target=self.pipeline.run)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.pipeline.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()


def test_a_manual_recording_can_be_stopped(video, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = f"""
sources: {{gate: {{uri: "{video}", pace: 50, loop: true}}}}
stages:
  record: {{before: 1s, after: 60s}}
"""
    with Running(text, tmp_path) as running:
        wait_until(lambda: running.pipeline.states["gate"].frames > 60)
        with pytest.raises(ConfigError, match="no source 'gat'; did you mean 'gate'"):
            running.pipeline.trigger("record", "gat")
        with pytest.raises(ConfigError, match="no stage that records 'recor'; did you mean 'record'"):
            running.pipeline.trigger("recor", "gate")
        running.pipeline.trigger("record", "gate", who="ann")
        wait_until(lambda: list(tmp_path.rglob(".*.part")))
        time.sleep(0.3)
    (path,) = (tmp_path / "clips" / "gate").iterdir()
    assert path.name.endswith("s-manual.mp4")
    assert len(shown(path)) > 25
    assert running.pipeline.report(130)["events"] == {"manual": 1}


def test_a_readded_source_records_again(video, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    other = write(tmp_path / "other.mp4", 96, 80, frames=100, options={"g": "10"})
    text = f"""
sources: {{gate: {{uri: "{video}", pace: 50, loop: true}}, b: {{uri: "{video}", pace: 50, loop: true}}}}
stages:
  record: {{before: 1s, after: 60s}}
"""
    with Running(text, tmp_path) as running:
        pipeline = running.pipeline
        wait_until(lambda: pipeline.states["gate"].frames > 30)
        pipeline.trigger("record", "gate")
        wait_until(lambda: list(tmp_path.rglob(".*.part")))
        pipeline.remove("gate")
        wait_until(lambda: list(tmp_path.rglob("*-manual.mp4")), what="the clip of a source that was removed")
        (again,) = read_source(running.config, "gate", {"uri": str(other), "pace": 50.0, "loop": True})
        pipeline.add(again)
        wait_until(lambda: pipeline.states["gate"].frames > 5)
        pipeline.trigger("record", "gate")
        wait_until(lambda: list(tmp_path.rglob(".*.part")))
    sizes = set()
    for path in (tmp_path / "clips" / "gate").iterdir():
        with av.open(str(path)) as back:
            sizes.add((back.streams.video[0].width, len(list(back.decode(video=0))) > 0))
    assert sizes == {(64, True), (96, True)}


def test_a_camera_with_new_parameters_gets_a_new_clip(rtsp, test_data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    videos = test_data / "videos"
    server = rtsp({"gate": videos / "vtest_480x360.mp4"}, user="ann", password="geheim")
    text = f"""
sources: {{gate: {{uri: "{server.url("gate")}"}}}}
stages:
  record: {{before: 1s, after: 10min, max_length: 1h}}
  jsonl: {{path: "out.jsonl"}}
"""
    with Running(text, tmp_path) as running:
        pipeline = running.pipeline
        wait_until(lambda: pipeline.states["gate"].frames > 30)
        pipeline.trigger("record", "gate")
        wait_until(lambda: list(tmp_path.rglob(".*.part")))
        seen = pipeline.states["gate"].frames
        wait_until(lambda: pipeline.states["gate"].frames > seen + 20)
        server.restart()
        seen = pipeline.states["gate"].frames
        wait_until(lambda: pipeline.states["gate"].frames > seen + 20, what="the camera's return")
        assert not list(tmp_path.rglob("*-manual.mp4")), "the same camera: the same clip goes on"
        server.swap("gate", videos / "car-detection.mp4")
        wait_until(lambda: list(tmp_path.rglob("*-manual.mp4")), what="the end of the first camera's clip")
        seen = pipeline.states["gate"].frames
        wait_until(lambda: pipeline.states["gate"].frames > seen + 20)
    sizes = []
    for path in sorted((tmp_path / "clips" / "gate").iterdir()):
        with av.open(str(path)) as back:
            frames = list(back.decode(video=0))
            assert frames[0].key_frame
            assert "creation_time" in back.metadata
            sizes.append((frames[0].width, len(frames) > 15))
    assert sizes == [(480, True), (768, True)]
    assert "geheim" not in (tmp_path / "out.jsonl").read_text() + " ".join(running.logged)


def test_packets_lost_by_too_little_memory_are_counted(run, video, tmp_path):
    completed = run(video, [130], buffer=3000)
    counts = completed.report["counts"]
    assert set(counts) <= {
        "clips recorded",
        "events without a clip: packets evicted",
        "packets missing in clips: out of memory",
        "packets not in clips: no preceding keyframe",
        "events without a clip: no keyframe yet",
    }
    for path in tmp_path.rglob("*.mp4"):
        shown(path)


def alone(**options):
    stage = Record(**options)
    stage.context = Context(id="record", counters=Counters())
    return stage


def test_only_partial_files_of_a_crash_are_removed_at_the_start(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "clips" / "gate"
    folder.mkdir(parents=True)
    ours = folder / ".20260801T120000.250Z-crossed.mp4.part"
    others = [folder / ".notes.mp4.part", folder / "20260801T120000.250Z-crossed.mp4", folder / "a.part"]
    for path in [ours, *others]:
        path.touch()
    stage = alone()
    stage.open()
    assert not ours.exists()
    assert all(path.exists() for path in others)
    assert stage.context.counters.values == {"unfinished clips removed": 1}


def test_a_partial_file_of_another_process_is_not_removed(tmp_path, monkeypatch):
    """Two pipelines may record into one folder."""
    monkeypatch.chdir(tmp_path)
    path = Path("clips/gate/20260801T120000.250Z-crossed.mp4")
    other = AtomicFile(path)  # the lock is the handle's, so that one process can play both
    other.begin().write_text("half")
    stage = alone()
    stage.open()
    assert other.part.read_text() == "half"
    assert stage.context.counters.values == {}
    other.release()  # as a process that is killed does
    stage.open()
    assert not other.part.exists()
    assert stage.context.counters.values == {"unfinished clips removed": 1}


def test_a_full_disk_pauses_recording_until_there_is_space(run, video, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    free = [0]
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=free[0]))
    completed = run(video, [60])
    assert completed.report["counts"] == {"events without a clip: clip not started": 1}
    assert any("recording stops: less than 100 MB are free" in text for text in completed.logged)
    free[0] = 10**9
    assert run(video, [60]).report["counts"] == {"clips recorded": 1}


def test_a_too_long_name_loses_its_clip_only(run, video, tmp_path):
    (tmp_path / "clips").mkdir()
    with pytest.raises(OutputError, match="record: 1 clip under clips could not be written: the name is too long"):
        run(video, [60], path=f"clips/{'x' * 300}-{{time}}.mp4")


def test_a_run_with_unwritable_clips_completes_and_reports_them(run, video, tmp_path):
    (tmp_path / "clips").touch()
    text = "record: 3 clips under clips could not be written: a part of the path is a file where a folder is needed"
    with pytest.raises(OutputError, match=text):
        run(video, [60, 120, 180])
