"""One process of a fleet: runs its share of the sources on its device, and tells the parent process.

It opens everything, says `ready`, waits for `go`. The parent may then say `stop` (drain), `abort` (drop), or `now` (end
at once, without half files), which a process whose parent is gone does as well. Signals are the parent's business.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections import Counter
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from streamkit import errors
from streamkit.config import read
from streamkit.data import Batch, Device
from streamkit.errors import ConfigError, OutputError, Problem, StageError, StreamkitError, describe
from streamkit.graph import Graph, build
from streamkit.outputs import discard_all
from streamkit.runtime.device import choose
from streamkit.runtime.host import confine
from streamkit.runtime.lane import Lane
from streamkit.runtime.relay import Relay, Uplink
from streamkit.runtime.run import Pipeline
from streamkit.runtime.tally import Tally
from streamkit.runtime.watch import Ticker

_TELL_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class Job:
    """What a process is to do.

    Attributes:
        path: the pipeline's YAML.
        set_: values that replace the YAML's.
        device: the device, as the YAML names it.
        sources: ids of the sources it has.
        shared: ids of the sinks that the parent process has.
        limit: frames per source at most.
        part: the process's number from 0, and how many there are.
    """

    path: Path
    set_: dict[str, str]
    device: str
    sources: tuple[str, ...]
    shared: tuple[str, ...]
    limit: int | None
    part: tuple[int, int] = (0, 1)


def work(job: Job, control: Connection, frames: Connection) -> None:
    """Run a job: the whole life of the process.

    Args:
        job: what to run.
        control: to and from the parent: what is said, counted and ordered.
        frames: to the parent: frames for the sinks that it has.
    """
    _ignore_signals()
    link, uplink, share, code = Link(control), Uplink(frames), None, 1
    try:
        device = choose(job.device, link.say)
        confine(device, *job.part)
        share = Share(_graph(job, uplink), device, job.limit, link, uplink)
        with Ticker(_TELL_EVERY_S, share.tell):
            code = share.run()
    except BaseException as error:
        link.fatal(error)
    uplink.close()
    if share is not None:
        link.send("tally", share.tally(code))
    link.send("end", code)


def _graph(job: Job, uplink: Uplink) -> Graph:
    """The pipeline's graph with the sources of the job, and relays in place of the sinks that the parent has."""
    graph = build(read(job.path, set_=job.set_, device=job.device))
    graph.sources = [source for source in graph.sources if source.id in job.sources]
    gone = set(job.sources) - {source.id for source in graph.sources} | set(job.shared) - set(graph.nodes)
    if gone:
        raise ConfigError(f"{job.path} changed while the run began: {', '.join(sorted(gone))} is gone; start again")
    for id_ in job.shared:
        node = graph.nodes[id_]
        node.type, node.options = Relay, {"uplink": uplink, "sink": id_}
    return graph


def _ignore_signals() -> None:
    """Leave Ctrl-C and SIGTERM, which reach all processes of a group, to the parent. Until here they were held back."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})


class Link:
    """Messages to the parent process, from any thread."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._lock = threading.Lock()

    def send(self, kind: str, value: Any = None) -> None:
        """Send one message; end the process where nobody is there to read it."""
        try:
            with self._lock:
                self.connection.send((kind, value))
        except OSError:
            os._exit(1)

    def say(self, text: str) -> None:
        """Tell the user."""
        self.send("say", text)

    def fatal(self, error: BaseException) -> None:
        """Tell the parent that `error` ends the run."""
        ours = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == StreamkitError.__module__]
        self.send("fatal", (ours[0], str(error)) if ours else (StreamkitError.__name__, describe(error)))


def error_of(name: str, text: str) -> StreamkitError:
    """The error that `Link.fatal` told of: of the same class, with the same text."""
    kind: type[StreamkitError] = getattr(errors, name)
    made = kind.__new__(kind)
    Exception.__init__(made, text)
    if isinstance(made, ConfigError):
        made.problems = [Problem("", 0, 0, text)]
    return made


class Share(Pipeline):
    """The run of one process."""

    def __init__(self, graph: Graph, device: Device, limit: int | None, link: Link, uplink: Uplink) -> None:
        super().__init__(graph, device, limit=limit, say=link.say)
        self._link, self._uplink = link, uplink
        self._relayed = {id_ for id_, node in graph.nodes.items() if node.type is Relay}
        self._passed = Counter[str]()
        self._go = threading.Event()
        threading.Thread(target=self._obey, name="orders", daemon=True).start()

    def fail(self, error: BaseException) -> None:
        """End the run, here and in the other processes."""
        self._link.fatal(error)
        super().fail(error)
        if not isinstance(error, (OutputError, StageError)):
            self._uplink.abort()

    def tally(self, code: int | None = None) -> Tally:
        """What has been counted so far. What the parent counts at its sinks is left out."""
        report = self.report(code if code is not None else 0)
        report["stages"] = {id_: stage for id_, stage in report["stages"].items() if id_ not in self._relayed}
        done = tuple(id_ for id_, state in self.states.items() if state.done)
        finished, latency = (
            {id_: value for id_, value in dict(values).items() if id_ not in self._relayed}
            for values in (self.finished, self.latency)
        )
        return Tally(report, finished, latency, done)  # type: ignore[arg-type]

    def tell(self) -> None:
        """Tell the parent what has been counted so far."""
        with contextlib.suppress(RuntimeError):  # something was counted for the first time meanwhile: next time
            self._link.send("tally", self.tally())

    def _start_sources(self) -> None:
        """Every stage is open: wait until all processes of the fleet are as far, and start."""
        self._link.send("ready")
        self._go.wait()
        if self.fatal is None:
            super()._start_sources()

    def _count(self, lane: Lane, batch: Batch) -> None:
        super()._count(lane, batch)
        if lane in self.ends:
            with self.ends.lock:
                self._passed.update(batch.ended)
                whole = [source for source in batch.ended if self._passed[source] == len(self.ends)]
            for source in whole:  # behind the last of its frames
                self._uplink.put("", None, source)

    def _obey(self) -> None:
        """Do what the parent process says."""
        while True:
            try:
                order = self._link.connection.recv()
            except (EOFError, OSError):
                order = "now"
            if order == "now":
                discard_all()
                os._exit(1)
            if order == "stop":
                self.stop()
            elif order == "abort":
                self.fail(StreamkitError("another process of the run failed"))
            if order in ("go", "abort"):
                self._go.set()
