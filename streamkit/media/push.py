# SPDX-License-Identifier: Apache-2.0
"""Pushes encoded video to a receiver over the network, or into an HLS playlist, in real time."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

from streamkit.core.addresses import check_characters
from streamkit.core.child_environment import child_environment
from streamkit.core.data import Surface
from streamkit.core.errors import OutputError
from streamkit.media.encode import Encoder
from streamkit.media.uris import is_path, local_path, mask, scheme

logger = logging.getLogger(__name__)

FORMATS = {"rtsp": "rtsp", "rtsps": "rtsp", "rtmp": "flv", "rtmps": "flv", "srt": "mpegts"}
_HLS = ".m3u8"
_GRACE_S = 2.0
_PIPE_BYTES = 1 << 18


def check_target(url: str) -> None:
    """Reject an address that does not support pushing. Raises ValueError."""
    kind = scheme(url)
    where = url.partition("?")[0]
    if not is_path(url):
        try:
            check_characters(url)
        except ValueError as error:
            raise ValueError(f"url {error}") from None
    if kind in FORMATS:
        return
    if kind in ("", "file", "http", "https") and where.endswith(_HLS):
        return
    forms = f"{', '.join(f'{name}://' for name in FORMATS)}, or a path or http(s) address that ends in {_HLS}"
    raise ValueError(f"url must begin with {forms}, got {mask(url)!r}")


def check_protocol(url: str) -> None:
    """Reject a protocol that PyAV's FFmpeg was built without.

    Raises:
        OutputError: the protocol is missing.
    """
    if scheme(url) != "srt":
        return
    import av
    from av.error import FFmpegError, ProtocolNotFoundError

    try:
        av.open("srt://127.0.0.1:1?mode=listener&listen_timeout=1", timeout=0.1).close()
    except ProtocolNotFoundError:
        raise OutputError(
            f"cannot push to {mask(url)}: the FFmpeg of PyAV {av.__version__} was built without SRT; push to rtsp:// "
            "or rtmp://, and let a media server forward it as SRT"
        ) from None
    except (FFmpegError, OSError):
        pass


def target_options(url: str, timeout_s: float) -> tuple[str, dict[str, str]]:
    """FFmpeg's container name for an address, and its options."""
    kind = scheme(url)
    us = str(int(timeout_s * 1e6))
    if kind in ("rtsp", "rtsps"):
        return "rtsp", {"rtsp_transport": "tcp", "timeout": us}
    if kind in ("rtmp", "rtmps"):
        return "flv", {"flvflags": "no_duration_filesize", "rw_timeout": us}
    if kind == "srt":
        return "mpegts", {"timeout": us}
    options = {
        "hls_time": "2",
        "hls_list_size": "6",
        "hls_start_number_source": "epoch",
        "hls_flags": "delete_segments+independent_segments" + ("+temp_file" if is_path(url) else ""),
    }
    if not is_path(url):
        options |= {"method": "PUT", "timeout": f"{timeout_s:g}"}
    return "hls", options


class Push:
    """One connection to a receiver: an encoder, and a process that talks to the receiver.

    Args:
        url: the receiver.
        encoder: creates the packets, starting with a keyframe.
        timeout_s: maximum time without accepted data, in seconds.

    Attributes:
        connected: whether the receiver has accepted the stream's description.
    """

    def __init__(self, url: str, encoder: Encoder, timeout_s: float) -> None:
        import av

        self._url = url
        self._encoder = encoder
        self._timeout_s = timeout_s
        self.connected = False
        self._muxed = _WriteBuffer()
        # written to memory only; a packet is complete as soon as it is muxed
        self._container: Any = av.open(self._muxed, "w", format="nut", options={"flush_packets": "1"})
        encoder.start(self._container)
        if is_path(url):
            folder = os.path.dirname(local_path(url))
            if folder:
                os.makedirs(folder, exist_ok=True)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "streamkit.media.pusher"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=child_environment(),
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in = self._process.stdin.fileno()
        self._out = self._process.stdout.fileno()
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)
        with suppress(OSError):  # the system allows less: smaller writes
            fcntl.fcntl(self._in, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        kind, options = target_options(url, timeout_s)
        where = local_path(url) if is_path(url) else url
        # not in its arguments, which every user of the machine can read: the address may contain a password
        self._send(json.dumps({"url": where, "format": kind, "options": options}).encode() + b"\n")

    def write(self, surface: Surface, ticks: int) -> None:
        """Encode and send one surface; `ticks` of `TIME_BASE` is its presentation time and must rise.

        Raises:
            OutputError: the connection was lost or refused, or no data was accepted for too long.
        """
        from av.error import FFmpegError

        try:
            for packet in self._encoder.encode(surface, ticks):
                self._container.mux_one(packet)
        except (FFmpegError, ValueError, RuntimeError) as error:
            raise self._connection_error(f"cannot encode: {' '.join(str(error).split())}") from error
        self._send(self._muxed.take())
        self._check_connected()

    def close(self) -> None:
        """Send the remaining packets and close the connection, within two seconds."""
        from av.error import FFmpegError

        with suppress(OutputError, FFmpegError, OSError, ValueError):
            for packet in self._encoder.flush():
                self._container.mux_one(packet)
            self._container.close()
            self._send(self._muxed.take(), _GRACE_S)
        self._stop_process(_GRACE_S)

    def _check_connected(self) -> None:
        """Check whether the process has reported that it is connected."""
        if not self.connected:
            with suppress(BlockingIOError):
                self.connected = b"connected" in os.read(self._out, 100)

    def _send(self, data: bytes, timeout_s: float | None = None) -> None:
        """Write to the process; wait for as long as the receiver may take."""
        rest = memoryview(data)
        until_s = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        while rest:
            if self._process.poll() is not None:
                raise self._connection_error("")
            try:
                rest = rest[os.write(self._in, rest[:65536]) :]
                continue
            except BlockingIOError:
                pass
            except BrokenPipeError:
                raise self._connection_error("") from None
            if time.monotonic() > until_s:
                raise self._connection_error(f"it has accepted no data for {self._timeout_s:g} s")
            select.select([], [self._in], [], 0.2)

    def _connection_error(self, why: str) -> OutputError:
        message = self._stop_process(0.0 if why else 0.5)
        did = "the connection was lost" if self.connected else "it cannot be reached"
        return OutputError(f"cannot push to {mask(self._url)}: {mask(why or message or did)}")

    def _stop_process(self, grace_s: float) -> str:
        """End the process; return its last error line, or the signal that killed it, whose stacks are logged."""
        from av.error import FFmpegError

        with suppress(FFmpegError, OSError, ValueError):
            self._container.close()  # otherwise it and its stream hold each other
        crashed = False
        try:
            output, errors = self._process.communicate(timeout=grace_s)
            crashed = self._process.returncode < 0
        except subprocess.TimeoutExpired:
            self._process.kill()
            output, errors = self._process.communicate()
        self.connected |= b"connected" in output
        text = str(errors, "utf-8", "replace").strip()
        if crashed:
            killed_by = signal.Signals(-self._process.returncode).name
            if text:
                logger.error(f"the process that pushes to {mask(self._url)} was killed by {killed_by}:\n{mask(text)}")
            return f"its process was killed by {killed_by}"
        return text[-1000:].rpartition("\n")[2]


class _WriteBuffer:
    """A file object that keeps written data until it is taken."""

    def __init__(self) -> None:
        self._data = bytearray()

    def write(self, data: bytes) -> int:
        self._data += data
        return len(data)

    def take(self) -> bytes:
        """Return the data written since the last call."""
        data = bytes(self._data)
        self._data = bytearray()
        return data
