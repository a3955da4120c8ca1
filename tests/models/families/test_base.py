import numpy as np
import pytest

from streamkit.models.families import CAUSES, FAMILIES, ReadOptions, family, unpack
from streamkit.models.families.base import stack_images

SCORES = np.full(3, 0.5, np.float32)
COUNTED = {"num_dets": (1, 1), "det_boxes": (1, 9, 4), "det_scores": (1, 9), "det_classes": (1, 9)}


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_registered_by_name(name):
    assert family(name).name == name
    assert isinstance(family(name).columns, dict)


def test_an_unknown_family_is_reported_with_a_suggestion():
    with pytest.raises(ValueError, match=r"unknown family 'yolo8'; did you mean 'yolov8'\? The families are "):
        family("yolo8")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"min_score": np.zeros(3)}, r"min_score must be float32, one for each class, got float64\[3\]"),
        ({"min_score": np.zeros((0,), np.float32)}, "one for each class"),
        ({"min_score": np.full(2, np.nan, np.float32)}, "got NaN"),
        ({"iou": 1.5}, "iou must be from 0 to 1, got 1.5"),
        ({"top_k": 0}, "top_k must be 1 or more, got 0"),
        ({"min_size": 9, "max_size": 3}, r"min_size must be from 0 to max_size \(3\), got 9"),
    ],
)
def test_options_out_of_range_are_refused(options, text):
    with pytest.raises(ValueError, match=text):
        ReadOptions(**{"min_score": SCORES, **options})


def faces(classes=1, **other):
    shapes = {"cls": 1, "obj": 1, "bbox": 4, "kps": 10}
    return {f"{kind}_{s}": ("N", None, width) for kind, width in shapes.items() for s in (8, 16, 32)} | other


@pytest.mark.parametrize(
    ("name", "outputs", "classes"),
    [
        ("yolox", {"output": ("N", 3549, 85)}, 80),
        ("yolov5", {"output0": (1, 25200, 85), "raw": (1, 3, 80, 80, 85)}, 80),
        ("yolov8", {"output0": (None, 84, 8400)}, 80),
        ("yolov8", {"output0": ("N", "channels", "anchors")}, 80),
        ("yolo_e2e", {"output0": (-1, 300, 6)}, 80),
        ("detr", {"labels": ("N", 300), "boxes": ("N", 300, 4), "scores": ("N", 300)}, 80),
        ("detr", {"logits": (1, 300, 80), "pred_boxes": (1, 300, 4)}, 80),
        ("detr", {"dets": (1, 300, 4), "labels": (1, 300, 91)}, 91),
        (
            "detr",
            {"logits": (1, 9, 80), "pred_boxes": (1, 9, 4), "count": (1,), "ids": (1, 9), "masks": (1, 9, 28, 28)},
            80,
        ),
        ("ssd", {"detection_out": (1, 1, 200, 7)}, 91),
        ("ssd", {"detection_boxes": (1, 100, 4), "detection_scores": (1, 100), "detection_classes": (1, 100)}, 91),
        ("ssd", {"boxes": ("K", 4), "labels": ("K",), "scores": ("K",)}, 91),
        ("yunet", faces(), 1),
        ("yolov8_seg", {"output0": ("N", 116, 2100), "output1": ("N", 32, 80, 80)}, 80),
        ("yolov8_pose", {"output0": ("N", 56, 8400)}, 1),
        ("yolov8_pose", {"output0": ("N", "values", 8400)}, 1),
        ("movenet", {"output_0": (1, 1, 17, 3)}, 1),
        ("simcc", {"a": ("N", 17, 384), "b": ("N", 17, 512)}, 1),
        ("simcc", {"simcc_x": ("N", "K", 384), "simcc_y": ("N", 17, 512)}, 1),
        ("heatmaps", {"output": ("N", 17, 64, 48)}, 1),
        ("semantic", {"map": (1, 257, 257, 21)}, 21),
        ("semantic", {"map": ("N", 21, None, None)}, 21),
        ("semantic", {"map": ("N", 1, 512, 512)}, 21),
        ("semantic", {"map": ("N", 512, 512)}, 21),
    ],
)
def test_check_accepts_outputs_of_the_family(name, outputs, classes):
    family(name).check(outputs, classes)


