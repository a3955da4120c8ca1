"""Alarms on the pipeline itself: the options of `alarms:` in a YAML, and the facts that their rules name.

Values only; `runtime/observe/alarms.py` evaluates the rules.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

from streamkit.core.errors import SourceError
from streamkit.core.units import Seconds
from streamkit.core.yaml_tree import YamlNode
from streamkit.emit.topics import Topics
from streamkit.rules.language import NUMBER, TEXT, Program, RuleField, Vocabulary
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


FACTS: dict[str, AlarmVariable] = {
    "down_s": AlarmVariable(
        "source", "seconds for which it has not been running though it is to: lost, not reached, failed"
    ),
    "quiet_s": AlarmVariable(
        "source", "seconds since its last frame came; 0 while it is paused, and when it has ended"
    ),
    "state": AlarmVariable("source", f"what it is doing: {', '.join(STATES)}", values=STATES),
    "cause": AlarmVariable(
        "source", 'why, in a word, such as auth or timeout; "" where there is none', values=("", *SourceError.CAUSES)
    ),
    "fps_in": AlarmVariable("source", "frames a second that it gives, over 5 seconds; not known while it is paused"),
    "fps_out": AlarmVariable("source", "frames a second of it that come to the end of the graph, over 5 seconds"),
    "drop_rate": AlarmVariable("source", "share of its frames that were dropped, 0 to 1, over 10 seconds"),
    "fail_rate": AlarmVariable("source", "share of its frames that failed in a stage, 0 to 1, over 10 seconds"),
    "latency_p50_s": AlarmVariable(
        "source", "seconds from a frame's arrival to the end of the graph, the median of 10 to 20 s"
    ),
    "latency_p95_s": AlarmVariable("source", "the same: 95 % of its frames take less"),
    "reconnects_1h": AlarmVariable("source", "how often it was lost and came back, over the last hour"),
    "total_fps": AlarmVariable("pipeline", "frames a second of all sources that come to the end of the graph", "sum"),
    "sources": AlarmVariable("pipeline", "number of sources that have not ended", "sum"),
    "sources_down": AlarmVariable("pipeline", "number of sources whose down_s is more than 0", "sum"),
    "disk_free_gb": AlarmVariable(
        "pipeline", "GB free on the fullest disk that outputs, spools and state are on", "least"
    ),
    "disk_used_share": AlarmVariable("pipeline", "share of that disk that is used, 0 to 1"),
    "spool_share": AlarmVariable("pipeline", "how full the fullest spool of an emitter is, 0 to 1"),
    "spool_records": AlarmVariable("pipeline", "records that wait in the spool in which most do"),
    "undelivered_s": AlarmVariable(
        "pipeline", "seconds for which records have waited and their emitter has delivered none"
    ),
    "stage_call_s": AlarmVariable(
        "pipeline", "seconds for which a stage has been in one call, of the longest; seconds hang"
    ),
    "memory_gb": AlarmVariable("pipeline", "GB of memory that its processes have; Linux only", "sum"),
    "gpu_memory_share": AlarmVariable(
        "pipeline", "share of the GPU's memory that is used, by anybody, 0 to 1; on a GPU only"
    ),
    "uptime_s": AlarmVariable("pipeline", "seconds since the pipeline began"),
}
"""What rules may name. An unknown value, such as `latency_p95_s` without frames, never satisfies a rule."""


@dataclass
class Alarm:
    """Raise an alarm when a rule about the pipeline itself holds. An entry of `alarms`, with a name of your own.

    Rules are evaluated once a second, also while no frame flows; a rule that names a fact of sources is evaluated for
    each source. The events `raised` and `cleared` of the stage `alarms` go to the emitters; their data has `alarm`,
    `text`, and the values of the facts.

    Options:
        when: the rule, such as "down_s > 30", or "drop_rate > 0.1 for 1min".
        to: ids of emitters; if not set, all that send events.
        text: the alarm's message, a template of {source}, {alarm} and facts; if not set, made from the rule.
        clear: how long the rule must be false before the alarm is cleared.
        cooldown: how long after that the alarm is not raised again.
        schedule: when the alarm is active, such as {days: mon-fri, hours: "8:00-18:00", zone: Europe/Berlin}.
    """

    name: ClassVar[str] = "alarm"

    when: str
    to: str | list[str] | None = None
    text: str | None = None
    clear: Seconds = 10.0
    cooldown: Seconds = 0.0
    schedule: Schedule | None = None

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
        program: the compiled rule.
        node: its place in the YAML.
    """

    name: str
    options: Alarm
    program: Program
    node: YamlNode = field(compare=False)

    @property
    def facts(self) -> list[str]:
        """The facts that its rule names, in the rule's order."""
        return [one.key for one in self.program.facts]

    @property
    def per_source(self) -> bool:
        """Whether the rule is evaluated for each source."""
        return any(FACTS[name].of == "source" for name in self.facts)


def vocabulary() -> Vocabulary:
    """Names that the rules of alarms may use."""
    fields: Mapping[str, RuleField | str] = {
        name: RuleField(NUMBER if about.values is None else TEXT, about.values, about.help)
        for name, about in FACTS.items()
    }
    return Vocabulary(fields, STAGE)


def wanted(configs: Iterable[AlarmConfig]) -> set[str]:
    """Facts that these alarms name."""
    return {name for config in configs for name in config.facts}


def takes_alarms(when: str | list[str] | None) -> bool:
    """Whether an emitter with this `when` accepts alarm events."""
    names = [when] if isinstance(when, str) else when
    return names is None or any(name.partition(".")[0] == STAGE for name in names)


def explained() -> str:
    """Describe the facts that rules may name, for `run.py explain alarms`."""
    lines = []
    for of, title in (("source", "facts of each source"), ("pipeline", "facts of the pipeline")):
        lines += ["", title]
        for name, about in FACTS.items():
            if about.of == of:
                lines += textwrap.wrap(
                    f"{name:<16} {about.help}", _WIDTH, initial_indent="  ", subsequent_indent=" " * 19
                )
    return "\n".join(lines)
