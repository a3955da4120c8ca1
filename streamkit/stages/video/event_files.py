# SPDX-License-Identifier: Apache-2.0
"""Bases of the sinks that write a file now and then: `collect`, and at events `record` and `snapshot`."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from streamkit.core.data import EventFilter, Frame
from streamkit.core.errors import OutputError
from streamkit.core.logs import LogOnce
from streamkit.core.stage import Bytes, Sink
from streamkit.io.outputs import check_path
from streamkit.io.retention import FileRetention, RetentionOptions, removable

logger = logging.getLogger(__name__)

EVENT_NAMES = "as STAGE.KIND, such as crossing.crossed, or STAGE for all of a stage's; one or a list"
"""How events are written, for the help of `when`."""
CHECK_EVERY_S = 5.0
"""How often the free space of the disk is checked."""


@dataclass(eq=False, kw_only=True)
class FilesSink(Sink, writes=("events",), target=""):
    """Writes files; what cannot be written is counted, and reported at the end of the run."""

    files: ClassVar[str]
    """The word for the files, such as clips or snapshots."""

    def begin_files(self, file_retention: FileRetention) -> None:
        """Begin with these files, and remove incomplete ones that a crash left."""
        self._retention = file_retention
        self._warn = LogOnce(logger.warning)
        self._checked_s = -CHECK_EVERY_S
        # files, and the reason for the last of them
        self._unwritten = 0
        self._why = ""
        file_retention.sweep()

    def has_room(self) -> bool:
        """Whether there is room for another file; logs a message if not."""
        if self._retention.room():
            return True
        self._warn(self._retention.full())
        return False

    def check_is_due(self) -> bool:
        """Whether the free space was last checked a while ago; the time counts from now."""
        now_s = time.monotonic()
        due = now_s - self._checked_s > CHECK_EVERY_S
        if due:
            self._checked_s = now_s
        return due

    def failed(self, error: OutputError) -> None:
        """Log why a file was not written, without its name, so that each reason is logged once."""
        self._unwritten += 1
        self._why = str(error).rpartition(": ")[2]
        self._warn(f"{self.context.id}: {self.files} under {self._retention.root} cannot be written: {self._why}")

    def raise_failed(self) -> None:
        """Raise OutputError if files were not written; called at the end of the run."""
        if self._unwritten:
            word = self.files if self._unwritten > 1 else self.files.removesuffix("s")
            raise OutputError(
                f"{self.context.id}: {self._unwritten} {word} under {self._retention.root} could not be written: "
                f"{self._why}"
            )


@dataclass(eq=False, kw_only=True)
class EventFileSink(FilesSink):
    """Writes files at events, and removes the oldest ones."""

    when: str | list[str] | None
    path: str
    retention: Annotated[
        RetentionOptions | None,
        "which files are kept, such as {age: 7d, size: 50GB}; the oldest are removed. If not set, all are kept.",
    ] = None
    min_free: Annotated[
        Bytes | None,
        "while less than this is free on the disk, the oldest files are removed; if that is not enough, none are "
        "written. If not set, none are removed, and none are written below 100MB.",
    ] = None

    placeholders: ClassVar[tuple[str, ...]]
    """Names in braces that the path may have."""

    def __post_init__(self) -> None:
        check_path(self.path, self.placeholders)
        if (self.retention is not None or self.min_free is not None) and not removable(self.path):
            raise ValueError(
                "retention and min_free need a path that begins with a folder and has {time} in it, so that only "
                f"{self.files} are ever removed, got {self.path!r}"
            )
        self._when = EventFilter(self.when)

    def open(self) -> None:
        """Remove incomplete files that a crash left."""
        self.begin_files(FileRetention(self.path, self.retention, self.min_free, self.context.counters, self.files))


def add_to_event(frame: Frame, place: int, data: dict[str, Any]) -> None:
    """Replace an event of a frame by one with more data; the event itself belongs to other branches as well."""
    event = frame.events[place]
    frame.events = list(frame.events)
    frame.events[place] = replace(event, data={**event.data, **data})
