"""Limit of mails per hour, and counts of omitted records; both survive a restart."""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter, deque
from collections.abc import Iterable
from pathlib import Path

from streamkit.emit.segment_file import private

HOUR_S = 3600.0
OTHERS = "others"
_TITLES = 100  # that are counted one by one


class RateLimit:
    """Counts mails of the last hour, and omitted records by title.

    Args:
        limit: maximum number of mails in any hour.
        path: file that keeps both; its folder may be created later, before the first write.

    Attributes:
        left_out: number of omitted records by title: at most a hundred titles, and `others`.
    """

    def __init__(self, limit: int, path: Path) -> None:
        self._limit, self._path = limit, path
        self._sent: deque[float] = deque()
        self.left_out: Counter[str] = Counter()
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):  # none there, or no longer readable
            known = json.loads(path.read_text(encoding="utf-8"))
            self._sent.extend(sorted(map(float, known["sent"]))[-limit:])
            self.left_out.update({str(name): int(n) for name, n in known["left_out"].items()})

    def left(self, now_s: float) -> int:
        """Number of mails that may be sent now; `now_s` is in seconds since 1970."""
        while self._sent and not now_s - HOUR_S < self._sent[0] <= now_s:  # a clock set back leaves none ahead of it
            self._sent.popleft()
        return self._limit - len(self._sent)

    def free_s(self, now_s: float) -> float:
        """When the next mail may be sent, in seconds since 1970."""
        return now_s if self.left(now_s) > 0 else self._sent[0] + HOUR_S

    def sent(self, now_s: float) -> None:
        """Count a mail, which has reported the records omitted before."""
        self._sent.append(now_s)
        self.forget()

    def forget(self) -> None:
        """Clear the counts of omitted records."""
        self.left_out.clear()
        self._write()

    def leave_out(self, titles: Iterable[str]) -> None:
        """Count records that are omitted from mails."""
        for title in titles:
            known = title in self.left_out or len(self.left_out) < _TITLES
            self.left_out[title if known else OTHERS] += 1
        self._write()

    def _write(self) -> None:
        """Store both; if the disk cannot be written, they last as long as this process."""
        part = self._path.with_name(f".{self._path.name}.part")
        with contextlib.suppress(OSError):
            with open(private(part, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as file:
                json.dump({"sent": list(self._sent), "left_out": self.left_out}, file)
            os.replace(part, self._path)
