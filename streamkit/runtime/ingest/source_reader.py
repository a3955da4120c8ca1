# SPDX-License-Identifier: Apache-2.0
"""Reads one source from start to end on one thread; other threads may pause or end it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from streamkit.config.plan import DECODE, SourceConfig
from streamkit.core.data import Event, Frame
from streamkit.core.errors import SourceError, describe
from streamkit.core.stage import Source
from streamkit.core.text import text_of
from streamkit.core.timeline import LastFrame
from streamkit.core.tracing import Spans, record_operation
from streamkit.media.live_clock import JUMPS, LONGEST_LEAP_S
from streamkit.runtime.execution.channel import Aborted
from streamkit.runtime.execution.device import lost_device
from streamkit.runtime.execution.iterators import closing_iterator
from streamkit.runtime.ingest.batcher import Batcher, Inlet
from streamkit.runtime.ingest.last_frames import LastFrames
from streamkit.runtime.ingest.push_source import PushedFrames
from streamkit.runtime.ingest.reconnect import ReconnectingSource
from streamkit.runtime.ingest.source_status import SourceState

logger = logging.getLogger(__name__)

RESIZED = "resized"

Status = Callable[[str, str | None, str], None]
Make = Callable[[SourceConfig, SourceState, Status], Source]
"""Creates a source that is ready to be opened and reports its status to the last argument."""
WaitForResults = Callable[[str, SourceState, Callable[[], bool]], None]
"""Waits for late results about a source, with its state; the last argument returns whether to end the wait."""


class SourceReader:
    """Reads one source from start to end on one thread.

    A source is paused between two frames. A source that continues without a reader, such as a camera, is closed during
    the pause; indices and times continue to rise after it is opened again. Any other source holds one frame during the
    pause and delays its due time by the length of the pause; `Pacer.absorb_delay` delays later frames in the same way.

    Args:
        wait_for_results: called before the last frame of a source that is read at full speed; None if no stage has
            late results.

    Attributes:
        paused: whether the source is paused.
        start_line: barrier at which a paced source waits with its first frame; None for none.
        start_number: the source's index among those that start together.
    """

    def __init__(
        self,
        config: SourceConfig,
        state: SourceState,
        batcher: Batcher,
        make: Make,
        limit: int | None,
        spans: Callable[[], Spans],
        wait_for_results: WaitForResults | None = None,
    ) -> None:
        self.config = config
        self.state = state
        self._wait_for_results = wait_for_results
        self.error: BaseException | None = None
        self._batcher = batcher
        self._make = make
        self._limit = limit
        self._spans = spans
        self._changed = threading.Condition()
        self.paused = self._over = False
        self._stopped_by_pause = False  # whether a pause stopped the source; the pause may end before the source does
        self._can_hold = False  # whether it can hold a frame during a pause; known from the first frame
        self.start_line: SynchronizedStart | None = None
        self.start_number = 0
        self._source: Source | None = None
        self._inlet: Inlet | None = None
        # added to indices and times after the source was opened again
        self._index = 0
        self._shift_s = 0.0
        self._last: LastFrame | None = None
        self._size: tuple[int, int] | None = None  # of the last frame
        self._resized = False

    def continue_from(self, last: LastFrame) -> None:
        """Continue the indices and times after the last frame that another process has read. Call it before the run."""
        self._last = last
        self.state.shape_size = last.shape_size

    def __call__(self) -> None:
        """Pass frames to the batcher until the source ends."""
        self.state.started = True
        try:
            inlet = self._batcher.begin(self.config.id, self.state.drops)
        except Aborted:
            self.finish()
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
            self.error = lost_device(error)
            if not self._over:
                self.state.raised = error
                self.state.error = text_of(error) if isinstance(error, SourceError) else describe(error)
                self.state.set_state("failed", getattr(error, "cause", None), self.state.error)
        except BaseException as error:
            self.error = error
        finally:
            self.finish()
            inlet.end()

    def end(self) -> None:
        """End the source, from any thread; frames already passed on stay in the graph."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
            source = self._source
            inlet = self._inlet
        if source is not None:
            source.stop()
        if inlet is not None:
            inlet.end()

    def refuse(self, why: str) -> None:
        """Let the source fail without reading it; call it before the run."""
        self._over = True
        self.state.error = why
        self.state.done = True
        self.state.set_state("failed", "codec", why)

    def pause(self, paused: bool) -> None:
        """Pause or resume the source, from any thread."""
        with self._changed:
            if paused != self.paused and not self.state.done:
                self.state.set_state("paused" if paused else "connecting")
            self.paused = paused
            self._changed.notify_all()
            source = self._source if paused and not self._can_hold else None
            self._stopped_by_pause |= source is not None
        if source is not None:
            source.stop()

    def _set_state(self, state: str, cause: str | None = None, message: str = "") -> None:
        """Take a status from the source, unless it is paused or over: those states take precedence."""
        if state == "reconnecting":  # other sources do not wait for a camera that cannot be reached
            self._arrive()
        if not self.paused and not self._over:
            self.state.set_state(state, cause, message)

    def finish(self) -> None:
        """Mark the source as ended."""
        self._arrive()
        self.state.done = True
        if self.state.error is None:
            self.state.set_state("ended")

    def _may_run(self) -> bool:
        """Wait while the source is paused; return False if it is over."""
        with self._changed:
            while self.paused and not self._over:
                self._changed.wait()
            return not self._over

    def _read(self, inlet: Inlet) -> bool:
        """Open and read the source; return False if it was stopped before its end, and may be opened again."""
        source = self._make(self.config, self.state, self._set_state)
        state = self.state
        again = self._last is not None
        id_ = self.config.id
        first = True
        if not self._may_open(source):
            return False
        spans = self._spans()
        packets = source.context.runtime.packet_buffer
        put = spans.call("wait for the batcher", inlet.put, waiting=True)
        last = self._last_frames(source, inlet, put)
        held = () if last is None else last.held
        limited = self._limit is not None
        opened_s = time.monotonic()
        source.open()
        try:
            with closing_iterator(spans.each("decode", source.frames(), about={"source": id_})) as frames:
                for frame in frames:
                    if not isinstance(frame, Frame) or frame.source != id_ or frame._state.source_state is not None:
                        raise self._invalid_frame(frame)
                    if first:
                        first = False
                        self._has_opened(source, frame, opened_s)
                    if self.paused or self._stopped_by_pause:
                        if last is not None:
                            last.release()
                        if not self._hold(frame):
                            return False
                    live = frame.due_s is not None
                    if self._over or (limited and self._has_reached_limit(inlet, live, len(held))):
                        return True
                    if state.frames == 0 or state.state == "connecting":
                        self._first(frame)
                    if again:
                        again = False
                        self._continue_from_last(frame)
                    if frame.time_s is not None and not isinstance(source, PushedFrames) and self._jumps(frame):
                        source.context.counters.add(JUMPS)
                    frame.index += self._index
                    frame.pts_s += self._shift_s
                    if (frame.width, frame.height) == self._size and frame._state.shape_size is None:
                        frame._state.shape_size = state.shape_size
                    else:
                        self._relate_shapes(frame)
                    position = frame.index, frame.pts_s, time.monotonic(), state.shape_size
                    self._last = state.last = tuple.__new__(LastFrame, position)  # without a call in Python
                    if packets is not None:
                        packets.passed(frame.pts_s)
                    frame._state.source_state = state
                    if last is None:
                        put(frame)
                        state.frames += 1
                    else:
                        last.put(frame)
                    del frame
                    if limited and self._has_reached_limit(inlet, live, len(held)):
                        if last is not None:
                            last.finish()
                        return True
                if last is not None:
                    last.release() if self._stopped_by_pause else last.finish()
        except Exception as error:  # the frames before it are passed on
            if last is not None:
                last.finish() if isinstance(error, SourceError) else last.release()
            raise
        finally:
            self._source = None
            source.close()
        return not self._stopped_by_pause

    def _may_open(self, source: Source) -> bool:
        with self._changed:
            self._source = source
            self._stopped_by_pause = False
            self._can_hold = not source.unbounded
            return not (self._over or self.paused)

    def _last_frames(self, source: Source, inlet: Inlet, put: Callable[[Frame], None]) -> LastFrames | None:
        """What holds back the last frames, passes them on and counts them; None if there is nothing to wait for."""
        state = self.state
        wait_for_results = self._wait_for_results
        if wait_for_results is None or source.unbounded:
            return None

        def count(frame: Frame) -> None:
            put(frame)
            state.frames += 1

        def wait() -> None:
            inlet.flush()
            wait_for_results(self.config.id, state, lambda: self._over)

        return LastFrames(count, wait)

    def _has_opened(self, source: Source, frame: Frame, opened_s: float) -> None:
        """Note when the source began to open, and wait with its first frame until it is due."""
        if not isinstance(source, ReconnectingSource):  # which records every attempt
            record_operation("open source", opened_s, {"streamkit.source": self.config.id})
        with self._changed:
            self._can_hold |= frame.time_s is None
        self._wait_at_start(frame)

    def _has_reached_limit(self, inlet: Inlet, live: bool, held: int) -> bool:
        """Whether the source has passed on as many frames as `limit` allows; dropped frames do not count.

        Frames of a live source may still be dropped while they wait for a batch. Once those that wait would reach the
        limit, this waits until they have left.
        """
        assert self._limit is not None
        if not live:
            return self.state.frames + held >= self._limit
        return inlet.accepted >= self._limit and inlet.wait_until_empty() >= self._limit

    def _hold(self, frame: Frame) -> bool:
        """Hold a frame until the pause is over; return False if the source must be closed instead."""
        if self._stopped_by_pause or not self._can_hold:
            return False
        start_s = time.monotonic()
        goes_on = self._may_run()
        if frame.due_s is not None:
            frame.due_s += time.monotonic() - start_s
        return goes_on

    def _wait_at_start(self, frame: Frame) -> None:
        """Wait at the start barrier with the first frame of a paced source."""
        line = self._arrive()
        if line is not None and frame.due_s is not None and frame.time_s is None:
            frame.due_s += line.wait(self.start_number, lambda: self._over or self.paused)

    def _arrive(self) -> SynchronizedStart | None:
        """Count the source at its start barrier; return the barrier on the first call, None afterwards."""
        line = self.start_line
        self.start_line = None
        if line is not None:
            line.arrive()
        return line

    def _invalid_frame(self, frame: Any) -> SourceError:
        """The error for a value that the source must not yield."""
        name = self.config.type.name
        if not isinstance(frame, Frame):
            what = f"{type(frame).__name__}, not a Frame; yield a Frame for each image"
        elif frame.source != self.config.id:
            what = f"a frame of the source {frame.source!r}; create each frame as Frame(self.context.id, ...)"
        else:
            what = "the same Frame twice; yield a new Frame for each image"
        return SourceError(f"{name} yields {what}")

    def _first(self, frame: Frame) -> None:
        self.state.live = frame.due_s is not None
        if self.state.state == "connecting":
            self._set_state("running")

    def _jumps(self, frame: Frame) -> bool:
        """Whether the time of a live source has jumped; times continue by the clock then.

        Times of addresses do not jump here, as `media/live_clock.py` has corrected them; those of plugins may. A
        program that pushes frames decides on their times itself.
        """
        if self._last is None:
            return False
        next_pts_s = self._last.pts_s + max(time.monotonic() - self._last.read_s, _SHORTEST_STEP_S)
        pts_s = frame.pts_s + self._shift_s
        if self._last.pts_s < pts_s <= next_pts_s + LONGEST_LEAP_S:
            return False
        self._shift_s += next_pts_s - pts_s
        return True

    def _continue_from_last(self, frame: Frame) -> None:
        """Continue indices and times from the last frame before the source was opened again."""
        last = self._last
        assert last is not None
        self._index = last.number + 1 - frame.index
        self._shift_s = last.pts_at(time.monotonic()) - frame.pts_s

    def _relate_shapes(self, frame: Frame) -> None:
        """Relate shapes in pixels to the source's first frame; emit `resized` where the size changes."""
        if frame.error is not None or frame._state.shape_size is not None:
            return
        size = (frame.width, frame.height)
        state = self.state
        before = self._size or state.shape_size
        self._size = size
        if state.shape_size is None:
            state.shape_size = size
        frame._state.shape_size = state.shape_size
        if before is None or before == size:
            return
        data = {"width": size[0], "height": size[1], "before": {"width": before[0], "height": before[1]}}
        frame.events.append(Event(RESIZED, DECODE, frame.source, frame.index, frame.pts_s, data=data))
        if not self._resized:
            logger.warning(
                f"{frame.source} is {size[0]}x{size[1]} from {frame.pts_s:.2f} s on, before {before[0]}x{before[1]}: "
                f"zones, lines and other shapes in pixels belong to its first frame, "
                f"{state.shape_size[0]}x{state.shape_size[1]}, and are scaled with the picture"
            )
        self._resized = True


