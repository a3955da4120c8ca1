# SPDX-License-Identifier: Apache-2.0
"""Alarms on the pipeline itself: the options of `alarms:` in a YAML, and the facts that their rules name.

Values only; `runtime/observe/alarms.py` evaluates the rules.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, NamedTuple

from streamkit.core.errors import SourceError
from streamkit.core.units import Seconds
from streamkit.core.yaml_tree import YamlNode
from streamkit.emit.topics import Topics
from streamkit.rules.language import NUMBER, TEXT, RuleField, Vocabulary, facts_of
from streamkit.rules.rule import Rule
from streamkit.rules.schedule import Schedule

STAGE = "alarms"
"""The stage that alarms' events are of, for the `when` of emitters."""

KINDS = ("raised", "cleared")
STATES = ("connecting", "running", "reconnecting", "paused", "ended", "failed")
_WIDTH = 100


class AlarmVariable(NamedTuple):
    """A fact.

    Attributes:
        of: `source` (one value for each source) or `pipeline`.
        help: description, with the unit.
        joined: how the values of several processes are merged into the pipeline's.
        values: all possible values of a text fact; None for a number.
    """

    of: Literal["source", "pipeline"]
    help: str
    joined: Literal["sum", "most", "least"] = "most"
    values: tuple[str, ...] | None = None


_OF_SOURCE = {
    "down_s": "seconds for which it has not been running although it should: lost, unreachable or failed",
    "quiet_s": "seconds since its last frame; 0 while it is paused and after it has ended",
    "state": f"its state: {', '.join(STATES)}",
    "cause": 'the cause of the state in one word, such as auth or timeout; "" if there is none',
    "fps_in": "frames per second from the source, over 5 seconds; unknown while it is paused",
    "fps_out": "frames per second of the source at the end of the graph, over 5 seconds",
    "drop_rate": "share of its frames that were dropped, 0 to 1, over 10 seconds",
    "fail_rate": "share of its frames that failed in a stage, 0 to 1, over 10 seconds",
    "latency_p50_s": "median of the seconds from a frame's arrival to the end of the graph, over 10 to 20 s",
    "latency_p95_s": "95th percentile of the same times",
    "reconnects_1h": "reconnects in the last hour",
}
_OF_PIPELINE = {
    "total_fps": "frames per second of all sources at the end of the graph",
    "sources": "number of sources that have not ended",
    "sources_down": "number of sources whose down_s is more than 0",
    "disk_free_gb": "GB free on the fullest disk of outputs, spools and state",
    "disk_used_share": "used share of that disk, 0 to 1",
    "spool_share": "used share of the fullest spool of an emitter, 0 to 1",
    "spool_records": "records in the spool with the most records",
    "undelivered_s": "seconds for which records have waited while their emitter delivered none",
    "stage_call_s": "seconds for which the longest current call of a stage has lasted; a long time means that it hangs",
    "memory_gb": "GB of memory of its processes; Linux only",
    "gpu_memory_share": "used share of the GPU's memory, by all programs, 0 to 1; on a GPU only",
    "uptime_s": "seconds since the pipeline began",
}
_JOINED: dict[str, Literal["sum", "least"]] = {
    "total_fps": "sum",
    "sources": "sum",
    "sources_down": "sum",
    "memory_gb": "sum",
    "disk_free_gb": "least",
}
_VALUES = {"state": STATES, "cause": ("", *SourceError.CAUSES)}

_SCOPES: tuple[tuple[Literal["source", "pipeline"], dict[str, str]], ...] = (
    ("source", _OF_SOURCE),
    ("pipeline", _OF_PIPELINE),
)
FACTS: dict[str, AlarmVariable] = {
    name: AlarmVariable(of, text, _JOINED.get(name, "most"), _VALUES.get(name))
    for of, texts in _SCOPES
    for name, text in texts.items()
}
"""What rules may name. An unknown value, such as `latency_p95_s` without frames, never satisfies a rule."""


@dataclass
class Alarm:
    """Raise an alarm when a rule about the pipeline itself is true. An entry of `alarms`, with a name that you choose.

    Rules are evaluated once a second, also while no frame flows; a rule that names a fact of sources is evaluated for
    each source. The events `raised` and `cleared` of the stage `alarms` go to the emitters; their data has `alarm`,
    `text`, and the values of the facts.
    """

    name: ClassVar[str] = "alarm"

    when: Annotated[str, 'the rule, such as "down_s > 30", or "drop_rate > 0.1 for 1min"']
    to: Annotated[str | list[str] | None, "ids of emitters; if not set, all that send events"] = None
    text: Annotated[
        str | None,
        "the alarm's message, a template of {source}, {alarm} and facts; if not set, made from the rule",
    ] = None
    clear: Annotated[Seconds, "how long the rule must be false before the alarm is cleared"] = 10.0
    cooldown: Annotated[Seconds, "how long after that the alarm is not raised again"] = 0.0
    schedule: Annotated[
        Schedule | None,
        'when the alarm is active, such as {days: mon-fri, hours: "8:00-18:00", zone: Europe/Berlin}',
    ] = None

    def __post_init__(self) -> None:
        if self.text is not None:
            Topics({"text": self.text}, ("source", "alarm", *FACTS))

    @property
    def emitters(self) -> list[str] | None:
        """The ids in `to`; None if it is not set."""
        return [self.to] if isinstance(self.to, str) else self.to


@dataclass(slots=True)
class AlarmConfig:
    """One entry of `alarms:`.

    Attributes:
        name: the key under `alarms`.
        options: the validated options.
        rule: the typed rule.
        node: its place in the YAML.
    """

    name: str
    options: Alarm
    rule: Rule
    node: YamlNode = field(compare=False)

    @property
    def facts(self) -> list[str]:
        """The facts that its rule names, in the rule's order."""
        return [fact.key for fact in facts_of(self.rule.when)]

    @property
    def per_source(self) -> bool:
        """Whether the rule is evaluated for each source."""
        return any(FACTS[name].of == "source" for name in self.facts)


def vocabulary() -> Vocabulary:
    """Names that the rules of alarms may use."""
    kinds = {name: NUMBER if about.values is None else TEXT for name, about in FACTS.items()}
    return Vocabulary({name: RuleField(kinds[name], fact.values, fact.help) for name, fact in FACTS.items()}, STAGE)


def wanted(configs: Iterable[AlarmConfig]) -> set[str]:
    """Facts that these alarms name."""
    return {name for config in configs for name in config.facts}


def takes_alarms(when: str | list[str] | None) -> bool:
    """Whether an emitter with this `when` accepts alarm events."""
    names = [when] if isinstance(when, str) else when
    return names is None or any(name.partition(".")[0] == STAGE for name in names)


def explained() -> str:
    """Describe the facts that rules may name, for `streamkit explain alarms`."""
    lines = []
    for title, texts in (("facts of each source", _OF_SOURCE), ("facts of the pipeline", _OF_PIPELINE)):
        lines += ["", title]
        for name, text in texts.items():
            lines += textwrap.wrap(f"{name:<16} {text}", _WIDTH, initial_indent="  ", subsequent_indent=" " * 19)
    return "\n".join(lines)
