"""`read`: accuracy on drawn plates, when tracks are read, votes and events, corners, and both devices."""

from dataclasses import replace

import cv2
import numpy as np
import pytest

from benchmarks.reading import film, score
from samples import plates
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.errors import ConfigError
from streamkit.core.records import record
from streamkit.core.units import Of
from streamkit.models.card import find_card, load_card
from streamkit.runtime.control.graph_changes import alike
from streamkit.stages.inference.read import FetchText, Read, SureTracks, corners_of
from streamkit.testing.kit import detections, frames, run_stage

PLATES = load_card(find_card("plates"))
PATTERN = "A{1,3} A{1,2} 9{1,4}"


class Scripted(Read):
    """Reads given texts in turn, in place of what the network finds; notes the times of its readings."""

    def open(self):
        super().open()
        self.texts = iter(SCRIPT)
        RUN_AT_S.clear()

    def process(self, batch, states):
        RUN_AT_S.extend(batch.frames[row].pts_s for row in batch.rows.tolist())
        return super().process(batch, states)

    def _text(self, best):
        text, score, *margin = next(self.texts)
        return text, [score] * len(text), *(margin or [1.0])


SCRIPT: list[tuple] = []  # texts, the score of each character, and their margin, 1 by default
RUN_AT_S: list[float] = []


def run(script, *, n=20, step_s=0.25, batch=1, box=(10, 10, 58, 26), track=7, boxes=None, **options):
    SCRIPT[:] = script
    footage = frames(n, pixels=np.full((40, 64, 3), 99, np.uint8), step_s=step_s)
    for i, frame in enumerate(footage):
        frame_box = box if boxes is None else boxes[i]
        frame.detections = detections([frame_box], track_id=None if track is None else [track], label=["plate"])
    stage = Scripted(**{"model": PLATES, "of": Of("detect"), **options})
    return run_stage(stage, footage, batch=batch, stage_id="plate")


def read_events(done):
    return [(frame.pts_s, event.data) for frame in done for event in frame.events]


def texts(done):
    columns = [frame.detections.extra["attributes"] for frame in done]
    return [None if column[0] is None else column[0]["plate"]["label"] for column in columns]


@pytest.mark.parametrize("height", [12, 20, 40])
def test_plates_are_read_correctly_with_few_network_runs(height):
    scores = score(PLATES, height, 12, seed=height, fps=8.0)
    assert scores.exact == 1.0
    assert scores.wrong == 0
    assert scores.calls <= 1.2


def test_two_equal_readings_are_final():
    processed = run([("AB12", 0.9)] * 20)
    assert RUN_AT_S == [0.0, 0.25]
    ((at_s, data),) = read_events(processed)
    assert at_s == 0.25
    assert data == {"value": "AB12", "score": 0.9, "readings": 2, "attribute": "plate", "label": "plate"}
    assert texts(processed) == ["AB12"] * 20


def test_a_text_with_a_small_lead_is_not_final():
    processed = run([("AB12", 0.99, 0.4)] * 20)
    assert read_events(processed) == []
    assert len(RUN_AT_S) > 2, "it is read again"
    assert texts(processed) == ["AB12"] * 20
    assert len(read_events(run([("AB12", 0.99, 0.4)] * 20, margin=0.4))) == 1


def test_readings_with_a_margin_are_final():
    processed = run([("AB12", 0.9, 0.2), ("AB12", 0.9, 0.7), ("AB12", 0.9, 0.7)] + [("XX", 0.1, 0.0)] * 20)
    assert [at_s for at_s, _ in read_events(processed)] == [0.75]


