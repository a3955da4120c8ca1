# SPDX-License-Identifier: Apache-2.0
"""Edits of a YAML that make it say what the running pipeline does, after calls have changed it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from streamkit.config.pipeline_config import source_entry
from streamkit.config.plan import SourceConfig
from streamkit.config.yaml_edit import REMOVED
from streamkit.runtime.control.graph_changes import LiveChanges, changed_options

Edit = tuple[tuple[str, ...], Any]
"""A path of keys, and the new value or `REMOVED`."""


def edits(text: str, changes: LiveChanges) -> list[Edit]:
    """The edits of a YAML's text that add what calls have changed; variables of the environment are not expanded.

    A paused source, and a source that the YAML does not name itself, such as a file of a folder, have no edit.

    Args:
        text: the YAML, which is valid.
        changes: what calls have changed.
    """
    if changes.base is None:
        return []
    content = yaml.safe_load(text)
    entries = {str(id_): entry for id_, entry in ((content or {}).get("sources") or {}).items()}
    return [*_source_edits(entries, changes), *_setting_edits(changes)]


def _source_edits(entries: Mapping[str, Any], changes: LiveChanges) -> Iterator[Edit]:
    assert changes.base is not None
    in_yaml = {source.id: source for source in changes.base.sources}
    for id_ in changes.removed:
        if id_ in entries:
            yield ("sources", id_), REMOVED
    for source in changes.sources:
        if source.id not in in_yaml:
            entry = source_entry(source)
            yield ("sources", source.id), entry["uri"] if entry.keys() == {"uri"} else entry
        elif source.id in entries:
            yield from _option_edits(entries[source.id], in_yaml[source.id], source)


def _option_edits(entry: Any, before: SourceConfig, after: SourceConfig) -> Iterator[Edit]:
    """The edits of a source's entry: of its options that have changed, or of all of it if it is only an address."""
    wanted = source_entry(after)
    options = {name: wanted.get(name, REMOVED) for name in changed_options(before, after)}
    if isinstance(entry, Mapping):
        for name, value in options.items():
            yield ("sources", after.id, name), value
    elif options.keys() == {"uri"}:
        yield ("sources", after.id), options["uri"]
    else:
        yield ("sources", after.id), {"uri": entry, **options}


def _setting_edits(changes: LiveChanges) -> Iterator[Edit]:
    assert changes.base is not None
    for id_, values in changes.settings.items():
        for name, value in values.items():
            yield ("stages", changes.base.nodes[id_].table, name), REMOVED if value is None else _plain(value)


def _plain(value: Any) -> Any:
    """An option's value as lists, mappings, texts, numbers and truth values."""
    if isinstance(value, Mapping):
        return {str(key): _plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, bool | int | float | str) else str(value)
