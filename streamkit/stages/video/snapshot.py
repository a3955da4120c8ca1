# SPDX-License-Identifier: Apache-2.0
"""Sink: JPEG images of objects and frames at events, from the best view of each object."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from streamkit.core.data import Event, Frame
from streamkit.core.errors import OutputError
from streamkit.core.stage import Bytes, Count, Score, Seconds, stage
from streamkit.core.units import Of, WholePixels
from streamkit.io.outputs import AtomicFile
from streamkit.io.retention import OF_OBJECTS
from streamkit.io.still_images import JpegQuality, StillImage, jpegs, on_device, still_bytes, whole
from streamkit.stages.video.best_view import BestViews, ObjectView, cut_views, measure, views_of
from streamkit.stages.video.event_files import EVENT_NAMES, EventFileSink, add_to_event

__all__ = ["Snapshot"]

SAVED = "saved"
WRITTEN = "snapshots written"
FAILED = "snapshots failed"
ABANDONED = "snapshots given up"


@dataclass(slots=True, eq=False)
class _PendingSnapshot:
    """A snapshot to be written.

    Attributes:
        event: its event.
        time_s: wall clock of the event's frame, or None.
        until_s: how long it waits for a better view, in the source's time.
        view: the best view so far.
    """

    event: Event
    time_s: float | None
    until_s: float
    view: ObjectView | None


@stage(
    "snapshot",
    reads="pixels",
    emits=(SAVED,),
    unhide_option="show_hidden",
    device_copy="the images that are written go from device to host, cut out there; 16 bytes a view",
)
class Snapshot(EventFileSink):
    """Write JPEG images at events: the best view of the object, by size and sharpness, or the frame.

    The images are taken from the output of the stage above, so `from: draw` includes boxes, and hides what `draw`
    hides. The best view is the one with the largest area x (1 + the variance of the Laplacian), before or after the
    event. A file appears under its name when it is complete; then `saved` is emitted with its path.
    """

    when: Annotated[str | list[str], f"the events that make snapshots, {EVENT_NAMES}."]
    capture: Annotated[Literal["object", "frame"], "the object of the event, or the frame."] = "object"
    of: Annotated[Of | None, "the detector of the objects, if there are several, as in detect or detect.person."] = None
    pad: Annotated[Score, "share of the box that is added on each side of the object."] = 0.1
    before: Annotated[Seconds | None, "maximum age of a view before the event; 0 takes none. 10s if not set."] = None
    after: Annotated[Seconds | None, "how long to wait for a better view after the event. 2s if not set."] = None
    max_size: Annotated[WholePixels, "maximum length of the image's longer side."] = 1280
    quality: Annotated[JpegQuality, "of the JPEG."] = 90
    path: Annotated[
        str,
        "the file, with {source}, {time} (UTC, or the video's own), {date} (UTC, or `video`), {stage} and {kind} of "
        "the event, {label} and {track_id} of the object; if the name is taken, -2 is appended.",
    ] = "snapshots/{source}/{date}/{time}_{label}_{track_id}.jpg"
    buffer: Annotated[Bytes, "device memory that views may take; the oldest are dropped."] = 128_000_000
    max_tracks: Annotated[Count, "number of objects whose best view is kept; the oldest are dropped."] = 2000
    show_hidden: Annotated[bool, "allow images to show what another stage of the pipeline hides."] = False

    files: ClassVar[str] = "snapshots"
    placeholders: ClassVar[tuple[str, ...]] = OF_OBJECTS

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.path.endswith((".jpg", ".jpeg")) and "{source}" in self.path and "{time}" in self.path):
            reason = 'end in .jpg or .jpeg and have "{source}" and "{time}" in it, so that each image has its own name'
            raise ValueError(f"path must {reason}, got {self.path!r}")
        if not self.when:
            raise ValueError("when must name an event, as in crossing.crossed")
        if self.capture == "frame" and any(option is not None for option in (self.before, self.after, self.of)):
            raise ValueError(
                "before, after and of apply to the best view of an object; leave them out with capture: frame"
            )
        self._before_s = 0.0 if self.capture == "frame" else 10.0 if self.before is None else self.before
        self._after_s = 2.0 if self.after is None else self.after
        self._frames: list[Frame] = []
        self._views = BestViews(self._before_s)
        self._waiting: dict[str, list[_PendingSnapshot]] = {}
        self._has_room = True
        self._free_bytes = self.buffer  # a lower bound; the views in memory are counted only when it is used up

    # -------------------------------------------------------------------------------------------------- as a sink

    def write(self, frame: Frame) -> None:
        """Collect the frame; all frames of a batch are processed together."""
        failed = frame.error is not None  # maybe in the stage that hides
        self._frames.append(replace(frame, surface=None) if failed else frame)

    def flush(self) -> None:
        """Process events and views of a batch's frames, in their order, and write what is due."""
        frames = self._frames
        self._frames = []
        due: list[tuple[_PendingSnapshot, Frame | None]] = []
        for frame, seen in zip(frames, self._views_of(frames), strict=True):
            due += [(pending, frame) for pending in self._update(frame, seen)]
        cut_views(
            [*self._views_in_memory(), *(pending.view for pending, _ in due if pending.view is not None)], self.max_size
        )
        self._save(due)
        self._retention.tidy(time.monotonic())

    def end(self, source: str) -> None:
        """Write snapshots that wait for better views of the source; no frame is left to carry `saved`."""
        self._save([(pending, None) for pending in self._waiting.pop(source, [])])
        self._views.end(source)

    def close(self) -> None:
        """Write the waiting snapshots.

        Raises:
            OutputError: some images could not be written; raised only at the end of the run.
        """
        for source in list(self._waiting):
            self.end(source)
        self.raise_failed()

    # ------------------------------------------------------------------------------------------------------ views

    def _views_of(self, frames: Sequence[Frame]) -> list[dict[int, ObjectView]]:
        """Return for each frame the views that may be needed, by track; all frames are measured at once."""
        if self.capture == "frame":
            return [{} for _ in frames]
        sources = {*self._waiting, *(frame.source for frame in frames if any(map(self._named, frame.events)))}
        views_by_frame = [
            dict(views_of(frame, self.of, self.pad, self.max_size))
            if self._before_s > 0 or frame.source in sources
            else {}
            for frame in frames
        ]
        measure([view for views in views_by_frame for view in views.values()])
        return views_by_frame

    def _named(self, event: Event) -> bool:
        return event in self._when and event.stage != self.context.id

    def _update(self, frame: Frame, seen: dict[int, ObjectView]) -> list[_PendingSnapshot]:
        """Process the frame's views and events, and return the snapshots to write now."""
        source = frame.source
        now_s = frame.pts_s
        waiting = self._waiting.setdefault(source, [])
        for track, view in seen.items():
            self._views.offer((source, track), view)
            for pending in waiting:
                if pending.event.track_id == track and view.better(pending.view):
                    pending.view = view
        waiting += [self._pending(frame, event, seen) for event in frame.events if self._named(event)]
        self._free_bytes -= sum(view.bytes for view in seen.values())
        due = [pending for pending in waiting if not pending.event.pts_s <= now_s < pending.until_s]
        self._waiting[source] = [pending for pending in waiting if pending not in due]
        self._views.sweep(source, now_s)
        due += self._limit(source)
        if not self._waiting[source]:
            del self._waiting[source]
        return due

    def _pending(self, frame: Frame, event: Event, seen: dict[int, ObjectView]) -> _PendingSnapshot:
        """Return the snapshot of an event, with the best view so far."""
        now_s = frame.pts_s
        track = event.track_id
        if self.capture == "frame" and (part := whole(frame)) is not None:
            size = still_bytes(part, self.max_size)
            self._free_bytes -= size
            return _PendingSnapshot(
                event, frame.time_s, now_s, ObjectView(now_s, frame.index, "frame", None, part, size)
            )
        if self.capture == "frame" or track is None:
            return _PendingSnapshot(event, frame.time_s, now_s, None)
        best = self._views.get((frame.source, track), now_s) or seen.get(track)
        return _PendingSnapshot(event, frame.time_s, now_s + self._after_s, best)

    def _views_in_memory(self) -> list[ObjectView]:
        """Return every view in memory, once."""
        views = [
            *self._views.best.values(),
            *(pending.view for snapshots in self._waiting.values() for pending in snapshots),
        ]
        return list({id(view): view for view in views if view is not None}.values())

    def _limit(self, source: str) -> list[_PendingSnapshot]:
        """Enforce the limits: drop the oldest views; if that is not enough, return waiting snapshots to write now."""
        best = self._views.best
        while len(best) > self.max_tracks or (best and self._over()):
            del best[next(iter(best))]
            self.context.counters.add("views dropped: out of memory")
        early: list[_PendingSnapshot] = []
        while self._waiting[source] and self._over():
            early.append(self._waiting[source].pop(0))
            self.context.counters.add("snapshots written early: out of memory")
        return early

    def _over(self) -> bool:
        if self._free_bytes < 0:
            self._free_bytes = self.buffer - sum(view.bytes for view in self._views_in_memory())
        return self._free_bytes < 0

    def _save(self, due: Sequence[tuple[_PendingSnapshot, Frame | None]]) -> None:
        """Write snapshots and emit `saved` on the frame, if there is one; give up those without a view."""
        count = self.context.counters.add
        ready: list[tuple[_PendingSnapshot, Frame | None, ObjectView, StillImage]] = []
        for pending, frame in due:
            if pending.view is not None and pending.view.still is not None:
                ready.append((pending, frame, pending.view, pending.view.still))
            elif self.capture == "frame":
                count(f"{ABANDONED}: the frame has no pixels")
            elif pending.event.track_id is None:
                count(f"{ABANDONED}: the event has no object; capture: frame saves the frame")
            else:
                count(f"{ABANDONED}: the object was not seen")
        if ready and self.check_is_due():
            self._has_room = self.has_room()
        if ready and not self._has_room:
            count(f"{ABANDONED}: disk full", len(ready))
            return
        stills = [still for *_, still in ready]
        if stills and on_device(stills[0]):
            count("snapshots to host", len(stills))
        for (pending, frame, view, _), jpeg in zip(ready, jpegs(stills, self.max_size, self.quality), strict=True):
            try:
                path = self._write(pending, view, jpeg)
            except OutputError as error:
                count(FAILED)
                self.failed(error)
                continue
            count(WRITTEN)
            if frame is None:
                count("snapshots without an event: their source ended")
            else:
                self._emit_saved(frame, pending.event, view, str(path))

    def _write(self, pending: _PendingSnapshot, view: ObjectView, jpeg: bytes) -> Path:
        """Write a file; raise OutputError."""
        event = pending.event
        track = "none" if event.track_id is None else str(event.track_id)
        path = self._retention.path(
            event.source, event.stage, event.kind, pending.time_s, event.pts_s, label=view.label, track_id=track
        )
        AtomicFile(path).write(jpeg)
        return path

    def _emit_saved(self, frame: Frame, event: Event, view: ObjectView, path: str) -> None:
        """Emit `saved`; if the event is of this frame, add the path to its data."""
        for place, frame_event in enumerate(frame.events):
            if frame_event is event:
                add_to_event(frame, place, {"snapshot": path})
        about: dict[str, Any] = {"path": path, "label": view.label}
        if view.box is not None:
            about["box"] = view.box
        of = {"stage": event.stage, "kind": event.kind, "frame": event.frame, "pts_s": round(event.pts_s, 6)}
        frame.emit(SAVED, event.track_id, **about, frame=view.frame, pts_s=round(view.pts_s, 6), of=of)
