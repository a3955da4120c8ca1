"""The API of a running pipeline, over a real server: what it tells, what it does, and what it refuses."""

import json
import socket
import time

import cv2
import httpx
import numpy as np
import pytest
from servers import SECRET, TOKEN, served

URI = f"rtsp://operator:{SECRET}@127.0.0.1:9/live"


def picture(answer):
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "image/jpeg"
    return cv2.imdecode(np.frombuffer(answer.content, np.uint8), cv2.IMREAD_COLOR)


@pytest.fixture
def camera(server):
    """A source that is added for one test, and removed afterwards where the test did not."""
    answer = server.client.post("/sources", json={"id": "cam", "uri": "test://", "options": {"pace": 10}})
    assert answer.status_code == 201, answer.text
    yield "cam"
    server.client.delete("/sources/cam")


# -------------------------------------------------------------------------------------------------------- what it tells


def test_probes(server):
    assert server.open.get("/live").json() == {"live": True}
    assert server.open.get("/ready").json() == {"ready": True}


def test_the_sources_and_how_they_are(server):
    street = server.running("street")
    assert street["address"] == "samples/street.mp4"
    assert server.until(lambda: server.source("street")["latency"])["p50_ms"] > 0
    gate = server.until(lambda: (one := server.source("gate"))["cause"] and one)
    assert gate["cause"] == "refused"
    assert gate["words"]
    assert gate["address"] == "rtsp://operator:***@127.0.0.1:9/stream1?token=***"


def test_the_stages_as_a_graph(server):
    stages = {stage["id"]: stage for stage in server.open.get("/stages").json()}
    assert list(stages) == ["detect.preprocess", "detect.infer", "detect.postprocess", "track", "line"]
    assert stages["detect.infer"]["inputs"] == ["detect.preprocess"]
    assert stages["detect.preprocess"]["inputs"] == ["decode"]
    server.until(lambda: server.open.get("/stages").json()[-1]["frames"] > 10)


def test_events_come_with_their_picture(server):
    found = server.until(lambda: [one for one in server.open.get("/events").json() if one["picture"]])
    assert found[0]["stage"] == "line"
    shown = picture(server.client.get(f"/events/{found[0]['number']}/picture.jpg"))
    assert shown.shape == (360, 640, 3)
    later = server.open.get("/events", params={"after": found[0]["number"]}).json()
    assert all(one["number"] > found[0]["number"] for one in later)
    assert server.open.get("/events", params={"source": "gate"}).json() == []
    assert len(server.open.get("/events", params={"limit": 1}).json()) == 1


def test_metrics_are_what_prometheus_reads(server):
    from prometheus_client.parser import text_string_to_metric_families

    answer = server.open.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    found = {family.name: family for family in text_string_to_metric_families(answer.text)}
    samples = {(s.name, *sorted(s.labels.items())): s.value for family in found.values() for s in family.samples}
    assert samples["streamkit_frames_total", ("source", "street")] > 0
    assert samples["streamkit_source_state", ("source", "street"), ("state", "running")] == 1
    assert samples["streamkit_stage_frames_total", ("stage", "detect.infer")] > 0
    assert samples["streamkit_detections_total", ("stage", "detect")] > 0
    assert samples["streamkit_ready",] == 1
    buckets = [s for s in found["streamkit_source_latency_seconds"].samples if s.name.endswith("_bucket")]
    values = [s.value for s in buckets if s.labels["source"] == "street"]
    assert values == sorted(values)
    assert values[-1] > 0
    assert {"streamkit_dropped", "streamkit_reconnects", "streamkit_queue_length"} <= set(found)
    assert "process_resident_memory_bytes" in found


def test_openapi_describes_every_call(server):
    api = server.open.get("/openapi.json").json()
    assert {"/sources", "/sources/{id}/pause", "/stages/{id}", "/metrics", "/events/{number}/picture.jpg"} <= set(
        api["paths"]
    )
    for path, calls in api["paths"].items():
        for verb, call in calls.items():
            assert call["description"], (verb, path)
            locked = path.endswith((".jpg", ".mjpg")) or (verb != "get" and path != "/session")
            assert ("security" in call) == locked, (verb, path)


