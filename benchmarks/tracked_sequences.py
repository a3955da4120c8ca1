"""Sequences with detections and ground truth, on which trackers are compared: drawn ones, and those on a disk.

MOT17, MOT20, DanceTrack, SportsMOT and SoccerNet are published in the form of MOTChallenge, each with its differences:

| set | a sequence is | detections | ground truth |
| --- | --- | --- | --- |
| MOT17 | `train/MOT17-02-FRCNN`, of three detectors each | `det/det.txt`; scores of DPM are logits | of `train` |
| MOT20 | `train/MOT20-01` | `det/det.txt`, all with score 1 | of `train` |
| DanceTrack | `train/dancetrack0001`, pictures of eight digits | none | of `train` and `val` |
| SportsMOT | `dataset/train/v_..._c001` | none | of `train` and `val`; ids from 0, spaces after commas |
| SoccerNet | `train/SNMOT-060`, with a `gameinfo.ini` | `det/det.txt`, boxes of the truth, or none | class -1 |
"""

from __future__ import annotations

import configparser
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from support import mot, moving_cameras

from streamkit.core.data import Color, Frame, Surface
from streamkit.ops.color import from_rgb
from streamkit.testing.kit import detections

SOURCE = "camera"
_PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
_SPLITS = ("train", "val", "test", "challenge", "dataset")
_DEFAULT_FPS = 25.0


class UnreadablePicture(ValueError):
    """A picture of a sequence cannot be read."""


@dataclass(frozen=True)
class Recording:
    """A sequence with detections and truth.

    Attributes:
        name: for messages.
        fps: frames per second.
        size: width and height.
        rows: (n, 6) float64 for each frame, the detections: x1, y1, x2, y2, score and class.
        truth: the true objects of each frame.
        pictures: a folder of images, or an .npy file of RGB (n, h, w, 3) uint8; None without pictures.
        oracle: whether the detections are the boxes of the truth.
    """

    name: str
    fps: float
    size: tuple[int, int]
    rows: list[np.ndarray]
    truth: list[mot.TruthFrame]
    pictures: Path | None = None
    oracle: bool = False

    def frames(self) -> Iterator[Frame]:
        """The frames, each with its picture and detections."""
        images = self._images()
        labels = tuple(mot.LABELS)
        for number, rows in enumerate(self.rows):
            frame = Frame(SOURCE, number, number / self.fps, *self.size)
            if images is not None:
                frame.surface = Surface(from_rgb(next(images), Color()), Color())
            names = [labels[int(class_id)] for class_id in rows[:, 5]]
            frame.tables = {"detect": detections(rows[:, :4], rows[:, 4], label=names, labels=labels)}
            yield frame

    def _images(self) -> Iterator[np.ndarray] | None:
        if self.pictures is None:
            return None
        if self.pictures.suffix == ".npy":
            return iter(np.load(self.pictures, mmap_mode="r"))
        return (_picture(path) for path in picture_files(self.pictures))


def campus(data: Path) -> Recording:
    """TUD-Campus with the detections supplied there."""
    folder = data / "mot" / "TUD-Campus"
    return Recording(
        "TUD-Campus",
        25,
        (640, 480),
        _rows(folder / "det" / "det.txt", 71),
        mot.read_truth(folder / "gt" / "gt.txt", 71),
    )


def filmed(seed: int, kind: str, folder: Path) -> Recording:
    """A drawn scene with a camera that moves in a way; its pictures go into the folder."""
    scene = moving_cameras.moving_scene(kind, seed)
    pictures = folder / "pictures.npy"
    np.save(pictures, scene.pictures)
    return Recording(
        f"{kind} {seed}",
        moving_cameras.FPS,
        (moving_cameras.WIDTH, moving_cameras.HEIGHT),
        moving_cameras.simulated_detections(scene.truth, seed),
        [mot.truth_frame(record) for record in scene.truth],
        pictures,
    )


# ---------------------------------------------------------------------------------------------------------- on a disk


def set_name(folder: Path) -> str:
    """What a folder of sequences is called: MOT17 train of /data/MOT17/train."""
    folder = folder.resolve()
    names = [folder.name]
    while folder.name in _SPLITS and folder.parent.name:
        folder = folder.parent
        names.insert(0, folder.name)
    return " ".join(name for name in names if name != "dataset")


def picture_files(folder: Path) -> list[Path]:
    """The pictures in a folder in their order, without what else a system leaves there."""
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in _PICTURES and not p.name.startswith("."))


