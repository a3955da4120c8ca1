"""What the API of a running pipeline refuses and says of it, and what never leaves it."""

import json
import socket

import pytest
from support.servers import SECRET, TOKEN, served

URI = f"rtsp://operator:{SECRET}@127.0.0.1:9/live"

CHANGES = [
    ("POST", "/api/v1/sources", {"id": "x", "uri": "test://"}),
    ("PUT", "/api/v1/sources/street", {"uri": "test://"}),
    ("DELETE", "/api/v1/sources/street", None),
    ("POST", "/api/v1/sources/street/pause", None),
    ("POST", "/api/v1/sources/street/resume", None),
    ("POST", "/api/v1/sources/street/record", None),
    ("PATCH", "/api/v1/stages/detect.postprocess", {"min_score": 0.9}),
    ("GET", "/api/v1/sources/street/snapshot.jpg", None),
    ("GET", "/api/v1/sources/street/live.mjpg", None),
    ("GET", "/api/v1/events/1/image.jpg", None),
]


@pytest.mark.parametrize(("method", "path", "body"), CHANGES, ids=lambda value: str(value)[:30])
@pytest.mark.parametrize("header", [None, "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x"])
def test_requests_without_a_token_are_refused(server, method, path, body, header):
    headers = {} if header is None else {"authorization": header}
    answer = server.open.request(method, path, json=body, headers=headers)
    assert answer.status_code == 401
    assert "token" in answer.json()["error"]
    assert answer.headers["www-authenticate"] == "Bearer"
    assert [source["id"] for source in server.open.get("/api/v1/sources").json()][:2] == ["street", "gate"]


@pytest.mark.parametrize(
    ("uri", "status"),
    [
        ("/etc/passwd", 403),
        ("samples/street.mp4", 403),
        ("file:///etc/passwd", 403),
        ("FILE:///etc/passwd", 403),
        ("file:/etc/passwd", 403),
        ("concat:/etc/passwd", 403),
        ("/dev/video0", 403),
        ("v4l2:///dev/video0", 403),
        ("subfile://x", 403),
        ("../samples/street.mp4", 403),
        ("~/.ssh/id_rsa", 403),
        ("${HOME}", 403),
        (" rtsp://host/x", 403),
        ("test://../../etc", 422),
        ("", 422),
        ("x" * 3000, 422),
    ],
)
def test_local_files_are_refused_as_sources(server, uri, status):
    answer = server.client.post("/api/v1/sources", json={"id": "x", "uri": uri})
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]
    assert server.source("x") == {}


