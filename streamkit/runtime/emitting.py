"""Runs an emitter: a sink whose sender has a thread of its own, for which the pipeline never waits."""

from __future__ import annotations

import time
from typing import Any

from streamkit.emit.emitter import Emitter
from streamkit.emit.sender import GIVEN_UP
from streamkit.emit.spool import DROPPED
from streamkit.errors import OutputError, StreamkitError, describe
from streamkit.runtime.background import Beside
from streamkit.runtime.sinks import SinkRunner
from streamkit.stage import Sink

_LOOK_S = 0.02


class EmitRunner(SinkRunner):
    """Runs an emitter: what is chosen of a batch goes into the spool in one go, and its sender empties that."""

    _sending: Beside[None] | None = None

    def _instance(self, path: Any) -> Sink:
        known = self._instances.get(path)
        if known is not None:
            return known
        made = super()._instance(path)
        assert isinstance(made, Emitter)
        self._sending = Beside(made.sender.run)
        return made

    def close(self) -> None:
        """Let the sender go on for a little, as long as the broker takes something; then end it."""
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
        """Records that did not arrive and are not in the spool make the run end with exit code 1."""
        lost = [f"{self.counters[name]:,} {name}" for name in (*DROPPED, *GIVEN_UP) if self.counters[name]]
        if lost:
            self.meter.troubles += 1
            self._context(self.node.id).say(f"{self.node.id} lost records: {'; '.join(lost)}")


def _drain(sink: Emitter) -> None:
    """Wait until all is sent, or nothing has been taken for `drain`: of that, a broker that is away has had a part."""
    before, taken_s = -1, 0.0
    sender = sink.sender
    sender.draining = True
    while sink.queue.waiting:
        now_s = time.monotonic()
        if sender.delivered > before:  # what a client had held back and takes again is nothing new
            before, taken_s = sender.delivered, now_s
        failing_since_s = sender.failing_since_s
        if now_s - (taken_s if failing_since_s is None else min(taken_s, failing_since_s)) > sink.drain:
            return
        time.sleep(_LOOK_S)