def on_disk(folder: Path, pattern: str, detections_folder: Path | None) -> Iterator[Recording]:
    """The sequences below a folder that have ground truth; prints what is left out, and what is used instead.

    Args:
        folder: a set, a split of it, or a sequence.
        pattern: which names of sequences are taken, such as `*-FRCNN`.
        detections_folder: has a file of detections for each sequence; None for those of the set.

    Raises:
        FileNotFoundError: no sequence with ground truth is there; says what was looked for.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: there is no such folder")
    if detections_folder is not None and not detections_folder.is_dir():
        raise FileNotFoundError(f"{folder}: --detections {detections_folder} is not a folder")
    places = sorted(path.parent for path in folder.rglob("seqinfo.ini"))
    if not places:
        raise FileNotFoundError(
            f"{folder}: no sequence is there: each is a folder with seqinfo.ini, gt/gt.txt and img1"
        )
    matching = [place for place in places if place.match(pattern)]
    if not matching:
        names = ", ".join(place.name for place in places[:3])
        raise FileNotFoundError(f"{folder}: --only-matching {pattern} matches none of its sequences, such as {names}")
    with_truth = [place for place in matching if (place / "gt" / "gt.txt").is_file()]
    if not with_truth:
        raise FileNotFoundError(
            f"{folder}: no sequence there has ground truth, gt/gt.txt, of {len(matching)}; splits named test have none"
        )
    if len(with_truth) < len(matching):
        print(f"{folder}: sequences without ground truth, gt/gt.txt, are left out: {len(matching) - len(with_truth)}")
    for place in with_truth:
        try:
            yield _recording(place, detections_folder)
        except (ValueError, OSError, configparser.Error) as error:
            print(f"{place.name}: left out: {error}")


def _recording(place: Path, detections_folder: Path | None) -> Recording:
    """A sequence on a disk.

    Raises:
        ValueError: a file is not as expected; names it.
    """
    truth_file = place / "gt" / "gt.txt"
    truth_rows = mot.read_whole(truth_file)
    if not len(truth_rows):
        raise ValueError(f"{truth_file} is empty")
    info = configparser.ConfigParser(interpolation=None)
    info.read(place / "seqinfo.ini", encoding="utf-8-sig")
    about = info["Sequence"] if info.has_section("Sequence") else {}
    folder = place / about.get("imDir", "img1")
    files = picture_files(folder) if folder.is_dir() else []
    count = int(about.get("seqLength", 0)) or len(files) or int(truth_rows[:, 0].max())
    if "frameRate" not in about:
        print(f"{place.name}: seqinfo.ini has no frameRate: {_DEFAULT_FPS:g} frames a second are assumed")
    size = int(about.get("imWidth", 0)), int(about.get("imHeight", 0))
    pictures = _usable_pictures(place.name, folder, files, count, size)
    if 0 in size:
        size = _picture_size(files[0]) if files else _extent(truth_rows)
    rows = _detections(place, count, detections_folder)
    return Recording(
        place.name,
        float(about.get("frameRate", _DEFAULT_FPS)),
        size,
        rows if rows is not None else _oracle(truth_rows, count),
        mot.read_truth(truth_file, count),
        pictures,
        oracle=rows is None,
    )


def _usable_pictures(name: str, folder: Path, files: list[Path], count: int, size: tuple[int, int]) -> Path | None:
    """The folder of pictures if it has one for each frame; otherwise prints what is missing, and what that costs."""
    if not files:
        problem = f"there are no pictures in {folder}"
    elif len(files) < count:
        problem = f"{folder} has {len(files)} pictures of {count} frames"
    elif 0 not in size and (actual := _picture_size(files[0])) != size:
        problem = f"{files[0]} has {actual[0]}x{actual[1]} pixels, and seqinfo.ini says {size[0]}x{size[1]}"
    else:
        return folder
    print(f"{name}: {problem}: no tracker compensates the motion of the camera there")
    return None


def _detections(place: Path, count: int, detections_folder: Path | None) -> list[np.ndarray] | None:
    """The detections of a sequence; None if it comes without, which is printed."""
    if detections_folder is not None:
        names = (f"{place.name}.txt", f"{place.name}/det.txt", f"{place.name}/det/det.txt")
        for name in names:
            if (detections_folder / name).is_file():
                return _rows(detections_folder / name, count)
        raise ValueError(f"there is none of {', '.join(names)} in --detections {detections_folder}")
    file = place / "det" / "det.txt"
    if file.is_file():
        return _rows(file, count)
    print(f"{place.name}: no {file}: the boxes of its ground truth are taken instead; --detections FOLDER takes others")
    return None


def _oracle(truth_rows: np.ndarray, count: int) -> list[np.ndarray]:
    """The boxes of the truth that count, as detections of score 1."""
    columns = truth_rows.shape[1]
    counts = truth_rows[:, 6] != 0
    if columns > 8:
        counts &= truth_rows[:, 7] <= 1
    rows = truth_rows[counts]
    return _by_frame(rows[:, 0], rows[:, 2:6], np.ones(len(rows)), count)


def _rows(path: Path, count: int) -> list[np.ndarray]:
    """The detections of a MOTChallenge file, all of one class."""
    rows = mot.read_whole(path)
    scores = rows[:, 6]
    if len(scores) and (scores.min() < 0 or scores.max() > 1):
        print(f"{path}: scores from {scores.min():g} to {scores.max():g} are taken as logits")
        scores = 1 / (1 + np.exp(-scores))
    return _by_frame(rows[:, 0], rows[:, 2:6], scores, count)


def _by_frame(numbers: np.ndarray, boxes: np.ndarray, scores: np.ndarray, count: int) -> list[np.ndarray]:
    rows = np.column_stack([boxes[:, :2], boxes[:, :2] + boxes[:, 2:], scores, np.zeros(len(boxes))])
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], np.arange(1, count + 2))
    return [rows[order[begin:end]] for begin, end in pairwise(bounds)]


def _extent(truth_rows: np.ndarray) -> tuple[int, int]:
    right, bottom = (truth_rows[:, 2:4] + truth_rows[:, 4:6]).max(axis=0)
    return int(right), int(bottom)


def _picture(path: Path) -> np.ndarray:
    """(h, w, 3) uint8 RGB."""
    import cv2

    picture = cv2.imread(str(path))
    if picture is None:
        raise UnreadablePicture(f"{path} is not a picture that OpenCV reads")
    return picture[..., ::-1]


def _picture_size(path: Path) -> tuple[int, int]:
    height, width = _picture(path).shape[:2]
    return width, height
