# SPDX-License-Identifier: Apache-2.0
"""Folder of images to label: images and a line of JSON for each, written by several processes at once.

    collected.jsonl   one line for each image, appended when the image is complete
    classes.json      the classes, and names of keypoints, of each detector
    images/           the images

The lines are the only state: budgets and duplicates follow from them, after a restart and over all processes. Whoever
adds an image holds the lock of `collected.jsonl` meanwhile, and has read the lines of the others before. A crash leaves
at most an image without a line, which no reader sees, and a line without its end, which the next writer removes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from streamkit.core.errors import OutputError
from streamkit.core.records import as_json
from streamkit.io.outputs import AtomicFile, fsync_folders, writing

SCHEMA = "streamkit/collected/1"
LINES = "collected.jsonl"
CLASSES = "classes.json"
IMAGES = "images"
_TYPES: dict[str, type | tuple[type, ...]] = {
    "image": str,
    "width": int,
    "height": int,
    "source": str,
    "frame": int,
    "pts_s": (int, float),
    "collected": str,
    "reason": str,
    "objects": list,
}


class NewLines(NamedTuple):
    """What others have added since this process last held the lock.

    Attributes:
        lines: the new lines.
        restarted: whether the file was replaced or shortened; then these are all lines.
        unreadable: the number of further lines that are none of images.
    """

    lines: list[dict[str, Any]]
    restarted: bool
    unreadable: int


def is_collected(folder: Path) -> bool:
    """Whether a folder is one of collected images."""
    return (folder / LINES).is_file()


class CollectedFolder:
    """Adds images to a folder.

    Args:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None
        self._offset = 0
        self._written_classes: dict[str, Any] = {}

    def open(self) -> None:
        """Create the folder if there is none.

        Raises:
            OutputError: it cannot be written, or it has other things in it.
        """
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            names = os.listdir(self.path)
            if names and LINES not in names:
                raise OutputError(
                    f"cannot write {self.path}: it has files in it, but no {LINES}, so it is another kind of folder; "
                    "give a new folder"
                )
            self._reopen()  # before the folder of images: another process may open this folder meanwhile
            (self.path / IMAGES).mkdir(exist_ok=True)
            fsync_folders([self.path])

    def close(self) -> None:
        """Close the folder."""
        handle = self._handle
        self._handle = None
        if handle is not None:
            os.close(handle)

    @contextlib.contextmanager
    def locked(self) -> Iterator[NewLines]:
        """Hold the lock, after waiting for other processes; yield what they have added.

        Raises:
            OutputError: the folder cannot be read.
        """
        with writing(self.path / LINES):
            restarted = self._lock()
        try:
            with writing(self.path / LINES):
                new = self._new_lines()
            parsed_lines = [line for line in new if line is not None]
            yield NewLines(parsed_lines, restarted, len(new) - len(parsed_lines))
        finally:
            if self._handle is not None:
                with contextlib.suppress(OSError):
                    fcntl.flock(self._handle, fcntl.LOCK_UN)

    def add(self, image: Path, data: bytes, line: Mapping[str, Any]) -> None:
        """Write an image, then its line; call it while the lock is held.

        Args:
            image: an unused path in `images/`.
            data: the whole file.
            line: values of JSON; `image`, the path in the folder, is added.

        Raises:
            OutputError: it cannot be written; then there is neither the image nor the line.
        """
        AtomicFile(image).write(data)
        whole = {"schema": SCHEMA, "image": image.relative_to(self.path).as_posix(), **line}
        try:
            with writing(self.path / LINES):
                self._append(as_json(whole, orjson.OPT_APPEND_NEWLINE))
        except OutputError:
            image.unlink(missing_ok=True)
            raise

    def keep_classes(self, stage: str, labels: Sequence[str], points: Mapping[str, Any] | None) -> None:
        """Write the classes of a detector, and its keypoints; call it while the lock is held.

        Classes that are already known keep their places, so that the ids of an export stay.

        Raises:
            OutputError: the file cannot be written.
        """
        requested = (tuple(labels), points)
        if self._written_classes.get(stage) == requested:
            return
        classes_by_stage = read_classes(self.path)
        old = classes_by_stage.get(stage, {})
        stage_classes: dict[str, Any] = {"labels": list(dict.fromkeys([*old.get("labels", ()), *labels]))}
        if skeleton := points or old.get("skeleton"):
            stage_classes["skeleton"] = skeleton
        if stage_classes != old:
            classes_by_stage[stage] = stage_classes
            text = orjson.dumps(classes_by_stage, option=orjson.OPT_INDENT_2) + b"\n"
            AtomicFile(self.path / CLASSES, unique=True).write(text)
        self._written_classes[stage] = requested

    # ------------------------------------------------------------------------------------------------------ lines

    def _lock(self) -> bool:
        """Take the lock of the file that now has the name; return whether it is another one than before."""
        restarted = False
        while True:
            handle = self._handle if self._handle is not None else self._reopen()
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(handle, fcntl.LOCK_EX)
            now = os.fstat(handle)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(now, os.stat(self.path / LINES)):
                    if now.st_size < self._offset:  # another program has shortened it
                        self._offset = 0
                        restarted = True
                    return restarted
            (self.path / IMAGES).mkdir(parents=True, exist_ok=True)
            self._reopen()
            restarted = True

    def _reopen(self) -> int:
        self.close()
        self._handle = os.open(self.path / LINES, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        self._offset = 0
        self._written_classes = {}
        return self._handle

    def _new_lines(self) -> list[dict[str, Any] | None]:
        """The lines that this process has not read; a torn last line, as a crash leaves it, is removed."""
        assert self._handle is not None
        size = os.fstat(self._handle).st_size
        data = b""
        while (at := self._offset + len(data)) < size and (part := os.pread(self._handle, size - at, at)):
            data += part
        whole = data.rfind(b"\n") + 1
        if whole < len(data) and _parsed(data[whole:]) is not None:  # an editor has left out the line's end
            os.write(self._handle, b"\n")
            data += b"\n"
            whole = len(data)
        elif whole < len(data):
            os.ftruncate(self._handle, self._offset + whole)
        self._offset += whole
        return [_parsed(line) for line in data[:whole].splitlines()]

    def _append(self, line: bytes) -> None:
        assert self._handle is not None
        try:
            done = 0
            while done < len(line):
                done += os.write(self._handle, line[done:])
            os.fsync(self._handle)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._handle, self._offset)
            raise
        self._offset += len(line)


def read_classes(folder: Path) -> dict[str, Any]:
    """The classes of each detector: `labels`, and `skeleton` with `names` and `edges`; empty if there is no file."""
    try:
        classes = orjson.loads((folder / CLASSES).read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError):
        return {}
    return classes if isinstance(classes, dict) else {}


def read_lines(folder: Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Yield number and value of each whole line of a folder; None for a line that is no JSON object of this kind."""
    with (folder / LINES).open("rb") as file:
        for number, line in enumerate(file, 1):
            record = _parsed(line)
            if record is not None or (line.endswith(b"\n") and line.strip()):  # not one that is being written
                yield number, record


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        return None
    if not all(isinstance(record.get(name), type_) for name, type_ in _TYPES.items()):
        return None
    if not all(isinstance(detection, dict) and detection.keys() >= {"stage", "box"} for detection in record["objects"]):
        return None
    folder, _, name = record["image"].partition("/")
    return record if folder == IMAGES and name and "/" not in name else None
