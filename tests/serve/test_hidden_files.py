"""Clips, snapshots and images of events of a camera while a stage hides something: also those from before."""

import pytest
from support import coded
from support.servers import served

PLUGIN = '''
from streamkit import FrameStage, stage
from streamkit.stages.video.record import Record
from streamkit.stages.video.snapshot import Snapshot

@stage("tick", writes="events")
class Tick(FrameStage):
    """Emits an event every ten frames."""

    def process(self, frame):
        if frame.index % 10 == 5:
            frame.emit("tick")
'''
PIPELINE = """
plugins: [tick.py]
sources: {gate: {uri: gate.mp4, pace: realtime, loop: true}}
stages:
  tick: {}
  DRAW
  record: {from: tick, when: tick.tick, before: 200ms, after: 200ms, path: "clips/{source}-{time}.mp4" HIDDEN}
  snapshot: {from: DRAWN, when: tick.tick, capture: frame, path: "shots/{source}-{time}.jpg" SHOWN}
"""
MASK = "draw: {blur: {zone: [[0, 0], [1, 0], [1, 1]], units: share}}"


@pytest.fixture
def begin(tmp_path, monkeypatch):
    """Serve the pipeline with a mask, which allows what is given; the data folder is the same each time."""
    monkeypatch.chdir(tmp_path)
    coded.clip(tmp_path / "gate.mp4", 50)
    (tmp_path / "tick.py").write_text(PLUGIN)

    def serve(mask="", hidden="", shown=""):
        text = PIPELINE.replace("DRAWN", "draw" if mask else "tick").replace("DRAW", mask)
        text = text.replace(" HIDDEN", f", hidden: {hidden}" * bool(hidden)).replace(" SHOWN", shown)
        return served(text, tmp_path, path=tmp_path / "pipeline.yaml", data=tmp_path / "data")

    return serve


def whole_event(server, after=0):
    """The first event that has a clip, a snapshot and an image."""

    def find():
        events = server.client.get(f"/api/v1/events?kind=tick&limit=500&after={after}").json()
        return [event for event in events if event["clip"] and event["snapshot"] and event["image"]]

    return server.until(find, 60)[-1]["number"]


def statuses(server, number):
    return {
        name: server.client.get(f"/api/v1/events/{number}/{name}").status_code
        for name in ("clip.mp4", "snapshot.jpg", "image.jpg")
    }


CLEAR = {"clip.mp4": 200, "snapshot.jpg": 200, "image.jpg": 200}


def test_files_older_than_a_mask_are_refused_until_it_is_removed(begin, tmp_path):
    with begin() as server:
        server.running("gate")
        old = whole_event(server)
        assert statuses(server, old) == CLEAR
        last = server.engine.store.last_number
    with begin(MASK) as server:
        server.running("gate")
        assert statuses(server, old) == dict.fromkeys(CLEAR, 403)
        masked = whole_event(server, after=last)
        assert statuses(server, masked) == {**CLEAR, "clip.mp4": 403}
        refused = server.client.get(f"/api/v1/events/{old}/clip.mp4").json()["error"]
        assert refused == (
            "the clip shows what draw hides; to show clips nevertheless, write `hidden: allow` under record in the YAML"
        )
        refused = server.client.get(f"/api/v1/events/{old}/image.jpg").json()["error"]
        assert refused == f"the image of event {old} is older than what draw hides now, and may show it"
        assert server.open.get(f"/api/v1/events/{old}/clip.mp4").status_code == 401
    with begin(MASK) as server:  # the store knows it over a restart
        assert statuses(server, old) == dict.fromkeys(CLEAR, 403)
        assert statuses(server, masked) == {**CLEAR, "clip.mp4": 403}
    with begin(MASK.replace("[1, 0]", "[0.5, 0]")) as server:  # another place
        assert statuses(server, masked) == dict.fromkeys(CLEAR, 403)
    with begin() as server:
        assert statuses(server, old) == statuses(server, masked) == CLEAR


def test_files_allowed_by_the_yaml_are_shown(begin):
    with begin() as server:
        server.running("gate")
        old = whole_event(server)
    with begin(MASK, hidden="allow", shown=", show_hidden: true") as server:
        assert statuses(server, old) == {"clip.mp4": 200, "snapshot.jpg": 200, "image.jpg": 403}
    with begin(MASK, hidden="refuse") as server:
        assert statuses(server, old)["clip.mp4"] == 403


def test_a_mask_added_live_hides_at_once(begin, tmp_path):
    with begin() as server:
        server.running("gate")
        old = whole_event(server)
        config = server.client.get("/api/v1/config").json()
        text = config["text"].replace("snapshot: {from: tick", "snapshot: {from: draw")
        text = text.replace("  tick: {}\n", f"  tick: {{}}\n  {MASK}\n")
        answer = server.client.put("/api/v1/config", json={"text": text, "hash": config["hash"]})
        assert answer.status_code == 200, answer.text
        assert any("the API does not show its clips" in problem["text"] for problem in answer.json()["problems"])
        server.until(lambda: server.client.get("/api/v1/status").json()["hides"])
        assert statuses(server, old) == dict.fromkeys(CLEAR, 403)


HIDES_OBJECTS = """
sources: {{street: {{uri: "{root}/samples/street.mp4", loop: true}}}}
stages:
  detect: {{model: demo}}
  track: {{}}
  line: {{stage: line_counter, line: [[320, 60], [320, 360]]}}
  draw: {{blur: {blur}}}
  jsonl: {{path: /dev/null}}
"""


@pytest.mark.parametrize(
    ("blur", "status"),
    [("[person]", 403), ("all", 403), ("{zone: [[0, 0], [9, 0], [9, 9]]}", 200)],
)
def test_an_operator_cannot_disable_the_hiding_of_objects(root, blur, status):
    with served(HIDES_OBJECTS.format(root=root, blur=blur), root) as server:
        server.running("street")
        token = server.client.post("/api/v1/tokens", json={"name": "olga", "role": "operator"}).json()["token"]
        operator = {"authorization": f"Bearer {token}"}
        for stage in ("detect", "detect.postprocess"):
            answer = server.open.patch(f"/api/v1/stages/{stage}", json={"labels": ["car"]}, headers=operator)
            assert answer.status_code == status, answer.text
        if status == 403:
            assert answer.json()["error"] == (
                "draw hides objects of detect, and other settings could leave them visible: this needs the role admin"
            )
        line = {"line": [[300, 60], [300, 360]]}
        assert server.open.patch("/api/v1/stages/line", json=line, headers=operator).status_code == 200
        assert server.client.patch("/api/v1/stages/detect", json={"min_score": 0.4}).status_code == 200
