"""What is said to be the limit of a run, from what its lanes did."""

from typing import Any

import pytest

from streamkit.runtime.observe.bottleneck import HOST, LaneUsage, Sums, find_bottleneck, lane_usages

ROLES = {"detect.infer": "network", "video": "output", "draw": ""}


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
                    "detect", work_s={"pre": 1.5, "detect.infer": 1.0}, gpu_s={"pre": 1.0, "detect.infer": 8.0},
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
)  # fmt: skip
def test_the_limit_in_words(lanes, limit):
    assert find_bottleneck(lanes, ROLES) == limit


def test_threads_are_added_up_by_lane():
    def track(name: str, process: str = HOST, **sums: Any):
        return Sums(name, process, **sums)

    usages = lane_usages([
        track("source/clips/a", work_s={"decode": 1.0}, cpu_s=0.5),
        track("source/b", work_s={"decode": 3.0}, wait_s={"wait": 1.0}, cpu_s=1.0),
        track("ahead/0", work_s={"decode": 3.0}),
        track("detect.preprocess/0", work_s={"infer": 1.0}, wait_s={"wait": 7.0}),
        track("detect.preprocess/0", "cuda:0", work_s={"infer": 6.0}),
        track("jsonl/0"),
    ])  # fmt: skip
    source, detect = usages
    assert (source.name, source.threads, source.total_s, source.cpu_s) == ("source", 3, 8.0, 1.5)
    assert source.work_s == {"decode": 7.0}
    assert (detect.name, detect.threads, detect.total_s) == ("detect.preprocess", 1, 8.0)
    assert detect.gpu_s == {"infer": 6.0}
    assert source.summary() == {"threads": 3, "busy": 0.875, "decode": 0.875, "wait": 0.125, "on a CPU core": 0.188}
