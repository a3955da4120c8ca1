from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from streamkit.config import read_text
from streamkit.data import Batch
from streamkit.errors import MissingPackage
from streamkit.graph import build
from streamkit.occasions import Occasions
from streamkit.rules.above import Above, Zone
from streamkit.rules.engine import Engine
from streamkit.rules.facts import Facts
from streamkit.rules.rule import make_rule
from streamkit.stages.rule import RuleStage
from streamkit.testing import detections, frames, run_nodes, run_stage

ROOT = Path(__file__).resolve().parents[2]
ZONE = "  zone: {polygon: {door: [[100, 0], [300, 0], [300, 360], [100, 360]]}, max_gap: 1s}\n"
MONDAY = 1772409600.0  # 2 March 2026, 00:00 UTC


def nodes(stages):
    text = f"sources: {{a: 'test://', b: 'test://'}}\nstages:\n  detect: {{model: demo}}\n  track: {{}}\n{stages}"
    graph = build(read_text(text, folder=ROOT))
    return [node for node in graph.nodes.values() if not node.id.startswith(("detect", "track", "color", "weather"))]


def shown(given, *ids, batch=4):
    """(time, stage or its rule, kind, track) of what rules tell."""
    return [
        (event.pts_s, event.data["rule"], event.kind, event.track_id)
        for frame in run_nodes(given, *ids, batch=batch)
        for event in frame.events
        if "rule" in event.data
    ]


def told(rule, given, stages="", batch=4):
    return shown(nodes(f"{stages}  r: {{stage: rule, {rule}}}\n"), given, batch=batch)


def scene(*each, step_s=1.0, source="a"):
    """A frame a second; each is a list of (label, track, x) or of (label, track, x, columns)."""
    made = frames(len(each), source, step_s=step_s)
    for frame, objects in zip(made, each, strict=True):
        names = {name for *_, last in objects if isinstance(last, dict) for name in last}
        extra = {name: np.array([one[3].get(name) for one in objects]) for name in names}
        frame.tables["detect"] = detections(
            [[one[2] - 10, 100, one[2] + 10, 150] for one in objects], label=[one[0] for one in objects],
            labels=("car", "person", "bike"), track_id=[one[1] for one in objects], **extra,
        )  # fmt: skip
    return made


def people(*counts):
    return scene(*([("person", i, 30 * i + 20) for i in range(n)] for n in counts))


def test_a_crowd():
    assert told('when: "count(person) > 2 for 2s", clear: "count(person) < 2", cooldown: 3s', people(
        3, 3, 2, 3, 3, 3, 2, 1, 3, 3, 3, 3
    )) == [(5, "r", "raised", None), (7, "r", "cleared", None), (10, "r", "raised", None)]  # fmt: skip


def test_nobody_is_there():
    assert told('when: "absent(person) for 2s"', people(1, 0, 0, 0, 0, 1)) == [
        (3, "r", "raised", None), (5, "r", "cleared", None),
    ]  # fmt: skip


def test_what_an_event_has():
    stages = '  r: {stage: rule, when: "count(person) > 1 and score > 0.5 for 1s"}\n'
    given = scene(*[[("person", 7, 50), ("person", 8, 90)]] * 3, [("person", 8, 90)])
    found = [event for frame in run_nodes(nodes(stages), given) for event in frame.events]
    assert [(event.kind, event.stage, event.track_id) for event in found] == [
        ("raised", "r", 7), ("raised", "r", 8), ("cleared", "r", 8),
    ]  # fmt: skip
    values = {"count(person)": 2, "score": 1}
    assert found[0].data == {"rule": "r", "label": "person", "since_s": 0.0, "values": values}
    assert found[2].data == {
        "rule": "r",
        "label": "person",
        "lasted_s": 2.0,
        "values": {"count(person)": 1, "score": 1},
    }


