"""What the values of one run say of a family."""

import os
from pathlib import Path

import numpy as np
import pytest
from support.plus_one import U8
from support.plus_one import network as plus_one
from support.shaped_networks import shaped

from streamkit.core.errors import ModelError
from streamkit.models.network_file import inspect
from streamkit.models.run_facts import doubt, doubts, values_of, with_sizes
from streamkit.models.shape_facts import Candidate

SIZE = (64, 32)
"""Width and height of every input here."""


def reason(folder: Path, family: str, classes: int | None = None, **outputs) -> str:
    """Why these outputs are not the family's; of one image, without the batch."""
    values = {name: np.asarray(value, np.float64)[None] for name, value in outputs.items()}
    shapes = {name: list(value.shape) for name, value in values.items()}
    path = shaped(folder / "net.onnx", shapes, image=[1, 3, SIZE[1], SIZE[0]], values=values)
    text = doubt(inspect(path), SIZE, family, classes)
    assert not text or text.endswith(", in a run on a gray image")
    return text.removesuffix(", in a run on a gray image")


RAW = "its box centers are raw offsets"
IN_PIXELS = "its box centers are in network pixels"
SCORES = "its scores are not from 0 to 1"
SHARES = "its boxes are shares of the input"
WHOLE = "its classes are not whole numbers"
CORNERS = "its boxes are not corners"
NO_ROWS = "it has no rows"

# Rows of x, y, w, h or x1, y1, x2, y2, then what is behind.
YOLOX = [[0.5, 0.2, 3, 9, 0.9, 0.2], [15, 7, -2, 1, 0.1, 1.0]]
DECODED = [[2, 3, 8, 8, 0.9, 0.2], [60, 30, 8, 8, 0.1, 0.7]]
SELECTED = [[2, 3, 8, 8, 0.9, 2], [40, 10, 60, 30, 0.1, 0]]
IN_SHARES = [[0.1, 0.2, 0.1, 0.1, 0.9, 0.2], [0.5, 0.6, 1.0, 1.0, 0.1, 0.7]]


def changed(rows: list[list[float]], row: int, column: int, value: float) -> list[list[float]]:
    return [[value if (i, j) == (row, column) else old for j, old in enumerate(line)] for i, line in enumerate(rows)]