@pytest.mark.parametrize(
    ("name", "outputs", "classes", "text"),
    [
        (
            "yolox",
            {"output": (1, 3549, 85)},
            79,
            "holds 80 classes beside 5 other values, and the label list has 79; "
            "it is trained on 80: give the card the labels",
        ),
        ("yolox", {"a": (1, 85), "b": (1, 2)}, 80, r"one output of 3 dimensions, .*; the network has a\[1, 85\], b"),
        ("yolov5", {"output": (1, 6, 3)}, 80, "holds 0 classes .* 80; it is no output of this family: give the card"),
        ("yolov8", {"output0": (1, 84, 8400)}, 81, "holds 80 classes beside 4 .* has 81; .* give the card the labels"),
        ("yolov8", {}, 80, "the network has no outputs"),
        ("yolo_e2e", {"output0": (1, 300, 7)}, 80, r"dimension 2 of output 'output0' must be 6 \(x1, y1"),
        ("detr", {"labels": (1, 300), "boxes": (1, 300, 4)}, 80, "the network lacks scores and has labels"),
        (
            "ssd",
            {"detection_boxes": (1, 9, 4)},
            80,
            "the network lacks detection_scores, detection_classes",
        ),
        (
            "ssd",
            {"bboxes": (1, 9, 4)},
            80,
            r"reads the outputs bboxes, scores, labels; the network lacks scores, labels",
        ),
        ("ssd", {"boxes": (1, 9, 4)}, 80, "reads the outputs boxes, scores, labels; the network lacks scores"),
        (
            "detr",
            {"labels": (1, 9), "boxes": (1, 9, 5), "scores": (1, 9)},
            80,
            "dimension 2 of output 'boxes' must be 4",
        ),
        (
            "detr",
            {"logits": (1, 300, 92), "pred_boxes": (1, 300, 4)},
            91,
            "has 92 classes, one more than the card has labels. Where the last is no object, .* write select: softmax",
        ),
        ("detr", {"a": (1, 300, 80), "b": (1, 300, 4)}, 80, "boxes called pred_boxes or boxes or dets"),
        ("ssd", {"detection_out": (1, 1, 200, 6)}, 91, "must be 7"),
        ("ssd", {"boxes": (1, 10, 4), "scores": (1, 10)}, 91, "lacks labels"),
        ("ssd", {"boxes": (1, 9, 5), "scores": (1, 9), "labels": (1, 9)}, 91, "2 of output 'boxes' must be 4 .the box"),
        ("ssd", {"boxes": (9, 5), "scores": (9,), "labels": (9,)}, 91, "dimension 1 of output 'boxes' must be 4"),
        ("yunet", faces(kps_8=(1, 1, 8)), 1, "'kps_8' must be 10"),
        ("yolov8_seg", {"a": (1, 116, 2100), "b": (1, 32, 80, 80)}, 79, "holds 80 classes beside 36 other values"),
        ("yolov8_seg", {"a": (1, 116, 2100)}, 80, r"one output of 4 dimensions, \(N, coefficients"),
        ("yolov8_pose", {"a": (1, 57, 2100)}, 1, "has 57 values per anchor, which are not 4, a score for each of"),
        ("movenet", {"a": (1, 6, 17, 3)}, 1, "dimension 1 of output 'a' must be 1"),
        ("movenet", {"a": (1, 1, 17, 3)}, 2, r"finds one class, .* has 2; give it \[person\]"),
        (
            "yolo_e2e_obb",
            {"o": (1, 300, 8)},
            15,
            r"dimension 2 of output 'o' must be 7 \(cx, cy, w, h, score, class, a",
        ),
        ("detectnet", {"a_cov": (1, 3, 9, 9)}, 3, r"with cov and bbox in their names; the network has a_cov\[1, 3"),
        ("detectnet", {"a_cov": (1, 3, 9), "a_bbox": (1, 12, 9, 9)}, 3, "with cov and bbox in their names"),
        ("detectnet", {"a_cov": (1, 3, 9, 9), "a_bbox": (1, 12, 9, 9)}, 2, "holds 3 classes, and the label list has 2"),
        ("detectnet", {"a_cov": (1, 3, 9, 9), "a_bbox": (1, 4, 9, 9)}, 3, "1 of output 'a_bbox' must be 12 .four dist"),
        ("detectnet", {"a_cov": (1, 3, 9, 9), "a_bbox": (1, 12, 9, 8)}, 3, "3 of output 'a_bbox' must be 9 .as of a_"),
        (
            "efficient_nms",
            {"num_dets": (1, 1), "det_boxes": (1, 9, 4)},
            3,
            "or num_dets, boxes, scores, labels or num_",
        ),
        ("efficient_nms", COUNTED | {"det_boxes": (1, 9, 5)}, 3, "2 of output 'det_boxes' must be 4 .x1, y1, x2"),
        ("efficient_nms", COUNTED | {"det_classes": (1, 9, 1)}, 3, "output 'det_classes' must have 2 dimensions"),
        ("mmdeploy", {"dets": (1, 9, 4), "labels": (1, 9)}, 3, "2 of output 'dets' must be 5 .x1, y1, x2, y2, score"),
        (
            "mmdeploy",
            {"dets": (1, 9, 5), "labels": (1, 9, 80)},
            80,
            r"reads dets \(N, K, 5\) and labels \(N, K\); the ",
        ),
        ("mmdeploy", {"dets": (1, 9, 5)}, 80, "the network lacks labels"),
        ("deepstream_yolo", {"o": (1, 84, 7)}, 3, "dimension 2 of output 'o' must be 6"),
        (
            "deepstream_yolo",
            {"boxes": (1, 84, 4), "scores": (1, 84, 3), "classes": (1, 84, 1)},
            3,
            "dimension 2 of output 'scores' must be 1",
        ),
        ("ppyoloe", {"a": (1, 84, 4), "b": (1, 3, 83)}, 3, r"boxes \(N, anchors, 4\) and scores \(N, classes, anchors"),
        ("ppyoloe", {"a": (1, 84, 4), "b": (1, 4, 84)}, 3, "holds 4 classes, and the label list has 3"),
        ("ppyoloe", {"a": (1, 84, 6)}, 3, r"reads boxes \(N, anchors, 4\)"),
        (
            "ppyoloe_e2e",
            {"a": ("K", 7), "b": (1,)},
            3,
            r"reads rows \(K, 6\) of class, score and box, and their number",
        ),
        ("ppyoloe_e2e", {"a": ("K", 6)}, 3, r"their number \(1\); the network has a\['K', 6\]"),
        ("simcc", {"simcc_x": (1, 17, 384), "simcc_y": (1, 26, 512)}, 1, "must have the same number of keypoints"),
        ("simcc", {"simcc_x": (1, 17, 384)}, 1, r"reads two outputs \(N, points, places\).*has simcc_x\[1, 17, 384\]"),
        ("simcc", {"simcc_x": (1, 17, 384), "simcc_y": (1, 17, 512)}, 2, r"has 2; give it \[person\]"),
        ("heatmaps", {"a": (1, 17, 64, 48), "b": (1, 17, 64, 48)}, 1, r"one output of 4 dimensions, \(N, points, h, w"),
        ("semantic", {"a": (1, 257, 257, 21)}, 20, "has 257 or 21 classes, and the label list has 20"),
        ("semantic", {"a": (1, 9, 9), "b": (1, 9, 9)}, 9, r"reads one map, .*; the network has a\[1, 9, 9\], b"),
        ("semantic", {"a": (1, 300, 9, 9)}, 300, "at most 256 classes"),
        ("yunet", faces(), 2, r"finds one class, and the label list has 2; give it \[face\]"),
    ],
)
def test_check_refuses_outputs_that_do_not_fit(name, outputs, classes, text):
    with pytest.raises(ValueError, match=text):
        family(name).check(outputs, classes)


