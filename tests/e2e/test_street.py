"""Scenes keep their promises, the sample's truth fits its film, the demo model knows scenes it never saw."""

import functools
import json
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]

pytest.importorskip("cv2")
av = pytest.importorskip("av")

from samples.draw_street import SEED, draw, truth  # noqa: E402
from samples.scene import BLOCK_S, Scene, box_iou, occlusions, plan  # noqa: E402
from samples.score import ignored, mean_average_precision  # noqa: E402

FRESH = 42  # no training scene (1000 and up), no sample
# network input, and its padding over a 640 x 360 picture
WIDTH = 640
HEIGHT = 384
TOP = 12


@functools.cache
def planned(seed, seconds):
    return plan(seed, seconds)


@pytest.fixture(scope="module", autouse=True)
def remembered():
    """A scene that is asked again for a frame's objects has them at hand: planning asks for all, and so do we."""
    memory = {}
    find = Scene.objects

    def objects(scene, i):
        if (id(scene), i) not in memory:
            memory[id(scene), i] = scene, find(scene, i)  # the scene is held, so that no other gets its number
        return [dict(detection) for detection in memory[id(scene), i][1]]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scene, "objects", objects)
        yield


def shipped_truth():
    return [json.loads(line) for line in (ROOT / "samples/street.truth.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("seed", "seconds"),
    [(0, 15), *(pytest.param(*params, marks=pytest.mark.long) for params in ((SEED, 16), (31, 20)))],
)
def test_every_scene_has_the_documented_properties(seed, seconds):
    scene = planned(seed, seconds)
    frames = [{"frame": i, "objects": scene.objects(i)} for i in range(scene.frames)]
    assert len(frames) == seconds * 25
    kinds = {o["id"]: o["label"] for frame in frames for o in frame["objects"]}
    assert len(kinds) >= 8
    assert set(kinds.values()) == {"car", "person", "bike"}
    assert len(occlusions(frames, scene.fps)) >= 3
    boxes = np.array([o["box"] for frame in frames for o in frame["objects"]])
    whole = boxes[(boxes[:, 0] > 0) & (boxes[:, 2] < 640) & (boxes[:, 3] < 360)]
    side = (whole[:, 2:] - whole[:, :2]).max(1)
    assert side[side >= 12].min() <= 14
    assert 180 <= side.max() <= 215


def test_people_and_cars_move_in_both_directions():
    ways = {(a.look.kind, *np.sign(a.ground[-1] - a.ground[0])) for a in planned(SEED, BLOCK_S).actors}
    way = {(kind, axis, sign) for kind, *signs in ways for axis, sign in enumerate(signs)}
    assert {("car", 0, -1), ("car", 0, 1), ("person", 1, -1), ("person", 1, 1)} <= way


def test_the_truth_is_determined_by_the_seed():
    frames = range(100, 104)
    first = truth(plan(1), frames)
    assert first == truth(plan(1), frames)
    assert first != truth(planned(SEED, BLOCK_S), frames)


def test_drawing_does_not_change_the_truth(tmp_path):
    frames = range(0, 400, 100)
    assert draw(planned(SEED, BLOCK_S), tmp_path / "few.mp4", frames) == truth(planned(SEED, BLOCK_S), frames)


def test_the_shipped_truth_is_that_of_the_default_seed():
    assert shipped_truth()[::80] == truth(planned(SEED, BLOCK_S), range(0, 400, 80))


def test_the_shipped_truth_matches_the_shipped_video():
    records = shipped_truth()
    with av.open(str(ROOT / "samples/street.mp4")) as film:
        stream = film.streams.video[0]
        assert (stream.width, stream.height, stream.average_rate) == (640, 360, 25)
        frames = [(float(f.pts * f.time_base), (f.colorspace, f.color_range)) for f in film.decode(stream)]
    assert [r["frame"] for r in records] == list(range(len(frames)))
    assert [r["pts_s"] for r in records] == pytest.approx([pts for pts, _ in frames])
    assert {tags for _, tags in frames} == {(1, 1)}  # BT.709, limited range
    assert len(occlusions(records, 25.0)) >= 3
    for item in (o for record in records for o in record["objects"]):
        x1, y1, x2, y2 = item["box"]
        assert 0 <= x1 < x2 <= 640
        assert 0 <= y1 < y2 <= 360
        assert 0 <= item["visible"] <= 1


def record(*items):
    return {"objects": [{"class_id": 0, "box": list(box), "visible": visible} for box, visible in items]}


def test_score_counts_hits_and_false_alarms():
    frame = record(((0, 0, 20, 20), 1.0), ((50, 0, 70, 20), 1.0))
    rows = np.array([[0, 0, 20, 20, 0.9, 0], [200, 0, 220, 20, 0.8, 0], [50, 0, 70, 20, 0.7, 0]], float)
    assert mean_average_precision([frame], [rows])[0] == pytest.approx(0.5 + 0.5 * 2 / 3)


def test_the_score_excludes_ignored_objects():
    frame = record(((0, 0, 20, 20), 1.0), ((50, 0, 70, 20), 0.2), ((90, 0, 100, 10), 1.0))
    assert [ignored(o) for o in frame["objects"]] == [False, True, True]
    rows = np.array([[50, 0, 70, 20, 0.95, 0], [90, 0, 100, 10, 0.93, 0], [0, 0, 20, 20, 0.9, 0]], float)
    assert mean_average_precision([frame], [rows])[0] == 1
    assert mean_average_precision([frame], [rows[2:]])[0] == 1


def non_maximum_suppression(output, score, iou):
    """(n, 6) x1 y1 x2 y2 in source pixels, score, class from one image's raw output (7, A)."""
    rows = []
    for c, scores in enumerate(output[4:]):
        order = np.flatnonzero(scores >= score)
        order = order[np.argsort(-scores[order])]
        cx, cy, w, h = output[:4, order] - np.array([[0], [TOP], [0], [0]])
        boxes = np.stack([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], 1)
        chosen = []
        for n in range(len(boxes)):
            if not (box_iou(boxes[n : n + 1], boxes[chosen]) > iou).any():
                chosen.append(n)
        boxes = np.clip(boxes[chosen], 0, [640, 360, 640, 360])
        rows.append(np.column_stack([boxes, scores[order][chosen], np.full(len(chosen), c)]))
    return np.concatenate(rows)


def letterbox(picture):
    """RGB (360, 640, 3) uint8 to the network's input (3, 384, 640) f32."""
    import cv2

    padded = cv2.copyMakeBorder(picture, TOP, TOP, 0, 0, cv2.BORDER_CONSTANT, value=(114, 114, 114))
    return padded.transpose(2, 0, 1).astype(np.float32) / 255


@pytest.fixture(scope="module")
def demo():
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(ROOT / "models/demo.onnx"), options, providers=["CPUExecutionProvider"])
    return lambda images: session.run(["output0"], {"images": images})[0]


def test_the_demo_model_gives_the_same_in_a_batch(demo):
    images = np.random.default_rng(0).random((3, 3, HEIGHT, WIDTH), np.float32)
    assert demo(images).shape == (3, 7, 20160)
    alone = np.concatenate([demo(images[n : n + 1]) for n in range(3)])
    np.testing.assert_allclose(demo(images), alone, rtol=1e-4, atol=1e-3)


def test_the_demo_model_detects_objects_of_a_new_scene(demo, tmp_path):
    records = draw(plan(FRESH), tmp_path / "fresh.mp4", range(0, 400, 8))
    with av.open(str(tmp_path / "fresh.mp4")) as film:
        pictures = [frame.to_ndarray(format="rgb24") for frame in film.decode(video=0)]
    detections = [non_maximum_suppression(demo(letterbox(p)[None])[0], 0.02, 0.7) for p in pictures]
    score, classes = mean_average_precision(records, detections)
    assert score >= 0.95, f"mAP@0.5 of car, person, bike: {np.round(classes, 4)}"
