# SPDX-License-Identifier: Apache-2.0
"""Values over time, for charts."""

from __future__ import annotations

import time
from typing import Annotated, Literal, get_args

from fastapi import APIRouter, Query
from fastapi.responses import Response

from streamkit.serve import api_models
from streamkit.serve.engine import ServeEngine
from streamkit.serve.event_models import SeriesValues, SeriesView
from streamkit.serve.routes.common import errors, reply
from streamkit.serve.sampler import UNITS
from streamkit.serve.store.sample_table import SUMS

Chart = Literal["frames", "dropped", "latency", "counts", "gpu", "decoder", "disk", "spool"]
assert set(get_args(Chart)) == set(UNITS)

_LAST_S = 253_402_300_799.0
_HOUR_S = 3600.0


def add_charts(api: APIRouter, engine: ServeEngine) -> None:
    """Add the routes of values over time."""

    @api.get("/series", tags=["charts"], response_model=SeriesView, responses=errors(422, 503))
    def series(
        name: Annotated[Chart, Query(description="what is shown")],
        source: Annotated[str | None, Query(max_length=200, description="id of a source; by default all")] = None,
        from_s: Annotated[
            float | None,
            Query(alias="from", ge=0, le=_LAST_S, description="seconds since 1970; by default an hour before to"),
        ] = None,
        to_s: Annotated[
            float | None, Query(alias="to", ge=0, le=_LAST_S, description="seconds since 1970; by default now")
        ] = None,
        step_s: Annotated[
            float, Query(alias="step", ge=0, le=86_400, description="least length of a step in seconds")
        ] = 0,
    ) -> Response:
        """Values over time, of one source or of all; of the last hour by default.

        Steps of 10 s are kept for an hour, of 1 min for a day, of 10 min for 30 days. The answer has the shortest steps
        that reach back to `from` and are at least `step` seconds long.
        """
        to_s = min(_LAST_S, time.time()) if to_s is None else to_s
        from_s = max(0.0, to_s - _HOUR_S) if from_s is None else from_s
        if from_s >= to_s:
            raise api_models.RequestRejected(422, f"from must be before to, got {from_s:g} and {to_s:g}")
        step, series_values = engine.store.series(name, source, from_s, to_s, step_s)
        visible = engine.rights.visible()
        rows = [SeriesValues(*values) for values in series_values if visible is None or values.source in {"", *visible}]
        return reply(SeriesView(name, UNITS[name], name in SUMS, from_s, to_s, step, rows))
