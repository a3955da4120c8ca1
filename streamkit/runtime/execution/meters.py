# SPDX-License-Identifier: Apache-2.0
"""Metrics of a run: frames, time by stage, latency histograms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


class Histogram:
    """Histogram of durations from 10 µs to 1,000 s in buckets 2 % apart; its memory is constant."""

    _LOW = 1e-5
    _STEP = math.log(1.02)
    _SIZE = 932

    def __init__(self) -> None:
        self.counts = np.zeros(self._SIZE, np.int64)

    def add(self, seconds: float) -> None:
        """Add a duration."""
        at = int(math.log(max(seconds, self._LOW) / self._LOW) / self._STEP)
        self.counts[min(at, self._SIZE - 1)] += 1

    def quantile(self, share: float) -> float:
        """The given quantile in seconds, within 2 %; NaN if the histogram is empty."""
        return self._quantiles([share])[0]

    def _quantiles(self, shares: Sequence[float]) -> list[float]:
        summed = np.cumsum(self.counts)
        total = int(summed[-1])
        if not total:
            return [math.nan] * len(shares)
        places = np.searchsorted(summed, [max(1, math.ceil(share * total)) for share in shares])
        return [self._LOW * math.exp((int(at) + 0.5) * self._STEP) for at in places]

    def up_to(self, bounds_s: Sequence[float]) -> list[int]:
        """Cumulative counts at the bounds, in seconds; the bucket that contains a bound counts as above it."""
        total = np.concatenate([[0], np.cumsum(self.counts)])
        ends = [int(math.log(max(bound_s, self._LOW) / self._LOW) / self._STEP) for bound_s in bounds_s]
        return [int(total[min(end, self._SIZE)]) for end in ends]

    def total_s(self) -> float:
        """Sum of all durations in seconds, within 1 %."""
        return float(self.counts @ (self._LOW * np.exp((np.arange(self._SIZE) + 0.5) * self._STEP)))

    def summary(self) -> dict[str, float]:
        """p50, p95 and p99 in milliseconds."""
        of_s = self._quantiles([0.5, 0.95, 0.99])
        return {name: round(of * 1e3, 2) for name, of in zip(("p50_ms", "p95_ms", "p99_ms"), of_s, strict=True)}


class StageMeter:
    """Metrics of one instance of a stage. Its own thread writes them; the report reads them."""

    __slots__ = ("batches", "failed", "frames", "other_errors", "seconds")

    def __init__(self) -> None:
        self.frames = self.batches = self.failed = self.other_errors = 0
        self.seconds = 0.0

    @staticmethod
    def total(meters: list[StageMeter]) -> dict[str, Any]:
        """Sum over the instances of a stage, for the report."""
        return stage_total(
            [{"frames": m.frames, "instances": 1, "seconds": m.seconds, "failed": m.failed} for m in meters]
        )


def stage_total(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Sum metrics of the same stage, for the report."""
    frames, instances, seconds, failed = (
        sum(part.get(key, 0) for part in parts) for key in ("frames", "instances", "seconds", "failed")
    )
    total = {
        "frames": frames,
        "instances": instances,
        "seconds": round(seconds, 3),
        "us_per_frame": round(seconds / frames * 1e6, 1) if frames else None,
    }
    return {**total, "failed": failed} if failed else total
