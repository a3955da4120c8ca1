# SPDX-License-Identifier: Apache-2.0
"""Writes a file that only its owner may read."""

from __future__ import annotations

import os
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Replace a file by one with this text and the mode 600, at once; its folder is created.

    Raises:
        OSError: it cannot be written; the file is as before.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}")  # of this call, on any thread
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with os.fdopen(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
