# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a running pipeline, in words: from its states, alarms, outputs, and the growth of its counters."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from streamkit.core.errors import describe
from streamkit.core.masking import mask, without_addresses
from streamkit.media.uris import may_be_live
from streamkit.runtime.observe.alarms import AlarmSubject, alarm_text
from streamkit.runtime.observe.health import HealthSnapshot, Observer, folders
from streamkit.serve.api_models import PipelineProblem, RaisedAlarm, Severity
from streamkit.stages.inference.infer import UNTUNED

_MINUTE_S = 60.0
_TUNED_S = 5.0  # without a batch of an untuned network, it counts as tuned
_CONNECTS_S = 5.0  # a source that is new may take so long to connect
_HANGS_S = 10.0
_UNDELIVERED_S = 10.0
_FULL_GB, _LOW_GB = 1.0, 5.0
_FULL_SPOOL = 0.9
_FEW_DROPS = 0.01  # share of frames up to which drops are a warning only
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


def _problem(
    severity: Severity, kind: str, text: str, since_s: float = 0.0, *, source: str | None = None,
    stage: str | None = None, link: str = "#/home", acknowledged: bool = False,
) -> PipelineProblem:  # fmt: skip
    return PipelineProblem(severity, kind, text, since_s, source, stage, link, acknowledged)