@pytest.mark.parametrize(
    ("family", "rows", "expected"),
    [
        ("yolox", YOLOX, ""),
        ("yolox", DECODED, IN_PIXELS),
        ("yolox", changed(DECODED, 1, 0, 47), ""),  # less than three quarters of the width
        ("yolox", changed(DECODED, 1, 1, 23), ""),
        ("yolox", changed(DECODED, 1, 0, -60), IN_PIXELS),
        ("yolox", changed(YOLOX, 1, 4, 1.2), SCORES),
        ("yolox", changed(YOLOX, 0, 5, -0.2), SCORES),
        ("yolox", changed(YOLOX, 0, 5, 1.005), ""),
        ("yolox", changed(YOLOX, 0, 5, -0.005), ""),
        ("yolov5", DECODED, ""),
        ("yolov5", YOLOX, RAW),
        ("yolov5", changed(YOLOX, 1, 0, 17), ""),  # more than a quarter of the width
        ("yolov5", changed(YOLOX, 1, 1, 9), ""),
        ("yolov5", SELECTED, "its boxes are corners, not center and size"),
        ("yolov5", changed(DECODED, 1, 4, 1.2), SCORES),
        ("yolov5", changed(DECODED, 1, 5, 5), SCORES),
        ("yolov5", np.zeros((3, 6)), ""),
        ("yolo_e2e", SELECTED, ""),
        ("yolo_e2e", IN_SHARES, SHARES),
        ("yolo_e2e", changed(SELECTED, 0, 4, 1.2), SCORES),
        ("yolo_e2e", changed(SELECTED, 0, 5, 1.5), WHOLE),
        ("yolo_e2e", DECODED[:1] + changed(DECODED, 1, 5, 1)[1:], WHOLE),
        ("yolo_e2e", changed(changed(DECODED, 1, 5, 1), 0, 5, 1), CORNERS),
        ("yolo_e2e", changed(changed(DECODED, 1, 5, 1), 0, 5, 1) + SELECTED * 9, ""),  # one in ten is inside out
        ("yolo_e2e", np.zeros((3, 6)), ""),
        ("yolo_e2e", np.zeros((0, 6)), ""),
        ("rtdetr", IN_SHARES, ""),
        ("rtdetr", np.zeros((3, 6)), NO_ROWS),
        ("rtdetr", changed(changed(IN_SHARES, 0, 5, 1), 1, 5, 3), "its last column is the class"),
        ("rtdetr", changed(IN_SHARES, 0, 0, 3), "its rows are not shares and scores"),
        ("rtdetr", changed(IN_SHARES, 0, 3, -3), "its rows are not shares and scores"),
        ("rtdetr", changed(IN_SHARES, 0, 3, 1.9), ""),
        ("rtdetr", changed(IN_SHARES, 0, 4, 1.9), "its rows are not shares and scores"),
        ("rtdetr", [[0.1, 0.2, 0.1, 0.1, 0.9, 0.2, 1.0]], ""),
        ("rtdetr", [[0.1, 0.2, 0.1, 0.1, 0.9, 0.0, 3.0]], "its rows are not shares and scores"),
        ("rtdetr_e2e", changed(changed(IN_SHARES, 0, 5, 1), 1, 5, 3), ""),
        ("rtdetr_e2e", IN_SHARES, WHOLE),
        ("rtdetr_e2e", SELECTED, "its boxes are in network pixels"),
        ("rtdetr_e2e", changed(IN_SHARES, 0, 4, 2), SCORES),
        ("rtdetr_e2e", np.zeros((3, 6)), NO_ROWS),
    ],
)
def test_rows(family, rows, expected, tmp_path):
    assert reason(tmp_path, family, o=rows) == expected


POINTS = [[5, 5, 0.8, 60, 30, 0.1], [7, 7, 0.4, 8, 9, 0.2]]


def beside(rows: list[list[float]], more: list[list[float]]) -> np.ndarray:
    return np.concatenate([np.asarray(rows, float), np.asarray(more, float)], axis=1)


@pytest.mark.parametrize(
    ("family", "classes", "rows", "expected"),
    [
        ("yolov8", 2, DECODED, ""),
        ("yolov8", 2, SELECTED, SCORES),
        ("yolov8", 2, np.zeros((3, 6)), ""),
        ("yolov8", 2, IN_SHARES, "its boxes are not in network pixels"),
        ("yolov8_pose", 2, beside(DECODED, POINTS), ""),
        ("yolov8_pose", None, beside(DECODED, POINTS), ""),
        ("yolov8_pose", 2, beside(changed(DECODED, 0, 5, 3), POINTS), SCORES),
        ("yolov8_pose", None, beside(changed(DECODED, 0, 5, 3), POINTS), ""),
        ("yolov8_pose", None, beside(changed(DECODED, 0, 4, 3), POINTS), SCORES),
        ("yolov8_pose", 2, beside(DECODED, changed(POINTS, 0, 2, 3)), SCORES),
        ("yolov8_pose", 2, beside(DECODED, changed(POINTS, 1, 5, 3)), SCORES),
        ("yolov8_pose", 1, beside(DECODED, POINTS), SCORES),
        ("yolo_e2e_pose", None, beside(SELECTED, POINTS), ""),
        ("yolo_e2e_pose", None, beside(SELECTED, changed(POINTS, 0, 2, 3)), SCORES),
        ("yolo_e2e_pose", None, beside(SELECTED, changed(POINTS, 1, 5, 3)), SCORES),
        ("yolo_e2e_pose", None, beside(IN_SHARES, POINTS), SHARES),
    ],
)
def test_rows_with_points_and_columns(family, classes, rows, expected, tmp_path):
    rows = np.asarray(rows, float)
    assert reason(tmp_path, family, classes, o=rows.T if family.startswith("yolov8") else rows) == expected


