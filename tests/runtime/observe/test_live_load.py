"""Rates, load and the bottleneck of the last seconds, from counters."""

import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read
from streamkit.runtime.observe.live_load import Bottleneck, LiveLoad, StageLoad

TEXT = """
sources: {cam: "test://"}
stages:
  detect: {model: demo}
  track: {}
  jsonl: {path: out/x.jsonl}
"""


@pytest.fixture(name="load")
def load_fixture(tmp_path):
    return LiveLoad(build(read(tmp_path / "x.yaml", text=TEXT)))


def meters(**stages):
    return {
        id_.replace("_", "."): {"frames": frames, "seconds": seconds, "instances": instances}
        for id_, (frames, seconds, instances) in stages.items()
    }


def test_there_is_no_rate_before_two_samples(load):
    load.sample(0.0, meters(detect_infer=(0, 0.0, 1)), paced=True)
    assert (dict(load.stages), load.bottleneck) == ({}, Bottleneck())


def test_rates_cover_the_last_seconds(load):
    for second in range(20):
        busy = 0.1 if second < 10 else 0.5
        seconds = 0.1 * min(second, 10) + busy * max(0, second - 10)
        load.sample(float(second), meters(detect_infer=(30 * second, seconds, 1)), paced=True)
    assert load.stages["detect.infer"] == StageLoad(30.0, 0.5, pytest.approx(0.5 / 30 * 1e6, abs=1))
    assert load.bottleneck == Bottleneck(
        None, "detect.infer is busy most, 50 % of the time: the sources' own pace is the limit"
    )


def test_the_network_is_the_bottleneck_over_all_its_threads(load):
    for second in range(6):
        load.sample(
            float(second),
            meters(
                detect_preprocess=(20 * second, 0.1 * second, 2),
                detect_infer=(20 * second, 1.7 * second, 2),
                detect_postprocess=(20 * second, 0.05 * second, 1),
                track=(20 * second, 0.3 * second, 1),
            ),
            paced=True,
        )
    assert load.stages["detect.infer"].busy == 0.85
    assert load.bottleneck.stage == "detect.infer"
    assert load.bottleneck.text.endswith("on each of 2 threads: the network is the limit")


def test_writing_is_the_bottleneck(load):
    for second in range(6):
        load.sample(
            float(second),
            meters(detect_infer=(20 * second, 0.2 * second, 1), jsonl=(20 * second, 0.97 * second, 1)),
            paced=False,
        )
    assert load.bottleneck == Bottleneck("jsonl", "jsonl is busy 97 % of the time: writing is the limit")


def test_there_is_no_bottleneck_with_unpaced_sources(load):
    for second in range(6):
        load.sample(float(second), meters(detect_infer=(20 * second, 0.2 * second, 1)), paced=False)
    assert load.bottleneck == Bottleneck(
        None, "detect.infer is busy most, 20 % of the time: no stage alone is the limit"
    )


def test_falling_counts_give_no_negative_rates(load):
    load.sample(0.0, meters(track=(100, 5.0, 2)), paced=True)
    load.sample(1.0, meters(track=(40, 2.0, 1)), paced=True)  # a process has died
    assert load.stages["track"] == StageLoad(0.0, 0.0, None)
