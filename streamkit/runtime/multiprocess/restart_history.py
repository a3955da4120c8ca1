# SPDX-License-Identifier: Apache-2.0
"""How often sources were restarted, and which of them may end their process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

_WITHIN_S = 600.0
_MAX_RESTARTS = 3
_MAX_RESTARTS_OF_SUSPECTS = 10
"""Sources that are suspect together are halved at each restart: ten times suffice for one among 500."""


class RestartHistory:
    """The restarts of sources within the last ten minutes.

    Sources that were in two processes that died in that time are suspect: one of them may be the cause.

    Args:
        clock: monotonic time in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._times_s: dict[str, deque[float]] = {}
        self._suspects: set[str] = set()

    def add(self, id_: str) -> None:
        """Add a restart."""
        self._times_s.setdefault(id_, deque()).append(self._clock())

    def count(self, id_: str) -> int:
        """Number of restarts of a source."""
        times_s = self._times_s.get(id_, deque())
        while times_s and self._clock() - times_s[0] > _WITHIN_S:
            times_s.popleft()
        return len(times_s)

    def is_suspect(self, id_: str) -> bool:
        """Whether a source may have ended two processes."""
        return id_ in self._suspects and self.count(id_) > 0

    def forget(self, id_: str) -> None:
        """Forget the restarts of a source: it is removed, or was not the cause."""
        self._times_s.pop(id_, None)
        self._suspects.discard(id_)

    def split(self, ids: Sequence[str], *, of_source: bool) -> tuple[list[str], list[str]]:
        """Split the sources of a process that has died into those that restart anywhere and the suspect ones.

        Those that were restarted too often are in neither.

        Args:
            ids: the sources.
            of_source: whether one of them may be the cause.
        """
        suspects = [id_ for id_ in ids if of_source and self.count(id_)]
        max_restarts = _MAX_RESTARTS if len(suspects) < 2 else _MAX_RESTARTS_OF_SUSPECTS
        suspects = [id_ for id_ in suspects if self.count(id_) < max_restarts]
        others = [id_ for id_ in ids if id_ not in suspects and self.count(id_) < _MAX_RESTARTS]
        self._suspects.update(suspects)
        self._suspects.difference_update(others)
        return others, suspects
