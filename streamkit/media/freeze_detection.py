# SPDX-License-Identifier: Apache-2.0
"""Detects frozen video, as from a camera that hangs but keeps sending."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from streamkit.core.data import Surface, array_module
from streamkit.ops.transfer import fetch

_INTERVAL_S = 1.0
_STEP = 8  # rows and columns from one sample to the next
_BACKOFF = 4  # times as long, after each connection that did not help
_MAX_S = 24 * 3600.0


class FreezeDetector:
    """Detects that a source's frames have not changed for too long.

    A few thousand bytes of a frame are compared once a second. A still scene is not a fault: if a new connection shows
    a frame as still as before, the allowed time grows fourfold each time, up to a day; it is reset when something
    moves.

    Args:
        limit_s: maximum time without a change, in seconds.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._allowed_s = limit_s
        self._next_s = 0.0
        self._same: int | None = None
        self._since_s = 0.0
        self._stream: Any = None

    def reset(self) -> None:
        """Start a new connection: its first frame is not compared."""
        self._same = None
        self._next_s = 0.0

    def __call__(self, surface: Surface, now_s: float) -> bool:
        """Whether the frame has not changed for too long; compares only once a second.

        Args:
            surface: the frame's surface, on host or device.
            now_s: the monotonic clock, in seconds.
        """
        if now_s < self._next_s:
            return False
        self._next_s = now_s + min(_INTERVAL_S, self.limit_s / 4)
        fingerprint = self._fingerprint(surface)
        if fingerprint != self._same:
            if self._same is not None:
                self._allowed_s = self.limit_s
            self._same = fingerprint
            self._since_s = now_s
        if now_s - self._since_s < self._allowed_s:
            return False
        self._allowed_s = min(self._allowed_s * _BACKOFF, max(_MAX_S, self.limit_s))
        return True

    def _fingerprint(self, surface: Surface) -> int:
        sample = surface.data[::_STEP, ::_STEP]
        xp = array_module(sample)
        if xp is not np:
            with sample.device:
                if self._stream is None:
                    self._stream = xp.cuda.Stream(non_blocking=True)
                if surface.ready is not None:
                    self._stream.wait_event(surface.ready)
                with self._stream:
                    (sample,) = fetch([sample])()  # waited for: the surface may be written after this
        return zlib.crc32(sample.tobytes())
