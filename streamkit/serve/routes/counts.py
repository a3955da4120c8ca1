# SPDX-License-Identifier: Apache-2.0
"""Counts of lines and zones by hour, day and week, the occupancy of zones, and heat maps."""

from __future__ import annotations

import csv
import io
import time
from dataclasses import dataclass
from datetime import datetime, tzinfo
from pathlib import Path as FilePath
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from fastapi.responses import FileResponse, Response

from streamkit.config.plan import Node
from streamkit.io.outputs import fill_path
from streamkit.serve.api_models import RequestRejected
from streamkit.serve.count_models import CountRow, CountsView, HeatMapView, OccupancyView
from streamkit.serve.engine import ServeEngine
from streamkit.serve.local_periods import Step, period_edges, time_zone, week_before
from streamkit.serve.routes.common import LOCKED_ERRORS, VIEWER, StageId, errors, reply
from streamkit.serve.store.count_table import CountKey
from streamkit.stages.analytics.heatmap import Heatmap

_DAY_S = 86_400.0
_LAST_S = 253_402_300_799.0  # the year 9999
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_IMAGE_TYPES = {".png": "image/png", ".jpg": "image/jpeg"}


@dataclass(slots=True)
class CountQuery:
    """Which counts are wanted: the edges of the periods in seconds since 1970, by the clock of `zone`."""

    edges_s: list[float]
    step: Step
    zone_name: str
    zone: tzinfo
    source: str | None
    by_label: bool


def _query(
    step: Annotated[Step, Query(description="length of a period: hour, day or week of the time zone")] = "hour",
    from_s: Annotated[
        float | None,
        Query(alias="from", ge=0, le=_LAST_S, description="seconds since 1970; by default a day before to"),
    ] = None,
    to_s: Annotated[
        float | None, Query(alias="to", ge=0, le=_LAST_S, description="seconds since 1970; by default now")
    ] = None,
    zone: Annotated[str, Query(max_length=60, description="time zone, such as Europe/Berlin")] = "UTC",
    source: Annotated[str | None, Query(max_length=200, description="id of a source; by default all")] = None,
    by_label: Annotated[bool, Query(description="whether each class of objects has a row of its own")] = False,
) -> CountQuery:
    """The counts that a request asks for."""
    to_s = min(_LAST_S, time.time()) if to_s is None else to_s
    from_s = max(0.0, to_s - _DAY_S) if from_s is None else from_s
    if from_s >= to_s:
        raise RequestRejected(422, f"from must be before to, got {from_s:g} and {to_s:g}")
    try:
        local = time_zone(zone)
        edges_s = period_edges(from_s, to_s, step, local)
    except ValueError as error:
        raise RequestRejected(422, str(error)) from None
    return CountQuery(edges_s, step, zone, local, source, by_label)


Wanted = Annotated[CountQuery, Depends(_query)]


def add_counts(api: APIRouter, engine: ServeEngine) -> None:
    """Add the routes of counts, occupancy and heat maps."""
    _add_numbers(api, engine)
    _add_heat_maps(api, engine)


def _add_numbers(api: APIRouter, engine: ServeEngine) -> None:
    @api.get("/counts", tags=["counts"], response_model=CountsView, responses=errors(422, 503))
    def counts(
        query: Wanted,
        compare: Annotated[bool, Query(description="whether rows have the periods a week earlier as well")] = False,
    ) -> Response:
        """What lines and zones counted by hour, day or week; the last day by default. Counts are kept for two years.

        A count belongs to the names of its source, stage and line or zone: it goes on over restarts and edits.
        """
        return reply(CountsView(query.step, query.zone_name, query.edges_s, _rows(engine, query, compare=compare)))

    @api.get(
        "/counts.csv",
        tags=["counts"],
        response_class=Response,
        responses={200: {"content": {"text/csv": {}}, "description": "Counts as CSV"}, **errors(422, 503)},
    )
    def counts_csv(query: Wanted) -> Response:
        """The same as CSV: one line for each period and number that is not zero, in local times."""
        headers = {"content-disposition": 'attachment; filename="counts.csv"'}
        return Response(_csv(query, _rows(engine, query)), media_type="text/csv", headers=headers)

    @api.get("/occupancy", tags=["counts"], response_model=list[OccupancyView], responses=errors(422, 503))
    def occupancy(
        zone: Annotated[str, Query(max_length=60, description="time zone in which today begins")] = "UTC",
    ) -> Response:
        """How many objects are in each zone now, and the most today."""
        now_s = time.time()
        try:
            midnight_s = period_edges(now_s, now_s + 1, "day", time_zone(zone))[0]
        except ValueError as error:
            raise RequestRejected(422, str(error)) from None
        peaks = engine.store.peaks(midnight_s)
        views = [
            OccupancyView(
                zone_now.area.source,
                engine.source_name(zone_now.area.source),
                zone_now.area.stage,
                zone_now.area.area,
                zone_now.present if engine.ran_since(zone_now.area.source, zone_now.time_s) else None,
                zone_now.time_s,
                peaks.get(zone_now.area, zone_now.present),
            )
            for zone_now in engine.store.occupancy()
            if engine.rights.sees(zone_now.area.source)
        ]
        return reply(sorted(views, key=lambda view: (view.name, view.stage, view.area)))


