# SPDX-License-Identifier: Apache-2.0
"""Writes packets to a fragmented MP4 file that can be read up to its last fragment, whenever its writer dies."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamkit.core.errors import OutputError
from streamkit.io.outputs import AtomicFile, output_error
from streamkit.media.encode import TIME_BASE
from streamkit.media.fragments import ByteSink
from streamkit.media.ring import TICKS_PER_S, BufferedPacket

FRAGMENT_S = 2.0
"""A fragment begins at each keyframe, and after this time where keyframes are rarer, in seconds."""

_OPTIONS = {
    # delay_moov: cameras may tell the parameters of their codec with the first frame only
    "movflags": "frag_keyframe+empty_moov+delay_moov+default_base_moof+skip_trailer",
    "frag_duration": str(round(FRAGMENT_S * 1e6)),
    "video_track_timescale": "90000",
}


class SegmentWriter:
    """A file of a recording. Its first packet is decoded at time 0; each fragment is written when it is complete.

    Args:
        path: the path, without the duration, which `finish` adds.
        first: the first keyframe; it must be written like the other packets.
        tags: metadata of the file.

    Attributes:
        bytes: size of the file so far.

    Raises:
        OutputError: the file cannot be written, or MP4 does not support the codec.
    """

    def __init__(self, path: Path, first: BufferedPacket, tags: Mapping[str, str]) -> None:
        import av

        self.path = path
        self.stream_format = first.stream_format
        self.bytes = 0
        self._zero_pts = self._end = self._newest = first.pts
        self._zero_dts = first.dts
        self._file = AtomicFile(path)
        part = self._file.begin()
        self._sink = ByteSink()
        self._container: Any = None
        try:
            self._out = part.open("wb", buffering=0)
            self._container = av.open(self._sink, "w", format="mp4", options=_OPTIONS)
            self._container.metadata.update(tags)
            self._stream = first.stream_format.add_to(self._container)
            if self.stream_format.codec == "hevc":
                self._stream.codec_context.codec_tag = "hvc1"  # Safari plays no hev1
        except (av.error.FFmpegError, OSError, ValueError, RuntimeError) as error:
            raise self._failed(error) from error

    @property
    def duration_ms(self) -> int:
        """Duration so far, in milliseconds."""
        return round((self._end - self._zero_pts) * 1000 / TICKS_PER_S)

    def may_end_before(self, packet: BufferedPacket) -> bool:
        """Whether the file may end before this packet: every frame shown up to its end is then in the file."""
        return packet.pts > self._newest

    def write(self, packet: BufferedPacket) -> bool:
        """Write one packet; return False for a frame shown before the first one, which cannot be decoded.

        Raises:
            OutputError: it cannot be written; the fragments before it stay readable.
        """
        import av

        if packet.pts < self._zero_pts:
            return False
        av_packet = av.Packet(packet.data)
        av_packet.stream = self._stream
        av_packet.time_base = TIME_BASE
        av_packet.pts = packet.pts - self._zero_dts
        av_packet.dts = packet.dts - self._zero_dts
        av_packet.duration = packet.duration
        av_packet.is_keyframe = packet.keyframe
        try:
            self._container.mux_one(av_packet)
            self._flush()
        except (av.error.FFmpegError, OSError, ValueError, RuntimeError) as error:
            raise self._failed(error) from error
        self._end = max(self._end, packet.pts + packet.duration)
        self._newest = max(self._newest, packet.pts)
        return True

    def _flush(self) -> None:
        if not (fragment := self._sink.take()):
            return
        at = 0
        while at < len(fragment):
            at += self._out.write(fragment[at:]) or 0
        self.bytes += len(fragment)

    def finish(self, name: str) -> Path:
        """Write the last fragment, and give the file its name; return the path.

        Raises:
            OutputError: it cannot be written; the fragments before it stay in the part file, for the next start.
        """
        import av

        try:
            self._container.close()
            self._flush()
            self._out.close()
        except (av.error.FFmpegError, OSError, ValueError, RuntimeError) as error:
            raise self._failed(error) from error
        self._file.finish(name)
        return self.path.with_name(name)

    def abandon(self) -> None:
        """Close the file and leave what is written as a part file, as a crash does."""
        import av

        with contextlib.suppress(av.error.FFmpegError, OSError, ValueError):
            if self._container is not None:
                self._container.close()
        with contextlib.suppress(OSError):
            self._out.close()
        self._file.abandon()

    def _failed(self, error: BaseException) -> OutputError:
        self.abandon()
        return output_error(self.path, error)
