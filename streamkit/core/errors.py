"""Every error streamkit raises on purpose.

StreamkitError
├── ConfigError        the YAML, a card or an option is wrong; carries every problem found     exit 2
│   └── ModelError     a model file or its card cannot be used
├── DeviceError        the device asked for cannot be had; says what to install                exit 2
├── MissingPackage     an install extra is missing; says which                                 exit 2
├── SourceError        one source failed; the others go on                                     exit 1
├── OutputError        an output cannot be written (folder, disk, encoder)                     exit 1
└── StageError         a stage raised; says stage, source, frame and time                      exit 1
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from streamkit.core.text import install_command


class StreamkitError(Exception):
    """The base of all errors below; its text is one a user can act on."""


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing wrong in a file.

    `line` and `column` count from 1; 0 means that the place is not known.
    """

    file: str
    line: int
    column: int
    text: str

    def __str__(self) -> str:
        place = f":{self.line}:{self.column}" if self.line else ""
        return f"{self.file}{place}: {self.text}"


class ConfigError(StreamkitError):
    """The configuration is wrong. `problems` holds every problem, in the order of the file."""

    def __init__(self, problems: list[Problem] | str) -> None:
        self.problems = [Problem("", 0, 0, problems)] if isinstance(problems, str) else sorted(problems)
        super().__init__(problems if isinstance(problems, str) else "\n".join(map(str, self.problems)))


class ModelError(ConfigError):
    """A model file or its card cannot be used."""


class DeviceError(StreamkitError):
    """The device asked for cannot be had."""


class MissingPackage(StreamkitError):
    """A package that an option needs is not installed."""

    def __init__(self, package: str, extra: str, why: str) -> None:
        super().__init__(f"{why} needs the package {package}; install it with: {install_command(extra)}")


@contextmanager
def needs(package: str, extra: str, why: str = "") -> Iterator[None]:
    """Raise an ImportError of the block as MissingPackage; `why` is the extra's name if not set."""
    try:
        yield
    except ImportError as error:
        raise MissingPackage(package, extra, why or extra) from error


class SourceError(StreamkitError):
    """A source cannot be opened or read on. The runner adds the source's id.

    Args:
        text: what happened.
        cause: the same in a word that programs go by, one of `CAUSES`, or None where none of them fits.
        damaged: how many frames were lost or concealed, where the cause is `damaged`.
    """

    CAUSES = (
        "auth", "not_found", "refused", "timeout", "codec", "lost", "frozen",
        "missing", "permission", "empty", "no_video", "truncated", "damaged",
    )  # fmt: skip

    def __init__(self, text: str = "", *, cause: str | None = None, damaged: int = 0) -> None:
        super().__init__(text)
        self.cause, self.damaged = cause, damaged


class OutputError(StreamkitError):
    """An output cannot be written."""


class StageError(StreamkitError):
    """A stage raised. Made by the runner, which knows the place; the stage's own error is its cause."""

    def __init__(self, stage: str, cause: BaseException, frame: Any = None, *, when: str = "", line: str = "") -> None:
        """Say what failed; `when` where it was no frame's doing, `line` of the stage's own file where it is known."""
        self.stage = stage
        place = f" on {frame.source} frame {frame.index} ({frame.pts_s:.2f} s)" if frame is not None else when
        super().__init__(f"{stage} failed{place}: {describe(cause)}{line and f' ({line})'}")


def describe(error: BaseException) -> str:
    """The error's text on one line, with its type where the text alone says too little."""
    text = " ".join(str(error).split())
    if isinstance(error, StreamkitError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
