# SPDX-License-Identifier: Apache-2.0
"""The options of a stage or another class that is configured in YAML: dataclass fields with types and help."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

from streamkit.core.errors import ConfigError, describe

_REQUIRED = dataclasses.MISSING
_KEYS = ("stage", "from", "run", "insert")
_SOURCE_KEYS = ("stage", "fault")


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a stage, for `explain` and the JSON Schema."""

    name: str
    type: Any
    default: Any
    help: str

    @property
    def required(self) -> bool:
        """Whether the YAML must set it."""
        return self.default is _REQUIRED


_OF_PLUGINS = " (a plugin adds others: list its file under plugins)"


@dataclass(frozen=True)
class PluginNames:
    """Mark of an option that takes a name to which plugins may add, such as the `method` of `track`.

    Attributes:
        parts: the attribute of `Registry` that holds the parts of plugins by name.
        built_in: the built-in names.
    """

    parts: str
    built_in: tuple[str, ...]

    @staticmethod
    def of(type_: Any) -> PluginNames | None:
        """Return the mark of an option's type; None without one."""
        return next((mark for mark in getattr(type_, "__metadata__", ()) if isinstance(mark, PluginNames)), None)

    def names(self, registry: Any) -> list[str]:
        """Return the built-in names, and those of a registry's plugins."""
        return list(dict.fromkeys([*self.built_in, *sorted(getattr(registry, self.parts))]))

    def unknown(self, names: Iterable[str]) -> Exception:
        """Return pydantic's error of a value that is none of these names, as that of a `Literal`, with a hint."""
        from pydantic_core import PydanticKnownError

        *others, last = map(repr, names)
        return PydanticKnownError("literal_error", {"expected": f"{', '.join(others)} or {last}{_OF_PLUGINS}"})


def options(kind: type[Any]) -> list[Option]:
    """The options of a stage or another dataclass that is configured in YAML: its constructor's arguments, with help.

    Fields with the metadata `wired` are not options: the graph sets them.

    Raises:
        ConfigError: an annotation cannot be resolved; names the option.
    """
    hints = _hints(kind)  # type: ignore[arg-type]  # a class can be hashed
    declared = []
    for f in dataclasses.fields(kind):
        if f.init and not f.metadata.get("wired"):
            default = f.default_factory() if f.default_factory is not _REQUIRED else f.default
            type_, text = _type_and_help(hints[f.name])
            declared.append(Option(f.name, type_, default, text))
    return declared


def summary(kind: type[Any]) -> str:
    """The first line of a stage's docstring."""
    return (inspect.getdoc(kind) or "").split("\n", 1)[0]


def check_names(kind: type[Any], base: type[Any], *, source: bool) -> None:
    """Reject options with reserved names: YAML keys, and attributes that the runner reads.

    Args:
        kind: the stage, with its name.
        base: its base class.
        source: whether it is a source, for which other keys are reserved.

    Raises:
        TypeError: an option has a reserved name; says why.
    """
    for name in (f.name for f in dataclasses.fields(kind) if f.init):
        if name in (_SOURCE_KEYS if source else _KEYS):
            reason = f"the YAML key {name} is reserved for the runner"
        elif hasattr(base, name):
            reason = f"the attribute {name} of every {base.__name__} is reserved for the runner"
        else:
            continue
        raise TypeError(f"the option {name!r} of the stage {kind.name} needs another name: {reason}")


@lru_cache(maxsize=512)  # a YAML may have thousands of sources of one type
def _hints(kind: type[Any]) -> dict[str, Any]:
    """The types of the fields; raises ConfigError if an annotation cannot be resolved."""
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except Exception as error:  # an annotation is an expression, and may raise anything
        which = ", ".join(map(repr, _unresolved(kind)))
        whose = getattr(kind, "name", "") or kind.__name__
        text = f"the type of the option {which} of {whose} cannot be read: {describe(error)}"
        hint = "import the types that it uses at the top of the file, not under TYPE_CHECKING"
        raise ConfigError(f"{text}; {hint}") from error


def _unresolved(kind: type[Any]) -> list[str]:
    """The fields whose annotations cannot be resolved."""
    names = []
    for base in kind.__mro__:
        for name, text in inspect.get_annotations(base).items():
            probe = type(base.__name__, (), {"__annotations__": {name: text}, "__module__": base.__module__})
            try:
                typing.get_type_hints(probe, localns=dict(vars(base)))
            except Exception:  # as above
                names.append(name)
    return names


def _type_and_help(hint: Any) -> tuple[Any, str]:
    """Split `Annotated[int, "in pixels"]` into the type and its help; '' if there is none."""
    marks = getattr(hint, "__metadata__", ())
    text = next((mark for mark in marks if isinstance(mark, str)), "")
    if not text:
        return hint, ""
    left = tuple(mark for mark in marks if not isinstance(mark, str))
    return (Annotated[(hint.__origin__, *left)] if left else hint.__origin__), text
