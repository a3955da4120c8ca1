# SPDX-License-Identifier: Apache-2.0
"""A query as DuckDB's parser reads it: the labels that it names, and `count_of` in terms of the columns of frames.

A macro of DuckDB cannot do what `count_of` does: it may not use the columns of the query around it. The parsed form is
JSON, whose shape differs between DuckDB 1 and 2.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from streamkit.core.errors import ConfigError

_CALL = "count_of"
# The inner names are renamed so that `key` and `frame` are those of the query around it, whatever its table is called.
_MEANINGS = {
    1: "SELECT coalesce(counts['#0'], 0)",
    2: "SELECT (SELECT count(*) FROM (SELECT key AS key_, frame AS frame_, label AS label_, score AS score_ FROM "
    "objects) WHERE key_ = key AND frame_ = frame AND label_ = '#0' AND score_ >= '#1')",
}
_COMPARED = ("COMPARE_EQUAL", "COMPARE_NOTEQUAL", "COMPARE_IN", "COMPARE_NOT_IN")


class ParsedQuery:
    """One SELECT.

    Args:
        database: a connection of DuckDB.
        sql: the statement.

    Attributes:
        sql: the statement with `count_of` replaced by what it means.
        labels: the labels in `count_of('truck')`, `label = 'truck'` and `label IN ('truck', 'bus')`.

    Raises:
        ConfigError: `count_of` has the wrong number of arguments.
    """

    def __init__(self, database: Any, sql: str) -> None:
        self.sql = sql
        self.labels = list[str]()
        whole = _parsed(database, sql)
        if whole.get("error"):  # EXPLAIN and the like
            return
        nodes = list(_nodes(whole))
        calls = [node for node in nodes if str(node.get("function_name")).lower() == _CALL]
        compared = [node for node in nodes if node.get("type") in _COMPARED and any(map(_is_label, _parts(node)))]
        texts = [*(_text(part) for node in calls for part in _parts(node)[:1])]
        texts += [_text(part) for node in compared for part in _parts(node)]
        self.labels = list(dict.fromkeys(text for text in texts if text is not None))
        for call in calls:
            _expand(database, call)
        if calls:
            self.sql = _value(database, "SELECT json_deserialize_sql(?::JSON)", json.dumps(whole))


def _parsed(database: Any, sql: str) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(_value(database, "SELECT json_serialize_sql(?::TEXT)", sql))
    return parsed


def _value(database: Any, sql: str, argument: str) -> str:
    ((text,),) = database.execute(sql, [argument]).fetchall()
    return str(text)


def _expand(database: Any, call: dict[str, Any]) -> None:
    """Replace a call, in place."""
    arguments = _parts(call)
    if len(arguments) not in _MEANINGS:
        raise ConfigError(f"{_CALL} takes a label and optionally a minimum score, got {len(arguments)} arguments")
    (meaning,) = _parsed(database, _MEANINGS[len(arguments)])["statements"][0]["node"]["select_list"]
    for node in list(_nodes(meaning)):
        text = _text(node)
        if text is not None and text[:1] == "#":
            _replace(node, arguments[int(text[1:])])
    alias = call.get("alias", "")
    _replace(call, meaning)
    call["alias"] = alias


def _replace(node: dict[str, Any], other: Mapping[str, Any]) -> None:
    node.clear()
    node.update(json.loads(json.dumps(other)))


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    """All nodes of a tree, the inner ones first."""
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _nodes(child)
    if isinstance(value, dict):
        yield value


def _parts(node: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    """The arguments of a function, the operands of an operator."""
    if "arguments" in node:  # DuckDB 2
        return [argument["expression"] for argument in node["arguments"]]
    parts: Sequence[dict[str, Any]] = node["children"] if "children" in node else [node["left"], node["right"]]
    return parts


def _is_label(node: Mapping[str, Any]) -> bool:
    return str((node.get("column_names") or [""])[-1]).lower() == "label"


def _text(node: Mapping[str, Any]) -> str | None:
    """The value of a constant text."""
    if node.get("type") != "VALUE_CONSTANT":
        return None
    literal = node.get("literal")
    value = node.get("value")
    if literal is not None:  # DuckDB 2
        return str(literal["text"]) if literal["kind"] == "STRING" else None
    text = value.get("value") if isinstance(value, Mapping) else None
    return text if isinstance(text, str) and value["type"]["id"] == "VARCHAR" else None  # type: ignore[index]
