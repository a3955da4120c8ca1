"""One process of a fleet: runs its share of the sources on its device, and tells the parent process.

It opens everything, says `ready`, waits for `go`. The parent may then say `stop` (drain), `abort` (drop), or `now` (end
at once, without half files), which a process whose parent is gone does as well. Signals are the parent's business.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from streamkit.config import read
from streamkit.data import Device
from streamkit.errors import ConfigError, OutputError, StageError, StreamkitError
from streamkit.graph import build
from streamkit.plan import Graph
from streamkit.runtime.children import Link, end_at_once, ignore_signals
from streamkit.runtime.device import choose
from streamkit.runtime.host import confine
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
    ignore_signals()
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


class Share(Pipeline):
    """The run of one process."""

    def __init__(self, graph: Graph, device: Device, limit: int | None, link: Link, uplink: Uplink) -> None:
        super().__init__(graph, device, limit=limit, say=link.say)
        self.alarms.off()  # the parent looks at those of the whole
        self._link, self._uplink = link, uplink
        self._relayed = {id_ for id_, node in graph.nodes.items() if node.type is Relay}
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
        facts = self._observer.look() if self.graph.config.alarms else None
        return Tally(report, finished, latency, done, facts)  # type: ignore[arg-type]

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

    def _whole(self, source: str) -> None:
        self._uplink.put("", None, source)  # behind the last of its frames

    def _obey(self) -> None:
        """Do what the parent process says."""
        while True:
            try:
                order = self._link.connection.recv()
            except (EOFError, OSError):
                order = "now"
            if order == "now":
                end_at_once()
            if order == "stop":
                self.stop()
            elif order == "abort":
                self.fail(StreamkitError("another process of the run failed"))
            if order in ("go", "abort"):
                self._go.set()
