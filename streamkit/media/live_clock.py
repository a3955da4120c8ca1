# SPDX-License-Identifier: Apache-2.0
"""Checks the timestamps of a live source against the arrival of its packets, and corrects those that are implausible.

Frames and recorded packets have the same times, as the timestamps are corrected before the packets are decoded and
stored. A timestamp is implausible in three ways:

    jump      it falls back, or leaps ahead of the time that has passed: the clock was set, wrapped or restarted
    still     it is that of an earlier packet: the clock does not run, or rounds
    rate      all of them advance faster or slower than time passes, such as stamps for 30 frames/s of a camera that
              sends 25
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Sequence
from typing import Any, Literal

from streamkit.core.counters import Counters

logger = logging.getLogger(__name__)

ClockMode = Literal["auto", "sender", "arrival"]
"""Which clock a live source's presentation times are from."""

JUMPS = "timestamp jumps corrected"
REPLACED = "timestamps replaced by arrival"
RATES = "clock rates corrected"

LONGEST_LEAP_S = 10.0
"""A timestamp that is further ahead of the time that has passed is implausible; live streams in segments come close."""
_REORDERED_S = 1.0
_REORDERED = 16
"""Maximum distance between decode order and presentation order, in seconds and in frames of any codec."""
_REMEMBERED = 32
_SHORTEST_STEP_S = 1e-3
MAX_EARLY = 32
"""Packets of a new connection that may wait for the first one with a decoding time: more than any reordering needs."""
_STILL = 10  # packets with the timestamp of another one, after which a message is logged


