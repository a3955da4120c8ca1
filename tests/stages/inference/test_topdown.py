"""Top-down poses: crops that fill the network's input, as the authors cut them, and the keypoints in frame pixels."""

import dataclasses

import numpy as np
import pytest
from support.pose_networks import INPUT, pose_network, spotted

from streamkit.core.records import record
from streamkit.core.units import Of
from streamkit.models.derive import derive
from streamkit.stages.inference.detectors import Pose
from streamkit.testing.kit import detections, frames, run_stage

PICTURE = (640, 320)
# one is small, one large, one wide, one leaves the picture on the left and one below
BOXES = [[20, 20, 60, 90], [130, 10, 240, 150], [300, 60, 400, 100], [-20, 220, 50, 300], [500, 190, 580, 340]]
SPOTS = [
    [(31.2, 33.7), (50.6, 40.1), (41.9, 81.3)],
    [(150.4, 31.8), (220.3, 60.2), (178.7, 133.1)],
    [(314.2, 70.6), (349.5, 91.3), (387.9, 74.4)],
    [(8.3, 235.2), (40.2, 241.7), (21.6, 288.8)],
    [(521.4, 208.3), (560.8, 240.6), (533.1, 301.9)],
]


@pytest.fixture(scope="module")
def card_for(tmp_path_factory):
    """Return the card of a network with that form of outputs, derived, for pixels from 0 to 1."""
    folder = tmp_path_factory.mktemp("poses")

    def make(form, points=17):
        card = derive(pose_network(folder / f"{form}{points}.onnx", form, points), family=form).card()
        return dataclasses.replace(
            card, input=dataclasses.replace(card.input, scale=1 / 255, mean=(0, 0, 0), std=(1, 1, 1))
        )

    return make


def people(count=1, boxes=BOXES, size=PICTURE, spots=SPOTS):
    footage = frames(count, pixels=spotted(size, spots))
    for frame in footage:
        frame.detections = detections(boxes, label=["person"] * len(boxes))
    return footage


def posed(card, footage, batch=4, **options):
    done = run_stage(Pose(model=card, of=Of("detect"), **options), footage, batch=batch)
    return [frame.tables["detect"] for frame in done]


def plain_points(card, rgb, box, form):
    """The authors' way for one person: an affine map, the network, the maxima; (17, 2) x, y from the picture's edge."""
    import cv2
    import onnxruntime as ort

    wide, high = INPUT
    center = np.array([box[0] + box[2], box[1] + box[3]]) / 2 - 0.5  # pixels count from their centers here
    sides = np.array([box[2] - box[0], box[3] - box[1]]) * 1.25
    sides = np.maximum(sides, sides[::-1] * [wide / high, high / wide])
    udp = form == "heatmaps_udp"
    scale = (np.array(INPUT) - udp) / sides
    matrix = np.column_stack([np.diag(scale), (np.array(INPUT) - udp) / 2 - scale * center])
    crop = cv2.warpAffine(rgb, matrix, INPUT, flags=cv2.INTER_LINEAR)
    session = ort.InferenceSession(card.file, providers=["CPUExecutionProvider"])
    tensor = np.ascontiguousarray(crop.transpose(2, 0, 1)[None] / 255, np.float32)
    outputs = session.run(None, {session.get_inputs()[0].name: tensor})
    points = []
    for point in range(17):
        if form == "simcc":
            place = np.array([outputs[axis][0, point].argmax() for axis in (0, 1)]) / 2
        else:
            heat = outputs[0][0, point]
            row, column = np.unravel_index(heat.argmax(), heat.shape)
            logs = np.log(np.maximum(heat, 1e-3))
            dx = (logs[row, column + 1] - logs[row, column - 1]) / 2
            dy = (logs[row + 1, column] - logs[row - 1, column]) / 2
            bends = [logs[row, column + 1] + logs[row, column - 1], logs[row + 1, column] + logs[row - 1, column]]
            step = [-dx / (bends[0] - 2 * logs[row, column]), -dy / (bends[1] - 2 * logs[row, column])]
            cells = np.array(heat.shape[::-1])
            place = (np.array([column, row]) + step) * ((np.array(INPUT) - 1) / (cells - 1))
        points.append((place - (np.array(INPUT) - udp) / 2) / scale + center + 0.5)
    return np.array(points)


@pytest.mark.parametrize("form", ["simcc", "heatmaps_udp"])
def test_keypoints_equal_those_of_a_plain_loop_and_are_on_the_spots(form, card_for):
    card = card_for(form)
    rgb = spotted(PICTURE, SPOTS)
    (table,) = posed(card, people())
    points = table.extra["keypoints"]
    assert points.shape == (len(BOXES), 17, 3)
    for box, spots, person in zip(BOXES, SPOTS, points, strict=True):
        np.testing.assert_allclose(person[:, :2], plain_points(card, rgb, box, form), atol=0.5)
        np.testing.assert_allclose(person[:3, :2], spots, atol=0.6)
        assert (person[:, 2] > 0.1).all()


