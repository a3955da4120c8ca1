"""A clip: packets of a source written into a file as they came, nothing decoded and nothing encoded."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from streamkit.media.encode import TIME_BASE
from streamkit.media.mux import container_format
from streamkit.media.ring import TICKS_PER_S, Kept
from streamkit.outputs import WholeFile, output_error


class Clip:
    """One clip, from a keyframe on; its first picture is at 0.

    Args:
        path: where it is to appear when it is whole; `.mp4` or `.mkv`.
        first: the keyframe that it begins with. To be written like the others.
        tags: for the whole file.

    Attributes:
        bytes: written so far.

    Raises:
        OutputError: it cannot be written, or the container does not take the codec.
    """

    def __init__(self, path: Path, first: Kept, tags: Mapping[str, str]) -> None:
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
        """How long it is so far, in seconds."""
        return (self._end - self._zero) / TICKS_PER_S

    def may_end_before(self, kept: Kept) -> bool:
        """Whether no picture that is shown earlier than one that is in the file would be missing from it."""
        return kept.pts > self._newest

    def has(self, kept: Kept) -> bool:
        """Whether a packet's picture is among those shown in the file."""
        return self._zero <= kept.pts <= self._newest

    def at_s(self, kept: Kept) -> float:
        """When a packet's picture is shown in the file, in seconds."""
        return max(0, kept.pts - self._zero) / TICKS_PER_S

    def write(self, kept: Kept) -> bool:
        """Write one packet; False for a picture that is shown before the first, which nothing can decode.

        Raises:
            OutputError: it cannot be written; the file is gone then.
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
        """Complete the file and give it its name.

        Raises:
            OutputError: it cannot be written; the file is gone then.
        """
        from av.error import FFmpegError

        try:
            self._container.close()
        except (FFmpegError, OSError, ValueError) as error:
            self.discard()
            raise output_error(self.path, error) from error
        self._file.finish()

    def discard(self) -> None:
        """Remove what was written."""
        from av.error import FFmpegError

        if self._container is not None:
            with suppress(FFmpegError, OSError, ValueError):  # it is thrown away
                self._container.close()
        self._file.discard()
