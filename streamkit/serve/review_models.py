# SPDX-License-Identifier: Apache-2.0
"""Bodies of requests and responses about review items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Le, Len

from streamkit.runtime.preview.demand import Box
from streamkit.serve.api_models import RequestBody
from streamkit.serve.store.review_table import MAX_COMMENT, ReviewItem, Severity

_ItemId = Annotated[int, Ge(1), Le(2**53)]


@dataclass(slots=True)
class ReviewView:
    """What happened once: the events of a track, or of a rule about the whole frame.

    `text`, `kind` and `stage` are those of its first event, or of the one that made it an alert; `number` is that
    event's number. `name` is what people call the source. `image` tells whether `/review/{id}/image.jpg` exists; `box`
    is the object in it, and `path` has the time in seconds since 1970, x and y of its foot at each event, as shares of
    the frame. `reviewed_by` and `reviewed_s` are null until someone has reviewed it. A kept item is not removed by age.
    """

    id: int
    source: str
    name: str
    stage: str
    kind: str
    label: str | None
    track_id: int | None
    severity: Severity
    text: str
    started_s: float
    ended_s: float
    events: int
    number: int
    image: bool
    box: Box | None
    path: list[tuple[float, float, float]]
    reviewed_by: str | None
    reviewed_s: float | None
    kept: bool
    comment: str

    @classmethod
    def of(cls, item: ReviewItem, name: str) -> ReviewView:
        """An item as the API returns it."""
        values = {declared: getattr(item, declared) for declared in ReviewItem.__slots__}
        return cls(
            **{**values, "name": name, "text": _named(item.text, item.source, name), "image": item.image is not None}
        )


def _named(text: str, source: str, name: str) -> str:
    """A sentence that ends with its source, which people call `name`."""
    before, at_source, after = text.rpartition(f" at {source}")
    return f"{before} at {name}{after}" if at_source and not after[:1].isalnum() else text


@dataclass(slots=True)
class ReviewDetail:
    """An item with the numbers of its events, ascending."""

    item: ReviewView
    events: list[int]


@dataclass(slots=True)
class OpenCounts:
    """How many items no one has reviewed: alerts and notices, by source."""

    alert: dict[str, int]
    notice: dict[str, int]


@dataclass
class ReviewChange(RequestBody):
    """What a person changes about an item; null changes nothing."""

    reviewed: bool | None = None
    kept: bool | None = None
    comment: Annotated[str, Len(0, MAX_COMMENT)] | None = None


@dataclass
class ReviewedItems(RequestBody):
    """The ids of items that a person has reviewed, or with `reviewed: false` has not."""

    ids: Annotated[list[_ItemId], Len(1, 500)]
    reviewed: bool = True
