# SPDX-License-Identifier: Apache-2.0
"""The stages whose network describes objects: `classify` and `embed`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Literal

from streamkit.core.stage import Composite, CompositePart, Count, Pixels, Score, Seconds, stage
from streamkit.core.units import OF_FORMS, Of
from streamkit.models.arithmetic import Engine, Precision
from streamkit.models.card import family_of
from streamkit.models.card_option import Model
from streamkit.stages.inference.apply_results import ApplyAttributes, ApplyEmbeddings, ApplyFrameAttributes
from streamkit.stages.inference.infer import Threads, check_task, network_parts, pick_options
from streamkit.stages.inference.postprocess import FetchVectors
from streamkit.stages.inference.select_best_views import SelectBestViews
from streamkit.stages.inference.select_objects import SelectFrames, SelectObjects

_SELECT = ("every", "track_ttl", "pad", "min_size", "requery_ratio", "untracked")
_UNUSED_WITH_BEST = ("every", "requery_ratio", "untracked", "smoothing")


@dataclass(eq=False, kw_only=True)
class CropModelBase(Composite):
    """Runs a network on crops of objects, or on whole frames, and keeps the results over time."""

    model: Model
    pad: Annotated[Score, "share of the box that is added on each side of the crop."] = 0.0
    min_size: Annotated[Pixels, "skip objects whose shorter side is below this, in source pixels."] = 16.0
    batch: Annotated[Count, "maximum number of crops in one run of the network."] = 32
    every: Annotated[Seconds, "how long a result holds before the network runs again; 0 runs it on every frame."] = 1.0
    requery_ratio: Annotated[float, "run again on a track whose area x score exceeds so many times its best one."] = 2.0
    untracked: Annotated[bool, "below a tracker, also run on objects without a track, on every frame."] = False
    smoothing: Annotated[Seconds, "results are averaged over time; this age has weight 1/e; 0 uses the newest."] = 2.0
    track_ttl: Annotated[Seconds, "a track that is not seen for this long starts again."] = 10.0
    engine: Engine = "auto"
    precision: Precision = "auto"
    threads: Threads = None

    def __post_init__(self) -> None:
        """Check the card's task and `requery_ratio`."""
        check_task(self)
        if not self.requery_ratio >= 1:
            raise ValueError(
                f"requery_ratio must be 1 or more: how many times better a view has to be, got {self.requery_ratio:g}"
            )

    def chain(self, of: Of | None, keep: CompositePart) -> list[CompositePart]:
        """Return the parts, from the selection of objects, or of whole frames without `of`, to `keep`."""
        if of is None:
            select = CompositePart("select", SelectFrames, {"every": self.every})
        else:
            select = CompositePart("select", SelectObjects, {"of": of, **pick_options(self, _SELECT)})
        fetch = CompositePart("postprocess", FetchVectors, {"model": self.model})
        return network_parts(self, [select], [fetch, keep], ("batch",), few_rows=of is not None and self.every > 0)


@stage("classify", reads="pixels", writes="attributes")
class Classify(CropModelBase):
    """Give objects an attribute with a classification network; without `of`, give it to whole frames.

    Objects are cropped from the full-resolution frame. A track keeps its attribute: the network runs on a new track,
    again after `every`, and for a better view. Records have `"attributes": {"color": {"label": "red", "score": 0.8}}`.
    A network of the family `l2cs` gives two angles: `"gaze_yaw": {"label": "-12.5", "score": null}`, and `gaze_pitch`.
    """

    model: Annotated[Model, "the model card, with task: classify."]
    of: Annotated[Of | None, f"which objects, {OF_FORMS}; whole frames by default."] = None
    attribute: Annotated[str | None, "the attribute's name; by default the stage's id."] = None
    min_score: Annotated[Score | None, "below this score no attribute is given; by default the card's score."] = None

    def __post_init__(self) -> None:
        """Check that `min_score` is not given for numbers."""
        super().__post_init__()
        if self.min_score is not None and family_of(self.model).numbers:
            raise ValueError(f"min_score is for classes, and {self.model.name} gives numbers: leave it out")

    def parts(self) -> list[CompositePart]:
        """Return the parts from crop selection to the attribute; see `streamkit/core/crops.py`."""
        options = pick_options(self, ("model", "smoothing", "attribute"))
        options["min_score"] = self.model.score if self.min_score is None else self.min_score
        if self.of is None:
            return self.chain(None, CompositePart("apply", ApplyFrameAttributes, options))
        options |= {"of": self.of, "track_ttl": self.track_ttl}
        return self.chain(self.of, CompositePart("apply", ApplyAttributes, options))


@stage("embed", reads=("pixels", "detections"), writes="embedding")
class Embed(CropModelBase):
    """Give objects an embedding, a vector of length 1 that later stages compare.

    The column `embedding` has a row for each object, NaN if the network did not run on it. Objects are selected and
    refreshed as in `classify`. Put it above a tracker for re-identification; below one, each track keeps its own. With
    `record: best`, the network runs on the best view of each track by size and sharpness, and records have its vector.
    """

    model: Annotated[Model, "the model card, with task: embed."]
    of: Annotated[Of, f"which objects, {OF_FORMS}."]
    record: Annotated[
        bool | Literal["best"],
        "write the vectors into records; `best` writes one only where a track is seen better than before, for a search "
        "in the data set of `batch`.",
    ] = False

    def __post_init__(self) -> None:
        """Check that no option is given that `record: best` makes useless."""
        super().__post_init__()
        unused = [option for option in fields(self) if option.name in _UNUSED_WITH_BEST]
        set_options = [option.name for option in unused if getattr(self, option.name) != option.default]
        if self.record == "best" and set_options:
            raise ValueError(f"record: best runs on the best views only: leave out {', '.join(set_options)}")

    def parts(self) -> list[CompositePart]:
        """Return the parts from crop selection to the column; see `streamkit/core/crops.py`."""
        if self.record == "best":
            select = {"of": self.of, **pick_options(self, ("track_ttl", "pad", "min_size"))}
            apply = {**pick_options(self, ("model", "of", "track_ttl", "record")), "smoothing": 0.0}
            return network_parts(
                self,
                [CompositePart("select", SelectBestViews, select)],
                [
                    CompositePart("postprocess", FetchVectors, {"model": self.model}),
                    CompositePart("apply", ApplyEmbeddings, apply),
                ],
                ("batch",),
                few_rows=True,
            )
        options = pick_options(self, ("model", "of", "smoothing", "track_ttl", "record"))
        return self.chain(self.of, CompositePart("apply", ApplyEmbeddings, options))
