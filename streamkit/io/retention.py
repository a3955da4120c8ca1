# SPDX-License-Identifier: Apache-2.0
"""Files of clips and snapshots: unique names, and removal of the oldest by age, size and free space."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from streamkit.core.counters import Counters
from streamkit.core.logs import LogOnce
from streamkit.core.units import Bytes, OptionGroup, Seconds
from streamkit.io.outputs import fill_path, shortened, sweep, unused_path

logger = logging.getLogger(__name__)

PLACEHOLDERS = ("source", "time", "stage", "kind")
OF_OBJECTS = (*PLACEHOLDERS, "date", "label", "track_id")
NO_DATE = "video"
"""The value of `{date}` for sources without a wall clock."""

_NAME_BYTES = 240  # of the 255 of a file system; the rest is for `.NAME-99.part`
_WORD_BYTES = (240, 100, 60, 30, 12)
MIN_FREE_BYTES = 100_000_000
_TIDY_EVERY_S = 60.0
_TIME = r"(?:[0-9]{8}T[0-9]{6}\.[0-9]{3}Z|[0-9]{6,}\.[0-9]{3}s)"
_WORD = r"[\w.-]+"
_PATTERNS = {
    "source": ".+",
    "time": _TIME,
    "date": rf"(?:[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}|{NO_DATE})",
    **dict.fromkeys(("stage", "kind", "label", "track_id"), _WORD),
}


class RetentionOptions(OptionGroup, total=False):
    """Limits of what is kept.

    Keys:
        age: older files are removed.
        size: maximum total size; the oldest files are removed.
    """

    age: Seconds
    size: Bytes


class FileRetention:
    """The clips or snapshots of one stage: all files whose path matches the template.

    Several processes may have the same template. Each limits the whole folder, by what is on the disk.

    Args:
        template: the path, with `{source}`, `{time}`, `{stage}` and `{kind}` in it; snapshots' also with `{date}`,
            `{label}` and `{track_id}`.
        keep: limits of age and size; None for no limits.
        min_free: bytes that must be free on the disk; the oldest files are removed until they are. None removes
            nothing, and requires 100 MB.
        counters: for removed files.
        what: the word for the files: clips or snapshots.
    """

    def __init__(
        self,
        template: str,
        keep: RetentionOptions | None,
        min_free: int | None,
        counters: Counters,
        what: str = "clips",
    ) -> None:
        self._template = template
        self._keep = keep or {}
        self._removes = min_free is not None
        self._min_free = MIN_FREE_BYTES if min_free is None else min_free
        self._counters = counters
        self._what = what
        self._warn = LogOnce(logger.warning)
        self.root = Path(template.partition("{")[0].rpartition("/")[0] or ".")
        self._name = re.compile(_pattern(template))
        self._tidied_s = -_TIDY_EVERY_S

    def path(self, source: str, stage: str, kind: str, time_s: float | None, pts_s: float, **more: str) -> Path:
        """Return an unused path for a new file.

        Args:
            source: id of the source.
            stage: id of the stage that emitted the event.
            kind: kind of the event.
            time_s: wall clock of the event, in seconds since 1970; None if the source has none.
            pts_s: its presentation time in seconds, used in the name instead of a wall clock.
            more: further values, by their placeholders.

        Raises:
            OutputError: the source's id leads out of the folder, or the disk rejects the name.
        """
        parts = {"stage": stage, "kind": kind, **more}
        words = {name: re.sub(r"[^\w.-]", "_", text) or "_" for name, text in parts.items()}
        clock = {"time": f"{max(0.0, pts_s):010.3f}s", "date": NO_DATE}
        if time_s is not None:
            ms = round(time_s * 1000)
            date, second = time.strftime("%Y-%m-%d %Y%m%dT%H%M%S", time.gmtime(ms // 1000)).split()
            clock = {"time": f"{second}.{ms % 1000:03d}Z", "date": date}
        return unused_path(Path(self._filled(words, clock, source)))

    def _filled(self, words: Mapping[str, str], clock: Mapping[str, str], source: str) -> str:
        """Fill the template; words are cut until each name in the path fits a file system."""
        path = ""
        for limit_bytes in _WORD_BYTES:
            values = {**{name: shortened(word, limit_bytes) for name, word in words.items()}, **clock}
            filled = re.sub(r"\{(\w+)\}", lambda match, values=values: values.get(match[1], match[0]), self._template)  # type: ignore[misc]
            path = fill_path(filled, source)
            if all(len(os.fsencode(name)) <= _NAME_BYTES for name in path.split("/")):
                break
        return path

    def parts(self) -> Iterator[Path]:
        """Yield part files, whether they are being written or were left by a crash."""
        for path in self._files():
            if path.name.startswith(".") and path.suffix == ".part" and self._fits(path.with_name(path.name[1:-5])):
                yield path

    def sweep(self) -> None:
        """Remove the part files that a crash left; those that any process is writing stay."""
        for part in self.parts():
            try:
                if sweep(part):
                    self._counters.add(f"unfinished {self._what} removed")
            except OSError as error:
                self._counters.add(f"unfinished {self._what} not removed")
                self._warn(f"cannot remove {part}: {error.strerror}")

    def room(self) -> bool:
        """Whether there is room for another file, after removing the oldest ones if that is allowed.

        A disk that reports no free space counts as having room: its errors are reported on writing.
        """
        if self._free() >= self._min_free:
            return True
        if self._removes:
            with removing_alone(self.root):
                for path, _, _ in self._oldest_first():
                    if self._free() >= self._min_free:  # another process may have made room
                        break
                    self._remove(path, "disk full")
        return self._removes and self._free() >= self._min_free

    def tidy(self, now_s: float) -> None:
        """Remove files that are too old or too many; at most once a minute.

        Args:
            now_s: monotonic clock in seconds.
        """
        if not self._keep or now_s - self._tidied_s < _TIDY_EVERY_S:
            return
        self._tidied_s = now_s
        age = self._keep.get("age")
        size = self._keep.get("size")
        with removing_alone(self.root):
            files = self._oldest_first()
            total = sum(file[2] for file in files)
            oldest_s = -1.0 if age is None else time.time() - age
            for path, changed_s, size_bytes in files:
                if changed_s < oldest_s:
                    self._remove(path, "over age")
                elif size is not None and total > size:
                    self._remove(path, "over size")
                else:
                    break
                total -= size_bytes

    def tidy_soon(self) -> None:
        """Make the next `tidy` run immediately."""
        self._tidied_s = -_TIDY_EVERY_S

    def full(self) -> str:
        """Return the message that there is no room."""
        stops = "recording stops" if self._what == "clips" else f"no {self._what} are written"
        free = f"less than {self._min_free / 1e6:,.0f} MB are free under {self.root}"
        return f"{stops}: {free}; it resumes when there is room"

    def _free(self) -> int:
        free = free_bytes(self.root)
        return self._min_free if free is None else free

    def _files(self) -> Iterator[Path]:
        for folder, _, names in os.walk(self.root):
            yield from (Path(folder, name) for name in names)

    def _oldest_first(self) -> list[tuple[Path, float, int]]:
        """Return path, modification time and bytes of every file, the oldest first."""
        files = []
        for path in self._files():
            if self._fits(path):
                with contextlib.suppress(OSError):  # another process has removed it, or it is unreachable
                    about = path.stat()
                    files.append((path, about.st_mtime, about.st_size))
        return sorted(files, key=lambda file: (file[1], file[0]))

    def _fits(self, path: Path) -> bool:
        return self._name.fullmatch(os.path.normpath(path)) is not None

    def _remove(self, path: Path, why: str) -> None:
        try:
            path.unlink()
        except FileNotFoundError:
            return
        except OSError as error:
            self._counters.add(f"{self._what} not removed")
            self._warn(f"cannot remove {path}: {error.strerror}")
            return
        self._counters.add(f"{self._what} removed: {why}")
        if path.parent != self.root:
            with contextlib.suppress(OSError):  # it contains other files
                path.parent.rmdir()


@contextlib.contextmanager
def removing_alone(root: Path) -> Iterator[None]:
    """Wait while another process removes files of this folder, so that each counts what is really there.

    On a file system without locks, two processes may remove a file more than needed, the oldest first.
    """
    try:
        folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # there is none yet
        yield
        return
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def free_bytes(root: Path) -> int | None:
    """Free space of the disk that a folder is on or will be on; None if the disk reports none."""
    folder = root
    try:
        while not folder.exists():
            folder = folder.parent
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def removable(template: str) -> bool:
    """Whether a template's files are distinguishable from others and in a folder of their own."""
    return "{time}" in template and bool(template.partition("{")[0].strip("./"))


def _pattern(template: str) -> str:
    stem, dot, suffix = os.path.normpath(template).rpartition(".")
    pattern = re.escape(stem)
    for name, text in _PATTERNS.items():
        pattern = pattern.replace(re.escape(f"{{{name}}}"), text)
    return rf"{pattern}(?:-[0-9]+)?{re.escape(dot + suffix)}"
