"""One result of `run.py doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from typing import Literal

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's: how it is, what it is about, what was found, and what mends it."""

    level: Literal["ok", "warn", "fail"]
    topic: str
    text: str
    fix: str = ""

    def __str__(self) -> str:
        mend = f"; to mend it: {self.fix}" if self.fix else ""
        return f"{self.level:<4}  {self.topic}: {' '.join(self.text.split())}{mend}"


def installed(name: str) -> str | None:
    """The version of an installed package; None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
