# SPDX-License-Identifier: Apache-2.0
"""The labeled boxes that a pipeline is measured against."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from streamkit.core.data import Detections
from streamkit.core.errors import ConfigError
from streamkit.core.text import did_you_mean
from streamkit.evaluate.boxes import EvaluatedFrame
from streamkit.io.box_files import BoxRows, format_of, read_boxes
from streamkit.io.outputs import fill_path
from streamkit.io.yolo_folder import read_yolo_folder

TruthFormat = Literal["mot", "jsonl", "coco", "yolo"]
_OUTSIDE = 0.1  # share of boxes with their middle outside of the frame, from which the truth is of another size


@dataclass(slots=True, frozen=True)
class TruthOptions:
    """How to read the truth.

    Attributes:
        path: a file, or a YOLO folder; with `{source}` in it, one per source.
        form: its format; None for that of the suffix, and YOLO for a folder.
        labels: class names, for `mot` and YOLO.
        mapping: names of the pipeline's classes by those of the truth.
        first_frame: the number of the first frame in the names of YOLO files; None to find out.
        min_visible: objects of which a smaller share is visible are neither hit nor miss.
        only_labeled: leave out frames without a box in the truth.
    """

    path: str
    form: TruthFormat | None = None
    labels: tuple[str, ...] = ()
    mapping: Mapping[str, str] = field(default_factory=dict)
    first_frame: int | None = None
    min_visible: float = 0.0
    only_labeled: bool = False


class TruthRows(NamedTuple):
    """The truth of one frame: (n, 4) float32 source pixels, (n,) classes, ids, whether to ignore, and areas."""

    xyxy: np.ndarray
    class_id: np.ndarray
    track_id: np.ndarray
    ignore: np.ndarray
    area: np.ndarray


class Truth:
    """The truth of all sources.

    Args:
        options: how to read it.
        sources: the ids of the pipeline's sources.
        output_classes: the classes that the pipeline's detectors output; empty if they are unknown before the run.
        filtered: classes of the networks that the option `labels` removes.
        images: the files of the sources of images, in order.

    Attributes:
        classes: the evaluated classes, in the pipeline's names.
        notes: what is left out, a sentence each.

    Raises:
        ConfigError: the truth cannot be read, or has no class of the pipeline.
    """

    def __init__(
        self,
        options: TruthOptions,
        sources: Sequence[str],
        output_classes: Sequence[str],
        filtered: Iterable[str] = (),
        images: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        if len(sources) > 1 and "{source}" not in options.path:
            raise ConfigError(
                f"--truth {options.path} is one file, and the pipeline has {len(sources)} sources "
                f"({', '.join(sources[:5])}); write {{source}} into the path, as in truth/{{source}}.jsonl"
            )
        self.options = options
        self.rows = {source: _read(options, source, (images or {}).get(source, ())) for source in sources}
        self.notes: list[str] = [
            f"images of {rows.path} that the source {source} lacks are left out: {rows.absent:,}"
            for source, rows in self.rows.items()
            if rows.absent
        ]
        self.classes = self._classes(output_classes, set(filtered))
        self._numbers = {source: self._numbered(rows) for source, rows in self.rows.items()}
        if not any((number[rows.class_id] >= 0).any() for number, rows in self._of_each()):
            raise ConfigError(f"{options.path} has no box of {', '.join(self.classes)}; is this the right file?")

    def _of_each(self) -> list[tuple[np.ndarray, BoxRows]]:
        return [(self._numbers[source], rows) for source, rows in self.rows.items()]

    def _classes(self, output_classes: Sequence[str], filtered: set[str]) -> tuple[str, ...]:
        """The evaluated classes: those of the truth that the pipeline outputs, in the pipeline's order."""
        counts: Counter[str] = Counter()
        for rows in self.rows.values():
            boxes = np.bincount(rows.class_id, minlength=len(rows.labels)).tolist()
            counts.update({self._mapped(name): n for name, n in zip(rows.labels, boxes, strict=True)})
        common = [name for name in output_classes if name in counts] if output_classes else list(counts)
        wrong = [name for name in self.options.mapping if not any(name in rows.labels for rows in self.rows.values())]
        lost = [
            (theirs, ours)
            for theirs, ours in self.options.mapping.items()
            if output_classes and ours not in output_classes
        ]
        if wrong:
            near = did_you_mean(wrong[0], [name for rows in self.rows.values() for name in rows.labels], True)
            raise ConfigError(f"--map {wrong[0]}: the truth has no class {wrong[0]!r}{near}")
        if lost:
            near = did_you_mean(lost[0][1], output_classes, True)
            raise ConfigError(f"--map {'='.join(lost[0])}: the pipeline has no class {lost[0][1]!r}{near}")
        if not common:
            theirs = ", ".join(list(counts)[:8]) or "none"
            ours = ", ".join(output_classes[:8]) + " ..." * (len(output_classes) > 8)
            raise ConfigError(
                f"the truth {self.options.path} and the pipeline have no class in common: the truth has {theirs}; the "
                f"pipeline finds {ours}. Rename them with --map, "
                f"as in --map {next(iter(counts), 'a')}={output_classes[0]}"
            )
        for name in counts.keys() - set(common):
            reason = (
                "the option labels of the detector removes it" if name in filtered else "the pipeline has no such class"
            )
            if counts[name]:
                self.notes.append(f"class {name} is not evaluated ({counts[name]:,} boxes of the truth): {reason}")
        return tuple(common)

    def _mapped(self, name: str) -> str:
        return self.options.mapping.get(name, name)

    def _numbered(self, rows: BoxRows) -> np.ndarray:
        """The evaluated class of each class of the file; -1 for none."""
        place = {name: number for number, name in enumerate(self.classes)}
        return np.array([*(place.get(self._mapped(name), -1) for name in rows.labels), -1], np.int64)

    @property
    def tracked(self) -> bool:
        """Whether every object has an id."""
        return all(
            bool((rows.track_id[(number[rows.class_id] >= 0) & ~rows.ignore] >= 0).all())
            for number, rows in self._of_each()
        )

    def is_labeled(self, source: str, frame: int) -> bool:
        """Whether the truth says what is on a frame."""
        rows = self.rows[source]
        if self.options.only_labeled:
            return bool((rows.frame == frame).any())
        return rows.listed is None or frame in rows.listed

    def of(self, source: str, frame: int, width: int, height: int) -> TruthRows:
        """The truth of a frame of the pipeline. Raises ConfigError if it gives the frame another size."""
        rows = self.rows[source]
        size = rows.sizes.get(frame)
        if size is not None and size != (width, height):
            raise ConfigError(
                f"{rows.path} is the truth of a video of {size[0]}x{size[1]} (frame {frame}), but the source {source} "
                f"has {width}x{height}; take the truth of this video, or export it at {width}x{height}"
            )
        part = rows.rows_of(frame)
        number = self._numbers[source]
        class_id = number[rows.class_id[part]]
        evaluated = class_id >= 0
        scale = np.array([width, height] * 2 if rows.shares else [1] * 4, np.float32)
        ignore = rows.ignore[part] | (rows.visible[part] < self.options.min_visible)
        columns = rows.xyxy[part] * scale, class_id, rows.track_id[part], ignore, rows.area[part]
        return TruthRows(*(column[evaluated] for column in columns))

    def table(self, source: str, frame: int, width: int, height: int) -> Detections:
        """The truth of a frame as a table with tracks, also of objects that are hardly visible."""
        xyxy, class_id, track_id, *_ = self.of(source, frame, width, height)
        keep = track_id >= 0
        return Detections(
            xyxy[keep],
            np.ones(int(keep.sum()), np.float32),
            class_id[keep].astype(np.int32),
            labels=self.classes,
            track_id=track_id[keep].astype(np.int64),
        )

    def check_frames(self, frames: Sequence[EvaluatedFrame], whole: bool) -> None:
        """Check that frames and boxes of the truth are in the videos.

        Args:
            frames: the frames of the run.
            whole: whether the run read the sources to their ends.

        Raises:
            ConfigError: the truth has frames beyond the end of its video, or boxes beyond its frames.
        """
        for source, rows in self.rows.items():
            source_frames = [frame for frame in frames if frame.source == source]
            if not source_frames or not len(rows.frame):
                continue
            last = max(frame.index for frame in source_frames)
            end = int(rows.frame[-1])
            if whole and end > last:
                raise ConfigError(
                    f"{rows.path} has boxes up to frame {end}, counted from 0, but the source {source} ends with frame "
                    f"{last}: {int((rows.frame > last).sum()):,} boxes are beyond its end. Is it the truth of another "
                    "video, or of another frame rate?" + self._counting()
                )
            size = np.array([max(frame.width for frame in source_frames), max(frame.height for frame in source_frames)])
            middle = (rows.xyxy[:, :2] + rows.xyxy[:, 2:]) / 2 / (1 if rows.shares else size)
            outside = (middle > 1).any(axis=1)
            if outside.mean() > _OUTSIDE:
                reach = rows.xyxy[:, 2:].max(axis=0)
                raise ConfigError(
                    f"{rows.path} has {outside.mean():.0%} of its boxes outside of the frames of {source}: they reach "
                    f"x={reach[0]:.0f}, y={reach[1]:.0f}, and the video is {size[0]}x{size[1]}; export the truth at "
                    "the size of the video"
                )

    def _counting(self) -> str:
        return " YOLO files may count from 1: try --first-frame 1." if self.options.first_frame == 0 else ""


