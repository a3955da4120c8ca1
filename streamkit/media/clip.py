"""Clips: packets of a source written to a file as received, without decoding or encoding."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from streamkit.io.outputs import WholeFile, output_error
from streamkit.media.encode import TIME_BASE
from streamkit.media.mux import container_format
from streamkit.media.ring import TICKS_PER_S, BufferedPacket


class Clip:
    """One clip that starts at a keyframe; its first frame is at time 0.

    Args:
        path: the final path, used once the file is complete; `.mp4` or `.mkv`.
        first: the first keyframe; it must be written like the other packets.
        tags: metadata of the file.

    Attributes:
        bytes: bytes written so far.

    Raises:
        OutputError: the file cannot be written, or the container does not support the codec.
    """

    def __init__(self, path: Path, first: BufferedPacket, tags: Mapping[str, str]) -> None:
        import av
        from av.error import FFmpegError

        self.path, self.form = path, first.form
        self.bytes = self.packets = 0
        self._zero = self._end = self._newest = first.pts
        self._file = WholeFile(path)
        self._file.begin()
        self._container: Any = None
        try:
            self._container = av.open(str(self._file.part), "w", format=container_format(path))
            self._container.metadata.update(tags)
            self._stream = self._container.add_stream_from_template(first.form.template, opaque=True)
        except (FFmpegError, OSError, ValueError) as error:
            self.discard()
            raise output_error(path, error) from error

    @property
    def duration_s(self) -> float:
        """Duration so far, in seconds."""
        return (self._end - self._zero) / TICKS_PER_S

    def may_end_before(self, kept: BufferedPacket) -> bool:
        """Whether the clip may end before this packet: every frame shown up to its end is then in the file."""
        return kept.pts > self._newest

    def has(self, kept: BufferedPacket) -> bool:
        """Whether a packet's frame is among those shown in the file."""
        return self._zero <= kept.pts <= self._newest

    def at_s(self, kept: BufferedPacket) -> float:
        """When a packet's frame is shown in the file, in seconds."""
        return max(0, kept.pts - self._zero) / TICKS_PER_S

    def write(self, kept: BufferedPacket) -> bool:
        """Write one packet; return False for a frame shown before the first one, which cannot be decoded.

        Raises:
            OutputError: it cannot be written; the file is then removed.
        """
        import av
        from av.error import FFmpegError

        if kept.pts < self._zero:
            return False
        packet = av.Packet(kept.data)
        packet.stream = self._stream
        packet.time_base = TIME_BASE
        packet.pts, packet.dts = kept.pts - self._zero, kept.dts - self._zero
        packet.duration, packet.is_keyframe = kept.duration, kept.keyframe
        try:
            self._container.mux_one(packet)
        except (FFmpegError, OSError, ValueError) as error:
            self.discard()
            raise output_error(self.path, error) from error
        self._end, self._newest = max(self._end, kept.pts + kept.duration), max(self._newest, kept.pts)
        self.bytes, self.packets = self.bytes + len(kept.data), self.packets + 1
        return True

    def finish(self) -> None:
        """Complete the file and move it to its final path.

        Raises:
            OutputError: it cannot be written; the file is then removed.
        """
        from av.error import FFmpegError

        try:
            self._container.close()
        except (FFmpegError, OSError, ValueError) as error:
            self.discard()
            raise output_error(self.path, error) from error
        self._file.finish()

    def discard(self) -> None:
        """Remove the partial file."""
        from av.error import FFmpegError

        if self._container is not None:
            with suppress(FFmpegError, OSError, ValueError):  # it is thrown away
                self._container.close()
        self._file.discard()
