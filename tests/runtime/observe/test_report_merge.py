"""The parts of a report."""

from streamkit.runtime.observe.report_merge import headline


def test_the_first_part_gives_the_unmerged_fields() -> None:
    rounded = headline("cuda:0", 0, 100, 3.00049)
    assert (rounded["seconds"], rounded["frames_per_s"]) == (3.0, 33.33)
    assert headline("cuda:0", 0, 1, 1.2346)["seconds"] == 1.235
    assert headline("cuda:0", 1, 50, 4.00049) == {
        "schema": "streamkit-report/1",
        "device": "cuda:0",
        "exit_code": 1,
        "frames": 50,
        "seconds": 4.0,
        "frames_per_s": 12.5,
    }
    assert headline("cpu", 0, 0, 0.0)["frames_per_s"] is None
