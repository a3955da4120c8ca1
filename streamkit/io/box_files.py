# SPDX-License-Identifier: Apache-2.0
"""Reads boxes from files: MOTChallenge's text, records as lines of JSON, and COCO's instances."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from streamkit.core.errors import ConfigError, Problem
from streamkit.core.text import did_you_mean
from streamkit.io.image_file import natural_key

BoxFormat = Literal["mot", "jsonl", "coco"]

_SUFFIXES: dict[str, BoxFormat] = {".txt": "mot", ".jsonl": "jsonl", ".json": "coco"}
_LARGEST = 2**53
_CLASSES = 100_000
_MOT = "frame,id,left,top,width,height[,score[,class,visibility]]"


@dataclass(slots=True, eq=False)
class BoxRows:
    """Boxes of one source, sorted by frame.

    Attributes:
        path: the file.
        frame: (n,) int64, the frame's index from 0.
        xyxy: (n, 4) float32, x1, y1, x2, y2 in source pixels.
        score: (n,) float32; 1 where the file has none.
        class_id: (n,) int32, an index into `labels`.
        track_id: (n,) int64; -1 for a box without a track.
        line: (n,) int64, the line, or for COCO the number of the annotation, from 1.
        labels: the class names.
        sizes: width and height in pixels of the frames for which the file gives them.
        ignore: (n,) bool, of ground truth: regions that are neither hit nor miss, such as crowds.
        visible: (n,) float32, the visible share of the object; 1 where the file has none.
        shares: `xyxy` are shares of the frame's width and height, not pixels.
        listed: the frames that the file lists, with or without boxes; None if it lists boxes only.
        chosen: the file has several sources, and these are the boxes of one.
        by_place: the file lists images without the numbers of their frames: the n-th is taken for frame n.
        area: (n,) float64, the object's area in pixels; NaN where the file has none.
        absent: number of images that the file lists, and the source does not have.
    """

    path: Path
    frame: np.ndarray
    xyxy: np.ndarray
    score: np.ndarray
    class_id: np.ndarray
    track_id: np.ndarray
    line: np.ndarray
    labels: tuple[str, ...]
    sizes: dict[int, tuple[int, int]] = field(default_factory=dict)
    ignore: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    visible: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    shares: bool = False
    listed: frozenset[int] | None = None
    chosen: bool = False
    by_place: bool = False
    area: np.ndarray = field(default_factory=lambda: np.zeros(0))
    absent: int = 0

    def rows_of(self, frame: int) -> slice:
        """The rows of a frame."""
        first, end = np.searchsorted(self.frame, [frame, frame + 1])
        return slice(int(first), int(end))

    @property
    def tracked(self) -> bool:
        """Whether the file has track ids."""
        return bool((self.track_id >= 0).any())


def format_of(path: str, requested: BoxFormat | None) -> BoxFormat:
    """The format of a file: the given one, or that of the suffix. Raises ValueError if it cannot be told."""
    suffix = Path(path).suffix.lower()
    if requested is None and suffix not in _SUFFIXES:
        choices = ", ".join(f"{suffix} is {name}" for suffix, name in _SUFFIXES.items())
        raise ValueError(
            f"format must be set to mot, jsonl or coco, because the suffix {suffix!r} names none ({choices})"
        )
    return requested or _SUFFIXES[suffix]


def read_boxes(
    path: Path,
    form: BoxFormat,
    *,
    labels: Sequence[str] = (),
    source: str = "",
    truth: bool = False,
    images: Sequence[str] = (),
) -> BoxRows:
    """Read the boxes of one source.

    Args:
        path: the file.
        form: its format.
        labels: the class names. For `mot`, class n of the file is the n-th name. For the others, rows of other classes
            are an error; empty takes the names of the file.
        source: which source to read, if the file has several.
        truth: the file is ground truth: crowds (COCO) and rows that MOTChallenge ignores (a score of 0) are marked in
            `ignore`.
        images: the files of a source of images, in order. The images of a COCO file are found among them by name.

    Raises:
        ConfigError: the file cannot be read or has another form; names the line.
    """
    try:
        stat = path.stat()
    except OSError as error:
        raise ConfigError(f"there is no file {path} with boxes ({error.strerror})") from error
    return _read(path, stat.st_mtime_ns, form, tuple(labels), source, truth, tuple(images))


@lru_cache(maxsize=64)  # the check and each instance of a stage read the same file
def _read(
    path: Path,
    changed_ns: int,
    form: BoxFormat,
    labels: tuple[str, ...],
    source: str,
    truth: bool,
    images: tuple[str, ...],
) -> BoxRows:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the boxes of {path}: {error.strerror}") from error
    if form == "coco":
        return _coco(path, data, labels, source, truth, images)
    return {"mot": _mot, "jsonl": _jsonl}[form](path, data, labels, source, truth)


class _Rows:
    """Collects rows, and checks each."""

    def __init__(self, path: Path, labels: tuple[str, ...], fixed: bool) -> None:
        self.path = path
        self.fixed = fixed
        self.labels = {name: number for number, name in enumerate(labels)}
        self.names: dict[int, str] = {}  # of classes whose number the file gives
        self.rows: list[tuple[float, ...]] = []
        self.sizes: dict[int, tuple[int, int]] = {}
        self.listed: set[int] | None = None
        self.chosen = False
        self.by_place = False
        self.absent = 0

    def wrong(self, line: int, text: str) -> ConfigError:
        return ConfigError([Problem(str(self.path), line, 0 if not line else 1, text)])

    def number(self, line: int, value: Any, what: str) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not np.isfinite(value):
            raise self.wrong(line, f"{what} must be a finite number, got {value!r}")
        return float(value)

    def index(self, line: int, value: Any, what: str) -> int:
        number = self.number(line, value, what)
        if number != int(number) or abs(number) > _LARGEST:
            raise self.wrong(line, f"{what} must be a whole number, got {value!r}")
        return int(number)

    def size(self, frame: int, record: Mapping[str, Any], line: int, what: str = "") -> None:
        """Keep a frame's width and height, if the record has them."""
        sides = [record.get(key) for key in ("width", "height")]
        if all(sides):
            width, height = (self.index(line, side, f"width and height{what}") for side in sides)
            self.sizes[frame] = width, height

    def label(self, line: int, name: Any) -> int:
        if not isinstance(name, str):
            raise self.wrong(line, f"label must be the name of a class, got {name!r}")
        if name not in self.labels and self.fixed:
            near = did_you_mean(name, self.labels, all_if_few=True)
            raise self.wrong(line, f"labels has no class {name!r}{near}; add it, or leave labels out")
        free = next(number for number in range(len(self.labels), _CLASSES) if number not in self.names)
        return self.labels.setdefault(name, free)

    def numbered(self, line: int, name: Any, class_id: Any) -> int:
        """The class of a record, which gives its number too; the numbers stay, unless `labels` names the classes."""
        if self.fixed or not isinstance(name, str):
            return self.label(line, name)
        number = self.index(line, class_id, "class_id")
        if not 0 <= number < _CLASSES:
            raise self.wrong(line, f"class_id must be 0 to {_CLASSES - 1}, got {number}")
        if self.labels.setdefault(name, number) != number or self.names.setdefault(number, name) != name:
            other = self.names.get(number, name)
            text = f"{name!r} is class_id {number} here, but above {other!r} is {self.labels[other]}"
            raise self.wrong(line, f"{text}; correct the file, or set labels to ignore its class_id")
        return number

    def add(
        self,
        line: int,
        frame: int,
        box: Sequence[float],
        score: float,
        class_id: int,
        track: int,
        *,
        ignore: bool = False,
        visible: float = 1.0,
        area: float = math.nan,
    ) -> None:
        x1, y1, x2, y2 = box
        if x2 < x1 or y2 < y1:
            raise self.wrong(line, f"a box must have a width and a height of at least 0, got {x2 - x1:g} x {y2 - y1:g}")
        if not 0 <= score <= 1:
            raise self.wrong(line, f"a score must be 0 to 1, got {score:g}; scale the scores, or leave them out")
        self.rows.append((frame, x1, y1, x2, y2, score, class_id, track, line, ignore, visible, area))

    def build(self) -> BoxRows:
        rows = np.array(self.rows, np.float64).reshape(-1, 12)
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        self._check_ids(rows)
        whole = [rows[:, column].astype(np.int64) for column in (0, 7, 8)]
        return BoxRows(
            self.path,
            whole[0],
            rows[:, 1:5].astype(np.float32),
            rows[:, 5].astype(np.float32),
            rows[:, 6].astype(np.int32),
            whole[1],
            whole[2],
            self._names(),
            self.sizes,
            rows[:, 9] != 0,
            rows[:, 10].astype(np.float32),
            listed=None if self.listed is None else frozenset(self.listed),
            chosen=self.chosen,
            by_place=self.by_place,
            area=rows[:, 11],
            absent=self.absent,
        )

    def _names(self) -> tuple[str, ...]:
        names = {number: name for name, number in self.labels.items()}
        return tuple(names.get(number, str(number)) for number in range(max(names, default=-1) + 1))

    def _check_ids(self, rows: np.ndarray) -> None:
        tracked = rows[(rows[:, 7] >= 0) & (rows[:, 9] == 0)]
        _, first, counts = np.unique(tracked[:, [0, 7]], axis=0, return_index=True, return_counts=True)
        for row in tracked[first[counts > 1]][:1]:
            raise self.wrong(int(row[8]), f"the id {int(row[7])} is twice in one frame; an id is one object")


