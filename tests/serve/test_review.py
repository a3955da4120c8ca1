"""Review items: which events make one, what people note about them, what is kept, and the crops of their objects."""

import sqlite3
import time
from contextlib import closing

import cv2
import httpx
import numpy as np
import pytest
from support.clock import FakeClock
from support.servers import served

from streamkit.core.data import Event
from streamkit.runtime.preview.gallery import Gallery
from streamkit.serve.routes.review import crop_box
from streamkit.serve.store import review_table
from streamkit.serve.store.review_table import GAP_S, ReviewQuery
from streamkit.serve.store.serve_store import ServeStore, StoreUnreadable

NOW_S = 1_796_000_000.0
SMALL = (0.1, 0.1, 0.2, 0.3)
LARGE = (0.4, 0.2, 0.7, 0.8)


def happened(kind, stage, track=None, **data):
    return Event(kind, stage, "gate", 0, 0.0, track, data)


def crossed(track=7):
    return happened("crossed", "line", track, direction="in", label="car")


def raised(rule="crowd", track=None, **data):
    return happened("raised", "rule", track, rule=rule, since_s=0.0, values={}, **data)


class Run:
    """A store behind a gallery, which writes at each tick."""

    def __init__(self, folder, **limits):
        self.clock = FakeClock()
        self.store = ServeStore(folder, clock=self.clock, **limits)
        self.store.set_severities({("rule", "crowd"): "alert", ("rule", "parked"): "notice"})
        self.gallery = Gallery()
        self.store.follow(self.gallery)
        self.alerts = []
        self.store.on_alert = self.alerts.append

    def add(self, at_s, event, *, jpeg=None, box=None):
        self.gallery.add_events(NOW_S + at_s, [event], jpeg, [box])
        self.clock.sleep(60.0)
        self.store.write_due()

    def items(self, **query):
        return self.store.review(ReviewQuery(**query), 100)

    def end(self):
        with self.store.writing():
            pass


@pytest.fixture
def run(tmp_path):
    store_run = Run(tmp_path / "data", keep_events_s=1e9)
    yield store_run
    store_run.end()


def test_the_events_of_a_track_are_one_item_with_its_largest_picture_and_its_path(run):
    run.add(0, crossed(), jpeg=b"first", box=SMALL)
    run.add(5, happened("entered", "zone", 7, count=1, label="car"), jpeg=b"second", box=LARGE)
    run.add(9, happened("left", "zone", 7, count=0, label="car"), jpeg=b"third", box=SMALL)
    (item,) = run.items()
    assert (item.kind, item.stage, item.track_id, item.label, item.severity) == ("crossed", "line", 7, "car", "notice")
    assert (item.started_s, item.ended_s, item.events) == (NOW_S, NOW_S + 9, 3)
    assert (item.number, item.image, item.box) == (1, 2, LARGE)
    assert item.path == [(NOW_S, 0.15, 0.3), (NOW_S + 5, 0.55, 0.8), (NOW_S + 9, 0.15, 0.3)]
    assert run.store.review_events(item.id) == [1, 2, 3]


def test_a_track_that_comes_back_later_is_another_item(run):
    run.add(0, crossed())
    run.add(GAP_S, crossed())
    run.add(2 * GAP_S + 1, crossed())
    assert [(item.events, item.started_s - NOW_S) for item in run.items()] == [(1, 2 * GAP_S + 1), (2, 0)]


def test_events_of_a_rule_about_the_whole_frame_are_one_item_and_other_tracks_are_others(run):
    run.add(0, raised())
    run.add(1, crossed(track=1))
    run.add(2, crossed(track=2))
    run.add(3, happened("cleared", "rule", rule="crowd", lasted_s=3.0, values={}))
    run.add(4, raised("parked", track=3))
    assert [(item.kind, item.track_id, item.events, item.severity) for item in run.items()] == [
        ("raised", 3, 1, "notice"),
        ("crossed", 2, 1, "notice"),
        ("crossed", 1, 1, "notice"),
        ("raised", None, 2, "alert"),
    ]


@pytest.mark.parametrize(
    "event",
    [
        happened("recorded", "record", path="a.mp4"),
        happened("saved", "snapshot", path="a.jpg"),
        happened("counted", "line", **{"in": 1, "out": 2}),
        happened("left", "zone", 9, count=0),
        happened("raised", "alarms", alarm="down", text="down"),
        happened("reconnected", "decode"),
    ],
    ids=lambda event: event.kind + "-" + event.stage,
)
def test_bookkeeping_ends_and_alarms_make_no_item(run, event):
    run.add(0, event)
    assert run.items() == []


