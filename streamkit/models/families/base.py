# SPDX-License-Identifier: Apache-2.0
"""Base class of families: decoding of one line of networks from outputs to objects, and what is known of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from streamkit.core.data import Array, Detections, array_module
from streamkit.core.lazy_column import LazyColumn
from streamkit.models.facts import CardFacts
from streamkit.models.network_file import ModelInfo
from streamkit.ops.nms import Packed, select
from streamkit.ops.transfer import LateArray, fetch

T = TypeVar("T")
FamilyClass = TypeVar("FamilyClass", bound="Family")

Columns = Mapping[str, tuple[int, ...]]
"""Extra columns of a table: name and shape of one row's values; in the last column, -1 fills the row."""
Outputs = Mapping[str, Array]
"""A network's outputs by name."""
Shapes = Mapping[str, Sequence[Any]]
"""The outputs' shapes by name; a text, None or a number below 1 is an open size."""
Size = tuple[int, int]
"""Width and height in pixels."""
ShapeRule = Callable[[ModelInfo, Size], bool]
"""Whether the shapes of a network, which a family's `check` accepts, may be those of its networks."""
Values = Mapping[str, np.ndarray]
"""The outputs of one run, by name."""
Doubt = Callable[[Values, Size, int | None], str]
"""Returns why outputs are not a family's, of values, size of the input and number of classes; empty if they may be."""
CENTERED_ON_GRAY: dict[str, Any] = {"anchor": "center", "pad": 114}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for decoding objects.

    Attributes:
        min_score: (c,) float32, minimum score of each class; +inf for unwanted classes.
        iou: non-max suppression removes a box whose IoU with a better one is above this.
        agnostic: boxes suppress each other across classes.
        multi_label: a box may be an object of several classes; for families with `several`.
        top_k: maximum number of objects per frame; the best are kept.
        min_size: boxes whose shorter side is below this are discarded; source pixels, after clipping.
        max_size: boxes whose longer side is above this are discarded.
    """

    min_score: np.ndarray
    iou: float = 0.45
    agnostic: bool = False
    multi_label: bool = False
    top_k: int = 300
    min_size: float = 0.0
    max_size: float = float("inf")

    def __post_init__(self) -> None:
        if self.min_score.ndim != 1 or not len(self.min_score) or self.min_score.dtype != np.float32:
            got = f"{self.min_score.dtype}{list(self.min_score.shape)}"
            raise ValueError(f"min_score must be float32, one for each class, got {got}")
        if np.isnan(self.min_score).any():
            raise ValueError("min_score must be numbers (+inf for a class that is not wanted), got NaN")
        if not 0 <= self.iou <= 1:
            raise ValueError(f"iou must be from 0 to 1, got {self.iou}")
        if self.top_k < 1:
            raise ValueError(f"top_k must be 1 or more, got {self.top_k}")
        if not 0 <= self.min_size <= self.max_size:
            raise ValueError(f"min_size must be from 0 to max_size ({self.max_size}), got {self.min_size}")


class Rest(NamedTuple):
    """Columns of a table that are made when they are read: box, score and class alone are copied to the host before.

    Attributes:
        array: what they are made of, on the outputs' device.
        columns: returns them for a table without them, and the number of its objects that get no value.
    """

    array: LateArray
    columns: Callable[[Detections], tuple[dict[str, LazyColumn], int]]


class PlainImage(NamedTuple):
    """One image for `FamilyTraits.reference`.

    Attributes:
        outputs: the network's, float64, without the batch.
        input_size: width and height of the network's input.
        frame_size: width and height of the frame.
        classes: number of the card's labels.
        select: the card's `select`.
    """

    outputs: Values
    input_size: Size = (0, 0)
    frame_size: Size = (0, 0)
    classes: int = 1
    select: str = ""


class OutputFormat(NamedTuple):
    """One form of outputs that a family reads: their shapes, and what the values mean.

    N is the batch, A anchors, C classes, Q queries, K objects, P keypoints, M mask coefficients, D values, h and w a
    map, T places along a text. Outputs in backticks are found by name, the others by their shape.
    """

    outputs: str
    values: str


@dataclass(frozen=True, kw_only=True)
class FamilyTraits:
    """What is known of a family's networks.

    Attributes:
        formats: the outputs that it reads, in words.
        line: the input and thresholds of its networks' authors.
        plausible: how the shapes of its networks relate to the input, since a shape such as (N, 84, 8400) could also
            hold 84 anchors of 8,395 classes; None for no rule.
        doubt: the values that its networks do not output; None if nothing is known.
        reference: reads an image plainly, for `models.reference`, and shares no code with `Family.read`: the vector, or
            (n, 6 + c) x1, y1, x2, y2 in network pixels, score and class of each candidate, and further values of the
            family. None for maps and texts.
        by_shape: whether it may be chosen by shapes. If not, they are those of other families, and a source or the user
            must name it.
        meaning: what the outputs mean, where other networks have the same shapes and the user has to decide.
        input_hint: which networks with different inputs have these outputs, for a message.
        keypoints: the set of keypoints, a key of `labels.SKELETONS`.
        ultralytics: the tasks that Ultralytics' exports with these outputs name; '' for exports that name none.
        hugging_face: the end of the name of the architecture in Hugging Face's exports.
        selects: whether a card's `select` says what becomes an object.
    """

    formats: tuple[OutputFormat, ...] = ()
    line: CardFacts = field(default_factory=CardFacts)
    plausible: ShapeRule | None = None
    doubt: Doubt | None = None
    reference: Callable[[PlainImage], np.ndarray] | None = None
    by_shape: bool = True
    meaning: str = ""
    input_hint: str = ""
    keypoints: str = ""
    ultralytics: tuple[str, ...] = ()
    hugging_face: str = ""
    selects: bool = False


class Family:
    """Decoder of one line of networks. Stateless: one instance is shared.

    Attributes:
        name: the name in a card.
        task: the task of its cards.
        columns: the extra columns, in the order of the rows' values.
        regions: whether it outputs class maps (`maps`), not objects.
        rank, layout: number of dimensions and format of the output that `_only` returns.
        suppress: whether non-max suppression follows.
        sizes: what `check` expects of that output: dimension, size and meaning.
        label: the label of the only class that it finds; empty for any classes.
        numbers: names of the numbers that it gives instead of classes; empty for any classes.
        several: whether an anchor's box may be an object of several classes, see `pairs`.
        host_only: whether it decodes on the host only, so that outputs on a GPU are copied to the host.
        top_down: whether its networks see one object with its surroundings, which fill the input.
        takes_clips: whether the input of its networks is a clip, several frames of a video.
        traits: what is known of its networks.
    """

    name = ""
    task = "detect"
    columns: Columns = {}  # noqa: RUF012  # never changed
    regions = False
    rank = 3
    layout = ""
    suppress = False
    sizes: tuple[tuple[int, int, str], ...] = ()
    label = ""
    numbers: tuple[str, ...] = ()
    several = False
    host_only = False
    top_down = False
    takes_clips = False
    traits = FamilyTraits()

    def check(self, outputs: Shapes, classes: int) -> None:
        """Check the shapes of a network's outputs.

        Args:
            outputs: the shapes.
            classes: length of the label list.

        Raises:
            ValueError: an output is missing or has another shape, or the label list has another length.
        """
        name, shape = self._only(outputs)
        for axis, size, what in self.sizes:
            self._check_size(name, shape, axis, size, what)
        self._check_single_class(classes)

    def claims(self, outputs: Shapes, classes: int) -> frozenset[str]:
        """Return the names of the outputs that the family explains, for outputs and classes that `check` accepts.

        These are the outputs that it reads, and those that it knows to repeat them or to be features of inner layers.
        A network with any other output is not of this family: what that output holds, such as masks, would be lost.
        """
        return frozenset([self._only(outputs)[0]])

    def selecting(self, select: str) -> Family:
        """Return the family for cards with this `select`; empty for cards without one."""
        return self

    def points(self, outputs: Shapes, classes: int) -> int | None:
        """Return the number of keypoints per object, by the outputs' shapes; None if there are none or it is open."""
        count = self.columns.get("keypoints", (0,))[0]
        return count if count > 0 else None

    def keypoints(self, outputs: Shapes, classes: int) -> str:
        """Return the set of keypoints, a key of `labels.SKELETONS`; empty if none is known."""
        return self.traits.keypoints

    def reading(self, outputs: Shapes) -> str:
        """Return which of several outputs it reads, for the card's comment, after the outputs; empty if all."""
        return ""

    def line(self, info: ModelInfo, size: Size | None) -> CardFacts:
        """Return the input and thresholds of a network's authors; empty if they are unknown.

        Args:
            info: the network.
            size: width and height of its input if only its outputs tell the family; None if a source names it.
        """
        return self.traits.line

    def certain(self, info: ModelInfo, classes: int | None, labeled: bool) -> bool:
        """Whether shapes that are plausible are of this family only, so that it may be chosen without the user.

        Args:
            info: the network.
            classes: the number of classes that the shapes have; None if they leave it open.
            labeled: whether a source names the classes.
        """
        return not self.traits.meaning

    def reference_rows(self, image: PlainImage) -> np.ndarray:
        """Read one image plainly, see `FamilyTraits.reference`."""
        assert self.traits.reference is not None, f"family {self.name} has no objects and no vector"
        return self.traits.reference(image)

    def extra_inputs(self, sizes_wh: np.ndarray, xp: Any) -> dict[str, Array]:
        """Return inputs that the network takes beside the images, for (B, 2) widths and heights; arrays of `xp`."""
        return {}

    def single_image(self, outputs: Shapes) -> bool:
        """Whether outputs that `check` accepts have no dimension of images, so that each run takes one image.

        `stack_images` joins the outputs of several runs.
        """
        return False

    def candidates(self, outputs: Outputs, n: int, input_size: Size, min_score: np.ndarray) -> Any:
        """Return the candidates (`ops.candidates`) of the first n frames; arguments as in `read`."""
        raise NotImplementedError

    def pairs(self, outputs: Outputs, n: int, input_size: Size, min_score: np.ndarray) -> Any:
        """Return the same as `candidates`, but each class of an anchor may be an object."""
        raise NotImplementedError

    def used(self, outputs: Outputs, n: int) -> dict[str, Array]:
        """Return the first n rows of the outputs that the family reads."""
        return {name: output[:n] for name, output in outputs.items()}

    def read(
        self, outputs: Outputs, geometry: np.ndarray, sizes_wh: np.ndarray, input_size: Size, options: ReadOptions
    ) -> Packed:
        """Decode a batch's outputs into objects, on the outputs' device, without synchronizing with it.

        Args:
            outputs: the network's outputs by name; their first n rows are frames, further rows are padding.
            geometry: (n, 4) float32 on the host, each frame's scale_x, scale_y, offset_x, offset_y:
                network pixel = source pixel x scale + offset, both counted from the frame's edge.
            sizes_wh: (n, 2) on the host, each frame's width and height.
            input_size: the network's width and height.
            options: thresholds and limits.
        """
        find = self.pairs if options.multi_label else self.candidates
        return select(
            find(outputs, len(geometry), input_size, options.min_score),
            geometry,
            sizes_wh,
            iou=options.iou if self.suppress else None,
            agnostic=options.agnostic,
            top_k=options.top_k,
            min_size=options.min_size,
            max_size=options.max_size,
        )

    def rest(
        self, outputs: Outputs, packed: Packed, geometry: np.ndarray, sizes_wh: np.ndarray, input_size: Size
    ) -> Rest | None:
        """Return the columns of the objects of `read` that are made when they are read; arguments as in `read`.

        These are masks, and on a GPU the values behind the class if keypoints are among them.
        """
        if "keypoints" not in self.columns or array_module(packed.rows) is np:
            return None
        late = LateArray(packed.rows)
        columns = self.columns

        def build(table: Detections) -> tuple[dict[str, LazyColumn], int]:
            frame = table.batch_row
            rank = np.arange(len(table)) - np.searchsorted(frame, frame)
            values = cache(lambda: late.read(np.s_[:, : rank.max(initial=-1) + 1, 6:])[frame, rank])
            lazy_columns = {}
            for name, (first, shape) in _places(columns, late.shape[2]).items():
                part = slice(first - 6, first - 6 + math.prod(shape))
                make = partial(_part, values, part, shape)
                lazy_columns[name] = LazyColumn(make, np.arange(len(table)), np.float32, shape)
            return lazy_columns, 0

        return Rest(late, build)

    # --------------------------------------------------------------------------------- lookup and check of the outputs

    def _single(self, outputs: Mapping[str, T], fitting: Callable[[tuple[Any, ...]], bool], what: str) -> tuple[str, T]:
        """Return the only output whose shape is fitting: its name, and its shape or array; else raise ValueError."""
        fitting_outputs = [(name, value) for name, value in outputs.items() if fitting(shape_of(value))]
        if len(fitting_outputs) != 1:
            raise ValueError(f"family {self.name} reads one {what}; the network has {listed(outputs)}")
        return fitting_outputs[0]

    def _only(self, outputs: Mapping[str, T], rank: int = 0, layout: str = "") -> tuple[str, T]:
        """Return the only output with that many dimensions, by default the class's; raise ValueError."""
        rank = rank or self.rank
        layout = layout or self.layout
        return self._single(outputs, lambda shape: len(shape) == rank, f"output of {rank} dimensions, {layout}")

    def _named(self, outputs: Mapping[str, T], names: Sequence[str]) -> list[T]:
        """Return the outputs of these names; raise ValueError if one is missing."""
        missing = [name for name in names if name not in outputs]
        if missing:
            raise ValueError(
                f"family {self.name} reads the outputs {', '.join(names)}; the network lacks {', '.join(missing)} "
                f"and has {listed(outputs)}"
            )
        return [outputs[name] for name in names]

    def _check_size(self, output: str, shape: Sequence[Any], axis: int, expected: int, what: str) -> None:
        """Check that a dimension is open or has the expected size; raise ValueError."""
        if len(shape) <= axis or not fits(shape[axis], expected):
            raise ValueError(
                f"family {self.name}: dimension {axis} of output {output!r} must be {expected} ({what}), "
                f"its shape is {tuple(shape)}"
            )

    def _check_classes(self, output: str, shape: Sequence[Any], axis: int, others: int, classes: int) -> None:
        """Check that a dimension has `others` values and a score for each class of the label list; raise ValueError."""
        size = shape[axis]
        if fits(size, others + classes):
            return
        beside = f" beside {others} other values" if others else ""
        wants = f"it is trained on {size - others}" if size > others else "it is no output of this family"
        raise ValueError(
            f"family {self.name}: output {output!r} of shape {tuple(shape)} holds {max(size - others, 0)} classes"
            f"{beside}, and the label list has {classes}; {wants}: give the card the labels or the family of this "
            "network"
        )

    def _check_single_class(self, classes: int) -> None:
        """Check that the label list has one class if the family finds one; raise ValueError."""
        if self.label and classes != 1:
            only = f"family {self.name} finds one class, and the label list has {classes}"
            raise ValueError(f"{only}; give it [{self.label}]")


