"""A pipeline on two Ray nodes of this machine: one API over both, of which one is killed and comes back."""

import asyncio
import json
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.messages import collecting
from support.ray_nodes import RayNodes

from streamkit.cli.serve import checker_of
from streamkit.cluster.cluster_file import read_cluster, read_pipeline
from streamkit.cluster.forward import add_forwarding
from streamkit.cluster.head import prepare_cluster
from streamkit.cluster.ray_nodes import connect
from streamkit.serve.app import create_app
from streamkit.serve.engine import ServeEngine
from streamkit.serve.pipeline_file import PipelineFile
from streamkit.serve.prepare import engine_of, open_store
from streamkit.serve.sampler import PipelineSampler
from streamkit.serve.server import address, listen, serving
from streamkit.serve.token import Token

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the cluster's nodes are kept on cores as Linux does it"),
    pytest.mark.quiet,  # a node that gets no core for seconds counts as lost
]

TOKEN = {"authorization": "Bearer the token of the tests"}
BACK_S = 15.0
"""Within which the cameras of a lost node run on others."""

PIPELINE = """
device: cpu
plugins: [{root}/plugins]
sources:
  one: {{uri: {root}/samples/street.mp4, pace: 4, loop: true, every: 5}}
  two: {{uri: {root}/samples/street.mp4, pace: 4, loop: true, every: 5}}
stages:
  detect: {{model: demo}}
  track: {{stage: simple_track}}
  line: {{stage: line_counter, line: [[320, 60], [320, 360]]}}
"""
CLUSTER = """
pipeline: pipeline.yaml
ray: {ray}
folder: {folder}/nodes
sources:
  three: {{uri: {root}/samples/street.mp4, pace: 4, loop: true, every: 5}}
  four: {{uri: {root}/samples/street.mp4, pace: 4, loop: true, every: 5}}
"""


@dataclass
class Head:
    """The head of a cluster: a client with the token, its engine, its pipeline's YAML and what was logged."""

    client: httpx.Client
    engine: ServeEngine
    yaml: Path
    logged: list[str]

    def get(self, path: str, **options: Any) -> Any:
        return self.client.get(f"/api/v1/{path}", **options).json()

    def until(self, true: Any, seconds: float = 90.0) -> Any:
        """Wait until `true()` is something, and return it."""
        end = time.monotonic() + seconds
        while not (outcome := true()):
            assert time.monotonic() < end, f"not within {seconds} s: {self.logged[-20:]}"
            time.sleep(0.1)
        return outcome

    def nodes(self) -> dict[str, list[str]]:
        """The sources of each node that is ready."""
        return {node["name"]: node["sources"] for node in self.get("nodes") if node["state"] == "ready"}

    def frames(self) -> dict[str, int]:
        """The frames of each source that runs."""
        return {source["id"]: source["frames"] for source in self.get("sources") if source["state"] == "running"}

    def events(self, **query: Any) -> list[dict[str, Any]]:
        return list(self.get("events", params={"limit": 500, **query}))


@pytest.fixture(scope="module")
def head(ray_nodes: RayNodes, tmp_path_factory: pytest.TempPathFactory, root: Path) -> Iterator[Head]:
    """A cluster with four cameras, which both nodes run."""
    folder = tmp_path_factory.mktemp("cluster")
    yaml = folder / "pipeline.yaml"
    yaml.write_text(PIPELINE.format(root=root))
    (folder / "cluster.yaml").write_text(CLUSTER.format(root=root, ray=ray_nodes.address, folder=folder))
    cluster = read_cluster(folder / "cluster.yaml")
    store = open_store(folder / "head", "30d", "2GB")
    ray, started = connect(cluster.ray)
    assert not started
    running, gallery = prepare_cluster(
        cluster, ray, store, lambda: None, allow_files=True, keep_events="1d", keep_size="1GB"
    )
    file = PipelineFile(yaml, checker_of(yaml, lambda text: read_pipeline(cluster, text=text)))
    engine = engine_of(running, gallery, store, allow_files=True, file=file)
    listening = listen("127.0.0.1", 0)
    app = create_app(
        engine,
        Token("the token of the tests"),
        data=folder / "head",
        add_routes=lambda app, api: add_forwarding(app, api, engine),
    )
    thread = threading.Thread(target=running.run, daemon=True)
    with (
        collecting() as logged,
        engine.observing(),
        store.writing(PipelineSampler(engine)),
        serving(app, listening),
        httpx.Client(base_url=address("127.0.0.1", listening), timeout=20, headers=TOKEN) as client,
    ):
        thread.start()
        cluster_head = Head(client, engine, yaml, logged)
        try:
            cluster_head.until(lambda: len(cluster_head.nodes()) == 2 and len(cluster_head.frames()) == 4)
            yield cluster_head
        finally:
            running.stop()
            thread.join(20)
            assert not thread.is_alive(), "the head does not end"


