# SPDX-License-Identifier: Apache-2.0
"""Lists of texts in files, for conditions such as `plate in file("known.txt")`."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamkit.rules.language import Fact

logger = logging.getLogger(__name__)

_CHECK_EVERY_S = 1.0


def entry_key(text: str) -> str:
    """Return what two texts have in common that a list treats as equal: not case, spaces and hyphens."""
    return "".join(c for c in text.casefold() if not c.isspace() and c != "-")


class ListFile:
    """The texts in a file: one on each line; what follows `#` is a comment.

    The file is read again when it changes. If it then cannot be read, a warning is logged, and the texts stay.

    Args:
        path: the file.

    Raises:
        ValueError: the file cannot be read; says why.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._checked_s = time.monotonic()
        self._version: tuple[int, int] | None = None
        self._read()

    def __contains__(self, text: str) -> bool:
        """Whether the file has the text."""
        if time.monotonic() - self._checked_s >= _CHECK_EVERY_S:
            self._checked_s = time.monotonic()
            self._refresh()
        return entry_key(text) in self._entries

    def _refresh(self) -> None:
        try:
            if self._stat_version() != self._version:
                self._read()
                logger.info(f"{self.path} has changed: {len(self._entries)} entries")
        except ValueError as error:
            if self._version is not None:
                logger.warning(f"{error}; its last {len(self._entries)} entries stay in use")
            self._version = None

    def _stat_version(self) -> tuple[int, int]:
        try:
            stat = self.path.stat()
        except OSError as error:
            reason = "there is no file" if isinstance(error, FileNotFoundError) else error.strerror
            raise ValueError(f"{reason} {self.path}") from None
        return stat.st_mtime_ns, stat.st_size

    def _read(self) -> None:
        version = self._stat_version()
        try:
            lines = self.path.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
            raise ValueError(f"{self.path} cannot be read: {reason}") from None
        self._entries = frozenset(filter(None, (entry_key(line.partition("#")[0]) for line in lines)))
        self._version = version


def list_file_path(name: str, folder: Path) -> Path:
    """Return the path of the file that a condition names: in the YAML's folder if it is there, else as it is."""
    path = folder / name
    return path if path.exists() else Path(name)


@dataclass(frozen=True, slots=True)
class InFile(Fact):
    """Whether a text is in a file: a fact of what the text is a fact of.

    Attributes:
        text: the text.
        file: the list.
    """

    text: Fact = None  # type: ignore[assignment]  # always given; the fields above have defaults
    file: ListFile = None  # type: ignore[assignment]

    def of(self, value: Any) -> bool | None:
        """Return whether the file has a value; None if that is no text."""
        return value in self.file if isinstance(value, str) else None
