"""Who may see some camera groups only finds nothing of other cameras in any operation of the API and in no socket."""

import itertools
import json
import re
import time
from types import SimpleNamespace

import httpx
import orjson
import pytest
from support.live_clients import socket
from support.servers import TOKEN, served
from websockets.exceptions import ConnectionClosed, InvalidStatus

from streamkit.config.source_details import SourceDetails
from streamkit.core.data import Event
from streamkit.serve.identity import Identity, checked_groups, may_see

HIDDEN = "vault-9"
ABSENT = "absent-1"
SECRETS = ("vault-9", "vault-8", "Secret vault", "vault", "lobby-5", "geheim")
CLIP = "uri: samples/street.mp4, every: 3, pace: 10, loop: true, pace_seed: 1"
PIPELINE = f"""
plugins: [plugins]
sources:
  yard-7: {{{CLIP}, group: yard, name: Yard seven}}
  vault-9: {{{CLIP}, group: vault, name: Secret vault}}
  yard-8: {{uri: "rtsp://127.0.0.1:9/front", group: yard}}
  vault-8: {{uri: "rtsp://127.0.0.1:9/geheim", group: vault}}
  lobby-5: {{uri: "test://?width=96&height=64&frames=0", pace: 5}}
alarms:
  lost: {{when: down_s > 0.1}}
stages:
  detect: {{model: demo}}
  track: {{stage: simple_track}}
  line: {{stage: line_counter, line: [[320, 60], [320, 360]]}}
  zone: {{polygon: [[100, 100], [540, 100], [540, 300], [100, 300]]}}
  heatmap: {{path: "FOLDER/heat-{{source}}.png"}}
  snapshot: {{path: "FOLDER/{{source}}-{{time}}.jpg", when: line.crossed}}
  record: {{continuous: true, segment: 2s, folder: FOLDER/recordings}}
"""
ENDLESS = (".mjpg", "/stream")
BODIES = {
    ("POST", "/api/v1/sources/test"): {"id": HIDDEN},
    ("PUT", "/api/v1/sources/{id}"): {"uri": "rtsp://127.0.0.1:9/other"},
    ("POST", "/api/v1/alarms/{name}/acknowledge"): {"source": HIDDEN},
    ("POST", "/api/v1/problems/acknowledge"): {"id": f"source_down:{HIDDEN}"},
    ("PATCH", "/api/v1/stages/{id}"): {"conf": 0.5},
    ("POST", "/api/v1/session"): {"token": "not a token of anybody"},
    ("POST", "/api/v1/review/reviewed"): {"ids": ["REVIEW"]},
    ("PATCH", "/api/v1/review/{id}"): {"kept": True},
    ("POST", "/api/v1/push/silence"): {"source": HIDDEN, "minutes": 5},
}
OWN_TEST = {("POST", "/api/v1/sources"), ("POST", "/api/v1/sources.csv"), ("DELETE", "/api/v1/session")}


@pytest.fixture(scope="module")
def server(root, tmp_path_factory):
    folder = tmp_path_factory.mktemp("groups")
    text = PIPELINE.replace("[plugins]", f"[{root}/plugins]").replace("FOLDER", str(folder))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        with served(text.replace("samples/", f"{root}/samples/"), root, path=folder / "pipeline.yaml") as api_server:
            for id_ in ("yard-7", HIDDEN, "lobby-5"):
                api_server.running(id_)
            api_server.until(lambda: len(sources_of_events(api_server.client, "line")) == 2)
            api_server.client.patch("/api/v1/stages/heatmap", json={"trigger": 7})
            api_server.until(lambda: len(api_server.client.get("/api/v1/heatmaps").json()) >= 2)
            api_server.until(lambda: len(api_server.client.get("/api/v1/recordings").json()) == 2)
            api_server.until(lambda: down(api_server.client) == {"yard-8", "vault-8"})
            yield api_server


def sources_of_events(client, stage):
    events = client.get("/api/v1/events", params={"stage": stage}).json()
    return {event["source"] for event in events}


def down(client):
    """The sources that are down, which has raised an alarm."""
    problems = client.get("/api/v1/problems").json()
    return {id_ for problem in problems if "lost" in problem["alarms"] for id_ in problem["sources"]}


@pytest.fixture(scope="module")
def limited(server):
    """A client whose token is an operator's, for the group of the yard."""
    new = {"name": "guard", "role": "operator", "groups": ["yard"]}
    token = server.client.post("/api/v1/tokens", json=new).json()["token"]
    with httpx.Client(base_url=server.url, timeout=20, headers={"authorization": f"Bearer {token}"}) as client:
        yield client


