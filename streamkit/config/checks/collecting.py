# SPDX-License-Identifier: Apache-2.0
"""Checks of `collect`: the two detectors that it compares, and whether there are objects."""

from __future__ import annotations

from streamkit.config.checks.objects import collects, detected_classes, detectors, no_stage, unknown_labels
from streamkit.config.plan import Graph, Node
from streamkit.core.errors import Problem
from streamkit.core.units import Of


def check_collect(graph: Graph, problems: list[Problem]) -> None:
    """Reject detectors that cannot be compared and objects without a detector; set the names of the models."""
    for node in graph.certain:
        if not collects(node):
            continue
        detectors_by_table = {detector.table: detector for detector in detectors(graph, node)}
        node.options["models"] = {
            name: card.name for name, detector in detectors_by_table.items() if (card := detector.options.get("model"))
        }
        if node.options.get("capture") == "object" and not detectors_by_table:
            message = f"{node.id}.capture: object needs a detector above it, such as detect"
            problems.append(node.problem(message, "capture"))
        disagreement = node.options.get("disagreement")
        if disagreement is not None:
            reasons = dict.fromkeys(_problems(graph, detectors_by_table, *disagreement["between"]))
            problems.extend(
                node.problem(f"{node.id}.disagreement.between: {reason}", "disagreement", "between")
                for reason in reasons
            )


def _problems(graph: Graph, detectors_by_table: dict[str, Node], first: Of, second: Of) -> list[str]:
    """Return the reasons why two detectors cannot be compared."""
    missing = [
        no_stage(graph, of.stage, detectors_by_table) for of in (first, second) if of.stage not in detectors_by_table
    ]
    if missing:
        return missing
    if first.stage == second.stage:
        return [f"names {first.stage} twice; it compares two detectors, as in [detect, second]"]
    texts = [text for of in (first, second) for text in unknown_labels(detectors_by_table[of.stage], of)]
    classes = [of.labels or detected_classes(detectors_by_table[of.stage]) for of in (first, second)]
    if not texts and all(classes) and not set(classes[0] or ()) & set(classes[1] or ()):
        shown = " and ".join(
            f"{of.stage} finds {', '.join((labels or ())[:4])}"
            for of, labels in zip((first, second), classes, strict=True)
        )
        texts.append(f"the two have no class in common: {shown}")
    return texts
