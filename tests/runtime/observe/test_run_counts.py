"""What several processes have counted, as one."""

from dataclasses import fields

from streamkit.runtime.execution.meters import Histogram
from streamkit.runtime.observe.event_counts import EventSeries
from streamkit.runtime.observe.run_counts import RunCounts


def histogram(*seconds: float) -> Histogram:
    durations = Histogram()
    for duration_s in seconds:
        durations.add(duration_s)
    return durations


def counts_of(frames: int, ms: float = 10.0) -> RunCounts:
    stage = {"frames": frames, "instances": 1, "seconds": frames * 0.001, "us_per_frame": 1000.0}
    return RunCounts(
        finished={"jsonl": frames, "draw": frames + 5},
        detections={"detect": frames},
        events={"seen": 1},
        counts={"z": 1, "a": 2},
        stages={"detect": stage},
        latency={"jsonl": histogram(*[ms / 1000] * frames)},
        event_counts={EventSeries("gate", "zone", "entered"): 3},
        queues={"detect": 2},
        labels={"detect": {"car": 2, "person": 1}},
        unsure={"detect": 1},
    )


def test_counts_of_several_processes_are_summed() -> None:
    sink = RunCounts(
        finished={"all": 25}, counts={"a": 1}, stages={"all": {"frames": 0, "instances": 1, "seconds": 0.0}}
    )
    other = counts_of(20, 100.0)
    other.events = {"left": 2}
    other.stages["detect"]["failed"] = 3
    total = RunCounts.total([counts_of(10), other, RunCounts(), sink])
    assert total.frames == 25
    assert total.detections == {"detect": 30}
    assert total.events == {"seen": 1, "left": 2}
    assert list(total.counts.items()) == [("a", 5), ("z", 2)]
    assert total.stages == {
        "detect": {"frames": 30, "instances": 2, "seconds": 0.03, "us_per_frame": 1000.0, "failed": 3},
        "all": {"frames": 0, "instances": 1, "seconds": 0.0, "us_per_frame": None},
    }
    assert (total.labels, total.unsure) == ({"detect": {"car": 4, "person": 2}}, {"detect": 2})
    assert total.report()["events_by_stage"] == {"zone": {"entered": 6}}
    assert (total.event_counts, total.queues) == ({EventSeries("gate", "zone", "entered"): 6}, {"detect": 4})


def test_merged_latency_is_that_of_all_frames() -> None:
    report = RunCounts.total([counts_of(10, 10.0), counts_of(20, 100.0)]).report()
    assert 95 < report["latency"]["jsonl"]["p50_ms"] < 105


def test_every_declared_count_is_merged() -> None:
    for declared in fields(RunCounts):
        total = RunCounts.total([counts_of(10), counts_of(20)], declared.name)
        assert getattr(total, declared.name)
        assert all(not getattr(total, other.name) for other in fields(RunCounts) if other.name != declared.name)


def test_summing_does_not_change_the_parts() -> None:
    part = counts_of(10)
    RunCounts.total([part, counts_of(20)])
    assert (part.frames, int(part.latency["jsonl"].counts.sum())) == (10, 10)


def test_empty_counts_have_no_frames() -> None:
    assert RunCounts.total([]).frames == RunCounts.total([RunCounts()]).frames == 0
