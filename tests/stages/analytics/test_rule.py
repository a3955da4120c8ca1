"""`rule`: what it tells, of a frame or of a track, and when it begins anew."""

import numpy as np
import pytest
from support.ruled import MONDAY, ZONE, nodes, people, rule_events, scene, shown

from streamkit.core.data import Batch, EventFilter
from streamkit.core.errors import MissingPackage
from streamkit.core.records import as_json
from streamkit.rules.engine import RuleEngine
from streamkit.rules.rule import make_rule
from streamkit.rules.scope import Facts, Scope, ZoneScope
from streamkit.stages.analytics.rule import RuleStage
from streamkit.testing.kit import frames, run_nodes, run_stage


def test_a_rule_is_raised_by_a_crowd():
    assert rule_events(
        'when: "count(person) > 2 for 2s", clear: "count(person) < 2", cooldown: 3s',
        people(3, 3, 2, 3, 3, 3, 2, 1, 3, 3, 3, 3),
    ) == [(5, "r", "raised", None), (7, "r", "cleared", None), (10, "r", "raised", None)]


def test_a_rule_is_raised_by_absence():
    assert rule_events('when: "absent(person) for 2s"', people(1, 0, 0, 0, 0, 1)) == [
        (3, "r", "raised", None),
        (5, "r", "cleared", None),
    ]


def test_an_event_has_the_fields_of_its_rule():
    stages = '  r: {stage: rule, when: "count(person) > 1 and score > 0.5 for 1s"}\n'
    footage = scene(*[[("person", 7, 50), ("person", 8, 90)]] * 3, [("person", 8, 90)])
    events = [event for frame in run_nodes(nodes(stages), footage) for event in frame.events]
    assert [(event.kind, event.stage, event.track_id) for event in events] == [
        ("raised", "r", 7),
        ("raised", "r", 8),
        ("cleared", "r", 8),
    ]
    values = {"count(person)": 2, "score": 1}
    assert events[0].data == {"rule": "r", "label": "person", "since_s": 0.0, "values": values}
    assert events[2].data == {
        "rule": "r",
        "label": "person",
        "lasted_s": 2.0,
        "values": {"count(person)": 1, "score": 1},
    }


def test_event_values_are_texts_flags_and_rounded_numbers():
    condition = 'class == "person" and x1 > 100 and x2 > 100 and in_zone(zone.door)'
    stages = f"{ZONE}  r: {{stage: rule, when: '{condition}'}}\n"
    (frame,) = run_nodes(nodes(stages), scene([("person", 1, 200.123456)]))
    (raised,) = [event for event in frame.events if event.kind == "raised"]
    values = {"class": "person", "x1": 190.1235, "x2": 210.1235, "in_zone(zone.door)": True}
    assert as_json(raised.data["values"]) == as_json(values)  # in Python, true equals 1


def test_an_event_has_the_current_label_of_its_track():
    stages = "  r: {stage: rule, when: age_s >= 1, track_ttl: 1s}\n"
    walk = scene([("person", 1, 50)], [("car", 1, 50)], [("bike", 1, 50)], [], [], [])
    events = [event for frame in run_nodes(nodes(stages), walk) for event in frame.events]
    assert [(event.kind, event.data["label"]) for event in events] == [("raised", "car"), ("cleared", "bike")]


def test_tracks_have_separate_states_that_are_forgotten():
    footage = scene([("car", 1, 50)], [("car", 1, 50), ("car", 2, 90)], [("car", 2, 90)], [], [], [], [("car", 1, 50)])
    changes = rule_events('when: class == "car" and age_s >= 1, track_ttl: 1500ms', footage)
    assert changes == [
        (1, "r", "raised", 1),
        (2, "r", "raised", 2),
        (3, "r", "cleared", 1),
        (4, "r", "cleared", 2),
    ]


