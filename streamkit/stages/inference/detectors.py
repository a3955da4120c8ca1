# SPDX-License-Identifier: Apache-2.0
"""The stages whose network finds objects: `detect`, `segment` and `pose`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar

from streamkit.core.stage import Composite, CompositePart, Count, Score, stage
from streamkit.core.units import OF_FORMS, Of
from streamkit.models.arithmetic import Engine, Precision
from streamkit.models.card import family_of
from streamkit.models.card_option import Model
from streamkit.stages.inference.apply_results import ApplyDetails, ApplyMasks, ApplyPoints, ApplyRegions
from streamkit.stages.inference.infer import Threads, check_task, network_parts, pick_options
from streamkit.stages.inference.inference_regions import select_regions
from streamkit.stages.inference.postprocess import (
    DecodeCrops,
    DetectionOptions,
    FetchMaps,
    Postprocess,
    PostprocessCorners,
    PostprocessKeypoints,
    PostprocessMasks,
)
from streamkit.stages.inference.select_objects import SelectFrames, SelectObjects

_POSTPROCESS = tuple(field.name for field in fields(DetectionOptions))
_BY_COLUMN: dict[str, type[Postprocess]] = {"corners": PostprocessCorners, "keypoints": PostprocessKeypoints}
"""What declares a column that a family gives its objects."""
_PAD = 0.1
_TOP_DOWN_PAD = 0.125
"""Boxes are 1.25 times as large in MMPose and Hugging Face's ViTPose."""


@dataclass(eq=False)
class DetectorBase(DetectionOptions, Composite):
    """Finds objects, in whole frames or, with `of`, within the objects of another stage."""

    of: Of | None = None
    pad: Annotated[
        Score | None,
        "with `of`, the share of the box that is added on each side of the crop; by default 0.1, and 0.125 for the "
        "families simcc, heatmaps and heatmaps_udp, as their authors do.",
    ] = None
    batch: Annotated[Count, "with `of`, the maximum number of crops in one run of the network."] = 32
    engine: Engine = "auto"
    precision: Precision = "auto"
    threads: Threads = None

    postprocess_type: ClassVar[type[Postprocess]] = Postprocess
    apply_type: ClassVar[type[ApplyDetails]]
    unused_with_of: ClassVar[tuple[str, ...]] = (
        "class_agnostic",
        "multi_label",
        "top_k",
        "max_size",
        "roi",
        "units",
        "anchor",
        "tiles",
    )
    with_of: ClassVar[str] = "the objects are those of another stage"

    def __post_init__(self) -> None:
        """Check the card's task, the options of postprocess, and that no option is given without effect."""
        check_task(self)
        super().__post_init__()
        self.check_use()

    def check_use(self) -> None:
        """Check that no option is given without effect."""
        if self.of is None:
            self.refuse("crops are made with of", ("pad", "batch"))
        else:
            self.refuse(f"with of, {self.with_of}", self.unused_with_of)

    def refuse(self, reason: str, names: tuple[str, ...]) -> None:
        """Check that options without effect have their defaults; raise ValueError that starts with the reason."""
        set_options = [
            option.name
            for option in fields(self)
            if option.name in names and getattr(self, option.name) != option.default
        ]
        if set_options:
            raise ValueError(f"{reason}: leave out {', '.join(sorted(set_options, key=names.index))}")

    def parts(self) -> list[CompositePart]:
        """Return the parts with their options."""
        if self.of is None:
            return network_parts(self, select_regions(self), [self.postprocess_part()], infer_options=("prompts",))
        return self.parts_of(self.of)

    def postprocess_part(self) -> CompositePart:
        """Return the part that makes the table; its class declares the columns of the network's family."""
        columns = family_of(self.model).columns
        kind = next((kind for name, kind in _BY_COLUMN.items() if name in columns), self.postprocess_type)
        return CompositePart("postprocess", kind, pick_options(self, _POSTPROCESS))

    def crop_options(self) -> dict[str, Any]:
        """Return the options of `select` that say what is cropped around an object.

        Crops of top-down networks fill the input, in its aspect ratio.
        """
        top_down = family_of(self.model).top_down
        pad = self.pad
        if pad is None:
            pad = _TOP_DOWN_PAD if top_down else _PAD
        return {"pad": pad, "fills": self.model.input.size if top_down else None}

    def parts_of(self, of: Of) -> list[CompositePart]:
        """Return the parts that give the objects of another stage masks or keypoints.

        The network runs on every object of every frame, since they move. It detects objects in each crop, and the one
        that fills its crop best is the object in question.
        """
        select = {"of": of, "every": 0.0, "track_ttl": 1.0, "min_size": self.min_size, **self.crop_options()}
        decode = {**pick_options(self, ("model", "min_score", "iou", "labels", "prompts")), "class_agnostic": True}
        return network_parts(
            self,
            [CompositePart("select", SelectObjects, select)],
            [
                CompositePart("postprocess", DecodeCrops, decode),
                CompositePart("apply", self.apply_type, {"model": self.model, "of": of}),
            ],
            ("batch",),
            ("prompts",),
        )


