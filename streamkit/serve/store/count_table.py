# SPDX-License-Identifier: Apache-2.0
"""The table of counts: who crossed a line or entered a zone, in steps of 15 minutes, over restarts and edits.

A count belongs to the names of its source, stage and line or zone, so it goes on when a line is moved. Every time zone
is a multiple of 15 minutes from UTC, so hours, days and weeks of any of them are sums of these steps.
"""

from __future__ import annotations

import bisect
import sqlite3
from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple

from streamkit.core.data import Event
from streamkit.core.sentences import event_label
from streamkit.runtime.preview.gallery import GalleryEvent

STEP_S = 900
"""Seconds of a stored step."""

KEEP_S = 2 * 366 * 86_400.0
"""How long counts are kept, in seconds: two years, so that a year can be compared with the one before."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS counts (
    at_s INTEGER NOT NULL, source TEXT NOT NULL, stage TEXT NOT NULL, area TEXT NOT NULL, kind TEXT NOT NULL,
    label TEXT NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (at_s, source, stage, area, kind, label)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS occupancy (
    at_s INTEGER NOT NULL, source TEXT NOT NULL, stage TEXT NOT NULL, area TEXT NOT NULL, peak INTEGER NOT NULL,
    PRIMARY KEY (at_s, source, stage, area)
) WITHOUT ROWID;
"""


class CountedArea(NamedTuple):
    """A line or zone of a source; `area` is the stage's id if the shape has no name."""

    source: str
    stage: str
    area: str


class CountKey(NamedTuple):
    """What is counted: `kind` is in, out, entered or left; `label` the class of the object."""

    area: CountedArea
    kind: str
    label: str


class CountSeries(NamedTuple):
    """The numbers of one key in consecutive periods."""

    key: CountKey
    values: list[int]


class ZoneOccupancy(NamedTuple):
    """How many objects are in a zone, and since when in seconds since 1970."""

    area: CountedArea
    present: int
    time_s: float


def counted(event: Event) -> CountKey | None:
    """What an event adds one to; None for other events."""
    label = event_label(event) or ""
    if event.kind == "crossed" and event.data.get("direction") in ("in", "out"):
        return CountKey(_area(event, "line"), event.data["direction"], label)
    if event.kind in ("entered", "left") and isinstance(event.data.get("count"), int):
        return CountKey(_area(event, "zone"), event.kind, label)
    return None


def _area(event: Event, shape: str) -> CountedArea:
    return CountedArea(event.source, event.stage, str(event.data.get(shape, event.stage)))


class CountTally:
    """Counts that wait to be written.

    The pipeline's threads `take` events; the thread that writes calls the other methods. However long nothing can be
    written, no count is lost and the memory grows with the number of lines and zones only.
    """

    def __init__(self) -> None:
        self._events: deque[GalleryEvent] = deque()
        self._counts: Counter[tuple[int, CountKey]] = Counter()
        self._peaks: dict[tuple[int, CountedArea], int] = {}
        self._occupancy: dict[CountedArea, ZoneOccupancy] = {}

    @property
    def waiting(self) -> bool:
        """Whether counts wait to be written."""
        return bool(self._events or self._counts or self._peaks)

    def take(self, events: Sequence[GalleryEvent]) -> None:
        """Queue events."""
        self._events.extend(events)

    def add_up(self) -> None:
        """Add the queued events to the sums."""
        while self._events:
            event = self._events.popleft()
            if (key := counted(event.event)) is None:
                continue
            at_s = int(event.time_s // STEP_S) * STEP_S
            self._counts[at_s, key] += 1
            if key.kind in ("entered", "left"):
                count = int(event.event.data["count"])
                self._occupancy[key.area] = ZoneOccupancy(key.area, count, event.time_s)
                self._peaks[at_s, key.area] = max(count, self._peaks.get((at_s, key.area), 0))

    def write(self, connection: sqlite3.Connection) -> None:
        """Add the sums to the tables; call `written` when the transaction is complete."""
        connection.executemany(
            "INSERT INTO counts VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET n = n + excluded.n",
            [(at_s, *key.area, key.kind, key.label, n) for (at_s, key), n in self._counts.items()],
        )
        connection.executemany(
            "INSERT INTO occupancy VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET peak = MAX(peak, excluded.peak)",
            [(at_s, *area, peak) for (at_s, area), peak in self._peaks.items()],
        )

    def written(self) -> None:
        """Forget the sums that `write` has written."""
        self._counts.clear()
        self._peaks.clear()

    def occupancy(self) -> list[ZoneOccupancy]:
        """The latest number of objects in each zone since the server started."""
        return list(self._occupancy.values())


def find_counts(
    connection: sqlite3.Connection, edges_s: Sequence[float], source: str | None, by_label: bool
) -> list[CountSeries]:
    """The counts between each two consecutive edges.

    Args:
        connection: the file.
        edges_s: the edges of the periods in seconds since 1970, ascending, at least two.
        source: id of a source; None for all.
        by_label: whether each class of objects has a series of its own; otherwise their label is "".
    """
    rows = connection.execute(
        "SELECT at_s, source, stage, area, kind, CASE WHEN ? THEN label ELSE '' END AS class, SUM(n) FROM counts "
        "WHERE at_s >= ? AND at_s < ? AND (? IS NULL OR source = ?) GROUP BY at_s, source, stage, area, kind, class",
        (by_label, edges_s[0], edges_s[-1], source, source),
    )
    series_by_key: dict[CountKey, CountSeries] = {}
    for at_s, source_id, stage, area, kind, label, n in rows:
        key = CountKey(CountedArea(source_id, stage, area), kind, label)
        series = series_by_key.setdefault(key, CountSeries(key, [0] * (len(edges_s) - 1)))
        series.values[bisect.bisect_right(edges_s, at_s) - 1] += n
    return sorted(series_by_key.values())


def find_peaks(connection: sqlite3.Connection, from_s: float) -> dict[CountedArea, int]:
    """The highest number of objects in each zone since a time in seconds since 1970."""
    rows = connection.execute(
        "SELECT source, stage, area, MAX(peak) FROM occupancy WHERE at_s >= ? GROUP BY source, stage, area", (from_s,)
    )
    return {CountedArea(source, stage, area): peak for source, stage, area, peak in rows}


def remove_before(connection: sqlite3.Connection, time_s: float) -> None:
    """Remove the steps that ended before a time in seconds since 1970."""
    for table in ("counts", "occupancy"):
        connection.execute(f"DELETE FROM {table} WHERE at_s < ?", (time_s - STEP_S,))
