# SPDX-License-Identifier: Apache-2.0
"""Crops: the rectangles of a batch's frames that a stage with `of:` runs its network on.

A composite with `of:` is a chain of parts, and the batch carries `Crops` from the first to the last:

    select       host    selects objects and their rectangles: sets `batch.crops` and `batch.rows`
    preprocess   device  crops all of them in one launch: row i of the tensor is rectangle i; with more rectangles than
                         the stage's `batch`, or on a GPU, the tensor is `LazyRows`, and a run's crops are made when
                         it begins
    infer        device  runs the network in steps of that `batch`; with more rectangles, the outputs are `LazyOutputs`,
                         and a run is made when `postprocess` asks for it
    postprocess  device  starts the copy of the results to the host, and releases the outputs, run by run
    apply        host    stores the results per track, fills the objects' columns, and removes the crops

A network that takes clips has a part `clips` before `infer`: it keeps the tensor's rows on the device, and passes on a
tensor with a row for each clip, with the crops that the clips end with.

`batch.geometry` maps each row to the pixels of the frame, so that a family with boxes, masks or key points can return
source coordinates. The parts are in `streamkit/stages/inference/`: `select_objects.py`, `preprocess.py`, `infer.py`,
`postprocess.py` and `apply_results.py`; those of clips in `clips.py` and `action.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class ClipSamples:
    """Which frames of which clips m crops are, for a network that takes several frames of a track or source at once.

    Attributes:
        clip: (m,) int64, the number of the clip within its source.
        place: (m,) int64, the number of the frame within the clip, from 0.
        open_clips: by source, the clips that may get further frames after the batch.
    """

    clip: np.ndarray
    place: np.ndarray
    open_clips: Mapping[str, frozenset[int]]

    def take(self, rows: np.ndarray) -> ClipSamples:
        """Those of the crops at these indices."""
        return ClipSamples(self.clip[rows], self.place[rows], self.open_clips)


@dataclass(frozen=True, slots=True)
class Crops:
    """m rectangles of a batch's frames; `batch.rows`, (m,) int32, ascending, holds the frame of each.

    Attributes:
        rects: (m, 4) int32: left, top, right, bottom in source pixels, the last two exclusive; left and top are even.
        row_id: (m,) int32, the object's `row_id` in its table; -1 for a whole frame.
        results: the network's results, (m, d) float32 on the host, or a function that waits for them.
        corners: (m, 4, 2) float32 source pixels, for crops that are straightened: from the upper left corner of what
            the network sees, clockwise; NaN for those that are cut by their rect. None if all are.
        quality: (m,) float64, how good each view is, from `select`; None if it is not measured.
        views: (m, 4) float32, left, top, right, bottom of what fills the network's input, in source pixels: where it
            reaches beyond the rect, the input is padded. None if a rect is placed as the card's `resize` says.
        samples: the clips that they are frames of; None for networks that take single images.
    """

    rects: np.ndarray
    row_id: np.ndarray
    results: np.ndarray | Callable[[], np.ndarray] | None = None
    corners: np.ndarray | None = None
    quality: np.ndarray | None = None
    views: np.ndarray | None = None
    samples: ClipSamples | None = None

    def __post_init__(self) -> None:
        if self.rects.shape != (len(self.row_id), 4) or self.row_id.ndim != 1:
            got = f"{list(self.rects.shape)} and {list(self.row_id.shape)}"
            raise ValueError(f"Crops needs rects of shape (m, 4) and row_id of shape (m,), got {got}")

    def __len__(self) -> int:
        return len(self.rects)

    def wait(self) -> np.ndarray:
        """Wait for the results.

        Raises:
            ValueError: the network has not run yet.
        """
        if self.results is None:
            raise ValueError("the crops have no results yet; run the network and its postprocess first")
        return self.results() if callable(self.results) else self.results

    def take(self, rows: np.ndarray) -> Crops:
        """The crops at these indices."""
        results = None if self.results is None else self.wait()[rows]
        optional = (self.corners, self.quality, self.views)
        corners, quality, views = (None if column is None else column[rows] for column in optional)
        samples = None if self.samples is None else self.samples.take(rows)
        return Crops(self.rects[rows], self.row_id[rows], results, corners, quality, views, samples)

    @staticmethod
    def join(parts: Sequence[Crops | None]) -> Crops | None:
        """Concatenate the crops of several batches; None if there are none."""
        crops = [part for part in parts if part is not None]
        if not crops:
            return None
        results = [part.wait() for part in crops if part.results is not None and len(part)]
        has_results = any(part.results is not None for part in crops)
        none = np.zeros((0, 0), np.float32)
        return Crops(
            np.concatenate([part.rects for part in crops]),
            np.concatenate([part.row_id for part in crops]),
            (np.concatenate(results) if results else none) if has_results else None,
            _joined([part.corners for part in crops if len(part)]),
            _joined([part.quality for part in crops if len(part)]),
            _joined([part.views for part in crops if len(part)]),
            _joined_samples([part.samples for part in crops if part.samples is not None]),
        )


def _joined_samples(parts: list[ClipSamples]) -> ClipSamples | None:
    """Concatenate the samples of parts of one batch; None if there are none."""
    if not parts:
        return None
    clip = np.concatenate([part.clip for part in parts])
    return ClipSamples(clip, np.concatenate([part.place for part in parts]), parts[0].open_clips)


def _joined(parts: list[np.ndarray | None]) -> np.ndarray | None:
    """Concatenate a column of parts that have crops; None if a part does not have the column, or there are none."""
    there = [part for part in parts if part is not None]
    return np.concatenate(there) if there and len(there) == len(parts) else None


class LazyRows:
    """A tensor whose rows are created on demand.

    So any number of crops takes bounded memory, and a network may have its images written where it reads them.

    Args:
        make: creates the tensor of these rows, (k,) indices.
        shape: shape of the whole tensor.
        dtype: dtype of the tensor.
        write: writes these rows to memory that its second argument describes; None if they can only be created.
    """

    __slots__ = ("_make", "_write", "dtype", "shape")

    def __init__(
        self,
        make: Callable[[np.ndarray], Any],
        shape: tuple[int, ...],
        dtype: np.dtype,
        write: Callable[[np.ndarray, Any], None] | None = None,
    ) -> None:
        self._make = make
        self._write = write
        self.shape = shape
        self.dtype = dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Any:
        """Create the tensor of these rows, a slice or indices; the caller owns it."""
        return self._make(np.arange(len(self))[rows])

    def part(self, rows: Any) -> LazyRows:
        """Return these rows, a slice or indices, without creating them."""
        index = np.arange(len(self))[rows]
        make = self._make
        write = self._write
        return LazyRows(
            lambda picked: make(index[picked]),
            (len(index), *self.shape[1:]),
            self.dtype,
            None if write is None else lambda picked, target: write(index[picked], target),
        )

    @property
    def can_be_written(self) -> bool:
        """Whether `write` can be called."""
        return self._write is not None

    def write(self, target: Any) -> None:
        """Write all rows to the memory that `target` describes; see `ops.preprocess_cuda.PackedImages`."""
        if self._write is None:
            raise ValueError("these rows can only be created as an array")
        self._write(np.arange(len(self)), target)


def picked_rows(tensor: Any, rows: np.ndarray) -> Any:
    """Return these rows of a tensor; those of `LazyRows` are not created."""
    return tensor.part(rows) if isinstance(tensor, LazyRows) else tensor[rows]


def dense(tensor: Any) -> Any:
    """Return a tensor as an array: the rows of `LazyRows` are created."""
    return tensor[:] if isinstance(tensor, LazyRows) else tensor


class LazyOutputs(dict[str, Any]):
    """The outputs of a network that takes several runs for a batch; only `runs` makes them, one run at a time.

    As a mapping it is empty. Stages that do not declare `splits_outputs` get those of `whole`.

    Args:
        run: returns the outputs of these rows of the tensor, (k,) indices.
        lengths: rows of each run; those beyond `count` are padding.
        count: number of rows without padding.
    """

    __slots__ = ("_lengths", "_run", "count")

    def __init__(self, run: Callable[[np.ndarray], dict[str, Any]], lengths: Sequence[int], count: int) -> None:
        super().__init__()
        self._run = run
        self._lengths = lengths
        self.count = count

    def __bool__(self) -> bool:
        return True

    def runs(self) -> Iterator[tuple[slice, dict[str, Any]]]:
        """Run the network; yield the rows of each run and its outputs, whose further rows are padding."""
        begin = 0
        for length in self._lengths:
            if begin < self.count:
                rows = slice(begin, min(begin + length, self.count))
                yield rows, self._run(np.arange(begin, begin + length))
            begin += length

    def whole(self, xp: Any) -> dict[str, Any]:
        """Run the network; return its outputs for all rows, arrays of the module `xp`."""
        parts = [(rows.stop - rows.start, outputs) for rows, outputs in self.runs()]
        names = parts[0][1] if parts else ()
        return {name: xp.concatenate([outputs[name][:n] for n, outputs in parts]) for name in names}

    def take(self, rows: np.ndarray) -> LazyOutputs:
        """The outputs of these rows, (k,) indices."""
        length = self._lengths[0]
        runs = -(-len(rows) // length)
        padded = np.concatenate([rows, np.repeat(rows[-1:], runs * length - len(rows))])
        return LazyOutputs(lambda picked: self._run(padded[picked]), [length] * runs, len(rows))
