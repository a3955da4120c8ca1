# SPDX-License-Identifier: Apache-2.0
"""Types of options for lines and areas: lists of points, validated when read; one, or several by name."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from streamkit.core.units import Point

Shape = tuple[Point, ...]
Units = Literal["pixels", "share"]
Anchor = Literal["foot", "center", "top", "left", "right"]

_BEYOND = 1.0  # how far a shape in shares may extend beyond the frame


def check_line(points: Sequence[Point]) -> Shape:
    """Check that a line has two points or more, no segment of length 0 and no crossing; raise ValueError."""
    line = _finite(points)
    if len(line) < 2:
        raise ValueError("must have two points or more")
    parts = list(itertools.pairwise(line))
    for i, (a, b) in enumerate(parts, 1):
        if a == b:
            raise ValueError(f"must not have a part of no length: points {i} and {i + 1} are the same")
    _not_crossing(parts, "part", closed=False)
    return line


def check_polygon(points: Sequence[Point]) -> Shape:
    """Check that a polygon has three corners or more, a size and no crossing edges; drop a closing point."""
    corners = _finite(points)
    if len(corners) > 3 and corners[0] == corners[-1]:
        corners = corners[:-1]
    if len(corners) < 3:
        raise ValueError("must have three corners or more")
    edges = _edges(corners)
    for i, (a, b) in enumerate(edges, 1):
        if a == b:
            raise ValueError(f"must not have an edge of no length: corners {i} and {i % len(edges) + 1} are the same")
    if all(_turn(corners[0], corners[1], c) == 0 for c in corners[2:]):
        raise ValueError("must have a size: all its corners lie on one line")
    _not_crossing(edges, "edge", closed=True)
    return corners


def check_units(units: Units, shapes: Iterable[Shape]) -> None:
    """Check that coordinates fit the units; raise ValueError.

    Shares may extend beyond the frame by its size. A shape in pixels that lies within one pixel is taken for shares.
    """
    numbers = [number for shape in shapes for point in shape for number in point]
    if units == "share" and any(not -_BEYOND <= number <= 1 + _BEYOND for number in numbers):
        raise ValueError(
            "with units: share coordinates are shares of the frame's width and height, 0 to 1 (-1 to 2 for shapes "
            f"that extend beyond it), got {max(numbers, key=abs):g}; leave units out for pixels"
        )
    if units == "pixels" and all(0 <= number <= 1 for number in numbers):
        raise ValueError("all coordinates lie within one pixel: write units: share if they are shares of the frame")


def check_length(name: str, value: float | None, units: Units) -> None:
    """Check that a length is not negative and, in shares, not above 1; raise ValueError."""
    if value is not None and not value >= 0:
        raise ValueError(f"{name} must be 0 or more, got {value:g}")
    if value is not None and units == "share" and value > 1:
        text = f"with units: share {name} is a share of the frame's height, 0 to 1, got {value:g}"
        raise ValueError(f"{text}; leave units out for pixels")


def outside(shape: Shape, width: float, height: float, *, closed: bool = True) -> bool:
    """Whether a shape, in the units of the frame's size, has no point in common with the frame."""
    corners = ((0.0, 0.0), (width, 0.0), (width, height), (0.0, height))
    if any(0 <= x <= width and 0 <= y <= height for x, y in shape):
        return False
    parts = _edges(shape) if closed else list(itertools.pairwise(shape))
    if any(_meet(*part, *side) for part in parts for side in _edges(corners)):
        return False
    return not closed or not _around(shape, (width / 2, height / 2))


def outside_text(which: str, frames: str) -> str:
    """The warning for a shape `which` that is `outside` of frames, such as `640x360 of gate`."""
    return f"{which} is outside of the frame{frames and ', '}{frames}: no object can be in it"


def _edges(shape: Shape) -> list[tuple[Point, Point]]:
    """The edges of a closed shape."""
    return list(zip(shape, (*shape[1:], shape[0]), strict=True))


def _around(shape: Shape, p: Point) -> bool:
    """Whether a point lies in a polygon none of whose edges passes through it, by the even-odd rule."""
    crossed = [(a[1] > p[1]) != (b[1] > p[1]) and (_turn(a, b, p) > 0) == (b[1] > a[1]) for a, b in _edges(shape)]
    return sum(crossed) % 2 == 1


