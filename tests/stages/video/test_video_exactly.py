"""Bounds of `video`: which rate its encoder gets, the longest gap of a file, and the time that a file begins with."""

from fractions import Fraction

import av
import pytest
from support.videos import frame, names, sink, times

from streamkit.media.encode import TIME_BASE
from streamkit.media.mux import LONGEST_GAP
from streamkit.stages.video import video as module
from streamkit.stages.video.video import Video

NOON = 1785585600.0  # 2026-08-01T12:00:00Z


@pytest.fixture
def rates(monkeypatch):
    """The rates that encoders get."""
    encoder_rates = []
    make = module.make_encoder

    def noted(chosen, encoding, like, rate, *rest):
        encoder_rates.append(rate)
        return make(chosen, encoding, like, rate, *rest)

    monkeypatch.setattr(module, "make_encoder", noted)
    return encoder_rates


@pytest.mark.parametrize(
    ("step_s", "rate"),
    [
        (0.04, Fraction(25)),
        (1 / 240, Fraction(240)),
        (1 / 241, Fraction(25)),
        (10.0, Fraction(1, 10)),
        (10.1, Fraction(25)),
        (1001 / 30000, Fraction(29970, 1000)),
        (None, Fraction(25)),
    ],
)
def test_the_rate_is_that_of_the_first_two_frames(tmp_path, rates, step_s, rate):
    out = sink(tmp_path / "a.mkv")
    out.write(frame(0, 0.0))
    if step_s is not None:
        out.write(frame(1, step_s))
    out.close()
    assert [float(encoder_rate) for encoder_rate in rates] == [pytest.approx(float(rate), rel=1e-4)]
    assert all(encoder_rate.denominator <= 1001 for encoder_rate in rates)


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
@pytest.mark.parametrize("codec", ["h264", "hevc"])
@pytest.mark.parametrize("step_s", [9.0, 10.0, 11.0, 80.0, 370.0, 380.0])
def test_frames_far_apart_are_all_in_the_file(tmp_path, codec, suffix, step_s):
    """A time lapse: with B frames the times of decoding and showing differ by several frames."""
    out = sink(tmp_path / f"a.{suffix}", codec=codec)
    for i in range(20):
        out.write(frame(i, i * step_s))
    out.close()
    times_s = sorted(at for name in names(tmp_path) for at in times(tmp_path / name))
    assert times_s == [i * int(step_s) for i in range(20)]
    assert len(names(tmp_path)) == (1 if step_s < 373 else 20)


@pytest.mark.parametrize("before", [1, 2, 3, 40])
@pytest.mark.parametrize(("gap_s", "files"), [(90, 1), (94, 2), (370, 2), (400, 2)])
def test_a_hole_in_time_that_no_file_can_hold_begins_another(tmp_path, before, gap_s, files):
    out = sink(tmp_path / "a.mp4")
    written_s = [Fraction(i, 25) for i in range(before)]
    written_s += [written_s[-1] + gap_s + Fraction(i, 25) for i in range(12)]
    for i, at in enumerate(written_s):
        out.write(frame(i, float(at)))
    out.close()
    times_s = sorted(at for name in names(tmp_path) for at in times(tmp_path / name))
    assert [float(at) for at in times_s] == pytest.approx([float(at) for at in written_s], abs=1e-6)
    assert len(names(tmp_path)) == (1 if before == 1 and gap_s <= 370 else files)


@pytest.mark.parametrize(("more", "files"), [(0, 1), (1, 2)])
def test_the_longest_gap_of_a_file(tmp_path, more, files):
    out = sink(tmp_path / "a.mp4")
    for i, ticks in enumerate((0, LONGEST_GAP, 2 * LONGEST_GAP + more)):
        out.write(frame(i, float(ticks * TIME_BASE)))
    out.close()
    assert len(names(tmp_path)) == files
    assert sum(len(times(tmp_path / name)) for name in names(tmp_path)) == 3


def test_a_file_below_zero_says_so_once_and_counts_from_its_first_frame(tmp_path):
    out = sink(tmp_path / "a.mp4", segment=1.0)
    for i in range(40):
        out.write(frame(i, i / 25 - 0.4))
    out.close()
    assert out.logged == ["street begins at -0.400 s: in its video file, this is 0 s"]
    assert names(tmp_path) == ["a-2.mp4", "a.mp4"]
    times_s = [at for name in ("a.mp4", "a-2.mp4") for at in times(tmp_path / name)]
    assert times_s == [Fraction(i, 25) for i in range(40)]


def test_only_a_cameras_file_has_a_date(tmp_path):
    for path, time_s in ((tmp_path / "file.mp4", None), (tmp_path / "gate.mp4", NOON)):
        out = sink(path)
        for i in range(3):
            out.write(frame(i, 5 + i / 25, time_s=time_s and time_s + i / 25))
        out.close()
    dates = {}
    for name in names(tmp_path):
        with av.open(str(tmp_path / name)) as back:
            dates[name] = back.metadata.get("creation_time")
        first = times(tmp_path / name)[0]
        assert first == (5 if name == "file.mp4" else 0)
    assert dates == {"file.mp4": None, "gate-20260801T120000Z.mp4": "2026-08-01T12:00:00.000000Z"}


@pytest.mark.parametrize(("segment", "fine"), [(0.999, False), (1.0, True)])
def test_the_shortest_segment(tmp_path, segment, fine):
    if fine:
        sink(tmp_path / "a.mp4", segment=segment).close()
    else:
        with pytest.raises(ValueError, match="segment must be at least 1s"):
            sink(tmp_path / "a.mp4", segment=segment)


def test_what_is_written_if_nothing_is_set():
    stage = Video(path="a.mp4")
    assert (stage.encoder, stage.codec, stage.quality, stage.bitrate, stage.preset) == (
        "auto",
        "h264",
        None,
        None,
        None,
    )
    assert (stage.gop, stage.segment, stage.if_exists) == (None, None, "overwrite")
