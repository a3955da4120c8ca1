"""A disk that becomes full."""

import contextlib
import errno
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest


class FullDisk:
    """A file that takes `room` bytes and then fails as the kernel does: short, then ENOSPC or another error number."""

    def __init__(self, file, room, error_number=errno.ENOSPC):
        self.file = file
        self.room = room
        self.error_number = error_number

    def write(self, data):
        if self.room <= 0:
            raise OSError(self.error_number, os.strerror(self.error_number))
        taken = self.file.write(data[: self.room])
        self.room -= taken
        return taken

    def __getattr__(self, name):
        return getattr(self.file, name)


class SmallDisk:
    """A file system of its own, `folder`, with little room."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self, free_bytes: int = 0) -> None:
        """Leave room for `free_bytes` only, in steps of 4 KiB."""
        with self._ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while self._free_bytes() > free_bytes or not free_bytes:
                file.write(bytes(4096))

    def _free_bytes(self) -> int:
        status = os.statvfs(self.folder)
        return status.f_bavail * status.f_bsize

    def free(self) -> None:
        """Make room again."""
        self._ballast.unlink()


@contextlib.contextmanager
def small_disk(folder: Path, size: str = "256k") -> Iterator[SmallDisk]:
    """Mount a file system of this size; skip the test where that is not allowed."""
    folder.mkdir(exist_ok=True)
    options = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(options, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a small file system")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.contextmanager
def refusing_writes(
    path: Path, table: str, statements: Sequence[str] = ("INSERT", "UPDATE", "DELETE")
) -> Iterator[None]:
    """Let SQLite refuse these statements on a table of a file while the block runs."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(
                f"CREATE TRIGGER no_{statement} BEFORE {statement} ON {table} "
                "BEGIN SELECT RAISE(FAIL, 'the disk is full'); END"
            )
    try:
        yield
    finally:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            for statement in statements:
                connection.execute(f"DROP TRIGGER no_{statement}")
