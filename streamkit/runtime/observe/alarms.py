"""Alarms on the pipeline itself, evaluated once a second on a separate thread, even while no frames flow.

Raised and cleared alarms go directly to the spools of the emitters, to the page, to the log and into the report. Their
texts are generated from the facts that their rules use.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from streamkit.config.alarms import STAGE, AlarmConfig
from streamkit.core.data import Event, Frame
from streamkit.core.errors import StreamkitError, describe
from streamkit.core.text import at_now
from streamkit.emit.emitter import Emitter
from streamkit.emit.mail_format import fill
from streamkit.media.uris import may_be_live
from streamkit.rules.debounce import Debounce
from streamkit.runtime.execution.future import PeriodicTimer
from streamkit.runtime.observe.health import HealthSnapshot, Value

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
    debounce: Debounce
    raised: dict[str, _Raised] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    count: int = 0


class Alarms:
    """Evaluates the rules of alarms and reports changes.

    Args:
        configs: the alarms.
        look: returns the current facts.
        emitters: returns the open emitters, with their stages' ids.
        addresses: addresses of the sources, by id.
        say: receives messages for the user.
        fail: receives an error that ends the run.
        ending: whether the run is ending; no alarm is raised then, as sources send no more frames.
    """

    def __init__(
        self, configs: Sequence[AlarmConfig], look: Callable[[], HealthSnapshot],
        emitters: Callable[[], Sequence[tuple[str, Emitter]]], addresses: Mapping[str, str],
        say: Callable[[str], None], fail: Callable[[BaseException], None],
        ending: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        self._look, self._emitters, self._addresses, self._say, self._fail = look, emitters, addresses, say, fail
        self._ending = ending
        self._watches = [_watch(config) for config in configs]
        self._lock = threading.Lock()
        self._listeners: list[Callable[[float, Event], None]] = []
        self.events: Counter[str] = Counter()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Evaluate the alarms once a second while the block runs."""
        with PeriodicTimer(EVERY_S, self._tick) if self._watches else contextlib.nullcontext():
            yield

    def off(self) -> None:
        """Disable the alarms: another process evaluates them."""
        self._watches = []

    def listen(self, seen: Callable[[float, Event], None]) -> None:
        """Call `seen` with each event and the time in seconds since 1970, on the alarms' thread."""
        self._listeners.append(seen)

    @property
    def raised(self) -> list[ActiveAlarm]:
        """The active alarms, oldest first, each with its current text."""
        with self._lock:
            found = [(watch, one) for watch in self._watches for one in watch.raised.values()]
        shown = [replace(one.shown, text=_raised_text(watch.config, one.values, one.subject)) for watch, one in found]
        return sorted(shown, key=lambda one: one.since_s)

    def rules(self) -> dict[str, tuple[str, int]]:
        """The rule of each alarm, and how often it was raised."""
        return {watch.config.name: (watch.config.options.when, watch.count) for watch in self._watches}

    def report(self) -> dict[str, Any]:
        """The `alarms` part of the report: how often each was raised, and the sources for which it is active."""
        with self._lock:
            return {
                watch.config.name: {"raised": watch.count, **({"now": list(watch.raised)} if watch.raised else {})}
                for watch in self._watches
            }

    # ------------------------------------------------------------------------------------------------- evaluation

    def _tick(self) -> None:
        try:
            facts = self._look()
            if not self._ending():
                self.step(facts, time.monotonic())
        except StreamkitError as error:  # a spool that is full, or cannot be written
            self._fail(error)
        except Exception as error:  # a failure must not end the evaluation
            self._say(f"the alarms could not be evaluated: {describe(error)}")

    def step(self, facts: HealthSnapshot, now_s: float) -> None:
        """Evaluate every rule once.

        Args:
            facts: the current facts.
            now_s: the monotonic time in seconds.

        Raises:
            OutputError: an emitter's spool cannot be written, or is full and configured to stop the run.
        """
        known = {source: {**facts.whole, **own} for source, own in facts.sources.items()}
        for watch in self._watches:
            each = known if watch.config.per_source else {WHOLE: facts.whole}
            for key, values in each.items():
                try:
                    self._step(watch, key, values, facts, now_s)
                except StreamkitError:
                    raise
                except Exception as error:  # an alarm that fails must not affect the others
                    self._say(f"alarm {watch.config.name} could not be reported: {describe(error)}")
            for key in watch.seen - each.keys():  # the source was removed
                watch.debounce.forget(key)
                if (gone := watch.raised.get(key)) is not None:
                    self._cleared(watch, gone.subject, f'{gone.subject.word} "{key}" was removed', {}, facts)
            watch.seen = set(each)

    def _step(self, watch: _Watch, key: str, values: Mapping[str, Value], facts: HealthSnapshot, now_s: float) -> None:
        state = watch.debounce.state(key)
        ended_s = state.since_s if state.raised and not math.isnan(state.since_s) else now_s
        lasted_s = ended_s - state.raised_s
        true, known = watch.config.program.value(values), watch.raised.get(key)
        subject = AlarmSubject(key, "camera" if may_be_live(self._addresses.get(key, "")) else "source", facts.about)
        if true and known is not None:
            known.values, known.subject = values, subject
        told = watch.debounce.step(key, now_s, true)
        if told is None:
            return
        own = {
            name: values[name]
            for name in dict.fromkeys([*watch.config.facts, "cause"])
            if values.get(name, math.nan) == values.get(name)
        }
        if told == "raised":
            shown = ActiveAlarm(watch.config.name, key, time.time(), _raised_text(watch.config, values, subject))
            with self._lock:
                watch.count += 1
                watch.raised[key] = _Raised(shown, subject, values, values)
            self._tell(watch.config, key, told, shown.text, own, facts)
        else:
            first = values if known is None else known.first
            text = _cleared_text(watch.config, values, first, lasted_s, subject)
            self._cleared(watch, subject, text, {**own, "lasted_s": round(lasted_s, 1)}, facts)

    def _cleared(
        self, watch: _Watch, subject: AlarmSubject, text: str, own: Mapping[str, Value], facts: HealthSnapshot
    ) -> None:
        with self._lock:
            watch.raised.pop(subject.source, None)
        self._tell(watch.config, subject.source, "cleared", text, own, facts)

    def _tell(
        self, config: AlarmConfig, key: str, kind: str, text: str, own: Mapping[str, Value], facts: HealthSnapshot
    ) -> None:
        now_s, name = time.time(), config.name
        data = {"alarm": name, "text": text, **{k: round(v, 4) if isinstance(v, float) else v for k, v in own.items()}}
        index, pts_s, width, height = facts.places.get(key, (0, 0.0, 0, 0))
        event = Event(kind, STAGE, key, index, pts_s, data=data)
        self.events[kind] += 1
        self._say(f"alarm {name} {kind} {at_now()}: {text}")
        frame = Frame(key, index, pts_s, width, height, None, time_s=now_s, events=[event])
        for seen in self._listeners:
            seen(now_s, event)
        wanted = config.options.emitters
        for id_, emitter in self._emitters():
            if emitter.send == "events" and (wanted is None or id_ in wanted):
                emitter.tell(frame)


