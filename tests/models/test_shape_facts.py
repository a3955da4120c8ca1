"""Which families the shapes of a network's inputs and outputs allow."""

from pathlib import Path

import numpy as np
import pytest

from streamkit.models.families import FAMILIES
from streamkit.models.network_file import ModelInfo, TensorInfo
from streamkit.models.shape_facts import Candidate, candidates

SIZE = (640, 480)
"""8, 16 and 32 pixels a cell give 6,300 cells; 16 and 32, 1,500; 4, 8 and 16, 25,200; 64 more, 6,370."""
ANCHORS = 6300


def network(outputs: dict[str, list], integers: tuple[str, ...] = (), inputs: tuple[str, ...] = ()) -> ModelInfo:
    """A network with these outputs, and inputs beside the images."""
    kinds = {name: np.dtype(np.int64 if name in integers else np.float32) for name in outputs}
    tensors = {name: TensorInfo(name, kinds[name], tuple(dims)) for name, dims in outputs.items()}
    images = TensorInfo("images", np.dtype(np.float32), ("N", 3, SIZE[1], SIZE[0]))
    others = {name: TensorInfo(name, np.dtype(np.int64), ("N", 2)) for name in inputs}
    return ModelInfo(Path("net.onnx"), {"images": images, **others}, tensors, "images", "nchw", "f32", None, SIZE)


def allowed(outputs: dict[str, list], classes: int | None = None, **more) -> dict[str, int | None]:
    """The families that explain all outputs, with their numbers of classes."""
    listed = candidates(network(outputs, **more), SIZE, classes)
    return {candidate.family: candidate.classes for candidate in listed if not candidate.unread}


# ------------------------------------------------------------------------------------------------- anchors in a pyramid


@pytest.mark.parametrize(
    ("outputs", "families"),
    [
        ([1, ANCHORS, 7], {"yolox": 2, "yolov5": 2}),
        ([1, 3 * ANCHORS, 7], {"yolov5": 2}),
        ([1, 6370, 7], {"yolov5": 2}),  # a fourth stride, of 64
        ([1, 3 * 6370, 7], {"yolov5": 2}),
        ([1, 3 * 1500, 7], {"yolov5": 2}),  # two strides
        ([1, 3 * 25200, 7], {"yolov5": 2}),
        ([1, 1500, 7], {}),
        ([1, 25200, 7], {}),
        ([1, 2 * ANCHORS, 7], {}),
        ([1, ANCHORS + 1, 7], {}),
        ([1, 6, ANCHORS], {"yolov8": 2}),
        ([1, 6, 1500], {"yolov8": 2}),
        ([1, 6, 25200], {"yolov8": 2}),
        ([1, 6, 6370], {"yolov8": 2}),
        ([1, 6, 3 * ANCHORS], {}),
        ([1, 6, ANCHORS - 1], {}),
        ([1, 56, ANCHORS], {"yolov8": 52, "yolov8_pose": 1}),
        (["N", "values", "anchors"], {}),
    ],
)
def test_anchors_are_as_many_as_cells(outputs, families):
    explained = allowed({"o": outputs})
    assert {name: explained[name] for name in families} == families
    if families or isinstance(outputs[1], int):
        assert set(explained) == set(families)


def test_open_sizes_allow_every_family_of_that_rank():
    assert set(allowed({"o": ["N", "rows", "values"]})) == {
        "deepstream_yolo",
        "yolox",
        "yolov5",
        "yolov8",
        "yolov8_pose",
        "yolo_e2e",
        "yolo_e2e_obb",
        "yolo_e2e_pose",
        "rtdetr",
        "rtdetr_e2e",
    }


def test_a_map_beside_anchors_holds_prototypes():
    assert allowed({"o": [1, 38, ANCHORS], "p": [1, 32, 120, 160]}) == {"yolov8_seg": 2}
    assert allowed({"o": [1, 38, ANCHORS], "p": [1, 34, 120, 160]}) == {}
    assert allowed({"o": [1, 300, 38], "p": [1, 32, 120, 160]}) == {"yolo_e2e_seg": None}
    assert allowed({"o": [1, 300, 6], "p": [1, 32, 120, 160]}) == {}
    assert allowed({"o": [1, ANCHORS, 39], "p": [1, 32, 120, 160]}) == {}


