"""One report of what several processes have counted."""

from streamkit.runtime.execution.meters import Histogram
from streamkit.runtime.observe.report_merge import WorkerReport, add_up, frames_done, headline, unmerged_fields


def histogram(*seconds: float) -> Histogram:
    made = Histogram()
    for one in seconds:
        made.add(one)
    return made


def tally(frames: int, ms: float, **more: object) -> WorkerReport:
    stage = {"frames": frames, "instances": 1, "seconds": frames * 0.001, "us_per_frame": 1000.0}
    report = {
        "exit_code": 0, "frames": frames, "seconds": 2.0, "frames_per_s": frames / 2, "detections": {"detect": frames},
        "events": {"seen": 1}, "counts": {"z": 1, "a": 2}, "stages": {"detect": stage},
    } | more  # fmt: skip
    return WorkerReport(report, {"jsonl": frames, "draw": frames + 5}, {"jsonl": histogram(*[ms / 1000] * frames)})


def test_sums() -> None:
    sink = WorkerReport(
        {"counts": {"a": 1}, "stages": {"all": {"frames": 0, "instances": 1, "seconds": 0.0}}}, {"all": 25}
    )
    other = tally(20, 100.0, events={"left": 2})
    other.report["stages"]["detect"]["failed"] = 3
    found = add_up([tally(10, 10.0), other, WorkerReport(), sink])
    assert found["frames"] == 25 == frames_done([tally(10, 10.0), other, sink])
    assert found["detections"] == {"detect": 30}
    assert found["events"] == {"seen": 1, "left": 2}
    assert list(found["counts"].items()) == [("a", 5), ("z", 2)]
    assert found["stages"] == {
        "detect": {"frames": 30, "instances": 2, "seconds": 0.03, "us_per_frame": 1000.0, "failed": 3},
        "all": {"frames": 0, "instances": 1, "seconds": 0.0, "us_per_frame": None},
    }
    assert 95 < found["latency"]["jsonl"]["p50_ms"] < 105  # of all frames together: not the mean of 10 and 100
    assert frames_done([]) == frames_done([WorkerReport()]) == 0


def test_what_has_no_sum_stays_with_its_process() -> None:
    assert unmerged_fields(tally(10, 1.0, memory={"pool": 3})) == {
        "exit_code": 0, "frames": 10, "seconds": 2.0, "frames_per_s": 5.0, "memory": {"pool": 3},
    }  # fmt: skip
    assert unmerged_fields(WorkerReport()) == {}


def test_the_first_part_of_a_report() -> None:
    rounded = headline("cuda:0", 0, 100, 3.00049)
    assert (rounded["seconds"], rounded["frames_per_s"]) == (3.0, 33.33)
    assert headline("cuda:0", 0, 1, 1.2346)["seconds"] == 1.235
    found = headline("cuda:0", 1, 50, 4.00049)
    assert found == {
        "schema": "streamkit-report/1", "device": "cuda:0", "exit_code": 1, "frames": 50, "seconds": 4.0,
        "frames_per_s": 12.5,
    }  # fmt: skip
    assert headline("cpu", 0, 0, 0.0)["frames_per_s"] is None
