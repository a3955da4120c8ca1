"""Runs an emitter: a sink whose sender has its own thread and never blocks the pipeline."""

from __future__ import annotations

import time
from typing import Any

from streamkit.core.errors import OutputError, StreamkitError, describe
from streamkit.core.stage import Sink
from streamkit.emit.emitter import Emitter
from streamkit.emit.sender import GIVEN_UP
from streamkit.emit.spool import DROPPED
from streamkit.runtime.execution.future import ThreadFuture
from streamkit.runtime.execution.sink_runner import SinkRunner

_LOOK_S = 0.02


class EmitterRunner(SinkRunner):
    """Runs an emitter: the selected records of a batch go into the spool at once, and its sender empties the spool."""

    _sending: ThreadFuture[None] | None = None

    def _instance(self, path: Any) -> Sink:
        known = self._instances.get(path)
        if known is not None:
            return known
        made = super()._instance(path)
        assert isinstance(made, Emitter)
        self._sending = ThreadFuture(made.sender.run)
        return made

    def close(self) -> None:
        """Drain the spool for as long as the broker accepts records, within `drain`; then stop the sender."""
        for sink in self._instances.values():
            assert isinstance(sink, Emitter)
            try:
                sink.flush()
            except (StreamkitError, OSError) as error:
                self._fail(error if isinstance(error, StreamkitError) else OutputError(describe(error)))
            _drain(sink)
        if self._sending is not None:
            self._sending.drop()
        super().close()
        self._tell_lost()

    def _tell_lost(self) -> None:
        """Log lost records, which are neither delivered nor in the spool; the run then ends with exit code 1."""
        lost = [f"{self.counters[name]:,} {name}" for name in (*DROPPED, *GIVEN_UP) if self.counters[name]]
        if lost:
            self.meter.troubles += 1
            self._context(self.node.id).log(f"{self.node.id} lost records: {'; '.join(lost)}")


def _drain(sink: Emitter) -> None:
    """Wait until all is sent, or nothing has been accepted for `drain`; time spent without a broker counts."""
    before, taken_s = -1, 0.0
    sender = sink.sender
    sender.draining = True
    while sink.queue.waiting:
        now_s = time.monotonic()
        if sender.delivered > before:  # what a client had held back and takes again is nothing new
            before, taken_s = sender.delivered, now_s
        failing_since_s = sender.failing_since_s
        if now_s - (taken_s if failing_since_s is None else min(taken_s, failing_since_s)) > sink.drain_timeout:
            return
        time.sleep(_LOOK_S)
