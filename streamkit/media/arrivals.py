"""Arrival times of a live source's packets, and detection of streams that cannot be decoded."""

from __future__ import annotations

import time

from streamkit.core.errors import SourceError
from streamkit.media.uris import mask

_GOP_S = 60.0  # no camera is longer without a keyframe
_MANY = 30  # packets without a frame: more than any decoder holds back


class Arrivals:
    """Monitors one connection.

    Args:
        uri: its address.
        timeout_s: maximum time without a decoded frame, in seconds.
    """

    def __init__(self, uri: str, timeout_s: float) -> None:
        self._uri, self._timeout_s = uri, timeout_s
        self._came_s: dict[int | None, float] = {}  # packets by their presentation time, in ticks; None the newest
        self.seen()

    def seen(self) -> None:
        """Note that a frame was taken, or that the packets begin."""
        # packets since the last frame, when it was taken, and whether a keyframe has come since
        self._unseen, self._seen_s, self._keyframe = 0, time.monotonic(), False

    def packet(self, pts: int | None, keyframe: bool) -> None:
        """Note a packet; arrival times are kept for the last few packets only.

        Raises:
            SourceError: packets arrive, but no frame can be decoded from them.
        """
        now_s = time.monotonic()
        self._came_s[None] = self._came_s[pts] = now_s
        if len(self._came_s) > _MANY:
            del self._came_s[next(pts for pts in self._came_s if pts is not None)]
        if keyframe and not self._keyframe:
            self._unseen, self._seen_s, self._keyframe = 0, now_s, True
        self._unseen += 1
        # who joins between two keyframes has to wait for the next
        allowed_s = self._timeout_s if self._keyframe else max(self._timeout_s, _GOP_S)
        if self._unseen > _MANY and now_s - self._seen_s > allowed_s:
            raise SourceError(
                f"{mask(self._uri)}: packets come, but no frame could be decoded in {allowed_s:g} s", cause="codec"
            )

    def came_s(self, pts: int) -> float:
        """Arrival of a frame's packet on the monotonic clock, in seconds; of the newest packet if none matches."""
        return self._came_s.pop(pts, self._came_s[None])
