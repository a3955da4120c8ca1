"""Alarms on the pipeline itself, evaluated once a second on a separate thread, even while no frames flow.

Raised and cleared alarms go directly to the spools of the emitters, to the page, to the log and into the report.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamkit.config.alarms import STAGE, AlarmConfig
from streamkit.core.data import Event, Frame
from streamkit.core.errors import StreamkitError, describe
from streamkit.core.text import at_now
from streamkit.emit.emitter import Emitter
from streamkit.emit.mail_format import fill
from streamkit.media.uris import may_be_live
from streamkit.rules.debounce import Debounce
from streamkit.runtime.observe import alarm_messages
from streamkit.runtime.observe.health import HealthSnapshot, Value
from streamkit.runtime.observe.periodic_timer import PeriodicTimer

EVERY_S = 1.0
WHOLE = "pipeline"
"""What stands for the source in events of the pipeline as a whole."""


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
class _Watch:
    """One alarm: the state of its rule, and the last text for each source."""

    config: AlarmConfig
    holding: Debounce
    raised: dict[str, ActiveAlarm] = field(default_factory=dict)
    now: dict[str, tuple[Mapping[str, Value], Mapping[str, str]]] = field(default_factory=dict)  # of what is raised
    before: dict[str, tuple[alarm_messages.AlarmSubject, Mapping[str, Value]]] = field(
        default_factory=dict
    )  # when it was raised
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
        if not self._watches:
            yield
            return
        with PeriodicTimer(EVERY_S, self._tick):
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
            found = [(watch, one, *watch.now[key]) for watch in self._watches for key, one in watch.raised.items()]
        shown = [
            replace(one, text=self._raised_text(watch, one.source, values, self._about(one.source, about)))
            for watch, one, values, about in found
        ]
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

    # ---------------------------------------------------------------------------------------------------- looking

    def _tick(self) -> None:
        try:
            facts = self._look()
            if not self._ending():
                self.step(facts, time.monotonic())
        except StreamkitError as error:  # a spool that is full, or cannot be written
            self._fail(error)
        except Exception as error:  # an alarm that fails must not end the others
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
                except Exception as error:  # an alarm that fails must not end the others
                    self._say(f"alarm {watch.config.name} could not be told: {describe(error)}")
            for key in watch.seen - each.keys():
                self._gone(watch, key, facts)
            watch.seen = set(each)

    def _step(self, watch: _Watch, key: str, values: Mapping[str, Value], facts: HealthSnapshot, now_s: float) -> None:
        state = watch.holding.state(key)
        ended_s = state.since_s if state.raised and state.since_s == state.since_s else now_s
        lasted_s = ended_s - state.raised_s
        true = watch.config.program.value(values)
        told = watch.holding.step(key, now_s, true)
        if true and key in watch.raised:
            watch.now[key] = values, facts.about
        if told is None:
            return
        own = {
            name: values[name]
            for name in dict.fromkeys([*watch.config.facts, "cause"])
            if values.get(name, math.nan) == values.get(name)
        }
        about = self._about(key, facts.about)
        if told == "raised":
            watch.before[key] = about, values
            watch.now[key] = values, facts.about
            text = self._raised_text(watch, key, values, about)
            self._tell(watch, key, told, text, own, facts)
        else:
            _, before = watch.before.pop(key, (about, values))
            text = self._cleared_text(watch, values, before, lasted_s, about)
            self._tell(watch, key, told, text, {**own, "lasted_s": round(lasted_s, 1)}, facts)

    def _gone(self, watch: _Watch, key: str, facts: HealthSnapshot) -> None:
        """Clear an alarm of a source that was removed."""
        watch.holding.forget(key)
        if key in watch.before:
            about, _ = watch.before.pop(key)
            self._tell(watch, key, "cleared", f'{about.word} "{key}" was removed', {}, facts)

    # ---------------------------------------------------------------------------------------------------- telling

    def _raised_text(
        self, watch: _Watch, key: str, values: Mapping[str, Value], about: alarm_messages.AlarmSubject
    ) -> str:
        template = watch.config.options.text
        if template is None:
            return alarm_messages.raised(watch.config.facts, values, about)
        texts = {name: alarm_messages.short(value) for name, value in values.items()}
        return fill(template, _Known({**texts, "source": key, "alarm": watch.config.name}))

    def _cleared_text(
        self, watch: _Watch, values: Mapping[str, Value], before: Mapping[str, Value], lasted_s: float,
        about: alarm_messages.AlarmSubject,
    ) -> str:  # fmt: skip
        if watch.config.options.text is None and (
            text := alarm_messages.back(watch.config.facts, before, values, lasted_s, about)
        ):
            return text
        now = alarm_messages.raised(watch.config.facts, values, about)
        return f"{watch.config.name} is over after {alarm_messages.span(lasted_s)}: {now}"

    def _tell(
        self, watch: _Watch, key: str, kind: str, text: str, own: Mapping[str, Value], facts: HealthSnapshot
    ) -> None:
        now_s, name = time.time(), watch.config.name
        data = {"alarm": name, "text": text, **{k: round(v, 4) if isinstance(v, float) else v for k, v in own.items()}}
        index, pts_s, width, height = facts.places.get(key, (0, 0.0, 0, 0))
        event = Event(kind, STAGE, key, index, pts_s, data=data)
        with self._lock:
            self.events[kind] += 1
            watch.count += kind == "raised"
            if kind == "raised":
                watch.raised[key] = ActiveAlarm(name, key, now_s, text)
            else:
                watch.raised.pop(key, None)
                watch.now.pop(key, None)
        self._say(f"alarm {name} {kind} {at_now()}: {text}")
        frame = Frame(key, index, pts_s, width, height, None, time_s=now_s, events=[event])
        for seen in self._listeners:
            seen(now_s, event)
        wanted = watch.config.options.emitters
        for id_, emitter in self._emitters():
            if emitter.send == "events" and (wanted is None or id_ in wanted):
                emitter.tell(frame)

    def _about(self, key: str, about: Mapping[str, str]) -> alarm_messages.AlarmSubject:
        return alarm_messages.AlarmSubject(key, self._word(key), about)

    def _word(self, key: str) -> str:
        return "camera" if may_be_live(self._addresses.get(key, "")) else "source"


class _Known(dict[str, str]):
    """Template values; unknown ones become `?`."""

    def __missing__(self, name: str) -> str:
        return "?"


def _watch(config: AlarmConfig) -> _Watch:
    one = config.options
    return _Watch(config, Debounce(config.program.for_s, one.clear, one.cooldown, one.schedule))
