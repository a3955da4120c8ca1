# SPDX-License-Identifier: Apache-2.0
"""Images and live streams."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from streamkit.serve import api_models
from streamkit.serve.engine import ServeEngine
from streamkit.serve.live import Watchers
from streamkit.serve.routes.common import JPEG, LOCKED_ERRORS, VIEWER, SourceId, errors


def add_images(api: APIRouter, engine: ServeEngine, watchers: Watchers) -> None:
    """Add the routes of images and live streams."""
    image: dict[str, Any] = {"tags": ["images"], "dependencies": VIEWER, "response_class": Response}

    @api.get("/sources/{id:path}/snapshot.jpg", responses={**JPEG, **errors(*LOCKED_ERRORS, 404, 503)}, **image)
    async def snapshot(id: SourceId) -> Response:  # noqa: A002
        """The newest frame of a source as an image with its detections; waits up to two seconds for one."""
        thumbnail = await watchers.image(id)
        return Response(thumbnail.jpeg, media_type="image/jpeg", headers={"x-frame": str(thumbnail.frame)})

    @api.get(
        "/sources/{id:path}/live.mjpg",
        responses={
            200: {"content": {"multipart/x-mixed-replace": {}}, "description": "A sequence of JPEG images"},
            **errors(*LOCKED_ERRORS, 404),
            429: {"model": api_models.ErrorResponse, "description": "Too many live streams, or too many wrong tokens"},
        },
        **image,
    )
    async def live(id: SourceId, request: Request) -> Response:  # noqa: A002
        """A live stream of the source's frames, at most five per second, for an image element."""
        return watchers.stream(id, request.is_disconnected)
