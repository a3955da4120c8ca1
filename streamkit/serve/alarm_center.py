# SPDX-License-Identifier: Apache-2.0
"""The alarms for people: their rules in words, what was raised and cleared, and what a person has acknowledged."""

from __future__ import annotations

import itertools
import re
import time
from collections import deque
from typing import Any

from streamkit.config.alarms import STAGE, AlarmConfig
from streamkit.core.data import Event
from streamkit.runtime.observe.alarms import ActiveAlarm, duration_text
from streamkit.runtime.run import RunAlarms
from streamkit.serve.api_models import AlarmChange, AlarmView, RaisedAlarm, RequestRejected

MAX_CHANGES = 500
"""Number of raised and cleared alarms that are kept."""

_FACTS = {
    "down_s": "the seconds for which a source is down",
    "quiet_s": "the seconds since a source's last frame",
    "state": "the state of a source",
    "cause": "the cause of that state",
    "fps_in": "the frames per second from a source",
    "fps_out": "the frames per second of a source at the end of the pipeline",
    "drop_rate": "the share of a source's frames that are dropped",
    "fail_rate": "the share of a source's frames that fail in a stage",
    "latency_p50_s": "the median latency of a source in seconds",
    "latency_p95_s": "the 95th percentile of a source's latency in seconds",
    "reconnects_1h": "the reconnects of a source in the last hour",
    "total_fps": "the frames per second of all sources",
    "sources": "the number of sources",
    "sources_down": "the number of sources that are down",
    "disk_free_gb": "the free GB on the fullest disk",
    "disk_used_share": "the used share of the fullest disk",
    "spool_share": "the used share of the fullest spool",
    "spool_records": "the records in the fullest spool",
    "undelivered_s": "the seconds for which an emitter has delivered nothing while records wait",
    "stage_call_s": "the seconds for which a stage has been in one call",
    "memory_gb": "the memory of the pipeline in GB",
    "gpu_memory_share": "the used share of the GPU's memory",
    "uptime_s": "the seconds since the pipeline began",
}
_SIGNS = {
    "&&": "and",
    "||": "or",
    "!": "not",
    "==": "is",
    "!=": "is not",
    ">": "is above",
    "<": "is below",
    ">=": "is at least",
    "<=": "is at most",
    "in": "is one of",
}
_TOKEN = re.compile(r"""("[^"]*"|'[^']*'|\d[\w.]*)|(&&|\|\||[=!<>]=|[<>!])|([A-Za-z_]\w*)|(\S)""")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


class AlarmCenter:
    """What people see and do about the alarms of a run. Thread-safe.

    Args:
        alarms: the alarms of the run.
        configs: their configuration.
    """

    def __init__(self, alarms: RunAlarms, configs: list[AlarmConfig]) -> None:
        self._changes: deque[AlarmChange] = deque(maxlen=MAX_CHANGES)
        self._numbers = itertools.count(1)
        self._acknowledged: frozenset[tuple[str, str, float]] = frozenset()
        self.follow(alarms, configs)

    def follow(self, alarms: RunAlarms, configs: list[AlarmConfig]) -> None:
        """Take the alarms of a pipeline that was rebuilt."""
        self._alarms = alarms
        self._words = {config.name: in_words(config) for config in configs}
        self._facts = {config.name: config.facts for config in configs}
        alarms.listen(self._add)

    def _add(self, time_s: float, event: Event) -> None:
        if event.stage == STAGE and "alarm" in event.data:
            name = str(event.data["alarm"])
            text = str(event.data.get("text", ""))
            self._changes.append(AlarmChange(next(self._numbers), time_s, event.kind, name, event.source, text))

    def changes(self, limit: int) -> list[AlarmChange]:
        """The latest raised and cleared alarms, newest first."""
        return list(self._changes)[::-1][:limit]

    def facts(self, name: str) -> list[str]:
        """The facts that the rule of an alarm names."""
        return self._facts.get(name, [])

    def raised(self) -> list[RaisedAlarm]:
        """The alarms that are raised, oldest first."""
        now_s = time.time()
        return [
            RaisedAlarm(
                active.alarm,
                active.source,
                round(max(0.0, now_s - active.since_s), 1),
                active.text,
                _key(active) in self._acknowledged,
            )
            for active in self._alarms.raised
        ]

    def views(self) -> list[AlarmView]:
        """Each alarm with its rule, and where it is raised."""
        raised = self.raised()
        return [
            AlarmView(
                name, rule, self._words.get(name, rule), count, [active for active in raised if active.alarm == name]
            )
            for name, (rule, count) in self._alarms.rules().items()
        ]

    def acknowledge(self, name: str, source: str) -> AlarmView:
        """Note that a person knows of a raised alarm, until it is cleared.

        Raises:
            RequestRejected: there is no such alarm, or it is not raised for that source.
        """
        if name not in self._alarms.rules():
            raise RequestRejected(404, f"there is no alarm {name!r}")
        raised = self._alarms.raised
        noted = [_key(active) for active in raised if (active.alarm, active.source) == (name, source)]
        if not noted:
            raise RequestRejected(409, f"the alarm {name!r} is not raised for {source!r}; it may have been cleared")
        still = {_key(active) for active in raised}
        self._acknowledged = frozenset((self._acknowledged & still) | set(noted))
        return next(view for view in self.views() if view.name == name)


def _key(active: ActiveAlarm) -> tuple[str, str, float]:
    return active.alarm, active.source, active.since_s


def in_words(config: AlarmConfig) -> str:
    """An alarm's rule as a sentence, with its delays and its schedule."""
    options = config.options
    words = f"Raised when {rule_in_words(options.when)}; cleared when that has not been so for"
    words += f" {duration_text(options.clear)}"
    if options.cooldown:
        words += f"; not raised again within {duration_text(options.cooldown)}"
    if options.schedule is not None:
        words += f"; only {_schedule(options.schedule)}"
    return f"{words}."


def rule_in_words(rule: str) -> str:
    """A rule with its facts and signs as words: `down_s > 30` is `the seconds ... is down is above 30`."""
    words = (
        text or _SIGNS.get(sign) or _FACTS.get(name) or _SIGNS.get(name, name) or other
        for text, sign, name, other in _TOKEN.findall(rule)
    )
    return re.sub(r"\s+([)\],])", r"\1", re.sub(r"([(\[])\s+", r"\1", " ".join(words)))


def _schedule(schedule: Any) -> str:
    parts = []
    if len(schedule.days) < len(_DAYS):
        parts.append("on " + ", ".join(_DAYS[day] for day in sorted(schedule.days)))
    for begin, end in schedule.hours or ():
        parts.append(f"from {begin // 60}:{begin % 60:02} to {end // 60}:{end % 60:02}")
    if schedule.zone is not None:
        parts.append(f"in {schedule.zone}")
    return " ".join(parts) or "at any time"
