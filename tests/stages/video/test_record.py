"""Clips around events, from real videos through real pipelines; each is decoded again."""

import shutil
from pathlib import Path

import av
import pytest
from support.clips import write
from support.messages import collect
from support.recorded import events, run_fixture, shown, ticker, video_fixture  # noqa: F401  fixtures

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.counters import Counters
from streamkit.core.data import Frame
from streamkit.core.errors import ConfigError, OutputError
from streamkit.core.stage import Context, default_registry
from streamkit.media.ring import PacketRef, PacketRing
from streamkit.stages.video.record import Record


def test_an_event_records_a_clip(run, video, tmp_path):
    completed = run(video, [130])
    (ticked,) = events(completed, "ticked")
    (recorded,) = events(completed, "recorded")
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
    assert completed.report["counts"] == {"clips recorded": 1}
    assert completed.code == 0
    assert not any("clip" in e.get("data", {}) for e in events(completed, "passed"))


def test_a_clip_has_the_packets_of_the_source(run, video, tmp_path):
    run(video, [130], path="c/{time}.mkv")
    (path,) = (tmp_path / "c").iterdir()
    with av.open(str(video)) as a, av.open(str(path)) as b:
        source_packets = [bytes(p) for p in a.demux(video=0) if p.size]
        clip = [bytes(p) for p in b.demux(video=0) if p.size]
    assert clip == source_packets[75 : 75 + len(clip)]


def test_events_that_overlap_make_one_clip_longer(run, video, tmp_path):
    completed = run(video, [100, 110, 130, 240])
    ticked = events(completed, "ticked")
    assert len({e["data"]["clip"] for e in ticked}) == 2
    first, second = sorted((tmp_path / "clips" / "gate").iterdir())
    assert shown(first)[0][1] == 50
    assert 154 <= shown(first)[-1][1] <= 158
    for event in ticked[:3]:
        assert dict(shown(first))[event["data"]["clip_s"]] == event["data"]["n"]
    assert shown(second)[-1][1] == 249, "an event near the end has the clip that there is"
    assert completed.report["counts"] == {"clips recorded": 2}


def test_a_too_long_recording_continues_in_another_file(run, video, tmp_path):
    completed = run(video, range(20, 220, 5), max_length=3)
    files = sorted((tmp_path / "clips" / "gate").iterdir())
    numbers = [[n for _, n in shown(path)] for path in files]
    assert len(files) >= 3
    assert [n for file_numbers in numbers for n in file_numbers] == list(range(numbers[-1][-1] + 1)), (
        "no picture twice, none missing"
    )
    assert all(len(file_numbers) <= 101 for file_numbers in numbers), "3 s, and to the next keyframe"
    for event in events(completed, "ticked"):
        assert dict(shown(tmp_path / event["data"]["clip"]))[event["data"]["clip_s"]] == event["data"]["n"]


def test_an_event_at_the_first_frame_records_a_clip(run, video, tmp_path):
    run(video, [0])
    (path,) = (tmp_path / "clips" / "gate").iterdir()
    assert shown(path)[0][1] == 0


@pytest.mark.parametrize("source", ["loop: 3, end: 2s", "loop: 3, start: 1s, end: 3s", "every: 3", "fps: 5"])
def test_clips_of_looped_and_thinned_sources_are_complete(run, video, tmp_path, source):
    completed = run(video, range(0, 150, 10), source)
    ticked = events(completed, "ticked")
    assert ticked
    for event in ticked:
        picture = next(
            frame_record["frame"] for frame_record in completed.records["gate"] if event in frame_record["events"]
        )
        number = picture if "loop" not in source else picture % 50 + (0 if "start" not in source else 25)
        if "start" in source:
            number = (picture - 25) % 50 + 25
        assert dict(shown(tmp_path / event["data"]["clip"]))[event["data"]["clip_s"]] == number


def test_a_file_read_by_several_decoders_is_recorded(run, video, tmp_path):
    completed = run(video, [130], "decoders: 2")
    (event,) = events(completed, "ticked")
    assert dict(shown(tmp_path / event["data"]["clip"]))[event["data"]["clip_s"]] == 130


