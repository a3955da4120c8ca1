"""What is said to be the limit of a run, from what its lanes did."""

from typing import Any

import pytest

from streamkit.runtime.observe.bottleneck import GPU, LaneUsage, Sums, find_bottleneck, lane_usages

ROLES = {"detect.infer": "network", "infer": "network", "video": "output", "draw": ""}


def use(name: str, total_s: float = 10.0, **fields: Any) -> LaneUsage:
    usage = {"threads": 1, "cpu_s": sum(fields.get("work_s", {}).values()), **fields}
    return LaneUsage(name, total_s=total_s, **usage)


SOURCE = use("source", work_s={"decode": 3.0}, wait_s={"wait for the batcher": 7.0})


@pytest.mark.parametrize(
    ("lanes", "limit"),
    [
        (
            [SOURCE, use("detect", work_s={"detect.infer": 9.7}, wait_s={"wait for input": 0.3})],
            "detect.infer is busy 97 % of the time: the network is the limit",
        ),
        (
            [use("detect", 20.0, threads=2, work_s={"pre": 3.0, "detect.infer": 16.0}, wait_s={"wait for input": 1.0})],
            "detect.infer is busy 80 % of the time, with what else its thread does 95 %, on each of 2 threads: "
            "the network is the limit",
        ),
        (
            [use("source", work_s={"decode": 9.0}, wait_s={"wait for the batcher": 1.0}, cpu_s=0.9)],
            "decode is busy 90 % of the time: decoding is the limit; 90 % of its work is waiting for a core, a device, "
            "a disk or Python's lock",
        ),
        (
            [SOURCE, use("video", work_s={"video": 9.0}, wait_s={"wait for input": 1.0})],
            "video is busy 90 % of the time: writing is the limit",
        ),
        (
            [use("draw", work_s={"draw": 9.0}, wait_s={"wait for input": 1.0})],
            "draw is busy 90 % of the time: this stage is the limit",
        ),
        (
            [
                use("source", work_s={"decode": 1.0}, wait_s={"wait for the pace": 9.0}),
                use("detect", work_s={"detect.infer": 4.0}, wait_s={"wait for input": 6.0}),
            ],
            "detect.infer is busy most, 40 % of the time: the sources' own pace is the limit",
        ),
        (
            [SOURCE, use("detect", work_s={"detect.infer": 5.0}, wait_s={"wait for input": 5.0})],
            "detect.infer is busy most, 50 % of the time: no stage alone is the limit",
        ),
        (
            [
                use(
                    "detect",
                    work_s={"pre": 1.5, "detect.infer": 1.0},
                    gpu_s={"pre": 1.0, "detect.infer": 8.0},
                    wait_s={"wait for input": 0.5, "wait for the GPU": 7.0},
                ),
                use("draw", work_s={"draw": 2.0}, wait_s={"wait for the GPU": 8.0}),
            ],
            "detect.infer keeps the GPU busy, its thread waits for it 70 % of the time: the network is the limit",
        ),
        (
            [
                use("source", work_s={"decode": 9.9}, wait_s={"wait for the batcher": 0.1}, cpu_s=2.0),
                use("detect", work_s={"detect.infer": 9.0}, wait_s={"wait for input": 1.0}, cpu_s=4.5),
            ],
            "decode and detect.infer are all busy, and wait for a core: the CPU is the limit, and detect.infer takes "
            "most of it",
        ),
        ([use("draw", wait_s={"wait for input": 10.0})], None),
        ([], None),
    ],
)
def test_the_bottleneck_is_described(lanes, limit):
    assert find_bottleneck(lanes, ROLES) == limit


def usage_of(name: str = "draw", work_s: Any = 0.0, **fields: Any) -> LaneUsage:
    """A lane of one thread and ten seconds, on a core while it works."""
    work_s = work_s if isinstance(work_s, dict) else {name: work_s}
    wait_s = fields.pop("wait_s", None) or {"wait for input": 10.0 - sum(work_s.values())}
    usage = {"threads": 1, "cpu_s": sum(work_s.values()), "total_s": 10.0, **fields}
    return LaneUsage(name, work_s=work_s, wait_s=wait_s, **usage)


def test_the_busy_share_of_a_lane_is_computed():
    assert LaneUsage("idle").busy == 0.0
    assert usage_of(work_s=2.5).busy == 0.25
    assert usage_of(work_s=0.0).busy == 0.0
    assert usage_of(work_s=2.5, wait_s={"wait for input": 12.0}).busy == 0.0, "sums of other threads may be later"
    waiting = {GPU: 5.0, "wait for input": 2.5}
    assert usage_of(work_s=2.5, wait_s=waiting, gpu_s={"draw": 6.0}).busy == 0.75
    assert usage_of(work_s=2.5, wait_s=waiting).busy == 0.25, "a lane of the host waits for the work of others"


def test_a_lane_with_gpu_work_counts_its_wait_for_the_gpu():
    assert usage_of(wait_s={GPU: 5.0}, gpu_s={"draw": 1.0}).on_gpu_s == 5.0
    assert usage_of(wait_s={GPU: 5.0}).on_gpu_s == 0.0
    assert usage_of(wait_s={"wait for input": 5.0}, gpu_s={"draw": 1.0}).on_gpu_s == 0.0


