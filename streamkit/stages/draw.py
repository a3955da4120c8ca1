"""`draw`: boxes, labels, zones, lines and trails onto the frames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar, Literal

import numpy as np

from streamkit.analytics.shapes import by_name
from streamkit.data import Batch, Detections, Surface
from streamkit.ops.annotate import Style, annotate
from streamkit.ops.glyphs import Atlas
from streamkit.ops.hide import hide
from streamkit.ops.hiding import regions
from streamkit.ops.overlay import draw
from streamkit.privacy import Hiding, hidden
from streamkit.stage import BatchStage, Count, Part, Score, Seconds, stage
from streamkit.stages.trails import Trails
from streamkit.stages.watching import tell_outside


@stage("draw", reads="pixels", writes="pixels")
class Draw(BatchStage):
    """Draw what was found onto the pictures: boxes, labels, masks, key points, zones and lines.

    Other branches never see it. Zones and lines, with their counts, are those of the stages `zone` and `line_counter`
    above. Labels keep clear of each other where there is room. Lines and labels suit the picture's size, and look the
    same on CPU and GPU.

    Options:
        labels: write the class's name.
        scores: write the score.
        tracks: write the track's number, where something tracks.
        color: one colour for each class, or for each track.
        thickness: of lines, in pixels, rounded up to even; by the picture's size if left out.
        text_size: height of labels in pixels, rounded up to even; by the picture's size if left out.
        fill: how opaque the inside of a box is tinted; 0 leaves it clear.
        only: names of the classes to draw; all if left out.
        masks: how opaque masks are; 0 leaves them out.
        min_point: the least score of a key point that is drawn.
        analytics: draw zones with how many are in, and lines with how many went in and out.
        trail: draw where the foot of each tracked object was, for so long; needs a tracker above.
        untracked: below a tracker, also draw objects in no track: weak ones, new ones, second boxes of an object.
        blur: what to make unrecognisable before anything else is drawn: names of classes, or `all`; or {labels: [...]},
            {zone: [[x, y], ...]} for a part of the picture, both for objects whose middle is in the zone, with `units`
            (pixels or share), `cells` (of an object's longer side, fewer hide more) and `grow` (of its box).
        pixelate: the same, as a mosaic.
    """

    labels: bool = True
    scores: bool = True
    tracks: bool = True
    color: Literal["class", "track"] = "class"
    thickness: Count | None = None
    text_size: Count | None = None
    fill: Score = 0.0
    only: tuple[str, ...] = ()
    masks: Score = 0.4
    min_point: Score = 0.3
    analytics: bool = True
    trail: Seconds | None = None
    untracked: bool = False
    blur: Hiding | None = None
    pixelate: Hiding | None = None

    warms_up: ClassVar[bool] = True

    in_place: bool = field(default=False, init=False)
    """Set by the runner where no other branch reads the surfaces: then they are drawn on, not copied."""

    def __post_init__(self) -> None:
        """Refuse what would hide or show nothing."""
        if self.trail is not None and not self.trail > 0:
            raise ValueError(f"trail must be longer than 0s, got {self.trail:g}s; leave it out for none")
        self._hidden = [
            hidden(name, asked, smooth=name == "blur")
            for name, asked in (("pixelate", self.pixelate), ("blur", self.blur))
            if asked is not None
        ]
        self._zones = [
            (f"{name}.zone", by_name(asked["zone"]), asked.get("units", "pixels"))
            for name, asked in (("blur", self.blur), ("pixelate", self.pixelate))
            if isinstance(asked, dict) and "zone" in asked
        ]

    @staticmethod
    def parts_before(options: Mapping[str, Any]) -> list[Part]:
        """Trails are kept by a stage that sees each source's frames in order, which this one does not."""
        return [Part("trails", Trails, {"last": options["trail"]})] if options.get("trail") else []

    def open(self) -> None:
        """Get ready to draw; letters come into the atlas when they are first needed."""
        self._atlas = Atlas()
        self._style = Style(
            self.labels, self.scores, self.tracks, self.color, self.thickness, self.text_size, self.fill, self.only,
            self.masks, self.min_point, self.analytics, self.untracked,
        )  # fmt: skip

    def process(self, batch: Batch) -> Batch:
        """Give every frame with something on it a surface that shows it."""
        for option, zones, units in self._zones:
            tell_outside(self.context, batch.frames, option, zones, units)
        surfaces = [None if frame.error else frame.surface for frame in batch.frames]
        self._atlas.begin()
        tables, facts = [batch.table(name) for name in batch.tables], [frame.facts for frame in batch.frames]
        shown = [(frame.shown, frame.width, frame.height) for frame in batch.frames]
        marks, ends = annotate(surfaces, tables, self._style, self._atlas, facts, shown)
        places = [i for i, surface in enumerate(surfaces) if surface is not None]
        given = [surface for surface in surfaces if surface is not None]
        if self._hidden:
            given = self._hide(batch, given, places, tables)
        drawn = draw(given, marks, [ends[i] for i in places], self._atlas, in_place=self.in_place)
        for place, surface in zip(places, drawn, strict=True):
            batch.frames[place].surface = surface
        return batch

    def _hide(self, batch: Batch, given: list[Surface], places: list[int], tables: list[Detections]) -> list[Surface]:
        """Make unrecognisable what is asked for; a frame without a surface has nothing to hide."""
        row = np.full(len(batch.frames), -1, np.int32)
        row[places] = np.arange(len(places), dtype=np.int32)
        shown = [table[row[table.batch_row] >= 0] for table in tables]
        shown = [table.with_columns(batch_row=row[table.batch_row]) for table in shown]
        sizes = [(batch.frames[i].width, batch.frames[i].height) for i in places]
        found = regions(given, sizes, shown, self._hidden)
        self.context.counters.add("regions hidden", len(found.table))
        return hide(given, found.table, found.masks, in_place=self.in_place)
