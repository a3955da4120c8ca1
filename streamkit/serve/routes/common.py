"""What the routes share: JSON responses, error descriptions, and the dependency of requests that need the token."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import Depends, Request
from fastapi.responses import Response
from fastapi.security import HTTPBearer

from streamkit.serve import api_models
from streamkit.serve.guard import MAX_BODY_BYTES, NO_TOKEN
from streamkit.serve.guesses import TooManyGuesses

_BEARER = HTTPBearer(auto_error=False, description="The token that the server printed or was given")
_ERRORS = {
    401: "The token is missing or wrong",
    403: "The source would read files of this machine",
    404: "The source, stage or event does not exist",
    409: "The pipeline's current state does not allow it; `error` says why",
    413: f"The body is larger than {MAX_BODY_BYTES:,} bytes",
    422: "The request is invalid; `error` says why",
    429: "Too many wrong tokens were sent; `Retry-After` says how long to wait",
    503: "It cannot be read at present; `error` says why",
}
LOCKED_ERRORS = (401, 413, 429)  # of requests that need the token
CHANGE_ERRORS = (*LOCKED_ERRORS, 404, 409, 422)
JPEG: dict[int | str, dict[str, Any]] = {200: {"content": {"image/jpeg": {}}, "description": "A JPEG image"}}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI descriptions of error responses."""
    return {status: {"model": api_models.ErrorResponse, "description": _ERRORS[status]} for status in statuses}


def reply(data: Any, status: int = 200) -> Response:
    """A JSON response; a value that JSON does not have, such as NaN, becomes null or text."""
    options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_DATACLASS
    return Response(orjson.dumps(data, default=str, option=options), status, media_type="application/json")


def signed_in(request: Request, _: Annotated[Any, Depends(_BEARER)]) -> None:
    """Reject a request without the token.

    Raises:
        RequestRejected: the token is missing or wrong, or too many wrong ones were sent.
    """
    if (wait_s := getattr(request.state, "wait_s", None)) is not None:
        raise api_models.RequestRejected(429, str(TooManyGuesses(wait_s)), {"retry-after": str(wait_s)})
    if not request.state.signed_in:
        raise api_models.RequestRejected(401, NO_TOKEN)


LOCKED = [Depends(signed_in)]
"""Dependencies of a request that needs the token."""