def test_a_paced_file_is_recorded(run, video, tmp_path):
    completed = run(video, range(10, 150, 5), "pace: 100")
    ticked = events(completed, "ticked")
    assert ticked  # not all of them: a machine that is busy falls behind the pace, and drops frames
    for event in ticked:
        number = next(
            frame_record["frame"] for frame_record in completed.records["gate"] if event in frame_record["events"]
        )
        assert dict(shown(tmp_path / event["data"]["clip"]))[event["data"]["clip_s"]] == number


def test_injected_damage_is_not_in_the_clip(run, video, tmp_path):
    run(video, [130], "fault: {corrupt: {every: 1s, for: 500ms}, seed: 1}")
    (path,) = (tmp_path / "clips" / "gate").iterdir()
    assert [n for _, n in shown(path)][:50] == list(range(75, 125))


def test_every_event_of_a_stage_records_a_clip_of_its_source(run_pipeline, video, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = f"""
sources: {{a: "{video}", b: "{video}"}}
stages:
  ticker: {{at: [100]}}
  record: {{when: [ticker], before: 1s, after: 0s, path: "all/{{stage}}-{{kind}}.mp4"}}
"""
    processed = run_pipeline(text, extra=[ticker()])
    assert processed.code == 0
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
    processed = run_pipeline(text, extra=[ticker()])
    assert processed.report["counts"] == {"clips recorded": 1, "events without a clip: no packets": 1}


def test_two_recorders_share_a_source(run_pipeline, video, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = f"""
sources: {{gate: "{video}"}}
stages:
  ticker: {{at: [130]}}
  short: {{stage: record, when: ticker.ticked, before: 0s, after: 0s, path: "s/{{time}}.mp4"}}
  long: {{stage: record, when: ticker.ticked, before: 4s, after: 4s, path: "l/{{time}}.mp4", from: ticker}}
"""
    run_pipeline(text, extra=[ticker()])
    (short,) = (tmp_path / "s").iterdir()
    (long,) = (tmp_path / "l").iterdir()
    assert shown(short)[0][1] == 125
    assert shown(long)[0][1] == 25
    assert shown(long)[-1][1] >= 229


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ("{when: tickr.ticked}", "no stage writes the event 'tickr.ticked'; did you mean 'ticker.ticked'"),
        ("{when: [ticker.ticked, ticker.tocked]}", "ticker writes no event 'ticker.tocked'; did you mean"),
        ("{when: draw.drawn}", "draw writes no events"),
        ("{when: ticker.ticked, from: draw}", "record does not see the events of ticker; write from: ticker"),
        ("{when: []}", "when must name an event"),
        ("{path: clips/x.avi}", "path must end in .mp4 or .mkv"),
        ('{path: "clips/{when}.mp4"}', "path knows the placeholders {source}, {time}, {stage}, {kind}"),
        ("{max_length: 0s}", "max_length must be at least 1s"),
        (
            '{retention: {age: 7d}, path: "clips/{kind}.mp4"}',
            "min_free need a path that begins with a folder",
        ),
        (
            '{min_free: 1GB, path: "{source}/{time}.mp4"}',
            "min_free need a path that begins with a folder",
        ),
        ("{retention: {ages: 7d}}", "did you mean 'age'"),
    ],
)
def test_invalid_options_are_refused_before_the_run(record, message):
    registry = default_registry()
    registry.add(ticker())
    text = f"sources: {{a: x.mp4}}\nstages:\n  draw: {{}}\n  ticker: {{from: decode}}\n  record: {record}"
    if "from" not in record:
        text = text.replace("draw: {}\n  ticker: {from: decode}", "draw: {}\n  ticker: {}")
    with pytest.raises(ConfigError) as error:
        build(read_text(text, registry=registry))
    assert message in str(error.value)


def test_only_sources_without_packets_are_refused():
    with pytest.raises(ConfigError, match="no source here has any"):
        build(read_text('sources: {a: "test://"}\nstages: {record: {}}'))


def test_record_passes_its_input_unchanged(run, video):
    completed = run(video, [130])
    assert [frame_record["frame"] for frame_record in completed.records["gate"]] == list(range(250))
    assert len(events(completed, "passed")) == 249


