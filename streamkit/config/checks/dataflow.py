"""Checks that every word a stage reads is written above it."""

from __future__ import annotations

from streamkit.config.plan import DECODE, Graph
from streamkit.core.errors import Problem

_PRODUCERS = {
    "tensor": "preprocess", "outputs": "infer", "detections": "a detector such as detect",
    "track_id": "a tracker", "pixels": "a source with pictures", "attributes": "classify", "embedding": "embed",
}  # fmt: skip


def check_words(graph: Graph, problems: list[Problem]) -> None:
    """Check that every word a stage reads is written above it, and set each node's `available`."""
    written = [set(source.type.spec.writes) for source in graph.sources]
    decoded = frozenset(set.intersection(*written)) if written else frozenset({"pixels"})
    for node in graph.nodes.values():
        above = frozenset().union(*(decoded if name == DECODE else graph.nodes[name].available for name in node.inputs))
        for word in node.reads:
            if word not in above:
                text = f"{node.id} reads {word}, which no earlier stage writes{_who(word)}"
                if word == "tensor" and "outputs" in above:
                    text = f"{node.id} reads tensor, which infer uses up; put it between preprocess and infer"
                problems.append(node.place.problem(text))
        used: set[str] = (
            {"tensor"} if "tensor" in node.type.spec.reads and "outputs" in node.type.spec.writes else set()
        )
        node.available = above - used | frozenset(node.type.spec.writes)


def _who(word: str) -> str:
    return f"; put {_PRODUCERS[word]} above it" if word in _PRODUCERS else ""
