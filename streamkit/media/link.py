# SPDX-License-Identifier: Apache-2.0
"""Connection options of addresses and devices for FFmpeg, and interruption of its blocking calls.

While FFmpeg waits, PyAV checks ten times a second whether a timeout has passed; there is no other way to end a call. So
the clock that PyAV reads is replaced by one that is far in the future for a thread whose wait must end.
"""

from __future__ import annotations

import itertools
import math
import time
from _thread import get_ident
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import parse_qsl

from streamkit.core.errors import SourceError
from streamkit.media.uris import check_address, device_path, is_device, is_path, local_path, mask, may_be_live, scheme

_SILENCE = {
    "http": "rw_timeout",
    "https": "rw_timeout",
    "hls": "rw_timeout",
    "tcp": "rw_timeout",
    "rtmp": "rw_timeout",
    "rtmps": "rw_timeout",
    "rtsp": "timeout",
    "rtsps": "timeout",
}
"""FFmpeg's option of each protocol for the longest silence of a peer, in microseconds."""
_MAX_SILENCE_S = 2147.0
"""FFmpeg keeps it in 32 bits; a longer silence ends by the deadline of the whole wait."""
_LONGEST_OPENING_S = 60.0
"""A peer that is never silent may take so long to open: a camera of one frame in five seconds takes half as long."""
_PROBED_FRAMES = "4"
"""Frames that FFmpeg reads to measure the rate; by default 20, for which a slow camera takes too long."""
_NETWORK_PROTOCOLS = (
    "crypto,data,ffrtmpcrypt,ffrtmphttp,hls,http,httpproxy,https,mmsh,mmst,rtmp,rtmpe,rtmps,rtmpt,rtmpte,rtmpts,rtp,sctp,srt,"
    "srtp,tcp,tls,udp,udplite"
)
"""What FFmpeg may open for a network address: a playlist that a server sends must not name files of this machine."""
_DEVICE_OPTIONS = {"size": "video_size", "fps": "framerate", "format": "input_format"}


_NAP_S = 0.05
_future = itertools.count(10**12, 10**9)  # each call during an ended wait exceeds the next timeout, too
_watched: dict[int, Interrupt] = {}


class Interrupt:
    """Ends the waits of one thread within `with interrupt:`.

    Attributes:
        deadline_s: monotonic time in seconds at which the wait ends; set by the waiting thread.
        stopped: whether all waits end at once.
    """

    def __init__(self) -> None:
        self.deadline_s = math.inf
        self.stopped = False

    def stop(self) -> None:
        """End the current and every later wait, from any thread. FFmpeg notices within about 0.1 s."""
        self.stopped = True

    def sleep(self, until_s: float) -> bool:
        """Sleep until a monotonic time; return False if the wait was ended."""
        while not self.stopped and (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(left_s, _NAP_S))
        return not self.stopped

    def __enter__(self) -> Interrupt:
        from av.container import core

        if getattr(core, "time", None) is time:  # otherwise only PyAV's own timeouts end waits
            setattr(core, "time", _Clock)  # noqa: B010
        _watched[get_ident()] = self
        return self

    def __exit__(self, *_: object) -> None:
        _watched.pop(get_ident(), None)


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Options of a connection.

    Attributes:
        timeout_s: maximum time without data or frames from the peer, in seconds.
        transport: transport of RTSP's media packets; auto starts with TCP and uses UDP if the peer rejects TCP.
        jitter_s: how long to wait for UDP packets that are out of order, in seconds; None for FFmpeg's default.
        low_latency: buffer nothing, and probe the stream from its first packets only.
        poll_s: interval between two requests for a still image, in seconds; None for the default.
        interrupt: ends the waits of the reading thread.
    """

    timeout_s: float = 15.0
    transport: Literal["auto", "tcp", "udp"] = "auto"
    jitter_s: float | None = None
    low_latency: bool = False
    poll_s: float | None = None
    interrupt: Interrupt = field(default_factory=Interrupt)

    def opening_s(self, uri: str) -> float:
        """How long opening an address may take, in seconds: only silence counts against `timeout_s` if possible."""
        return max(self.timeout_s, _LONGEST_OPENING_S) if scheme(uri) in _SILENCE else self.timeout_s

    def open_arguments(self, uri: str) -> tuple[str, str | None, dict[str, str]]:
        """Address or path, format if required, and options for FFmpeg.

        Raises:
            SourceError: FFmpeg must not get the address, see `check_address`, or a device has no such option.
        """
        if is_path(uri):
            return local_path(uri), None, {}
        check_address(uri)
        if is_device(uri):
            return device_path(uri), "v4l2", device_options(uri)
        kind = scheme(uri)
        options = {"protocol_whitelist": _NETWORK_PROTOCOLS}
        if kind in _SILENCE and self.timeout_s <= _MAX_SILENCE_S:
            options[_SILENCE[kind]] = str(int(self.timeout_s * 1e6))
        if kind in ("rtsp", "rtsps"):
            # connecting takes half a second instead of two if no frames are read to guess the rate
            options["fpsprobesize"] = "0"
            if self.transport == "auto":
                options["rtsp_flags"] = "prefer_tcp"
            else:
                options["rtsp_transport"] = self.transport
        elif may_be_live(uri):
            options["fpsprobesize"] = _PROBED_FRAMES
        if self.low_latency:
            options |= {"fflags": "nobuffer", "analyzeduration": "500000", "max_delay": "0"}
            if kind in ("rtsp", "rtsps", "rtp"):
                options["reorder_queue_size"] = "0"
            if kind in ("http", "https", "hls"):
                options["live_start_index"] = "-1"
        if self.jitter_s is not None:
            options["max_delay"] = str(int(self.jitter_s * 1e6))
            options.pop("reorder_queue_size", None)
        return uri, None, options


def device_options(uri: str) -> dict[str, str]:
    """FFmpeg's options for `v4l2:///dev/video0?size=1280x720&fps=30&format=mjpeg`.

    Raises:
        SourceError: an option is unknown.
    """
    options = {}
    for name, value in parse_qsl(uri.partition("?")[2], keep_blank_values=True):
        if name not in _DEVICE_OPTIONS:
            raise SourceError(f"{mask(uri)}: a device has the options {', '.join(_DEVICE_OPTIONS)}, not {name!r}")
        options[_DEVICE_OPTIONS[name]] = value
    return options


class _Clock:
    """Replaces the module `time` for PyAV's containers."""

    @staticmethod
    def monotonic() -> float:
        now = time.monotonic()
        watched = _watched.get(get_ident())
        if watched is not None and (watched.stopped or now > watched.deadline_s):
            return float(next(_future))
        return now