def typeset(text, *, background=235, ink=30, **_):
    """A plate in a typeface that the network has not learned."""
    (width, height), _ = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, 1.6, 4)
    plate = np.full((74, width + 40), background, np.uint8)
    cv2.rectangle(plate, (2, 2), (width + 36, 71), ink, 2)
    cv2.putText(plate, text, (20, 37 + height // 2), cv2.FONT_HERSHEY_SIMPLEX, 1.6, ink, 4, cv2.LINE_AA)
    return plate


def test_unreadable_plates_give_no_events(monkeypatch):
    monkeypatch.setattr(plates, "draw_plate", typeset)
    options = {"tracks": 12, "seed": 3, "fps": 10.0}
    assert score(PLATES, 16, margin=0.0, **options).wrong >= 2
    assert score(PLATES, 16, **options).reported == 0


def test_a_perfect_reading_is_final():
    assert [at_s for at_s, _ in read_events(run([("AB12", 0.995)] * 20))] == [0.0]
    assert RUN_AT_S == [0.0]


def test_intervals_between_readings_double_until_the_text_is_final():
    processed = run([("AB12", 0.3)] * 20, n=40)
    assert RUN_AT_S == [0.0, 0.25, 0.75, 1.75, 3.75, 7.75]
    assert read_events(processed) == []
    assert texts(processed) == [None] * 40  # below the card's score
    run([("AB12", 0.3)] * 20, n=40, every=1.0)
    assert RUN_AT_S == [0.0, 1.0, 3.0, 7.0]


@pytest.mark.parametrize("batch", [1, 3, 20])
def test_batches_do_not_change_texts(batch):
    script = [("AB12", 0.9), ("AB12", 0.9), ("XXXX", 0.9), ("YYYY", 0.9), ("ZZZZ", 0.9)]
    processed = run(script, batch=batch)
    assert [(at_s, data["value"]) for at_s, data in read_events(processed)] == [(0.25, "AB12")]
    assert texts(processed) == ["AB12"] * 20
    assert len(RUN_AT_S) == (5 if batch == 20 else 2)


SMALL = (10, 10, 34, 18)
LARGE = (4, 4, 60, 36)


@pytest.mark.parametrize("batch", [1, 7])
def test_a_better_view_may_change_a_final_text(batch):
    script = [("AB12", 0.7), ("AB12", 0.7), ("XB12", 0.9), ("XB12", 0.9)]
    if batch == 7:  # one reading of the first series was under way, and one of the second
        script = [*script[:2], ("????", 0.9), *script[2:], ("????", 0.9)]
    processed = run(script, boxes=[SMALL] * 10 + [LARGE] * 10, batch=batch)
    assert [(at_s, data["value"], data.get("before")) for at_s, data in read_events(processed)] == [
        (0.25, "AB12", None),
        (2.75, "XB12", "AB12"),
    ]
    assert texts(processed) == ["AB12"] * 11 + ["XB12"] * 9
    if batch == 1:
        assert RUN_AT_S == [0.0, 0.25, 2.5, 2.75]


def test_a_better_view_that_agrees_counts_as_a_reading():
    processed = run([("AB12", 0.9)] * 3, boxes=[SMALL] * 10 + [LARGE] * 10)
    assert RUN_AT_S == [0.0, 0.25, 2.5]
    assert len(read_events(processed)) == 1


def test_a_returning_track_is_read_again():
    SCRIPT[:] = [("AB12", 0.995), ("CD34", 0.995)]
    footage = frames(4, pixels=np.full((40, 64, 3), 99, np.uint8), step_s=6.0)
    for i, frame in enumerate(footage):
        here = i in (0, 3)
        frame.detections = detections([[10, 10, 58, 26]] * here, track_id=[7] * here, label=["plate"] * here)
    processed = run_stage(Scripted(model=PLATES, of=Of("detect")), footage, batch=1, stage_id="plate")
    assert [data["value"] for _, data in read_events(processed)] == ["AB12", "CD34"]


def test_texts_of_another_format_are_ignored():
    processed = run([("WXYY", 0.99)] * 20, pattern="AA-99")
    assert read_events(processed) == []
    assert texts(processed) == [None] * 20
    assert texts(run([("A812", 0.99)] * 20, pattern="AA-99")) == ["AB12"] * 20


def test_without_a_tracker_each_object_is_read_on_each_frame():
    processed = run([("AB12", 0.9), ("CD34", 0.9), ("EF56", 0.1)], n=3, track=None)
    assert texts(processed) == ["AB12", "CD34", None]
    assert read_events(processed) == []


def test_the_record_has_the_text():
    processed = run([("AB12", 0.995)] * 3, n=1)
    frame_record = record(processed[0])
    assert frame_record["objects"][0]["attributes"] == {"plate": {"label": "AB12", "score": 0.995}}
    assert frame_record["events"][0]["kind"] == "read"
    assert frame_record["events"][0]["stage"] == "plate"
    assert frame_record["events"][0]["track_id"] == 7


def test_corners_rectify_an_angled_plate():
    rng = np.random.default_rng(3)
    footage = film("B-AB 1234", 24, rng, fps=4.0)
    tilted = [frame.detections.extra["corners"][0] for frame in footage]
    assert all(abs(corners[0, 1] - corners[1, 1]) > 1 for corners in tilted)
    plate_by_crop = {}
    for crop in ("corners", "box"):
        stage = Read(model=PLATES, of=Of("detect"), pattern=PATTERN, crop=crop, sure=1.0)
        processed = run_stage(stage, footage, batch=1, stage_id="plate")
        plate_by_crop[crop] = processed[-1].detections.extra["attributes"][0]["plate"]
    assert plate_by_crop["corners"]["label"] == "BAB1234"
    assert plate_by_crop["corners"]["score"] != plate_by_crop["box"]["score"]


def test_four_confident_keypoints_are_corners():
    points = np.zeros((2, 4, 3), np.float32)
    points[0] = [[1, 2, 0.9], [9, 2, 0.9], [9, 6, 0.9], [1, 6, 0.9]]
    points[1] = points[0]
    points[1, 2, 2] = 0.1
    table = detections([[1, 2, 9, 6]] * 2, keypoints=points)
    corners = corners_of(table, np.array([0, 1]))
    assert corners[0].tolist() == [[1, 2], [9, 2], [9, 6], [1, 6]]
    assert np.isnan(corners[1]).all()
    assert corners_of(detections([[1, 2, 9, 6]], keypoints=np.zeros((1, 17, 3))), np.array([0])) is None
    assert corners_of(detections([[1, 2, 9, 6]]), np.array([0])) is None


ABOVE = "sources: {a: 'test://'}\nstages:\n  detect: {model: demo}\n  track: {}\n  plate: "


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("{stage: read, of: detect, model: color}", "read needs a card with task: read; color has task: classify"),
        ("{stage: read, of: detect, model: plates, pattern: 'AB['}", "pattern must be a name (any, at"),
        ("{stage: read, of: detect, model: plates, pattern: 5}", "pattern must be text: a name such as de"),
        ("{stage: read, of: detect, model: plates, requery_ratio: 0.5}", "requery_ratio must be 1 or more, got 0.5"),
        ("{stage: read, of: detect.truck, model: plates}", "detect has no class 'truck'"),
        ("{stage: read, model: plates}", "of"),
        ("{stage: read, of: detect, model: plates, paterm: de}", "did you mean 'pattern'?"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(ConfigError) as caught:
        build(read_text(ABOVE + options))
    assert message in str(caught.value)


def test_a_read_event_can_trigger_other_stages():
    more = "{stage: read, of: detect, model: plates}\n  snapshot: {path: 'out/{source}/{time}.jpg', when: plate.read}\n"
    build(read_text(ABOVE + more))


PIPELINE = """
sources: {{a: {root}/samples/plates.mp4}}
stages:
  detections: {{path: {root}/samples/plates.truth.jsonl}}
  track: {{}}
  plate: {{stage: read, model: plates, of: detections.plate, pattern: de, sure: 1.0}}
  collect: {{}}
"""


@pytest.mark.gpu
def test_gpu_and_cpu_read_equal_texts(run_pipeline, root):
    cpu, gpu = (run_pipeline(PIPELINE.format(root=root), device=device) for device in ("cpu", "cuda"))
    assert gpu.code == 0
    assert gpu.report["counts"].get("pixels to host", 0) == 0
    assert gpu.report["counts"]["objects inferred"] == cpu.report["counts"]["objects inferred"]
    compared = 0
    for a, b in zip(cpu.records["a"], gpu.records["a"], strict=True):
        for cpu_object, gpu_object in zip(a["objects"], b["objects"], strict=True):
            first, second = (both.get("attributes", {}).get("plate") for both in (cpu_object, gpu_object))
            assert (first is None) == (second is None)
            if first is not None:
                assert first["label"] == second["label"]
                assert first["score"] == pytest.approx(second["score"], abs=0.02)
                compared += 1
    assert compared > 200


def test_an_edit_of_a_live_option_does_not_rebuild_the_pipeline():
    before, after = (
        build(read_text(ABOVE + f"{{stage: read, of: detect, model: plates, sure: {sure}}}")) for sure in (0.5, 0.9)
    )
    sure = before.nodes["plate"].options["sure_tracks"].setdefault("a", {(1, 0)})
    assert alike(before, after)
    assert sure


def test_final_texts_of_a_removed_source_are_forgotten():
    shared = SureTracks()
    first = shared.setdefault("a", set())
    second = shared.setdefault("a", set())
    assert first is second
    del first, second
    assert len(shared) == 0


@pytest.mark.parametrize(("pattern", "letters"), [("de", "ÄÖÜ"), ("AA-99", ""), ("[A-ZÆ]{2}", None), (None, None)])
def test_a_pattern_limits_the_characters(pattern, letters):
    parts = Read.parts_before({"model": PLATES, "of": Of("detect"), "pattern": pattern})
    assert parts[-1].options["letters"] == letters
    fetch = FetchText(replace(PLATES, labels=("A", "ü", "Æ", "中")), letters)
    fetch.open()
    assert fetch._allowed == {"ÄÖÜ": [0, 1], "": [0], None: None}[letters]