def test_threads_of_a_stage_are_summed_to_a_lane():
    usages = lane_usages(
        [
            Sums("main", work_s={"read": 1.0}, cpu_s=0.25),
            Sums("detect/0", work_s={"infer": 1.0}, wait_s={"wait": 2.0}, cpu_s=0.5),
            Sums("detect/1", work_s={"infer": 3.0, "draw": 4.0}, wait_s={"wait": 5.0}, cpu_s=0.75),
            Sums("detect/0", "cuda:0", work_s={"infer": 0.5}),
            Sums("detect/1", "cuda:0", work_s={"infer": 0.25}),
            Sums("waits/0", wait_s={"wait": 1.0}),
            Sums("gpu/0", "cuda:0", work_s={"infer": 7.0}),
            Sums("source/a/b", work_s={"decode": 1.0}),
        ]
    )
    assert usages == [
        LaneUsage("main", work_s={"read": 1.0}, cpu_s=0.25, threads=1, total_s=1.0),
        LaneUsage(
            "detect",
            work_s={"infer": 4.0, "draw": 4.0},
            wait_s={"wait": 7.0},
            cpu_s=1.25,
            threads=2,
            total_s=15.0,
            gpu_s={"infer": 0.75},
        ),
        LaneUsage("waits", wait_s={"wait": 1.0}, threads=1, total_s=1.0),
        LaneUsage("source", work_s={"decode": 1.0}, threads=1, total_s=1.0),
    ]


THIS = "draw is busy {} % of the time: this stage is the limit"


NONE = "draw is busy most, {} % of the time: no stage alone is the limit"


PACE = "draw is busy most, {} % of the time: the sources' own pace is the limit"


CORE = "decode and draw are all busy, and wait for a core: the CPU is the limit, and {} takes most of it"


OFF = "; {} % of its work is waiting for a core, a device, a disk or Python's lock"


ON_GPU = "infer keeps the GPU busy, its thread waits for it {} % of the time: the network is the limit"


@pytest.mark.parametrize(
    ("lanes", "limit"),
    [
        ([usage_of(work_s=6.9)], NONE.format(69)),
        ([usage_of(work_s=7.5), usage_of("video", 7.25)], THIS.format(75)),
        ([usage_of("video", 7.25), usage_of(work_s=7.5)], THIS.format(75)),
        ([usage_of(work_s=10.0, wait_s={"wait": 0.0})], THIS.format(100)),
        # the pace of the sources
        ([usage_of("source", 1.0, wait_s={"wait for the pace": 5.1, "x": 3.9}), usage_of(work_s=4.0)], PACE.format(40)),
        ([usage_of("source", 1.0, wait_s={"wait for the pace": 4.0, "x": 5.0}), usage_of(work_s=4.0)], NONE.format(40)),
        ([usage_of("source", 1.0, wait_s={"wait for the pace": 5.0, "x": 4.0}), usage_of(work_s=4.0)], NONE.format(40)),
        (
            [
                usage_of("source", 1.0, wait_s={"wait for the pace": 3.0, "wait for packets": 3.0, "x": 3.0}),
                usage_of(work_s=4.0),
            ],
            PACE.format(40),
        ),
        # cores
        ([usage_of("decode", 9.0, cpu_s=7.0), usage_of(work_s=8.0, cpu_s=6.2)], CORE.format("decode")),
        ([usage_of("decode", 9.0, cpu_s=6.0), usage_of(work_s=8.0, cpu_s=6.2)], CORE.format("draw")),
        ([usage_of("decode", 9.0, cpu_s=8.0), usage_of(work_s=9.5, cpu_s=7.0)], THIS.format(95) + OFF.format(26)),
        ([usage_of("decode", 6.9, cpu_s=1.0), usage_of(work_s=8.0, cpu_s=2.0)], THIS.format(80) + OFF.format(75)),
        ([usage_of("decode", 8.0, cpu_s=7.0), usage_of(work_s=9.5, cpu_s=7.7)], THIS.format(95)),
        (
            [
                usage_of("decode", 8.0, cpu_s=1.0),
                usage_of(work_s=9.5, cpu_s=1.9),
                usage_of("infer", 1.0, gpu_s={"infer": 1.0}),
            ],
            THIS.format(95) + OFF.format(80),
        ),
        # the GPU
        ([usage_of("infer", 7.0, wait_s={GPU: 2.1, "x": 0.9}, gpu_s={"infer": 3.0})], ON_GPU.format(21)),
        (
            [usage_of("pre", 1.0, wait_s={GPU: 8.0, "x": 1.0}, gpu_s={"pre": 1.0, "infer": 6.0, "post": 2.0})],
            ON_GPU.format(80),
        ),
        (
            [usage_of("infer", 7.0, wait_s={GPU: 1.0, "x": 2.0}, gpu_s={"infer": 3.0})],
            "infer is busy 70 % of the time, with what else its thread does 80 %: the network is the limit",
        ),
        # what else the thread does
        ([usage_of("lane", {"draw": 7.5, "other": 0.25})], THIS.format(75)),
        (
            [usage_of("lane", {"draw": 7.5, "other": 0.75})],
            "draw is busy 75 % of the time, with what else its thread does 82 %: this stage is the limit",
        ),
        # threads
        (
            [usage_of(work_s=15.0, wait_s={"x": 5.0}, total_s=20.0, threads=2)],
            "draw is busy 75 % of the time, on each of 2 threads: this stage is the limit",
        ),
        ([usage_of(work_s=15.0, wait_s={"x": 5.0}, total_s=20.0)], THIS.format(75)),
        # work that is not on a core
        ([usage_of(work_s=8.0, cpu_s=6.5)], THIS.format(80)),
        ([usage_of(work_s=8.0, cpu_s=6.0)], THIS.format(80) + OFF.format(25)),
        ([usage_of("other", 8.0)], "other is busy 80 % of the time: this stage is the limit"),
        ([usage_of("idle", {}), usage_of(work_s=7.5)], THIS.format(75)),
    ],
)
def test_the_bottleneck_is_identified(lanes, limit):
    assert find_bottleneck(lanes, ROLES) == limit
