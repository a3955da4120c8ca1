# SPDX-License-Identifier: Apache-2.0
"""The frames that a query selects: their objects, and their pixels from the original videos."""

from __future__ import annotations

import itertools
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from streamkit.batch.identity import KEY
from streamkit.batch.job import NO_VERSION, VideoFile
from streamkit.batch.remote import opened
from streamkit.core.counters import Counters
from streamkit.core.data import Detections, Device, Frame, Skeleton
from streamkit.core.errors import ConfigError, SourceError
from streamkit.core.text import printable
from streamkit.io.parquet_file import arrow
from streamkit.media.frame_sampling import FrameSampler
from streamkit.media.reader import VideoReader
from streamkit.media.surfaces import shared_pool
from streamkit.media.uris import is_path, local_path, mask
from streamkit.query.database import Database
from streamkit.query.dataset_location import DatasetLocation

_COLUMNS = ("key", "frame")
_FILES = """
SELECT key, any_value(source), any_value(path), any_value(size), any_value(version), list(DISTINCT frame ORDER BY frame)
FROM selected JOIN files USING (key) GROUP BY key ORDER BY any_value(source), key"""
_OBJECTS = "SELECT * FROM objects WHERE key = ? AND frame IN (SELECT unnest(?)) ORDER BY frame, rowid"


class SelectedFrame(NamedTuple):
    """A selected frame.

    Attributes:
        name: a name for its image, without a suffix: unique in the data set, valid on every file system.
        video: the name of its video in the data set.
        frame: with its number, time and pixels, and the table `objects`.
    """

    name: str
    video: str
    frame: Frame


@dataclass(slots=True)
class MissingFrames:
    """Selected frames without pixels.

    Attributes:
        frames: their number.
        causes: why, by the name of the video.
    """

    frames: int = 0
    causes: dict[str, str] = field(default_factory=dict)


class SelectedFrames:
    """Frames of a data set, in the order of their videos; iterable once.

    Args:
        database: the data set's tables.
        labels: the classes in the order of their ids; see `labels_of`.
        skeleton: of the pipeline's keypoints; see `skeleton_of`.
        rows: the key of the file and the number of each frame; a frame may occur several times.

    Attributes:
        count: number of frames.
        missing: those without pixels, so far: the video is missing, has changed, or cannot be decoded.
    """

    def __init__(
        self, database: Database, labels: Sequence[str], skeleton: Skeleton | None, rows: Iterable[tuple[str, int]]
    ) -> None:
        pa = arrow()
        self._database = database
        self._labels = tuple(labels)
        self._skeleton = skeleton
        unique = list(dict.fromkeys(rows))
        self.count = len(unique)
        self.missing = MissingFrames()
        keys = pa.array([key for key, _ in unique], pa.string())
        numbers = pa.array([frame for _, frame in unique], pa.int32())
        database.keep("selected", pa.table({"key": keys, "frame": numbers}))

    def __iter__(self) -> Iterator[SelectedFrame]:
        """Decode the frames, video by video."""
        videos = self._database.fetch(_FILES)
        wrong = [key for key, *_ in videos if not KEY.fullmatch(key)]
        if wrong:
            raise ConfigError(
                f"the data set has the key {printable(wrong[0], one_line=True)!r}, after which images would be named: "
                "batch makes keys of letters, digits, _ and - only, so that its tables were changed by something else"
            )
        for key, source, path, size, version, frames in videos:
            left = dict.fromkeys(frames)
            try:
                file = VideoFile(_real_path(path), source, size, version or NO_VERSION)
                objects = self._database.table(_OBJECTS, key, frames)
                numbers = objects["frame"].to_numpy()
                for frame in _decoded(file, set(frames)):
                    del left[frame.index]
                    first, end = np.searchsorted(numbers, [frame.index, frame.index + 1]).tolist()
                    frame_objects = objects.slice(first, end - first)
                    frame.tables = {"objects": detections(frame_objects, self._labels, self._skeleton)}
                    yield SelectedFrame(f"{key}-{frame.index:06d}", source, frame)
                cause = "the video has fewer frames than when it was processed"
            except SourceError as error:
                cause = str(error)
            if left:
                self.missing.frames += len(left)
                self.missing.causes[source] = cause


def frame_columns(columns: Sequence[str]) -> tuple[int, int]:
    """The places of `key` and `frame` among the columns of a result. Raises ConfigError if there are none."""
    missing = [name for name in _COLUMNS if name not in columns]
    if missing:
        raise ConfigError(
            f"images need the columns key and frame in the result, got {', '.join(columns)}; add "
            f"{' and '.join(missing)} to the SELECT"
        )
    return columns.index("key"), columns.index("frame")


def labels_of(dataset: DatasetLocation) -> list[str]:
    """The classes of the pipeline's models and its prompts, in a fixed order."""
    models: Mapping[str, Any] = dataset.identity.get("models", {})
    stages: Mapping[str, Any] = dataset.identity.get("stages", {})
    labels = [*(model.get("labels") or () for model in models.values())]
    return list(dict.fromkeys(itertools.chain(*labels, *(stage.get("prompts") or () for stage in stages.values()))))


