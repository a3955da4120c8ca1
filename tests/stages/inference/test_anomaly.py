"""Scores of frames and objects, with a network whose score is the brightest place."""

import numpy as np
import pytest
from support.map_networks import anomaly_card, depth_card, gray_frames

from streamkit.config.graph import assemble
from streamkit.config.pipeline_config import read_text
from streamkit.core.records import record
from streamkit.core.units import Of
from streamkit.stages.inference.frame_maps import Anomaly
from streamkit.stages.video.draw import Draw
from streamkit.testing.kit import detections, run_stage


def film(*scores):
    """Frames a tenth of a second apart, each with a score."""
    levels = np.zeros((len(scores), 64, 96), np.uint8)
    for picture, score in zip(levels, scores, strict=True):
        picture[16:48, 24:72] = round(score * 255)
    return gray_frames(levels)


def events(frames):
    return [(frame.index, event.kind, event.data) for frame in frames for event in frame.events]


@pytest.mark.parametrize("batch", [1, 32])
def test_frames_have_scores_and_an_event_at_the_threshold(batch, tmp_path):
    scores = [0.2, 0.3, 0.6, 0.9, 0.47, 0.3, 0.2]
    scored = run_stage(Anomaly(model=anomaly_card(tmp_path)), film(*scores), batch=batch)
    assert [record(frame)["anomaly_score"] for frame in scored] == pytest.approx(scores, abs=0.005)
    (first, kind, about), (last, end, rest) = events(scored)
    assert (first, kind, about["since_s"]) == (2, "anomalous", 0.2)
    assert about["score"] == pytest.approx(0.6, abs=0.005)
    assert (last, end) == (5, "cleared")  # .47 is above 90 % of the threshold
    assert rest == {"max_score": pytest.approx(0.9, abs=0.005), "lasted_s": pytest.approx(0.3)}


@pytest.mark.parametrize(("min_score", "frame"), [(0.8, 3), (None, 2), (0.25, 1)])
def test_the_threshold_is_the_cards_or_the_option(min_score, frame, tmp_path):
    scored = run_stage(Anomaly(model=anomaly_card(tmp_path), min_score=min_score), film(0.2, 0.3, 0.6, 0.9))
    assert [index for index, *_ in events(scored)] == [frame]


def test_a_change_must_last(tmp_path):
    scores = [0.1, 0.9, 0.1, 0.9, 0.9, 0.9, 0.9, 0.1, 0.9, 0.1, 0.1, 0.1, 0.1]
    scored = run_stage(Anomaly(model=anomaly_card(tmp_path), debounce=0.2), film(*scores))
    assert [(index, kind) for index, kind, _ in events(scored)] == [(5, "anomalous"), (11, "cleared")]
    assert events(scored)[1][2]["lasted_s"] == pytest.approx(0.6)


def test_each_source_has_its_own_threshold_state(tmp_path):
    other = film(0.1, 0.1, 0.1)
    for frame in other:
        frame.source = "other"
    mixed = [frame for pair in zip(film(0.9, 0.9, 0.9), other, strict=True) for frame in pair]
    scored = run_stage(Anomaly(model=anomaly_card(tmp_path)), mixed)
    assert [(frame.source, event.kind) for frame in scored for event in frame.events] == [("test", "anomalous")]


def test_objects_have_scores_and_no_events(tmp_path):
    footage = film(0.9)
    boxes = [[24, 16, 71, 47], [0, 0, 22, 14], [0, 0, 6, 6]]
    footage[0].detections = detections(boxes, label=["part"] * 3)
    (frame,) = run_stage(Anomaly(model=anomaly_card(tmp_path), of=Of("detect"), min_size=8), footage)
    scores = frame.detections.extra["anomaly_score"]
    np.testing.assert_allclose(scores, [0.9, 0.0, np.nan], atol=0.01)
    assert (frame.events, frame.maps, "anomaly_score" in record(frame)) == ([], {}, False)
    assert "anomaly_score" not in record(frame)["objects"][2]


def test_draw_shows_unusual_places_only(tmp_path):
    (frame,) = run_stage(Anomaly(model=anomaly_card(tmp_path)), film(0.9))
    before = frame.image().astype(int)
    (drawn,) = run_stage(Draw(maps=1.0), [frame])
    change = np.abs(drawn.image().astype(int) - before).sum(axis=2)
    assert change[32, 48] > 100
    assert change[4, 4] == 0


def test_draw_shows_anomalies_by_default_and_not_with_maps_0(tmp_path):
    (frame,) = run_stage(Anomaly(model=anomaly_card(tmp_path)), film(0.9))
    (drawn,) = run_stage(Draw(), [frame])
    assert np.abs(drawn.image().astype(int) - frame.image())[32, 48].sum() > 50
    (drawn,) = run_stage(Draw(maps=0.0), [frame])
    assert drawn.surface is frame.surface


