# SPDX-License-Identifier: Apache-2.0
"""The ends of a graph: counts frames, objects and events there, and passes them to listeners."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from streamkit.config.plan import Graph, Node, stages_above
from streamkit.core.data import Batch, Event, Frame, array_module
from streamkit.core.detections import Detections
from streamkit.core.errors import describe
from streamkit.core.stage import Sink
from streamkit.models.card import Card
from streamkit.runtime.execution.lane import Lane
from streamkit.runtime.execution.meters import Histogram
from streamkit.runtime.execution.tables import split
from streamkit.runtime.observe.event_counts import EventCounter

logger = logging.getLogger(__name__)

FrameListener = Callable[[Sequence[tuple[Frame, list[Event]]]], None]
"""Receives the frames of a batch, without their surfaces, each with its events."""


class GraphOutputs:
    """Counts frames, objects and events where the graph ends.

    Branches share frames, objects and events. The first end counts frames for their sources; the first end downstream
    of a stage counts that stage's objects and events for all.

    Args:
        graph: the graph.
        lanes: its lanes.
        count_sources: receives the frames at the first end, the sources that have ended, and the monotonic time; None
            if other processes count sources: no end is then the first.
        batch_done: receives the sequence number of each batch that reaches the first end.
        source_complete: receives each source whose last frame has reached every end.

    Attributes:
        finished: frames by end.
        detections: objects by table.
        labels: objects by table and label; those of tables that no stage needs on the host are left out.
        unsure: objects by table whose score is in the lowest quarter above their detector's threshold.
        events: events by kind.
        event_counter: the same events by source, stage and more.
        latency: by end, from a frame's arrival or due time; live and paced sources only.
        lock: guards all of these.
        by_source: whether to count objects for each source as well.
    """

    def __init__(
        self,
        graph: Graph,
        lanes: Sequence[Lane],
        count_sources: Callable[[Sequence[Frame], Iterable[str], float], None] | None,
        batch_done: Callable[[int], None] = lambda sequence: None,
        source_complete: Callable[[str], None] = lambda source: None,
    ) -> None:
        self._count_sources = count_sources
        self._batch_done = batch_done
        self._source_complete = source_complete
        self._passed = Counter[str]()
        self.finished = Counter[str]()
        self.detections = Counter[str]()
        self.labels: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.unsure = Counter[str]()
        self._sure_scores = dict(_sure_scores(graph))
        self.events = Counter[str]()
        self.event_counter = EventCounter(graph)
        self.latency: defaultdict[str, Histogram] = defaultdict(Histogram)
        self.lock = threading.Lock()
        self.by_source = False
        self._listeners: tuple[FrameListener, ...] = ()
        self._ends = {id(lane): (lane.nodes[-1].id, counted) for lane, counted in _ends(graph, lanes)}
        self._first = 0 if count_sources is None else next(iter(self._ends), 0)

    @property
    def counted(self) -> dict[str, set[str]]:
        """By end, the stages and tables whose events and objects are counted there."""
        return dict(self._ends.values())

    def labels_by_table(self) -> dict[str, dict[str, int]]:
        """Return a copy of `labels`."""
        with self.lock:
            return {table: dict(counts) for table, counts in self.labels.items()}

    def leave_out(self, counted_elsewhere: Collection[str]) -> None:
        """Do not count these stages and tables: another process does."""
        self._ends = {
            lane: (name, counted.difference(counted_elsewhere)) for lane, (name, counted) in self._ends.items()
        }

    def listen(self, seen: FrameListener) -> Callable[[], None]:
        """Pass every batch to `seen`; return a function that stops it. `seen` must be quick and thread-safe.

        The first end passes every frame with its events; any other end passes only frames with events from stages of
        its own branch. Each event is passed once. `frame.tables` is filled.
        """
        with self.lock:
            self._listeners = (*self._listeners, seen)
        return partial(self._unlisten, seen)

    def _unlisten(self, seen: FrameListener) -> None:
        with self.lock:
            self._listeners = tuple(listener for listener in self._listeners if listener is not seen)

    def count(self, lane: Lane, batch: Batch) -> None:
        """Count a batch that has left a lane, if the lane is an end of the graph."""
        end = self._ends.get(id(lane))
        if end is None:
            return
        name, counted = end
        now_s = time.monotonic()
        frames = [*batch.frames, *batch.failed]
        with self.lock:
            self.finished[name] += len(frames)
            for table in counted.intersection(batch.tables):
                objects = batch.table(table)
                self.detections[table] += len(objects)
                self._count_labels(table, objects)
                if self.by_source:
                    _count_objects(batch, objects)
            for frame in frames:
                for event in frame.events:
                    if event.stage in counted:
                        self.events[event.kind] += 1
                        self.event_counter.add(event)
                if frame.due_s is not None:
                    self.latency[name].add(now_s - frame.due_s)
            if id(lane) == self._first:
                if self._count_sources is not None:
                    self._count_sources(frames, batch.ended, now_s)
                self._batch_done(batch.sequence)
            complete = self._pass(batch.ended) if batch.ended else ()
        for source in complete:
            self._source_complete(source)
        if self._listeners and frames:
            self._notify(batch, counted, every=id(lane) == self._first)

    def _count_labels(self, table: str, objects: Detections) -> None:
        """Count the labels and the unsure scores of a table on the host."""
        if not len(objects) or array_module(objects.class_id) is not np:
            return
        self.labels[table].update(objects.label)
        if table in self._sure_scores:
            self.unsure[table] += int(np.count_nonzero(objects.score < self._sure_scores[table]))

    def _pass(self, ended: Sequence[str]) -> list[str]:
        """Note that these sources have ended at one end; return those that have ended at every end."""
        self._passed.update(ended)
        complete = [source for source in ended if self._passed[source] == len(self._ends)]
        for source in complete:
            del self._passed[source]
        return complete

    def count_event(self, time_s: float, event: Event) -> None:
        """Count an event that belongs to no frame in the graph."""
        with self.lock:
            self.events[event.kind] += 1
        self.event_counter.add(event)

    def _notify(self, batch: Batch, counted: set[str], every: bool) -> None:
        shown: list[tuple[Frame, list[Event]]] = []
        for frame in sorted([*batch.frames, *batch.failed], key=lambda frame: frame._state.position):
            events = [event for event in frame.events if event.stage in counted]
            if every or events:
                shown.append((replace(frame, surface=None), events))
        if shown and batch.tables:
            split(batch)  # the copies above have the frames' own dicts
        for seen in self._listeners if shown else ():
            try:
                seen(shown)
            except Exception as error:
                logger.warning(f"a listener failed and is removed: {describe(error)}")
                self._unlisten(seen)


def _ends(graph: Graph, lanes: Sequence[Lane]) -> Iterator[tuple[Lane, set[str]]]:
    """The lanes that are ends of the graph, each with what it counts: what is above it, and above no earlier end."""
    claimed: set[str] = set()
    for lane in lanes:
        last = lane.nodes[-1]
        if issubclass(last.type, Sink) or not last.readers:
            counted = _above(graph, last) - claimed
            claimed |= counted
            yield lane, counted


def _above(graph: Graph, node: Node) -> set[str]:
    """Ids of a stage and of all stages above it, and the tables of the detectors among them."""
    nodes = [node, *stages_above(graph.nodes, node).values()]
    return {stage.id for stage in nodes} | {stage.table for stage in nodes if "detections" in stage.type.spec.writes}


def _sure_scores(graph: Graph) -> Iterator[tuple[str, float]]:
    """Yield the table of each detector with a network, and the score that ends the lowest quarter above its threshold.

    With a threshold for each class, the card's counts.
    """
    for node in graph.nodes.values():
        card = node.options.get("model")
        if isinstance(card, Card) and "detections" in node.type.spec.writes:
            min_score = node.options.get("min_score")
            threshold = min_score if isinstance(min_score, int | float) else card.score
            yield node.table, threshold + (1 - threshold) / 4


def _count_objects(batch: Batch, table: Detections) -> None:
    """Add a table's objects to the counts of their sources."""
    for frame, objects in zip(batch.frames, np.bincount(table.batch_row, minlength=len(batch.frames)), strict=True):
        if frame._state.source_state is not None:
            frame._state.source_state.objects += int(objects)
