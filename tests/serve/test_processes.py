"""The API of a pipeline that runs in two processes, over a real server; and what it does when one of them is killed."""

import contextlib
import os
import signal
import time
from pathlib import Path

import av
import cv2
import numpy as np
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.servers import SECRET, served

PLUGIN = '''
import os
from typing import Annotated
from streamkit import FrameStage, stage

@stage("tick", writes="events", changeable=("every", "only"))
class Tick(FrameStage):
    """Emits an event on each n-th frame, with the process that made it."""

    every: Annotated[int, "how often"] = 5
    only: Annotated[str, "a word"] = "all"

    def changed(self):
        if self.every == 13:
            raise ArithmeticError("thirteen is unlucky")
        if self.every == 11:  # the first process accepts it, the second does not
            os.close(os.open(__file__ + ".eleven", os.O_CREAT | os.O_EXCL))

    def process(self, frame):
        if frame.index % self.every == 0:
            frame.emit("ticked", pid=os.getpid(), every=self.every)
'''

TEXT = """
device: {{use: cpu, processes: 2}}
plugins: [{folder}/tick.py]
{head}
sources:
{sources}
stages:
  tick: {{}}
  clip: {{stage: record, before: 1s, after: 1s, path: "{folder}/clips/{{source}}-{{time}}.mp4"}}
  all: {{stage: jsonl, path: "{folder}/all.jsonl"}}
  each: {{stage: jsonl, path: "{folder}/{{source}}.jsonl"}}
alarms:
  camera_down: {{when: "down_s > 0.5 && cause == 'refused'"}}
"""
STREET = "{uri: samples/street.mp4, every: 5, pace: realtime, loop: true}"
SOURCES = f"""
  street: {STREET}
  lane: {STREET}
  bars: {{uri: "test://?width=320&height=240&fps=10", pace: realtime}}
  gate: {{uri: "rtsp://operator:{SECRET}@127.0.0.1:9/stream1"}}
"""
TEST = "test://"


def text(folder: Path, sources: str = SOURCES, head: str = "") -> str:
    (folder / "tick.py").write_text(PLUGIN)
    return TEXT.format(folder=folder, sources=sources, head=head)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("processes")


