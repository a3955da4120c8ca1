"""Runs an emitter: a sink whose sender has a thread of its own, for which the pipeline never waits."""

from __future__ import annotations

import time
from typing import Any

from streamkit.data import Batch
from streamkit.emit.emitter import Emitter
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

    def process(self, batch: Batch) -> Batch:
        """Choose from every frame, and write what was chosen into the spool."""
        done = super().process(batch)
        for path, sink in self._instances.items():
            if path in self._dead:
                continue
            try:
                sink.flush()  # type: ignore[attr-defined]
            except (
                OutputError,
                OSError,
            ) as error:  # raised from here, it would have the batch tried again, and sent twice
                self._dead.add(path)
                self._fail(error if isinstance(error, OutputError) else OutputError(describe(error)))
        return done

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


def _drain(sink: Emitter) -> None:
    """Wait until all is sent, as long as the broker is there and takes something."""
    before, until_s = -1, 0.0
    while sink.queue.waiting and sink.sender.hopeful:
        now_s = time.monotonic()
        if sink.queue.acknowledged != before:
            before, until_s = sink.queue.acknowledged, now_s + sink.drain
        if now_s > until_s:
            return
        time.sleep(_LOOK_S)
