"""Every response names its request, and so do log lines, the audit log and error responses; spans of requests."""

import json
import logging
import re
import socket

import pytest
from support.collector import collecting_otlp, samples, still, twins
from support.servers import served
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from streamkit.core.logs import json_line, messages_to
from streamkit.runtime.observe import telemetry
from streamkit.serve.metrics import registry
from streamkit.serve.request_id import request_id

NEW = re.compile(r"[0-9a-f]{16}")


@pytest.mark.parametrize(
    ("sent_id", "taken"),
    [
        (b"a-1_B.c:2", True),
        (b"x" * 128, True),
        (b"x" * 129, False),
        (b"", False),
        (b"a b", False),
        (b"a\nb", False),
        (b"\xc3\xa9", False),
        (b'"', False),
    ],
)
def test_only_a_safe_request_id_of_a_caller_is_used(sent_id, taken):
    used_id = request_id([(b"host", b"h"), (b"X-Request-ID", sent_id)])
    assert used_id == sent_id.decode() if taken else NEW.fullmatch(used_id)
    assert NEW.fullmatch(request_id([]))


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/live", 200),
        ("GET", "/", 200),
        ("GET", "/metrics", 200),
        ("GET", "/api/v1/sources", 200),
        ("GET", "/nowhere", 404),
        ("GET", "/api/v1/stages/none", 405),
        ("GET", "/api/v1/logs", 401),
        ("POST", "/api/v1/sources", 401),
        ("GET", "/api/v1/series?name=1", 422),
        ("PUT", "/api/v1/status", 401),
    ],
)
def test_every_response_has_an_id_and_errors_name_it(server, method, path, status):
    with_id = server.open.request(method, path, headers={"x-request-id": "mine-1"})
    without_id = server.open.request(method, path)
    assert (with_id.status_code, without_id.status_code) == (status, status)
    assert with_id.headers["x-request-id"] == "mine-1"
    assert NEW.fullmatch(without_id.headers["x-request-id"])
    if status >= 400:
        assert with_id.json()["request_id"] == "mine-1"
        assert without_id.json()["request_id"] == without_id.headers["x-request-id"]


def test_refused_hosts_and_oversized_bodies_get_a_request_id(server):
    for answer in (
        server.open.get("/live", headers={"host": "evil.example"}),
        server.client.post("/api/v1/sources", content=b"x" * 1_000_001),
    ):
        assert answer.status_code in (413, 421)
        assert answer.json()["request_id"] == answer.headers["x-request-id"]


def test_requests_that_are_not_http_get_a_request_id(server):
    host, port = server.url.removeprefix("http://").rstrip("/").split(":")
    with socket.create_connection((host, int(port)), 10) as raw:
        raw.sendall(b"not http\r\n\r\n")
        head, _, body = b"".join(iter(lambda: raw.recv(4096), b"")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert f"x-request-id: {json.loads(body)['request_id']}" in head.decode().lower()


def test_web_sockets_get_a_request_id(server):
    url = f"{server.url.replace('http', 'ws')}api/v1/sources/street/records"
    with pytest.raises(InvalidStatus) as refused:
        connect(url, additional_headers={"x-request-id": "ws-1"})
    assert (refused.value.response.status_code, refused.value.response.headers["x-request-id"]) == (403, "ws-1")


def test_an_error_of_the_server_is_logged_with_the_id_and_its_traceback(server, monkeypatch):
    def broken():
        raise ZeroDivisionError("in the route")

    monkeypatch.setattr(server.engine, "status", broken)
    log_records = []
    with messages_to(log_records.append):
        answer = server.open.get("/api/v1/status", headers={"x-request-id": "bad-1"})
        server.until(lambda: any("bad-1" in json_line(log_record) for log_record in log_records))
    assert answer.status_code == 500
    assert answer.json()["request_id"] == answer.headers["x-request-id"] == "bad-1"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "in the route" not in answer.text
    (line,) = [json.loads(json_line(log_record)) for log_record in log_records if log_record.exc_text]
    assert (line["request_id"], line["logger"], line["level"]) == ("bad-1", "uvicorn.error", "error")
    assert line["exception"].endswith("ZeroDivisionError: in the route")


def test_log_messages_and_audit_entries_have_the_request_id(server, monkeypatch):
    logger = logging.getLogger("streamkit.tests")
    pause = server.engine.pause

    def logged(id_):
        logger.warning("pausing")
        return pause(id_)

    monkeypatch.setattr(server.engine, "pause", logged)
    for n in (1, 2):
        server.client.post("/api/v1/sources/street/pause", headers={"x-request-id": f"p-{n}"})
    server.client.post("/api/v1/sources/street/resume", headers={"x-request-id": "p-3"})
    entries = server.client.get("/api/v1/audit?limit=3").json()
    assert [(entry["action"], entry["request_id"]) for entry in entries] == [
        ("sources.resume", "p-3"),
        ("sources.pause", "p-2"),
        ("sources.pause", "p-1"),
    ]
    lines = [message for message in server.client.get("/api/v1/logs").json() if message["text"] == "pausing"]
    assert [message["request_id"] for message in lines] == ["p-1", "p-2"]


def test_requests_are_child_spans_of_their_callers(root, monkeypatch, tmp_path):
    """And a server's own metrics go to the collector, too."""
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with collecting_otlp() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        exported = telemetry.open_telemetry()
        text = "sources: {}\nstages: {draw: {}}\n"
        with served(text, root, path=tmp_path / "p.yaml") as instance:
            instance.until(lambda: instance.open.get("/ready").status_code == 200)
            collector.spans.clear()
            with telemetry.exporting(exported, lambda: registry(instance.engine)):
                head = {"traceparent": parent, "x-request-id": "r-1"}
                assert instance.open.get("/live", headers=head).status_code == 200
                instance.open.get("/api/v1/sources/none", headers={"traceparent": parent[:-1] + "0"})
                instance.open.get("/api/v1/sources/none")
            scraped = samples(instance.open.get("/metrics").text)
        requests = [span for span in collector.spans if span.name.startswith("GET") and "ready" not in span.name]
        live, source = sorted(requests, key=lambda span: span.start_ns)
        assert (live.name, live.trace.hex(), live.parent.hex()) == (
            "GET /live",
            "0af7651916cd43dd8448eb211c80319c",
            "b7ad6b7169203331",
        )
        assert live.about == {
            "http.request.method": "GET",
            "http.route": "/live",
            "http.response.status_code": 200,
            "url.scheme": "http",
            "streamkit.request_id": "r-1",
        }
        assert (source.parent, source.name) == (b"", "GET /api/v1/sources/{id:path}")
        assert source.about["http.response.status_code"] == 404
        assert not source.failed
        pushed = twins(collector.exports[-1][1])
        assert pushed.keys() == scraped.keys()
        assert still(pushed) == still(scraped)
        assert {("streamkit_live_viewers",), ("streamkit_live_lost_total",), ("streamkit_ready",)} <= pushed.keys()
