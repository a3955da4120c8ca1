"""Edits of the YAML of a pipeline that runs in two processes: states, images and events go on."""

import pytest
from support.servers import served

TEXT = """\
device: {use: cpu, processes: 2}
sources:
  street: {uri: samples/street.mp4, every: 3, pace: 10, loop: true}
  lane: {uri: samples/street.mp4, every: 3, pace: 10, loop: true}
stages:
  detect: {model: demo}
  track: {}
  till:
    stage: zone
    units: share
    polygon: {far: [[0, 0], [0.01, 0], [0.01, 0.01]]}   # nothing is here
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("fleet") / "shop.yaml"


@pytest.fixture(scope="module")
def server(root, path):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        with served(TEXT, root, path=path) as zone_server:
            for id_ in ("street", "lane"):
                zone_server.running(id_)
            yield zone_server


def applied(server):
    server.until(lambda: server.client.get("/api/v1/config").json()["applied"] and server.engine.ready)
    for id_ in ("street", "lane", "extra"):
        server.running(id_)
        assert server.client.get(f"/api/v1/sources/{id_}/snapshot.jpg").status_code == 200


def entered(server, zone):
    """The sources of events of a zone, once there are some of each."""
    zone_events = server.client.get("/api/v1/events?limit=500").json()
    sources = {
        event["source"] for event in zone_events if event["kind"] == "entered" and event["data"].get("zone") == zone
    }
    return sources == {"street", "lane"}


@pytest.mark.long
def test_a_zone_is_edited_in_two_processes_without_a_restart(server, path):
    view = server.client.get("/api/v1/shapes").json()
    whole = {"street": [640, 360], "lane": [640, 360]}
    server.until(lambda: server.client.get("/api/v1/shapes").json()["sizes"] == whole)
    server.client.post("/api/v1/sources", json={"id": "extra", "uri": "test://"})
    server.running("extra")
    pids = set(server.engine.running.current.pids)
    edit = {"option": "polygon", "shapes": {"whole": [[0, 0], [1, 0], [1, 1], [0, 1]]}, "hash": view["hash"]}
    answer = server.client.post("/api/v1/stages/till/shapes", json={**edit, "dry_run": False})
    assert answer.status_code == 200, answer.text
    applied(server)
    server.until(lambda: entered(server, "whole"))
    assert set(server.engine.running.current.pids) == pids
    assert "restarts" not in server.engine.running.report(0)
    path.write_text(path.read_text().replace("track: {}", "track: {track_ttl: 3s}").replace("whole:", "anew:"))
    server.until(lambda: server.engine.running.report(0).get("restarts"))
    applied(server)
    assert len(set(server.engine.running.current.pids) - pids) >= 2  # these are other processes
    server.until(lambda: entered(server, "anew"))
    assert "streamkit_source_frames_per_second" in server.open.get("/metrics").text
