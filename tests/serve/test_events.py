"""Events over HTTP, of a pipeline that counts, records and takes snapshots: search, files, stream, charts, restarts."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import av
import cv2
import httpx
import numpy as np
import pytest
from support import coded
from support.servers import TOKEN, served

from streamkit.core.data import Event
from streamkit.serve.routes import events as routes

PLUGIN = '''
from streamkit import FrameStage, stage

@stage("evil", writes="events")
class Evil(FrameStage):
    """Emits an event that names files of others, as if it were a stage that writes clips."""

    def process(self, frame):
        if frame.index % 25 == 0:
            frame.emit("recorded", clip="/etc/passwd", start_s=0.0, duration_s=1e6, bytes=1)
            frame.emit("saved", path="/etc/passwd", of={"stage": "line", "kind": "crossed", "frame": 3})
'''

KEEPERS = """
from streamkit import stage
from streamkit.stages.video.record import Record
from streamkit.stages.video.snapshot import Snapshot

@stage("clip_keeper", wants_packets=True, emits=("manual", "recorded", "tick"), on_demand=True)
class ClipKeeper(Record):
    def write(self, frame):
        frame.emit("tick")
        frame.emit("recorded", clip="secret.txt", start_s=0.0, duration_s=1e6, bytes=1)

@stage("shot_keeper", reads="pixels", emits=("saved",))
class ShotKeeper(Snapshot):
    def write(self, frame):
        frame.emit("tick")
        of = {"stage": self.context.id, "kind": "tick", "frame": frame.index}
        frame.emit("saved", path="secret.mp4.txt", of=of)
"""

TEXT = """
{head}
plugins: [plugins, {folder}/evil.py]
sources:
  street: {{uri: samples/street.mp4, every: 5, pace: realtime, loop: true, pace_seed: 1}}
  lane: {{uri: samples/street.mp4, every: 5, pace: realtime, loop: true, pace_seed: 2}}
stages:
  detect: {{model: demo}}
  track: {{stage: simple_track}}
  line: {{stage: line_counter, line: [[320, 60], [320, 360]]}}
  evil: {{}}
  clip:
    stage: record
    when: line.crossed
    before: 1s
    after: 1s
    max_length: 5s
    path: "{folder}/clips/{{source}}-{{time}}.mp4"
  snap: {{stage: snapshot, from: evil, when: line.crossed, after: 0s, path: "{folder}/shots/{{source}}-{{time}}.jpg"}}
