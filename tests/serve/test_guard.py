"""What passes every request: a limit for bodies, headers for browsers."""

import httpx
import pytest
from fastapi import FastAPI, Request

from streamkit.serve.guard import LARGEST, Guard
from streamkit.serve.server import address, listen, serving


@pytest.fixture(scope="module")
def client():
    app = FastAPI()
    app.add_middleware(Guard)

    @app.post("/length")
    async def length(request: Request) -> int:
        return len(await request.body())

    @app.get("/kept")
    def kept() -> dict[str, str]:
        return {}

    listening = listen("127.0.0.1", 0)
    with serving(app, listening), httpx.Client(base_url=address("127.0.0.1", listening), timeout=20) as made:
        yield made


def chunks(total, size=50_000):
    left = total
    while left:
        yield b"x" * min(size, left)
        left -= min(size, left)


def test_a_body_up_to_the_limit_comes_whole(client):
    assert client.post("/length", content=b"x" * LARGEST).json() == LARGEST
    assert client.post("/length", content=chunks(LARGEST)).json() == LARGEST
    assert client.post("/length").json() == 0


@pytest.mark.parametrize("announced", [True, False])
def test_a_larger_one_is_refused_announced_or_not(client, announced):
    content = b"x" * (LARGEST + 1) if announced else chunks(LARGEST + 1)
    answer = client.post("/length", content=content)
    assert answer.status_code == 413
    assert "1,000,000 bytes" in answer.json()["error"]
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_answers_say_how_a_browser_is_to_treat_them(client):
    headers = client.get("/kept").headers
    assert headers["cache-control"] == "no-store"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["referrer-policy"] == "no-referrer"
    assert "server" not in headers