class LiveClock:
    """Maps the timestamps of one live source's packets to plausible presentation times.

    Args:
        mode: `auto` corrects what is implausible, `sender` all but the rate, and `arrival` ignores the timestamps.
        counters: counts corrected jumps, replaced timestamps and changes of the corrected rate.
        name: the source's address, masked, for messages.
        real_time: whether the source always sends in real time: a download over HTTP may be faster.

    Attributes:
        trusted: whether the time of the last packet is from its timestamp.
    """

    def __init__(
        self, mode: ClockMode = "auto", counters: Counters | None = None, name: str = "", *, real_time: bool = True
    ) -> None:
        self._mode = mode
        self._counters = counters or Counters()
        self._name = name
        self._rates = RateMonitor(math.inf if real_time else _FASTEST_CAMERA)
        self._rate = 1.0  # of the timestamps, relative to real time
        self._still = 0
        self.trusted = False
        self.begin(1.0, 0)

    def begin(self, tick_s: float, step: int, *, reorders: bool = True) -> None:
        """Start a connection, whose times may begin anywhere. A rate that was measured before stays.

        Args:
            tick_s: length of a tick in seconds.
            step: duration of a frame in ticks.
            reorders: whether frames may be decoded in another order than they are shown.
        """
        self._tick_s = tick_s
        self._reorders = reorders
        self._reordered = max(round(_REORDERED_S / tick_s), _REORDERED * step)
        self._shortest = max(1, round(_SHORTEST_STEP_S / tick_s))
        self._anchors: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)  # rising timestamps and their times
        self._seen: deque[int] = deque(maxlen=_REMEMBERED)  # the last timestamps
        self._rise_s: float | None = None  # arrival of the packet with the highest timestamp
        self._last: tuple[int, float] | None = None  # the latest time so far, and the last packet's arrival
        self._origin: tuple[int, float] | None = None  # the first time, and its packet's arrival
        self._was_set = False  # during the connection
        self._rates.begin()

    def times(
        self, pts: int | None, dts: int | None, *, keyframe: bool, arrived_s: float, waited_s: float = math.inf
    ) -> tuple[int | None, int | None]:
        """Presentation and decoding time of the next packet in decode order, in ticks.

        Once the clock was set, FFmpeg reports presentation times as decoding times, which are wrong for a stream with B
        frames: there are none then.

        Args:
            pts: its timestamp; None if it has none.
            dts: its decoding time, likewise.
            keyframe: whether it is a keyframe, after which no earlier frame is shown.
            arrived_s: its arrival on the monotonic clock, in seconds.
            waited_s: how long the reader waited for it, in seconds.
        """
        self.trusted = False
        if self._mode == "arrival" and (pts is None or not self._reorders):
            at = self.by_arrival(arrived_s, first=pts or 0)
            return at, at
        if pts is None:
            return None, dts
        at = self._time(pts, keyframe=keyframe, arrived_s=arrived_s, waited_s=waited_s)
        self._seen.append(pts)
        if dts is None or (self._reorders and self._was_set):
            return at, None
        return at, at if dts == pts else self._mapped(dts)

    def _time(self, pts: int, *, keyframe: bool, arrived_s: float, waited_s: float) -> int:
        """The presentation time of a timestamp."""
        if pts in self._seen:
            self._count_still()
            return self._after_last(arrived_s)
        self._still = 0
        rises = not self._anchors or pts > self._anchors[-1][0]
        if self._anchors and self._jumps(pts, arrived_s, keyframe=keyframe):
            self._count_jump()
            self._seen.clear()
            return self._anchored(pts, self._after_last(arrived_s), arrived_s)
        if not rises:
            self.trusted = self._mode != "arrival"
            if self._last is not None:
                self._last = self._last[0], arrived_s
            return self._mapped(pts)
        if self._mode == "arrival":
            return self._anchored(pts, self.by_arrival(arrived_s, first=pts), arrived_s)
        if self._mode == "auto":
            self._measure(pts, arrived_s, waited_s)
        at = self._mapped(pts) if self._anchors else max(0, pts)
        if self._last is not None and at <= self._last[0]:  # the clock runs again after it stood still
            self._count_jump()
            return self._anchored(pts, self._after_last(arrived_s), arrived_s)
        self.trusted = True
        self._last = at, arrived_s
        return self._anchored(pts, at, arrived_s)

    def _jumps(self, pts: int, arrived_s: float, *, keyframe: bool) -> bool:
        """Whether a timestamp is too far from the highest one so far."""
        ahead = pts - self._anchors[-1][0]
        if ahead < 0:
            return keyframe or -ahead > self._reordered
        assert self._rise_s is not None
        return ahead * self._tick_s / self._rate > arrived_s - self._rise_s + LONGEST_LEAP_S

    def _anchored(self, pts: int, at: int, arrived_s: float) -> int:
        """Map a timestamp to a time from now on, and later timestamps relative to it."""
        self._anchors.append((pts, at))
        self._rise_s = arrived_s
        return at

    def _mapped(self, pts: int) -> int:
        """The time of a timestamp by its neighbors, or by the distance to the nearest one."""
        after: tuple[int, int] | None = None
        for anchor in reversed(self._anchors):
            if anchor[0] <= pts:
                if after is None:
                    return anchor[1] + round((pts - anchor[0]) / self._rate)
                share = (pts - anchor[0]) / (after[0] - anchor[0])
                return anchor[1] + round(share * (after[1] - anchor[1]))
            after = anchor
        first, at = self._anchors[0]
        return at - round((first - pts) / self._rate)

    def by_arrival(self, arrived_s: float, first: int = 0) -> int:
        """The time of a packet by its arrival alone.

        Args:
            arrived_s: its arrival on the monotonic clock, in seconds.
            first: the time if it is the first packet, in ticks.
        """
        if self._last is None or self._origin is None:
            self._origin = first, arrived_s
            at = first
        else:
            begin, begin_s = self._origin
            at = max(self._last[0] + self._shortest, begin + round((arrived_s - begin_s) / self._tick_s))
        self._last = at, arrived_s
        return at

    def _after_last(self, arrived_s: float) -> int:
        """A time as long after the latest one as a packet arrives after the last one."""
        if self._mode == "arrival" or self._last is None:
            return self.by_arrival(arrived_s)
        latest, last_s = self._last
        at = latest + max(self._shortest, round((arrived_s - last_s) / self._tick_s))
        self._last = at, arrived_s
        return at

    def _count_jump(self) -> None:
        """Forget how timestamps map to times, and count it."""
        self._was_set = True
        self._anchors.clear()
        self._rates.begin()
        if self._mode != "arrival":
            self._counters.add(JUMPS)

    def _count_still(self) -> None:
        if self._mode == "arrival":
            return
        self._counters.add(REPLACED)
        self._still += 1
        if self._still == _STILL:
            logger.warning(f"{self._name}: its timestamps stand still; its frames have the times of their arrival")

    def _measure(self, pts: int, arrived_s: float, waited_s: float) -> None:
        rate = self._rates.measure(pts * self._tick_s, arrived_s, waited_s, self._rate)
        if rate is None:
            return
        self._rate = rate
        if rate == 1.0:
            logger.info(f"{self._name}: its clock runs at the rate of real time again")
            return
        self._counters.add(RATES)
        example = f"such as timestamps for 30 frames/s where {30 * rate:.3g} arrive"
        logger.warning(
            f"{self._name}: its clock runs {rate:.2f} times as fast as real time, {example}; its times are corrected. "
            "clock: sender keeps them, clock: arrival ignores its clock"
        )


