"""Frames spread over clips and images."""

import cv2
import numpy as np
import pytest

from streamkit.core.errors import SourceError
from streamkit.media.demux import Demuxer
from streamkit.media.spread_frames import first_frames, images_and_videos, spread_frames, still_frames


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(12):
        cv2.imwrite(str(folder / f"{number}.png"), np.full((20, 30, 3), number * 10, np.uint8))
    return folder


def test_frames_are_spread_over_the_whole_video(root):
    street = root / "samples" / "street.mp4"
    demuxer = Demuxer(str(street))
    length = demuxer.info.frames
    demuxer.close()
    frames = spread_frames([], [street], 10)
    assert len(frames) == 10
    assert [frame.index for frame in frames] == [number * (length // 10) for number in range(10)]
    assert {(frame.source, frame.surface.data.dtype.name) for frame in frames} == {("street.mp4", "uint8")}


def test_a_video_and_images_share_the_frames(root, images):
    stills, videos = images_and_videos([images, root / "samples" / "street.mp4"])
    frames = spread_frames(stills, videos, 8)
    assert [frame.source for frame in frames] == ["0.png", "3.png", "6.png", "9.png", *["street.mp4"] * 4]


def test_fewer_images_than_requested_are_all_used(images):
    stills, _ = images_and_videos([images])
    assert [frame.source for frame in spread_frames(stills, [], 100)] == [f"{number}.png" for number in range(12)]


def test_an_image_keeps_its_size_and_brightness(images):
    (frame,) = still_frames([images / "5.png"])
    assert (frame.width, frame.height) == (30, 20)
    assert abs(int(frame.surface.data[0, 0]) - 50) <= 1


def test_an_empty_source_is_reported(tmp_path):
    with pytest.raises(SourceError, match=r"there is no file or folder .*gone"):
        images_and_videos([tmp_path / "gone"])
    with pytest.raises(SourceError, match="contains no videos or images"):
        images_and_videos([tmp_path])


def test_first_frames_alternate_between_files(root, images, tmp_path):
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    files = [str(images / "*.png"), str(tmp_path / "broken.mp4"), str(root / "samples" / "street.mp4")]
    shown = first_frames(files, 4)
    turns = [(frame.source, frame.index) for frame, _ in zip(shown, range(26), strict=False)]
    assert turns[:5] == [("0.png", 0), ("street.mp4", 0), ("1.png", 1), ("street.mp4", 4), ("2.png", 2)]
    assert turns[24:] == [("street.mp4", 48), ("street.mp4", 52)]  # the images have ended


def test_first_frames_end_with_a_short_file(images):
    assert [frame.source for frame in first_frames([str(images / "3.png"), str(images / "none.png")], 1)] == ["3.png"]
