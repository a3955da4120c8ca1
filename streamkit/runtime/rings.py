"""Where the packets of a source are kept, for the stages of a graph that write them out."""

from __future__ import annotations

import threading

from streamkit.media.ring import Ring
from streamkit.plan import Graph, SourceConfig
from streamkit.stage import Sink


def ring_for(graph: Graph, source: SourceConfig) -> Ring | None:
    """A ring for a source that is about to be opened; None where no stage wants packets, or it has none."""
    wanting = [node for node in graph.nodes.values() if issubclass(node.type, Sink) and node.type.wants_packets]
    if not wanting or not getattr(source.type, "reads_packets", False):
        return None
    limit = max(node.type(**node.options).buffer for node in wanting)  # type: ignore[attr-defined]
    return Ring(tuple(node.id for node in wanting), limit_bytes=limit, guard=threading.Lock())
