"""Hysteresis in time: when a condition is raised, when it is cleared, and how soon it may be raised again."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from streamkit.rules.schedule import Schedule

Transition = Literal["raised", "cleared"]


@dataclass(slots=True)
class DebounceState:
    """State of one item that may be raised.

    Attributes:
        raised: whether it is raised.
        since_s: since when the condition (while not raised) or the clear condition (while raised) is true; else NaN.
        raised_s: when it was last raised.
        over_s: when it was last cleared; minus infinity for never.
        seen_s: time of the last step; NaN for never.
    """

    raised: bool = False
    since_s: float = math.nan
    raised_s: float = math.nan
    over_s: float = -math.inf
    seen_s: float = math.nan


class Debounce:
    """Hysteresis in time, for any number of items identified by keys.

    An item is raised when its condition was true, and its clear condition was not, at every step for `for_s` seconds,
    and at least `cooldown_s` after it was last cleared. It is cleared when its clear condition was true at every step
    for `clear_s`. Outside the schedule no condition is true, and raised items are cleared at once.

    Args:
        for_s: how long the condition must be true.
        clear_s: how long the clear condition must be true.
        cooldown_s: how long after it was cleared an item is not raised again.
        schedule: when the condition is active; None for always.
        gap_s: a longer time between two steps resets durations, since the condition is unknown in between.
    """

    def __init__(
        self,
        for_s: float = 0.0,
        clear_s: float = 0.0,
        cooldown_s: float = 0.0,
        schedule: Schedule | None = None,
        *,
        gap_s: float = math.inf,
    ) -> None:
        self.for_s, self.clear_s, self.cooldown_s = for_s, clear_s, cooldown_s
        self.schedule, self.gap_s = schedule, gap_s
        self._states: dict[Hashable, DebounceState] = {}

    def step(
        self, key: Hashable, now_s: float, true: bool, clock: datetime | None = None, *, over: bool | None = None
    ) -> Transition | None:
        """Advance one item.

        Args:
            key: the item.
            now_s: the time in seconds on any monotonic clock; a jump back resets durations.
            true: whether the condition is true.
            clock: the wall clock, used for the schedule only; now by default.
            over: whether the clear condition is true; by default, whether the condition is not true.

        Returns:
            `raised` or `cleared` if that happened in this step, else None.
        """
        state = self._states.setdefault(key, DebounceState())
        opened = self.schedule is None or self.schedule.open(clock or datetime.now().astimezone())
        past_s = now_s - state.seen_s
        if not 0 <= past_s <= self.gap_s:
            state.since_s = math.nan
        if past_s < 0:  # a jump back takes no time: the times since it was raised or cleared do not change
            state.raised_s += past_s
            state.over_s += past_s
        state.seen_s = now_s
        if state.raised and not opened:
            return self._clear(state, now_s)
        ends = not true if over is None else over
        lasts = ends if state.raised else true and opened and not ends
        if not lasts:
            state.since_s = math.nan
            return None
        if math.isnan(state.since_s):
            state.since_s = now_s
        if state.raised:
            return self._clear(state, now_s) if now_s - state.since_s >= self.clear_s else None
        if now_s - state.since_s < self.for_s or now_s - state.over_s < self.cooldown_s:
            return None
        state.raised, state.raised_s, state.since_s = True, now_s, math.nan
        return "raised"

    def state(self, key: Hashable) -> DebounceState:
        """Return the state of one item; a new state if there is none."""
        return self._states.get(key, DebounceState())

    def forget(self, key: Hashable) -> None:
        """Drop one item; does nothing if there is none."""
        self._states.pop(key, None)

    def __len__(self) -> int:
        """Return the number of items with a state."""
        return len(self._states)

    @staticmethod
    def _clear(state: DebounceState, now_s: float) -> Transition:
        state.raised, state.over_s, state.since_s = False, now_s, math.nan
        return "cleared"
