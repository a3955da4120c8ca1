# SPDX-License-Identifier: Apache-2.0
"""The store of `streamkit serve`: takes events and samples from any thread, and writes them on its own.

No caller waits for the disk. If the file cannot be written, what waits is bounded, losses are counted, and `problem`
says why until a write succeeds.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from streamkit.core.counters import Counters
from streamkit.core.data import Event
from streamkit.core.errors import StreamkitError, describe
from streamkit.core.logs import LogOnce
from streamkit.runtime.execution.future import PeriodicTimer
from streamkit.runtime.preview.gallery import Gallery, GalleryEvent
from streamkit.serve.store import count_table, event_table, review_table, sample_table
from streamkit.serve.store.count_table import CountedArea, CountSeries, CountTally, ZoneOccupancy
from streamkit.serve.store.database import ServeDatabase, used_bytes
from streamkit.serve.store.event_table import EventQuery, StoredEvent
from streamkit.serve.store.media_links import MediaLinks
from streamkit.serve.store.review_table import ReviewItem, ReviewQuery, Severity
from streamkit.serve.store.sample_table import MetricSample, MetricSeries

logger = logging.getLogger(__name__)

KEEP_EVENTS_S = 30 * 86_400.0
KEEP_BYTES = 2_000_000_000
SAMPLE_EVERY_S = 10.0

_WRITE_EVERY_S = 0.5
_TIDY_EVERY_S = 60.0
_RETRY_S = 5.0
# that wait to be written
_MAX_EVENTS = 5000
_MAX_IMAGES = 500
_MAX_OTHERS = 5000
_BATCH = 1000  # events of one transaction
_BAD = (ValueError, TypeError, OverflowError, sqlite3.InterfaceError, sqlite3.ProgrammingError)

_Result = TypeVar("_Result")
Sampler = Callable[[], Sequence[MetricSample]]


class StoreUnreadable(StreamkitError):
    """The file cannot be read at present; the message says why."""


class ServeStore:
    """Events and samples, in a data folder. Thread-safe.

    Args:
        folder: the data folder; created if needed.
        keep_events_s: how long events and images are kept, in seconds.
        keep_bytes: maximum size of the file; the oldest images are removed first, then the oldest events.
        clock: monotonic time in seconds, for what is due.

    Attributes:
        counts: what was lost, because it could not be written in time, and what was removed, by cause.
        problem: why the file cannot be written at present; empty if it can.
        on_alert: called with each new alert on the thread that writes; it must be quick.

    Raises:
        OutputError: the folder cannot be used.
    """

    def __init__(
        self,
        folder: Path,
        keep_events_s: float = KEEP_EVENTS_S,
        keep_bytes: int = KEEP_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self.counts = Counters()
        self.problem = ""
        self._keep_events_s = keep_events_s
        self._keep_bytes = keep_bytes
        self._database = ServeDatabase(folder)
        with self._database.reading() as connection:
            self._first = event_table.last_number(connection) + 1
            self._masked_from, self._hidden = event_table.last_mask(connection)
        self._mask_unwritten = False
        self._events: deque[GalleryEvent] = deque()
        self._samples: deque[tuple[float, Sequence[MetricSample]]] = deque()
        self._tally = CountTally()
        self._severities: Mapping[tuple[str, str], Severity] = {}
        self.on_alert: Callable[[ReviewItem], None] | None = None
        self._gallery: Gallery | None = None
        self._links = MediaLinks()
        self._connection: sqlite3.Connection | None = None
        self._image: tuple[int, bytes] | None = None
        self._warn = LogOnce(logger.warning)
        self._sample_s = self._tidy_s = self._retry_s = 0.0
        self._sampler: Sampler | None = None

    @property
    def folder(self) -> Path:
        """The data folder."""
        return self._database.folder

    @property
    def last_number(self) -> int:
        """The number of the latest event; 0 if there was none."""
        newest = [] if self._gallery is None else self._gallery.events(1)
        return newest[0].number if newest else self._first - 1

    def follow(self, gallery: Gallery) -> None:
        """Store the events of a gallery, which has none yet; their numbers continue those of earlier runs."""
        self._gallery = gallery
        gallery.continue_from(self._first, self._take)

    def set_stages(self, recorders: Collection[str], snapshooters: Collection[str]) -> None:
        """Set the ids of the stages that write clips, and of those that write snapshots."""
        self._links = MediaLinks(recorders, snapshooters)

    def set_severities(self, severities: Mapping[tuple[str, str], Severity]) -> None:
        """Set how severe the events of rules are, by the stage's id and the rule's name."""
        self._severities = severities

    def masked_from(self, hidden: str) -> int:
        """The number of the first event whose image hides what images are to hide now.

        Args:
            hidden: what that is; images of earlier events may show it.
        """
        if hidden != self._hidden:
            self._masked_from = self.last_number + 1
            self._hidden = hidden
            self._mask_unwritten = True
        return self._masked_from

    def _take(self, events: Sequence[GalleryEvent]) -> None:
        """Queue events; called on the pipeline's threads."""
        self._tally.take(events)
        for event in events:
            waiting = len(self._events)
            if waiting >= _MAX_EVENTS:
                self.counts.add("events lost: not written in time")
            elif event.jpeg is not None and waiting >= _MAX_IMAGES:
                self.counts.add("images lost: not written in time")
                self._events.append(GalleryEvent(event.number, event.time_s, event.event, None))
            else:
                self._events.append(event)

    @contextlib.contextmanager
    def writing(self, sampler: Sampler | None = None) -> Iterator[None]:
        """Write what is queued, and sample, while the block runs; then write the rest and close the file.

        Args:
            sampler: returns the samples of this moment; called every 10 s.
        """
        self._sampler = sampler
        try:
            with PeriodicTimer(_WRITE_EVERY_S, self.write_due):
                yield
        finally:
            self._retry_s = 0.0
            self._sampler = None
            self.write_due()
            if self._connection is not None:
                self._connection.close()
            self._database.close()

    # ---------------------------------------------------------------------------------------------------- writing

    def write_due(self) -> None:
        """Sample, write and tidy up what is due; `writing` calls it twice a second, on one thread."""
        now_s = self._clock()
        if self._sampler is not None and now_s >= self._sample_s:
            self._sample_s = now_s + SAMPLE_EVERY_S
            self._sample(self._sampler)
        self._tally.add_up()
        if now_s < self._retry_s:
            return
        try:
            while self._events or self._samples or self._mask_unwritten or self._tally.waiting:
                self._write()
            if now_s >= self._tidy_s:
                self._tidy_s = now_s + _TIDY_EVERY_S
                self._tidy()
        except Exception as error:  # a full disk, a locked or damaged file
            self._failed(error)
        else:
            self.problem = ""

    def _sample(self, sampler: Sampler) -> None:
        if len(self._samples) >= _MAX_OTHERS:
            self._samples.popleft()
            self.counts.add("samples lost: not written in time")
        try:
            self._samples.append((time.time(), sampler()))
        except Exception as error:  # must not end the thread
            self._warn(f"the pipeline's state could not be sampled: {describe(error)}")

    def _failed(self, error: Exception) -> None:
        self._retry_s = self._clock() + _RETRY_S
        self.problem = f"events are not stored: {self._database.path} cannot be written: {describe(error)}"
        self._warn(self.problem)
        with contextlib.suppress(sqlite3.Error):
            if self._connection is not None:
                self._connection.close()  # the next attempt opens the file again
        self._connection = self._image = None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._database.connect()
        return self._connection

    def _write(self) -> None:
        """Write what waits in one transaction; it leaves the queues only when it is written."""
        events = [self._events[place] for place in range(min(len(self._events), _BATCH))]
        samples = list(self._samples)
        mask = (self._masked_from, self._hidden) if self._mask_unwritten else None
        alerts: list[int] = []
        with self._open() as connection:
            for event in events:
                try:
                    event_table.add_event(connection, event, self._image_id(connection, event))
                    self._links.link(connection, event)
                    if (alert := review_table.add_event(connection, event, self._severities)) is not None:
                        alerts.append(alert)
                    sample_table.add_samples(connection, event.time_s, _counts(event.event))
                except _BAD as error:
                    self.counts.add("events lost: not storable")
                    self._warn(f"an event of {event.event.stage} cannot be stored: {describe(error)}")
            for time_s, some in samples:
                sample_table.add_samples(connection, time_s, some)
            if mask is not None:
                event_table.add_mask(connection, *mask)
            self._tally.add_up()
            self._tally.write(connection)
        self._tally.written()
        self._announce(alerts)
        if mask == (self._masked_from, self._hidden):
            self._mask_unwritten = False
        for queue, written in ((self._events, events), (self._samples, samples)):
            for _ in written:
                queue.popleft()

    def _announce(self, alerts: Sequence[int]) -> None:
        """Pass new alerts on, once they are on the disk."""
        if self.on_alert is None:
            return
        for id_ in alerts:
            if (item := review_table.item_of(self._open(), id_)) is not None:
                self.on_alert(item)

    def _image_id(self, connection: sqlite3.Connection, event: GalleryEvent) -> int | None:
        """The id of an event's image, which the events of one frame share."""
        if event.jpeg is None:
            return None
        if self._image is None or self._image[1] != event.jpeg:
            event_table.add_image(connection, event.number, event.jpeg)
            self._image = event.number, event.jpeg
        return self._image[0]

    def _tidy(self) -> None:
        """Remove what is too old, and the oldest while the file is too large."""
        now_s = time.time()
        connection = self._open()
        with connection:
            review_table.remove_before(connection, now_s - self._keep_events_s)
            self._removed("age", *event_table.remove_before(connection, now_s - self._keep_events_s))
            sample_table.thin(connection, now_s)
            count_table.remove_before(connection, now_s - count_table.KEEP_S)
        if used_bytes(connection) > self._keep_bytes:
            with connection:
                for events, images in event_table.remove_oldest(connection):
                    self._removed("size", events, images)
                    if used_bytes(connection) <= 0.9 * self._keep_bytes:
                        break
        connection.executescript(
            "PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE)"
        )  # the files become smaller

    def _removed(self, cause: str, events: int, images: int) -> None:
        for what, n in (("events", events), ("images", images)):
            if n:
                self.counts.add(f"{what} removed: {cause}", n)

    # ---------------------------------------------------------------------------------------------------- reading
    # Each of these raises StoreUnreadable.

    def events(self, query: EventQuery, limit: int) -> list[StoredEvent]:
        """The latest events that match, newest first, with those that are not written yet."""
        stored: list[StoredEvent] = []
        written = self._first - 1
        try:
            with self._reading() as connection:
                stored = event_table.find_events(connection, query, limit)
                written = event_table.last_number(connection)
        except StoreUnreadable:
            if not self.problem:  # a problem is shown already: give what is in memory
                raise
        recent = [] if self._gallery is None else self._gallery.events(self._gallery.keep, after=written)
        return [*(StoredEvent.unwritten(event) for event in recent if query.matches(event)), *stored][:limit]

    def event(self, number: int, sources: frozenset[str] | None = None) -> StoredEvent | None:
        """The event with that number, if it is one of these sources."""
        matching = self.events(EventQuery(after=number - 1, before=number + 1, sources=sources), 1)
        return matching[0] if matching else None

    def image(self, number: int) -> bytes | None:
        """The small image of an event."""
        recent = None if self._gallery is None else self._gallery.event(number)
        if recent is not None and recent.jpeg is not None:
            return recent.jpeg
        with self._reading() as connection:
            return event_table.image_of(connection, number)

    def timeline(self, query: EventQuery, from_s: float, to_s: float, bins: int) -> dict[str, list[int]]:
        """The number of matching events in equal parts of a period, by source."""
        with self._reading() as connection:
            return event_table.count_over_time(connection, query, from_s, to_s, bins)

    def names(self, sources: frozenset[str] | None = None) -> dict[str, list[str]]:
        """The sources, stages, kinds and labels of the events of these sources, or of all; for filters."""
        with self._reading() as connection:
            return event_table.event_names(connection, EventQuery(sources=sources))

    def series(
        self, name: str, source: str | None, from_s: float, to_s: float, wanted_s: float
    ) -> tuple[int, list[MetricSeries]]:
        """The step in seconds, and the series of one name, of one source or of all, in a period."""
        step_s = sample_table.step_for(from_s, wanted_s, time.time())
        with self._reading() as connection:
            return step_s, sample_table.find_series(connection, name, source, from_s, to_s, step_s)

    def count_series(self, edges_s: Sequence[float], source: str | None, by_label: bool) -> list[CountSeries]:
        """The counts of lines and zones between each two edges; see `count_table.find_counts`."""
        with self._reading() as connection:
            return count_table.find_counts(connection, edges_s, source, by_label)

    def peaks(self, from_s: float) -> dict[CountedArea, int]:
        """The highest number of objects in each zone since a time in seconds since 1970."""
        with self._reading() as connection:
            return count_table.find_peaks(connection, from_s)

    def occupancy(self) -> list[ZoneOccupancy]:
        """The latest number of objects in each zone since the server started."""
        return self._tally.occupancy()

    def review(self, query: ReviewQuery, limit: int) -> list[ReviewItem]:
        """The latest review items that match, newest first."""
        with self._reading() as connection:
            return review_table.find_items(connection, query, limit)

    def review_item(self, id_: int) -> ReviewItem | None:
        """A review item; None if there is none with this id."""
        with self._reading() as connection:
            return review_table.item_of(connection, id_)

    def review_events(self, id_: int) -> list[int]:
        """The numbers of the events of a review item, ascending."""
        with self._reading() as connection:
            return review_table.events_of(connection, id_)

    def count_open(self) -> dict[str, dict[str, int]]:
        """How many items no one has reviewed, by severity and source."""
        with self._reading() as connection:
            return review_table.count_open(connection)

    def read(self, query: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """What a query returns."""
        with self._reading() as connection:
            return query(connection)

    def change(self, write: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Write what a person changes, at once.

        Raises:
            StoreUnreadable: the file cannot be written.
        """
        try:
            with contextlib.closing(self._database.connect()) as connection, connection:
                return write(connection)
        except sqlite3.Error as error:
            raise StoreUnreadable(f"{self._database.path} cannot be written: {describe(error)}") from None

    def has_history(self, source: str) -> bool:
        """Whether there are events, review items, counts or samples of a source, also of one that was removed."""
        tables = ("events", "review_items", "counts", "series")
        query = " UNION ALL ".join(f"SELECT 1 FROM {table} WHERE source = :source" for table in tables)
        with self._reading() as connection:
            return connection.execute(f"{query} LIMIT 1", {"source": source}).fetchone() is not None

    def last_of_node(self, node: str) -> int:
        """The number that the latest event of a cluster's node has there: `node_event` of its data; 0 if none."""
        with self._reading() as connection:
            return event_table.last_of_node(connection, node)

    def used_bytes(self) -> int:
        """Size of what the file holds, in bytes."""
        with self._reading() as connection:
            return used_bytes(connection)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._database.reading() as connection:
                yield connection
        except sqlite3.Error as error:
            raise StoreUnreadable(f"{self._database.path} cannot be read: {describe(error)}") from None


def _counts(event: Event) -> list[MetricSample]:
    """What an event adds to the counts of lines and zones."""
    key = count_table.counted(event)
    return [] if key is None else [MetricSample("counts", event.source, f"{key.area.area} {key.kind}", 1.0)]
