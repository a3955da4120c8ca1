"""`rule`: what is seen becomes events, by conditions that a user writes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, ClassVar, Required

from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from streamkit.analytics.memory import Slots
from streamkit.data import Batch
from streamkit.messages import install_command
from streamkit.rules.above import Above
from streamkit.rules.schedule import Schedule
from streamkit.stage import Seconds, StreamStage, stage


class RuleOptions(TypedDict, total=False):
    """One of several rules.

    Keys:
        when: its condition.
        clear: what ends it; `when` being no longer true if left out.
        clear_for: how long that must be true.
        cooldown: how long it is not raised again after that.
        schedule: when it counts.
    """

    when: Required[str]
    clear: str
    clear_for: Seconds
    cooldown: Seconds
    schedule: Schedule


RuleOptions.__pydantic_config__ = {"extra": "forbid"}  # type: ignore[attr-defined]


@stage("rule", reads="detections", writes="events")
class RuleStage(StreamStage):
    """Turn what is seen into events by conditions of your own: emits `raised` and `cleared`.

    A condition is an expression in CEL, the Common Expression Language, such as `count(person in zone.door) > 5 for
    10s`, `absent(guard)`, or `class == "truck" and speed > 50`. One that names what an object is or does (class, score,
    speed, attributes.color, in_zone(...)) is looked at for each track; others are for the whole frame. docs/rules.md
    has every name and function, how time is measured, and what is told when.

    Functions: count(CONDITION), present(CONDITION), absent(CONDITION), occupancy(ZONE), event(STAGE.KIND),
    events(STAGE.KIND), in_zone(ZONE), dwell_s(ZONE). Of an object: class, score, x1, y1, x2, y2, width, height, area,
    track_id, age_s, speed, heading, direction, attributes.NAME, detector, in_zone(...), dwell_s(...), and a class
    alone. Of a frame: source, frame.NAME. Operators: and, or, not (&&, ||, !), ==, !=, <, <=, >, >=, +, -, *, /, in,
    ?:.

    `raised` has `rule`, `since_s` (when the condition began) and `values` (what it was made of); `cleared` has `rule`,
    `lasted_s` and `values`. Rules about objects have the event's `track_id` and `label`.

    Options:
        when: the condition; with `for DURATION` behind it, how long it must be true.
        clear: the condition that ends it, also with `for`; `when` being no longer true if left out.
        clear_for: how long it must be over before it is cleared.
        cooldown: how long after it was cleared it is not raised again.
        schedule: weekdays, hours and time zone in which it counts, {days: [mon-fri], hours: "22:00-06:00", zone:
            Europe/Berlin}; outside it nothing is raised, and what is raised is cleared.
        rules: several rules by name, {crowd: {when: ..., clear: ...}, ...}, instead of `when`.
        predicted: objects that the tracker did not see but predicts count as seen.
        max_gap: how long a track that is not seen is remembered; what is raised of it is then cleared.
        max_pause: after a longer time without a frame of a source, what must last begins anew.
    """

    emits = ("raised", "cleared")
    has_rules: ClassVar[bool] = True

    when: str | None = None
    clear: str | None = None
    clear_for: Seconds | None = None
    cooldown: Seconds | None = None
    schedule: Schedule | None = None
    rules: dict[str, RuleOptions] = field(default_factory=dict)
    predicted: bool = True
    max_gap: Seconds = 2.0
    max_pause: Seconds = 10.0
    above: Above = field(default_factory=Above, metadata={"wired": True})

    def __post_init__(self) -> None:
        """Refuse a stage without a rule, or with options that belong to none."""
        alone = [name for name in ("clear", "clear_for", "cooldown", "schedule") if getattr(self, name) is not None]
        if (self.when is None) == (not self.rules):
            raise ValueError("needs when: CONDITION, or rules: {NAME: {when: CONDITION}}, and not both")
        for name in self.rules:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", name):
                raise ValueError(f"a rule's name is made of letters, digits, _ and -, got {name!r}")
        if self.rules and alone:
            raise ValueError(f"{', '.join(alone)} belong beside a rule's own when, within rules")

    def named(self) -> Iterator[tuple[str, Mapping[str, Any], tuple[str, ...]]]:
        """Each rule: its name, its options, and where these stand in the YAML; a single one is called ''."""
        if self.when is not None:
            names = ("when", "clear", "clear_for", "cooldown", "schedule")
            yield "", {name: getattr(self, name) for name in names}, ()
        for name, options in self.rules.items():
            yield name, options, ("rules", name)

    def open(self) -> None:
        """Make the rules ready; the first time after an installation they are compiled, which takes some seconds."""
        from streamkit.rules.facts import Facts
        from streamkit.rules.kernel import advance, is_compiled
        from streamkit.rules.rule import make_rule
        from streamkit.tracking.jit import is_kept

        if not is_compiled():
            self.context.say(f"numba is not installed, so rules are slow; install it with: {install_command('track')}")
        elif not is_kept(advance):
            self.context.say(
                "the rules' evaluation is being compiled, which takes some seconds; once, not at every start"
            )
        from streamkit.rules.engine import Engine

        facts = Facts()
        rules = [make_rule(name, options, self.above, facts) for name, options, _ in self.named()]
        self._engine = Engine(
            rules, self.above, facts,
            max_gap_s=self.max_gap, max_pause_s=self.max_pause, predicted=self.predicted,
        )  # fmt: skip
        self._slots = Slots()

    def new_state(self, source: str) -> int:
        """A source begins: it gets a small number."""
        slot = self._slots.take()
        self._engine.begin(slot)
        return slot

    def process(self, batch: Batch, states: Mapping[str, Any]) -> Batch:
        """Evaluate every rule on every frame."""
        for one in self._engine.step(batch, states):
            rule = one.rule or self.context.id
            data = {"rule": rule, **({"label": one.label} if one.label is not None else {}), **one.data}
            one.frame.emit(one.kind, one.track, **data)
            self._count(one.rule, one.kind)
        if self._engine.pauses:
            self._count("", "begun anew after max_pause", self._engine.pauses)
            self._engine.pauses = 0
        return batch

    def end(self, source: str, state: Any) -> None:
        """A source has ended; the report says what was raised still."""
        for rule, _ in self._engine.end(state):
            self._count(rule, "raised at the end")
        self._slots.give_back(state)

    def _count(self, rule: str, what: str, n: int = 1) -> None:
        self.context.counters.add(" ".join(filter(None, (self.context.id, rule, what))), n)
