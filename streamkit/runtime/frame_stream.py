"""The frames of a pipeline for an iterator: a sink at the end of the graph, a bounded queue, and the run's thread."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any

from streamkit.config.graph import with_nodes
from streamkit.config.plan import Graph, Node, RunOptions
from streamkit.core.data import Device, Frame
from streamkit.core.stage import Sink
from streamkit.core.stage_spec import StageSpec
from streamkit.core.yaml_tree import YamlNode
from streamkit.runtime.execution.channel import Aborted, Channel
from streamkit.runtime.execution.future import start
from streamkit.runtime.pipeline import PipelineRun

_QUEUED_FRAMES = 16


@dataclass(eq=False)
class FrameQueueSink(Sink):
    """Puts each frame into a queue and waits while it is full. Once the iterator is closed, frames are counted only."""

    spec = StageSpec(name="frames", built_in=True)
    queue: Any

    def write(self, frame: Frame) -> None:
        """Queue the frame; its lists are copied, because the runner still counts them."""
        try:
            self.queue.put(replace(frame, tables=dict(frame.tables), events=list(frame.events)))
        except Aborted:
            self.context.counters.add("frames not read by the loop")


class FrameStream:
    """Iterator over the frames of one run, in order for each source. The run begins with the first frame that is read.

    The run ends with its sources, with `close`, at the end of a `with` block, or when the iterator is deleted.

    Args:
        graph: the graph to run; it needs at least one stage.
        device: the device to run it on.
        limit: maximum number of frames per source.

    Raises:
        StreamkitError: from `next`: the run could not start, or could not continue.
    """

    def __init__(self, graph: Graph, device: Device, *, limit: int | None = None) -> None:
        self._queue: Channel[Frame] = Channel(_QUEUED_FRAMES)
        self._pipeline = PipelineRun(_with_sink(graph, self._queue), device, limit=limit)
        self._thread: threading.Thread | None = None

    def __iter__(self) -> FrameStream:
        return self

    def __next__(self) -> Frame:
        if self._thread is None:
            pipeline, queue = self._pipeline, self._queue  # not self: the thread must not keep the iterator alive
            self._thread = start("run", lambda: _run(pipeline, queue))
        try:
            frame = self._queue.get()
        except Aborted:
            raise StopIteration from None
        except BaseException:  # the run's error, or Ctrl-C
            self.close()
            raise
        if frame is None:
            self._thread.join()
            raise StopIteration
        return frame

    def close(self) -> None:
        """Stop the run and wait until its threads have ended and its files are closed."""
        self._queue.abort()
        thread = self._thread
        if thread is None:
            self._thread = threading.current_thread()  # closed before it began
        elif thread.is_alive() and thread is not threading.current_thread():
            self._pipeline.stop()
            thread.join()

    def __enter__(self) -> FrameStream:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_thread"):
            self.close()


def _run(pipeline: PipelineRun, queue: Channel[Frame]) -> None:
    try:
        pipeline.run()
    except BaseException as error:
        queue.close(error)
    else:
        queue.close()


def _with_sink(graph: Graph, queue: Channel[Frame]) -> Graph:
    """The graph with one more sink, after all of its ends: branches are merged, so each frame comes once."""
    ends = [node.id for node in graph.ends]
    options = {"queue": queue}
    sink = Node("(loop)", FrameQueueSink, options, ends, RunOptions(), YamlNode({}, "pipeline", 0, 0))
    return with_nodes(graph, [*graph.nodes.values(), sink])
