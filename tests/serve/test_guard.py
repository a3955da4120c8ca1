"""What passes every request: who may ask and change, a limit for bodies, headers for browsers."""

import asyncio
import http.client
import socket
import tracemalloc

import httpx
import pytest
from fastapi import FastAPI, Request
from support.servers import TOKEN

from streamkit.core.counters import Counters
from streamkit.serve import guard as guard_module
from streamkit.serve.access import Access
from streamkit.serve.guard import MAX_BODY_BYTES, NO_TOKEN, Guard, host_allowed, host_of
from streamkit.serve.server import address, listen, serving
from streamkit.serve.token import COOKIE, Token
from streamkit.serve.token_attempts import Guesses

REFUSED = Counters()
ACCESS = Access(Token(TOKEN))


@pytest.fixture(scope="module")
def url():
    app = FastAPI()
    app.add_middleware(Guard, access=ACCESS, allowed_hosts=["Cameras.Example"], refused=REFUSED)

    @app.post("/length")
    async def length(request: Request) -> int:
        return len(await request.body())

    @app.post("/api/v1/session")
    async def session(request: Request) -> list[object]:
        return [request.state.signed_in, len(await request.body())]

    @app.get("/kept")
    def recalled(request: Request) -> dict[str, bool]:
        return {"signed_in": request.state.signed_in}

    listening = listen("127.0.0.1", 0)
    with serving(app, listening):
        yield address("127.0.0.1", listening)


@pytest.fixture(scope="module")
def open_(url):
    with httpx.Client(base_url=url, timeout=20) as http_client:
        yield http_client


@pytest.fixture(scope="module")
def client(url):
    with httpx.Client(base_url=url, timeout=20, headers={"authorization": f"Bearer {TOKEN}"}) as http_client:
        yield http_client


@pytest.fixture(autouse=True)
def counted():
    REFUSED.values.clear()


def chunks(total, size=50_000):
    left = total
    while left:
        yield b"x" * min(size, left)
        left -= min(size, left)


def raw(url, text):
    """Send these bytes, and no more; the status of the answer."""
    host, _, port = url.removeprefix("http://").strip("/").partition(":")
    with socket.create_connection((host, int(port)), 5) as connection:
        connection.sendall(text.replace(b"\n", b"\r\n"))
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        return answer.status, answer.read().decode()


# --------------------------------------------------------------------------------------------------------------- bodies


def test_a_body_up_to_the_limit_is_accepted(client):
    assert client.post("/length", content=b"x" * MAX_BODY_BYTES).json() == MAX_BODY_BYTES
    assert client.post("/length", content=chunks(MAX_BODY_BYTES)).json() == MAX_BODY_BYTES
    assert client.post("/length").json() == 0
    assert not REFUSED.values


@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize("size", [MAX_BODY_BYTES + 1, 3 * MAX_BODY_BYTES])
def test_an_oversized_body_is_refused_with_and_without_content_length(client, announced, size):
    answer = client.post("/length", content=b"x" * size if announced else chunks(size))
    assert answer.status_code == 413
    assert "1,000,000 bytes" in answer.json()["error"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert REFUSED.values == {"body too large": 1}


def test_an_announced_oversized_body_is_refused_at_once(url):
    head = f"POST /length HTTP/1.1\nHost: 127.0.0.1\nAuthorization: Bearer {TOKEN}\nContent-Length: 1000001\n\n"
    assert raw(url, head.encode())[0] == 413
    assert raw(url, head.replace("1000001", "0").encode()) == (200, "0")


class Sender:
    """A client without a socket, that sends chunks of a body for as long as it is asked to."""

    def __init__(self, chunks, size=100_000, **headers):
        self.left = chunks
        self.size = size
        self.sent = []
        all_headers = {"host": "127.0.0.1", "authorization": f"Bearer {TOKEN}", **headers}
        pairs = [(name.encode(), value.encode()) for name, value in all_headers.items() if value]
        self.scope = {"type": "http", "method": "POST", "path": "/length", "headers": pairs, "client": ("10.0.0.1", 1)}
        self.peak = 0

    async def receive(self):
        self.left -= 1
        self.peak = max(self.peak, tracemalloc.get_traced_memory()[0])
        return {"type": "http.request", "body": bytes(self.size), "more_body": self.left > 0}

    async def send(self, message):
        self.sent.append(message)

    @property
    def status(self):
        return self.sent[0]["status"]


def run_guard(sender, app=None):
    scopes = []

    async def behind(scope, receive, send):
        scopes.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"%d" % len((await receive())["body"])})

    asyncio.run(
        Guard(app or behind, Access(Token(TOKEN)), (), Guesses(), Counters())(sender.scope, sender.receive, sender.send)
    )
    return scopes


