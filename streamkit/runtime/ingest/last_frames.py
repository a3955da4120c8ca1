# SPDX-License-Identifier: Apache-2.0
"""Passes on the frames of a source; holds back the last ones of a file, whose last frame can carry late results."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from streamkit.core.data import Frame


class LastFrames:
    """Passes frames on, two frames late if there is something to wait for at the end.

    The second to last frame is then marked as `closing`, which tells stages with late results to begin what they
    postpone, and the last frame waits for the results.

    Args:
        put: passes a frame on.
        wait: returns when there are no results to wait for; None passes every frame on at once.
    """

    def __init__(self, put: Callable[[Frame], None], wait: Callable[[], None] | None) -> None:
        self._put, self._wait = put, wait
        self._held: deque[Frame] = deque()

    def __len__(self) -> int:
        """Number of frames that are held back."""
        return len(self._held)

    def put(self, frame: Frame) -> None:
        """Hold a frame, and pass on the one before the previous one."""
        if self._wait is None:
            self._put(frame)
            return
        self._held.append(frame)
        if len(self._held) > 2:
            self._put(self._held.popleft())

    def release(self) -> None:
        """Pass on the held frames: more will follow."""
        while self._held:
            self._put(self._held.popleft())

    def finish(self) -> None:
        """Pass on the held frames at the end of the source."""
        if self._held:
            self._held[0]._state.closing = True
        if len(self._held) > 1:
            self._put(self._held.popleft())
            assert self._wait is not None
            self._wait()
        self.release()
