"""Evaluation of many rules on the batches of many sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from streamkit.analytics.track_store import Columns
from streamkit.core.data import Batch, Frame
from streamkit.rules import kernel
from streamkit.rules.code import Code, Words
from streamkit.rules.evaluation_context import ContextBuilder, EvaluationContext
from streamkit.rules.facts import Facts
from streamkit.rules.rule import Rule
from streamkit.rules.schedule import Schedule
from streamkit.rules.scope import Scope
from streamkit.rules.typecheck import BOOL, TEXT, Typed, facts_of, words

_MOST_WORDS = 1 << 16


@dataclass(slots=True)
class Change:
    """A rule that was raised or cleared.

    Attributes:
        frame: the frame at which it happened.
        rule: the rule's name.
        kind: `raised` or `cleared`.
        track, label: the object, for a rule about objects.
        data: data of the event.
    """

    frame: Frame
    rule: str
    kind: str
    track: int | None = None
    label: str | None = None
    data: dict[str, Any] = field(default_factory=dict)


class RuleEngine:
    """Evaluates rules.

    Args:
        rules: the rules, made with the same `facts`.
        above: capabilities of the stages above them.
        facts: what they look up.
        max_gap_s: how long an unseen track is remembered.
        max_pause_s: after a longer time without a frame of its source, durations start again from zero.
        predicted: whether objects that a tracker predicts count.
    """

    def __init__(
        self, rules: Sequence[Rule], above: Scope, facts: Facts, *, max_gap_s: float = 2.0, max_pause_s: float = 10.0,
        predicted: bool = True,
    ) -> None:  # fmt: skip
        self._code = code = Code(facts, Words())
        schedules = list(dict.fromkeys(rule.schedule for rule in rules if rule.schedule is not None))
        self._schedules = [_ScheduleCheck(one) for one in schedules]
        self._on_frames = _RuleGroup([rule for rule in rules if not rule.per_object], code, schedules)
        self._on_objects = _RuleGroup([rule for rule in rules if rule.per_object], code, schedules)
        counted = [(begin, (key, "number")) for key, tree in facts.counts.items() if (begin := code.add(tree)) >= 0]
        self._counts = np.array([begin for begin, _ in counted], np.int64)
        self._counted = np.array([code.frames.setdefault(one, len(code.frames)) for _, one in counted], np.int64)
        self._ops, self._constants, self._stack = code.ops, code.constants, np.empty(code.deepest + 2)
        self._known_words = len(code.words)
        state = self._on_objects.first() if self._on_objects.rules else {}
        self._sights = ContextBuilder(code, above, max_gap_s, predicted, **state)
        self._sources = Columns(
            seen_s=np.float64(np.nan), epoch=np.int64(0), counted=np.zeros(len(counted)), **self._on_frames.first()
        )
        self._max_pause_s, self._most = max_pause_s, 0
        self.pauses = 0
        self._warm()

    def begin(self, slot: int) -> None:
        """Begin the source of this slot."""
        self._most = max(self._most, slot + 1)
        self._sources.reserve(slot + 1)
        self._sources.reset(slot)
        self._sights.begin(slot)

    def end(self, slot: int) -> list[tuple[str, int | None]]:
        """End a source; return the rules still raised, with their tracks."""
        left: list[tuple[str, int | None]] = []
        rules = self._on_frames.rules
        left += [(rules[i].name, None) for i in np.flatnonzero(self._sources["raised"][slot, : len(rules)]).tolist()]
        if self._on_objects.rules:
            tracks = self._sights.tracks
            for row in tracks.of(slot).tolist():
                found = np.flatnonzero(tracks["raised"][row]).tolist()
                left += [(self._on_objects.rules[i].name, int(tracks["track"][row])) for i in found]
        self._sights.end(slot)
        return left

    def step(self, batch: Batch, slots: Mapping[str, int]) -> Iterator[Change]:
        """Evaluate a batch; yield changes in the order of each source's frames.

        Args:
            batch: with tables on the host.
            slots: the slot of each source, by its id.
        """
        if len(self._code.words) > _MOST_WORDS:
            self._code.words.forget(self._known_words)
        for one in self._sights.of(batch, slots, self._most):
            yield from self._step(one)

    def _step(self, one: EvaluationContext) -> Iterator[Change]:
        sources, slot, now_s = self._sources, one.slot, one.pts_s
        past_s = now_s - sources["seen_s"][slot]
        epochs = np.array([frame._state.epoch for frame in one.frames], np.int64)
        paused = past_s > self._max_pause_s
        self.pauses += int(paused.sum())
        broken = paused | one.back | (epochs != sources["epoch"][slot])
        # What has passed since a rule was raised or cleared stays; that time goes back takes none.
        if one.back.any():
            sources["times"][slot[one.back], :, 1:] += past_s[one.back, None, None]
        sources["seen_s"][slot], sources["epoch"][slot] = now_s, epochs
        opened = np.array([[each(frame) for each in self._schedules] for frame in one.frames], bool)
        opened = opened.reshape(len(one.frames), len(self._schedules))
        self._count(one)
        run = self._ops, self._constants
        state: Any
        if self._on_frames.rules:
            told = self._on_frames.advance(
                run, one.objects[:1], np.arange(len(slot)), slot, one, broken, opened, self._sources, self._stack
            )
            for row, rule, became in told:
                yield self._change(self._on_frames.rules[rule], one, row, None, became, sources, int(slot[row]), rule)
        if self._on_objects.rules:
            state = self._sights.tracks
            if one.lost:
                yield from self._lost(one)
            place = np.where(one.owner >= 0, one.place, -1)
            told = self._on_objects.advance(
                run, one.objects, one.owner, place, one, broken[one.owner], opened, state, self._stack
            )
            for row, rule, became in told:
                yield self._change(
                    self._on_objects.rules[rule], one, int(one.owner[row]), row, became, state, int(place[row]), rule
                )

    def _count(self, one: EvaluationContext) -> None:
        """Fill in the counts; a frame that no detector ran on keeps its source's last counts."""
        if not len(self._counts):
            return
        owner = np.where(one.owner >= 0, one.owner, -1)
        with np.errstate(all="ignore"):
            kernel.count(
                self._ops, self._constants, self._counts, one.objects, owner, one.facts, self._stack, one.facts,
                self._counted,
            )  # fmt: skip
        kept = np.flatnonzero(~one.looked)
        one.facts[kept[:, None], self._counted] = self._sources["counted"][one.slot[kept]]
        self._sources["counted"][one.slot] = one.facts[:, self._counted]

    def _lost(self, one: EvaluationContext) -> Iterator[Change]:
        """Clear the rules raised for tracks that are no longer remembered."""
        lost = one.lost
        at, rule = np.nonzero(lost["raised"])
        for row, number in zip(at.tolist(), rule.tolist(), strict=True):
            frame = int(np.flatnonzero(one.slot == lost["slot"][row])[0])
            lasted_s = float(lost["seen_s"][row] - lost["times"][row, number, 1])
            label = self._sights.labels[int(lost["label"][row])]
            name, track = self._on_objects.rules[number].name, int(lost["track"][row])
            yield Change(
                one.frames[frame], name, "cleared", track, label, {"lasted_s": round(lasted_s, 6), "lost": True}
            )

    def _change(
        self,
        rule: Rule,
        one: EvaluationContext,
        frame: int,
        row: int | None,
        became: int,
        state: Any,
        place: int,
        number: int,
    ) -> Change:
        now_s = float(one.pts_s[frame])
        since_s, raised_s = kernel.settle(state["raised"], state["times"], place, number, now_s, became)
        made = Change(one.frames[frame], rule.name, "raised" if became == kernel.RAISED else "cleared")
        if became == kernel.RAISED:
            made.data["since_s"] = round(since_s, 6)
        else:
            made.data["lasted_s"] = round(now_s - raised_s, 6)
        if became == kernel.CLOSED:
            made.data["closed"] = True
        made.data["values"] = {}
        if row is not None:
            made.track = int(one.track[row])
            made.label = self._sights.labels[int(state["label"][place])]
        group = self._on_frames if row is None else self._on_objects
        for name, kind, of_object, column in group.shown[number][became == kernel.CLEARED]:
            value = self._told(kind, one.objects[row, column] if of_object else one.facts[frame, column])
            if value is not None:
                made.data["values"][name] = value
        return made

    def _told(self, kind: str, number: Any) -> float | str | bool | None:
        value = float(number)
        if np.isnan(value):
            return None
        if kind == BOOL:
            return None if value == 0.5 else value == 1.0
        if kind == TEXT:
            return self._code.words.text(value)
        return int(value) if value.is_integer() else round(value, 4)

    def _warm(self) -> None:
        """Compile the kernels before the first frame."""
        code, none = self._code, np.zeros(0, np.int64)
        objects, facts = np.zeros((1, max(1, len(code.objects)))), np.zeros((0, len(code.frames)))
        kernel.count(
            self._ops, self._constants, self._counts, objects, none, facts, self._stack, facts, self._counted,
        )  # fmt: skip
        one = EvaluationContext(
            [], none, np.zeros(0), np.zeros(0, bool), none, none, none, objects, facts, np.zeros(0, bool)
        )
        for group, state in ((self._on_frames, self._sources), (self._on_objects, self._sights.tracks)):
            if group.rules:
                opened = np.zeros((0, len(self._schedules)), bool)
                group.advance(
                    (self._ops, self._constants),
                    objects,
                    none,
                    none,
                    one,
                    np.zeros(0, bool),
                    opened,
                    state,
                    self._stack,
                )


