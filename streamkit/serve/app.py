"""The HTTP API: sources, stages, events, images, metrics, and the web page.

Reading is open to every client that reaches the port; changes, images and the sources' addresses need the token.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

import orjson
from fastapi import Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, Response
from fastapi.security import HTTPBearer
from fastapi.staticfiles import StaticFiles
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException

from streamkit import __version__
from streamkit.media.uris import mask
from streamkit.serve import api_models
from streamkit.serve.engine import ServeEngine
from streamkit.serve.guard import MAX_BODY_BYTES, NO_TOKEN, Guard
from streamkit.serve.guesses import TooManyGuesses
from streamkit.serve.live import MAX_VIEWERS, Watchers
from streamkit.serve.metrics import registry
from streamkit.serve.token import COOKIE, Token

PAGE = Path(__file__).parent / "page"

_BEARER = HTTPBearer(auto_error=False, description="The token that the server printed or was given")
_ERRORS = {
    401: "The token is missing or wrong",
    403: "The source would read files of this machine",
    404: "The source, stage or event does not exist",
    409: "The pipeline's current state does not allow it; `error` says why",
    413: f"The body is larger than {MAX_BODY_BYTES:,} bytes",
    422: "The request is invalid; `error` says why",
    429: "Too many wrong tokens were sent; `Retry-After` says how long to wait",
    503: "There is no image at present; `error` says why",
}
_LOCKED = (401, 413, 429)  # of requests that need the token
_CHANGE = (*_LOCKED, 404, 409, 422)
_JPEG: dict[int | str, dict[str, Any]] = {200: {"content": {"image/jpeg": {}}, "description": "A JPEG image"}}


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI descriptions of error responses."""
    return {status: {"model": api_models.ErrorResponse, "description": _ERRORS[status]} for status in statuses}


def reply(data: Any, status: int = 200) -> Response:
    """A JSON response; a value that JSON does not have, such as NaN, becomes null or text."""
    options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_DATACLASS
    return Response(orjson.dumps(data, default=str, option=options), status, media_type="application/json")


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

    def signed_in(request: Request, _: Annotated[Any, Depends(_BEARER)]) -> None:
        if (wait_s := getattr(request.state, "wait_s", None)) is not None:
            raise api_models.RequestRejected(429, str(TooManyGuesses(wait_s)), {"retry-after": str(wait_s)})
        if not request.state.signed_in:
            raise api_models.RequestRejected(401, NO_TOKEN)

    locked = [Depends(signed_in)]
    _error_handlers(app)
    _session(app, token)
    _reading(app, engine)
    _sources(app, engine, locked)
    _images(app, engine, locked, viewers)
    _probes(app, engine)
    app.mount("/page", StaticFiles(directory=PAGE), name="page")
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


def _session(app: FastAPI, token: Token) -> None:
    @app.get("/session", tags=["session"], response_model=dict[str, bool])
    def session(request: Request) -> Response:
        """Whether this browser is signed in."""
        return reply({"signed_in": request.state.signed_in})

    @app.post("/session", tags=["session"], status_code=204, responses=_errors(*_LOCKED, 422))
    async def sign_in(given: api_models.Credentials, request: Request) -> Response:
        """Sign a browser in with a cookie that scripts cannot read."""
        address = request.client.host if request.client else ""
        try:
            right = request.state.guesses.judge(address, given.token, lambda: token.matches(given.token))
        except TooManyGuesses as error:
            raise api_models.RequestRejected(429, str(error), {"retry-after": str(error.wait_s)}) from None
        if not right:
            raise api_models.RequestRejected(401, "wrong token; the server prints the token when it starts")
        made = Response(status_code=204)
        secure = request.url.scheme == "https"
        made.set_cookie(COOKIE, token.cookie, max_age=30 * 86400, httponly=True, samesite="strict", secure=secure)
        return made

    @app.delete("/session", tags=["session"], status_code=204)
    def sign_out() -> Response:
        """Sign this browser out."""
        made = Response(status_code=204)
        made.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return made


def _reading(app: FastAPI, engine: ServeEngine) -> None:
    @app.get("/status", tags=["pipeline"], response_model=api_models.Status)
    def status() -> Response:
        """The pipeline as a whole."""
        return reply(engine.status())

    @app.get("/sources", tags=["sources"], response_model=list[api_models.SourceView])
    def sources(request: Request) -> Response:
        """List all sources and their state; addresses and options only for signed-in clients."""
        return reply(engine.sources(addresses=request.state.signed_in))

    @app.get("/stages", tags=["stages"], response_model=list[api_models.StageView])
    def stages() -> Response:
        """The graph: its stages, their inputs and counters, and the settings that can be changed."""
        return reply(engine.stages())

    @app.get("/alarms", tags=["events"], response_model=list[api_models.AlarmView])
    def alarms() -> Response:
        """The alarms on the pipeline itself, and where they are raised; raising and clearing are events as well."""
        return reply(engine.alarms())

    @app.get("/events", tags=["events"], response_model=list[api_models.EventView], responses=_errors(422))
    def events(
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
        source: str | None = None,
        after: Annotated[int, Query(ge=0, le=2**53)] = 0,
    ) -> Response:
        """The latest events, newest first, of one source or all, with a number above `after`."""
        return reply([api_models.EventView.of(one) for one in engine.gallery.events(limit, source, after)])

    @app.get("/", include_in_schema=False)
    def index() -> Response:
        return FileResponse(PAGE / "index.html", headers={"cache-control": "no-cache"})

    @app.get("/docs", include_in_schema=False)
    def docs() -> Response:
        return FileResponse(PAGE / "docs.html", headers={"cache-control": "no-cache"})


