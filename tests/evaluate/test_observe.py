"""The run of an evaluation: the pipeline as it is configured, and what its thresholds remove."""

import contextlib

import numpy as np
import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.evaluate.observe import LOW_SCORE, check_sources, detectors_of, known_classes, observe
from streamkit.evaluate.report import evaluate
from streamkit.evaluate.truth import Truth, TruthOptions

TEXT = """
device: {device}
sources: {{street: samples/street.mp4}}
stages:
  detect: {{model: demo, {detect}}}
  track: {{}}
  door: {{stage: line_counter, line: [[300, 0], [300, 360]]}}
  {last}: {{}}
"""


def observed(root, limit, *, detect="min_score: 0.4", device="cpu"):
    graph = build(read_text(TEXT.format(device=device, detect=detect, last="draw"), folder=root))
    classes = known_classes(detectors_of(graph))
    truth = Truth(TruthOptions(str(root / "samples/street.truth.jsonl")), ["street"], *classes)
    return observe(graph, truth, lambda _: contextlib.nullcontext(), limit=limit), truth


def test_observed_boxes_equal_those_of_the_run(root, run_pipeline):
    seen, _ = observed(root, 24)
    plain = run_pipeline(TEXT.format(device="cpu", detect="min_score: 0.4", last="collect"), limit=24)
    objects = [record["objects"] for record in plain.records["street"]]
    assert len(seen.detections) == sum(map(len, objects))
    for frame, frame_objects in enumerate(objects):
        part = seen.detections[seen.detections.rows_of(frame)]
        assert np.allclose(part.xyxy, [detection["box"] for detection in frame_objects], atol=0.006)
        assert part.track_id.tolist() == [detection.get("track_id", -1) for detection in frame_objects]
    assert not any("evaluate" in name for name in plain.report["stages"])


def test_a_part_of_a_video_may_end_before_its_truth(root):
    text = TEXT.replace("samples/street.mp4", "{{uri: samples/street.mp4, end: 200ms}}")
    graph = build(read_text(text.format(device="cpu", detect="min_score: 0.4", last="draw"), folder=root))
    classes = known_classes(detectors_of(graph))
    truth = Truth(TruthOptions(str(root / "samples/street.truth.jsonl")), ["street"], *classes)
    seen = observe(graph, truth, lambda _: contextlib.nullcontext())
    assert [frame.index for frame in seen.frames] == list(range(5))


def test_candidates_include_those_below_threshold_and_suppressed(root):
    seen, _ = observed(root, 8, detect="min_score: 0.4, labels: [car]")
    assert seen.names[: seen.classes] == ("car",)
    assert LOW_SCORE <= seen.low.score.min() < 0.1
    assert seen.raw.score.min() >= 0.4
    cars = seen.raw[seen.raw.class_id == 0]
    assert len(cars) > 2 * len(seen.detections)  # with all that non-max suppression removes
    assert {seen.names[number] for number in seen.raw.class_id} == {"car", "person", "bike"}
    assert any("class person is not evaluated" in note for note in seen.notes)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_lines_are_counted_on_the_truth_and_every_miss_has_a_cause(root, device):
    seen, truth = observed(root, 40, device=device)
    assert seen.truth_events
    report = evaluate(seen, truth, "p.yaml", {}).report
    assert report["counts"]["rows"]
    assert {row["stage"] for row in report["counts"]["rows"]} == {"door"}
    missed = [miss for miss in report["misses"]["objects"] if not miss["cause"].startswith("track.")]
    assert len(missed) == report["detection"]["missed"] > 0
    assert sum(cause["all"] for cause in report["misses"]["causes"].values()) == len(report["misses"]["objects"])
    assert 0.5 < report["detection"]["ap"] < 1
    assert not any("evaluate" in name for name in report["speed"]["ms_per_frame"])


def test_skipped_frames_are_excluded_from_average_precision(root):
    seen, truth = observed(root, 9, detect="every: 3")
    assert seen.inferred.tolist() == [0, 3, 6]
    assert any("3 frames on which the network ran" in note for note in seen.notes)
    assert evaluate(seen, truth, "p.yaml", {}).report["detection"]["ap"] > 0.5


def test_cameras_and_loops_are_refused(root):
    from streamkit.core.errors import ConfigError

    for option in ("loop: true", "loop: 2", "pace: realtime"):
        text = f"sources: {{a: {{uri: samples/street.mp4, {option}}}}}\nstages: {{detect: {{model: demo}}}}"
        with pytest.raises(ConfigError, match="source a is a camera, or has pace or loop"):
            check_sources(build(read_text(text, folder=root)))
