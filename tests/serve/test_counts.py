"""Counts of lines and zones: by the local clock, over restarts and edits, as CSV, and the occupancy of zones."""

import csv
import io
import sqlite3
import time
from contextlib import closing
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import cv2
import httpx
import numpy as np
import pytest
from support.clock import FakeClock
from support.servers import served

from streamkit.core.data import Event
from streamkit.runtime.preview.gallery import Gallery
from streamkit.serve.local_periods import period_edges, time_zone, week_before
from streamkit.serve.store.count_table import KEEP_S, STEP_S, CountedArea, CountKey
from streamkit.serve.store.serve_store import ServeStore

BERLIN = ZoneInfo("Europe/Berlin")
DOOR = CountedArea("gate", "line", "door")
HALL = CountedArea("gate", "zone", "hall")


def at(text, zone=BERLIN):
    """Seconds since 1970 of a local time."""
    return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


def crossed(direction="in", label="person", source="gate"):
    return Event("crossed", "line", source, 0, 0.0, 1, {"line": "door", "direction": direction, "label": label})


def entered(count, kind="entered"):
    return Event(kind, "zone", "gate", 0, 0.0, 1, {"zone": "hall", "label": "person", "count": count})


class Run:
    """A store behind a gallery, which writes at each tick."""

    def __init__(self, folder):
        self.clock = FakeClock()
        self.store = ServeStore(folder, clock=self.clock)
        self.gallery = Gallery()
        self.store.follow(self.gallery)

    def add(self, time_s, *events):
        self.gallery.add_events(time_s, events, None)

    def tick(self):
        self.clock.sleep(60.0)
        self.store.write_due()

    def values(self, edges_s, by_label=False):
        return {series.key: series.values for series in self.store.count_series(edges_s, None, by_label)}

    def end(self):
        with self.store.writing():
            pass


@pytest.fixture
def run(tmp_path):
    store_run = Run(tmp_path / "data")
    yield store_run
    store_run.end()


# ------------------------------------------------------------------------------------------------------- local periods


@pytest.mark.parametrize(
    ("from_s", "to_s", "step", "hours"),
    [
        (at("2026-03-28T12:00"), at("2026-03-30T01:00"), "day", [24, 23, 24]),
        (at("2026-10-24T00:00"), at("2026-10-26T00:00"), "day", [24, 25]),
        (at("2026-10-25T00:30"), at("2026-10-25T04:00"), "hour", [1, 1, 1, 1, 1]),
        (at("2026-10-28T09:00"), at("2026-10-28T10:00"), "week", [168]),
        (at("2026-10-22T09:00"), at("2026-10-28T10:00"), "week", [169, 168]),
    ],
    ids=["shorter day", "longer day", "repeated hour", "week", "week with a longer day"],
)
def test_periods_follow_the_local_clock(from_s, to_s, step, hours):
    edges_s = period_edges(from_s, to_s, step, BERLIN)
    assert np.diff(edges_s).tolist() == [3600.0 * n for n in hours]
    assert edges_s[0] <= from_s < edges_s[1]
    assert edges_s[-2] < to_s <= edges_s[-1]
    start = datetime.fromtimestamp(edges_s[0], BERLIN)
    assert (start.minute, start.second) == (0, 0)
    if step != "hour":
        assert start.hour == 0
    if step == "week":
        assert start.weekday() == 0


def test_a_week_before_has_the_same_local_times_over_a_change_of_the_clocks():
    edges_s = period_edges(at("2026-03-30T00:00"), at("2026-03-31T00:00"), "hour", BERLIN)
    earlier = week_before(edges_s, BERLIN)
    wanted = datetime.fromtimestamp(edges_s[8], BERLIN) - timedelta(days=7)
    assert datetime.fromtimestamp(earlier[8], BERLIN).isoformat() == wanted.isoformat()
    assert datetime.fromtimestamp(earlier[8], BERLIN).hour == 8


