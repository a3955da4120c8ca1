"""When something true is told: after how long, when it is over, and how soon it may be told again."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from streamkit.rules.schedule import Schedule

Told = Literal["raised", "cleared"]


@dataclass(slots=True)
class State:
    """What is known of one thing that may be raised.

    Attributes:
        raised: whether it is raised.
        since_s: when what now lasts began: the condition while it is not raised, its end while it is; NaN for neither.
        raised_s: when it was raised last.
        over_s: when it was cleared last; minus infinity for never.
        seen_s: when it was looked at last; NaN for never.
    """

    raised: bool = False
    since_s: float = math.nan
    raised_s: float = math.nan
    over_s: float = -math.inf
    seen_s: float = math.nan


class Holding:
    """Hysteresis in time, for any number of things that each have a key.

    A thing is raised when its condition was true, and what clears it was not, at every step for `for_s` seconds, and at
    least `cooldown_s` after it was cleared last; it is cleared when what clears it was true at every step for
    `clear_s`. Outside the schedule nothing is true, and what is raised is cleared at once.

    Args:
        for_s: how long the condition must be true.
        clear_s: how long what clears it must be true.
        cooldown_s: how long after being cleared it is not raised again.
        schedule: when the condition counts; None for always.
        gap_s: after a longer time without a step nobody knows what was: what must last begins anew.
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
        self.for_s, self.clear_s, self.cooldown_s, self.schedule, self.gap_s = (
            for_s, clear_s, cooldown_s, schedule, gap_s,
        )  # fmt: skip
        self._states: dict[Hashable, State] = {}

    def step(
        self, key: Hashable, now_s: float, true: bool, clock: datetime | None = None, *, over: bool | None = None
    ) -> Told | None:
        """Look at one thing.

        Args:
            key: which.
            now_s: the time in seconds on any clock that goes forward; where it goes back, what must last begins anew.
            true: whether the condition is true.
            clock: the wall clock, asked for the schedule only; now if left out.
            over: whether what clears it is true; that the condition is not true, if left out.

        Returns:
            `raised` or `cleared` where that happened just now, else None.
        """
        state = self._states.setdefault(key, State())
        opened = self.schedule is None or self.schedule.open(clock or datetime.now().astimezone())
        past_s = now_s - state.seen_s
        if not 0 <= past_s <= self.gap_s:
            state.since_s = math.nan
        if past_s < 0:  # which takes no time: what has passed since it was raised or cleared stays
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

    def state(self, key: Hashable) -> State:
        """What is known of one thing; a new state where nothing is."""
        return self._states.get(key, State())

    def forget(self, key: Hashable) -> None:
        """Let go of one thing; nothing happens where it is not known."""
        self._states.pop(key, None)

    def __len__(self) -> int:
        """How many things are remembered."""
        return len(self._states)

    @staticmethod
    def _clear(state: State, now_s: float) -> Told:
        state.raised, state.over_s, state.since_s = False, now_s, math.nan
        return "cleared"
