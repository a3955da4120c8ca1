"""A video in several files: by its length, by the clock, and where size or time leave no other way."""

from fractions import Fraction
from itertools import pairwise

import av
import pytest
from support.videos import frame, names, sink, times

NOON = 1785585600.0  # 2026-08-01T12:00:00Z


def test_a_size_change_starts_a_new_file(tmp_path):
    out = sink(tmp_path / "a.mp4")
    for i in range(12):
        size = (64, 48) if i < 5 else (32, 32) if i < 10 else (64, 48)
        out.write(frame(i, size=size))
    out.close()
    assert names(tmp_path) == ["a-2.mp4", "a-3.mp4", "a.mp4"]
    times_by_file = [times(tmp_path / name) for name in ("a.mp4", "a-2.mp4", "a-3.mp4")]
    assert [len(part) for part in times_by_file] == [5, 5, 2]
    assert [at for part in times_by_file for at in part] == [Fraction(i, 25) for i in range(12)]
    assert out.logged == [
        "street is 32x32 from 0.20 s on; a new file begins",
        "street is 64x48 from 0.40 s on; a new file begins",
    ]


def test_a_gap_too_long_for_mp4_starts_a_new_file(tmp_path):
    out = sink(tmp_path / "a.mp4")
    for i, at in enumerate((0.0, 0.04, 500.0, 500.04)):
        out.write(frame(i, at))
    out.close()
    assert times(tmp_path / "a-2.mp4") == [500, 500 + Fraction(1, 25)]


def test_segments_of_a_video_are_numbered(tmp_path):
    out = sink(tmp_path / "a.mp4", segment=1.0)
    for i in range(60):
        out.write(frame(i))
    out.close()
    assert [len(times(tmp_path / name)) for name in ("a.mp4", "a-2.mp4", "a-3.mp4")] == [25, 25, 10]


def test_segments_of_a_camera_are_named_by_the_clock(tmp_path):
    out = sink(tmp_path / "gate.mp4", segment=2.0)
    seen = []
    for i in range(110):
        out.write(frame(i, 3600 + i / 25, time_s=NOON + i / 25))
        seen.append([name for name in names(tmp_path) if not name.startswith(".")])
    assert len(seen[-1]) == 2, "a complete segment has its name while the run goes on"
    out.close()
    assert names(tmp_path) == [f"gate-20260801T12000{s}Z.mp4" for s in (0, 2, 4)]
    assert times(tmp_path / "gate-20260801T120002Z.mp4") == [Fraction(i, 25) for i in range(50)]
    with av.open(str(tmp_path / "gate-20260801T120002Z.mp4")) as back:
        assert back.metadata["creation_time"].startswith("2026-08-01T12:00:02")


def test_no_frame_is_lost_between_the_segments_of_a_camera(tmp_path):
    out = sink(tmp_path / "gate.mp4", segment=1.0)
    at_s = [i / 25 + (i % 3) * 0.004 for i in range(130)]
    for i, offset_s in enumerate(at_s):
        out.write(frame(i, 900 + offset_s, time_s=NOON + offset_s))
    out.close()
    times_s = []
    starts_s = []
    for name in names(tmp_path):
        offsets_s = [float(offset_s) for offset_s in times(tmp_path / name)]
        assert offsets_s[0] == 0, "time begins at 0 in each file"
        starts_s.append(at_s[len(times_s)])
        times_s += [starts_s[-1] + offset_s for offset_s in offsets_s]
    assert times_s == pytest.approx(at_s, abs=1e-6)
    assert [b - a for a, b in pairwise(starts_s)] == pytest.approx([1.0] * 5, abs=0.05)


def test_the_default_segment_of_a_camera_is_ten_minutes(tmp_path):
    out = sink(tmp_path / "gate.mkv")
    for i in range(25):
        out.write(frame(i, i * 60.0, time_s=NOON + i * 60))
    out.close()
    assert names(tmp_path) == [f"gate-20260801T12{m}000Z.mkv" for m in (0, 1, 2)]


def test_files_of_a_camera_never_replace_existing_ones(tmp_path):
    (tmp_path / "gate-20260801T120000Z.mp4").write_bytes(b"old")
    out = sink(tmp_path / "gate.mp4")
    for i in range(3):
        out.write(frame(i, i / 25, time_s=NOON + i / 25))
    out.close()
    assert names(tmp_path) == ["gate-20260801T120000Z-2.mp4", "gate-20260801T120000Z.mp4"]
    assert (tmp_path / "gate-20260801T120000Z.mp4").read_bytes() == b"old"
    assert len(times(tmp_path / "gate-20260801T120000Z-2.mp4")) == 3
