"""Estimated number of frames of a source, for progress bars."""

from __future__ import annotations

import math
from typing import Any


def expected_frames(
    facts: dict[str, Any], start_s: float, end_s: float | None, every: int, fps: float | None, turns: float
) -> int | None:
    """Estimate the number of frames that a file yields.

    Args:
        facts: `frames`, `fps` (frames per second) and `duration_s` of the whole file, each a number or None.
        start_s: earlier frames are skipped, in seconds.
        end_s: later frames are skipped, in seconds; None for none.
        every: only each n-th frame is used.
        fps: maximum number of frames per second; None for all.
        turns: number of passes over the file; `math.inf` for an endless loop.

    Returns:
        The estimate, or None if the length is unknown or infinite.
    """
    frames, rate, length_s = (facts.get(name) for name in ("frames", "fps", "duration_s"))
    if length_s is None and frames and rate:
        length_s = frames / rate
    if math.isinf(turns) or not (length_s and (frames or rate)):
        return None
    span_s = max(0.0, min(length_s, math.inf if end_s is None else end_s) - start_s)
    taken: float = frames * span_s / length_s if frames else rate * span_s
    if fps is not None:
        taken = min(taken, math.ceil(span_s * fps))
    return int(turns * math.ceil(round(taken, 3) / every))
