"""Metrics of a run: frames, time by stage, latency histograms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


class Histogram:
    """Histogram of durations from 10 µs to 1,000 s in buckets 2 % apart; its memory is constant."""

    _LOW, _STEP, _SIZE = 1e-5, math.log(1.02), 932

    def __init__(self) -> None:
        self.counts = np.zeros(self._SIZE, np.int64)

    def add(self, seconds: float) -> None:
        """Add a duration."""
        at = int(math.log(max(seconds, self._LOW) / self._LOW) / self._STEP)
        self.counts[min(at, self._SIZE - 1)] += 1

    def quantile(self, share: float) -> float:
        """The given quantile in seconds, within 2 %; NaN if the histogram is empty."""
        total = int(self.counts.sum())
        if not total:
            return math.nan
        at = int(np.searchsorted(np.cumsum(self.counts), max(1, math.ceil(share * total))))
        return self._LOW * math.exp((at + 0.5) * self._STEP)

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
        return {f"p{q}_ms": round(self.quantile(q / 100) * 1e3, 2) for q in (50, 95, 99)}


class StageMeter:
    """Metrics of one instance of a stage. Its own thread writes them; the report reads them."""

    __slots__ = ("batches", "failed", "frames", "seconds", "troubles")

    def __init__(self) -> None:
        self.frames = self.batches = self.failed = self.troubles = 0
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
    found = {
        "frames": frames,
        "instances": instances,
        "seconds": round(seconds, 3),
        "us_per_frame": round(seconds / frames * 1e6, 1) if frames else None,
    }
    return {**found, "failed": failed} if failed else found