# ------------------------------------------------------------------------------------------------------------ pictures


def test_a_snapshot_is_a_picture_of_now(server):
    first = server.client.get("/sources/street/snapshot.jpg")
    assert picture(first).shape == (360, 640, 3)
    time.sleep(0.7)
    second = server.client.get("/sources/street/snapshot.jpg")
    assert int(second.headers["x-frame"]) > int(first.headers["x-frame"])


def test_where_there_is_no_picture_it_says_why(server):
    answer = server.client.get("/sources/gate/snapshot.jpg")
    assert answer.status_code == 503
    assert "gate" in answer.json()["error"]
    assert SECRET not in answer.text


def test_live_pictures_come_one_after_the_other(server):
    parts = b""
    with server.client.stream("GET", "/sources/street/live.mjpg") as answer:
        assert answer.headers["content-type"] == "multipart/x-mixed-replace; boundary=frame"
        for chunk in answer.iter_bytes():
            parts += chunk
            if parts.count(b"--frame\r\n") > 3:
                break
    _, head, rest = parts.partition(b"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: ")
    size, _, jpeg = rest.partition(b"\r\n\r\n")
    assert head
    assert cv2.imdecode(np.frombuffer(jpeg[: int(size)], np.uint8), cv2.IMREAD_COLOR).shape == (360, 640, 3)


def test_when_nobody_looks_any_more_no_picture_is_made(server):
    server.client.get("/sources/street/snapshot.jpg")
    gallery = server.engine.gallery
    server.until(lambda: gallery.newest("street") is None)


def test_a_watcher_of_a_dead_camera_who_goes_away_is_forgotten(server):
    from streamkit.serve.live import Watchers

    with server.client.stream("GET", "/sources/gate/live.mjpg") as answer:
        assert answer.status_code == 200
        server.until(lambda: "gate" in server.engine.gallery._asked)
    time.sleep(0.5)
    server.engine.gallery.forget("gate")
    time.sleep(0.5)
    assert "gate" not in server.engine.gallery._asked
    assert Watchers(server.engine)


# ------------------------------------------------------------------------------------------------------- what it does


def test_a_source_is_added_paused_resumed_changed_and_removed(server, camera):
    assert server.running("cam")["kind"] == "test_pattern"
    assert picture(server.client.get("/sources/cam/snapshot.jpg")).shape[2] == 3
    assert server.client.post("/sources/cam/pause").json()["state"] == "paused"
    frames = server.until(lambda: (one := server.source("cam"))["state"] == "paused" and one)["frames"]
    time.sleep(0.6)
    assert server.source("cam")["frames"] <= frames + 1
    assert server.client.post("/sources/cam/resume").status_code == 200
    server.until(lambda: server.source("cam")["frames"] > frames + 3)
    changed = server.client.put("/sources/cam", json={"uri": "test://", "options": {"pace": 20}})
    assert changed.status_code == 200, changed.text
    server.running("cam")
    assert server.client.delete("/sources/cam").status_code == 204
    assert server.source("cam") == {}
    assert server.running("street")["state"] == "running"


def test_a_setting_changes_what_is_found(server):
    def found():
        before = dict(server.open.get("/status").json()["detections"])
        time.sleep(1)
        return server.open.get("/status").json()["detections"].get("detect", 0) - before.get("detect", 0)

    assert server.until(found) > 0
    answer = server.client.patch("/stages/detect.postprocess", json={"min_score": 1})
    assert answer.status_code == 200, answer.text
    try:
        assert {s["name"]: s["value"] for s in answer.json()["settings"]}["min_score"] == 1
        server.until(lambda: found() == 0)
    finally:
        assert server.client.patch("/stages/detect.postprocess", json={"min_score": 0.4}).status_code == 200
    server.until(found)


def test_a_browser_signs_in_and_out(server):
    with httpx.Client(base_url=server.url) as browser:
        assert browser.get("/session").json() == {"signed_in": False}
        assert browser.get("/sources/street/snapshot.jpg").status_code == 401
        assert browser.post("/session", json={"token": "not the token at all"}).status_code == 401
        answer = browser.post("/session", json={"token": TOKEN})
        assert answer.status_code == 204
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert TOKEN not in answer.headers["set-cookie"]
        assert browser.get("/session").json() == {"signed_in": True}
        assert browser.get("/sources/street/snapshot.jpg").status_code == 200
        evil = browser.delete("/sources/street", headers={"origin": "http://127.0.0.1:1"})
        assert evil.status_code == 401
        browser.delete("/session")
        assert browser.get("/session").json() == {"signed_in": False}


