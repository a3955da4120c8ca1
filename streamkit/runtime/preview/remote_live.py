# SPDX-License-Identifier: Apache-2.0
"""Passes live video and records of a worker process to the hub of its parent, and viewers' wishes to the worker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from streamkit.runtime.execution.future import start
from streamkit.runtime.multiprocess.messages import LiveData
from streamkit.runtime.preview.live import LiveDemand, LiveHub, LiveWish

_TURN_S = 0.05
"""What arrives meanwhile is one message: its cost for both processes is that of a message, not of its frames."""


class RemoteLive(LiveDemand):
    """The hub of a worker process: it makes video and records and sends them to the parent, from its own thread.

    While the parent receives nothing, packets and results wait where they are, up to a limit.

    Args:
        send: sends a message to the parent, such as `ParentConnection.send`; it may wait.
    """

    def __init__(self, send: Callable[[Any], None]) -> None:
        super().__init__()
        self._send = send
        self._changed = threading.Condition()
        self._closed = False
        self._thread = start("live", self._deliver)

    def order(self, source: str, wish: LiveWish) -> None:
        """See `LiveDemand.order`."""
        with self._changed:
            super().order(source, wish)
            self._changed.notify()

    def forget(self, source: str) -> None:
        """Forget a removed source."""
        with self._changed:
            super().forget(source)

    def close(self) -> None:
        """End the thread; what waits is dropped."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _wanted(self) -> bool:
        now_s = time.monotonic()
        return any(now_s < max(wish.video_until_s, wish.records_until_s) for wish in self._wishes.values())

    def _deliver(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._wanted())
                if self._closed:
                    return
                sources = [source for source in self._wishes if self.viewed(source)]
            video = [(source, *self.make_video(source)) for source in sources]
            video = [(source, messages, dropped) for source, messages, dropped in video if messages or dropped]
            records, lost = self.make_records()
            if video or records or lost:
                self._send(LiveData(video, records, lost))
            time.sleep(_TURN_S)


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

    def handle(self, message: Any) -> bool:
        """Process a message of a worker if it is of a `RemoteLive`; return whether it is."""
        if not isinstance(message, LiveData):
            return False
        for source, messages, dropped in message.videos:
            self._hub.put(source, messages, dropped)
        if message.records or message.lost_records:
            self._hub.put_records(message.records, message.lost_records)
        return True
