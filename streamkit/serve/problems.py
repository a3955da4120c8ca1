# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a running pipeline, in words: from its states, alarms, outputs, and the growth of its counters."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import quote

from streamkit.core.errors import describe
from streamkit.core.masking import mask, without_addresses
from streamkit.media.uris import may_be_live
from streamkit.runtime.ingest.source_status import SourceState
from streamkit.runtime.observe.alarms import AlarmSubject, alarm_text, duration_text
from streamkit.runtime.observe.health import HealthSnapshot, Observer, folders
from streamkit.runtime.run import Run
from streamkit.serve.api_models import PipelineProblem, RaisedAlarm, RequestRejected, Severity
from streamkit.serve.frame_gaps import FrameGaps
from streamkit.serve.problem_groups import Incident, IncidentKey, grouped, with_alarms
from streamkit.stages.inference.infer import UNTUNED

_MINUTE_S = 60.0
_TUNED_S = 5.0  # without a batch of an untuned network, it counts as tuned
_CONNECTS_S = 5.0  # a source that is new may take so long to connect
_QUIET_S = 5.0  # without a frame, after which a running source is a problem
_HANGS_S = 10.0
_UNDELIVERED_S = 10.0
_FULL_GB = 1.0
_LOW_GB = 5.0
_FULL_SPOOL = 0.9
_FEW_DROPS = 0.01  # share of frames up to which drops are a warning only
_BURST_S = 10.0  # drops within such a time only, as at the start, are a warning only
_FEW_RECORDS = 100
_GROWS_S = 20.0
_AWAY = ("connecting", "reconnecting", "failed")


@dataclass(frozen=True, slots=True)
class _Counts:
    """The counters at one moment, from whose growth problems follow."""

    at_s: float
    frames: Mapping[str, int] = field(default_factory=dict)
    drops: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    failed: Mapping[str, int] = field(default_factory=dict)
    untuned: int = 0
    restarted: int = 0
    spooled: float = 0.0

    def dropped(self, source: str) -> int:
        """Number of dropped frames of a source."""
        return sum(self.drops.get(source, {}).values())