def operations(server):
    """Method, path, and the names of the query parameters."""
    for path, calls in server.open.get("/openapi.json").json()["paths"].items():
        for method, call in calls.items():
            parameters = call.get("parameters", [])
            yield method.upper(), path, {entry["name"] for entry in parameters if entry["in"] == "query"}


def hidden_event(server):
    """The number of an event of a hidden camera that has a snapshot."""

    def number():
        events = server.client.get("/api/v1/events", params={"stage": "line", "source": HIDDEN, "limit": 500}).json()
        return next((event["number"] for event in events if event["snapshot"]), None)

    return server.until(number)


def sent(client, method, path, query, values, source):
    """The response to one operation, where every place that names a source has `source`."""
    values = {"{id}": source, **values}
    if path.startswith("/api/v1/stages"):
        values["{id}"] = "detect"
    if path.startswith("/api/v1/review"):
        values["{id}"] = values["{review}"]
    target = re.sub(r"\{\w+\}", lambda name: str(values.get(name[0], "lost")), path)
    params = dict.fromkeys(query & {"source"}, source)
    now_s = 1_000_000_000.0
    recent_s = time.time() // 10 * 10 - 10
    bounds = {"from": now_s, "to": now_s + 60, "from_s": recent_s, "to_s": recent_s + 8, "time_s": recent_s + 4}
    params |= {name: bound for name, bound in bounds.items() if name in query}
    text = orjson.dumps(BODIES.get((method, path))).decode().replace(HIDDEN, source)
    text = text.replace('"REVIEW"', str(values["{review}"]))
    body = None if text == "null" else json.loads(text)
    return client.request(method, target, params=params, json=body)


def neutral(answer, source, *numbers):
    """A response without the id or numbers that were asked for, and what differs in each."""
    text = re.sub(r'"(request_id|time_s|created_s)":\s*("[^"]*"|[\d.]+)', "", answer.text)
    text = re.sub(r'"yard-7":\d+', "", text)  # its items become more meanwhile
    for number in numbers:
        text = re.sub(rf"\b{number}\b", "N", text)
    return answer.status_code, re.sub(re.escape(source), "ID", text)


def read_for(opened, seconds):
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        opened.recv(timeout=seconds)


# ------------------------------------------------------------------------------------------------------ all operations


def test_what_names_a_hidden_camera_is_answered_as_if_there_were_none(server, limited):
    number = hidden_event(server)
    hidden_items = server.client.get("/api/v1/review", params={"source": HIDDEN}).json()
    item = hidden_items[0]["id"]
    paths = 0
    for method, path, query in operations(server):
        if (method, path) in OWN_TEST or not ("{" in path or "source" in query or (method, path) in BODIES):
            continue
        if method == "GET" and "{" not in path and "source" not in query:
            continue
        paths += 1
        there = {"{number}": number, "{review}": item, "{stage}": "heatmap"}
        hidden = sent(limited, method, path, query, there, HIDDEN)
        nowhere = {"{number}": 9**15, "{review}": 9**15, "{stage}": "heatmap"}
        absent = sent(limited, method, path, query, nowhere, ABSENT)
        assert neutral(hidden, HIDDEN, number, item) == neutral(absent, ABSENT, 9**15), (method, path)
        if "{id}" in path and "stages" not in path and "sessions" not in path:
            assert hidden.status_code == 404, (method, path)
        if "{number}" in path:
            assert hidden.status_code == 404, (method, path)
    assert paths > 25
    assert server.source(HIDDEN)["state"] == "running"
    item_now = server.client.get(f"/api/v1/review/{item}").json()["item"]
    assert (item_now["kept"], item_now["reviewed_by"]) == (False, None)


def test_no_answer_has_anything_of_hidden_cameras(server, limited):
    revealing = set()
    for method, path, query in operations(server):
        if method != "GET" or path.endswith(ENDLESS) or "{" in path:
            continue
        params = {"name": "frames"} if "name" in query else {}
        if path.startswith("/api/v1/recordings/"):
            params = {"source": "yard-7", "from_s": time.time() - 40, "to_s": time.time(), "time_s": time.time()}
        if any(secret in server.client.get(path, params=params).text for secret in SECRETS):
            revealing.add(path)
        answer = limited.get(path, params=params)
        assert not [secret for secret in SECRETS if secret in answer.text], (path, answer.text[:2000])
        not_recorded_yet = path.startswith("/api/v1/recordings/") and answer.status_code == 404
        assert answer.status_code in (200, 403) or not_recorded_yet, path
    names = "sources sources.csv status problems alarms alarms/history events events/names events/timeline series"
    names += (
        " review review/open logs counts counts.csv occupancy heatmaps config audit shapes recordings source-changes"
    )
    assert {f"/api/v1/{name}" for name in names.split()} - {"/api/v1/audit"} | {"/metrics"} <= revealing


