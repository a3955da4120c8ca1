"""Packet ring buffers for sources whose packets a stage writes."""

from __future__ import annotations

import threading

from streamkit.config.plan import Graph, SourceConfig
from streamkit.core.stage import Sink
from streamkit.media.ring import PacketRing


def ring_for(graph: Graph, source: SourceConfig) -> PacketRing | None:
    """Create the packet ring of a source that is about to open; None if no stage wants packets or it has none."""
    wanting = [node for node in graph.nodes.values() if issubclass(node.type, Sink) and node.type.spec.wants_packets]
    if not wanting or not source.type.spec.reads_packets:
        return None
    limit = max(node.type(**node.options).buffer for node in wanting)  # type: ignore[attr-defined]
    return PacketRing(tuple(node.id for node in wanting), limit_bytes=limit, guard=threading.Lock())
