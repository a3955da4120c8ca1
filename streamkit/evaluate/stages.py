# SPDX-License-Identifier: Apache-2.0
"""The stages that evaluation adds to a graph: the truth as detections, all candidates, and what collects them."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from streamkit.core.data import Detections, Event, Frame, Surface
from streamkit.core.stage import FrameStage, Sink
from streamkit.evaluate.truth import Truth
from streamkit.stages.inference.postprocess import Postprocess


@dataclass(slots=True, frozen=True)
class CollectedFrame:
    """What was collected of a frame: its place and size, its table, and whether a detector left the frame out."""

    source: str
    index: int
    pts_s: float
    width: int
    height: int
    table: Detections
    skipped: bool
    failed: bool
    shape_scale: tuple[float, float] = (1.0, 1.0)


@dataclass(eq=False)
class CollectBoxes(Sink, name="collect_boxes", reads=("detections",), target=""):
    """Keep the boxes of every frame.

    Attributes:
        into: receives them.
        table: the detector whose table to keep; '' for all.
    """

    into: list[CollectedFrame]
    table: str = ""

    def write(self, frame: Frame) -> None:
        """Keep the frame's table."""
        table = frame.tables.get(self.table, Detections.empty()) if self.table else frame.detections
        skipped = self.table in frame._state.skipped_detectors
        failed = frame.error is not None
        size = frame.width, frame.height
        self.into.append(
            CollectedFrame(frame.source, frame.index, frame.pts_s, *size, table, skipped, failed, frame.shape_scale)
        )


@dataclass(eq=False)
class CollectEvents(Sink, name="collect_events", reads=("events",), target=""):
    """Keep the events of every frame."""

    into: list[Event]

    def write(self, frame: Frame) -> None:
        """Keep the frame's events."""
        self.into.extend(frame.events)


@dataclass(eq=False)
class CollectPixels(Sink, name="collect_pixels", reads=("pixels",), target=""):
    """Keep some frames with their images, on the host.

    Attributes:
        wanted: source and index of the frames.
        into: receives them.
    """

    wanted: frozenset[tuple[str, int]]
    into: list[Frame] = field(default_factory=list)

    def write(self, frame: Frame) -> None:
        """Keep the frame if it is wanted."""
        if (frame.source, frame.index) not in self.wanted or frame.surface is None:
            return
        from streamkit.ops.color import from_rgb, rgb

        color = frame.surface.color
        surface = Surface(from_rgb(rgb(frame), color), color)
        self.into.append(Frame(frame.source, frame.index, frame.pts_s, frame.width, frame.height, surface))


@dataclass(eq=False)
class TruthBoxes(FrameStage, name="truth_boxes", writes=("detections", "track_id")):
    """Give each frame the boxes and ids of the truth, as if a perfect detector and tracker had found them."""

    truth: Truth

    def process(self, frame: Frame) -> None:
        """Set the table of the frame."""
        frame.tables = {"truth": self.truth.table(frame.source, frame.index, frame.width, frame.height)}


class BoxCandidates(Postprocess, writes=("detections",)):
    """`postprocess` with other thresholds; boxes only, since masks of thousands of candidates take long."""

    def open(self) -> None:
        """Find the network's family, without its masks."""
        super().open()
        self._family: Any = copy.copy(self._family)
        self._family.rest = lambda *_: None