def _mot(path: Path, data: bytes, labels: tuple[str, ...], source: str, truth: bool) -> BoxRows:
    rows = _Rows(path, labels or ("person",), fixed=True)
    for line, text in enumerate(data.decode("utf-8-sig", "replace").splitlines(), 1):
        if not text.strip():
            continue
        parts = [part.strip() for part in text.split(",")]
        try:
            numbers = [float(part) for part in parts]
        except ValueError:
            raise rows.wrong(line, f"a line must be numbers {_MOT}, got {text[:60]!r}") from None
        if not 6 <= len(numbers) <= 10:
            raise rows.wrong(line, f"a line must have 6 to 10 numbers {_MOT}, got {len(numbers)}")
        for number in numbers:
            rows.number(line, number, "each column")
        frame = rows.index(line, numbers[0], "frame")
        if frame < 1:
            raise rows.wrong(line, f"frames count from 1, got {frame}; if the file counts from 0, add 1 to each")
        class_id = int(numbers[7]) if len(numbers) in (8, 9) else -1  # of 10 columns, the last three are x, y and z
        class_id = 1 if class_id == -1 else class_id
        score = numbers[6] if len(numbers) > 6 else 1.0
        ignore = truth and score == 0
        if ignore and class_id > len(rows.labels):
            class_id = 1  # of MOT17: reflections and other distractors
        if not 1 <= class_id <= len(rows.labels):
            class_names = ", ".join(rows.labels)
            text = f"class {class_id} has no name: labels has {len(rows.labels)} ({class_names})"
            raise rows.wrong(line, f"{text}; list a name for each class")
        x, y, w, h = numbers[2:6]
        score = 1.0 if score == -1 or truth else score
        track = rows.index(line, numbers[1], "id")
        visible = numbers[8] if truth and len(numbers) == 9 else 1.0
        box = (x, y, x + w, y + h)
        rows.add(line, frame - 1, box, score, class_id - 1, max(track, -1), ignore=ignore, visible=visible)
    return rows.build()


