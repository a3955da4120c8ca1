"""Clips around events, from real videos through real pipelines; each is decoded again."""

import json
import shutil
import sys
import threading
import time
from pathlib import Path

import av
import numpy as np
import pytest
from rtsp import wait_until

from streamkit import FrameStage
from streamkit.config import read_source, read_text
from streamkit.counters import Counters
from streamkit.data import Frame
from streamkit.errors import ConfigError
from streamkit.graph import build
from streamkit.runtime.device import choose
from streamkit.runtime.run import Pipeline
from streamkit.stage import Collecting, Context, default_registry, stage
from streamkit.stages.record import Record

sys.path.insert(0, str(Path(__file__).parents[1] / "media"))
from clips import write  # the path is set just above


def ticker():
    """A stage that says `ticked` at the frames it is told, and `passed` at every other."""
    with Collecting(default_registry()):

        @stage("ticker", writes="events")
        class Ticker(FrameStage):
            """Emit at some frames.

            Options:
                at: the frames' indices.
            """

            emits = ("ticked", "passed")

            at: tuple[int, ...] = ()

            def process(self, frame: Frame) -> None:
                frame.emit("ticked" if frame.index in self.at else "passed", n=frame.index)

    return Ticker


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    """10 s, 25 pictures a second, a keyframe every second, B frames; each picture's brightness says its number."""
    path = tmp_path_factory.mktemp("record") / "gate.mp4"
    with av.open(str(path), "w") as out:
        made = out.add_stream("libx264", rate=25)
        made.width, made.height, made.pix_fmt = 64, 48, "yuv420p"
        made.options = {"g": "25", "bf": "2", "sc_threshold": "0", "crf": "10"}
        for i in range(250):
            planes = np.full((72, 64), 128, np.uint8)
            planes[:48] = i
            out.mux(made.encode(av.VideoFrame.from_ndarray(planes, format="yuv420p")))
        out.mux(made.encode(None))
    return path


@pytest.fixture
def run(run_pipeline, tmp_path, monkeypatch):
    """Run `record` on a video with events at these frames; the outcome, and each event of stages behind it."""
    monkeypatch.chdir(tmp_path)

    def go(video, at, source="", top="", **record):
        text = f"""
{top}
sources: {{gate: {{uri: "{video}", {source}}}}}
stages:
  ticker: {{at: {list(at)}}}
  record: {json.dumps({"when": "ticker.ticked", "before": 2, "after": 1, **record})}
  collect: {{}}
"""
        return run_pipeline(text, extra=[ticker()])

    return go


def events(outcome, kind, source="gate"):
    return [e for one in outcome.records[source] for e in one["events"] if e["kind"] == kind]


def shown(path):
    """Each picture's time in seconds and number; the first must be a keyframe, and none damaged."""
    with av.open(str(path)) as back:
        frames = list(back.decode(video=0))
    assert frames[0].key_frame
    assert not any(frame.is_corrupt for frame in frames)
    return [(round(float(f.time), 3), round(float(f.to_ndarray()[:48].mean()))) for f in frames]


def test_a_clip_of_an_event(run, video, tmp_path):
    done = run(video, [130])
    (ticked,), (recorded,) = events(done, "ticked"), events(done, "recorded")
    assert [p.name for p in (tmp_path / "clips" / "gate").iterdir()] == ["000005.200s-ticked.mp4"]
    path = tmp_path / ticked["data"]["clip"]
    seen = shown(path)
    numbers = [n for _, n in seen]
    assert numbers[0] == 75, "the keyframe before 5.2 s - 2 s is that at 3 s"
    assert numbers == list(range(75, numbers[-1] + 1))
    assert 154 <= numbers[-1] <= 158, "5.2 s + 1 s, and what is decoded before that"
    assert [at for at, _ in seen] == [round(i * 0.04, 3) for i in range(len(seen))]
    assert dict(seen)[ticked["data"]["clip_s"]] == 130, "the event's moment is where it says"
    assert ticked["data"]["n"] == 130
    data = recorded["data"]
    assert data["clip"] == ticked["data"]["clip"]
    assert data["start_s"] == pytest.approx(3.0)
    assert data["duration_s"] == pytest.approx(len(seen) * 0.04, abs=0.05)
    assert done.report["counts"] == {"clips recorded": 1}
    assert done.code == 0
    assert not any("clip" in e.get("data", {}) for e in events(done, "passed"))


