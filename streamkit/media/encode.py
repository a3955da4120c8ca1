# SPDX-License-Identifier: Apache-2.0
"""Encodes NV12 surfaces with x264 or x265 on the CPU, and defines the interface of encoders.

An encoder adds its stream to a container and turns surfaces into packets; `mux.VideoWriter` writes them. Times are
whole ticks of `TIME_BASE`, which represents the time bases of files and cameras exactly (90 kHz, 12800, 30000/1001,
...).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from streamkit.core.counters import Counters
from streamkit.core.data import SQUARE, Color, Surface, array_module
from streamkit.ops.transfer import empty_pinned, host_pixels

if TYPE_CHECKING:
    from av.container import OutputContainer
    from av.packet import Packet
    from av.video.stream import VideoStream

TIME_BASE = Fraction(1, 5_760_000)

H273 = {"bt601": (6, 6, 6), "bt709": (1, 1, 1), "bt2020": (9, 14, 9)}
"""Color primaries, transfer and matrix of each matrix, as ITU-T H.273 numbers them."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """Encoder options of the user.

    Attributes:
        codec: `h264` or `hevc`.
        quality: constant rate factor, 0 (best) to 51; None for the encoder's default.
        bitrate: bits per second, instead of `quality`.
        preset: the encoder's preset for speed against size; None is `veryfast` on the CPU and `p4` on NVENC.
        gop: frames from keyframe to keyframe; None for the encoder's default.
        live: output each frame at once, keyframes only at intervals of `gop`, and an almost constant bit rate.
        sparse: frames are far apart, so B frames are disabled: the difference between decoding and presentation times
            would exceed what a container can store.
    """

    codec: Literal["h264", "hevc"] = "h264"
    quality: int | None = None
    bitrate: int | None = None
    preset: str | None = None
    gop: int | None = None
    live: bool = False
    sparse: bool = False


class Encoder(Protocol):
    """Turns surfaces of one size and color format into packets of a container's stream."""

    def start(self, container: OutputContainer) -> None:
        """Set the container for the stream."""

    def encode(self, surface: Surface, ticks: int) -> Sequence[Packet[VideoStream]]:
        """Encode a surface and return the finished packets; `ticks`, its presentation time, must rise."""

    def flush(self) -> Sequence[Packet[VideoStream]]:
        """Return the remaining packets."""


@dataclass(slots=True)
class CpuEncoder:
    """x264 or x265 encoder with NV12 input.

    Attributes:
        encoding: encoder options.
        width: width of the surfaces in pixels, even.
        height: height of the surfaces in pixels, even.
        color: color format of the surfaces; written to the stream.
        rate: frames per second, a hint for rate control; the times come from `encode`.
        threads: maximum number of threads.
        counters: counts copies from a GPU.
        pixel_aspect: width of a pixel divided by its height; written to the stream.
    """

    encoding: Encoding
    width: int
    height: int
    color: Color
    rate: Fraction
    threads: int
    counters: Counters
    pixel_aspect: Fraction = SQUARE
    _stream: Any = field(default=None, init=False)
    _pinned: Any = field(default=None, init=False)

    def start(self, container: OutputContainer) -> None:
        """Add the stream to the container."""
        encoding = self.encoding
        color = self.color
        chroma = {(0.0, 0.5): 0, (0.5, 0.5): 1, (0.0, 0.0): 2}.get((color.chroma_x, color.chroma_y), 0)
        options = {"preset": encoding.preset or "veryfast"}
        steady = ":scenecut=0" if encoding.live else ""  # keyframes at even distances, for players and playlists
        steady += ":bframes=0" if encoding.sparse else ""
        if encoding.codec == "h264":
            name = "libx264"
            options["x264-params"] = f"chromaloc={chroma}{steady}"
        else:
            name = "libx265"
            options["x265-params"] = f"chromaloc={chroma}:log-level=none{steady}"
        if encoding.bitrate is None and encoding.quality is not None:
            options["crf"] = str(encoding.quality)
        if encoding.live:
            options["tune"] = "zerolatency"
            if encoding.bitrate is not None:
                options |= {"maxrate": str(encoding.bitrate), "bufsize": str(encoding.bitrate)}
        self._stream = container.add_stream(name, rate=self.rate, time_base=TIME_BASE, options=options)
        context: Any = self._stream.codec_context
        context.width = self.width
        context.height = self.height
        context.pix_fmt = "nv12" if encoding.codec == "h264" else "yuv420p"
        context.time_base = TIME_BASE
        context.thread_count = self.threads
        context.color_primaries, context.color_trc, context.colorspace = H273[color.matrix]
        context.color_range = 2 if color.full_range else 1
        context.sample_aspect_ratio = self.pixel_aspect
        if encoding.bitrate is not None:
            context.bit_rate = encoding.bitrate
        if encoding.gop is not None:
            context.gop_size = encoding.gop
        if encoding.codec == "hevc":
            context.codec_tag = "hvc1"

    def encode(self, surface: Surface, ticks: int) -> Sequence[Packet[VideoStream]]:
        """See `Encoder.encode`."""
        from av import VideoFrame

        if self._pinned is None and array_module(surface.data) is not np:
            self._pinned = empty_pinned(surface.data.shape)
        frame = VideoFrame.from_ndarray(host_pixels(surface, self.counters, self._pinned), format="nv12")
        frame = frame.reformat(format=self._stream.codec_context.pix_fmt)  # which only moves the samples
        frame.pts = ticks
        frame.time_base = TIME_BASE
        packets: Sequence[Packet[VideoStream]] = self._stream.encode(frame)
        return packets

    def flush(self) -> Sequence[Packet[VideoStream]]:
        """See `Encoder.flush`."""
        packets: Sequence[Packet[VideoStream]] = self._stream.encode(None)
        for packet in packets:
            # x265 leaves the decoding time of a video shorter than its reordering delay undefined
            if packet.pts is not None and packet.dts is not None and not 0 <= packet.pts - packet.dts < 2**31:
                packet.dts = packet.pts
        return packets
