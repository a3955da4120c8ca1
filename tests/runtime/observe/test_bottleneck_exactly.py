"""From which shares of time on something is said to be the limit of a run."""

from typing import Any

import pytest

from streamkit.runtime.observe.bottleneck import GPU, LaneUsage, Sums, find_bottleneck, lane_usages

ROLES = {"infer": "network", "video": "output", "draw": ""}


def use(name: str = "draw", work_s: Any = 0.0, **fields: Any) -> LaneUsage:
    """A lane of one thread and ten seconds, on a core while it works."""
    work_s = work_s if isinstance(work_s, dict) else {name: work_s}
    wait_s = fields.pop("wait_s", None) or {"wait for input": 10.0 - sum(work_s.values())}
    usage = {"threads": 1, "cpu_s": sum(work_s.values()), "total_s": 10.0, **fields}
    return LaneUsage(name, work_s=work_s, wait_s=wait_s, **usage)


def test_how_busy_a_lane_is():
    assert LaneUsage("idle").busy == 0.0
    assert use(work_s=2.5).busy == 0.25
    assert use(work_s=0.0).busy == 0.0
    assert use(work_s=2.5, wait_s={"wait for input": 12.0}).busy == 0.0, "sums of other threads may be later"
    waiting = {GPU: 5.0, "wait for input": 2.5}
    assert use(work_s=2.5, wait_s=waiting, gpu_s={"draw": 6.0}).busy == 0.75
    assert use(work_s=2.5, wait_s=waiting).busy == 0.25, "a lane of the host waits for the work of others"


def test_how_long_a_lane_waits_for_its_own_work_on_the_gpu():
    assert use(wait_s={GPU: 5.0}, gpu_s={"draw": 1.0}).on_gpu_s == 5.0
    assert use(wait_s={GPU: 5.0}).on_gpu_s == 0.0
    assert use(wait_s={"wait for input": 5.0}, gpu_s={"draw": 1.0}).on_gpu_s == 0.0


def test_the_share_of_work_that_is_not_on_a_core():
    assert use(work_s={"a": 4.0, "b": 4.0}, cpu_s=2.0).off_core == 0.75
    assert use(work_s=0.5, cpu_s=0.25).off_core == 0.5
    assert LaneUsage("idle").off_core == 1.0


def test_the_stage_with_most_of_the_work():
    assert use("lane", {"a": 1.0, "b": 3.0, "c": 2.0}).busiest_stage == "b"
    assert LaneUsage("idle").busiest_stage == "idle"


def test_shares_of_a_lane_have_three_decimals():
    summary = use("lane", {"a": 1.0, "b": 2.0004}, wait_s={"wait": 4.0}, total_s=7.0004, cpu_s=1.5, threads=2).summary()
    assert summary == {"threads": 2, "busy": 0.429, "a": 0.143, "b": 0.286, "wait": 0.571, "on a CPU core": 0.214}
    assert LaneUsage("idle").summary() == {"threads": 0, "busy": 0.0, "on a CPU core": 0.0}
    assert LaneUsage("new", work_s={"a": 2.0}, cpu_s=1.0).summary() == {
        "threads": 0, "busy": 0.0, "a": 2.0, "on a CPU core": 1.0
    }  # fmt: skip


def test_a_new_lane_has_no_time():
    assert LaneUsage("lane") == LaneUsage("lane", "streamkit", {}, {}, 0.0, 0, 0.0, {})
    assert Sums("lane").cpu_s == 0.0


def test_lanes_of_threads():
    usages = lane_usages([
        Sums("main", work_s={"read": 1.0}, cpu_s=0.25),
        Sums("detect/0", work_s={"infer": 1.0}, wait_s={"wait": 2.0}, cpu_s=0.5),
        Sums("detect/1", work_s={"infer": 3.0, "draw": 4.0}, wait_s={"wait": 5.0}, cpu_s=0.75),
        Sums("detect/0", "cuda:0", work_s={"infer": 0.5}),
        Sums("detect/1", "cuda:0", work_s={"infer": 0.25}),
        Sums("waits/0", wait_s={"wait": 1.0}),
        Sums("gpu/0", "cuda:0", work_s={"infer": 7.0}),
        Sums("source/a/b", work_s={"decode": 1.0}),
    ])  # fmt: skip
    assert usages == [
        LaneUsage("main", work_s={"read": 1.0}, cpu_s=0.25, threads=1, total_s=1.0),
        LaneUsage(
            "detect", work_s={"infer": 4.0, "draw": 4.0}, wait_s={"wait": 7.0}, cpu_s=1.25, threads=2, total_s=15.0,
            gpu_s={"infer": 0.75},
        ),
        LaneUsage("waits", wait_s={"wait": 1.0}, threads=1, total_s=1.0),
        LaneUsage("source", work_s={"decode": 1.0}, threads=1, total_s=1.0),
    ]  # fmt: skip


