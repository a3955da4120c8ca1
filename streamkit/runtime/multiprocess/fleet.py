"""Runs a pipeline on several devices: one worker process per device, each with a part of the sources.

The parent process reads the YAML, assigns the sources round robin, and owns the sinks that sources of several processes
share, the messages, the counts and the exit code. It creates no CUDA context. One loop on the main thread (`_attend`)
receives all messages and sends all orders; one thread per worker passes frames to the shared sinks.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from streamkit.config.alarms import wanted
from streamkit.config.plan import Graph, Node
from streamkit.core.counters import Counters
from streamkit.core.data import Device
from streamkit.core.errors import ConfigError, OutputError, StageError, StreamkitError, describe
from streamkit.core.stage import Context, RuntimeContext
from streamkit.runtime.execution.device import choose
from streamkit.runtime.execution.future import start
from streamkit.runtime.execution.meters import Histogram
from streamkit.runtime.execution.stage_runner import Runner
from streamkit.runtime.ingest.source_status import SourceState
from streamkit.runtime.ingest.sources import stream_numbers
from streamkit.runtime.multiprocess.children import SPAWN, Child, error_of, signals_held_back, wait
from streamkit.runtime.multiprocess.frame_ipc import SharedSinks
from streamkit.runtime.multiprocess.partition import share_out, shared_sinks
from streamkit.runtime.multiprocess.worker import WorkerConfig, work
from streamkit.runtime.observe.alarms import Alarms
from streamkit.runtime.observe.health import HealthSnapshot, Observer, emitters, folders, joined
from streamkit.runtime.observe.report_merge import WorkerReport, add_up, frames_done, headline, latencies, own
from streamkit.runtime.observe.trace import Trace
from streamkit.runtime.pipeline import Messages, Pipeline

_LOOK_S, _AT_ONCE_S = 0.1, 0.5
_GRACE_S = 10.0
"""Time for a process to exit after it was told to drop everything, or reported its end."""


@dataclass(slots=True)
class WorkerHandle:
    """State of one worker process in the parent.

    Attributes:
        device: its device, as named in the YAML.
        sources: ids of its sources.
        child: the process; None until it is started.
        frames: connection for its frames for shared sinks.
        receiver: thread that reads `frames`.
        tally: the counts that it last sent.
        whole: ids of the sources whose last frame has passed every stage.
        ready: whether its stages are open.
        dead: whether the process has exited and its messages were processed.
        over: whether its frames were processed too.
        code: its exit code, once it has reported its end.
        trouble: how it died, if it exited without reporting its end.
        told: the last order sent to it.
        deadline: monotonic time in seconds at which it is killed.
    """

    device: str
    sources: list[str]
    child: Any = None
    frames: Any = None
    receiver: Any = None
    tally: WorkerReport = field(default_factory=WorkerReport)
    whole: set[str] = field(default_factory=set)
    ready: bool = False
    dead: bool = False
    over: bool = False
    code: int | None = None
    trouble: str | None = None
    told: str = ""
    deadline: float | None = None

    def tell(self, order: str) -> None:
        """Send an order: `go`, `stop`, `abort` or `now`. Does nothing if the process has exited."""
        self.told = order
        if order == "abort":
            self.deadline = time.monotonic() + _GRACE_S
        self.child.tell(order)


def prepare(
    graph: Graph, path: Path, set_: Mapping[str, str], *, limit: int | None = None, say: Callable[[str], None] = print,
    trace: Trace | None = None,
) -> Pipeline | WorkerFleet:  # fmt: skip
    """Create the run of a graph: in this process for one device, else with one worker process per device.

    Args:
        graph: the graph to run.
        path: the YAML it was read from; each worker process reads it again.
        set_: values that override the YAML.
        limit: maximum number of frames per source.
        say: receives messages for the user.
        trace: records the timeline of the run; one device only.

    Raises:
        DeviceError: a device does not exist.
        ConfigError: a sink or the state cannot be shared by several devices, or tracing is not possible.
    """
    shares = share_out(graph)
    for name in graph.config.device[len(shares) :] if isinstance(graph.config.device, list) else ():
        say(f"{name} is not used: there are more devices than sources")
    devices = [choose(name, say) for name, _ in shares]
    if len(shares) <= 1:
        return Pipeline(graph, devices[0], limit=limit, say=say, trace=trace)
    if trace is not None:
        raise ConfigError(
            "--profile supports one process, but each device has its own; name one device, as in --device cuda:0"
        )
    return WorkerFleet(graph, shares, path, dict(set_), limit, say)


class WorkerFleet:
    """One run of a graph in several processes, with the interface of `Pipeline`.

    Args:
        graph: the graph to run.
        shares: each device with the ids of its sources, from `share_out`.
        path: the YAML.
        set_: values that override the YAML.
        limit: maximum number of frames per source.
        say: receives messages for the user, each text once.
    """

    def __init__(
        self,
        graph: Graph,
        shares: list[tuple[str, list[str]]],
        path: Path,
        set_: dict[str, str],
        limit: int | None,
        say: Callable[[str], None],
    ) -> None:
        self.graph, self.limit = graph, limit
        self.states = {source.id: SourceState() for source in graph.sources}
        self.fatal: BaseException | None = None
        self.stopping = False
        self.seconds = 0.0
        self._members = [WorkerHandle(device, sources) for device, sources in shares]
        self._path, self._set = path, set_
        self._aborted = False
        self.say, self._lock = Messages(say), threading.Lock()
        addresses = {source.id: str(source.options.get("uri", "")) for source in graph.sources}
        runtime = RuntimeContext(addresses=addresses, streams=stream_numbers(graph.sources))

        def context(id_: str) -> Context:
            return Context(id_, Device("cpu"), (1,), 1, Counters(), self.say, runtime)

        self._sinks = SharedSinks(shared_sinks(graph), list(self.states), context, self.fail)
        alarms = graph.config.alarms
        self._observer = Observer(wanted(alarms), dict, self._runners, folders(graph))
        self.alarms = Alarms(
            alarms, self._facts, lambda: emitters(self._runners()), addresses, say, self.fail, self._ending
        )  # fmt: skip

    # --------------------------------------------------------------------------------------------------- the run

    def run(self) -> int:
        """Run to the end and return the exit code, as `Pipeline.run` does.

        Raises:
            StreamkitError: the run could not start, or could not continue.
        """
        try:
            self._start()
            self._attend(lambda: self.fatal is not None or all(m.ready or m.over for m in self._members))
            if self.fatal is None:
                self._sinks.open()
            begun = time.perf_counter()
            for member in self._members if self.fatal is None else ():
                member.tell("go")
            self._aborted = self._aborted or self.fatal is not None
            with self.alarms.watching():
                self._attend(lambda: all(member.over for member in self._members))
                self._sinks.close()
            self.seconds = time.perf_counter() - begun
        finally:
            self._end_now()
            self._sinks.abort()
        if self.fatal is not None:
            raise self.fatal
        if self.stopping:
            return 130
        failed = any(state.error for state in self.states.values()) or any(member.code for member in self._members)
        return int(failed or any(one.meter.failed or one.meter.troubles for one in self._sinks.runners.values()))

    def stop(self) -> None:
        """Stop the sources; decoded frames drain, and every file is closed.

        A second call ends the processes at once.
        """
        if self.stopping:
            self._end_now()
        self.stopping = True
        for _, emitter in emitters(self._runners()):
            emitter.hurry()

    def fail(self, error: BaseException) -> None:
        """End the run in all processes because of `error`, as `Pipeline.fail` does."""
        with self._lock:
            if self.fatal is None:
                self.fatal = error if isinstance(error, StreamkitError) else StreamkitError(describe(error))
        if not isinstance(error, (OutputError, StageError)):
            self._aborted = True
            self._sinks.abort()

    # --------------------------------------------------------------------------------------------- the processes

    def _start(self) -> None:
        """Start the processes. Signals are blocked in them from their first moment: the parent handles signals."""
        shared = tuple(self._sinks.runners)
        with signals_held_back():
            for number, member in enumerate(self._members):
                member.frames, frames = SPAWN.Pipe(duplex=False)
                job = WorkerConfig(
                    self._path, self._set, member.device, tuple(member.sources), shared, self.limit,
                    (number, len(self._members)),
                )  # fmt: skip
                member.child = Child(f"share/{number}", work, job, frames)
                frames.close()
        for member in self._members:
            member.receiver = start("receiver", partial(self._receive, member))

    def _receive(self, member: WorkerHandle) -> None:
        """Pass the frames of one process to the sinks, until it has exited and its pipe is empty."""
        try:
            while not member.dead or member.frames.poll():
                if member.frames.poll(_LOOK_S):
                    items = member.frames.recv()
                    member.whole.update(source for sink, _, source in items if not sink)
                    self._sinks.put([item for item in items if item[0]])
        except (EOFError, OSError):
            pass
        except BaseException as error:
            self.fail(error)

    def _attend(self, done: Callable[[], bool]) -> None:
        """Receive messages of the processes and send orders to them, until `done`."""
        while not done():
            order = "abort" if self._aborted else "stop" if self.stopping or self.fatal else ""
            for member in self._members:
                if order and member.told != order:
                    member.tell(order)
            wait([member.child for member in self._members if not member.dead], _LOOK_S)
            for member in self._members:
                if not member.over:
                    self._hear(member)

    def _hear(self, member: WorkerHandle) -> None:
        """Process the messages of a worker, and check whether it has exited."""
        for kind, value in member.child.hear():
            self._take(member, kind, value)
        member.dead = member.child.over
        if member.deadline is not None and time.monotonic() > member.deadline and not member.dead:
            self.say(f"the process of {member.device} does not end and is killed")
            member.child.kill()
        if member.dead and not member.receiver.is_alive():
            self._lay_to_rest(member)

    def _take(self, member: WorkerHandle, kind: str, value: Any) -> None:
        if kind == "say":
            self.say(value)
        elif kind == "ready":
            member.ready = True
        elif kind == "fatal":
            self.fail(error_of(*value))
        elif kind == "tally":
            member.tally = value
            for id_, source in value.report["sources"].items():
                state = self.states[id_]
                state.frames, state.error, state.done = source["frames"], source.get("error"), id_ in value.done
        elif kind == "end":
            member.code, member.deadline = value, time.monotonic() + _GRACE_S

    def _lay_to_rest(self, member: WorkerHandle) -> None:
        """Settle a process that has exited; if it died, its unfinished sources have failed."""
        member.over = True
        if member.code is None:
            member.trouble = f"its process on {member.device} {member.child.how_it_died}"
        for id_ in member.sources:
            state = self.states[id_]
            state.done = True
            if member.trouble is not None and id_ not in member.whole and state.error is None:
                state.error = member.trouble
                if self.fatal is None:
                    self.say(f"source {id_} failed: {state.error}")

    def _end_now(self) -> None:
        """End every process that still runs."""
        started = [member for member in self._members if member.child is not None]
        for member in started:
            if not member.dead:
                member.tell("now")
        for member in started:
            member.child.join(_AT_ONCE_S)
            member.dead = True

    # ------------------------------------------------------------------------------------------------- counting

    @property
    def frames(self) -> int:
        """Number of frames that reached the end of the graph."""
        return frames_done(self._tallies())

    @property
    def latency(self) -> dict[str, Histogram]:
        """See `Pipeline.latency`; merged over all processes."""
        return latencies(self._tallies())

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids: this process and the workers."""
        return os.getpid(), *(member.child.pid for member in self._members if member.child is not None)

    def counted(self) -> list[tuple[int, float]]:
        """See `Pipeline.counted`; one entry per worker process."""
        return [(min(m.tally.finished.values(), default=0), m.tally.at_s) for m in self._members]

    def _tallies(self) -> list[WorkerReport]:
        report = {**self._sinks.report(), "events": dict(self.alarms.events)}
        mine = WorkerReport(report, dict(self._sinks.finished), dict(self._sinks.latency))
        return [*(member.tally for member in self._members), mine]

    def report(self, exit_code: int) -> dict[str, Any]:
        """The report of the run: sums over all processes, and each process's own values under `devices`."""
        found = add_up(self._tallies())
        stages = [*self.graph.nodes, *found["stages"]]
        device = ", ".join(member.device for member in self._members)
        return {
            **headline(device, exit_code, found["frames"], self.seconds),
            **{key: found[key] for key in ("detections", "events", "counts")},
            "stages": {id_: found["stages"][id_] for id_ in dict.fromkeys(stages) if id_ in found["stages"]},
            "latency": found["latency"],
            "sources": {id_: self._source(id_) for id_ in self.states},
            "devices": [
                {"device": member.device, "sources": member.sources, **own(member.tally)}
                | ({"error": member.trouble} if member.trouble else {})
                for member in self._members
            ],
            **({"alarms": alarms} if (alarms := self.alarms.report()) else {}),
        }

    def _runners(self) -> list[tuple[Node, Runner]]:
        return [(runner.node, runner) for runner in self._sinks.runners.values()]

    def _ending(self) -> bool:
        return self.stopping or self.fatal is not None or all(state.done for state in self.states.values())

    def _facts(self) -> HealthSnapshot:
        """Facts of all processes. Sources of a dead process are down; those of a silent process have no new frames."""
        now_s, parts = time.monotonic(), [self._observer.look()]
        for member in self._members:
            if (known := member.tally.facts) is not None:
                parts.append(known.aged(now_s - member.tally.at_s, gone=member.trouble is not None))
        return joined(parts)

    def _source(self, id_: str) -> dict[str, Any]:
        """A source's part of the report, with the error if its process died."""
        (member,) = (member for member in self._members if id_ in member.sources)
        found, error = member.tally.report.get("sources", {}).get(id_, {"frames": 0}), self.states[id_].error
        return {**found, "error": error} if error else found
