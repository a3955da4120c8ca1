"""JSON Schema of a pipeline's YAML, generated from the stage classes, for completion and checks in editors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamkit.config.alarms import Alarm
from streamkit.config.entries import INSERTABLE
from streamkit.config.plan import BatchOptions, PipelineOptions, RunOptions
from streamkit.config.validate import model_of
from streamkit.core.fault_schedule import Fault
from streamkit.core.stage import Composite, Registry, Source, Stage, options, summary

_ENV = {"$ref": "#/$defs/environment"}
_WORD = {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_.-]*$"}
_STAGE_ID = "^(?!decode$)[A-Za-z_][A-Za-z0-9_-]{0,99}$"
_SOURCE_ID = "^(?=.{1,400}$)(?!.*[^/]{101})[A-Za-z0-9_][A-Za-z0-9_./ -]*$"
_URI_SOURCES = ("source", "pictures", "test_pattern")


def json_schema(registry: Registry) -> dict[str, Any]:
    """JSON Schema (2020-12) of a pipeline's YAML, for completion and checks in editors.

    It never refuses what `run.py check` accepts; what needs the whole graph is left to `check`. Stages of plugins are
    included if they are in the registry.
    """
    kinds = [kind for name in registry.names() if (kind := registry.get(name)) is not None]
    sources = [kind for kind in kinds if issubclass(kind, Source)]
    stages = [kind for kind in kinds if not issubclass(kind, Source)]
    by_uri = [kind for kind in sources if kind.name in _URI_SOURCES]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "streamkit pipeline",
        "type": "object",
        "required": ["sources", "stages"],
        "additionalProperties": False,
        "properties": {
            **_top(),
            "sources": {
                "description": "id: URI, or id: {uri: ..., options}",
                "type": "object",
                "minProperties": 1,
                "propertyNames": {"pattern": _SOURCE_ID},
                "additionalProperties": {
                    "if": {"type": "object", "required": ["stage"]},
                    "then": _by_stage(sources),
                    "else": {"anyOf": [{"type": "string"}, *map(_reference, by_uri)]},
                },
            },
            "stages": {
                "description": "id: options; a chain in the order written",
                "type": "object",
                "minProperties": 1,
                "propertyNames": {"pattern": _STAGE_ID},
                "properties": {
                    kind.name: {
                        "description": summary(kind),
                        "if": {"type": "object", "required": ["stage"]},
                        "then": {"$ref": "#/$defs/named"},
                        "else": _reference(kind),
                    }
                    for kind in stages
                },
                "additionalProperties": {"$ref": "#/$defs/named"},
            },
        },
        "$defs": {
            **_shared(),
            "named": _by_stage(stages),
            "insert": _insert([kind for kind in stages if issubclass(kind, INSERTABLE)]),
            "fault": _filled(Fault, minProperties=1),
            "alarm": _filled(Alarm, required=["when"]),
            **{f"stage.{kind.name}": _options(kind) for kind in kinds},
        },
    }


def _top() -> dict[str, Any]:
    """The top-level keys other than `sources` and `stages`."""
    found, _ = _properties(PipelineOptions, "")
    batch = _filled(BatchOptions)
    size = batch["properties"]["size"]
    return {
        **found,
        "batch": {"description": batch.pop("description"), "anyOf": [size, batch]},
        "plugins": {
            "description": "files or folders with stages, relative to this file",
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
        },
        "alarms": {
            "description": "rules about the pipeline itself, by names of their own; explain alarms has the facts",
            "type": "object",
            "additionalProperties": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/alarm"}]},
        },
        "tests": {
            "description": "tests of this pipeline, for run.py test",
            "type": "array",
            "items": {"type": "object"},
        },
    }


def _shared() -> dict[str, Any]:
    """Definitions that every stage entry may use."""
    return {
        "environment": {"type": "string", "pattern": r"\$\{[A-Za-z_]"},
        "from": {
            "description": "ids of the stages to read from; decode is the decoded frames. Left out: the one above",
            "anyOf": [_WORD, {"type": "array", "items": _WORD, "minItems": 1}],
        },
        "run": _filled(RunOptions),
    }


def _by_stage(kinds: Sequence[type[Stage]]) -> dict[str, Any]:
    """An entry whose `stage` names its type."""
    return {
        "type": "object",
        "required": ["stage"],
        "properties": {"stage": {"enum": [kind.name for kind in kinds]}},
        "allOf": [
            {"if": {"properties": {"stage": {"const": kind.name}}, "required": ["stage"]}, "then": _reference(kind)}
            for kind in kinds
        ],
    }


def _insert(kinds: Sequence[type[Stage]]) -> dict[str, Any]:
    one = {
        "type": "object",
        "required": ["after", "stage"],
        "properties": {"after": {"type": "string"}, "stage": {"enum": [kind.name for kind in kinds]}},
    }
    return {
        "description": "{after: PART, stage: NAME, options}: a stage between the parts",
        "anyOf": [one, {"type": "array", "items": one}],
    }


def _reference(kind: type[Stage]) -> dict[str, Any]:
    return {"$ref": f"#/$defs/stage.{kind.name}"}


def _options(kind: type[Stage]) -> dict[str, Any]:
    """The options of a stage, and the keys that the runner reads beside them."""
    properties, shared = _properties(kind, f"stage.{kind.name}")
    reserved: dict[str, Any] = {"stage": {"const": kind.name}}
    if issubclass(kind, Source):
        reserved["fault"] = {"$ref": "#/$defs/fault"}
    else:
        reserved |= {"from": {"$ref": "#/$defs/from"}, "run": {"$ref": "#/$defs/run"}}
    if issubclass(kind, Composite):
        reserved["insert"] = {"$ref": "#/$defs/insert"}
    required = [option.name for option in options(kind) if option.required]
    return {
        "description": summary(kind),
        "type": "object" if required or issubclass(kind, Source) else ["object", "null"],
        "properties": {**properties, **reserved},
        "required": required,
        "additionalProperties": False,
        **shared,
    }


def _filled(kind: type[Any], **more: Any) -> dict[str, Any]:
    """A mapping that is no stage: `run` or `fault` of an entry, `batch`, or an entry of `alarms`."""
    properties, shared = _properties(kind, kind.name)
    return {
        "description": summary(kind),
        "type": "object",
        **more,
        "properties": properties,
        "additionalProperties": False,
        **shared,
    }


def _properties(kind: type[Any], at: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schemas of the options of `kind`, by name, and their shared definitions, as a keyword."""
    schema = _schema_of(model_of(kind), at)
    properties: dict[str, Any] = {}
    for option in options(kind):
        found = dict(_value(schema.get("properties", {}).get(option.name, {})))
        if option.help:
            found["description"] = option.help
        if not option.required and option.default is not None and isinstance(option.default, (bool, int, float, str)):
            found["default"] = option.default
        properties[option.name] = found
    shared = {"$defs": {name: _clean(one) for name, one in schema["$defs"].items()}} if "$defs" in schema else {}
    return properties, shared