def _jsonl(path: Path, data: bytes, labels: tuple[str, ...], source: str, truth: bool) -> BoxRows:
    rows = _Rows(path, labels, fixed=bool(labels))
    rows.listed = set()
    records = list(_records(rows, data))
    names = {record["source"] for _, record in records if isinstance(record.get("source"), str)}
    if len(names) > 1 and source not in names:
        text = f"the file has the sources {', '.join(sorted(names))}, and none is {source!r}; rename the source"
        raise rows.wrong(0, text)
    rows.chosen = len(names) > 1
    for line, record in records:
        if rows.chosen and record.get("source") != source:
            continue
        if "frame" not in record or not isinstance(record.get("objects"), list):
            raise rows.wrong(line, "a record must have frame and objects, as the stage jsonl writes them")
        frame = rows.index(line, record["frame"], "frame")
        if frame < 0:
            raise rows.wrong(line, f"frames count from 0, got {frame}; number the frames as the video has them")
        if frame in rows.listed:
            text = f"frame {frame} is there twice; a file has one record for each frame of a source"
            raise rows.wrong(line, text)
        rows.listed.add(frame)
        rows.size(frame, record, line)
        for box_record in record["objects"]:
            _json_object(rows, line, frame, box_record)
    return rows.build()


def _json_object(rows: _Rows, line: int, frame: int, box_record: Any) -> None:
    box = box_record.get("box") if isinstance(box_record, dict) else None
    if not isinstance(box, list) or len(box) != 4:
        raise rows.wrong(line, f"an object must have box: [x1, y1, x2, y2], got {box!r}")
    name = box_record["label"] if "label" in box_record else str(box_record.get("class_id", "object"))
    class_id = rows.numbered(line, name, box_record["class_id"]) if "class_id" in box_record else rows.label(line, name)
    track = box_record.get("track_id", box_record.get("id"))
    track_id = -1 if track is None else rows.index(line, track, "track_id")
    corners = [rows.number(line, value, "box") for value in box]
    score = rows.number(line, box_record.get("score", 1), "score")
    visible = rows.number(line, box_record.get("visible", 1), "visible")
    rows.add(line, frame, corners, score, class_id, track_id, visible=visible)


