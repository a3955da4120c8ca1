"""`record` to the packet: which are in a clip, which are counted, and what the events say; fed without a pipeline."""

import shutil
from pathlib import Path

import av
import pytest
from support.clips import write
from support.messages import collect

from streamkit.core.counters import Counters
from streamkit.core.data import Frame
from streamkit.core.errors import OutputError
from streamkit.core.stage import Context
from streamkit.media.ring import PacketRef, PacketRing
from streamkit.stages.video.record import Record


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    """100 frames, 25 a second, a keyframe every 10: without and with B frames."""
    folder = tmp_path_factory.mktemp("videos")
    return {
        bf: write(folder / f"{bf}.mp4", frames=100, options={"g": "10", "bf": str(bf), "sc_threshold": "0"})
        for bf in (0, 2)
    }


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


class Fed:
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

    def data(self, kind):
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
        (25, 0.0, 0.04, 20, 25),
        (25, 0.2, 0.4, 20, 34),
        (25, 0.24, 0.4, 10, 34),
        (30, 0.4, 0.2, 20, 34),
        (30, 0.0, 0.2, 30, 34),
        (29, 0.0, 0.2, 20, 33),
        (3, 9.0, 1.0, 0, 27),
    ],
)
def test_a_clip_is_from_the_keyframe_before_to_the_time_after(videos, at, before, after, first, last):
    fed = Fed(videos[0], before=before, after=after).write(range(100), [at])
    fed.stage.close()
    (name,) = (path.name for path in Path("c").iterdir())
    seen = frames_in(name)
    assert seen == list(range(last - first + 1))
    ((_, crossed),) = fed.data("crossed")
    ((index, recorded),) = fed.data("recorded")
    assert crossed["clip"] == recorded["clip"] == f"c/{name}"
    assert crossed["n"] == at
    assert recorded["start_s"] == round(first / 25, 3)
    assert recorded["duration_s"] == round(len(seen) / 25, 3)
    assert index == last + 1, "it is whole with the first frame behind it"
    assert fed.counts == {"clips recorded": 1}
    assert fed.ring.size_bytes == 0, "nothing is held any more"


@pytest.mark.parametrize("after", [n / 25 for n in range(12)])
def test_with_b_frames_no_frame_shown_before_the_end_is_missing(videos, after):
    fed = Fed(videos[2], after=after).write(range(100), [25])
    fed.stage.close()
    (name,) = (path.name for path in Path("c").iterdir())
    seen = frames_in(name)
    assert seen == list(range(len(seen)))
    assert 20 + seen[-1] >= 25 + max(0, round(after * 25) - 1)
    ((_, crossed),) = fed.data("crossed")
    assert crossed["clip_s"] == 0.2


def test_times_in_events_are_rounded_to_the_millisecond(videos):
    fed = Fed(videos[0])
    fed.later_s = 1 / 3
    fed.write(range(100), [25])
    ((_, recorded),) = fed.data("recorded")
    assert (recorded["start_s"], recorded["duration_s"]) == (1.133, 0.24)


def test_what_is_recorded_if_nothing_is_set():
    stage = Record()
    assert (stage.when, stage.before, stage.after, stage.max_length) == (None, 10.0, 20.0, 300.0)
    assert (stage.path, stage.retention, stage.min_free) == ("clips/{source}/{time}-{kind}.mp4", None, None)
    assert stage.buffer == 128_000_000


def test_a_name_has_the_events_time_and_the_file_the_time_of_its_first_frame(videos):
    noon_s = 1785585600.0
    fed = Fed(videos[0], path="c/{source}-{stage}-{kind}-{time}.mp4", before=1.0).write(range(100), [80], noon_s)
    fed.stage.close()
    (path,) = Path("c").iterdir()
    assert path.name == "gate-door-crossed-20260801T120003.200Z.mp4"
    with av.open(str(path)) as back:
        assert back.metadata["title"] == "gate crossed"
        assert back.metadata["creation_time"].startswith("2026-08-01T12:00:02")


def test_events_within_a_recording_make_it_longer_and_never_shorter(videos):
    fed = Fed(videos[0], after=0.4).write(range(100), [25, 33])
    fed.stage.close()
    (name,) = (path.name for path in Path("c").iterdir())
    assert frames_in(name) == list(range(43 - 20))
    assert [data["clip_s"] for _, data in fed.data("crossed")] == [0.2, 0.52]
    assert fed.counts == {"clips recorded": 1}


def test_a_long_recording_goes_on_at_the_first_keyframe_behind_its_length(videos):
    fed = Fed(videos[0], max_length=1.0, after=9.0).write(range(100), [5, 25, 40, 55])
    fed.stage.close()
    names = sorted(path.name for path in Path("c").iterdir())
    assert [len(frames_in(name)) for name in names] == [30, 30, 30, 10], "25 frames, and to the next keyframe"
    spans = [
        (index, round(data["start_s"] * 25), round(data["duration_s"] * 25)) for index, data in fed.data("recorded")
    ]
    assert spans == [(30, 0, 30), (60, 30, 30), (90, 60, 30)], "the last is whole when the source has ended"
    assert [round(data["clip_s"] * 25) for _, data in fed.data("crossed")] == [5, 25, 10, 25]
    assert fed.counts == {"clips recorded": 4}