def test_a_notice_that_becomes_an_alert_is_open_again_and_announced_once(run):
    run.add(0, crossed())
    run.store.change(lambda connection: review_table.mark_reviewed(connection, [1], "ann", NOW_S))
    assert [item.reviewed_by for item in run.items(reviewed=True)] == ["ann"]
    run.add(1, raised(track=7, label="car"), jpeg=b"x", box=LARGE)
    run.add(2, raised(track=7, label="car"))
    (item,) = run.items(severity="alert", reviewed=False)
    assert (item.id, item.kind, item.number, item.events) == (1, "raised", 2, 3)
    assert [alert.id for alert in run.alerts] == [1]
    assert run.store.count_open() == {"alert": {"gate": 1}, "notice": {}}


def test_words_of_texts_comments_and_event_data_find_an_item(run):
    run.add(0, happened("read", "plates", 4, text="BHX 4521", label="car"))
    run.add(1, crossed(track=5))
    run.store.change(lambda connection: review_table.change_item(connection, 2, None, "the blue van, 100% sure"))
    for words, ids in [
        ("bhx", [1]),
        ("4521", [1]),
        ("blue", [2]),
        ("crossed", [2]),
        ("10%", []),
        ("100%", [2]),
        (')("* OR', []),
    ]:
        assert [item.id for item in run.items(text=words)] == ids, words


def test_filters_by_time_camera_and_label(run):
    run.add(0, crossed(track=1))
    run.add(100, crossed(track=2))
    assert [item.id for item in run.items(from_s=NOW_S + 50)] == [2]
    assert [item.id for item in run.items(to_s=NOW_S + 50)] == [1]
    assert [item.id for item in run.items(before=2)] == [1]
    assert run.items(source="yard") == []
    assert [item.id for item in run.items(label="car")] == [2, 1]


def test_kept_items_and_their_events_and_images_stay_when_others_are_too_old(tmp_path):
    first = Run(tmp_path, keep_events_s=1e9)
    for track in (1, 2, 3):
        first.add(-1000 * track, crossed(track=track), jpeg=b"image %d" % track, box=SMALL)
    first.store.change(lambda connection: review_table.change_item(connection, 2, True, None))
    first.end()
    second = Run(tmp_path, keep_events_s=time.time() - NOW_S + 10)
    second.add(0, crossed(track=9), jpeg=b"new", box=SMALL)
    assert {item.id for item in second.items()} == {2, 4}
    assert [second.store.image(number) for number in (1, 2, 3, 4)] == [None, b"image 2", None, b"new"]
    assert second.store.event(2) is not None
    assert second.store.event(1) is None
    second.end()


def test_an_alert_after_the_clock_was_set_back_is_a_new_item(run):
    run.add(0, raised())
    run.add(-3600, raised())
    assert [(item.events, item.started_s - NOW_S) for item in run.items()] == [(1, -3600), (1, 0)]
    assert len(run.alerts) == 2


def test_an_item_goes_on_over_a_restart(tmp_path):
    first = Run(tmp_path, keep_events_s=1e9)
    first.add(0, raised())
    first.end()
    second = Run(tmp_path, keep_events_s=1e9)
    second.add(10, raised())
    (item,) = second.items()
    assert item.events == 2
    assert second.alerts == []
    second.end()


def test_a_change_that_cannot_be_written_is_refused(run):
    run.add(0, crossed())
    with closing(sqlite3.connect(run.store.folder / "serve.db")) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreUnreadable, match=r"cannot be written: .*locked"):
            run.store.change(lambda connection: review_table.delete_items(connection, [1]))
        other.rollback()
    assert len(run.items()) == 1


@pytest.mark.parametrize(
    ("box", "aspect"),
    [(SMALL, 16 / 9), ((0.0, 0.0, 0.02, 0.03), 16 / 9), ((0.0, 0.0, 1.0, 1.0), 4 / 3), ((0.9, 0.9, 1.0, 1.0), 9 / 16)],
    ids=["inside", "corner", "whole", "portrait"],
)
def test_a_crop_is_a_square_within_the_frame_around_the_object(box, aspect):
    x1, y1, x2, y2 = crop_box(box, aspect)
    assert -1e-9 <= x1 < x2 <= 1 + 1e-9
    assert -1e-9 <= y1 < y2 <= 1 + 1e-9
    assert (x2 - x1) * aspect == pytest.approx(y2 - y1)
    if box[2] - box[0] < 0.9:
        assert x1 <= box[0] + 1e-9
        assert y2 >= box[3] - 1e-9