"""
TWO = "device: {use: cpu, processes: 2}"


def text(folder, head=""):
    (folder / "evil.py").write_text(PLUGIN)
    return TEXT.format(folder=folder, head=head)


@pytest.fixture(
    scope="module",
    params=["", pytest.param(TWO, marks=pytest.mark.long)],
    ids=["one process", "two processes"],
)
def server(root, tmp_path_factory, request):
    folder = tmp_path_factory.mktemp("events")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        with served(text(folder, request.param), root) as event_server:
            for source in ("street", "lane"):
                event_server.running(source)
                event_server.until(lambda source=source: with_clip(event_server, source), 90)
            yield event_server


def get(server, path="", **params):
    answer = server.open.get(f"/api/v1/events{path}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def with_clip(server, source="street"):
    """The events of the counter that have a clip, a snapshot and an image."""
    crossed = get(server, source=source, kind="crossed", limit=500)
    return [event for event in crossed if event["clip"] and event["snapshot"] and event["image"]]


def image(answer):
    assert answer.status_code == 200, answer.text
    return cv2.imdecode(np.frombuffer(answer.content, np.uint8), cv2.IMREAD_COLOR)


# ---------------------------------------------------------------------------------------------------------------- lists


def test_events_are_filtered_and_paged(server):
    event = with_clip(server)[0]
    assert event["text"].startswith(f"{event['label'].capitalize()} {event['track_id']} crossed the line")
    for name in ("source", "stage", "kind", "label"):
        matching = get(server, **{name: event[name]})
        assert matching
        assert {listed_event[name] for listed_event in matching} == {event[name]}
    every = [listed_event["number"] for listed_event in get(server, limit=500, before=event["number"])]
    pages = []
    before = event["number"]
    while page := get(server, limit=7, before=before):
        pages += [listed_event["number"] for listed_event in page]
        before = pages[-1]
    assert pages == every == sorted(every, reverse=True)
    at_s = event["time_s"]
    times_s = {listed_event["time_s"] for listed_event in get(server, **{"from": at_s, "to": at_s + 1e-3})}
    assert at_s == min(times_s) <= max(times_s) <= at_s + 1e-3
    matching = get(server, text=f"crossed {event['track_id']} stre", limit=500)
    assert event["number"] in {listed_event["number"] for listed_event in matching}
    assert {listed_event["source"] for listed_event in matching} == {"street"}
    assert get(server, text='nothing" OR "car') == []
    names = get(server, "/names")
    assert names["sources"] == ["lane", "street"]
    assert {"line", "clip", "snap"} <= set(names["stages"])


def test_counts_over_time_add_up(server):
    newest = get(server, limit=1)[0]
    to_s = newest["time_s"] - 1
    timeline = get(server, "/timeline", bins=7, **{"from": to_s - 300, "to": to_s})
    assert (timeline["to_s"], timeline["bin_s"]) == (to_s, pytest.approx(300 / 7))
    for row in timeline["sources"]:
        events = get(server, limit=500, source=row["source"], **{"from": to_s - 300, "to": to_s})
        assert len(row["counts"]) == 7
        if len(events) < 500:
            assert sum(row["counts"]) == len(events) > 0
    (lane,) = get(server, "/timeline", source="lane", kind="crossed")["sources"]
    assert lane["source"] == "lane"


@pytest.mark.parametrize(
    ("path", "params", "status"),
    [
        ("", {"limit": 0}, 422),
        ("", {"limit": 501}, 422),
        ("", {"from": "nan"}, 422),
        ("", {"from": -1}, 422),
        ("", {"text": "x" * 201}, 422),
        ("/timeline", {"from": 5, "to": 5}, 422),
        ("/timeline", {"bins": 0}, 422),
        ("/999999999", {}, 404),
        ("/-1", {}, 404),
        (f"/{2**70}", {}, 404),
        ("/x", {}, 422),
    ],
)
def test_invalid_parameters_are_refused_with_the_reason(server, path, params, status):
    answer = server.open.get(f"/api/v1/events{path}", params=params)
    assert answer.status_code == status
    assert answer.json()["error"]


def test_the_store_reports_its_state(server):
    about = get(server, "/store")
    assert about["bytes"] > 10_000
    assert about["problem"] == ""


# ---------------------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("source", ["street", "lane"])
def test_the_clip_at_the_events_offset_equals_its_image(server, source, tmp_path):
    event = with_clip(server, source)[-1]
    base = f"/api/v1/events/{event['number']}"
    assert get(server, f"/{event['number']}") == event
    small = image(server.client.get(f"{base}/image.jpg"))
    answer = server.client.get(f"{base}/clip.mp4")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "video/mp4")
    assert answer.headers["content-disposition"] == f'inline; filename="{source}-crossed-{event["number"]}.mp4"'
    (tmp_path / "clip.mp4").write_bytes(answer.content)
    with av.open(str(tmp_path / "clip.mp4")) as clip:
        first_s = clip.streams.video[0].start_time * clip.streams.video[0].time_base
        frames = {
            float(frame.pts * frame.time_base - first_s): frame.to_ndarray(format="bgr24")
            for frame in clip.decode(video=0)
        }
    near = min(frames, key=lambda at_s: abs(at_s - event["clip_s"]))
    assert near == pytest.approx(event["clip_s"], abs=0.021)
    far = max(frames, key=lambda at_s: abs(at_s - event["clip_s"]))

    def difference(at_s):  # the image has boxes drawn on it, so most pixels agree, not all
        return np.median(np.abs(frames[at_s].astype(int) - small).max(axis=2)), changed(frames[at_s], small)

    assert difference(near)[0] <= 4
    assert abs(far - near) > 0.5
    assert changed(frames[far], small) > changed(frames[near], small) + 0.01


def changed(picture, other_picture):
    return float((np.abs(picture.astype(int) - other_picture).max(axis=2) > 40).mean())


def test_clips_support_range_requests(server):
    event = with_clip(server)[-1]
    path = f"/api/v1/events/{event['number']}/clip.mp4"
    whole = server.client.get(path).content
    size = len(whole)
    for byte_range, part in (("bytes=0-99", whole[:100]), ("bytes=100-", whole[100:]), ("bytes=-50", whole[-50:])):
        answer = server.client.get(path, headers={"range": byte_range})
        assert (answer.status_code, answer.content) == (206, part)
        assert answer.headers["content-range"].endswith(f"/{size}")
    assert server.client.get(path, headers={"range": f"bytes={size}-"}).status_code == 416
    assert server.open.get(path, headers={"range": "bytes=0-99"}).status_code == 401


def test_a_snapshot_is_the_file_written_by_the_stage(server):
    event = with_clip(server)[-1]
    shown = image(server.client.get(f"/api/v1/events/{event['number']}/snapshot.jpg"))
    assert shown.shape[0] < 360
    assert server.open.get(f"/api/v1/events/{event['number']}/snapshot.jpg").status_code == 401


def test_only_files_of_the_pipelines_stages_are_sent(server):
    """A plugin names one; a client names one."""
    server.until(lambda: get(server, stage="evil"))
    for event in get(server, stage="evil", limit=20):
        for name in ("clip.mp4", "snapshot.jpg"):
            answer = server.client.get(f"/api/v1/events/{event['number']}/{name}")
            assert b"root:" not in answer.content
            assert answer.status_code in (200, 404)  # 200: a clip of `record` shows it
    attacks = (
        "..%2f..%2fetc%2fpasswd",
        "1/..%2f..%2f..%2f..%2fetc%2fpasswd",
        "1/clip.mp4/../../../../etc/passwd",
        "%2e%2e/%2e%2e/etc/passwd",
        "1/clip.mp4?path=/etc/passwd",
        "1/clip.mp4%00.jpg",
        "1/%2fetc%2fpasswd",
    )
    for attack in attacks:
        answer = httpx.get(f"{server.url}api/v1/events/{attack}", headers={"authorization": f"Bearer {TOKEN}"})
        assert b"root:" not in answer.content
        assert answer.status_code in (200, 404, 422)


def test_only_clips_and_jpegs_are_sent_whatever_a_stage_names(root, tmp_path, monkeypatch):
    """A plugin may be a kind of `record`; its events name a file that is no clip."""
    monkeypatch.chdir(tmp_path)
    for name in ("secret.txt", "secret.mp4.txt", "secret"):
        (tmp_path / name).write_text("password")
    (tmp_path / "keeper.py").write_text(KEEPERS)
    coded.clip(tmp_path / "gate.mp4", 50)
    text = (
        "plugins: [keeper.py]\nsources: {cam: {uri: gate.mp4, loop: true}}\n"
        "stages: {clips: {stage: clip_keeper}, shots: {stage: shot_keeper, when: clips.tick}}\n"
    )
    with served(text, tmp_path) as server:
        server.running("cam")
        server_events = server.until(
            lambda: [
                event
                for event in server.client.get("/api/v1/events?limit=500").json()
                if event["kind"] in ("recorded", "tick") and (event["clip"] or event["snapshot"])
            ]
        )
        for event in server_events[:8]:
            for name in ("clip.mp4", "snapshot.jpg"):
                answer = server.client.get(f"/api/v1/events/{event['number']}/{name}")
                assert (answer.status_code, b"password" in answer.content) == (404, False), answer.text


def test_a_clip_that_was_removed_is_not_offered(server):
    event = with_clip(server)[-1]
    stored = server.engine.store.event(event["number"])
    os.rename(stored.clip, f"{stored.clip}.away")
    try:
        assert (get(server, f"/{event['number']}")["clip"], get(server, f"/{event['number']}")["clip_s"]) == (
            False,
            None,
        )
        answer = server.client.get(f"/api/v1/events/{event['number']}/clip.mp4")
        assert (answer.status_code, answer.json()["error"]) == (
            404,
            f"there is no clip of event {event['number']}, or it was removed",
        )
    finally:
        os.rename(f"{stored.clip}.away", stored.clip)


# --------------------------------------------------------------------------------------------------------------- stream


def lines(server, count, **headers):
    """The first events of the stream."""
    events = []
    with server.client.stream("GET", "/api/v1/events/stream", headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            if line.startswith("data: "):
                events.append(json.loads(line[6:]))
            if len(events) == count:
                return events
    raise AssertionError("the stream has ended")


def test_new_events_are_streamed_and_a_reconnecting_client_misses_none(server):
    before = get(server, limit=1)[0]["number"]
    numbers = [event["number"] for event in lines(server, 4)]
    assert numbers[0] > before
    assert numbers == sorted(set(numbers))
    again = lines(server, 5, **{"last-event-id": str(before - 3)})
    assert [event["number"] for event in again] == list(range(before - 2, before + 3))
    assert again[0]["text"]
    assert server.open.get("/api/v1/events/stream").status_code == 401


def test_the_number_of_streams_is_limited(server, monkeypatch):
    with contextlib.ExitStack() as stack:
        for _ in range(64):
            stack.enter_context(server.client.stream("GET", "/api/v1/events/stream"))  # each on a connection of its own
        refused = server.client.get("/api/v1/events/stream")
        assert (refused.status_code, "64 event streams" in refused.json()["error"]) == (429, True)
    server.until(lambda: next(iter(lines(server, 1)), None), 10)


def test_an_idle_stream_sends_keepalives(root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    monkeypatch.setattr(routes, "_BEAT_S", 0.3)
    quiet = "sources: {cam: {uri: 'test://', pace: 5}}\nstages: {jsonl: {path: /dev/null}}"
    with served(quiet, root) as instance, instance.client.stream("GET", "/api/v1/events/stream") as answer:
        assert ": still here" in answer.iter_lines()


# --------------------------------------------------------------------------------------------------------------- charts


def series(server, name, **params):
    answer = server.open.get("/api/v1/series", params={"name": name, **params})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_charts_return_the_values_of_the_pipeline(server):
    def rates():
        rates_by_source = {row["source"]: row["values"] for row in series(server, "frames")["series"]}
        return (
            rates_by_source
            if len(rates_by_source) == 2 and all(len(values) > 2 for values in rates_by_source.values())
            else None
        )

    rates_by_source = server.until(rates, 60)
    for source in ("street", "lane"):
        now = server.source(source)
        assert 0 < rates_by_source[source][-1][1] <= 27
        dropped = series(server, "dropped", source=source)
        assert sum(value for _, value in dropped["series"][0]["values"]) <= sum(now["dropped"].values())
        assert (dropped["unit"], dropped["sums"], dropped["step_s"]) == ("frames", True, 10)
        (latency,) = series(server, "latency", source=source)["series"]
        assert 1 < latency["values"][-1][1] < 60_000
    lines_of = {
        (row["source"], row["label"]): sum(v for _, v in row["values"]) for row in series(server, "counts")["series"]
    }
    assert {key[1] for key in lines_of} == {"line in", "line out"}
    newest = get(server, source="street", kind="crossed", limit=1)[0]["data"]
    assert lines_of["street", "line in"] == pytest.approx(newest["in"], abs=5)
    (disk,) = series(server, "disk")["series"]
    assert (disk["source"], disk["values"][-1][1] > 0) == ("", True)
    for wrong in ({"name": "weather"}, {"name": "frames", "from": 5, "to": 4}, {}):
        assert server.open.get("/api/v1/series", params=wrong).status_code == 422


@pytest.mark.parametrize("head", ["", pytest.param(TWO, marks=pytest.mark.long)], ids=["one process", "two processes"])
def test_records_that_wait_in_a_spool_are_charted(root, tmp_path, monkeypatch, head):
    monkeypatch.chdir(root)
    monkeypatch.setattr("streamkit.serve.store.serve_store.SAMPLE_EVERY_S", 0.5)
    waiting = f"""
{head}
sources:
  one: {{uri: "test://", pace: 10}}
  two: {{uri: "test://", pace: 10}}