def test_the_visible_cameras_are_there_as_for_everybody(server, limited):
    assert {source["id"] for source in limited.get("/api/v1/sources").json()} == {"yard-7", "yard-8"}
    assert limited.get("/api/v1/sources/yard-7/snapshot.jpg").content[:2] == b"\xff\xd8"
    assert sources_of_events(limited, "line") == {"yard-7"}
    event = limited.get("/api/v1/events", params={"stage": "line"}).json()[0]
    assert limited.get(f"/api/v1/events/{event['number']}/image.jpg").status_code == 200
    assert limited.get("/api/v1/events/names").json()["sources"] == ["yard-7", "yard-8"]
    assert {row["source"] for row in limited.get("/api/v1/counts").json()["rows"]} == {"yard-7"}
    assert down(limited) == {"yard-8"}
    (alarm,) = limited.get("/api/v1/alarms").json()
    assert [raised["source"] for raised in alarm["raised"]] == ["yard-8"]
    assert any("yard-8" in message["text"] for message in limited.get("/api/v1/logs").json())
    assert 'source="yard-7"' in limited.get("/metrics").text
    status = limited.get("/api/v1/status").json()
    assert 0 < status["frames"] < server.client.get("/api/v1/status").json()["frames"]


def test_a_journey_does_not_name_hidden_cameras(server, limited):
    stays = [{"source": "yard-7", "from_s": 0.0, "to_s": 5.0}, {"source": HIDDEN, "from_s": 9.0, "to_s": 12.0}]
    event = Event("journey", "identify", "yard-7", 0, 0.0, None, {"stays": stays, "last": "Secret vault"})
    server.engine.gallery.add_events(time.time(), [event], None)
    query = {"kind": "journey"}
    (shown,) = limited.get("/api/v1/events", params=query).json()
    assert [stay["source"] for stay in shown["data"]["stays"]] == ["yard-7", "another camera"]
    assert HIDDEN not in str(shown) + limited.get(f"/api/v1/events/{shown['number']}").text
    assert HIDDEN in server.client.get("/api/v1/events", params=query).text


# ------------------------------------------------------------------------------------------------- streams and sockets


@pytest.mark.parametrize("path", ["/api/v1/events/stream", "/api/v1/logs/stream"])
def test_streams_have_visible_cameras_only(server, limited, path):
    with limited.stream("GET", path, headers={"last-event-id": "1"}) as answer:
        text = ""
        until_s = time.monotonic() + 10
        for part in answer.iter_text():
            text += part
            if text.count("data: ") > 3 or time.monotonic() > until_s:
                break
    assert "yard-" in text
    assert not [secret for secret in SECRETS if secret in text]


def test_the_socket_of_records_has_visible_cameras_only(server, limited):
    headers = {"authorization": limited.headers["authorization"]}
    with socket(server, "records", headers) as opened:
        text = "".join(opened.recv(timeout=20) for _ in range(30))
    assert "yard-7" in text
    assert not [secret for secret in SECRETS if secret in text]
    for source in (HIDDEN, ABSENT):
        with pytest.raises(InvalidStatus) as error, socket(server, f"records?source={source}", headers):
            pass
        assert error.value.response.status_code == 404


def test_the_socket_of_videos_refuses_hidden_cameras_like_absent_ones(server, limited):
    with socket(server, "videos", {"authorization": limited.headers["authorization"]}) as opened:
        texts = []
        for source in (HIDDEN, ABSENT):
            opened.send(json.dumps({"sources": [source]}))
            texts.append(opened.recv(timeout=20).replace(source, "ID"))
    assert texts[0] == texts[1]
    assert "there is no source" in texts[0]


def test_a_stream_ends_when_its_camera_moves_to_another_group(server, limited):
    new = {"id": "moving", "uri": "test://?width=96&height=64&frames=0", "options": {"pace": 5, "group": "yard"}}
    assert server.client.post("/api/v1/sources", json=new).status_code == 201
    server.running("moving")
    headers = {"authorization": limited.headers["authorization"]}
    try:
        with socket(server, "records?source=moving", headers) as opened:
            assert "moving" in opened.recv(timeout=20)
            change = {"options": {"pace": 5, "group": "vault"}}
            assert server.client.put("/api/v1/sources/moving", json=change).status_code == 200
            with pytest.raises(ConnectionClosed):
                read_for(opened, 20)
        assert limited.get("/api/v1/sources/moving").status_code == 404
    finally:
        server.client.delete("/api/v1/sources/moving")


