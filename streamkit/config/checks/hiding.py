# SPDX-License-Identifier: Apache-2.0
"""Checks that a pipeline does not show what it is configured to hide."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from streamkit.config.checks.objects import detected_classes, detectors, frame_interval, missing, trackers
from streamkit.config.plan import Graph, Node
from streamkit.core.errors import Problem
from streamkit.core.units import Of

ALLOW = "allow"
"""The value of `hidden` that lets the API show clips although a stage hides something."""


def check_hidden(graph: Graph, problems: list[Problem]) -> None:
    """Refuse to hide classes that are not detected on every frame; warn of outputs that bypass the hiding stage."""
    hides = hiding(graph)
    for node in hides:
        if node.id in graph.uncertain:
            continue
        above = detectors(graph, node)
        for option, labels, path in _hide_options(node):
            if labels is None:
                continue
            texts = [f"{node.id}.{option}: {text}" for label in labels if (text := missing(above, label))]
            if not above:
                texts = [f"{node.id}.{option} hides objects, and no stage above it finds any; put a detector above it"]
            problems.extend(node.problem(text, option, *path) for text in texts)
            _check_every(graph, node, option, labels, problems)
    for node in graph.certain if hides else ():
        if node.type.spec.wants_packets and node.options.get("hidden") == ALLOW:
            continue
        if node.type.spec.wants_packets or node.options.get("encoder") == "copy":
            text = f"{node.id} writes the source's own packets: what {hides[0].id} hides is clear in them"
            if node.type.spec.wants_packets:
                text += f"; the API does not show its clips, unless you allow that: hidden: {ALLOW}"
            graph.config.warnings.append(node.problem(text))
        clear = _cleared(node)
        shown = [stage.id for stage in hides if stage.id not in frame_ancestors(graph, node)] if clear else []
        if shown:
            hint = f"write from: {shown[-1]}, first where there are several, or {clear} where that is meant"
            problems.append(node.problem(f"{node.id} would show what {', '.join(shown)} hides; {hint}"))


def hiding(graph: Graph) -> list[Node]:
    """Stages that blur or pixelate."""
    return [node for node in graph.nodes.values() if any(_hide_options(node))]


def hidden_detectors(graph: Graph) -> dict[str, str]:
    """The detectors, by table, whose objects a stage hides, and the id of that stage."""
    hides_objects = [node for node in hiding(graph) if any(labels is not None for _, labels, _ in _hide_options(node))]
    return {detector.table: node.id for node in hides_objects for detector in detectors(graph, node)}


def hidden_places(graph: Graph) -> str:
    """What a pipeline hides in images, as text to compare; empty if nothing."""
    hidden = {
        f"{node.id}.{option}": _without_look(node.options[option])
        for node in hiding(graph)
        for option, *_ in _hide_options(node)
    }
    return json.dumps(hidden, sort_keys=True, default=str) if hidden else ""


def _without_look(option: Any) -> Any:
    """An option that hides, without what changes only how it looks."""
    return {key: part for key, part in option.items() if key != "cells"} if isinstance(option, dict) else option


def _check_every(graph: Graph, node: Node, option: str, labels: tuple[str, ...], problems: list[Problem]) -> None:
    """Refuse a detector's `every` if no tracker fills the gaps; warn if the tracker leaves objects visible."""
    for detector in detectors(graph, node):
        classes = detected_classes(detector)
        if labels and classes is not None and not set(labels) & set(classes):
            continue
        for part in _skipping_parts(graph, detector):
            text = f"{node.id}.{option}: on frames that {part.table}.every: {frame_interval(part)} leaves out,"
            is_detector = part.table == detector.table
            # predicted objects are not searched for others
            between = trackers(graph, part, node) if is_detector else []
            visible = [_left_clear(tracker, detector) for tracker in between]
            if not between:
                hint = f"put a tracker, `track: {{}}`, between {part.table} and {node.id}, or " if is_detector else ""
                problems.append(part.problem(f"{text} nothing is hidden; {hint}leave out every", "every"))
            elif all(visible):
                graph.config.warnings.append(part.problem(f"{text} {visible[0]}", "every"))


def _skipping_parts(graph: Graph, detector: Node) -> Iterator[Node]:
    """The nodes that skip frames: parts of a detector, and of the detectors whose objects it searches."""
    for node in graph.nodes.values():
        if node.table != detector.table:
            continue
        if frame_interval(node) > 1:
            yield node
        of = node.options.get("of")
        within = of.stage if isinstance(of, Of) else None
        for outer in detectors(graph, node):
            if outer.table == within:
                yield from _skipping_parts(graph, outer)


def _left_clear(tracker: Node, detector: Node) -> str:
    """Which objects of a detector a tracker leaves visible, with the fix; empty if it follows all."""
    options: Any = tracker.type(**tracker.options)
    card = detector.options.get("model")
    min_score = detector.options.get("min_score")
    method = getattr(options, "tracker_method", None)
    if method is None or not method.compiled or card is None:
        return f"objects stay visible if {tracker.id} does not predict them; leave out every to be sure"
    scores = (
        [card.score, *min_score.values()]
        if isinstance(min_score, dict)
        else [card.score if min_score is None else min_score]
    )
    names = ("new_score", "high_score", "low_score")
    wanted = {name: min(scores) for name in names if getattr(options, name) > min(scores)}
    if options.confirm > 0:
        wanted["confirm"] = 0
    settings = ", ".join(f"{name}: {value:g}" for name, value in wanted.items())
    text = f"weak and new objects, which {tracker.id} does not follow, are clear"
    return f"{text}; with {settings} under {tracker.id} it follows all" if wanted else ""


def _hide_options(node: Node) -> Iterator[tuple[str, tuple[str, ...] | None, list[str]]]:
    """For each option that hides: its name, the classes (() for all, None for a zone), and their path in it."""
    for option in ("blur", "pixelate") if "pixels" in node.type.spec.writes else ():
        choice = node.options.get(option)
        if isinstance(choice, dict):
            yield option, choice.get("labels"), ["labels"]
        elif choice is not None:
            yield option, () if isinstance(choice, str) else tuple(choice), []


def _cleared(node: Node) -> str | None:
    """The option by which a stage that writes images of objects may show everything; None if it is set."""
    if option := node.type.spec.unhide_option:
        return None if node.options.get(option) else f"{option}: true"
    crops = node.options.get("crops") if "crops" in node.type.spec.reads_if else None
    if not crops or (isinstance(crops, dict) and crops.get("show_hidden")):
        return None
    return "crops: {show_hidden: true}"


def frame_ancestors(graph: Graph, node: Node) -> set[str]:
    """The stages that a stage's frames have passed; a stage with several inputs takes the frames of the first."""
    ids: set[str] = set()
    while node.inputs[0] in graph.nodes:
        node = graph.nodes[node.inputs[0]]
        ids.add(node.id)
    return ids
