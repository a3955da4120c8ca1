"""Ways to damage the files of an archive, each with its expected kind of cause."""

from __future__ import annotations

import gzip
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np


@dataclass(frozen=True)
class Tools:
    """What a way may use: scenes by codec and name, a random generator, and its number."""

    scenes: dict[tuple[str, str], Any]
    chance: random.Random
    number: int

    def whole(self, path: Path, codec: str = "h264", length: int = 4, **options: Any) -> bytearray:
        """Write a valid clip in the format of the suffix of `path`; return its bytes."""
        scenes = [scene for (name, _), scene in self.scenes.items() if name == codec]
        scenes[self.number % len(scenes)].write(path, self.chance.randint(0, 10), length, **options)
        return bytearray(path.read_bytes())


@dataclass(frozen=True)
class Way:
    """A way to damage a file: its name, file suffix, kind of cause and function."""

    name: str
    ending: str
    kind: str
    make: Callable[[Path, Tools], None]


FAST = {"movflags": "faststart"}
WAYS: list[Way] = []


def way(kind: str, ending: str = ".mp4") -> Callable[[Callable[[Path, Tools], None]], None]:
    """Add a way."""
    return lambda make: WAYS.append(Way(make.__name__, ending, kind, make))


def _media(data: bytes) -> int:
    """Return the offset of the media data of an MP4."""
    return data.index(b"mdat") + 4


@way("empty")
def empty_file(path: Path, tools: Tools) -> None:
    path.touch()


@way("no_video")
def text_with_a_videos_name(path: Path, tools: Tools) -> None:
    path.write_text("<html><body>404: the recording has expired</body></html>\n" * 50)


@way("truncated")
def header_only(path: Path, tools: Tools) -> None:
    data = tools.whole(path, options=FAST)
    path.write_bytes(data[: _media(data)])


@way("truncated")
def cut_in_the_pictures(path: Path, tools: Tools) -> None:
    data = tools.whole(path, "hevc", options=FAST)
    path.write_bytes(data[: _media(data) + (len(data) - _media(data)) * 6 // 10])


@way("truncated")
def index_missing(path: Path, tools: Tools) -> None:
    data = tools.whole(path)
    path.write_bytes(data[: data.index(b"moov") - 4])


@way("damaged")
def zeroed_in_the_middle(path: Path, tools: Tools) -> None:
    data = tools.whole(path, options=FAST)
    begin = _media(data)
    size = len(data) - _media(data)
    data[begin + size // 3 : begin + size * 2 // 3] = bytes(size * 2 // 3 - size // 3)
    path.write_bytes(data)


@way("damaged")
def flipped_bits(path: Path, tools: Tools) -> None:
    data = tools.whole(path, options=FAST)
    for place in range(_media(data) + 200, len(data), 997):
        data[place] ^= 1 << tools.chance.randrange(8)
    path.write_bytes(data)


@way("no_video", ".mkv")
def noise(path: Path, tools: Tools) -> None:
    path.write_bytes(tools.chance.randbytes(200_000))


@way("no_video")
def wrong_ending(path: Path, tools: Tools) -> None:
    path.write_bytes(gzip.compress(bytes(tools.whole(path)), mtime=0))


@way("no_video")
def sound_only(path: Path, tools: Tools) -> None:
    with av.open(str(path), "w") as output:
        stream = output.add_stream("aac", rate=44100)
        for number in range(20):
            sound = np.sin(np.arange(1024, dtype=np.float32) * 0.06)[None]
            frame = av.AudioFrame.from_ndarray(sound, format="fltp", layout="mono")
            frame.sample_rate = 44100
            frame.pts = 1024 * number
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))


@way("empty", ".avi")
def no_pictures(path: Path, tools: Tools) -> None:
    tools.whole(path, pictures=0)


@way("permission" if os.geteuid() else "missing")
def not_to_be_read(path: Path, tools: Tools) -> None:
    if os.geteuid():
        tools.whole(path)
        path.chmod(0)
    else:  # root may read everything: a link to itself is what it cannot
        path.symlink_to(path.name)


@way("no_video")
def a_folder(path: Path, tools: Tools) -> None:
    path.mkdir()


@way("missing")
def a_link_to_nowhere(path: Path, tools: Tools) -> None:
    path.symlink_to("recorded/elsewhere.mp4")


@way("codec")
def unknown_codec(path: Path, tools: Tools) -> None:
    data = tools.whole(path)
    place = data.rindex(b"avc1")
    data[place : place + 4] = b"zzz9"
    place = data.rindex(b"avcC")
    data[place : place + 4] = b"zzzC"
    path.write_bytes(data)


@way("truncated", ".mkv")
def cut_matroska(path: Path, tools: Tools) -> None:
    data = tools.whole(path, "vp9")
    path.write_bytes(data[: len(data) * 6 // 10])


@way("truncated", ".avi")
def cut_avi(path: Path, tools: Tools) -> None:
    data = tools.whole(path, "mpeg4")
    path.write_bytes(data[: len(data) * 6 // 10])


@way("damaged")
def parameters_lost(path: Path, tools: Tools) -> None:
    data = tools.whole(path)
    place = data.rindex(b"avcC")
    data[place + 10 : place + 30] = b"\xff" * 20
    path.write_bytes(data)


@way("no_video")
def zeros_only(path: Path, tools: Tools) -> None:
    path.write_bytes(bytes(300_000))


@way("damaged")
def second_half_never_written(path: Path, tools: Tools) -> None:
    data = tools.whole(path, "hevc", options=FAST)
    middle = _media(data) + (len(data) - _media(data)) // 2
    data[middle:] = bytes(len(data) - middle)
    path.write_bytes(data)
