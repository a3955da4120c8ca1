"""The HTTP API below `/api/v1`, the probes and metrics, and the web page.

Reading is open to every client that reaches the port; changes, images and the sources' addresses need the token.
"""

from __future__ import annotations

from collections.abc import Collection

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from streamkit import __version__
from streamkit.media.uris import mask
from streamkit.serve import api_models
from streamkit.serve.engine import ServeEngine
from streamkit.serve.guard import API, Guard
from streamkit.serve.live import MAX_VIEWERS, Watchers
from streamkit.serve.routes.common import reply
from streamkit.serve.routes.images import add_images
from streamkit.serve.routes.live import add_live
from streamkit.serve.routes.pages import add_pages
from streamkit.serve.routes.pipeline import add_pipeline
from streamkit.serve.routes.probes import add_probes
from streamkit.serve.routes.session import add_session
from streamkit.serve.routes.sources import add_changes
from streamkit.serve.token import Token


def create_app(
    engine: ServeEngine, token: Token, *, allowed_hosts: Collection[str] = (), viewers: int = MAX_VIEWERS
) -> FastAPI:  # fmt: skip
    """The application for one running pipeline.

    Args:
        engine: the pipeline.
        token: required to change anything, and to see images and addresses.
        allowed_hosts: host names that the server answers for, beside IP addresses and localhost.
        viewers: maximum number of live streams watched at once.
    """
    app = FastAPI(
        title="streamkit", version=__version__, docs_url=None, redoc_url=None, redirect_slashes=False,
        description="A running pipeline: its sources, stages, events, images and metrics.",
    )  # fmt: skip

    _error_handlers(app)
    api = APIRouter(prefix=API)
    add_session(api, token)
    add_pipeline(api, engine)
    add_changes(api, engine)
    watchers = Watchers(engine, viewers)
    add_images(api, engine, watchers)
    add_live(api, engine, watchers)
    app.include_router(api)
    add_probes(app, engine)
    add_pages(app)
    app.add_middleware(Guard, token=token, allowed_hosts=allowed_hosts, refused=engine.refused)
    return app


def _error_handlers(app: FastAPI) -> None:
    """Return every error as `{"error": text}`; the text never repeats request data, which may contain an address."""

    @app.exception_handler(api_models.RequestRejected)
    async def rejected(request: Request, error: api_models.RequestRejected) -> Response:
        made = reply({"error": error.text}, error.status)
        made.headers.update(error.headers)
        if error.status == 401:
            made.headers["www-authenticate"] = "Bearer"
        return made

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        found = ((".".join(str(step) for step in one["loc"][1:]), str(one["msg"])) for one in error.errors())
        text = "; ".join(f"{place}: {message}" if place else message for place, message in found)
        return reply({"error": mask(text)}, 422)

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        made = reply({"error": mask(str(error.detail))}, error.status_code)
        made.headers.update(error.headers or {})
        return made