def test_packets_are_the_source_s_own(run, video, tmp_path):
    run(video, [130], path="c/{time}.mkv")
    (path,) = (tmp_path / "c").iterdir()
    with av.open(str(video)) as a, av.open(str(path)) as b:
        own = [bytes(p) for p in a.demux(video=0) if p.size]
        clip = [bytes(p) for p in b.demux(video=0) if p.size]
    assert clip == own[75 : 75 + len(clip)]


def test_events_that_overlap_make_one_clip_longer(run, video, tmp_path):
    done = run(video, [100, 110, 130, 240])
    ticked = events(done, "ticked")
    assert len({e["data"]["clip"] for e in ticked}) == 2
    first, second = sorted((tmp_path / "clips" / "gate").iterdir())
    assert shown(first)[0][1] == 50
    assert 154 <= shown(first)[-1][1] <= 158
    for event in ticked[:3]:
        assert dict(shown(first))[event["data"]["clip_s"]] == event["data"]["n"]
    assert shown(second)[-1][1] == 249, "an event near the end has the clip that there is"
    assert done.report["counts"] == {"clips recorded": 2}


def test_a_recording_that_grows_too_long_goes_on_in_another_file(run, video, tmp_path):
    done = run(video, range(20, 220, 5), max_length=3)
    files = sorted((tmp_path / "clips" / "gate").iterdir())
    numbers = [[n for _, n in shown(path)] for path in files]
    assert len(files) >= 3
    assert [n for one in numbers for n in one] == list(range(numbers[-1][-1] + 1)), "no picture twice, none missing"
    assert all(len(one) <= 101 for one in numbers), "3 s, and to the next keyframe"
    for event in events(done, "ticked"):
        assert dict(shown(tmp_path / event["data"]["clip"]))[event["data"]["clip_s"]] == event["data"]["n"]


def test_an_event_at_the_first_frame(run, video, tmp_path):
    run(video, [0])
    (path,) = (tmp_path / "clips" / "gate").iterdir()
    assert shown(path)[0][1] == 0


@pytest.mark.parametrize("source", ["loop: 3, end: 2s", "loop: 3, start: 1s, end: 3s", "every: 3", "fps: 5"])
def test_loops_and_thinned_sources(run, video, tmp_path, source):
    done = run(video, range(0, 150, 10), source)
    ticked = events(done, "ticked")
    assert ticked
    for event in ticked:
        picture = next(one["frame"] for one in done.records["gate"] if event in one["events"])
        number = picture if "loop" not in source else picture % 50 + (0 if "start" not in source else 25)
        if "start" in source:
            number = (picture - 25) % 50 + 25
        assert dict(shown(tmp_path / event["data"]["clip"]))[event["data"]["clip_s"]] == number


def test_many_decoders_of_one_file(run, video, tmp_path):
    done = run(video, [130], "decoders: 2")
    (event,) = events(done, "ticked")
    assert dict(shown(tmp_path / event["data"]["clip"]))[event["data"]["clip_s"]] == 130


def test_a_paced_file(run, video, tmp_path):
    done = run(video, range(10, 150, 5), "pace: 100")
    ticked = events(done, "ticked")
    assert ticked  # not all of them: a machine that is busy falls behind the pace, and drops frames
    for event in ticked:
        number = next(one["frame"] for one in done.records["gate"] if event in one["events"])
        assert dict(shown(tmp_path / event["data"]["clip"]))[event["data"]["clip_s"]] == number