@pytest.mark.parametrize("headers", [{}, {"authorization": ""}, {"host": "evil.example"}])
def test_a_refused_body_is_not_buffered(headers):
    """Neither of one that is too large, nor where the token or the host is wrong: memory stays flat."""
    sender = Sender(1000, **headers)
    tracemalloc.start()
    try:
        assert not run_guard(sender)
    finally:
        tracemalloc.stop()
    assert sender.status == {"evil.example": 421, "": 401}.get(next(iter(headers.values()), None), 413)
    assert sender.peak < 2.5 * MAX_BODY_BYTES
    assert 800 < sender.left < 860  # some 16 MB are thrown away, then it is cut off
    assert [message["type"] for message in sender.sent] == ["http.response.start", *["http.response.body"] * 2]
    assert [message["more_body"] for message in sender.sent[1:]] == [True, False]


def test_reading_stops_just_above_the_limit():
    sender = Sender(11)
    assert not run_guard(sender)
    assert (sender.status, sender.left) == (413, 0)


def test_a_client_that_disconnects_while_sending_makes_no_request():
    sender = Sender(1)

    async def disconnected():
        return {"type": "http.disconnect"}

    sender.receive = disconnected
    assert not run_guard(sender)
    assert sender.sent == []


def test_the_application_gets_the_body_once_and_then_further_messages():
    sender = Sender(3)
    messages = []

    async def behind(scope, receive, send):
        messages.append(await receive())
        sender.left = 1
        messages.append(await receive())

    run_guard(sender, behind)
    assert messages[0] == {"type": "http.request", "body": bytes(300_000), "more_body": False}
    assert len(messages[1]["body"]) == 100_000


def test_messages_other_than_requests_pass_unchanged():
    passed = []

    async def behind(scope, receive, send):
        passed.append(scope)

    asyncio.run(Guard(behind, ACCESS)({"type": "lifespan"}, None, None))
    assert passed == [{"type": "lifespan"}]


# ---------------------------------------------------------------------------------------------------------------- token


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "BREW"])
@pytest.mark.parametrize("body", ["Content-Length: 900000", "Transfer-Encoding: chunked", "X-None: 1"])
def test_a_request_without_token_is_refused_before_its_body(url, method, body):
    status, text = raw(url, f"{method} /length HTTP/1.1\nHost: 127.0.0.1\n{body}\n\n".encode())
    assert (status, NO_TOKEN in text) == (401, True)
    assert REFUSED.values == {"token": 1}


def test_a_request_without_token_gets_no_100_continue(url):
    text = b"POST /length HTTP/1.1\nHost: 127.0.0.1\nExpect: 100-continue\nContent-Length: 9\n\n"
    assert raw(url, text)[0] == 401


def test_with_the_token_the_body_is_read(client):
    assert client.post("/length", content=b"12345").json() == 5
    assert not REFUSED.values


def test_signing_in_needs_no_token_and_reads_the_body(open_, client):
    assert open_.post("/api/v1/session", content=b"123").json() == [False, 3]
    assert client.post("/api/v1/session", content=b"123").json() == [True, 3]
    assert open_.post("/api/v1/session/", content=b"123").status_code == 401


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_reads_pass_without_a_token(open_, method):
    assert open_.request(method, "/kept").status_code in (200, 405)
    assert not REFUSED.values


def test_the_application_sees_the_signed_in_user(url, open_, client):
    assert open_.get("/kept").json() == {"signed_in": False}
    assert client.get("/kept").json() == {"signed_in": True}
    cookie = {"cookie": signed_cookie()}
    assert open_.get("/kept", headers=cookie).json() == {"signed_in": True}
    assert open_.get("/kept", headers={"cookie": f"{COOKIE}=wrong"}).json() == {"signed_in": False}
    assert open_.post("/length", headers=cookie).status_code == 200
    assert open_.post("/length", headers={**cookie, "origin": "http://127.0.0.1:1"}).status_code == 401
    assert open_.post("/length", headers={**cookie, "origin": url.strip("/")}).status_code == 200


def signed_cookie(access=ACCESS):
    return f"{COOKIE}={access.sessions.open(access.tokens()[0].key, '127.0.0.1', 'a browser')}"


def sent(guard, method="GET", client=("10.0.0.1", 1), **headers):
    """The status, the headers and whether the one behind says that it is signed in."""
    sender = Sender(1, size=0, **{"authorization": "", **headers})
    sender.scope |= {"method": method, "client": client}
    asyncio.run(guard(sender.scope, sender.receive, sender.send))
    return sender.status, dict(sender.sent[0]["headers"]), sender.scope["state"]["signed_in"]