STREET = "sources: {a: samples/street.mp4}\nstages:\n  detect: {model: demo}\n"


@pytest.mark.parametrize(
    ("stages", "text"),
    [
        ("first: {STAGE}\n  second: {STAGE}", "second: first writes anomaly_score of whole frames already"),
        (
            "first: {STAGE, of: detect.car}\n  second: {STAGE, of: detect}",
            "second: first writes anomaly_score of the objects of detect already, which this stage would overwrite",
        ),
        ("first: {STAGE}\n  second: {STAGE, of: detect}", None),
        ("first: {STAGE}\n  second: {STAGE, from: detect}", None),
    ],
    ids=["frames twice", "objects twice", "frames and objects", "two branches"],
)
def test_a_second_score_of_the_same_is_refused(stages, text, tmp_path, root):
    anomaly_card(tmp_path)
    stage = f"stage: anomaly, model: {next(tmp_path.glob('*.yaml'))}"
    pipeline = read_text(f"{STREET}  {stages.replace('STAGE', stage)}\n  jsonl: {{path: out.jsonl}}\n", folder=root)
    _, problems = assemble(pipeline)
    texts = [problem.text for problem in problems]
    assert len(texts) == (text is not None), texts
    assert all(text in problem for problem in texts)


def test_a_score_that_is_not_finite_is_counted_and_changes_nothing(tmp_path, run_pipeline):
    import onnx

    anomaly_card(tmp_path)
    network = onnx.load(tmp_path / "anomaly.onnx")
    network.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.array(np.nan, np.float32), "factor"))
    onnx.save(network, tmp_path / "anomaly.onnx")
    text = f"""
sources: {{a: {{uri: samples/street.mp4}}}}
stages:
  anomaly: {{model: {tmp_path}/anomalib.yaml}}
  draw: {{}}
  snapshot: {{when: anomaly.anomalous, capture: frame, path: "{tmp_path}/{{source}}/{{time}}.jpg"}}
  collect: {{from: draw}}
"""
    outcome = run_pipeline(text, limit=5)
    assert outcome.code == 0, outcome.err
    assert not any("anomaly_score" in r or r["events"] for r in outcome.records["a"])
    assert outcome.report["counts"]["anomaly scores that are not finite"] == 5


def test_the_map_is_in_the_snapshot_of_the_event(tmp_path, run_pipeline):
    anomaly_card(tmp_path)
    text = f"""
sources: {{a: {{uri: samples/street.mp4}}}}
stages:
  seams: {{stage: anomaly, model: {tmp_path}/anomalib.yaml, min_score: 0.7}}
  draw: {{maps: 1.0}}
  snapshot: {{when: seams.anomalous, capture: frame, path: "{tmp_path}/{{source}}/{{time}}.jpg"}}
  collect: {{}}
"""
    outcome = run_pipeline(text, limit=5)
    assert outcome.code == 0, outcome.err
    kinds = [event["kind"] for r in outcome.records["a"] for event in r["events"]]
    assert kinds == ["anomalous", "saved"]
    assert len(list((tmp_path / "a").glob("*.jpg"))) == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"pad": 0.1, "batch": 4}, "options for objects, with of: leave out pad, batch"),
        ({"of": Of("detect"), "min_score": 0.3, "every": 1.0}, "whole frames, without of: leave out min_score, every"),
    ],
)
def test_options_without_effect_are_refused(options, text, tmp_path):
    with pytest.raises(ValueError, match=text):
        Anomaly(model=anomaly_card(tmp_path), **options)


def test_a_card_of_another_task_is_refused(tmp_path):
    with pytest.raises(ValueError, match="anomaly needs a card with task: anomaly; metric_depth has task: depth"):
        Anomaly(model=depth_card(tmp_path))


@pytest.mark.gpu
def test_gpu_and_cpu_score_alike(tmp_path, run_pipeline):
    anomaly_card(tmp_path)
    text = f"""
sources: {{a: {{uri: samples/street.mp4}}}}
stages:
  detect: {{model: demo}}
  parts: {{stage: anomaly, model: {tmp_path}/anomalib.yaml, of: detect.car}}
  anomaly: {{model: {tmp_path}/anomalib.yaml, min_score: 0.7}}
  draw: {{}}
  collect: {{}}
"""
    cpu, gpu = (run_pipeline(text, device=device, limit=40) for device in ("cpu", "cuda"))
    assert gpu.code == 0, gpu.err
    assert gpu.report["counts"].get("pixels to host", 0) == 0
    for host, device in zip(cpu.records["a"], gpu.records["a"], strict=True):
        assert device["anomaly_score"] == pytest.approx(host["anomaly_score"], abs=0.02)
        assert [event["kind"] for event in device["events"]] == [event["kind"] for event in host["events"]]
    assert sum("anomaly_score" in o for r in gpu.records["a"] for o in r["objects"]) > 40
