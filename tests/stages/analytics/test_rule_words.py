"""What a rule can speak of: zones, events, speeds, directions, attributes, columns of plugins, the time of day."""

from datetime import datetime

import numpy as np
import pytest
from support.ruled import MONDAY, ROOT, ZONE, nodes, people, rule_events, scene, shown

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.testing.kit import run_nodes


@pytest.mark.parametrize(
    "zone",
    [
        "debounce: 0.1",
        "margin: 25",
        "labels: [person]",
        "anchor: left",
        "track_ttl: 120ms",
    ],
)
def test_membership_of_a_zone_is_that_of_the_zone_stage(zone):
    rng = np.random.default_rng(3)
    place = rng.uniform(60, 340, 6)
    footage = []
    for _ in range(80):
        place = np.clip(place + rng.normal(0, 22, 6), 20, 620)
        seen = [i for i in range(6) if rng.uniform() > 0.15]
        footage.append([(("person", "car")[i % 2], i, float(place[i])) for i in seen])
    footage = scene(*footage, step_s=0.04)
    for frame in footage[50:]:
        frame.pts_s -= 1.5
    stage = f"  zone: {{polygon: {{door: [[100, 0], [300, 0], [300, 360], [100, 360]]}}, {zone}}}\n"
    rules = "".join(f"      n{n}: {{when: occupancy(zone.door) > {n}}}\n" for n in range(6))
    reported = now = 0
    changes = 0
    for frame in run_nodes(nodes(f"{stage}  r:\n    stage: rule\n    rules:\n{rules}"), footage, batch=5):
        for event in frame.events:
            if event.stage == "zone":
                reported = event.data["count"]
                changes = changes + 1
            else:
                now += 1 if event.kind == "raised" else -1
        assert now == reported
    assert changes > 10


def test_zone_members_can_be_counted_by_class_and_dwell_time():
    footage = scene(*[[("person", 1, 200), ("car", 2, 210), ("person", 3, 400)]] * 4)
    assert (
        rule_events("when: count(person in zone.door) == 1 and count(car in zone.door) == 1", footage, ZONE)[0][0] == 0
    )
    assert rule_events("when: count(in_zone(zone.door)) == 2 and count(not in_zone(zone.door)) == 1", footage, ZONE)
    assert rule_events("when: person in zone.door and dwell_s(zone.door) >= 2", footage, ZONE) == [
        (2, "r", "raised", 1)
    ]
    assert rule_events('when: \'"person" in "zone.door" for 1s\'', footage, ZONE) == [(1, "r", "raised", 1)]


LINE = "  line: {stage: line_counter, line: [[200, 0], [200, 360]]}\n"


def test_rules_can_use_events():
    footage = scene(*[[("person", 1, x), ("car", 2, 500 - x)] for x in (100, 150, 190, 230, 260, 400)])
    first = (3, "raised")
    last = (5, "raised")
    assert [(at, kind) for at, _, kind, _ in rule_events("when: event(line.crossed)", footage, LINE)] == [
        first,
        (4, "cleared"),
        last,
    ]
    ways = {
        way: rule_events(f"when: 'event(line.crossed, direction == \"{way}\")'", footage, LINE)[0]
        for way in ("in", "out")
    }
    assert sorted((at, kind) for at, _, kind, _ in ways.values()) == [first, last]
    assert rule_events("when: 'events(line.crossed, label == \"car\") == 1'", footage, LINE) == [
        (5, "r", "raised", None)
    ]
    assert rule_events("when: 'event(line.crossed, label == \"dog\" or number > 3)'", footage, LINE) == []
    assert rule_events("when: car and event(line.crossed)", footage, LINE) == [(5, "r", "raised", 2)]
    assert rule_events("when: count(person and event(line)) == 1", footage, LINE)[0] == (3, "r", "raised", None)


def test_rules_can_use_speed_heading_and_other_columns():
    stages = (
        "  speed: {points: [[0, 0], [99, 0], [99, 99], [0, 99]], ground: [[0, 0], [9, 0], [9, 9], [0, 9]]}\n"
        "  direction: {directions: {north: [[0, 100], [0, 0]], east: [[0, 0], [100, 0]]}, tolerance: 30}\n"
    )
    rule_nodes = nodes(
        f"{stages}  r:\n    stage: rule\n    rules:\n"
        "      fast: {when: car and speed > 50}\n      same: {when: speed_kmh > 50 and heading < 45}\n"
        '      east: {when: direction == "east"}\n      slow: {when: not (speed > 50)}\n'
        "      many: {when: count(speed > 50) == 2}\n".replace('"', "'")
    )[-1:]
    columns = [
        {"speed_kmh": 80.0, "heading_deg": 100.0},
        {"speed_kmh": 60.0, "heading_deg": 5.0},
        {"speed_kmh": np.nan, "heading_deg": np.nan},
        {"speed_kmh": 10.0, "heading_deg": 180.0},
    ]
    labels = ("car", "bike", "car", "car")
    footage = scene([(labels[i], i, 50 * i + 50, columns[i]) for i in range(4)])
    assert {(rule, track) for _, rule, _, track in shown(rule_nodes, footage)} == {
        ("fast", 0),
        ("same", 1),
        ("east", 0),
        ("slow", 3),
        ("many", None),
    }


