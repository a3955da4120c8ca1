# SPDX-License-Identifier: Apache-2.0
"""Groups faults by their cause: a camera that is down and its alarm are one problem; so are cameras that fail alike."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from streamkit.runtime.observe.alarms import WHOLE, duration_text
from streamkit.serve.api_models import PipelineProblem, RaisedAlarm, Severity

FaultKey = tuple[str, str | None, str | None]
"""Kind, source and stage of a fault, by which it is recognized from sample to sample."""

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
"""The kind of fault that is the cause of an alarm, by a fact of the alarm's rule."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is wrong with one source, with one stage, or with the pipeline.

    Attributes:
        severity: how much it matters.
        kind: as in `PipelineProblem`.
        text: what is wrong, in words.
        since_s: its duration in seconds.
        source: the source that it is about.
        stage: the stage that it is about.
        link: the view that says more.
        cause: what faults of one kind share if they are one problem.
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
    def key(self) -> FaultKey:
        """What the fault is recognized by. A source that sends nothing is the same when its connection is lost."""
        return "source_down" if self.kind in ("all_down", "no_frames") else self.kind, self.source, self.stage


def with_alarms(
    faults: Sequence[Fault], alarms: Iterable[RaisedAlarm], facts: Callable[[str], Collection[str]]
) -> list[Fault]:
    """Attach each raised alarm to the faults that raised it; an alarm with another reason is a fault of its own.

    Args:
        faults: the other faults.
        alarms: the raised alarms.
        facts: the facts of an alarm's rule, by the alarm's name.
    """
    merged = list(faults)
    for alarm in alarms:
        kinds = {_REASONS[fact] for fact in facts(alarm.alarm) if fact in _REASONS}
        places = [place for place, fault in enumerate(faults) if _raises(fault, alarm, kinds)]
        for place in places:
            merged[place] = replace(merged[place], alarms=(*merged[place].alarms, alarm))
        if not places:
            source = None if alarm.source == WHOLE else alarm.source
            text = f"alarm {alarm.alarm}: {alarm.text}"
            merged.append(
                Fault(
                    "error", "alarm", text, alarm.since_s, source, link="#/alarms", cause=alarm.alarm, alarms=(alarm,)
                )
            )
    return merged


def _raises(fault: Fault, alarm: RaisedAlarm, kinds: Collection[str]) -> bool:
    if fault.kind not in kinds and fault.key[0] not in kinds:
        return False
    return alarm.source == WHOLE or fault.source in (alarm.source, None)


def grouped(
    faults: Iterable[Fault], acknowledged: Collection[FaultKey]
) -> Iterator[tuple[PipelineProblem, list[Fault]]]:
    """Yield a problem for each cause, with its faults, in the order of the faults.

    Args:
        faults: all faults.
        acknowledged: the faults that a person has acknowledged, beside those whose alarms are.
    """
    groups: dict[tuple[str, str, str | None], list[Fault]] = {}
    for fault in faults:
        groups.setdefault((fault.kind, fault.cause, fault.stage), []).append(fault)
    for (kind, cause, stage), members in groups.items():
        noted = all(_is_acknowledged(fault, acknowledged) for fault in members)
        severity: Severity = "error" if any(fault.severity == "error" for fault in members) else "warning"
        sources = [fault.source for fault in members if fault.source is not None]
        single = len(members) == 1 and kind != "all_down"
        durations = [fault.since_s for fault in members]
        problem = PipelineProblem(
            id=":".join(part for part in (kind, cause, stage) if part),
            severity="warning" if noted else severity,
            kind=kind,
            text=members[0].text if single else _TOGETHER[kind](members),
            since_s=round(min(durations) if kind == "all_down" else max(durations), 1),
            source=sources[0] if single and sources else None,
            sources=sources,
            stage=stage,
            alarms=sorted({alarm.alarm for fault in members for alarm in fault.alarms}),
            link=members[0].link if single else members[0].link.partition("?")[0],
            acknowledged=noted,
        )
        yield problem, members


def _is_acknowledged(fault: Fault, acknowledged: Collection[FaultKey]) -> bool:
    return fault.key in acknowledged or (bool(fault.alarms) and all(alarm.acknowledged for alarm in fault.alarms))


# ------------------------------------------------------------------------------------------------------------- texts


def _names(faults: Sequence[Fault]) -> str:
    """The sources, such as `"a", "b" and 2 more`."""
    names = [f'"{fault.source}"' for fault in faults]
    if len(names) > _NAMED + 1:
        return f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more"
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _sources(faults: Sequence[Fault]) -> str:
    words = {fault.word for fault in faults}
    return f"{len(faults)} {words.pop() if len(words) == 1 else 'source'}s"


def _down(faults: Sequence[Fault]) -> str:
    why = f" ({faults[0].cause})" if faults[0].cause else ""
    return f"{_sources(faults)} are down{why}: {_names(faults)}"


def _all_down(faults: Sequence[Fault]) -> str:
    return f"no source is running: all {len(faults)} are down"


def _no_frames(faults: Sequence[Fault]) -> str:
    longest_s = max(fault.since_s for fault in faults)
    return f"{_sources(faults)} have sent no frame for up to {duration_text(longest_s)}: {_names(faults)}"


def _drops(faults: Sequence[Fault]) -> str:
    frames = sum(fault.frames for fault in faults)
    return f"{frames:,} frames of {_sources(faults)} were dropped in the last minute: {_names(faults)}"


def _alarm(faults: Sequence[Fault]) -> str:
    return f"alarm {faults[0].cause} is raised for {_sources(faults)}: {_names(faults)}"


_TOGETHER: dict[str, Callable[[Sequence[Fault]], str]] = {
    "source_down": _down, "all_down": _all_down, "no_frames": _no_frames, "drops": _drops, "alarm": _alarm,
}  # fmt: skip
"""The text of several faults of a kind that have the same cause."""
