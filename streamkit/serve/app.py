# SPDX-License-Identifier: Apache-2.0
"""The HTTP API below `/api/v1`, the probes and metrics, and the web page.

Reading is open to this machine only, unless `Readers` says otherwise; changes, images and the sources' addresses need a
token with the role for it (see `routes/common.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from streamkit import __version__
from streamkit.core.errors import OutputError, StreamkitError
from streamkit.core.logs import REQUEST_ID
from streamkit.media.uris import mask
from streamkit.runtime.observe.telemetry import active
from streamkit.serve import api_models
from streamkit.serve.access import Access
from streamkit.serve.access_file import AccessFile
from streamkit.serve.audit import Audited, AuditLog, note_error
from streamkit.serve.engine import ServeEngine
from streamkit.serve.guard import API, SECURITY_HEADERS, Guard, Readers
from streamkit.serve.layout_store import LayoutStore
from streamkit.serve.live import MAX_VIEWERS, Watchers
from streamkit.serve.oidc import CALLBACK, Provider
from streamkit.serve.people import PeopleStore
from streamkit.serve.push import PushCenter
from streamkit.serve.request_id import HEADER, RequestIds
from streamkit.serve.request_spans import RequestSpans
from streamkit.serve.routes.access import add_access
from streamkit.serve.routes.alarms import add_alarms
from streamkit.serve.routes.charts import add_charts
from streamkit.serve.routes.common import error_reply
from streamkit.serve.routes.config import add_config, add_differences, add_shapes
from streamkit.serve.routes.counts import add_counts
from streamkit.serve.routes.events import add_events
from streamkit.serve.routes.images import add_images
from streamkit.serve.routes.layouts import add_layouts
from streamkit.serve.routes.live import add_live
from streamkit.serve.routes.logs import add_logs
from streamkit.serve.routes.many_sources import add_many_sources
from streamkit.serve.routes.pages import add_pages
from streamkit.serve.routes.pipeline import add_pipeline
from streamkit.serve.routes.probes import add_probes
from streamkit.serve.routes.push import add_push
from streamkit.serve.routes.recordings import add_recordings
from streamkit.serve.routes.review import add_review
from streamkit.serve.routes.session import add_provider, add_session
from streamkit.serve.routes.source_forms import add_source_forms
from streamkit.serve.routes.sources import add_changes, add_source
from streamkit.serve.sessions import Sessions
from streamkit.serve.store.recording_index import RecordingsUnreadable
from streamkit.serve.store.serve_store import StoreUnreadable
from streamkit.serve.token import Token
from streamkit.serve.token_store import KnownToken

_LONGEST = 1000
"""Characters of the message about an invalid request."""


def create_app(
    engine: ServeEngine,
    token: Token,
    *,
    data: Path,
    tokens: Iterable[KnownToken] = (),
    allowed_hosts: Collection[str] = (),
    viewers: int = MAX_VIEWERS,
    add_routes: Callable[[FastAPI, APIRouter], None] | None = None,
    readers: Readers = Readers.THIS_MACHINE,
    external: AccessFile | None = None,
    oidc_secret: str = "",
    push_services: Collection[str] = (),
) -> FastAPI:
    """The application for one running pipeline.

    Args:
        engine: the pipeline.
        token: the admin's token.
        data: folder of the server's own files: the audit log, and the people and tokens that admins create.
        tokens: further tokens.
        allowed_hosts: host names that the server answers for, beside IP addresses and localhost.
        viewers: maximum number of live streams watched at once.
        add_routes: adds routes to the application and to its API; they come before those with the same path.
        readers: who may read states, events and metrics without a token.
        external: who signs people in beside this server.
        oidc_secret: the secret of this server at the provider of OpenID Connect; empty for none.
        push_services: hosts of push services beyond those of the browsers' makers.

    Raises:
        ConfigError: two tokens have the same name.
        OutputError: the folder cannot be written.
    """
    people = PeopleStore(data / "people.json")
    access = Access(token, tokens, data / "tokens.json", Sessions(path=data / "sessions.json"), people, external)
    log = engine.audit = AuditLog(data / "audit.db")
    engine.problems.follow_audit(log.write_waiting)
    app = FastAPI(
        title="streamkit",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        description="A running pipeline: its sources, stages, events, images and metrics.",
    )

    _error_handlers(app)
    api = APIRouter(prefix=API)
    if add_routes is not None:
        add_routes(app, api)
    add_session(api, access)
    if access.external.oidc is not None:
        options = access.external.oidc
        add_provider(api, access, log, Provider(options, oidc_secret, f"{options.address}{API}{CALLBACK}"))
    add_access(api, access, log)
    _add_sources(api, engine, viewers)
    add_layouts(api, engine, LayoutStore(data / "layouts.json"))
    add_alarms(api, engine)
    add_logs(api, engine)
    add_events(api, engine, viewers)
    add_review(api, engine)
    add_push(api, engine, _push_center(engine, access, push_services))
    add_charts(api, engine)
    add_counts(api, engine)
    add_recordings(api, engine, data)
    add_config(api, engine)
    add_differences(api, engine)
    add_shapes(api, engine)
    app.include_router(api)
    add_probes(app, engine)
    add_pages(app)
    app.add_middleware(Audited, log=log, prefix=API)
    app.add_middleware(
        Guard,
        access=access,
        allowed_hosts=allowed_hosts,
        refused=engine.refused,
        readers=readers,
        sockets=2 * viewers,
    )
    if (telemetry := active()) is not None:
        app.add_middleware(RequestSpans, telemetry=telemetry)
    app.add_middleware(RequestIds)
    return app


def _add_sources(api: APIRouter, engine: ServeEngine, viewers: int) -> None:
    """Add the routes of the pipeline, its sources, and their images and videos."""
    add_pipeline(api, engine)
    add_many_sources(api, engine)
    add_source_forms(api, engine)
    add_changes(api, engine)
    watchers = Watchers(engine, viewers)
    add_images(api, engine, watchers)
    add_source(api, engine)  # after the images: ids may contain slashes
    add_live(api, engine, watchers)


def _push_center(engine: ServeEngine, access: Access, services: Collection[str]) -> PushCenter:
    """What sends the alerts of the store to browsers, while the engine is observed."""

    def may_see(key: str, source: str) -> bool:
        identity = access.with_key(key)
        return identity is not None and engine.rights.allows(identity, source)

    push = engine.push = PushCenter(engine.store, may_see, engine.source_name, services)
    engine.store.on_alert = push.announce
    return push


def _validation_text(problem: Mapping[str, Any]) -> str:
    """A problem of a request, with its place: `options.fps: ...`."""
    part, *steps = problem["loc"]
    if problem["type"] == "json_invalid":
        return f"the body is not valid JSON: {problem['ctx']['error']}, at character {steps[-1] + 1}"
    return f"{'.'.join(map(str, steps)) or part}: {problem['msg']}"


def _error_handlers(app: FastAPI) -> None:
    """Return every error as an `ErrorResponse`; the text never repeats request data, which may contain an address."""

    @app.exception_handler(api_models.RequestRejected)
    async def rejected(request: Request, error: api_models.RequestRejected) -> Response:
        note_error(request, error.text)
        response = error_reply(error.text, error.status)
        response.headers.update(error.headers)
        if error.status == 401:
            response.headers["www-authenticate"] = "Bearer"
        return response

    @app.exception_handler(StoreUnreadable)
    @app.exception_handler(RecordingsUnreadable)
    @app.exception_handler(OutputError)
    async def not_stored(request: Request, error: StreamkitError) -> Response:
        note_error(request, str(error))
        return error_reply(mask(str(error)), 503)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        text = "; ".join(_validation_text(problem) for problem in error.errors())
        return error_reply(mask(text[:_LONGEST]), 422)  # a place is a key of the request

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        response = error_reply(mask(str(error.detail)), error.status_code)
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(Exception)  # outside of all middleware, which cannot add its headers
    async def broken(request: Request, error: Exception) -> Response:
        response = error_reply("the server failed to handle this request; its log has the cause", 500)
        response.headers.update({**SECURITY_HEADERS, "cache-control": "no-store", HEADER: REQUEST_ID.get()})
        return response