class Problems:
    """Finds what is wrong, from samples of a run. One thread samples, about once a second; any may read.

    Args:
        running: the run.
        raised: returns the alarms that are raised.
        store_problem: returns why events cannot be stored at present; empty if they can.
    """

    def __init__(
        self, running: Any, raised: Callable[[], list[RaisedAlarm]], store_problem: Callable[[], str] = str
    ) -> None:
        self._running, self._raised, self._store_problem = running, raised, store_problem
        self._audit_problem: Callable[[], str] = str
        self.follow()
        self._history: deque[_Counts] = deque()
        self._since: dict[tuple[str, str | None, str | None], float] = {}
        self._found: tuple[PipelineProblem, ...] = ()

    def follow_audit(self, problem: Callable[[], str]) -> None:
        """Also report why the audit log cannot be written, which `problem` returns; it is called at each sample."""
        self._audit_problem = problem

    def follow(self) -> None:
        """Take the folders of the graph, which an edit of the YAML may have rebuilt."""
        self._disk = Observer({"disk_free_gb"}, dict, (), folders(self._running.graph))

    def current(self) -> list[PipelineProblem]:
        """The problems now: errors first, and of these what concerns most first."""
        return list(self._found)

    def sample(self, now_s: float) -> None:
        """Look at the run at a monotonic time in seconds."""
        health = self._running.health()
        counts = self._counts(now_s, health)
        self._history.append(counts)
        while len(self._history) > 2 and now_s - self._history[1].at_s >= _MINUTE_S:
            self._history.popleft()
        found, known = [], {}
        for one in [*self._run(), *self._sources(health), *self._alarms(), *self._frames(), *self._stages(health),
                    *self._outputs(health), *self._slow(now_s)]:  # fmt: skip
            key = one.kind, one.source, one.stage
            known[key] = begun_s = self._since.get(key, now_s - one.since_s)
            found.append(replace(one, since_s=round(max(one.since_s, now_s - begun_s), 1)))
        self._since = known
        self._found = tuple(sorted(found, key=lambda one: one.severity))

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

    def _run(self) -> Iterator[PipelineProblem]:
        if (fatal := self._running.fatal) is not None:
            text = without_addresses(mask(describe(fatal)))
            yield _problem("error", "run_failed", f"the pipeline ends: {text}", link="#/logs")
        if getattr(self._running, "rejected", ""):  # the reason may contain an address: signed-in clients see it there
            yield _problem("warning", "edit_rejected", "the last edit of the YAML is not applied", link="#/config")
        for text in getattr(self._running, "lost_nodes", list)():
            yield _problem("error", "node_lost", text, link="#/logs")
        if why := self._store_problem():
            yield _problem("error", "store", f"events are not stored: {why}", link="#/events")
        if why := self._audit_problem():
            yield _problem("error", "audit", f"the audit log is not written: {why}", link="#/audit")

    def _sources(self, health: HealthSnapshot) -> Iterator[PipelineProblem]:
        expected, down = 0, []
        for id_, state in list(self._running.states.items()):
            if state.removed or not state.begun or state.state in ("paused", "ended"):
                continue
            expected += 1
            away_s = max(0.0, time.time() - state.since_s)
            if state.state in _AWAY and (state.state != "connecting" or away_s > _CONNECTS_S):
                facts = {"down_s": away_s, "cause": (state.cause or "").replace("_", " "), "state": state.state}
                text = alarm_text(["down_s"], {**health.sources.get(id_, {}), **facts}, self._subject(id_))
                if state.state == "failed" and state.error and not state.cause:
                    text += f": {_first_line(state.error)}"
                down.append(
                    _problem("error", "source_down", text, away_s, source=id_, link=f"#/home?source={quote(id_)}")
                )
        if len(down) == expected > 1:
            text = f"no source is running: all {expected} are down"
            yield _problem("error", "all_down", text, min(one.since_s for one in down))
        yield from down

    def _subject(self, id_: str) -> AlarmSubject:
        live = may_be_live(self._running.addresses.get(id_, ""))
        return AlarmSubject(id_, "camera" if live else "source", {})

    def _alarms(self) -> Iterator[PipelineProblem]:
        for one in self._raised():
            severity: Severity = "warning" if one.acknowledged else "error"
            text = f"alarm {one.alarm}: {one.text}"
            source = None if one.source == "pipeline" else one.source
            yield _problem(
                severity, "alarm", text, one.since_s, source=source, link="#/alarms", acknowledged=one.acknowledged
            )

    def _frames(self) -> Iterator[PipelineProblem]:
        first, last = self._history[0], self._history[-1]
        for id_, drops in last.drops.items():
            before = first.drops.get(id_, {})
            grown = {cause: n - before.get(cause, 0) for cause, n in drops.items() if n > before.get(cause, 0)}
            if lost := sum(grown.values()):
                frames = last.frames[id_] - first.frames.get(id_, 0)
                causes = ", ".join(sorted(cause.removeprefix("frames dropped: ") for cause in grown))
                text = f'{_counted(lost)} of "{id_}" {"was" if lost == 1 else "were"} dropped'
                text += f" in the last minute ({causes})"
                severity: Severity = "error" if lost > _FEW_DROPS * max(frames, lost) else "warning"
                yield _problem(severity, "drops", text, source=id_, link="#/pipeline")

    def _stages(self, health: HealthSnapshot) -> Iterator[PipelineProblem]:
        first, last = self._history[0], self._history[-1]
        for id_, failed in last.failed.items():
            if (grown := failed - first.failed.get(id_, 0)) > 0:
                text = f"stage {id_} failed on {_counted(grown)} in the last minute"
                yield _problem("error", "failed_frames", text, stage=id_, link=_stage(id_))
        if (call_s := health.pipeline.get("stage_call_s", 0.0)) > _HANGS_S:
            id_ = health.about.get("stage_call_s", "")
            yield _problem("error", "stage_hangs", _text("stage_call_s", health), call_s, stage=id_, link=_stage(id_))

    def _outputs(self, health: HealthSnapshot) -> Iterator[PipelineProblem]:
        facts, about = health.pipeline, health.about
        if (late_s := facts.get("undelivered_s", 0.0)) > _UNDELIVERED_S:
            id_ = about.get("undelivered_s", "")
            yield _problem("error", "undelivered", _text("undelivered_s", health), late_s, stage=id_, link=_stage(id_))
        id_ = about.get("spool_records", "")
        if facts.get("spool_share", 0.0) > _FULL_SPOOL:
            id_ = about.get("spool_share", "")
            yield _problem("error", "spool", _text("spool_share", health), stage=id_, link=_stage(id_))
        elif self._spool_grows():
            text = f"the spool of {id_} grows: {facts['spool_records']:,.0f} records wait"
            yield _problem("warning", "spool", text, stage=id_, link=_stage(id_))
        disk = self._disk.snapshot()
        if (free_gb := disk.pipeline.get("disk_free_gb", math.inf)) < _LOW_GB:
            severity: Severity = "error" if free_gb < _FULL_GB else "warning"
            yield _problem(severity, "disk", _text("disk_free_gb", disk))

    def _spool_grows(self) -> bool:
        """Whether every third of the last seconds had more waiting records than the one before."""
        waiting = [one.spooled for one in self._history if self._history[-1].at_s - one.at_s <= _GROWS_S]
        third = len(waiting) // 3
        if third < 2 or waiting[-1] < _FEW_RECORDS:
            return False
        return max(waiting[:third]) < min(waiting[third:-third]) and max(waiting[third:-third]) < min(waiting[-third:])

    def _slow(self, now_s: float) -> Iterator[PipelineProblem]:
        first, last = self._history[0], self._history[-1]
        lately = next(one for one in self._history if now_s - one.at_s <= _TUNED_S)
        if last.untuned > lately.untuned:
            yield _problem(
                "warning", "untuned", "a network is still being tuned, and is slow until then", link="#/pipeline"
            )
        if last.restarted > first.restarted:
            yield _problem("warning", "restarted", "a process died within the last minute; its sources were restarted",
                          link="#/logs")  # fmt: skip


def _text(fact: str, health: HealthSnapshot) -> str:
    return alarm_text([fact], health.pipeline, AlarmSubject("pipeline", "pipeline", health.about))


def _counted(count: int) -> str:
    return f"{count:,} frame" + ("" if count == 1 else "s")


def _stage(id_: str) -> str:
    return f"#/pipeline?stage={quote(id_)}"


def _first_line(text: str) -> str:
    return without_addresses(mask(text)).partition("\n")[0]
