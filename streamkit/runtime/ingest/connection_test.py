# SPDX-License-Identifier: Apache-2.0
"""Tests whether a source can be read: opens it beside the pipeline, for a limited time, up to its first frame."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass, field
from typing import Any

from streamkit.config.plan import SourceConfig
from streamkit.core.errors import SourceError, describe
from streamkit.core.stage import Context, RuntimeContext, Source
from streamkit.io.still_images import StillImage, jpegs
from streamkit.media.uris import mask
from streamkit.runtime.execution.future import Stopped, ThreadFuture
from streamkit.runtime.execution.iterators import closing_iterator

LIMIT_S = 15.0
"""How long a test may take, in seconds."""

_SIZE = 640
_QUALITY = 75
_OVERRIDES = {"decoders": 1, "pace": None}  # neither several threads nor a wait for the first frame


@dataclass(slots=True)
class ConnectionResult:
    """What a test has found.

    Attributes:
        cause: why the source cannot be read, one of `SourceError.CAUSES`; None if that is unknown, or it can.
        error: the same in a sentence; empty if the source can be read.
        facts: codec, width, height, fps, frames and duration_s, as far as they are known.
        image: the first frame as JPEG, at most 640 pixels wide and high; None without a frame.
        took_s: duration of the test in seconds.
    """

    cause: str | None = None
    error: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    image: bytes | None = None
    took_s: float = 0.0


class ConnectionTest:
    """A test that runs on its own thread from the beginning. It decodes on the CPU.

    Args:
        config: the source, checked.
        limit_s: how long it may take, in seconds.
    """

    def __init__(self, config: SourceConfig, limit_s: float = LIMIT_S) -> None:
        names = {option.name for option in dataclasses.fields(config.type)}  # type: ignore[arg-type]  # a stage is a dataclass
        options = {**config.options, **{name: value for name, value in _OVERRIDES.items() if name in names}}
        source = config.type(**options)
        assert isinstance(source, Source)
        self._source = source
        self._uri = str(config.options.get("uri", ""))
        self._start_s = time.monotonic()
        self._limit_s = limit_s
        source.context = Context(config.id, runtime=RuntimeContext())
        self._work = ThreadFuture(self._run, "connection test")

    @property
    def ready(self) -> bool:
        """Whether the thread has ended."""
        return self._work.ready

    @property
    def late(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() - self._start_s > self._limit_s

    def stop(self) -> None:
        """End the test soon; a thread that hangs in the name service of the system ends later."""
        self._source.stop()

    def result(self) -> ConnectionResult:
        """The result so far; that there is none in time if the thread has not ended."""
        if not self.ready:
            return self._finished(ConnectionResult("timeout", f"there is no frame within {self._limit_s:g} s"))
        return self._work.result()

    def _run(self, stopped: Stopped) -> ConnectionResult:
        facts = self._source.context.runtime.facts
        outcome = ConnectionResult()
        try:
            self._source.probe()
            self._source.open()
            try:
                outcome.image = self._first_image()
            finally:
                self._source.close()
        except SourceError as error:
            if not self.late:  # otherwise `stop` has interrupted it
                outcome.cause = error.cause
                outcome.error = self._text(str(error))
        except Exception as error:  # of a plugin's source
            outcome.error = self._text(describe(error))
        outcome.facts = dict(facts)
        if outcome.image is None and not outcome.error:
            outcome.cause = "timeout"
            outcome.error = f"there is no frame within {self._limit_s:g} s"
        return self._finished(outcome)

    def _first_image(self) -> bytes | None:
        with closing_iterator(self._source.frames()) as frames:
            for frame in frames:
                self._source.context.runtime.facts |= {"width": frame.width, "height": frame.height}
                if frame.surface is not None:
                    return jpegs([StillImage(frame.surface, (frame.width, frame.height))], _SIZE, _QUALITY)[0]
        return None

    def _finished(self, outcome: ConnectionResult) -> ConnectionResult:
        outcome.took_s = round(time.monotonic() - self._start_s, 2)
        return outcome

    def _text(self, text: str) -> str:
        return mask(text).removeprefix(mask(self._uri)).lstrip(": ")
