"""Connection options: what FFmpeg needs to open each kind of network stream, and devices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import parse_qsl

from streamkit.core.errors import SourceError
from streamkit.media.interrupt import Interrupt
from streamkit.media.uris import device_path, is_device, is_path, local_path, mask, scheme

_DEVICE_OPTIONS = {"size": "video_size", "fps": "framerate", "format": "input_format"}


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """What is asked of a connection.

    Attributes:
        timeout_s: maximum time without data or frames from the peer, in seconds.
        transport: transport of RTSP's media packets; auto starts with TCP and uses UDP if the peer rejects TCP.
        jitter_s: how long to wait for UDP packets that are out of order, in seconds; None for FFmpeg's default.
        low_latency: buffer nothing, and probe the stream from its first packets only.
        interrupt: ends the waits of the reading thread.
    """

    timeout_s: float = 15.0
    transport: Literal["auto", "tcp", "udp"] = "auto"
    jitter_s: float | None = None
    low_latency: bool = False
    interrupt: Interrupt = field(default_factory=Interrupt)

    def opening(self, uri: str) -> tuple[str, str | None, dict[str, str]]:
        """Address or path, format if required, and options for FFmpeg.

        Raises:
            SourceError: a device address has an unknown option.
        """
        if is_path(uri):
            return local_path(uri), None, {}
        if is_device(uri):
            return device_path(uri), "v4l2", device_options(uri)
        kind = scheme(uri)
        options = {"rw_timeout": str(int(self.timeout_s * 1e6))} if kind in ("rtmp", "rtmps") else {}
        if kind in ("rtsp", "rtsps"):
            # without frames to guess the rate from a connection takes half a second, not two
            options["fpsprobesize"] = "0"
            if self.transport == "auto":
                options["rtsp_flags"] = "prefer_tcp"
            else:
                options["rtsp_transport"] = self.transport
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
