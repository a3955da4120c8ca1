# SPDX-License-Identifier: Apache-2.0
"""Passes live video and records of a worker process to the hub of its parent, and viewers' wishes to the worker."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from streamkit.runtime.execution.future import start
from streamkit.runtime.preview.live import FragmentQueue, LiveDemand, LiveHub, LiveMessage, LiveWish

LIVE = "live"
"""Kind of the messages. Value: (source, message) pairs of video, and (source, JSON) pairs of records."""

_MAX_RECORDS = 2000
_GATHER_S = 0.02
"""What arrives meanwhile is one message: its cost for both processes is that of a message, not of its frames."""


class RemoteLive(LiveDemand):
    """The hub of a worker process: it sends video and records to the parent, from its own thread.

    While the parent receives nothing, video is dropped up to a keyframe, as for a slow viewer.

    Args:
        send: sends a message of a kind to the parent, such as `ParentConnection.send`; it may wait.
    """

    def __init__(self, send: Callable[[str, Any], None]) -> None:
        super().__init__()
        self._send = send
        self._videos: dict[str, FragmentQueue] = {}
        self._records: deque[tuple[str, bytes]] = deque(maxlen=_MAX_RECORDS)
        self._changed, self._closed = threading.Condition(), False
        self._thread = start("live", self._deliver)

    def put(self, source: str, message: LiveMessage) -> None:
        """See `LiveReceiver.put`."""
        with self._changed:
            self._videos.setdefault(source, FragmentQueue()).put(message)
            self._changed.notify()

    def put_records(self, records: Sequence[tuple[str, bytes]]) -> None:
        """See `LiveReceiver.put_records`."""
        with self._changed:
            self._records.extend(records)
            self._changed.notify()

    def forget(self, source: str) -> None:
        """Forget a removed source."""
        super().forget(source)
        with self._changed:
            self._videos.pop(source, None)

    def close(self) -> None:
        """End the thread; what waits is dropped."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _deliver(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._records or any(map(len, self._videos.values())))
                if self._closed:
                    return
                video = [(source, one) for source, queue in self._videos.items() for one in queue.take()]
                records = list(self._records)
                self._records.clear()
            self._send(LIVE, (video, records))
            time.sleep(_GATHER_S)


class LiveRelay:
    """The parent's end: puts what workers send into a hub, and passes viewers' wishes to the worker of the source.

    Args:
        hub: the hub that viewers read.
        order: passes a source and a `LiveWish` to the worker that has the source, which calls `RemoteLive.order`. It
            is called on the viewers' threads.
    """

    def __init__(self, hub: LiveHub, order: Callable[[str, LiveWish], None]) -> None:
        self._hub = hub
        hub.on_request = order

    def handle(self, kind: str, value: Any) -> bool:
        """Process a message of a worker if it is of a `RemoteLive`; return whether it is."""
        if kind != LIVE:
            return False
        video, records = value
        for source, message in video:
            self._hub.put(source, message)
        if records:
            self._hub.put_records(records)
        return True
