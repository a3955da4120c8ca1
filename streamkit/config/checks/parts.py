# SPDX-License-Identifier: Apache-2.0
"""Checks that the parts of a composite, which a plugin may have made, can be in a graph."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from streamkit.config.plan import StageConfig
from streamkit.config.validate import refusal, requirement
from streamkit.core.errors import ConfigError, Problem, describe
from streamkit.core.options import options
from streamkit.core.stage import BatchStage, Composite, CompositePart, FrameStage, Sink, Stage, StreamStage
from streamkit.core.text import did_you_mean

_MAY_BE = (BatchStage, StreamStage, FrameStage, Sink)
_PLAIN = (bool, int, float, str, type(None))


def parts_before(kind: type[Stage], options: Mapping[str, Any]) -> list[CompositePart]:
    """The parts that run before a stage without being in the YAML, from its class's `parts_before`."""
    return getattr(kind, "parts_before", lambda options: [])(options)  # type: ignore[no-any-return]


def parts_of(stage: StageConfig, problems: list[Problem]) -> list[CompositePart]:
    """The parts of a composite, in order; none if they are invalid, with a problem at the composite's place."""
    parts, wrong = _build_parts(stage)
    if not wrong:
        wrong = list(_wrong(stage, parts))
    problems.extend(stage.node.problem(f"{stage.id}{text}") for text in wrong)
    return [] if wrong else parts


def _build_parts(stage: StageConfig) -> tuple[list[CompositePart], list[str]]:
    """The return value of a composite's `parts`, and what is wrong with it as a whole."""
    name = stage.type.name
    try:
        composite = stage.type(**stage.options)
        assert isinstance(composite, Composite)
        returned: Any = composite.parts()
        parts = list(returned) if isinstance(returned, (list, tuple)) or hasattr(returned, "__next__") else None
    except Exception as error:  # a plugin's code may raise anything
        return [], [f": the parts of {name} cannot be made: {describe(error)}"]
    if parts and all(isinstance(part, CompositePart) for part in parts):
        return parts, []
    return [], [f": parts() of {name} must return a list of CompositePart(name, type, options), got {returned!r}"]


def _wrong(stage: StageConfig, parts: list[CompositePart]) -> Iterator[str]:
    """Problems that keep the parts out of a graph, without the composite's id."""
    names = [part.name for part in parts]
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        yield f": two parts of {stage.type.name} are called {name!r}; give each a name of its own"
    for part in parts:
        if not (isinstance(part.type, type) and issubclass(part.type, _MAY_BE)):
            kinds = ", ".join(kind.__name__ for kind in _MAY_BE)
            type_name = getattr(part.type, "__name__", part.type)
            yield f".{part.name}: a part must be one of the kinds {kinds}, and {type_name} is none"
        else:
            yield from (f".{part.name}: {text}" for text in _options(part))


def _options(part: CompositePart) -> list[str]:
    """Problems with a part's options: unknown names, wrong types, values that its class refuses."""
    if dataclasses.is_dataclass(part.type):
        fields = {field.name for field in dataclasses.fields(part.type) if field.init}
        unknown = [name for name in part.options if name not in fields]
        if unknown:
            return [f"{part.type.__name__} has no option {name!r}{did_you_mean(name, fields)}" for name in unknown]
        if unfit := list(_unfit(part)):
            return unfit
    refused = refusal(part.type, part.options)
    return [] if refused is None else [refused]


def _unfit(part: CompositePart) -> Iterator[str]:
    """Options of a plain type, such as a number or text, with another value; Python made the values of other types."""
    from pydantic import TypeAdapter, ValidationError

    try:
        declared = options(part.type)
    except ConfigError:  # types that are there for a type checker only: a part's class need not have others
        return
    for option in declared:
        if option.name not in part.options or not _plain(option.type):
            continue
        value = part.options[option.name]
        try:
            TypeAdapter(option.type).validate_python(getattr(value, "item", lambda value=value: value)(), strict=True)
        except ValidationError as error:
            yield f"{option.name} {' or '.join(dict.fromkeys(map(requirement, error.errors())))}, got {value!r}"


def _plain(kind: Any) -> bool:
    """Whether a type is a number, a text or a choice of words, with a unit or without."""
    origin = get_origin(kind)
    arguments = get_args(kind)
    if origin is Annotated:
        return _plain(arguments[0])
    if origin in (Union, types.UnionType):
        return all(map(_plain, arguments))
    return origin is Literal or kind in _PLAIN
