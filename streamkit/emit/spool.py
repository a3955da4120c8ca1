# SPDX-License-Identifier: Apache-2.0
"""The queue on disk between a pipeline and its broker: bounded, ordered, and durable.

Once `append` has returned, its records survive any end of the process. The stage's thread appends; the sender's thread
takes and acknowledges. A lock guards the state that both share.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from streamkit.core.counters import Counters
from streamkit.core.errors import OutputError
from streamkit.core.logs import LogOnce
from streamkit.emit import segment_file
from streamkit.emit.offset_store import OffsetStore
from streamkit.emit.segment_file import SegmentFile, SpoolRecord, StoredRecord, open_private
from streamkit.io.outputs import output_error, writing

logger = logging.getLogger(__name__)

FULL = "records dropped: spool full"
DISK = "records dropped: disk full"
OLD = "records dropped: over age"
DAMAGED = "records dropped: spool damaged"
TORN = "torn ends of spools removed"

DROPPED = (FULL, DISK, OLD, DAMAGED)
"""Counts of records that a run drops; a run with any of them ends with exit code 1."""

_READ = 1 << 18
_POLL_S = 0.2


class Spool:
    """A durable queue of numbered records.

    Args:
        folder: the spool's folder; created if needed. One process may use it at a time.
        size: maximum size of the records in bytes.
        age_s: maximum age of records in seconds; older ones are dropped. None for no limit.
        when_full: `drop_oldest` removes the oldest file, a sixteenth of the spool; `block` waits; `stop` raises.
        counters: counts dropped records; used under the spool's lock only.
        clock: returns seconds since 1970.

    Attributes:
        folder: the spool's folder.
        limit_bytes: maximum size of the records on disk, in bytes.
        size_bytes: size of the records on disk, in bytes.
        acknowledged: the number up to which every record was acknowledged, or dropped and counted.
        id: returns the id of the record with a number: unique over all spools.
        ids: returns the ids of records with these rising numbers.
        block_timeout_s: how long `block` waits without any acknowledgement; None for no limit. Set when a run ends.

    Raises:
        OutputError: the folder cannot be written, or another run uses it.
    """

    block_timeout_s: float | None = None

    def __init__(
        self,
        folder: Path,
        size: int = 1_000_000_000,
        age_s: float | None = None,
        when_full: str = "drop_oldest",
        *,
        counters: Counters | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder = folder
        self.limit_bytes = size
        self._age_s = age_s
        self._when_full = when_full
        self._part = min(max(size // 16, 1 << 16), 8_000_000)
        self._counters = counters or Counters()
        self._clock = clock
        self._warn = LogOnce(logger.warning)
        self._changed = threading.Condition()
        self._offsets = OffsetStore(folder)
        self.id = self._offsets.id
        self.ids = self._offsets.ids
        self._out = -1  # descriptor of the file that is being written
        self._closed = False
        self._ready: deque[StoredRecord] = deque()  # read, and not taken
        self._taken: deque[int] = deque()  # numbers of records that are taken, and not acknowledged
        self._wanted = 1  # records for which the sender's thread waits
        self._moved = -1, 0.0  # the last acknowledged record, and when it was first seen
        self._drop_reason = FULL  # why a file was last dropped
        self._counted_to = 0  # records up to here that were dropped while reading have been counted
        try:
            with writing(folder):
                files, torn = segment_file.recover(folder)
            if torn:
                self._counters.add(TORN, torn)
            self._files = deque(files)
            self.acknowledged = self._offsets.acknowledged
            self._next = max(self.acknowledged + 1, self._files[-1].end if self._files else 1)
            self.size_bytes = sum(file.size for file in self._files)
            self._remove_acknowledged()
            self._cursor = self._files[0].first if self._files else self._next  # the number that is read next
            self._offset = 0  # and its position in its file
            self.acknowledged = max(self.acknowledged, self._cursor - 1)
            self._offsets.begin(self.acknowledged + 1, self._next)
        except OutputError:
            self._offsets.close()
            raise

    def close(self) -> None:
        """Release the folder. Records without acknowledgement stay for the next run."""
        with self._changed:
            self._closed = True
            self._end_file()
            self._remove_acknowledged()
            self._offsets.close()

    @property
    def waiting(self) -> int:
        """Number of records without acknowledgement."""
        return self._next - 1 - self.acknowledged

    @property
    def fill_level(self) -> float:
        """Fill level, 0 to 1."""
        return self.size_bytes / self.limit_bytes

    # -------------------------------------------------------------------------------------------- the stage's side

    def append(self, records: Sequence[SpoolRecord], *, wait: bool = True) -> None:
        """Add records. Once this returns, they survive the end of this process.

        Args:
            records: the records, in order.
            wait: whether `block` may wait; otherwise records without room are dropped.

        Raises:
            OutputError: there is no room and `when_full` is `stop`, or the disk cannot be written.
        """
        if not records:
            return
        with self._changed:
            if self._closed:  # another thread appends after the end of the run
                self._warn(f"{len(records)} records arrived after the spool {self.folder} was closed, and are dropped")
                return
            self._expire()
            self._add(records, wait)
            if self._untaken >= self._wanted:
                self._changed.notify_all()

    def _add(self, records: Sequence[SpoolRecord], wait: bool) -> None:
        """Write records in blocks of bounded size; make room or wait for room for each block."""
        block = segment_file.pack(records, self._next, self._clock())
        if len(block) > self._part and len(records) > 1:
            middle = len(records) // 2
            self._add(records[:middle], wait)
            self._add(records[middle:], wait)
            return
        fits = len(block) <= self.limit_bytes
        while (reason := self._write(block, len(records)) if fits else FULL) is not None:
            full = f"the spool {self.folder} is full with {self.limit_bytes / 1e6:g} MB"
            if reason == DISK:
                full = f"the disk of the spool {self.folder} is full, or its quota is used up"
            elif not fits:
                full = f"a record of {len(block) / 1e6:.3g} MB is larger than spool.size"
            if self._when_full == "block" and wait and fits and self._patient():
                self._warn(f"{full}; the pipeline waits until there is room")
                self._changed.wait(_POLL_S)
                block = segment_file.pack(
                    records, self._next, self._clock()
                )  # other threads may have added records meanwhile
            elif self._when_full == "drop_oldest" and fits and self._files and self._files[0].holds:
                self._warn(f"{full}; the oldest records are dropped, and counted")
                self._remove_oldest(reason)
            else:
                self._warn(f"{full}; new records are dropped, and counted")
                self._counters.add(reason, len(records))
                if self._when_full == "stop":
                    raise OutputError(f"{full}, and when_full is stop")
                return

    def _patient(self) -> bool:
        """Whether to wait for room; at the end of a run, only while records are acknowledged."""
        now_s = time.monotonic()
        if self._moved[0] != self.acknowledged:
            self._moved = self.acknowledged, now_s
        return self.block_timeout_s is None or now_s - self._moved[1] < self.block_timeout_s

    def _write(self, block: bytes, count: int) -> str | None:
        """Write a block. If there is no room, write nothing and return the counter for the reason."""
        if self.size_bytes + len(block) > self.limit_bytes:
            return FULL
        try:
            file = self._files[-1] if self._out >= 0 else self._begin_file()
            done = 0
            while done < len(block):
                done += os.write(self._out, block[done:] if done else block)
        except OSError as error:
            if self._out >= 0:
                os.ftruncate(self._out, file.size)
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                return DISK
            raise output_error(self.folder, error) from error
        file.size += len(block)
        file.end += count
        file.newest_s = self._clock()
        self.size_bytes += len(block)
        self._next += count
        if file.size >= self._part:
            self._end_file()
        return None

    def _begin_file(self) -> SegmentFile:
        path = self.folder / segment_file.name_of(self._next)
        self._out = open_private(path, os.O_WRONLY | os.O_APPEND | os.O_TRUNC)
        self._files.append(SegmentFile(path, self._next, self._next, 0, self._clock()))
        return self._files[-1]

    def _end_file(self) -> None:
        if self._out >= 0:
            os.close(self._out)
            self._out = -1

    def _expire(self) -> None:
        """Remove files in which every record is too old."""
        while self._age_s is not None and self._files and self._files[0].newest_s < self._clock() - self._age_s:
            self._remove_oldest(OLD)

    def _remove_oldest(self, why: str) -> None:
        """Drop the oldest file; its records in flight may still arrive, the rest is counted as dropped."""
        file = self._unlink()
        self._drop_reason = why
        last_in_flight = max(self.acknowledged, file.first - 1, *self._taken)
        self._counters.add(why, max(0, file.end - 1 - last_in_flight))
        while self._ready and self._ready[0].number < file.end:
            self._ready.popleft()
        self._cursor = max(self._cursor, file.end)
        self._acknowledge(file.end - 1)

    def _unlink(self) -> SegmentFile:
        file = self._files.popleft()
        if not self._files:
            self._end_file()
        file.path.unlink(missing_ok=True)
        self.size_bytes -= file.size
        return file

    # -------------------------------------------------------------------------------------------- the sender's side

    @property
    def _untaken(self) -> int:
        return self._next - self._cursor + len(self._ready)

    def wait_for(self, count: int, wait_s: float) -> bool:
        """Wait until `count` records can be taken, for at most `wait_s` seconds; return whether they can.

        The records that are appended before that do not wake the caller.
        """
        with self._changed:
            if self._untaken < count:
                self._wanted = count
                self._changed.wait(wait_s)
                self._wanted = 1
            return self._untaken >= count

    def take(self, limit: int, wait_s: float = 0.0) -> list[StoredRecord]:
        """Take the next records, in order; none if none arrives in `wait_s` seconds. They stay until acknowledged."""
        with self._changed:
            if not self._ready and self._cursor == self._next and wait_s:
                self._changed.wait(wait_s)
            while len(self._ready) < limit and self._cursor < self._next:
                self._read()
            self._discard_old()
            self._advance()
            records = [self._ready.popleft() for _ in range(min(limit, len(self._ready)))]
            self._taken += [record.number for record in records]
            return records

    def _read(self) -> None:
        """Read further blocks."""
        file = next(file for file in self._files if file.first <= self._cursor < file.end)
        if self._cursor == file.first:
            self._offset = 0
        data = b""
        try:
            with file.path.open("rb") as opened:
                opened.seek(self._offset)
                data = opened.read(_READ)
                if len(data) >= segment_file.HEADER_BYTES:
                    data += opened.read(max(0, segment_file.block_bytes(data) - len(data)))
        except OSError as error:
            self._warn(str(output_error(file.path, error)).replace("write", "read", 1))
        records, done = segment_file.unpack(data, self._cursor)
        if not records:
            self._warn(f"{file.path} is damaged; its unreadable records are dropped, and counted")
            self._drop(DAMAGED, max(self._cursor, self.acknowledged + 1), file.end - 1)
            self._cursor = file.end
            return
        self._offset += done
        self._cursor = records[-1].number + 1
        self._ready += records[max(0, self.acknowledged + 1 - records[0].number) :]

    def _discard_old(self) -> None:
        oldest_s = self._clock() - self._age_s if self._age_s is not None else 0.0
        while self._ready and self._ready[0].time_s < oldest_s:
            last = self._ready.popleft().number
            self._drop(OLD, last, last)

    def _drop(self, why: str, first: int, last: int) -> None:
        """Count records that are skipped; each is counted once, even if it is read again."""
        self._counters.add(why, max(0, last - max(first - 1, self._counted_to)))
        self._counted_to = max(self._counted_to, last)

    def acknowledge(self, count: int) -> None:
        """Acknowledge the first `count` taken records: they have arrived, or were moved to the dead letters."""
        if not count:
            return
        with self._changed:
            for _ in range(count):
                self._taken.popleft()
            self._advance()
            self._changed.notify_all()

    def release(self) -> None:
        """Return records that were taken but not acknowledged, so that they are taken again."""
        with self._changed:
            head = self._files[0].first if self._files else self._next
            if lost := sum(number < head for number in self._taken):  # their file was dropped meanwhile
                self._counters.add(self._drop_reason, lost)
            again = next((number for number in self._taken if number >= head), None)
            self._taken.clear()
            if again is not None:  # they are read again, as their bodies are not kept
                self._ready.clear()
                self._cursor = next(file.first for file in self._files if again < file.end)

    def _advance(self) -> None:
        """Acknowledge everything before the first record that is taken or ready."""
        first = self._taken[0] if self._taken else self._ready[0].number if self._ready else self._cursor
        self._acknowledge(first - 1)
        self._remove_acknowledged()

    def _acknowledge(self, number: int) -> None:
        if number > self.acknowledged:
            self.acknowledged = number
            self._offsets.write(number)

    def _remove_acknowledged(self) -> None:
        """Remove files in which every record was acknowledged, except the one that is being written."""
        while self._files and self._files[0].end <= self.acknowledged + 1 and (len(self._files) > 1 or self._out < 0):
            self._unlink()
