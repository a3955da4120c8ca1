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
from streamkit.config.schema import json_schema
from streamkit.core.errors import ConfigError
from streamkit.core.fault_schedule import Fault
from streamkit.core.stage import Composite, Registry, Source, Stage, options, summary
from streamkit.core.text import did_you_mean
from streamkit.core.units import Point, Unit
from streamkit.models.card_option import Model

__all__ = ["explain", "json_schema", "kind_of", "stage_list", "stage_page", "stage_table", "type_text"]

_WIDTH = 100
_ORDER = ("source", "composite", "batch", "stream", "frame", "sink")
_KINDS = {
    "source": "makes frames, in order; stands under sources",
    "composite": "stands for several stages in a chain",
    "batch": "works on whole batches, on the pipeline's device, and keeps nothing between them",
    "stream": "sees every source's frames in order, all sources of a batch in one call, on the host",
    "frame": "sees one source's frames in order, on the host",
    "sink": "writes frames out and passes them on",
}
_UNITS = {
    "seconds": "duration, such as 10s", "bytes": "size, such as 100MB", "count": "whole number from 1",
    "times": "duration or list of them", "frame numbers": "frame number or list of them",
}  # fmt: skip
_ALSO = (
    "Every stage also takes `stage` (its type, where its id is another word), `from` (the ids it reads from; without "
    "it the stage above) and `run` (queue, on_error: skip | stop, instances)."
)
_ALSO_SOURCE = (
    "Every source also takes `stage` (its type, where its address does not tell), and `fault`, which lets it go wrong "
    "on purpose; `explain fault` shows how."
)
_BASES: dict[Any, str] = {
    float: "number", int: "whole number", str: "text", bool: "true | false", Path: "path", Any: "anything",
    object: "anything", datetime: "day and time, such as 2026-03-02T23:00:00+01:00",
}  # fmt: skip


def kind_of(kind: type[Stage]) -> str:
    """The kind of a stage in one word: source, composite, batch, stream, frame, sink."""
    return "composite" if issubclass(kind, Composite) else kind_name(kind)


def stage_list(registry: Registry) -> str:
    """All stages, one a line: name, kind, what it reads and writes, summary; sorted by kind, then by name."""
    rows = [
        (
            kind.name,
            kind_of(kind),
            f"{', '.join(kind.spec.reads) or '-'} > {', '.join(kind.spec.writes) or '-'}",
            summary(kind),
        )
        for kind in _sorted(registry)
    ]
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(3)]
    return "\n".join("  ".join([*map(str.ljust, row, widths), row[3]]) for row in rows)