def test_each_track_has_its_own_state_and_is_forgotten():
    given = scene([("car", 1, 50)], [("car", 1, 50), ("car", 2, 90)], [("car", 2, 90)], [], [], [], [("car", 1, 50)])
    found = told('when: class == "car" and age_s >= 1, max_gap: 1500ms', given)
    assert found == [
        (1, "r", "raised", 1), (2, "r", "raised", 2), (3, "r", "cleared", 1), (4, "r", "cleared", 2),
    ]  # fmt: skip


def test_a_track_that_is_lost_is_cleared_with_its_last_sight():
    stages = "  r: {stage: rule, when: car, max_gap: 1s}\n"
    given = scene([("car", 1, 50)], [("car", 1, 50)], [], [], [])
    event = next(e for f in run_nodes(nodes(stages), given) for e in f.events if e.kind == "cleared")
    assert (event.frame, event.track_id, event.data) == (
        3, 1, {"rule": "r", "label": "car", "lasted_s": 1.0, "lost": True},
    )  # fmt: skip


@pytest.mark.parametrize("zone", [
    "hold: 0.1", "margin: 25", "labels: [person]", "anchor: left", "max_gap: 120ms",
])  # fmt: skip
def test_who_is_in_a_zone_is_what_the_zone_says(zone):
    rng = np.random.default_rng(3)
    place, given = rng.uniform(60, 340, 6), []
    for _ in range(80):
        place = np.clip(place + rng.normal(0, 22, 6), 20, 620)
        seen = [i for i in range(6) if rng.uniform() > 0.15]
        given.append([(("person", "car")[i % 2], i, float(place[i])) for i in seen])
    given = scene(*given, step_s=0.04)
    stage = f"  zone: {{polygon: {{door: [[100, 0], [300, 0], [300, 360], [100, 360]]}}, {zone}}}\n"
    rules = "".join(f"      n{n}: {{when: occupancy(zone.door) > {n}}}\n" for n in range(6))
    known = now = 0
    changes = 0
    for frame in run_nodes(nodes(f"{stage}  r:\n    stage: rule\n    rules:\n{rules}"), given, batch=5):
        for event in frame.events:
            if event.stage == "zone":
                known, changes = event.data["count"], changes + 1
            else:
                now += 1 if event.kind == "raised" else -1
        assert now == known
    assert changes > 10


def test_who_is_in_a_zone_by_class_and_for_how_long():
    given = scene(*[[("person", 1, 200), ("car", 2, 210), ("person", 3, 400)]] * 4)
    assert told("when: count(person in zone.door) == 1 and count(car in zone.door) == 1", given, ZONE)[0][0] == 0
    assert told("when: count(in_zone(zone.door)) == 2 and count(not in_zone(zone.door)) == 1", given, ZONE)
    assert told("when: person in zone.door and dwell_s(zone.door) >= 2", given, ZONE) == [(2, "r", "raised", 1)]
    assert told('when: \'"person" in "zone.door" for 1s\'', given, ZONE) == [(1, "r", "raised", 1)]


LINE = "  line: {stage: line_counter, line: [[200, 0], [200, 360]]}\n"


def test_events():
    given = scene(*[[("person", 1, x), ("car", 2, 500 - x)] for x in (100, 150, 190, 230, 260, 400)])
    one, other = (3, "raised"), (5, "raised")
    assert [(at, kind) for at, _, kind, _ in told("when: event(line.crossed)", given, LINE)] == [
        one, (4, "cleared"), other,
    ]  # fmt: skip
    ways = {way: told(f"when: 'event(line.crossed, direction == \"{way}\")'", given, LINE)[0] for way in ("in", "out")}
    assert sorted((at, kind) for at, _, kind, _ in ways.values()) == [one, other]
    assert told("when: 'events(line.crossed, label == \"car\") == 1'", given, LINE) == [(5, "r", "raised", None)]
    assert told("when: 'event(line.crossed, label == \"dog\" or number > 3)'", given, LINE) == []
    assert told("when: car and event(line.crossed)", given, LINE) == [(5, "r", "raised", 2)]
    assert told("when: count(person and event(line)) == 1", given, LINE)[0] == (3, "r", "raised", None)


