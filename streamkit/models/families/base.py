"""Interface of a family: decoding of one line of networks from outputs to objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from streamkit.core.data import Array, Detections
from streamkit.ops.nms import Packed, select

Columns = Mapping[str, tuple[int, ...]]
"""Extra columns of a table: name and shape of one row's values; a last column's -1 is as long as the row is."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for decoding objects.

    Attributes:
        min_score: (c,) float32, minimum score of each class; +inf for unwanted classes.
        iou: non-max suppression removes a box whose IoU with a better one is above this.
        agnostic: boxes suppress each other across classes.
        top_k: maximum number of objects per frame; the best are kept.
        min_size: boxes whose shorter side is below this are discarded; source pixels, after clipping.
        max_size: boxes whose longer side is above this are discarded.
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
    """Parts of a table beyond its rows.

    Attributes:
        arrays: on the outputs' device; copied to the host together with the rows.
        complete: completes the table, given these arrays on the host.
    """

    arrays: Sequence[Array]
    complete: Callable[[Detections, Sequence[np.ndarray]], Detections]


class Family(Protocol):
    """One line of networks. Stateless: one instance is shared."""

    @property
    def name(self) -> str:
        """The name in a card."""

    @property
    def task(self) -> str:
        """The task of its cards."""

    @property
    def columns(self) -> Columns:
        """The extra columns, in the order of the rows' values."""

    def check(self, outputs: Mapping[str, Sequence[Any]], classes: int) -> None:
        """Check the shapes of a network's outputs.

        Args:
            outputs: each output's shape by name; a text, None or a number below 1 is an open size.
            classes: length of the label list.

        Raises:
            ValueError: an output is missing or has another shape, or the label list another length.
        """

    def selecting(self, select: str) -> Family:
        """Return the family for cards with this `select`; empty for cards without one."""

    @property
    def regions(self) -> bool:
        """Whether it outputs class maps (`maps`), not objects."""

    def points(self, outputs: Mapping[str, Sequence[Any]], classes: int) -> int | None:
        """Return the number of keypoints per object, by the outputs' shapes; None if there are none or it is open."""

    def extra_inputs(self, sizes_wh: np.ndarray, xp: Any) -> dict[str, Array]:
        """Return inputs that the network takes beside the images, for (B, 2) widths and heights; arrays of `xp`."""

    def read(
        self,
        outputs: Mapping[str, Array],
        geometry: np.ndarray,
        sizes_wh: np.ndarray,
        input_size: tuple[int, int],
        options: ReadOptions,
    ) -> Packed:
        """Decode a batch's outputs into objects, on the outputs' device, without synchronising with it.

        Args:
            outputs: the network's outputs by name; their first n rows are frames, further ones padding.
            geometry: (n, 4) float32 on the host, each frame's scale_x, scale_y, offset_x, offset_y:
                network pixel = source pixel x scale + offset, both counted from the frame's edge.
            sizes_wh: (n, 2) on the host, each frame's width and height.
            input_size: the network's width and height.
            options: thresholds and limits.
        """

    def rest(
        self,
        outputs: Mapping[str, Array],
        packed: Packed,
        geometry: np.ndarray,
        sizes_wh: np.ndarray,
        input_size: tuple[int, int],
    ) -> Rest | None:
        """Return parts of the objects of `read` beyond their rows, such as masks; arguments as there."""


class Plain:
    """A family with no extra columns and no extra inputs."""

    name = ""
    task = "detect"
    columns: Columns = {}  # noqa: RUF012  # never changed
    regions = False

    def selecting(self, select: str) -> Any:
        """Return itself: there is nothing to select."""
        return self

    def points(self, outputs: Mapping[str, Sequence[Any]], classes: int) -> int | None:
        """Return None: objects have no keypoints."""
        return None

    def rest(
        self,
        outputs: Mapping[str, Array],
        packed: Packed,
        geometry: np.ndarray,
        sizes_wh: np.ndarray,
        input_size: tuple[int, int],
    ) -> Rest | None:
        """Return None: rows are complete."""
        return None

    def extra_inputs(self, sizes_wh: np.ndarray, xp: Any) -> dict[str, Array]:
        """Return no further inputs."""
        return {}


def finish(
    candidates: Any, geometry: np.ndarray, sizes_wh: np.ndarray, options: ReadOptions, *, suppress: bool
) -> Packed:
    """Select the objects among candidates by the options; with `suppress`, by non-max suppression."""
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

    Rows are ordered by frame, best first; `row_id` numbers them through the batch.
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
