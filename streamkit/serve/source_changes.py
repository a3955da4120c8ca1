# SPDX-License-Identifier: Apache-2.0
"""What has changed of the sources since a client last asked, so that a page does not load 500 cameras again."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from streamkit.serve.api_models import SourceView
from streamkit.serve.source_models import ChangedSources

_REUSE_S = 0.7  # for which all clients get the same look at the sources
_SAME_START_S = 2.0  # two starts of a state that are one
_SAME_FPS = 0.3
_SAME_SHARE = 0.05  # of a rate or latency: a change that no one reads
_SAME_LATENCY_MS = 1.0
_ALWAYS_NEW = frozenset({"frames", "since_s"})
_ROUGH = frozenset({"fps", "latency"})
_EXACT = tuple(name for name in SourceView.__slots__ if name not in _ALWAYS_NEW | _ROUGH)

Look = Callable[[], list[SourceView]]


class SourceChanges:
    """Compares the sources with those of earlier requests. One thread at a time may call it.

    Args:
        look: returns all sources, in their order.
        clock: monotonic time in seconds.
    """

    def __init__(self, look: Look, clock: Callable[[], float] = time.monotonic) -> None:
        self._look = look
        self._clock = clock
        self._run = secrets.token_hex(4)  # the versions of another server are not these
        self._number = 0
        self._look_s = -math.inf
        self._ids: list[str] = []
        self._ids_number = 0
        self._seen: dict[str, _Seen] = {}

    def since(self, version: str) -> ChangedSources:
        """The sources that differ from those of a version; all of them if the version is empty or of another server."""
        now_s = self._clock()
        if now_s - self._look_s >= _REUSE_S:
            self._look_s = now_s
            self._compare(self._look(), now_s)
        known_number = self._number_of(version)
        changed = [seen.view for seen in self._seen.values() if seen.number > known_number]
        ids = list(self._ids) if self._ids_number > known_number else None
        return ChangedSources(f"{self._run}-{self._number}", ids, changed)

    def forget(self) -> None:
        """Let the next request look again, as a client has changed something."""
        self._look_s = -math.inf

    def _number_of(self, version: str) -> int:
        run, _, number = version.rpartition("-")
        return int(number) if run == self._run and number.isascii() and number.isdigit() else -1

    def _compare(self, views: list[SourceView], now_s: float) -> None:
        number = self._number + 1
        seen = {}
        for view in views:
            before = self._seen.get(view.id)
            start_s = now_s - view.since_s
            if before is None or _differs(before, view, start_s):
                seen[view.id] = _Seen(view, start_s, number)
            else:
                seen[view.id] = before
        ids = [view.id for view in views]
        if ids != self._ids:
            self._ids = ids
            self._ids_number = number
        self._seen = seen
        self._number = number


@dataclass(slots=True)
class _Seen:
    """A source as clients know it.

    Attributes:
        view: its state.
        start_s: monotonic time in seconds at which its state began.
        number: the number of the version in which it became so.
    """

    view: SourceView
    start_s: float
    number: int = field(default=0)


def _differs(before: _Seen, view: SourceView, start_s: float) -> bool:
    if abs(before.start_s - start_s) > _SAME_START_S:
        return True
    if any(getattr(before.view, name) != getattr(view, name) for name in _EXACT):
        return True
    if abs(before.view.fps - view.fps) > max(_SAME_FPS, _SAME_SHARE * view.fps):
        return True
    return _latency_differs(before.view.latency, view.latency)


def _latency_differs(before: Mapping[str, float], after: Mapping[str, float]) -> bool:
    if before.keys() != after.keys():
        return True
    return any(abs(before[name] - after[name]) > max(_SAME_LATENCY_MS, _SAME_SHARE * after[name]) for name in after)
