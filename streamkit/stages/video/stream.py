# SPDX-License-Identifier: Apache-2.0
"""Sink: live video to a receiver, by RTSP, RTMP, SRT or HLS."""

from __future__ import annotations

import logging
import time
from fractions import Fraction
from typing import Annotated, Any, Literal

from streamkit.core.data import Frame, Surface
from streamkit.core.errors import OutputError
from streamkit.core.logs import LogOnce
from streamkit.core.stage import Count, Seconds, Sink, stage
from streamkit.media.encode import TIME_BASE, Encoding
from streamkit.media.encoders import BitRate, Quality, check_encoding, choose_encoder, make_encoder
from streamkit.media.push import Push, check_protocol, check_target
from streamkit.media.uris import mask
from streamkit.stages.sources.source import Rate

logger = logging.getLogger(__name__)

__all__ = ["Stream"]

_FIRST_WAIT_S = 0.5
_GOP_S = 2.0
_USUAL = Fraction(25)


@stage("stream", reads="pixels", target="url", may_drop=True, one_source=True)
class Stream(Sink):
    """Push the frames, as drawn, to an RTSP, RTMP or SRT server, or into an HLS playlist.

    The stage never blocks the pipeline: frames that arrive while the encoder is busy, or while there is no connection,
    are dropped and counted. A lost connection is retried with exponential backoff.
    """

    url: Annotated[
        str,
        '"rtsp://host/{source}" (or rtsps, rtmp, rtmps, srt), or a playlist, "live/{source}.m3u8", which may also be '
        "an http address that accepts PUT.",
    ]
    encoder: Annotated[
        Literal["auto", "nvenc", "cpu"],
        "nvenc is the GPU's; cpu is x264 or x265; auto uses nvenc if frames are on a GPU that has it.",
    ] = "auto"
    codec: Annotated[Literal["h264", "hevc"], "h264 or hevc; RTMP needs h264."] = "h264"
    fps: Annotated[Rate | None, "reduce to at most this many frames per second, evenly."] = None
    quality: Annotated[Quality | None, "constant rate factor, 0 (best) to 51; by default the encoder's own."] = None
    bitrate: Annotated[BitRate | None, "bits per second, such as 2M, instead of quality."] = None
    preset: Annotated[str | None, "speed against size, as named by the encoder; veryfast or p4 by default."] = None
    gop: Annotated[Count | None, "frames between keyframes, for which new viewers wait; two seconds by default."] = None
    timeout: Annotated[Seconds, "disconnect a receiver that has accepted nothing for this long."] = 5.0
    max_backoff: Annotated[Seconds, "the longest wait between two attempts to connect."] = 10.0

    def __post_init__(self) -> None:

        check_target(self.url)
        check_encoding(self.encoder, self.preset, self.quality, self.bitrate)
        if self.codec != "h264" and self.url.startswith("rtmp"):
            raise ValueError(f"codec must be h264 for RTMP, got {self.codec}")
        if self.timeout <= 0:
            raise ValueError("timeout must be longer than 0s")
        self._push: Push | None = None
        self._format: Any = None
        self._before_s: float | None = None
        self._zero_s = 0.0
        self._sent_s = -1.0
        self._next_s = float("-inf")
        self._wait_s = _FIRST_WAIT_S
        self._again_s = 0.0
        self._times = self._under_way = 0
        self._inform = LogOnce(logger.info)
        self._warn = LogOnce(logger.warning)

    def probe(self) -> None:
        """Check that the encoder is available, and that FFmpeg has the protocol."""
        check_protocol(self.url)
        self._choose()

    def open(self) -> None:
        """Choose the encoder. The connection is made with the first frames.

        Raises:
            OutputError: FFmpeg lacks the protocol.
            DeviceError: `nvenc` is requested and the GPU or the driver has none.
        """
        check_protocol(self.url)
        self._chosen = self._choose()

    def write(self, frame: Frame) -> None:
        """Send one frame, or drop it if there is no connection. The first frame only serves to measure the rate."""
        count = self.context.counters.add
        if frame.error is not None or frame.surface is None:
            count("frames not streamed: no pixels")
            return
        before_s = self._before_s
        self._before_s = frame.pts_s
        if before_s is None:
            count("frames not streamed: first frame")
            return
        if frame.pts_s <= max(before_s, self._sent_s):
            count("frames not streamed: timestamp not increasing")
            return
        if self.fps is not None and not self._due(frame.pts_s):
            return
        surface = frame.surface
        format_ = (surface.width, surface.height, surface.color, frame.pixel_aspect)
        if self._push is not None and format_ != self._format:
            self._disconnect()
        if self._push is None and not self._connect(frame, surface, frame.pts_s - before_s):
            return
        self._send(frame, surface)

    def close(self) -> None:
        """Flush the encoder, and close the connection."""
        self._disconnect()

    # --------------------------------------------------------------------------------------------------- inside

    def _choose(self) -> str:
        context = self.context
        return choose_encoder(self.encoder, self.codec, self.preset, context.device, "the stream")

    def _due(self, pts_s: float) -> bool:
        """Whether the frame is due under `fps`."""
        assert self.fps is not None
        step_s = 1 / self.fps
        if pts_s < self._next_s - 0.1 * step_s:
            return False
        self._next_s = self._next_s + step_s if self._next_s + step_s > pts_s else pts_s + step_s
        return True

    def _connect(self, frame: Frame, surface: Surface, step_s: float) -> bool:
        """Begin to connect, if the backoff is over."""
        now_s = time.monotonic()
        if now_s < self._again_s:
            self.context.counters.add("frames not streamed: no connection")
            return False
        rate = Fraction(1 / step_s).limit_denominator(1001) if 1 / 240 <= step_s <= 10 else _USUAL
        if self.fps is not None:
            rate = min(rate, Fraction(self.fps).limit_denominator(1001))
        gop = self.gop or max(1, round(rate * _GOP_S))
        encoding = Encoding(self.codec, self.quality, self.bitrate, self.preset, gop, live=True)
        context = self.context
        encoder = make_encoder(
            self._chosen,
            encoding,
            surface,
            rate,
            context.device,
            context.threads,
            context.counters,
            frame.pixel_aspect,
        )
        self._times += 1
        if self._times > 1:
            context.counters.add("stream reconnects")
        try:
            self._push = Push(self.url, encoder, self.timeout)
        except (OutputError, OSError) as error:
            self._lost(
                error if isinstance(error, OutputError) else OutputError(f"cannot push to {self._name}: {error}")
            )
            return False
        self._format = (surface.width, surface.height, surface.color, frame.pixel_aspect)
        self._zero_s = frame.pts_s
        return True

    def _send(self, frame: Frame, surface: Surface) -> None:

        assert self._push is not None
        connected = self._push.connected
        try:
            self._push.write(surface, round((frame.pts_s - self._zero_s) / TIME_BASE))
        except OutputError as error:
            self._lost(error)
            return
        self._sent_s = frame.pts_s
        self._under_way += 1
        if self._push.connected:
            self.context.counters.add("frames streamed", self._under_way)
            self._under_way = 0
        if self._push.connected and not connected:
            self._wait_s = _FIRST_WAIT_S
            self._inform(f"{frame.source} is streamed to {self._name}")

    def _lost(self, error: OutputError) -> None:
        """Schedule the next attempt."""
        self._push = None
        self.context.counters.add("stream connections lost or refused")
        self.context.counters.add("frames not streamed: no connection", self._under_way + 1)
        self._under_way = 0
        self._warn(f"{error}; retrying until it works")
        self._again_s = time.monotonic() + self._wait_s
        self._wait_s = min(2 * self._wait_s, self.max_backoff)

    def _disconnect(self) -> None:
        push = self._push
        self._push = None
        if push is not None:
            push.close()
            kind = "frames streamed" if push.connected else "frames not streamed: no connection"
            if self._under_way:
                self.context.counters.add(kind, self._under_way)
            self._under_way = 0

    @property
    def _name(self) -> str:
        return mask(self.url)
