"""The parts of a batch's frames that a network is asked about: a stage's `of:` between choosing objects and its answer.

A composite with `of:` is a chain of parts, and the batch carries `Crops` from the first to the last:

    select       host    which objects to ask about, and the rectangle of each: sets `batch.crops` and `batch.rows`
    preprocess   device  cuts all of them from their surfaces in one launch: row i of the tensor is rectangle i; of more
                         than the stage's own `batch` the tensor is `LazyRows`; those of a run are cut when it begins
    infer        device  runs the network in steps of that `batch`
    postprocess  device  starts the answers on their way to the host, and lets the outputs go
    keep         host    keeps them with each track, gives every object its column, and takes the crops off the batch

`batch.geometry` leads from each row back to the whole frame's pixels, so a family that finds boxes, masks or key points
needs nothing else to speak of the source. The parts are in `streamkit/stages/inference/`: `select_objects.py`,
`preprocess.py`, `infer.py`, `postprocess.py` and `apply_results.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Crops:
    """m rectangles of a batch's frames; `batch.rows`, (m,) int32, says of which frame each is, and rises.

    Attributes:
        rects: (m, 4) int32: left, top, right, bottom in source pixels, the last two exclusive; left and top are even.
        row_id: (m,) int32, the object's `row_id` in its table; -1 for a whole frame.
        answers: what the network says of each, (m, d) float32 on the host; a function where it is still on its way.
    """

    rects: np.ndarray
    row_id: np.ndarray
    answers: np.ndarray | Callable[[], np.ndarray] | None = None

    def __post_init__(self) -> None:
        if self.rects.shape != (len(self.row_id), 4) or self.row_id.ndim != 1:
            got = f"{list(self.rects.shape)} and {list(self.row_id.shape)}"
            raise ValueError(f"Crops needs rects of shape (m, 4) and row_id of shape (m,), got {got}")

    def __len__(self) -> int:
        return len(self.rects)

    def answered(self) -> np.ndarray:
        """The answers, waited for.

        Raises:
            ValueError: nothing has been asked yet.
        """
        if self.answers is None:
            raise ValueError("the crops have no answers yet; the network and its postprocess come first")
        return self.answers() if callable(self.answers) else self.answers

    def take(self, rows: np.ndarray) -> Crops:
        """The crops at these indices."""
        answers = None if self.answers is None else self.answered()[rows]
        return replace(self, rects=self.rects[rows], row_id=self.row_id[rows], answers=answers)

    @staticmethod
    def join(parts: Sequence[Crops | None]) -> Crops | None:
        """The crops of several batches, one below the other; None where there are none."""
        crops = [part for part in parts if part is not None]
        if not crops:
            return None
        answers = [part.answered() for part in crops if part.answers is not None and len(part)]
        asked = any(part.answers is not None for part in crops)
        none = np.zeros((0, 0), np.float32)
        return Crops(
            np.concatenate([part.rects for part in crops]),
            np.concatenate([part.row_id for part in crops]),
            (np.concatenate(answers) if answers else none) if asked else None,
        )


class LazyRows:
    """A tensor of which only the rows that are asked for are made, so that any number of crops takes bounded memory.

    Args:
        make: makes the tensor of these rows, (k,) indices.
        shape: the whole tensor's.
        dtype: the tensor's.
    """

    __slots__ = ("_make", "dtype", "shape")

    def __init__(self, make: Callable[[np.ndarray], Any], shape: tuple[int, ...], dtype: np.dtype) -> None:
        self._make, self.shape, self.dtype = make, shape, dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Any:
        """The tensor of these rows, a slice or indices: made now, and the caller's alone."""
        return self._make(np.arange(len(self))[rows])


def once(make: Callable[[], np.ndarray]) -> Callable[[], np.ndarray]:
    """A function that makes its value when it is first called, and then gives it again."""
    made: list[np.ndarray] = []

    def take() -> np.ndarray:
        if not made:
            made.append(make())
        return made[0]

    return take