@stage("detect", reads="pixels", writes="detections")
class Detect(DetectorBase):
    """Detect objects with a network: preprocess, infer and postprocess in one stage.

    `streamkit graph` shows the parts; `insert: {after: preprocess, stage: my_stage}` puts a stage between them.
    """

    model: Annotated[
        Model,
        "the model card: a path, or the name of a card in models/ beside the YAML or in "
        "streamkit; or an .onnx file, whose card is derived.",
    ]
    of: Annotated[
        Of | None,
        f"detect within these objects only, {OF_FORMS}; the results have a table of their own, named after this stage.",
    ] = None
    every: Annotated[
        Count,
        "run on every n-th frame of each source only; the frames between cost no inference, and a `track` stage below "
        "fills them with predicted objects, marked `predicted`.",
    ] = 1

    unused_with_of: ClassVar[tuple[str, ...]] = ("roi", "units", "anchor", "tiles", "every")
    with_of: ClassVar[str] = "the network sees crops of objects"

    def parts_of(self, of: Of) -> list[CompositePart]:
        """Return the parts that detect within objects; an object found in several crops is reported once."""
        select = {"of": of, "every": 0.0, "track_ttl": 1.0, **self.crop_options()}
        return network_parts(
            self,
            [CompositePart("select", SelectObjects, select)],
            [self.postprocess_part()],
            ("batch",),
            ("prompts",),
        )


@stage("segment", reads="pixels", writes=("detections", "mask"))
class Segment(DetectorBase):
    """Find objects with their masks or, with a semantic network, the class of each place in the frame.

    Each object has a mask in records, as COCO run-length encoding in source pixels: `"mask": {"size": [h, w],
    "counts": "..."}`. With `of`, the objects of another stage get masks. A semantic network finds no objects; records
    have a mask for each class: `"segmentation": {"road": {...}}`.
    """

    model: Annotated[Model, "the model card, with task: segment; its family finds objects or classes of places."]
    of: Annotated[Of | None, f"give masks to these objects, {OF_FORMS}."] = None
    labels: Annotated[list[str] | None, "keep these classes only; by default all but a semantic `background`."] = None
    top_k: Annotated[Count, "maximum number of objects per frame; the best are kept."] = 100
    min_share: Annotated[Score, "omit classes that cover less than this share of the frame; semantic networks."] = 0.0

    postprocess_type: ClassVar[type[Postprocess]] = PostprocessMasks
    apply_type: ClassVar[type[ApplyDetails]] = ApplyMasks

    def check_use(self) -> None:
        """See `DetectorBase.check_use`; few options apply to a semantic network."""
        name = self.model.name
        if self._is_semantic():
            unused = tuple(option for option in _POSTPROCESS if option not in ("model", "labels"))
            self.refuse(f"{name} is a semantic network, which finds no objects", (*unused, "of", "pad", "batch"))
        else:
            self.refuse(f"min_share is for semantic networks, which {name} is not", ("min_share",))
            super().check_use()

    def parts(self) -> list[CompositePart]:
        """Return the parts with their options."""
        if not self._is_semantic():
            return super().parts()
        return network_parts(
            self,
            [CompositePart("select", SelectFrames, {"every": 0.0})],
            [
                CompositePart("postprocess", FetchMaps, {"model": self.model}),
                CompositePart("apply", ApplyRegions, pick_options(self, ("model", "labels", "min_share"))),
            ],
        )

    def _is_semantic(self) -> bool:

        return family_of(self.model).regions


@stage("pose", reads="pixels", writes=("detections", "keypoints"))
class Pose(DetectorBase):
    """Find objects with their keypoints; with `of`, the keypoints of objects that another stage found.

    Records have `"keypoints": [[x, y, score], ...]` in source pixels, in the order of the card's `keypoints`. A network
    for one person, such as RTMPose, ViTPose or MoveNet, works best on crops of each: `of: detect.person`.
    """

    model: Annotated[Model, "the model card, with task: pose."]
    of: Annotated[Of | None, f"give keypoints to these objects, {OF_FORMS}."] = None

    postprocess_type: ClassVar[type[Postprocess]] = PostprocessKeypoints
    apply_type: ClassVar[type[ApplyDetails]] = ApplyPoints
