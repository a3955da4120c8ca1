# SPDX-License-Identifier: Apache-2.0
"""`draw`: draws boxes, labels, zones, lines and trails onto frames."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from streamkit.analytics.shapes import by_name, scaled
from streamkit.config.privacy import Hiding, hidden
from streamkit.core.data import Batch, Detections, FrameMap, Shown, Surface
from streamkit.core.stage import BatchStage, CompositePart, Score, Seconds, StreamStage, stage
from streamkit.core.units import WholePixels
from streamkit.ops.annotate import annotate
from streamkit.ops.frame_maps import paint
from streamkit.ops.glyphs import Atlas
from streamkit.ops.hide import hide, regions
from streamkit.ops.overlay import draw
from streamkit.ops.style import Style
from streamkit.stages.analytics.track_analytics import warn_outside

_TRAIL_STEP = 0.01  # of the frame's height: points of a trail are at least so far apart, so a trail's memory is bounded
_ANOMALIES = 0.5  # opacity of anomaly maps


class _Foot(NamedTuple):
    """A tracked object of a frame, its foot at (x, y) in pixels."""

    table: str
    track: int
    x: float
    y: float
    class_id: int
    label: str

    def at_scale(self, scale: tuple[float, float]) -> _Foot:
        """Return the place in pixels of a frame whose `scale` is 1: a trail continues where the size changes."""
        return self._replace(x=self.x / scale[0], y=self.y / scale[1])


@dataclass(eq=False, slots=True)
class _Trails:
    """A source's trails, and the time and epoch of its last frame.

    Attributes:
        time_s: the time.
        epoch: the epoch.
        trails: by table and track, the points: time in seconds, x, y.
    """

    time_s: float = -np.inf
    epoch: int = 0
    trails: dict[tuple[str, int], deque[tuple[float, float, float]]] = field(default_factory=dict)


@dataclass(eq=False)
class Trails(StreamStage, name="trails", reads="track_id"):
    """Show where the foot point of each tracked object was.

    Attributes:
        last: how long a position is shown.
    """

    last: Seconds = 2.0

    def new_state(self, source: str) -> _Trails:
        """Return a state without trails."""
        return _Trails()

    def process(self, batch: Batch, states: Mapping[str, Any]) -> Batch:
        """Attach the trail of each object to its frame."""
        seen: list[list[_Foot]] = [[] for _ in batch.frames]
        for name in batch.tables:
            table = batch.table(name)
            if table.track_id is None:
                continue
            table = table[np.flatnonzero(table.track_id >= 0)]
            x = table.xyxy[:, ::2].mean(axis=1)
            y = table.xyxy[:, 3]
            of = table.track_id
            assert of is not None
            columns = of.tolist(), x.tolist(), y.tolist(), table.class_id.tolist(), table.label
            for at, *values in zip(table.batch_row.tolist(), *columns, strict=True):
                seen[at].append(_Foot(name, *values))
        for frame, objects in zip(batch.frames, seen, strict=True):
            state = states[frame.source]
            scale = frame.shape_scale
            self._expire(state, frame.pts_s, frame._state.epoch)
            for foot in objects:
                points = self._add(state, foot.at_scale(scale), _TRAIL_STEP * frame.height / scale[1])
                if len(points) > 1:
                    key = f"{self.context.id} {foot.table} {foot.track}"
                    shown = scaled(points, scale)
                    frame.shown[key] = Shown(shown, class_id=foot.class_id, track_id=foot.track, label=foot.label)
        return batch

    def _expire(self, state: _Trails, time_s: float, epoch: int) -> None:
        """Drop trails that are too old; all of them if the source's time jumps back or it restarts."""
        if time_s < state.time_s or epoch != state.epoch:
            state.trails.clear()
        state.time_s = time_s
        state.epoch = epoch
        for key in [key for key, points in state.trails.items() if time_s - points[-1][0] > self.last]:
            del state.trails[key]

    def _add(self, state: _Trails, foot: _Foot, step: float) -> tuple[tuple[float, float], ...]:
        """Return the points of an object's trail; the last is its present position."""
        points = state.trails.setdefault((foot.table, foot.track), deque())
        while points and state.time_s - points[0][0] > self.last:
            points.popleft()
        before = tuple((x, y) for _, x, y in points)
        if not points or max(abs(foot.x - points[-1][1]), abs(foot.y - points[-1][2])) >= step:
            points.append((state.time_s, foot.x, foot.y))
        return (*before, (foot.x, foot.y))