def test_the_number_of_labels_decides_between_families():
    assert allowed({"o": [1, 56, ANCHORS]}, 1) == {"yolov8_pose": 1}
    assert allowed({"o": [1, 56, ANCHORS]}, 52) == {"yolov8": 52}
    assert allowed({"o": [1, 56, ANCHORS]}, 51) == {}


def test_oriented_boxes_are_read_only_on_request():
    assert "yolov8_obb" not in allowed({"o": [1, 7, ANCHORS]})
    info = network({"o": [1, 7, ANCHORS]})
    assert candidates(info, SIZE, None, ("yolov8_obb",)) == [Candidate("yolov8_obb", 2)]


@pytest.mark.parametrize(
    ("boxes", "scores", "fits"),
    [
        ([1, ANCHORS, 4], [1, ANCHORS, 2], True),
        ([1, 1500, 4], [1, 1500, 2], True),
        ([1, "anchors", 4], [1, "anchors", 2], True),
        ([1, 4420, 4], [1, 4420, 2], False),
        ([1, ANCHORS, 4], [1, ANCHORS + 1, 2], False),
    ],
)
def test_scores_and_boxes_of_anchors_are_recognized(boxes, scores, fits):
    assert allowed({"boxes": boxes, "scores": scores}) == ({"yolo_world": 2} if fits else {})


# -------------------------------------------------------------------------------------------------------- selected rows

END_TO_END = {"yolo_e2e": None, "rtdetr_e2e": None, "rtdetr": 2}


@pytest.mark.parametrize(
    ("rows", "families"),
    [
        (300, END_TO_END),
        (1000, END_TO_END),
        (50, END_TO_END),
        (1050, {}),
        (299, {}),
        (45, {"yolo_e2e": None, "rtdetr_e2e": None}),
        (355, {"yolo_e2e": None, "rtdetr_e2e": None}),
        ("rows", END_TO_END),
    ],
)
def test_rows_of_six_values_are_recognized(rows, families):
    numbers = allowed({"o": [1, rows, 6]})
    assert {name: numbers.get(name, "absent") for name in families} == families
    if isinstance(rows, int):
        assert numbers == families


@pytest.mark.parametrize(
    ("values", "families"),
    [
        (4, {}),
        (5, {"rtdetr": 1}),
        (7, {"rtdetr": 3, "yolo_e2e_obb": None}),
        (8, {"rtdetr": 4}),
        (9, {"rtdetr": 5, "yolo_e2e_pose": None}),
        (57, {"rtdetr": 53, "yolo_e2e_pose": None}),
        (58, {"rtdetr": 54}),
        (456, {"rtdetr": 452, "yolo_e2e_pose": None}),
        (459, {"rtdetr": 455}),
        (1000, {"rtdetr": 996}),
        (1001, {}),
    ],
)
def test_selected_rows_are_recognized(values, families):
    assert allowed({"o": [1, 100, values]}) == families


@pytest.mark.parametrize(
    ("cells", "fits"),
    [((40, 40), True), ((30, 40), True), ((20, 40), False), (("h", "w"), True), ((30, 41), False)],
)
def test_a_grid_of_16_pixels_is_recognized(cells, fits):
    size = (640, 16 * cells[0] - 3) if cells[0] in (30, 40) else (640, 640)
    info = network({"out_cov": [1, 3, *cells], "out_bbox": [1, 12, *cells]})
    fitting = [candidate for candidate in candidates(info, size, None) if not candidate.unread]
    assert fitting == ([Candidate("detectnet", 3)] if fits else [])


def test_rows_as_many_as_cells_are_anchors():
    """Of 160 x 160 pixels, 525 cells; of 192 x 192, 756."""
    for side, rows in ((160, 525), (160, 3 * 525)):
        info = network({"o": [1, rows, 6]})
        families = {candidate.family for candidate in candidates(info, (side, side), None)}
        assert families == {"yolov5", "deepstream_yolo", *(["yolox"] if rows == 525 else [])}


