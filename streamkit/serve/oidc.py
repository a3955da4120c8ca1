# SPDX-License-Identifier: Apache-2.0
"""Sign-in by OpenID Connect: the authorization code flow with PKCE."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlencode

from streamkit.core.errors import describe
from streamkit.serve.access_file import ProviderOptions, check_https

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

logger = logging.getLogger(__name__)

START = "/session/oidc"
"""Path of the route that leads to the provider, below that of the API."""

CALLBACK = f"{START}/callback"
"""Path of the route to which the provider leads back."""

SECRET = "STREAMKIT_OIDC_SECRET"
"""The variable of the environment that has the client's secret."""

PENDING_S = 600.0
"""How long a person may take at the provider, in seconds."""

_MAX_PENDING = 1000
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA"]
_ANSWER_S = 10.0
_MAX_BYTES = 1_000_000
_LEEWAY_S = 60.0
_CONFIG_S = 3600.0  # how long the provider's addresses and keys are used
_KEYS_EVERY_S = 30.0  # keys are read again for an unknown one, at most so often

FailureCode = Literal["denied", "expired", "rights", "away", "failed"]


class SignInFailed(Exception):
    """A sign-in that failed: a code for the page, and a text for the log."""

    def __init__(self, code: FailureCode, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class ProviderClaims:
    """What the provider says about a person: an id that stays the same, the name, and the groups."""

    subject: str
    name: str
    groups: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Pending:
    browser: str
    nonce: str
    verifier: str
    begun_s: float


class Provider:
    """A provider of OpenID Connect. It is asked at sign-ins only.

    Args:
        options: the provider.
        secret: the client's secret; empty for a public client.
        redirect: the address to which the provider leads back.
        clock: the time in seconds since 1970.
    """

    def __init__(
        self, options: ProviderOptions, secret: str, redirect: str, clock: Callable[[], float] = time.time
    ) -> None:
        self.options = options
        self._secret = secret
        self._redirect = redirect
        self._clock = clock
        self._pending: dict[str, _Pending] = {}
        self._config: dict[str, Any] = {}
        self._config_s = 0.0
        self._keys: KeySet | None = None
        self._keys_s = 0.0

    async def begin(self) -> tuple[str, str]:
        """Begin a sign-in: the address at the provider, and the secret for a cookie of the browser.

        Raises:
            SignInFailed: the provider does not answer as it should.
        """
        config = await self._discovered()
        now_s = self._clock()
        self._pending = {
            state: pending for state, pending in self._pending.items() if now_s - pending.begun_s < PENDING_S
        }
        while len(self._pending) >= _MAX_PENDING:
            del self._pending[next(iter(self._pending))]
        state = secrets.token_urlsafe(32)
        browser = secrets.token_urlsafe(32)
        pending = _Pending(_digest(browser), secrets.token_urlsafe(32), secrets.token_urlsafe(48), now_s)
        self._pending[state] = pending
        query = {
            "response_type": "code",
            "client_id": self.options.client_id,
            "redirect_uri": self._redirect,
            "scope": "openid profile email",
            "state": state,
            "nonce": pending.nonce,
            "code_challenge": base64.urlsafe_b64encode(hashlib.sha256(pending.verifier.encode()).digest())
            .rstrip(b"=")
            .decode(),
            "code_challenge_method": "S256",
        }
        endpoint = str(config["authorization_endpoint"])
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}", browser

    async def finish(self, query: Mapping[str, str], browser: str) -> ProviderClaims:
        """Finish a sign-in that this browser began.

        Args:
            query: the parameters with which the provider has led back.
            browser: the secret of the browser's cookie; empty without one.

        Raises:
            SignInFailed: why the sign-in failed.
        """
        pending = self._pending.get(query.get("state", ""))
        if pending is None or not hmac.compare_digest(pending.browser, _digest(browser)):
            raise SignInFailed("expired", "the sign-in was not begun in this browser, or took too long")
        del self._pending[query["state"]]  # it is good for one answer
        if self._clock() - pending.begun_s >= PENDING_S:
            raise SignInFailed("expired", "the sign-in took too long")
        if "iss" in query and query["iss"] != self.options.issuer:
            raise SignInFailed("failed", "another issuer has answered")
        if "error" in query or not query.get("code"):
            raise SignInFailed("denied", f"the provider refused: {query.get('error', 'no code')[:80]!r}")
        token = await self._exchange(query["code"], pending.verifier)
        return self._person(await self._checked(token, pending.nonce))

    async def _exchange(self, code: str, verifier: str) -> str:
        """The ID token for a code."""
        config = await self._discovered()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect,
            "client_id": self.options.client_id,
            "code_verifier": verifier,
        }
        methods = config.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        auth = None
        if self._secret and "client_secret_basic" in methods:
            auth = (self.options.client_id, self._secret)
        elif self._secret:
            form["client_secret"] = self._secret
        answer = await self._call("POST", str(config["token_endpoint"]), data=form, auth=auth)
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise SignInFailed("failed", "the provider has sent no ID token")
        return token

    async def _checked(self, token: str, nonce: str) -> dict[str, Any]:
        """The claims of an ID token: signed by the provider, for this server, for this sign-in, and in time."""
        from joserfc import jwt
        from joserfc.errors import JoseError

        claims: dict[str, Any] | None = None
        for again in (False, True):
            keys = await self._key_set(again=again)
            try:
                claims = jwt.decode(token, keys, algorithms=_ALGORITHMS).claims
                break
            except (JoseError, ValueError, KeyError, TypeError) as error:
                if again:
                    raise SignInFailed("failed", f"the ID token is not valid: {describe(error)}") from None
        assert claims is not None
        now_s = self._clock()
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        client = self.options.client_id
        wrong = (
            (claims.get("iss") != self.options.issuer, "its issuer is another one"),
            (client not in audiences, "it is for another client"),
            (claims.get("azp", client) != client or (len(audiences) > 1 and "azp" not in claims), "its azp is wrong"),
            (not hmac.compare_digest(str(claims.get("nonce", "")), nonce), "its nonce is another one"),
            (not _is_number(claims.get("exp")) or claims["exp"] <= now_s - _LEEWAY_S, "it has expired"),
            (not _is_number(claims.get("iat")) or claims["iat"] > now_s + _LEEWAY_S, "it is from the future"),
            (not isinstance(claims.get("sub"), str) or not claims["sub"], "it has no subject"),
        )
        for is_wrong, why in wrong:
            if is_wrong:
                raise SignInFailed("failed", f"the ID token is not valid: {why}")
        return claims

    def _person(self, claims: Mapping[str, Any]) -> ProviderClaims:
        name = claims.get(self.options.name_claim)
        if not isinstance(name, str) or not name:
            raise SignInFailed("failed", f"the ID token has no claim {self.options.name_claim!r}: set name_claim")
        groups: Any = claims
        for step in self.options.groups_claim.split("."):
            groups = groups.get(step) if isinstance(groups, Mapping) else None
        names = groups if isinstance(groups, list) else [groups]
        return ProviderClaims(claims["sub"], name, frozenset(name for name in names if isinstance(name, str)))

    async def _discovered(self) -> dict[str, Any]:
        """The provider's description of itself."""
        if self._config and self._clock() - self._config_s < _CONFIG_S:
            return self._config
        config = await self._call("GET", f"{self.options.issuer.rstrip('/')}/.well-known/openid-configuration")
        if config.get("issuer") != self.options.issuer:
            raise SignInFailed("failed", f"the provider calls itself {config.get('issuer')!r}: write that as issuer")
        for key in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            try:
                check_endpoint(key, config.get(key))
            except ValueError as error:
                raise SignInFailed("failed", f"the provider's {error}") from None
        self._config = config
        self._config_s = self._clock()
        return config

    async def _key_set(self, *, again: bool) -> KeySet:
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        config = await self._discovered()
        age_s = self._clock() - self._keys_s
        if self._keys is None or age_s > _CONFIG_S or (again and age_s > _KEYS_EVERY_S):
            answer = await self._call("GET", str(config["jwks_uri"]))
            try:
                self._keys = KeySet.import_key_set(answer)  # type: ignore[arg-type]
            except (JoseError, ValueError, KeyError, TypeError) as error:
                raise SignInFailed("failed", f"the provider's keys cannot be read: {describe(error)}") from None
            self._keys_s = self._clock()
        return self._keys

    async def _call(self, method: str, address: str, **options: Any) -> dict[str, Any]:
        """A JSON object from the provider."""
        import httpx

        try:
            async with (
                httpx.AsyncClient(timeout=_ANSWER_S, follow_redirects=False) as client,
                client.stream(method, address, headers={"accept": "application/json"}, **options) as response,
            ):
                body = b""
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > _MAX_BYTES:
                        raise SignInFailed("failed", f"the answer of {address} is larger than {_MAX_BYTES:,} bytes")
        except httpx.HTTPError as error:
            raise SignInFailed("away", f"{address} does not answer: {describe(error)}") from None
        if response.status_code != 200:
            raise SignInFailed("failed", f"{address} answers with status {response.status_code}")
        try:
            answer = httpx.Response(200, content=body).json()
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise SignInFailed("failed", f"{address} does not answer with a JSON object")
        return answer


def check_endpoint(key: str, address: Any) -> None:
    """Check an address that the provider gives. Raises ValueError."""
    if not isinstance(address, str):
        raise ValueError(f"{key} is missing")
    check_https(key, address.partition("?")[0])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
