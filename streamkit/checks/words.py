"""Whether each word that a stage reads is written above it."""

from __future__ import annotations

from streamkit.errors import Problem
from streamkit.plan import DECODE, Graph

_PRODUCERS = {
    "tensor": "preprocess", "outputs": "infer", "detections": "a detector such as detect",
    "track_id": "a tracker", "pixels": "a source with pictures", "attributes": "classify", "embedding": "embed",
}  # fmt: skip


def check_words(graph: Graph, problems: list[Problem]) -> None:
    """Every word that a stage reads must be written above it; each node learns what can be read after it."""
    written = [set(source.type.writes) for source in graph.sources]
    decoded = frozenset(set.intersection(*written)) if written else frozenset({"pixels"})
    for node in graph.nodes.values():
        above = frozenset().union(*(decoded if name == DECODE else graph.nodes[name].available for name in node.inputs))
        for word in node.reads:
            if word not in above:
                text = f"{node.id} reads {word}, which no earlier stage writes{_who(word)}"
                if word == "tensor" and "outputs" in above:
                    text = f"{node.id} reads tensor, which infer uses up; put it between preprocess and infer"
                problems.append(node.place.problem(text))
        used: set[str] = {"tensor"} if "tensor" in node.type.reads and "outputs" in node.type.writes else set()
        node.available = above - used | frozenset(node.type.writes)


def _who(word: str) -> str:
    return f"; put {_PRODUCERS[word]} above it" if word in _PRODUCERS else ""
