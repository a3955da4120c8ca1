"""Sink: JPEG images of objects and frames at events, from the best view of each object."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from streamkit.core.data import Event, EventFilter, Frame
from streamkit.core.errors import OutputError
from streamkit.core.stage import Bytes, Count, Score, Seconds, Sink, stage
from streamkit.core.units import Of
from streamkit.io.outputs import WholeFile, check_path, output_error
from streamkit.io.retention import OF_OBJECTS, FileRetention, RetentionOptions, removable
from streamkit.io.still_images import JpegQuality, StillImage, jpegs, on_device, still_bytes, whole
from streamkit.stages.video.best_view import BestViews, ObjectView, cut_views, measure, views_of

__all__ = ["Snapshot"]

SAVED = "saved"
WRITTEN, FAILED, GIVEN_UP = "snapshots written", "snapshots failed", "snapshots given up"

_LOOK_EVERY_S = 5.0


@dataclass(slots=True, eq=False)
class _Waiting:
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
    writes="events",
    target="",
    emits=(SAVED,),
    unhide_option="clear",
    device_copy="the pictures that are written go from device to host, cut out there; 16 bytes a view",
)
class Snapshot(Sink):
    """Write JPEG images at events: the best view of the object, by size and sharpness, or the frame.

    The images are taken from the output of the stage above, so `from: draw` includes boxes, and hides what `draw`
    hides. The best view is the one with the largest area x (1 + the variance of the Laplacian), before or after the
    event. A file appears under its name when it is complete; then `saved` is emitted with its path.

    Options:
        when: the events that make snapshots, as STAGE.KIND, such as crossing.crossed, or STAGE for all of a stage's;
            one or a list.
        what: the object of the event, or the frame.
        of: the detector whose objects are meant, if there are several, as in detect or detect.person.
        pad: share of the box that is added on each side of the object.
        before: maximum age of a view from before the event; 0 takes none. 10s if not set.
        within: how long to wait for a better view after the event. 2s if not set.
        max_size: maximum length of the image's longer side, in pixels.
        quality: of the JPEG.
        path: the file, with {source}, {time} (UTC, or the video's own), {date} (UTC, or `video`), {stage} and {kind} of
            the event, {label} and {track_id} of the object; if the name is taken, -2 is appended.
        retention: what is kept of the pictures, such as {age: 30d, size: 5GB}; the oldest go. If not set, all of them.
        min_free: while less than this is free on the disk, the oldest images are removed; if that is not enough, none
            are written. If not set, none are removed, and none are written below 100MB.
        buffer: device memory that views may take; the oldest are dropped.
        tracks: number of objects whose best view is kept; the oldest are dropped.
        clear: allow images to show what another stage of the pipeline hides.
    """

    when: str | list[str]
    what: Literal["object", "frame"] = "object"
    of: Of | None = None
    pad: Score = 0.1
    before: Seconds | None = None
    within: Seconds | None = None
    max_size: Count = 1280
    quality: JpegQuality = 90
    path: str = "snapshots/{source}/{date}/{time}_{label}_{track_id}.jpg"
    retention: RetentionOptions | None = None
    min_free: Bytes | None = None
    buffer: Bytes = 128_000_000
    tracks: Count = 2000
    clear: bool = False

    def __post_init__(self) -> None:
        check_path(self.path, OF_OBJECTS)
        if not (self.path.endswith((".jpg", ".jpeg")) and "{source}" in self.path and "{time}" in self.path):
            why = 'end in .jpg or .jpeg and have "{source}" and "{time}" in it, so that no two pictures have one name'
            raise ValueError(f"path must {why}, got {self.path!r}")
        if not self.when:
            raise ValueError("when must name an event, as in crossing.crossed")
        if self.what == "frame" and any(one is not None for one in (self.before, self.within, self.of)):
            raise ValueError(
                "before, within and of look for the best view of an object; leave them out with what: frame"
            )
        if (self.retention is not None or self.min_free is not None) and not removable(self.path):
            raise ValueError(
                "retention and min_free need a path that begins with a folder, so that nothing but snapshots is ever "
                f"removed, got {self.path!r}"
            )
        self._when = EventFilter(self.when)
        self._before_s = 0.0 if self.what == "frame" else 10.0 if self.before is None else self.before
        self._within_s = 2.0 if self.within is None else self.within
        self._frames: list[Frame] = []
        self._sightings = BestViews(self._before_s)
        self._waiting: dict[str, list[_Waiting]] = {}
        self._looked_s, self._room = -_LOOK_EVERY_S, True
        self._lost = ""  # why a picture could not be written, the last time
        self._left = self.buffer  # of it, at least; what is held is counted only where this is used up

    # -------------------------------------------------------------------------------------------------- as a sink

    def open(self) -> None:
        """Remove incomplete images that a crash left."""
        counters, say = self.context.counters, self.context.log
        self._shelf = FileRetention(self.path, self.retention, self.min_free, counters, say, "snapshots")
        self._shelf.sweep()

    def write(self, frame: Frame) -> None:
        """Collect the frame; all frames of a batch are processed together."""
        self._frames.append(frame)

    def flush(self) -> None:
        """Process events and views of a batch's frames, in their order, and write what is due."""
        frames, self._frames = self._frames, []
        due: list[tuple[_Waiting, Frame | None]] = []
        for frame, seen in zip(frames, self._seen(frames), strict=True):
            due += [(one, frame) for one in self._look(frame, seen)]
        cut_views([*self._held(), *(one.view for one, _ in due if one.view is not None)], self.max_size)
        self._save(due)
        self._shelf.tidy(time.monotonic())

    def end(self, source: str) -> None:
        """Write snapshots that wait for better views of the source; no frame is left to carry `saved`."""
        self._save([(one, None) for one in self._waiting.pop(source, [])])
        self._sightings.end(source)

    def close(self) -> None:
        """Write the waiting snapshots.

        Raises:
            OutputError: some images could not be written; raised only at the end of the run.
        """
        for source in list(self._waiting):
            self.end(source)
        if self._lost:
            count = self.context.counters[FAILED]
            what = f"{count} snapshot{'s' * (count > 1)} under {self._shelf.root}"
            raise OutputError(f"{self.context.id}: {what} could not be written: {self._lost}")

    # ------------------------------------------------------------------------------------------------------ views

    def _seen(self, frames: Sequence[Frame]) -> list[dict[int, ObjectView]]:
        """Return for each frame the views that may be needed, by track; all frames are measured at once."""
        if self.what == "frame":
            return [{} for _ in frames]
        asked = {*self._waiting, *(frame.source for frame in frames if any(map(self._named, frame.events)))}
        found = [
            dict(views_of(frame, self.of, self.pad, self.max_size))
            if self._before_s > 0 or frame.source in asked
            else {}
            for frame in frames
        ]
        measure([view for views in found for view in views.values()])
        return found

    def _named(self, event: Event) -> bool:
        return event in self._when and event.stage != self.context.id

    def _look(self, frame: Frame, seen: dict[int, ObjectView]) -> list[_Waiting]:
        """Process the frame's views and events, and return the snapshots to write now."""
        source, now_s = frame.source, frame.pts_s
        waiting = self._waiting.setdefault(source, [])
        for track, view in seen.items():
            self._sightings.offer((source, track), view)
            for one in waiting:
                if one.event.track_id == track and view.better(one.view):
                    one.view = view
        waiting += [self._asked(frame, event, seen) for event in frame.events if self._named(event)]
        self._left -= sum(view.bytes for view in seen.values())
        due = [one for one in waiting if not one.event.pts_s <= now_s < one.until_s]
        self._waiting[source] = [one for one in waiting if one not in due]
        self._sightings.sweep(source, now_s)
        due += self._bound(source)
        if not self._waiting[source]:
            del self._waiting[source]
        return due

    def _asked(self, frame: Frame, event: Event, seen: dict[int, ObjectView]) -> _Waiting:
        """Return the snapshot of an event, with the best view so far."""
        now_s, track = frame.pts_s, event.track_id
        if self.what == "frame" and (part := whole(frame)) is not None:
            size = still_bytes(part, self.max_size)
            self._left -= size
            return _Waiting(event, frame.time_s, now_s, ObjectView(now_s, frame.index, "frame", None, part, size))
        if self.what == "frame" or track is None:
            return _Waiting(event, frame.time_s, now_s, None)
        best = self._sightings.get((frame.source, track), now_s) or seen.get(track)
        return _Waiting(event, frame.time_s, now_s + self._within_s, best)

    def _held(self) -> list[ObjectView]:
        """Return every view in memory, once."""
        views = [*self._sightings.best.values(), *(one.view for some in self._waiting.values() for one in some)]
        return list({id(view): view for view in views if view is not None}.values())

    def _bound(self, source: str) -> list[_Waiting]:
        """Enforce the limits: drop the oldest views; if that is not enough, return waiting snapshots to write now."""
        best = self._sightings.best
        while len(best) > self.tracks or (best and self._over()):
            self._sightings.drop()
            self.context.counters.add("views dropped: out of memory")
        early: list[_Waiting] = []
        while self._waiting[source] and self._over():
            early.append(self._waiting[source].pop(0))
            self.context.counters.add("snapshots written early: out of memory")
        return early

    def _over(self) -> bool:
        if self._left < 0:
            self._left = self.buffer - sum(view.bytes for view in self._held())
        return self._left < 0

    def _save(self, due: Sequence[tuple[_Waiting, Frame | None]]) -> None:
        """Write snapshots and emit `saved` on the frame, if there is one; give up those without a view."""
        count = self.context.counters.add
        ready: list[tuple[_Waiting, Frame | None, ObjectView, StillImage]] = []
        for one, frame in due:
            if one.view is not None and one.view.still is not None:
                ready.append((one, frame, one.view, one.view.still))
            elif self.what == "frame":
                count(f"{GIVEN_UP}: the frame has no picture")
            elif one.event.track_id is None:
                count(f"{GIVEN_UP}: the event is of no object; what: frame takes the frame")
            else:
                count(f"{GIVEN_UP}: the object was not seen")
        if ready and not self._there_is_room():
            count(f"{GIVEN_UP}: no room on the disk", len(ready))
            return
        stills = [still for *_, still in ready]
        if stills and on_device(stills[0]):
            count("snapshots to host", len(stills))
        for (one, frame, view, _), made in zip(ready, jpegs(stills, self.max_size, self.quality), strict=True):
            try:
                path = self._write(one, view, made)
            except OutputError as error:
                count(FAILED)
                self._lost = str(error).rpartition(": ")[2]
                self.context.log(
                    f"{self.context.id}: snapshots under {self._shelf.root} cannot be written: {self._lost}"
                )
                continue
            count(WRITTEN)
            if frame is None:
                count("snapshots without an event: their source had ended")
            else:
                self._tell(frame, one.event, view, str(path))

    def _write(self, one: _Waiting, view: ObjectView, made: bytes) -> Path:
        """Write a file; raise OutputError."""
        event = one.event
        track = "none" if event.track_id is None else str(event.track_id)
        path = self._shelf.path(
            event.source, event.stage, event.kind, one.time_s, event.pts_s, label=view.label, track_id=track
        )
        file = WholeFile(path)
        part = file.begin()
        try:
            part.write_bytes(made)
        except OSError as error:
            file.discard()
            raise output_error(path, error) from error
        file.finish()
        return path

    def _tell(self, frame: Frame, event: Event, view: ObjectView, path: str) -> None:
        """Emit `saved`; if the event is of this frame, add the path to its data."""
        frame.events = list(frame.events)
        for place, own in enumerate(frame.events):
            if own is event:  # an event's own data belongs to other branches as well
                frame.events[place] = replace(event, data={**event.data, "snapshot": path})
        about: dict[str, Any] = {"path": path, "label": view.label}
        if view.box is not None:
            about["box"] = view.box
        of = {"stage": event.stage, "kind": event.kind, "frame": event.frame, "pts_s": round(event.pts_s, 6)}
        frame.emit(SAVED, event.track_id, **about, frame=view.frame, pts_s=round(view.pts_s, 6), of=of)

    def _there_is_room(self) -> bool:
        now_s = time.monotonic()
        if now_s - self._looked_s > _LOOK_EVERY_S:
            self._looked_s, self._room = now_s, self._shelf.room()
            if not self._room:
                self.context.log(self._shelf.full())
        return self._room