# ------------------------------------------------------------------------------------------------------------- changes


def test_cameras_are_added_and_moved_within_the_groups_only(server, limited):
    address = "rtsp://127.0.0.1:9/new"
    for options in ({}, {"group": "vault"}):
        answer = limited.post("/api/v1/sources", json={"id": "new", "uri": address, "options": options})
        assert answer.status_code == 403
        assert "groups: yard" in answer.json()["error"]
    taken = limited.post("/api/v1/sources", json={"id": HIDDEN, "uri": address, "options": {"group": "yard"}})
    assert taken.status_code == 409
    assert HIDDEN not in taken.text
    csv = f"id,uri,group\nnew,{address},yard\n{HIDDEN},{address},yard\nnewer,{address},vault\n"
    lines = limited.post("/api/v1/sources.csv", json={"csv": csv, "mode": "check"}).json()["lines"]
    assert [bool(line["problem"]) for line in lines] == [False, True, True]
    new = {"id": "new", "uri": address, "options": {"group": "yard"}}
    assert limited.post("/api/v1/sources", json=new).status_code == 201
    assert limited.put("/api/v1/sources/new", json={"options": {"group": "vault"}}).status_code == 403
    assert limited.delete("/api/v1/sources/new").status_code == 204


def test_the_id_of_a_removed_camera_gives_nobody_its_history(server, limited):
    crossed = Event("crossed", "line", "old-safe", 0, 0.0, 1, {"direction": "in", "label": "car"})
    server.engine.gallery.add_events(time.time(), [crossed], None)
    server.until(lambda: "old-safe" in server.client.get("/api/v1/events/names").json()["sources"])
    again = {"id": "old-safe", "uri": "rtsp://127.0.0.1:9/new", "options": {"group": "yard"}}
    taken = limited.post("/api/v1/sources", json=again)
    assert (taken.status_code, taken.json()["error"]) == (409, "this id cannot be used; choose another one")
    assert server.client.post("/api/v1/sources", json={**again, "options": {"group": "vault"}}).status_code == 201
    assert server.client.delete("/api/v1/sources/old-safe").status_code == 204


def test_what_concerns_all_cameras_is_for_people_without_a_limit(server, limited):
    answer = limited.patch("/api/v1/stages/detect", json={"conf": 0.6})
    assert answer.status_code == 403
    assert "concerns all cameras" in answer.json()["error"]
    assert limited.post("/api/v1/config/differences/restore").status_code == 403
    assert limited.post("/api/v1/push/silence", json={"source": "", "minutes": 5}).status_code == 403
    assert limited.post("/api/v1/push/escalation", json={"minutes": 5}).status_code == 403


def test_a_person_has_the_same_limit_as_a_token(server):
    new = {"name": "anna", "role": "viewer", "groups": ["yard"]}
    password = server.client.post("/api/v1/people", json=new).json()["password"]
    credentials = {"name": "anna", "password": password, "new_password": "correct horse battery"}
    try:
        with httpx.Client(base_url=server.url, timeout=20) as browser:
            assert browser.post("/api/v1/session", json=credentials).status_code == 204
            assert browser.get("/api/v1/session").json()["groups"] == ["yard"]
            assert {source["id"] for source in browser.get("/api/v1/sources").json()} == {"yard-7", "yard-8"}
            assert browser.get(f"/api/v1/sources/{HIDDEN}/snapshot.jpg").status_code == 404
    finally:
        server.client.delete("/api/v1/people/anna")
    assert TOKEN not in password


# --------------------------------------------------------------------------------------------------------- the decision


def test_only_sources_of_the_groups_are_seen():
    def source(group):
        return SimpleNamespace(details=SourceDetails(group=group))

    no_groups = Identity("a", "viewer", "key", groups=frozenset())
    guard = Identity("a", "viewer", "key", groups=frozenset({"yard"}))
    everything = Identity("a", "viewer", "key")
    seen = [
        (identity, group, may_see(identity, None if group is None else source(group)))
        for identity, group in itertools.product((no_groups, guard, everything, None), ("yard", "vault", "", None))
    ]
    assert [group for identity, group, sees in seen if sees and identity is no_groups] == []
    assert [group for identity, group, sees in seen if sees and identity is guard] == ["yard"]
    assert [group for identity, group, sees in seen if sees and identity in (everything, None)] == [
        *("yard", "vault", "", None),
        *("yard", "vault", "", None),
    ]


@pytest.mark.parametrize("groups", [[""], [" "], ["x" * 81], ["a\nb"]])
def test_groups_that_no_camera_can_have_are_refused(groups):
    with pytest.raises(ValueError, match="camera group"):
        checked_groups("viewer", groups)
