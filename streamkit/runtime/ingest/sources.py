# SPDX-License-Identifier: Apache-2.0
"""The sources of a run: those in the YAML, and those that are added and removed while it runs.

Each source is read on a thread. Live and paced sources have a thread each; files share a limited number of threads, and
a paused file occupies none. Next to cameras, files are decoded at low priority. An exception in a source fails that
source only. No call here waits for a source: a source that hangs in a read is cut off from the batcher, and its thread
ends when the read returns.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from streamkit.config.plan import Graph, SourceConfig
from streamkit.core.data import Frame
from streamkit.core.errors import ConfigError
from streamkit.core.logs import SOURCE
from streamkit.core.stage import Sink, Source
from streamkit.core.text import did_you_mean
from streamkit.core.timeline import LastFrame
from streamkit.core.tracing import Spans
from streamkit.media.ring import PacketRing
from streamkit.media.uris import may_be_live
from streamkit.runtime.execution.future import start
from streamkit.runtime.execution.host import heap_trimmer, lower_priority
from streamkit.runtime.execution.meters import Histogram
from streamkit.runtime.ingest.batcher import Batcher
from streamkit.runtime.ingest.source_reader import Make, SourceReader, SynchronizedStart, WaitForResults
from streamkit.runtime.ingest.source_status import RemovedSources, SourceState

DROPPED_BY_ABORT = "frames dropped: run aborted"


def in_realtime(config: SourceConfig) -> SourceConfig:
    """The same source with `pace: realtime`, if it is a recording that could be read faster.

    A source stays unchanged if it sets a pace or asks for several decoders, which serve to read faster than real time.
    """
    options = config.options
    says = options.get("pace") is not None or options.get("decoders", 1) not in (1, "auto")
    if says or not config.type.spec.has_pace:
        return config
    return replace(config, options={**options, "pace": "realtime"})


def is_unbounded(config: SourceConfig) -> bool:
    """Whether a source sets its own pace: a camera, or a paced file."""
    source = config.type(**config.options)
    return isinstance(source, Source) and source.unbounded


def drops_late_frames(config: SourceConfig) -> bool:
    """Whether a source's frames are dropped when they are late: a camera, or a paced recording; not an endless file."""
    return is_unbounded(config) and (_may_be_camera(config) or config.options.get("pace") not in (None, "unpaced"))


def _may_be_camera(config: SourceConfig) -> bool:
    return not config.type.spec.has_pace or may_be_live(str(config.options.get("uri", "")))