@pytest.mark.parametrize(
    ("name", "outputs", "classes", "points"),
    [
        ("yolov8_pose", {"output0": ("N", 56, 8400)}, 1, 17),
        ("yolov8_pose", {"output0": ("N", 11, 8400)}, 4, 1),
        ("yolov8_pose", {"output0": ("N", "values", 8400)}, 1, None),
        ("yolov8_pose", {"output0": ("N", -1, 8400)}, 1, None),
        ("movenet", {"output_0": (1, 1, 17, 3)}, 1, 17),
        ("simcc", {"simcc_x": ("N", 133, 384), "simcc_y": ("N", 133, 512)}, 1, 133),
        ("simcc", {"simcc_x": ("N", "K", 384), "simcc_y": ("N", "K", 512)}, 1, None),
        ("heatmaps_udp", {"heatmaps": ("N", 26, 64, 48)}, 1, 26),
        ("yunet", faces(), 1, 5),
        ("yolov8", {"output0": ("N", 84, 8400)}, 80, None),
    ],
)
def test_the_number_of_keypoints_is_read_from_the_outputs(name, outputs, classes, points):
    assert family(name).points(outputs, classes) == points


@pytest.mark.parametrize(
    ("select", "columns", "text"),
    [
        ("top_k", 80, None),
        ("best_class", 80, None),
        ("softmax", 81, None),
        ("softmax", "C", None),
        ("top_k", 81, "one more than the card has labels"),
        ("best_class", 81, "write select: softmax"),
        ("softmax", 80, "holds 79 classes beside 1 other"),
        ("softmax", 82, "holds 81 classes beside 1 other"),
        ("best_class", 79, "holds 79 classes, and the label list has 80"),
    ],
)
def test_a_selection_needs_the_number_of_classes(select, columns, text):
    outputs = {"logits": (1, 300, columns), "pred_boxes": (1, 300, 4)}
    if text is None:
        family("detr").selecting(select).check(outputs, 80)
    else:
        with pytest.raises(ValueError, match=text):
            family("detr").selecting(select).check(outputs, 80)


