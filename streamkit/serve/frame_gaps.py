# SPDX-License-Identifier: Apache-2.0
"""Which running sources deliver no frames although one is due, measured against the rate of each source."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from streamkit.runtime.ingest.source_status import SourceState

_DUE_GAPS = 3.0  # usual times between two frames without a frame, after which one is due
_GAPS = 5  # over which the usual time is measured


@dataclass(slots=True)
class _Arrivals:
    """The last arrival of a frame of one source, and the times between its last arrivals."""

    frames: int
    arrived_s: float
    gaps_s: deque[float] = field(default_factory=lambda: deque(maxlen=_GAPS))


class FrameGaps:
    """Measures the time since the last frame of each source. One thread samples, about once a second; any may read."""

    def __init__(self) -> None:
        self._arrivals: dict[str, _Arrivals] = {}

    def sample(self, now_s: float, states: Mapping[str, SourceState]) -> None:
        """Look at the sources at a monotonic time in seconds; those that are not running are forgotten."""
        arrivals = {}
        for id_, state in states.items():
            if state.removed or state.state != "running" or not state.frames:
                continue
            arrival = arrivals[id_] = self._arrivals.get(id_) or _Arrivals(state.frames, now_s)
            if state.frames != arrival.frames:
                arrival.gaps_s.append(now_s - arrival.arrived_s)
                arrival.frames = state.frames
                arrival.arrived_s = now_s
        self._arrivals = arrivals

    def quiet_s(self, id_: str, now_s: float) -> float | None:
        """Seconds since the last frame of a source if another one is due, else None.

        None until two frames have come at different samples: before, the rate of the source is not known.
        """
        arrival = self._arrivals.get(id_)
        if arrival is None or not arrival.gaps_s:
            return None
        quiet_s = now_s - arrival.arrived_s
        return quiet_s if quiet_s > _DUE_GAPS * median(tuple(arrival.gaps_s)) else None
