"""The sources of a run: those there are at the start, and those that come and go while it runs.

Each is read on a thread: live and paced sources on one of their own at once, files as many at a time as pay. Whatever
a source raises is its own failure. None of the orders here waits for a source: one that hangs in a read is cut off from
the batcher, and its thread ends when the read does.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import Any

from streamkit.data import Frame
from streamkit.errors import ConfigError, SourceError, describe
from streamkit.plan import SourceConfig
from streamkit.runtime.background import start
from streamkit.runtime.batcher import Batcher, Inlet
from streamkit.runtime.channel import Aborted
from streamkit.runtime.metrics import Histogram
from streamkit.runtime.states import Removed, SourceState
from streamkit.spans import Spans
from streamkit.stage import Source
from streamkit.yamlfile import did_you_mean

Make = Callable[[SourceConfig, SourceState], Source]
"""Makes a source ready to be opened."""


class Reading:
    """One source from its beginning to its end, on one thread.

    A source is paused between two frames; one that goes on without us, as cameras do, is closed meanwhile, and its
    indices and times go on rising when it is opened again.
    """

    def __init__(self, config: SourceConfig, state: SourceState, batcher: Batcher, make: Make, limit: int | None,
                 spans: Callable[[], Spans]) -> None:  # fmt: skip
        self.config, self.state = config, state
        self.error: BaseException | None = None
        self._batcher, self._make, self._limit, self._spans = batcher, make, limit, spans
        self._changed = threading.Condition()
        self._paused = self._over = False
        self._source: Source | None = None
        self._inlet: Inlet | None = None
        self._index, self._shift_s = 0, 0.0
        self._last: tuple[int, float, float] | None = None

    def __call__(self) -> None:
        """Bring the frames to the batcher until there are no more."""
        try:
            inlet = self._batcher.begin(self.config.id, self.state.drops)
        except Aborted:
            self._finish()
            return
        with self._changed:
            self._inlet = inlet
            if self._over:
                inlet.end()
        try:
            while self._may_run() and not self._read(inlet):
                pass
        except Aborted:
            pass
        except Exception as error:
            if not self._over:
                self.state.error = str(error) if isinstance(error, SourceError) else describe(error)
                self.state.tell("failed", getattr(error, "cause", None), self.state.error)
        except BaseException as error:
            self.error = error
        finally:
            self._finish()
            inlet.end()

    def end(self) -> None:
        """End it, from any thread; what it has handed over goes its way."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
            source, inlet = self._source, self._inlet
        if source is not None:
            source.stop()
        if inlet is not None:
            inlet.end()

    def pause(self, paused: bool) -> None:
        """Pause it, or go on; from any thread."""
        with self._changed:
            if paused != self._paused and not self.state.done:
                self.state.tell("paused" if paused else "connecting")
            self._paused = paused
            self._changed.notify_all()
            source = self._source
        if paused and source is not None and source.unbounded:
            source.stop()

    def _finish(self) -> None:
        self.state.done = True
        if self.state.error is None:
            self.state.tell("ended")

    def _may_run(self) -> bool:
        """Wait while it is paused; False where it is over."""
        with self._changed:
            while self._paused and not self._over:
                self._changed.wait()
            return not self._over

    def _read(self, inlet: Inlet) -> bool:
        """Open the source and read it; True at its end, False where it was paused."""
        made, state = self._make(self.config, self.state), self.state
        if self._last is not None:  # opened again: numbers and times go on
            index, pts_s, at_s = self._last
            self._index, self._shift_s = index + 1, pts_s + time.monotonic() - at_s
        with self._changed:
            self._source = made
            if self._over or self._paused:
                return self._over
        spans = self._spans()
        put = spans.call("wait for the batcher", inlet.put, waiting=True)
        made.open()
        try:
            frames: Any = spans.each("decode", made.frames(), about={"source": self.config.id})
            with closing(frames) if hasattr(frames, "close") else _nothing():
                for frame in frames:
                    if self._paused and (made.unbounded or not self._may_run()):
                        return self._over
                    if self._over or (self._limit is not None and state.frames >= self._limit):
                        return True
                    if state.frames == 0 or state.state == "connecting":
                        self._first(frame)
                    if self._index:
                        frame.index, frame.pts_s = frame.index + self._index, frame.pts_s + self._shift_s
                    self._last = frame.index, frame.pts_s, time.monotonic()
                    put(frame)
                    state.frames += 1
                    del frame
                    if state.frames == self._limit:
                        return True
        finally:
            self._source = None
            made.close()
        return not self._paused or self._over

    def _first(self, frame: Frame) -> None:
        self.state.live = frame.due_s is not None
        if self.state.state == "connecting":
            self.state.tell("running")


