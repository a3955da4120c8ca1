# SPDX-License-Identifier: Apache-2.0
"""Sink: JSON Lines, one object per frame; and the base of sinks that write lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from streamkit.core.data import Frame
from streamkit.core.records import batch_lines, line
from streamkit.core.stage import Sink, stage
from streamkit.io.line_file import LineFile, Rotate
from streamkit.io.outputs import check_path


@dataclass(eq=False)
class LineSink(Sink):
    """Writes lines to a file or to standard output."""

    path: Annotated[str, "the file; `-` is standard output."]
    if_exists: Annotated[
        Literal["overwrite", "append", "fail"] | None,
        "overwrite, append or fail; by default, files of videos are overwritten and cameras append.",
    ] = None
    rotate: Annotated[
        Rotate | None,
        "when a new file begins, as in {every: 1h, size: 100MB}. A camera's finished file is renamed to the UTC time "
        "of its first frame; a video continues in NAME-2.",
    ] = None

    def __post_init__(self) -> None:
        check_path(self.path)
        if self.path == "-" and self.rotate:
            raise ValueError("rotate needs a file, and path: - is standard output; leave rotate out")

    def header(self) -> bytes:
        """Return the first line of each file."""
        return b""

    @staticmethod
    def is_whole(text: bytes) -> bool:
        """Whether the last line of an existing file is complete."""
        raise NotImplementedError

    def open(self) -> None:
        """Check that the file can be written."""
        self.lines = LineFile(
            self.path,
            header=self.header(),
            if_exists=self.if_exists,
            rotate=self.rotate,
            is_whole=self.is_whole,
            counters=self.context.counters,
        )
        self.lines.open()

    def end(self, source: str) -> None:
        """Flush, so that readers see the source's last frames now."""
        self.lines.flush()

    def close(self) -> None:
        """Write the rest; a complete file gets its name."""
        self.lines.close()


@stage("jsonl")
class JsonlSink(LineSink):
    """Write one JSON object per frame, each on a line, schema `streamkit/1`.

    A video's file appears under its name when it is complete; a camera's file grows by whole lines, at most a quarter
    of a second late while frames keep coming.
    """

    path: Annotated[str, 'the file, such as "out/{source}.jsonl"; `-` is standard output.']

    encode = staticmethod(batch_lines)  # the runner makes them once for all sinks of a batch

    def write(self, frame: Frame) -> None:
        """Write the frame's record."""
        self.lines.write(line(frame), frame.time_s)

    def write_encoded(self, frame: Frame, encoded: bytes) -> None:
        """Write the frame's record, encoded with those of its batch."""
        self.lines.write(encoded, frame.time_s)

    @staticmethod
    def is_whole(text: bytes) -> bool:
        """See `LineSink.is_whole`."""
        import orjson

        try:
            orjson.loads(text)
        except ValueError:
            return False
        return True
