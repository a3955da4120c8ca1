# SPDX-License-Identifier: Apache-2.0
"""Checks a stage's options against the types of its fields."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, NotRequired, get_args, get_type_hints

from streamkit.config.source_details import DETAIL_KEYS
from streamkit.core.errors import ConfigError, Problem, describe
from streamkit.core.stage import Option, Registry, Source, Stage, options
from streamkit.core.text import did_you_mean, nearest, text_of
from streamkit.core.yaml_tree import YamlNode
from streamkit.models.card_option import CardProblems

_TYPES = {
    "float_type": "a number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "none_required": "nothing",
    "model_type": "a mapping",
    "dataclass_type": "a mapping",
}
_OTHER_NAMES = {
    "h265": "hevc",
    "h.265": "hevc",
    "x265": "hevc",
    "h.264": "h264",
    "x264": "h264",
    "avc": "h264",
}
_UNDECODED = re.compile("[\udc80-\udcff]")  # bytes of file names that are not UTF-8, as `os.fsdecode` gives them
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
        registry: the parts of plugins, which options may name.
    """

    def __init__(self, folder: Path, problems: list[Problem], registry: Registry | None = None) -> None:
        self.folder = folder
        self.problems = problems
        self.registry = Registry() if registry is None else registry  # it fills while plugins are loaded

    def __call__(self, kind: type[Any], node: YamlNode, id_: str) -> dict[str, Any] | None:
        """Check the options of `kind` under the stage id `id_`; return the values, or None if there are problems.

        `kind` is a stage, or another dataclass that a YAML configures, such as `Fault`.
        """
        values, refused = self.partly(kind, node, id_)
        return None if refused else values

    def partly(self, kind: type[Any], node: YamlNode, id_: str) -> tuple[dict[str, Any] | None, frozenset[str]]:
        """Check options as `__call__` does, and return those that are valid.

        Returns:
            The values of the valid options, None if `kind` cannot be made of them; and the names of the other options:
            for a misspelt one, the one that it may mean.
        """
        try:
            model = model_of(kind)  # type: ignore[arg-type]  # a class can be hashed
            option_names = _readable_names(kind)  # type: ignore[arg-type]
        except ConfigError as error:
            self.problems.append(node.problem(f"{id_}: {error}"))
            return None, frozenset(node.value)
        is_stage = issubclass(kind, Stage)
        unknown = [key for key in node.value if key not in option_names]
        suggested = (*option_names, *DETAIL_KEYS) if issubclass(kind, Source) else option_names
        for key in unknown:
            hint = (
                did_you_mean(key, suggested)
                or _within(kind, key)
                or did_you_mean(key, option_names, all_if_few=not is_stage)
            )
            self.problems.append(node.problem(f"{kind.name if is_stage else id_} has no option {key!r}{hint}", key))
        misspelt = {name for key in unknown if (name := nearest(key, option_names)) is not None}
        accepted = replace(node, value={key: child for key, child in node.value.items() if key in option_names})
        values, invalid = self._values(model, kind, accepted, id_, misspelt)
        if values is None:
            return None, frozenset(node.value)
        refused = refusal(kind, values)
        if refused is not None and not misspelt and not invalid:  # else the refused part may be what is missing
            self.problems.append(node.problem(f"{id_}: {refused}"))
        names = frozenset({*unknown, *misspelt, *invalid})
        return (values, names) if refused is None else (None, frozenset(node.value))

    def some(self, kind: type[Any], node: YamlNode) -> dict[str, Any] | None:
        """Check new values of some options of `kind`, apart from the others; see `__call__`."""
        fields = [option for option in options(kind) if option.name in node.value]
        values, invalid = self._values(_adapter(kind, fields), kind, node, "")
        return None if invalid else values

    def _values(
        self, model: Any, kind: type[Any], node: YamlNode, id_: str, misspelt: Collection[str] = ()
    ) -> tuple[dict[str, Any] | None, frozenset[str]]:
        """Return the valid values in the types of the options, and the names of the invalid options.

        The values are None if a required option is missing or invalid. One that may be misspelt is not reported.
        """
        from pydantic import ValidationError

        invalid: frozenset[str] = frozenset()
        while True:
            checked = {key: child for key, child in node.value.items() if key not in invalid}
            try:
                return self._typed(model, replace(node, value=checked).plain()), invalid
            except ValidationError as error:
                errors = error.errors(include_url=False)
            except Exception as error:  # of a plugin's own type
                self.problems.append(node.problem(_about(id_, f"its options cannot be read: {describe(error)}")))
                return None, frozenset(node.value)
            if not invalid:
                self._report(kind, node, id_, [e for e in errors if not _is_excused(e, misspelt)])
            refused = {str(error["loc"][0]) for error in errors if error["loc"]}
            if not refused or not refused <= checked.keys():  # a required option is missing
                return None, frozenset(node.value)
            invalid |= refused

    def _typed(self, model: Any, plain: Any) -> dict[str, Any]:
        """Return plain values in the types of the options; raise pydantic's ValidationError if they do not fit.

        JSON has the YAML's types, such as a list for a tuple, but cannot carry file names that are not UTF-8. Options
        with such a name are read as Python values, which only a conversion turns into a `Path` or a tuple.
        """
        plugin_parts = {"families": self.registry.families, "trackers": self.registry.trackers}
        context = {"folder": self.folder, **plugin_parts}
        text = json.dumps(plain, ensure_ascii=False)
        typed: dict[str, Any] = (
            model.validate_python(plain, strict=False, context=context)
            if _UNDECODED.search(text)
            else model.validate_json(text, strict=True, context=context)
        )
        return typed

    def _report(self, kind: type[Any], node: YamlNode, id_: str, errors: list[Any]) -> None:
        """Add one problem for each place; for a union, it names what each type accepts."""
        places: dict[tuple[str, ...], tuple[YamlNode, list[Any]]] = {}
        for error in errors:
            cause = error.get("ctx", {}).get("error")
            place, path = node.follow(error["loc"])
            key = str(error["loc"][-1]) if error["loc"] else ""
            if isinstance(cause, CardProblems):
                card = node.value.get(error["loc"][0], node)
                self.problems.extend(p if p.line else card.problem(_about(id_, p.text)) for p in cause.problems)
            elif not error["loc"]:  # JSON cannot carry the values
                self.problems.append(node.problem(_about(id_, f"its options cannot be read: {error['msg']}")))
            elif error["type"] == "missing":
                text = next((f": {o.help}" for o in options(kind) if o.name == key and o.help and not path), "")
                self.problems.append(place.problem(f"{_joined(id_, *path, key)} is required{text}"))
            elif error["type"] in _MISSPELT:
                parent, steps = node.follow(error["loc"][:-1])
                hint = did_you_mean(key, _keys(kind, steps), all_if_few=True)
                self.problems.append(parent.problem(f"{_joined(id_, *steps)} has no option {key!r}{hint}", key))
            else:
                places.setdefault(tuple(path), (place, []))[1].append(error)
        for steps_to, (place, errors_there) in places.items():
            text = f"{_joined(id_, *steps_to)} {_refused(place, steps_to, errors_there)}"
            self.problems.append(place.problem(text))


