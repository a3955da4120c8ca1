# SPDX-License-Identifier: Apache-2.0
"""`detections`: objects from a file in place of a network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np

from streamkit.core.data import Frame
from streamkit.core.detections import Detections
from streamkit.core.errors import ConfigError
from streamkit.core.stage import FrameStage, Score, stage
from streamkit.io.box_files import BoxFormat, BoxRows, format_of, read_boxes
from streamkit.io.input_path import InputPath
from streamkit.io.outputs import fill_path
from streamkit.models.labels import LABEL_LISTS

OUTSIDE = "boxes on frames after the last one"
WEAK = "boxes removed: min_score"
BEYOND = "boxes outside of the frame"


@stage(
    "detections",
    writes=("detections",),
    writes_if={"keep_ids": "track_id"},
    target="",
    labels_attribute="class_names",
    input_file="path",
)
class DetectionsFromFile(FrameStage):
    """Read objects from a file, in place of a network.

    A frame gets the rows with its number, so `every` and `start` of a source keep boxes and frames together. `mot`
    counts frames from 1; `jsonl` has `frame`, from 0; `coco` has `frame_id`, from 0, or else its images in the
    natural order of `file_name`, 2 before 10, are the frames. Boxes outside of the frame are kept and counted. A size
    in the file must be the video's.
    """

    path: Annotated[InputPath, 'the file, such as "gt.txt"; with {source} in it, one file per source.']
    format: Annotated[BoxFormat | None, "mot, jsonl or coco; by default that of the suffix: .txt, .jsonl or .json."] = (
        None
    )
    labels: Annotated[
        tuple[str, ...] | InputPath | None,
        "class names: a list, coco, voc, face or person, or a text file with one name a line. By default the file's; "
        "for mot, person.",
    ] = None
    min_score: Annotated[Score, "leave out boxes with a lower score; boxes without a score have 1."] = 0.0
    keep_ids: Annotated[bool, "use the file's track ids: needs no track stage."] = False

    def __post_init__(self) -> None:
        """Check the format, and resolve the class names."""
        self._format = format_of(self.path, self.format)
        unnamed = ("person",) if self._format == "mot" else None
        self.class_names = _named(self.labels) if isinstance(self.labels, str) else self.labels or unnamed
        if self.labels is not None and not (self.labels and self.class_names):
            raise ValueError("labels must name at least one class; leave it out to take those of the file")

    def open(self) -> None:
        """Start without rows: the first frame tells the source."""
        self._rows: BoxRows | None = None
        self._last = -1
        self._shown = 0
        self._warned: set[str] = set()

    def read(self, source: str) -> BoxRows:
        """Read the rows of a source. Raises ConfigError."""
        path = Path(fill_path(self.path, source))
        rows = read_boxes(path, self._format, labels=self.class_names or (), source=source)
        if self.keep_ids and len(rows.frame) and not rows.tracked:
            raise ConfigError(
                f"{path} has no track ids, which keep_ids needs; leave keep_ids out, and add a track stage"
            )
        return rows

    def process(self, frame: Frame) -> None:
        """Add the rows of the frame."""
        if self._rows is None:
            self._rows = self.read(frame.source)
        rows = self._rows
        _check_size(rows, frame)
        span = rows.rows_of(frame.index)
        table = Detections(
            np.ascontiguousarray(rows.xyxy[span]).copy(),
            rows.score[span].copy(),
            rows.class_id[span].copy(),
            track_id=rows.track_id[span].copy() if self.keep_ids else None,
            labels=rows.labels,
        )
        self._last = max(self._last, frame.index)
        self._shown = self._shown + len(table)
        self._check_places(rows, frame, span)
        strong = table.score >= np.float32(self.min_score)
        if not strong.all():
            self.context.counters.add(WEAK, int((~strong).sum()))
            table = table[strong]
        frame.tables[self.context.id] = table

    def _check_places(self, rows: BoxRows, frame: Frame, span: slice) -> None:
        """Count boxes outside of the frame; warn about these and about more frames than images, once for a source."""
        x1, y1, x2, y2 = rows.xyxy[span].T
        outside = (x2 <= 0) | (y2 <= 0) | (x1 >= frame.width) | (y1 >= frame.height)
        if outside.any():
            self.context.counters.add(BEYOND, int(outside.sum()))
            first = int(outside.argmax())
            box = ", ".join(f"{value:g}" for value in rows.xyxy[span][first])
            self._warn(
                "outside",
                f"{rows.path}:{rows.line[span][first]}: the box [{box}] is outside of {frame.source}, which "
                f"has {frame.width}x{frame.height}; if the file is for another size of the video, scale its boxes",
            )
        if rows.by_place and rows.listed is not None and frame.index >= len(rows.listed):
            self._warn(
                "more",
                f"{rows.path} lists {len(rows.listed)} images without frame_id, so image n is frame n, and "
                f"{frame.source} has more frames; if the images are not the first frames, add frame_id to each",
            )

    def _warn(self, what: str, text: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            self.context.log(f"{self.context.id}: {text}")

    def close(self) -> None:
        """Count the rows after the last frame, and report a file that has no row for any frame."""
        rows = self._rows
        if rows is None:
            return
        if not len(rows.frame):
            self.context.log(f"{self.context.id}: {rows.path} has no boxes")
            return
        beyond = rows.frame > self._last
        if beyond.any():
            self.context.counters.add(OUTSIDE, int(beyond.sum()))
        if not self._shown:
            self.context.log(
                f"{self.context.id}: no box of {rows.path} is on a frame that was read: its frames are "
                f"{rows.frame[0]} to {rows.frame[-1]}, counted from 0, and the last frame read is {self._last}"
            )


def _named(name: str) -> tuple[str, ...]:
    """The labels of a known list, or of a text file."""
    if name in LABEL_LISTS:
        return LABEL_LISTS[name]
    try:
        lines = Path(name).read_text().splitlines()
    except OSError as error:
        raise ValueError(
            f"labels must be a list, {', '.join(LABEL_LISTS)}, or a text file with a name a line, got {name!r}"
        ) from error
    return tuple(line.strip() for line in lines if line.strip())


def _check_size(rows: BoxRows, frame: Frame) -> None:
    size = rows.sizes.get(frame.index)
    if size is not None and size != (frame.width, frame.height):
        raise ConfigError(
            f"{rows.path} gives frame {frame.index} as {size[0]}x{size[1]}, but {frame.source} has "
            f"{frame.width}x{frame.height}; use the boxes of this video, or scale them to its size"
        )
