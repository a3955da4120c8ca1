# SPDX-License-Identifier: Apache-2.0
"""When a cached reading of a file is out of date."""

from __future__ import annotations

from pathlib import Path

FileVersion = tuple[int, int, int]


def file_version(file: Path) -> FileVersion:
    """Return a file's time of change in ns, size in bytes and inode, which differ once it is changed or replaced.

    A file that is copied with its time (`cp -p`) over another of the same size has another inode only.

    Raises:
        OSError: there is no such file.
    """
    stat = file.stat()
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
