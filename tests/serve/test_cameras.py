"""Real cameras behind the API: what it says of a wrong password, and of one that goes away and comes back."""

import pytest

SECRET = "geheim-0815"


@pytest.fixture
def camera(rtsp, test_data):
    return rtsp({"gate": test_data / "videos" / "vtest_480x360.mp4"}, user="ann", password=SECRET)


def add(server, uri):
    answer = server.client.post("/api/v1/sources", json={"id": "cam", "uri": uri, "options": {"timeout": "3s"}})
    assert answer.status_code == 201, answer.text
    assert SECRET not in answer.text


@pytest.fixture(autouse=True)
def tidy(server):
    yield
    server.client.delete("/api/v1/sources/cam")


def test_a_wrong_password_is_reported_and_can_be_corrected(server, camera):
    add(server, camera.url("gate", password="wrong-one"))
    wrong_password = server.until(lambda: (camera_now := server.source("cam"))["cause"] and camera_now)
    assert wrong_password["cause"] == "auth"
    assert "wrong-one" not in str(wrong_password)
    changed = server.client.put("/api/v1/sources/cam", json={"uri": camera.url("gate")})
    assert changed.status_code == 200
    assert server.running("cam")["address"] == f"rtsp://ann:***@127.0.0.1:{camera.port}/gate"
    assert server.client.get("/api/v1/sources/cam/snapshot.jpg").status_code == 200


def test_a_camera_reconnects_after_an_outage(server, camera):
    add(server, camera.url("gate"))
    server.running("cam")
    camera.stop()
    lost = server.until(lambda: (camera_now := server.source("cam"))["state"] == "reconnecting" and camera_now)
    assert lost["cause"] in ("lost", "refused", "timeout")
    assert server.client.get("/api/v1/sources/cam/snapshot.jpg").status_code in (200, 503)
    assert server.running("street")["fps"] > 0  # the others go on
    camera.start()
    back = server.until(lambda: (camera_now := server.source("cam"))["state"] == "running" and camera_now, 60)
    assert sum(back["reconnects"].values()) == 1
    reconnected = server.until(
        lambda: [event for event in server.open.get("/api/v1/events").json() if event["kind"] == "reconnected"]
    )
    assert [event["source"] for event in reconnected] == ["cam"]
    assert reconnected[0]["data"]["cause"] in back["reconnects"]
    metrics = server.open.get("/metrics").text
    assert 'streamkit_reconnects_total{cause="' in metrics
    assert SECRET not in metrics