def _add_heat_maps(api: APIRouter, engine: ServeEngine) -> None:
    @api.get("/heatmaps", tags=["counts"], response_model=list[HeatMapView])
    def heat_maps() -> Response:
        """The images that stages of the type `heatmap` have written, one for each stage and source."""
        files = [(id_, node, _heat_file(node, id_)) for node in _heat_stages(engine) for id_ in engine.source_ids()]
        return reply(
            [
                HeatMapView(id_, engine.source_name(id_), node.id, path.stat().st_mtime)
                for id_, node, path in files
                if path.is_file()
            ]
        )

    @api.get(
        "/heatmaps/{stage}/image",
        tags=["counts"],
        dependencies=VIEWER,
        response_class=Response,
        responses={
            200: {"content": {"image/png": {}, "image/jpeg": {}}, "description": "The image"},
            **errors(*LOCKED_ERRORS, 404),
        },
    )
    def heat_map(
        stage: StageId, source: Annotated[str, Query(max_length=200, description="id of the source")]
    ) -> Response:
        """The image of a stage for a source; refused while a stage hides something, as it shows the clear frame."""
        if hides := engine.hides():
            raise RequestRejected(403, f"the image shows what {', '.join(hides)} hides: open the file on the server")
        engine.state(source)
        node = next((node for node in _heat_stages(engine) if node.id == stage), None)
        if node is None:
            raise RequestRejected(404, f"there is no heatmap stage {stage!r}")
        path = _heat_file(node, source)
        if not path.is_file():
            raise RequestRejected(404, f"{stage} has written no image of {source} yet; change its setting `trigger`")
        headers = {"cache-control": "no-store"}
        return FileResponse(path, media_type=_IMAGE_TYPES.get(path.suffix), headers=headers)


def _rows(engine: ServeEngine, query: CountQuery, *, compare: bool = False) -> list[CountRow]:
    store = engine.store
    now = {series.key: series.values for series in store.count_series(query.edges_s, query.source, query.by_label)}
    before: dict[CountKey, list[int]] = {}
    if compare:
        earlier = store.count_series(week_before(query.edges_s, query.zone), query.source, query.by_label)
        before = {series.key: series.values for series in earlier}
    zeros = [0] * (len(query.edges_s) - 1)
    keys = [key for key in sorted(now.keys() | before.keys()) if engine.rights.sees(key.area.source)]
    return [
        CountRow(
            key.area.source,
            engine.source_name(key.area.source),
            key.area.stage,
            key.area.area,
            key.kind,
            key.label,
            now.get(key, zeros),
            before.get(key, zeros) if compare else [],
        )
        for key in keys
    ]


def _csv(query: CountQuery, rows: list[CountRow]) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["from", "to", "source", "name", "stage", "area", "kind", "label", "count"])
    local = [datetime.fromtimestamp(edge_s, query.zone).isoformat() for edge_s in query.edges_s]
    for start, end, *numbers in zip(local, local[1:], *(row.values for row in rows), strict=False):
        for row, number in zip(rows, numbers, strict=True):
            if number:
                names = (row.source, row.name, row.stage, row.area, row.kind, row.label)
                writer.writerow([start, end, *map(_cell, names), number])
    return text.getvalue()


def _cell(text: str) -> str:
    """A cell that a spreadsheet does not take for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def _heat_stages(engine: ServeEngine) -> list[Node]:
    return [node for node in engine.graph.nodes.values() if issubclass(node.type, Heatmap)]


def _heat_file(node: Node, source: str) -> FilePath:
    return FilePath(fill_path(node.options["path"], source))