def test_a_clip_that_ends_with_the_restart_of_its_source_is_reported_with_the_next_frame(videos):
    fed = Fed(videos[0], after=60.0).write(range(40), at=[25])
    fed.connect(videos[0])
    fed.write(range(3))
    ((index, recorded),) = fed.data("recorded")
    ((_, crossed),) = fed.data("crossed")
    assert (index, len(fed.out)) == (0, 43)
    assert (recorded["clip"], recorded["start_s"], recorded["duration_s"]) == (crossed["clip"], 0.8, 3.2)
    assert fed.counts == {"clips recorded": 1}


def test_packets_that_are_gone_are_counted(videos):
    fed = Fed(videos[0])
    size = sum(len(packet.data) for packet in fed.ring.packets(50, 99))
    fed = Fed(videos[0], limit=size, after=9.0)
    assert fed.ring.get(49) is None
    assert fed.ring.get(50) is not None
    fed.write(range(100), [25, 30])
    assert fed.counts == {"events without a clip: packets evicted": 2}
    fed.stage.close()
    assert not Path("c").exists()


def test_packets_that_go_while_a_clip_is_written_are_counted(videos):
    fed = Fed(videos[0], after=9.0).write(range(30), [25])
    while fed.ring._packets[0].number < 34:  # as where memory is short
        fed.ring._drop_first()
    fed.write(range(34, 100))
    fed.stage.close()
    assert fed.counts == {"clips recorded": 1, "packets missing in clips: out of memory": 4}


def test_an_event_before_the_first_keyframe_has_no_clip(videos):
    fed = Fed(videos[0], skip=1).write(range(20), [4, 12])
    fed.stage.close()
    assert fed.counts == {"events without a clip: no keyframe yet": 1, "clips recorded": 1}
    assert [("clip" in data) for _, data in fed.data("crossed")] == [False, True]


def test_what_is_recorded_by_hand(videos):
    fed = Fed(videos[0], when=None)
    fed.stage.trigger("gate", who="ann")
    fed.stage.trigger("yard")
    fed.write(range(40), [25])
    fed.stage.close()
    ((index, data),) = fed.data("manual")
    assert (index, data["who"], data["clip_s"]) == (0, "ann", 0.0)
    assert fed.stage.orders == {"yard": {}}
    assert fed.counts == {"clips recorded": 1}


def test_a_clip_that_cannot_be_written_is_counted_and_told_at_the_end(videos):
    Path("c").write_text("in the way of the folder")
    fed = Fed(videos[0]).write(range(100), [25, 45])
    assert fed.counts == {"events without a clip: clip not started": 2}
    assert set(fed.logged) == {
        "record: clips under c cannot be written: a part of the path is a file where a folder is needed"
    }
    with pytest.raises(OutputError, match="record: 2 clips under c could not be written: a part of the path is a file"):
        fed.stage.close()


def test_a_clip_that_breaks_off_is_lost_and_counted(videos):
    fed = Fed(videos[0], after=9.0).write(range(30), [25])
    (track,) = fed.stage._recordings.values()
    track.clip._container.close()  # so that no packet can be written
    track.clip._container = type("Full", (), {"mux_one": full, "close": lambda self: None})()
    fed.write(range(30, 100), [60])
    with pytest.raises(OutputError, match="record: 1 clip under c could not be written: the disk is full"):
        fed.stage.close()
    assert fed.counts == {"clips lost: write failed": 1, "clips recorded": 1}
    assert len(list(Path("c").iterdir())) == 1, "of the lost one nothing is left, and the next event has its clip"


def full(self, packet):
    raise OSError(28, "No space left on device")


def test_recording_stops_while_there_is_no_room(videos, monkeypatch):
    free = [10**12]
    usage = shutil.disk_usage(".")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=free[0]))
    fed = Fed(videos[0], after=9.0).write(range(30), [25])
    free[0] = 1
    fed.stage._checked_s = -1e9
    fed.write(range(30, 50), [35])
    assert fed.counts == {"clips recorded": 1, "events without a clip: clip not started": 1}
    assert len(fed.logged) == 1
    assert "recording stops: less than 100 MB are free under c" in fed.logged[0]
    free[0] = 10**12
    fed.write(range(50, 100), [55])
    fed.stage.close()
    assert fed.counts["clips recorded"] == 2
    assert [("clip" in data) for _, data in fed.data("crossed")] == [True, False, True]


def test_without_packets_every_named_event_is_counted(videos):
    fed = Fed(videos[0])
    frame = Frame("gate", 0, 0.0, 64, 48)
    frame._state.stage = "door"
    for kind in ("crossed", "left", "crossed"):
        frame.emit(kind)
    fed.stage.write(frame)
    assert fed.counts == {"events without a clip: no packets": 2}
