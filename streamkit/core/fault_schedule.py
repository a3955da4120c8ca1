"""Faults on purpose: what `fault:` under a source may say, and when each of them comes.

Values only; `runtime/ingest/fault_injector.py` makes them happen.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Required

from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from streamkit.core.units import Score, Seconds, Unit

__all__ = ["Corruption", "Failure", "Fault", "FaultSchedule", "Window"]

KINDS = ("fail", "freeze", "still", "corrupt", "away")
_SHARE = 0.01
_SLACK_S = 1e-6

_Number = Annotated[int, Unit("from 0", minimum=0)]

Times = Annotated[Seconds | list[Seconds], Unit("times")]
"""A time in seconds, or several."""

Numbers = Annotated[_Number | list[_Number], Unit("frame numbers")]
"""A frame's number in its source, or several."""

# `for` is Python's own word, so these cannot be written as classes
Window = TypedDict(
    "Window",
    {"at": Times, "every": Seconds, "random": bool, "for": Required[Seconds]},
    total=False,
)
"""Spans of time: they begin `at` these times and `every` so long, and last `for` so long."""

Corruption = TypedDict(
    "Corruption",
    {"at": Times, "every": Seconds, "random": bool, "for": Required[Seconds], "share": Score},
    total=False,
)
"""A window, and how much is damaged in it."""


class Failure(TypedDict, total=False):
    """Moments: `at` these times, `every` so long, at the first frame of this number or a later one."""

    at: Times
    every: Seconds
    random: bool
    frame: Numbers


_shapes: tuple[Any, ...] = (Window, Corruption, Failure)
for _shape in _shapes:
    _shape.__pydantic_config__ = {"extra": "forbid"}


class _Short:
    """Annotation: a bare duration is short for `{at: duration}`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        def whole(value: Any) -> Any:
            return value if isinstance(value, (dict, list)) else {"at": value}

        return core_schema.no_info_before_validator_function(whole, handler(source))

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        from pydantic import TypeAdapter

        return {"anyOf": [*TypeAdapter(Seconds).json_schema()["anyOf"], handler(schema)]}


@dataclass
class Fault:
    """Let a source go wrong on purpose, to see what a pipeline makes of it.

    It stands under any source as `fault:`. Each fault comes `at` a time or several, and `every` so long; with `random:
    true` the gaps are random, `every` long on average and the same in every run of one seed. Times count from the
    source's first opening where it is live or paced, and by its pictures' own times elsewhere. What was done is counted
    in the report.

    Options:
        fail: the source fails. A time, or {at, every, random, frame}; frame is the number of the frame that fails.
        freeze: nothing comes for so long, as from a camera that hangs. What a live or paced source shows in that time
            is missed; any other source waits, and goes on where it was.
        still: the same picture comes again and again, as from an encoder that hangs.
        corrupt: bytes of a video's packets are changed before they are decoded, blocks of 16x16 in the pictures of any
            other source; share is how much of a packet or picture, 0.01 if not set.
        away: the source fails as if its peer were gone, and cannot be opened again for so long.
        seed: for what is random; the same seed gives the same run. Sources of one seed still differ.
    """

    name: ClassVar[str] = "fault"

    fail: Annotated[Failure, _Short()] | None = None
    freeze: Window | None = None
    still: Window | None = None
    corrupt: Corruption | None = None
    away: Window | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what would never come, or never end."""
        if not self.kinds:
            raise ValueError(f"no fault is set; name one of {', '.join(KINDS)}")
        for kind in self.kinds:
            _check(kind, getattr(self, kind))

    @property
    def kinds(self) -> list[str]:
        """Which faults are set."""
        return [kind for kind in KINDS if getattr(self, kind) is not None]

    @property
    def share(self) -> float:
        """How much of a packet or picture `corrupt` damages, 0..1."""
        return _SHARE if self.corrupt is None else self.corrupt.get("share", _SHARE)

    @property
    def frame_numbers(self) -> list[int]:
        """The numbers of the frames that `fail` names, rising."""
        return sorted(_several((self.fail or {}).get("frame")))

    def chance(self, kind: str, source: str) -> random.Random:
        """Random numbers of one fault of one source: another fault, set or not, does not change them."""
        return random.Random(f"{self.seed} {source} {kind}")

    def schedule(self, kind: str, source: str) -> FaultSchedule:
        """When fault `kind` comes to the source `source`; never, where it is not set."""
        when: Mapping[str, Any] = getattr(self, kind) or {}
        return FaultSchedule(_moments(when, self.chance(kind, source)), when.get("for", 0.0))


class FaultSchedule:
    """When one fault comes: spans of time, asked about for times that do not fall.

    Args:
        moments: when they begin, in seconds, rising.
        for_s: how long each is.

    Attributes:
        begun: how many have begun so far.
        end_s: when the last of these ends.
        for_s: as given.
    """

    def __init__(self, moments: Iterator[float], for_s: float) -> None:
        self._moments, self.for_s = moments, for_s
        self._next = next(moments, math.inf)
        self.begun, self.end_s = 0, -math.inf

    def __call__(self, time_s: float) -> bool:
        """Whether `time_s` lies in a span, or one has begun since the last time that was asked about."""
        before = self.begun
        while self._next <= time_s + _SLACK_S:
            self.begun += 1
            self.end_s = self._next + self.for_s
            self._next = next(self._moments, math.inf)
        return self.begun > before or time_s < self.end_s - _SLACK_S


def _several(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [] if value is None else [value]


def _moments(when: Mapping[str, Any], chance: random.Random) -> Iterator[float]:
    """The times at which a fault begins, in seconds, rising."""
    every = when.get("every")
    again: Iterator[float] = iter(())
    if every is not None and when.get("random"):
        again = itertools.accumulate(chance.expovariate(1 / every) for _ in itertools.count())
    elif every is not None:
        again = (every * n for n in itertools.count(1))
    return heapq.merge(sorted(_several(when.get("at"))), again)


def _check(kind: str, when: Mapping[str, Any]) -> None:
    words = ("at", "every", "frame") if kind == "fail" else ("at", "every")
    if not any(_several(when.get(word)) for word in words):
        raise ValueError(f"{kind} never comes; give it {' or '.join(words)}")
    for word in ("every", "for"):
        if word in when and when[word] <= 0:
            raise ValueError(f"{kind}.{word} must be more than 0 s, got {when[word]:g} s")
    if when.get("random") and "every" not in when:
        raise ValueError(f"{kind}.random needs every, the mean time from one to the next")
    if "every" in when and not when.get("random") and when.get("for", 0.0) >= when["every"]:
        for_s, every_s = when["for"], when["every"]
        raise ValueError(f"{kind}.for must be less than every, or it never ends; got {for_s:g} s and {every_s:g} s")
