import numpy as np
import pytest

from streamkit.ops.candidates import Coding, best_class, cells, check_cells, each_class, labeled_class

BOXES = np.tile(np.array([10, 20, 4, 8], np.float32), (1, 6, 1))


def thresholds(*scores):
    return np.array(scores, np.float32)


def read(scores, min_score, boxes=BOXES, **more):
    scores = np.array(scores, np.float32)[None]
    options = {"coding": Coding.XYXY, "input_size": (64, 32), **more}
    return best_class(boxes[:, : scores.shape[1]], scores, min_score=min_score, **options)


def test_the_best_class_is_selected_and_the_first_of_equal_ones():
    selected = read([[0.2, 0.9], [0.7, 0.7], [0.1, 0.2]], thresholds(0.3, 0.3))
    assert selected.class_id.tolist() == [1, 0]
    assert selected.score.tolist() == pytest.approx([0.9, 0.7])
    assert selected.removed.tolist() == [[1, 0, 0]]


def test_classes_have_separate_thresholds_without_a_second_choice():
    # The second anchor's best class is under its threshold; that its other class would pass does not help it.
    selected = read([[0.5, 0.1], [0.5, 0.6]], thresholds(0.4, 0.7))
    assert selected.class_id.tolist() == [0]
    assert selected.removed.tolist() == [[1, 0, 0]]


def test_an_excluded_class_is_counted_only_above_the_threshold():
    selected = read([[0.9, 0.1], [0.2, 0.1], [0.1, 0.8]], thresholds(np.inf, 0.5))
    assert selected.class_id.tolist() == [1]
    assert selected.removed.tolist() == [[1, 1, 0]]
    nothing = read([[0.9, 0.1]], thresholds(np.inf, np.inf))
    assert len(nothing.score) == 0
    assert nothing.removed.sum() == 1


def test_a_score_at_the_threshold_is_enough():
    assert len(read([[0.25]], thresholds(0.25)).score) == 1


@pytest.mark.parametrize("logit", [-800.0, -3.0, 0.0, 2.5, 800.0])
def test_logits_go_through_the_sigmoid(logit):
    selected = read([[logit]], thresholds(0.0), logits=True)
    assert selected.score[0] == pytest.approx(1 / (1 + np.exp(-np.float64(min(max(logit, -700), 700)))), abs=1e-7)


@pytest.mark.parametrize(
    ("coding", "unit", "box"),
    [
        (Coding.XYXY, (1, 1), [10, 20, 4, 8]),
        (Coding.YXYX, (2, 3), [40, 30, 16, 12]),
        (Coding.CXCYWH, (1, 1), [8, 16, 12, 24]),
        (Coding.CXCYWH, (0.5, 2), [4, 32, 6, 48]),
    ],
)
def test_box_codings_are_decoded(coding, unit, box):
    assert read([[0.9]], thresholds(0.5), coding=coding, unit=unit).xyxy.tolist() == [box]


def test_grid_coding_is_decoded_at_each_level():
    # 64x32: 8x4 cells of 8, 4x2 of 16, 2x1 of 32.
    x, y, stride = cells((64, 32))
    assert [stride.tolist().count(s) for s in (8, 16, 32)] == [32, 8, 2]
    assert (x[9], y[9]) == (1, 1)
    assert (x[32 + 7], y[32 + 7]) == (3, 1)
    assert (x[41], y[41], stride[41]) == (1, 0, 32)
    values = np.zeros((1, 42, 4), np.float32)
    scores = np.ones((1, 42, 1), np.float32)
    values[..., 0] = 0.5
    selected = best_class(values, scores, min_score=thresholds(0.5), coding=Coding.GRID, input_size=(64, 32))
    assert selected.xyxy[9].tolist() == [8, 4, 16, 12]
    assert selected.xyxy[41].tolist() == [32, -16, 64, 16]


def test_objectness_multiplies_the_score():
    scores = np.array([[[0.5], [0.9]]], np.float32)
    objectness = np.array([[0.9, 0.5]], np.float32)
    selected = best_class(
        BOXES[:, :2], scores, objectness, min_score=thresholds(0.45), coding=Coding.XYXY, input_size=(64, 32)
    )
    assert selected.score.tolist() == [np.float32(0.5) * np.float32(0.9)] * 2


@pytest.mark.parametrize("label", [-1, 2, 300, 1e30, np.nan, -np.inf])
def test_a_label_outside_the_list_is_counted(label):
    labels = np.array([[1, label]], np.float64)
    selected = labeled_class(BOXES[:, :2], np.full((1, 2), 0.9, np.float32), labels, min_score=thresholds(0.5, 0.5))
    assert selected.class_id.tolist() == [1]
    assert selected.removed.tolist() == [[0, 1, 0]]