@pytest.mark.parametrize(
    "outputs",
    [
        {"last_hidden_state": [1, 50, 384]},
        {"text_embeds": [1, 50, 384]},
        {"o": [1, 480, 640]},  # a map of the input's size
        {"o": [1, 240, 320]},
        {"o": [1, 120, 150]},  # its shape, nearly
    ],
)
def test_feature_maps_are_not_rows(outputs):
    assert allowed(outputs) == {}


def test_a_list_of_rows_that_only_resembles_a_map_is_a_list():
    assert allowed({"o": [1, 300, 300]}) == {"rtdetr": 296, "yolo_e2e_pose": None}


def test_values_as_many_as_cells_are_anchors():
    info = network({"o": [1, 100, 84]})
    assert {candidate.family for candidate in candidates(info, SIZE, None)} == {"rtdetr", "yolo_e2e_pose"}
    assert {candidate.family for candidate in candidates(info, (64, 64), None)} == {"yolov8", "yolov8_pose"}
    assert candidates(network({"o": [1, 100, 3 * 84]}), (64, 64), None) == []
    twice = candidates(network({"o": [1, 100, 2 * 84]}), (64, 64), None)
    assert {candidate.family for candidate in twice} == {"rtdetr", "yolo_e2e_pose"}


# ------------------------------------------------------------------------------------------------------------- named


@pytest.mark.parametrize(
    ("outputs", "families"),
    [
        ({"logits": [1, 300, 2], "pred_boxes": [1, 300, 4]}, {"detr": 2}),
        ({"scores": [1, 300, 2], "boxes": [1, 300, 4]}, {}),
        ({"Scores": [1, 300, 2], "dets": [1, 300, 4]}, {}),
        ({"labels": [1, 300], "boxes": [1, 300, 4], "scores": [1, 300]}, {"detr": None, "ssd": None}),
        ({"bboxes": [1, 9, 4], "labels": [1, 9], "scores": [1, 9]}, {"ssd": None}),
        ({"o": [1, 1, 17, 3]}, {"movenet": 1}),
        ({"o": [1, 1, 9, 7]}, {"ssd": None}),
    ],
)
def test_named_outputs_are_recognized(outputs, families):
    assert allowed(outputs) == families


def test_the_last_class_of_a_softmax_means_no_object():
    info = network({"logits": [1, 100, 3], "pred_boxes": [1, 100, 4]})
    assert candidates(info, SIZE, None, ("detr",), "softmax") == [Candidate("detr", 2)]
    assert candidates(info, SIZE, None, ("detr",), "top_k") == [Candidate("detr", 3)]


def test_further_inputs_need_a_family_that_has_values_for_them():
    outputs = {"labels": ["N", 300], "boxes": ["N", 300, 4], "scores": ["N", 300]}
    assert allowed(outputs, inputs=("orig_target_sizes",)) == {"detr": None}
    assert allowed(outputs, inputs=("orig_target_sizes", "scale_factor")) == {}


def test_an_unread_output_is_named():
    outputs = {"dets": [1, 100, 4], "labels": [1, 100, 2], "masks": [1, 100, 9, 9], "ids": [1, 100]}
    assert candidates(network(outputs), SIZE, None) == [Candidate("detr", 2, ("masks", "ids"))]


# ----------------------------------------------------------------------------------------------------- maps and vectors


@pytest.mark.parametrize(
    ("dims", "classes"),
    [
        ([1, 19, 480, 640], 19),
        ([1, 19, 15, 20], 19),  # a share of 1/32
        ([1, 19, 14, 19], None),  # less
        ([1, 19, 1920, 2560], 19),  # four times the input
        ([1, 19, 1924, 2566], None),
        ([1, 19, 120, 175], 19),  # rounded to other strides
        ([1, 19, 120, 178], None),
        ([1, 19, 480, 480], None),
        ([1, 480, 640, 19], 19),
        ([1, 1, 480, 640], None),
        ([1, 480, 640, 1], None),
        ([1, 480, 640], None),
    ],
)
def test_a_map_of_scores_is_in_the_shape_of_the_input(dims, classes):
    families = {name: count for name, count in allowed({"o": dims}, classes or 19).items() if "depth" not in name}
    assert families == ({"semantic": classes} if classes else {})


