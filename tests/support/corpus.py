"""An archive for tests: short clips of six codecs in seven containers, some of them damaged.

The scenes are encoded once, small and with a keyframe a second, and kept in the temporary folder; clips are cut from
them at keyframes without encoding. The same arguments give the same files, byte for byte, on one machine.
"""

from __future__ import annotations

import hashlib
import os
import random
import tempfile
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import av

from support.breaking import WAYS, Tools

WIDTH = 320
HEIGHT = 192
RATE = 25
SECONDS = 14
SCENES = ("car-detection.mp4", "vtest_480x360.mp4")


class Form(NamedTuple):
    """How a clip is coded, and the endings it may have."""

    codec: str
    pix_fmt: str
    options: dict[str, str]
    endings: tuple[str, ...]


_GOP = str(RATE)
FORMS = {
    "h264": Form(
        "libx264",
        "yuv420p",
        {"preset": "veryfast", "g": _GOP, "sc_threshold": "0", "bf": "2"},
        (".mp4", ".mkv", ".ts"),
    ),
    "hevc": Form(
        "libx265",
        "yuv420p",
        {"preset": "ultrafast", "x265-params": f"log-level=none:keyint={_GOP}:scenecut=0:open-gop=0:pools=1"},
        (".mp4", ".mkv"),
    ),
    "mpeg4": Form("mpeg4", "yuv420p", {"g": _GOP, "sc_threshold": "1000000000", "b": "600k"}, (".avi",)),
    "vp9": Form("libvpx-vp9", "yuv420p", {"g": _GOP, "deadline": "realtime", "cpu-used": "8", "b": "400k"}, (".webm",)),
    "av1": Form("libsvtav1", "yuv420p", {"preset": "13", "g": _GOP, "svtav1-params": "lp=1:scd=0"}, (".mp4", ".mkv")),
    "mjpeg": Form("mjpeg", "yuvj420p", {"qmin": "6", "qmax": "6"}, (".avi", ".mov")),
}


@dataclass
class Corpus:
    """The created archive.

    Attributes:
        folder: all files lie below it.
        good: names of the files that are whole, and how many pictures each has.
        broken: names of the others, and the cause_kind that each is to be listed with.
    """

    folder: Path
    good: dict[str, int] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Scene:
    """One encoded scene in memory: a template to mux by, and for each second its packets (bytes, pts, dts, key)."""

    stream: Any
    seconds: tuple[tuple[tuple[bytes, int, int, bool], ...], ...]

    def write(self, path: Path, start: int, length: int, *, pictures: int | None = None, options: Any = None) -> int:
        """Write so many seconds from a second on, or their first pictures; how many pictures that are."""
        packets = [p for second in self.seconds[start : start + length] for p in second][:pictures]
        zero = min((p[1] for p in packets), default=0)
        bitexact = {"fflags": "+bitexact"}
        with av.open(str(path), "w", container_options=bitexact, options=dict(options or {})) as output:
            stream = output.add_stream_from_template(self.stream, opaque=True)
            stream.time_base = Fraction(1, RATE)
            output.start_encoding()
            for data, pts, dts, key in packets:
                packet = av.Packet(data)
                packet.pts = pts - zero
                packet.dts = dts - zero
                packet.duration = 1
                packet.time_base = Fraction(1, RATE)
                packet.is_keyframe = key
                packet.stream = stream
                output.mux(packet)
        return len(packets)


def make(folder: Path, videos: Path, files: int = 500, broken: int = 20, seed: int = 0) -> Corpus:
    """Fill a folder with clips.

    Args:
        folder: made if need be.
        videos: the folder of the test data's clips that they are cut from.
        files: how many in all.
        broken: how many of them are broken, each in its own way while there are ways left.
        seed: another one gives other clips in other places.
    """
    chance = random.Random(seed)
    scenes = _scenes(videos)
    corpus = Corpus(folder)
    for number in range(files - broken):
        codec = list(FORMS)[number % len(FORMS)]
        scene = scenes[codec, chance.choice(SCENES)]
        length = chance.randint(2, 10)
        start = chance.randint(0, SECONDS - length)
        name = _place(chance, number, chance.choice(FORMS[codec].endings))
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        corpus.good[name] = scene.write(folder / name, start, length)
    for number in range(broken):
        way = WAYS[number % len(WAYS)]
        name = _place(chance, files - broken + number, way.ending)
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        way.make(path, Tools(scenes, chance, WAYS.index(way)))
        corpus.broken[name] = way.kind
    return corpus


def _place(chance: random.Random, number: int, ending: str) -> str:
    """A name below one of a few folders; the same last part stands in several of them."""
    day = chance.randint(1, 3)
    return f"gate {day}/2026-08-{number // 100 + 1:02d}/clip{number // 3:04d}_{number % 3}{ending}"


def _scenes(videos: Path) -> dict[tuple[str, str], Scene]:
    """Return every scene in every codec, by codec and scene name."""
    recipe = hashlib.sha256(f"{FORMS}{SCENES}{WIDTH}x{HEIGHT}@{RATE}x{SECONDS}{av.__version__}".encode()).hexdigest()
    cache = Path(tempfile.gettempdir()) / f"streamkit-corpus-{recipe[:12]}"
    cache.mkdir(exist_ok=True)
    scenes = {}
    for name in SCENES:
        pictures: list[Any] = []
        for codec, form in FORMS.items():
            path = cache / f"{Path(name).stem}-{codec}.mp4"
            if not path.exists():
                pictures = pictures or _pictures(videos / name)
                _encode(path, form, pictures)
            scenes[codec, name] = _load(path)
    return scenes


def _pictures(path: Path) -> list[Any]:
    with av.open(str(path)) as video:
        pictures = []
        for frame in video.decode(video=0):
            pictures.append(frame.reformat(width=WIDTH, height=HEIGHT, format="yuv420p"))
            if len(pictures) == RATE * SECONDS:
                break
    return pictures


def _encode(path: Path, form: Form, pictures: list[Any]) -> None:
    part = path.with_suffix(f".{random.SystemRandom().getrandbits(32):x}.part")  # several tests may be at it
    os.environ.setdefault("SVT_LOG", "1")  # its errors only
    with av.open(str(part), "w", format="mp4") as output:
        stream: Any = output.add_stream(form.codec, rate=RATE, options=form.options)
        stream.width = WIDTH
        stream.height = HEIGHT
        stream.pix_fmt = form.pix_fmt
        stream.codec_context.thread_count = 1
        if form.pix_fmt.startswith("yuvj"):
            stream.codec_context.color_range = 2
        for number, picture in enumerate(pictures):
            frame = picture.reformat(format=form.pix_fmt)
            frame.pts = number
            frame.time_base = Fraction(1, RATE)
            frame.pict_type = 0
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    part.replace(path)


def _load(path: Path) -> Scene:
    video: Any = av.open(str(path))  # left open: the template of all clips
    stream = video.streams.video[0]
    base = stream.time_base * RATE
    seconds: list[list[tuple[bytes, int, int, bool]]] = []
    for packet in video.demux(stream):
        if not packet.size:
            continue
        pts = round(packet.pts * base)
        dts = round(packet.dts * base)
        if packet.is_keyframe and pts % RATE == 0:
            seconds.append([])
        seconds[-1].append((bytes(packet), pts, dts, packet.is_keyframe))
    assert [len(second) for second in seconds] == [RATE] * SECONDS, path
    return Scene(stream, tuple(tuple(second) for second in seconds))
