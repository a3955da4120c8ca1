"""Checks a stage's options against the types of its fields."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, NotRequired, get_args, get_type_hints

from streamkit.core.errors import ConfigError, Problem, describe
from streamkit.core.stage import Option, Stage, options
from streamkit.core.text import did_you_mean, nearest, renamed
from streamkit.core.yaml_tree import YamlNode
from streamkit.models.card_option import CardProblems

_TYPES = {
    "float_type": "a number", "int_type": "a whole number", "int_from_float": "a whole number", "string_type": "text",
    "bool_type": "true or false", "list_type": "a list", "tuple_type": "a list", "dict_type": "a mapping",
    "none_required": "nothing", "model_type": "a mapping", "dataclass_type": "a mapping",
}  # fmt: skip
_OTHER_NAMES = {
    "h265": "hevc", "h.265": "hevc", "x265": "hevc", "h.264": "h264", "x264": "h264", "avc": "h264",
}  # fmt: skip
_MISSPELT = ("extra_forbidden", "unexpected_keyword_argument")
_TYPES_THERE_ARE = (
    "take int, float, str, bool, Path, an Enum or a Literal, a list, tuple, dict, dataclass or TypedDict of them, or a "
    "unit such as Seconds; what only Python sets is a ClassVar or field(init=False)"
)


class OptionValidator:
    """Checks options; collects what is wrong into `problems`.

    Args:
        folder: where a pipeline's own cards are looked up: the YAML's folder.
        problems: the list that problems are added to.
    """

    def __init__(self, folder: Path, problems: list[Problem]) -> None:
        self.folder, self.problems = folder, problems

    def __call__(self, kind: type[Any], node: YamlNode, id_: str) -> dict[str, Any] | None:
        """Check the options of `kind` under the stage id `id_`; return the values, or None if there are problems.

        `kind` is a stage, or another dataclass with a `name` that a YAML configures, such as `Fault`.
        """
        from pydantic import ValidationError

        try:
            model, known = model_of(kind), _readable_names(kind)
        except ConfigError as error:
            self.problems.append(node.problem(f"{id_}: {error}"))
            return None
        before = len(self.problems)
        unknown = [key for key in node.value if key not in known]
        for key in unknown:
            way = renamed(key, known) or did_you_mean(key, known) or _within(kind, key)
            owner = kind.name if issubclass(kind, Stage) else id_
            self.problems.append(node.problem(f"{owner} has no option {key!r}{way}", key))
        given = {key: item.plain() for key, item in node.value.items() if key in known}
        try:
            values = model.validate_json(json.dumps(given), strict=True, context={"folder": self.folder})
        except ValidationError as error:
            misspelt = {(nearest(key, known),) for key in unknown}
            found = [e for e in error.errors(include_url=False) if e["type"] != "missing" or e["loc"] not in misspelt]
            self._report(kind, node, id_, found)
            return None
        except Exception as error:  # of a plugin's own type
            self.problems.append(node.problem(f"{id_}: its options cannot be read: {describe(error)}"))
            return None
        if len(self.problems) == before and (refused := refusal(kind, values)) is not None:
            self.problems.append(node.problem(f"{id_}: {refused}"))
        return {name: values[name] for name in given} if len(self.problems) == before else None

    def _report(self, kind: type[Any], node: YamlNode, id_: str, errors: list[Any]) -> None:
        """Add one problem for each place; for a union, it names what each type accepts."""
        places: dict[tuple[str, ...], tuple[YamlNode, list[str], list[str]]] = {}
        for error in errors:
            cause = error.get("ctx", {}).get("error")
            if isinstance(cause, CardProblems):
                place = node.value.get(error["loc"][0], node)
                self.problems.extend(p if p.line else place.problem(f"{id_}: {p.text}") for p in cause.problems)
                continue
            found, path = node.follow(error["loc"])
            if error["type"] == "missing":
                missing = error["loc"][-1]
                text = next((f": {o.help}" for o in options(kind) if o.name == missing and o.help and not path), "")
                self.problems.append(found.problem(f"{_joined(id_, *path, str(missing))} is required{text}"))
                continue
            if error["type"] in _MISSPELT:
                parent, taken = node.follow(error["loc"][:-1])
                key, name = str(error["loc"][-1]), _joined(id_, *taken)
                way = did_you_mean(key, _keys(kind, error["loc"]))
                self.problems.append(parent.problem(f"{name} has no option {key!r}{way}", key))
                continue
            _, texts, nears = places.setdefault(tuple(path), (found, [], []))
            texts.append(told(error))
            nears.append(meant(error, found))
        for steps, (found, texts, nears) in places.items():
            first, *others = dict.fromkeys(texts)
            text = " or ".join([first, *(other.removeprefix("must be ") for other in others)])
            if "secret" in steps:  # its value is not shown
                text, shown = "must be text; put quotes around it", ""
            else:
                shown = got(found)
            self.problems.append(found.problem(f"{_joined(id_, *steps)} {text}{shown}{''.join(nears)}"))


def _joined(*names: str) -> str:
    return ".".join(filter(None, names))


def refusal(kind: type[Any], values: dict[str, Any]) -> str | None:
    """The error of the constructor of `kind`, with its `__post_init__`, for these values; None if it accepts them."""
    try:
        kind(**values)
    except (TypeError, ValueError) as error:
        return str(error) or describe(error)
    except Exception as error:  # a plugin's code may raise anything
        return describe(error)
    return None


@lru_cache(maxsize=512)
def model_of(kind: type[Any]) -> Any:
    """The pydantic adapter of a stage's options, as a TypedDict.

    Raises:
        ConfigError: an option has a type that pydantic has no adapter for.
    """
    return _of_all(kind, lambda fields: _adapter(kind.name, fields))


def _adapter(name: str, fields: list[Option]) -> Any:
    """The adapter of a TypedDict of these options; a nested mapping or dataclass accepts no unknown keys."""
    from pydantic import ConfigDict, Field, TypeAdapter
    from typing_extensions import TypedDict  # before Python 3.12 pydantic needs this one

    types: dict[str, Any] = {}
    for option in fields:
        described: Any = Annotated.__class_getitem__((option.type, Field(description=option.help)))  # type: ignore[attr-defined]
        types[option.name] = described if option.required else NotRequired[described]
    make: Any = TypedDict  # a class made of the stage's fields, which a type checker cannot follow
    shape = make(name, types)
    shape.__pydantic_config__ = ConfigDict(arbitrary_types_allowed=True, extra="forbid")
    return TypeAdapter(shape)


@lru_cache(maxsize=512)
def _readable_names(kind: type[Any]) -> dict[str, None]:
    """The names of the options, in order.

    Raises:
        ConfigError: no text can express the type of an option, such as an array or a function.
    """
    from pydantic.json_schema import GenerateJsonSchema

    class Schema(GenerateJsonSchema):
        def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> Any:
            if schema["type"] in ("is-instance", "callable"):
                raise TypeError
            return {}  # a type that reads its text itself

    _of_all(kind, lambda fields: _adapter(kind.name, fields).json_schema(schema_generator=Schema))
    return dict.fromkeys(option.name for option in options(kind))


def _of_all(kind: type[Any], make: Callable[[list[Option]], Any]) -> Any:
    """Apply `make` to the options of `kind`; raises ConfigError that names the option on which it fails."""
    found = options(kind)
    try:
        return make(found)
    except Exception:
        for option in found:
            try:
                make([option])
            except Exception as error:
                why = f" ({str(error).splitlines()[0]})" if str(error) else ""
                shown = inspect.formatannotation(option.type)
                text = f"the option {option.name} has a type that a YAML cannot give: {shown}{why}; {_TYPES_THERE_ARE}"
                raise ConfigError(text) from error
        raise


def told(error: Any) -> str:
    """The requirement in pydantic's `error`, in this project's words."""
    kind, context = error["type"], error.get("ctx", {})
    if kind in _TYPES:
        return f"must be {_TYPES[kind]}"
    if kind == "literal_error":
        return f"must be {context['expected']}".replace("'", "")
    if kind == "too_long":
        return f"must be a list of {context['max_length']}"
    if kind == "value_error":
        return str(error["msg"]).removeprefix("Value error, ").split(", got ")[0]
    return str(error["msg"])[:1].lower() + str(error["msg"])[1:]


def meant(error: Any, found: YamlNode) -> str:
    """`; did you mean ...?` where the value at `found` is close to an allowed word, or a synonym of one."""
    if error["type"] != "literal_error" or not isinstance(found.value, str):
        return ""
    words = str(error["ctx"]["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
    other = _OTHER_NAMES.get(found.value.lower())
    return f"; did you mean {other!r}?" if other in words else did_you_mean(found.value, words)


def got(found: YamlNode) -> str:
    """`, got VALUE`, the last part of a message."""
    value = found.plain()
    hint = ""
    if isinstance(value, dict) and len(value) == 1 and next(iter(value.values())) is None:
        hint = "; put quotes around a value with braces in it"
    return f", got {value!r}{hint}"


def _keys(kind: type[Any], path: tuple[Any, ...]) -> list[str]:
    """The valid keys in the mapping that is the option at the head of `path`."""
    left = [option.type for option in options(kind) if option.name == path[0]]
    while left:
        one = left.pop()
        if hasattr(one, "__total__"):  # a TypedDict, also that of typing_extensions
            return list(get_type_hints(one))
        if dataclasses.is_dataclass(one):
            return [field.name for field in dataclasses.fields(one) if field.init]
        left.extend(get_args(one))
    return []


def _within(kind: type[Any], key: str) -> str:
    """A hint that names the options whose mappings have such a key."""
    names = [option.name for option in options(kind) if key in _keys(kind, (option.name,))]
    return f"; it stands within {' or '.join(names)}, as in {names[0]}: {{{key}: ...}}" if names else ""