@pytest.mark.parametrize(("coefficients", "expected"), [(2, ""), (1, SCORES)])
def test_coefficients_of_masks_are_no_scores(coefficients, expected, tmp_path):
    rows = beside(DECODED, [[9, -9], [8, 3]])
    assert reason(tmp_path, "yolov8_seg", 2, p=np.zeros((coefficients, 8, 8)), o=rows.T) == expected
    assert reason(tmp_path, "yolo_e2e_seg", o=beside(SELECTED, [[9], [8]]), p=np.zeros((1, 8, 8))) == ""


@pytest.mark.parametrize(
    ("boxes", "scores", "expected"),
    [
        ([[2, 3, 8, 8], [40, 10, 60, 30]], [[0.1, 0.9], [1, 0]], ""),
        ([[0.1, 0.2, 0.3, 0.4]] * 2, [[0.1, 0.9], [1, 0]], SHARES),
        ([[2, 3, 8, 8], [40, 10, 60, 3]], [[0.1, 0.9], [1, 0]], CORNERS),
        ([[2, 3, 8, 8], [40, 10, 60, 30]], [[0.1, 0.9], [1, 3]], SCORES),
        (np.zeros((2, 4)), [[0.1, 0.9], [1, 3]], ""),
    ],
)
def test_boxes_and_scores_apart(boxes, scores, expected, tmp_path):
    assert reason(tmp_path, "yolo_world", Scores=scores, Boxes=boxes) == expected


NEITHER = "its values are neither logits nor probabilities of classes"
TWO = np.array([[[0.25, 0.5]], [[0.75, 0.5]]])
"""(2, 1, 2) probabilities of two classes at two places."""


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("o", TWO, ""),
        ("o", TWO.transpose(1, 2, 0), ""),
        ("o", TWO.transpose(1, 0, 2), NEITHER),
        ("o", TWO + 0.02, ""),
        ("o", TWO + 0.03, NEITHER),
        ("o", TWO / 9, NEITHER),
        ("o", TWO * 9, ""),
        ("o", TWO - 1.9, ""),
        ("o", TWO * 0, ""),
        ("logits", TWO / 9, ""),
    ],
)
def test_maps_of_classes(name, values, expected, tmp_path):
    assert reason(tmp_path, "semantic", 2, **{name: values}) == expected


def test_a_map_of_classes_as_integers_is_not_doubted(tmp_path):
    path = shaped(tmp_path / "net.onnx", {"o": [1, 1, 8, 8]}, image=[1, 3, 32, 64], integers=("o",),
                  values={"o": np.ones((1, 1, 8, 8))})  # fmt: skip
    assert doubt(inspect(path), SIZE, "semantic", 2) == ""


@pytest.mark.parametrize(
    ("values", "sums_to_1"),
    [([0.25, 0.75], True), ([0.25, 0.755], True), ([0.25, 0.77], False), ([-0.25, 1.25], False), ([0, 0], False)],
)
def test_vectors_of_classes(values, sums_to_1, tmp_path):
    assert reason(tmp_path, "logits", o=values) == ("its outputs sum to 1" if sums_to_1 else "")
    assert reason(tmp_path, "probabilities", o=values) == ("" if sums_to_1 else "its outputs do not sum to 1")


def test_a_family_whose_values_are_not_known_is_not_run(tmp_path):
    path = shaped(tmp_path / "net.onnx", {"o": [1, 9]}, image=[1, 3, 32, 64])
    info = inspect(path)
    path.unlink()
    assert doubt(info, SIZE, "embedding", None) == ""
    assert doubts(info, SIZE, [Candidate("embedding", None), Candidate("logits", 9)]) == {}


def test_a_network_with_further_inputs_is_not_run(tmp_path):
    path = shaped(
        tmp_path / "net.onnx",
        {"o": [1, 2]},
        image=[1, 3, 32, 64],
        extra={"more": [1, 2]},
        values={"o": np.array([[0.25, 0.75]])},
    )
    assert doubt(inspect(path), SIZE, "logits", 2) == ""