def test_failed_tokens_are_throttled():
    async def behind(scope, receive, send):
        await send({"type": "http.response.start", "status": 204, "headers": []})

    counters = Counters()
    guard = Guard(behind, ACCESS, (), Guesses(lambda: 1000.0), counters)
    for n in range(10):
        assert sent(guard, "POST", authorization=f"Bearer wrong {n}")[0] == 401
    status, headers, _ = sent(guard, "POST", authorization=f"Bearer {TOKEN}")
    assert (status, headers[b"retry-after"]) == (429, b"6")
    assert counters.values == {"token": 10, "too many wrong tokens": 1}
    assert headers[b"content-type"] == b"application/json"
    assert headers[b"connection"] == b"close"
    assert b"www-authenticate" not in headers
    assert sent(guard, "POST")[1][b"www-authenticate"] == b"Bearer"
    assert sent(guard, authorization=f"Bearer {TOKEN}")[::2] == (204, False)  # what is open stays open
    cookie = signed_cookie()
    assert sent(guard, "POST", cookie=cookie)[0] == 204  # a session goes on: its cookie cannot be guessed
    for n in range(30):
        assert sent(guard, "POST", client=("10.0.0.3", 1), cookie=f"{COOKIE}=old {n}")[0] == 401
    assert sent(guard, "POST", client=("10.0.0.3", 1), authorization=f"Bearer {TOKEN}")[0] == 204
    assert sent(guard, "POST", client=("10.0.0.2", 1), cookie=cookie) == (204, sent(guard)[1], True)
    assert sent(guard, "POST", client=None, authorization=f"Bearer {TOKEN}")[0] == 204


def test_a_websocket_is_closed_when_its_session_ends(monkeypatch):
    monkeypatch.setattr(guard_module, "_CHECK_EVERY_S", 0.0)
    access = Access(Token(TOKEN))
    sent_on = []

    async def behind(scope, receive, send):
        assert (scope["state"]["role"], scope["state"]["name"]) == ("admin", "admin")
        await send({"type": "websocket.accept"})
        access.sessions.end_of(access.with_token(TOKEN).key)
        for _ in range(2):
            with pytest.raises(OSError, match="session has ended"):
                await send({"type": "websocket.send", "text": "an image"})

    async def send(message):
        sent_on.append((message["type"], message.get("code")))

    headers = [(b"host", b"127.0.0.1"), (b"cookie", signed_cookie(access).encode())]
    scope = {"type": "websocket", "path": "/x", "headers": headers, "client": ("10.0.0.1", 1)}
    asyncio.run(Guard(behind, access)(scope, None, send))
    assert sent_on == [("websocket.accept", None), ("websocket.close", 1008)]