@pytest.mark.parametrize(("name", "day"), [("America/Santiago", "2026-09-05"), ("Africa/Cairo", "2026-04-23")])
def test_days_begin_at_midnight_again_after_a_change_of_the_clocks_at_midnight(name, day):
    zone = ZoneInfo(name)
    start_s = at(f"{day}T00:00", zone)
    edges_s = period_edges(start_s, start_s + 3.5 * 86400, "day", zone)
    assert [datetime.fromtimestamp(edge_s, zone).hour for edge_s in edges_s] == [0, 1, 0, 0, 0]


@pytest.mark.parametrize("name", ["Europe/Nowhere", "", "../etc/passwd", "/etc/passwd", "x" * 60])
def test_an_unknown_time_zone_is_refused(name):
    with pytest.raises(ValueError, match="zone must be a time zone such as Europe/Berlin, got"):
        time_zone(name)


# -------------------------------------------------------------------------------------------------------------- tables


def test_counts_go_on_over_a_restart_and_are_summed_by_hour(tmp_path):
    eight_s = at("2026-11-02T08:00")
    first = Run(tmp_path)
    first.add(eight_s + 10, crossed(), crossed("out"), crossed(label="dog"))
    first.add(eight_s + 3590, crossed())
    first.end()
    second = Run(tmp_path)
    second.add(eight_s + 3600, crossed())
    second.tick()
    edges_s = period_edges(eight_s, eight_s + 7200, "hour", BERLIN)
    assert second.values(edges_s) == {CountKey(DOOR, "in", ""): [3, 1], CountKey(DOOR, "out", ""): [1, 0]}
    by_label = second.values(edges_s, by_label=True)
    assert by_label[CountKey(DOOR, "in", "dog")] == [1, 0]
    assert by_label[CountKey(DOOR, "in", "person")] == [2, 1]
    second.end()


def test_half_hour_time_zones_have_their_own_hours(run):
    kolkata = ZoneInfo("Asia/Kolkata")
    nine_s = at("2026-11-02T09:00", kolkata)
    run.add(nine_s - 1, crossed())
    run.add(nine_s, crossed(), crossed())
    run.tick()
    edges_s = period_edges(nine_s - 3600, nine_s + 3600, "hour", kolkata)
    assert run.values(edges_s) == {CountKey(DOOR, "in", ""): [1, 2]}


def test_no_count_is_lost_while_more_events_come_than_are_stored(run):
    now_s = at("2026-11-02T08:00")
    for _ in range(60):
        run.add(now_s, *[crossed()] * 100)
    run.tick()
    assert run.store.counts.values["events lost: not written in time"] == 1000
    assert run.values([now_s, now_s + 3600]) == {CountKey(DOOR, "in", ""): [6000]}


def test_counts_wait_while_the_file_cannot_be_written(run):
    now_s = at("2026-11-02T08:00")
    with closing(sqlite3.connect(run.store.folder / "serve.db")) as other:
        other.execute("BEGIN EXCLUSIVE")
        run.add(now_s, crossed(), entered(1))
        run.tick()
        assert "cannot be written" in run.store.problem
        run.add(now_s, crossed())
        other.rollback()
    run.tick()
    assert run.store.problem == ""
    assert run.values([now_s, now_s + 3600])[CountKey(DOOR, "in", "")] == [2]


def test_the_most_objects_in_a_zone_and_those_in_it_now_are_known(run):
    now_s = at("2026-11-02T08:00")
    run.add(now_s, entered(1), entered(2), entered(1, "left"))
    run.add(now_s + STEP_S, entered(0, "left"))
    run.tick()
    assert run.store.peaks(now_s) == {HALL: 2}
    assert run.store.peaks(now_s + STEP_S) == {HALL: 0}
    (hall,) = run.store.occupancy()
    assert (hall.area, hall.present, hall.time_s) == (HALL, 0, now_s + STEP_S)


def test_counts_older_than_two_years_are_removed(run):
    old_s = time.time() - KEEP_S - 2 * STEP_S
    run.add(old_s, crossed())
    run.add(old_s + 4 * STEP_S, crossed())
    run.tick()
    run.tick()
    assert sum(run.values([old_s - STEP_S, time.time()])[CountKey(DOOR, "in", "")]) == 1


# ---------------------------------------------------------------------------------------------------------------- API


