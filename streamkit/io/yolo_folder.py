# SPDX-License-Identifier: Apache-2.0
"""Reads ground truth from a folder in the layout of YOLO data sets: a text file of normalized boxes per frame."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from streamkit.core.errors import ConfigError, Problem
from streamkit.io.box_files import BoxRows
from streamkit.io.image_file import IMAGE_SUFFIXES, natural_key

_LAYOUT = (
    "a YOLO folder has labels/*.txt, a file per frame with lines `class x y width height` in shares of the frame, and "
    "the class names in data.yaml (names:) or classes.txt"
)
_NAMES = ("data.yaml", "dataset.yaml", "classes.txt", "obj.names", "labels/classes.txt")


def read_yolo_folder(
    folder: Path, *, labels: Sequence[str] = (), first_frame: int | None = None, images: Sequence[str] = ()
) -> BoxRows:
    """Read a folder.

    The frame of a label file is the place of the image with its name among `images` or the folder's images, sorted
    naturally; without images, the last number in its name.

    Args:
        folder: with `labels/`, or the label files themselves, and optionally `images/`.
        labels: the class names; empty takes those of the folder.
        first_frame: the number of the first frame in the names; None takes 0 if a file has it, else 1.
        images: the files of a source of images, in order.

    Returns:
        The rows; `xyxy` are shares of the frame. A sixth number in a line is the track id.

    Raises:
        ConfigError: the folder or a file has another layout.
    """
    inside = folder / "labels" if (folder / "labels").is_dir() else folder
    files = sorted((path for path in inside.glob("*.txt") if path.name != "classes.txt"), key=natural_key)
    if not files:
        parts = [str(path) for path in sorted(inside.iterdir()) if any(path.glob("*.txt"))]
        which = f"{inside} has folders of label files; name one of them: {', '.join(parts[:3])}"
        raise ConfigError(which if parts else f"{inside} has no label files: {_LAYOUT}")
    names = tuple(labels) or _names(folder)
    frames = _frames_of_images(files, images) if images else _frames(folder, files, first_frame)
    rows: list[tuple[float, ...]] = []
    for file in frames:
        rows += [(frames[file], *row) for row in _rows(file, names)]
    table = np.array(rows, np.float64).reshape(-1, 8)
    table = table[np.argsort(table[:, 0], kind="stable")]
    half = table[:, 4:6] / 2
    n = len(table)
    xyxy = np.hstack([table[:, 2:4] - half, table[:, 2:4] + half]).astype(np.float32)
    return BoxRows(
        folder,
        table[:, 0].astype(np.int64),
        xyxy,
        np.ones(n, np.float32),
        table[:, 1].astype(np.int32),
        table[:, 6].astype(np.int64),
        table[:, 7].astype(np.int64),
        names,
        {},
        np.zeros(n, bool),
        np.ones(n, np.float32),
        True,
        frozenset(frames.values()),
        area=np.full(n, np.nan),
        absent=len(files) - len(frames),
    )


def _names(folder: Path) -> tuple[str, ...]:
    above = [parent.parent for parent in (folder, *folder.parents) if parent.name == "labels"]  # of labels/val
    for place in (parent / name for parent in (folder, *above) for name in _NAMES):
        if place.is_file():
            if place.suffix == ".yaml":
                return _of_yaml(place)
            return tuple(line.strip() for line in place.read_text().splitlines() if line.strip())
    raise ConfigError(f"{folder} has no class names, in {' or '.join(_NAMES[:3])}; add the file, or give --labels")


def _of_yaml(path: Path) -> tuple[str, ...]:
    import yaml

    try:
        names = yaml.safe_load(path.read_text())["names"]
    except (yaml.YAMLError, KeyError, TypeError):
        names = None
    if isinstance(names, dict) and sorted(names) == list(range(len(names))):
        names = [names[number] for number in range(len(names))]
    if not isinstance(names, list) or not names:
        raise ConfigError(f"{path} must have names: a list of class names, or a mapping from 0, 1, 2, ...")
    return tuple(map(str, names))


def _frames_of_images(files: Sequence[Path], images: Sequence[str]) -> dict[Path, int]:
    """The frame of each label file that belongs to an image of the source."""
    place = {Path(name).stem: number for number, name in enumerate(images)}
    frames = {file: place[file.stem] for file in files if file.stem in place}
    if not frames:
        raise ConfigError(
            f"no label file in {files[0].parent} has the name of one of the source's {len(images)} images: there is "
            f"{files[0].name}, and the source has {Path(images[0]).name}; take the labels of these images"
        )
    return frames


def _frames(folder: Path, files: Sequence[Path], first: int | None) -> dict[Path, int]:
    """The frame of each label file."""
    shots = folder / "images" if (folder / "images").is_dir() else folder
    images = [path for path in shots.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES]
    if images:
        place = {image.stem: number for number, image in enumerate(sorted(images, key=natural_key))}
        lost = [file for file in files if file.stem not in place]
        if lost:
            raise ConfigError(f"{lost[0]} has no image of that name in {shots}, and {len(lost) - 1} others; add them")
        return {file: place[file.stem] for file in files}
    digits_by_file = {file: re.findall(r"\d+", file.stem) for file in files}
    unnumbered = [file for file, numbers in digits_by_file.items() if not numbers]
    if unnumbered:
        raise ConfigError(f"{unnumbered[0]} has no frame number in its name, as in {unnumbered[0].stem}_000001.txt")
    numbers = {file: int(digits[-1]) for file, digits in digits_by_file.items()}
    begin = first if first is not None else min(1, min(numbers.values()))
    if min(numbers.values()) < begin:
        raise ConfigError(f"{folder} has a label file of frame {min(numbers.values())}, before --first-frame {begin}")
    for earlier, later in itertools.pairwise(sorted(files, key=numbers.__getitem__)):
        if numbers[earlier] == numbers[later]:
            raise ConfigError(f"{earlier.name} and {later.name} are of the same frame; give each video its own folder")
    return {file: number - begin for file, number in numbers.items()}


def _rows(file: Path, names: Sequence[str]) -> list[tuple[float, ...]]:
    """Class, center, size, id and line of each object of a file."""

    def wrong(line: int, text: str) -> ConfigError:
        return ConfigError([Problem(str(file), line, 1, text)])

    rows = []
    for line, text in enumerate(file.read_text("utf-8", "replace").splitlines(), 1):
        if not text.strip():
            continue
        try:
            numbers = [float(part) for part in text.split()]
        except ValueError:
            raise wrong(line, f"a line must be `class x y width height [id]`, got {text[:60]!r}") from None
        if not 5 <= len(numbers) <= 6:
            what = "polygons of segments cannot be used: export boxes" if len(numbers) > 6 else f"got {len(numbers)}"
            raise wrong(line, f"a line must have the 5 numbers `class x y width height`, and optionally the id; {what}")
        if numbers[0] != int(numbers[0]) or not 0 <= numbers[0] < len(names):
            raise wrong(line, f"class {numbers[0]:g} has no name: there are {len(names)} ({', '.join(names)})")
        if not all(-0.01 <= value <= 1.01 for value in numbers[1:5]):
            raise wrong(line, f"x, y, width and height must be shares of the frame, 0 to 1, got {text.strip()!r}")
        if len(numbers) == 6 and (numbers[5] != int(numbers[5]) or numbers[5] < 0):
            raise wrong(line, f"the sixth number must be a track id, a whole number, got {numbers[5]:g}")
        rows.append((*numbers[:5], numbers[5] if len(numbers) == 6 else -1.0, float(line)))
    return rows
