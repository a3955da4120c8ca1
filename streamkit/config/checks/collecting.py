# SPDX-License-Identifier: Apache-2.0
"""Checks of `collect`: the two detectors that it compares, and whether there are objects."""

from __future__ import annotations

from streamkit.config.checks.objects import collects, detected_classes, detectors, no_stage, unknown_labels
from streamkit.config.plan import Graph, Node
from streamkit.core.errors import Problem
from streamkit.core.units import Of


def check_collect(graph: Graph, problems: list[Problem]) -> None:
    """Refuse detectors that cannot be compared, and objects without a detector; tell the stage the models' names."""
    for node in graph.certain:
        if not collects(node):
            continue
        found = {one.table: one for one in detectors(graph, node)}
        node.options["models"] = {name: card.name for name, one in found.items() if (card := one.options.get("model"))}
        if node.options.get("capture") == "object" and not found:
            text = f"{node.id}.capture: object needs a detector above it, such as detect"
            problems.append(node.problem(text, "capture"))
        disagreement = node.options.get("disagreement")
        if disagreement is not None:
            texts = list(dict.fromkeys(_problems(graph, found, *disagreement["between"])))
            problems.extend(
                node.problem(f"{node.id}.disagreement.between: {text}", "disagreement", "between") for text in texts
            )


def _problems(graph: Graph, found: dict[str, Node], first: Of, second: Of) -> list[str]:
    """Why two detectors cannot be compared."""
    missing = [no_stage(graph, of.stage, found) for of in (first, second) if of.stage not in found]
    if missing:
        return missing
    if first.stage == second.stage:
        return [f"names {first.stage} twice; it compares two detectors, as in [detect, second]"]
    texts = [text for of in (first, second) for text in unknown_labels(found[of.stage], of)]
    known = [of.labels or detected_classes(found[of.stage]) for of in (first, second)]
    if not texts and all(known) and not set(known[0] or ()) & set(known[1] or ()):
        shown = " and ".join(
            f"{of.stage} finds {', '.join((labels or ())[:4])}"
            for of, labels in zip((first, second), known, strict=True)
        )
        texts.append(f"the two have no class in common: {shown}")
    return texts