class _RuleGroup:
    """Rules that are evaluated together: those about frames, or those about objects."""

    def __init__(self, rules: list[Rule], code: Code, schedules: list[Schedule]) -> None:
        self.rules = rules
        self._when = np.array([code.add(rule.when) for rule in rules], np.int64)
        self._clear = np.array([-1 if rule.clear is None else code.add(rule.clear) for rule in rules], np.int64)
        self._schedule = np.array([-1 if r.schedule is None else schedules.index(r.schedule) for r in rules], np.int64)
        durations = [(rule.for_s, rule.clear_s, rule.cooldown_s) for rule in rules]
        self._durations = np.array(durations, np.float64).reshape(-1, 3)
        self._room = np.zeros((0, 3), np.int64)
        self.shown = [(_shown(rule.when, code), _shown(rule.clear or rule.when, code)) for rule in rules]

    def first(self) -> dict[str, Any]:
        """Return the initial state of a source, or of a track."""
        times = np.full((len(self.rules), 3), np.nan)
        times[:, 2] = -np.inf
        return {"raised": np.zeros(len(self.rules), bool), "times": times}

    def advance(
        self,
        run: tuple[np.ndarray, np.ndarray],
        objects: np.ndarray,
        owner: np.ndarray,
        place: np.ndarray,
        one: EvaluationContext,
        broken: np.ndarray,
        opened: np.ndarray,
        state: Any,
        stack: np.ndarray,
    ) -> list[list[int]]:
        """Return row, rule and outcome of each rule that changed."""
        if len(self._room) < len(owner) * len(self.rules):
            self._room = np.empty((len(owner) * len(self.rules), 3), np.int64)
        with np.errstate(all="ignore"):
            n = kernel.advance(
                *run, self._when, self._clear, self._durations, self._schedule, objects, owner, place, one.facts,
                one.pts_s, broken, opened, state["raised"], state["times"], stack, self._room,
            )  # fmt: skip
        found: list[list[int]] = self._room[:n].tolist()
        return found


def _shown(tree: Typed, code: Code) -> list[tuple[str, str, bool, int]]:
    """Return the values an event shows of a condition: each fact's name, kind and column."""
    return [(words(fact), fact.field.kind, *code.column(fact)) for fact in facts_of(tree)]


class _ScheduleCheck:
    """Whether a schedule is open at a frame's time; evaluated once a minute."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule, self._minute, self._open = schedule, -1, False

    def __call__(self, frame: Frame) -> bool:
        at_s = datetime.now(UTC).timestamp() if frame.time_s is None else frame.time_s
        if int(at_s // 60) != self._minute:
            self._minute = int(at_s // 60)
            self._open = self._schedule.open(datetime.fromtimestamp(at_s, UTC))
        return self._open
