"""Alarms on the pipeline itself: what `alarms:` in a YAML may say, and the facts that their rules are about.

Values only; `runtime/alarms.py` looks, and tells.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

from streamkit.emit.topics import Topics
from streamkit.errors import SourceError
from streamkit.rules.language import NUMBER, TEXT, Field, Program, Vocabulary
from streamkit.rules.schedule import Schedule
from streamkit.units import Seconds
from streamkit.yamlfile import Node

STAGE = "alarms"
"""The stage that alarms' events are of, for the `when` of emitters."""

KINDS = ("raised", "cleared")
STATES = ("connecting", "running", "reconnecting", "paused", "ended", "failed")
_WIDTH = 100


class About(NamedTuple):
    """A fact.

    Attributes:
        of: `source`, and there is one for each, or `pipeline`.
        help: what it is, with its unit.
        joined: how the pipeline's is made of those of several processes.
        values: of a text, all that it can be.
    """

    of: Literal["source", "pipeline"]
    help: str
    joined: Literal["sum", "most", "least"] = "most"
    values: tuple[str, ...] | None = None


FACTS: dict[str, About] = {
    "down_s": About("source", "seconds for which it has not been running though it is to: lost, not reached, failed"),
    "quiet_s": About("source", "seconds since its last frame came; 0 while it is paused, and when it has ended"),
    "state": About("source", f"what it is doing: {', '.join(STATES)}", values=STATES),
    "cause": About(
        "source", 'why, in a word, such as auth or timeout; "" where there is none', values=("", *SourceError.CAUSES)
    ),
    "fps_in": About("source", "frames a second that it gives, over 5 seconds; not known while it is paused"),
    "fps_out": About("source", "frames a second of it that come to the end of the graph, over 5 seconds"),
    "drop_rate": About("source", "share of its frames that were dropped, 0 to 1, over 10 seconds"),
    "fail_rate": About("source", "share of its frames that failed in a stage, 0 to 1, over 10 seconds"),
    "latency_p50_s": About(
        "source", "seconds from a frame's arrival to the end of the graph, the median of 10 to 20 s"
    ),
    "latency_p95_s": About("source", "the same: 95 % of its frames take less"),
    "reconnects_1h": About("source", "how often it was lost and came back, over the last hour"),
    "total_fps": About("pipeline", "frames a second of all sources that come to the end of the graph", "sum"),
    "sources": About("pipeline", "number of sources that have not ended", "sum"),
    "sources_down": About("pipeline", "number of sources whose down_s is more than 0", "sum"),
    "disk_free_gb": About("pipeline", "GB free on the fullest disk that outputs, spools and state are on", "least"),
    "disk_used_share": About("pipeline", "share of that disk that is used, 0 to 1"),
    "spool_share": About("pipeline", "how full the fullest spool of an emitter is, 0 to 1"),
    "spool_records": About("pipeline", "records that wait in the spool in which most do"),
    "undelivered_s": About("pipeline", "seconds for which records have waited and their emitter has delivered none"),
    "stage_call_s": About("pipeline", "seconds for which a stage has been in one call, of the longest; seconds hang"),
    "memory_gb": About("pipeline", "GB of memory that its processes have; Linux only", "sum"),
    "gpu_memory_share": About("pipeline", "share of the GPU's memory that is used, by anybody, 0 to 1; on a GPU only"),
    "uptime_s": About("pipeline", "seconds since the pipeline began"),
}
"""What rules may name. One that is not known now, such as `latency_p95_s` of no frames, makes no rule true."""


@dataclass
class Alarm:
    """Tell when something is wrong with the pipeline itself. Stands under `alarms`, by a name of its own.

    A rule that names a fact of sources is looked at for each source alone. It is looked at once a second, also while no
    frame flows. The events `raised` and `cleared` of the stage `alarms` go to the emitters; their data has `alarm`,
    `text`, and the values of the facts.

    Options:
        when: the rule, such as "down_s > 30", or "drop_rate > 0.1 for 1min".
        to: ids of emitters; if not set, all that send events.
        text: what is said when it is raised, a template of {source}, {alarm} and facts; if not set, made of the rule.
        clear: how long the rule must not be true until the alarm is over.
        cooldown: how long after that it is not raised again.
        schedule: when it counts, such as {days: mon-fri, hours: "8:00-18:00", zone: Europe/Berlin}.
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
        """The ids in `to`; None where it is not set."""
        return [self.to] if isinstance(self.to, str) else self.to


@dataclass(slots=True)
class AlarmConfig:
    """One entry of `alarms:`.

    Attributes:
        name: its name.
        options: what it says.
        program: its rule, ready to be evaluated.
        node: where it stands.
    """

    name: str
    options: Alarm
    program: Program
    node: Node = field(compare=False)

    @property
    def facts(self) -> list[str]:
        """The facts that its rule names, in their order."""
        return [one.key for one in self.program.facts]

    @property
    def per_source(self) -> bool:
        """Whether it is looked at for each source."""
        return any(FACTS[name].of == "source" for name in self.facts)


def vocabulary() -> Vocabulary:
    """The names that the rules of alarms may use."""
    fields: Mapping[str, Field | str] = {
        name: Field(NUMBER if about.values is None else TEXT, about.values, about.help) for name, about in FACTS.items()
    }
    return Vocabulary(fields, STAGE)


def wanted(configs: Iterable[AlarmConfig]) -> set[str]:
    """The facts that these alarms name."""
    return {name for config in configs for name in config.facts}


def takes_alarms(when: str | list[str] | None) -> bool:
    """Whether an emitter with this `when` takes events of alarms."""
    names = [when] if isinstance(when, str) else when
    return names is None or any(name.partition(".")[0] == STAGE for name in names)


def explained() -> str:
    """The facts that rules may name, for `run.py explain alarms`."""
    lines = []
    for of, title in (("source", "facts of each source"), ("pipeline", "facts of the pipeline")):
        lines += ["", title]
        for name, about in FACTS.items():
            if about.of == of:
                lines += textwrap.wrap(
                    f"{name:<16} {about.help}", _WIDTH, initial_indent="  ", subsequent_indent=" " * 19
                )
    return "\n".join(lines)