def test_damage_on_purpose_is_not_in_the_clip(run, video, tmp_path):
    run(video, [130], "fault: {corrupt: {every: 1s, for: 500ms}, seed: 1}")
    (path,) = (tmp_path / "clips" / "gate").iterdir()
    assert [n for _, n in shown(path)][:50] == list(range(75, 125))


def test_several_sources_and_every_event_of_a_stage(run_pipeline, video, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = f"""
sources: {{a: "{video}", b: "{video}"}}
stages:
  ticker: {{at: [100]}}
  record: {{when: [ticker], before: 1s, after: 0s, path: "all/{{stage}}-{{kind}}.mp4"}}
"""
    done = run_pipeline(text, extra=[ticker()])
    assert done.code == 0
    assert sorted(p.name for p in (tmp_path / "all").iterdir()) == ["ticker-passed-2.mp4", "ticker-passed.mp4"]
    for path in (tmp_path / "all").iterdir():
        assert [n for _, n in shown(path)] == list(range(250))


def test_a_source_without_packets_is_counted(run_pipeline, video, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = f"""
sources: {{a: "test://?frames=20", b: {{uri: "{video}", end: 1s}}}}
stages:
  ticker: {{at: [10]}}
  record: {{when: ticker.ticked}}
"""
    done = run_pipeline(text, extra=[ticker()])
    assert done.report["counts"] == {"clips recorded": 1, "events without a clip: the source has no packets": 1}


def test_two_recorders_of_one_source(run_pipeline, video, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = f"""
sources: {{gate: "{video}"}}
stages:
  ticker: {{at: [130]}}
  short: {{stage: record, when: ticker.ticked, before: 0s, after: 0s, path: "s/{{time}}.mp4"}}
  long: {{stage: record, when: ticker.ticked, before: 4s, after: 4s, path: "l/{{time}}.mp4", from: ticker}}
"""
    run_pipeline(text, extra=[ticker()])
    (short,), (long,) = (tmp_path / "s").iterdir(), (tmp_path / "l").iterdir()
    assert shown(short)[0][1] == 125
    assert shown(long)[0][1] == 25
    assert shown(long)[-1][1] >= 229


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ("{when: tickr.ticked}", "no stage writes the event 'tickr.ticked'; did you mean 'ticker.ticked'"),
        ("{when: [ticker.ticked, ticker.tocked]}", "ticker writes no event 'ticker.tocked'; did you mean"),
        ("{when: draw.drawn}", "draw writes no events"),
        ("{when: ticker.ticked, from: draw}", "record does not see the events of ticker; write from: ticker"),
        ("{when: []}", "when must name an event"),
        ("{path: clips/x.avi}", "path must end in .mp4 or .mkv"),
        ('{path: "clips/{when}.mp4"}', "path knows the placeholders {source}, {time}, {stage}, {kind}"),
        ("{max_length: 0s}", "max_length must be at least 1s"),
        ('{keep: {age: 7d}, path: "clips/{kind}.mp4"}', "keep and min_free need a path that begins with a folder"),
        ('{min_free: 1GB, path: "{source}/{time}.mp4"}', "keep and min_free need a path that begins with a folder"),
        ("{keep: {ages: 7d}}", "did you mean 'age'"),
    ],
)
def test_what_is_refused_before_anything_runs(record, said):
    registry = default_registry()
    registry.add(ticker())
    text = f"sources: {{a: x.mp4}}\nstages:\n  draw: {{}}\n  ticker: {{from: decode}}\n  record: {record}"
    if "from" not in record:
        text = text.replace("draw: {}\n  ticker: {from: decode}", "draw: {}\n  ticker: {}")
    with pytest.raises(ConfigError) as error:
        build(read_text(text, registry=registry))
    assert said in str(error.value)


def test_only_sources_without_packets_are_refused():
    with pytest.raises(ConfigError, match="no source here has any"):
        build(read_text('sources: {a: "test://"}\nstages: {record: {}}'))


class Running:
    """A pipeline on a thread of its own, on a file played as a camera."""

    def __init__(self, text, folder):
        registry = default_registry()
        registry.add(ticker())
        self.said = []
        self.config = read_text(text, folder=folder, registry=registry)
        self.pipeline = Pipeline(build(self.config), choose("cpu", print), say=self.said.append)
        self.thread = threading.Thread(target=self.pipeline.run)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.pipeline.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()


def test_by_hand_and_stopped_in_the_middle(video, tmp_path, monkeypatch):
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


def test_a_source_that_is_removed_and_comes_again(video, tmp_path, monkeypatch):
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


def test_a_camera_that_comes_back_as_another_gets_a_clip_of_its_own(rtsp, test_data, tmp_path, monkeypatch):
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
    assert "geheim" not in (tmp_path / "out.jsonl").read_text() + " ".join(running.said)


def test_too_little_memory_is_counted(run, video, tmp_path):
    done = run(video, [130], buffer=3000)
    counts = done.report["counts"]
    assert set(counts) <= {
        "clips recorded", "events without a clip: their packets were gone",
        "packets missing in clips: no memory for them", "packets not in clips: no keyframe before them",
        "events without a clip: no keyframe has come yet",
    }  # fmt: skip
    for path in tmp_path.rglob("*.mp4"):
        shown(path)


def alone(**options):
    made = Record(**options)
    made.context = Context(id="record", counters=Counters())
    return made


def test_halves_of_a_crash_go_at_the_start_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "clips" / "gate"
    folder.mkdir(parents=True)
    ours = folder / ".20260801T120000.250Z-crossed.mp4.part"
    others = [folder / ".notes.mp4.part", folder / "20260801T120000.250Z-crossed.mp4", folder / "a.part"]
    for path in [ours, *others]:
        path.touch()
    made = alone()
    made.open()
    assert not ours.exists()
    assert all(path.exists() for path in others)
    assert made.context.counters.values == {"half clips of a crash removed": 1}


def test_a_full_disk_stops_recording_and_room_lets_it_go_on(run, video, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    free = [0]
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=free[0]))
    done = run(video, [60])
    assert done.report["counts"] == {"events without a clip: no clip could be begun": 1}
    assert any("recording stops: less than 100 MB are free" in text for text in done.said)
    free[0] = 10**9
    assert run(video, [60]).report["counts"] == {"clips recorded": 1}