# --------------------------------------------------------------------------------------------------- what it refuses


CHANGES = [
    ("POST", "/sources", {"id": "x", "uri": "test://"}),
    ("PUT", "/sources/street", {"uri": "test://"}),
    ("DELETE", "/sources/street", None),
    ("POST", "/sources/street/pause", None),
    ("POST", "/sources/street/resume", None),
    ("POST", "/sources/street/record", None),
    ("PATCH", "/stages/detect.postprocess", {"min_score": 0.9}),
    ("GET", "/sources/street/snapshot.jpg", None),
    ("GET", "/sources/street/live.mjpg", None),
    ("GET", "/events/1/picture.jpg", None),
]


@pytest.mark.parametrize(("method", "path", "body"), CHANGES, ids=lambda value: str(value)[:30])
@pytest.mark.parametrize("header", [None, "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x"])
def test_without_the_token_nothing_changes_and_nothing_is_seen(server, method, path, body, header):
    headers = {} if header is None else {"authorization": header}
    answer = server.open.request(method, path, json=body, headers=headers)
    assert answer.status_code == 401
    assert "token" in answer.json()["error"]
    assert answer.headers["www-authenticate"] == "Bearer"
    assert [one["id"] for one in server.open.get("/sources").json()][:2] == ["street", "gate"]


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
        ("test://../../etc", 403),
        ("", 422),
        ("x" * 3000, 422),
    ],
)
def test_this_machines_files_are_not_read(server, uri, status):
    answer = server.client.post("/sources", json={"id": "x", "uri": uri})
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]
    assert server.source("x") == {}


@pytest.mark.parametrize("id_", ["", "../x", "a/b", "a b", ".hidden", "-x", "a..b", "x" * 65, "a\0b", "ü", "{source}"])
def test_a_name_with_tricks_is_refused(server, id_):
    answer = server.client.post("/sources", json={"id": id_, "uri": "test://"})
    assert answer.status_code == 422
    assert "id" in answer.json()["error"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "body|required"),
        (b"{", "JSON"),
        (b"[]", "dictionary|object"),
        (b'{"id": 3, "uri": "test://"}', "id"),
        (b'{"id": "x"}', "uri"),
        (b'{"id": "x", "uri": "test://", "options": []}', "options"),
        (b'{"id": "x", "uri": "test://", "more": 1}', "more"),
        (b'{"id": "x", "uri": "test://", "options": {"pase": 3}}', "no option 'pase'; did you mean"),
        (b'{"id": "x", "uri": "test://", "options": {"pace": "fast"}}', "pace"),
        (b'{"id": "x", "uri": "test://", "options": {"uri": "/etc/passwd"}}', "uri"),
        (b'{"id": "x", "uri": "test://", "options": {"stage": "source"}}', "stage"),
        (b'{"id": "x", "uri": "test://", "options": {"fault": {"fail": 1}}}', "fault"),
    ],
)
def test_a_body_that_is_not_right_is_refused_with_why(server, body, words):
    import re

    answer = server.client.post("/sources", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert re.search(words, answer.json()["error"])
    assert server.source("x") == {}


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("DELETE", "/sources/nobody", None, 404),
        ("POST", "/sources/nobody/pause", None, 404),
        ("POST", "/sources/nobody/record", None, 404),
        ("POST", "/sources/street/record", None, 409),  # nothing in this pipeline records
        ("GET", "/sources/nobody/snapshot.jpg", None, 404),
        ("GET", "/sources/nobody/live.mjpg", None, 404),
        ("GET", "/sources/..%2f..%2fetc%2fpasswd/snapshot.jpg", None, 404),
        ("PUT", "/sources/nobody", {"uri": "test://"}, 404),
        ("POST", "/sources", {"id": "street", "uri": "test://"}, 409),
        ("GET", "/events/999999/picture.jpg", None, 404),
        ("GET", "/events/x/picture.jpg", None, 422),
        ("GET", "/events?limit=0", None, 422),
        ("PATCH", "/stages/nobody", {"min_score": 1}, 404),
        ("PATCH", "/stages/preview", {"gallery": 1}, 404),
        ("PATCH", "/stages/detect.infer", {"model": "x"}, 422),
        ("PATCH", "/stages/detect.postprocess", {"min_score": "high"}, 422),
        ("PATCH", "/stages/detect.postprocess", {"min_score": 2}, 422),
        ("PATCH", "/stages/detect.postprocess", {"iou": 0.1, "model": "x"}, 422),
        ("GET", "/page/../app.py", None, 404),
        ("GET", "/page/%2e%2e/app.py", None, 404),
        ("GET", "/nothing", None, 404),
        ("PUT", "/status", None, 405),
    ],
)
def test_what_cannot_be_done_says_why(server, method, path, body, status):
    before = server.open.get("/stages").json()[2]["settings"]
    answer = server.client.request(method, path, json=body)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]
    assert server.open.get("/stages").json()[2]["settings"] == before


