# SPDX-License-Identifier: Apache-2.0
"""Bounded queues between threads, and the ordered distribution of batches to the next lanes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

from streamkit.core.data import Batch

_T = TypeVar("_T")


class Aborted(Exception):
    """The run was aborted; raised in threads that wait on a channel."""


class AwaitedCondition(threading.Condition):
    """A condition that knows whether a thread waits.

    `with lock` and `if awaited` make no Python call, `with condition` and `notify_all` of a `Condition` make five: at
    each batch and each frame that is a quarter of the graph's own cost.

    Args:
        lock: a lock to share with other conditions.

    Attributes:
        lock: its lock.
        awaited: whether a thread may be waiting that has not been notified.
    """

    def __init__(self, lock: threading.RLock | None = None) -> None:
        self.lock = threading.RLock() if lock is None else lock
        self.awaited = False
        super().__init__(self.lock)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until another thread notifies this one."""
        self.awaited = True
        return super().wait(timeout)

    def notify_all(self) -> None:
        """Wake every thread that waits."""
        if self.awaited:
            self.awaited = False
            super().notify_all()


class Channel(Generic[_T]):
    """A bounded queue between threads, first in, first out.

    Args:
        depth: maximum number of queued items.
        sole: whether its reader reads no other channel; a reader of several may be waiting for another one.
    """

    def __init__(self, depth: int, *, sole: bool = False) -> None:
        self.sole = sole
        self._items: deque[_T] = deque()
        self._depth = depth
        self._closed = self._aborted = False
        self._error: BaseException | None = None
        self._takers = 0  # threads that wait in `get`
        self._changed = AwaitedCondition()
        self._lock = self._changed.lock

    def put(self, item: _T) -> None:
        """Add an item; wait while the queue is full. Raises Aborted."""
        with self._lock:
            while len(self._items) >= self._depth and not self._aborted:
                self._changed.wait()
            if self._aborted:
                raise Aborted
            self._items.append(item)
            if self._changed.awaited:
                self._changed.notify_all()

    def push(self, item: _T) -> bool:
        """Add an item without waiting; if the queue is full, drop the oldest item and return True."""
        with self._lock:
            full = len(self._items) >= self._depth
            if full:
                self._items.popleft()
            self._items.append(item)
            self._changed.notify_all()
            return full

    def wait_for_room(self, empty: bool = False, taken: bool = False) -> None:
        """Wait until the queue is not full.

        Args:
            empty: wait until the queue is empty instead.
            taken: wait until the reader would take an item at once instead.

        Raises:
            Aborted: the run was aborted.
        """
        with self._lock:
            while not self._aborted:
                limit = self._takers if taken else 1 if empty else self._depth
                if len(self._items) < limit:
                    return
                self._changed.wait()
            raise Aborted

    def get(self) -> _T | None:
        """Wait for the next item and take it; None if the channel is closed and empty.

        Raises:
            Aborted: the run was aborted.
            BaseException: the channel was closed with this error and is empty.
        """
        with self._lock:
            if not self._items and not self._ready():
                return None
            item = self._items.popleft()
            if self._changed.awaited:
                self._changed.notify_all()
            return item

    def get_many(self, limit: int) -> list[_T]:
        """Wait for items and take at most `limit`; empty if the channel is closed and empty. Raises as `get` does."""
        with self._lock:
            items = [self._items.popleft() for _ in range(min(limit, len(self._items)))] if self._ready() else []
            self._changed.notify_all()
            return items

    def _ready(self) -> bool:
        """Wait for an item; return False if none will follow. Raises as `get` does."""
        if not self._items and not self._closed and not self._aborted:
            self._takers += 1
            self._changed.notify_all()
            while not self._items and not self._closed and not self._aborted:
                self._changed.wait()
            self._takers -= 1
        if self._aborted:
            raise Aborted
        if self._error is not None and not self._items:
            raise self._error
        return bool(self._items)

    @property
    def waiting(self) -> int:
        """Number of queued items."""
        return len(self._items)

    def close(self, error: BaseException | None = None) -> None:
        """Close the channel: no item will follow; the reader gets `error` after the last item."""
        with self._lock:
            self._closed = True
            self._error = error
            self._changed.notify_all()

    def abort(self) -> None:
        """Drop queued items and raise Aborted in every thread that waits here."""
        with self._lock:
            self._aborted = True
            self._items.clear()
            self._changed.notify_all()


class Outlet:
    """Passes the batches of a lane's workers to every reader, in order.

    The first reader gets the batch itself, each further reader a fork. A worker that is far ahead of a slow one waits
    for it, which bounds the number of batches held here.
    """

    def __init__(self, readers: Sequence[Channel[Batch]], workers: int) -> None:
        self._readers = readers
        self._workers = workers
        self._ahead = 4 * workers
        self._next = 0
        self._early: dict[int, Batch] = {}  # by sequence number
        self._aborted = False
        self._changed = AwaitedCondition()
        self._lock = self._changed.lock

    def put(self, batch: Batch) -> None:
        """Pass on a batch once all earlier ones have been; without readers, do nothing. Raises Aborted."""
        if not self._readers:
            return
        with self._lock:
            while batch.sequence > self._next and len(self._early) >= self._ahead and not self._aborted:
                self._changed.wait()
            if self._aborted:
                raise Aborted
            self._early[batch.sequence] = batch
            while (following := self._early.pop(self._next, None)) is not None:
                for reader in self._readers[1:]:  # first: the first reader may change the batch at once
                    reader.put(following.fork())
                self._readers[0].put(following)
                self._next += 1
            if self._changed.awaited:
                self._changed.notify_all()

    def wait_for_room(self, empty: bool = False) -> None:
        """Wait until every reader has room for another batch; for a single writer only. Raises Aborted.

        Args:
            empty: wait until that batch would also be the next one taken; with one reader, until the reader waits for
                it. With several readers, a slow one then does not hold up the others.
        """
        for reader in self._readers:
            reader.wait_for_room(empty, taken=empty and len(self._readers) == 1 and reader.sole)

    def abort(self) -> None:
        """Abort the readers' channels, and raise Aborted in the workers that wait here."""
        for reader in self._readers:  # first: a worker may wait there while it holds the lock
            reader.abort()
        with self._lock:
            self._aborted = True
            self._changed.notify_all()

    def close(self) -> None:
        """Close for one worker; after the last one, close the readers' channels."""
        with self._lock:
            self._workers -= 1
            if self._workers == 0:
                for reader in self._readers:
                    reader.close()
