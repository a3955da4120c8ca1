# SPDX-License-Identifier: Apache-2.0
"""Which options of stages are areas and lines in the frame, and what a YAML says there: for editors of shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args, get_type_hints

from streamkit.analytics.shapes import Checked, check_line, check_polygon
from streamkit.core.options import options
from streamkit.core.stage import Registry, Stage
from streamkit.core.yaml_tree import YamlNode

SOURCES = "sources"
"""The option of some stages that says on which sources their shapes are used."""


@dataclass(frozen=True, slots=True)
class ShapeOption:
    """An option that holds areas or lines.

    Attributes:
        path: its keys in the stage's entry, such as `polygon`, or `blur` and `zone`.
        kind: `area`; `line`, whose sides are in and out; or `arrow`.
        single: whether it may be one shape without a name.
        named: whether it may be several by name.
        units: the keys of the option with the unit of the coordinates.
        hides: whether it hides what lies in it.
        by_source: whether each shape may be for some sources only.
        help: what it is for.
    """

    path: tuple[str, ...]
    kind: str
    single: bool
    named: bool
    units: tuple[str, ...]
    hides: bool
    help: str
    by_source: bool = False


@dataclass(frozen=True, slots=True)
class StageShapes:
    """The shapes that a YAML gives an option of a stage.

    Attributes:
        stage: the stage's id.
        type: the name of its type.
        option: the option.
        units: `pixels` of the source, or `share` of the frame.
        shapes: points by name; one shape without a name is named ''.
        sources: the sources of the shapes that are not for all, by the shapes' names.
        fixed: why it cannot be edited as a shape; empty if it can.
    """

    stage: str
    type: str
    option: ShapeOption
    units: str
    shapes: dict[str, list[list[float]]]
    fixed: str = ""
    sources: Mapping[str, list[str]] = field(default_factory=dict)


def has_sources(kind: type[Stage]) -> bool:
    """Whether the shapes of a stage may be for some sources only."""
    return any(option.name == SOURCES for option in options(kind)) and bool(_shape_options(kind))


def shape_options(kind: type[Stage]) -> list[ShapeOption]:
    """The options of a stage that are areas and lines."""
    by_source = has_sources(kind)
    return [replace(option, by_source=by_source and not option.hides) for option in _shape_options(kind)]


def _shape_options(kind: type[Stage]) -> list[ShapeOption]:
    return [shape for option in options(kind) for shape in _within((option.name,), option.type, option.help)]


def _within(path: tuple[str, ...], kind: Any, help_: str, named: bool = False) -> Iterator[ShapeOption]:
    """The shapes in the type of the option at `path`; `named` if it is a mapping's value."""
    if hasattr(kind, "__total__"):  # a TypedDict
        for name, inner in get_type_hints(kind, include_extras=True).items():
            yield from _within((*path, name), inner, help_)
        return
    parts = get_args(kind)
    checks = [part for part in parts if isinstance(part, Checked)]
    if checks and checks[0].check not in (check_line, check_polygon):
        return  # such as four points on the ground
    if not checks:
        for part in parts:
            yield from _within(path, part, help_, named or getattr(kind, "__origin__", None) is dict)
        return
    word = "area" if checks[0].check is check_polygon else "arrow" if named else "line"
    hides = len(path) > 1
    yield ShapeOption(path, word, not named, named or checks[0].named, (*path[:-1], "units"), hides, help_)


def shapes_of(root: YamlNode, registry: Registry) -> list[StageShapes]:
    """The options of the stages of a YAML that are areas and lines, whether they are set or not.

    Args:
        root: the whole file.
        registry: the stages that it may name.
    """
    stages = root.value.get("stages") if isinstance(root.value, dict) else None
    shapes: list[StageShapes] = []
    for id_, entry in stages.value.items() if stages is not None and isinstance(stages.value, dict) else ():
        stage_options = entry.plain() if isinstance(entry.value, dict) else {}
        kind = registry.get(str(stage_options.get("stage", id_)))
        if kind is not None and isinstance(entry.value, dict | None):
            shapes += [_shapes(id_, kind.name, option, stage_options) for option in shape_options(kind)]
    return shapes


def _shapes(id_: str, type_: str, option: ShapeOption, stage_options: Mapping[str, Any]) -> StageShapes:
    outer = option_at(stage_options, option.path[:-1])
    value = option_at(stage_options, option.path)
    units = option_at(stage_options, option.units) or ("share" if value is None else "pixels")
    if option.hides and outer is not None and not isinstance(outer, Mapping):
        reason = f"{'.'.join(option.path[:-1])} hides objects; it cannot hide a part of the frame as well"
        return StageShapes(id_, type_, option, "pixels", {}, reason)
    if option.hides and isinstance(outer, Mapping) and outer.get("labels") and value is None:
        reason = f"{'.'.join(option.path[:-1])} hides objects; with a zone it would hide only those in it"
        return StageShapes(id_, type_, option, "pixels", {}, reason)
    shapes = value if isinstance(value, Mapping) else {} if value is None else {"": value}
    if not all(map(_is_shape, shapes.values())):
        return StageShapes(id_, type_, option, "pixels", {}, f"{'.'.join(option.path)} is not a list of points")
    shapes_by_name = {str(name): points for name, points in shapes.items()}
    return StageShapes(
        id_,
        type_,
        option,
        units,
        shapes_by_name,
        sources=_sources(stage_options, shapes_by_name) if option.by_source else {},
    )


def _sources(stage_options: Mapping[str, Any], shapes: Mapping[str, Any]) -> dict[str, list[str]]:
    """The sources of each shape that is not for all; what is not valid is left out."""
    value = stage_options.get(SOURCES)
    by_name: Mapping[str, Any] = value if isinstance(value, Mapping) else dict.fromkeys(shapes, value)
    lists = {name: ids for name, ids in by_name.items() if name in shapes and isinstance(ids, list) and ids}
    return {name: [str(id_) for id_ in ids] for name, ids in lists.items()}


def option_at(node: Any, path: tuple[str, ...]) -> Any:
    """The value at a path of keys in options; None if there is none."""
    for step in path:
        node = node.get(step) if isinstance(node, Mapping) else None
    return node


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(point, list) and len(point) == 2 and all(isinstance(coordinate, int | float) for coordinate in point)
        for point in value
    )
