# SPDX-License-Identifier: Apache-2.0
"""Descriptions of stages from their classes, for a terminal and the README; `schema` is for editors."""

from __future__ import annotations

import dataclasses
import json
import re
import textwrap
import types
import typing
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Required, Union

from streamkit.config.alarms import STAGE, Alarm, explained
from streamkit.config.diagram import kind_name
from streamkit.config.plan import DeviceOptions
from streamkit.config.schema import json_schema
from streamkit.core.errors import ConfigError
from streamkit.core.fault_schedule import Fault
from streamkit.core.options import PluginNames
from streamkit.core.stage import Composite, Option, Registry, Source, Stage, options, summary
from streamkit.core.text import did_you_mean
from streamkit.core.units import Point, Rate, Unit
from streamkit.models.card_option import Model

__all__ = [
    "cell",
    "default_text",
    "explain",
    "json_schema",
    "kind_of",
    "option_table",
    "paragraphs",
    "stage_list",
    "stage_page",
    "stage_table",
    "type_text",
]

_WIDTH = 100
_KINDS = {
    "source": "makes frames, in order; stands under sources",
    "composite": "expands to a chain of several stages",
    "batch": "works on whole batches, on the pipeline's device, and keeps no state between batches",
    "stream": "sees every source's frames in order, all sources of a batch in one call, on the host",
    "frame": "sees one source's frames in order, on the host",
    "sink": "writes frames to an output and passes them on",
}
_UNITS = {
    "seconds": "duration, such as 10s",
    "bytes": "size, such as 100MB",
    "count": "whole number from 1",
    "times": "duration or list of them",
    "frame numbers": "frame number or list of them",
    "device": "device, or list of devices",
    "file": "path of a file",
}
_DURATIONS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"))
_SIZES = ((10**9, "GB"), (2**30, "GiB"), (10**6, "MB"), (2**20, "MiB"), (10**3, "KB"), (2**10, "KiB"), (1, "B"))
_ALSO = (
    "Every stage also takes `stage` (its type, if its id is another word), `from` (the ids it reads from; by default "
    "the previous stage) and `run` (queue, on_error: skip | stop, instances)."
)
_ALSO_SOURCE = (
    "Every source also takes `stage` (its type, if its address does not determine it), `name`, `group`, `site`, `tags` "
    "and `order` (how people find it on the page), and `fault`, which injects faults for tests; `explain fault` shows "
    "how."
)
_BASES: dict[Any, str] = {
    float: "number",
    int: "whole number",
    str: "text",
    bool: "true | false",
    Path: "path",
    Any: "anything",
    object: "anything",
    datetime: "day and time, such as 2026-03-02T23:00:00+01:00",
    Rate: "rate, such as 20/min",
}


def kind_of(kind: type[Stage]) -> str:
    """The kind of a stage in one word: source, composite, batch, stream, frame, sink."""
    return "composite" if issubclass(kind, Composite) else kind_name(kind)


def stage_list(registry: Registry) -> str:
    """All stages, one a line: name, kind, what it reads and writes, summary; sorted by kind, then by name."""
    kinds = _sorted(registry)
    rows = [
        (kind.name, kind_of(kind), " > ".join(", ".join(words) or "-" for words in (kind.spec.reads, kind.spec.writes)))
        for kind in kinds
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)) for row in rows]
    return "\n".join(f"{line}  {summary(kind)}" for line, kind in zip(lines, kinds, strict=True))


def part_list(registry: Registry) -> str:
    """The network families and tracker methods of plugins, one a line: name, kind, summary; empty without any."""
    lines = []
    for name, family in sorted(registry.families.items()):
        outputs = ", ".join(f"{output} (batch, {', '.join(map(str, shape))})" for output, shape in family.outputs)
        lines.append(f"{name}  network family  {outputs}  {family.summary}")
    lines += [f"{name}  tracker method  {method.summary}" for name, method in sorted(registry.trackers.items())]
    return "\n".join(lines)