@pytest.mark.parametrize("id_", ["", "../x", "a/b", "a b", ".hidden", "-x", "a..b", "x" * 65, "a\0b", "ü", "{source}"])
def test_an_unsafe_source_name_is_refused(server, id_):
    answer = server.client.post("/api/v1/sources", json={"id": id_, "uri": "test://"})
    assert answer.status_code == 422
    assert "id" in answer.json()["error"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "^body: Field required$"),
        (b"{", "^the body is not valid JSON: Expecting property name enclosed in double quotes, at character 2$"),
        (b'{"id": "x",\n "uri" 3}', "^the body is not valid JSON: Expecting ':' delimiter, at character 20$"),
        (b"[]", "dictionary|object"),
        (b'{"id": 3, "uri": "test://"}', "id"),
        (b'{"id": "x"}', "^uri: Field required$"),
        (b'{"id": "x", "uri": "test://", "options": []}', "options"),
        (b'{"id": "x", "uri": "test://", "more": 1}', "more"),
        (b'{"id": "x", "uri": "test://", "options": {"pase": 3}}', "no option 'pase'; did you mean"),
        (b'{"id": "x", "uri": "test://", "options": {"pace": "fast"}}', "pace"),
        (b'{"id": "x", "uri": "test://", "options": {"uri": "/etc/passwd"}}', "uri"),
        (b'{"id": "x", "uri": "test://", "options": {"stage": "source"}}', "stage"),
        (b'{"id": "x", "uri": "test://", "options": {"fault": {"fail": 1}}}', "fault"),
    ],
)
def test_an_invalid_body_is_refused_with_the_reason(server, body, words):
    import re

    answer = server.client.post("/api/v1/sources", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert re.search(words, answer.json()["error"])
    assert server.source("x") == {}


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("DELETE", "/api/v1/sources/nobody", None, 404),
        ("POST", "/api/v1/sources/nobody/pause", None, 404),
        ("POST", "/api/v1/sources/nobody/record", None, 404),
        ("POST", "/api/v1/sources/street/record", None, 409),  # nothing in this pipeline records
        ("GET", "/api/v1/sources/nobody", None, 404),
        ("GET", "/api/v1/sources/nobody/snapshot.jpg", None, 404),
        ("GET", "/api/v1/sources/nobody/live.mjpg", None, 404),
        ("GET", "/api/v1/sources/..%2f..%2fetc%2fpasswd/snapshot.jpg", None, 404),
        ("PUT", "/api/v1/sources/nobody", {"uri": "test://"}, 404),
        ("POST", "/api/v1/sources", {"id": "street", "uri": "test://"}, 409),
        ("GET", "/api/v1/events/999999/image.jpg", None, 404),
        ("GET", "/api/v1/events/x/image.jpg", None, 422),
        ("GET", "/api/v1/events?limit=0", None, 422),
        ("PATCH", "/api/v1/stages/nobody", {"min_score": 1}, 404),
        ("PATCH", "/api/v1/stages/detekt", {"min_score": 1}, 404),
        ("PATCH", "/api/v1/stages/detect", {"model": "x"}, 422),
        ("PATCH", "/api/v1/stages/preview", {"gallery": 1}, 404),
        ("PATCH", "/api/v1/stages/detect.infer", {"model": "x"}, 422),
        ("PATCH", "/api/v1/stages/detect.postprocess", {"min_score": "high"}, 422),
        ("PATCH", "/api/v1/stages/detect.postprocess", {"min_score": 2}, 422),
        ("PATCH", "/api/v1/stages/detect.postprocess", {"iou": 0.1, "model": "x"}, 422),
        ("GET", "/page/../app.py", None, 404),
        ("GET", "/page/%2e%2e/app.py", None, 404),
        ("GET", "/nothing", None, 404),
        ("PUT", "/api/v1/status", None, 405),
    ],
)
def test_an_impossible_request_is_refused_with_the_reason(server, method, path, body, status):
    before = server.open.get("/api/v1/stages").json()[2]["settings"]
    answer = server.client.request(method, path, json=body)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]
    assert server.open.get("/api/v1/stages").json()[2]["settings"] == before


def test_an_oversized_body_is_refused(server):
    big = json.dumps({"id": "x", "uri": "rtsp://h/" + "x" * 1_100_000}).encode()
    assert server.client.post("/api/v1/sources", content=big).status_code == 413
    answer = server.client.post("/api/v1/sources", content=(big[at : at + 65536] for at in range(0, len(big), 65536)))
    assert answer.status_code == 413
    assert "1,000,000" in answer.json()["error"]


def test_no_answer_contains_a_password(server):
    """Every answer that tells of a source with secrets in its address, refusals included."""
    new = {"id": "secret", "uri": URI}
    answers = [
        server.client.post("/api/v1/sources", json=new),
        server.client.post("/api/v1/sources", json=new),
        server.client.post("/api/v1/sources", json={**new, "id": 7}),
        server.client.post("/api/v1/sources", json={**new, "id": "a b"}),
        server.client.post("/api/v1/sources", json={**new, "id": "y", "uri": f"rstp://u:{SECRET}@h/x"}),
        server.client.post("/api/v1/sources", json={**new, "id": "y", "options": {"start": f"rtsp://u:{SECRET}@h"}}),
        server.client.post("/api/v1/sources", content=json.dumps(new)[:-1].encode()),
        server.client.put("/api/v1/sources/secret", json={"uri": URI, "options": {"timeout": "1s"}}),
    ]
    try:
        assert [reply.status_code for reply in answers] == [201, 409, 422, 422, 403, 422, 422, 200]
        server.until(lambda: server.source("secret")["cause"])
        paths = (
            "/api/v1/sources",
            "/api/v1/stages",
            "/api/v1/events",
            "/api/v1/status",
            "/metrics",
            "/openapi.json",
            "/",
        )
        answers += [server.open.get(path) for path in paths]
        answers.append(server.client.get("/api/v1/sources/secret/snapshot.jpg"))
        assert any("***" in reply.text for reply in answers)
        assert not [reply.request.url for reply in answers if SECRET in reply.text or SECRET in str(reply.headers)]
        assert SECRET not in "\n".join(server.logged)
    finally:
        server.client.delete("/api/v1/sources/secret")


