# SPDX-License-Identifier: Apache-2.0
"""Rules that are evaluated together, and the evaluation of a rule about named facts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np

from streamkit.analytics.track_store import Columns, Slots
from streamkit.rules.conditions import Conditions, FactColumns, Words
from streamkit.rules.language import facts_of, words
from streamkit.rules.rule import Rule
from streamkit.rules.schedule import Schedule
from streamkit.rules.scope import Facts

NOTHING, RAISED, CLEARED, CLOSED = range(4)
"""Outcome of a step for a rule: no change, raised, cleared, cleared because its schedule ended."""


class RuleGroup:
    """Rules that are evaluated on the same rows: frames, objects, or the sources of an alarm.

    Args:
        rules: the rules.
        fact_columns: receives the columns of their conditions.
        schedules: the schedules, in the order of the columns of `opened`.

    Attributes:
        rules: the rules.
        state: of each place, (r,) whether each rule is `raised`, and (r, 3) `times`: the start of its current
            condition, when it was raised last, and when it was cleared last.
        shown: the facts that the event of each rule shows when it is raised, and when it is cleared: name, kind and
            column of each.
    """

    state: Columns

    def __init__(self, rules: Sequence[Rule], fact_columns: FactColumns, schedules: Sequence[Schedule]) -> None:
        self.rules = rules
        clear = [rule.clear for rule in rules if rule.clear is not None]
        self._conditions = Conditions([*(rule.when for rule in rules), *clear], fact_columns)
        self._has_clear = np.flatnonzero([rule.clear is not None for rule in rules])
        self._durations_s = np.array([(rule.for_s, rule.clear_s) for rule in rules], np.float64).reshape(-1, 2)
        self._cooldown_s = np.array([rule.cooldown_s for rule in rules], np.float64)
        self._scheduled = np.flatnonzero([rule.schedule is not None for rule in rules])
        self._schedule = [schedules.index(rule.schedule) for rule in rules if rule.schedule is not None]
        self.shown = [
            [[(words(fact), fact.field.kind, *fact_columns.column(fact)) for fact in facts_of(tree)] for tree in trees]
            for trees in ((rule.when, rule.clear or rule.when) for rule in rules)
        ]

    def first(self) -> dict[str, Any]:
        """Return the initial state of a place."""
        times = np.full((len(self.rules), 3), np.nan)
        times[:, 2] = -np.inf
        return {"raised": np.zeros(len(self.rules), bool), "times": times}

    def advance(
        self, objects: np.ndarray | None, owner: np.ndarray, place: np.ndarray, facts: np.ndarray, now_s: np.ndarray,
        broken: np.ndarray, opened: np.ndarray,
    ) -> list[tuple[int, int, int]]:  # fmt: skip
        """Advance the rules by one step; return the row, the rule and the outcome of each change.

        Args:
            objects: (n, k) float64, the objects' facts; None if the rows are no objects.
            owner: (n,) int64, each row's frame.
            place: (n,) int64, each row's place in `state`; below 0 for a row to skip.
            facts: (f, a) float64, facts of the frames.
            now_s: (f,) float64.
            broken: (n,) bool, whether to reset the row's durations.
            opened: (f, s) bool, whether each schedule is open.
        """
        changes: list[tuple[int, int, int]] = []
        counted = np.flatnonzero(place >= 0)
        chunk = self._conditions.chunk
        for begin in range(0, len(counted), chunk):
            rows = counted[begin : begin + chunk]
            frames = owner[rows]
            rule_opened = np.ones((len(rows), len(self.rules)), bool)
            rule_opened[:, self._scheduled] = opened[frames][:, self._schedule]
            outcome = self._advance(
                None if objects is None else objects[rows],
                facts[frames],
                place[rows],
                now_s[frames],
                broken[rows],
                rule_opened,
            )
            changed, rules = np.nonzero(outcome)
            changes += zip(rows[changed].tolist(), rules.tolist(), outcome[changed, rules].tolist(), strict=True)
        return changes

    def _advance(
        self, objects: np.ndarray | None, facts: np.ndarray, place: np.ndarray, now_s: np.ndarray, broken: np.ndarray,
        opened: np.ndarray,
    ) -> np.ndarray:  # fmt: skip
        """Return (n, r) int64, the outcome for each row and rule."""
        raised = self.state["raised"][place]
        true = self._conditions(objects, facts).T
        lasts = true[:, : len(self.rules)] != raised
        if len(clear := self._has_clear):
            over = true[:, len(self.rules) :]
            lasts[:, clear] = np.where(raised[:, clear], over, lasts[:, clear] & ~over)
        lasts &= opened
        outcome = np.where(raised & ~opened, CLOSED, NOTHING)
        times = self.state["times"]
        since_s = times[place, :, 0]
        since_s[~lasts] = np.nan
        row, rule = np.nonzero(lasts)
        row_since_s = since_s[row, rule]
        row_since_s = np.where(np.isnan(row_since_s) | broken[row], now_s[row], row_since_s)
        since_s[row, rule] = row_since_s
        times[place, :, 0] = since_s
        up = raised[row, rule]
        cool = up | (now_s[row] - times[place[row], rule, 2] >= self._cooldown_s[rule])
        due = cool & (now_s[row] - row_since_s >= self._durations_s[rule, up.astype(np.int64)])
        outcome[row[due], rule[due]] = np.where(up[due], CLEARED, RAISED)
        return outcome

    def store(self, place: int, rule: int, now_s: float, outcome: int) -> tuple[float, float]:
        """Store the outcome of `advance` for a rule; return the start of its condition, and when it was raised."""
        raised, times = self.state["raised"], self.state["times"]
        since_s, raised_s = float(times[place, rule, 0]), float(times[place, rule, 1])
        raised[place, rule] = outcome == RAISED
        times[place, rule, 0] = math.nan
        times[place, rule, 1 if outcome == RAISED else 2] = now_s
        return since_s, raised_s


class FactChange(NamedTuple):
    """A `FactRule` that was raised or cleared.

    Attributes:
        item: for which item.
        kind: `raised` or `cleared`.
        lasted_s: of a cleared rule, how long its condition was true after it was raised, in seconds.
    """

    item: str
    kind: str
    lasted_s: float


class FactRule:
    """Evaluates one rule about named facts for any number of items, such as sources."""

    def __init__(self, rule: Rule) -> None:
        self._fact_columns = fact_columns = FactColumns(Facts(), Words())
        self._schedules = [] if rule.schedule is None else [rule.schedule]
        self._group = RuleGroup([rule], fact_columns, self._schedules)
        self._state = self._group.state = Columns(**self._group.first())
        self._rule_word_count = len(fact_columns.words)
        self._places: dict[str, int] = {}
        self._slots = Slots()

    def __len__(self) -> int:
        return len(self._places)

    def step(
        self, facts: Mapping[str, Mapping[str, Any]], now_s: float, clock: datetime | None = None
    ) -> list[FactChange]:
        """Advance by one step; return the changes. An item that is not in `facts` is dropped.

        Args:
            facts: the values of each item by the rule's names; missing, None and NaN are unknown.
            now_s: the time in seconds on any monotonic clock.
            clock: the wall clock, for the schedule; now by default.
        """
        for dropped_item in self._places.keys() - facts.keys():
            self._slots.give_back(self._places.pop(dropped_item))
        for item in facts.keys() - self._places.keys():
            place = self._places[item] = self._slots.take()
            self._state.reserve(place + 1)
            self._state.reset(place)
        self._fact_columns.words.forget(self._rule_word_count)
        n = len(facts)
        items = list(facts)
        rows = np.array([self._fact_columns.row(values) for values in facts.values()], np.float64)
        places = np.array([self._places[item] for item in items], np.int64)
        opened = [schedule.open(clock or datetime.now(UTC)) for schedule in self._schedules]
        changes = self._group.advance(
            None, np.arange(n), places, rows, np.full(n, now_s), np.zeros(n, bool), np.array([opened] * n, bool)
        )
        return [self._change(items[row], outcome, now_s) for row, _, outcome in changes]

    def _change(self, item: str, outcome: int, now_s: float) -> FactChange:
        since_s, raised_s = self._group.store(self._places[item], 0, now_s, outcome)
        if outcome == RAISED:
            return FactChange(item, "raised", 0.0)
        return FactChange(item, "cleared", (now_s if math.isnan(since_s) else since_s) - raised_s)

    def is_true(self, item: str) -> bool:
        """Whether the rule is raised for an item, and was true at the last step."""
        place = self._places[item]
        return bool(self._state["raised"][place, 0] and math.isnan(self._state["times"][place, 0, 0]))