def test_directions_may_be_in_shares_of_the_image():
    stages = "  direction: {units: share, directions: {up: [[0, 1], [1, 0]]}, tolerance: 10}\n"
    rule_nodes = nodes(f"{stages}  r: {{stage: rule, when: 'direction == \"up\"'}}\n")[-1:]
    steep = float(np.degrees(np.arctan2(640, 360)))  # the diagonal of a picture of 640 x 360
    footage = scene([("car", i, 50, {"heading_deg": steep + off}) for i, off in enumerate((0, 9, 11, -11, 360))])
    assert [track for *_, track in shown(rule_nodes, footage)] == [0, 1, 4]


def test_a_heading_at_the_tolerance_is_a_direction():
    stages = "  direction: {directions: {up: [[0, 9], [0, 0]]}, tolerance: 10}\n"
    rule = nodes(f"{stages}  r: {{stage: rule, when: 'direction == \"up\"'}}\n")[-1:]
    cars = scene([("car", i, 50, {"heading_deg": heading}) for i, heading in enumerate((10.0, 350.0, 10.01, 349.99))])
    assert [track for *_, track in shown(rule, cars)] == [0, 1]


def test_rules_can_use_attributes_of_objects_and_frames():
    stages = "  color: {stage: classify, model: color, of: detect}\n  weather: {stage: classify, model: color}\n"
    rules = (
        "      red: {when: 'color.label == \"red\" and attributes.color.score > 0.5'}\n"
        "      many: {when: 'count(attributes.color == \"red\") == 2'}\n"
        "      dull: {when: 'frame.weather == \"blue\" and frame.weather.score > 0.1'}\n"
    )
    rule_nodes = nodes(f"{stages}  r:\n    stage: rule\n    rules:\n{rules}")[-1:]
    colors = [{"color": {"label": "red", "score": 0.9}}, {"color": {"label": "red", "score": 0.3}}, None, {}]
    footage = scene([("car", i, 50, {"attributes": attributes}) for i, attributes in enumerate(colors)])
    footage[0].facts["attributes"] = {"weather": {"label": "blue", "score": 0.4}}
    assert shown(rule_nodes, footage) == [
        (0, "many", "raised", None),
        (0, "dull", "raised", None),
        (0, "red", "raised", 0),
    ]


def test_rules_can_use_columns_of_plugins():
    text = (
        "plugins: [plugins]\nsources: {a: 'test://'}\nstages:\n  detect: {model: demo}\n  track: {}\n  more: "
        "{stage: plate}\n  r:\n    stage: rule\n    rules:\n"
        "      text: {when: 'plate == \"AB 1\"'}\n      number: {when: plate > 4}\n"
        "      low: {when: plate < 3}\n      truth: {when: plate}\n"
    )
    from streamkit.core.stage import Collecting, FrameStage, default_registry, stage

    registry = default_registry()
    with Collecting(registry):

        @stage("plate", reads="detections", writes="plate")
        class Plate(FrameStage):
            """Reads plates."""

    rule_nodes = [build(read_text(text, folder=ROOT, registry=registry)).nodes["r"]]
    for values, rule in (
        (["AB 1", None, "x"], "text"),
        ([9, 3, 4], "number"),
        ([True, False, False], "truth"),
        ([2, -1, 4], "low"),
        ([-1.0, np.nan, 4.0], "low"),  # an integer's -1 is no value
    ):
        footage = scene([("car", i, 50, {"plate": plate}) for i, plate in enumerate(values)])
        assert shown(rule_nodes, footage) == [(0, rule, "raised", 0)]


def test_a_schedule_limits_a_rule():
    footage = people(3, 3, 3, 3, 3)
    for frame, hour in zip(footage, (21.5, 22.0, 24 + 5.9, 24 + 6, 24 + 12), strict=True):
        frame.time_s = MONDAY + hour * 3600
    rule = 'when: present(person), schedule: {days: [mon], hours: "22:00-06:00", zone: UTC}'
    stages = f"  r: {{stage: rule, {rule}}}\n"
    events = [event for frame in run_nodes(nodes(stages), footage) for event in frame.events]
    assert [(event.frame, event.kind) for event in events] == [(1, "raised"), (3, "cleared")]
    assert events[1].data["closed"] is True


def test_without_frame_time_the_schedule_uses_the_machines_clock():
    names = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
    today = datetime.now().astimezone().weekday()
    near = [names[(today + i) % 7] for i in (-1, 0, 1)]  # should midnight come meanwhile
    assert rule_events(f"when: present(person), schedule: {{days: {near}}}", people(1))
    far = [name for name in names if name not in near]
    assert rule_events(f"when: present(person), schedule: {{days: {far}}}", people(1)) == []
