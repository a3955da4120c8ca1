# SPDX-License-Identifier: Apache-2.0
"""The options of sources, for forms."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from streamkit.config.describe import type_text
from streamkit.config.plan import Config
from streamkit.config.source_details import SourceDetails
from streamkit.config.validate import model_of
from streamkit.core.stage import Source, options
from streamkit.serve.source_models import SourceOption

COMMON = ("name", "group", "transport", "timeout", "fps", "low_latency", "reconnect")
"""The options that a form shows first."""

_NOT_HERE = frozenset({"uri"})


def source_options(config: Config) -> dict[str, list[SourceOption]]:
    """The options of each kind of source of a pipeline's registry; common ones first."""
    kinds = [kind for kind in config.registry.values() if issubclass(kind, Source)]
    return {kind.name: _options(kind) for kind in sorted(kinds, key=lambda kind: (kind.name != "source", kind.name))}


def _options(kind: type[Source]) -> list[SourceOption]:
    form_options = [*_form_options(SourceDetails), *_form_options(kind)]
    return sorted(form_options, key=lambda option: COMMON.index(option.name) if option.common else len(COMMON))


def _form_options(kind: type[Any]) -> list[SourceOption]:
    schema = model_of(kind).json_schema()
    properties = schema.get("properties", {})
    definitions = schema.get("$defs", {})
    return [
        SourceOption(
            option.name,
            option.help,
            type_text(option.type),
            _inlined(properties.get(option.name, {}), definitions),
            None if option.default is dataclasses.MISSING else option.default,
            option.name in COMMON,
        )
        for option in options(kind)
        if option.name not in _NOT_HERE
    ]


def _inlined(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """A schema without references, as a form needs it."""
    if isinstance(schema, list):
        return [_inlined(part, definitions) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    if "$ref" in schema:
        return _inlined(definitions.get(str(schema["$ref"]).rpartition("/")[2], {}), definitions)
    return {name: _inlined(part, definitions) for name, part in schema.items()}