def test_it_hands_on_what_it_was_given(run, video):
    done = run(video, [130])
    assert [one["frame"] for one in done.records["gate"]] == list(range(250))
    assert len(events(done, "passed")) == 249


def test_clips_that_cannot_be_written_are_said_once(run, video, tmp_path):
    (tmp_path / "clips").touch()
    done = run(video, [60, 120, 180])
    assert done.code == 0
    assert done.report["counts"] == {"events without a clip: no clip could be begun": 3}
    assert [text for text in done.said if "record" in text] == [
        "record: clips under clips cannot be written: a part of the path is a file where a folder is needed"
    ]


@pytest.mark.gpu
@pytest.mark.parametrize("source", ["", "decoders: 3", "loop: 2, end: 4s"])
def test_clips_of_what_a_gpu_decodes(run_pipeline, video, tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    text = f"""
sources: {{gate: {{uri: "{video}", {source}}}}}
stages:
  ticker: {{at: [90]}}
  record: {{when: ticker.ticked, before: 1s, after: 1s}}
  collect: {{}}
"""
    done = run_pipeline(text, device="cuda", extra=[ticker()])
    (event,) = events(done, "ticked")
    assert dict(shown(tmp_path / event["data"]["clip"]))[event["data"]["clip_s"]] == 90