_SHORTEST_STEP_S = 1e-3
_PATIENCE_S = 1.0
_OF_A_SOURCE_S = 0.3  # a decoder takes 60 to 75 ms to its first frame; those of all processes come one after the other
_APART_S = 0.01
_POLL_S = 0.05
_HELD_POLL_S = 0.25


class SynchronizedStart:
    """Start barrier for sources that begin together.

    Args:
        patience_s: how long the first source waits for the last after the release, in seconds; by default, it grows
            with their number.
    """

    def __init__(self, patience_s: float | None = None) -> None:
        self._left = self._sources = 0
        self._patience_s = patience_s
        self._until_s: float | None = None  # None: not released
        self._changed = threading.Condition()

    def join(self) -> int:
        """Add a source, which calls `arrive` once: when it has its first frame, cannot be reached, or has ended.

        Returns:
            Its number, from 0.
        """
        with self._changed:
            self._left += 1
            self._sources += 1
            return self._sources - 1

    def release(self) -> None:
        """Let the sources begin as soon as all have arrived."""
        with self._changed:
            self._until_s = time.monotonic() + self._allowed_s()
            self._changed.notify_all()

    def arrive(self) -> None:
        """Count one source as ready."""
        with self._changed:
            self._left -= 1
            if self._left == 0:
                self._changed.notify_all()

    def wait(self, number: int, over: Callable[[], bool]) -> float:
        """Wait for the release and the other sources, then for this source's turn; return the seconds waited.

        Args:
            number: the source's number.
            over: polled during the wait; True ends it.
        """
        start_s = time.monotonic()
        with self._changed:
            while self._until_s is None and not over():
                self._changed.wait(_HELD_POLL_S)
            while self._left > 0 and not over() and (left_s := self._end_s() - time.monotonic()) > 0:
                self._changed.wait(min(left_s, _POLL_S))
            turn_s = time.monotonic() + number * _APART_S
            while not over() and (left_s := turn_s - time.monotonic()) > 0:
                self._changed.wait(min(left_s, _POLL_S))
        return time.monotonic() - start_s

    def _allowed_s(self) -> float:
        return _PATIENCE_S + self._sources * _OF_A_SOURCE_S if self._patience_s is None else self._patience_s

    def _end_s(self) -> float:
        return 0.0 if self._until_s is None else self._until_s
