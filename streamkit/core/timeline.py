# SPDX-License-Identifier: Apache-2.0
"""Where the frames of a source continue: after a reconnect, in another process, and on another machine."""

from __future__ import annotations

import math
from typing import NamedTuple

_UNKNOWN_FPS = 30.0
_REPORT_S = 1.0  # a process reports what it has read about once a second


class LastFrame(NamedTuple):
    """Where a source was when its last frame was read.

    Attributes:
        number: index of the frame.
        pts_s: its presentation time in seconds.
        read_s: when it was read, on the monotonic clock in seconds.
        shape_size: width and height of the source's first frame, which shapes in pixels refer to.
    """

    number: int
    pts_s: float
    read_s: float
    shape_size: tuple[int, int] | None = None

    def pts_at(self, now_s: float) -> float:
        """The presentation time of a live source at a monotonic time, in seconds."""
        return self.pts_s + now_s - self.read_s

    def on_clock(self, shift_s: float) -> LastFrame:
        """The same frame on the monotonic clock of another machine, which is `shift_s` ahead."""
        return self._replace(read_s=self.read_s + shift_s)

    def with_unreported(self, now_s: float, fps: float, delivered: int, *, live: bool) -> LastFrame:
        """The last frame that a process may have read since its last report, so that no index is repeated.

        Args:
            now_s: the monotonic time in seconds.
            fps: frames that the source produces per second.
            delivered: index of the last frame that is known to have been passed on; -1 if there is none.
            live: whether the times of the source follow the clock; those of a looped file rise faster.
        """
        unreported = math.ceil((now_s - self.read_s + _REPORT_S) * max(fps, _UNKNOWN_FPS))
        number = max(self.number + unreported, delivered)
        if live:
            return self._replace(number=number)
        pts_s = self.pts_s + (number - self.number) * self.pts_s / max(self.number, 1)
        return self._replace(number=number, pts_s=pts_s, read_s=now_s)
