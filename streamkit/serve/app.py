"""The HTTP API: sources, stages, events, pictures, metrics, and the page that shows them.

Reading is open to whoever reaches the port; changing anything, every picture and the sources' addresses need the token.
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
from streamkit.serve import words
from streamkit.serve.engine import Engine
from streamkit.serve.gallery import told
from streamkit.serve.guard import LARGEST, NO_TOKEN, Guard
from streamkit.serve.guesses import TooManyGuesses
from streamkit.serve.live import VIEWERS, Watchers
from streamkit.serve.metrics import registry
from streamkit.serve.token import COOKIE, Token

PAGE = Path(__file__).parent / "page"

_BEARER = HTTPBearer(auto_error=False, description="The token that the server printed or was given")
_NO = {"model": words.Problem}
_LOCKED: dict[int | str, dict[str, Any]] = {
    401: {**_NO, "description": "The token is missing or wrong"},
    413: {**_NO, "description": f"The body is larger than {LARGEST:,} bytes"},
    429: {**_NO, "description": "Too many wrong tokens were sent; `Retry-After` says how long to wait"},
}
_UNKNOWN: dict[int | str, dict[str, Any]] = {404: {**_NO, "description": "There is none of that name"}}
_WRONG: dict[int | str, dict[str, Any]] = {422: {**_NO, "description": "What is asked for is not right, and why"}}
_CLASH: dict[int | str, dict[str, Any]] = {409: {**_NO, "description": "It cannot be done as things are, and why"}}
_FILES: dict[int | str, dict[str, Any]] = {403: {**_NO, "description": "It would read this machine's files"}}
_JPEG: dict[int | str, dict[str, Any]] = {200: {"content": {"image/jpeg": {}}, "description": "A JPEG picture"}}
_NONE: dict[int | str, dict[str, Any]] = {503: {**_NO, "description": "There is no picture now, and why"}}


def reply(data: Any, status: int = 200) -> Response:
    """An answer as JSON; what JSON does not have, such as a number that is not finite, becomes null or text."""
    options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_DATACLASS
    return Response(orjson.dumps(data, default=str, option=options), status, media_type="application/json")


def create_app(
    engine: Engine, token: Token, *, allowed_hosts: Collection[str] = (), viewers: int = VIEWERS
) -> FastAPI:  # fmt: skip
    """The application for one running pipeline.

    Args:
        engine: the pipeline.
        token: what a request must show to change anything, and to see pictures and addresses.
        allowed_hosts: names under which the server answers, beside IP addresses and localhost.
        viewers: live pictures watched at once, at most.
    """
    app = FastAPI(
        title="streamkit", version=__version__, docs_url=None, redoc_url=None, redirect_slashes=False,
        description="A running pipeline: its sources, stages, events, pictures and metrics.",
    )  # fmt: skip

    def signed_in(request: Request, _: Annotated[Any, Depends(_BEARER)]) -> None:
        if (wait_s := getattr(request.state, "wait_s", None)) is not None:
            raise words.Refused(429, str(TooManyGuesses(wait_s)), {"retry-after": str(wait_s)})
        if not request.state.signed_in:
            raise words.Refused(401, NO_TOKEN)

    locked = [Depends(signed_in)]
    _errors(app)
    _session(app, token)
    _reading(app, engine)
    _sources(app, engine, locked)
    _pictures(app, engine, locked, viewers)
    _probes(app, engine)
    app.mount("/page", StaticFiles(directory=PAGE), name="page")
    app.add_middleware(Guard, token=token, allowed_hosts=allowed_hosts, refused=engine.refused)
    return app


def _errors(app: FastAPI) -> None:
    """Every refusal is `{"error": text}`, and the text never holds what was sent: it may be an address."""

    @app.exception_handler(words.Refused)
    async def refused(request: Request, error: words.Refused) -> Response:
        made = reply({"error": error.text}, error.status)
        made.headers.update(error.headers)
        if error.status == 401:
            made.headers["www-authenticate"] = "Bearer"
        return made

    @app.exception_handler(RequestValidationError)
    async def wrong(request: Request, error: RequestValidationError) -> Response:
        found = ((".".join(str(step) for step in one["loc"][1:]), str(one["msg"])) for one in error.errors())
        text = "; ".join(f"{place}: {message}" if place else message for place, message in found)
        return reply({"error": mask(text)}, 422)

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        made = reply({"error": mask(str(error.detail))}, error.status_code)
        made.headers.update(error.headers or {})
        return made


def _session(app: FastAPI, token: Token) -> None:
    @app.get("/session", tags=["session"], response_model=dict[str, bool])
    def session(request: Request) -> Response:
        """Whether this browser is signed in."""
        return reply({"signed_in": request.state.signed_in})

    @app.post("/session", tags=["session"], status_code=204, responses={**_LOCKED, **_WRONG})
    async def sign_in(given: words.Credentials, request: Request) -> Response:
        """Sign a browser in: it gets a cookie that only this server can read."""
        address = request.client.host if request.client else ""
        try:
            right = request.state.guesses.judge(address, given.token, lambda: token.fits(given.token))
        except TooManyGuesses as error:
            raise words.Refused(429, str(error), {"retry-after": str(error.wait_s)}) from None
        if not right:
            raise words.Refused(401, "this is not the token; the server prints it when it starts")
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


def _reading(app: FastAPI, engine: Engine) -> None:
    @app.get("/status", tags=["pipeline"], response_model=words.Status)
    def status() -> Response:
        """The pipeline as a whole."""
        return reply(engine.status())

    @app.get("/sources", tags=["sources"], response_model=list[words.Source])
    def sources(request: Request) -> Response:
        """All sources and how they are; with their addresses and options for those who are signed in."""
        return reply(engine.sources(addresses=request.state.signed_in))

    @app.get("/stages", tags=["stages"], response_model=list[words.StageView])
    def stages() -> Response:
        """The graph: its stages, what they read from, what they did, and what may be changed while they run."""
        return reply(engine.stages())

    @app.get("/alarms", tags=["events"], response_model=list[words.AlarmView])
    def alarms() -> Response:
        """The alarms on the pipeline itself, and those that are raised now; raising and clearing are events as well."""
        return reply(engine.alarms())

    @app.get("/events", tags=["events"], response_model=list[words.EventView], responses=_WRONG)
    def events(
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
        source: str | None = None,
        after: Annotated[int, Query(ge=0, le=2**53)] = 0,
    ) -> Response:
        """The latest events, newest first: of one source or all, with a number above `after`."""
        return reply([told(one) for one in engine.gallery.events(limit, source, after)])

    @app.get("/", include_in_schema=False)
    def index() -> Response:
        return FileResponse(PAGE / "index.html", headers={"cache-control": "no-cache"})

    @app.get("/docs", include_in_schema=False)
    def docs() -> Response:
        return FileResponse(PAGE / "docs.html", headers={"cache-control": "no-cache"})


def _sources(app: FastAPI, engine: Engine, locked: list[Any]) -> None:
    change: dict[str, Any] = {"tags": ["sources"], "dependencies": locked, "response_model": words.Source}
    asked = {**_LOCKED, **_WRONG, **_FILES, **_CLASH}

    @app.post("/sources", status_code=201, responses=asked, **change)
    def add(new: words.NewSource) -> Response:
        """Add a source."""
        return reply(engine.add(new), 201)

    @app.post("/sources/{id:path}/pause", responses={**_LOCKED, **_UNKNOWN, **_CLASH, **_WRONG}, **change)
    def pause(id: str) -> Response:  # noqa: A002
        """Stop reading a source until it is resumed."""
        return reply(engine.pause(id))

    @app.post("/sources/{id:path}/resume", responses={**_LOCKED, **_UNKNOWN, **_CLASH, **_WRONG}, **change)
    def resume(id: str) -> Response:  # noqa: A002
        """Go on reading a source."""
        return reply(engine.resume(id))

    @app.post("/sources/{id:path}/record", responses={**_LOCKED, **_UNKNOWN, **_CLASH, **_WRONG}, **change)
    def record(id: str) -> Response:  # noqa: A002
        """Record a clip of a source now, by every stage that records."""
        return reply(engine.record(id))

    @app.put("/sources/{id:path}", responses={**asked, **_UNKNOWN}, **change)
    def replace(id: str, new: words.ChangedSource) -> Response:  # noqa: A002
        """Give a source a new address or new options; what is left out stays. It ends and starts again."""
        return reply(engine.change(id, new))

    @app.delete(
        "/sources/{id:path}", status_code=204, tags=["sources"], dependencies=locked,
        responses={**_LOCKED, **_UNKNOWN, **_CLASH, **_WRONG},
    )  # fmt: skip
    def remove(id: str) -> Response:  # noqa: A002
        """Take a source out; what is decoded of it goes through."""
        engine.remove(id)
        return Response(status_code=204)

    @app.patch(
        "/stages/{id}", tags=["stages"], dependencies=locked, response_model=words.StageView,
        responses={**_LOCKED, **_UNKNOWN, **_WRONG},
    )  # fmt: skip
    def set_(id: str, values: dict[str, Any]) -> Response:  # noqa: A002
        """Change settings of a stage while it runs: all of them, or none where one is not right."""
        return reply(engine.set(id, values))


def _pictures(app: FastAPI, engine: Engine, locked: list[Any], viewers: int) -> None:
    watchers = Watchers(engine, viewers)
    picture: dict[str, Any] = {"tags": ["pictures"], "dependencies": locked, "response_class": Response}

    @app.get("/sources/{id:path}/snapshot.jpg", responses={**_JPEG, **_LOCKED, **_UNKNOWN, **_NONE}, **picture)
    async def snapshot(id: str) -> Response:  # noqa: A002
        """The newest picture of a source with what was found on it; waits up to two seconds for one."""
        found = await watchers.picture(id)
        return Response(found.jpeg, media_type="image/jpeg", headers={"x-frame": str(found.frame)})

    @app.get(
        "/sources/{id:path}/live.mjpg",
        responses={
            200: {"content": {"multipart/x-mixed-replace": {}}, "description": "JPEG pictures, one after the other"},
            **_LOCKED, **_UNKNOWN,
            429: {**_NO, "description": "Too many live pictures are watched, or wrong tokens were sent"},
        },
        **picture,
    )  # fmt: skip
    async def live(id: str, request: Request) -> Response:  # noqa: A002
        """The source's pictures as they come, at most five a second; an image element shows it."""
        return watchers.stream(id, request.is_disconnected)

    @app.get("/events/{number}/picture.jpg", responses={**_JPEG, **_LOCKED, **_UNKNOWN, **_WRONG}, **picture)
    def event_picture(number: int) -> Response:
        """The picture of an event."""
        found = engine.gallery.event(number)
        if found is None or found.jpeg is None:
            raise words.Refused(404, f"there is no picture of event {number}, or no longer")
        keep = {"cache-control": "private, max-age=86400, immutable"}
        return Response(found.jpeg, media_type="image/jpeg", headers=keep)


def _probes(app: FastAPI, engine: Engine) -> None:
    metrics_of = registry(engine)

    @app.get("/live", tags=["probes"], response_model=dict[str, bool])
    def live() -> Response:
        """Whether this process answers: for a supervisor that restarts it where it does not."""
        return reply({"live": True})

    @app.get("/ready", tags=["probes"], response_model=dict[str, bool], responses={503: {"model": dict[str, bool]}})
    def ready() -> Response:
        """Whether every stage is open and frames are taken; 503 until then, and when it is stopping."""
        return reply({"ready": engine.ready}, 200 if engine.ready else 503)

    @app.get(
        "/metrics", tags=["probes"], response_class=Response,
        responses={200: {"content": {"text/plain": {}}, "description": "Prometheus' text format"}},
    )  # fmt: skip
    def metrics() -> Response:
        """What Prometheus reads."""
        return Response(generate_latest(metrics_of), headers={"content-type": CONTENT_TYPE_LATEST})
