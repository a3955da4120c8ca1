# SPDX-License-Identifier: Apache-2.0
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
from streamkit.rules.group import RuleGroup
from streamkit.rules.language import BOOL, NUMBER, TEXT
from streamkit.rules.rule import Rule
from streamkit.rules.schedule import Schedule
from streamkit.rules.scope import Facts, Scope

_MAX_WORDS = 1 << 16


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
        track_ttl_s: how long an unseen track is remembered.
        max_frame_gap_s: after a longer time without a frame of its source, durations start again from zero.
        predicted: whether objects that a tracker predicts count.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        above: Scope,
        facts: Facts,
        *,
        track_ttl_s: float = 2.0,
        max_frame_gap_s: float = 10.0,
        predicted: bool = True,
    ) -> None:
        self._code = code = Code(facts, Words())
        schedules = list(dict.fromkeys(rule.schedule for rule in rules if rule.schedule is not None))
        self._schedules = [_ScheduleCheck(schedule) for schedule in schedules]
        self._count_kernel, advance = kernel.kernels()
        self._on_frames = RuleGroup([rule for rule in rules if not rule.per_object], code, schedules, advance)
        self._on_objects = RuleGroup([rule for rule in rules if rule.per_object], code, schedules, advance)
        self._counts = np.array([code.add(tree) for tree in facts.counts.values()], np.int64)
        self._counted = np.array([code.frame_column(key, NUMBER) for key in facts.counts], np.int64)
        self._rule_word_count = len(code.words)
        state = self._on_objects.first() if self._on_objects.rules else {}
        self._contexts = ContextBuilder(code, above, track_ttl_s, predicted, **state)
        self._sources = Columns(
            seen_s=np.float64(np.nan),
            epoch=np.int64(0),
            counted=np.zeros(len(facts.counts)),
            **self._on_frames.first(),
        )
        self._max_frame_gap_s = max_frame_gap_s
        self._slot_count = 0
        self.pauses = 0
        self._on_frames.state = self._sources
        self._on_objects.state = self._contexts.tracks
        none = np.zeros(0, np.int64)
        no_facts = np.zeros((0, len(code.frames)))
        no_times = np.zeros(0)
        no_objects = np.zeros((0, max(1, len(code.objects))))
        empty = EvaluationContext([], none, no_times, none > 0, none, none, none, no_objects, no_facts, none > 0)
        list(self._evaluate(empty, none > 0))  # compiles the kernels before the first frame

    def begin(self, slot: int) -> None:
        """Begin the source of this slot."""
        self._slot_count = max(self._slot_count, slot + 1)
        self._sources.begin(slot)
        self._contexts.begin(slot)

    def end(self, slot: int) -> list[tuple[str, int | None]]:
        """End a source; return the rules still raised, with their tracks."""
        raised, tracks = self._sources["raised"][slot], self._contexts.tracks
        left: list[tuple[str, int | None]] = [
            (rule.name, None) for rule, up in zip(self._on_frames.rules, raised, strict=True) if up
        ]
        for row in tracks.of(slot).tolist() if self._on_objects.rules else ():
            up = np.flatnonzero(tracks["raised"][row]).tolist()
            left += [(self._on_objects.rules[i].name, int(tracks["track"][row])) for i in up]
        self._contexts.end(slot)
        return left

    def change(self, above: Scope) -> None:
        """Follow a change of the areas of the stages above, between two batches; those that rules name remain."""
        self._contexts.change(above)

    def step(self, batch: Batch, slots: Mapping[str, int]) -> Iterator[Change]:
        """Evaluate a batch; yield changes in the order of each source's frames.

        Args:
            batch: with tables on the host.
            slots: the slot of each source, by its id.
        """
        if len(self._code.words) > _MAX_WORDS:
            self._code.words.forget(self._rule_word_count)
        for context in self._contexts.of(batch, slots, self._slot_count):
            yield from self._step(context)

    def _step(self, context: EvaluationContext) -> Iterator[Change]:
        sources = self._sources
        slot = context.slot
        now_s = context.pts_s
        past_s = now_s - sources["seen_s"][slot]
        epochs = np.array([frame._state.epoch for frame in context.frames], np.int64)
        paused = past_s > self._max_frame_gap_s
        self.pauses += int(paused.sum())
        broken = paused | context.back | (epochs != sources["epoch"][slot])
        if context.back.any():  # a jump back takes no time: the times since rules were raised or cleared do not change
            sources["times"][slot[context.back], :, 1:] += past_s[context.back, None, None]
        sources["seen_s"][slot] = now_s
        sources["epoch"][slot] = epochs
        yield from self._evaluate(context, broken)

    def _evaluate(self, context: EvaluationContext, broken: np.ndarray) -> Iterator[Change]:
        opened = np.array([[each(frame) for each in self._schedules] for frame in context.frames], bool)
        opened = opened.reshape(len(context.frames), len(self._schedules))
        self._count(context)
        yield from self._advance(self._on_frames, context, np.arange(len(context.slot)), context.slot, broken, opened)
        if self._on_objects.rules and context.lost:
            yield from self._lost(context)
        place = np.where(context.owner >= 0, context.place, -1)
        yield from self._advance(self._on_objects, context, context.owner, place, broken[context.owner], opened)

    def _count(self, context: EvaluationContext) -> None:
        """Fill in the counts; a frame that no detector ran on keeps its source's last counts."""
        if not len(self._counts):
            return
        facts = context.facts
        counted = self._counted
        with np.errstate(all="ignore"):
            self._count_kernel(
                *self._code.arrays,
                self._counts,
                context.objects,
                context.owner,
                facts,
                self._code.stack,
                facts,
                counted,
            )
        undetected = np.flatnonzero(~context.detected)
        facts[undetected[:, None], counted] = self._sources["counted"][context.slot[undetected]]
        self._sources["counted"][context.slot] = facts[:, counted]

    def _advance(
        self,
        group: RuleGroup,
        context: EvaluationContext,
        owner: np.ndarray,
        place: np.ndarray,
        broken: np.ndarray,
        opened: np.ndarray,
    ) -> Iterator[Change]:
        """Advance the rules of a group, for each row; yield the changes."""
        if not group.rules:
            return
        for row, rule, outcome in group.advance(
            context.objects, owner, place, context.facts, context.pts_s, broken, opened
        ):
            yield self._change(group, context, int(owner[row]), row, int(place[row]), rule, outcome)

    def _lost(self, context: EvaluationContext) -> Iterator[Change]:
        """Clear the rules raised for tracks that are no longer remembered."""
        lost = context.lost
        for row, number in np.argwhere(lost["raised"]).tolist():
            frame = int(np.flatnonzero(context.slot == lost["slot"][row])[0])
            lasted_s = float(lost["seen_s"][row] - lost["times"][row, number, 1])
            label = self._contexts.labels[int(lost["label"][row])]
            name = self._on_objects.rules[number].name
            track = int(lost["track"][row])
            data = {"lasted_s": round(lasted_s, 6), "lost": True}
            yield Change(context.frames[frame], name, "cleared", track, label, data)

    def _change(
        self, group: RuleGroup, context: EvaluationContext, frame: int, row: int, place: int, number: int, outcome: int
    ) -> Change:
        now_s = float(context.pts_s[frame])
        raised = outcome == kernel.RAISED
        since_s, raised_s = group.store(place, number, now_s, outcome)
        data: dict[str, Any] = {"since_s": round(since_s, 6)} if raised else {"lasted_s": round(now_s - raised_s, 6)}
        if outcome == kernel.CLOSED:
            data["closed"] = True
        data["values"] = values = {}
        for name, kind, of_object, column in group.shown[number][not raised]:
            value = self._plain(
                kind, float(context.objects[row, column] if of_object else context.facts[frame, column])
            )
            if value is not None:
                values[name] = value
        track = label = None
        if group is self._on_objects:
            track = int(context.track[row])
            label = self._contexts.labels[int(group.state["label"][place])]
        kind = "raised" if raised else "cleared"
        return Change(context.frames[frame], group.rules[number].name, kind, track, label, data)

    def _plain(self, kind: str, value: float) -> float | str | bool | None:
        """Return the value that a number of a column stands for; None if unknown."""
        if np.isnan(value):
            return None
        if kind == BOOL:
            return None if value == 0.5 else value == 1.0
        if kind == TEXT:
            return self._code.words.text(value)
        return int(value) if value.is_integer() else round(value, 4)


class _ScheduleCheck:
    """Whether a schedule is open at a frame's time; evaluated once a minute."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._minute = -1
        self._open = False

    def __call__(self, frame: Frame) -> bool:
        at_s = datetime.now(UTC).timestamp() if frame.time_s is None else frame.time_s
        if int(at_s // 60) != self._minute:
            self._minute = int(at_s // 60)
            self._open = self._schedule.open(datetime.fromtimestamp(at_s, UTC))
        return self._open
