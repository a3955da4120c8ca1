"""The API of a running pipeline, over a real server: what it tells, its pictures, and what it does."""

import os
import time
from collections import Counter

import cv2
import httpx
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.clips import write as clip
from support.roles import NEEDS
from support.servers import SECRET, TOKEN, served


def picture(answer):
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "image/jpeg"
    return cv2.imdecode(np.frombuffer(answer.content, np.uint8), cv2.IMREAD_COLOR)


@pytest.fixture
def camera(server):
    """A source that is added for one test, and removed afterwards where the test did not."""
    answer = server.client.post("/api/v1/sources", json={"id": "cam", "uri": "test://", "options": {"pace": 10}})
    assert answer.status_code == 201, answer.text
    yield "cam"
    server.client.delete("/api/v1/sources/cam")


# -------------------------------------------------------------------------------------------------------- what it tells


def test_probes_report_liveness_and_readiness(server):
    assert server.open.get("/live").json() == {"live": True}
    assert server.open.get("/ready").json() == {"ready": True}


def test_sources_are_listed_with_their_state(server):
    street = server.running("street")
    assert street["address"] == "samples/street.mp4"
    assert server.until(lambda: server.source("street")["latency"])["p50_ms"] > 0
    gate = server.until(lambda: (gate_now := server.source("gate"))["cause"] and gate_now)
    assert gate["cause"] == "refused"
    assert gate["message"]
    assert gate["address"] == "rtsp://operator:***@127.0.0.1:9/stream1?token=***"


def test_a_source_is_read_by_its_id(server):
    changing = {"since_s", "frames", "fps", "latency", "dropped", "counts", "quiet_s"}

    def fixed(source):
        return {name: value for name, value in source.items() if name not in changing}

    for client in (server.client, server.open):
        listed = client.get("/api/v1/sources").json()
        for source in listed:
            answer = client.get(f"/api/v1/sources/{source['id']}")
            assert answer.status_code == 200
            assert answer.json().keys() == source.keys()
            if source["id"] == "street":  # the other one reconnects
                assert fixed(answer.json()) == fixed(source)
    hidden = server.open.get("/api/v1/sources/gate").json()
    assert (hidden["address"], hidden["options"]) == ("", {})
    assert "127.0.0.1" not in hidden["message"]
    picture(server.client.get("/api/v1/sources/street/snapshot.jpg"))


