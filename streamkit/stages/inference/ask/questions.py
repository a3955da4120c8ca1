# SPDX-License-Identifier: Apache-2.0
"""Questions: the images that each collects, and what came of it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streamkit.core.data import Event
from streamkit.io.still_images import StillImage
from streamkit.stages.inference.select_objects import TrackCache
from streamkit.stages.video.best_view import ObjectView


@dataclass(slots=True, eq=False)
class Question:
    """A question about a track or a frame.

    Attributes:
        state: the questions of its source.
        source: the source's id.
        event: the event that it is about; None if it is asked once for each track.
        track_id: the track; None for a question about a frame.
        label: the track's class, as far as known.
        pts_s: when it came up, in the source's time.
        index: the frame on which it came up, or was asked; none before it has the answer.
        until_s: when it is asked at the latest.
        views: its images: the best view so far, or one for each part of a strip.
        created_s: when it came up, on the monotonic clock.
        images: the images once they are on the host.
    """

    state: SourceQuestions
    source: str
    event: Event | None
    track_id: int | None
    label: str | None
    pts_s: float
    index: int
    until_s: float
    views: list[ObjectView] = field(default_factory=list)
    created_s: float = field(default_factory=time.monotonic)
    images: list[StillImage] = field(default_factory=list)

    def offer(self, view: ObjectView, frames: int) -> None:
        """Take a view: the best one if the question has one image, else the first of each part of its time."""
        if self.track_id is not None:
            self.label = self.label or view.label
        if frames == 1:
            if view.better(self.views[0] if self.views else None):
                self.views = [view]
        elif len(self.views) < frames:
            step_s = (self.until_s - self.pts_s) / (frames - 1)
            if not self.views or view.pts_s - self.views[0].pts_s >= len(self.views) * step_s - 1e-6:
                self.views.append(view)

    def due(self, now_s: float, frames: int) -> bool:
        """Whether it has waited long enough, or has all its images."""
        return not self.pts_s <= now_s < self.until_s or (1 < frames == len(self.views))

    @property
    def about(self) -> tuple[Any, ...]:
        """What it is about: an equal question that is open need not be asked again."""
        if self.track_id is not None or self.event is None:
            return (self.track_id,)
        return (None, self.event.stage, self.event.kind, self.event.data.get("rule"))


@dataclass(slots=True, eq=False)
class QuestionOutcome:
    """What came of a question.

    Attributes:
        question: the question.
        answer: the answer by key; None if there is none.
        counts: what it adds to the counters.
        latency_s: time from the question's event to the answer, in seconds.
        cached: whether it is the answer to an earlier question about the track.
    """

    question: Question
    answer: dict[str, Any] | None
    counts: Counter[str]
    latency_s: float = 0.0
    cached: bool = False


@dataclass(slots=True, eq=False)
class AskedTrack:
    """A track that was asked about.

    Attributes:
        seen_s: when it was last seen.
        answer: the answer; None without one.
        attributes: the answer as attributes of the object.
        answered_s: when the answer came, in the source's time.
        index: the frame with which it came.
    """

    seen_s: float
    answer: dict[str, Any] | None = None
    attributes: Mapping[str, Any] | None = None
    answered_s: float = 0.0
    index: int = 0


@dataclass(slots=True, eq=False)
class SourceQuestions:
    """The questions of one source.

    Attributes:
        collecting: questions that collect images.
        open: what the questions that are not answered are about.
        tracks: the tracks that were asked about.
        outcomes: answers that the source's next frame carries.
        frame_attributes: the newest answer about whole frames.
        ended: whether the source has no further frames.
    """

    collecting: list[Question] = field(default_factory=list)
    open: set[tuple[Any, ...]] = field(default_factory=set)
    tracks: TrackCache = field(default_factory=TrackCache)
    outcomes: list[QuestionOutcome] = field(default_factory=list)
    frame_attributes: dict[str, Any] = field(default_factory=dict)
    ended: bool = False
