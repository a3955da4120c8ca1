# SPDX-License-Identifier: Apache-2.0
"""Response bodies of events and charts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from streamkit.core.sentences import event_label, sentence
from streamkit.serve.store.event_table import StoredEvent


@dataclass(slots=True)
class EventView:
    """An event of one frame.

    `text` says in a sentence what happened. `time_s` is the wall clock in seconds since 1970, `pts_s` the time in the
    source. `label` is the class of the object. `image`, `clip` and `snapshot` are true if `/events/{number}/image.jpg`,
    `clip.mp4` and `snapshot.jpg` exist; `clip_s` is the position of the event in its clip, in seconds.
    """

    number: int
    time_s: float
    source: str
    frame: int
    pts_s: float
    kind: str
    stage: str
    track_id: int | None
    label: str | None
    text: str
    data: dict[str, Any]
    image: bool
    clip: bool
    clip_s: float | None
    snapshot: bool

    @classmethod
    def of(
        cls,
        stored: StoredEvent,
        names: Mapping[str, str] | None = None,
        redacted: Callable[[Any], Any] = lambda value: value,
    ) -> EventView:
        """An event as the API returns it; a file that was removed meanwhile is not offered.

        Args:
            stored: the event.
            names: what people call the sources, by id, for the sentence; others are called by their id.
            redacted: returns a text or the data without what the client may not see.
        """
        event = stored.event
        clip = _exists(stored, stored.clip)
        snapshot = _exists(stored, stored.snapshot)
        return cls(
            number=stored.number,
            time_s=stored.time_s,
            source=event.source,
            frame=event.frame,
            pts_s=round(event.pts_s, 6),
            kind=event.kind,
            stage=event.stage,
            track_id=event.track_id,
            label=event_label(event),
            text=redacted(sentence(replace(event, source=(names or {}).get(event.source, event.source)))),
            data=redacted(event.data),
            image=stored.image,
            clip=clip,
            clip_s=stored.clip_s if clip else None,
            snapshot=snapshot,
        )


def _exists(stored: StoredEvent, path: str | None) -> bool:
    """Whether a file is there; one of a cluster's node is on that machine."""
    return path is not None and ("node_event" in stored.event.data or Path(path).is_file())


@dataclass(slots=True)
class EventNames:
    """The sources, stages, kinds and labels of the stored events, for filters."""

    sources: list[str]
    stages: list[str]
    kinds: list[str]
    labels: list[str]


@dataclass(slots=True)
class StoreView:
    """The store of events: the size of what it holds, what was lost or removed, by cause, and what is wrong.

    `problem` says why events cannot be stored at present; empty if they can.
    """

    bytes: int
    counts: dict[str, int]
    problem: str


@dataclass(slots=True)
class SourceTimeline:
    """The number of events of one source in each part of the period."""

    source: str
    counts: list[int]


@dataclass(slots=True)
class Timeline:
    """Events over time: `counts` has one number for each part of `bin_s` seconds, from `from_s` on."""

    from_s: float
    to_s: float
    bin_s: float
    sources: list[SourceTimeline]


@dataclass(slots=True)
class SeriesValues:
    """One line of a chart: pairs of the step's start in seconds since 1970, and its value.

    `source` is empty for the pipeline as a whole. `label` tells several lines of one source apart.
    """

    source: str
    label: str
    values: list[tuple[float, float]]


@dataclass(slots=True)
class SeriesView:
    """A chart: steps of `step_s` seconds. With `sums`, values are numbers in a step, otherwise means of a step."""

    name: str
    unit: str
    sums: bool
    from_s: float
    to_s: float
    step_s: int
    series: list[SeriesValues]