def test_a_lost_track_is_cleared_at_its_last_time():
    stages = "  r: {stage: rule, when: car, track_ttl: 1s}\n"
    footage = scene([("car", 1, 50)], [("car", 1, 50)], [], [], [])
    event = next(e for f in run_nodes(nodes(stages), footage) for e in f.events if e.kind == "cleared")
    assert (event.frame, event.track_id, event.data) == (
        3,
        1,
        {"rule": "r", "label": "car", "lasted_s": 1.0, "lost": True},
    )


def test_a_pause_or_loop_resets_the_durations():
    footage = people(1, 1, 1, 1, 1)
    for frame, at_s in zip(footage, (0, 2, 13, 15, 16), strict=True):
        frame.pts_s = at_s
    assert rule_events('when: "present(person) for 3s"', footage) == [(16, "r", "raised", None)]
    assert rule_events('when: "present(person) for 3s", max_frame_gap: 20s', footage) == [(13, "r", "raised", None)]
    footage = people(1, 1, 1, 1, 1)
    for frame in footage[2:]:
        frame._state.epoch = 1
    assert rule_events('when: "present(person) for 2s"', footage) == [(4, "r", "raised", None)]


def at(footage, *times):
    for frame, at_s in zip(footage, times, strict=True):
        frame.pts_s = at_s
    return footage


@pytest.mark.parametrize("batch", [1, 32])
def test_a_time_jump_back_does_not_shorten_a_cool_down(batch):
    footage = at(people(1, 0, 0, 1, 1, 1), 100, 101, 103, 1, 8.9, 9)
    changes = rule_events('when: "present(person)", cooldown: 10s', footage, batch=batch)
    assert changes == [(100, "r", "raised", None), (101, "r", "cleared", None), (9, "r", "raised", None)]


def test_a_time_jump_back_resets_durations_and_keeps_raised_rules():
    footage = at(people(1, 1, 1, 1, 0), 100, 102, 1, 3, 4)
    assert rule_events('when: "present(person) for 3s"', footage) == []
    stages = "  r: {stage: rule, when: present(person), max_frame_gap: 20s}\n"
    events = [event for frame in run_nodes(nodes(stages), footage) for event in frame.events]
    assert [(event.kind, event.pts_s, event.data.get("lasted_s")) for event in events] == [
        ("raised", 100, None),
        ("cleared", 4, 5.0),
    ]


@pytest.mark.parametrize("batch", [1, 32])
def test_a_time_jump_back_forgets_only_the_tracks_of_that_source(batch):
    cars = [
        [("car", 1, 150), ("car", 2, 150)],
        [("car", 1, 150), ("car", 2, 150)],
        [("car", 1, 150)],
        [("car", 1, 150)],
    ]
    first = at(scene(*cars), 100, 101, 1, 2)
    second = at(scene(*cars, source="b"), 100, 101, 102, 102.5)
    rules = (
        "  r:\n    stage: rule\n    rules:\n      two: {when: occupancy(zone.door) == 2}\n"
        "      old: {when: car and age_s >= 1}\n"
    )
    shows = nodes(ZONE + rules)
    changes = [
        (event.source, event.pts_s, event.data["rule"], event.kind, event.track_id, event.data.get("lost"))
        for frame in run_nodes(shows, [f for both in zip(first, second, strict=True) for f in both], batch=batch)
        for event in frame.events
        if event.stage == "r"
    ]
    assert [each[1:] for each in changes if each[0] == "a"] == [
        (100, "two", "raised", None, None),
        (101, "old", "raised", 1, None),
        (101, "old", "raised", 2, None),
        (1, "two", "cleared", None, None),
        (1, "old", "cleared", 1, True),
        (1, "old", "cleared", 2, True),
        (2, "old", "raised", 1, None),
    ]
    assert [each[1:] for each in changes if each[0] == "b"] == [
        (100, "two", "raised", None, None),
        (101, "old", "raised", 1, None),
        (101, "old", "raised", 2, None),
        (102.5, "two", "cleared", None, None),
    ]


