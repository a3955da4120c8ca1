# SPDX-License-Identifier: Apache-2.0
"""State of a spool other than its records: its lock, its name, and the number of the last acknowledged record."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

from streamkit.core.errors import OutputError
from streamkit.emit.segment_file import open_private
from streamkit.io.outputs import fsync_folders, output_error, writing

NAME_CHARS = 12
"""Length of the prefix that the ids of all records of one spool share."""

_END = "\n\n"
"""Ends the list of runs; text after it may be left from a longer list."""
_ENTRY = struct.Struct("<QI")  # a record's number, and its checksum


class OffsetStore:
    """Three small files in the spool's folder, readable by their owner only; one process may use them at a time.

    Args:
        folder: the spool's folder; created if needed.

    Attributes:
        acknowledged: the last number written; 0 at first, and if the file cannot be read, so that all records are sent
            again and none is lost.

    Raises:
        OutputError: the folder cannot be written, or another run uses it.
    """

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = open_private(folder / "lock", os.O_RDWR)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._file = open_private(folder / "acknowledged", os.O_RDWR)
            self._folder = folder
            self._name, self._runs = _names(folder / "name")
            self.write(_read(self._file))  # a full disk is detected now, and not during the run
        except BlockingIOError:
            os.close(self._lock)
            text = f"the spool {folder} is in use by another run or emitter; set a different spool.path for each"
            raise OutputError(text) from None
        except OSError as error:
            raise output_error(folder, error) from error

    def begin(self, first: int, new: int) -> None:
        """Start a run. The ids of its records contain a random part that no other run has.

        Numbers may be reused: after a power cut the disk may contain neither the last records nor their
        acknowledgement. A receiver that drops repeats would otherwise take new records for those.

        Args:
            first: number of the first waiting record; `new` if there is none.
            new: number of the first record that this run will add.

        Raises:
            OutputError: the folder cannot be written.
        """
        runs = [(new, secrets.token_hex(4))]
        for earlier in self._runs:
            if runs[-1][0] <= first:
                break
            if earlier[0] < runs[-1][0]:
                runs.append(earlier)
        self._runs = runs
        data = "\n".join([self._name, *(f"{number} {run}" for number, run in runs)]) + _END
        with writing(self._folder):
            os.fsync(self._file)  # what it says decides which runs are removed here
            # overwritten in place: a full disk has no room for a second file
            with os.fdopen(open_private(self._folder / "name", os.O_WRONLY), "wb", 0) as file:
                os.pwrite(file.fileno(), data.encode(), 0)
                os.fsync(file.fileno())
        fsync_folders([self._folder])

    def id(self, number: int) -> str:
        """The id of a record: the spool's name, the random part of its run, and its number."""
        for first, run in self._runs:  # noqa: B007  the oldest, where none is of so small a number
            if first <= number:
                break
        return f"{self._name}{run}-{number}"

    def ids(self, numbers: Sequence[int]) -> list[str]:
        """The ids of records with these numbers, which rise."""
        first, run = self._runs[0]
        if not numbers or numbers[0] < first:  # some are of earlier runs
            return list(map(self.id, numbers))
        return [f"{self._name}{run}-{number}" for number in numbers]

    def write(self, number: int) -> None:
        """Store that every record up to this one has arrived, or was dropped and counted."""
        self.acknowledged = number
        data = struct.pack("<Q", number)
        os.pwrite(self._file, data + struct.pack("<I", zlib.crc32(data)), 0)

    def close(self) -> None:
        """Release the spool for another run."""
        os.close(self._file)
        os.close(self._lock)


def _names(path: Path) -> tuple[str, list[tuple[int, str]]]:
    """The spool's name, created if needed, and its runs, latest first: first record number and random part."""
    text = path.read_text(encoding="ascii", errors="replace") if path.exists() else ""
    name, *lines = text.partition(_END)[0].split("\n")
    if not re.fullmatch(rf"[0-9a-f]{{{NAME_CHARS}}}", name):
        return secrets.token_hex(NAME_CHARS // 2), []
    runs = (re.fullmatch(r"(\d+) (\w+)", line) for line in lines)
    # formerly an id was the name and a number, without a part for the run
    return name, [(int(run[1]), run[2]) for run in runs if run] or [(0, "")]


def _read(handle: int) -> int:
    """The number in the file; 0 if it is empty, torn or damaged."""
    data = os.pread(handle, _ENTRY.size, 0)
    if len(data) < _ENTRY.size:
        return 0
    number, checksum = _ENTRY.unpack(data)
    return int(number) if zlib.crc32(data[:8]) == checksum else 0