def test_speed_and_heading_and_further_columns():
    stages = (
        "  speed: {points: [[0, 0], [99, 0], [99, 99], [0, 99]], ground: [[0, 0], [9, 0], [9, 9], [0, 9]]}\n"
        "  direction: {directions: {north: [[0, 100], [0, 0]], east: [[0, 0], [100, 0]]}, tolerance: 30}\n"
    )
    made = nodes(f"{stages}  r:\n    stage: rule\n    rules:\n"
                 "      fast: {when: car and speed > 50}\n      same: {when: speed_kmh > 50 and heading < 45}\n"
                 "      east: {when: direction == \"east\"}\n      slow: {when: not (speed > 50)}\n"
                 "      many: {when: count(speed > 50) == 2}\n".replace('"', "'"))[-1:]  # fmt: skip
    columns = [
        {"speed_kmh": 80.0, "heading_deg": 100.0}, {"speed_kmh": 60.0, "heading_deg": 5.0},
        {"speed_kmh": np.nan, "heading_deg": np.nan}, {"speed_kmh": 10.0, "heading_deg": 180.0},
    ]  # fmt: skip
    labels = ("car", "bike", "car", "car")
    given = scene([(labels[i], i, 50 * i + 50, columns[i]) for i in range(4)])
    assert {(rule, track) for _, rule, _, track in shown(made, given)} == {
        ("fast", 0), ("same", 1), ("east", 0), ("slow", 3), ("many", None),
    }  # fmt: skip


def test_directions_in_shares_of_the_picture():
    stages = "  direction: {units: share, directions: {up: [[0, 1], [1, 0]]}, tolerance: 10}\n"
    made = nodes(f"{stages}  r: {{stage: rule, when: 'direction == \"up\"'}}\n")[-1:]
    steep = float(np.degrees(np.arctan2(640, 360)))  # the diagonal of a picture of 640 x 360
    given = scene([("car", i, 50, {"heading_deg": steep + off}) for i, off in enumerate((0, 9, 11, -11, 360))])
    assert [track for *_, track in shown(made, given)] == [0, 1, 4]


def test_attributes_of_objects_and_of_frames():
    stages = "  color: {stage: classify, model: color, of: detect}\n  weather: {stage: classify, model: color}\n"
    rules = (
        "      red: {when: 'color.label == \"red\" and attributes.color.score > 0.5'}\n"
        "      many: {when: 'count(attributes.color == \"red\") == 2'}\n"
        "      dull: {when: 'frame.weather == \"blue\" and frame.weather.score > 0.1'}\n"
    )
    made = nodes(f"{stages}  r:\n    stage: rule\n    rules:\n{rules}")[-1:]
    colors = [{"color": {"label": "red", "score": 0.9}}, {"color": {"label": "red", "score": 0.3}}, None, {}]
    given = scene([("car", i, 50, {"attributes": one}) for i, one in enumerate(colors)])
    given[0].facts["attributes"] = {"weather": {"label": "blue", "score": 0.4}}
    assert shown(made, given) == [(0, "many", "raised", None), (0, "dull", "raised", None), (0, "red", "raised", 0)]


def test_columns_of_plugins():
    text = (
        "plugins: [plugins]\nsources: {a: 'test://'}\nstages:\n  detect: {model: demo}\n  track: {}\n  more: "
        "{stage: plate}\n  r:\n    stage: rule\n    rules:\n"
        "      text: {when: 'plate == \"AB 1\"'}\n      number: {when: plate > 4}\n      truth: {when: plate}\n"
    )
    from streamkit.stage import Collecting, FrameStage, default_registry, stage

    registry = default_registry()
    with Collecting(registry):

        @stage("plate", reads="detections", writes="plate")
        class Plate(FrameStage):
            """Reads plates."""

    made = [build(read_text(text, folder=ROOT, registry=registry)).nodes["r"]]
    for values, rule in ((["AB 1", None, "x"], "text"), ([9, 2, 4], "number"), ([True, False, False], "truth")):
        given = scene([("car", i, 50, {"plate": one}) for i, one in enumerate(values)])
        assert shown(made, given) == [(0, rule, "raised", 0)]