def test_sources_are_spread_over_nodes_and_listed_by_the_api(head):
    shares = head.nodes()
    assert sorted(map(len, shares.values())) == [2, 2]
    assert {source["id"] for source in head.get("sources")} == {"one", "two", "three", "four"}
    head.until(lambda: {event["data"]["node"] for event in head.events()} == {"a", "b"})
    status = head.get("status")
    assert (status["ready"], status["device"]) == (True, "a: cpu, b: cpu")
    assert status["frames"] >= sum(head.frames().values()) * 0.5
    assert {stage["id"] for stage in head.get("stages")} >= {"detect.infer", "track", "line"}
    assert head.client.get("/").status_code == 200
    added = head.client.post("/api/v1/sources", json={"id": "five", "uri": "test://?frames=0&width=64&height=48"})
    assert added.status_code == 201
    assert head.client.post("/api/v1/sources", json={"id": "one", "uri": "test://"}).status_code == 409
    head.until(lambda: head.frames().get("five"))
    assert sorted(map(len, head.nodes().values())) == [2, 3]
    assert head.client.delete("/api/v1/sources/five").status_code == 204
    assert "five" not in {source["id"] for source in head.get("sources")}


@pytest.mark.long
def test_images_video_records_and_metrics_are_forwarded_from_nodes(head):
    for id_ in ("one", "two"):
        image = head.client.get(f"/api/v1/sources/{id_}/snapshot.jpg")
        assert (image.status_code, image.content[:2]) == (200, b"\xff\xd8")
        plain = httpx.get(head.client.base_url.join(f"/api/v1/sources/{id_}/snapshot.jpg"))
        assert plain.status_code == 401
    assert head.client.get("/api/v1/sources/none/snapshot.jpg").status_code == 404
    event = head.until(lambda: [seen_event for seen_event in head.events() if seen_event["image"]])[0]
    assert head.client.get(f"/api/v1/events/{event['number']}/image.jpg").content[:2] == b"\xff\xd8"
    clip = head.client.get(f"/api/v1/events/{event['number']}/clip.mp4")
    assert (clip.status_code, f"event {event['number']} has no clip.mp4" in clip.text) == (404, True)
    metrics = head.client.get("/metrics").text
    for name, ids in head.nodes().items():
        assert all(f'streamkit_frames_total{{node="{name}",source="{id_}"}}' in metrics for id_ in ids)
    viewer = head.client.post("/api/v1/tokens", json={"name": "vera", "role": "viewer"}).json()["token"]
    url = str(head.client.base_url).replace("http", "ws").rstrip("/")
    data, errors, records = asyncio.run(_live(url, {"authorization": f"Bearer {viewer}"}))
    assert {source: video[4:8] for source, video in data.items()} == dict.fromkeys(
        ("one", "two", "three", "four"), b"ftyp"
    )
    assert errors == {"none": "there is no source 'none'"}
    assert {record["source"] for record in records} == {"one", "two", "three", "four"}
    missing = head.client.post("/api/v1/sources/test", json={"id": "x", "uri": "rtsp://127.0.0.1:9/x"}).json()
    assert missing["cause"] == "refused"


async def _live(url: str, token: dict[str, str]) -> tuple[dict[str, bytes], dict[str, str], list[dict[str, Any]]]:
    """The videos of four sources until each has come, why others are refused, and records of all."""
    from websockets.asyncio.client import connect

    data: dict[str, bytes] = {}
    errors: dict[str, str] = {}
    records: list[dict[str, Any]] = []
    async with (
        asyncio.timeout(60),
        connect(f"{url}/api/v1/videos", additional_headers=token, max_size=None) as videos,
        connect(f"{url}/api/v1/records?batch=true", additional_headers=token, max_size=None) as socket,
    ):
        await videos.send(json.dumps({"sources": ["one", "none"]}))
        while len({record["source"] for record in records}) < 4:
            payload = json.loads(await socket.recv())
            records += payload if isinstance(payload, list) else []
        await videos.send(json.dumps({"sources": ["one", "two", "three", "four", "none"]}))
        while len(data) < 4:
            message = await videos.recv()
            if isinstance(message, str):
                errors |= {entry["source"]: entry["error"] for entry in json.loads(message) if "error" in entry}
                continue
            begin = 4 + int.from_bytes(message[:4], "big")
            for source, size in json.loads(message[4:begin]):
                data[source] = data.get(source, b"") + message[begin : begin + size]
                begin += size
    return data, errors, records