def test_quarters_of_a_cell_are_within_half_a_cell_of_the_spots(card_for):
    (table,) = posed(card_for("heatmaps"), people())
    for box, spots, person in zip(BOXES, SPOTS, table.extra["keypoints"], strict=True):
        view_px = 1.25 * max((box[2] - box[0]) / INPUT[0], (box[3] - box[1]) / INPUT[1])
        np.testing.assert_allclose(person[:3, :2], spots, atol=2 * view_px + 0.3)


@pytest.mark.parametrize("form", ["simcc", "heatmaps", "heatmaps_udp"])
def test_batches_do_not_change_keypoints(form, card_for):
    footage = people(3)
    singly = posed(card_for(form), footage, batch=1)
    together = posed(card_for(form), footage, batch=32)
    for a, b in zip(singly, together, strict=True):
        np.testing.assert_array_equal(a.extra["keypoints"], b.extra["keypoints"])


@pytest.mark.parametrize(("points", "names"), [(17, 17), (26, 26), (133, 133), (5, 0)])
def test_the_number_of_points_chooses_the_skeleton(points, names, card_for):
    card = card_for("simcc", points)
    (table,) = posed(card, people())
    assert table.extra["keypoints"].shape == (len(BOXES), points, 3)
    assert len(table.skeleton.names if table.skeleton else ()) == names
    assert not names or table.skeleton.names[16] == "right_ankle"


def test_the_record_of_a_person_has_its_box_and_keypoints(card_for):
    done = run_stage(Pose(model=card_for("simcc"), of=Of("detect")), people())
    persons = record(done[0])["objects"]
    assert persons[0]["box"] == [20.0, 20.0, 60.0, 90.0]
    assert len(persons[0]["keypoints"]) == 17


def test_only_the_objects_of_the_label_are_posed(card_for):
    footage = people()
    for frame in footage:
        frame.detections = detections(BOXES, label=["person", "car", "car", "person", "car"])
    (frame,) = run_stage(Pose(model=card_for("simcc"), of=Of("detect", ("person",))), footage)
    absent = np.isnan(frame.tables["detect"].extra["keypoints"]).all(axis=(1, 2))
    assert absent.tolist() == [False, True, True, False, True]


def test_a_smaller_pad_crops_closer(card_for):
    far, near = (posed(card_for("heatmaps"), people(), **options)[0] for options in ({}, {"pad": 0.0}))
    errors = [np.abs(table.extra["keypoints"][:, :3, :2] - np.array(SPOTS)).mean() for table in (far, near)]
    assert errors[1] < errors[0]


def test_a_whole_picture_is_read_without_of(card_for):
    footage = frames(1, pixels=spotted((96, 128), [[(31.2, 33.7), (50.6, 40.1), (41.9, 81.3)]]))
    (frame,) = run_stage(Pose(model=card_for("simcc")), footage)
    table = frame.tables["pose"]
    assert table.xyxy.tolist() == [[0, 0, 96, 128]]
    np.testing.assert_allclose(
        table.extra["keypoints"][0, :3, :2], [(31.2, 33.7), (50.6, 40.1), (41.9, 81.3)], atol=0.5
    )


@pytest.mark.gpu
@pytest.mark.parametrize("form", ["simcc", "heatmaps", "heatmaps_udp"])
def test_gpu_and_cpu_give_equal_keypoints(form, card_for, run_pipeline, root, tmp_path):
    card = card_for(form)
    (tmp_path / "spots.yaml").write_text(
        f"task: pose\nfamily: {form}\nfile: {card.file}\ninput: {{size: {list(INPUT)}, pad: 0, scale: 1/255}}\n"
        "labels: [person]\nkeypoints: coco\nscore: 0\n"
    )
    text = f"""
sources: {{a: {root}/samples/street.mp4}}
stages:
  detect: {{model: demo}}
  pose: {{model: {tmp_path}/spots.yaml, of: detect.car, precision: f32}}
  collect: {{}}
"""
    cpu, gpu = (run_pipeline(text, device=device, limit=30) for device in ("cpu", "cuda"))
    assert gpu.report["counts"].get("pixels to host", 0) == 0
    errors = []
    for expected, processed in zip(cpu.records["a"], gpu.records["a"], strict=True):
        for car in expected["objects"]:
            near = [o for o in processed["objects"] if np.abs(np.subtract(o["box"], car["box"])).max() < 0.1]
            if near and "keypoints" in car:
                errors.append(np.abs(np.subtract(near[0]["keypoints"], car["keypoints"]))[:3, :2].max())
    assert len(errors) > 30
    assert np.median(errors) < 0.5
