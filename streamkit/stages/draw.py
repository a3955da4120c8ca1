"""`draw`: boxes and labels onto the pictures."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from streamkit.data import Batch
from streamkit.ops.annotate import Style, annotate
from streamkit.ops.glyphs import Atlas
from streamkit.ops.overlay import draw
from streamkit.stage import BatchStage, Count, Score, stage


@stage("draw", reads="pixels", writes="pixels")
class Draw(BatchStage):
    """Draw what was found onto the pictures: boxes, labels, landmarks.

    Other branches never see it. Lines and labels suit the picture's size, and look the same on CPU and GPU.

    Options:
        labels: write the class's name.
        scores: write the score.
        tracks: write the track's number, where something tracks.
        color: one colour for each class, or for each track.
        thickness: of lines, in pixels, rounded up to even; by the picture's size if left out.
        text_size: height of labels in pixels, rounded up to even; by the picture's size if left out.
        fill: how opaque the inside of a box is tinted; 0 leaves it clear.
        only: names of the classes to draw; all if left out.
    """

    labels: bool = True
    scores: bool = True
    tracks: bool = True
    color: Literal["class", "track"] = "class"
    thickness: Count | None = None
    text_size: Count | None = None
    fill: Score = 0.0
    only: tuple[str, ...] = ()

    in_place: bool = field(default=False, init=False)
    """Set by the runner where no other branch reads the surfaces: then they are drawn on, not copied."""

    def open(self) -> None:
        """Get ready to draw; letters come into the atlas when they are first needed."""
        self._atlas = Atlas()
        self._style = Style(
            self.labels, self.scores, self.tracks, self.color, self.thickness, self.text_size, self.fill, self.only
        )

    def process(self, batch: Batch) -> Batch:
        """Give every frame with something on it a surface that shows it."""
        surfaces = [None if frame.error else frame.surface for frame in batch.frames]
        self._atlas.begin()
        marks, ends = annotate(surfaces, [batch.table(name) for name in batch.tables], self._style, self._atlas)
        places = [i for i, surface in enumerate(surfaces) if surface is not None]
        given = [surface for surface in surfaces if surface is not None]
        drawn = draw(given, marks, [ends[i] for i in places], self._atlas, in_place=self.in_place)
        for place, surface in zip(places, drawn, strict=True):
            batch.frames[place].surface = surface
        return batch
