# SPDX-License-Identifier: Apache-2.0
"""Groups incidents by cause: a camera that is down and its alarm are one problem; so are cameras that fail alike."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from streamkit.runtime.observe.alarms import WHOLE, duration_text
from streamkit.serve.api_models import PipelineProblem, RaisedAlarm, Severity

IncidentKey = tuple[str, str, str | None, str | None]
"""Kind, name, source and stage of an incident, by which it is recognized from sample to sample."""

_NAMED = 3  # sources that a text names; the others are counted

_REASONS = {
    "down_s": "source_down",
    "quiet_s": "source_down",
    "state": "source_down",
    "cause": "source_down",
    "fps_in": "source_down",
    "fps_out": "source_down",
    "sources_down": "source_down",
    "total_fps": "all_down",
    "drop_rate": "drops",
    "fail_rate": "failed_frames",
    "disk_free_gb": "disk",
    "disk_used_share": "disk",
    "spool_share": "spool",
    "spool_records": "spool",
    "undelivered_s": "undelivered",
    "stage_call_s": "stage_hangs",
}
"""The kind of incident that is the cause of an alarm, by a fact of the alarm's rule."""


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that is wrong with one source, with one stage, or with the pipeline.

    Attributes:
        severity: how much it matters.
        kind: as in `PipelineProblem`.
        text: what is wrong, in words.
        since_s: its duration in seconds.
        source: the source that it is about.
        stage: the stage that it is about.
        link: the view that says more.
        cause: what incidents of one kind share if they are one problem.
        word: what the source is: `camera` or `source`.
        frames: number of lost frames.
        alarms: the alarms that it has raised.
    """

    severity: Severity
    kind: str
    text: str
    since_s: float = 0.0
    source: str | None = None
    stage: str | None = None
    link: str = "#/home"
    cause: str = ""
    word: str = "source"
    frames: int = 0
    alarms: tuple[RaisedAlarm, ...] = ()

    @property
    def key(self) -> IncidentKey:
        """What the incident is recognized by. A source that sends nothing is the same when its connection is lost."""
        kind = "source_down" if self.kind in ("all_down", "no_frames") else self.kind
        return kind, self.cause if kind in ("alarm", "node_lost") else "", self.source, self.stage


def with_alarms(
    incidents: Sequence[Incident], alarms: Iterable[RaisedAlarm], facts: Callable[[str], Collection[str]]
) -> list[Incident]:
    """Attach each raised alarm to the incidents that raised it; an alarm with another reason is an incident of its own.

    Args:
        incidents: the other incidents.
        alarms: the raised alarms.
        facts: the facts of an alarm's rule, by the alarm's name.
    """
    merged = list(incidents)
    for alarm in alarms:
        kinds = {_REASONS[fact] for fact in facts(alarm.alarm) if fact in _REASONS}
        places = [place for place, incident in enumerate(incidents) if _raises(incident, alarm, kinds)]
        for place in places:
            merged[place] = replace(merged[place], alarms=(*merged[place].alarms, alarm))
        if not places:
            source = None if alarm.source == WHOLE else alarm.source
            text = f"alarm {alarm.alarm}: {alarm.text}"
            merged.append(
                Incident(
                    "error", "alarm", text, alarm.since_s, source, link="#/alarms", cause=alarm.alarm, alarms=(alarm,)
                )
            )
    return merged


def _raises(incident: Incident, alarm: RaisedAlarm, kinds: Collection[str]) -> bool:
    if incident.kind not in kinds and incident.key[0] not in kinds:
        return False
    return alarm.source == WHOLE or incident.source in (alarm.source, None)


def grouped(
    incidents: Iterable[Incident], acknowledged: Collection[IncidentKey]
) -> Iterator[tuple[PipelineProblem, list[Incident]]]:
    """Yield a problem for each cause, with its incidents, in the order of the incidents.

    Args:
        incidents: all incidents.
        acknowledged: the incidents that a person has acknowledged, beside those whose alarms are.
    """
    groups: dict[tuple[str, str, str | None], list[Incident]] = {}
    for incident in incidents:
        groups.setdefault((incident.kind, incident.cause, incident.stage), []).append(incident)
    for (kind, cause, stage), members in groups.items():
        noted = all(_is_acknowledged(incident, acknowledged) for incident in members)
        severity: Severity = "error" if any(incident.severity == "error" for incident in members) else "warning"
        sources = [incident.source for incident in members if incident.source is not None]
        single = len(members) == 1 and kind != "all_down"
        durations = [incident.since_s for incident in members]
        problem = PipelineProblem(
            id=":".join(part for part in (kind, cause, stage) if part),
            severity="warning" if noted else severity,
            kind=kind,
            text=members[0].text if single else _TOGETHER[kind](members),
            since_s=round(min(durations) if kind == "all_down" else max(durations), 1),
            source=sources[0] if single and sources else None,
            sources=sources,
            stage=stage,
            alarms=sorted({alarm.alarm for incident in members for alarm in incident.alarms}),
            link=members[0].link if single else members[0].link.partition("?")[0],
            acknowledged=noted,
        )
        yield problem, members


def _is_acknowledged(incident: Incident, acknowledged: Collection[IncidentKey]) -> bool:
    return incident.key in acknowledged or (
        bool(incident.alarms) and all(alarm.acknowledged for alarm in incident.alarms)
    )


# ------------------------------------------------------------------------------------------------------------- texts


def _names(incidents: Sequence[Incident]) -> str:
    """The sources, such as `"a", "b" and 2 more`."""
    names = [f'"{incident.source}"' for incident in incidents]
    if len(names) > _NAMED + 1:
        return f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more"
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _sources(incidents: Sequence[Incident]) -> str:
    words = {incident.word for incident in incidents}
    return f"{len(incidents)} {words.pop() if len(words) == 1 else 'source'}s"


def _down(incidents: Sequence[Incident]) -> str:
    reason = f" ({incidents[0].cause})" if incidents[0].cause else ""
    return f"{_sources(incidents)} are down{reason}: {_names(incidents)}"


def _all_down(incidents: Sequence[Incident]) -> str:
    return f"no source is running: all {len(incidents)} are down"


def _no_frames(incidents: Sequence[Incident]) -> str:
    longest_s = max(incident.since_s for incident in incidents)
    return f"{_sources(incidents)} have sent no frame for up to {duration_text(longest_s)}: {_names(incidents)}"


def _drops(incidents: Sequence[Incident]) -> str:
    frames = sum(incident.frames for incident in incidents)
    return f"{frames:,} frames of {_sources(incidents)} were dropped in the last minute: {_names(incidents)}"


def _alarm(incidents: Sequence[Incident]) -> str:
    return f"alarm {incidents[0].cause} is raised for {_sources(incidents)}: {_names(incidents)}"


_TOGETHER: dict[str, Callable[[Sequence[Incident]], str]] = {
    "source_down": _down,
    "all_down": _all_down,
    "no_frames": _no_frames,
    "drops": _drops,
    "alarm": _alarm,
}
"""The text of several incidents of a kind that have the same cause."""
