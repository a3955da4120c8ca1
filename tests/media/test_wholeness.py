"""A file that was cut is told, in every container, also where its times do not begin at 0; a whole one is not."""

from contextlib import closing

import pytest
from clips import shifted, write

from streamkit.counters import Counters
from streamkit.data import Device
from streamkit.errors import SourceError
from streamkit.media.reader import Reader
from streamkit.media.surfaces import SurfacePool


def count(path):
    with closing(Reader(str(path), Device(), SurfacePool(Device()), Counters(), print)) as reader:
        return sum(1 for _ in reader.pictures())


@pytest.mark.parametrize("shift_s", [0.0, 2.0, 3600.0])
@pytest.mark.parametrize(
    ("name", "codec", "options"),
    [
        ("a.mkv", "libx264", {}),
        ("a.webm", "libvpx-vp9", {}),
        ("a.flv", "libx264", {}),
        ("a.mp4", "libx264", {"movflags": "faststart"}),
        ("a.mov", "mjpeg", {"movflags": "faststart"}),
    ],
)
def test_a_file_that_was_cut_is_told_and_a_whole_one_is_not(tmp_path, name, codec, options, shift_s):
    pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
    first = write(tmp_path / "first.nut", frames=100, codec=codec, pix_fmt=pix_fmt, options={"bf": "0"})
    path = shifted(tmp_path / name, first, shift_s, **options)
    assert count(path) == 100
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 6 // 10])
    with pytest.raises(SourceError, match=r"ends early: .*of 4\.[01] s could be read") as caught:
        count(path)
    assert caught.value.cause == "truncated"


@pytest.mark.parametrize("shift_s", [0.0, 2.0])
def test_avi_that_was_cut_is_told_also_where_places_are_empty(tmp_path, shift_s):
    first = write(tmp_path / "first.nut", frames=100, codec="mpeg4")
    path = shifted(tmp_path / "a.avi", first, shift_s)
    assert count(path) == 100
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.index(b"idx1") * 6 // 10])
    with pytest.raises(SourceError, match="ends early") as caught:
        count(path)
    assert caught.value.cause == "truncated"
