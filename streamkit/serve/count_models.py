# SPDX-License-Identifier: Apache-2.0
"""Response bodies of counts, occupancy and heat maps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CountRow:
    """What one line or zone of a source counted in each period.

    `area` is the name of the line or zone, or the stage's id. `kind` is in or out for a line, entered or left for a
    zone. `label` is the class of the objects, empty for all together. `before` has the periods a week earlier; empty
    unless the request has `compare`.
    """

    source: str
    name: str
    stage: str
    area: str
    kind: str
    label: str
    values: list[int]
    before: list[int]


@dataclass(slots=True)
class CountsView:
    """Counts by hour, day or week of the time zone `zone`.

    `edges` are the bounds of the periods in seconds since 1970, one more than there are values.
    """

    step: str
    zone: str
    edges: list[float]
    rows: list[CountRow]


@dataclass(slots=True)
class OccupancyView:
    """How many objects are in a zone now, since `since_s` in seconds since 1970, and at most today.

    `count` is null if it is unknown: the source has not been running since the last change.
    """

    source: str
    name: str
    stage: str
    area: str
    count: int | None
    since_s: float
    peak_today: int


@dataclass(slots=True)
class HeatMapView:
    """An image of where objects were, and when its file was written, in seconds since 1970."""

    source: str
    name: str
    stage: str
    time_s: float