def test_a_body_has_a_limit(server):
    big = json.dumps({"id": "x", "uri": "rtsp://h/" + "x" * 1_100_000}).encode()
    assert server.client.post("/sources", content=big).status_code == 413
    answer = server.client.post("/sources", content=(big[at : at + 65536] for at in range(0, len(big), 65536)))
    assert answer.status_code == 413
    assert "1,000,000" in answer.json()["error"]


def test_no_password_leaves_it(server):
    """Every answer that tells of a source with secrets in its address, refusals included."""
    new = {"id": "secret", "uri": URI}
    answers = [
        server.client.post("/sources", json=new),
        server.client.post("/sources", json=new),
        server.client.post("/sources", json={**new, "id": 7}),
        server.client.post("/sources", json={**new, "id": "a b"}),
        server.client.post("/sources", json={**new, "id": "y", "uri": f"rstp://u:{SECRET}@h/x"}),
        server.client.post("/sources", json={**new, "id": "y", "options": {"start": f"rtsp://u:{SECRET}@h"}}),
        server.client.post("/sources", content=json.dumps(new)[:-1].encode()),
        server.client.put("/sources/secret", json={"uri": URI, "options": {"timeout": "1s"}}),
    ]
    try:
        assert [one.status_code for one in answers] == [201, 409, 422, 422, 403, 422, 422, 200]
        server.until(lambda: server.source("secret")["cause"])
        paths = ("/sources", "/stages", "/events", "/status", "/metrics", "/openapi.json", "/")
        answers += [server.open.get(path) for path in paths]
        answers.append(server.client.get("/sources/secret/snapshot.jpg"))
        assert any("***" in one.text for one in answers)
        assert not [one.request.url for one in answers if SECRET in one.text or SECRET in str(one.headers)]
        assert SECRET not in "\n".join(server.said)
    finally:
        server.client.delete("/sources/secret")


def test_the_page_needs_nothing_from_elsewhere(server):
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


def test_allow_files_lets_files_in_and_metrics_outlive_a_source(root, monkeypatch):
    monkeypatch.chdir(root)
    text = "sources: {cam: {uri: 'test://', pace: 10}}\nstages: {jsonl: {path: /dev/null}}"
    with served(text, root, allow_files=True) as one:
        one.running("cam")
        new = {"id": "street", "uri": "samples/street.mp4", "options": {"pace": "realtime", "loop": True}}
        assert one.client.post("/sources", json=new).status_code == 201
        one.running("street")
        assert one.client.delete("/sources/cam").status_code == 204
        assert one.client.delete("/sources/street").status_code == 204
        assert one.open.get("/sources").json() == []
        assert one.open.get("/ready").status_code == 200
        assert 'source="cam"' not in one.open.get("/metrics").text
        assert one.open.get("/stages").json()[0]["id"] == "jsonl"


def test_a_port_that_is_taken_is_said():
    from streamkit.errors import OutputError
    from streamkit.serve.server import listen

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OutputError, match=rf"cannot listen on 127.0.0.1 port {port}: .*give another --port"):
            listen("127.0.0.1", port)
