# SPDX-License-Identifier: Apache-2.0
"""Fault injection: the option `fault` of a source, and the schedule of each fault.

Values only; `runtime/ingest/fault_injector.py` applies them.
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

# `for` is a keyword of Python, so these cannot be classes
Window = TypedDict(
    "Window",
    {"at": Times, "every": Seconds, "random": bool, "for": Required[Seconds]},
    total=False,
)
"""Time spans: they begin `at` these times and `every` interval, and last `for` a duration."""

Corruption = TypedDict(
    "Corruption",
    {"at": Times, "every": Seconds, "random": bool, "for": Required[Seconds], "share": Score},
    total=False,
)
"""A window, and the share of the data that is damaged."""


class Failure(TypedDict, total=False):
    """Moments: `at` these times, `every` interval, or at the first frame with this number or a higher one."""

    at: Times
    every: Seconds
    random: bool
    frame: Numbers


class _Short:
    """Annotation: a bare duration is short for `{at: duration}`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        def whole(written: Any) -> Any:
            return written if isinstance(written, (dict, list)) else {"at": written}

        return core_schema.no_info_before_validator_function(whole, handler(source))

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        from pydantic import TypeAdapter

        return {"anyOf": [*TypeAdapter(Seconds).json_schema()["anyOf"], handler(schema)]}


@dataclass
class Fault:
    """Inject faults into a source, to test how a pipeline handles them.

    Set `fault` under any source. Each fault occurs `at` one or several times, and `every` interval; with `random: true`
    the intervals are random, with `every` as their mean, and repeatable by `seed`. Times count from the first opening
    of a live or paced source, and are presentation times for other sources. The report counts the injected faults.
    """

    name: ClassVar[str] = "fault"

    fail: Annotated[
        Annotated[Failure, _Short()] | None,
        "the source fails. A time, or {at, every, random, frame}; frame is the number of the frame that fails.",
    ] = None
    freeze: Annotated[
        Window | None,
        "no frame arrives for a duration, as from a camera that hangs. Frames of a live or paced source are lost in "
        "that time; any other source waits, and continues where it stopped.",
    ] = None
    still: Annotated[Window | None, "the same image repeats, as from an encoder that hangs."] = None
    corrupt: Annotated[
        Corruption | None,
        "bytes of a video's packets are changed before they are decoded, or blocks of 16x16 pixels in the images of "
        "other sources; share is the share of a packet or image, 0.01 by default.",
    ] = None
    away: Annotated[
        Window | None, "the source fails as if its peer were unreachable, and cannot be opened again for a duration."
    ] = None
    seed: Annotated[
        int, "seed of the random values; the same seed repeats a run. Sources with the same seed differ."
    ] = 0

    def __post_init__(self) -> None:
        """Reject faults that never occur or never end."""
        if not self.kinds:
            raise ValueError(f"no fault is set; name one of {', '.join(KINDS)}")
        for kind in self.kinds:
            _check(kind, getattr(self, kind))

    @property
    def kinds(self) -> list[str]:
        """The faults that are set."""
        return [kind for kind in KINDS if getattr(self, kind) is not None]

    @property
    def share(self) -> float:
        """The share of a packet or image that `corrupt` damages, 0..1."""
        return _SHARE if self.corrupt is None else self.corrupt.get("share", _SHARE)

    @property
    def frame_numbers(self) -> list[int]:
        """The frame numbers of `fail`, ascending."""
        return sorted(_several((self.fail or {}).get("frame")))

    def chance(self, kind: str, source: str) -> random.Random:
        """Random numbers of one fault of one source, independent of the other faults."""
        return random.Random(f"{self.seed} {source} {kind}")

    def schedule(self, kind: str, source: str) -> FaultSchedule:
        """The schedule of fault `kind` for a source; empty if the fault is not set."""
        when: Mapping[str, Any] = getattr(self, kind) or {}
        return FaultSchedule(_moments(when, self.chance(kind, source)), when.get("for", 0.0))


class FaultSchedule:
    """The time spans of one fault, queried with non-decreasing times.

    Args:
        moments: when the spans begin, in seconds, ascending.
        for_s: their duration.

    Attributes:
        spans_started: number of spans that have started.
        end_s: when the last of them ends.
        for_s: their duration.
    """

    def __init__(self, moments: Iterator[float], for_s: float) -> None:
        self._moments = moments
        self.for_s = for_s
        self._next = next(moments, math.inf)
        self.spans_started = 0
        self.end_s = -math.inf

    def __call__(self, time_s: float) -> bool:
        """Whether `time_s` is in a span, or a span has started since the last call."""
        before = self.spans_started
        while self._next <= time_s + _SLACK_S:
            self.spans_started += 1
            self.end_s = self._next + self.for_s
            self._next = next(self._moments, math.inf)
        return self.spans_started > before or time_s < self.end_s - _SLACK_S


def _several(written: Any) -> list[Any]:
    return list(written) if isinstance(written, (list, tuple)) else [] if written is None else [written]


def _moments(when: Mapping[str, Any], chance: random.Random) -> Iterator[float]:
    """The times at which a fault begins, in seconds, ascending."""
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
        raise ValueError(f"{kind} never occurs; set {' or '.join(words)}")
    for word in ("every", "for"):
        if word in when and when[word] <= 0:
            raise ValueError(f"{kind}.{word} must be more than 0 s, got {when[word]:g} s")
    if when.get("random") and "every" not in when:
        raise ValueError(f"{kind}.random needs every, the mean interval")
    if "every" in when and not when.get("random") and when.get("for", 0.0) >= when["every"]:
        for_s = when["for"]
        every_s = when["every"]
        raise ValueError(f"{kind}.for must be less than every, or it never ends; got {for_s:g} s and {every_s:g} s")
