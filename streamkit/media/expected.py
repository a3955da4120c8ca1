"""How many frames a source is going to give, for progress bars."""

from __future__ import annotations

import math
from typing import Any


def expected_frames(
    facts: dict[str, Any], start_s: float, end_s: float | None, every: int, fps: float | None, turns: float
) -> int | None:
    """Estimate the number of frames that a file gives.

    Args:
        facts: `frames`, `fps` (frames a second) and `duration_s` of the whole file, each a number or None.
        start_s: what comes before is left out, in seconds.
        end_s: what comes after is left out, in seconds; None for nothing.
        every: each n-th frame is taken.
        fps: at most so many frames a second are taken; None for all.
        turns: how often the file is read; `math.inf` without an end.

    Returns:
        The estimate, or None where the length is not known or there is no end.
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