def test_a_frame_skipped_by_the_detector_is_ignored():
    footage = people(2, 0, 0, 2, 0, 0)
    for frame in footage:
        frame._state.skipped_detectors = frozenset({"detect"}) if frame.index in (1, 2, 4) else frozenset()
    assert rule_events('when: "count(person) > 1 for 3s"', footage) == [
        (3, "r", "raised", None),
        (5, "r", "cleared", None),
    ]


def test_predicted_objects_count_by_default():
    footage = scene([("car", 1, 50, {"predicted": True}), ("car", 2, 90, {"predicted": False})])
    assert rule_events("when: count(car) == 2", footage)
    assert rule_events("when: count(car) == 1, predicted: false", footage)
    assert rule_events("when: car, predicted: false", footage) == [(0, "r", "raised", 2)]


def test_sources_have_separate_states():
    both = [frame for pair in zip(people(3, 3, 3), scene([], [], [], source="b"), strict=True) for frame in pair]
    assert rule_events('when: "count(person) > 2 for 1s"', both) == [(1, "r", "raised", None)]
    assert rule_events('when: "absent(person) for 1s"', both) == [(1, "r", "raised", None)]
    assert rule_events('when: source == "b" and absent(person)'.replace('"', "'"), both) == [(0, "r", "raised", None)]


@pytest.mark.parametrize("batch", [1, 2, 7, [3, 1, 5]])
def test_batches_do_not_change_events(batch):
    rng = np.random.default_rng(5)
    footage = []
    for i in range(40):
        objects = [(str(rng.choice(["car", "person"])), t, float(rng.uniform(50, 400))) for t in range(rng.integers(5))]
        frame = scene(objects, source="ab"[i % 2])[0]
        frame.index = i // 2
        frame.pts_s = i // 2 * 0.5
        footage.append(frame)
    rules = (
        "  r:\n    stage: rule\n    rules:\n      a: {when: count(person in zone.door) > 0 for 1s, clear_for: 500ms}\n"
        "      b: {when: car and x1 > 100, cooldown: 2s}\n      c: {when: event(zone.entered)}\n"
    )
    rule_nodes = nodes(ZONE + rules)
    expected = shown(rule_nodes, footage, batch=4)
    assert len(expected) > 20
    assert sorted(shown(rule_nodes, footage, batch=batch), key=str) == sorted(expected, key=str)


def engine(**options):
    areas = {"": ((0, 0), (999, 0), (999, 999), (0, 999))}
    facts = Facts()
    seen = Scope(zones={"zone": ZoneScope(areas)}, columns=frozenset({"color"}))
    rules = [make_rule(name, {"when": text}, seen, facts) for name, text in options.items()]
    return RuleEngine(rules, seen, facts, track_ttl_s=1.0)


def test_an_ended_source_leaves_no_state():
    rule_engine = engine(a="present(car)", b="car", c="count(in_zone(zone)) > 0")
    for _ in range(2):
        rule_engine.begin(0)
        for frame in scene([("car", 1, 50)], [("car", 1, 50)]):
            batch = Batch([frame], tables=frame.tables)
            changes = [(change.rule, change.kind) for change in rule_engine.step(batch, {"a": 0})]
            assert changes == ([("a", "raised"), ("c", "raised"), ("b", "raised")] if frame.index == 0 else [])
        assert sorted(rule_engine.end(0), key=str) == [("a", None), ("b", 1), ("c", None)]
    assert len(rule_engine._contexts.tracks) == 0


def test_memory_is_bounded():
    rule_engine = engine(b='car and color == "red"', c="age_s > 100")
    rule_engine.begin(0)
    for index in range(300):
        frame = scene([("car", 10 * index + i, 50, {"color": f"{index}-{i}"}) for i in range(10)])[0]
        frame.pts_s = index * 0.5
        list(rule_engine.step(Batch([frame], tables=frame.tables), {"a": 0}))
    assert len(rule_engine._contexts.tracks) <= 40
    assert rule_engine._contexts.tracks.rows <= 64