def _read(options: TruthOptions, source: str, images: Sequence[str]) -> BoxRows:
    path = Path(fill_path(options.path, source))
    if not path.exists():
        missing = f"for the source {source}" if "{source}" in options.path else "at this path"
        raise ConfigError(f"--truth: there is no file {path} {missing}")
    if path.is_dir():
        if options.form not in (None, "yolo"):
            raise ConfigError(f"--truth {path} is a folder; --format {options.form} needs a file")
        return read_yolo_folder(path, labels=options.labels, first_frame=options.first_frame, images=images)
    if options.form == "yolo":
        raise ConfigError(f"--truth {path} is a file; --format yolo needs the folder with labels/*.txt")
    try:
        form = format_of(str(path), options.form)
    except ValueError as error:
        hint = "a truth is a .jsonl, a COCO .json, a MOTChallenge gt.txt or a YOLO folder; --format names another"
        raise ConfigError(f"--truth {path}: {hint}") from error
    if form == "mot" and len(path.read_text("utf-8", "replace").partition("\n")[0].split()) in (5, 6):
        raise ConfigError(f"--truth {path} looks like the YOLO labels of one frame; give the folder that holds labels/")
    if options.labels and form != "mot":
        raise ConfigError(f"--labels names the classes of MOTChallenge and YOLO; {path} has names: use --map")
    try:
        rows = read_boxes(path, form, labels=options.labels, source=source, truth=True, images=images)
    except ConfigError as error:
        if form == "mot" and "has no name" in str(error):
            raise ConfigError(f"{error}, as in --labels pedestrian,car") from error
        raise
    if not len(rows.frame):
        raise ConfigError(f"{path} has no box")
    return rows
