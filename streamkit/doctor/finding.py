"""One thing that `run.py doctor` finds, and the commands that mend things."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

GIB = 2**30
ONNXRUNTIMES = ("onnxruntime", "onnxruntime-gpu")
UNINSTALL = f"python -m pip uninstall -y {' '.join(ONNXRUNTIMES)}"
"""Both, before one of them is installed again: each removes files of the other."""


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


def install(extra: str = "") -> str:
    """The command that installs this copy of streamkit with an extra."""
    here = Path(__file__).resolve().parents[2]
    extras = f"[{extra}]" if extra else ""
    if (here / "pyproject.toml").is_file():
        where = "." if here == Path.cwd() else str(here)
        return f"python -m pip install -e '{where}{extras}'"
    return f"python -m pip install 'streamkit{extras}'"


def installed(name: str) -> str | None:
    """The version of an installed package."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