def test_a_network_with_built_in_selection_refuses_the_option():
    outputs = {"labels": (1, 9), "boxes": (1, 9, 4), "scores": (1, 9)}
    with pytest.raises(ValueError, match="select: top_k is for class logits, and this network selects by itself"):
        family("detr").selecting("top_k").check(outputs, 80)
    family("detr").check(outputs, 80)


def test_reading_refuses_another_input_size():
    output = {"output": np.zeros((1, 100, 8), np.float32)}
    with pytest.raises(ValueError, match="has 100 anchors, and an input of 416x416 with strides 8, 16, 32 has 3549"):
        family("yolox").read(output, np.ones((1, 4), np.float32), np.ones((1, 2)), (416, 416), ReadOptions(SCORES))


def test_reading_refuses_another_number_of_classes():
    output = {"output": np.zeros((1, 9, 100), np.float32)}
    with pytest.raises(ValueError, match="scores of 5 classes, min_score has 3"):
        family("yolov8").read(output, np.ones((1, 4), np.float32), np.ones((1, 2)), (64, 64), ReadOptions(SCORES))


def test_a_single_list_for_two_frames_is_refused():
    output = {"detection_out": np.zeros((1, 1, 9, 7), np.float32)}
    with pytest.raises(ValueError, match="2 frames gave one list of objects; run this network with batches of 1"):
        family("ssd").read(output, np.ones((2, 4), np.float32), np.ones((2, 2)), (64, 64), ReadOptions(SCORES))


EXTRA_INPUTS = {
    "detr": {"orig_target_sizes": np.array([[640, 360], [1, 1]])},
    "ppyoloe": {"scale_factor": np.ones((2, 2), np.float32)},
    "ppyoloe_e2e": {"scale_factor": np.ones((2, 2), np.float32)},
}


@pytest.mark.parametrize("name", EXTRA_INPUTS)
def test_extra_inputs_have_a_row_for_each_image(name):
    inputs = family(name).extra_inputs(np.array([[640, 360], [1, 1]]), np)
    assert inputs.keys() == EXTRA_INPUTS[name].keys()
    for key, expected in EXTRA_INPUTS[name].items():
        assert inputs[key].dtype == expected.dtype
        np.testing.assert_array_equal(inputs[key], expected)


def test_outputs_of_single_images_are_stacked():
    runs = [{"rows": np.full((count, 6), count, np.float32), "count": np.array([count])} for count in (2, 0, 3)]
    stacked = stack_images(runs, np)
    assert stacked["rows"].shape == (3, 3, 6)
    assert stacked["rows"].dtype == np.float32
    assert stacked["rows"][:, :, 0].tolist() == [[2, 2, 0], [0, 0, 0], [3, 3, 3]]
    assert stacked["count"].tolist() == [[2], [0], [3]]
    assert stack_images([], np) == {}


def test_which_outputs_are_of_one_image():
    boxes = {"boxes": ("K", 4), "labels": ("K",), "scores": ("K",)}
    assert family("ssd").single_image(boxes)
    assert not family("ssd").single_image({name: (1, *shape) for name, shape in boxes.items()})
    assert not family("ssd").single_image({"detection_out": (1, 1, 9, 7)})
    assert family("ppyoloe_e2e").single_image({"rows": ("K", 6), "count": (1,)})
    assert not family("yolo_e2e").single_image({"rows": (1, 300, 6)})


def test_unpack_returns_a_table_for_the_batch():
    rows = np.arange(3 * 4 * 8, dtype=np.float32).reshape(3, 4, 8)
    rows[:, :, 5] = 2
    counts = np.zeros((3, 1 + len(CAUSES)), np.int32)
    counts[:, 0] = 2, 0, 4
    table = unpack(rows, counts, ("a", "b", "c"), {"tip": (2,)})
    assert len(table) == 6
    assert table.batch_row.tolist() == [0, 0, 2, 2, 2, 2]
    assert table.row_id.tolist() == [0, 1, 2, 3, 4, 5]
    assert table.label == ["c"] * 6
    assert table.xyxy[2].tolist() == [64, 65, 66, 67]
    assert table.score[2] == 68
    assert table.extra["tip"].tolist()[2] == [70, 71]
    assert [len(part) for part in table.split(3)] == [2, 0, 4]


def test_unpack_of_an_empty_batch_is_empty():
    counts = np.zeros((2, 1 + len(CAUSES)), np.int32)
    table = unpack(np.zeros((2, 5, 16), np.float32), counts, ("face",), {"keypoints": (-1, 2)})
    assert len(table) == 0
    assert table.extra["keypoints"].shape == (0, 5, 2)