# ---------------------------------------------------------------------------------------------------------------- API


@pytest.fixture(scope="module")
def reviewing(root):
    text = """
plugins: [plugins]
sources: {street: {uri: samples/street.mp4, pace: realtime, loop: true, name: Main street}}
stages:
  detect: {model: demo}
  track: {stage: simple_track}
  line: {stage: line_counter, line: [[320, 60], [320, 360]]}
  big:
    stage: rule
    rules: {van: {when: "class == 'car' and width > 60"}, bike: {when: "class == 'bike'", severity: notice}}
"""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        with served(text, root) as server:
            server.running("street")
            server.until(
                lambda: [item for item in server.open.get("/api/v1/review").json() if item["image"] and item["box"]]
            )
            yield server


def test_a_running_pipeline_makes_items_with_crops_of_their_objects(reviewing):
    items = reviewing.client.get("/api/v1/review", params={"limit": 500}).json()
    item = next(item for item in items if item["image"] and item["box"])
    assert item["name"] == "Main street"
    assert " at Main street" in item["text"]
    crop = reviewing.client.get(f"/api/v1/review/{item['id']}/crop.jpg")
    whole = reviewing.client.get(f"/api/v1/review/{item['id']}/image.jpg")
    small, large = (cv2.imdecode(np.frombuffer(answer.content, np.uint8), 1) for answer in (crop, whole))
    assert small.shape[0] < large.shape[0]
    assert abs(small.shape[0] - small.shape[1]) <= 2
    detail = reviewing.client.get(f"/api/v1/review/{item['id']}").json()
    event = reviewing.client.get(f"/api/v1/events/{detail['events'][0]}").json()
    assert event["track_id"] == item["track_id"]


def test_rules_raise_alerts_and_those_with_the_option_notices(reviewing):
    def severities():
        items = reviewing.client.get("/api/v1/review", params={"limit": 500}).json()
        kinds = {(item["severity"], item["label"]) for item in items if item["kind"] == "raised"}
        return kinds if {("alert", "car"), ("notice", "bike")} <= kinds else None

    assert ("alert", "bike") not in reviewing.until(severities)


def test_what_a_person_notes_has_their_name_and_can_be_taken_back(reviewing):
    item = reviewing.client.get("/api/v1/review").json()[-1]
    address = f"/api/v1/review/{item['id']}"
    change = {"reviewed": True, "kept": True, "comment": "a red car"}
    changed = reviewing.client.patch(address, json=change).json()
    assert (changed["reviewed_by"], changed["kept"], changed["comment"]) == ("admin", True, "a red car")
    assert abs(changed["reviewed_s"] - time.time()) < 30
    assert item["id"] not in [i["id"] for i in reviewing.client.get("/api/v1/review?reviewed=false&limit=500").json()]
    reviewing.client.post("/api/v1/review/reviewed", json={"ids": [item["id"]], "reviewed": False}).raise_for_status()
    assert reviewing.client.get(address).json()["item"]["reviewed_by"] is None
    assert reviewing.client.delete(address).status_code == 204
    assert reviewing.client.get(address).status_code == 404
    assert reviewing.client.delete(address).status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "/api/v1/review/1", {"reviewed": True}),
        ("POST", "/api/v1/review/reviewed", {"ids": [1]}),
        ("DELETE", "/api/v1/review/1", None),
        ("GET", "/api/v1/review/1/crop.jpg", None),
        ("GET", "/api/v1/review/1/image.jpg", None),
    ],
)
def test_without_a_token_nobody_changes_an_item_or_sees_its_picture(reviewing, method, path, body):
    with httpx.Client(base_url=reviewing.url) as stranger:
        assert stranger.request(method, path, json=body).status_code == 401


def test_wrong_changes_are_refused(reviewing):
    item = reviewing.client.get("/api/v1/review").json()[0]
    address = f"/api/v1/review/{item['id']}"
    assert reviewing.client.patch(address, json={"comment": "x" * 2001}).status_code == 422
    assert reviewing.client.patch(address, json={"text": "x"}).status_code == 422
    assert reviewing.client.post("/api/v1/review/reviewed", json={"ids": []}).status_code == 422
    assert reviewing.client.get("/api/v1/review?severity=high").status_code == 422
