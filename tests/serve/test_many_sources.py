"""Many sources at once: changes since a version, actions for several, names in CSV and sentences, saved layouts."""

import csv
import io
import json
import stat
import time
from dataclasses import replace

import pytest
from support.clock import FakeClock
from support.servers import TOKEN, served

from streamkit.core.data import Event
from streamkit.serve.source_changes import SourceChanges

TEXT = """
sources:
  gate: {uri: "test://", pace: 5, name: "North gate", group: entrance, site: plant-a, tags: [outdoor], order: 3}
  yard: {uri: "test://", pace: 5, group: yard, order: 2}
  hall: {uri: "test://", pace: 5}
stages: {jsonl: {path: /dev/null}}
"""


@pytest.fixture(scope="module")
def server(root, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        with served(TEXT, root, data=tmp_path_factory.mktemp("data")) as shared_server:
            shared_server.running("gate")
            yield shared_server


def changes(client, since=""):
    return client.get("/api/v1/source-changes", params={"since": since}).json()


def act(server, **action):
    answer = server.client.post("/api/v1/source-actions", json=action)
    assert answer.status_code == 200, answer.text
    return answer.json()


# ------------------------------------------------------------------------------------------------------------- changes


def test_a_client_gets_all_sources_first_in_their_order(server):
    first = changes(server.client)
    assert first["ids"] == ["hall", "yard", "gate"]
    assert {source["id"] for source in first["sources"]} == {"gate", "yard", "hall"}
    assert first["sources"][0].keys() == server.client.get("/api/v1/sources/gate").json().keys()
    again = changes(server.client, first["version"])
    assert again["ids"] is None


@pytest.mark.parametrize(
    ("change", "is_sent"),
    [
        ({}, False),
        ({"frames": 900, "since_s": 61.0}, False),  # as after a second
        ({"since_s": 2.0}, True),  # it was away for a moment
        ({"fps": 25.2}, False),
        ({"fps": 20.0}, True),
        ({"latency": {"p50_ms": 30.5}}, False),
        ({"latency": {"p50_ms": 39.0}}, True),
        ({"message": "the lens is dirty"}, True),
        ({"quiet_s": 3.0}, True),
        ({"name": "South gate"}, True),
    ],
)
def test_only_sources_that_differ_for_a_reader_are_sent_again(server, change, is_sent):
    views = {view.id: view for view in server.engine.sources()}
    steady = replace(views["hall"], state="running", fps=25.0, since_s=60.0, latency={"p50_ms": 30.0}, quiet_s=None)
    views["hall"] = steady
    clock = FakeClock()
    looked = SourceChanges(lambda: list(views.values()), clock)
    version = looked.since("").version
    views = {id_: replace(view, since_s=view.since_s + 1) for id_, view in views.items()}
    views["hall"] = replace(views["hall"], **change)
    clock.now_s += 1.0
    changed = looked.since(version)
    assert [view.id for view in changed.sources] == (["hall"] if is_sent else [])
    assert changed.ids is None
    assert looked.since(changed.version).sources == []


def test_a_version_of_another_server_or_of_nobody_gives_all_sources(server):
    for since in ("", "ffffffff-3", "nonsense", "-", "\u0664-\u0664"):
        assert len(changes(server.client, since)["sources"]) == 3, since


def test_addresses_are_for_operators_only_also_after_a_change_of_role(server):
    version = changes(server.open)["version"]
    assert {source["address"] for source in changes(server.open)["sources"]} == {""}
    signed_in = changes(server.client, version)
    assert {source["address"] for source in signed_in["sources"]} == {"test://"}


def test_a_removed_source_is_missing_from_the_ids(server):
    server.client.post("/api/v1/sources", json={"id": "shed", "uri": "test://"})
    before = server.until(lambda: "shed" in (answer := changes(server.client))["ids"] and answer)
    server.client.delete("/api/v1/sources/shed")
    after = server.until(lambda: (answer := changes(server.client, before["version"]))["ids"] and answer)
    assert after["ids"] == ["hall", "yard", "gate"]


# ------------------------------------------------------------------------------------------------------------- actions


def test_several_sources_are_paused_and_resumed_and_failures_are_named(server):
    result = act(server, ids=["yard", "hall", "nobody"], action="pause")
    assert result == {"done": ["yard", "hall"], "failed": [{"id": "nobody", "problem": "there is no source 'nobody'"}]}
    server.until(lambda: server.source("yard")["state"] == server.source("hall")["state"] == "paused")
    assert act(server, ids=["yard", "hall"], action="resume")["done"] == ["yard", "hall"]
    server.until(lambda: server.source("hall")["state"] == "running")
    entry = server.client.get("/api/v1/audit?action=source-actions").json()
    assert entry[0]["target"] == "yard, hall"


def test_group_and_tags_change_while_the_sources_go_on(server):
    frames = server.running("gate")["frames"]
    act(server, ids=["gate", "yard"], action="change", group="perimeter", add_tags=["night"], remove_tags=["outdoor"])
    try:
        gate = server.source("gate")
        yard = server.source("yard")
        assert (gate["group"], gate["site"], gate["tags"], gate["name"]) == (
            "perimeter",
            "plant-a",
            ["night"],
            "North gate",
        )
        assert (yard["group"], yard["tags"]) == ("perimeter", ["night"])
        assert gate["frames"] >= frames, "it was not restarted"
    finally:
        act(server, ids=["gate"], action="change", group="entrance", add_tags=["outdoor"], remove_tags=["night"])
        act(server, ids=["yard"], action="change", group="yard", remove_tags=["night"])
    assert "tags" not in server.source("yard")["options"]


def test_an_invalid_change_is_refused_for_each_source(server):
    result = act(server, ids=["gate"], action="change", group="two\nlines")
    assert result["done"] == []
    assert "group must be one line" in result["failed"][0]["problem"]
    assert server.client.post("/api/v1/source-actions", json={"ids": [], "action": "pause"}).status_code == 422


# ----------------------------------------------------------------------------------------------------------------- CSV


def test_csv_has_the_details_and_takes_them_back(server):
    text = server.client.get("/api/v1/sources.csv").text
    rows = {row["id"]: row for row in csv.DictReader(io.StringIO(text))}
    assert list(rows["gate"])[:7] == ["id", "uri", "name", "group", "site", "tags", "order"]
    assert [rows["gate"][key] for key in ("name", "group", "site", "tags", "order")] == [
        "North gate",
        "entrance",
        "plant-a",
        "outdoor",
        "3",
    ]
    chosen = server.client.get("/api/v1/sources.csv", params={"id": ["yard"]}).text
    assert [row["id"] for row in csv.DictReader(io.StringIO(chosen))] == ["yard"]
    new = 'id,uri,name,group,site,tags,order\nshed,test://,12,yes,plant-b,day; night,7\nroof,test://,,,,"[a, b]",\n'
    try:
        answer = server.client.post("/api/v1/sources.csv", json={"csv": new, "mode": "all"}).json()
        assert answer["added"] == ["shed", "roof"], answer
        shed = server.source("shed")
        assert (shed["name"], shed["group"], shed["site"], shed["tags"], shed["order"]) == (
            "12",
            "yes",
            "plant-b",
            ["day", "night"],
            7,
        )
        assert server.source("roof")["tags"] == ["a", "b"]
    finally:
        for id_ in ("shed", "roof"):
            server.client.delete(f"/api/v1/sources/{id_}")


# --------------------------------------------------------------------------------------------------------------- names


def test_sentences_of_events_have_the_name_of_the_camera(server):
    event = Event("crossed", "line", "gate", 1, 0.1, 7, {"direction": "in", "label": "car"})
    server.engine.gallery.add_events(time.time(), [event], None)
    shown = server.until(lambda: server.open.get("/api/v1/events?kind=crossed").json())[0]
    assert "at North gate" in shown["text"]
    assert shown["source"] == "gate"


# ------------------------------------------------------------------------------------------------------------- layouts


def layouts(*names, tours=()):
    return {
        "layouts": [{"name": name, "sources": ["gate", "yard"], "size": 4} for name in names],
        "tours": [{"name": name, "stops": [{"layout": stop, "seconds": 5}]} for name, stop in tours],
    }


def test_each_person_has_layouts_of_their_own_that_outlive_the_server(root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    saved = layouts("Gates", "Yard", tours=[("Night", "Yard")])
    with served(TEXT, root, data=tmp_path) as server:
        created = server.client.post("/api/v1/tokens", json={"name": "ann", "role": "viewer"}).json()
        ann = {"authorization": f"Bearer {created['token']}"}
        assert server.client.put("/api/v1/layouts", json=saved).json() == saved
        assert server.open.get("/api/v1/layouts", headers=ann).json() == {"layouts": [], "tours": []}
        assert server.open.put("/api/v1/layouts", headers=ann, json=layouts("Ann's")).status_code == 200
        assert server.open.get("/api/v1/layouts").status_code == 401
    path = tmp_path / "layouts.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text()).keys() == {"admin", "ann"}
    with served(TEXT, root, data=tmp_path) as server:
        headers = {"authorization": f"Bearer {TOKEN}"}
        assert server.open.get("/api/v1/layouts", headers=headers).json() == saved
        assert [layout["name"] for layout in server.open.get("/api/v1/layouts", headers=ann).json()["layouts"]] == [
            "Ann's"
        ]
        server.client.put("/api/v1/layouts", json=layouts())
    assert json.loads(path.read_text()).keys() == {"ann"}


@pytest.mark.parametrize(
    ("saved", "words"),
    [
        (layouts("Gates", "Gates"), "two of the layout 'Gates'"),
        (layouts("Gates", tours=[("Night", "Yard")]), "the tour 'Night' shows 'Yard', which is no layout"),
        ({"layouts": [{"name": "a", "sources": [], "size": 4}], "tours": []}, "sources"),
        ({"layouts": [{"name": "a", "sources": ["gate"], "size": 5}], "tours": []}, "size"),
    ],
)
def test_invalid_layouts_are_refused_and_the_saved_ones_stay(server, saved, words):
    before = server.client.get("/api/v1/layouts").json()
    answer = server.client.put("/api/v1/layouts", json=saved)
    assert answer.status_code == 422
    assert words in answer.json()["error"]
    assert server.client.get("/api/v1/layouts").json() == before


def test_an_unreadable_file_of_layouts_is_put_aside(root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    (tmp_path / "layouts.json").write_text("{broken")
    with served(TEXT, root, data=tmp_path) as server:
        assert server.client.get("/api/v1/layouts").json() == {"layouts": [], "tours": []}
        assert any("the saved layouts cannot be read" in line for line in server.logged)
    assert (tmp_path / "layouts.unreadable").read_text() == "{broken"