def stage_table(registry: Registry) -> str:
    """The stages of `stage_list` as a Markdown table."""
    lines = ["| stage | kind | reads | writes | what it does |", "| --- | --- | --- | --- | --- |"]
    for kind in _sorted(registry):
        cells = [f"`{kind.name}`", kind_of(kind), *map(", ".join, _words(kind).values()), summary(kind)]
        lines.append(f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |")
    return "\n".join(lines)


def explain(registry: Registry, name: str) -> str:
    """Describe a stage, its kind and its options with type, default and help; also `device`, `fault` and `alarms`.

    Raises:
        ConfigError: there is no such stage.
    """
    other = {Fault.name: Fault, DeviceOptions.name: DeviceOptions, Alarm.name: Alarm, STAGE: Alarm}.get(name)
    if other is not None and registry.get(name) is None:
        facts = [explained()] if other is Alarm else []
        return "\n".join([*_head(other), *_option_lines(other), *facts])
    kind = _find(registry, name)
    where = kind_of(kind)
    lines = [*_head(kind), f"kind    {where}: {_KINDS[where]}"]
    lines += [f"{word:<7} {', '.join(words)}" for word, words in _words(kind).items() if words]
    lines += [*_option_lines(kind, registry), "", *textwrap.wrap(_also(kind), _WIDTH)]
    return "\n".join(lines)


def stage_page(registry: Registry, name: str) -> str:
    """What `explain` shows of a stage, as a Markdown page.

    Raises:
        ConfigError: there is no such stage.
    """
    kind = _find(registry, name)
    where = kind_of(kind)
    lines = [f"# `{name}`"]
    lines += [line for part in paragraphs(kind) for line in ("", cell(part))]
    lines += ["", f"Kind: {where}, {_KINDS[where]}."]
    for word, words in _words(kind).items():
        lines += ["", f"{word.capitalize()}: {', '.join(f'`{text}`' for text in words)}."] if words else []
    lines += ["", "## Options", "", *option_table(kind)]
    return "\n".join([*lines, "", cell(_also(kind)), ""])


def option_table(kind: type[Any]) -> list[str]:
    """The options of a stage or another dataclass as the lines of a Markdown table; empty without options."""
    lines = ["| option | type | default | meaning |", "| --- | --- | --- | --- |"]
    for option in options(kind):
        cells = (f"`{option.name}`", type_text(option.type), default_text(option), option.help)
        lines.append(f"| {' | '.join(map(cell, cells))} |")
    return lines if options(kind) else []


def default_text(option: Option) -> str:
    """An option's default for a Markdown table; empty if it has none."""
    if option.required:
        return "required"
    return "" if option.default is None else f"`{_with_unit(option.type, option.default)}`"


def _with_unit(kind: Any, value: Any) -> str:
    """A default as written in a YAML, with the unit of a duration or a size."""
    unit = next((mark.name for mark in getattr(kind, "__metadata__", ()) if isinstance(mark, Unit)), "")
    if typing.get_origin(kind) in (Union, types.UnionType):
        several = {_with_unit(part, value) for part in typing.get_args(kind) if part is not type(None)}
        return max(several, key=len)
    steps = {"seconds": _DURATIONS, "bytes": _SIZES}.get(unit)
    if steps is None or isinstance(value, (bool, str)) or not isinstance(value, (int, float)):
        return _yaml(value)
    if not value:
        return f"0{steps[-2][1] if unit == 'seconds' else ''}"
    size, word = next(((size, word) for size, word in steps if value >= size and value % size == 0), steps[-1])
    return f"{value / size:g}{word}"


def _words(kind: type[Stage]) -> dict[str, tuple[str, ...]]:
    return {"reads": kind.spec.reads, "writes": kind.spec.writes}


def _also(kind: type[Stage]) -> str:
    return _ALSO_SOURCE if issubclass(kind, Source) else _ALSO


def cell(text: str) -> str:
    """Text for Markdown, also within a table; code spans are not changed."""
    signs = {"|": "&#124;", "<": "&lt;", "*": "&#42;"}
    return re.sub(r"`[^`]*`|[|<*]", lambda match: signs.get(match[0], match[0]), text)


def _head(kind: type[Any]) -> list[str]:
    text = paragraphs(kind)
    return [f"{kind.name}: {text[0]}", *(line for part in text[1:] for line in ["", *textwrap.wrap(part, _WIDTH)]), ""]


def _option_lines(kind: type[Any], registry: Registry | None = None) -> list[str]:
    """Describe the options; with a registry, including the names that its plugins add."""
    lines = ["options" if options(kind) else "options none"]
    for option in options(kind):
        default = "required" if option.required else f"default {_with_unit(option.type, option.default)}"
        mark = PluginNames.of(option.type)
        choices = type_text(option.type) if mark is None or registry is None else " | ".join(mark.names(registry))
        heading = f"{option.name}: {choices}; {default}"
        lines.extend(textwrap.wrap(heading, _WIDTH, initial_indent="  ", subsequent_indent="      "))
        lines.extend(textwrap.wrap(option.help, _WIDTH, initial_indent="      ", subsequent_indent="      "))
    return lines


def type_text(kind: Any) -> str:
    """An option's type in the words of a YAML: `number 0..1`, `duration, such as 10s`, `a | b`, `list of text`."""
    if kind == Model:
        return "model card or .onnx file"
    if kind == Point:
        return "point [x, y]"
    if (mark := PluginNames.of(kind)) is not None:
        return " | ".join(mark.built_in)
    origin = typing.get_origin(kind)
    arguments = typing.get_args(kind)
    if origin is Annotated:
        unit = next((m for m in arguments[1:] if isinstance(m, Unit)), None)
        return (
            type_text(arguments[0])
            if unit is None
            else _UNITS.get(unit.name, f"{type_text(arguments[0])} ({unit.name})")
        )
    if origin in (Required, NotRequired):
        return type_text(arguments[0])
    if origin is Literal:
        return " | ".join(map(str, arguments))
    if origin in (Union, types.UnionType):
        return " or ".join(type_text(member) for member in arguments if member is not type(None))
    if origin in (list, set, frozenset) or (origin is tuple and arguments[-1:] == (...,)):
        return f"list of {type_text(arguments[0])}"
    if origin is tuple:
        return f"[{', '.join(map(type_text, arguments))}]"
    if origin is dict:
        return f"mapping to {type_text(arguments[1])}"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " | ".join(str(member.value) for member in kind)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind) and not hasattr(kind, "__get_pydantic_core_schema__"):
        return _keys({option.name: option.type for option in options(kind)})
    if hasattr(kind, "__total__"):  # a TypedDict, also that of typing_extensions
        return _keys(typing.get_type_hints(kind, include_extras=True))
    return _BASES.get(kind) or str(getattr(kind, "__name__", kind))


