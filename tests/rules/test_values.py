"""What single conditions are worth: measures of a box, unknown truths, and expressions of any depth."""

from collections import Counter

import numpy as np
import pytest

from streamkit.core.data import Batch, Frame
from streamkit.core.detections import Detections
from streamkit.rules.engine import RuleEngine
from streamkit.rules.rule import make_rule
from streamkit.rules.scope import Facts, Scope
from streamkit.testing.kit import detections

SCOPE = Scope(labels=("car", "dog"), columns=frozenset({"speed_kmh"}))


def is_raised(when, speed_kmh=np.nan):
    """Whether a rule is raised on one frame with a car at 10, 20, 40, 80."""
    facts = Facts()
    engine = RuleEngine(
        [make_rule("r", {"when": when}, SCOPE, facts)], SCOPE, facts, track_ttl_s=1.0, max_frame_gap_s=3.0
    )
    engine.begin(0)
    table = detections(
        [[10, 20, 40, 80]], [0.5], label=["car"], labels=SCOPE.labels, track_id=[3],
        speed_kmh=np.array([speed_kmh], np.float32),
    )  # fmt: skip
    changes = engine.step(Batch([Frame("a", 0, 0.0, 640, 360)], tables={"detect": table}), {"a": 0})
    return [change.kind for change in changes] == ["raised"]


@pytest.mark.parametrize(
    ("measure", "number"),
    [("x1", 10), ("y1", 20), ("x2", 40), ("y2", 80), ("width", 30), ("height", 60), ("area", 1800), ("score", 0.5)],
)
def test_an_object_has_the_measures_of_its_box(measure, number):
    assert is_raised(f"car and {measure} == {number}")
    assert not is_raised(f"car and {measure} > {number}")
    assert not is_raised(f"car and {measure} < {number}")


@pytest.mark.parametrize(
    ("speed_kmh", "same", "other"), [(9.0, True, False), (1.0, False, True), (np.nan, False, False)]
)
def test_an_unknown_value_is_neither_equal_nor_different(speed_kmh, same, other):
    for left, right in (("speed > 2", "score > 0.1"), ("score > 0.1", "speed > 2")):
        assert is_raised(f"({left}) == ({right})", speed_kmh) is same
        assert is_raised(f"({left}) != ({right})", speed_kmh) is other


@pytest.mark.parametrize("depth", [1, 2, 5, 12])
def test_an_expression_may_be_arbitrarily_deep(depth):
    total = "x1"
    for number in range(depth):
        total = f"({number} + {total})"
    assert is_raised(f"x1 + {sum(range(depth))} == {total}")
    assert not is_raised(f"x1 + {sum(range(depth)) + 1} == {total}")
    either = "x1 + 1"
    for _ in range(depth):
        either = f"(x1 + 2 > {either} ? x1 + 1 : x1 + 3)"
    assert is_raised(f"x1 + 1 == {either}")


@pytest.mark.parametrize("source_count", [1, 3])
def test_many_rules_see_every_object(source_count):
    """So many that they are evaluated in chunks."""
    lefts = range(200)
    facts = Facts()
    rules = [make_rule(f"count{left}", {"when": f"count(x1 == {left}) == 2"}, SCOPE, facts) for left in lefts]
    rules += [make_rule(f"object{left}", {"when": f"car and x1 == {left}"}, SCOPE, facts) for left in lefts]
    engine = RuleEngine(rules, SCOPE, facts)
    slots = {f"s{number}": number for number in range(source_count)}
    for slot in slots.values():
        engine.begin(slot)
    boxes = [[left, 0, 300, 80] for left in lefts] * 2
    table = detections(boxes, label=["car"] * 400, labels=SCOPE.labels, track_id=list(range(400)))
    tables = {"detect": Detections.concat([table] * source_count, rows=range(source_count))}
    changes = list(engine.step(Batch([Frame(source, 0, 0.0, 640, 360) for source in slots], tables=tables), slots))
    for source in slots:
        raised = Counter(change.rule for change in changes if change.frame.source == source)
        assert raised == {**{f"count{left}": 1 for left in lefts}, **{f"object{left}": 2 for left in lefts}}