FAMILIES: dict[str, Family] = {}
"""The built-in families, by their name in a card."""


def network_family(name: str, traits: FamilyTraits) -> Callable[[type[FamilyClass]], type[FamilyClass]]:
    """Add a built-in family: the class decorated decodes the outputs, and `traits` are what is known of its networks.

    Args:
        name: the name in a card.
        traits: see `FamilyTraits`.
    """

    def decorate(decoder: type[FamilyClass]) -> type[FamilyClass]:
        decoder.name = name
        decoder.traits = traits
        FAMILIES[name] = decoder()
        return decoder

    return decorate


def authors_input(name: str, score: float, iou: float | None = None, **input_: Any) -> CardFacts:
    """Return the input and thresholds of a line of networks; `input_` are keys of `input` in a card."""
    facts = CardFacts()
    keys = {"resize": "letterbox", "color": "rgb", "scale": "1/255", "mean": 0, "std": 1} | input_
    facts.add(f"{name}: the authors' input", **{f"input_{key}": value for key, value in keys.items()})
    facts.add(f"{name}: the authors' threshold", score=score, **({} if iou is None else {"iou": iou}))
    return facts


def shape_of(value: Any) -> tuple[Any, ...]:
    """Return the shape of an array, or the shape itself."""
    return tuple(getattr(value, "shape", value))


