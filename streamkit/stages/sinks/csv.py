"""Sink: CSV files, one row per object."""

from __future__ import annotations

import csv
import io
import re
from typing import Annotated, Any, Literal

from streamkit.core.data import Frame
from streamkit.core.records import record
from streamkit.core.stage import Sink, stage
from streamkit.io.line_file import LineFile, Rotate
from streamkit.io.outputs import check_path

# what spreadsheets take for a formula, blanks before it and the wide forms of its signs included
_FORMULA = re.compile("[\\t\\r\\n]|\\s*[=+\\-@\uff1d\uff0b\uff0d\uff20]")
COLUMNS = (
    "source", "frame", "pts_s", "label", "class_id", "score", "x1", "y1", "x2", "y2", "track_id", "stage", "time",
    "error",
)  # fmt: skip


@stage("csv")
class CsvSink(Sink):
    """Write one CSV row per object: source, time, class, score, and box in source pixels.

    A frame without objects has one row with empty object columns, so every frame is present; a failed frame has its
    reason under `error`. Values are those of the records that `jsonl` writes; events are not included.
    """

    path: Annotated[str, 'the file, such as "out/{source}.csv"; `-` is standard output.']
    if_exists: Annotated[
        Literal["overwrite", "append", "fail"] | None,
        "overwrite, append or fail; by default, files of videos are overwritten and cameras append.",
    ] = None
    rotate: Annotated[
        Rotate | None,
        "when a new file begins, as in {every: 1h, size: 100MB}; each file has the header. A camera's finished file "
        "is renamed to the UTC time of its first frame; a video continues in NAME-2.csv.",
    ] = None
    escape_formulas: Annotated[
        bool,
        "put an apostrophe before text that a spreadsheet would run as a formula: text that begins with = + - @ or a "
        "tab. Set it if labels, file names or source ids come from others and people open the file.",
    ] = False

    def __post_init__(self) -> None:
        check_path(self.path)
        if self.path == "-" and self.rotate:
            raise ValueError("rotate needs a file, and path: - is standard output; leave rotate out")

    def open(self) -> None:
        """Check that the file can be written."""
        self.lines = LineFile(
            self.path,
            header=as_text([COLUMNS]),
            if_exists=self.if_exists,
            rotate=self.rotate,
            is_whole=_is_row,
            counters=self.context.counters,
            say=self.context.log,
        )
        self.lines.open()

    def write(self, frame: Frame) -> None:
        """Write the frame's rows."""
        found = rows(frame)
        self.lines.write(as_text(harmless(found) if self.escape_formulas else found), frame.time_s)

    def end(self, source: str) -> None:
        """Flush, so that readers see the source's last frames now."""
        self.lines.flush()

    def close(self) -> None:
        """Write the rest; a complete file gets its name."""
        self.lines.close()


def rows(frame: Frame) -> list[list[Any]]:
    """Return the frame's rows, in the order of `COLUMNS`; None where there is no value."""
    made = record(frame)
    only = next(iter(frame.tables)) if len(frame.tables) == 1 else None
    where = [made["source"], made["frame"], made["pts_s"]]
    rest = [made.get("time"), made.get("error")]
    found = [
        [
            *where,
            one.get("label"),
            one["class_id"],
            one["score"],
            *one["box"],
            one.get("track_id"),
            one.get("stage", only),
            *rest,
        ]
        for one in made["objects"]
    ]
    return found or [[*where, *[None] * 9, *rest]]


def harmless(lines: list[list[Any]]) -> list[list[Any]]:
    """Put an apostrophe, which spreadsheets hide, before text that begins like a formula."""
    return [
        [f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value for value in row] for row in lines
    ]


def as_text(lines: list[Any]) -> bytes:
    """Return rows as CSV; line breaks within a value become blanks, so that each row is one line."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [" ".join(value.split()) if isinstance(value, str) else value for value in row] for row in lines
    )
    return text.getvalue().encode("utf-8", "replace")


def _is_row(text: bytes) -> bool:
    return len(next(csv.reader([text.decode("utf-8", "replace")]), [])) == len(COLUMNS)