@pytest.mark.parametrize("dims", [[1, "classes", "h", "w"], [1, 19, "h", "w"], ["N", "h", "w", 19]])
def test_a_map_of_open_size_may_be_of_classes(dims):
    assert "semantic" in allowed({"o": dims}, 19)


@pytest.mark.parametrize(
    ("dims", "fits"),
    [
        ([1, 480, 640], True),
        ([1, 1, 240, 320], True),
        ([1, 240, 240], False),
        ([1, 2, 480, 640], False),
    ],
)
def test_a_class_map_of_integers_is_recognized(dims, fits):
    assert allowed({"o": dims}, 19, integers=("o",)) == ({"semantic": 19} if fits else {})


@pytest.mark.parametrize("name", ["heatmaps", "predicted_depth", "Disparity", "anomaly_map", "keypoint_map", "mask"])
def test_maps_of_other_kinds_are_recognized_by_name(name):
    assert allowed({name: [1, 19, 480, 640]}, 19) == {}


def test_two_maps_are_not_classes():
    assert allowed({"a": [1, 19, 480, 640], "b": [1, 19, 480, 640]}, 19) == {}
    assert allowed({"a": [1, 19, 480, 640], "b": [1, 2]}, 19) == {}


@pytest.mark.parametrize(
    ("outputs", "families"),
    [
        ({"o": [1, 2]}, {"logits", "probabilities"}),
        ({"o": [1, 15]}, {"logits", "probabilities"}),
        ({"o": [1, 16]}, {"logits", "probabilities", "embedding"}),
        ({"o": [1, 16, 1, 1]}, {"logits", "probabilities", "embedding"}),
        ({"o": [1, "values"]}, {"logits", "probabilities", "embedding"}),
        ({"o": [1, 1]}, set()),
        ({"o": [9]}, set()),
        ({"o": []}, set()),
        ({"a": [1, 90], "b": [1, 90]}, set()),
        ({"last_hidden_state": [1, 9, 384], "pooler_output": [1, 384]}, {"embedding"}),
        ({"last_hidden_state": [1, 9, 384], "image_embeds": [1, 384]}, {"embedding"}),
        ({"last_hidden_state": [1, 9, 384], "image_embeds": [1, 9]}, set()),
    ],
)
def test_vectors_are_recognized(outputs, families):
    assert set(allowed(outputs)) == families


def test_vectors_of_integers_are_neither_scores_nor_embeddings():
    assert allowed({"o": [1, 20]}, integers=("o",)) == {}


# ---------------------------------------------------------------------------------------------------------- decisions


@pytest.mark.parametrize(
    ("family", "classes", "integers", "labeled", "decided"),
    [
        ("yolov8", 80, (), False, True),
        ("rtdetr", 80, (), True, False),
        ("semantic", 19, (), False, False),
        ("semantic", 19, (), True, True),
        ("semantic", 1, (), True, False),
        ("semantic", None, (), True, False),
        ("semantic", None, ("o",), False, True),
    ],
)
def test_unambiguous_shapes_need_no_decision(family, classes, integers, labeled, decided):
    info = network({"o": [1, 480, 640]}, integers=integers)
    assert FAMILIES[family].certain(info, classes, labeled) is decided


@pytest.mark.parametrize("family", ["yolov8", "yolox", "semantic", "embedding"])
def test_a_requested_family_is_not_checked_against_the_input(family):
    dims = {"yolov8": [1, 6, 9], "yolox": [1, 9, 7], "semantic": [1, 2, 9, 9], "embedding": [1, 9]}[family]
    listed = candidates(network({"o": dims}), None, None, (family,))
    assert [candidate.family for candidate in listed] == [family]
    assert candidates(network({"o": dims}), SIZE, None, (family,)) == []