class Sources:
    """All sources of a run, by id.

    Args:
        configs: those there are at the start.
        batcher: takes their frames.
        make: makes one of them.
        limit: frames per source at most.
        at_once: how many files are read at once, at most.
        say: takes messages for the user.
        fail: takes an error that ends the run.
        spans: gives the calling thread's place in the run's timeline.
        keep_running: the run goes on without any source, until `stop`.

    Attributes:
        states: what is known of each; replaced, never changed, as sources come and go.
        removed: the sums of those that are gone.
    """

    def __init__(
        self, configs: Iterable[SourceConfig], batcher: Batcher, make: Make, *, limit: int | None, at_once: int,
        say: Callable[[str], None], fail: Callable[[BaseException], None], spans: Callable[[], Spans],
        keep_running: bool = False,
    ) -> None:  # fmt: skip
        self._batcher, self._make, self._limit, self._spans = batcher, make, limit, spans
        self._at_once, self._say, self._fail, self._keep_running = at_once, say, fail, keep_running
        self._lock = threading.Lock()
        self._readings: dict[str, Reading] = {}
        self._files: deque[Reading] = deque()
        self._workers = 0
        self._started = self.stopping = False
        self._counting: dict[str, deque[SourceState]] = {}
        self.states: dict[str, SourceState] = {}
        self.threads: set[threading.Thread] = set()
        self.removed = Removed()
        for config in configs:
            self._enter(config)

    # ------------------------------------------------------------------------------------------------ come and go

    def start(self) -> list[threading.Thread]:
        """Begin to read; return the threads."""
        with self._lock:
            self._started = True
            self._batcher.expect(len(self._readings) + self._keep_running)
            for reading in self._readings.values():
                self._begin(reading)
            return list(self.threads)

    def add(self, config: SourceConfig) -> None:
        """Take in one more source.

        Raises:
            ConfigError: its id is taken, or the run is over.
        """
        with self._lock:
            if config.id in self.states:
                raise ConfigError(f"there is a source {config.id!r} already; remove it first, or give this another id")
            if self.stopping or (self._started and not self._batcher.expect(1)):
                raise ConfigError(f"source {config.id} comes too late: the run is over")
            reading = self._enter(config)
            if self._started:
                self._begin(reading)

    def remove(self, id_: str) -> None:
        """Take a source out; what it has handed over still goes its way. Raises ConfigError where there is none."""
        with self._lock:
            reading = self._reading(id_)
            del self._readings[id_]
            self.states = {name: state for name, state in self.states.items() if name != id_}
            reading.state.removed = True
            if not self._started:
                self._counting.pop(id_, None)
            elif reading in self._files:
                self._cancel(reading)
        reading.end()
        self.settle(id_, reading.state)

    def pause(self, id_: str, paused: bool = True) -> None:
        """Pause a source, or let it go on. Raises ConfigError where there is none."""
        with self._lock:
            reading = self._reading(id_)
        reading.pause(paused)

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
        state = SourceState()
        made = self._readings[config.id] = Reading(config, state, self._batcher, self._make, self._limit, self._spans)
        self.states = {**self.states, config.id: state}
        self._counting.setdefault(config.id, deque()).append(state)
        return made

    def _reading(self, id_: str) -> Reading:
        found = self._readings.get(id_)
        if found is None:
            raise ConfigError(f"there is no source {id_!r}{did_you_mean(id_, self._readings)}")
        return found

    def _begin(self, reading: Reading) -> None:
        made = reading.config.type(**reading.config.options)
        if isinstance(made, Source) and made.unbounded:
            self._thread(f"source/{reading.config.id}", lambda: self._run(reading))
            return
        self._files.append(reading)
        if self._workers < self._at_once:
            self._workers += 1
            self._thread(f"source/{self._workers - 1}", self._work)

    def _cancel(self, reading: Reading) -> None:
        """A file whose turn has not come is not read."""
        self._files.remove(reading)
        self._batcher.expect(-1)
        reading.state.done = True
        reading.state.tell("ended")

    def _thread(self, name: str, run: Callable[[], None]) -> None:
        def call() -> None:
            try:
                run()
            finally:
                with self._lock:
                    self.threads.discard(threading.current_thread())

        self.threads.add(start(name, call))

    def _work(self) -> None:
        """Read files until none is left."""
        while True:
            with self._lock:
                if not self._files:
                    self._workers -= 1
                    return
                reading = self._files.popleft()
            self._run(reading)

    def _run(self, reading: Reading) -> None:
        reading()
        state, id_ = reading.state, reading.config.id
        if reading.error is not None:
            self._fail(reading.error)
        elif state.error is not None:
            self._say(f"source {id_} failed: {state.error}")
        self.settle(id_, state)

    # ------------------------------------------------------------------------------------------------- counting

    def count(self, frames: Sequence[Frame], ended: Iterable[str], now_s: float) -> None:
        """Frames have come to the end of the graph, and sources are through."""
        for frame in frames:
            state = self._counting[frame.source][0]
            state.out += 1
            if frame.due_s is not None:
                if state.latency is None:
                    state.latency = Histogram()
                state.latency.add(now_s - frame.due_s)
        for id_ in ended:
            self.settle(id_)

    def settle(self, id_: str, state: SourceState | None = None) -> None:
        """Forget a source that is through, and add up one that was removed; `state` is one that may be so now."""
        with self._lock:
            line = self._counting.get(id_)
            while line and line[0].settled:
                self._through(line.popleft())
            if line is not None and not line:
                del self._counting[id_]
            if state is not None and state.settled:
                self._through(state)

    def _through(self, state: SourceState) -> None:
        if state.removed and not state.counted:
            state.counted = True
            self.removed.add(state)

    def account(self) -> None:
        """The run is over: what was handed over and did not come to the end of the graph was dropped with it."""
        with self._lock:
            for state in {id(s): s for s in [*self.states.values(), *(s for d in self._counting.values() for s in d)]}.values():
                if (lost := state.frames - state.out - state.dropped) > 0:
                    state.drops.add(GIVEN_UP, lost)
