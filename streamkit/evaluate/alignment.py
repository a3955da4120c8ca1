# SPDX-License-Identifier: Apache-2.0
"""Finds a truth whose frames are counted otherwise than those of its video, or whose boxes are of another size."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from streamkit.core.errors import ConfigError
from streamkit.evaluate.boxes import overlaps
from streamkit.evaluate.causes import CANDIDATE_SCORE
from streamkit.evaluate.observe import Observations
from streamkit.evaluate.truth import Truth

_GAIN = 0.05  # of the mean overlap, from which another place or size is the right one
_POOR = 0.3  # mean overlap of a fit; below it, frames further away and other sizes are tried
_NONE = 0.15  # mean overlap of boxes of another video
_MIN_COUNT = 30  # objects
_SAMPLE = 150  # frames
_SCALES = tuple(Fraction(*ratio) for ratio in ((1, 3), (1, 2), (2, 3), (3, 4), (4, 3), (3, 2), (2, 1), (3, 1)))


def check_alignment(seen: Observations, truth: Truth) -> list[str]:
    """Check that the truth is at the right frames, and at the right size.

    The candidates of the network decide, of whatever class: no tracker moves or delays them.

    Returns:
        A note for each source whose truth fits nowhere.

    Raises:
        ConfigError: the truth fits much better a few frames earlier or later, or at another size.
    """
    notes = []
    for source in dict.fromkeys(frame.source for frame in seen.frames):
        fit = _Fit(seen, source)
        base = fit.mean(0, 1.0)
        if base is None:
            continue
        path = truth.rows[source].path
        shifts = range(-30, 31) if base < _POOR else range(-2, 3)
        shift, moved = _best({shift: fit.mean(shift, 1.0) for shift in shifts})
        if moved >= max(base + _GAIN, _POOR):
            where = f"{abs(shift)} frame{'s' * (abs(shift) > 1)} {'later' if shift > 0 else 'earlier'}"
            raise ConfigError(
                f"{path} fits the source {source} better {where}: its boxes overlap those of the network by "
                f"{moved:.2f} on average there, and by {base:.2f} at their own frames. {_counting(truth, path, shift)}"
            )
        if base < _POOR:
            scale, sized = _best({scale: fit.mean(0, float(scale)) for scale in _SCALES})
            if sized >= max(base + _GAIN, _POOR):
                raise ConfigError(
                    f"{path} is of another size than the source {source}: times {scale}, its boxes overlap those of "
                    f"the network by {sized:.2f} on average, and by {base:.2f} as they are; export the truth at the "
                    "size of the video"
                )
        if base < _NONE:
            notes.append(
                f"the boxes of {path} overlap those of the network by {base:.2f} on average, as if it were the truth "
                f"of another video than the source {source}"
            )
    return notes


def _counting(truth: Truth, path: Path, shift: int) -> str:
    first = 1 if truth.options.first_frame is None else truth.options.first_frame
    if path.is_dir() and shift == (1 if first else -1):
        return f"Try --first-frame {1 - first}"
    verb = f"Add {shift} to" if shift > 0 else f"Subtract {-shift} from"
    return f"{verb} its frame numbers: jsonl and COCO count from 0, MOTChallenge from 1"


def _best(overlap_at: dict[Any, float | None]) -> tuple[Any, float]:
    measured = {place: value or 0.0 for place, value in overlap_at.items()}
    place = max(measured, key=measured.__getitem__)
    return place, measured[place]


class _Fit:
    """How well the truth of a source fits the network's candidates."""

    def __init__(self, seen: Observations, source: str) -> None:
        low = seen.low if seen.has_low else seen.detections
        self._boxes = low[low.score >= CANDIDATE_SCORE]
        self._seen = seen
        self._places = {frame.index: n for n, frame in enumerate(seen.frames) if frame.source == source}
        ran = [n for n in seen.inferred.tolist() if seen.frames[n].source == source]
        self._ran = [ran[k] for k in np.unique(np.linspace(0, len(ran) - 1, min(_SAMPLE, len(ran))).astype(int))]

    def mean(self, shift: int, scale: float) -> float | None:
        """Mean of the best IoU of each object, `shift` frames later; None for too few objects or boxes."""
        best_overlaps: list[float] = []
        boxes = 0
        for number in self._ran:
            place = self._places.get(self._seen.frames[number].index - shift)
            if place is None:
                continue
            part = self._seen.truth[self._seen.truth.rows_of(place)]
            here = self._boxes.xyxy[self._boxes.rows_of(number)]
            boxes += len(here)
            best_overlaps += overlaps(scale * part.xyxy[~part.ignore], here).max(axis=1, initial=0.0).tolist()
        return float(np.mean(best_overlaps)) if len(best_overlaps) >= _MIN_COUNT and boxes >= _MIN_COUNT else None