def _is_excused(error: Any, misspelt: Collection[str]) -> bool:
    """Whether a required option is missing because its name is misspelt."""
    return error["type"] == "missing" and len(error["loc"]) == 1 and error["loc"][0] in misspelt


def _refused(node: YamlNode, steps: Collection[str], errors: list[Any]) -> str:
    """What the value at `node` must be, and what it is; `steps` are the keys that lead to it."""
    if "secret" in steps:  # its value is not shown
        return "must be text; put quotes around it"
    first, *others = dict.fromkeys(map(requirement, errors))
    text = " or ".join([first, *(other.removeprefix("must be ") for other in others)])
    value = node.plain()
    if errors[0]["type"] != "value_error" or first.startswith("must "):
        text += f", got {value!r}"
    if isinstance(value, dict) and len(value) == 1 and next(iter(value.values())) is None:
        text += "; put quotes around a value with braces in it"
    return text + "".join(_suggestion(error, value) for error in errors)


def _about(id_: str, text: str) -> str:
    return f"{id_}: {text}" if id_ else text


def _joined(*names: str) -> str:
    return ".".join(filter(None, names))


def refusal(kind: type[Any], values: dict[str, Any]) -> str | None:
    """The error of the constructor of `kind`, with its `__post_init__`, for these values; None if it accepts them."""
    try:
        kind(**values)
    except (TypeError, ValueError) as error:
        return text_of(error) or describe(error)
    except Exception as error:  # a plugin's code may raise anything
        return describe(error)
    return None


