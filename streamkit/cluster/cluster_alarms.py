# SPDX-License-Identifier: Apache-2.0
"""The alarms of a cluster: the nodes evaluate them, each for its sources and its machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from streamkit.cluster.exchange import NodeReport
from streamkit.config.alarms import STAGE, AlarmConfig
from streamkit.core.data import Event
from streamkit.runtime.observe.alarms import ActiveAlarm
from streamkit.runtime.observe.health import HealthSnapshot


class ClusterAlarms:
    """The alarms of the nodes, with the interface of `Alarms` that the API reads.

    Args:
        reports: returns the latest report of each node.
        health: returns the current facts.
        configs: the alarms of the pipeline.
    """

    def __init__(
        self,
        reports: Callable[[], Sequence[NodeReport]],
        health: Callable[[], HealthSnapshot],
        configs: Sequence[AlarmConfig],
    ) -> None:
        self._reports = reports
        self._health = health
        self._configs = configs
        self._listeners: list[Callable[[float, Event], None]] = []

    def follow(self, configs: Sequence[AlarmConfig]) -> None:
        """Take the alarms of an edited pipeline."""
        self._configs = configs

    def listen(self, seen: Callable[[float, Event], None]) -> None:
        """Call `seen` with each raised and cleared alarm, and the time in seconds since 1970."""
        if seen not in self._listeners:
            self._listeners.append(seen)

    def seen(self, time_s: float, event: Event) -> None:
        """Pass an event of a node on, if it is one of an alarm."""
        for listener in self._listeners if event.stage == STAGE else ():
            listener(time_s, event)

    @property
    def raised(self) -> list[ActiveAlarm]:
        """The active alarms of all nodes, oldest first."""
        return sorted((alarm for report in self._reports() for alarm in report.alarms), key=lambda alarm: alarm.since_s)

    def rules(self) -> dict[str, tuple[str, int]]:
        """The rule of each alarm, and how often it was raised."""
        configured = {alarm.name: (alarm.options.when, 0) for alarm in self._configs}
        return sum_rules([configured, *(report.rules for report in self._reports())])

    def facts(self) -> HealthSnapshot:
        """The current facts."""
        return self._health()

    def report(self) -> dict[str, Any]:
        """The `alarms` part of the report."""
        return {name: {"raised": count} for name, (_, count) in self.rules().items()}


def sum_rules(parts: Iterable[Mapping[str, tuple[str, int]]]) -> dict[str, tuple[str, int]]:
    """Rules and how often each was raised, summed over nodes."""
    rules: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for part in parts:
        for name, (rule, count) in part.items():
            rules.setdefault(name, rule)
            counts[name] += count
    return {name: (rule, counts[name]) for name, rule in rules.items()}
