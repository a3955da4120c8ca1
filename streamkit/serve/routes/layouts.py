# SPDX-License-Identifier: Apache-2.0
"""Saved layouts and tours of the live view; each person has their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import anyio.to_thread
from fastapi import APIRouter, Request
from fastapi.responses import Response

from streamkit.serve.audit import note
from streamkit.serve.engine import ServeEngine
from streamkit.serve.layout_models import Layouts
from streamkit.serve.layout_store import LayoutStore
from streamkit.serve.routes.common import LOCKED_ERRORS, VIEWER, errors, reply


def add_layouts(api: APIRouter, engine: ServeEngine, store: LayoutStore) -> None:
    """Add the routes of layouts."""
    in_turn = anyio.CapacityLimiter(1)
    layout: dict[str, Any] = {"tags": ["layouts"], "dependencies": VIEWER, "response_model": Layouts}

    @api.get("/layouts", responses=errors(*LOCKED_ERRORS), **layout)
    def layouts(request: Request) -> Response:
        """The layouts and tours of the person who is signed in, without cameras that this person may not see."""
        return reply(_seen(engine, store.of(request.state.name)))

    @api.put("/layouts", responses=errors(*LOCKED_ERRORS, 409, 422, 503), **layout)
    async def save(saved: Layouts, request: Request) -> Response:
        """Replace the layouts and tours of the person who is signed in."""
        note(request, request.state.name, layouts=len(saved.layouts), tours=len(saved.tours))
        await anyio.to_thread.run_sync(store.save, request.state.name, saved, limiter=in_turn)
        return reply(_seen(engine, store.of(request.state.name)))


def _seen(engine: ServeEngine, saved: Layouts) -> Layouts:
    hidden = engine.rights.hidden_ids()
    seen = [replace(layout, sources=[id_ for id_ in layout.sources if id_ not in hidden]) for layout in saved.layouts]
    layouts = [layout for layout in seen if layout.sources]
    names = {layout.name for layout in layouts}
    shortened = [replace(tour, stops=[stop for stop in tour.stops if stop.layout in names]) for tour in saved.tours]
    return Layouts(layouts, [tour for tour in shortened if tour.stops])
