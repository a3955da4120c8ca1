# SPDX-License-Identifier: Apache-2.0
"""Sink: CSV files, one row per object."""

from __future__ import annotations

import csv
import io
import re
from typing import Annotated, Any

from streamkit.core.data import Frame
from streamkit.core.records import record
from streamkit.core.stage import stage
from streamkit.stages.sinks.jsonl import LineSink

# What spreadsheets treat as a formula, with blanks before it and the full-width forms of its signs.
_FORMULA = re.compile("[\\t\\r\\n]|\\s*[=+\\-@\uff1d\uff0b\uff0d\uff20]")
COLUMNS = (
    "source", "frame", "pts_s", "label", "class_id", "score", "x1", "y1", "x2", "y2", "track_id", "stage", "time",
    "error",
)  # fmt: skip


@stage("csv")
class CsvSink(LineSink):
    """Write one CSV row per object: source, time, class, score, and box in source pixels.

    A frame without objects has one row with empty object columns, so every frame is present; a failed frame has its
    reason under `error`. Values are those of the records that `jsonl` writes; events are not included. Each file begins
    with the header.
    """

    path: Annotated[str, 'the file, such as "out/{source}.csv"; `-` is standard output.']
    escape_formulas: Annotated[
        bool,
        "put an apostrophe before text that a spreadsheet would run as a formula: text that begins with = + - @ or a "
        "tab. Set it if labels, file names or source ids come from others and people open the file.",
    ] = False

    def write(self, frame: Frame) -> None:
        """Write the frame's rows."""
        table_rows = rows(frame)
        self.lines.write(as_text(harmless(table_rows) if self.escape_formulas else table_rows), frame.time_s)

    def header(self) -> bytes:
        """See `LineSink.header`."""
        return as_text([COLUMNS])

    @staticmethod
    def is_whole(text: bytes) -> bool:
        """See `LineSink.is_whole`."""
        return len(next(csv.reader([text.decode("utf-8", "replace")]), [])) == len(COLUMNS)


def rows(frame: Frame) -> list[list[Any]]:
    """Return the frame's rows, in the order of `COLUMNS`; None where there is no value."""
    frame_record = record(frame)
    only = next(iter(frame.tables)) if len(frame.tables) == 1 else None
    where = [frame_record["source"], frame_record["frame"], frame_record["pts_s"]]
    rest = [frame_record.get("time"), frame_record.get("error")]
    table_rows = []
    for detected in frame_record["objects"]:
        stage_id = detected.get("stage", only)
        columns = [detected.get("label"), detected["class_id"], detected["score"], *detected["box"]]
        table_rows.append([*where, *columns, detected.get("track_id"), stage_id, *rest])
    return table_rows or [[*where, *[None] * 9, *rest]]


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