class Sources:
    """All sources of a run, by id.

    Args:
        configs: the sources at the start.
        batcher: receives their frames.
        make: creates a source.
        limit: maximum number of frames per source.
        parallel_files: maximum number of files that are read at the same time.
        read: called with each source that was read to its end, and its final state.
        fail: receives an error that ends the run.
        spans: returns the calling thread's track in the timeline of the run.
        keep_running: keep the run alive without any source, until `stop`.
        realtime: play recordings at their own speed unless their options set another one.
        live_may_come: whether live sources may be added, next to which files have a low priority; by default, if the
            run keeps running without sources.
        wait_for_results: see `SourceReader`.
        refused: sources that fail without being read, with the reason.
        source_removed: called with each removed source whose last frame is accounted for.

    Attributes:
        states: state of each source; replaced, never mutated, when sources come and go.
        removed: totals of the removed sources.
        has_live: whether live sources were started, or may be added.
    """

    def __init__(
        self,
        configs: Iterable[SourceConfig],
        batcher: Batcher,
        make: Make,
        *,
        limit: int | None,
        parallel_files: int,
        read: Callable[[str, SourceState], None],
        fail: Callable[[BaseException], None],
        spans: Callable[[], Spans],
        keep_running: bool = False,
        realtime: bool = False,
        live_may_come: bool | None = None,
        wait_for_results: WaitForResults | None = None,
        refused: Mapping[str, str] = MappingProxyType({}),
        source_removed: Callable[[str], None] = lambda id_: None,
    ) -> None:
        self._realtime = realtime
        self._wait_for_results = wait_for_results
        self._source_removed = source_removed
        self._batcher = batcher
        self._make = make
        self._limit = limit
        self._spans = spans
        self._parallel_files = parallel_files
        self._read = read
        self._fail = fail
        self._keep_running = keep_running
        self._lock = threading.Lock()
        self._readers: dict[str, SourceReader] = {}
        self._files: deque[SourceReader] = deque()  # files that wait for their turn
        self._running: set[SourceReader] = set()  # files that are read
        self._started = self.stopping = False
        self._line = SynchronizedStart()
        self._early = set[str]()  # ids of the sources that were started early
        self.has_live = keep_running if live_may_come is None else live_may_come
        # sources that are not yet in the totals of `removed`, by id: a removed source and its successor may share an id
        self._open: dict[str, list[SourceState]] = {}
        self.states: dict[str, SourceState] = {}
        self.threads: set[threading.Thread] = set()
        self.removed = RemovedSources()
        for config in configs:
            self._register(config)
        for id_ in refused.keys() & self._readers.keys():
            self._readers[id_].refuse(refused[id_])

    # ------------------------------------------------------------------------------------------------ come and go

    @property
    def over(self) -> bool:
        """Whether no source will produce another frame."""
        return self.stopping or (not self._keep_running and all(state.done for state in self.states.values()))

    def start_early(self) -> None:
        """Open the recordings and decode their first frames while the stages are opened.

        Decoders are created one after the other, which takes seconds for many sources. Paced recordings wait with their
        first frame until `start`. Cameras are not opened early: their frames would be old.
        """
        with self._lock:
            for reader in self._readers.values():
                may_start = not reader.paused and not self.stopping and not reader.state.done
                if may_start and not _may_be_camera(reader.config):
                    self._start_early(reader)

    def start(self) -> None:
        """Start reading."""
        with self._lock:
            self._started = True
            if self.stopping:
                for reader in self._readers.values():
                    reader.finish()
                return
            others = [reader for id_, reader in self._readers.items() if id_ not in self._early]
            refused = [reader for reader in others if reader.state.done]
            waiting = [reader for reader in others if not reader.state.done]
            self._batcher.expect(len(waiting) + self._keep_running)
            for reader in [reader for reader in waiting if is_unbounded(reader.config) and not reader.paused]:
                reader.start_line = self._line
                reader.start_number = self._line.join()
            self._line.release()
            for reader in sorted(waiting, key=lambda reader: reader.start_line is None):
                self._start_reader(reader)
        for reader in refused:
            self._read(reader.config.id, reader.state)

    def _start_early(self, reader: SourceReader) -> None:
        self._batcher.expect(1)
        self._early.add(reader.config.id)
        if drops_late_frames(reader.config):
            reader.start_line = self._line
            reader.start_number = self._line.join()
        self._start_reader(reader)

    def add(self, config: SourceConfig, after: LastFrame | None = None, paused: bool = False) -> None:
        """Add a source; its indices and times continue `after` the last frame that another process has read.

        A source that is added `paused` is not opened before it is resumed.

        Raises:
            ConfigError: its id is taken, or the run is over.
        """
        with self._lock:
            self.check_free(config.id)
            if self.stopping or (self._started and not self._batcher.expect(1)):
                raise ConfigError(f"source {config.id} cannot be added: the run has ended")
            reader = self._register(config)
            if after is not None:
                reader.continue_from(after)
            if paused:
                reader.pause(True)
            if self._started:
                self._start_reader(reader)

    def check_free(self, id_: str) -> None:
        """Raise ConfigError if a source with that id exists."""
        if id_ in self.states:
            raise ConfigError(f"there is a source {id_!r} already; remove it first, or choose another id")

    def check_open(self, id_: str) -> None:
        """Raise ConfigError if no source can be added now: the run is over."""
        if self.stopping:
            raise ConfigError(f"source {id_} cannot be added: the run has ended")

    def continue_from(self, id_: str, after: LastFrame) -> None:
        """Let the indices and times of a source that has not started continue; see `add`."""
        self._reader(id_).continue_from(after)

    def remove(self, id_: str) -> None:
        """Remove a source; its frames in flight are still processed. Raises ConfigError if the id is unknown."""
        with self._lock:
            reader = self._reader(id_)
            del self._readers[id_]
            self.states = {name: state for name, state in self.states.items() if name != id_}
            reader.state.removed = True
            if not self._started and id_ not in self._early:
                self._open.pop(id_, None)
            elif reader in self._files:
                self._cancel(reader)
            self._early.discard(id_)  # a successor has not been started
        reader.end()
        self.count_removed(id_)

    def pause(self, id_: str, paused: bool = True) -> None:
        """Pause or resume a source. Raises ConfigError if the id is unknown."""
        with self._lock:
            reader = self._reader(id_)
        reader.pause(paused)
        with self._lock:
            self._start_waiting()  # there may be a free slot now, or the source may wait for one

    def stop(self) -> None:
        """End all sources."""
        with self._lock:
            if self.stopping:
                return
            self.stopping = True
            for reader in list(self._files):
                self._cancel(reader)
            readers = list(self._readers.values())
        for reader in readers:
            reader.end()
        if self._started:
            self._batcher.expect(-int(self._keep_running))

    def _register(self, config: SourceConfig) -> SourceReader:
        if self._realtime:
            config = in_realtime(config)
        state = SourceState()
        reader = SourceReader(
            config, state, self._batcher, self._make, self._limit, self._spans, self._wait_for_results
        )
        self._readers[config.id] = reader
        self.states = {**self.states, config.id: state}
        self._open.setdefault(config.id, []).append(state)
        return reader

    def _reader(self, id_: str) -> SourceReader:
        reader = self._readers.get(id_)
        if reader is None:
            raise ConfigError(f"there is no source {id_!r}{did_you_mean(id_, self._readers)}")
        return reader

    def _start_reader(self, reader: SourceReader) -> None:
        if is_unbounded(reader.config):
            self.has_live |= drops_late_frames(reader.config)
            self._thread(f"source/{reader.config.id}", lambda: self._read_source(reader))
            return
        self._files.append(reader)
        self._start_waiting()

    def _next_file(self) -> SourceReader | None:
        """The next file whose turn has come, or None. A paused file has no turn and occupies no slot."""
        if sum(not reader.paused for reader in self._running) >= self._parallel_files:
            return None
        turn = next((reader for reader in self._files if not reader.paused), None)
        if turn is not None:
            self._files.remove(turn)
            self._running.add(turn)
        return turn

    def _start_waiting(self) -> None:
        """Start threads for the files whose turn has come."""
        while (reader := self._next_file()) is not None:
            self._thread(f"source/{len(self._running) - 1}", partial(self._read_files, reader))

    def _cancel(self, reader: SourceReader) -> None:
        """Cancel a file that has not been started."""
        self._files.remove(reader)
        self._batcher.expect(-1)
        reader.finish()

    def _thread(self, name: str, run: Callable[[], None]) -> None:
        def call() -> None:
            try:
                run()
            finally:
                with self._lock:
                    self.threads.discard(threading.current_thread())

        self.threads.add(start(name, call))

    def _read_files(self, first: SourceReader) -> None:
        """Read a file, then further files as long as there is a free slot."""
        reader: SourceReader | None = first
        while reader is not None:
            if self.has_live:
                lower_priority()
            self._read_source(reader)
            with self._lock:
                self._running.remove(reader)
                reader = self._next_file()

    def _read_source(self, reader: SourceReader) -> None:
        SOURCE.set(reader.config.id)
        reader()
        heap_trimmer.count_close()
        state = reader.state
        id_ = reader.config.id
        if reader.error is not None:
            self._fail(reader.error)
        self._read(id_, state)
        self.count_removed(id_)

    # ------------------------------------------------------------------------------------------------- counting

    def count(self, frames: Sequence[Frame], ended: Iterable[str], now_s: float) -> None:
        """Count frames that reached the end of the graph, and removed sources whose last frame is among them."""
        for frame in frames:
            state: SourceState | None = frame._state.source_state
            if state is None:  # made by a stage
                continue
            state.out += 1
            state.pts_s = frame.pts_s
            state.size = (frame.width, frame.height)
            state.failed += frame.error is not None
            if frame.due_s is not None:
                if state.latency is None:
                    state.latency = Histogram()
                state.latency.add(now_s - frame.due_s)
            if state.done:
                self.count_removed(frame.source)
        for id_ in ended:
            self.count_removed(id_)

    def count_removed(self, id_: str) -> None:
        """Add the removed sources with that id whose frames are all accounted for to the totals."""
        with self._lock:
            left = []
            for state in self._open.pop(id_, ()):
                if state.removed and state.complete:
                    self.removed.add(state)
                    self._source_removed(id_)
                else:
                    left.append(state)
            if left:
                self._open[id_] = left

    def account(self) -> None:
        """Count the frames that never reached the end of the graph as dropped, once the run is over."""
        with self._lock:
            for state in [state for states in self._open.values() for state in states]:
                if (lost := state.frames - state.out - state.dropped) > 0:
                    state.drops.add(DROPPED_BY_ABORT, lost)
                if state.removed:
                    self.removed.add(state)
            self._open.clear()


def stream_numbers(sources: Iterable[SourceConfig]) -> dict[str, int]:
    """The option `stream` of the sources that set it, by id."""
    return {source.id: source.options["stream"] for source in sources if source.options.get("stream") is not None}


def ring_for(graph: Graph, source: SourceConfig) -> PacketRing | None:
    """Create the packet ring of a source that is about to open; None if no stage wants packets or it has none."""
    wanting = [node for node in graph.nodes.values() if issubclass(node.type, Sink) and node.type.spec.wants_packets]
    if not wanting or not source.type.spec.reads_packets:
        return None
    limit = max(node.type(**node.options).buffer for node in wanting)  # type: ignore[attr-defined]
    return PacketRing(tuple(node.id for node in wanting), limit_bytes=limit, guard=threading.Lock())
