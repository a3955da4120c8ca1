# SPDX-License-Identifier: Apache-2.0
"""Events: search, counts over time, their images, clips and snapshots, and a stream of new ones."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse, Response

from streamkit.core.masking import mask
from streamkit.media.mux import FORMATS
from streamkit.serve import api_models, event_models
from streamkit.serve.engine import ServeEngine
from streamkit.serve.event_models import EventView
from streamkit.serve.live import LiveResponse
from streamkit.serve.routes.common import JPEG, LOCKED_ERRORS, VIEWER, errors, reply
from streamkit.serve.store.event_table import EventQuery, StoredEvent
from streamkit.serve.store.serve_store import StoreUnreadable

LAST_S = 253_402_300_799.0  # the year 9999
_DAY_S = 86_400.0
_POLL_S = 0.25
_BEAT_S = 15.0
_VIDEO = {".mp4": "video/mp4", ".mkv": "video/x-matroska"}
_LAST_EVENT = Header(max_length=20, description="number of the last event that the client has; a browser sends it")
_KEEP = {"cache-control": "private, max-age=86400, immutable"}

EventNumber = Annotated[int, PathParameter(description="number of the event")]


def _word(description: str) -> Any:
    return Query(max_length=200, description=description)


def _query(
    source: Annotated[str | None, _word("id of a source")] = None,
    stage: Annotated[str | None, _word("id of a stage")] = None,
    kind: Annotated[str | None, _word("kind of the event, such as crossed")] = None,
    label: Annotated[str | None, _word("class of the object")] = None,
    from_s: Annotated[
        float | None, Query(alias="from", ge=0, le=LAST_S, description="from this time on, in seconds since 1970")
    ] = None,
    to_s: Annotated[
        float | None, Query(alias="to", ge=0, le=LAST_S, description="until this time, in seconds since 1970")
    ] = None,
    text: Annotated[str | None, _word("words that the sentence or the data contains, each from its beginning")] = None,
) -> EventQuery:
    """The filters of a request."""
    return EventQuery(source, stage, kind, label, from_s, to_s, text)


Filters = Annotated[EventQuery, Depends(_query)]


def add_events(api: APIRouter, engine: ServeEngine, viewers: int) -> None:
    """Add the routes of events of visible sources; those with fixed names come before those with a number."""
    _add_lists(api, engine)
    _add_stream(api, engine, viewers)
    _add_files(api, engine)


def _add_lists(api: APIRouter, engine: ServeEngine) -> None:
    store = engine.store

    @api.get("/events", tags=["events"], response_model=list[EventView], responses=errors(422, 503))
    def events(
        query: Filters,
        limit: Annotated[int, Query(ge=1, le=500, description="maximum number of events")] = 50,
        after: Annotated[int, Query(ge=0, le=2**53, description="events with a number above this one")] = 0,
        before: Annotated[int, Query(ge=0, le=2**53, description="events with a number below this one")] = 2**53,
    ) -> Response:
        """The latest events that match, newest first; for the next page, give the lowest number as `before`."""
        wanted = replace(query, after=after, before=before, sources=engine.rights.visible())
        names = engine.names()
        return reply([EventView.of(event, names, engine.rights.redacted) for event in store.events(wanted, limit)])

    @api.get("/events/names", tags=["events"], response_model=event_models.EventNames, responses=errors(503))
    def names() -> Response:
        """The sources, stages, kinds and labels of the stored events, for filters."""
        return reply(store.names(engine.rights.visible()))

    @api.get("/events/store", tags=["events"], response_model=event_models.StoreView)
    def about() -> Response:
        """The store of events: its size, what was lost or removed, and whether events can be stored."""
        problem = store.problem
        size = 0
        try:
            size = store.used_bytes()
        except StoreUnreadable as error:
            problem = problem or str(error)
        return reply(event_models.StoreView(size, dict(store.counts.values), mask(problem)))

    @api.get("/events/timeline", tags=["events"], response_model=event_models.Timeline, responses=errors(422, 503))
    def timeline(
        query: Filters, bins: Annotated[int, Query(ge=1, le=1000, description="number of parts")] = 96
    ) -> Response:
        """The number of matching events in equal parts of a period, by source; the last day by default."""
        to_s = min(LAST_S, time.time()) if query.to_s is None else query.to_s
        from_s = max(0.0, to_s - _DAY_S) if query.from_s is None else query.from_s
        if from_s >= to_s:
            raise api_models.RequestRejected(422, f"from must be before to, got {from_s:g} and {to_s:g}")
        wanted = replace(query, from_s=from_s, to_s=to_s, sources=engine.rights.visible())
        counts_by_source = store.timeline(wanted, from_s, to_s, bins)
        rows = [event_models.SourceTimeline(source, counts) for source, counts in counts_by_source.items()]
        return reply(event_models.Timeline(from_s, to_s, (to_s - from_s) / bins, rows))


def _add_stream(api: APIRouter, engine: ServeEngine, viewers: int) -> None:
    open_streams: list[None] = []

    @api.get(
        "/events/stream",
        tags=["events"],
        dependencies=VIEWER,
        response_class=Response,
        responses={
            200: {"content": {"text/event-stream": {}}, "description": "Server-sent events; each is an event as JSON"},
            **errors(401, 422, 503),
            429: {"model": api_models.ErrorResponse, "description": "Too many streams, or too many wrong tokens"},
        },
    )
    def stream(request: Request, last_event_id: Annotated[str, _LAST_EVENT] = "") -> Response:
        """New events as they come, for `EventSource`. A browser that reconnects gets those that it has missed."""
        if len(open_streams) >= viewers:
            raise api_models.RequestRejected(429, f"the maximum of {viewers} event streams is reached; close one")
        after = int(last_event_id) if re.fullmatch(r"\d{1,15}", last_event_id) else engine.store.last_number
        open_streams.append(None)
        response = LiveResponse(_stream(engine, request, after), open_streams.pop)
        response.headers["content-type"] = "text/event-stream; charset=utf-8"
        response.headers["cache-control"] = "no-store"
        return response


async def _stream(engine: ServeEngine, request: Request, after: int) -> AsyncIterator[bytes]:
    """The events after a number, and a comment from time to time, which shows whether the client is there."""
    beat_s = time.monotonic()
    query = EventQuery(after=after, sources=engine.rights.visible())
    missed = await anyio.to_thread.run_sync(engine.store.events, query, 500)
    yield b"retry: 2000\n\n"
    while not engine.running.stopping and not await request.is_disconnected():
        for event in reversed(missed):
            after = max(after, event.number)
            yield b"id: %d\ndata: " % event.number + _line(engine, event) + b"\n\n"
        if missed:
            beat_s = time.monotonic()
        elif time.monotonic() - beat_s > _BEAT_S:
            beat_s = time.monotonic()
            yield b": still here\n\n"
        await anyio.sleep(_POLL_S)
        recent = engine.gallery.events(engine.gallery.keep, after=after)
        visible = engine.rights.visible()
        missed = [
            StoredEvent.unwritten(recent_event)
            for recent_event in recent
            if visible is None or recent_event.event.source in visible
        ]


def _line(engine: ServeEngine, event: StoredEvent) -> bytes:
    """An event as JSON in one line."""
    return bytes(reply(EventView.of(event, redacted=engine.rights.redacted)).body).replace(b"\n", b" ")


def _add_files(api: APIRouter, engine: ServeEngine) -> None:
    file: dict[str, Any] = {"tags": ["events"], "dependencies": VIEWER, "response_class": Response}
    missing = errors(*LOCKED_ERRORS, 404, 422, 503)

    def stored(number: int) -> StoredEvent:
        stored_event = engine.store.event(number, engine.rights.visible()) if 0 < number < 2**53 else None
        if stored_event is None:
            raise api_models.RequestRejected(404, f"there is no event {number}; old events are discarded")
        return stored_event

    def shown(number: int) -> bool:
        visible = engine.rights.visible()
        return visible is None or engine.store.event(number, visible) is not None

    @api.get("/events/{number}", tags=["events"], response_model=EventView, responses=errors(404, 422, 503))
    def event(number: EventNumber) -> Response:
        """One event."""
        return reply(EventView.of(stored(number), engine.names(), engine.rights.redacted))

    @api.get("/events/{number}/image.jpg", responses={**JPEG, **missing}, **file)
    def image(number: EventNumber) -> Response:
        """The small image of an event."""
        jpeg = engine.store.image(number) if 0 < number < 2**53 and shown(number) else None
        if jpeg is None:
            text = f"there is no image of event {number}; images of old events are discarded"
            raise api_models.RequestRejected(404, text)
        engine.check_image(number)
        return Response(jpeg, media_type="image/jpeg", headers=_KEEP)

    @api.get("/events/{number}/snapshot.jpg", responses={**JPEG, **missing}, **file)
    def snapshot(number: EventNumber) -> Response:
        """The file that `snapshot` wrote for an event."""
        path = _path(stored(number).snapshot, (".jpg", ".jpeg"))
        if path is None:
            raise api_models.RequestRejected(404, f"there is no snapshot of event {number}, or it was removed")
        engine.check_image(number, snapshot=True)
        return FileResponse(path, media_type="image/jpeg", headers=_KEEP)

    ranges: dict[int | str, dict[str, Any]] = {
        200: {"content": {media_type: {} for media_type in _VIDEO.values()}, "description": "The clip"},
        206: {
            "content": {media_type: {} for media_type in _VIDEO.values()},
            "description": "The part named by `Range`",
        },
        416: {"content": {"text/plain": {}}, "description": "The clip is shorter than `Range`"},
    }

    @api.get("/events/{number}/clip.mp4", responses={**ranges, **missing}, **file)
    def clip(number: EventNumber) -> Response:
        """The clip that `record` wrote around an event, whole or in parts (`Range`); `clip_s` is the event in it."""
        event_with_clip = stored(number)
        path = _path(event_with_clip.clip, tuple(FORMATS))
        if path is None:
            raise api_models.RequestRejected(404, f"there is no clip of event {number}, or it was removed")
        engine.check_clip()
        words = f"{event_with_clip.event.source}-{event_with_clip.event.kind}-{number}{path.suffix}"
        name = re.sub(r"[^A-Za-z0-9._-]+", "_", words)
        return FileResponse(
            path, media_type=_VIDEO[path.suffix.lower()], filename=name, content_disposition_type="inline"
        )


def _path(path: str | None, suffixes: tuple[str, ...]) -> Path | None:
    """The file, if it is still there. Paths come from the stages that wrote them, never from a client."""
    file = None if path is None else Path(path)
    return file if file is not None and file.suffix.lower() in suffixes and file.is_file() else None
