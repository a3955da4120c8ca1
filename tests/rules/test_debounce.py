from datetime import UTC, datetime, timedelta

from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from support.plain import Plain

from streamkit.rules.debounce import Debounce
from streamkit.rules.schedule import Schedule

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)


def told(holding, steps):
    """What comes of (time, true) or (time, true, over), as {time: what}."""
    found = {}
    for now_s, true, *over in steps:
        what = holding.step("it", now_s, true, over=over[0] if over else None)
        if what:
            found[now_s] = what
    return found


def test_at_once():
    assert told(Debounce(), [(0, False), (1, True), (2, True), (3, False)]) == {1: "raised", 3: "cleared"}


def test_only_what_lasts_is_raised():
    steps = [(0, True), (4, True), (9, True), (9.5, False), (10, True), (19.9, True), (20, True)]
    assert told(Debounce(for_s=10), steps) == {20: "raised"}


def test_it_must_be_over_for_some_time():
    steps = [(0, True), (1, False), (4, False), (5, True), (6, False), (10, False), (11, False)]
    assert told(Debounce(clear_s=5), steps) == {0: "raised", 11: "cleared"}


def test_its_own_end():
    steps = [(0, True, False), (1, False, False), (2, False, True), (3, True, True), (4, True, False)]
    assert told(Debounce(), steps) == {0: "raised", 2: "cleared", 4: "raised"}


def test_cooling_down():
    steps = [(0, True), (1, False), (2, True), (30, True), (60.9, True), (61, True), (62, False)]
    assert told(Debounce(cooldown_s=60), steps) == {0: "raised", 1: "cleared", 61: "raised", 62: "cleared"}


def test_a_gap_begins_anew():
    assert told(Debounce(for_s=5, gap_s=3), [(0, True), (3, True), (7, True), (9, True), (12, True)]) == {12: "raised"}
    assert told(Debounce(for_s=5), [(0, True), (100, True)]) == {100: "raised"}


def test_a_clock_that_goes_back_begins_anew():
    assert told(Debounce(for_s=5), [(10, True), (14, True), (3, True), (7, True), (8, True)]) == {8: "raised"}


def test_a_clock_that_goes_back_takes_nothing_off_a_cool_down():
    holding = Debounce(cooldown_s=60)
    steps = [(1000, True), (1010, False), (1030, False), (5, True), (44, True), (45, True)]
    assert told(holding, steps) == {1000: "raised", 1010: "cleared", 45: "raised"}
    holding.step("it", 2, True)
    assert holding.state("it").raised_s == 2, "and nothing to what is raised"


def test_outside_the_schedule_nothing_is_true():
    holding = Debounce(schedule=TypeAdapter(Schedule).validate_python({"hours": "10:00-12:00"}))
    found = {}
    for hour in range(8, 14):
        what = holding.step("it", hour * 3600, True, MONDAY + timedelta(hours=hour))
        if what:
            found[hour] = what
    assert found == {10: "raised", 12: "cleared"}


def test_each_key_has_its_own_state():
    holding = Debounce(for_s=2)
    assert [holding.step(key, now_s, True) for now_s in (0, 2) for key in ("a", "b")] == [
        None,
        None,
        "raised",
        "raised",
    ]
    assert len(holding) == 2
    holding.forget("a")
    holding.forget("nobody")
    assert len(holding) == 1
    assert holding.step("a", 3, True) is None
    assert holding.state("b").raised
    assert not holding.state("c").raised


BACK = st.sampled_from([-1, -5, -1000])
STEPS = st.lists(
    st.tuples(st.integers(1, 6) | BACK, st.booleans(), st.none() | st.booleans(), st.booleans()), max_size=40
)
LENGTHS = st.sampled_from([0, 1, 3, 8])


@settings(max_examples=120, deadline=None)
@given(LENGTHS, LENGTHS, LENGTHS, st.sampled_from([2, 4, float("inf")]), STEPS)
@example(0, 0, 0, 4, [(1, True, True, True)])
def test_against_the_whole_history(for_s, clear_s, cooldown_s, gap_s, steps):
    schedule = TypeAdapter(Schedule).validate_python({"hours": "00:00-12:00"})
    holding = Debounce(for_s, clear_s, cooldown_s, schedule, gap_s=gap_s)
    plain = Plain(for_s, clear_s, cooldown_s, gap_s)
    now_s = 0
    for step_s, true, over, opened in steps:
        now_s += step_s
        clock = MONDAY + timedelta(hours=1 if opened else 13)
        expected = plain.step(now_s, true, not true if over is None else over, opened)
        assert holding.step("it", now_s, true, clock, over=over) == expected