def scaled(shape: Shape, scale: tuple[float, float]) -> Shape:
    """Multiply each x and y of a shape by its factor."""
    return tuple((x * scale[0], y * scale[1]) for x, y in shape)


def by_name(shapes: Shape | Mapping[str, Shape]) -> dict[str, Shape]:
    """Return the shapes by name; a single one without a name is named ''."""
    return dict(shapes) if isinstance(shapes, Mapping) else {"": shapes}


def _finite(points: Sequence[Point]) -> Shape:
    if not all(math.isfinite(number) for point in points for number in point):
        raise ValueError("must have finite coordinates")
    return tuple((float(x), float(y)) for x, y in points)


def _turn(a: Point, b: Point, c: Point) -> float:
    """Positive if the path from a over b to c turns right, as seen in an image where y points down; 0 if straight."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def _not_crossing(edges: list[tuple[Point, Point]], word: str, *, closed: bool) -> None:
    for (i, (a, b)), (j, (c, d)) in itertools.combinations(enumerate(edges, 1), 2):
        if j == i + 1:
            wrong = _back(a, b, d)
        elif closed and i == 1 and j == len(edges):
            wrong = _back(c, d, b)
        else:
            wrong = _meet(a, b, c, d)
        if wrong:
            raise ValueError(f"must not cross or touch itself: {word} {i} and {word} {j} meet")


def _back(a: Point, b: Point, c: Point) -> bool:
    """Whether the path from a to b reverses on itself to c."""
    forward = (b[0] - a[0]) * (c[0] - b[0]) + (b[1] - a[1]) * (c[1] - b[1])
    return _turn(a, b, c) == 0 and forward < 0


def _meet(a: Point, b: Point, c: Point, d: Point) -> bool:
    """Whether the segments ab and cd have a point in common (Cormen et al., Introduction to Algorithms, 33.1)."""
    turns = _turn(c, d, a), _turn(c, d, b), _turn(a, b, c), _turn(a, b, d)
    if turns[0] * turns[1] < 0 and turns[2] * turns[3] < 0:
        return True
    ends = ((c, d, a), (c, d, b), (a, b, c), (a, b, d))
    return any(turn == 0 and _between(*end) for turn, end in zip(turns, ends, strict=True))


def _between(a: Point, b: Point, p: Point) -> bool:
    return min(a[0], b[0]) <= p[0] <= max(a[0], b[0]) and min(a[1], b[1]) <= p[1] <= max(a[1], b[1])


# ---------------------------------------------------------------------------------------------------- types of options


@dataclass(frozen=True, slots=True)
class Checked:
    """Annotation of an option: a list of points that `check` accepts; with `named` also a mapping of names to lists."""

    check: Callable[[Sequence[Point]], Shape]
    named: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        single = core_schema.no_info_after_validator_function(self.check, handler.generate_schema(Shape))
        if not self.named:
            return single
        mapping = core_schema.dict_schema(core_schema.str_schema(), single)
        many = core_schema.no_info_after_validator_function(_check_names, mapping)
        # A problem's path contains the branch's name; YamlNode.follow skips steps that begin with `<`.
        return core_schema.tagged_union_schema({"<one>": single, "<named>": many}, discriminator=_branch)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        points = {"type": "array", "minItems": 2, "items": {"type": "array", "items": {"type": "number"}}}
        named = {"type": "object", "additionalProperties": points, "minProperties": 1}
        return {"anyOf": [points, named]} if self.named else points


def _check_names(shapes: dict[str, Shape]) -> dict[str, Shape]:
    if not shapes:
        raise ValueError("must have points, [[x, y], ...], or several such lists by name, as {door: [[x, y], ...]}")
    if "" in shapes:
        raise ValueError("must have a name for each list of points, as {door: [[x, y], ...]}")
    return shapes


def _branch(value: Any) -> str:
    return "<named>" if isinstance(value, Mapping) else "<one>"


Polyline = Annotated[Shape, Checked(check_line)]
"""A line of two points or more, [[x, y], ...]."""

Polylines = Annotated[Shape | dict[str, Shape], Checked(check_line, named=True)]
"""A line, or several as {name: [[x, y], ...]}."""

Polygons = Annotated[Shape | dict[str, Shape], Checked(check_polygon, named=True)]
"""An area, or several as {name: [[x, y], ...]}."""
