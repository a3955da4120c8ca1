"""What a family is: the way of one line of networks from their outputs to objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from streamkit.data import Array, Detections
from streamkit.ops.nms import Packed, select

Columns = Mapping[str, tuple[int, ...]]
"""Extra columns of a table: name and shape of one row's values; a last column's -1 is as long as the row is."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What becomes an object.

    Attributes:
        min_score: (c,) float32, the least score of each class; +inf for a class that is not wanted.
        iou: non-max suppression takes a box out whose IoU with a better one is over this.
        agnostic: boxes suppress each other whatever their class.
        top_k: at most this many objects a frame, the best.
        min_size: a box whose shorter side is under this is dropped; source pixels, after clipping.
        max_size: a box whose longer side is over this is dropped.
    """

    min_score: np.ndarray
    iou: float = 0.45
    agnostic: bool = False
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
    """What a table needs beside its rows.

    Attributes:
        arrays: on the outputs' device; they come to the host together with the rows.
        complete: makes the table whole, given these arrays on the host.
    """

    arrays: Sequence[Array]
    complete: Callable[[Detections, Sequence[np.ndarray]], Detections]


class Family(Protocol):
    """One line of networks. Stateless: one instance serves all."""

    @property
    def name(self) -> str:
        """The word a card uses."""

    @property
    def task(self) -> str:
        """The task that its cards must name."""

    @property
    def columns(self) -> Columns:
        """The extra columns, in the order in which they stand in the rows."""

    def check(self, outputs: Mapping[str, Sequence[Any]], classes: int) -> None:
        """Compare the shapes of a network's outputs with what the family reads.

        Args:
            outputs: each output's shape by name; a text, None or a number below 1 is a size that is not fixed.
            classes: the length of the label list.

        Raises:
            ValueError: an output is missing or has another shape, or the label list another length.
        """

    def selecting(self, select: str) -> Family:
        """The family for cards with this `select`; empty for cards without one."""

    @property
    def regions(self) -> bool:
        """Whether it tells classes of places (`maps`), not objects."""

    def points(self, outputs: Mapping[str, Sequence[Any]], classes: int) -> int | None:
        """How many key points an object has, by the outputs' shapes; None where there are none or it cannot be seen."""

    def extra_inputs(self, sizes_wh: np.ndarray, xp: Any) -> dict[str, Array]:
        """Inputs that the network takes beside the pictures, for (B, 2) widths and heights; arrays of `xp`."""

    def read(
        self,
        outputs: Mapping[str, Array],
        geometry: np.ndarray,
        sizes_wh: np.ndarray,
        input_size: tuple[int, int],
        options: ReadOptions,
    ) -> Packed:
        """Make objects of a batch's outputs, on the device where they are. Nothing waits for the device.

        Args:
            outputs: the network's outputs by name; their first n rows are frames, further ones padding.
            geometry: (n, 4) float32 on the host, each frame's scale_x, scale_y, offset_x, offset_y:
                network pixel = source pixel x scale + offset, both counted from the picture's edge.
            sizes_wh: (n, 2) on the host, each frame's width and height.
            input_size: the network's width and height.
            options: what becomes an object.
        """

    def rest(
        self,
        outputs: Mapping[str, Array],
        packed: Packed,
        geometry: np.ndarray,
        sizes_wh: np.ndarray,
        input_size: tuple[int, int],
    ) -> Rest | None:
        """What the objects of `read` have beyond their rows, such as masks; arguments as there."""


class Plain:
    """A family with no extra columns and no extra inputs."""

    name = ""
    task = "detect"
    columns: Columns = {}  # noqa: RUF012  # never changed
    regions = False

    def selecting(self, select: str) -> Any:
        """The same, for there is nothing to choose."""
        return self

    def points(self, outputs: Mapping[str, Sequence[Any]], classes: int) -> int | None:
        """None."""
        return None

    def rest(
        self,
        outputs: Mapping[str, Array],
        packed: Packed,
        geometry: np.ndarray,
        sizes_wh: np.ndarray,
        input_size: tuple[int, int],
    ) -> Rest | None:
        """Nothing."""
        return None

    def extra_inputs(self, sizes_wh: np.ndarray, xp: Any) -> dict[str, Array]:
        """None."""
        return {}


def finish(
    candidates: Any, geometry: np.ndarray, sizes_wh: np.ndarray, options: ReadOptions, *, suppress: bool
) -> Packed:
    """Select the objects among candidates as the options say; with `suppress`, by non-max suppression."""
    return select(
        candidates,
        geometry,
        sizes_wh,
        iou=options.iou if suppress else None,
        agnostic=options.agnostic,
        top_k=options.top_k,
        min_size=options.min_size,
        max_size=options.max_size,
    )


def unpack(rows: np.ndarray, counts: np.ndarray, labels: tuple[str, ...], columns: Columns) -> Detections:
    """Make the table of a batch from `Packed.rows` and `Packed.counts`, both on the host.

    Rows come frame by frame, best first; `row_id` counts them through the batch.
    """
    kept = counts[:, 0]
    used = rows[np.arange(rows.shape[1]) < kept[:, None]]
    extra, at = {}, 6
    for name, shape in columns.items():
        width = rows.shape[2] - at if -1 in shape else int(np.prod(shape))
        shape = tuple(width // -int(np.prod(shape)) if size == -1 else size for size in shape)
        extra[name] = used[:, at : at + width].reshape(len(used), *shape)
        at += width
    return Detections(
        np.ascontiguousarray(used[:, :4]),
        np.ascontiguousarray(used[:, 4]),
        used[:, 5].astype(np.int32),
        np.repeat(np.arange(len(kept), dtype=np.int32), kept),
        labels=labels,
        extra=extra,
    )
