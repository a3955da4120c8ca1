"""When a rule is raised and cleared: what lasts, what has an end of its own, what cools down."""

import functools
from datetime import UTC, datetime, timedelta

from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from support.reference_debounce import ReferenceDebounce

from streamkit.rules.group import FactRule
from streamkit.rules.language import BOOL, Vocabulary, compile_rule
from streamkit.rules.rule import Rule
from streamkit.rules.schedule import Schedule

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)


@functools.cache
def condition(fact):
    return compile_rule(fact, Vocabulary({"up": BOOL, "over": BOOL}))[0]


def rule(for_s=0.0, clear_s=0.0, cooldown_s=0.0, schedule=None, clear=None):
    """A rule that is raised while `up` holds, and cleared by the fact `clear`."""
    cleared_when = condition(clear) if clear else None
    return FactRule(Rule("r", condition("up"), cleared_when, for_s, clear_s, cooldown_s, schedule))


def step(group, now_s, true, clock=None, *, over=None):
    """What comes of one step of the item `it`: `raised`, `cleared` or None."""
    changes = group.step({"it": {"up": true, "over": over}}, now_s, clock)
    return changes[0].kind if changes else None


def changes_of(group, steps):
    """What comes of (time, true) or (time, true, over), as {time: what}."""
    changes = {}
    for now_s, true, *over in steps:
        what = step(group, now_s, true, over=over[0] if over else None)
        if what:
            changes[now_s] = what
    return changes


def test_a_rule_without_duration_is_raised_at_once():
    assert changes_of(rule(), [(0, False), (1, True), (2, True), (3, False)]) == {1: "raised", 3: "cleared"}


def test_a_rule_is_raised_after_its_duration():
    steps = [(0, True), (4, True), (9, True), (9.5, False), (10, True), (19.9, True), (20, True)]
    assert changes_of(rule(for_s=10), steps) == {20: "raised"}


def test_a_rule_is_cleared_after_its_clear_time():
    steps = [(0, True), (1, False), (4, False), (5, True), (6, False), (10, False), (11, False)]
    assert changes_of(rule(clear_s=5), steps) == {0: "raised", 11: "cleared"}


def test_a_rule_may_have_a_separate_clear_condition():
    steps = [(0, True, False), (1, False, False), (2, False, True), (3, True, True), (4, True, False)]
    assert changes_of(rule(clear="over"), steps) == {0: "raised", 2: "cleared", 4: "raised"}


def test_a_cool_down_delays_the_next_raise():
    steps = [(0, True), (1, False), (2, True), (30, True), (60.9, True), (61, True), (62, False)]
    assert changes_of(rule(cooldown_s=60), steps) == {0: "raised", 1: "cleared", 61: "raised", 62: "cleared"}


def test_an_unknown_condition_is_not_true():
    assert changes_of(rule(), [(0, None), (1, True), (2, None)]) == {1: "raised", 2: "cleared"}
    assert changes_of(rule(clear="over"), [(0, True, None), (1, None, None), (2, None, True)]) == {
        0: "raised",
        2: "cleared",
    }


def test_a_cleared_rule_has_its_duration():
    group = rule(clear_s=5)
    changes = [
        group.step({"it": {"up": true}}, now_s) for now_s, true in [(1, True), (8, True), (9, False), (14, False)]
    ]
    assert [[(change.item, change.kind, change.lasted_s) for change in some] for some in changes] == [
        [("it", "raised", 0.0)],
        [],
        [],
        [("it", "cleared", 8.0)],
    ]


def test_no_rule_is_true_outside_its_schedule():
    group = rule(schedule=TypeAdapter(Schedule).validate_python({"hours": "10:00-12:00"}))
    changes = {}
    for hour in range(8, 14):
        what = step(group, hour * 3600, True, MONDAY + timedelta(hours=hour))
        if what:
            changes[hour] = what
    assert changes == {10: "raised", 12: "cleared"}


def test_a_rule_that_its_schedule_clears_has_its_duration():
    group = rule(schedule=TypeAdapter(Schedule).validate_python({"hours": "10:00-12:00"}))
    steps = [group.step({"it": {"up": True}}, hour * 3600, MONDAY + timedelta(hours=hour)) for hour in (10, 11, 12)]
    assert [(change.kind, change.lasted_s) for changes in steps for change in changes] == [
        ("raised", 0.0),
        ("cleared", 7200.0),
    ]


def test_each_item_has_a_separate_state():
    group = rule(for_s=2)
    up = {"up": True}
    assert [[change.item for change in group.step({"a": up, "b": up}, now_s)] for now_s in (0, 2)] == [[], ["a", "b"]]
    assert len(group) == 2
    assert group.step({"b": up}, 3) == []
    assert len(group) == 1, "an item that is gone is dropped"
    assert group.is_true("b")
    assert group.step({"a": up, "b": {"up": False}}, 4)[0].item == "b"
    assert not group.is_true("a"), "it begins anew"
    assert [change.item for change in group.step({"a": up, "b": up}, 6)] == ["a", "b"][:1]
    assert group.step({}, 7) == []
    assert len(group) == 0


STEPS = st.lists(st.tuples(st.integers(1, 6), st.booleans(), st.booleans(), st.booleans()), max_size=40)
LENGTHS = st.sampled_from([0, 1, 3, 8])


@settings(max_examples=120, deadline=None)
@given(LENGTHS, LENGTHS, LENGTHS, st.booleans(), STEPS)
@example(0, 0, 0, True, [(1, True, True, True)])
def test_states_equal_those_of_the_whole_history(for_s, clear_s, cooldown_s, has_clear, steps):
    schedule = TypeAdapter(Schedule).validate_python({"hours": "00:00-12:00"})
    group = rule(for_s, clear_s, cooldown_s, schedule, "over" if has_clear else None)
    plain = ReferenceDebounce(for_s, clear_s, cooldown_s, float("inf"))
    now_s = 0
    for step_s, true, over, opened in steps:
        now_s += step_s
        clock = MONDAY + timedelta(hours=1 if opened else 13)
        expected = plain.step(now_s, true, over if has_clear else not true, opened)
        assert step(group, now_s, true, clock, over=over) == expected