_models: dict[type[Any], Any] = {}


def model_of(kind: type[Any]) -> Any:
    """The pydantic adapter of a stage's options, as a TypedDict.

    Raises:
        ConfigError: an option has a type that pydantic has no adapter for.
    """
    if kind not in _models:
        _models[kind] = _of_all(kind, lambda fields: _adapter(kind, fields))
    return _models[kind]


def _adapter(kind: type[Any], fields: list[Option]) -> Any:
    """The adapter of a TypedDict of these options; a nested mapping or dataclass accepts no unknown keys."""
    from pydantic import ConfigDict, Field, TypeAdapter
    from typing_extensions import TypedDict  # before Python 3.12 pydantic needs this one

    types: dict[str, Any] = {}
    for option in fields:
        described: Any = Annotated[option.type, Field(description=option.help)]
        types[option.name] = described if option.required else NotRequired[described]
    make: Any = TypedDict  # a class made of the stage's fields, which a type checker cannot follow
    shape = make(kind.__name__, types)
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

    def readable(fields: list[Option]) -> Any:
        adapter = model_of(kind) if len(fields) == len(declared) else _adapter(kind, fields)
        return adapter.json_schema(schema_generator=Schema)

    declared = options(kind)
    _of_all(kind, readable)
    return dict.fromkeys(option.name for option in declared)


def _of_all(kind: type[Any], make: Callable[[list[Option]], Any]) -> Any:
    """Apply `make` to the options of `kind`; raises ConfigError that names the option on which it fails."""
    declared = options(kind)
    try:
        return make(declared)
    except Exception:
        for option in declared:
            try:
                make([option])
            except Exception as error:
                reason = f" ({text_of(error).splitlines()[0]})" if text_of(error) else ""
                shown = inspect.formatannotation(option.type)
                text = (
                    f"the option {option.name} has a type that a YAML cannot give: {shown}{reason}; {_TYPES_THERE_ARE}"
                )
                raise ConfigError(text) from error
        raise


def requirement(error: Any) -> str:
    """What pydantic's `error` says that a value must be, in this project's words."""
    kind = error["type"]
    context = error.get("ctx", {})
    if kind in _TYPES:
        return f"must be {_TYPES[kind]}"
    if kind == "literal_error":
        return f"must be {context['expected']}".replace("'", "")
    if kind == "too_long":
        return f"must be a list of {context['max_length']}"
    if kind == "value_error":
        return str(error["msg"]).removeprefix("Value error, ").split(", got ")[0]
    return str(error["msg"])[:1].lower() + str(error["msg"])[1:]


def _suggestion(error: Any, value: Any) -> str:
    """`; did you mean ...?` if `value` is close to an allowed word, or a synonym of one."""
    if error["type"] != "literal_error" or not isinstance(value, str):
        return ""
    expected = str(error["ctx"]["expected"]).partition(" (")[0]
    words = expected.replace("'", "").replace(" or ", ", ").split(", ")
    other = _OTHER_NAMES.get(value.lower())
    return f"; did you mean {other!r}?" if other in words else did_you_mean(value, words)


def _keys(kind: type[Any], path: Iterable[str]) -> list[str]:
    """The valid keys of the mapping at `path`, which begins with an option."""
    types_by_key = {option.name: option.type for option in options(kind)}
    for step in path:
        # other steps are indices, and names that the user chooses
        types_by_key = _shape(types_by_key[step]) if step in types_by_key else types_by_key
    return list(types_by_key)


def _shape(kind: Any) -> dict[str, Any]:
    """The keys of the mapping with fixed keys within a type, and their types; empty if there is none."""
    left = [kind]
    while left:
        inner = left.pop()
        if hasattr(inner, "__total__"):  # a TypedDict, also that of typing_extensions
            return get_type_hints(inner)
        if isinstance(inner, type) and dataclasses.is_dataclass(inner):
            return {field.name: get_type_hints(inner)[field.name] for field in dataclasses.fields(inner) if field.init}
        left.extend(get_args(inner))
    return {}


def _within(kind: type[Any], key: str) -> str:
    """A hint that names the options whose mappings have such a key."""
    names = [option.name for option in options(kind) if key in _keys(kind, (option.name,))]
    return f"; it stands within {' or '.join(names)}, as in {names[0]}: {{{key}: ...}}" if names else ""
