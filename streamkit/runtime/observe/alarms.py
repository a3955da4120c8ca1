# SPDX-License-Identifier: Apache-2.0
"""Alarms on the pipeline itself, evaluated once a second on a separate thread, even while no frames flow.

Raised and cleared alarms go directly to the spools of the emitters, to the page, to the log and into the report. Their
texts are generated from the facts that their rules use.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from streamkit.config.alarms import STAGE, AlarmConfig
from streamkit.core.data import Event, Frame
from streamkit.core.errors import StreamkitError, describe
from streamkit.core.logs import LogOnce
from streamkit.core.text import at_now
from streamkit.emit.mail_format import fill
from streamkit.media.uris import may_be_live
from streamkit.rules.group import FactChange, FactRule
from streamkit.runtime.execution.future import PeriodicTimer
from streamkit.runtime.execution.stage_runner import Fail, Runner
from streamkit.runtime.observe.health import HealthSnapshot, Value, emitters

logger = logging.getLogger(__name__)

EVERY_S = 1.0
WHOLE = "pipeline"
"""The source id in events about the whole pipeline."""


class AlarmSubject(NamedTuple):
    """The subject of an alarm.

    Attributes:
        source: the source's id.
        word: `camera` or `source`.
        things: the folder, emitter or stage that a pipeline fact is about, by fact.
    """

    source: str
    word: str
    things: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ActiveAlarm:
    """An active alarm.

    Attributes:
        alarm: its name.
        source: the source, or `WHOLE`.
        since_s: when it was raised, in seconds since 1970.
        text: what is wrong, with the values at the time when its rule was last true.
    """

    alarm: str
    source: str
    since_s: float
    text: str


@dataclass(slots=True)
class _Raised:
    """A raised alarm of one source: its subject and values when it was raised, and when its rule was last true."""

    shown: ActiveAlarm
    subject: AlarmSubject
    first: Mapping[str, Value]
    values: Mapping[str, Value]


@dataclass(slots=True)
class _Watch:
    """One alarm, and the sources for which it is raised."""

    config: AlarmConfig
    rule: FactRule
    raised: dict[str, _Raised] = field(default_factory=dict)
    count: int = 0


class Alarms:
    """Evaluates the rules of alarms and reports changes.

    Args:
        configs: the alarms.
        snapshot: returns the current facts.
        runners: the runners of the stages, among them those of emitters; more may be added.
        addresses: addresses of the sources, by id.
        fail: receives an error that ends the run.
        ending: whether the run is ending; no alarm is raised then, as sources send no more frames.
        wall_clock: seconds since 1970, for the events.
    """

    def __init__(
        self,
        configs: Sequence[AlarmConfig],
        snapshot: Callable[[], HealthSnapshot],
        runners: Sequence[Runner],
        addresses: Mapping[str, str],
        fail: Fail,
        ending: Callable[[], bool] = lambda: False,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._wall_clock = wall_clock
        self._snapshot = snapshot
        self._runners = runners
        self._addresses = addresses
        self._fail = fail
        self._ending = ending
        self._warn = LogOnce(logger.warning)
        self._watches = [_Watch(config, FactRule(config.rule)) for config in configs]
        self._lock = threading.Lock()
        self._listeners: list[Callable[[float, Event], None]] = []
        self.events: Counter[str] = Counter()
        self._latest: HealthSnapshot | None = None

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Evaluate the alarms once a second while the block runs."""
        with PeriodicTimer(EVERY_S, self.evaluate) if self._watches else contextlib.nullcontext():
            yield

    def disable(self) -> None:
        """Disable the alarms: another process evaluates them."""
        self._watches = []

    def listen(self, seen: Callable[[float, Event], None]) -> None:
        """Call `seen` with each event and the time in seconds since 1970, on the alarms' thread."""
        self._listeners.append(seen)

    @property
    def raised(self) -> list[ActiveAlarm]:
        """The active alarms, oldest first, each with its current text."""
        with self._lock:
            alarms = [(watch, alarm) for watch in self._watches for alarm in watch.raised.values()]
        shown = [
            replace(alarm.shown, text=_raised_text(watch.config, alarm.values, alarm.subject))
            for watch, alarm in alarms
        ]
        return sorted(shown, key=lambda alarm: alarm.since_s)

    def rules(self) -> dict[str, tuple[str, int]]:
        """The rule of each alarm, and how often it was raised."""
        return {watch.config.name: (watch.config.options.when, watch.count) for watch in self._watches}

    def facts(self) -> HealthSnapshot:
        """The current facts. If there are alarms, those of their last evaluation: one thread computes them."""
        return self._snapshot() if not self._watches or self._latest is None else self._latest

    def report(self) -> dict[str, Any]:
        """The `alarms` part of the report: how often each was raised, and the sources for which it is active."""
        with self._lock:
            return {
                watch.config.name: {"raised": watch.count, **({"now": list(watch.raised)} if watch.raised else {})}
                for watch in self._watches
            }

    # ------------------------------------------------------------------------------------------------- evaluation

    def evaluate(self) -> None:
        """Evaluate the alarms on the current facts, unless the run is ending; `evaluating` calls it."""
        try:
            facts = self._latest = self._snapshot()
            if not self._ending():
                self.step(facts, time.monotonic())
        except StreamkitError as error:  # a spool that is full, or cannot be written
            self._fail(error)
        except Exception as error:  # a failure must not end the evaluation
            self._warn(f"the alarms could not be evaluated: {describe(error)}")

    def step(self, facts: HealthSnapshot, now_s: float) -> None:
        """Evaluate every rule once.

        Args:
            facts: the current facts.
            now_s: the monotonic time in seconds.

        Raises:
            OutputError: an emitter's spool cannot be written, or is full and configured to stop the run.
        """
        by_source = {source: {**facts.pipeline, **source_facts} for source, source_facts in facts.sources.items()}
        for watch in self._watches:
            each = by_source if watch.config.per_source else {WHOLE: facts.pipeline}
            changes = watch.rule.step(each, now_s)
            for key, alarm in watch.raised.items():
                if key in each and watch.rule.is_true(key):
                    alarm.values = each[key]
                    alarm.subject = self._subject(key, facts)
            for change in changes:
                try:
                    self._report(watch, change, each[change.item], facts)
                except StreamkitError:
                    raise
                except Exception as error:  # an alarm that fails must not affect the others
                    self._warn(f"alarm {watch.config.name} could not be reported: {describe(error)}")
            for key in watch.raised.keys() - each.keys():  # the source was removed
                subject = watch.raised[key].subject
                self._cleared(watch, subject, f'{subject.word} "{key}" was removed', {}, facts)

    def _subject(self, key: str, facts: HealthSnapshot) -> AlarmSubject:
        return AlarmSubject(key, "camera" if may_be_live(self._addresses.get(key, "")) else "source", facts.about)

    def _report(self, watch: _Watch, change: FactChange, values: Mapping[str, Value], facts: HealthSnapshot) -> None:
        """Report that an alarm was raised or cleared."""
        key = change.item
        subject = self._subject(change.item, facts)
        event_values = {
            name: values[name]
            for name in dict.fromkeys([*watch.config.facts, "cause"])
            if values.get(name, math.nan) == values.get(name)
        }
        if change.kind == "raised":
            shown = ActiveAlarm(watch.config.name, key, self._wall_clock(), _raised_text(watch.config, values, subject))
            with self._lock:
                watch.count += 1
                watch.raised[key] = _Raised(shown, subject, values, values)
            self._publish(watch.config, key, "raised", shown.text, event_values, facts)
        else:
            alarm = watch.raised.get(key)
            first = values if alarm is None else alarm.first
            text = _cleared_text(watch.config, values, first, change.lasted_s, subject)
            self._cleared(watch, subject, text, {**event_values, "lasted_s": round(change.lasted_s, 1)}, facts)

    def _cleared(
        self, watch: _Watch, subject: AlarmSubject, text: str, values: Mapping[str, Value], facts: HealthSnapshot
    ) -> None:
        with self._lock:
            watch.raised.pop(subject.source, None)
        self._publish(watch.config, subject.source, "cleared", text, values, facts)

    def _publish(
        self, config: AlarmConfig, key: str, kind: str, text: str, values: Mapping[str, Value], facts: HealthSnapshot
    ) -> None:
        now_s = self._wall_clock()
        name = config.name
        data = {
            "alarm": name,
            "text": text,
            **{k: round(v, 4) if isinstance(v, float) else v for k, v in values.items()},
        }
        index, pts_s, width, height = facts.last_frames.get(key, (0, 0.0, 0, 0))
        event = Event(kind, STAGE, key, index, pts_s, data=data)
        self.events[kind] += 1
        level = logging.WARNING if kind == "raised" else logging.INFO
        logger.log(level, f"alarm {name} {kind} {at_now()}: {text}", extra={"source": "" if key == WHOLE else key})
        self._send(event, now_s, (width, height), config.options.emitters)

    def publish(self, event: Event) -> None:
        """Send an event about the run itself to every emitter of events and every listener, and count it.

        Raises:
            OutputError: an emitter's spool cannot be written, or is full and configured to stop the run.
        """
        self.events[event.kind] += 1
        self._send(event, self._wall_clock(), (0, 0), None)

    def _send(self, event: Event, now_s: float, size: tuple[int, int], wanted: Collection[str] | None) -> None:
        for seen in self._listeners:
            seen(now_s, event)
        frame = Frame(event.source, event.frame, event.pts_s, *size, None, time_s=now_s, events=[event])
        for id_, emitter in emitters(self._runners):
            if emitter.send == "events" and (wanted is None or id_ in wanted):
                emitter.enqueue(frame)


