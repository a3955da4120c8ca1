"""What a YAML says of people and places to be hidden."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from streamkit.analytics.shapes import Polygons, Units, by_name, check_units
from streamkit.ops.hiding import Hidden
from streamkit.units import Count, Score


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
        schemas["<all>"] = core_schema.no_info_before_validator_function(_all, schemas["<all>"])
        return core_schema.tagged_union_schema(schemas, discriminator=_form)


def _form(value: Any) -> str:
    return "<hide>" if isinstance(value, Mapping) else "<labels>" if isinstance(value, (list, tuple)) else "<all>"


def _all(value: Any) -> Any:
    """Refuse another word than `all`; one that may be a class is shown as it is to be written."""
    if value == "all":
        return value
    way = f"write [{value}]" if isinstance(value, str) and value else "write all, or classes such as [person]"
    raise ValueError(f"must be all, or a list of classes: {way}")


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
    labels = frozenset(options.get("labels", ()))
    zones = tuple(by_name(options["zone"]).values()) if "zone" in options else ()
    if zones and not options.get("labels", ("all",)):
        raise ValueError(f"{name}.labels names no class; leave it out to hide the zone itself")
    if not labels and not zones:
        raise ValueError(f"{name} needs labels or a zone: what is to be hidden; all hides every object")
    if zones:
        check_units(options.get("units", "pixels"), zones)
    more: dict[str, Any] = {key: options[key] for key in ("cells", "grow") if key in options}  # type: ignore[literal-required]
    return Hidden(smooth, labels, bool(labels), zones, options.get("units") == "share", **more)