def _sources(app: FastAPI, engine: ServeEngine, locked: list[Any]) -> None:
    change: dict[str, Any] = {"tags": ["sources"], "dependencies": locked, "response_model": api_models.SourceView}

    @app.post("/sources", status_code=201, responses=_errors(*_LOCKED, 403, 409, 422), **change)
    def add(new: api_models.NewSource) -> Response:
        """Add a source."""
        return reply(engine.add(new), 201)

    @app.post("/sources/{id:path}/pause", responses=_errors(*_CHANGE), **change)
    def pause(id: str) -> Response:  # noqa: A002
        """Pause a source until it is resumed."""
        return reply(engine.pause(id))

    @app.post("/sources/{id:path}/resume", responses=_errors(*_CHANGE), **change)
    def resume(id: str) -> Response:  # noqa: A002
        """Resume a paused source."""
        return reply(engine.resume(id))

    @app.post("/sources/{id:path}/record", responses=_errors(*_CHANGE), **change)
    def record(id: str) -> Response:  # noqa: A002
        """Record a clip of a source now, with every stage that records."""
        return reply(engine.record(id))

    @app.put("/sources/{id:path}", responses=_errors(*_LOCKED, 403, 404, 409, 422), **change)
    def replace(id: str, new: api_models.ChangedSource) -> Response:  # noqa: A002
        """Change the address or options of a source, and restart it; omitted fields are kept."""
        return reply(engine.change(id, new))

    @app.delete(
        "/sources/{id:path}", status_code=204, tags=["sources"], dependencies=locked, responses=_errors(*_CHANGE)
    )
    def remove(id: str) -> Response:  # noqa: A002
        """Remove a source; its decoded frames are still processed."""
        engine.remove(id)
        return Response(status_code=204)

    @app.patch(
        "/stages/{id}", tags=["stages"], dependencies=locked, response_model=api_models.StageView,
        responses=_errors(*_LOCKED, 404, 422),
    )  # fmt: skip
    def set_(id: str, values: dict[str, Any]) -> Response:  # noqa: A002
        """Change settings of a running stage: all of them, or none if one is invalid."""
        return reply(engine.set(id, values))


def _images(app: FastAPI, engine: ServeEngine, locked: list[Any], viewers: int) -> None:
    watchers = Watchers(engine, viewers)
    image: dict[str, Any] = {"tags": ["images"], "dependencies": locked, "response_class": Response}

    @app.get("/sources/{id:path}/snapshot.jpg", responses={**_JPEG, **_errors(*_LOCKED, 404, 503)}, **image)
    async def snapshot(id: str) -> Response:  # noqa: A002
        """The newest frame of a source as an image with its detections; waits up to two seconds for one."""
        found = await watchers.image(id)
        return Response(found.jpeg, media_type="image/jpeg", headers={"x-frame": str(found.frame)})

    @app.get(
        "/sources/{id:path}/live.mjpg",
        responses={
            200: {"content": {"multipart/x-mixed-replace": {}}, "description": "A sequence of JPEG images"},
            **_errors(*_LOCKED, 404),
            429: {"model": api_models.ErrorResponse, "description": "Too many live streams, or too many wrong tokens"},
        },
        **image,
    )
    async def live(id: str, request: Request) -> Response:  # noqa: A002
        """A live stream of the source's frames, at most five per second, for an image element."""
        return watchers.stream(id, request.is_disconnected)

    @app.get("/events/{number}/image.jpg", responses={**_JPEG, **_errors(*_LOCKED, 404, 422)}, **image)
    def event_image(number: int) -> Response:
        """The image of an event."""
        found = engine.gallery.event(number)
        if found is None or found.jpeg is None:
            raise api_models.RequestRejected(
                404, f"there is no image of event {number}; images of old events are discarded"
            )
        keep = {"cache-control": "private, max-age=86400, immutable"}
        return Response(found.jpeg, media_type="image/jpeg", headers=keep)


def _probes(app: FastAPI, engine: ServeEngine) -> None:
    metrics_of = registry(engine)

    @app.get("/live", tags=["probes"], response_model=dict[str, bool])
    def live() -> Response:
        """Liveness: whether this process responds; a supervisor restarts it otherwise."""
        return reply({"live": True})

    @app.get("/ready", tags=["probes"], response_model=dict[str, bool], responses={503: {"model": dict[str, bool]}})
    def ready() -> Response:
        """Readiness: whether every stage is open and frames are accepted; 503 before that and while stopping."""
        return reply({"ready": engine.ready}, 200 if engine.ready else 503)

    @app.get(
        "/metrics", tags=["probes"], response_class=Response,
        responses={200: {"content": {"text/plain": {}}, "description": "Prometheus' text format"}},
    )  # fmt: skip
    def metrics() -> Response:
        """Metrics for Prometheus."""
        return Response(generate_latest(metrics_of), headers={"content-type": CONTENT_TYPE_LATEST})
