# SPDX-License-Identifier: Apache-2.0
"""The table of samples: each is added to sums of 10 s, 1 min and 10 min, which are kept for different times."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

STEPS_S = {10: 3_600.0, 60: 86_400.0, 600: 30 * 86_400.0}
"""The lengths of the steps in seconds, and how long each is kept."""

SUMS = frozenset({"dropped", "counts"})
"""Series whose values are numbers of things in a step; the others are means."""


class MetricSample(NamedTuple):
    """One value of one series.

    Attributes:
        name: what it measures, such as `frames`.
        source: id of the source; empty for the whole pipeline.
        label: tells apart several series of a source, such as the lines; empty if there is one.
        value: the value.
    """

    name: str
    source: str
    label: str
    value: float


class MetricSeries(NamedTuple):
    """The values of a series: (start of the step in seconds since 1970, value)."""

    source: str
    label: str
    values: list[tuple[float, float]]


def add_samples(connection: sqlite3.Connection, time_s: float, samples: Iterable[MetricSample]) -> None:
    """Add samples of one moment."""
    for sample in samples:
        key = (sample.name, sample.source, sample.label)
        connection.execute("INSERT OR IGNORE INTO series (name, source, label) VALUES (?, ?, ?)", key)
        connection.executemany(
            "INSERT INTO samples SELECT id, ?, ?, 1, ? FROM series WHERE (name, source, label) = (?, ?, ?) "
            "ON CONFLICT DO UPDATE SET n = n + 1, total = total + excluded.total",
            [(step_s, int(time_s // step_s) * step_s, sample.value, *key) for step_s in STEPS_S],
        )


def step_for(from_s: float, wanted_s: float, now_s: float) -> int:
    """The shortest stored step that reaches back to `from_s` and is at least as long as wanted; else the longest."""
    fits = (
        step_s
        for step_s, retention_s in STEPS_S.items()
        if step_s >= wanted_s and now_s - from_s <= retention_s + step_s
    )
    return next(fits, max(STEPS_S))


def find_series(
    connection: sqlite3.Connection, name: str, source: str | None, from_s: float, to_s: float, step_s: int
) -> list[MetricSeries]:
    """The series of one name, of one source or of all, in a period."""
    rows = connection.execute(
        "SELECT source, label, at_s, n, total FROM series JOIN samples ON series = id "
        "WHERE name = ? AND (? IS NULL OR source = ?) AND step_s = ? AND at_s >= ? AND at_s < ? "
        "ORDER BY source, label, at_s",
        (name, source, source, step_s, from_s // step_s * step_s, to_s),
    )
    series_by_label: dict[tuple[str, str], MetricSeries] = {}
    for of, label, at_s, n, total in rows:
        series = series_by_label.setdefault((of, label), MetricSeries(of, label, []))
        series.values.append((at_s, round(total if name in SUMS else total / n, 4)))
    return list(series_by_label.values())


def thin(connection: sqlite3.Connection, now_s: float) -> int:
    """Remove the steps that are kept no longer, and series without any; return the number of removed steps."""
    removed = 0
    for (id_,) in connection.execute("SELECT id FROM series").fetchall():
        for step_s, retention_s in STEPS_S.items():
            old = "DELETE FROM samples WHERE series = ? AND step_s = ? AND at_s < ?"
            removed += connection.execute(old, (id_, step_s, now_s - retention_s - step_s)).rowcount
    connection.execute("DELETE FROM series WHERE id NOT IN (SELECT series FROM samples WHERE step_s = 600)")
    return removed
