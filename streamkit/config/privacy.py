# SPDX-License-Identifier: Apache-2.0
"""Options of a YAML that hide people and places."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from streamkit.analytics.shapes import Polygons, Units, by_name, check_units
from streamkit.core.units import Count, OptionGroup, Score
from streamkit.ops.hide import HideSpec


class Hide(OptionGroup, total=False):
    """What `draw` hides.

    Keys:
        labels: classes of objects.
        zone: a part of the frame, [[x, y], ...], or several by name; with `labels`, objects whose center is in it.
        units: the unit of the zone, pixels or share.
        cells: maximum number of cells along the longer side of an object; fewer hide more.
        grow: share of its size by which a box is enlarged, all sides together.
    """

    labels: tuple[str, ...]
    zone: Polygons
    units: Units
    cells: Count
    grow: Score


class _HideByForm:
    """Annotation that selects an option's type by the value's form, so that one mistake is one problem."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        branches = {"<all>": Literal["all"], "<labels>": tuple[str, ...], "<hide>": Hide}
        schemas = {name: handler.generate_schema(kind) for name, kind in branches.items()}
        schemas["<all>"] = core_schema.no_info_before_validator_function(_all, schemas["<all>"])
        return core_schema.tagged_union_schema(schemas, discriminator=_form)


def _form(value: Any) -> str:
    return "<hide>" if isinstance(value, Mapping) else "<labels>" if isinstance(value, (list, tuple)) else "<all>"


def _all(value: Any) -> Any:
    """Refuse a word other than `all`, and show a class as a list."""
    if value == "all":
        return value
    hint = f"write [{value}]" if isinstance(value, str) and value else "write all, or classes such as [person]"
    raise ValueError(f"must be all, or a list of classes: {hint}")


Hiding = Annotated[Literal["all"] | tuple[str, ...] | Hide, _HideByForm()]
"""What `draw` is to hide: every object, those of some classes, or more exactly."""


def hidden(name: str, choice: str | tuple[str, ...] | Hide, *, smooth: bool) -> HideSpec:
    """Convert an option of `draw` to `Hidden`.

    Raises:
        ValueError: it selects nothing, or its coordinates do not fit the units.
    """
    if isinstance(choice, str):
        return HideSpec(smooth)
    options: Hide = choice if isinstance(choice, dict) else {"labels": tuple(choice)}
    labels = frozenset(options.get("labels", ()))
    zones = tuple(by_name(options["zone"]).values()) if "zone" in options else ()
    if zones and not options.get("labels", ("all",)):
        raise ValueError(f"{name}.labels names no class; leave it out to hide the zone itself")
    if not labels and not zones:
        raise ValueError(f"{name} needs labels or a zone: what is to be hidden; all hides every object")
    if zones:
        check_units(options.get("units", "pixels"), zones)
    more: dict[str, Any] = {key: options[key] for key in ("cells", "grow") if key in options}  # type: ignore[literal-required]
    return HideSpec(smooth, labels, bool(labels), zones, options.get("units") == "share", **more)