# ------------------------------------------------------------------------------------------------------------- texts

_TEXTS = {
    "down_s": "{one} has been down for {span}{why}",
    "quiet_s": "{one} has given no frame for {span}{why}",
    "state": "{one} is {value}{why}",
    "cause": "{one} is {state}{why}",
    "fps_in": "{one} delivers {value:.1f} frames per second",
    "fps_out": "{value:.1f} frames per second of {one} reach the end of the pipeline",
    "drop_rate": "{value:.0%} of the frames of {one} are dropped",
    "fail_rate": "{value:.0%} of the frames of {one} fail in a stage",
    "latency_p50_s": "half of the frames of {one} take more than {value:.2f} s to reach the end of the pipeline",
    "latency_p95_s": "one in twenty frames of {one} takes more than {value:.2f} s to reach the end of the pipeline",
    "reconnects_1h": "{one} was lost and came back {value:.0f} times within an hour",
    "total_fps": "{value:.1f} frames per second reach the end of the pipeline",
    "sources": "there are {value:.0f} sources",
    "sources_down": "{value:.0f} of {sources:.0f} sources are down",
    "disk_free_gb": "{value:.1f} GB are free on the disk of {thing}",
    "disk_used_share": "the disk of {thing} is {value:.0%} full",
    "spool_share": "the spool of {thing} is {value:.0%} full",
    "spool_records": "{value:,.0f} records wait in the spool of {thing}",
    "undelivered_s": "{thing} has delivered nothing for {span}, and records wait",
    "stage_call_s": "stage {thing} has been in one call for {span}",
    "memory_gb": "the pipeline has {value:.1f} GB of memory",
    "gpu_memory_share": "the memory of {thing} is {value:.0%} full",
    "uptime_s": "the pipeline has run for {span}",
}
_BACK = ("down_s", "quiet_s")


