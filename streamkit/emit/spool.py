"""The queue on disk between a pipeline and its broker: bounded, in order, and there again after a crash.

What `append` has returned for survives the end of the process, however that comes. The stage's thread appends, the
sender's takes and acknowledges: this is the one place where the two meet, so it has the lock.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from streamkit.counters import Counters
from streamkit.emit import blocks
from streamkit.emit.blocks import File, Kept, Record, private
from streamkit.emit.ledger import Ledger
from streamkit.errors import OutputError
from streamkit.outputs import output_error

FULL = "records dropped: the spool was full"
DISK = "records dropped: the disk was full"
OLD = "records dropped: too old for the spool"
DAMAGED = "records dropped: the spool was damaged"
TORN = "torn ends of spools removed"

DROPPED = (FULL, DISK, OLD, DAMAGED)
"""Counts of records that a run drops; a run with any of them ends with exit code 1."""

_READ = 1 << 18
_LOOK_S = 0.2


class Spool:
    """Records on their way, in order and numbered.

    Args:
        folder: where it is; made where it is not there. One process has it at a time.
        size: bytes that its records may take.
        age_s: records older than this are dropped, in seconds; None for none.
        when_full: `drop_oldest` makes room by the oldest file, a sixteenth of the spool, `block` waits, and `stop`
            raises.
        counters: for records dropped; touched under the spool's lock only.
        say: for what the user should know.
        clock: seconds since 1970.

    Attributes:
        patience_s: for how long `block` waits where nothing is acknowledged; None for ever. Set when a run ends.

    Raises:
        OutputError: the folder cannot be written, or another run has it.
    """

    patience_s: float | None = None

    def __init__(
        self,
        folder: Path,
        size: int = 1_000_000_000,
        age_s: float | None = None,
        when_full: str = "drop_oldest",
        *,
        counters: Counters | None = None,
        say: Callable[[str], None] = lambda text: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder, self._size, self._age_s, self._when_full = folder, size, age_s, when_full
        self._part = min(max(size // 16, 1 << 16), 8_000_000)
        self._counters, self._say, self._clock = counters or Counters(), say, clock
        self._changed = threading.Condition()
        self._ledger = Ledger(folder)
        self._out = -1  # the file that is being written
        self._closed = False
        self._ready: deque[Kept] = deque()  # read, and not taken
        self._taken: deque[int] = deque()  # the numbers of those taken, and not acknowledged
        self._moved = -1, 0.0  # what was acknowledged, and when that was seen first
        self._gone_why = FULL  # why a file was dropped last
        self._told = 0  # up to here those that were dropped as they were read have been counted
        try:
            found, torn = blocks.found(folder)
        except OSError as error:
            self._ledger.close()
            raise output_error(folder, error) from error
        self._files = deque(found)
        if torn:
            self._counters.add(TORN, torn)
        self._acked = self._ledger.acknowledged
        self._next = max(self._acked + 1, self._files[-1].end if self._files else 1)
        self._bytes = sum(file.size for file in self._files)
        self._forget()
        self._cursor = self._files[0].first if self._files else self._next  # the number that is read next
        self._offset = 0  # and its place in its file
        self._acked = max(self._acked, self._cursor - 1)
        try:
            self._ledger.begin(self._acked + 1, self._next)
        except OutputError:
            self._ledger.close()
            raise

    def close(self) -> None:
        """Let go of the folder. What has not been acknowledged is there for the next run."""
        with self._changed:
            self._closed = True
            self._end_file()
            self._forget()
            self._ledger.close()

    @property
    def folder(self) -> Path:
        """Where it is."""
        return self._folder

    @property
    def limit_bytes(self) -> int:
        """What its records may take on the disk."""
        return self._size

    def id(self, number: int) -> str:
        """The id of the record with this number: no other record of any spool ever has it."""
        return self._ledger.id(number)

    @property
    def waiting(self) -> int:
        """How many records have not been acknowledged."""
        return self._next - 1 - self._acked

    @property
    def acknowledged(self) -> int:
        """The number up to which every record has arrived, or was dropped and counted."""
        return self._acked

    @property
    def share(self) -> float:
        """How full it is, 0 to 1."""
        return self._bytes / self._size

    @property
    def size_bytes(self) -> int:
        """What the records take on the disk."""
        return self._bytes

    # -------------------------------------------------------------------------------------------- the stage's side

    def append(self, records: Sequence[Record], *, wait: bool = True) -> None:
        """Add records. Once this returns they survive the end of this process.

        Args:
            records: in order.
            wait: whether `block` may wait; where it may not, records for which there is no room are dropped.

        Raises:
            OutputError: there is no room, and `when_full` is `stop`; or the disk cannot be written.
        """
        if not records:
            return
        with self._changed:
            if self._closed:  # the run is over, and what came from another thread is too late
                self._say(f"{len(records)} records came too late for the spool {self._folder}")
                return
            self._expire()
            self._add(records, wait)
            self._changed.notify_all()

    def _add(self, records: Sequence[Record], wait: bool) -> None:
        """Write them in blocks of bounded size, and make or wait for room for each."""
        block = blocks.pack(records, self._next, self._clock())
        if len(block) > self._part and len(records) > 1:
            middle = len(records) // 2
            self._add(records[:middle], wait)
            self._add(records[middle:], wait)
            return
        fits = len(block) <= self._size
        while (why := self._write(block, len(records)) if fits else FULL) is not None:
            full = f"the spool {self._folder} is full with {self._size / 1e6:g} MB"
            if why == DISK:
                full = f"the disk of the spool {self._folder} is full, or the quota there is used up"
            elif not fits:
                full = f"a record of {len(block) / 1e6:.3g} MB is larger than spool.size"
            if self._when_full == "block" and wait and fits and self._patient():
                self._say(f"{full}; the pipeline waits until there is room")
                self._changed.wait(_LOOK_S)
                block = blocks.pack(records, self._next, self._clock())  # others may have added theirs meanwhile
            elif self._when_full == "drop_oldest" and fits and self._files and self._files[0].holds:
                self._say(f"{full}; the oldest records are dropped, and counted")
                self._remove_oldest(why)
            else:
                self._say(f"{full}; new records are dropped, and counted")
                self._counters.add(why, len(records))
                if self._when_full == "stop":
                    raise OutputError(f"{full}, and when_full is stop")
                return

    def _patient(self) -> bool:
        """Whether it may still be waited for room: at the end of a run only while records go."""
        now_s = time.monotonic()
        if self._moved[0] != self._acked:
            self._moved = self._acked, now_s
        return self.patience_s is None or now_s - self._moved[1] < self.patience_s

    def _write(self, block: bytes, count: int) -> str | None:
        """Write a block. Where there is no room nothing of it stays, and the count for what is full is returned."""
        if self._bytes + len(block) > self._size:
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
            raise output_error(self._folder, error) from error
        file.size += len(block)
        file.end += count
        file.newest_s = self._clock()
        self._bytes += len(block)
        self._next += count
        if file.size >= self._part:
            self._end_file()
        return None

    def _begin_file(self) -> File:
        path = self._folder / blocks.name_of(self._next)
        self._out = private(path, os.O_WRONLY | os.O_APPEND | os.O_TRUNC)
        self._files.append(File(path, self._next, self._next, 0, self._clock()))
        return self._files[-1]

    def _end_file(self) -> None:
        if self._out >= 0:
            os.close(self._out)
            self._out = -1

    def _expire(self) -> None:
        """Remove the files of which every record is too old."""
        while self._age_s is not None and self._files and self._files[0].newest_s < self._clock() - self._age_s:
            self._remove_oldest(OLD)

    def _remove_oldest(self, why: str) -> None:
        """Drop a file; what of it is under way may still arrive, the rest is counted."""
        file, self._gone_why = self._unlink(), why
        known = max(self._acked, file.first - 1, *self._taken)
        self._counters.add(why, max(0, file.end - 1 - known))
        while self._ready and self._ready[0].number < file.end:
            self._ready.popleft()
        self._cursor = max(self._cursor, file.end)
        self._acknowledge(file.end - 1)

    def _unlink(self) -> File:
        file = self._files.popleft()
        if not self._files:
            self._end_file()
        file.path.unlink(missing_ok=True)
        self._bytes -= file.size
        return file

    # -------------------------------------------------------------------------------------------- the sender's side

    def take(self, most: int, wait_s: float = 0.0) -> list[Kept]:
        """The next records, in order; none where none came within `wait_s` seconds. They stay until `acknowledge`."""
        with self._changed:
            if not self._ready and self._cursor == self._next and wait_s:
                self._changed.wait(wait_s)
            while len(self._ready) < most and self._cursor < self._next:
                self._read()
            self._discard_old()
            self._settle()
            found = [self._ready.popleft() for _ in range(min(most, len(self._ready)))]
            self._taken.extend(one.number for one in found)
            return found

    def _read(self) -> None:
        """Read some blocks more."""
        file = next(file for file in self._files if file.first <= self._cursor < file.end)
        if self._cursor == file.first:
            self._offset = 0
        data = b""
        try:
            with file.path.open("rb") as opened:
                opened.seek(self._offset)
                data = opened.read(_READ)
                if len(data) >= blocks.HEADER_BYTES:
                    data += opened.read(max(0, blocks.block_bytes(data) - len(data)))
        except OSError as error:
            self._say(str(output_error(file.path, error)).replace("write", "read", 1))
        found, done = blocks.unpack(data, self._cursor)
        if not found:
            self._say(f"{file.path} was damaged from outside; what cannot be read of it is dropped, and counted")
            self._drop(DAMAGED, max(self._cursor, self._acked + 1), file.end - 1)
            self._cursor = file.end
            return
        self._offset += done
        self._cursor = found[-1].number + 1
        self._ready.extend(one for one in found if one.number > self._acked)

    def _discard_old(self) -> None:
        oldest_s = self._clock() - self._age_s if self._age_s is not None else 0.0
        while self._ready and self._ready[0].time_s < oldest_s:
            last = self._ready.popleft().number
            self._drop(OLD, last, last)

    def _drop(self, why: str, first: int, last: int) -> None:
        """Count records that are not given out: once, though they may be read again."""
        self._counters.add(why, max(0, last - max(first - 1, self._told)))
        self._told = max(self._told, last)

    def acknowledge(self, count: int) -> None:
        """The first `count` of the records that were taken have arrived, or were given up by whoever took them."""
        if not count:
            return
        with self._changed:
            for _ in range(count):
                self._taken.popleft()
            self._settle()
            self._changed.notify_all()

    def release(self) -> None:
        """Nothing is under way any more: what was taken and not acknowledged is to be taken again."""
        with self._changed:
            head = self._files[0].first if self._files else self._next
            if lost := sum(number < head for number in self._taken):  # their file was dropped meanwhile
                self._counters.add(self._gone_why, lost)
            again = next((number for number in self._taken if number >= head), None)
            self._taken.clear()
            if again is not None:  # they are read once more: many may be under way, and their bodies are not kept
                self._ready.clear()
                self._cursor = next(file.first for file in self._files if again < file.end)

    def _settle(self) -> None:
        """All before the first record that is under way, or ready, has arrived, or was dropped and counted."""
        first = self._taken[0] if self._taken else self._ready[0].number if self._ready else self._cursor
        self._acknowledge(first - 1)
        self._forget()

    def _acknowledge(self, number: int) -> None:
        if number > self._acked:
            self._acked = number
            self._ledger.write(number)

    def _forget(self) -> None:
        """Remove the files of which every record was acknowledged, but for the one that is being written."""
        while self._files and self._files[0].end <= self._acked + 1 and (len(self._files) > 1 or self._out < 0):
            self._unlink()