def test_a_test_pattern_source_accepts_parameters(server, camera):
    answer = server.client.put(f"/api/v1/sources/{camera}", json={"uri": "test://?width=64&height=48"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["address"] == "test://?width=64&height=48"

    def shape():
        image = server.client.get("/api/v1/sources/cam/snapshot.jpg")
        return picture(image).shape if image.status_code == 200 else None

    server.until(lambda: shape() == (48, 64, 3))  # the former pattern is shown until then
    answer = server.client.put(f"/api/v1/sources/{camera}", json={"uri": "test://?width=1e6"})
    assert answer.status_code == 422
    assert "width must be a number from 2 to 16384, got '1e6'" in answer.json()["error"]


def test_a_file_whose_name_is_not_utf_8_is_shown_and_paused(tmp_path):
    clip(tmp_path / "clip.mp4", 64, 48, 3).rename(tmp_path / os.fsdecode(b"caf\xe9.mp4"))
    text = f"sources: {{f: {{uri: '{tmp_path}/*.mp4', loop: true, pace: realtime}}}}\nstages: {{draw: {{}}}}\n"
    with served(text, tmp_path) as server:
        assert server.running("f/caf_")["address"] == f"{tmp_path}/caf?.mp4"
        paused = server.client.post("/api/v1/sources/f/caf_/pause")
        assert (paused.status_code, paused.json()["state"]) == (200, "paused")


def test_only_signed_in_users_see_the_addresses_of_cameras(server):
    server.until(lambda: server.source("gate")["message"])
    shown, hidden = (client.get("/api/v1/sources").json() for client in (server.client, server.open))
    assert [source["address"] for source in shown] == [
        "samples/street.mp4",
        "rtsp://operator:***@127.0.0.1:9/stream1?token=***",
    ]
    assert shown[0]["options"] == {"every": 5, "pace": 10, "loop": True, "pace_seed": 1}
    assert [(source["address"], source["options"]) for source in hidden] == [("", {})] * 2
    assert [(source["id"], source["kind"]) for source in hidden] == [(source["id"], source["kind"]) for source in shown]
    for path in ("/api/v1/sources", "/api/v1/status", "/api/v1/stages", "/api/v1/alarms", "/api/v1/events", "/metrics"):
        text = server.open.get(path).text
        assert not [word for word in ("rtsp://", "street.mp4", "operator", "stream1", "127.0.0.1") if word in text], (
            path
        )


def test_stages_are_returned_as_a_graph(server):
    stages = {stage["id"]: stage for stage in server.open.get("/api/v1/stages").json()}
    assert list(stages) == ["detect.preprocess", "detect.infer", "detect.postprocess", "track", "line"]
    assert stages["detect.infer"]["inputs"] == ["detect.preprocess"]
    assert stages["detect.preprocess"]["inputs"] == ["decode"]
    server.until(lambda: server.open.get("/api/v1/stages").json()[-1]["frames"] > 10)


def test_events_come_with_their_image(server):
    events_with_image = server.until(
        lambda: [event for event in server.open.get("/api/v1/events").json() if event["image"]]
    )
    assert events_with_image[0]["stage"] == "line"
    shown = picture(server.client.get(f"/api/v1/events/{events_with_image[0]['number']}/image.jpg"))
    assert shown.shape == (360, 640, 3)
    later = server.open.get("/api/v1/events", params={"after": events_with_image[0]["number"]}).json()
    assert all(event["number"] > events_with_image[0]["number"] for event in later)
    assert server.open.get("/api/v1/events", params={"source": "gate"}).json() == []
    assert len(server.open.get("/api/v1/events", params={"limit": 1}).json()) == 1


def test_metrics_have_the_format_of_prometheus(server):
    from prometheus_client.parser import text_string_to_metric_families

    answer = server.open.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    family_by_name = {family.name: family for family in text_string_to_metric_families(answer.text)}
    samples = {
        (s.name, *sorted(s.labels.items())): s.value for family in family_by_name.values() for s in family.samples
    }
    assert samples["streamkit_frames_total", ("source", "street")] > 0
    assert samples["streamkit_source_state", ("source", "street"), ("state", "running")] == 1
    assert samples["streamkit_stage_frames_total", ("stage", "detect.infer")] > 0
    assert samples["streamkit_detections_total", ("stage", "detect")] > 0
    assert samples["streamkit_ready",] == 1
    buckets = [s for s in family_by_name["streamkit_source_latency_seconds"].samples if s.name.endswith("_bucket")]
    values = [s.value for s in buckets if s.labels["source"] == "street"]
    assert values == sorted(values)
    assert values[-1] > 0
    assert {"streamkit_frames_dropped", "streamkit_reconnects", "streamkit_stage_queue_batches"} <= set(family_by_name)
    assert "process_resident_memory_bytes" in family_by_name


def test_crossings_of_a_line_are_counted_by_camera_line_direction_and_class(server):
    server.until(lambda: server.open.get("/api/v1/events?stage=line").json())
    crossed = Counter(
        (event["source"], event["stage"], event["data"]["direction"], event["label"])
        for event in server.open.get("/api/v1/events?stage=line&limit=500").json()
    )
    names = ("source", "stage", "direction", "class", "line")
    counted = {
        tuple(sample.labels[name] for name in names): sample.value
        for family in text_string_to_metric_families(server.open.get("/metrics").text)
        for sample in family.samples
        if sample.name == "streamkit_line_crossings_total"
    }
    assert {labels[:4] for labels in counted} >= crossed.keys()
    for labels, count in crossed.items():
        assert counted[*labels, ""] >= count  # more may have come meanwhile
    assert "crossing" not in server.open.get("/metrics").text.replace("streamkit_line_crossings", "")


def test_openapi_describes_every_call(server):
    api = server.open.get("/openapi.json").json()
    assert {
        "/api/v1/sources",
        "/api/v1/sources/{id}/pause",
        "/api/v1/stages/{id}",
        "/metrics",
        "/api/v1/events/{number}/image.jpg",
    } <= set(api["paths"])
    for path, calls in api["paths"].items():
        for verb, call in calls.items():
            assert call["description"], (verb, path)
            role = NEEDS[verb.upper(), path]
            assert call.get("security") == ([{"HTTPBearer": [role]}] if role else None), (verb, path)


# ------------------------------------------------------------------------------------------------------------ pictures


def test_a_snapshot_is_the_current_image(server):
    first = server.client.get("/api/v1/sources/street/snapshot.jpg")
    assert picture(first).shape == (360, 640, 3)
    time.sleep(0.7)
    second = server.client.get("/api/v1/sources/street/snapshot.jpg")
    assert int(second.headers["x-frame"]) > int(first.headers["x-frame"])


def test_a_missing_image_is_answered_with_the_reason(server):
    answer = server.client.get("/api/v1/sources/gate/snapshot.jpg")
    assert answer.status_code == 503
    assert "gate" in answer.json()["error"]
    assert SECRET not in answer.text


def test_live_images_are_streamed_in_order(server):
    parts = b""
    with server.client.stream("GET", "/api/v1/sources/street/live.mjpg") as answer:
        assert answer.headers["content-type"] == "multipart/x-mixed-replace; boundary=frame"
        for chunk in answer.iter_bytes():
            parts += chunk
            if parts.count(b"--frame\r\n") > 3:
                break
    _, head, rest = parts.partition(b"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: ")
    size, _, jpeg = rest.partition(b"\r\n\r\n")
    assert head
    assert cv2.imdecode(np.frombuffer(jpeg[: int(size)], np.uint8), cv2.IMREAD_COLOR).shape == (360, 640, 3)


def test_no_image_is_encoded_without_a_viewer(server):
    server.client.get("/api/v1/sources/street/snapshot.jpg")
    gallery = server.engine.gallery
    server.until(lambda: gallery.newest("street") is None)


def test_a_viewer_of_a_dead_camera_that_disconnects_is_forgotten(server):
    from streamkit.serve.live import Watchers

    with server.client.stream("GET", "/api/v1/sources/gate/live.mjpg") as answer:
        assert answer.status_code == 200
        server.until(lambda: "gate" in server.engine.gallery._requested)
    time.sleep(0.5)
    server.engine.gallery.forget("gate")
    time.sleep(0.5)
    assert "gate" not in server.engine.gallery._requested
    assert Watchers(server.engine)


# ------------------------------------------------------------------------------------------------------- what it does


def test_a_source_is_added_paused_resumed_changed_and_removed(server, camera):
    assert server.running("cam")["kind"] == "test_pattern"
    assert picture(server.client.get("/api/v1/sources/cam/snapshot.jpg")).shape[2] == 3
    assert server.client.post("/api/v1/sources/cam/pause").json()["state"] == "paused"
    frames = server.until(lambda: (camera_now := server.source("cam"))["state"] == "paused" and camera_now)["frames"]
    time.sleep(0.6)
    assert server.source("cam")["frames"] <= frames + 1
    assert server.client.post("/api/v1/sources/cam/resume").status_code == 200
    server.until(lambda: server.source("cam")["frames"] > frames + 3)
    changed = server.client.put("/api/v1/sources/cam", json={"uri": "test://", "options": {"pace": 20}})
    assert changed.status_code == 200, changed.text
    assert server.running("cam")["options"] == {"pace": 20}
    assert server.client.delete("/api/v1/sources/cam").status_code == 204
    assert server.source("cam") == {}
    assert server.running("street")["state"] == "running"


def options_after(server, body):
    answer = server.client.put("/api/v1/sources/cam", json=body)
    assert answer.status_code == 200, answer.text
    (config,) = [source for source in server.engine.graph.sources if source.id == "cam"]
    assert answer.json()["options"] == {
        name: value for name, value in config.options.items() if name in ("pace", "fps")
    }
    return answer.json()["address"], answer.json()["options"]


def test_a_change_keeps_the_other_options(server, camera):
    assert options_after(server, {"options": {"pace": 20, "fps": 5}}) == ("test://", {"pace": 20, "fps": 5})
    assert options_after(server, {"uri": "test://"}) == ("test://", {"pace": 20, "fps": 5})
    assert options_after(server, {}) == ("test://", {"pace": 20, "fps": 5})
    assert options_after(server, {"uri": "test://", "options": {"pace": 10}}) == ("test://", {"pace": 10})
    assert options_after(server, {"options": {}}) == ("test://", {})
    (config,) = [source for source in server.engine.graph.sources if source.id == "cam"]
    assert config.options["uri"] == "test://"
    server.running("cam")


def test_options_unsuited_to_a_new_address_are_reported(server, camera):
    address = {"uri": f"rtsp://u:{SECRET}@127.0.0.1:9/x", "options": {"timeout": "3s"}}
    assert server.client.put("/api/v1/sources/cam", json=address).json()["options"] == {"timeout": "3s"}
    answer = server.client.put("/api/v1/sources/cam", json={"uri": "test://"})
    assert answer.status_code == 422
    assert answer.json()["error"].endswith("; it keeps the options timeout: send `options` to replace them")
    assert "no option 'timeout'" in answer.json()["error"]
    answer = server.client.put("/api/v1/sources/cam", json={"uri": "test://", "options": {"timeout": "3s"}})
    assert answer.status_code == 422
    assert "it keeps" not in answer.json()["error"]
    assert server.source("cam")["options"] == {"timeout": "3s"}


def test_changing_options_keeps_the_path_of_a_file_source(server):
    """Whoever has no right to name a file may change how it is read."""
    try:
        answer = server.client.put(
            "/api/v1/sources/street", json={"options": {"pace": "realtime", "loop": True, "fps": 5}}
        )
        assert answer.status_code == 200, answer.text
        assert answer.json()["address"] == "samples/street.mp4"
        assert server.running("street")["options"]["fps"] == 5
    finally:
        options = {"pace": 10, "loop": True, "pace_seed": 1}
        assert server.client.put("/api/v1/sources/street", json={"options": options}).status_code == 200


def test_a_changed_setting_changes_the_detections(server):
    def new_detections():
        before = dict(server.open.get("/api/v1/status").json()["detections"])
        time.sleep(1)
        return server.open.get("/api/v1/status").json()["detections"].get("detect", 0) - before.get("detect", 0)

    assert server.until(new_detections) > 0
    answer = server.client.patch("/api/v1/stages/detect.postprocess", json={"min_score": 1})
    assert answer.status_code == 200, answer.text
    try:
        assert {s["name"]: s["value"] for s in answer.json()["settings"]}["min_score"] == 1
        server.until(lambda: new_detections() == 0)
    finally:
        answer = server.client.patch("/api/v1/stages/detect", json={"min_score": 0.4})
        assert answer.status_code == 200, answer.text
    assert answer.json()["id"] == "detect.postprocess"  # the part with the setting
    assert {s["name"]: s["value"] for s in answer.json()["settings"]}["min_score"] == 0.4
    server.until(new_detections)


def test_failed_sign_ins_are_throttled_by_address(server):
    """The guesses come from another address, as behind a proxy."""
    elsewhere = {"x-forwarded-for": "203.0.113.7"}
    with httpx.Client(base_url=server.url, headers=elsewhere) as guesser:
        for n in range(10):
            assert guesser.post("/api/v1/session", json={"token": f"a wrong token {n}"}).status_code == 401
        for answer in (
            guesser.post("/api/v1/session", json={"token": TOKEN}),
            guesser.get("/api/v1/sources/street/snapshot.jpg", headers={"authorization": f"Bearer {TOKEN}"}),
            guesser.delete("/api/v1/sources/street", headers={"authorization": f"Bearer {TOKEN}"}),
        ):
            assert answer.status_code == 429
            assert 1 <= int(answer.headers["retry-after"]) <= 6
            assert "too many wrong tokens" in answer.json()["error"]
        assert guesser.get("/ready").status_code == 200  # what needs no token is answered
        session = guesser.get("/api/v1/session", headers={"authorization": f"Bearer {TOKEN}"}).json()
        assert (session["signed_in"], session["name"], session["role"]) == (False, "", "")
    assert server.client.get("/api/v1/sources/street/snapshot.jpg").status_code == 200
    assert server.source("street")
    assert 'streamkit_http_refused_total{cause="too_many_wrong_tokens"}' in server.open.get("/metrics").text


def test_a_browser_session_starts_at_sign_in_and_ends_at_sign_out(server):
    with httpx.Client(base_url=server.url) as browser:
        assert browser.get("/api/v1/session").json()["signed_in"] is False
        assert browser.get("/api/v1/sources/street/snapshot.jpg").status_code == 401
        assert browser.post("/api/v1/session", json={"token": "not the token at all"}).status_code == 401
        answer = browser.post("/api/v1/session", json={"token": TOKEN})
        assert answer.status_code == 204
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert TOKEN not in answer.headers["set-cookie"]
        session = browser.get("/api/v1/session").json()
        assert (session["signed_in"], session["name"], session["role"]) == (True, "admin", "admin")
        assert browser.get("/api/v1/sources/street/snapshot.jpg").status_code == 200
        evil = browser.delete("/api/v1/sources/street", headers={"origin": "http://127.0.0.1:1"})
        assert evil.status_code == 401
        browser.delete("/api/v1/session")
        assert browser.get("/api/v1/session").json()["signed_in"] is False
