"""Many rules on many sources against plain loops: CEL's own evaluation, and what lasts from the whole history."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.expressions import TEXTS, cel, conditions
from support.reference_debounce import ReferenceDebounce

from streamkit.core.data import Batch, Frame
from streamkit.core.detections import Detections
from streamkit.rules import kernel
from streamkit.rules.engine import RuleEngine
from streamkit.rules.rule import make_rule
from streamkit.rules.scope import Facts, Scope, ZoneScope
from streamkit.testing.kit import detections

DOOR = ((2.5, 0.0), (4.5, 0.0), (4.5, 360.0), (2.5, 360.0))
MAX_GAP, MAX_PAUSE = 1.0, 3.0
SEEN = Scope(
    labels=TEXTS,
    zones={"zone": ZoneScope({"door": DOOR}, margin=0.0, track_ttl_s=MAX_GAP)},
    attributes={"color": TEXTS},
    columns=frozenset({"speed_kmh"}),
)

FRAME = (
    [("count(person)", "n_person"), ("count(car and score > 0.5)", "n_sure"), ("count(person in zone.door)", "n_in"),
     ("occupancy(zone.door)", "n_zone"), ("count()", "n"), ("count(speed > 2 or dog in zone.door)", "n_odd")],
    [("source", "src")],
    [("present(dog)", "n_dog > 0.0"), ("absent(person)", "n_person == 0.0"),
     ('present(attributes.color == "dog")', "n_color > 0.0")],
)  # fmt: skip
OBJECT = (
    [("score", "score"), ("x1", "x1"), ("speed", "speed"), ("dwell_s(zone.door)", "dwell"), ("age_s", "age"),
     ("count(person)", "n_person"), ("width", "width")],
    [("class", "klass"), ("attributes.color", "color")],
    [("in_zone(zone.door)", "inside"), ("person", "klass == 'person'"),
     ("dog in zone.door", "klass == 'dog' && inside")],
)  # fmt: skip

LENGTH = st.sampled_from([0.0, 0.0, 0.25, 0.5, 1.0])


def rules(names):
    condition = conditions(*names, leaves=4)
    return st.tuples(condition, st.none() | condition, st.tuples(LENGTH, LENGTH, LENGTH))


OBJECTS = st.dictionaries(
    st.integers(0, 3),
    st.tuples(
        st.sampled_from(TEXTS), st.integers(1, 6), st.sampled_from([0.25, 0.5, 0.75]), st.none() | st.integers(0, 4),
        st.none() | st.sampled_from(TEXTS),
    ),
    min_size=1, max_size=3,
)  # fmt: skip
FRAMES = st.lists(
    st.tuples(st.sampled_from(["car", "dog"]), st.sampled_from([0.25, 0.25, 0.25, 0.5, 1.25, 4.0, -0.75]), OBJECTS),
    min_size=8,
    max_size=14,
)


class World:
    """The facts of one source, found one frame after the other."""

    def __init__(self, source):
        self.source = source
        self.first = {}
        self.seen = {}
        self.zone = {}
        self.now = 0.0

    def look(self, now, objects):
        """Facts of the frame, of each object by track; and the tracks that are lost."""
        lost = [track for track, at in self.seen.items() if now < self.now or now - at > MAX_GAP]
        self.now = now
        for track in lost:
            del self.seen[track], self.first[track]
            self.zone.pop(track, None)
        facts_by_track = {}
        for track, (label, x, score, speed, color) in objects.items():
            self.first.setdefault(track, now)
            self.seen[track] = now
            if 2.5 < x < 4.5:
                self.zone[track] = label, self.zone.get(track, (label, now))[1]
            else:
                self.zone.pop(track, None)
            inside = track in self.zone
            facts_by_track[track] = {
                "klass": label, "x1": max(0, x - 1), "width": x + 1 - max(0, x - 1), "score": score, "speed": speed,
                "color": color, "inside": inside, "dwell": now - self.zone[track][1] if inside else None,
                "age": now - self.first[track],
            }  # fmt: skip
        every = list(facts_by_track.values())
        frame = {
            "src": self.source,
            "n": len(every),
            "n_person": sum(object_facts["klass"] == "person" for object_facts in every),
            "n_dog": sum(object_facts["klass"] == "dog" for object_facts in every),
            "n_sure": sum(object_facts["klass"] == "car" and object_facts["score"] > 0.5 for object_facts in every),
            "n_color": sum(object_facts["color"] == "dog" for object_facts in every),
            "n_odd": sum(
                (object_facts["speed"] or 0) > 2 or (object_facts["klass"] == "dog" and object_facts["inside"])
                for object_facts in every
            ),
            "n_in": sum(label == "person" for label, _ in self.zone.values()),
            "n_zone": len(self.zone),
        }
        return frame, {track: frame | attributes for track, attributes in facts_by_track.items()}, lost


def plainly(rule_specs, per_object, frames):
    """(time, source, rule, kind, track) of everything that is told."""
    worlds = {}
    times = defaultdict(float)
    events = []
    states = {}
    for source, step, objects in frames:
        now = times[source] = times[source] + step
        frame, each, lost = worlds.setdefault(source, World(source)).look(now, objects)
        for number, ((_, when), clear, lengths) in enumerate(rule_specs):
            if per_object[number]:
                for track in lost:
                    before = states.pop((number, source, track), None)
                    if before is not None and before.events and before.events[-1][1] == "raised":
                        events.append((now, source, f"r{number}", "cleared", track))
            for track, facts in each.items() if per_object[number] else [(None, frame)]:
                true = cel(when, facts) is True
                over = not true if clear is None else cel(clear[1], facts) is True
                plain = states.setdefault((number, source, track), ReferenceDebounce(*lengths, gap_s=MAX_PAUSE))
                if what := plain.step(now, true, over, True):
                    events.append((now, source, f"r{number}", what, track))
    return sorted(events, key=str)


def batches(frames, size):
    times, index = defaultdict(float), defaultdict(int)
    batch_rows = []
    for source, step, objects in frames:
        times[source] += step
        frame = Frame(source, index[source], times[source], 640, 360)
        index[source] += 1
        rows = list(objects.values())
        colors = np.full(len(rows), None)
        colors[:] = [None if row[4] is None else {"color": {"label": row[4], "score": 0.5}} for row in rows]
        table = detections(
            [[x - 1, 10, x + 1, 20] for _, x, *_ in rows], [row[2] for row in rows], label=[row[0] for row in rows],
            labels=TEXTS, track_id=list(objects),
            speed_kmh=np.array([np.nan if row[3] is None else row[3] for row in rows], np.float32), attributes=colors,
        )  # fmt: skip
        batch_rows.append((frame, table))
    for at in range(0, len(batch_rows), size):
        part = batch_rows[at : at + size]
        table = Detections.concat([frame_table for _, frame_table in part], rows=range(len(part)))
        yield Batch([frame for frame, _ in part], tables={"detect": table})


def run(fact_rules, facts, frames, size):
    engine = RuleEngine(fact_rules, SEEN, facts, track_ttl_s=MAX_GAP, max_frame_gap_s=MAX_PAUSE)
    slots = {"car": 0, "dog": 1}
    for slot in slots.values():
        engine.begin(slot)
    events = []
    for batch in batches(frames, size):
        for event in engine.step(batch, slots):
            events.append((event.frame.pts_s, event.frame.source, event.rule, event.kind, event.track))
    return sorted(events, key=str)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(rules(FRAME), min_size=1, max_size=2),
    st.lists(rules(OBJECT), min_size=1, max_size=2),
    FRAMES,
    st.integers(1, 6),
)
def test_the_engine_equals_plain_loops(of_frames, of_objects, frames, size):
    rule_specs = of_frames + of_objects
    facts, fact_rules = Facts(), []
    for number, ((when, _), clear, (for_s, clear_s, cooldown_s)) in enumerate(rule_specs):
        options = {"when": f"{when} for {for_s}s" if for_s else when, "cooldown": cooldown_s, "clear_for": clear_s}
        if clear is not None:
            options["clear"] = clear[0]
        try:
            fact_rules.append(make_rule(f"r{number}", options, SEEN, facts))
        except ValueError as error:  # the condition is about frames after all, and its end about objects
            assert "clear refers to one object" in str(error)  # noqa: PT017
            return
    expected = plainly(rule_specs, [rule.per_object for rule in fact_rules], frames)
    assert run(fact_rules, facts, frames, size) == expected
    with pytest.MonkeyPatch.context() as patch:  # where Numba is not installed
        patch.setattr(kernel, "kernels", lambda: (kernel.count, kernel.advance))
        assert run(fact_rules, facts, frames, size) == expected


def test_an_area_that_changes_its_shape_starts_without_tracks():
    gate = ((10.0, 0.0), (12.0, 0.0), (12.0, 360.0), (10.0, 360.0))
    before, after = (
        Scope(labels=TEXTS, zones={"zone": ZoneScope({"door": DOOR, "gate": shape}, margin=0.0, track_ttl_s=9.0)})
        for shape in (gate, DOOR)
    )
    facts = Facts()
    rules_of_gate = [make_rule("stays", {"when": "dwell_s(zone.gate) >= 2"}, before, facts)]
    engine = RuleEngine(rules_of_gate, before, facts, track_ttl_s=9.0, max_frame_gap_s=MAX_PAUSE)
    engine.begin(0)
    times_s = []
    at_the_door = ("car", 1.0, {1: ("car", 3, 0.5, None, None)})
    for batch in batches([at_the_door] * 8, 1):
        if batch.frames[0].index == 4:
            engine.change(after)
        times_s += [change.frame.pts_s for change in engine.step(batch, {"car": 0})]
    assert times_s == [7.0]  # two seconds after the change, which the frame at 5 s follows
