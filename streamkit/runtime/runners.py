"""The runner for each kind of stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streamkit.emit.emitter import Emitter
from streamkit.plan import Node
from streamkit.runtime.aside import AsideRunner
from streamkit.runtime.emitting import EmitRunner
from streamkit.runtime.nodes import BatchRunner, FrameRunner, MakeContext, Runner, StreamRunner
from streamkit.runtime.sinks import SinkRunner
from streamkit.stage import BatchStage, FrameStage, Sink, StreamStage


def runner(node: Node, context: MakeContext, fail: Callable[[BaseException], None], sources: Sequence[str]) -> Runner:
    """The runner for a node's kind."""
    if issubclass(node.type, Sink) and node.type.may_drop:
        return AsideRunner(node, context, fail, sources)
    if issubclass(node.type, Emitter):
        return EmitRunner(node, context, fail, sources)
    if issubclass(node.type, Sink):
        return SinkRunner(node, context, fail, sources)
    for kind, made in ((BatchStage, BatchRunner), (StreamStage, StreamRunner), (FrameStage, FrameRunner)):
        if issubclass(node.type, kind):
            return made(node, context, fail)
    raise TypeError(f"{node.id}: a stage of kind {node.type.__name__} cannot stand under stages")