def test_a_schedule():
    given = people(3, 3, 3, 3, 3)
    for frame, hour in zip(given, (21.5, 22.0, 24 + 5.9, 24 + 6, 24 + 12), strict=True):
        frame.time_s = MONDAY + hour * 3600
    rule = 'when: present(person), schedule: {days: [mon], hours: "22:00-06:00", zone: UTC}'
    stages = f"  r: {{stage: rule, {rule}}}\n"
    found = [event for frame in run_nodes(nodes(stages), given) for event in frame.events]
    assert [(event.frame, event.kind) for event in found] == [(1, "raised"), (3, "cleared")]
    assert found[1].data["closed"] is True


def test_without_a_wall_clock_the_schedule_goes_by_the_machine_s():
    names = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
    today = datetime.now().astimezone().weekday()
    near = [names[(today + i) % 7] for i in (-1, 0, 1)]  # should midnight come meanwhile
    assert told(f"when: present(person), schedule: {{days: {near}}}", people(1))
    far = [name for name in names if name not in near]
    assert told(f"when: present(person), schedule: {{days: {far}}}", people(1)) == []


def test_a_pause_and_a_loop_begin_anew():
    given = people(1, 1, 1, 1, 1)
    for frame, at_s in zip(given, (0, 2, 13, 15, 16), strict=True):
        frame.pts_s = at_s
    assert told('when: "present(person) for 3s"', given) == [(16, "r", "raised", None)]
    assert told('when: "present(person) for 3s", max_pause: 20s', given) == [(13, "r", "raised", None)]
    given = people(1, 1, 1, 1, 1)
    for frame in given[2:]:
        frame.turn = 1
    assert told('when: "present(person) for 2s"', given) == [(4, "r", "raised", None)]


def test_a_frame_that_nobody_looked_at_says_nothing():
    given = people(2, 0, 0, 2, 0, 0)
    for frame in given:
        frame.skipped = frozenset({"detect"}) if frame.index in (1, 2, 4) else frozenset()
    assert told('when: "count(person) > 1 for 3s"', given) == [(3, "r", "raised", None), (5, "r", "cleared", None)]


def test_what_is_predicted_counts_unless_told():
    given = scene([("car", 1, 50, {"predicted": True}), ("car", 2, 90, {"predicted": False})])
    assert told("when: count(car) == 2", given)
    assert told("when: count(car) == 1, predicted: false", given)
    assert told("when: car, predicted: false", given) == [(0, "r", "raised", 2)]


def test_the_source_and_states_of_their_own():
    both = [frame for pair in zip(people(3, 3, 3), scene([], [], [], source="b"), strict=True) for frame in pair]
    assert told('when: "count(person) > 2 for 1s"', both) == [(1, "r", "raised", None)]
    assert told('when: "absent(person) for 1s"', both) == [(1, "r", "raised", None)]
    assert told('when: source == "b" and absent(person)'.replace('"', "'"), both) == [(0, "r", "raised", None)]


