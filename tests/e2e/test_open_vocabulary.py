"""The network of words on streets that it never saw: prompts find as much as its classes do when they are fixed."""

import json

import numpy as np
import pytest
from support import worded
from support.example_runs import LIMIT, command_fixture, folder_fixture, iou, records, run_fixture  # noqa: F401  a fixture

from samples.draw_street import draw
from samples.scene import COLORS, plan
from samples.score import mean_average_precision
from streamkit.models.card import find_card, load_card
from streamkit.models.text_encoder import TextEncoder

FRESH = 45  # no training scene (1000 and up), no sample
FIXED = ("car", "person", "bike", "red car", "white car", "black car", "blue car", "person in red", "person in blue")


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """A video of every 32nd frame of a scene, and the truth of each frame, with `look`."""
    path = tmp_path_factory.mktemp("scene") / "scene.mp4"
    planned = plan(FRESH, check=False)
    truth = draw(planned, path, range(20, 380, 32))
    looks = {actor.id: actor.look for actor in planned.actors}
    for detection in (detection for record in truth for detection in record["objects"]):
        detection["look"] = looks[detection["id"]]
    return path, truth


def is_true(text, look):
    """Whether a prompt is true of an object."""
    words = text.split()
    color = min(COLORS, key=lambda name: np.abs(np.subtract(COLORS[name], look.colors[0])).sum())
    return look.kind in words and (len(words) == 1 or color in words)


def detect_words(run, folder, path, detect):
    """What a pipeline with this detector finds, frame by frame, as (n, 5) boxes and scores by label."""
    (folder / "p.yaml").write_text(
        f"sources: {{a: {path}}}\nstages: {{detect: {detect}, "
        f'jsonl: {{path: "{folder}/a.jsonl", if_exists: overwrite}}}}'
    )
    run(folder / "p.yaml", folder)
    return [
        [(detection["label"], *detection["box"], detection["score"]) for detection in record["objects"]]
        for record in records(folder / "a.jsonl")
    ]


def precision(truth, detections, text):
    """The average precision of one text."""
    labeled_records = [
        {
            "objects": [
                {**detection, "class_id": 0 if is_true(text, detection["look"]) else 1}
                for detection in record["objects"]
            ]
        }
        for record in truth
    ]
    rows = [np.array([(*row[1:], 0) for row in frame if row[0] == text]).reshape(-1, 6) for frame in detections]
    return mean_average_precision(labeled_records, rows, 2)[1][0]


def test_prompts_are_as_accurate_as_fixed_classes(run, folder, scene):
    path, truth = scene
    vectors = TextEncoder(load_card(find_card("demo-words"))).embed(FIXED)
    worded.card(folder, worded.closed(vectors), text={}, labels=list(FIXED), score=0.05)
    options = "min_score: 0.05, multi_label: true}"
    fixed = detect_words(run, folder, path, f"{{model: words.yaml, {options}")
    some = ("person in red", "person", "blue car", "car")  # fewer, in another order
    prompted = detect_words(run, folder, path, f"{{model: demo-words, prompts: {json.dumps(some)}, {options}")
    for text in some:
        assert precision(truth, prompted, text) == pytest.approx(precision(truth, fixed, text), abs=0.02)
    assert precision(truth, prompted, "car") > 0.9
    assert precision(truth, prompted, "person") > 0.85
    people = [[("person in red", *row[1:]) for row in frame if row[0] == "person"] for frame in prompted]
    assert precision(truth, prompted, "person in red") > precision(truth, people, "person in red") + 0.15


def test_the_example_open_vocabulary_detects_its_prompts(folder, run):
    run("examples/open_vocabulary.yaml", folder)
    frame_records = records(folder / "out" / "street-words.jsonl")
    assert len(frame_records) == LIMIT
    truth = records(worded.shipped_models().parent / "samples" / "street.truth.jsonl")[:LIMIT]
    objects = [
        (detection, record)
        for record, true in zip(frame_records, truth, strict=True)
        for detection in record["objects"]
    ]
    assert {detection["label"] for detection, _ in objects} <= {"red car", "person in green", "bike"}
    kinds = {"red car": "car", "person in green": "person", "bike": "bike"}
    right = [
        any(
            iou(detection["box"], other["box"]) > 0.5 and other["label"] == kinds[detection["label"]]
            for other in true["objects"]
        )
        for record, true in zip(frame_records, truth, strict=True)
        for detection in record["objects"]
    ]
    assert len(right) >= LIMIT
    assert np.mean(right) > 0.95
    embedded = [detection for detection, _ in objects if "embedding" in detection]
    assert 0 < len(embedded) < len(objects) / 2
    assert all(np.linalg.norm(detection["embedding"]) == pytest.approx(1, abs=1e-3) for detection in embedded)