@stage("draw", reads="pixels", writes="pixels", warms_up=True, draws_in_place=True)
class Draw(BatchStage):
    """Draw boxes, labels, masks, keypoints, maps, zones and lines onto frames.

    Other branches see the frames without the drawing. Zones and lines, with their counts, come from the stages `zone`
    and `line_counter` above. Labels avoid each other where there is room. Line width and text scale with the frame, and
    look the same on CPU and GPU.
    """

    labels: Annotated[bool, "write the class's name."] = True
    scores: Annotated[bool, "write the score."] = True
    tracks: Annotated[bool, "write the track id, or the identity of `identify`, if there is one."] = True
    color: Annotated[
        Literal["class", "track", "identity"], "one color per class, per track, or per identity of `identify`."
    ] = "class"
    thickness: Annotated[WholePixels | None, "of lines, rounded up to even; by default by frame size."] = None
    text_size: Annotated[WholePixels | None, "of labels, rounded up to even; by default by frame size."] = None
    fill: Annotated[Score, "opacity of the tint inside a box; 0 leaves it clear."] = 0.0
    only: Annotated[tuple[str, ...] | None, "names of the classes to draw, [] for none; all by default."] = None
    masks: Annotated[Score, "opacity of masks; 0 omits them."] = 0.4
    maps: Annotated[
        Score | None,
        "opacity of the colors of depth and anomaly maps; 0 omits them. By default 0.5 for anomalies, which "
        "are unusual places alone, and 0 for depth, which covers the picture.",
    ] = None
    min_keypoint_score: Annotated[Score, "minimum score of a keypoint that is drawn."] = 0.3
    analytics: Annotated[bool, "draw zones with the number of tracks in them, and lines with their counts."] = True
    trail: Annotated[Seconds | None, "draw where the foot of each track was for this long; needs a tracker."] = None
    untracked: Annotated[bool, "below a tracker, also draw objects without a track: weak, new, duplicate."] = False
    title: Annotated[str, "text in the upper left corner of each frame."] = ""
    blur: Annotated[
        Hiding | None,
        "what to make unrecognizable before anything else is drawn: names of classes, or `all`; or {labels: [...]}, "
        "{zone: [[x, y], ...]} for a part of the frame, or both for objects whose center is in the zone; with `units` "
        "(pixels or share), `cells` (of an object's longer side, fewer hide more) and `grow` (of its box).",
    ] = None
    pixelate: Annotated[Hiding | None, "like blur, with a mosaic."] = None

    def __post_init__(self) -> None:
        """Check `trail` and the zones and classes to hide."""
        if self.trail is not None and not self.trail > 0:
            raise ValueError(f"trail must be longer than 0s, got {self.trail:g}s; leave it out for none")
        hide_options = {name: value for name in ("pixelate", "blur") if (value := getattr(self, name)) is not None}
        self._hidden = [hidden(name, value, smooth=name == "blur") for name, value in hide_options.items()]
        self._zones = [
            (f"{name}.zone", by_name(value["zone"]), value.get("units", "pixels"))
            for name, value in hide_options.items()
            if isinstance(value, dict) and "zone" in value
        ]

    @staticmethod
    def parts_before(options: Mapping[str, Any]) -> list[CompositePart]:
        """Return the stage that keeps trails: it sees each source's frames in order, which this one does not."""
        return [CompositePart("trails", Trails, {"last": options["trail"]})] if options.get("trail") else []

    def open(self) -> None:
        """Prepare the style; letters are added to the atlas on first use."""
        self._atlas = Atlas()
        self._style = Style(
            self.labels,
            self.scores,
            self.tracks,
            self.color,
            self.thickness,
            self.text_size,
            self.fill,
            self.only,
            self.masks,
            self.min_keypoint_score,
            self.analytics,
            self.untracked,
            title=self.title,
        )

    def process(self, batch: Batch) -> Batch:
        """Replace the surface of each frame that has something drawn on it."""
        for option, zones, units in self._zones:
            warn_outside(self.context, batch.frames, option, zones, units)
        surfaces = [None if frame.error else frame.surface for frame in batch.frames]
        self._atlas.begin()
        tables = [batch.table(name) for name in batch.tables]
        facts = [frame.facts for frame in batch.frames]
        shown = [(frame.shown, frame.width, frame.height) for frame in batch.frames]
        marks, ends = annotate(surfaces, tables, self._style, self._atlas, facts, shown)
        places = [i for i, surface in enumerate(surfaces) if surface is not None]
        originals = [surface for surface in surfaces if surface is not None]
        if self._hidden:
            originals = self._hide(batch, originals, places, tables)
        originals = self._paint(batch, originals, places)
        drawn = draw(
            originals, marks, [ends[i] for i in places], self._atlas, in_place=self.context.runtime.draws_in_place
        )
        for place, surface in zip(places, drawn, strict=True):
            batch.frames[place].surface = surface
        return batch

    def _paint(self, batch: Batch, originals: list[Surface], places: list[int]) -> list[Surface]:
        """Draw the maps of each frame, one after the other."""
        frames = [batch.frames[place] for place in places]
        in_place = self.context.runtime.draws_in_place
        for name in dict.fromkeys(name for frame in frames for name in frame.maps):
            layers = [frame.maps.get(name) for frame in frames]
            opacity = self._opacity(next(layer for layer in layers if layer is not None))
            if opacity > 0:
                originals = paint(originals, layers, opacity, in_place=in_place)
        return originals

    def _opacity(self, frame_map: FrameMap) -> float:
        """Return the opacity of a map, which other frames have of the same kind."""
        if self.maps is not None:
            return self.maps
        return _ANOMALIES if frame_map.kind == "anomaly" else 0.0

    def _hide(
        self, batch: Batch, originals: list[Surface], places: list[int], tables: list[Detections]
    ) -> list[Surface]:
        """Blur or pixelate the selected regions; frames without a surface are skipped."""
        row = np.full(len(batch.frames), -1, np.int32)
        row[places] = np.arange(len(places), dtype=np.int32)
        shown = [table[row[table.batch_row] >= 0] for table in tables]
        shown = [table.with_columns(batch_row=row[table.batch_row]) for table in shown]
        sizes = [(batch.frames[i].width, batch.frames[i].height) for i in places]
        scales = [batch.frames[i].shape_scale for i in places]
        to_hide = regions(originals, sizes, shown, self._hidden, scales)
        self.context.counters.add("regions hidden", len(to_hide.table))
        return hide(originals, to_hide.table, to_hide.masks, in_place=self.context.runtime.draws_in_place)