def fits(size: Any, expected: int) -> bool:
    """Whether a dimension has that size, or is open."""
    return not isinstance(size, int) or size < 1 or size == expected


def unclaimed(family: Family, outputs: Shapes, classes: int) -> list[str]:
    """Return the outputs that a family does not explain, in their order; see `Family.claims`."""
    claimed = family.claims(outputs, classes)
    return [name for name in outputs if name not in claimed]


def is_inner(name: str) -> bool:
    """Whether an output is, by its name in Hugging Face's exports, one of features that a head has already read."""
    return name.endswith(("hidden_state", "hidden_states", "_embeds"))


def stack_images(runs: Sequence[Outputs], xp: Any) -> dict[str, Array]:
    """Stack the outputs of runs of one image each, see `Family.single_image`; zeros fill the shorter lists."""
    stacked = {}
    for name in runs[0] if runs else ():
        lists = [outputs[name] for outputs in runs]
        longest = max(len(rows) for rows in lists)
        stacked[name] = xp.zeros((len(lists), longest, *lists[0].shape[1:]), lists[0].dtype)
        for image, rows in enumerate(lists):
            stacked[name][image, : len(rows)] = rows
    return stacked


def listed(outputs: Mapping[str, Any]) -> str:
    """Return the outputs and their shapes as text for a message."""
    return ", ".join(f"{name}{list(shape_of(value))}" for name, value in outputs.items()) or "no outputs"


