# SPDX-License-Identifier: Apache-2.0
"""Frames and tables as HTML for notebooks: a small image with the objects drawn, and a table."""

from __future__ import annotations

import base64
from html import escape
from typing import Any

import numpy as np

from streamkit.core.data import Detections, Frame, array_module
from streamkit.core.records import record, table_records
from streamkit.io.still_images import jpeg

MAX_ROWS = 20
"""Rows of the table."""
MAX_SIZE = (640, 480)
"""Maximum width and height of the image, in pixels."""
_QUALITY = 80
_COLUMNS = ("label", "score", "track_id", "box")


def html(frame: Frame) -> str:
    """See `Frame._repr_html_`; all text of the frame is escaped."""
    fields = record(frame)
    parts = [f"<div>{escape(repr(frame))}</div>"]
    if frame.surface is not None:
        data = base64.b64encode(jpeg(_drawn(frame), _QUALITY)).decode()
        parts.append(f'<img alt="frame {frame.index}" src="data:image/jpeg;base64,{data}">')
    if fields["objects"]:
        parts.append(_table(fields["objects"], len(fields["objects"])))
    if fields["events"]:
        names = (f"{event['stage']}.{event['kind']}" for event in fields["events"])
        parts.append(f"<div>events: {escape(_shortened(list(names)))}</div>")
    return "\n".join(parts)


def table_html(table: Detections) -> str:
    """See `Detections._repr_html_`; all text of the table is escaped."""
    head = f"<div>{escape(repr(table))}</div>"
    if not len(table) or array_module(table.xyxy) is not np:
        return head
    return head + "\n" + _table(table_records(table[:MAX_ROWS]), len(table))


def _drawn(frame: Frame) -> np.ndarray:
    from streamkit.ops.glyphs import Atlas
    from streamkit.ops.thumbnail import draw_small, small_image

    size = frame.width, frame.height
    return draw_small(small_image(frame, MAX_SIZE), list(frame.tables.values()), size, Atlas(), frame.shown)


def _table(objects: list[dict[str, Any]], count: int) -> str:
    """The first of `count` objects, with the columns that any of them has."""
    columns = [name for name in _COLUMNS if any(name in object_fields for object_fields in objects)]
    head = "".join(f"<th>{name}</th>" for name in columns)
    rows = [
        "<tr>" + "".join(f"<td>{escape(_text(object_fields.get(name)))}</td>" for name in columns) + "</tr>"
        for object_fields in objects[:MAX_ROWS]
    ]
    rest = count - MAX_ROWS
    if rest > 0:
        rows.append(f'<tr><td colspan="{len(columns)}">{rest} more</td></tr>')
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(f"{number:.0f}" for number in value)
    return "" if value is None else str(value)


def _shortened(names: list[str]) -> str:
    more = len(names) - MAX_ROWS
    return ", ".join(names[:MAX_ROWS]) + (f" and {more} more" if more > 0 else "")
