"""Runs a pipeline from its first frame to its report."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from streamkit.counters import Counters
from streamkit.data import Batch, Device
from streamkit.errors import OutputError, SourceError, StageError, StreamkitError, describe
from streamkit.graph import Graph, Node
from streamkit.plan import SourceConfig
from streamkit.runtime.ahead import Threads
from streamkit.runtime.background import Beside, join, start
from streamkit.runtime.batcher import Batcher
from streamkit.runtime.channel import Aborted, Outlet
from streamkit.runtime.faulty import FaultySource, faults_of, faults_told
from streamkit.runtime.host import settle
from streamkit.runtime.lane import Lane, Worker, connect, partition
from streamkit.runtime.metrics import Histogram, StageMeter
from streamkit.runtime.nodes import Runner, runner
from streamkit.runtime.sizes import batch_sizes, batches_ahead, cores, files_at_once, instances
from streamkit.runtime.trace import Trace
from streamkit.spans import Spans
from streamkit.stage import Context, Sink, Source


@dataclass(slots=True)
class SourceState:
    """What became of one source.

    Attributes:
        frames: frames it has handed over.
        error: why it failed, or None.
        done: whether it has ended.
    """

    frames: int = 0
    error: str | None = None
    done: bool = False
    counters: Counters = field(default_factory=Counters)


class Pipeline:
    """One run of a graph.

    Args:
        graph: what to run.
        device: where.
        limit: frames per source at most.
        say: takes messages for the user, each text once.
        trace: takes the run's timeline; `Trace.finish` writes it afterwards.
    """

    def __init__(
        self, graph: Graph, device: Device, *, limit: int | None = None, say: Callable[[str], None] = print,
        trace: Trace | None = None,
    ) -> None:  # fmt: skip
        self.graph, self.device, self.limit = graph, device, limit
        self.states = {source.id: SourceState() for source in graph.sources}
        self._faults = faults_of(graph.sources)
        self.fatal: BaseException | None = None
        self.stopping = False
        self.seconds = 0.0
        self.finished = Counter[str]()
        self.detections = Counter[str]()
        self.events = Counter[str]()
        self.latency: dict[str, Histogram] = {}
        self._reading: list[Source] = []
        self._said: set[str] = set()
        self._say_lock, self._count_lock = threading.Lock(), threading.Lock()
        self._say, self._trace = say, trace
        self._spans: Callable[[], Spans] = Spans if trace is None else trace.here
        self._runners: list[tuple[Node, Runner]] = []
        self._sizes = batch_sizes(graph.config.batch.size, device)
        ahead = batches_ahead(device)
        self._batcher = Batcher(self._sizes[-1], graph.config.batch.max_wait_s, device.xp, ahead)
        self._lanes = partition(graph)
        for lane in self._lanes:
            lane.workers = instances(lane.nodes, device)
        self._decoded = connect(graph, self._lanes)
        self._ends = self._end_nodes()
        self._addresses = {source.id: str(source.options.get("uri", "")) for source in graph.sources}

    # --------------------------------------------------------------------------------------------------- the run

    def run(self) -> int:
        """Run to the end and return the exit code: 0, 1 where a source or frame failed, 130 where it was stopped.

        Raises:
            StreamkitError: the run could not begin, or could not go on.
        """
        settle()
        if self._faults:
            self.say(faults_told(self._faults))
        self._open_lanes()
        if self._trace is not None:
            self._trace.start(self._lanes, self._batcher)
        begun = time.perf_counter()
        threads: list[threading.Thread] = []
        if self.fatal is None:
            threads = [*self._start_sources(), start("batcher", lambda: self._feed(self._decoded))]
        else:
            self._abort()
        for thread in [*threads, *(t for lane in self._lanes for t in lane.threads)]:
            join(thread)
        self.seconds = time.perf_counter() - begun
        if isinstance(self.fatal, StreamkitError):
            raise self.fatal
        if self.fatal is not None:
            raise StreamkitError(describe(self.fatal)) from self.fatal
        if self.stopping:
            return 130
        failed = any(state.error for state in self.states.values()) or any(
            meter.failed for meter in (r.meter for _, r in self._runners)
        )
        return 1 if failed else 0

    def stop(self) -> None:
        """Ask the sources to end; what is decoded goes through and every file is closed."""
        self.stopping = True
        for source in list(self._reading):
            source.stop()

    def fail(self, error: BaseException) -> None:
        """End the run because of `error`.

        An output that cannot be written, or a frame that fails where `on_error` is `stop`, ends the sources; what is
        decoded still goes to the outputs. Anything else drops what is under way. Either way every output is closed.
        """
        with self._say_lock:
            if self.fatal is None:
                self.fatal = error
        if not isinstance(error, (OutputError, StageError)):
            self._abort()

    def _abort(self) -> None:
        """Drop what is under way and wake every thread that waits."""
        self._batcher.abort()
        for channel in [channel for lane in self._lanes for channel in lane.inputs]:
            channel.abort()
        for outlet in [self._decoded, *(lane.outlet for lane in self._lanes)]:
            outlet.abort()

    def say(self, text: str) -> None:
        """Tell the user, each text once."""
        with self._say_lock:
            if text in self._said or len(self._said) > 10_000:
                return
            self._said.add(text)
        self._say(text)

    def _open_lanes(self) -> None:
        """Open every stage before the first frame is decoded; lane by lane, so that models load one at a time."""
        for lane in self._lanes:
            ready = threading.Semaphore(0)
            for number in range(lane.workers):
                runners = [runner(node, self._context, self.fail, list(self.states)) for node in lane.nodes]
                self._runners.extend(zip(lane.nodes, runners, strict=True))
                once = _once(ready.release)
                worker = Worker(lane, runners, self.device, once, self.fail, self._count, self._spans)
                lane.threads.append(start(f"{lane.nodes[0].id}/{number}", worker))
                ready.acquire()
                if self.fatal is not None:
                    return

    def _start_sources(self) -> list[threading.Thread]:
        """Start the sources: those with a pace of their own at once, files as many at a time as pay."""
        paced: list[SourceConfig] = []
        files: deque[SourceConfig] = deque()
        for source in self.graph.sources:
            made = source.type(**source.options)
            (paced if isinstance(made, Source) and made.unbounded else files).append(source)
        self._batcher.expect(len(self.graph.sources))
        at_once = min(len(files), files_at_once(self.device))

        def work() -> None:
            while True:
                try:
                    source = files.popleft()
                except IndexError:
                    return
                if self.stopping or self.fatal is not None:
                    self.states[source.id].done = True
                    self._batcher.begin(source.id)
                    self._batcher.end(source.id)
                else:
                    self._read(source)

        threads = [start(f"source/{s.id}", lambda s=s: self._read(s)) for s in paced]  # type: ignore[misc]
        return threads + [start(f"source/{n}", work) for n in range(at_once)]

    def _read(self, source: SourceConfig) -> None:
        """Bring the frames of one source to the batcher; whatever it raises is its own failure."""
        state = self.states[source.id]
        made = source.type(**source.options)
        assert isinstance(made, Source)
        if source.id in self._faults:
            made = FaultySource(made, self._faults[source.id])
        self._reading.append(made)
        spans, ahead = self._spans(), Threads(self.device, len(self.states), self._spans)
        put = spans.call("wait for the batcher", self._batcher.put, waiting=True)
        made.context = Context(source.id, self.device, self._sizes, 1, state.counters, self.say, {}, spans, ahead=ahead)
        self._batcher.begin(source.id)
        try:
            made.open()
            try:
                frames = spans.each("decode", made.frames(), about={"source": source.id})
                for frame in frames:
                    if self.stopping or self.fatal is not None:
                        break
                    if self.limit is not None and state.frames >= self.limit:
                        break
                    put(source.id, frame)
                    state.frames += 1
                    del frame
                    if state.frames == self.limit:
                        break
                close = getattr(frames, "close", None)
                if close is not None:
                    close()
            finally:
                made.close()
        except Aborted:
            pass
        except Exception as error:
            state.error = str(error) if isinstance(error, SourceError) else describe(error)
            self.say(f"source {source.id} failed: {state.error}")
        except BaseException as error:
            self.fail(error)
        finally:
            state.done = True
            self._reading.remove(made)
            self._batcher.end(source.id)

    def _feed(self, outlet: Outlet) -> None:
        """Bring batches from the batcher to the lanes."""
        spans = self._spans()
        take = spans.call("wait for frames", self._batcher.next, waiting=True)
        put = spans.call("wait for output", outlet.put, waiting=True)
        try:
            while (batch := take()) is not None:
                put(batch)
                del batch
        except Aborted:
            pass
        except BaseException as error:
            self.fail(error)
        finally:
            outlet.close()

    # ------------------------------------------------------------------------------------------------- counting

    def _context(self, id_: str) -> Context:
        given = 1 if self.device.kind == "cpu" else cores(), Counters(), self.say, self._addresses, self._spans()
        return Context(id_, self.device, self._sizes, *given, later=Beside)

    def _end_nodes(self) -> dict[int, tuple[str, set[str]]]:
        """By lane: the id under which its batches are counted, and the stages whose objects and events it counts.

        Branches see the same objects and events: the first end below a stage counts them for all.
        """
        ends: dict[int, tuple[str, set[str]]] = {}
        claimed: set[str] = set()
        for lane in self._lanes:
            last = lane.nodes[-1]
            if issubclass(last.type, Sink) or not last.readers:
                own = self._above(last) - claimed
                ends[id(lane)] = (last.id, own)
                claimed |= own
        return ends

    def _above(self, node: Node) -> set[str]:
        """Ids of a stage and of all above it, and the tables of the detectors among them."""
        found = {node.id} | ({node.table} if "detections" in node.type.writes else set())
        for name in node.inputs:
            if (above := self.graph.nodes.get(name)) is not None:
                found |= self._above(above)
        return found

    def _count(self, lane: Lane, batch: Batch) -> None:
        end = self._ends.get(id(lane))
        if end is None:
            return
        name, own = end
        now = time.monotonic()
        frames = [*batch.frames, *batch.failed]
        with self._count_lock:
            self.finished[name] += len(frames)
            for table in own.intersection(batch.tables):
                self.detections[table] += len(batch.table(table))
            self.events.update(event.kind for frame in frames for event in frame.events if event.stage in own)
            for frame in frames:
                if frame.due_s is not None:
                    self.latency.setdefault(name, Histogram()).add(now - frame.due_s)

    @property
    def frames(self) -> int:
        """Frames that have come to the end of the graph."""
        return min(self.finished.values(), default=0)

    def report(self, exit_code: int) -> dict[str, Any]:
        """What the run did, for `--report` and the summary."""
        meters: dict[str, list[StageMeter]] = {}
        for node, one in self._runners:
            meters.setdefault(node.id, []).append(one.meter)
        counters = [one.counters for _, one in self._runners] + [state.counters for state in self.states.values()]
        return {
            "schema": "streamkit-report/1",
            "device": str(self.device),
            "exit_code": exit_code,
            "frames": self.frames,
            "seconds": round(self.seconds, 3),
            "frames_per_s": round(self.frames / self.seconds, 2) if self.seconds else None,
            "detections": dict(self.detections),
            "events": dict(self.events),
            "counts": Counters.total(counters),
            "stages": {name: StageMeter.total(found) for name, found in meters.items()},
            "latency": {name: histogram.summary() for name, histogram in self.latency.items()},
            "sources": {
                name: {"frames": state.frames, **({"error": state.error} if state.error else {})}
                for name, state in self.states.items()
            },
        }


def _once(call: Callable[[], Any]) -> Callable[[], None]:
    done: list[bool] = []

    def run() -> None:
        if not done:
            done.append(True)
            call()

    return run
