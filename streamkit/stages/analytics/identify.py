# SPDX-License-Identifier: Apache-2.0
"""`identify`: one identity for an object over all cameras."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from streamkit.analytics.geometry import FourPoints, Plane, read_homography
from streamkit.analytics.identity_matcher import IdentityEvent, IdentityMatcher, MatchOptions, Sighting
from streamkit.analytics.identity_state import as_state, restore
from streamkit.analytics.per_source_steps import SourceStep
from streamkit.analytics.shapes import check_units
from streamkit.analytics.track_store import Columns
from streamkit.core.data import Batch
from streamkit.core.stage import Count, Score, Seconds, stage
from streamkit.core.units import OptionGroup, Unit
from streamkit.io.input_path import InputPath
from streamkit.stages.analytics.track_analytics import TrackAnalytics

logger = logging.getLogger(__name__)

_KMH = 3.6  # km/h in a meter per second
_SAVE_EVERY_S = 5.0

Meters = Annotated[float, Unit("meters", minimum=0)]
Kmh = Annotated[float, Unit("km/h", minimum=0)]


class CameraPlane(OptionGroup, total=False):
    """Where the ground is in a camera's frame: four points, or the file of a homography.

    Keys:
        points: four points of the frame, in order around an area of flat ground.
        ground: these points on the ground, in meters, in coordinates that all cameras share.
        file: a file with the homography from the frame to the ground, in meters: three rows of three numbers.
    """

    points: FourPoints
    ground: FourPoints
    file: InputPath


@stage(
    "identify",
    reads=("track_id", "embedding"),
    writes=("identity", "events"),
    columns={"identity": "int"},
    emits=("seen", "left"),
    scope="pipeline",
    names_sources=True,
)
class Identify(TrackAnalytics):
    """Give an object the same number on all cameras, by its look, the time and its place.

    Each tracked object gets the column `identity`: a number from 1 that is never reused. Put it below `track` and
    `embed`. Two tracks of one camera at the same time never have one identity.

    `seen` is emitted when an identity comes to a camera. It has `identity`, `label`, and either `new: true` or `before`
    (the camera that saw it before) and `away_s`. `left` is emitted when no camera has seen an identity for
    `left_after`; it has `identity`, `label`, `stayed_s` and `path`, a list of `source`, `from_s` and `to_s`.
    docs/identify.md explains how to choose the options.
    """

    min_similarity: Annotated[
        Score, "minimum cosine similarity of two embeddings of one object; it depends on the network."
    ] = 0.7
    confirm: Annotated[Seconds, "how long a track is seen before it gets an identity."] = 0.25
    travel: Annotated[
        dict[str, dict[str, Seconds]],
        "the shortest time from camera to camera, in both directions, {gate: {hall: 5s}}; an object that one of them "
        "has just seen cannot be at the other. Cameras that are not named here may see an object at the same time.",
    ] = field(default_factory=dict)
    planes: Annotated[
        dict[str, CameraPlane],
        "where the ground is in the frames of cameras, in coordinates that all share, {gate: {points: [[x, y], ...], "
        "ground: [[x, y], ...]}, hall: {file: hall.txt}}: four points of the frame and these points in meters, or a "
        "file with a homography, three rows of three numbers.",
    ] = field(default_factory=dict)
    distance: Annotated[Meters, "how far apart on the ground two cameras may see one object, in meters."] = 2.0
    max_speed_kmh: Annotated[Kmh, "how fast an object moves over the ground at most."] = 60.0
    left_after: Annotated[Seconds, "emit `left` when no camera has seen an identity for this long."] = 60.0
    forget: Annotated[Seconds, "forget an identity that no camera has seen for this long."] = 3600.0
    max_identities: Annotated[Count, "keep at most this many identities; the oldest is forgotten first."] = 10_000
    per_source: Annotated[
        bool, "number the identities of each source on their own; archives, whose files are independent, always do."
    ] = False

    missing: ClassVar[Any] = np.int64(-1)

    def __post_init__(self) -> None:
        """Check the planes, and the times against each other; read the files of homographies."""
        self._planes = {source: self._plane(source, plane) for source, plane in self.planes.items()}
        self._travel: dict[tuple[str, str], float] = {}
        for camera, shortest_by_camera in self.travel.items():
            for other_camera, shortest_s in shortest_by_camera.items():
                if self._travel.get((camera, other_camera), shortest_s) != shortest_s:
                    first_s = self._travel[camera, other_camera]
                    got = f"{camera} and {other_camera}, got {first_s:g} s and {shortest_s:g} s"
                    raise ValueError(f"travel counts in both directions: give one time for {got}")
                self._travel[camera, other_camera] = self._travel[other_camera, camera] = shortest_s
        if not self.distance > 0:
            raise ValueError(f"distance must be more than 0 m, got {self.distance:g}")
        if not self.track_ttl <= self.left_after <= self.forget:
            times = f"{self.track_ttl:g} s, {self.left_after:g} s and {self.forget:g} s"
            raise ValueError(f"track_ttl, left_after and forget must be in ascending order, got {times}")

    def _plane(self, source: str, plane: CameraPlane) -> Plane:
        keys = sorted(plane)
        try:
            if keys == ["file"]:
                return read_homography(plane["file"])
            if keys != ["ground", "points"]:
                raise ValueError(f"needs points and ground, or file alone, got {', '.join(keys) or 'nothing'}")
            check_units(self.units, [plane["points"]])
            return Plane(plane["points"], plane["ground"])
        except ValueError as error:
            raise ValueError(f"planes.{source} {error}") from None

    def named_sources(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield the path of each option that names a source, and the name."""
        for source in self.planes:
            yield ("planes", source), source
        for start, destinations in self.travel.items():
            yield ("travel", start), start
            for destination in destinations:
                yield ("travel", start, destination), destination

    def probe(self) -> None:
        """Check that Numba is installed."""
        from streamkit.tracking.jit import need_numba

        need_numba()

    def open(self) -> None:
        """Load the compiled assignment and, if the pipeline keeps state, the gallery."""
        self.probe()
        from streamkit.tracking.assign import best_pairs

        super().open()
        self._assign = best_pairs
        self._options = MatchOptions(
            self.min_similarity,
            self.confirm,
            self.distance,
            self.max_speed_kmh / _KMH,
            self._travel,
            self.track_ttl,
            self.left_after,
            self.forget,
            self.max_identities,
        )
        self._matchers: dict[str, IdentityMatcher] = {}
        self._sources: dict[int, str] = {}
        self._clock = Columns(pts_s=np.float64(-np.inf), offset_s=np.float64(0), ordinal=np.int64(-1))
        self._clocks_seen: set[bool] = set()
        self._waiting: list[IdentityEvent] = []
        runtime = self.context.runtime
        self._state = None if self.per_source else runtime.stage_state or runtime.carried
        self._saved_s = -np.inf
        if self._state is not None:
            restore(self._matcher(""), self._state.load(), self._names)

    def new_state(self, source: str) -> int:
        """Allocate a slot for a source."""
        slot = super().new_state(source)
        self._sources[slot] = source
        self._clock.begin(slot)
        return slot

    def finish(self, slot: int) -> None:
        """End the tracks of a source."""
        source = self._sources.pop(slot)
        if self.per_source:
            self._matchers.pop(source, None)
        elif "" in self._matchers:
            self._matchers[""].end(slot)

    def process(self, batch: Batch, states: Mapping[str, Any]) -> Batch:
        """Identify the objects of a batch."""
        tables = [batch.table(name) for name in batch.tables]
        vectors_by_table = [table.extra.get("embedding") for table in tables]
        length = max((vectors.shape[1] for vectors in vectors_by_table if vectors is not None), default=0)
        self._vectors = np.zeros((sum(map(len, tables)), length), np.float32)
        end = 0
        for table, vectors in zip(tables, vectors_by_table, strict=True):
            begin = end
            end = end + len(table)
            if vectors is not None:
                self._vectors[begin:end, : vectors.shape[1]] = vectors
        batch = super().process(batch, states)
        self._save()
        return batch

    def update(self, step: SourceStep) -> np.ndarray:
        """Identify the objects of one frame of each of several sources; return (n,) int64 identities, -1 for none."""
        seen = self._sighting(step)
        back = np.zeros(len(step), np.int64)
        if not self.per_source:
            return self._match("", seen, step)
        for frame, source in enumerate(seen.sources):
            rows = slice(*np.searchsorted(seen.frame, [frame, frame + 1]).tolist())
            source_seen = replace(
                seen,
                sources=[source],
                slot=seen.slot[frame : frame + 1],
                now_s=seen.now_s[frame : frame + 1],
                back=seen.back[frame : frame + 1],
                frame=np.zeros(rows.stop - rows.start, np.int64),
                track=seen.track[rows],
                label_id=seen.label_id[rows],
                xy=seen.xy[rows],
                vector=seen.vector[rows],
            )
            back[rows] = self._match(source, source_seen, replace(step, frames=[step.frames[frame]]))
        return back

    def close(self) -> None:
        """Store the gallery."""
        self._save(last=True)

    # ---------------------------------------------------------------------------------------------------------------

    def _matcher(self, key: str) -> IdentityMatcher:
        if key not in self._matchers:
            self._matchers[key] = IdentityMatcher(self._options, self._assign)
        return self._matchers[key]

    def _sighting(self, step: SourceStep) -> Sighting:
        sources = [frame.source for frame in step.frames]
        now_s, restarted = self._times(step)
        xy = np.full((len(step), 2), np.nan)
        ends = np.searchsorted(step.frame, np.arange(len(sources) + 1)).tolist()
        for source, (begin, end) in zip(sources, itertools.pairwise(ends), strict=True):
            if source in self._planes:
                xy[begin:end] = self._planes[source].meters(step.xy[begin:end])
        return Sighting(
            sources,
            step.slot,
            now_s,
            step.back | restarted,
            step.frame,
            step.track,
            self._names.__getitem__,
            step.label,
            xy,
            self._vectors[step.row],
        )

    def _times(self, step: SourceStep) -> tuple[np.ndarray, np.ndarray]:
        """Return the common time of each frame, and whether its source starts again.

        It is the wall clock for live sources. For others it is the presentation time, which goes on where a source
        repeats.
        """
        clock = self._clock
        slot = step.slot
        ordinal = np.array([frame._state.ordinal for frame in step.frames], np.int64)
        restarted = ordinal <= clock["ordinal"][slot]  # another process reads it, and counts its tracks from 1
        clock["offset_s"][slot[step.back]] += (clock["pts_s"][slot] - step.pts_s)[step.back]
        clock["pts_s"][slot] = step.pts_s
        clock["ordinal"][slot] = ordinal
        live = np.array([np.nan if frame.time_s is None else frame.time_s for frame in step.frames], np.float64)
        self._clocks_seen |= set(np.isnan(live).tolist())
        if len(self._clocks_seen) > 1 and not self.per_source:
            self.context.log(
                f"{self.context.id} sees live sources and files: they have no common time, so do not mix them, or set "
                "per_source: true"
            )
        return np.where(np.isnan(live), step.pts_s + clock["offset_s"][slot], live), restarted

    def _match(self, key: str, seen: Sighting, step: SourceStep) -> np.ndarray:
        done = self._matcher(key).step(seen)
        for what, n in done.counts.items():
            self.context.counters.add(f"identities: {what}", n)
        running = set(self._sources.values())
        waiting = list[IdentityEvent]()
        for event in [*self._waiting, *done.events]:
            if event.frame is None:  # it has left: the next frame of the source that saw it last tells
                here = seen.sources.index(event.source) if event.source in seen.sources else None
                if here is None and event.source in running:
                    waiting.append(event)
                    continue
                event.frame = here or 0
            step.frames[event.frame].emit(event.kind, event.track, **event.data)
        self._waiting = waiting
        return done.identity

    def _save(self, *, last: bool = False) -> None:
        """Store what has changed in the gallery, now and then."""
        if self._state is None or not (last or self._state.due(_SAVE_EVERY_S)):
            return
        self._state.save(as_state(self._matcher(""), self._names), wait=last)
