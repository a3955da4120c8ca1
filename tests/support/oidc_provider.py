"""A small provider of OpenID Connect: discovery, authorization code with PKCE, tokens signed with RS256, keys."""

import base64
import hashlib
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import FastAPI, Form, Header
from fastapi.responses import JSONResponse, RedirectResponse
from joserfc import jwt
from joserfc.jwk import RSAKey

from streamkit.serve.server import address, listen, serving

CLIENT = "cameras"
CLIENT_SECRET = "the secret of the client 0815"


@dataclass
class Provider:
    """A provider, whose only person is signed in already.

    Attributes:
        issuer: its address.
        person: the claims about the person.
        spoil: claims that replace the right ones in the next ID tokens.
        key: signs the tokens.
        published: the keys that it publishes.
        asked: the parameters of the authorization requests.
    """

    issuer: str = ""
    person: dict[str, Any] = field(default_factory=dict)
    spoil: dict[str, Any] = field(default_factory=dict)
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "first", "use": "sig"}))
    published: list[RSAKey] = field(default_factory=list)
    asked: list[dict[str, str]] = field(default_factory=list)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def rotate(self) -> None:
        """Sign with a new key from now on."""
        self.key = RSAKey.generate_key(2048, {"kid": secrets.token_hex(4), "use": "sig"})
        self.published = [self.key]

    def claims(self, nonce: str) -> dict[str, Any]:
        now_s = int(time.time())
        times = {"iat": now_s, "exp": now_s + 60}
        return {"iss": self.issuer, "aud": CLIENT, **times, "nonce": nonce, **self.person, **self.spoil}


@contextmanager
def oidc_provider() -> Iterator[Provider]:
    """Run a provider on a free port."""
    provider = Provider()
    provider.published = [provider.key]
    listening = listen("127.0.0.1", 0)
    provider.issuer = address("127.0.0.1", listening).rstrip("/")
    with serving(_app(provider), listening):
        yield provider


def _app(provider: Provider) -> FastAPI:
    app = FastAPI()

    @app.get("/.well-known/openid-configuration")
    def discovery() -> dict[str, Any]:
        names = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
        return {"issuer": provider.issuer, **{name: f"{provider.issuer}/{path}" for name, path in names.items()}}

    @app.get("/keys")
    def keys() -> dict[str, Any]:
        return {"keys": [key.as_dict(private=False) for key in provider.published]}

    @app.get("/authorize")
    def authorize(redirect_uri: str, state: str, nonce: str, code_challenge: str, client_id: str) -> RedirectResponse:
        code = secrets.token_urlsafe(16)
        query = {"redirect_uri": redirect_uri, "nonce": nonce, "code_challenge": code_challenge, "client_id": client_id}
        provider.asked.append({**query, "state": state})
        provider.codes[code] = query
        return RedirectResponse(f"{redirect_uri}?{urlencode({'code': code, 'state': state})}", 303)

    @app.post("/token")
    def token(
        code: Annotated[str, Form()],
        code_verifier: Annotated[str, Form()],
        redirect_uri: Annotated[str, Form()],
        authorization: Annotated[str, Header()],
    ) -> JSONResponse:
        expected = base64.b64encode(f"{CLIENT}:{CLIENT_SECRET}".encode()).decode()
        challenge = base64.urlsafe_b64encode(hashlib.sha256(code_verifier.encode()).digest()).rstrip(b"=").decode()
        query = provider.codes.pop(code, None)
        right = query is not None and (query["code_challenge"], query["redirect_uri"]) == (challenge, redirect_uri)
        if query is None or not right or authorization != f"Basic {expected}":
            return JSONResponse({"error": "invalid_grant"}, 400)
        header = {"alg": "RS256", "kid": provider.key.kid}
        text = jwt.encode(header, provider.claims(query["nonce"]), provider.key)
        return JSONResponse({"access_token": "unused", "token_type": "Bearer", "id_token": text})

    return app
