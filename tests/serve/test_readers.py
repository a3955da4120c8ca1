"""Who reads states, events and metrics without a token."""

import socket

import httpx
import pytest
from support.pages import CHROMIUM, chromium_fixture, expect, open_page_fixture, tile  # noqa: F401  fixtures
from support.roles import NEEDS, NOBODY
from support.servers import TOKEN, served
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from streamkit.serve.guard import MetricsOnly, Readers, readers_of
from streamkit.serve.server import address, listen, serving

HEADERS = {"authorization": f"Bearer {TOKEN}"}
OPEN = {"/", "/docs", "/openapi.json", "/live", "/ready", "/api/v1/session", "/page/main.js", "/page/icon.svg"}
PIPELINE = "sources: {street: {uri: 'test://', pace: 10}}\nstages: {jsonl: {path: /dev/null}}\n"


@pytest.fixture(scope="module")
def server(root):
    """A server that tells nobody anything without a token."""
    with served(PIPELINE, root, readers=Readers.SIGNED_IN) as private:
        private.running("street")
        yield private


READS = [path for (method, path), role in NEEDS.items() if (method, role) == ("GET", NOBODY) and path not in OPEN]


@pytest.mark.parametrize("path", [*READS, "/metrics", "/metrics/", "/api/v1/nothing", "/nothing", "/page"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_a_private_server_requires_a_token(server, method, path):
    where = path.replace("{number}", "1")
    refused = server.open.request(method, where)
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    assert "street" not in refused.text
    assert server.client.request(method, where).status_code not in (401, 403)


@pytest.mark.parametrize("path", sorted(OPEN))
def test_page_probes_and_sign_in_need_no_token(server, path):
    answer = server.open.get(path)
    assert answer.status_code == 200
    assert "street" not in answer.text


def test_a_page_path_cannot_reach_other_files(server):
    for path in ("/page/../api/v1/status", "/page/%2e%2e/api/v1/status", "/page//../metrics", "/live/../metrics"):
        with httpx.Client(base_url=server.url) as client:
            request = client.build_request("GET", "/")
            request.url = request.url.copy_with(raw_path=path.encode())
            assert client.send(request).status_code in (401, 404)


def test_a_session_reads_until_it_ends(server):
    with httpx.Client(base_url=server.url, timeout=20) as browser:
        assert browser.post("/api/v1/session", json={"token": TOKEN}).status_code == 204
        assert browser.get("/api/v1/status").status_code == 200
        assert browser.get("/metrics").status_code == 200
        browser.delete("/api/v1/session")
        assert browser.get("/api/v1/status").status_code == 401


def test_live_records_need_a_token(server):
    with pytest.raises(InvalidStatus):
        connect(server.url.replace("http", "ws") + "api/v1/records")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:8000"}, 200),
        ({"host": "[::1]:8000"}, 200),
        ({"host": "127.0.0.9"}, 200),
        ({"host": "10.0.0.7:8000"}, 401),
        ({"host": "cameras.example"}, 401),
        ({"x-forwarded-for": "10.0.0.9"}, 401),
        ({"forwarded": "for=10.0.0.9"}, 401),
        ({"x-real-ip": "10.0.0.9"}, 401),
        ({"host": "cameras.example", **HEADERS}, 200),
    ],
)
def test_proxied_requests_do_not_count_as_local(root, headers, status, local):
    assert local.open.get("/api/v1/events", headers=headers).status_code == status
    assert local.open.get("/metrics", headers=headers).status_code == status


@pytest.fixture(scope="module")
def local(root):
    with served(PIPELINE, root, allowed_hosts=["cameras.example"]) as local_server:
        yield local_server


def test_a_wrong_token_is_refused_and_counted(root):
    with served(PIPELINE, root, readers=Readers.SIGNED_IN) as private:
        answers = [
            private.open.get("/api/v1/status", headers={"authorization": f"Bearer wrong token {n}"}) for n in range(12)
        ]
    assert {answer.status_code for answer in answers[:10]} == {401}
    assert answers[-1].status_code == 429
    assert int(answers[-1].headers["retry-after"]) > 0


def test_a_public_server_is_readable_without_a_token(root):
    with served(PIPELINE, root, readers=Readers.EVERYBODY) as public:
        for path in ("/api/v1/events", "/metrics"):
            assert public.open.get(path, headers={"host": "10.0.0.7", "x-forwarded-for": "10.0.0.9"}).status_code == 200
        assert public.open.get("/api/v1/sources/street/snapshot.jpg").status_code == 401


@pytest.mark.parametrize(
    ("host", "public", "readers"),
    [
        ("127.0.0.1", False, Readers.THIS_MACHINE),
        ("127.0.0.2", False, Readers.THIS_MACHINE),
        ("localhost", False, Readers.THIS_MACHINE),
        ("::1", False, Readers.THIS_MACHINE),
        ("0.0.0.0", False, Readers.SIGNED_IN),
        ("::", False, Readers.SIGNED_IN),
        ("0.0.0.0", True, Readers.EVERYBODY),
        ("127.0.0.1", True, Readers.EVERYBODY),
    ],
)
def test_the_default_access_depends_on_the_listening_address(host, public, readers):
    if ":" in host and not socket.has_ipv6:
        pytest.skip("no IPv6")
    with listen(host, 0) as listening:
        assert readers_of(listening, public=public) is readers


def test_the_metrics_port_serves_only_metrics_without_a_token(server):
    listening = listen("127.0.0.1", 0)
    with (
        serving(MetricsOnly(server.app), listening),
        httpx.Client(base_url=address("127.0.0.1", listening), timeout=20) as scraper,
    ):
        metrics = scraper.get("/metrics")
        assert metrics.status_code == 200
        assert 'streamkit_frames_total{source="street"}' in metrics.text
        for method, path in [("GET", "/api/v1/status"), ("GET", "/"), ("GET", "/live"), ("GET", "/metrics/x")]:
            assert scraper.request(method, path).status_code == 404
        for method, path in [("POST", "/metrics"), ("DELETE", "/api/v1/sources/street")]:
            assert scraper.request(method, path, headers=HEADERS).status_code == 404
        assert scraper.get("/metrics", headers={"host": "evil.example"}).status_code == 421
        with pytest.raises(InvalidStatus):
            connect(
                f"{address('127.0.0.1', listening)}api/v1/records".replace("http", "ws"), additional_headers=HEADERS
            )
    assert server.open.get("/metrics").status_code == 401


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; apt-get install chromium-headless-shell")
def test_the_page_shows_nothing_to_signed_out_users(open_page):
    page = open_page(token=None, view="events")
    login = page.locator("#login")
    expect(login).to_be_visible()
    expect(page.locator("#status-text")).to_have_text("signed out")
    assert "street" not in page.content()
    login.get_by_label("Token").fill(TOKEN)
    login.get_by_role("button", name="Sign in").click()
    expect(page.locator("#view")).to_be_visible()
    page.evaluate("location.hash = '#/home'")
    expect(tile(page, "street")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.locator("#status-text")).to_have_text("signed out")
    expect(tile(page, "street")).to_have_count(0)
    assert "street" not in page.content()
