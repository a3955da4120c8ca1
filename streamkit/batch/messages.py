# SPDX-License-Identifier: Apache-2.0
"""What a batch worker tells its pool, beside the messages of every worker process and each file's `Outcome`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamkit.batch.worker import FileProgress


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
