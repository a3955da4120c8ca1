"""What single conditions are worth: measures of a box, unknown truths, and expressions of any depth."""

import numpy as np
import pytest

from streamkit.core.data import Batch, Frame
from streamkit.rules import kernel
from streamkit.rules.engine import RuleEngine
from streamkit.rules.rule import make_rule
from streamkit.rules.scope import Facts, Scope
from streamkit.testing.kit import detections

SCOPE = Scope(labels=("car", "dog"), columns=frozenset({"speed_kmh"}))


@pytest.fixture(params=[True, False], ids=["compiled", "plain"])
def is_raised(request, monkeypatch):
    """Whether a rule is raised on one frame with a car at 10, 20, 40, 80."""
    if not request.param:  # where Numba is not installed
        monkeypatch.setattr(kernel, "kernels", lambda: (kernel.count, kernel.advance))

    def evaluate(when, speed_kmh=np.nan):
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

    return evaluate


@pytest.mark.parametrize(
    ("measure", "number"),
    [("x1", 10), ("y1", 20), ("x2", 40), ("y2", 80), ("width", 30), ("height", 60), ("area", 1800), ("score", 0.5)],
)
def test_an_object_has_the_measures_of_its_box(is_raised, measure, number):
    assert is_raised(f"car and {measure} == {number}")
    assert not is_raised(f"car and {measure} > {number}")
    assert not is_raised(f"car and {measure} < {number}")


@pytest.mark.parametrize(
    ("speed_kmh", "same", "other"), [(9.0, True, False), (1.0, False, True), (np.nan, False, False)]
)
def test_an_unknown_value_is_neither_equal_nor_different(is_raised, speed_kmh, same, other):
    for left, right in (("speed > 2", "score > 0.1"), ("score > 0.1", "speed > 2")):
        assert is_raised(f"({left}) == ({right})", speed_kmh) is same
        assert is_raised(f"({left}) != ({right})", speed_kmh) is other


@pytest.mark.parametrize("depth", [1, 2, 5, 12])
def test_an_expression_may_be_arbitrarily_deep(is_raised, depth):
    total = "x1"
    for number in range(depth):
        total = f"({number} + {total})"
    assert is_raised(f"x1 + {sum(range(depth))} == {total}")
    assert not is_raised(f"x1 + {sum(range(depth)) + 1} == {total}")
    either = "x1 + 1"
    for _ in range(depth):
        either = f"(x1 + 2 > {either} ? x1 + 1 : x1 + 3)"
    assert is_raised(f"x1 + 1 == {either}")