_FASTEST_CAMERA = 2.0
"""What comes over HTTP with a clock that seems faster than this is a download."""
_SHORTEST_WINDOW_S = 2.0
_GAPS = 4  # a window must contain several of the longest pauses between packets, as of segments
_WAITING_SHARE = 0.1
_THIRDS = 3
_TOLERANCE = 0.02
_BUFFERED_S = 1.0
"""Lateness that buffers on the way explain."""
_MAX_WINDOWS = 97


class RateMonitor:
    """Measures how fast a source's timestamps advance, relative to the arrival of its packets.

    Packets arrive late, never early. So of each window of time only the packet counts that is the least late, and the
    rate is the slope over these. It is reported when the thirds of the measured time agree, and when the deviation
    exceeds what buffers and pauses between packets explain. A reader that hardly ever waits for packets is too slow
    itself, and measures nothing.

    Args:
        fastest: a higher rate is not reported.
    """

    def __init__(self, fastest: float = math.inf) -> None:
        self._fastest = fastest
        self.begin()

    def begin(self) -> None:
        """Start again: the timestamps do not continue."""
        self._points: deque[tuple[float, float]] = deque(maxlen=_MAX_WINDOWS)  # arrival and timestamp, in seconds
        self._best: tuple[float, float] | None = None
        self._window_start_s = 0.0
        self._waited_s = 0.0
        self._last_s: float | None = None
        self._gap_s = 0.0

    def measure(self, stamp_s: float, arrived_s: float, waited_s: float, current: float) -> float | None:
        """Add a packet; return another rate than the `current` one once it is measured.

        Args:
            stamp_s: its timestamp in seconds, higher than all before.
            arrived_s: its arrival on the monotonic clock, in seconds.
            waited_s: how long the reader waited for it, in seconds.
            current: the rate that was reported last, 1 at first.
        """
        if self._last_s is not None:
            self._gap_s = max(self._gap_s, arrived_s - self._last_s)
        self._last_s = arrived_s
        if self._best is None:
            self._window_start_s = arrived_s
        else:
            self._waited_s += min(waited_s, arrived_s - self._window_start_s)
        if self._best is None or arrived_s - stamp_s / current <= self._best[0] - self._best[1] / current:
            self._best = arrived_s, stamp_s
        length_s = arrived_s - self._window_start_s
        if length_s < max(_SHORTEST_WINDOW_S, _GAPS * self._gap_s):
            return None
        if self._waited_s < _WAITING_SHARE * length_s:
            self._points.clear()
        else:
            self._points.append(self._best)
        self._best = None
        self._waited_s = 0.0
        return self._rate(current)

    def _rate(self, current: float) -> float | None:
        """The rate over the latest windows, as few as show that it is another one; None if none do."""
        points = list(self._points)
        third = 1
        while _THIRDS * third < len(points):
            ends = points[-1 - _THIRDS * third :: third]
            rates = [_slope(ends[n], ends[n + 1]) for n in range(_THIRDS)]
            rate = _slope(ends[0], ends[-1])
            spread = max(abs(part - rate) for part in rates)
            deviation = abs(rate / current - 1)
            lateness_s = deviation * (ends[-1][0] - ends[0][0])
            explained_s = max(_BUFFERED_S, 2 * self._gap_s)
            if deviation > max(_TOLERANCE, 2 * spread) and lateness_s > explained_s and 0 < rate <= self._fastest:
                return 1.0 if abs(rate - 1) <= _TOLERANCE else rate
            third *= 2
        return None


def _slope(before: tuple[float, float], after: tuple[float, float]) -> float:
    """Seconds of timestamps for each second of arrival between two points."""
    return (after[1] - before[1]) / max(after[0] - before[0], 1e-9)


def fill_times(packets: Sequence[Any], step: int) -> None:
    """Set the times of a camera's first packets, which have none, from the first packet that has.

    Args:
        packets: packets in decode order with `pts` and `dts` in ticks, up to the first one with a decoding time.
        step: duration of a frame in ticks.
    """
    lowest = min((packet.pts for packet in packets if packet.pts is not None), default=0)
    last_dts = lowest if packets[-1].dts is None else packets[-1].dts
    untimed = sum(packet.pts is None for packet in packets)
    for place, packet in enumerate(packets):
        if packet.dts is None:
            packet.dts = last_dts - (len(packets) - 1 - place) * step
        if packet.pts is None:
            packet.pts = max(packet.dts, lowest - untimed * step)
            untimed -= 1