def _raised_text(config: AlarmConfig, values: Mapping[str, Value], subject: AlarmSubject) -> str:
    template = config.options.text
    if template is None:
        return alarm_text(config.facts, values, subject)
    texts = {name: value_text(value) for name, value in values.items()}
    return fill(template, defaultdict(lambda: "?", texts, source=subject.source, alarm=config.name))


def _cleared_text(
    config: AlarmConfig, values: Mapping[str, Value], first: Mapping[str, Value], lasted_s: float, subject: AlarmSubject
) -> str:
    if config.options.text is None and (text := recovery_text(config.facts, first, values, lasted_s, subject)):
        return text
    return f"{config.name} is over after {duration_text(lasted_s)}: {alarm_text(config.facts, values, subject)}"


def alarm_text(facts: Sequence[str], values: Mapping[str, Value], subject: AlarmSubject) -> str:
    """Text of a raised alarm, from the first known fact of its rule: `camera "gate" has been down for 31 s`."""
    name = next((name for name in facts if name in values and values[name] == values[name]), facts[0])  # not NaN
    value = values.get(name, 0.0)
    cause = values.get("cause")
    return _TEXTS[name].format(
        one=f'{subject.word} "{subject.source}"',
        value=value,
        span=duration_text(value) if isinstance(value, float) else value,
        why=f" ({cause})" if cause else "",
        state=values.get("state", "away"),
        sources=values.get("sources", 0.0),
        thing=subject.things.get(name, "nothing"),
    )


def recovery_text(
    facts: Sequence[str], before: Mapping[str, Value], now: Mapping[str, Value], lasted_s: float, subject: AlarmSubject
) -> str | None:
    """Text for a source that is back, such as `camera "gate" is back after 45 s`; None for other rules.

    Args:
        facts: the facts that the rule uses.
        before: their values when the alarm was raised.
        now: their current values.
        lasted_s: how long the rule was true after that, in seconds.
        subject: the source.
    """
    if not facts or facts[0] not in _BACK:
        return None
    then_s = float(before.get(facts[0], 0.0))
    now_s = float(now.get(facts[0], 0.0))
    if now_s >= then_s:  # it is still away; the alarm was cleared by its schedule
        return None
    return f'{subject.word} "{subject.source}" is back after {duration_text(then_s + lasted_s)}'


def duration_text(seconds: float) -> str:
    """Format a duration for people: `31 s`, `2 min`, `3 h 20 min`, `2 d 4 h`; NaN is an unknown time."""
    if math.isnan(seconds):
        return "an unknown time"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} d {hours % 24} h" if hours % 24 else f"{hours // 24} d"


def value_text(value: Value) -> str:
    """Format a fact for a user's text template."""
    return value if isinstance(value, str) else f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
