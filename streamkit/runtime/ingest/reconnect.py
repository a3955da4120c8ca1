# SPDX-License-Identifier: Apache-2.0
"""Reconnects a live source when it fails, ends or hangs; retries indefinitely by default.

Indices and times of frames keep rising over all connections, so later stages see one source with a gap.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Iterator

from streamkit.config.plan import DECODE
from streamkit.core.data import Event, Frame
from streamkit.core.errors import SourceError
from streamkit.core.retry import Retry
from streamkit.core.stage import Source
from streamkit.core.text import at_now, text_of
from streamkit.core.tracing import record_operation
from streamkit.media.freeze_detection import FreezeDetector
from streamkit.runtime.execution.host import heap_trimmer
from streamkit.runtime.execution.iterators import closing_iterator

logger = logging.getLogger(__name__)

RECONNECTED = "reconnected"
"""Kind of the event on the first frame after a gap; its data has `cause` and the duration `away_s`."""

_FIRST_WAIT_S = 0.25
_SHORTEST_STEP_S = 1e-3
_BURST = 6  # messages of one source in a row
_REFILL_S = 600.0  # then one message per interval


class ReconnectingSource(Source):
    """A source that reconnects. Opening is a part of `frames`, so that it also waits for a peer that is not yet there.

    Args:
        inner: the source; it must allow opening after a close.
        retry: when to retry, and for how long.
    """

    def __init__(self, inner: Source, retry: Retry) -> None:
        self._inner = inner
        self._retry = retry
        self._stopped = threading.Event()
        self._freeze_detector = None if retry.frozen_s is None else FreezeDetector(retry.frozen_s)
        self._last: tuple[int, float] | None = None  # index and time of the last frame
        self._last_s = 0.0  # when it arrived, or when the next was requested, on the monotonic clock
        self._held_s = 0.0  # total time for which the reader held frames, as in a pause
        self._live = False  # whether it was a frame of a live source
        # added to indices and times of frames
        self._index = 0
        self._shift_s = 0.0
        self._failed = 0  # consecutive connections without a frame
        self._level = 0  # of the back-off
        self._since_s: float | None = None  # when the last connection was lost, on the monotonic clock
        self._cause: str | None = None
        self._logged = False
        self._opened_s = 0.0  # when the last connection was attempted, on the monotonic clock
        self._limiter = _MessageLimiter()

    @property
    def unbounded(self) -> bool:
        """See `Source.unbounded`."""
        return self._inner.unbounded

    def stop(self) -> None:
        """See `Source.stop`: also ends the wait for the peer and the wait before a retry."""
        self._stopped.set()
        self._inner.stop()

    def frames(self) -> Iterator[Frame]:
        """Yield the frames of all connections; indices and times keep rising.

        Raises:
            SourceError: the source failed and must not be retried, or the retries are exhausted.
        """
        self._inner.context = self.context
        self.context.runtime.report_status("connecting", None, "")
        start_s = time.monotonic()
        while not self._stopped.is_set():
            self._opened_s = time.monotonic()
            before = self._last
            try:
                yield from self._connection()
                if self._stopped.is_set() or not self._live:
                    return
                raise SourceError("the stream ended", cause="lost")
            except SourceError as error:
                if self._stopped.is_set():
                    return
                if not self._should_retry(error, self._last is not before, self._opened_s, self._last_s or start_s):
                    raise
            self._stopped.wait(self._backoff_s())

    # ------------------------------------------------------------------------------------------------- a connection

    def _connection(self) -> Iterator[Frame]:
        """Yield the frames of one connection."""
        inner = self._inner
        first = True
        inner.open()
        try:
            with closing_iterator(inner.frames()) as frames:
                for frame in frames:
                    if first:
                        if self._live and frame.time_s is None and not self._retry.files:
                            self._live = False  # the live stream has become a recording: it has ended
                            return
                        self._begin(frame)
                        first = False
                    frame.index += self._index
                    frame.pts_s += self._shift_s
                    self._last_s = time.monotonic()
                    self._last = frame.index, frame.pts_s
                    self._live = frame.time_s is not None
                    self._check_frozen(frame)
                    yield frame
                    resumed_s = time.monotonic()
                    self._held_s = self._held_s + resumed_s - self._last_s
                    self._last_s = resumed_s
        finally:
            inner.close()
            heap_trimmer.count_close()

    def _begin(self, frame: Frame) -> None:
        """Continue indices and times with the first frame of a connection, and report the gap."""
        self._record_attempt()
        if self._last is not None:
            self._index = self._last[0] + 1 - frame.index
            self._shift_s = self._next_s() - frame.pts_s
        if self._freeze_detector is not None:
            self._freeze_detector.reset()
        self.context.runtime.report_status("running", None, "")
        if self._since_s is not None:
            away_s = time.monotonic() - self._since_s
            self.context.counters.add("reconnects")
            self.context.counters.add(f"reconnects: {self._cause or 'failed'}")
            about = {"cause": self._cause, "away_s": round(away_s, 3)}
            place = frame.source, frame.index + self._index, frame.pts_s + self._shift_s
            frame.events.append(Event(RECONNECTED, DECODE, *place, data=about))
            if self._logged:
                self._log(logging.INFO, f"is back {at_now()}, after {away_s:.1f} s", always=True)
        self._since_s = None

    def _next_s(self) -> float:
        """A presentation time for a frame that comes now."""
        assert self._last is not None
        return self._last[1] + max(time.monotonic() - self._last_s, _SHORTEST_STEP_S)

    def _check_frozen(self, frame: Frame) -> None:
        """Raise SourceError if the image has not changed for too long; pauses do not count."""
        if self._freeze_detector is None or frame.surface is None or frame.due_s is None:
            return
        if self._freeze_detector(frame.surface, self._last_s - self._held_s):
            raise SourceError(f"the image has not changed for {self._retry.frozen_s:g} s or more", cause="frozen")

    # -------------------------------------------------------------------------------------------------- between two

    def _should_retry(self, error: SourceError, had_frames: bool, opened_s: float, seen_s: float) -> bool:
        """Whether to retry after this error; logs and counts it."""
        retry = self._retry
        now_s = time.monotonic()
        if not had_frames:
            self._record_attempt(error)
        # a first failure without a known cause, such as an unknown protocol, is permanent
        if not (retry.files or self._live or (self._last is None and retry.first and error.cause)):
            return False
        if had_frames:
            self._failed = 0
            self._level = 0 if now_s - opened_s > retry.max_wait_s else self._level
        else:
            self._failed += 1
            self.context.counters.add("connection attempts failed")
        limit_reached = None
        if retry.attempts is not None and self._failed >= retry.attempts:
            limit_reached = f"after {self._failed} attempts"
        elif retry.give_up_s is not None and now_s - seen_s >= retry.give_up_s:
            limit_reached = f"after {now_s - seen_s:.0f} s without a frame"
        if limit_reached is not None:
            raise SourceError(f"{text_of(error)}; given up {limit_reached}", cause=error.cause) from error
        if had_frames or error.cause != self._cause or self._since_s is None:
            what = "cannot be reached" if self._last is None else "is lost" if had_frames else "is still away"
            reason = f" ({error.cause})" if error.cause else ""
            text = f"{what} {at_now()}{reason}: {text_of(error)}; trying again"
            self._logged = self._log(logging.WARNING, text) or (self._logged and not had_frames)
        self._cause = error.cause
        self._since_s = now_s if self._since_s is None else self._since_s
        self.context.runtime.report_status("reconnecting", error.cause, text_of(error))
        return True

    def _record_attempt(self, error: SourceError | None = None) -> None:
        """Record the attempt to connect that ends now, with the first frame or with an error."""
        about = {"streamkit.source": self.context.id}
        if error is not None and error.cause:
            about["error.type"] = error.cause
        name = "connect source" if self._since_s is None else "reconnect source"
        record_operation(name, self._opened_s, about, "" if error is None else text_of(error))

    def _backoff_s(self) -> float:
        """Seconds to wait before the next retry: exponential back-off with jitter, so that retries are not in step."""
        longest_s = min(self._retry.max_wait_s, _FIRST_WAIT_S * 2**self._level)
        self._level = min(self._level + 1, 30)
        return random.uniform(longest_s / 2, longest_s)

    def _log(self, level: int, text: str, *, always: bool = False) -> bool:
        """Log a message about the source unless too many were logged; return whether it was."""
        left_out = self._limiter(always)
        if left_out is None:
            return False
        more = f" ({left_out} similar messages suppressed)" if left_out else ""
        logger.log(level, f"source {self.context.id} {text}{more}")
        return True


class _MessageLimiter:
    """Rate limit for messages: a short burst, then one now and then; a flapping source does not fill the log."""

    def __init__(self) -> None:
        self._left = float(_BURST)
        self._filled_s = time.monotonic()
        self._left_out = 0

    def __call__(self, always: bool) -> int | None:
        """Number of messages omitted before this one; None if this one is omitted too."""
        now_s = time.monotonic()
        self._left = min(_BURST, self._left + (now_s - self._filled_s) / _REFILL_S)
        self._filled_s = now_s
        if not always and self._left < 1:
            self._left_out += 1
            return None
        self._left -= 0 if always else 1
        left_out = self._left_out
        self._left_out = 0
        return left_out


def reconnecting(source: Source) -> Source:
    """Wrap a source that declares a retry policy, so that it reconnects."""
    retry = source.retry
    return source if retry is None else ReconnectingSource(source, retry)
