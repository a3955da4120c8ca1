"""What a YAML says of people and places to be hidden, and whether a pipeline would show them all the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from streamkit.analytics.shapes import Polygons, Units, by_name, check_units
from streamkit.errors import Problem
from streamkit.ops.hiding import Hidden
from streamkit.units import Count, Score
from streamkit.yamlfile import did_you_mean

if TYPE_CHECKING:
    from streamkit.graph import Graph, Node


class Hide(TypedDict, total=False):
    """What to hide.

    Keys:
        labels: classes of objects.
        zone: a part of the picture, [[x, y], ...], or several by name; with `labels`, objects whose middle is in it.
        units: what the zone is in, pixels or share.
        cells: how many cells the longer side of an object has at most; fewer hide more.
        grow: by how much of its size a box is enlarged, on all sides together.
    """

    labels: tuple[str, ...]
    zone: Polygons
    units: Units
    cells: Count
    grow: Score


Hide.__pydantic_config__ = {"extra": "forbid"}  # type: ignore[attr-defined]


class _ByForm:
    """Annotation of an option: which of its types is meant is told by the value's form, so that one problem is one."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        branches = {"<all>": Literal["all"], "<labels>": tuple[str, ...], "<hide>": Hide}
        schemas = {name: handler.generate_schema(kind) for name, kind in branches.items()}
        return core_schema.tagged_union_schema(schemas, discriminator=_form)


def _form(value: Any) -> str:
    return "<hide>" if isinstance(value, Mapping) else "<labels>" if isinstance(value, (list, tuple)) else "<all>"


Hiding = Annotated[Literal["all"] | tuple[str, ...] | Hide, _ByForm()]
"""What `draw` is to hide: every object, those of some classes, or more exactly."""


def hidden(name: str, asked: str | tuple[str, ...] | Hide, *, smooth: bool) -> Hidden:
    """What an option of `draw` asks for.

    Raises:
        ValueError: it asks for nothing, or coordinates that the units cannot mean.
    """
    if isinstance(asked, str):
        return Hidden(smooth)
    options: Hide = asked if isinstance(asked, dict) else {"labels": tuple(asked)}
    labels, zones = (
        frozenset(options.get("labels", ())),
        tuple(by_name(options["zone"]).values()) if "zone" in options else (),
    )
    if not labels and not zones:
        raise ValueError(f"{name} needs labels or a zone: what is to be hidden; all hides every object")
    if zones:
        check_units(options.get("units", "pixels"), zones)
    more: dict[str, Any] = {key: options[key] for key in ("cells", "grow") if key in options}  # type: ignore[literal-required]
    return Hidden(smooth, labels, bool(labels), zones, options.get("units") == "share", **more)


def check_hidden(graph: Graph, problems: list[Problem]) -> None:
    """Refuse to hide classes that no detector above finds; warn where packets are written past what hides."""
    hides = [node for node in graph.nodes.values() if any(_asked(node))]
    for node in hides:
        detectors = [above for above in _above(graph, node) if "detections" in above.type.writes]
        named = [getattr(above.options.get("model"), "labels", ()) for above in detectors]
        known = [name for labels in named for name in labels] if all(named) else []  # a plugin's are not known
        for option, labels, path in _asked(node):
            place = node.place.follow([option, *path])[0]
            if labels is not None and not detectors:
                text = f"{node.id}.{option} hides objects, and no stage above it finds any; put a detector above it"
                problems.append(place.problem(text))
            for label in labels or () if known else ():
                if label not in known:
                    way = did_you_mean(label, dict.fromkeys(known), all_if_few=True)
                    problems.append(place.problem(f"{node.id}.{option}: no detector above finds {label!r}{way}"))
    for node in graph.nodes.values() if hides else ():
        if getattr(node.type, "wants_packets", False) or node.options.get("encoder") == "copy":
            text = f"{node.id} writes the source's own packets: what {hides[0].id} hides is clear in them"
            graph.config.warnings.append(node.place.problem(text))
        clear = _cleared(node)
        shown = [one.id for one in hides if one.id not in _pictured(graph, node)] if clear else []
        if shown:
            way = f"write from: {shown[0]}, first where there are several, or {clear} where that is meant"
            problems.append(node.place.problem(f"{node.id} would show what {', '.join(shown)} hides; {way}"))


def _asked(node: Node) -> Iterator[tuple[str, tuple[str, ...] | None, list[str]]]:
    """Of each option that hides: its name, the classes ((), for all; None, for a zone), and where they stand in it."""
    for option in ("blur", "pixelate") if "pixels" in node.type.writes else ():
        asked = node.options.get(option)
        if isinstance(asked, dict):
            yield option, asked.get("labels"), ["labels"]
        elif asked is not None:
            yield option, () if isinstance(asked, str) else tuple(asked), []


def _above(graph: Graph, node: Node) -> list[Node]:
    found: dict[str, Node] = {}
    todo = list(node.inputs)
    for name in todo:
        if name in graph.nodes and name not in found:
            found[name] = graph.nodes[name]
            todo += graph.nodes[name].inputs
    return list(found.values())


def _cleared(node: Node) -> str | None:
    """How a stage that makes pictures of objects is told that they may show everything; None where it has been told."""
    if hasattr(node.type, "clear"):
        return None if node.options.get("clear") else "clear: true"
    crops = node.options.get("crops") if "crops" in node.type.reads_if else None
    if not crops or (isinstance(crops, dict) and crops.get("clear")):
        return None
    return "crops: {clear: true}"


def _pictured(graph: Graph, node: Node) -> set[str]:
    """The stages that a stage's pictures have come through: of several inputs the first one's pictures are taken."""
    found: set[str] = set()
    while node.inputs[0] in graph.nodes:
        node = graph.nodes[node.inputs[0]]
        found.add(node.id)
    return found
