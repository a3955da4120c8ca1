"""Sink: JSON Lines, one object per frame."""

from __future__ import annotations

from typing import Annotated, Literal

from streamkit.core.data import Batch, Frame
from streamkit.core.records import batch_lines, line
from streamkit.core.stage import Sink, stage
from streamkit.io.line_file import LineFile, Rotate
from streamkit.io.outputs import check_path


@stage("jsonl")
class JsonlSink(Sink):
    """Write one JSON object per frame, each on a line, schema `streamkit/1`.

    A video's file appears under its name when it is complete; a camera's file grows by whole lines, at most a quarter
    of a second late while frames keep coming.
    """

    path: Annotated[str, 'the file, such as "out/{source}.jsonl"; `-` is standard output.']
    if_exists: Annotated[
        Literal["overwrite", "append", "fail"] | None,
        "overwrite, append or fail; by default, files of videos are overwritten and cameras append.",
    ] = None
    rotate: Annotated[
        Rotate | None,
        "when a new file begins, as in {every: 1h, size: 100MB}. A camera's finished file is renamed to the UTC time "
        "of its first frame; a video continues in NAME-2.jsonl.",
    ] = None

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
            say=self.context.log,
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
        """Write the frame's record, encoded with those of its batch."""
        self.lines.write(encoded, frame.time_s)

    def end(self, source: str) -> None:
        """Flush, so that readers see the source's last frames now."""
        self.lines.flush()

    def close(self) -> None:
        """Write the rest; a complete file gets its name."""
        self.lines.close()


def _is_json(text: bytes) -> bool:
    import orjson

    try:
        orjson.loads(text)
    except ValueError:
        return False
    return True
