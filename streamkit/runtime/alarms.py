"""Alarms on the pipeline itself: looked at once a second on a thread of their own, also while no frame flows.

What is raised and cleared goes straight into the spools of the emitters, to the page, to the log and into the report.
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

from streamkit.alarms import STAGE, AlarmConfig
from streamkit.data import Event, Frame
from streamkit.emit.emitter import Emitter
from streamkit.emit.letters import fill
from streamkit.errors import StreamkitError, describe
from streamkit.media.uris import may_be_live
from streamkit.messages import at_now
from streamkit.rules.holding import Holding
from streamkit.runtime import sentences
from streamkit.runtime.facts import Facts, Value
from streamkit.runtime.watch import Ticker

EVERY_S = 1.0
WHOLE = "pipeline"
"""What stands for the source in events of the pipeline as a whole."""


@dataclass(frozen=True, slots=True)
class Raised:
    """An alarm that is raised now.

    Attributes:
        alarm: its name.
        source: the source, or `WHOLE`.
        since_s: since when, in seconds since 1970.
        text: what is wrong, with the values as they were when its rule was last true.
    """

    alarm: str
    source: str
    since_s: float
    text: str


@dataclass(slots=True)
class _Watch:
    """One alarm: its rule's memory, and what it said last of each source."""

    config: AlarmConfig
    holding: Holding
    raised: dict[str, Raised] = field(default_factory=dict)
    now: dict[str, tuple[Mapping[str, Value], Mapping[str, str]]] = field(default_factory=dict)  # of what is raised
    before: dict[str, tuple[sentences.About, Mapping[str, Value]]] = field(default_factory=dict)  # when it was raised
    seen: set[str] = field(default_factory=set)
    count: int = 0


class Alarms:
    """Looks at the rules, and tells.

    Args:
        configs: the alarms.
        look: gives the facts as they are now.
        emitters: gives the emitters that are open, with their stages' ids.
        addresses: the sources' addresses, by id.
        say: takes messages for the user.
        fail: takes an error that ends the run.
        ending: whether the run ends: that its sources give no frames then is no reason for an alarm.
    """

    def __init__(
        self, configs: Sequence[AlarmConfig], look: Callable[[], Facts],
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
        """Look while the block runs."""
        if not self._watches:
            yield
            return
        with Ticker(EVERY_S, self._tick):
            yield

    def off(self) -> None:
        """Look at nothing: another process does."""
        self._watches = []

    def listen(self, seen: Callable[[float, Event], None]) -> None:
        """Show each event to `seen`, with the time in seconds since 1970; on the alarms' own thread."""
        self._listeners.append(seen)

    @property
    def raised(self) -> list[Raised]:
        """The alarms that are raised now, the oldest first, each with its text as of now."""
        with self._lock:
            found = [(watch, one, *watch.now[key]) for watch in self._watches for key, one in watch.raised.items()]
        shown = [
            replace(one, text=self._raised_text(watch, one.source, values, self._about(one.source, about)))
            for watch, one, values, about in found
        ]
        return sorted(shown, key=lambda one: one.since_s)

    def rules(self) -> dict[str, tuple[str, int]]:
        """Each alarm's rule, and how often it was raised."""
        return {watch.config.name: (watch.config.options.when, watch.count) for watch in self._watches}

    def report(self) -> dict[str, Any]:
        """The part of a run's report that speaks of them: how often each was raised, and of what it is now."""
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
            self._say(f"the alarms could not be looked at: {describe(error)}")

    def step(self, facts: Facts, now_s: float) -> None:
        """Look at every rule once.

        Args:
            facts: as they are now.
            now_s: the monotonic time in seconds.

        Raises:
            OutputError: an emitter's spool is full and is to stop the run, or cannot be written.
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

    def _step(self, watch: _Watch, key: str, values: Mapping[str, Value], facts: Facts, now_s: float) -> None:
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

    def _gone(self, watch: _Watch, key: str, facts: Facts) -> None:
        """A source was removed: what was raised of it is over."""
        watch.holding.forget(key)
        if key in watch.before:
            about, _ = watch.before.pop(key)
            self._tell(watch, key, "cleared", f'{about.word} "{key}" was removed', {}, facts)

    # ---------------------------------------------------------------------------------------------------- telling

    def _raised_text(self, watch: _Watch, key: str, values: Mapping[str, Value], about: sentences.About) -> str:
        template = watch.config.options.text
        if template is None:
            return sentences.raised(watch.config.facts, values, about)
        texts = {name: sentences.short(value) for name, value in values.items()}
        return fill(template, _Known({**texts, "source": key, "alarm": watch.config.name}))

    def _cleared_text(
        self, watch: _Watch, values: Mapping[str, Value], before: Mapping[str, Value], lasted_s: float,
        about: sentences.About,
    ) -> str:  # fmt: skip
        if watch.config.options.text is None and (
            text := sentences.back(watch.config.facts, before, values, lasted_s, about)
        ):
            return text
        now = sentences.raised(watch.config.facts, values, about)
        return f"{watch.config.name} is over after {sentences.span(lasted_s)}: {now}"

    def _tell(self, watch: _Watch, key: str, kind: str, text: str, own: Mapping[str, Value], facts: Facts) -> None:
        now_s, name = time.time(), watch.config.name
        data = {"alarm": name, "text": text, **{k: round(v, 4) if isinstance(v, float) else v for k, v in own.items()}}
        index, pts_s, width, height = facts.places.get(key, (0, 0.0, 0, 0))
        event = Event(kind, STAGE, key, index, pts_s, data=data)
        with self._lock:
            self.events[kind] += 1
            watch.count += kind == "raised"
            if kind == "raised":
                watch.raised[key] = Raised(name, key, now_s, text)
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

    def _about(self, key: str, about: Mapping[str, str]) -> sentences.About:
        return sentences.About(key, self._word(key), about)

    def _word(self, key: str) -> str:
        return "camera" if may_be_live(self._addresses.get(key, "")) else "source"


class _Known(dict[str, str]):
    """Values of a template, where one may not be known."""

    def __missing__(self, name: str) -> str:
        return "?"


def _watch(config: AlarmConfig) -> _Watch:
    one = config.options
    return _Watch(config, Holding(config.program.for_s, one.clear, one.cooldown, one.schedule))