def _keys(types: dict[str, Any]) -> str:
    return "{" + ", ".join(f"{name}: {type_text(kind)}" for name, kind in types.items()) + "}"


def _sorted(registry: Registry) -> list[type[Stage]]:
    return sorted(registry.values(), key=lambda kind: (list(_KINDS).index(kind_of(kind)), kind.name))


def _find(registry: Registry, name: str) -> type[Stage]:
    kind = registry.get(name)
    if kind is None:
        near = did_you_mean(name, registry.names())
        raise ConfigError(f"there is no stage {name!r}{near or '; streamkit list shows all'}")
    return kind


def paragraphs(kind: type[Any]) -> list[str]:
    """The paragraphs of a stage's docstring."""
    parts = [" ".join(part.split()) for part in re.split(r"\n\s*\n", kind.__doc__ or "")]
    return [part for part in parts if part] or ["(it has no description)"]


def _yaml(value: Any) -> str:
    """A default as written in a YAML."""
    if value is None:
        return "not set"
    if isinstance(value, float):
        return f"{value:g}"
    from pydantic_core import to_jsonable_python

    value = sorted(value, key=str) if isinstance(value, (set, frozenset)) else value
    plain = to_jsonable_python(value, fallback=str)
    return plain if isinstance(plain, str) and plain else json.dumps(plain)
