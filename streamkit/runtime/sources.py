"""The sources of a run: those there are at the start, and those that come and go while it runs.

Each is read on a thread: live and paced sources on one of their own at once, files as many at a time as pay, of which
paused ones are none; beside cameras they are decoded on what cores these leave. What a source raises is its own
failure. None of the orders here waits for a source: one that hangs in a read is cut off from the batcher, and its
thread ends when the read does.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from streamkit.data import Frame
from streamkit.errors import ConfigError
from streamkit.messages import did_you_mean
from streamkit.plan import SourceConfig
from streamkit.runtime.background import start
from streamkit.runtime.batcher import Batcher
from streamkit.runtime.host import give_way
from streamkit.runtime.metrics import Histogram
from streamkit.runtime.reading import Make, Reading
from streamkit.runtime.start_line import StartLine
from streamkit.runtime.states import Removed, SourceState
from streamkit.spans import Spans
from streamkit.stage import Source

GIVEN_UP = "dropped: run given up"


def in_realtime(config: SourceConfig) -> SourceConfig:
    """The same source, at its own times where it is a recording that could be read faster.

    One that names a pace, or that asks for several decoders, which is for being faster than that, stays as it is.
    """
    given = config.options
    says = given.get("pace") is not None or given.get("decoders", 1) not in (1, "auto")
    if says or not getattr(config.type, "has_pace", False):
        return config
    return replace(config, options={**given, "pace": "realtime"})


def is_unbounded(config: SourceConfig) -> bool:
    """Whether a source goes on by itself: a camera, or a file that is paced."""
    made = config.type(**config.options)
    return isinstance(made, Source) and made.unbounded


class Sources:
    """All sources of a run, by id.

    Args:
        configs: those there are at the start.
        batcher: takes their frames.
        make: makes one of them.
        limit: frames per source at most.
        at_once: how many files are read at once, at most.
        read: takes each source that has given its last frame, and what became of it.
        fail: takes an error that ends the run.
        spans: gives the calling thread's place in the run's timeline.
        keep_running: the run goes on without any source, until `stop`.
        realtime: recordings play at their own times where their options do not say otherwise.

    Attributes:
        states: what is known of each; replaced, never changed, as sources come and go.
        removed: the sums of those that are gone.
    """

    def __init__(
        self, configs: Iterable[SourceConfig], batcher: Batcher, make: Make, *, limit: int | None, at_once: int,
        read: Callable[[str, SourceState], None], fail: Callable[[BaseException], None], spans: Callable[[], Spans],
        keep_running: bool = False, realtime: bool = False,
    ) -> None:  # fmt: skip
        self._realtime = realtime
        self._batcher, self._make, self._limit, self._spans = batcher, make, limit, spans
        self._at_once, self._read, self._fail, self._keep_running = at_once, read, fail, keep_running
        self._lock = threading.Lock()
        self._readings: dict[str, Reading] = {}
        self._files: deque[Reading] = deque()  # those whose turn has not come
        self._at_work: set[Reading] = set()  # and those whose turn has
        self._started = self.stopping = False
        self._cameras = keep_running  # whether there are, or may come, sources that do not wait
        # those not through yet, by id: one that was removed and its successor may both be under way
        self._open: dict[str, list[SourceState]] = {}
        self.states: dict[str, SourceState] = {}
        self.threads: set[threading.Thread] = set()
        self.removed = Removed()
        for config in configs:
            self._enter(config)

    # ------------------------------------------------------------------------------------------------ come and go

    @property
    def over(self) -> bool:
        """Whether none will give a frame any more."""
        return self.stopping or (not self._keep_running and all(state.done for state in self.states.values()))

    def start(self) -> list[threading.Thread]:
        """Begin to read; return the threads."""
        with self._lock:
            self._started = True
            if self.stopping:
                for reading in self._readings.values():
                    reading.finish()
                return []
            self._batcher.expect(len(self._readings) + self._keep_running)
            together = [reading for reading in self._readings.values() if is_unbounded(reading.config)]
            line = StartLine(len(together))
            for number, reading in enumerate(together):
                reading.start_line, reading.start_number = line, number
            for reading in sorted(self._readings.values(), key=lambda one: one.start_line is None):
                self._begin(reading)
            return list(self.threads)

    def add(self, config: SourceConfig) -> None:
        """Take in one more source.

        Raises:
            ConfigError: its id is taken, or the run is over.
        """
        with self._lock:
            self.check_free(config.id)
            if self.stopping or (self._started and not self._batcher.expect(1)):
                raise ConfigError(f"source {config.id} comes too late: the run is over")
            reading = self._enter(config)
            if self._started:
                self._begin(reading)

    def check_free(self, id_: str) -> None:
        """Raise ConfigError where a source of that id is there."""
        if id_ in self.states:
            raise ConfigError(f"there is a source {id_!r} already; remove it first, or give this another id")

    def remove(self, id_: str) -> None:
        """Take a source out; what it has handed over still goes its way. Raises ConfigError where there is none."""
        with self._lock:
            reading = self._reading(id_)
            del self._readings[id_]
            self.states = {name: state for name, state in self.states.items() if name != id_}
            reading.state.removed = True
            if not self._started:
                self._open.pop(id_, None)
            elif reading in self._files:
                self._cancel(reading)
        reading.end()
        self._leave(id_, reading.state)

    def pause(self, id_: str, paused: bool = True) -> None:
        """Pause a source, or let it go on. Raises ConfigError where there is none."""
        with self._lock:
            reading = self._reading(id_)
        reading.pause(paused)
        with self._lock:
            self._hire()  # it may have made room, or be waiting for its turn

    def stop(self) -> None:
        """End all sources."""
        with self._lock:
            if self.stopping:
                return
            self.stopping = True
            for reading in list(self._files):
                self._cancel(reading)
            readings = list(self._readings.values())
        for reading in readings:
            reading.end()
        if self._started:
            self._batcher.expect(-int(self._keep_running))

    def _enter(self, config: SourceConfig) -> Reading:
        if self._realtime:
            config = in_realtime(config)
        state = SourceState()
        made = self._readings[config.id] = Reading(config, state, self._batcher, self._make, self._limit, self._spans)
        self.states = {**self.states, config.id: state}
        self._open.setdefault(config.id, []).append(state)
        return made

    def _reading(self, id_: str) -> Reading:
        found = self._readings.get(id_)
        if found is None:
            raise ConfigError(f"there is no source {id_!r}{did_you_mean(id_, self._readings)}")
        return found

    def _begin(self, reading: Reading) -> None:
        if is_unbounded(reading.config):
            self._cameras = True
            self._thread(f"source/{reading.config.id}", lambda: self._run(reading))
            return
        self._files.append(reading)
        self._hire()

    def _next(self) -> Reading | None:
        """A file whose turn has come, if there is one. A paused one has no turn, and takes nobody's place."""
        if sum(not reading.paused for reading in self._at_work) >= self._at_once:
            return None
        found = next((reading for reading in self._files if not reading.paused), None)
        if found is not None:
            self._files.remove(found)
            self._at_work.add(found)
        return found

    def _hire(self) -> None:
        """Let threads begin with the files whose turn has come."""
        while (reading := self._next()) is not None:
            self._thread(f"source/{len(self._at_work) - 1}", partial(self._work, reading))

    def _cancel(self, reading: Reading) -> None:
        """A file whose turn has not come is not read."""
        self._files.remove(reading)
        self._batcher.expect(-1)
        reading.finish()

    def _thread(self, name: str, run: Callable[[], None]) -> None:
        def call() -> None:
            try:
                run()
            finally:
                with self._lock:
                    self.threads.discard(threading.current_thread())

        self.threads.add(start(name, call))

    def _work(self, first: Reading) -> None:
        """Read a file, and then others while it is some file's turn."""
        reading: Reading | None = first
        while reading is not None:
            if self._cameras:
                give_way()
            self._run(reading)
            with self._lock:
                self._at_work.remove(reading)
                reading = self._next()

    def _run(self, reading: Reading) -> None:
        reading()
        state, id_ = reading.state, reading.config.id
        if reading.error is not None:
            self._fail(reading.error)
        self._read(id_, state)
        self._leave(id_, state)

    # ------------------------------------------------------------------------------------------------- counting

    def count(self, frames: Sequence[Frame], ended: Iterable[str], now_s: float) -> None:
        """Frames have come to the end of the graph, and sources are through."""
        for frame in frames:
            state: SourceState | None = frame.account
            if state is None:  # made by a stage
                continue
            state.out += 1
            state.pts_s = frame.pts_s
            state.failed += frame.error is not None
            if frame.due_s is not None:
                if state.latency is None:
                    state.latency = Histogram()
                state.latency.add(now_s - frame.due_s)
            if state.done:
                self.settle(frame.source)
        for id_ in ended:
            self.settle(id_)

    def settle(self, id_: str) -> None:
        """Forget sources of that id that are through."""
        with self._lock:
            left = []
            for state in self._open.pop(id_, ()):
                if state.settled:
                    self._through(state)
                else:
                    left.append(state)
            if left:
                self._open[id_] = left

    def _leave(self, id_: str, state: SourceState) -> None:
        """A source has ended or was removed; it may have been through before."""
        self.settle(id_)
        with self._lock:
            if state.settled:
                self._through(state)

    def _through(self, state: SourceState) -> None:
        if state.removed and not state.counted:
            state.counted = True
            self.removed.add(state)

    def account(self) -> None:
        """The run is over: what was handed over and did not come to the end of the graph was dropped with it."""
        with self._lock:
            for state in [state for states in self._open.values() for state in states]:
                if (lost := state.frames - state.out - state.dropped) > 0:
                    state.drops.add(GIVEN_UP, lost)
                self._through(state)
            self._open.clear()
