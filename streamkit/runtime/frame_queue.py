# SPDX-License-Identifier: Apache-2.0
"""The queue between the end of a graph and a Python loop, and the sink that fills it."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from streamkit.config.checks.hiding import frame_ancestors, hiding
from streamkit.config.graph import with_nodes
from streamkit.config.plan import Graph, Node, RunOptions
from streamkit.core.data import Frame
from streamkit.core.errors import ConfigError
from streamkit.core.stage import Sink
from streamkit.core.stage_spec import StageSpec
from streamkit.core.yaml_tree import YamlNode

LOOP_BUSY = "frames dropped: loop busy"
NOT_READ = "frames not read by the loop"
_FRAMES = 32  # of all files
_LIVE_FRAMES = 4  # of each live source


class FrameQueue:
    """Frames that wait for a Python loop, batch by batch: waking a thread costs more than passing a frame on.

    Frames without a due time wait while the queue holds `_FRAMES` of them; then a batch is added as a whole. A live or
    paced frame never waits: it replaces the oldest of its source, and takes its events. Surfaces are not bounded in
    number (`media/surfaces.py`), so frames that the loop keeps never stop a decoder.

    Attributes:
        dropped: frames that were replaced, by source.
    """

    def __init__(self) -> None:
        self._frames: deque[Frame] = deque()
        self._of_files = 0  # queued frames without a due time
        self._live = Counter[str]()  # the others, by source
        self.dropped = Counter[str]()
        self._reader: int | None = None  # the id of the thread that reads
        lock = threading.Lock()
        self._readable = threading.Condition(lock)
        self._writable = threading.Condition(lock)
        self._error: BaseException | None = None
        self._closed = self._refuses = False

    @property
    def full(self) -> bool:
        """Whether frames of files have to wait."""
        return self._of_files >= _FRAMES

    @property
    def waits_for_caller(self) -> bool:
        """Whether the queue is full, and the calling thread is the one that reads it."""
        return self.full and self._reader == threading.get_ident()

    def put(self, frames: Sequence[Frame]) -> tuple[int, int]:
        """Add the frames of a batch; wait while the queue is full, if there are frames of files among them.

        Returns:
            How many queued frames were replaced, and how many of the batch's were refused.
        """
        live = [frame for frame in frames if frame.due_s is not None]
        of_files = frames if not live else [frame for frame in frames if frame.due_s is None]
        with self._readable:
            if self._refuses:
                return 0, len(frames)
            replaced = sum(map(self._put_live, live))
            if live:
                self._readable.notify()
            while of_files and self.full and not self._refuses:
                self._writable.wait()
            if self._refuses:
                return replaced, len(of_files)
            self._frames.extend(of_files)
            self._of_files += len(of_files)
            self._readable.notify()
        return replaced, 0

    def _put_live(self, frame: Frame) -> bool:
        """Add a live frame; return whether it has replaced one."""
        replaces = self._live[frame.source] >= _LIVE_FRAMES
        if replaces:
            self._drop_oldest(frame.source, frame)
        self._live[frame.source] += 1
        self._frames.append(frame)
        return replaces

    def _drop_oldest(self, source: str, newest: Frame) -> None:
        """Remove the oldest live frame of a source; the next one of that source takes its events."""
        live_frames = [frame for frame in self._frames if frame.source == source and frame.due_s is not None]
        heir = live_frames[1] if len(live_frames) > 1 else newest
        heir.events[:0] = live_frames[0].events
        self._frames = deque(frame for frame in self._frames if frame is not live_frames[0])
        self._live[source] -= 1
        self.dropped[source] += 1

    def get(self) -> Frame | None:
        """Wait for the next frame and take it; None at the end.

        Raises:
            BaseException: the error that the queue was closed with, after the last frame.
        """
        self._reader = threading.get_ident()
        with self._readable:
            while not self._frames and not self._closed:
                self._readable.wait()
            if not self._frames:
                if self._error is not None:
                    raise self._error
                return None
            frame = self._frames.popleft()
            if frame.due_s is not None:
                self._live[frame.source] -= 1
                return frame
            self._of_files -= 1
            if self._of_files == _FRAMES - 1:  # no longer full
                self._writable.notify_all()
            return frame

    def close(self, error: BaseException | None = None) -> None:
        """End the queue after the frames in it; the reader then gets `error`."""
        with self._readable:
            self._closed = True
            self._error = error
            self._readable.notify_all()

    def refuse(self) -> None:
        """Refuse further frames, also those that wait; queued frames can still be read."""
        with self._readable:
            self._refuses = True
            self._writable.notify_all()

    def abort(self) -> None:
        """Drop the queued frames and refuse further ones: the reader is at the end."""
        with self._readable:
            self._refuses = self._closed = True
            self._error = None
            self._frames.clear()
            self._live.clear()
            self._of_files = 0
            self._readable.notify_all()
            self._writable.notify_all()


@dataclass(eq=False)
class FrameQueueSink(Sink):
    """Puts the frames of each batch into the queue; frames that the queue refuses are only counted."""

    spec = StageSpec(name="frames", built_in=True)
    queue: Any
    _batch: list[Frame] = field(default_factory=list, init=False, repr=False)

    def write(self, frame: Frame) -> None:
        """Keep a copy of the frame for `flush`; its lists are copied, because the runner still counts them."""
        self._batch.append(frame._fork())

    def flush(self) -> None:
        """Queue the frames of the batch."""
        frames = self._batch
        self._batch = []
        replaced, refused = self.queue.put(frames)
        if replaced:
            self.context.counters.add(LOOP_BUSY, replaced)
        if refused:
            self.context.counters.add(NOT_READ, refused)


def with_frame_queue(graph: Graph, queue: FrameQueue) -> Graph:
    """The graph with one more sink, after all of its ends: branches are merged, so each frame comes once.

    A stage with several inputs takes the pixels of the first, so the branch that hides objects comes first.

    Raises:
        ConfigError: stages on different branches hide objects, so each branch shows what another hides.
    """
    hides = {node.id for node in hiding(graph)}
    passed = {node.id: hides & {node.id, *frame_ancestors(graph, node)} for node in graph.ends}
    ends = sorted(passed, key=lambda id_: -len(passed[id_]))
    if clear := hides - passed[ends[0]]:
        raise ConfigError(
            f"the frames of the loop would show what {', '.join(sorted(clear))} hides: frames come from one branch, "
            f"{ends[0]}; put the stages that hide objects one after another, or remove the blur"
        )
    options = {"queue": queue}
    sink = Node("(loop)", FrameQueueSink, options, ends, RunOptions(), YamlNode({}, "pipeline", 0, 0))
    return with_nodes(graph, [*graph.nodes.values(), sink])
