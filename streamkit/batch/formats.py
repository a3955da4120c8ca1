# SPDX-License-Identifier: Apache-2.0
"""The text formats: one file for each video, which appears when the video has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
import orjson

from streamkit.core.data import Batch, Frame
from streamkit.core.records import batch_lines, line, numbers_of
from streamkit.core.stage import Sink
from streamkit.io.outputs import AtomicWriter
from streamkit.stages.sinks.csv import COLUMNS, as_text, harmless, rows

_BLOCK = 1 << 16


@dataclass(eq=False)
class TextPart(Sink):
    """Writes the file of one video.

    Attributes:
        path: the file, such as "out/jsonl/{source}.jsonl".
        names: the name of each file, by its key.
    """

    path: str
    names: Mapping[str, str] = field(default_factory=dict)

    def open(self) -> None:
        """Create the temporary file and write its beginning."""
        self._key = Path(self.path).stem
        self._source = self.names.get(self._key, self._key)
        self._file = AtomicWriter(Path(self.path), lambda part: part.open("wb", buffering=0))
        self._waiting = bytearray()
        self._flush()
        self.begin()

    def begin(self) -> None:
        """Write the beginning of the file."""

    def finish(self) -> None:
        """Write the end of the file."""

    def put(self, text: bytes) -> None:
        """Append to the file. Raises OutputError."""
        if self._file.broken is not None:
            raise self._file.broken
        self._waiting += text
        if len(self._waiting) >= _BLOCK:
            self._flush()

    def end(self, source: str) -> None:
        """Publish the file; the video has ended."""
        self.finish()
        self._flush()
        self._file.finish()

    def close(self) -> None:
        """Discard an incomplete file."""
        self._file.discard()

    def _flush(self) -> None:
        data = bytes(self._waiting)
        done = 0
        self._waiting.clear()
        with self._file.out() as out:
            while done < len(data):
                done += out.write(data[done:])


class JsonlPart(TextPart):
    """One record per frame, as in `jsonl`; `source` is the file's name."""

    name: ClassVar[str] = "jsonl"

    @staticmethod
    def encode(batch: Batch) -> list[bytes]:
        """Encode all frames of the batch at once; see `Sink.encode`."""
        return batch_lines(batch)

    def begin(self) -> None:
        """Prepare the replacement of the key by the file's name."""
        self._key_json, self._name_json = (b'"source":' + orjson.dumps(text) for text in (self._key, self._source))

    def write(self, frame: Frame) -> None:
        """Write the frame's record."""
        self.write_encoded(frame, line(frame))

    def write_encoded(self, frame: Frame, encoded: bytes) -> None:
        """Write the frame's record, which was encoded with its batch."""
        self.put(encoded.replace(self._key_json, self._name_json, 1))


@dataclass(eq=False)
class CsvPart(TextPart):
    """One row per object, as in `csv`; `source` is the file's name.

    Attributes:
        path: the file, such as "out/csv/{source}.csv".
        names: the name of each file, by its key.
        escape_formulas: as in `csv`.
    """

    name: ClassVar[str] = "csv"

    escape_formulas: bool = False

    def begin(self) -> None:
        """Write the header."""
        self.put(as_text([COLUMNS]))

    def write(self, frame: Frame) -> None:
        """Write the frame's rows."""
        file_rows = [[self._source, *row[1:]] for row in rows(frame)]
        self.put(as_text(harmless(file_rows) if self.escape_formulas else file_rows))


@dataclass(eq=False)
class MotPart(TextPart):
    """One row per object, in MOTChallenge's format of results.

    The frame from 1, the id, left, top, width and height of the box, the score, and three times -1. With a tracker,
    objects without a track are skipped and counted, because an id may occur only once in a frame. Without a tracker,
    every id is -1, as in MOTChallenge's files of detections.

    Attributes:
        path: the file, such as "out/mot/{source}.txt".
        names: the name of each file, by its key.
        tracked: whether the pipeline has a tracker.
    """

    name: ClassVar[str] = "mot"

    tracked: bool = False

    def write(self, frame: Frame) -> None:
        """Write the frame's rows."""
        lines = []
        for table in frame.tables.values():
            if not len(table):
                continue
            numbers = numbers_of(table, [frame])
            numbers[:, 2:4] = np.rint((numbers[:, 2:4] - numbers[:, :2]) * 100) / 100
            ids = np.full(len(table), -1) if not self.tracked or table.track_id is None else table.track_id
            for track, (x, y, w, h, score) in zip(ids.tolist(), numbers.tolist(), strict=True):
                if track == -1 and self.tracked:
                    self.context.counters.add("objects without a track not in mot")
                    continue
                lines.append(f"{frame.index + 1},{track},{x:.9g},{y:.9g},{w:.9g},{h:.9g},{score:.9g},-1,-1,-1\n")
        self.put("".join(lines).encode())
