# SPDX-License-Identifier: Apache-2.0
"""Review items: search, pictures of their objects, and what people note about them."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Query, Request
from fastapi import Path as PathParameter
from fastapi.responses import Response

from streamkit.runtime.preview.demand import Box
from streamkit.serve.api_models import RequestRejected
from streamkit.serve.audit import note
from streamkit.serve.engine import ServeEngine
from streamkit.serve.review_models import OpenCounts, ReviewChange, ReviewDetail, ReviewedItems, ReviewView
from streamkit.serve.routes.common import (
    CHANGE_ERRORS,
    JPEG,
    LOCKED_ERRORS,
    OPERATOR,
    VIEWER,
    errors,
    reply,
)
from streamkit.serve.store import review_table
from streamkit.serve.store.review_table import ReviewItem, ReviewQuery, Severity

_LAST_S = 253_402_300_799.0  # the year 9999
_MARGIN = 0.4
"""How much of a crop is around the object, as a share of the object's longer side."""
_MIN_SIDE = 0.15
"""The smallest side of a crop, as a share of the frame's."""

ItemId = Annotated[int, PathParameter(ge=1, le=2**53, description="id of the item")]


def _query(
    severity: Annotated[Severity | None, Query(description="alert or notice")] = None,
    source: Annotated[str | None, Query(max_length=200, description="id of a source")] = None,
    label: Annotated[str | None, Query(max_length=200, description="class of the object")] = None,
    reviewed: Annotated[bool | None, Query(description="whether someone has reviewed it")] = None,
    kept: Annotated[bool | None, Query(description="whether it is kept")] = None,
    from_s: Annotated[
        float | None, Query(alias="from", ge=0, le=_LAST_S, description="from this time on, in seconds since 1970")
    ] = None,
    to_s: Annotated[
        float | None, Query(alias="to", ge=0, le=_LAST_S, description="until this time, in seconds since 1970")
    ] = None,
    text: Annotated[
        str | None,
        Query(max_length=200, description="words of the text, the comment or the events' data, such as a plate"),
    ] = None,
    before: Annotated[int | None, Query(ge=0, le=2**53, description="ids below this one, for the next page")] = None,
) -> ReviewQuery:
    """The filters of a request."""
    return ReviewQuery(severity, source, label, reviewed, kept, from_s, to_s, text, before)


Filters = Annotated[ReviewQuery, Depends(_query)]


def add_review(api: APIRouter, engine: ServeEngine) -> None:
    """Add the routes of review items; those with fixed names come before those with an id."""
    _add_lists(api, engine)
    _add_changes(api, engine)


def _add_lists(api: APIRouter, engine: ServeEngine) -> None:
    @api.get("/review", tags=["review"], response_model=list[ReviewView], responses=errors(422, 503))
    def items(
        query: Filters, limit: Annotated[int, Query(ge=1, le=500, description="maximum number of items")] = 50
    ) -> Response:
        """The latest items that match, newest first; for the next page, give the lowest id as `before`."""
        wanted = replace(query, sources=engine.rights.visible())
        return reply([_view(engine, item) for item in engine.store.review(wanted, limit)])

    @api.get("/review/open", tags=["review"], response_model=OpenCounts, responses=errors(503))
    def open_items() -> Response:
        """How many items no one has reviewed."""
        return reply(_open(engine))

    @api.get("/review/{id}", tags=["review"], response_model=ReviewDetail, responses=errors(404, 422, 503))
    def item(id: ItemId) -> Response:  # noqa: A002
        """An item with the numbers of its events."""
        return reply(ReviewDetail(_view(engine, _item(engine, id)), engine.store.review_events(id)))

    image: dict[str, Any] = {"tags": ["review"], "dependencies": VIEWER, "response_class": Response}
    missing = errors(*LOCKED_ERRORS, 404, 422, 503)

    @api.get("/review/{id}/image.jpg", responses={**JPEG, **missing}, **image)
    def whole_image(id: ItemId) -> Response:  # noqa: A002
        """The frame in which the object of an item is largest."""
        return Response(_jpeg(engine, _item(engine, id)), media_type="image/jpeg")

    @api.get("/review/{id}/crop.jpg", responses={**JPEG, **missing}, **image)
    def crop(id: ItemId) -> Response:  # noqa: A002
        """The object of an item with its surroundings; the whole frame if the item has no object."""
        wanted = _item(engine, id)
        jpeg = _jpeg(engine, wanted)
        return Response(jpeg if wanted.box is None else _cropped(jpeg, wanted.box), media_type="image/jpeg")


