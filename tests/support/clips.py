"""Small videos made by PyAV for the tests."""

import itertools
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

X264 = {
    "preset": "medium", "x264-params": "keyint=16:bframes=3:b-adapt=0:scenecut=0:b-pyramid=normal:open-gop=1",
}  # fmt: skip
"""Leading pictures before each keyframe but the first, some of them references."""
X265 = {"preset": "fast", "x265-params": "log-level=none:keyint=16:bframes=3:open-gop=1"}
REFRESH = {"preset": "medium", "x264-params": "keyint=16:intra-refresh=1"}


def scene(index: int, width: int, height: int) -> np.ndarray:
    """Return a smooth RGB image that differs by index and has no symmetry."""
    y, x = np.mgrid[0:height, 0:width]
    red = 255 * x / max(1, width - 1)
    green = 255 * y / max(1, height - 1)
    blue = 40 + 8 * (index % 20) + 0 * x
    return np.stack([red, green, blue], -1).astype(np.uint8)


def picture(i: int, width: int = 64, height: int = 48, pix_fmt: str = "yuv420p") -> av.VideoFrame:
    """One frame of the scene. FFmpeg's color conversion rounds by how its buffers happen to be aligned."""
    return av.VideoFrame.from_ndarray(scene(i, width, height), format="rgb24").reformat(format=pix_fmt)


def write(
    path: Path, width: int = 64, height: int = 48, frames: int = 20, *, codec: str = "libx264", rate: int = 25,
    pix_fmt: str = "yuv420p", rotation: int = 0, ticks: list[int] | None = None, options: dict | None = None,
    muxer: str | None = None, first: int = 0, color_range: int | None = None, colorspace: int | None = None,
    mirrored: bool = False, pixel_aspect: Fraction = Fraction(1),
) -> Path:  # fmt: skip
    """Encode `frames` pictures. `ticks`: their times in 1/1000 s, for a variable rate."""
    with av.open(str(path), "w", format=muxer) as output:
        stream = output.add_stream(codec, rate=rate)
        stream.width = width
        stream.height = height
        stream.pix_fmt = pix_fmt
        if codec.startswith("libx26"):
            stream.options = {"preset": "ultrafast", "x265-params": "log-level=none", **(options or {})}
        else:
            stream.options = options or {}
        if color_range is not None:
            stream.codec_context.color_range = color_range
        if colorspace is not None:
            stream.codec_context.colorspace = colorspace
        stream.codec_context.sample_aspect_ratio = pixel_aspect
        if rotation or mirrored:
            stream.set_display_rotation(rotation, hflip=mirrored)
        if ticks is not None:
            stream.codec_context.time_base = Fraction(1, 1000)
        for i in range(frames):
            frame = picture(first + i, width, height, pix_fmt)
            if ticks is not None:
                frame.pts = ticks[i]
                frame.time_base = Fraction(1, 1000)
            else:
                frame.pts = i
                frame.time_base = Fraction(1, rate)
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return path


def two_streams(path: Path, sizes: list[tuple[int, int]], frames: int = 10) -> Path:
    """Write a file with a video stream of each size, all of the same frames."""
    with av.open(str(path), "w") as output:
        streams = []
        for width, height in sizes:
            stream = output.add_stream("libx264", rate=25)
            stream.width = width
            stream.height = height
            stream.pix_fmt = "yuv420p"
            stream.options = {"preset": "ultrafast"}
            streams.append(stream)
        for i in range(frames):
            for stream in streams:
                pixels = scene(i, stream.width, stream.height)
                frame = av.VideoFrame.from_ndarray(pixels, format="rgb24").reformat(format="yuv420p")
                frame.pts = i
                frame.time_base = Fraction(1, 25)
                output.mux(stream.encode(frame))
        for stream in streams:
            output.mux(stream.encode(None))
    return path


def shifted(path: Path, original: Path, shift_s: float, **options: str) -> Path:
    """Copy the packets of a video into another container, with later times."""
    with av.open(str(original)) as source, av.open(str(path), "w", options=options) as output:
        stream = output.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.size:
                ticks = round(shift_s / packet.time_base)
                if packet.dts is not None:
                    packet.dts += ticks
                packet.pts = packet.pts + ticks
                packet.stream = stream
                output.mux(packet)
    return path


