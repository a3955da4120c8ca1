"""`detect: {every: n}`: frames between cost no inference, and the others are what they are without it."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Batch
from streamkit.core.errors import ConfigError
from streamkit.core.stage import BatchStage, stage
from streamkit.models.card import load_card
from streamkit.stages.inference.detectors import Detect
from streamkit.stages.sources.source import VideoSource
from streamkit.testing.kit import run_stage

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def card():
    return load_card(ROOT / "models" / "demo.yaml")


@pytest.fixture(scope="module")
def street():
    """Eight frames of the street that ships, a fifth of a second apart."""
    return run_stage(VideoSource(uri=str(ROOT / "samples" / "street.mp4"), every=5, end=2))[:8]


def tables(card, footage, **options):
    processed = run_stage(Detect(model=card, **options), [dataclasses.replace(f) for f in footage], batch=3)
    return [frame.tables["detect"] for frame in processed], [frame._state.skipped_detectors for frame in processed]


@pytest.mark.parametrize("roi", [None, ((100, 50), (600, 50), (600, 350), (100, 350))], ids=["whole", "roi"])
@pytest.mark.parametrize("every", [2, 3, 5])
def test_searched_frames_have_the_detections_of_every_1(card, street, every, roi):
    whole, none = tables(card, street, roi=roi)
    tables_by_frame, skipped = tables(card, street, roi=roi, every=every)
    assert none == [frozenset()] * 8
    for i in range(8):
        if i % every:
            assert skipped[i] == {"detect"}
            assert len(tables_by_frame[i]) == 0
            assert tables_by_frame[i].labels == whole[i].labels
        else:
            assert not skipped[i]
            np.testing.assert_array_equal(tables_by_frame[i].xyxy, whole[i].xyxy)
            np.testing.assert_array_equal(tables_by_frame[i].score, whole[i].score)
    assert sum(map(len, tables_by_frame)) > 10


def test_each_source_counts_its_frames(card, street):
    mixed = [dataclasses.replace(frame, source=name) for frame in street[:4] for name in "ab"]
    _, skipped = tables(card, mixed, every=2)
    assert [bool(detectors) for detectors in skipped] == [False, False, True, True] * 2


def test_skipped_frames_need_no_inference_and_have_predicted_objects(run_pipeline):
    rows = []

    @stage("spy", reads="tensor", writes="tensor")
    class Spy(BatchStage):
        """Count the rows that the network gets."""

        def process(self, batch: Batch) -> Batch:
            rows.append(len(batch.tensor))
            return batch

    text = """
    sources: {a: {uri: samples/street.mp4, end: 1}, b: {uri: samples/street.mp4, start: 4, end: 5, every: 2}}
    stages:
      detect: {model: demo, every: 3, insert: {after: preprocess, stage: spy}}
      track: {}
      collect: {}
    """
    processed = run_pipeline(text, extra=[Spy])
    assert processed.code == 0
    looked = {name: list(range(0, len(records), 3)) for name, records in processed.records.items()}
    assert sum(rows) == sum(map(len, looked.values()))
    assert processed.report["counts"]["frames skipped: every"] == sum(map(len, processed.records.values())) - sum(rows)
    for name, records in processed.records.items():
        assert [record["frame"] for record in records] == sorted(record["frame"] for record in records)
        for i, record in enumerate(records):
            flags = {o.get("predicted", False) for o in record["objects"]}
            assert flags == {i not in looked[name]}
        track_ids = {o["track_id"] for o in records[-1]["objects"] if "track_id" in o}
        assert len(track_ids) >= 5


def test_a_failed_frame_does_not_shift_the_turns(card, street):
    broken = [dataclasses.replace(frame) for frame in street]
    broken[2] = dataclasses.replace(broken[2], surface=None)
    processed = run_stage(Detect(model=card, every=2), broken, batch=4, on_error="skip")
    assert [bool(frame.error) for frame in processed] == [i == 2 for i in range(8)]
    assert [len(frame.detections) > 0 for frame in processed if not frame.error] == [
        i % 2 == 0 for i in range(8) if i != 2
    ]


def test_every_is_refused_for_objects_within_objects():
    text = """
sources: {a: samples/street.mp4}
stages:
  detect: {model: demo}
  inner: {stage: detect, model: demo, of: detect.car, every: 2}
"""
    with pytest.raises(ConfigError, match=r":5:.*every"):
        build(read_text(text, folder=ROOT))


def test_two_detectors_in_branches_have_separate_turns(run_pipeline):
    text = """
    sources: {a: {uri: samples/street.mp4, end: 0.6}}
    stages:
      cars: {stage: detect, model: demo, labels: [car], every: 2}
      people: {stage: detect, from: decode, model: demo, labels: [person], every: 3}
      track: {from: [cars, people]}
      collect: {}
    """
    records = run_pipeline(text).records["a"]
    assert len(records) == 15
    for record in records:
        for name, every in (("cars", 2), ("people", 3)):
            flags = {o.get("predicted", False) for o in record["objects"] if o["stage"] == name}
            assert flags == {record["frame"] % every != 0}
    numbers = [{o["track_id"] for o in records[4]["objects"] if o["stage"] == name} for name in ("cars", "people")]
    assert not numbers[0] & numbers[1]


@pytest.mark.gpu
@pytest.mark.parametrize("every", [1, 3])
def test_gpu_and_cpu_give_equal_tracks(run_pipeline, every):
    text = f"""
    sources: {{a: {{uri: samples/street.mp4, end: 3}}, b: {{uri: samples/street.mp4, start: 5, end: 8}}}}
    stages:
      detect: {{model: demo, every: {every}}}
      track: {{}}
      collect: {{}}
    """
    records_by_device = {device: run_pipeline(text, device=device).records for device in ("cpu", "cuda")}
    same = whole = 0
    for name, records in records_by_device["cpu"].items():
        for cpu_record, gpu_record in zip(records, records_by_device["cuda"][name], strict=True):
            flags = [{o.get("predicted", False) for o in side["objects"]} for side in (cpu_record, gpu_record)]
            assert flags[0] == flags[1] == {bool(cpu_record["frame"] % every) if name == "a" else next(iter(flags[0]))}
            boxes = {o["track_id"]: o["box"] for o in cpu_record["objects"] if "track_id" in o}
            for o in gpu_record["objects"]:
                if "track_id" in o:
                    whole += 1
                    box = boxes.get(o["track_id"])
                    same += box is not None and np.abs(np.array(box) - o["box"]).max() < 2
    assert same >= 0.95 * whole > 500  # a row near a threshold may come or go
