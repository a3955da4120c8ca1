# SPDX-License-Identifier: Apache-2.0
"""Readable errors of the small SQLite files that a run keeps."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from streamkit.core.errors import OutputError


def database_error(content: str, path: Path, error: sqlite3.Error) -> OutputError:
    """Return the error of a file that cannot be read or written, with the way out; `content` is what it holds."""
    full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    way_out = "free some space on its disk" if full else "repair or remove the file"
    return OutputError(f"cannot use the {content} {path}: {error}; {way_out}")
