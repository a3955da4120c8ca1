# SPDX-License-Identifier: Apache-2.0
"""JSON Schema of a pipeline's YAML, generated from the stage classes, for completion and checks in editors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamkit.config.alarms import Alarm
from streamkit.config.entries import INSERTABLE
from streamkit.config.plan import BatchOptions, DeviceOptions, PipelineOptions, RunOptions
from streamkit.config.source_details import SourceDetails
from streamkit.config.validate import model_of
from streamkit.core.fault_schedule import Fault
from streamkit.core.options import PluginNames
from streamkit.core.stage import Composite, Registry, Source, Stage, options, summary

_ENV = {"$ref": "#/$defs/environment"}
_WORD = {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_.-]*$"}
_STAGE_ID = "^(?!decode$)[A-Za-z_][A-Za-z0-9_-]{0,99}$"
_SOURCE_ID = "^(?=.{1,400}$)(?!.*[^/]{101})[A-Za-z0-9_][A-Za-z0-9_./ -]*$"
_TEXT = {"type": "string"}
_FROM = "ids of the stages to read from; decode is the decoded frames. If not set, the previous stage"
_INSERT = "{after: PART, stage: NAME, options}: a stage between the parts"
_ALARMS = "rules about the pipeline itself, each with a name; explain alarms lists the facts"
_TESTS = "tests of this pipeline, for streamkit test"
_URI_SOURCES = ("source", "images", "test_pattern")


def json_schema(registry: Registry) -> dict[str, Any]:
    """JSON Schema (2020-12) of a pipeline's YAML, for completion and checks in editors.

    It never refuses what `streamkit check` accepts; what needs the whole graph is left to `check`. Stages of plugins
    are included if they are in the registry.
    """
    kinds = [registry[name] for name in registry.names()]
    sources = [kind for kind in kinds if issubclass(kind, Source)]
    stages = [kind for kind in kinds if not issubclass(kind, Source)]
    named = {"if": {"type": "object", "required": ["stage"]}, "then": _ref("named")}
    by_uri = [_stage(kind) for kind in sources if kind.name in _URI_SOURCES]
    source = {**named, "then": _by_stage(sources), "else": {"anyOf": [_TEXT, *by_uri]}}
    by_id = {kind.name: {"description": summary(kind), **named, "else": _stage(kind)} for kind in stages}
    properties = {
        **_top(),
        "sources": _entries("id: URI, or id: {uri: ..., options}", _SOURCE_ID, source),
        "stages": {
            **_entries("id: options; a chain in the order written", _STAGE_ID, _ref("named")),
            "properties": by_id,
        },
    }
    insert = _by_stage([kind for kind in stages if issubclass(kind, INSERTABLE)], after=_TEXT)
    insert.pop("allOf")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "streamkit pipeline",
        **_mapping(properties, ["sources", "stages"]),
        "$defs": {
            "environment": {"type": "string", "pattern": r"\$\{[A-Za-z_]"},
            "from": {"description": _FROM, **_single_or_list(_WORD, minItems=1)},
            "run": _filled(RunOptions),
            "named": _by_stage(stages),
            "insert": {"description": _INSERT, **_single_or_list(insert)},
            "fault": {**_filled(Fault), "minProperties": 1},
            "alarm": _filled(Alarm),
            **{f"stage.{kind.name}": _with_plugin_names(_options(kind), kind, registry) for kind in kinds},
        },
    }


def _top() -> dict[str, Any]:
    """The top-level keys other than `sources` and `stages`."""
    properties, _ = _properties(PipelineOptions, "")
    batch = _filled(BatchOptions)
    device = _filled(DeviceOptions)
    alarm = {"anyOf": [_TEXT, _ref("alarm")]}
    return {
        **properties,
        "device": {**properties["device"], "anyOf": [*properties["device"]["anyOf"], device]},
        "batch": {"description": batch.pop("description"), "anyOf": [batch["properties"]["size"], batch]},
        "plugins": {"description": "files or folders with stages, relative to this file", **_single_or_list(_TEXT)},
        "alarms": {"description": _ALARMS, "type": "object", "additionalProperties": alarm},
        "tests": {"description": _TESTS, "type": "array", "items": {"type": "object"}},
    }


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


def _stage(kind: type[Stage]) -> dict[str, Any]:
    return _ref(f"stage.{kind.name}")


def _single_or_list(schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "array", "items": schema, **more}]}


def _mapping(properties: dict[str, Any], required: Sequence[str]) -> dict[str, Any]:
    """A mapping with these keys and no others."""
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _entries(text: str, ids: str, entry: dict[str, Any]) -> dict[str, Any]:
    """A mapping of one or more ids to entries."""
    schema = {"description": text, "type": "object", "minProperties": 1}
    return {**schema, "propertyNames": {"pattern": ids}, "additionalProperties": entry}


def _by_stage(kinds: Sequence[type[Stage]], **more: Any) -> dict[str, Any]:
    """An entry whose `stage` names its type."""
    return {
        "type": "object",
        "required": [*more, "stage"],
        "properties": {**more, "stage": {"enum": [kind.name for kind in kinds]}},
        "allOf": [
            {"if": {"properties": {"stage": {"const": kind.name}}, "required": ["stage"]}, "then": _stage(kind)}
            for kind in kinds
        ],
    }


def _options(kind: type[Stage]) -> dict[str, Any]:
    """The options of a stage, and the keys that the runner reads beside them."""
    schema = _filled(kind, f"stage.{kind.name}")
    reserved = ["fault"] if issubclass(kind, Source) else ["from", "run"]
    reserved += ["insert"] if issubclass(kind, Composite) else []
    schema["properties"] |= {"stage": {"const": kind.name}, **{key: _ref(key) for key in reserved}}
    if issubclass(kind, Source):
        schema["properties"] |= _source_details()
    if not schema["required"] and not issubclass(kind, Source):
        schema["type"] = ["object", "null"]
    return schema


def _source_details() -> dict[str, Any]:
    """The keys of a source that tell people what it is."""
    properties, _ = _properties(SourceDetails, "")
    return {**properties, "tags": {"description": properties["tags"]["description"], **_single_or_list(_TEXT)}}


def _with_plugin_names(schema: dict[str, Any], kind: type[Stage], registry: Registry) -> dict[str, Any]:
    """Add the names of plugins' parts to the schemas of the options that take them; changes `schema`."""
    for option in options(kind):
        if (mark := PluginNames.of(option.type)) is not None:
            choices = schema["properties"][option.name]["anyOf"]
            named = next(choice for choice in choices if "enum" in choice)
            named["enum"] = mark.names(registry)
    return schema


