# SPDX-License-Identifier: Apache-2.0
"""Rolling Parquet files: records are rows, acknowledged once their file is complete on disk.

A file name consists of the prefix of its records' ids, which identifies spool and run, and of the numbers of its first
and last record. A folder contains each record exactly once, whatever crashes when: the names show up to which number
the records of a run are stored, and repeated records are skipped. Files that were moved away are not considered.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from streamkit.core.errors import OutputError
from streamkit.core.units import Bytes, OptionGroup, Seconds
from streamkit.emit.client import Client, Message, SendError
from streamkit.emit.offset_store import NAME_CHARS
from streamkit.io.formats.columns import ArrowTableBuilder
from streamkit.io.outputs import fsync_folders, writing
from streamkit.io.parquet_file import TableFile, arrow

SUFFIX = ".parquet"

_GROUP_ROWS = 1 << 16
_GROUP_BYTES = 16_000_000  # of rows waiting for their row group, in one folder
_WAITING_BYTES = 64_000_000  # and in all folders
_OPEN = 200  # open files


class Roll(OptionGroup, total=False):
    """When a file is completed and the next one begins.

    Keys:
        every: after this time.
        size: at this size on disk.
    """

    every: Seconds
    size: Bytes


class ParquetClient(Client):
    """Writes records to files, one open file per folder.

    Args:
        path: the folders, as a template; used in messages.
        send: the kind of records.
        every_s: complete a file after this time, in seconds,
        size: or at this size in bytes,
        max_waiting_bytes: or when this many bytes of records wait in the spool for their files.

    Raises:
        MissingPackage: pyarrow is not installed.
    """

    def __init__(self, path: str, send: str, every_s: float, size: int, max_waiting_bytes: int) -> None:
        self.where = path
        self._rows = ArrowTableBuilder(send)
        self._every_s = every_s
        self._size = size
        self._max_waiting_bytes = max_waiting_bytes
        self._files: dict[str, _File] = {}
        self._bytes = 0
        self._since_s = 0.0

    def connect(self) -> None:
        """See `Client.connect`: checks that the top folder can be written."""
        root = Path(re.split(r"[^/]*\{", self.where)[0] or ".")
        probe = root / ".streamkit.part"
        with _lost(), writing(root):
            root.mkdir(parents=True, exist_ok=True)
            probe.touch()
            probe.unlink(missing_ok=True)

    def deliver(self, messages: Sequence[Message]) -> None:
        """See `Client.deliver`: records are held back until their files are complete."""
        self._roll_if_due()
        if not self.held:
            self._since_s = time.monotonic()
        by_folder: dict[str, list[Message]] = {}
        for message in messages:
            by_folder.setdefault(message.topic, []).append(message)
        with _lost():
            for folder, some in by_folder.items():
                if (file := self._files.get(folder)) is None:
                    file = self._files[folder] = _File(Path(folder), self._rows)
                file.add(some)
                if file.size_bytes >= self._size:
                    file.finish()
            self._make_room()
        self.held += len(messages)
        self._bytes += sum(len(message.body) for message in messages)

    def idle(self) -> None:
        """See `Client.idle`."""
        self._roll_if_due(self.draining())

    def close(self) -> None:
        """See `Client.close`: discards incomplete files; their records are still in the spool."""
        for file in self._files.values():
            file.discard()
        self._reset()

    def _roll_if_due(self, due: bool = False) -> None:
        """Complete every file if it is time, so that no record is held back."""
        due |= self._bytes >= self._max_waiting_bytes or time.monotonic() - self._since_s >= self._every_s
        if not due or not self.held:
            return
        with _lost():
            for file in self._files.values():
                file.finish()
            fsync_folders({file.folder for file in self._files.values()})
        self._reset()

    def _make_room(self) -> None:
        """Limit the rows in memory and the number of open files."""
        files = self._files.values()
        while sum(file.waiting_bytes for file in files) > _WAITING_BYTES:
            max(files, key=lambda file: file.waiting_bytes).write()
        while sum(file.size_bytes > 0 for file in files) > _OPEN:
            max(files, key=lambda file: file.size_bytes).finish()

    def _reset(self) -> None:
        self._files.clear()
        self.held = self._bytes = 0


class _File:
    """The open file in a folder, and the number of the last record stored there."""

    def __init__(self, folder: Path, rows: ArrowTableBuilder) -> None:
        self.folder = folder
        self._rows = rows
        self._name = ""
        self._there = 0  # up to this number, the records of this name are in complete files
        self._first = 0
        self._last = 0
        self._tables: list[Any] = []
        self._count = self.waiting_bytes = 0
        self._file: TableFile | None = None

    def add(self, messages: Sequence[Message]) -> None:
        """Add records. Raises OutputError."""
        for name, some in groupby(messages, _name):
            if name != self._name:  # at first, and after the records of an earlier run in the spool
                self.finish()
                self._there = _last_stored(self.folder, name)
                self._name = name
            self._add(list(some))

    def _add(self, messages: Sequence[Message]) -> None:
        new = [(number, message.body) for message in messages if (number := _number(message.id)) > self._there]
        if not new:
            return
        if not (self._tables or self._file):
            self._first = new[0][0]
        self._last = new[-1][0]
        self._tables.append(self._rows.table([body for _, body in new]))
        self._count += len(new)
        self.waiting_bytes += sum(len(body) for _, body in new)
        if self._count >= _GROUP_ROWS or self.waiting_bytes >= _GROUP_BYTES:
            self.write()

    @property
    def size_bytes(self) -> int:
        """Size on disk, in bytes."""
        return self._file.size_bytes if self._file is not None else 0

    def write(self) -> None:
        """Write the waiting rows as a row group. Raises OutputError."""
        if self._tables:
            if self._file is None:
                name = f"{self._name}-{self._first:012d}{SUFFIX}"
                self._file = TableFile(self.folder / name, self._rows.schema)
            self._file.write(arrow().concat_tables(self._tables).combine_chunks())
        self._tables = []
        self._count = 0
        self.waiting_bytes = 0

    def finish(self) -> None:
        """Complete the file, if there is one. Raises OutputError."""
        self.write()
        if self._file is not None:
            self._file.finish(f"{self._name}-{self._first:012d}-{self._last:012d}{SUFFIX}")
            self._there = self._last
            self._file = None

    def discard(self) -> None:
        """Discard the incomplete file."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.discard()


@contextlib.contextmanager
def _lost() -> Iterator[None]:
    """Raise an OutputError of the block as SendError: a full disk is treated as a broker that is down."""
    try:
        yield
    except OutputError as error:
        raise SendError(str(error)) from error


def _name(message: Message) -> str:
    return message.id.rpartition("-")[0]


def _number(id_: str) -> int:
    return int(id_.rpartition("-")[2])


def _last_stored(folder: Path, name: str) -> int:
    """Number of the last stored record with this id prefix; removes partial files that a crash left."""
    with writing(folder):
        for part in folder.glob(f".{name[:NAME_CHARS]}*.part"):
            part.unlink(missing_ok=True)
        matches = (re.fullmatch(rf"{name}-\d+-(\d+)", path.stem) for path in folder.glob(f"{name}-*{SUFFIX}"))
        return max((int(match[1]) for match in matches if match), default=0)