@pytest.mark.parametrize(("path", "cut"), [("/api/v1/events/stream", True), ("/page/views/sources.js", False)])
def test_an_ending_session_cuts_api_responses_but_not_files_of_the_page(path, cut):
    access = Access(Token(TOKEN))
    sent_on = []
    heard = []

    async def behind(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        access.sessions.end_of(access.with_token(TOKEN).key)
        heard.append((await receive())["type"])
        if not cut:
            await send({"type": "http.response.body", "body": b"two"})

    async def send(message):
        sent_on.append((message.get("body"), message.get("more_body", False)))

    async def receive():
        return {"type": "http.request"}

    headers = [(b"host", b"127.0.0.1"), (b"cookie", signed_cookie(access).encode())]
    scope = {"type": "http", "method": "GET", "path": path, "headers": headers, "client": ("10.0.0.1", 1)}
    asyncio.run(Guard(behind, access)(scope, receive, send))
    assert heard == ["http.disconnect" if cut else "http.request"]
    assert sent_on == [(None, False), (b"one", True), (b"" if cut else b"two", False)]


def test_a_valid_cookie_from_another_origin_is_not_throttled():
    async def behind(scope, receive, send):
        await send({"type": "http.response.start", "status": 204, "headers": []})

    guard = Guard(behind, ACCESS, (), Guesses(lambda: 1000.0), Counters())
    cookie = signed_cookie()
    for _ in range(30):
        assert sent(guard, "POST", cookie=cookie, origin="http://evil.example")[0] == 401
    assert sent(guard, "POST", cookie=cookie)[0] == 204


# ---------------------------------------------------------------------------------------------------------------- hosts


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8000", "[::1]:8000", "localhost", "cameras.example:80"])
def test_requests_for_allowed_host_names_are_answered(client, host):
    assert client.get("/kept", headers={"host": host}).status_code == 200
    assert not REFUSED.values


@pytest.mark.parametrize("path", ["/kept", "/api/v1/session", "/length", "/nothing"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
def test_requests_for_another_host_name_are_refused(client, method, path):
    answer = client.request(method, path, headers={"host": "evil.example"})
    assert answer.status_code == 421
    assert "--allowed-host" in answer.json()["error"]
    assert "evil" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert REFUSED.values == {"host": 1}


def test_requests_without_a_host_name_are_refused(url):
    assert raw(url, b"GET /kept HTTP/1.0\n\n")[0] == 421
    assert raw(url, b"GET /kept HTTP/1.0\nHost: localhost\n\n")[0] == 200


# -------------------------------------------------------------------------------------------------------------- answers


def test_answers_have_security_headers(client):
    headers = client.get("/kept").headers
    assert headers["cache-control"] == "no-store"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-content-type-options"] == "nosniff"
    policy = dict(part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";"))
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' blob:",
        "media-src": "'self' blob:",
        "connect-src": "'self'",
        "manifest-src": "'self'",
        "worker-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    assert "server" not in headers


def test_existing_headers_of_an_answer_are_not_replaced():
    async def behind(scope, receive, send):
        app_headers = [(b"Cache-Control", b"max-age=5"), (b"X-Content-Type-Options", b"own")]
        await send({"type": "http.response.start", "status": 200, "headers": app_headers})

    sender = Sender(1, size=0)
    run_guard(sender, behind)
    names = [name.lower() for name, _ in sender.sent[0]["headers"]]
    assert names.count(b"cache-control") == names.count(b"x-content-type-options") == 1
    assert sender.sent[0]["headers"][:2] == [(b"Cache-Control", b"max-age=5"), (b"X-Content-Type-Options", b"own")]


@pytest.mark.parametrize(
    "header",
    [
        "127.0.0.1",
        "127.0.0.1:8000",
        "10.1.2.3:80",
        "[::1]",
        "[::1]:8000",
        "[fe80::1%eth0]:1",
        "localhost",
        "localhost:8000",
        "LOCALHOST",
        "localhost.",
        "localhost.:80",
    ],
)
def test_ip_addresses_and_localhost_are_allowed_hosts(header):
    assert host_allowed(header)


@pytest.mark.parametrize(
    "header",
    [
        "",
        " ",
        "evil.example",
        "evil.example:8000",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "localhost:evil",
        "127.0.0.1:evil",
        "[::1].evil.example",
        "[evil.example]",
        "evil.example:80:80",
        "1",
        "0x7f.1",
        "localhosts",
        "127.0.0.1@evil.example",
        "evil.example/127.0.0.1",
    ],
)
def test_other_host_names_are_not_allowed(header):
    assert not host_allowed(header)


def test_configured_host_names_are_allowed():
    allowed = {"cameras.example"}
    for header in ("cameras.example", "Cameras.Example:8000", "cameras.example.:80"):
        assert host_allowed(header, allowed)
    for header in ("a.cameras.example", "cameras.example.evil.example", "amerascexample", ""):
        assert not host_allowed(header, allowed)


def test_the_host_is_parsed_from_the_header():
    assert host_of("Gate.Local.:8000") == "gate.local"
    assert host_of("[::1]:80") == "::1"
    assert host_of("::1") == "::1"


@pytest.mark.parametrize(
    ("headers", "cause"),
    [
        ({"host": "127.0.0.1"}, "token"),
        ({"host": "127.0.0.1", "authorization": "Bearer wrong wrong wrong"}, "token"),
        ({"host": "evil.example", "authorization": f"Bearer {TOKEN}"}, "host"),
        ({"host": "127.0.0.1", "cookie": "COOKIE", "origin": "http://127.0.0.1:81"}, "token"),
        ({"host": "127.0.0.1", "cookie": "COOKIE", "origin": "http://127.0.0.1"}, ""),
        ({"host": "127.0.0.1", "authorization": f"Bearer {TOKEN}"}, ""),
    ],
)
def test_a_websocket_opens_with_the_token_and_from_this_origin_only(headers, cause):
    passed = []
    sent = []
    counters = Counters()
    access = Access(Token(TOKEN))
    cookie = f"{COOKIE}={access.sessions.open(access.with_token(TOKEN).key, '127.0.0.1', '')}"
    raw_headers = [(name.encode(), value.replace("COOKIE", cookie).encode()) for name, value in headers.items()]

    async def app(scope, receive, send):
        passed.append(scope["path"])

    async def receive():
        return {"type": "websocket.connect"}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "websocket",
        "path": "/api/v1/x",
        "headers": raw_headers,
        "client": ("127.0.0.1", 1),
        "query_string": b"",
    }
    asyncio.run(Guard(app, access, (), Guesses(), counters)(scope, receive, send))
    assert passed == ([] if cause else ["/api/v1/x"])
    assert sent == ([{"type": "websocket.close", "code": 1008}] if cause else [])
    assert counters.values == ({cause: 1} if cause else {})
