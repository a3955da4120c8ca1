# SPDX-License-Identifier: Apache-2.0
"""One call of an OpenAI-compatible endpoint: chat completions with images, over HTTP with httpx."""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import orjson

from streamkit.core.addresses import check_characters
from streamkit.core.errors import needs
from streamkit.core.masking import mask

_PATH = "/chat/completions"
_MAX_BYTES = 1_000_000  # of a response
_MAX_SHOWN = 200  # characters of a server's own message
_RETRIED = {408, 409, 425, 429}  # and 5xx
_NOT_UNDERSTOOD = {400, 415, 422, 501}  # what servers answer that do not know response_format


class CallError(Exception):
    """A call without a usable response.

    Args:
        cause: a word or two for counters, such as `timeout` or `HTTP 500`.
        text: the message.
        retry: whether another call may succeed.
        wait_s: how long the server asks to wait before it, in seconds.
        not_understood: whether the server may have refused a part of the request that it does not know.
    """

    def __init__(
        self, cause: str, text: str, *, retry: bool = False, wait_s: float = 0.0, not_understood: bool = False
    ) -> None:
        super().__init__(text)
        self.cause = cause
        self.retry = retry
        self.wait_s = wait_s
        self.not_understood = not_understood


@dataclass(frozen=True, slots=True)
class Reply:
    """A response: the text of the answer, and the tokens of the request and of the answer, 0 if not given."""

    text: str
    prompt_tokens: int
    completion_tokens: int


def check_url(url: str) -> None:
    """Raise ValueError if `url` is not the address of an endpoint. The text contains no part of it."""
    try:
        check_characters(url)
    except ValueError as error:
        raise ValueError(f"url {error}") from None
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
        host = None
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError("url must be the address of the endpoint, as in http://127.0.0.1:8000/v1")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ValueError(
            "url must have no user, password or ?query: put the key into an environment variable, and name that under "
            "key_env"
        )


class ChatEndpoint:
    """An endpoint and a model of it. Any thread may call it.

    Args:
        url: the base address, such as `http://127.0.0.1:8000/v1`.
        model: the model's name at the server.
        key: sent as a bearer token; None for none.
        parameters: further keys of the request, such as `temperature`.
        timeout_s: maximum time of a call, in seconds.

    Attributes:
        where: the address for messages.

    Raises:
        MissingPackage: httpx is not installed.
    """

    def __init__(self, url: str, model: str, key: str | None, parameters: Mapping[str, Any], timeout_s: float) -> None:
        with needs("httpx", "ask"):
            import httpx
        self._httpx = httpx
        self._key = key
        self._timeout_s = timeout_s
        self._base = url.rstrip("/").removesuffix(_PATH)
        self._body = {"model": model, **parameters}
        self.where = mask(self._base)
        headers = {"user-agent": "streamkit", **({"authorization": f"Bearer {key}"} if key else {})}
        verify = urlsplit(url).scheme != "http"  # in lower case; certificates take long to load
        self._client = httpx.Client(verify=verify, timeout=timeout_s, headers=headers)

    def ask(self, prompt: str, images: Sequence[bytes], schema: Mapping[str, Any] | None) -> Reply:
        """Send a question with JPEG images.

        Args:
            prompt: the question.
            images: the JPEGs, in order.
            schema: JSON Schema of the answer, sent as `response_format`; None sends none.

        Raises:
            CallError: there is no response that can be used.
        """
        content: list[dict[str, Any]] = [{"type": "text", "text": prompt}]
        for image in images:
            data = f"data:image/jpeg;base64,{base64.b64encode(image).decode()}"
            content.append({"type": "image_url", "image_url": {"url": data}})
        body = {**self._body, "messages": [{"role": "user", "content": content}]}
        if schema is not None:
            form = {"name": "answer", "strict": True, "schema": schema}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        return _reply(self._request("POST", _PATH, as_bytes(body)))

    def models(self) -> list[str]:
        """The names of the endpoint's models. Raises CallError."""
        try:
            return [str(model["id"]) for model in orjson.loads(self._request("GET", "/models"))["data"]]
        except (ValueError, LookupError, TypeError):
            raise CallError("no list", "its list of models cannot be read") from None

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _request(self, method: str, path: str, content: bytes | None = None) -> bytes:
        """Return the body of a successful response. Raises CallError."""
        httpx = self._httpx
        until_s = time.monotonic() + self._timeout_s
        headers = {"content-type": "application/json"} if content is not None else {}
        try:
            with self._client.stream(method, f"{self._base}{path}", content=content, headers=headers) as response:
                data = self._body_of(response, until_s)
        except httpx.TimeoutException as error:
            raise CallError("timeout", f"no answer within {self._timeout_s:g} s", retry=True) from error
        except httpx.InvalidURL as error:
            raise CallError("invalid url", f"url is no address: {self._redact(str(error))}") from error
        except (httpx.HTTPError, OSError, RuntimeError) as error:  # RuntimeError: the client was closed meanwhile
            text = self._redact(str(error)) or type(error).__name__
            raise CallError("no connection", f"no answer: {text}", retry=True) from error
        if response.is_success:
            return data
        status = response.status_code
        detail = f" ({detail})" if (detail := self._redact(_message(data))) else ""
        raise CallError(
            f"HTTP {status}",
            f"HTTP {status} {response.reason_phrase}{detail}",
            retry=status in _RETRIED or status >= 500,
            wait_s=_seconds(response.headers.get("retry-after")),
            not_understood=status in _NOT_UNDERSTOOD,
        )

    def _body_of(self, response: Any, until_s: float) -> bytes:
        """Read a body within the time and the size that are allowed; httpx limits only the time between two parts."""
        parts = []
        size = 0
        for part in response.iter_bytes():
            parts.append(part)
            size += len(part)
            if size > _MAX_BYTES:
                raise CallError("too long", f"the response is longer than {_MAX_BYTES / 1e6:g} MB")
            if time.monotonic() > until_s:
                raise CallError("timeout", f"no complete answer within {self._timeout_s:g} s", retry=True)
        return b"".join(parts)

    def _redact(self, text: str) -> str:
        text = mask(" ".join(text.split()))
        text = text.replace(self._key, "***") if self._key else text
        return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def as_bytes(body: Mapping[str, Any]) -> bytes:
    """A body as JSON; numbers may be keys, as those of `logit_bias`. Raises TypeError if a value has no JSON."""
    return orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS)


def _reply(data: bytes) -> Reply:
    """Read a chat completion. Raises CallError."""
    try:
        completion = orjson.loads(data)
        text = completion["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError):
        raise CallError("no completion", "the response is no chat completion; is url that of the endpoint?") from None
    if not isinstance(text, str):
        raise CallError("no completion", "the response has no text: the model refused to answer, or ran out of tokens")
    usage = completion.get("usage")
    return Reply(text, *(_tokens(usage, name) for name in ("prompt_tokens", "completion_tokens")))


def _tokens(usage: Any, name: str) -> int:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if type(value) is int and 0 <= value < 10**9 else 0


def _message(data: bytes) -> str:
    """The message of an error response; empty if it has none."""
    try:
        response = orjson.loads(data)
        error = response.get("error", response)
        text = error.get("message", "") if isinstance(error, dict) else error
    except (ValueError, AttributeError):
        return ""
    return text if isinstance(text, str) else ""


def _seconds(text: str | None) -> float:
    """A `Retry-After` in seconds; 0 if it is absent or a date."""
    return float(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else 0.0
