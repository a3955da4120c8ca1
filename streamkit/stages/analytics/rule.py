# SPDX-License-Identifier: Apache-2.0
"""`rule`: events from conditions that a user writes."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Annotated, Any, Literal, Required

from streamkit.core.data import Batch
from streamkit.core.stage import Seconds, stage
from streamkit.core.text import install_command
from streamkit.core.units import OptionGroup
from streamkit.rules.schedule import Schedule
from streamkit.rules.scope import Scope
from streamkit.stages.analytics.track_analytics import SlotStage

logger = logging.getLogger(__name__)


class RuleOptions(OptionGroup, total=False):
    """One of several rules.

    Keys:
        when: the condition.
        clear: the condition that clears it; by default, `when` is no longer true.
        clear_for: how long that must hold.
        cooldown: how long after that the rule is not raised again.
        schedule: when the rule is active.
        severity: how the page shows what it raises.
    """

    when: Required[str]
    clear: str
    clear_for: Seconds
    cooldown: Seconds
    schedule: Schedule
    severity: Literal["alert", "notice"]


@stage("rule", reads="detections", writes="events", emits=("raised", "cleared"), has_rules=True)
class RuleStage(SlotStage):
    """Turn detections into events by your own conditions: emits `raised` and `cleared`.

    A condition is an expression in CEL, the Common Expression Language, such as `count(person in zone.door) > 5 for
    10s`, `absent(guard)`, or `class == "truck" and speed > 50`. A condition that names a property of an object (class,
    score, speed, attributes.color, in_zone(...)) is evaluated for each track; others for the whole frame.
    docs/rule-language.md lists every name and function; docs/rules.md explains events and timing.

    Functions: count(CONDITION), present(CONDITION), absent(CONDITION), occupancy(ZONE), event(STAGE.KIND),
    events(STAGE.KIND), in_zone(ZONE), dwell_s(ZONE). Of an object: class, score, x1, y1, x2, y2, width, height, area,
    track_id, age_s, speed, heading, direction, attributes.NAME, detector, in_zone(...), dwell_s(...), and a class
    alone. Of a frame: source, frame.NAME. Operators: and, or, not (&&, ||, !), ==, !=, <, <=, >, >=, +, -, *, /, in,
    ?:.

    `raised` has `rule`, `since_s` (when the condition became true) and `values` (what it was computed from); `cleared`
    has `rule`, `lasted_s` and `values`. Events of rules about objects have the object's `track_id` and `label`.
    """

    when: Annotated[str | None, "the condition; append `for DURATION` for how long it must be true."] = None
    clear: Annotated[str | None, "the condition that clears the rule, also with `for`; by default, not `when`."] = None
    clear_for: Annotated[Seconds | None, "how long the clear condition must hold."] = None
    cooldown: Annotated[Seconds | None, "how long after it is cleared the rule is not raised again."] = None
    schedule: Annotated[
        Schedule | None,
        'weekdays, hours and time zone in which the rule is active, {days: [mon-fri], hours: "22:00-06:00", zone: '
        "Europe/Berlin}; outside the schedule nothing is raised, and raised rules are cleared.",
    ] = None
    severity: Annotated[
        Literal["alert", "notice"],
        "how the page of `serve` shows what the rule raises: alerts ask for a person, notices do not.",
    ] = "alert"
    rules: Annotated[
        dict[str, RuleOptions], "several rules by name, {crowd: {when: ..., clear: ...}, ...}, instead of `when`."
    ] = field(default_factory=dict)
    predicted: Annotated[bool, "count objects that the tracker predicts but did not see as seen."] = True
    track_ttl: Annotated[Seconds, "how long an unseen track is remembered; then its raised rules are cleared."] = 2.0
    max_frame_gap: Annotated[Seconds, "after a longer time without a frame of a source, durations restart at zero."] = (
        10.0
    )
    above: Scope = field(default_factory=Scope, metadata={"wired": True})

    def __post_init__(self) -> None:
        """Check that there is a rule, and that each option belongs to one."""
        alone = [name for name in ("clear", "clear_for", "cooldown", "schedule") if getattr(self, name) is not None]
        if (self.when is None) == (not self.rules):
            raise ValueError("needs either when: CONDITION or rules: {NAME: {when: CONDITION}}")
        for name in self.rules:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", name):
                raise ValueError(f"a rule's name must consist of letters, digits, _ and -, got {name!r}")
        if self.rules and alone:
            raise ValueError(f"{', '.join(alone)} apply to a single when; move them to the rules they belong to")

    def named(self) -> Iterator[tuple[str, Mapping[str, Any], tuple[str, ...]]]:
        """Yield each rule's name, options and path of keys in the YAML; a single rule is named ''."""
        if self.when is not None:
            names = ("when", "clear", "clear_for", "cooldown", "schedule")
            yield "", {name: getattr(self, name) for name in names}, ()
        for name, options in self.rules.items():
            yield name, options, ("rules", name)

    def open(self) -> None:
        """Compile the rules; the first time after an installation, this takes some seconds."""
        from streamkit.rules.kernel import advance, kernels
        from streamkit.rules.rule import make_rule
        from streamkit.rules.scope import Facts
        from streamkit.tracking.jit import is_cached

        _, compiled = kernels()
        if compiled is advance:
            logger.warning(f"numba is not installed, so rules are slow; install it with: {install_command('track')}")
        elif not is_cached(compiled):
            self.context.runtime.opening_note = "compiling, first run only"
            logger.info("compiling the rules (first run only)")
        from streamkit.rules.engine import RuleEngine

        facts = Facts()
        rules = [make_rule(name, options, self.above, facts) for name, options, _ in self.named()]
        self._engine = RuleEngine(
            rules,
            self.above,
            facts,
            track_ttl_s=self.track_ttl,
            max_frame_gap_s=self.max_frame_gap,
            predicted=self.predicted,
        )
        super().open()

    def changed(self) -> None:
        """Use the areas of the stages above, which have changed."""
        self._engine.change(self.above)

    def begin(self, slot: int) -> None:
        """Start a source."""
        self._engine.begin(slot)

    def process(self, batch: Batch, states: Mapping[str, Any]) -> Batch:
        """Evaluate every rule on every frame."""
        for match in self._engine.step(batch, states):
            rule = match.rule or self.context.id
            data = {"rule": rule, **({"label": match.label} if match.label is not None else {}), **match.data}
            match.frame.emit(match.kind, match.track, **data)
            self.count(match.rule, match.kind)
        if self._engine.pauses:
            self.count("restarts after max_frame_gap", n=self._engine.pauses)
            self._engine.pauses = 0
        return batch

    def finish(self, slot: int) -> None:
        """End a source; rules still raised are counted for the summary."""
        for rule, _ in self._engine.end(slot):
            self.count(rule, "raised at the end")