def _add_changes(api: APIRouter, engine: ServeEngine) -> None:
    shared: dict[str, Any] = {"tags": ["review"], "dependencies": OPERATOR}

    @api.post("/review/reviewed", response_model=OpenCounts, responses=errors(*LOCKED_ERRORS, 422, 503), **shared)
    def mark(items: ReviewedItems, request: Request) -> Response:
        """Note that the sender has reviewed items; return how many no one has reviewed."""
        note(request, ", ".join(map(str, items.ids)))
        visible = engine.rights.visible()
        ids = [id_ for id_ in items.ids if visible is None or _is_visible(engine, id_)]
        by = request.state.name if items.reviewed else None
        engine.store.change(lambda connection: review_table.mark_reviewed(connection, ids, by, time.time()))
        return reply(_open(engine))

    @api.patch("/review/{id}", response_model=ReviewView, responses=errors(*CHANGE_ERRORS, 503), **shared)
    def change(id: ItemId, wanted: ReviewChange, request: Request) -> Response:  # noqa: A002
        """Note that the sender has reviewed an item, keep it, or set its comment."""
        _item(engine, id)
        note(request, str(id))

        def write(connection: Any) -> None:
            if wanted.reviewed is not None:
                by = request.state.name if wanted.reviewed else None
                review_table.mark_reviewed(connection, [id], by, time.time())
            review_table.change_item(connection, id, wanted.kept, wanted.comment)

        engine.store.change(write)
        return reply(_view(engine, _item(engine, id)))

    @api.delete("/review/{id}", status_code=204, responses=errors(*CHANGE_ERRORS, 503), **shared)
    def delete(id: ItemId, request: Request) -> Response:  # noqa: A002
        """Delete an item; its events stay."""
        _item(engine, id)
        note(request, str(id))
        engine.store.change(lambda connection: review_table.delete_items(connection, [id]))
        return Response(status_code=204)


def _view(engine: ServeEngine, item: ReviewItem) -> ReviewView:
    view = ReviewView.of(item, engine.source_name(item.source))
    return replace(view, text=engine.rights.redacted(view.text), comment=engine.rights.redacted(view.comment))


def _open(engine: ServeEngine) -> OpenCounts:
    """The items of visible sources that have not been reviewed."""
    counts = engine.store.count_open()
    visible = engine.rights.visible()
    if visible is not None:
        counts = {
            severity: {id_: n for id_, n in by_source.items() if id_ in visible}
            for severity, by_source in counts.items()
        }
    return OpenCounts(**counts)


def _is_visible(engine: ServeEngine, id_: int) -> bool:
    item = engine.store.review_item(id_)
    return item is not None and engine.rights.sees(item.source)


def _item(engine: ServeEngine, id_: int) -> ReviewItem:
    item = engine.store.review_item(id_)
    if item is None or not engine.rights.sees(item.source):
        raise RequestRejected(404, f"there is no review item {id_}; it was deleted, or it was too old")
    return item


def _jpeg(engine: ServeEngine, item: ReviewItem) -> bytes:
    jpeg = None if item.image is None else engine.store.image(item.image)
    if jpeg is None or item.image is None:
        raise RequestRejected(404, f"there is no image of item {item.id}; images of old events are discarded")
    engine.check_image(item.image)
    return jpeg


def _cropped(jpeg: bytes, box: Box) -> bytes:
    """The part of a JPEG around a box, as a JPEG."""
    import cv2

    image = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
    if image is None:
        return jpeg
    height, width = image.shape[:2]
    x1, y1, x2, y2 = crop_box(box, width / height)
    part = image[round(y1 * height) : round(y2 * height), round(x1 * width) : round(x2 * width)]
    done, data = cv2.imencode(".jpg", part, [cv2.IMWRITE_JPEG_QUALITY, 90])
    return data.tobytes() if done else jpeg


def crop_box(box: Box, aspect: float) -> Box:
    """The square around an object with a margin, within the frame, as shares of the frame.

    Args:
        box: the object, as shares of the frame.
        aspect: width of the frame over its height in pixels.
    """
    x1, y1, x2, y2 = box
    side = max((x2 - x1) * aspect, y2 - y1) * (1 + _MARGIN)  # in heights of the frame
    side = min(max(side, _MIN_SIDE), 1.0, aspect)
    half_x = side / aspect / 2
    half_y = side / 2
    center_x = min(max((x1 + x2) / 2, half_x), 1 - half_x)
    center_y = min(max((y1 + y2) / 2, half_y), 1 - half_y)
    return center_x - half_x, center_y - half_y, center_x + half_x, center_y + half_y
