# SPDX-License-Identifier: Apache-2.0
"""The errors that streamkit raises.

StreamkitError
├── ConfigError        the YAML, a card or an option is invalid; has a list of all problems    exit 2
│   └── ModelError     a model file or its card cannot be used
├── DeviceError        the requested device is not available; says what to install             exit 2
├── MissingPackage     a package is missing; says which extra to install                       exit 2
├── SourceError        one source failed; the others continue                                  exit 1
├── OutputError        an output cannot be written (folder, disk, encoder)                     exit 1
├── StageError         a stage raised; names the stage, source, frame and time                 exit 1
└── PipelineEnded      in Python: the pipeline has ended, and takes no further call
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from streamkit.core.text import install_command, text_of


class StreamkitError(Exception):
    """The base of all errors; its text tells the user what to do."""


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One problem in a file.

    `line` and `column` count from 1; 0 means that the place is unknown.
    """

    file: str
    line: int
    column: int
    text: str

    def __str__(self) -> str:
        place = f":{self.line}:{self.column}" if self.line else ""
        return f"{self.file}{place}: {self.text}"


class ConfigError(StreamkitError):
    """The configuration is invalid. `problems` lists all problems, in the order of the file."""

    def __init__(self, problems: list[Problem] | str) -> None:
        self.problems = [Problem("", 0, 0, problems)] if isinstance(problems, str) else sorted(problems)
        super().__init__(problems if isinstance(problems, str) else "\n".join(map(str, self.problems)))


class ModelError(ConfigError):
    """A model file or its card cannot be used."""


class DeviceError(StreamkitError):
    """The requested device is not available."""


class DeviceLostError(StreamkitError):
    """The process can no longer use its GPU: every later call fails, until a new process begins."""


class MissingPackage(StreamkitError):
    """A package that an option or a method needs is not installed; without an `extra`, pip installs the package."""

    def __init__(self, package: str, extra: str, why: str) -> None:
        command = install_command(extra) if extra else f"python -m pip install {package}"
        super().__init__(f"{why} needs the package {package}; install it with: {command}")


@contextmanager
def needs(package: str, extra: str, why: str = "") -> Iterator[None]:
    """Raise an ImportError of the block as MissingPackage; `why` is the extra's name if not set."""
    try:
        yield
    except ImportError as error:
        raise MissingPackage(package, extra, why or extra) from error


class SourceError(StreamkitError):
    """A source cannot be opened or read. The runner adds the source's id.

    Args:
        text: the message.
        cause: the cause for programs, one of `CAUSES`, or None.
        damaged: number of lost or concealed frames, for the cause `damaged`.
    """

    CAUSES = (
        "auth",
        "not_found",
        "refused",
        "timeout",
        "codec",
        "lost",
        "frozen",
        "missing",
        "permission",
        "empty",
        "no_video",
        "truncated",
        "damaged",
    )

    def __init__(self, text: str = "", *, cause: str | None = None, damaged: int = 0) -> None:
        super().__init__(text)
        self.cause = cause
        self.damaged = damaged


class OutputError(StreamkitError):
    """An output cannot be written."""


class StageError(StreamkitError):
    """A stage raised. The runner creates it with the place; the stage's error is its cause."""

    def __init__(self, stage: str, cause: BaseException, frame: Any = None, *, when: str = "", line: str = "") -> None:
        """Build the message; `when` replaces the frame for errors without one, `line` is in the stage's file."""
        self.stage = stage
        place = f" on {frame.source} frame {frame.index} ({frame.pts_s:.2f} s)" if frame is not None else when
        super().__init__(f"{stage} failed{place}: {describe(cause)}{line and f' ({line})'}")


class PipelineEnded(StreamkitError):
    """The pipeline, or the source that is pushed to, has ended; a thread that pushes frames ends on it."""


def describe(error: BaseException) -> str:
    """The error's text on one line, with its type unless it is one of streamkit's errors."""
    text = " ".join(text_of(error).split())
    if isinstance(error, StreamkitError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
