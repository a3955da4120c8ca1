# SPDX-License-Identifier: Apache-2.0
"""Rules that are evaluated together, and the evaluation of a rule about named facts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np

from streamkit.analytics.track_store import Columns, Slots
from streamkit.rules import kernel
from streamkit.rules.code import Code, Words
from streamkit.rules.language import facts_of, words
from streamkit.rules.rule import Rule
from streamkit.rules.schedule import Schedule
from streamkit.rules.scope import Facts


class RuleGroup:
    """Rules that are evaluated on the same rows: frames, objects, or the sources of an alarm.

    Args:
        rules: the rules.
        code: receives their conditions.
        schedules: the schedules, in the order of the columns of `opened`.
        run: `kernel.advance` or its compiled form.

    Attributes:
        rules: the rules.
        state: `raised` and `times` of each place, as `kernel.advance` takes them.
        shown: the facts that the event of each rule shows when it is raised, and when it is cleared: name, kind and
            column of each.
    """

    state: Columns

    def __init__(
        self, rules: Sequence[Rule], code: Code, schedules: Sequence[Schedule], run: Callable[..., int]
    ) -> None:
        self.rules = rules
        self._code = code
        self._run = run
        durations = [(rule.for_s, rule.clear_s, rule.cooldown_s) for rule in rules]
        self._arrays = (
            np.array([code.add(rule.when) for rule in rules], np.int64),
            np.array([-1 if rule.clear is None else code.add(rule.clear) for rule in rules], np.int64),
            np.array(durations, np.float64).reshape(-1, 3),
            np.array([-1 if r.schedule is None else schedules.index(r.schedule) for r in rules], np.int64),
        )
        self._changes = np.zeros((0, 3), np.int64)
        self.shown = [
            [[(words(fact), fact.field.kind, *code.column(fact)) for fact in facts_of(tree)] for tree in trees]
            for trees in ((rule.when, rule.clear or rule.when) for rule in rules)
        ]

    def first(self) -> dict[str, Any]:
        """Return the initial state of a place."""
        times = np.full((len(self.rules), 3), np.nan)
        times[:, 2] = -np.inf
        return {"raised": np.zeros(len(self.rules), bool), "times": times}

    def advance(
        self, objects: np.ndarray, owner: np.ndarray, place: np.ndarray, facts: np.ndarray, now_s: np.ndarray,
        broken: np.ndarray, opened: np.ndarray,
    ) -> list[list[int]]:  # fmt: skip
        """Advance the rules by one step; return the row, the rule and the outcome of each change.

        Args:
            objects: as in `kernel.advance`.
            owner: likewise, and all following ones.
            place: each row's place in `state`.
            facts: facts of the frames.
            now_s: in seconds.
            broken: whether to reset durations.
            opened: whether each schedule is open.
        """
        if len(self._changes) < len(owner) * len(self.rules):
            self._changes = np.empty((len(owner) * len(self.rules), 3), np.int64)
        with np.errstate(all="ignore"):
            n = self._run(
                *self._code.arrays, *self._arrays, objects, owner, place, facts, now_s, broken, opened,
                self.state["raised"], self.state["times"], self._code.stack, self._changes,
            )  # fmt: skip
        return self._changes[:n].tolist()  # type: ignore[no-any-return]

    def store(self, place: int, rule: int, now_s: float, outcome: int) -> tuple[float, float]:
        """Store the outcome of `advance` for a rule; return the start of its condition, and when it was raised."""
        raised, times = self.state["raised"], self.state["times"]
        since_s, raised_s = float(times[place, rule, 0]), float(times[place, rule, 1])
        raised[place, rule] = outcome == kernel.RAISED
        times[place, rule, 0] = math.nan
        times[place, rule, 1 if outcome == kernel.RAISED else 2] = now_s
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
    """Evaluates one rule about named facts for any number of items, such as sources; without Numba."""

    def __init__(self, rule: Rule) -> None:
        self._code = code = Code(Facts(), Words())
        self._schedules = [] if rule.schedule is None else [rule.schedule]
        self._group = RuleGroup([rule], code, self._schedules, kernel.advance)
        self._state = self._group.state = Columns(**self._group.first())
        self._rule_word_count = len(code.words)
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
        self._code.words.forget(self._rule_word_count)
        n = len(facts)
        items = list(facts)
        rows = np.array([self._code.row(values) for values in facts.values()], np.float64)
        places = np.array([self._places[item] for item in items], np.int64)
        opened = [schedule.open(clock or datetime.now(UTC)) for schedule in self._schedules]
        changes = self._group.advance(
            rows, np.arange(n), places, rows, np.full(n, now_s), np.zeros(n, bool), np.array([opened] * n, bool)
        )
        return [self._change(items[row], outcome, now_s) for row, _, outcome in changes]

    def _change(self, item: str, outcome: int, now_s: float) -> FactChange:
        since_s, raised_s = self._group.store(self._places[item], 0, now_s, outcome)
        if outcome == kernel.RAISED:
            return FactChange(item, "raised", 0.0)
        return FactChange(item, "cleared", (now_s if math.isnan(since_s) else since_s) - raised_s)

    def is_true(self, item: str) -> bool:
        """Whether the rule is raised for an item, and was true at the last step."""
        place = self._places[item]
        return bool(self._state["raised"][place, 0] and math.isnan(self._state["times"][place, 0, 0]))
