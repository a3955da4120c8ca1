# SPDX-License-Identifier: Apache-2.0
"""The numbers of a source, each declared once: report, metrics, API, page, docs and `Pipeline.stats` follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from streamkit.core.counters import Counters, slug

_RECONNECTS = "reconnects"


def _number(text: str, *, metric: str = "", shown: bool = False) -> Mapping[str, Any]:
    """Declare a number.

    Args:
        text: what it counts, for the docs and as the help of its metric.
        metric: its metric for Prometheus and OpenTelemetry is `streamkit_<metric>`; '' for none.
        shown: whether report, API, page and `Pipeline.stats` show it by the name of its field, if it is not zero.
    """
    return {"text": text, "metric": metric, "shown": shown}


@dataclass(slots=True)
class SourceCounts:
    """What is counted of one source, or of several together; `Counters` have a number for each cause or name."""

    frames: int = field(default=0, metadata=_number("Frames delivered by a source", metric="frames"))
    out: int = field(default=0, metadata=_number("Frames that reached the end of the graph"))
    drops: Counters = field(default_factory=Counters, metadata=_number("Frames dropped", metric="frames_dropped"))
    failed: int = field(default=0, metadata=_number("Frames that reached the first end of the graph as failed"))
    failures: int = field(default=0, metadata=_number("Failures of stages on its frames, on any branch"))
    objects: int = field(default=0, metadata=_number("Objects on its frames, if the run asks for it"))
    reconnects: int = field(default=0, metadata=_number("Reconnects", shown=True))
    counters: Counters = field(default_factory=Counters, metadata=_number("What else is counted, by name"))

    def merge(self, other: SourceCounts) -> None:
        """Add the counts of the same source in another process, or of another source."""
        for declared in fields(SourceCounts):
            present = getattr(self, declared.name)
            more = getattr(other, declared.name)
            if isinstance(present, Counters):
                present.values.update(dict(more.values))  # a copy: another thread may count meanwhile
            else:
                setattr(self, declared.name, present + more)

    @property
    def dropped(self) -> int:
        """Number of its frames that were dropped."""
        return self.drops.values.total()

    def shown(self) -> dict[str, int]:
        """The numbers that are shown by name, if they are not zero."""
        return {number.name: count for number in NUMBERS if number.shown and (count := getattr(self, number.name))}

    def further(self, besides: Collection[str]) -> dict[str, int]:
        """All counts by name, except for those in `besides`, which have a place of their own."""
        shown = {name: number for name, number in self.shown().items() if name not in besides}
        named = sorted(dict(self.counters.values).items())
        return shown | {name: number for name, number in named if not name.startswith(_RECONNECTS)}

    def reconnects_by_cause(self) -> dict[str, int]:
        """How often a source has reconnected, by the cause of the loss."""
        start = f"{_RECONNECTS}: "
        named = sorted(dict(self.counters.values).items())
        by_cause = {name.removeprefix(start): number for name, number in named if name.startswith(start)}
        return by_cause or ({"unknown": self.reconnects} if self.reconnects else {})


class SourceNumber(NamedTuple):
    """A declared number.

    Attributes:
        name: the field of `SourceCounts`.
        by_cause: whether it is a number for each cause.
        text, metric, shown: see `_number`.
    """

    name: str
    by_cause: bool
    text: str
    metric: str
    shown: bool

    def rows(self, id_: str, counts: SourceCounts) -> Iterator[tuple[Any, ...]]:
        """The label values and the number of each series of a source."""
        number = getattr(counts, self.name)
        if self.by_cause:
            yield from ((id_, cause, n) for cause, n in short(number.values).items())
        else:
            yield id_, number


NUMBERS = tuple(
    SourceNumber(declared.name, declared.default_factory is Counters, **declared.metadata)
    for declared in fields(SourceCounts)
)
"""The numbers of a source, in the order of their declaration."""


def short(drops: Mapping[str, int]) -> dict[str, int]:
    """Drop counts with the bare cause as key: `dropped: too old` becomes `too old`."""
    by_cause: Counter[str] = Counter()
    for name, number in sorted(dict(drops).items()):
        by_cause[slug(name.removeprefix("frames dropped: "))] += number
    return dict(by_cause)
