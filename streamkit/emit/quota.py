"""How many mails an hour may go out, and what was left out because of it; both are known after a restart as well."""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter, deque
from collections.abc import Iterable
from pathlib import Path

from streamkit.emit.blocks import private

HOUR_S = 3600.0
OTHERS = "others"
_TITLES = 100  # that are counted one by one


class Quota:
    """Counts what was sent within the last hour, and by its title what was not.

    Args:
        limit: mails in any hour.
        path: a file that keeps both; its folder need not be there before something is written.

    Attributes:
        left_out: how many records were left out, by title: at most a hundred, and `others`.
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
        """How many mails may go out now; `now_s` is in seconds since 1970."""
        while self._sent and not now_s - HOUR_S < self._sent[0] <= now_s:  # a clock set back leaves none ahead of it
            self._sent.popleft()
        return self._limit - len(self._sent)

    def free_s(self, now_s: float) -> float:
        """When the next may go out, in seconds since 1970."""
        return now_s if self.left(now_s) > 0 else self._sent[0] + HOUR_S

    def sent(self, now_s: float) -> None:
        """A mail has gone out, and has told what was left out before."""
        self._sent.append(now_s)
        self.forget()

    def forget(self) -> None:
        """What was left out cannot be told."""
        self.left_out.clear()
        self._write()

    def leave_out(self, titles: Iterable[str]) -> None:
        """These records go into no mail of their own."""
        for title in titles:
            known = title in self.left_out or len(self.left_out) < _TITLES
            self.left_out[title if known else OTHERS] += 1
        self._write()

    def _write(self) -> None:
        """Keep it; where the disk does not take it, it is known as long as this process runs."""
        part = self._path.with_name(f".{self._path.name}.part")
        with contextlib.suppress(OSError):
            with open(private(part, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as file:
                json.dump({"sent": list(self._sent), "left_out": self.left_out}, file)
            os.replace(part, self._path)