def stage_table(registry: Registry) -> str:
    """The stages of `stage_list` as a Markdown table."""
    head = ["| stage | kind | reads | writes | what it does |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([*head, *map(_row, _sorted(registry))])


def explain(registry: Registry, name: str) -> str:
    """Describe a stage, its kind and its options with type, default and help; also `fault` and `alarms`.

    Raises:
        ConfigError: there is no such stage.
    """
    if name == Fault.name and registry.get(name) is None:
        return "\n".join([*_head(Fault), *_option_lines(Fault)])
    if name in (Alarm.name, STAGE) and registry.get(name) is None:
        return "\n".join([*_head(Alarm), *_option_lines(Alarm)]) + "\n" + explained()
    kind = _find(registry, name)
    where = kind_of(kind)
    lines = _head(kind)
    lines.append(f"kind    {where}: {_KINDS[where]}")
    words = {"reads": kind.spec.reads, "writes": kind.spec.writes}
    lines.extend(f"{word:<7} {', '.join(found)}" for word, found in words.items() if found)
    lines += _option_lines(kind)
    lines += ["", *textwrap.wrap(_ALSO_SOURCE if issubclass(kind, Source) else _ALSO, _WIDTH)]
    return "\n".join(lines)


def stage_page(registry: Registry, name: str) -> str:
    """What `explain` shows of a stage, as a Markdown page.

    Raises:
        ConfigError: there is no such stage.
    """
    kind = _find(registry, name)
    where = kind_of(kind)
    lines = [f"# `{name}`"]
    lines += [line for part in _text(kind) for line in ("", _cell(part))]
    lines += ["", f"Kind: {where}, {_KINDS[where]}."]
    for word, found in {"Reads": kind.spec.reads, "Writes": kind.spec.writes}.items():
        lines += ["", f"{word}: {', '.join(f'`{one}`' for one in found)}."] if found else []
    lines += ["", "## Options", ""]
    if options(kind):
        lines += ["| option | type | default | meaning |", "| --- | --- | --- | --- |"]
    for option in options(kind):
        default = "required" if option.required else "" if option.default is None else f"`{_yaml(option.default)}`"
        cells = (f"`{option.name}`", type_text(option.type), default, option.help)
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    lines += ["", _cell(_ALSO_SOURCE if issubclass(kind, Source) else _ALSO)]
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    """Text for Markdown, also within a table; code spans stay as they are."""
    signs = {"|": "&#124;", "<": "&lt;", "*": "&#42;"}
    return re.sub(r"`[^`]*`|[|<*]", lambda found: signs.get(found[0], found[0]), text)


def _head(kind: type[Any]) -> list[str]:
    text = _text(kind)
    return [f"{kind.name}: {text[0]}", *(line for part in text[1:] for line in ["", *textwrap.wrap(part, _WIDTH)]), ""]


def _option_lines(kind: type[Any]) -> list[str]:
    lines = ["options" if options(kind) else "options none"]
    for option in options(kind):
        default = "required" if option.required else f"default {_yaml(option.default)}"
        one = f"{option.name}: {type_text(option.type)}; {default}"
        lines.extend(textwrap.wrap(one, _WIDTH, initial_indent="  ", subsequent_indent="      "))
        lines.extend(textwrap.wrap(option.help, _WIDTH, initial_indent="      ", subsequent_indent="      "))
    return lines


def type_text(kind: Any) -> str:
    """An option's type in the words of a YAML: `number 0..1`, `duration, such as 10s`, `a | b`, `list of text`."""
    if kind == Model:
        return "model card"
    if kind == Point:
        return "point [x, y]"
    origin, given = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        unit = next((m for m in given[1:] if isinstance(m, Unit)), None)
        return type_text(given[0]) if unit is None else _UNITS.get(unit.name, f"{type_text(given[0])} ({unit.name})")
    if origin in (Required, NotRequired):
        return type_text(given[0])
    if origin is Literal:
        return " | ".join(map(str, given))
    if origin in (Union, types.UnionType):
        return " or ".join(type_text(one) for one in given if one is not type(None))
    if origin in (list, set, frozenset) or (origin is tuple and given[-1:] == (...,)):
        return f"list of {type_text(given[0])}"
    if origin is tuple:
        return f"[{', '.join(map(type_text, given))}]"
    if origin is dict:
        return f"mapping to {type_text(given[1])}"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " | ".join(str(one.value) for one in kind)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind) and not hasattr(kind, "__get_pydantic_core_schema__"):
        return _keys({option.name: option.type for option in options(kind)})
    if hasattr(kind, "__total__"):  # a TypedDict, also that of typing_extensions
        return _keys(typing.get_type_hints(kind, include_extras=True))
    return _BASES.get(kind) or str(getattr(kind, "__name__", kind))


def _keys(types: dict[str, Any]) -> str:
    return "{" + ", ".join(f"{name}: {type_text(kind)}" for name, kind in types.items()) + "}"


def _sorted(registry: Registry) -> list[type[Stage]]:
    kinds = [kind for name in registry.names() if (kind := registry.get(name)) is not None]
    return sorted(kinds, key=lambda kind: (_ORDER.index(kind_of(kind)), kind.name))


def _row(kind: type[Stage]) -> str:
    words = [f"`{kind.name}`", kind_of(kind), ", ".join(kind.spec.reads), ", ".join(kind.spec.writes), summary(kind)]
    return f"| {' | '.join(word.replace('|', '&#124;') for word in words)} |"


def _find(registry: Registry, name: str) -> type[Stage]:
    kind = registry.get(name)
    if kind is None:
        near = did_you_mean(name, registry.names())
        raise ConfigError(f"there is no stage {name!r}{near or '; run.py list shows all'}")
    return kind


def _text(kind: type[Any]) -> list[str]:
    """The paragraphs of a stage's docstring before its options."""
    doc = re.split(r"\n\s*Options:", kind.__doc__ or "", maxsplit=1)[0]
    parts = [" ".join(part.split()) for part in textwrap.dedent(doc).split("\n\n")]
    return [part for part in parts if part] or ["(it has no description)"]


def _yaml(value: Any) -> str:
    """A default as written in a YAML."""
    if value is None:
        return "not set"
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) and value else json.dumps(value, default=_json)


def _json(value: Any) -> Any:
    """A JSON form for values in a default that JSON has none for."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=str)
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return str(value)