def test_absence_is_raised_on_frames_without_objects():
    assert rule_events("when: absent(car)", frames(2, "a")) == [(0, "r", "raised", None)]
    assert run_stage(RuleStage(when="present(car)"), []) == []


def test_a_single_rule_of_several_can_be_referenced():
    rule_nodes = nodes("  r:\n    stage: rule\n    rules: {a: {when: present(person)}, b: {when: absent(person)}}\n")
    event = run_nodes(rule_nodes, people(1))[0].events[0]
    for name, named in (
        ("r", True),
        ("r.raised", True),
        ("r.a.raised", True),
        ("r.b.raised", False),
        ("r.a", True),
        ("r.b", False),
    ):
        assert (event in EventFilter(name)) is named


def test_missing_cel_python_is_reported(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "celpy.celparser", None)
    with pytest.raises(MissingPackage, match=r"a rule needs the package cel-python; .*\[rules\]'"):
        run_stage(RuleStage(when="present(car) // not read before"), people(1))


def test_a_rule_may_use_events_of_another_rule():
    first = "  r:\n    stage: rule\n    rules: {a: {when: present(car)}, b: {when: present(person)}}\n"
    second = "  s: {stage: rule, when: 'event(r.raised, rule == \"b\")'}\n"
    changes = shown(nodes(first + second), people(0, 1, 1))
    assert changes == [(1, "b", "raised", None), (1, "s", "raised", None), (2, "s", "cleared", None)]


def test_the_report_counts_raised_rules():
    stage = RuleStage(rules={"crowd": {"when": "present(person)"}, "empty": {"when": "absent(person)"}})
    footage = people(1, 0, 1)
    footage[2].pts_s = 100
    run_stage(stage, footage, stage_id="r")
    assert dict(stage.context.counters.values) == {
        "r crowd raised": 2,
        "r crowd cleared": 1,
        "r empty raised": 1,
        "r empty cleared": 1,
        "r restarts after max_frame_gap": 1,
        "r crowd raised at the end": 1,
    }


def test_a_gap_is_longer_than_the_longest_interval():
    footage = people(1, 1)
    footage[1].pts_s = 10.0
    assert rule_events('when: "present(person) for 10s"', footage) == [(10, "r", "raised", None)]
    footage[1].pts_s = 10.25
    assert rule_events('when: "present(person) for 10s"', footage) == []


def test_durations_and_cool_downs_end_at_the_exact_time():
    footage = people(3, 3, 3, 0, 0, 0, 3, 3, 3, 3, 3)
    assert rule_events(
        'when: "count(person) > 2 for 2s", clear: "count(person) < 2 for 2s", cooldown: 4s', footage
    ) == [
        (2, "r", "raised", None),
        (5, "r", "cleared", None),
        (9, "r", "raised", None),
    ]


def test_a_schedule_starts_and_ends_at_its_minute():
    footage = people(*[1] * 6)
    for frame, minute in zip(footage, (29, 29.99, 30, 39, 39.99, 40), strict=True):
        frame.time_s = MONDAY + minute * 60
    rule = "when: present(person), schedule: {hours: '00:30-00:40', zone: UTC}"
    assert rule_events(rule, footage) == [(2, "r", "raised", None), (5, "r", "cleared", None)]


@pytest.mark.parametrize(
    ("when", "raised"),
    [
        ("count(person) / 0 < 1", False),
        ("count(person) / 0 == 0", False),
        ("count(person) / (count(person) - 3) <= 0", False),
        ("not (count(person) / 0 > 1)", False),
        ("0 / count(person) == 0", True),
        ("not (count(person) / 0 > 1 ? count(person) > 1 : count(person) > 5)", False),
        ("(count(person) / 0 > 1 ? count(person) > 5 : count(person) > 5) or count(person) == 3", True),
    ],
)
def test_a_division_by_zero_is_unknown(when, raised):
    assert bool(rule_events(f'when: "{when}"', people(3))) is raised