def test_cameras_of_a_killed_node_move_to_another_node(head, ray_nodes):
    moved = head.nodes()["b"]
    before = head.frames()
    ray_nodes.lose("b")
    start_s = time.monotonic()
    head.until(lambda: set(moved) <= set(head.nodes()["a"]), BACK_S)
    head.until(lambda: all(head.frames().get(id_, 0) > before[id_] for id_ in moved), BACK_S)
    took_s = time.monotonic() - start_s
    print(f"cameras of a killed node run on another after {took_s:.1f} s")
    assert took_s < BACK_S
    restarted = head.until(lambda: head.events(kind="restarted"))
    assert {(event["source"], event["data"]["node"]) for event in restarted} == {(id_, "a") for id_ in moved}
    assert restarted[0]["data"]["cause"].startswith("node b ")
    assert head.client.get("/").status_code == 200
    assert any(line.startswith("node b is lost") for line in head.logged)

    ray_nodes.add("b")  # it gets what comes; the others keep their tracks
    head.until(lambda: "b" in head.nodes())
    assert head.nodes()["b"] == []
    uri = str(Path("samples/street.mp4").absolute())
    new = {"id": "six", "uri": uri, "options": {"pace": 4, "loop": True, "every": 5}}
    assert head.client.post("/api/v1/sources", json=new).status_code == 201
    head.until(lambda: head.frames().get("six"))
    assert head.nodes()["b"] == ["six"]
    _check_no_event_twice(head, moved)


def _check_no_event_twice(head: Head, moved: list[str]) -> None:
    events = [event for event in head.events() if event["stage"] == "line"]
    event_keys = [
        (event["source"], event["frame"], event["pts_s"], event["kind"], event["track_id"]) for event in events
    ]
    assert len(events) > 5
    assert len(set(event_keys)) == len(event_keys)
    for id_ in moved:  # what the lost node saw is before what the other one did, in frames and in time
        for key in ("frame", "time_s"):
            first, second = (
                [event[key] for event in events if event["source"] == id_ and event["data"]["node"] == node]
                for node in ("b", "a")
            )
            assert not first or not second or max(first) < min(second)


def test_an_edit_is_applied_node_by_node_until_a_node_rejects_it(head):
    text = head.yaml.read_text()
    sources = set(head.frames())
    assert head.client.patch("/api/v1/stages/detect.postprocess", json={"min_score": 0.45}).status_code == 200
    head.until(lambda: _min_scores(head) == [0.45, 0.45])
    last = len(head.logged)
    head.yaml.write_text(text.replace("device: cpu", "device: cuda:77"))  # the head needs no GPU, the nodes do
    head.until(lambda: head.get("status")["edit_rejected"])
    assert "cuda:77" in head.get("config")["rejected"]
    lines = [line for line in head.logged[last:] if "edit is rejected" in line and line.startswith("node ")]
    assert len(lines) == 1
    assert set(head.frames()) == sources
    edited = text + "  other: {stage: line_counter, line: [[200, 60], [200, 360]], from: track}\n"
    read = head.get("config")
    saved = head.client.put("/api/v1/config", json={"text": edited, "hash": read["hash"]})
    assert saved.json()["saved"], saved.text
    head.until(lambda: head.get("config")["applied"])
    lines = [line for line in head.logged[last:] if "runs the edited pipeline" in line]
    assert sorted(lines) == ["node a runs the edited pipeline", "node b runs the edited pipeline"]
    head.until(lambda: {event["data"]["node"] for event in head.events(stage="other")} == {"a", "b"})
    assert not head.get("status")["edit_rejected"]
    assert _min_scores(head) == [0.45, 0.45]  # a change by a call outlives the edit


def _min_scores(head: Head) -> list[float]:
    """What each node itself has as `min_score`."""
    scores = []
    for node in head.engine.running.current.ready_nodes():
        token = {"authorization": f"Bearer {node.token}"}
        stages = httpx.get(f"{node.url}/api/v1/stages", headers=token, timeout=20).json()
        settings = next(stage for stage in stages if stage["id"] == "detect.postprocess")["settings"]
        scores.append(next(setting["value"] for setting in settings if setting["name"] == "min_score"))
    return scores