class Problems:
    """Finds what is wrong, from samples of a run. One thread samples, about once a second; any may read.

    Args:
        running: the run.
        raised: returns the alarms that are raised.
        store_problem: returns why events cannot be stored at present; empty if they can.
        alarm_facts: returns the facts that the rule of an alarm names, by the alarm's name.
    """

    def __init__(
        self,
        running: Run,
        raised: Callable[[], list[RaisedAlarm]],
        store_problem: Callable[[], str] = str,
        alarm_facts: Callable[[str], Collection[str]] = lambda name: (),
    ) -> None:
        self._running = running
        self._raised = raised
        self._store_problem = store_problem
        self._alarm_facts = alarm_facts
        self._audit_problem: Callable[[], str] = str
        self.follow()
        self._history: deque[_Counts] = deque()
        self._frame_gaps = FrameGaps()
        self._since: dict[IncidentKey, float] = {}
        self._acknowledged: dict[IncidentKey, float] = {}  # with the time at which the incident was last there
        self._incidents: list[Incident] = []
        self._problems: tuple[tuple[PipelineProblem, list[Incident]], ...] = ()

    def follow_audit(self, problem: Callable[[], str]) -> None:
        """Also report why the audit log cannot be written, which `problem` returns; it is called at each sample."""
        self._audit_problem = problem

    def follow(self) -> None:
        """Take the folders of the graph, which an edit of the YAML may have rebuilt."""
        self._disk = Observer({"disk_free_gb"}, dict, (), folders(self._running.graph))

    def current(self, may_know: Callable[[Incident], bool] | None = None) -> list[PipelineProblem]:
        """The problems now, one for each cause: errors first, and of these what concerns most first.

        Args:
            may_know: whether an incident is counted; None for all.
        """
        return [problem for problem, _ in self._grouped(may_know)]

    def quiet_s(self, source: str) -> float | None:
        """Seconds since the last frame of a running source if another one is due, else None."""
        return self._frame_gaps.quiet_s(source, time.monotonic())

    def acknowledge(
        self, id_: str, may_know: Callable[[Incident], bool] | None = None
    ) -> tuple[PipelineProblem, list[RaisedAlarm]]:
        """Note that a person knows of a problem, until it is over; return it, and the alarms that it has raised.

        Raises:
            RequestRejected: there is no such problem; it may be over.
        """
        incidents = next((incidents for problem, incidents in self._grouped(may_know) if problem.id == id_), None)
        if incidents is None:
            raise RequestRejected(404, f"there is no problem {id_!r}; it may be over")
        self._acknowledged.update({incident.key: self._history[-1].at_s for incident in incidents})
        self._group()
        regrouped = self._grouped(may_know)
        problem = next(problem for problem, members in regrouped if members[0].key == incidents[0].key)
        return problem, [alarm for incident in incidents for alarm in incident.alarms]

    def sample(self, now_s: float) -> None:
        """Look at the run at a monotonic time in seconds."""
        health = self._running.health()
        counts = self._counts(now_s, health)
        self._frame_gaps.sample(now_s, self._regular_states())
        self._history.append(counts)
        while len(self._history) > 2 and now_s - self._history[1].at_s >= _MINUTE_S:
            self._history.popleft()
        causes = [
            *self._run(),
            *self._sources(health),
            *self._quiet(now_s),
            *self._drops(now_s),
            *self._stages(health),
            *self._outputs(health),
            *self._slow(now_s),
        ]
        incidents = []
        since = {}
        for incident in with_alarms(causes, self._raised(), self._alarm_facts):
            since[incident.key] = first_s = self._since.get(incident.key, now_s - incident.since_s)
            incidents.append(replace(incident, since_s=max(incident.since_s, now_s - first_s)))
        self._since = since
        self._incidents = incidents
        self._forget_acknowledged(now_s)
        self._group()

    def _forget_acknowledged(self, now_s: float) -> None:
        """Forget the acknowledged incidents that have been over for a minute: a camera may come back for a moment."""
        present = {incident.key for incident in self._incidents}
        for key, seen_s in list(self._acknowledged.items()):
            if key in present:
                self._acknowledged[key] = now_s
            elif now_s - seen_s >= _MINUTE_S:
                del self._acknowledged[key]

    def _regular_states(self) -> dict[str, SourceState]:
        """The states of the sources whose frames come at a rate; those of a plugin may come when something happens."""
        irregular = {source.id for source in list(self._running.graph.sources) if not source.type.spec.has_pace}
        return {id_: state for id_, state in list(self._running.states.items()) if id_ not in irregular}

    def _group(self) -> None:
        self._problems = self._sorted(self._incidents)

    def _grouped(
        self, may_know: Callable[[Incident], bool] | None
    ) -> tuple[tuple[PipelineProblem, list[Incident]], ...]:
        if may_know is None:
            return self._problems
        return self._sorted([incident for incident in self._incidents if may_know(incident)])

    def _sorted(self, incidents: list[Incident]) -> tuple[tuple[PipelineProblem, list[Incident]], ...]:
        return tuple(sorted(grouped(incidents, self._acknowledged), key=lambda entry: entry[0].severity))

    def _counts(self, now_s: float, health: HealthSnapshot) -> _Counts:
        states = {id_: state for id_, state in list(self._running.states.items()) if not state.removed}
        return _Counts(
            now_s,
            frames={id_: state.frames for id_, state in states.items()},
            drops={id_: dict(state.drops.values) for id_, state in states.items()},
            failed={id_: meter.get("failed", 0) for id_, meter in self._running.meters().items()},
            untuned=self._running.counts().get(UNTUNED, 0),
            restarted=dict(self._running.events).get("restarted", 0),
            spooled=health.pipeline.get("spool_records", 0.0),
        )

    # ------------------------------------------------------------------------------------------------- the causes

    def _run(self) -> Iterator[Incident]:
        if (fatal := self._running.fatal) is not None:
            text = without_addresses(mask(describe(fatal)))
            yield Incident("error", "run_failed", f"the pipeline ends: {text}", link="#/logs")
        if getattr(self._running, "rejected", ""):  # the reason may contain an address: signed-in clients see it there
            yield Incident("warning", "edit_rejected", "the last edit of the YAML is not applied", link="#/config")
        for text in self._running.lost_nodes():
            yield Incident("error", "node_lost", text, link="#/logs", cause=text)
        if reason := self._store_problem():
            yield Incident("error", "store", reason, link="#/events")
        if reason := self._audit_problem():
            yield Incident("error", "audit", f"the audit log is not written: {reason}", link="#/audit")

    def _sources(self, health: HealthSnapshot) -> Iterator[Incident]:
        """The sources that are down; if all are, that is the incident of each."""
        expected = 0
        down = []
        for id_, state in list(self._running.states.items()):
            if state.removed or not state.started or state.state in ("paused", "ended"):
                continue
            expected += 1
            away_s = max(0.0, time.time() - state.since_s)
            if state.state in _AWAY and (state.state != "connecting" or away_s > _CONNECTS_S):
                cause = (state.cause or "").replace("_", " ")
                facts: dict[str, float | str] = {"down_s": away_s, "cause": cause, "state": state.state}
                subject = self._subject(id_)
                text = alarm_text(["down_s"], {**health.sources.get(id_, {}), **facts}, subject)
                if state.state == "failed" and state.error and not state.cause:
                    cause = _first_line(state.error)
                    text += f": {cause}"
                link = f"#/home?source={quote(id_)}"
                down.append(
                    Incident("error", "source_down", text, away_s, id_, link=link, cause=cause, word=subject.word)
                )
        if len(down) == expected > 1:
            down = [replace(incident, kind="all_down", cause="") for incident in down]
        yield from down

    def _subject(self, id_: str) -> AlarmSubject:
        live = may_be_live(self._running.addresses.get(id_, ""))
        return AlarmSubject(id_, "camera" if live else "source", {})

    def _quiet(self, now_s: float) -> Iterator[Incident]:
        """The sources that are connected and send nothing."""
        for id_ in list(self._running.states):
            quiet_s = self._frame_gaps.quiet_s(id_, now_s)
            if quiet_s is not None and quiet_s > _QUIET_S:
                word = self._subject(id_).word
                text = f'{word} "{id_}" has sent no frame for {duration_text(quiet_s)}'
                link = f"#/home?source={quote(id_)}"
                yield Incident("error", "no_frames", text, quiet_s, id_, link=link, word=word)

    def _drops(self, now_s: float) -> Iterator[Incident]:
        """The sources of which frames were dropped: an error if many are, for longer than a burst."""
        first = self._history[0]
        last = self._history[-1]
        burst = [counts for counts in self._history if now_s - counts.at_s >= _BURST_S]
        for id_, drops in last.drops.items():
            before = first.drops.get(id_, {})
            causes = {cause: n - before.get(cause, 0) for cause, n in drops.items() if n > before.get(cause, 0)}
            lost = sum(causes.values())
            if not lost:
                continue
            frames = last.frames[id_] - first.frames.get(id_, 0)
            words = ", ".join(sorted(cause.removeprefix("frames dropped: ") for cause in causes))
            text = f'{_counted(lost)} of "{id_}" {"was" if lost == 1 else "were"} dropped'
            text += f" in the last minute ({words})"
            earlier = burst[-1].dropped(id_) if burst else 0
            lasting = bool(burst) and last.dropped(id_) > earlier > first.dropped(id_)
            many = lost > _FEW_DROPS * max(frames, lost)
            severity: Severity = "error" if many and lasting and not self._tuning(now_s) else "warning"
            yield Incident(
                severity, "drops", text, source=id_, link="#/pipeline", word=self._subject(id_).word, frames=lost
            )

    def _stages(self, health: HealthSnapshot) -> Iterator[Incident]:
        first = self._history[0]
        last = self._history[-1]
        for id_, failed in last.failed.items():
            if (grown := failed - first.failed.get(id_, 0)) > 0:
                text = f"stage {id_} failed on {_counted(grown)} in the last minute"
                yield Incident("error", "failed_frames", text, stage=id_, link=_stage(id_))
        if (call_s := health.pipeline.get("stage_call_s", 0.0)) > _HANGS_S:
            id_ = health.about.get("stage_call_s", "")
            yield Incident("error", "stage_hangs", _text("stage_call_s", health), call_s, stage=id_, link=_stage(id_))

    def _outputs(self, health: HealthSnapshot) -> Iterator[Incident]:
        facts = health.pipeline
        about = health.about
        if (late_s := facts.get("undelivered_s", 0.0)) > _UNDELIVERED_S:
            id_ = about.get("undelivered_s", "")
            yield Incident("error", "undelivered", _text("undelivered_s", health), late_s, stage=id_, link=_stage(id_))
        id_ = about.get("spool_records", "")
        if facts.get("spool_share", 0.0) > _FULL_SPOOL:
            id_ = about.get("spool_share", "")
            yield Incident("error", "spool", _text("spool_share", health), stage=id_, link=_stage(id_))
        elif self._spool_grows():
            text = f"the spool of {id_} grows: {facts['spool_records']:,.0f} records wait"
            yield Incident("warning", "spool", text, stage=id_, link=_stage(id_))
        disk = self._disk.snapshot()
        if (free_gb := disk.pipeline.get("disk_free_gb", math.inf)) < _LOW_GB:
            severity: Severity = "error" if free_gb < _FULL_GB else "warning"
            yield Incident(severity, "disk", _text("disk_free_gb", disk))

    def _spool_grows(self) -> bool:
        """Whether every third of the last seconds had more waiting records than the one before."""
        waiting = [counts.spooled for counts in self._history if self._history[-1].at_s - counts.at_s <= _GROWS_S]
        third = len(waiting) // 3
        if third < 2 or waiting[-1] < _FEW_RECORDS:
            return False
        return max(waiting[:third]) < min(waiting[third:-third]) and max(waiting[third:-third]) < min(waiting[-third:])

    def _tuning(self, now_s: float) -> bool:
        """Whether a network was run untuned in the last seconds."""
        lately = next(counts for counts in self._history if now_s - counts.at_s <= _TUNED_S)
        return self._history[-1].untuned > lately.untuned

    def _slow(self, now_s: float) -> Iterator[Incident]:
        if self._tuning(now_s):
            yield Incident(
                "warning", "untuned", "a network is still being tuned, and is slow until then", link="#/pipeline"
            )
        if self._history[-1].restarted > self._history[0].restarted:
            yield Incident(
                "warning",
                "restarted",
                "a process died within the last minute; its sources were restarted",
                link="#/logs",
            )


def _text(fact: str, health: HealthSnapshot) -> str:
    return alarm_text([fact], health.pipeline, AlarmSubject("pipeline", "pipeline", health.about))


def _counted(count: int) -> str:
    return f"{count:,} frame" + ("" if count == 1 else "s")


def _stage(id_: str) -> str:
    return f"#/pipeline?stage={quote(id_)}"


def _first_line(text: str) -> str:
    return without_addresses(mask(text)).partition("\n")[0]
