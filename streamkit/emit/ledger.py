"""What a spool knows besides its records: whose it is, its name, and how far its records were acknowledged."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import struct
import zlib
from pathlib import Path

from streamkit.emit.blocks import private
from streamkit.errors import OutputError
from streamkit.outputs import output_error, settle

NAME_CHARS = 12
"""With so many characters begin the ids of all records of one spool."""

_END = "\n\n"
"""Behind the list of runs; what follows may be left of a longer one."""
_ENTRY = struct.Struct("<QI")  # a record's number, and its checksum


class Ledger:
    """Three small files in the spool's folder, readable by their owner alone; one process has them at a time.

    Args:
        folder: the spool's; made where it is not there.

    Attributes:
        acknowledged: the number that was written last; 0 at first, and where it cannot be read any more, so that
            everything there is will be sent again rather than lost.

    Raises:
        OutputError: the folder cannot be written, or another run has it.
    """

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = private(folder / "lock", os.O_RDWR)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._file = private(folder / "acknowledged", os.O_RDWR)
            known = _read(os.pread(self._file, _ENTRY.size, 0))
            self._folder = folder
            self._name, self._runs = _names(folder / "name")
            self.write(known or 0)  # a full disk shows now, and not in the midst
        except BlockingIOError:
            os.close(self._lock)
            text = f"the spool {folder} is in use by another run or emitter; give each a spool.path of its own"
            raise OutputError(text) from None
        except OSError as error:
            raise output_error(folder, error) from error

    def begin(self, first: int, new: int) -> None:
        """A run begins. In the ids of its records is what no other run has.

        Numbers may be given out twice: after a power cut the disk may know neither the last records nor that they were
        acknowledged. A receiver that drops repeats would take new records for those.

        Args:
            first: the number of the first record that waits; `new` where none does.
            new: the number of the first record that this run will add.

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
        try:
            os.fsync(self._file)  # what it says now decides which runs are forgotten here
            handle = private(self._folder / "name", os.O_WRONLY)
            try:  # over what is there: on a full disk there is no room for a second file
                os.pwrite(handle, data.encode(), 0)
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            raise output_error(self._folder, error) from error
        settle([self._folder])

    def id(self, number: int) -> str:
        """The id of a record: the spool's name with what its run has added to it, and its number."""
        for first, run in self._runs:  # noqa: B007  the oldest, where none is of so small a number
            if first <= number:
                break
        return f"{self._name}{run}-{number}"

    def write(self, number: int) -> None:
        """Every record up to this one has arrived, or was dropped and counted."""
        self.acknowledged = number
        data = struct.pack("<Q", number)
        os.pwrite(self._file, data + struct.pack("<I", zlib.crc32(data)), 0)

    def close(self) -> None:
        """Let another run have the spool."""
        os.close(self._file)
        os.close(self._lock)


def _names(path: Path) -> tuple[str, list[tuple[int, str]]]:
    """A spool's name, made where it has none; and of runs, the last one first, where they began and what they added."""
    text = path.read_text(encoding="ascii", errors="replace") if path.exists() else ""
    name, *lines = text.partition(_END)[0].split("\n")
    if not re.fullmatch(rf"[0-9a-f]{{{NAME_CHARS}}}", name):
        return secrets.token_hex(NAME_CHARS // 2), []
    runs = (re.fullmatch(r"(\d+) (\w+)", line) for line in lines)
    # before runs had anything of their own, an id was the name and a number
    return name, [(int(run[1]), run[2]) for run in runs if run] or [(0, "")]


def _read(data: bytes) -> int | None:
    if len(data) < _ENTRY.size or zlib.crc32(data[:8]) != _ENTRY.unpack(data)[1]:
        return None
    return int(_ENTRY.unpack(data)[0])
