"""Emit: one JSON object a frame."""

from __future__ import annotations

from typing import Literal

from streamkit.data import Batch, Frame
from streamkit.lines import LineFile, Rotate
from streamkit.outputs import check_path
from streamkit.records import batch_lines, line
from streamkit.stage import Sink, stage


@stage("jsonl")
class Jsonl(Sink):
    """Write one JSON object a frame, a line each, schema `streamkit/1`.

    The file of a video appears under its name when it is whole; that of a camera grows by whole lines, a quarter of a
    second late at most while frames keep coming.

    Options:
        path: the file, such as "out/{source}.jsonl"; `-` is standard output.
        if_exists: overwrite, append or fail; if not set, files are overwritten and cameras append.
        rotate: when a new file is begun, as in {every: 1h, size: 100MB}. A camera's old file is put aside under the
            UTC time of its first frame; a video goes on in NAME-2.jsonl.
    """

    path: str
    if_exists: Literal["overwrite", "append", "fail"] | None = None
    rotate: Rotate | None = None

    def __post_init__(self) -> None:
        check_path(self.path)
        if self.path == "-" and self.rotate:
            raise ValueError("rotate needs a file, and path: - is standard output; leave rotate out")

    def open(self) -> None:
        """Check that the file can be written."""
        self.lines = LineFile(
            self.path,
            if_exists=self.if_exists,
            rotate=self.rotate,
            is_whole=_is_json,
            counters=self.context.counters,
            say=self.context.say,
        )
        self.lines.open()

    @staticmethod
    def encode(batch: Batch) -> list[bytes]:
        """See `Sink.encode`."""
        return batch_lines(batch)

    def write(self, frame: Frame) -> None:
        """Write the frame's record."""
        self.lines.write(line(frame), frame.time_s)

    def write_encoded(self, frame: Frame, encoded: bytes) -> None:
        """Write the frame's record, made with those of its batch."""
        self.lines.write(encoded, frame.time_s)

    def end(self, source: str) -> None:
        """Let a reader see the source's last frames now."""
        self.lines.flush()

    def close(self) -> None:
        """Write the rest; a whole file gets its name."""
        self.lines.close()


def _is_json(text: bytes) -> bool:
    import orjson

    try:
        orjson.loads(text)
    except ValueError:
        return False
    return True