def _records(rows: _Rows, data: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    import orjson

    for line, text in enumerate(data.splitlines(), 1):
        if not text.strip():
            continue
        try:
            record = orjson.loads(text)
        except ValueError as error:
            raise rows.wrong(line, f"is not JSON: {error}") from None
        if not isinstance(record, dict):
            raise rows.wrong(line, "a line must be a record, an object of JSON")
        yield line, record


def _coco(
    path: Path, data: bytes, labels: tuple[str, ...], source: str, truth: bool, files: tuple[str, ...]
) -> BoxRows:
    import orjson

    rows = _Rows(path, labels, fixed=bool(labels))
    try:
        whole = orjson.loads(data)
    except ValueError as error:
        raise rows.wrong(0, f"is not JSON: {error}") from None
    if isinstance(whole, list):
        text = "a list of COCO results names images by id only; put it as annotations into the file with the images"
        raise rows.wrong(0, text)
    missing = [
        key for key in ("images", "annotations", "categories") if not isinstance(whole, dict) or key not in whole
    ]
    if missing:
        raise rows.wrong(0, f"a COCO file must have images, annotations and categories; {missing[0]} is missing")
    for key, needed in (("images", ("id",)), ("annotations", ()), ("categories", ("id", "name")), ("videos", ("id",))):
        _check_entries(rows, key, whole.get(key, []), needed)
    names_of_videos = {
        video["id"]: video.get("file_name", video.get("name", video["id"])) for video in whole.get("videos", ())
    }
    images = [_with_video(image_record, names_of_videos) for image_record in whole["images"]]
    frames = _coco_frames(rows, images, source, files)
    rows.listed = set(frames.values())
    names = {category["id"]: str(category["name"]) for category in whole["categories"]}
    if not labels:
        rows.labels = {name: number for number, name in enumerate(names.values())}
    image_ids = {image_record["id"] for image_record in whole["images"]}
    for number, annotation in enumerate(whole["annotations"], 1):
        try:
            image = annotation["image_id"]
            name = names[annotation["category_id"]]
            x, y, w, h = annotation["bbox"]
        except (KeyError, ValueError, TypeError) as error:
            text = f"annotation {number} needs image_id, a known category_id, and bbox: [x, y, width, height] ({error})"
            raise rows.wrong(0, text) from None
        if image not in image_ids:
            raise rows.wrong(0, f"annotation {number} names the image {image!r}, which images does not have")
        if image not in frames:
            continue  # of another video
        ignore = truth and bool(annotation.get("iscrowd"))
        track = rows.index(0, annotation.get("track_id", -1), f"track_id of annotation {number}")
        score = rows.number(0, annotation.get("score", 1), f"score of annotation {number}")
        x, y, w, h = (rows.number(0, value, f"bbox of annotation {number}") for value in (x, y, w, h))
        annotated_area = annotation.get("area")
        area = math.nan if annotated_area is None else rows.number(0, annotated_area, f"area of annotation {number}")
        label = rows.label(0, name)
        rows.add(0, frames[image], (x, y, x + w, y + h), score, label, track, ignore=ignore, area=area)
    return rows.build()


def _check_entries(rows: _Rows, key: str, entries: Any, needed: Sequence[str]) -> None:
    """Check that a part of a COCO file is a list of objects that have some keys, with numbers or texts as ids."""
    if not isinstance(entries, list):
        raise rows.wrong(0, f"{key} must be a list, got {type(entries).__name__}")
    for number, entry in enumerate(entries, 1):
        lacking = [
            name for name in needed if not isinstance(entry, dict) or not isinstance(entry.get(name), (int, str))
        ]
        if lacking:
            raise rows.wrong(
                0, f"entry {number} of {key} must have {lacking[0]}, a number or a text, got {entry!r:.60}"
            )
    if key != "annotations" and len({entry["id"] for entry in entries}) < len(entries):
        raise rows.wrong(0, f"two entries of {key} have the same id; give each an id of its own")


def _with_video(image: dict[str, Any], names: Mapping[Any, Any]) -> dict[str, Any]:
    """Return an image with the name of its video, which it gives as `video`, or as `video_id` of one in `videos`."""
    return {"video": names.get(image["video_id"], image["video_id"]), **image} if "video_id" in image else image


def _coco_frames(rows: _Rows, images: list[dict[str, Any]], source: str, files: tuple[str, ...]) -> dict[Any, int]:
    """The frame of each image: its `frame_id`, the file of its name, or its place in natural order."""
    videos = {str(image["video"]) for image in images if "video" in image}
    if len(videos) > 1:
        source_videos = [name for name in videos if source in (name, Path(name).stem)]
        if len(source_videos) != 1:
            text = f"the file has the videos {', '.join(sorted(videos))}, and none is {source!r}; rename the source"
            raise rows.wrong(0, text)
        images = [image for image in images if image.get("video") == source_videos[0]]
        rows.chosen = True
    frames: dict[Any, int] = {}
    numbered = all(isinstance(image.get("frame_id"), int) for image in images)
    by_name = {} if numbered else places_of(files)
    listed = images if numbered else sorted(images, key=_by_name)
    ordered = [image for image in listed if not by_name or _file_name(image) in by_name]
    rows.absent = len(listed) - len(ordered)
    if listed and not ordered:
        raise rows.wrong(
            0,
            f"none of its images is among the {len(files)} of the source {source}: the file lists "
            f"{_file_name(listed[0])!r}, the source has {Path(files[0]).name!r}; take the truth of these images, or "
            "give the images their names in the file",
        )
    taken: dict[int, Any] = {}
    for place, image in enumerate(ordered):
        frames[image["id"]] = frame = image["frame_id"] if numbered else by_name.get(_file_name(image), place)
        if frame < 0:
            raise rows.wrong(0, f"frame_id counts from 0, got {frame} of the image {image['id']!r}")
        if frame in taken:
            what = f"the same frame_id {frame}" if numbered else "the same file_name"
            raise rows.wrong(
                0,
                f"the images {taken[frame]!r} and {image['id']!r} have {what}; name the video of each image in "
                "video, or give each a frame_id of its own",
            )
        taken[frame] = image["id"]
        rows.size(frame, image, 0, f" of the image {image['id']!r}")
    rows.by_place = not numbered and not by_name
    return frames


def places_of(files: Sequence[str]) -> dict[str, int]:
    """The place of each file by its name without folders; empty if two have the same name."""
    places = {Path(name).name: number for number, name in enumerate(files)}
    return places if len(places) == len(files) else {}


def _file_name(image: dict[str, Any]) -> str:
    return Path(str(image.get("file_name", ""))).name


def _by_name(image: dict[str, Any]) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    return natural_key(str(image.get("file_name", ""))), natural_key(str(image["id"]))