def test_no_answer_contains_a_password_from_a_path_or_query(server):
    uri = f"rtsp://127.0.0.1:9/user=admin_password={SECRET}_channel=1?pass={SECRET}&loginpas={SECRET}"
    new = {"id": "secret", "uri": uri, "options": {"timeout": "1s"}}
    answers = [server.client.post("/api/v1/sources", json=new)]
    try:
        assert answers[0].status_code == 201, answers[0].text
        server.until(lambda: server.source("secret")["cause"])
        answers += [server.client.put("/api/v1/sources/secret", json={"options": {"timeout": "2s"}})]
        answers += [server.client.get("/api/v1/sources/secret/snapshot.jpg")]
        for path in (
            "/api/v1/sources",
            "/api/v1/stages",
            "/api/v1/events",
            "/api/v1/status",
            "/api/v1/alarms",
            "/metrics",
        ):
            answers += [server.open.get(path), server.client.get(path)]
        assert server.source("secret")["address"] == "rtsp://127.0.0.1:9/user=***?pass=***&loginpas=***"
        assert not [reply.request.url for reply in answers if SECRET in reply.text or SECRET in str(reply.headers)]
        assert SECRET not in "\n".join(server.logged)
        assert any("user=***?pass=***&loginpas=***" in line for line in server.logged)
        assert SECRET not in str(server.engine.running.report(0))
    finally:
        server.client.delete("/api/v1/sources/secret")


def test_secrets_in_options_are_masked(server):
    from streamkit.serve.engine import _masked

    deep = {"a": [f"rtsp://u:{SECRET}@h/x", 3], "b": {"c": (f"https://h/?x={SECRET}", None)}}
    assert _masked(deep) == {"a": ["rtsp://u:***@h/x", 3], "b": {"c": ["https://h/?x=***", None]}}


def test_errors_hide_addresses_from_signed_out_users(server):
    state = server.engine.state("gate")
    before = state.error, state.message
    state.error = "moved to rtsp://10.1.2.3/elsewhere: not followed"
    try:
        words = {source["id"]: source["message"] for source in server.open.get("/api/v1/sources").json()}
        assert words["gate"] == "moved to rtsp://...: not followed"
        assert server.source("gate")["message"] == state.error
    finally:
        state.error, state.message = before


def test_the_page_loads_only_files_of_the_server(server):
    index = server.open.get("/")
    policy = index.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    for path in ("/", "/docs"):
        text = server.open.get(path).text
        assert "http://" not in text.replace("http://www.w3.org", "")
        assert "https://" not in text
        assert "<script>" not in text
        assert " style=" not in text
        assert "onclick=" not in text
    for name in ("main.js", "style.css", "icon.svg", "docs.js"):
        assert server.open.get(f"/page/{name}").status_code == 200
    assert index.headers["x-content-type-options"] == "nosniff"


def test_allow_files_accepts_files_and_metrics_remain_after_a_source(root, monkeypatch):
    monkeypatch.chdir(root)
    text = "sources: {cam: {uri: 'test://', pace: 10}}\nstages: {jsonl: {path: /dev/null}}"
    with served(text, root, allow_files=True) as instance:
        instance.running("cam")
        new = {"id": "street", "uri": "samples/street.mp4", "options": {"pace": "realtime", "loop": True}}
        assert instance.client.post("/api/v1/sources", json=new).status_code == 201
        instance.running("street")
        assert instance.client.delete("/api/v1/sources/cam").status_code == 204
        assert instance.client.delete("/api/v1/sources/street").status_code == 204
        assert instance.open.get("/api/v1/sources").json() == []
        assert instance.open.get("/ready").status_code == 200
        assert 'source="cam"' not in instance.open.get("/metrics").text
        assert instance.open.get("/api/v1/stages").json()[0]["id"] == "jsonl"


def test_a_port_in_use_is_reported():
    from streamkit.core.errors import OutputError
    from streamkit.serve.server import listen

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OutputError, match=rf"cannot listen on 127.0.0.1 port {port}: .*give another --port"):
            listen("127.0.0.1", port)


def test_an_error_answer_shortens_the_invalid_value(server):
    answer = server.open.post("/api/v1/session", json={"k" * 500_000: 1})
    assert answer.status_code == 422
    assert len(answer.content) < 2000
