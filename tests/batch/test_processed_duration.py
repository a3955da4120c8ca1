"""How much of a video was processed: the part that was read, not what the header promises."""

from contextlib import suppress
from pathlib import Path

import av
import numpy as np
import pytest

from streamkit.batch.processed_duration import PROCESSED_S, MeasuredSource
from streamkit.core.data import Device
from streamkit.core.errors import SourceError
from streamkit.core.stage import Context

ALL = [{}, {"every": 5}, {"every": 50}, {"fps": 0.5}, {"keyframes": True}]


def looked(path: Path, **options) -> float:
    """Seconds that a source says, after all its frames or the error that comes instead of the last."""
    source = MeasuredSource(uri=str(path), **options)
    source.context = Context("a", Device("cpu"))
    with suppress(SourceError):
        assert all(PROCESSED_S not in source.context.runtime.facts for _ in source.frames())
    return source.context.runtime.facts[PROCESSED_S]


def encoded(path: Path, codec: str = "libx264") -> Path:
    """Eight seconds, 25 frames a second, a keyframe each second, with B frames."""
    with av.open(str(path), "w") as output:
        options = {"x264-params": "log-level=none"} if codec == "libx264" else {}
        stream = output.add_stream(codec, rate=25, options={"g": "25", "bf": "2", **options})
        stream.width = 64
        stream.height = 48
        stream.pix_fmt = "yuv420p"
        for index in range(200):
            pixels = np.full((48, 64, 3), index % 256, np.uint8)
            output.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        output.mux(stream.encode())
    return path


def copied(video: Path, to: Path, slower: int = 1) -> Path:
    """The packets of a video in another container, which lasts longer."""
    with av.open(str(video)) as source, av.open(str(to), "w") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(source.streams.video[0]):
            if packet.size:
                packet.stream = stream
                packet.pts = packet.pts * slower
                packet.dts = packet.dts * slower
                packet.duration *= slower
                target.mux(packet)
    return to


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    return encoded(tmp_path_factory.mktemp("looked") / "whole.mp4")


@pytest.mark.parametrize("options", ALL)
@pytest.mark.parametrize("ending", ["mp4", "mkv", "ts", "avi", "h264"])
def test_the_duration_is_the_processed_time_span(whole, tmp_path, ending, options):
    if ending == "avi":
        video = encoded(tmp_path / "a.avi", "mpeg4")
    else:
        video = whole if ending == "mp4" else copied(whole, tmp_path / f"a.{ending}")
    assert looked(video, **options) == pytest.approx(8.0)


@pytest.mark.parametrize("options", ALL)
@pytest.mark.parametrize("ending", ["mp4", "ts", "h264"])
@pytest.mark.parametrize(
    ("start", "end", "seconds"),
    [(2.0, 4.0, 2.0), (2.05, None, 5.92), (0.0, 2.05, 2.05), (0.0, 20.0, 8.0), (9.0, None, 0.0)],
)
def test_the_duration_is_that_of_the_selected_part(whole, tmp_path, ending, options, start, end, seconds):
    video = whole if ending == "mp4" else copied(whole, tmp_path / f"a.{ending}")
    if ending == "h264" and end == 2.05:
        seconds = 2.08  # frames are counted there
    assert looked(video, start=start, end=end, **options) == pytest.approx(seconds)


@pytest.mark.parametrize("options", ALL)
def test_the_duration_of_a_truncated_file_is_its_readable_part(whole, tmp_path, options):
    video = copied(whole, tmp_path / "whole.mkv")
    video.write_bytes(video.read_bytes()[: video.stat().st_size // 2])
    with av.open(str(video)) as container:
        times = [float(packet.pts * packet.time_base) for packet in container.demux(video=0) if packet.size]
        assert container.duration == 8_000_000, "the header says"
    assert 2.0 < max(times) < 6.0
    assert looked(video, **options) == pytest.approx(max(times) + 0.04)


def test_a_frame_counts_for_its_display_time(whole, tmp_path):
    assert looked(copied(whole, tmp_path / "slow.mp4", slower=3), every=7) == pytest.approx(24.0)


def test_an_unreadable_file_has_no_processed_duration(tmp_path):
    source = MeasuredSource(uri=str(tmp_path / "gone.mp4"))
    source.context = Context("a", Device("cpu"))
    with pytest.raises(SourceError):
        next(iter(source.frames()))
    assert source.context.runtime.facts == {PROCESSED_S: 0.0}