stages:
  hook: {{stage: webhook, url: "http://127.0.0.1:9/", spool: {{path: {tmp_path}/spool}}}}
"""
    with served(waiting, root) as instance:
        instance.running("one")
        instance.until(
            lambda: (spool_series := series(instance, "spool")["series"]) and spool_series[0]["values"][-1][1] > 5
        )


# ------------------------------------------------------------------------------------------------------------- restarts


def test_events_clips_and_charts_survive_a_restart(root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    monkeypatch.setattr("streamkit.serve.store.serve_store.SAMPLE_EVERY_S", 0.5)
    with served(text(tmp_path), root, data=tmp_path / "data") as instance:
        instance.running("street")
        old = instance.until(lambda: with_clip(instance), 60)[0]
        small = instance.client.get(f"/api/v1/events/{old['number']}/image.jpg").content
        instance.until(lambda: series(instance, "frames")["series"])
        last = instance.open.get("/api/v1/status").json()["last_event"]
    with served(text(tmp_path), root, data=tmp_path / "data") as instance:
        assert instance.open.get("/api/v1/status").json()["last_event"] >= last
        assert get(instance, f"/{old['number']}") == old
        assert instance.client.get(f"/api/v1/events/{old['number']}/image.jpg").content == small
        assert instance.client.get(f"/api/v1/events/{old['number']}/clip.mp4").status_code == 200
        assert series(instance, "frames", source="street")["series"]
        instance.running("street")
        new = instance.until(lambda: get(instance, after=last), 60)
        assert min(event["number"] for event in get(instance, after=last, limit=500)) > last
        assert new[0]["time_s"] > old["time_s"]


def serve(root, tmp_path, *words):
    command = [sys.executable, "run.py", "serve", str(tmp_path / "p.yaml"), "--port", "0", *words]
    return subprocess.Popen(
        command, cwd=root, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )


@pytest.mark.long
def test_the_command_stores_its_data_in_the_given_folder(root, tmp_path):
    (tmp_path / "p.yaml").write_text("sources: {cam: {uri: 'test://', pace: 5}}\nstages: {jsonl: {path: /dev/null}}")
    running = serve(root, tmp_path, "--data", str(tmp_path / "a" / "b"), "--keep-events", "2d", "--keep-size", "50MB")
    try:
        while "serving" not in (line := running.stderr.readline()):
            assert line, "it has ended"
        second = serve(root, tmp_path, "--data", str(tmp_path / "a" / "b"))
        _, errors = second.communicate(timeout=60)
        assert second.returncode == 1
        assert "used by another server; give each server its own with --data" in errors
    finally:
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=30)
    assert (tmp_path / "a" / "b" / "serve.db").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    for words, message in (
        (("--keep-events", "soon"), "--keep-events: must be a duration"),
        (("--keep-size", "big"), "--keep-size: must be a size"),
        (("--data", "/proc/nothing/here"), "cannot write the data folder /proc/nothing/here"),
    ):
        ended = serve(root, tmp_path, *words)
        _, errors = ended.communicate(timeout=60)
        assert ended.returncode in (1, 2)
        assert message in errors


def test_a_full_disk_is_reported_and_loses_no_frame(root, tmp_path, monkeypatch):
    from streamkit.serve.store import database

    monkeypatch.chdir(root)
    monkeypatch.setattr("streamkit.serve.store.serve_store._RETRY_S", 0.5)
    connect = database.ServeDatabase.connect
    full = [False]

    def connected(self):
        connection = connect(self)
        if full[0]:
            connection.execute("PRAGMA max_page_count = 1")
        return connection

    monkeypatch.setattr(database.ServeDatabase, "connect", connected)
    with served(text(tmp_path), root) as instance:
        instance.running("street")
        instance.until(lambda: get(instance))
        full[0] = True
        instance.engine.store._connection = None
        assert "disk is full" in instance.until(lambda: get(instance, "/store")["problem"])
        frames = instance.source("street")["frames"]
        last = get(instance)[0]["number"]
        instance.until(lambda: instance.source("street")["frames"] > frames + 25)
        assert instance.until(lambda: get(instance, after=last)), "new events are shown from memory"
        full[0] = False
        instance.engine.store._connection = None
        instance.until(lambda: not get(instance, "/store")["problem"])
        instance.until(lambda: instance.engine.store._connection and not instance.engine.store._events)
    assert not [line for line in instance.logged if "Traceback" in line]


def test_events_of_plugins_are_described_in_sentences(server):
    event = server.until(lambda: get(server, stage="evil", kind="saved"))[0]
    assert event["text"] == f"A snapshot of the frame at {event['source']} was saved for line crossed."
    server.engine.gallery.add_events(
        time.time(), [Event("too_close", "mine", "yard", 1, 0.1, None, {"a": {"b": [1]}})], None
    )
    assert get(server, source="yard")[0]["text"] == "Too close at yard, from mine: a b 1."
