# SPDX-License-Identifier: Apache-2.0
"""The frames of a run, for a Python loop."""

from __future__ import annotations

from typing import Any

from streamkit.core.data import Frame
from streamkit.core.errors import SourceError
from streamkit.runtime.frame_queue import FrameQueue
from streamkit.runtime.observe.run_stats import PipelineStats, snapshot
from streamkit.runtime.run_thread import RunThread


class FrameStream:
    """Iterator over the frames of one run, in order for each source. The run begins with the first frame that is read.

    Files wait for the loop. Frames of live and paced sources that come while the loop is busy are dropped and counted;
    their events move to the next frame of the source. The run ends with its sources, with `close`, at the end of a
    `with` block, or when the iterator is deleted.

    Args:
        thread: the run.
        queue: the queue that its frames come through.

    Raises:
        StreamkitError: from `next`: the run could not start, or could not continue.
        SourceError: from `next`: every source has failed, after the last frame. If some have, see `errors`.
    """

    def __init__(self, thread: RunThread, queue: FrameQueue) -> None:
        self._thread = thread
        self._queue = queue
        self._over = False

    def __iter__(self) -> FrameStream:
        return self

    def __next__(self) -> Frame:
        if self._over:
            raise StopIteration
        try:
            self._thread.begin()
            frame = self._queue.get()
        except BaseException:  # the run's error, or Ctrl-C
            self.close()
            raise
        if frame is None:
            self._over = True
            self._thread.close()  # the run has ended, or closes its last files
            raise StopIteration
        return frame

    @property
    def ended(self) -> bool:
        """Whether no frame will follow."""
        return self._over

    @property
    def errors(self) -> dict[str, SourceError]:
        """The sources that have failed so far, by id, each with its error."""
        return self._thread.errors

    @property
    def report(self) -> dict[str, Any]:
        """The report, as `run --report` writes it; until the end, that of the run so far."""
        return self._thread.report

    @property
    def stats(self) -> PipelineStats:
        """A snapshot of the run: frames, rates, drops and errors of each source, times of each stage."""
        return snapshot(self._thread.run)

    def close(self) -> None:
        """Stop the run, and wait until its threads have ended and its files are closed.

        Ctrl-C meanwhile drops the frames in flight; once more, it leaves the threads to end on their own.
        """
        self._over = True
        self._thread.close()

    def __repr__(self) -> str:
        thread = self._thread
        state = "ended" if self._over or thread.ended else "running" if thread.started else "not started"
        return f"FrameStream({', '.join(thread.run.states)}; {state} on {thread.run.device})"

    def __enter__(self) -> FrameStream:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
