"""A worker: one warm pipeline, through which files go one after the other, or several side by side."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamkit.batch.job import Job, Look, Outcome, Settings, printable
from streamkit.batch.looked import LOOKED, LookedSource
from streamkit.errors import OutputError, SourceError, describe
from streamkit.media.uris import mask
from streamkit.plan import SourceConfig

if TYPE_CHECKING:
    from streamkit.runtime.states import SourceState


@dataclass(frozen=True, slots=True)
class Doing:
    """How far a worker is with a file.

    Attributes:
        key: of the job.
        name: of the file.
        frames: that have come out of the pipeline.
        share: of the file that is done, 0 to 1; 0 while its length is not known.
    """

    key: str
    name: str
    frames: int
    share: float


class Worker:
    """Keeps one pipeline open for all the files of its share; what it needs is loaded once.

    Args:
        settings: the pipeline and what is written.
        device: as a YAML names it: `cpu`, `cuda:0`, `auto`.
        slots: how many files are read at once. A further one may be given, and is opened when one has been read.
        cores: how many CPU cores it is to use; None for all that the process may.
        say: takes messages for the user.
        part: the number of its process from 0, and of how many that share the machine.

    Raises:
        StreamkitError: the pipeline cannot be made or opened.
    """

    def __init__(
        self, settings: Settings, device: str = "auto", slots: int = 1, cores: int | None = None,
        say: Callable[[str], None] = print, part: tuple[int, int] = (0, 1),
    ) -> None:  # fmt: skip
        from streamkit.batch.pipeline import graph_for, look_options
        from streamkit.runtime.device import choose
        from streamkit.runtime.host import confine
        from streamkit.runtime.warm import Warm

        self.settings, self.slots = settings, slots
        chosen = choose(device, say)
        confine(chosen, *part)
        self._names: dict[str, str] = {}
        graph = graph_for(settings, device, self._names)
        self._kind = LookedSource
        self._options = look_options(settings.look)
        self._place = next(iter(graph.nodes.values())).place
        self._warm = Warm(graph, chosen, slots=slots, own_cores=cores, say=say)
        self._doing: dict[str, Job] = {}
        self._warm.begin()

    def do(self, job: Job, read: Callable[[], None] = lambda: None) -> Outcome:
        """Do one file, from any thread; several at once.

        Args:
            job: which.
            read: called when its last picture has been read, and another file may be.

        Returns:
            How it went; `again` where the fault may not have been the file's.
        """
        from streamkit.batch.fetch import local

        begun = time.perf_counter()
        path = Path(job.file.uri)
        self._doing[job.key], self._names[job.key] = job, job.file.name
        try:
            with local(job.file, self.settings.out) as path:
                state = self._warm.send(self._source(job, str(path)), read)
        except Exception as error:  # of the fetching, or what ended the whole pipeline
            return _failed(job, begun, *self._cause(error), _without(path, describe(error)))
        finally:
            del self._doing[job.key], self._names[job.key]
        facts = {**state.facts, **_troubles(state)}
        told: dict[str, Any] = {
            "frames": state.out, "objects": state.objects, "duration_s": facts.pop(LOOKED, 0.0), "facts": facts,
        }  # fmt: skip
        if state.raised is not None and not self._ends_before(state) and not self._keeps(state):
            return _failed(job, begun, *_cause_of(state.raised), _without(path, state.error or ""), **told)
        if state.failed and state.failed >= state.out:
            return _failed(job, begun, "stage", False, f"every frame failed: {state.first_failure}", **told)
        return Outcome(job, "done", seconds=time.perf_counter() - begun, **told)

    @property
    def over(self) -> bool:
        """Whether its pipeline has ended, and it can do nothing any more."""
        return self._warm.fatal is not None or self._warm.stopping

    def doing(self) -> list[Doing]:
        """How far it is with each file that it has."""
        found = []
        states = self._warm.states
        for key, job in list(self._doing.items()):
            state = states.get(key)
            length_s = _to_be_looked_at(state.facts, self.settings.look) if state is not None else 0.0
            share = min(1.0, max(0.0, state.pts_s / length_s)) if state is not None and length_s else 0.0
            found.append(Doing(key, job.file.name, 0 if state is None else state.out, share))
        return found

    def close(self) -> bool:
        """End the pipeline; files under way are given up. False where something hangs: the process must end hard."""
        return self._warm.end()

    def _ends_before(self, state: SourceState) -> bool:
        """Whether a source failed only since its video is over before `--start`: there is nothing wrong with it."""
        none = isinstance(state.raised, SourceError) and state.raised.cause is None and not state.out
        return none and self.settings.look.misses(state.facts.get("duration_s"), state.facts.get("fps"))

    def _keeps(self, state: SourceState) -> bool:
        """Whether a source failed only because frames of it are damaged: those that are good count."""
        damaged = isinstance(state.raised, SourceError) and state.raised.cause == "damaged"
        return damaged and state.out > 0 and not self.settings.strict

    def _source(self, job: Job, path: str) -> SourceConfig:
        return SourceConfig(job.key, self._kind, {"uri": path, **self._options}, self._place)

    def _cause(self, error: Exception) -> tuple[str, bool]:
        """A word for what went wrong, and whether another try may help."""
        if isinstance(error, OutputError):
            return "output", False
        if self.over:
            return "stage", True  # whose fault it was is not known where several files were under way
        return _cause_of(error)


def _cause_of(error: Exception) -> tuple[str, bool]:
    if isinstance(error, OutputError):
        return "output", False
    if isinstance(error, MemoryError):
        return "memory", True
    from streamkit.batch.probe import cause

    return cause(error)


def _without(path: Path, cause: str) -> str:
    """A cause without the path of the file, which may be that of a copy, before it."""
    return cause.removeprefix(mask(str(path))).lstrip(": ")


def _failed(job: Job, begun: float, kind: str, again: bool, cause: str, **told: Any) -> Outcome:
    return Outcome(job, "failed", printable(cause), kind, again, seconds=time.perf_counter() - begun, **told)


def _troubles(state: SourceState) -> dict[str, int]:
    """How many frames were damaged, and how many failed."""
    from streamkit.media.av_decoder import CONCEALED, UNDECODABLE

    counts = dict(state.counters.values)
    concealed = counts.get(CONCEALED, 0)
    told = state.raised.damaged if isinstance(state.raised, SourceError) else 0
    return {
        "concealed_errors": concealed, "damaged_frames": max(told, concealed + counts.get(UNDECODABLE, 0)),
        "failed_frames": state.failures,
    }  # fmt: skip


def _to_be_looked_at(facts: dict[str, Any], look: Look) -> float:
    """Seconds of a video that are to be looked at, as its header says; 0 where its length is not known."""
    length_s = facts.get("duration_s") or 0.0
    end_s = length_s if look.end_s is None else min(length_s, look.end_s)
    return max(0.0, end_s - look.start_s)
