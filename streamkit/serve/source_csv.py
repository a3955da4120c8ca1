# SPDX-License-Identifier: Apache-2.0
"""Many sources as CSV: the columns `id` and `uri`, what people call them, and one for each option."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from streamkit.config.source_details import DETAIL_KEYS
from streamkit.core.errors import ConfigError
from streamkit.core.masking import mask, mask_address
from streamkit.core.yaml_tree import load
from streamkit.serve.api_models import NewSource, RequestRejected
from streamkit.serve.engine import ServeEngine
from streamkit.serve.source_models import CsvLine

MAX_LINES = 1000

_TEXTS = frozenset({"name", "group", "site"})
_TAG_MARK = ";"  # between the tags of a cell


def read_lines(engine: ServeEngine, text: str) -> list[tuple[CsvLine, NewSource | None]]:
    """Read a CSV; each line with its source, or None if it has a problem.

    Raises:
        RequestRejected: the text as a whole is not such a CSV.
    """
    text = text.removeprefix("\ufeff")
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, strict=True, skipinitialspace=True)
    lines: list[tuple[CsvLine, NewSource | None]] = []
    try:
        names = [cell.strip() for cell in next(reader, [])]
        if missing := [name for name in ("id", "uri") if name not in names]:
            raise RequestRejected(
                422, f"the first line names the columns, such as id,uri,timeout; there is no column {missing[0]!r}"
            )
        if twice := [name for name in names if names.count(name) > 1]:
            raise RequestRejected(422, f"the column {mask(twice[0])!r} is there twice")
        seen: dict[str, int] = {}
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if len(lines) == MAX_LINES:
                raise RequestRejected(422, f"a CSV has at most {MAX_LINES} sources; send it in parts")
            lines.append(_line(engine, reader.line_num, names, cells, seen))
    except csv.Error as error:
        raise RequestRejected(422, f"line {reader.line_num}: {error}") from None
    return lines


def _line(
    engine: ServeEngine, number: int, names: list[str], cells: list[str], seen: dict[str, int]
) -> tuple[CsvLine, NewSource | None]:
    row = dict(zip(names, (cell.strip() for cell in cells), strict=False))
    line = CsvLine(number, row.get("id", ""), mask_address(row.get("uri", "")), "")
    try:
        if any(cell.strip() for cell in cells[len(names) :]):
            raise RequestRejected(422, f"there are {len(cells)} values for {len(names)} columns")
        new = NewSource(line.id, row.get("uri", ""), _options(row))
        if line.id in seen:
            raise RequestRejected(422, f"the id {line.id!r} is in line {seen[line.id]} already")
        seen[line.id] = number
        engine.new_source(new)
    except RequestRejected as error:
        line.problem = mask(error.text)
        return line, None
    return line, new


def _options(row: Mapping[str, str]) -> dict[str, Any]:
    """The options of a line, each typed as in a YAML; an empty cell keeps the default."""
    typed: dict[str, Any] = {}
    for name, text in row.items():
        if name in ("id", "uri") or not text:
            continue
        if name in _TEXTS:  # also such as 12 or yes
            typed[name] = text
            continue
        if name == "tags" and not text.startswith("["):
            typed[name] = [tag for part in text.split(_TAG_MARK) if (tag := part.strip())]
            continue
        try:
            node, problems = load(text, name, {}, max_aliased=0)
        except ConfigError as error:
            problems = error.problems
        if problems:
            raise RequestRejected(422, f"{name}: {problems[0].text}")
        typed[name] = node.plain()
    return typed


def written(sources: Iterable[tuple[str, str, Mapping[str, Any]]]) -> str:
    """Sources as CSV, each as id, address and options; the details come first. Secrets are masked."""
    rows = list(sources)
    names = list(dict.fromkeys([*DETAIL_KEYS, *(name for _, _, options in rows for name in options)]))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(["id", "uri", *names])
    for id_, address, options in rows:
        writer.writerow([id_, address, *(_cell(name, options.get(name)) for name in names)])
    return text.getvalue()


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name == "tags" and isinstance(value, list) and not any(_TAG_MARK in str(tag) for tag in value):
        return f"{_TAG_MARK} ".join(map(str, value))
    return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