def skeleton_of(dataset: DatasetLocation) -> Skeleton | None:
    """The skeleton of the pipeline's keypoints; None if it has none."""
    models: Mapping[str, Any] = dataset.identity.get("models", {})
    for model in models.values():
        if skeleton := model.get("skeleton"):
            return Skeleton(tuple(skeleton["names"]), tuple((a, b) for a, b in skeleton["edges"]))
    return None


# ------------------------------------------------------------------------------------------------------------- pixels


class _Numbered(FrameSampler):
    """Takes the frames with these numbers."""

    def __init__(self, wanted: set[int]) -> None:
        super().__init__(1, None)
        self._wanted = wanted

    def accepts(self, index: int, pts_s: float) -> bool:
        return index in self._wanted


def _decoded(file: VideoFile, wanted: set[int]) -> Iterator[Frame]:
    """The frames with these numbers, in order. Raises SourceError: the file is missing, has changed or is damaged."""
    _check_unchanged(file)
    device = Device()
    last = max(wanted)
    with tempfile.TemporaryDirectory(prefix="streamkit-") as folder, opened(file, Path(folder)) as (path, remote):
        reader = VideoReader(
            path,
            device,
            shared_pool(device),
            Counters(),
            threads=len(os.sched_getaffinity(0)),
            file=remote,  # type: ignore[arg-type]  # it has what FFmpeg uses
        )
        with nullcontext() if remote is None else remote.checked(), closing(reader):
            for number, decoded in reader.frames(sampler=_Numbered(wanted)):
                if number in wanted:
                    yield Frame(
                        file.name,
                        number,
                        decoded.pts_s,
                        decoded.width,
                        decoded.height,
                        decoded.surface,
                        damaged=decoded.damaged,
                    )
                if number >= last:
                    return


def _check_unchanged(file: VideoFile) -> None:
    if not is_path(file.uri):
        return
    path = local_path(file.uri)
    try:
        now = os.stat(path)
    except OSError as error:
        raise SourceError(f"{mask(path)}: there is no such file", cause="missing") from error
    if (now.st_size, str(now.st_mtime_ns)) != (file.size, file.version):
        raise SourceError(f"{mask(path)} has changed since it was processed")


def _real_path(path: str) -> str:
    """The path of a file from its text in the data set, where `\\xe9` may be a byte that is not UTF-8."""
    if not is_path(path) or os.path.lexists(local_path(path)):
        return path
    return os.fsdecode(re.sub(rb"\\x([0-9a-f]{2})", lambda match: bytes([int(match[1], 16)]), path.encode()))


# ------------------------------------------------------------------------------------------------------------ objects


def detections(table: Any, labels: Sequence[str], skeleton: Skeleton | None = None) -> Detections:
    """The table of one frame's objects.

    Args:
        table: Arrow table with the columns of `objects`.
        labels: the classes in the order of their ids.
        skeleton: names of the keypoints.
    """
    return detections_of(table.to_pydict(), table.num_rows, labels, skeleton)


def detections_of(
    columns: Mapping[str, list[Any]], n: int, labels: Sequence[str], skeleton: Skeleton | None = None
) -> Detections:
    """The table of `n` objects, of the columns of `objects` as lists; points are mappings or lists."""
    names = list(labels)
    texts = [label or str(number) for label, number in zip(columns["label"], columns["class_id"], strict=True)]
    names += [text for text in dict.fromkeys(texts) if text not in names]
    ids = {name: number for number, name in enumerate(names)}
    extra = {}
    for name, width in (("keypoints", 3), ("corners", 2)):
        if any(columns.get(name) or ()):
            extra[name] = _points(columns[name], width)
    if any(columns.get("mask") or ()):
        extra["mask"] = np.full(n, None)
        extra["mask"][:] = columns["mask"]
    tracks = columns.get("track_id")
    xyxy = np.array([columns[name] for name in ("x1", "y1", "x2", "y2")], np.float32).T
    return Detections(
        np.ascontiguousarray(xyxy).reshape(n, 4),
        np.array(columns["score"], np.float32),
        np.array([ids[text] for text in texts], np.int32),
        track_id=None if tracks is None else np.array([-1 if track is None else track for track in tracks], np.int64),
        labels=tuple(names),
        extra=extra,
        skeleton=skeleton,
    )


def _points(rows: list[Any], width: int) -> np.ndarray:
    """(n, k, width) float32 of lists of structs; NaN where there is none."""
    points = np.full((len(rows), max(len(row or ()) for row in rows), width), np.nan, np.float32)
    for place, row in enumerate(rows):
        for number, point in enumerate(row or ()):
            values = point.values() if isinstance(point, Mapping) else point
            points[place, number] = [np.nan if value is None else value for value in values]
    return points