def test_non_finite_scores_and_boxes_are_counted():
    boxes = np.repeat(BOXES[:, :1], 5, axis=1)
    boxes[0, 4, 2] = np.inf
    scores = np.array([[np.inf, 0.9, np.nan, -np.inf, 0.8]], np.float32)
    selected = labeled_class(boxes, scores, np.zeros((1, 5)), min_score=thresholds(0.5))
    assert selected.score.tolist() == [np.float32(0.9)]
    assert selected.removed.tolist() == [[1, 0, 3]]


def test_mismatching_outputs_are_refused():
    with pytest.raises(ValueError, match="scores of 2 classes, min_score has 3; they must match"):
        read([[0.1, 0.2]], thresholds(0, 0, 0))
    with pytest.raises(ValueError, match="10 anchors, and an input of 64x32 with strides 8, 16, 32 has 42"):
        check_cells(10, (64, 32))


def each(scores, min_score, **more):
    scores = np.array(scores, np.float32)[None]
    return each_class(BOXES[:, : scores.shape[1]], scores, min_score=min_score, coding=Coding.XYXY, **more)


def test_each_class_of_a_row_may_be_an_object():
    selected = each([[3.0, 2.0, -3.0], [-3.0, -3.0, 0.0]], thresholds(0.5, 0.5, 0.5), unit=(2.0, 3.0))
    assert selected.class_id.tolist() == [0, 1, 2]
    assert selected.score.tolist() == pytest.approx([0.952574, 0.880797, 0.5], abs=1e-6)
    assert selected.xyxy.tolist() == [[20, 60, 8, 24]] * 3
    assert (selected.removed.tolist(), selected.anchors) == ([[3, 0, 0]], 6)


def test_with_multi_label_classes_have_thresholds_and_may_be_excluded():
    selected = each([[3.0, 2.0, 0.5]], thresholds(0.99, 0.5, np.inf))
    assert selected.class_id.tolist() == [1]
    assert selected.removed.tolist() == [[1, 1, 0]]


def test_each_non_finite_class_is_counted_separately():
    selected = each([[np.nan, 2.0, np.inf], [-np.inf, 1.0, 0.0]], thresholds(0.6, 0.6, 0.6))
    assert selected.class_id.tolist() == [1, 2, 1]
    assert selected.score.tolist() == pytest.approx([0.880797, 1.0, 0.731059], abs=1e-6)
    assert selected.removed.tolist() == [[2, 0, 1]]


def test_each_row_has_its_box_and_frame():
    boxes = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    scores = np.full((2, 3, 2), -9, np.float32)
    scores[0, 2, 1] = scores[1, 0, 0] = scores[1, 1, 1] = 9
    selected = each_class(boxes, scores, min_score=thresholds(0.5, 0.5), coding=Coding.XYXY)
    assert selected.frame.tolist() == [0, 1, 1]
    assert selected.class_id.tolist() == [1, 0, 1]
    assert selected.xyxy.tolist() == [boxes[0, 2].tolist(), boxes[1, 0].tolist(), boxes[1, 1].tolist()]


def test_the_softmax_excludes_the_last_class():
    logits = np.log([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8], [0.45, 0.05, 0.5]])
    selected = read(logits, thresholds(0.4, 0.4), softmax=True)
    assert selected.class_id.tolist() == [1, 0]
    assert selected.score.tolist() == pytest.approx([0.5, 0.45], abs=1e-6)
    assert selected.removed.tolist() == [[1, 0, 0]]


def test_the_softmax_of_non_finite_values_is_dropped():
    rows = [[np.nan, 1, 1], [1, 1, np.nan], [np.inf, 0, 0], [0, 0, np.inf], [-np.inf, -np.inf, 0], [800, 0, -800]]
    selected = read(rows, thresholds(0.5, 0.5), softmax=True)
    assert selected.score.tolist() == [1.0]
    assert selected.removed.tolist() == [[1, 0, 4]]


def test_the_number_of_classes_must_match():
    for give in (
        lambda: read([[1.0, 2.0]], thresholds(0.5), softmax=False),
        lambda: each([[1.0, 2.0]], thresholds(0.5)),
    ):
        with pytest.raises(ValueError, match="the output has scores of 2 classes, min_score has 1"):
            give()
    with pytest.raises(ValueError, match="the output has scores of 1 classes, min_score has 2"):
        read([[1.0, 2.0]], thresholds(0.5, 0.5), softmax=True)