@pytest.mark.parametrize("batch", [1, 2, 7, [3, 1, 5]])
def test_batches_change_nothing(batch):
    rng = np.random.default_rng(5)
    given = []
    for i in range(40):
        objects = [(str(rng.choice(["car", "person"])), t, float(rng.uniform(50, 400))) for t in range(rng.integers(5))]
        frame = scene(objects, source="ab"[i % 2])[0]
        frame.index, frame.pts_s = i // 2, i // 2 * 0.5
        given.append(frame)
    rules = (
        "  r:\n    stage: rule\n    rules:\n      a: {when: count(person in zone.door) > 0 for 1s, clear_for: 500ms}\n"
        "      b: {when: car and x1 > 100, cooldown: 2s}\n      c: {when: event(zone.entered)}\n"
    )
    made = nodes(ZONE + rules)
    expected = shown(made, given, batch=4)
    assert len(expected) > 20
    assert sorted(shown(made, given, batch=batch), key=str) == sorted(expected, key=str)


def engine(**options):
    areas = {"": ((0, 0), (999, 0), (999, 999), (0, 999))}
    facts, seen = Facts(), Above(zones={"zone": Zone(areas)}, columns=frozenset({"color"}))
    rules = [make_rule(name, {"when": text}, seen, facts) for name, text in options.items()]
    return Engine(rules, seen, facts, max_gap_s=1.0)


def test_a_source_that_ends_leaves_nothing_behind():
    made = engine(a="present(car)", b="car", c="count(in_zone(zone)) > 0")
    for _ in range(2):
        made.begin(0)
        for frame in scene([("car", 1, 50)], [("car", 1, 50)]):
            batch = Batch([frame], tables=frame.tables)
            found = [(one.rule, one.kind) for one in made.step(batch, {"a": 0})]
            assert found == ([("a", "raised"), ("c", "raised"), ("b", "raised")] if frame.index == 0 else [])
        assert sorted(made.end(0), key=str) == [("a", None), ("b", 1), ("c", None)]
    assert len(made._sights.tracks) == 0


def test_memory_is_bounded():
    made = engine(b='car and color == "red"', c="age_s > 100")
    made.begin(0)
    for index in range(300):
        frame = scene([("car", 10 * index + i, 50, {"color": f"{index}-{i}"}) for i in range(10)])[0]
        frame.pts_s = index * 0.5
        list(made.step(Batch([frame], tables=frame.tables), {"a": 0}))
    assert len(made._sights.tracks) <= 40
    assert made._sights.tracks.rows <= 64


def test_nothing_to_look_at():
    assert told("when: absent(car)", frames(2, "a")) == [(0, "r", "raised", None)]
    assert run_stage(RuleStage(when="present(car)"), []) == []


def test_one_rule_of_several_can_be_named():
    made = nodes("  r:\n    stage: rule\n    rules: {a: {when: present(person)}, b: {when: absent(person)}}\n")
    event = run_nodes(made, people(1))[0].events[0]
    for name, named in (("r", True), ("r.raised", True), ("r.a.raised", True), ("r.b.raised", False), ("r.a", False)):
        assert (event in Occasions(name)) is named


def test_without_cel_python(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "celpy.celparser", None)
    with pytest.raises(MissingPackage, match=r"a rule needs the package cel-python; .*'streamkit\[rules\]'"):
        run_stage(RuleStage(when="present(car) // not read before"), people(1))


def test_a_rule_may_speak_of_another_s_events():
    first = "  r:\n    stage: rule\n    rules: {a: {when: present(car)}, b: {when: present(person)}}\n"
    second = "  s: {stage: rule, when: 'event(r.raised, rule == \"b\")'}\n"
    found = shown(nodes(first + second), people(0, 1, 1))
    assert found == [(1, "b", "raised", None), (1, "s", "raised", None), (2, "s", "cleared", None)]


def test_the_report():
    stage = RuleStage(rules={"crowd": {"when": "present(person)"}, "empty": {"when": "absent(person)"}})
    given = people(1, 0, 1)
    given[2].pts_s = 100
    run_stage(stage, given, stage_id="r")
    assert dict(stage.context.counters.values) == {
        "r crowd raised": 2, "r crowd cleared": 1, "r empty raised": 1, "r empty cleared": 1,
        "r begun anew after max_pause": 1, "r crowd raised at the end": 1,
    }  # fmt: skip
