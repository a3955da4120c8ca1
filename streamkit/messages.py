"""Words that messages to the user have in common."""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str], all_if_few: bool = False) -> str:
    """`; did you mean 'x'?` where a known word is near, else the known words if asked for, else nothing."""
    known = list(known)
    near = nearest(word, known)
    if near is not None:
        return f"; did you mean {near!r}?"
    return f"; known: {', '.join(known)}" if all_if_few and known else ""


def nearest(word: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """The known word that `word` is nearly, or None; `likeness` is the ratio of `difflib`, 0 to 1."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=likeness)
    return near[0] if near else None


def at_now() -> str:
    """The date and time of day: a text is said once, and each time that a thing happens is to be known."""
    return time.strftime("at %Y-%m-%d %H:%M:%S")
