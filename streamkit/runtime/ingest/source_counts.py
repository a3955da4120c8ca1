# SPDX-License-Identifier: Apache-2.0
"""The numbers of a source, each declared once: report, metrics, API and `Pipeline.stats` read the declarations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from streamkit.core.counters import Counters, slug

_RECONNECTS = "reconnects"


_SHOWN = {"shown": True}
"""A number that report, API and `Pipeline.stats` show by the name of its field, if it is not zero."""


def _exported(metric: str, text: str) -> Mapping[str, str]:
    """A number with a metric, `streamkit_<metric>`, for Prometheus and OpenTelemetry; the text is its help."""
    return {"metric": metric, "text": text}


@dataclass(slots=True)
class SourceCounts:
    """What is counted of one source, or of several together.

    Attributes:
        frames: frames that the source has produced.
        out: its frames that reached the end of the graph.
        drops: dropped frames, by cause.
        failed: its frames that reached the first end of the graph as failed.
        failures: number of times a stage failed on one of its frames, on any branch.
        objects: objects detected on its frames; counted only if the run asks for it.
        reconnects: number of reconnections.
        counters: what else was counted, by name.
    """

    frames: int = field(default=0, metadata=_exported("frames", "Frames delivered by a source"))
    out: int = 0
    drops: Counters = field(default_factory=Counters, metadata=_exported("frames_dropped", "Frames dropped"))
    failed: int = 0
    failures: int = 0
    objects: int = 0
    reconnects: int = field(default=0, metadata=_SHOWN)
    counters: Counters = field(default_factory=Counters)

    def merge(self, other: SourceCounts) -> None:
        """Add the counts of the same source in another process, or of another source."""
        for declared in fields(SourceCounts):
            present, more = getattr(self, declared.name), getattr(other, declared.name)
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
        names = [declared.name for declared in fields(SourceCounts) if declared.metadata.get("shown")]
        return {name: number for name in names if (number := getattr(self, name))}

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


class ExportedNumber(NamedTuple):
    """A number that has a metric.

    Attributes:
        metric: its name, without `streamkit_`.
        text: what it counts.
        by_cause: whether it has a series for each cause.
        name: the field of `SourceCounts`.
    """

    metric: str
    text: str
    by_cause: bool
    name: str

    def rows(self, id_: str, counts: SourceCounts) -> Iterator[tuple[Any, ...]]:
        """The label values and the number of each series of a source."""
        number = getattr(counts, self.name)
        if self.by_cause:
            yield from ((id_, cause, n) for cause, n in short(number.values).items())
        else:
            yield id_, number


EXPORTED = tuple(
    ExportedNumber(
        declared.metadata["metric"], declared.metadata["text"], declared.default_factory is Counters, declared.name
    )
    for declared in fields(SourceCounts)
    if declared.metadata.get("metric")
)
"""The numbers of a source that have a metric, in the order of their declaration."""


def short(drops: Mapping[str, int]) -> dict[str, int]:
    """Drop counts with the bare cause as key: `dropped: too old` becomes `too old`."""
    by_cause: Counter[str] = Counter()
    for name, number in sorted(dict(drops).items()):
        by_cause[slug(name.removeprefix("frames dropped: "))] += number
    return dict(by_cause)