def _filled(kind: type[Any], at: str = "") -> dict[str, Any]:
    """A mapping of options; `at` is its name in `$defs`."""
    properties, shared = _properties(kind, at or kind.name)
    required = [option.name for option in options(kind) if option.required]
    return {"description": summary(kind), **_mapping(properties, required), **shared}


def _properties(kind: type[Any], at: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schemas of the options of `kind`, by name, and their shared definitions, as a keyword."""
    from pydantic.errors import PydanticInvalidForJsonSchema

    try:
        schema = dict(model_of(kind).json_schema(ref_template=f"#/$defs/{at}/$defs/{{model}}"))
    except PydanticInvalidForJsonSchema:
        schema = {}  # an option has a type that JSON does not have: any value is accepted
    properties: dict[str, Any] = {}
    for option in options(kind):
        option_schema = dict(_value(schema.get("properties", {}).get(option.name, {})))
        if option.help:
            option_schema["description"] = option.help
        if not option.required and option.default is not None and isinstance(option.default, (bool, int, float, str)):
            option_schema["default"] = option.default
        properties[option.name] = option_schema
    shared = (
        {"$defs": {name: _clean(definition) for name, definition in schema["$defs"].items()}}
        if "$defs" in schema
        else {}
    )
    return properties, shared


def _value(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a value, extended to accept `${NAME}` for a scalar that is not free text."""
    cleaned = _clean(schema)
    choices = cleaned.pop("anyOf", None)
    several = [cleaned] if choices is None else choices
    if any(branch.get("type") == "string" and not branch.keys() & {"pattern", "enum", "const"} for branch in several):
        return _clean(schema)
    if all(branch.get("type") in ("object", "array", "null") or "$ref" in branch or not branch for branch in several):
        return _clean(schema)
    return {"anyOf": [cleaned, _ENV]} if choices is None else {**cleaned, "anyOf": [*choices, _ENV]}


def _clean(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema without pydantic's titles, which repeat the names; scalars inside may be `${NAME}` too."""
    cleaned: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "title":
            continue
        if key == "properties":
            value = {name: _value(child) for name, child in value.items()}
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            value = _value(value)
        elif key == "prefixItems":
            value = [_value(child) for child in value]
        elif key == "anyOf":
            value = [_clean(child) for child in value]
        cleaned[key] = value
    return cleaned
