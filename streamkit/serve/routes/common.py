# SPDX-License-Identifier: Apache-2.0
"""What the routes share: JSON responses, error descriptions, and the roles that requests need."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import Depends, Path, Request, Security
from fastapi.responses import Response
from fastapi.security import HTTPBearer

from streamkit.core.records import as_json
from streamkit.serve import api_models
from streamkit.serve.guard import MAX_BODY_BYTES, NO_TOKEN
from streamkit.serve.request_id import error_body
from streamkit.serve.token import Role, covers
from streamkit.serve.token_attempts import TooManyGuesses

_BEARER = HTTPBearer(auto_error=False, description="The token that the server printed or was given")
ERRORS = {
    401: "The token is missing or wrong",
    403: "The role of the token does not allow it, or the source would read files of this machine; `error` says which",
    404: "The source, stage or event does not exist",
    409: "The pipeline's current state does not allow it; `error` says why",
    413: f"The body is larger than {MAX_BODY_BYTES:,} bytes",
    422: "The request is invalid; `error` says why",
    429: "Too many wrong tokens were sent; `Retry-After` says how long to wait",
    503: "It cannot be read or stored at present; `error` says why",
}
"""The meaning of each error status."""
_ERROR = {"application/json": {"schema": {"$ref": f"#/components/schemas/{api_models.ErrorResponse.__name__}"}}}

LOCKED_ERRORS = (401, 403, 413, 429)  # of requests that need a token
CHANGE_ERRORS = (*LOCKED_ERRORS, 404, 409, 422)
SourceId = Annotated[str, Path(description="id of the source; it may contain slashes")]
StageId = Annotated[str, Path(description="id of the stage")]
JPEG: dict[int | str, dict[str, Any]] = {200: {"content": {"image/jpeg": {}}, "description": "A JPEG image"}}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI descriptions of error responses.

    They refer to the schema that routes with a status of their own declare: FastAPI builds a validator for every model
    of every response, which took half of the time in which a server starts.
    """
    return {status: {"description": ERRORS[status], "content": _ERROR} for status in statuses}


def reply(data: Any, status: int = 200) -> Response:
    """A JSON response; a value that JSON does not have, such as NaN, becomes null or text."""
    return Response(as_json(data, orjson.OPT_NON_STR_KEYS), status, media_type="application/json")


def error_reply(text: str, status: int) -> Response:
    """An error response, which names the request."""
    return reply(error_body(text), status)


class Needs:
    """A dependency that rejects a request whose token does not have a role.

    Args:
        role: the least role that may send the request.
    """

    def __init__(self, role: Role) -> None:
        self.role = role

    def __call__(self, request: Request, _: Annotated[Any, Depends(_BEARER)]) -> None:
        """Reject a request.

        Raises:
            RequestRejected: the token is missing or wrong, too many wrong ones were sent, or it lacks the role.
        """
        state = request.state
        if (wait_s := getattr(state, "wait_s", None)) is not None:
            raise api_models.RequestRejected(429, str(TooManyGuesses(wait_s)), {"retry-after": str(wait_s)})
        if not state.signed_in:
            raise api_models.RequestRejected(401, NO_TOKEN)
        if not covers(state.role, self.role):
            raise api_models.RequestRejected(
                403, f"this needs the role {self.role}, and {state.name!r} is {state.role}; sign in with another token"
            )


VIEWER = [Security(Needs("viewer"), scopes=["viewer"])]
"""Dependencies of a request that shows images or records."""

OPERATOR = [Security(Needs("operator"), scopes=["operator"])]
"""Dependencies of a request that changes sources, settings and recordings."""

ADMIN = [Security(Needs("admin"), scopes=["admin"])]
"""Dependencies of a request that changes the configuration, or who may do what."""
