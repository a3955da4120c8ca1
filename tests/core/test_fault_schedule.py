import itertools

import pytest

from streamkit.core.fault_schedule import Fault, FaultSchedule


def spans(fault, kind, until_s, source="cam"):
    """Where a fault is on, asked about every tenth of a second, in tenths."""
    schedule = fault.schedule(kind, source)
    return [tenth for tenth in range(int(until_s * 10)) if schedule(tenth / 10)]


def begins(fault, kind, n, source="cam"):
    schedule = fault.schedule(kind, source)
    starts = []
    for tenth in itertools.count():
        before = schedule.spans_started
        schedule(tenth / 10)
        starts += [tenth / 10] * (schedule.spans_started - before)
        if len(starts) >= n:
            break
    return starts[:n]


def test_faults_happen_at_given_times_in_any_order():
    fault = Fault(freeze={"at": [2.0, 0.5], "for": 0.3})
    assert spans(fault, "freeze", 4) == [5, 6, 7, 20, 21, 22]
    assert spans(fault, "still", 4) == []


def test_faults_repeat_and_may_have_fixed_times():
    fault = Fault(still={"every": 1.0, "at": 1.5, "for": 0.2})
    assert spans(fault, "still", 3) == [10, 11, 15, 16, 20, 21]


def test_a_fault_may_start_at_time_zero():
    assert spans(Fault(away={"at": 0.0, "for": 0.2}), "away", 1) == [0, 1]


def test_each_fault_is_returned_once_even_when_late():
    schedule = FaultSchedule(iter([1.0, 2.0]), 0.0)
    assert not schedule(0.9)
    assert schedule(1.7)
    assert not schedule(1.8)
    assert schedule(50.0)
    assert schedule.spans_started == 2
    assert not schedule(60.0)


def test_random_times_have_the_mean_gap_and_are_reproducible():
    fault = Fault(away={"every": 5.0, "for": 0.1, "random": True}, seed=7)
    first = begins(fault, "away", 400)
    assert begins(fault, "away", 400) == first
    gaps = [b - a for a, b in itertools.pairwise(first)]
    assert 4.3 < sum(gaps) / len(gaps) < 5.7
    assert sum(gap < 5.0 for gap in gaps) / len(gaps) == pytest.approx(0.63, abs=0.08)  # exponential: 1 - 1/e


def test_random_times_differ_by_seed_source_and_fault():
    wanted = {"every": 5.0, "for": 0.1, "random": True}
    fault = Fault(away=wanted, freeze=wanted, seed=7)
    others = [
        begins(fault, "away", 10),
        begins(fault, "away", 10, "other"),
        begins(fault, "freeze", 10),
        begins(Fault(away=wanted, seed=8), "away", 10),
    ]
    assert len({tuple(times) for times in others}) == 4
    assert begins(Fault(away=wanted, fail={"at": 1.0}, seed=7), "away", 10) == others[0]


def test_other_fault_options_are_read():
    fault = Fault(fail={"frame": [30, 7]}, corrupt={"at": 1.0, "for": 1.0, "share": 0.5})
    assert fault.frame_numbers == [7, 30]
    assert fault.kinds == ["fail", "corrupt"]
    assert fault.share == 0.5
    assert Fault(corrupt={"at": 1.0, "for": 1.0}).share == 0.01


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "no fault is set; name one of fail, freeze, still, corrupt, away"),
        ({"freeze": {"for": 1.0}}, "freeze never occurs; set at or every"),
        ({"fail": {"at": []}}, "fail never occurs; set at or every or frame"),
        ({"away": {"every": 0.0, "for": 1.0}}, "away.every must be more than 0 s, got 0 s"),
        ({"still": {"at": 1.0, "for": 0.0}}, "still.for must be more than 0 s, got 0 s"),
        ({"away": {"at": 1.0, "random": True, "for": 1.0}}, "away.random needs every"),
        ({"away": {"every": 2.0, "for": 2.0}}, "away.for must be less than every, or it never ends; got 2 s and 2 s"),
    ],
)
def test_invalid_fault_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Fault(**options)
