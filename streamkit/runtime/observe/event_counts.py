# SPDX-License-Identifier: Apache-2.0
"""Counts events by source, stage and kind, and those of lines and zones also by shape, direction and class."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Mapping
from typing import NamedTuple

from streamkit.config.plan import Graph
from streamkit.core.data import Event
from streamkit.stages.analytics.track_analytics import ShapeAnalytics

ALL_FILES = "files"
"""The source under which the events of removed sources are counted."""


class EventSeries(NamedTuple):
    """What events are counted by.

    Attributes:
        source: the source.
        stage: the stage that emits them.
        kind: the kind of event.
        shape: the line or zone; empty without a name, and for events of other stages.
        direction: the direction across a line; empty for other events.
        label: the class of the object; empty for events of other stages than `line_counter` and `zone`.
    """

    source: str
    stage: str
    kind: str
    shape: str = ""
    direction: str = ""
    label: str = ""


EventCounts = Mapping[EventSeries, int]


class EventCounter:
    """Counts events. Thread-safe.

    Args:
        graph: the graph, whose stages say which events are about a line or a zone.
    """

    def __init__(self, graph: Graph) -> None:
        self._shaped = shaped_stages(graph)
        self._counts: Counter[EventSeries] = Counter()
        self._removed: deque[str] = deque()
        self._lock = threading.Lock()

    def add(self, event: Event) -> None:
        """Count an event."""
        data = event.data if event.stage in self._shaped else {}
        shape = str(data.get("line", data.get("zone", "")))
        direction = str(data.get("direction", ""))
        label = str(data.get("label", ""))
        series = EventSeries(event.source, event.stage, event.kind, shape, direction, label)
        with self._lock:
            self._counts[series] += 1

    def forget(self, source: str) -> None:
        """Count the events of a removed source with those of all removed sources."""
        self._removed.append(source)

    def counts(self) -> dict[EventSeries, int]:
        """The counts so far."""
        with self._lock:
            removed = {self._removed.popleft() for _ in range(len(self._removed))}
            for series in [series for series in self._counts if series.source in removed]:
                self._counts[series._replace(source=ALL_FILES)] += self._counts.pop(series)
            return dict(self._counts)


def shaped_stages(graph: Graph) -> frozenset[str]:
    """The ids of the stages that count at lines or in zones."""
    return frozenset(id_ for id_, node in graph.nodes.items() if issubclass(node.type, ShapeAnalytics))