def resized(folder: Path, suffix: str) -> Path:
    """A bare H.264 stream, or one in MPEG-TS, that changes from 64x48 to 96x80 after 10 pictures."""
    options = {"bf": "0"}
    small_pictures = write(folder / "one.h264", 64, 48, 10, muxer="h264", options=options).read_bytes()
    large_pictures = write(folder / "two.h264", 96, 80, 10, muxer="h264", options=options, first=10).read_bytes()
    bare = folder / "both.h264"
    bare.write_bytes(small_pictures + large_pictures)
    if suffix == ".h264":
        return bare
    path = folder / f"both{suffix}"
    with av.open(str(bare)) as bare_video, av.open(str(path), "w") as output:
        stream = output.add_stream_from_template(bare_video.streams.video[0])
        number = 0
        for packet in bare_video.demux(video=0):
            if packet.size:
                packet.time_base = Fraction(1, 25)
                packet.pts = packet.dts = number
                packet.stream = stream
                output.mux(packet)
                number += 1
    return path


_MPEG4_PICTURE = b"\0\0\1\xb6"


def packed(path: Path, frames: int = 30, *, dropped: tuple[int, ...] = ()) -> Path:
    """An MPEG-4 video of 25 frames/s with packed B frames, as DivX and XviD write it into AVI.

    A packet holds a picture and the B frame that is shown before it; the next packet is a placeholder.

    Args:
        path: the file; its suffix names the container.
        frames: number of frames.
        dropped: places of packets before which the encoder has dropped a frame.
    """
    context = av.CodecContext.create("mpeg4", "w")
    context.width = 64
    context.height = 48
    context.pix_fmt = "yuv420p"
    context.time_base = Fraction(1, 25)
    context.options = {"bf": "1", "b_strategy": "0", "g": "12", "sc_threshold": "1000000000", "q": "3"}
    pictures = []
    for i in range(frames):
        frame = picture(i)
        frame.pts = i
        pictures += [bytes(packet) for packet in context.encode(frame)]
    pictures += [bytes(packet) for packet in context.encode(None)]
    header, _, first = pictures[0].partition(_MPEG4_PICTURE)
    header = header.partition(b"\0\0\1\xb2")[0] + b"\0\0\1\xb2DivX503b1393p"  # in place of the encoder's own name
    pictures[0] = header + _MPEG4_PICTURE + first
    kinds = [payload[payload.index(_MPEG4_PICTURE) + 4] >> 6 for payload in pictures]  # 0: I, 1: P, 2: B
    placeholder = _MPEG4_PICTURE + b"\x51\x4f"  # a P frame that is not coded
    packets = []
    for number, payload in enumerate(pictures):
        if kinds[number] == 2:
            packets.append(placeholder)
            continue
        follows = number + 1 < len(pictures) and kinds[number + 1] == 2
        packets.append(payload + pictures[number + 1] if follows else payload)
    for place in sorted(dropped, reverse=True):
        packets.insert(place, placeholder)
    with av.open(str(path), "w") as output:
        stream = output.add_stream("mpeg4", rate=25)
        stream.width = 64
        stream.height = 48
        stream.pix_fmt = "yuv420p"
        stream.codec_context.extradata = header
        for place, payload in enumerate(packets):
            packet = av.Packet(payload)
            packet.stream = stream
            packet.time_base = Fraction(1, 25)
            packet.pts = packet.dts = place
            packet.is_keyframe = payload[payload.index(_MPEG4_PICTURE) + 4] >> 6 == 0
            output.mux_one(packet)
    return path


def start_of(video: Path, path: Path, frames: int) -> None:
    """Copy the first frames of a video, without encoding them again."""
    with av.open(str(video)) as source, av.open(str(path), "w") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet in itertools.islice(source.demux(video=0), frames):
            packet.stream = stream
            target.mux(packet)