def _schema_of(wanted: Any, at: str) -> dict[str, Any]:
    """The pydantic schema of an adapter or a type; an open schema for a type that JSON does not have."""
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticInvalidForJsonSchema

    adapter = wanted if isinstance(wanted, TypeAdapter) else TypeAdapter(wanted)
    try:
        return dict(adapter.json_schema(ref_template=f"#/$defs/{at}/$defs/{{model}}"))
    except PydanticInvalidForJsonSchema:
        return {}


def _value(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a value, extended to accept `${NAME}` for a scalar that is not free text."""
    found = _clean(schema)
    choices = found.pop("anyOf", None)
    several = [found] if choices is None else choices
    if any(one.get("type") == "string" and not one.keys() & {"pattern", "enum", "const"} for one in several):
        return _clean(schema)
    if all(one.get("type") in ("object", "array", "null") or "$ref" in one or not one for one in several):
        return _clean(schema)
    return {"anyOf": [found, _ENV]} if choices is None else {**found, "anyOf": [*choices, _ENV]}


def _clean(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema without pydantic's titles, which repeat the names; scalars inside may be `${NAME}` too."""
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "title":
            continue
        if key == "properties":
            value = {name: _value(one) for name, one in value.items()}
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            value = _value(value)
        elif key == "prefixItems":
            value = [_value(one) for one in value]
        elif key == "anyOf":
            value = [_clean(one) for one in value]
        found[key] = value
    return found