@pytest.mark.gpu
@pytest.mark.parametrize("source", ["", "decoders: 3", "loop: 2, end: 4s"])
def test_sources_decoded_on_a_gpu_are_recorded(run_pipeline, video, tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    text = f"""
sources: {{gate: {{uri: "{video}", {source}}}}}
stages:
  ticker: {{at: [90]}}
  record: {{when: ticker.ticked, before: 1s, after: 1s}}
  collect: {{}}
"""
    processed = run_pipeline(text, device="cuda", extra=[ticker()])
    (event,) = events(processed, "ticked")
    assert dict(shown(tmp_path / event["data"]["clip"]))[event["data"]["clip_s"]] == 90


@pytest.fixture(scope="module")
def indexed_videos(tmp_path_factory):
    """100 frames, 25 a second, a keyframe every 10: without and with B frames."""
    folder = tmp_path_factory.mktemp("indexed_videos")
    return {
        bf: write(folder / f"{bf}.mp4", frames=100, options={"g": "10", "bf": str(bf), "sc_threshold": "0"})
        for bf in (0, 2)
    }


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


class FedRecorder:
    """A `record` that gets the frames of a video, whose packets lie in a ring, with events on some of them."""

    def __init__(self, video, *, limit=1 << 30, skip=0, **options):
        self.logged = collect()
        self.out = []
        self.later_s = 0.0
        self.stage = Record(**{"when": "door.crossed", "before": 0.0, "after": 0.0, "path": "c/{time}.mp4", **options})
        self.stage.context = Context(id="record", counters=Counters())
        self.stage.open()
        self.limit = limit
        self.connect(video, skip)

    def connect(self, video, skip=0):
        """Read a video into a ring of its own, as a source does that starts or restarts."""
        self.ring = PacketRing(("record",), limit_bytes=self.limit)
        with av.open(str(video)) as source:
            stream = source.streams.video[0]
            self.ring.begin(stream)
            packets = [packet for packet in source.demux(stream) if packet.size][skip:]
            for packet in packets:
                self.ring.put(packet)
            # frames come in the order shown, each with the number of its packet
            self.places = [number for _, number in sorted((p.pts, n) for n, p in enumerate(packets))]

    def write(self, indices, at=(), time_s=None):
        for index in indices:
            frame = Frame("gate", index, index / 25 + self.later_s, 64, 48, time_s=time_s and time_s + index / 25)
            frame._state.packet_ref = PacketRef(self.ring, self.places[index])
            if index in at:
                frame._state.stage = "door"
                frame.emit("crossed", n=index)
            frame._state.stage = "record"
            self.stage.write(frame)
            self.out.append(frame)
        return self

    @property
    def counts(self):
        return dict(self.stage.context.counters.values)

    def event_data(self, kind):
        return [(frame.index, event.data) for frame in self.out for event in frame.events if event.kind == kind]


def frames_in(name):
    """The frames that a clip shows, by its length, and the times of its packets."""
    with av.open(f"c/{name}") as back:
        return [round(float(frame.time) * 25) for frame in back.decode(video=0)]


@pytest.mark.parametrize(
    ("at", "before", "after", "first", "last"),
    [
        (25, 0.0, 0.0, 20, 25),
        (30, 0.0, 0.0, 30, 30),
        (25, 0.2, 0.4, 20, 34),
        (25, 0.24, 0.4, 10, 34),
        (30, 0.0, 0.2, 30, 34),
        (3, 9.0, 1.0, 0, 27),
    ],
)
@pytest.mark.usefixtures("here")
def test_a_clip_is_from_the_keyframe_before_to_the_time_after(indexed_videos, at, before, after, first, last):
    recorder = FedRecorder(indexed_videos[0], before=before, after=after).write(range(100), [at])
    recorder.stage.close()
    (name,) = (path.name for path in Path("c").iterdir())
    seen = frames_in(name)
    assert seen == list(range(last - first + 1))
    ((_, crossed),) = recorder.event_data("crossed")
    ((index, recorded),) = recorder.event_data("recorded")
    assert crossed["clip"] == recorded["clip"] == f"c/{name}"
    assert crossed["n"] == at
    assert recorded["start_s"] == round(first / 25, 3)
    assert recorded["duration_s"] == round(len(seen) / 25, 3)
    assert index == last + 1, "it is whole with the first frame behind it"
    assert recorder.counts == {"clips recorded": 1}
    assert recorder.ring.size_bytes == 0, "nothing is held any more"


@pytest.mark.parametrize("after", [n / 25 for n in (0, 1, 2, 3, 7)])
@pytest.mark.usefixtures("here")
def test_with_b_frames_no_frame_shown_before_the_end_is_missing(indexed_videos, after):
    recorder = FedRecorder(indexed_videos[2], after=after).write(range(100), [25])
    recorder.stage.close()
    (name,) = (path.name for path in Path("c").iterdir())
    seen = frames_in(name)
    assert seen == list(range(len(seen)))
    assert 20 + seen[-1] >= 25 + max(0, round(after * 25) - 1)
    ((_, crossed),) = recorder.event_data("crossed")
    assert crossed["clip_s"] == 0.2


@pytest.mark.usefixtures("here")
def test_a_name_has_the_events_time_and_the_file_the_time_of_its_first_frame(indexed_videos):
    noon_s = 1785585600.0
    recorder = FedRecorder(indexed_videos[0], path="c/{source}-{stage}-{kind}-{time}.mp4", before=1.0).write(
        range(100), [80], noon_s
    )
    recorder.stage.close()
    (path,) = Path("c").iterdir()
    assert path.name == "gate-door-crossed-20260801T120003.200Z.mp4"
    with av.open(str(path)) as back:
        assert back.metadata["title"] == "gate crossed"
        assert back.metadata["creation_time"].startswith("2026-08-01T12:00:02")


@pytest.mark.usefixtures("here")
def test_a_clip_that_ends_with_the_restart_of_its_source_is_reported_with_the_next_frame(indexed_videos):
    recorder = FedRecorder(indexed_videos[0], after=60.0).write(range(40), at=[25])
    recorder.connect(indexed_videos[0])
    recorder.write(range(3))
    ((index, recorded),) = recorder.event_data("recorded")
    ((_, crossed),) = recorder.event_data("crossed")
    assert (index, len(recorder.out)) == (0, 43)
    assert (recorded["clip"], recorded["start_s"], recorded["duration_s"]) == (crossed["clip"], 0.8, 3.2)
    assert recorder.counts == {"clips recorded": 1}


@pytest.mark.usefixtures("here")
def test_an_event_before_the_first_keyframe_has_no_clip(indexed_videos):
    recorder = FedRecorder(indexed_videos[0], skip=1).write(range(20), [4, 12])
    recorder.stage.close()
    assert recorder.counts == {"events without a clip: no keyframe yet": 1, "clips recorded": 1}
    assert [("clip" in fields) for _, fields in recorder.event_data("crossed")] == [False, True]


@pytest.mark.usefixtures("here")
def test_packets_that_are_evicted_while_a_clip_is_written_are_counted(indexed_videos):
    recorder = FedRecorder(indexed_videos[0])
    size = recorder.ring.size_bytes
    recorder = FedRecorder(indexed_videos[0], limit=size, after=9.0).write(range(30), [25])
    with av.open(str(indexed_videos[0])) as source:
        more = source.demux(video=0)
        while recorder.ring.get(33) is not None:  # as where memory is short
            recorder.ring.put(next(more))
    recorder.write(range(34, 100))
    recorder.stage.close()
    assert recorder.counts["clips recorded"] == 1
    assert recorder.counts["packets missing in clips: out of memory"] >= 4


@pytest.mark.usefixtures("here")
def test_a_clip_whose_folder_is_removed_is_lost_and_counted(indexed_videos):
    recorder = FedRecorder(indexed_videos[0], after=0.2).write(range(27), [25])
    shutil.rmtree("c")
    recorder.write(range(27, 100), [60])
    with pytest.raises(OutputError, match="record: 1 clip under c could not be written"):
        recorder.stage.close()
    assert recorder.counts == {"clips lost: write failed": 1, "clips recorded": 1}