def unpack(rows: np.ndarray, counts: np.ndarray, labels: tuple[str, ...], columns: Columns) -> Detections:
    """Make the table of a batch from `Packed.rows` and `Packed.counts`, both on the host.

    Rows are ordered by frame, best first; `row_id` numbers them through the batch.
    """
    row_counts = counts[:, 0]
    used = rows[np.arange(rows.shape[1]) < row_counts[:, None]]
    extra = {
        name: used[:, at : at + math.prod(shape)].reshape(len(used), *shape)
        for name, (at, shape) in _places(columns, rows.shape[2]).items()
    }
    return Detections(
        np.ascontiguousarray(used[:, :4]),
        np.ascontiguousarray(used[:, 4]),
        used[:, 5].astype(np.int32),
        np.repeat(np.arange(len(row_counts), dtype=np.int32), row_counts),
        labels=labels,
        extra=extra,
    )


def _places(columns: Columns, width: int) -> dict[str, tuple[int, tuple[int, ...]]]:
    """Return for each extra column where its values begin in a row of that width, and the shape of one row's values."""
    places = {}
    at = 6
    for name, shape in columns.items():
        size = width - at if -1 in shape else math.prod(shape)
        shape = tuple(size // -math.prod(shape) if side == -1 else side for side in shape)
        places[name] = at, shape
        at += size
    return places


def _part(values: Callable[[], np.ndarray], part: slice, shape: tuple[int, ...], rows: np.ndarray) -> np.ndarray:
    return values()[rows, part].reshape(len(rows), *shape)


def begin_table(
    family: Family,
    outputs: Outputs,
    geometry: np.ndarray,
    sizes_wh: np.ndarray,
    input_size: Size,
    options: ReadOptions,
    labels: tuple[str, ...],
) -> tuple[Callable[[], tuple[Detections, np.ndarray, int]], LateArray | None]:
    """Start to decode a batch's outputs on their device, and to copy the result to the host in one copy.

    Returns:
        A function that waits for the copy, and returns the table, the counts of `Packed`, and the number of objects
        without a mask; and the array that stays on the device for columns that are read later.
    """
    packed = family.read(outputs, geometry, sizes_wh, input_size, options)
    rest = family.rest(outputs, packed, geometry, sizes_wh, input_size)
    wait = fetch([packed.buffer] if rest is None else [packed.rows[:, :, :6], packed.counts])

    def table() -> tuple[Detections, np.ndarray, int]:
        if rest is None:
            rows, counts, _ = packed.over(wait()[0], packed.rows.shape)
            return unpack(rows, counts, labels, family.columns), counts, 0
        rows, counts = wait()
        boxes = unpack(rows, counts, labels, {})
        columns, lost = rest.columns(boxes)
        return boxes.with_columns(**columns), counts, lost

    return table, None if rest is None else rest.array
