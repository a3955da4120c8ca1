# SPDX-License-Identifier: Apache-2.0
"""What a batch worker tells its pool, beside the messages of every worker process and each file's `Outcome`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileProgress:
    """The progress of a worker with a file.

    Attributes:
        key: the job's key.
        name: the file's name.
        frames: number of frames that have left the pipeline.
        share: progress from 0 to 1; 0 while the duration is unknown.
    """

    key: str
    name: str
    frames: int
    share: float


@dataclass(frozen=True, slots=True)
class FileRead:
    """The last frame of a file was read: the worker may get another one."""

    key: str


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the worker's files are."""

    files: Sequence[FileProgress]


@dataclass(frozen=True, slots=True)
class Leaving:
    """The worker accepts no more files and is about to end."""
