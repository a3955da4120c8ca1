# SPDX-License-Identifier: Apache-2.0
"""Checks that the objects a stage needs exist: of a detected class, and on frames that `every:` leaves out."""

from __future__ import annotations

from streamkit.config.plan import Graph, Node, stages_above
from streamkit.core.errors import Problem
from streamkit.core.text import did_you_mean
from streamkit.core.units import Of

_SINGLE = frozenset({"anomaly_score", "depth", "relative_depth"})
"""Columns that only one stage on a path can write; the same name is the key of a frame's value in records."""


def check_of(graph: Graph, problems: list[Problem]) -> None:
    """Refuse an `of:` whose stage or label does not exist; complete one that is a class of the only detector."""
    for node in graph.certain:
        of = node.options.get("of")
        if not isinstance(of, Of):
            continue
        detectors_by_table = {detector.table: detector for detector in detectors(graph, node)}
        if of.stage not in detectors_by_table and (whole := _with_detector(of, detectors_by_table)) is not None:
            of = node.options["of"] = whole
        if of.stage not in detectors_by_table:
            problems.append(
                node.problem(f"{node.table}.of: {no_stage(graph, of.stage, detectors_by_table)}", "of", "stage")
            )
            continue
        texts = unknown_labels(detectors_by_table[of.stage], of)
        problems.extend(node.problem(f"{node.table}.of: {text}", "of", "labels") for text in texts)


def check_labels(graph: Graph, problems: list[Problem]) -> None:
    """Refuse classes that a stage is to watch but no detector above it finds; see `StageSpec.classes`."""
    kinds = [*(source.type for source in graph.sources), *graph.config.unread_sources.values()]
    if any(kind is None or "detections" in kind.spec.writes for kind in kinds):
        return  # the classes of these are unknown
    for node in graph.certain:
        for option in node.type.spec.classes:
            for i, label in enumerate(node.options.get(option) or ()):
                if text := missing(detectors(graph, node), label):
                    problems.append(node.problem(f"{node.id}.{option}: {text}", option, i))


def check_gaps(graph: Graph) -> None:
    """Warn of a detector that skips frames if no tracker below it predicts its objects there."""
    for node in graph.certain:
        if (every := frame_interval(node)) < 2:
            continue
        ends = [
            end
            for end in graph.ends
            if end.id not in graph.uncertain
            and node in above(graph, end)
            and not trackers(graph, node, end)
            and not collects(end)
        ]
        if ends:
            text = (
                f"{node.table}.every: {every} leaves all other frames without objects at {ends[0].table}; put "
                "`track: {}` between the two, which predicts objects on these frames"
            )
            graph.config.warnings.append(node.problem(text, "every"))


def check_overwritten(graph: Graph, problems: list[Problem]) -> None:
    """Refuse a second stage on a path that writes the depth or the anomaly score of the same objects, or of frames."""
    for node in graph.certain:
        for upper in above(graph, node):
            columns = _SINGLE & node.type.spec.columns.keys() & upper.type.spec.columns.keys()
            subjects = [_subject(stage) for stage in (node, upper)]
            if columns and subjects[0] == subjects[1]:
                text = (
                    f"{node.table}: {upper.table} writes {min(columns)} of {subjects[0]} already, which this stage "
                    "would overwrite; put one of them on a branch of its own, with from"
                )
                problems.append(node.problem(text))
                break


def _subject(node: Node) -> str:
    """What a stage measures."""
    of = node.options.get("of")
    return f"the objects of {of.stage}" if isinstance(of, Of) else "whole frames"


def collects(node: Node) -> bool:
    """Whether a stage is `collect`, which leaves out frames that a detector has not seen."""
    return node.type.name == "collect" and node.type.spec.built_in


def above(graph: Graph, node: Node) -> list[Node]:
    """The stages above `node`, the nearest first."""
    return list(stages_above(graph.nodes, node).values())


def detectors(graph: Graph, node: Node) -> list[Node]:
    """The stages above `node` that write detections."""
    return [stage for stage in above(graph, node) if "detections" in stage.type.spec.writes]


def trackers(graph: Graph, first: Node, last: Node) -> list[Node]:
    """The trackers between two stages, the last included."""
    tracking = [stage for stage in (last, *above(graph, last)) if "track_id" in stage.writes]
    return [tracker for tracker in tracking if first in above(graph, tracker)]


def frame_interval(node: Node) -> int:
    """N if a detector's part `look` processes one frame in N; 1 if it processes all."""
    every = node.options.get("every")
    return every if node.type.name == "regions" and isinstance(every, int) else 1


def detected_classes(detector: Node) -> tuple[str, ...] | None:
    """The classes of the objects that a detector passes on; None if unknown, as without a card."""
    labels = detector.labels
    wanted = detector.options.get("labels")
    if detector.type.spec.labels_attribute:
        return labels or None
    if not labels or not isinstance(wanted, (list, tuple)):
        return labels or None
    return tuple(label for label in labels if label in wanted)


def missing(detector_nodes: list[Node], label: str) -> str | None:
    """Why no object of these detectors can be of a class, with the fix; None if one may be."""
    classes = [detected_classes(detector) for detector in detector_nodes]
    names = dict.fromkeys(name for some in classes for name in some or ())
    if not detector_nodes or None in classes or label in names:
        return None
    for detector in detector_nodes:
        if label in detector.labels:
            return f"{_filtered_out(detector, label)}; add it there"
    return f"no detector above finds {label!r}{did_you_mean(label, names, all_if_few=True)}"


def _with_detector(of: Of, detectors_by_table: dict[str, Node]) -> Of | None:
    """`detect.person` for `person`, if one detector stands above and finds that class; else None."""
    if len(detectors_by_table) != 1 or of.labels:
        return None
    ((name, detector),) = detectors_by_table.items()
    return Of(name, (of.stage,)) if of.stage in (detected_classes(detector) or ()) else None


def no_stage(graph: Graph, name: str, detectors_by_table: dict[str, Node]) -> str:
    """Why the stage `name` is not among the detectors above a stage."""
    tables = {node.table for node in graph.nodes.values()}
    there = (
        f"; objects come from {', '.join(sorted(detectors_by_table))}"
        if detectors_by_table
        else "; put a detector such as detect above it"
    )
    if name not in tables:
        return f"there is no stage {name!r}{did_you_mean(name, tables) or there}"
    finds = any("detections" in node.type.spec.writes for node in graph.nodes.values() if node.table == name)
    return f"{name} {'does not stand above this stage' if finds else 'finds no objects'}{there}"


def unknown_labels(detector: Node, of: Of) -> list[str]:
    """Problems with the labels of an `of`; none for a detector without a model, whose classes are unknown."""
    classes = detected_classes(detector)
    texts = []
    for label in of.labels if classes is not None else ():
        if label not in detector.labels:
            near = did_you_mean(label, detector.labels, all_if_few=True)
            texts.append(f"{detector.table} has no class {label!r}{near}")
        elif label not in (classes or ()):
            texts.append(_filtered_out(detector, label))
    return texts


def _filtered_out(detector: Node, label: str) -> str:
    return f"{detector.table} keeps no {label!r}: its labels are {', '.join(detector.options['labels']) or 'none'}"
