# SPDX-License-Identifier: Apache-2.0
"""Holds back the last frames of a file, so that its last frame can carry late results."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from streamkit.core.data import Frame


class LastFrames:
    """Holds back the last two frames of a source, because there may be something to wait for at its end.

    The second to last frame is then marked as `closing`, which tells stages with late results to begin what they
    postpone, and the last frame waits for the results.

    Args:
        put: passes a frame on.
        wait: returns when there are no results to wait for.

    Attributes:
        held: the frames that are held back.
    """

    def __init__(self, put: Callable[[Frame], None], wait: Callable[[], None]) -> None:
        self._put = put
        self._wait = wait
        self.held: deque[Frame] = deque()

    def put(self, frame: Frame) -> None:
        """Hold a frame, and pass on the one before the previous one."""
        self.held.append(frame)
        if len(self.held) > 2:
            self._put(self.held.popleft())

    def release(self) -> None:
        """Pass on the held frames: more will follow."""
        while self.held:
            self._put(self.held.popleft())

    def finish(self) -> None:
        """Pass on the held frames at the end of the source."""
        if self.held:
            self.held[0]._state.closing = True
        if len(self.held) > 1:
            self._put(self.held.popleft())
            self._wait()
        self.release()