def _watch(config: AlarmConfig) -> _Watch:
    one = config.options
    return _Watch(config, Debounce(config.program.for_s, one.clear, one.cooldown, one.schedule))


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


class _Known(dict[str, str]):
    """Template values; unknown ones become `?`."""

    def __missing__(self, name: str) -> str:
        return "?"


def _raised_text(config: AlarmConfig, values: Mapping[str, Value], subject: AlarmSubject) -> str:
    template = config.options.text
    if template is None:
        return raised(config.facts, values, subject)
    texts = {name: short(value) for name, value in values.items()}
    return fill(template, _Known({**texts, "source": subject.source, "alarm": config.name}))


def _cleared_text(
    config: AlarmConfig, values: Mapping[str, Value], first: Mapping[str, Value], lasted_s: float, subject: AlarmSubject
) -> str:
    if config.options.text is None and (text := back(config.facts, first, values, lasted_s, subject)):
        return text
    return f"{config.name} is over after {span(lasted_s)}: {raised(config.facts, values, subject)}"


def raised(facts: Sequence[str], values: Mapping[str, Value], subject: AlarmSubject) -> str:
    """Text of a raised alarm, from the first known fact of its rule: `camera "gate" has been down for 31 s`."""
    name = next((name for name in facts if name in values and values[name] == values[name]), facts[0])  # not NaN
    value = values.get(name, 0.0)
    cause = values.get("cause")
    return _TEXTS[name].format(
        one=f'{subject.word} "{subject.source}"',
        value=value,
        span=span(value) if isinstance(value, float) else value,
        why=f" ({cause})" if cause else "",
        state=values.get("state", "away"),
        sources=values.get("sources", 0.0),
        thing=subject.things.get(name, "nothing"),
    )


def back(
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
    then_s, now_s = float(before.get(facts[0], 0.0)), float(now.get(facts[0], 0.0))
    if now_s >= then_s:  # it is still away; the alarm was cleared by its schedule
        return None
    return f'{subject.word} "{subject.source}" is back after {span(then_s + lasted_s)}'


def span(seconds: float) -> str:
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


def short(value: Value) -> str:
    """Format a fact for a user's text template."""
    return value if isinstance(value, str) else f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