@pytest.fixture(scope="module")
def counting(root, tmp_path_factory):
    """A server whose one source, `street`, has a name, a line, a zone and a heat map."""
    heat = tmp_path_factory.mktemp("heat")
    text = f"""
plugins: [plugins]
sources: {{street: {{uri: samples/street.mp4, pace: realtime, loop: true, name: =Main street}}}}
stages:
  detect: {{model: demo}}
  track: {{stage: simple_track}}
  line: {{stage: line_counter, line: {{door: [[320, 60], [320, 360]]}}}}
  zone: {{polygon: {{hall: [[0, 0], [640, 0], [640, 360], [0, 360]]}}}}
  heatmap: {{path: "{heat}/{{source}}.png"}}
"""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        with served(text, root) as server:
            server.running("street")
            server.until(lambda: server.open.get("/api/v1/counts").json()["rows"])
            yield server


def test_a_running_pipeline_counts_by_hour_and_names_the_source(counting):
    answer = counting.open.get("/api/v1/counts", params={"zone": "Europe/Berlin", "compare": True}).json()
    rows = {(row["area"], row["kind"]): row for row in answer["rows"]}
    row = next(iter(rows.values()))
    assert (row["source"], row["name"]) == ("street", "=Main street")
    assert sum(row["values"]) > 0
    assert row["values"][-1] > 0
    assert row["before"] == [0] * (len(answer["edges"]) - 1)
    assert {area for area, _ in rows} <= {"door", "hall"}


def test_counts_as_csv_have_local_times_and_no_formula(counting):
    answer = counting.open.get("/api/v1/counts.csv", params={"zone": "Europe/Berlin", "by_label": True})
    assert "attachment" in answer.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert {row["name"] for row in rows} == {"'=Main street"}
    assert all(datetime.fromisoformat(row["from"]) < datetime.fromisoformat(row["to"]) for row in rows)
    assert all(row["label"] and int(row["count"]) > 0 for row in rows)


def test_zones_tell_how_many_are_in_them_now(counting):
    def hall():
        views = counting.open.get("/api/v1/occupancy").json()
        return next((view for view in views if view["area"] == "hall" and view["count"] is not None), None)

    view = counting.until(hall)
    assert view["name"] == "=Main street"
    assert 0 <= view["count"] <= view["peak_today"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"zone": "Moon"}, "zone must be a time zone such as Europe/Berlin, got 'Moon'"),
        ({"from": 10, "to": 5}, "from must be before to, got 10 and 5"),
        ({"from": 0}, "more than 2000 periods; choose a longer step"),
        ({"from": 0, "to": 1e18}, "to: Input should be less than or equal to"),
        ({"step": "month"}, "step: Input should be 'hour', 'day' or 'week'"),
    ],
    ids=["zone", "order", "too many", "far", "step"],
)
def test_wrong_periods_are_refused(counting, query, message):
    answer = counting.open.get("/api/v1/counts", params=query)
    assert answer.status_code == 422
    assert message in answer.json()["error"]


def test_a_heat_map_is_an_image_for_those_who_may_see_pictures(counting):
    image = "/api/v1/heatmaps/heatmap/image"
    assert counting.client.get(image, params={"source": "nowhere"}).status_code == 404
    assert counting.client.get("/api/v1/heatmaps/line/image", params={"source": "street"}).status_code == 404
    assert counting.client.patch("/api/v1/stages/heatmap", json={"trigger": int(time.time())}).status_code == 200
    (view,) = counting.until(lambda: counting.open.get("/api/v1/heatmaps").json())
    assert (view["source"], view["name"], view["stage"]) == ("street", "=Main street", "heatmap")
    answer = counting.client.get(image, params={"source": "street"})
    picture = cv2.imdecode(np.frombuffer(answer.content, np.uint8), cv2.IMREAD_COLOR)
    assert answer.headers["content-type"] == "image/png"
    assert picture.shape == (360, 640, 3)
    assert picture.std() > 10


def test_the_image_of_a_heat_map_needs_a_token(counting):
    address = "/api/v1/heatmaps/heatmap/image?source=street"
    with httpx.Client(base_url=counting.url, headers={"x-forwarded-for": "10.0.0.9"}) as stranger:
        assert stranger.get(address).status_code == 401