def test_families_that_a_run_excludes(tmp_path):
    path = shaped(tmp_path / "net.onnx", {"o": [1, 2, 6]}, image=[1, 3, 32, 64], values={"o": np.array([DECODED])})
    listed = [Candidate(family, 1) for family in ("yolox", "yolov5", "yolo_e2e", "rtdetr", "ssd")]
    assert doubts(inspect(path), SIZE, listed) == {
        "yolox": f"{IN_PIXELS}, in a run on a gray image",
        "yolo_e2e": f"{WHOLE}, in a run on a gray image",
        "rtdetr": "its rows are not shares and scores, in a run on a gray image",
    }


def test_a_vector_that_may_be_an_embedding_is_not_doubted(tmp_path):
    path = shaped(tmp_path / "net.onnx", {"o": [1, 2]}, image=[1, 3, 32, 64], values={"o": np.array([[0.25, 0.75]])})
    two = [Candidate("logits", 2), Candidate("probabilities", 2)]
    assert list(doubts(inspect(path), SIZE, two)) == ["logits"]
    assert doubts(inspect(path), SIZE, [*two, Candidate("embedding", None)]) == {}


# ----------------------------------------------------------------------------------------------------------- the run


def test_open_sizes_are_those_of_a_run_but_for_the_batch(tmp_path):
    path = shaped(
        tmp_path / "net.onnx", {"o": ["N", "rows", 6], "p": ["N", 3]}, image=[1, 3, 32, 64],
        values={"o": np.zeros((1, 1, 6))},
    )  # fmt: skip
    assert with_sizes(inspect(path), SIZE).output_dims == {"o": ("N", 1, 6), "p": ("N", 3)}
    closed = shaped(tmp_path / "closed.onnx", {"o": ["N", 4, 6]}, image=[1, 3, 32, 64])
    info = inspect(closed)
    closed.unlink()  # nothing is run
    assert with_sizes(info, SIZE) is info


def test_open_sizes_stay_open_where_further_inputs_are_missing(tmp_path):
    path = shaped(tmp_path / "net.onnx", {"o": ["N", "rows", 6]}, image=[1, 3, 32, 64], extra={"more": [1, 2]})
    info = inspect(path)
    assert with_sizes(info, SIZE) is info


@pytest.mark.parametrize(
    ("shape", "gray"),
    [([1, 3, 32, 64], 1.447), ([2, 3, 32, 64], 1.447), (["N", 32, 64, 3], 1.447), (["N", 3, "h", "w"], 1.447)],
)
def test_the_image_is_gray_and_as_large_as_the_input(shape, gray, tmp_path):
    path = plus_one(tmp_path / "net.onnx", {"x": (1, shape)})
    value = values_of(inspect(path), SIZE)["out_x"]
    assert value.shape == (shape[0] if isinstance(shape[0], int) else 1, *((3, 32, 64), (32, 64, 3))[shape[3] == 3])
    assert np.allclose(value, gray)


def test_the_image_of_whole_numbers_is_gray(tmp_path):
    path = plus_one(tmp_path / "net.onnx", {"x": (U8, [1, 3, 32, 64])})
    assert (values_of(inspect(path), SIZE)["out_x"] == 115).all()


def test_values_are_those_of_the_file_as_it_is_now(tmp_path):
    path = plus_one(tmp_path / "net.onnx", {"x": (1, [1, 3, 32, 64])})
    first = values_of(inspect(path), SIZE)
    assert values_of(inspect(path), SIZE) is first
    path.write_bytes(path.read_bytes().replace(b"Add", b"Sub"))
    os.utime(path, ns=(0, 10**18))
    assert np.allclose(values_of(inspect(path), SIZE)["out_x"], 0.447 - 1)


def test_a_network_that_cannot_be_run_says_so(tmp_path):
    path = plus_one(tmp_path / "net.onnx", {"x": (1, [1, 3, 32, 64])})
    with pytest.raises(ModelError, match=r"net\.onnx cannot be run on images of 8 x 8: "):
        values_of(inspect(path), (8, 8))