@pytest.fixture(scope="module")
def server(root, folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        with served(text(folder), root) as fleet_server:
            for id_ in ("street", "lane", "bars"):
                fleet_server.running(id_)
            yield fleet_server


@pytest.fixture
def camera(server):
    """A source that is added for one test, and removed afterwards where the test did not."""
    answer = server.client.post("/api/v1/sources", json={"id": "cam", "uri": TEST, "options": {"pace": 10}})
    assert answer.status_code == 201, answer.text
    server.running("cam")
    yield "cam"
    server.client.delete("/api/v1/sources/cam")


def picture(answer):
    assert answer.status_code == 200, answer.text
    return cv2.imdecode(np.frombuffer(answer.content, np.uint8), cv2.IMREAD_COLOR)


def workers(server):
    return [pid for pid in server.engine.running.current.pids[1:] if psutil.pid_exists(pid)]


def owner(server, source):
    """The process that reads a source, as its events say."""
    events = server.until(lambda: server.open.get("/api/v1/events", params={"source": source, "limit": 5}).json())
    return next(event["data"]["pid"] for event in events if event["kind"] == "ticked")


def events_of(sample_values, kind):
    """How many events of a kind all sources had."""
    return sum(
        count
        for (name, *labels), count in sample_values.items()
        if name == "streamkit_events_total" and ("kind", kind) in labels
    )


def samples(server):
    families = text_string_to_metric_families(server.open.get("/metrics").text)
    return {(s.name, *sorted(s.labels.items())): s.value for family in families for s in family.samples}


# -------------------------------------------------------------------------------------------------------- what it tells


def test_two_worker_processes_read_the_sources(server):
    owners = {id_: owner(server, id_) for id_ in ("street", "lane", "bars")}
    assert set(owners.values()) == set(workers(server))
    assert owners["street"] == owners["bars"] != owners["lane"]
    assert os.getpid() not in owners.values()
    assert server.open.get("/ready").json() == {"ready": True}


def test_status_stages_and_metrics_are_summed_over_processes(server):
    def done():
        rows = {row["id"]: row["frames"] for row in server.open.get("/api/v1/stages").json()}
        return rows if min(rows.values()) > 20 else None

    rows = server.until(done)
    assert list(rows) == ["tick", "clip", "all", "each"]
    status = server.open.get("/api/v1/status").json()
    assert status["ready"]
    assert (status["device"], status["records"]) == ("cpu", ["clip"])
    assert status["frames"] > 20
    assert status["events"]["ticked"] > 4
    assert server.until(lambda: server.source("street")["latency"])["p50_ms"] > 0
    for id_ in ("lane", "bars"):
        server.until(lambda id_=id_: server.source(id_)["latency"])
    sample_values = samples(server)
    for id_ in ("street", "lane", "bars"):
        assert sample_values["streamkit_frames_total", ("source", id_)] > 0
        assert sample_values["streamkit_source_state", ("source", id_), ("state", "running")] == 1
        assert sample_values["streamkit_source_latency_seconds_count", ("source", id_)] > 0
        server.until(lambda id_=id_: samples(server)["streamkit_source_frames_per_second", ("source", id_)] > 0)
    of_all = sum(sample_values["streamkit_frames_total", ("source", id_)] for id_ in ("street", "lane", "bars"))
    assert 0.5 * of_all < sample_values["streamkit_stage_frames_total", ("stage", "tick")] <= of_all
    # it runs in the server's process
    assert sample_values["streamkit_stage_frames_total", ("stage", "all")] > 0.5 * of_all
    for id_ in ("all", "each", "clip"):
        assert sample_values["streamkit_stage_latency_seconds_count", ("stage", id_)] > 0.4 * of_all
    queues = {labels[0][1] for name, *labels in sample_values if name == "streamkit_stage_queue_batches"}
    assert {"tick", "all", "each"} <= queues
    assert events_of(sample_values, "ticked") > 4
    assert sample_values["streamkit_sources",] == 4
    assert sample_values["streamkit_ready",] == 1
    assert any(name == "streamkit_counts_total" for name, *_ in sample_values)


def test_an_alarm_is_raised_once_by_the_parent(server):
    server.until(lambda: server.open.get("/api/v1/status").json()["alarms"])
    (alarm,) = server.open.get("/api/v1/alarms").json()
    assert (alarm["name"], alarm["count"]) == ("camera_down", 1)
    assert alarm["raised"][0]["source"] == "gate"

    def raised():
        events = server.open.get("/api/v1/events", params={"source": "gate"}).json()
        return [event for event in events if event["kind"] == "raised"]

    server.until(raised)
    assert len(raised()) == 1
    sample_values = samples(server)
    assert sample_values["streamkit_alarm", ("alarm", "camera_down"), ("source", "gate")] == 1
    assert sample_values["streamkit_alarms_raised_total", ("alarm", "camera_down")] == 1
    gate = server.source("gate")
    assert gate["cause"] == "refused"
    assert SECRET not in server.client.get("/api/v1/sources").text


# ------------------------------------------------------------------------------------------------------------ pictures


@pytest.mark.parametrize("source", ["street", "lane", "bars"])
def test_a_snapshot_comes_from_the_process_of_the_source(server, source):
    first = server.client.get(f"/api/v1/sources/{source}/snapshot.jpg")
    assert picture(first).shape[:2] == ((240, 320) if source == "bars" else (360, 640))
    time.sleep(0.7)
    second = server.client.get(f"/api/v1/sources/{source}/snapshot.jpg")
    assert int(second.headers["x-frame"]) > int(first.headers["x-frame"])


def test_live_images_of_both_processes_are_streamed(server):
    for source in ("street", "lane"):
        parts = b""
        with server.client.stream("GET", f"/api/v1/sources/{source}/live.mjpg") as answer:
            for chunk in answer.iter_bytes():
                parts += chunk
                if parts.count(b"--frame\r\n") > 3:
                    break
    gallery = server.engine.gallery
    server.until(lambda: gallery.newest("street") is None and gallery.newest("lane") is None)  # no viewer is left


def test_events_of_both_processes_have_their_image(server):
    for source in ("street", "lane"):
        with_image = server.until(
            lambda source=source: [
                event for event in server.open.get("/api/v1/events", params={"source": source}).json() if event["image"]
            ]
        )
        assert picture(server.client.get(f"/api/v1/events/{with_image[0]['number']}/image.jpg")).shape == (360, 640, 3)
    every = server.open.get("/api/v1/events").json()
    assert [event["number"] for event in every] == sorted((event["number"] for event in every), reverse=True)


# ------------------------------------------------------------------------------------------------------- what it does


def test_a_source_is_added_paused_resumed_changed_and_removed(server, camera, folder):
    assert picture(server.client.get("/api/v1/sources/cam/snapshot.jpg")).shape[2] == 3
    assert server.client.post("/api/v1/sources/cam/pause").json()["state"] == "paused"
    time.sleep(1.2)
    assert server.source("cam")["state"] == "paused"
    frames = server.source("cam")["frames"]
    time.sleep(1.2)
    assert server.source("cam")["frames"] == frames
    assert server.client.post("/api/v1/sources/cam/resume").json()["state"] != "paused"
    server.until(lambda: server.source("cam")["frames"] > frames + 3)
    assert server.running("cam")["state"] == "running"
    before = owner(server, "cam")
    changed = server.client.put("/api/v1/sources/cam", json={"uri": TEST, "options": {"pace": 20}})
    assert changed.status_code == 200, changed.text
    assert changed.json()["frames"] == 0
    assert server.running("cam")["options"] == {"pace": 20}
    time.sleep(1)
    assert owner(server, "cam") == before, "its process writes its files"
    assert server.client.delete("/api/v1/sources/cam").status_code == 204
    assert server.source("cam") == {}
    assert server.client.post("/api/v1/sources/cam/pause").status_code == 404
    time.sleep(1.2)
    assert server.source("cam") == {}, "a late report does not bring it back"
    assert server.running("street")["state"] == "running"
    assert (folder / "cam.jsonl").read_text().count("\n") > 3


def test_invalid_changes_are_refused(server):
    twice = server.client.post("/api/v1/sources", json={"id": "street", "uri": TEST})
    assert twice.status_code == 409
    assert server.client.post("/api/v1/sources", json={"id": "x", "uri": "samples/street.mp4"}).status_code == 403
    wrong = server.client.post("/api/v1/sources", json={"id": "x", "uri": TEST, "options": {"pase": 3}})
    assert wrong.status_code == 422
    assert server.client.delete("/api/v1/sources/nobody").status_code == 404
    assert server.open.post("/api/v1/sources/street/pause").status_code == 401


def test_a_clip_is_recorded_in_the_process_of_the_source(server, folder):
    for source in ("street", "lane"):
        assert server.client.post(f"/api/v1/sources/{source}/record").status_code == 200
    for source in ("street", "lane"):
        (path,) = server.until(lambda source=source: list((folder / "clips").glob(f"{source}-*.mp4")))
        with av.open(str(path)) as clip:
            pictures = list(clip.decode(video=0))
        assert pictures[0].key_frame
        assert len(pictures) > 20
    recorded = server.until(
        lambda: [event for event in server.open.get("/api/v1/events").json() if event["kind"] == "recorded"]
    )
    assert Path(recorded[0]["data"]["clip"]).exists()
    refused = server.client.post("/api/v1/sources/bars/record")
    assert (refused.status_code, refused.json()["error"].partition(";")[0]) == (
        409,
        "bars is a test_pattern, which has no packets to record",
    )


def values(server):
    (tick,) = [stage_view for stage_view in server.open.get("/api/v1/stages").json() if stage_view["id"] == "tick"]
    return {setting["name"]: setting["value"] for setting in tick["settings"]}


def every(server):
    """The value that the stage has in each process, by its latest event."""
    every_by_pid = {}
    for event in server.open.get("/api/v1/events").json():
        if event["kind"] == "ticked":
            every_by_pid.setdefault(event["data"]["pid"], event["data"]["every"])
    return [every_by_pid.get(pid) for pid in workers(server)]


def test_a_setting_reaches_all_processes_and_a_rejected_one_is_reverted(server):
    answer = server.client.patch("/api/v1/stages/tick", json={"every": 3})
    assert answer.status_code == 200, answer.text
    server.until(lambda: every(server) == [3, 3])
    assert server.client.patch("/api/v1/stages/tick", json={"every": 13}).status_code == 200
    server.until(lambda: values(server)["every"] == 3)
    time.sleep(0.5)
    assert every(server) == [3, 3]
    assert server.client.patch("/api/v1/stages/tick", json={"every": 11}).status_code == 200
    server.until(lambda: values(server)["every"] == 3)
    time.sleep(2)
    assert every(server) == [3, 3], "one process has rejected it, the other has accepted it"
    assert server.client.patch("/api/v1/stages/tick", json={"every": "often"}).status_code == 422
    assert server.client.patch("/api/v1/stages/tick", json={"never": 1}).status_code == 422
    assert server.client.patch("/api/v1/stages/tick", json={"every": 4}).status_code == 200
    server.until(lambda: every(server) == [4, 4])
    assert values(server)["every"] == 4


@pytest.mark.long
def test_two_processes_keep_the_clip_folder_within_its_size(root, tmp_path, monkeypatch):
    """Each records its own sources; the oldest clips of both are removed."""
    monkeypatch.chdir(root)
    two = f"\n  street: {STREET}\n  lane: {STREET}\n"
    limit = 200_000
    yaml = text(tmp_path, two).replace(
        "before: 1s, after: 1s,", f"when: tick.ticked, before: 0s, after: 0s, retention: {{size: {limit}}},"
    )
    seen: dict[Path, tuple[float, int]] = {}

    def clips():
        stat_by_path = {}
        for path in (tmp_path / "clips").glob("*.mp4"):
            with contextlib.suppress(FileNotFoundError):
                about = path.stat()
                stat_by_path[path] = about.st_mtime, about.st_size
        seen.update(stat_by_path)
        return stat_by_path

    def removed():
        now = clips()
        return {path for path in seen if path not in now}

    with served(yaml, root) as server:
        server.client.patch("/api/v1/stages/tick", json={"every": 30})
        for source in ("street", "lane"):
            server.until(lambda source=source: any(path.name.startswith(source) for path in removed()), 60)
        server.until(lambda: sum(size for _, size in clips().values()) <= limit, 20)
        removed_paths = removed()
        left = clips()
        oldest_left_s = min(at_s for at_s, _ in left.values())
        assert max(seen[path][0] for path in removed_paths) <= oldest_left_s
        counted = "clips removed: over size"
        server.until(lambda: server.open.get("/api/v1/status").json()["counts"].get(counted, 0) >= len(removed_paths))


# ------------------------------------------------------------------------------------------------ deaths and restarts


def test_sources_of_a_killed_process_resume_in_another(root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    with served(text(tmp_path), root) as server:
        for id_ in ("street", "lane", "bars"):
            server.running(id_)
        assert server.client.patch("/api/v1/stages/tick", json={"every": 2}).status_code == 200
        server.until(lambda: every(server) == [2, 2])
        server.client.post("/api/v1/sources/lane/pause")
        victim = owner(server, "street")
        frames = server.source("street")["frames"]
        os.kill(victim, signal.SIGKILL)
        server.until(lambda: server.source("street")["state"] == "reconnecting", 5)
        for id_ in ("street", "bars"):
            server.until(
                lambda id_=id_: (source_view := server.source(id_))["state"] == "running" and source_view["frames"], 10
            )
        for id_ in ("street", "bars"):  # they are read from their beginning
            server.until(lambda id_=id_: server.source(id_)["frames"] > frames)
        events = server.open.get("/api/v1/events", params={"limit": 200}).json()
        restarted = [event for event in events if event["kind"] == "restarted"]
        assert sorted(event["source"] for event in restarted) == ["bars", "street"]
        assert "killed" in restarted[0]["data"]["cause"].lower()
        assert server.open.get("/api/v1/status").json()["events"]["restarted"] == 2
        sample_values = samples(server)
        assert events_of(sample_values, "restarted") == 2
        assert sample_values["streamkit_source_state", ("source", "street"), ("state", "running")] == 1
        (left,) = workers(server)
        assert left != victim
        assert owner(server, "street") == left
        server.until(lambda: every(server) == [2])  # settings hold
        assert picture(server.client.get("/api/v1/sources/street/snapshot.jpg")).shape == (360, 640, 3)
        assert server.source("lane")["state"] == "paused"
        assert server.client.post("/api/v1/sources/lane/resume").status_code == 200
        server.running("lane")
        assert server.client.post("/api/v1/sources", json={"id": "new", "uri": TEST}).status_code == 201
        server.running("new")
        assert server.open.get("/ready").json() == {"ready": True}


@pytest.mark.long
def test_changes_survive_a_restart_of_the_server(root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    two = f"\n  street: {STREET}\n  lane: {STREET}\n"
    yaml = text(tmp_path, two, head=f"state: {tmp_path}/state.db")
    with served(yaml, root) as server:
        for id_ in ("street", "lane"):
            server.running(id_)
        for id_ in ("one", "two"):
            new = {"id": id_, "uri": TEST, "options": {"pace": 10}}
            assert server.client.post("/api/v1/sources", json=new).status_code == 201
            server.running(id_)
        assert server.client.delete("/api/v1/sources/lane").status_code == 204
        assert server.client.post("/api/v1/sources/one/pause").status_code == 200
        assert server.client.patch("/api/v1/stages/tick", json={"every": 3}).status_code == 200
    with served(yaml, root) as server:
        assert {source_view["id"] for source_view in server.client.get("/api/v1/sources").json()} == {
            "street",
            "one",
            "two",
        }
        server.running("street")
        server.running("two")
        server.until(lambda: server.source("one")["state"] == "paused")
        assert server.client.post("/api/v1/sources/one/resume").status_code == 200
        server.running("one")
        server.until(lambda: every(server) == [3, 3])
        assert {owner(server, id_) for id_ in ("street", "one", "two")} == set(workers(server))