THIS = "draw is busy {} % of the time: this stage is the limit"
NONE = "draw is busy most, {} % of the time: no stage alone is the limit"
PACE = "draw is busy most, {} % of the time: the sources' own pace is the limit"
CORE = "decode and draw are all busy, and wait for a core: the CPU is the limit, and {} takes most of it"
OFF = "; {} % of its work is waiting for a core, a device, a disk or Python's lock"
ON_GPU = "infer keeps the GPU busy, its thread waits for it {} % of the time: the network is the limit"


@pytest.mark.parametrize(
    ("lanes", "limit"),
    [
        ([use(work_s=6.9)], NONE.format(69)),
        ([use(work_s=7.5), use("video", 7.25)], THIS.format(75)),
        ([use("video", 7.25), use(work_s=7.5)], THIS.format(75)),
        ([use(work_s=10.0, wait_s={"wait": 0.0})], THIS.format(100)),
        # the pace of the sources
        ([use("source", 1.0, wait_s={"wait for the pace": 5.1, "x": 3.9}), use(work_s=4.0)], PACE.format(40)),
        ([use("source", 1.0, wait_s={"wait for the pace": 4.0, "x": 5.0}), use(work_s=4.0)], NONE.format(40)),
        ([use("source", 1.0, wait_s={"wait for the pace": 5.0, "x": 4.0}), use(work_s=4.0)], NONE.format(40)),
        (
            [use("source", 1.0, wait_s={"wait for the pace": 3.0, "wait for packets": 3.0, "x": 3.0}), use(work_s=4.0)],
            PACE.format(40),
        ),
        # cores
        ([use("decode", 9.0, cpu_s=7.0), use(work_s=8.0, cpu_s=6.2)], CORE.format("decode")),
        ([use("decode", 9.0, cpu_s=6.0), use(work_s=8.0, cpu_s=6.2)], CORE.format("draw")),
        ([use("decode", 9.0, cpu_s=8.0), use(work_s=9.5, cpu_s=7.0)], THIS.format(95) + OFF.format(26)),
        ([use("decode", 6.9, cpu_s=1.0), use(work_s=8.0, cpu_s=2.0)], THIS.format(80) + OFF.format(75)),
        ([use("decode", 8.0, cpu_s=7.0), use(work_s=9.5, cpu_s=7.7)], THIS.format(95)),
        (
            [use("decode", 8.0, cpu_s=1.0), use(work_s=9.5, cpu_s=1.9), use("infer", 1.0, gpu_s={"infer": 1.0})],
            THIS.format(95) + OFF.format(80),
        ),
        # the GPU
        ([use("infer", 7.0, wait_s={GPU: 2.1, "x": 0.9}, gpu_s={"infer": 3.0})], ON_GPU.format(21)),
        (
            [use("pre", 1.0, wait_s={GPU: 8.0, "x": 1.0}, gpu_s={"pre": 1.0, "infer": 6.0, "post": 2.0})],
            ON_GPU.format(80),
        ),
        (
            [use("infer", 7.0, wait_s={GPU: 1.0, "x": 2.0}, gpu_s={"infer": 3.0})],
            "infer is busy 70 % of the time, with what else its thread does 80 %: the network is the limit",
        ),
        # what else the thread does
        ([use("lane", {"draw": 7.5, "other": 0.25})], THIS.format(75)),
        (
            [use("lane", {"draw": 7.5, "other": 0.75})],
            "draw is busy 75 % of the time, with what else its thread does 82 %: this stage is the limit",
        ),
        # threads
        (
            [use(work_s=15.0, wait_s={"x": 5.0}, total_s=20.0, threads=2)],
            "draw is busy 75 % of the time, on each of 2 threads: this stage is the limit",
        ),
        ([use(work_s=15.0, wait_s={"x": 5.0}, total_s=20.0)], THIS.format(75)),
        # work that is not on a core
        ([use(work_s=8.0, cpu_s=6.5)], THIS.format(80)),
        ([use(work_s=8.0, cpu_s=6.0)], THIS.format(80) + OFF.format(25)),
        ([use("other", 8.0)], "other is busy 80 % of the time: this stage is the limit"),
        ([use("idle", {}), use(work_s=7.5)], THIS.format(75)),
    ],
)
def test_what_is_the_limit(lanes, limit):
    assert find_bottleneck(lanes, ROLES) == limit


def test_seven_tenths_of_the_time_are_busy_and_two_tenths_are_not_much():
    assert use(work_s=7.0).busy == 0.7
    assert find_bottleneck([use(work_s=7.0)], ROLES) == THIS.format(70)
    cores = [use("decode", 7.0, cpu_s=3.5), use(work_s=9.0, cpu_s=2.7)]
    assert find_bottleneck(cores, ROLES) == CORE.format("decode")
    gpu = use("infer", 8.0, wait_s={GPU: 2.0}, gpu_s={"infer": 3.0})
    assert find_bottleneck([gpu], ROLES) == (
        "infer is busy 80 % of the time, with what else its thread does 100 %: the network is the limit"
    )
