"""Several devices: a process for each, with its share of the sources; this one has what they share.

The parent process reads the YAML, shares the sources out in turn, and owns the sinks that sources of several processes
write to, messages, counts and the exit code. It makes no CUDA context. All it hears and orders goes through one loop on
the main thread (`_attend`); beside it a thread for each process brings frames to the shared sinks.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing import connection
from pathlib import Path
from typing import Any

from streamkit.alarms import wanted
from streamkit.errors import ConfigError, OutputError, StageError, StreamkitError, describe
from streamkit.plan import Graph, Node
from streamkit.runtime.alarms import Alarms
from streamkit.runtime.children import SPAWN, error_of, signals_held_back
from streamkit.runtime.control import stream_numbers
from streamkit.runtime.device import choose
from streamkit.runtime.facts import Facts, Observer, emitters, folders, joined
from streamkit.runtime.member import GRACE_S, Member
from streamkit.runtime.messages import Messages
from streamkit.runtime.metrics import Histogram
from streamkit.runtime.nodes import Runner
from streamkit.runtime.relay import SharedSinks
from streamkit.runtime.run import Pipeline
from streamkit.runtime.share import Job, work
from streamkit.runtime.sharing import share_out, shared_sinks
from streamkit.runtime.states import SourceState
from streamkit.runtime.tally import Tally, add_up, frames_done, latencies, own
from streamkit.runtime.trace import Trace

_LOOK_S, _AT_ONCE_S = 0.1, 0.5


def prepare(
    graph: Graph, path: Path, set_: Mapping[str, str], *, limit: int | None = None, say: Callable[[str], None] = print,
    trace: Trace | None = None,
) -> Pipeline | Fleet:  # fmt: skip
    """The run of a graph: in this process for one device, else in a process for each.

    Args:
        graph: what to run.
        path: the YAML that it was read from; each process reads it for itself.
        set_: the values that replaced the YAML's.
        limit: frames per source at most.
        say: takes messages for the user.
        trace: takes the run's timeline; of one device only.

    Raises:
        DeviceError: a device is asked for that is not there.
        ConfigError: a sink or state cannot be shared by several devices, or nothing can be traced.
    """
    shares = share_out(graph)
    for name in graph.config.device[len(shares) :] if isinstance(graph.config.device, list) else ():
        say(f"{name} is not used: there are more devices than sources")
    devices = [choose(name, say) for name, _ in shares]
    if len(shares) <= 1:
        return Pipeline(graph, devices[0], limit=limit, say=say, trace=trace)
    if trace is not None:
        raise ConfigError("--profile shows one process, and each device has its own; name one, as in --device cuda:0")
    return Fleet(graph, shares, path, dict(set_), limit, say)


class Fleet:
    """One run of a graph in several processes. To its user it is what `Pipeline` is.

    Args:
        graph: what to run.
        shares: each device with the ids of its sources, as `share_out` makes them.
        path: the YAML.
        set_: the values that replace the YAML's.
        limit: frames per source at most.
        say: takes messages for the user, each text once.
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
        self._members = [Member(device, sources) for device, sources in shares]
        self._path, self._set = path, set_
        self._aborted = False
        self.say, self._lock = Messages(say), threading.Lock()
        addresses = {source.id: str(source.options.get("uri", "")) for source in graph.sources}
        self._sinks = SharedSinks(
            shared_sinks(graph), list(self.states), addresses, stream_numbers(graph.sources), self.say, self.fail
        )  # fmt: skip
        alarms = graph.config.alarms
        self._observer = Observer(wanted(alarms), dict, self._runners, folders(graph))
        self.alarms = Alarms(
            alarms, self._facts, lambda: emitters(self._runners()), addresses, say, self.fail, self._ending
        )  # fmt: skip

    # --------------------------------------------------------------------------------------------------- the run

    def run(self) -> int:
        """Run to the end and return the exit code, as `Pipeline.run` does.

        Raises:
            StreamkitError: the run could not begin, or could not go on.
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
        return (
            1
            if failed or any(runner.meter.failed or runner.meter.troubles for runner in self._sinks.runners.values())
            else 0
        )

    def stop(self) -> None:
        """Ask the sources to end; what is decoded goes through and every file is closed.

        Asked a second time, it ends the processes at once.
        """
        if self.stopping:
            self._end_now()
        self.stopping = True
        for _, emitter in emitters(self._runners()):
            emitter.hurry()

    def fail(self, error: BaseException) -> None:
        """End the run because of `error`, in all processes; as `Pipeline.fail` does."""
        with self._lock:
            if self.fatal is None:
                self.fatal = error if isinstance(error, StreamkitError) else StreamkitError(describe(error))
        if not isinstance(error, (OutputError, StageError)):
            self._aborted = True
            self._sinks.abort()

    # --------------------------------------------------------------------------------------------- the processes

    def _start(self) -> None:
        """Start the processes. Signals are held back in them from the first moment on: they are this one's business."""
        shared = tuple(self._sinks.runners)
        with signals_held_back():
            for number, member in enumerate(self._members):
                member.control, control = SPAWN.Pipe()
                member.frames, frames = SPAWN.Pipe(duplex=False)
                job = Job(
                    self._path, self._set, member.device, tuple(member.sources), shared, self.limit,
                    (number, len(self._members)),
                )  # fmt: skip
                process = SPAWN.Process(target=work, args=(job, control, frames), name=f"share/{number}")
                process.start()
                member.process = process
                control.close()
                frames.close()
        for member in self._members:
            member.receiver = threading.Thread(target=self._receive, args=(member,), daemon=True)
            member.receiver.start()

    def _receive(self, member: Member) -> None:
        """Bring the frames of one process to the sinks, until it and its pipe have ended."""
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
        """Hear the processes, and give them their orders, until `done`."""
        while not done():
            order = "abort" if self._aborted else "stop" if self.stopping or self.fatal else ""
            for member in self._members:
                if order and member.told != order:
                    member.tell(order)
            heard = [member.control for member in self._members if not member.deaf]
            ends = [member.process.sentinel for member in self._members if not member.dead]
            if heard or ends:
                connection.wait([*heard, *ends], _LOOK_S)
            else:
                time.sleep(_LOOK_S)
            for member in self._members:
                if not member.over:
                    self._hear(member)

    def _hear(self, member: Member) -> None:
        """Take what a process says; see whether it has ended."""
        dead = not member.process.is_alive()
        try:
            while not member.deaf and member.control.poll():
                self._take(member, *member.control.recv())
        except (EOFError, OSError):
            member.deaf = True
        if member.deadline is not None and time.monotonic() > member.deadline and not dead:
            self.say(f"the process of {member.device} does not end and is killed")
            member.process.kill()
        member.dead = dead
        if dead and not member.receiver.is_alive():
            self._lay_to_rest(member)

    def _take(self, member: Member, kind: str, value: Any) -> None:
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
            member.code, member.deadline = value, time.monotonic() + GRACE_S

    def _lay_to_rest(self, member: Member) -> None:
        """Deal with a process that has ended: where it died, the sources that it was not through with have failed."""
        member.over = True
        if member.code is None:
            member.trouble = f"its process on {member.device} {member.how_it_died()}"
        for id_ in member.sources:
            state = self.states[id_]
            state.done = True
            if member.trouble is not None and id_ not in member.whole and state.error is None:
                state.error = member.trouble
                if self.fatal is None:
                    self.say(f"source {id_} failed: {state.error}")

    def _end_now(self) -> None:
        """Leave no process behind, whatever happened."""
        for member in self._members:
            if member.process is not None and not member.dead:
                member.tell("now")
        for member in self._members:
            member.end_now(_AT_ONCE_S)

    # ------------------------------------------------------------------------------------------------- counting

    @property
    def frames(self) -> int:
        """Frames that have come to the end of the graph."""
        return frames_done(self._tallies())

    @property
    def latency(self) -> dict[str, Histogram]:
        """See `Pipeline.latency`; of all processes together."""
        return latencies(self._tallies())

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes: this one and the devices'."""
        return os.getpid(), *(member.process.pid for member in self._members if member.process is not None)

    def counted(self) -> list[tuple[int, float]]:
        """See `Pipeline.counted`; an entry for each device's process."""
        return [(min(m.tally.finished.values(), default=0), m.tally.at_s) for m in self._members]

    def _tallies(self) -> list[Tally]:
        report = {**self._sinks.report(), "events": dict(self.alarms.events)}
        mine = Tally(report, dict(self._sinks.finished), dict(self._sinks.latency))
        return [*(member.tally for member in self._members), mine]

    def report(self, exit_code: int) -> dict[str, Any]:
        """What the run did: the sums of all processes, and under `devices` what is each one's own."""
        found = add_up(self._tallies())
        stages = [*self.graph.nodes, *found["stages"]]
        return {
            "schema": "streamkit-report/1",
            "device": ", ".join(member.device for member in self._members),
            "exit_code": exit_code,
            "frames": found["frames"],
            "seconds": round(self.seconds, 3),
            "frames_per_s": round(found["frames"] / self.seconds, 2) if self.seconds else None,
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

    def _facts(self) -> Facts:
        """The facts of all processes; a source whose process is gone is down, one whose process is silent is quiet."""
        now_s, parts = time.monotonic(), [self._observer.look()]
        for member in self._members:
            if (known := member.tally.facts) is not None:
                parts.append(known.aged(now_s - member.tally.at_s, gone=member.trouble is not None))
        return joined(parts)

    def _source(self, id_: str) -> dict[str, Any]:
        """A source's part of the report: what its process says, and how that died."""
        (member,) = (member for member in self._members if id_ in member.sources)
        found, error = member.tally.report.get("sources", {}).get(id_, {"frames": 0}), self.states[id_].error
        return {**found, "error": error} if error else found
