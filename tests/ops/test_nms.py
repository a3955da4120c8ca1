import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit.ops.candidates import Candidates, Coding, best_class
from streamkit.ops.nms import CAUSES, Packed, select


def iou_of(a, b):
    """Plain floats, in the order of operations that ops/boxes.py promises."""
    a = [np.float32(v) for v in a]
    b = [np.float32(v) for v in b]
    zero = np.float32(0)
    w = max(min(a[2], b[2]) - max(a[0], b[0]), zero)
    h = max(min(a[3], b[3]) - max(a[1], b[1]), zero)
    both = w * h
    areas = [max(c[2] - c[0], zero) * max(c[3] - c[1], zero) for c in (a, b)]
    return both, areas[0] + areas[1] - both


def nms(xyxy, score, class_id=None, iou=0.45):
    """The rows that `select` keeps in one frame, best first."""
    n = len(score)
    classes = np.zeros(n, np.int32) if class_id is None else class_id.astype(np.int32)
    numbers = np.arange(n, dtype=np.float32)[:, None]
    removed = np.zeros((1, 3), np.int32)
    candidates = Candidates(np.zeros(n, np.int64), score, classes, xyxy, numbers, removed, n, step=0)
    geometry = np.float32([[1, 1, 0, 0]])
    sizes = np.array([[1000, 1000]])
    packed = select(candidates, geometry, sizes, iou=iou, agnostic=class_id is None, top_k=max(1, n))
    return packed.rows[0, : packed.counts[0, 0], 6].astype(int)


def slow_nms(xyxy, score, class_id, iou):
    order = sorted(range(len(score)), key=lambda i: (-score[i], i))
    chosen = []
    for i in order:
        for j in chosen:
            both, union = iou_of(xyxy[j], xyxy[i])
            if (class_id is None or class_id[i] == class_id[j]) and both > np.float32(iou) * union:
                break
        else:
            chosen.append(i)
    return chosen


def boxes_of(rng, n, size=100.0):
    corner = rng.uniform(0, size, (n, 2))
    return np.concatenate([corner, corner + rng.uniform(1, size / 2, (n, 2))], axis=1).astype(np.float32)


@given(st.integers(0, 300), st.integers(1, 4), st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]), st.booleans(), st.integers())
@settings(max_examples=25, deadline=None)
def test_nms_equals_brute_force(n, classes, iou, ties, seed):
    rng = np.random.default_rng(abs(seed))
    xyxy = boxes_of(rng, n)
    score = rng.integers(0, 4, n).astype(np.float32) if ties else rng.random(n, np.float32)
    class_id = rng.integers(0, classes, n)
    assert nms(xyxy, score, class_id, iou).tolist() == slow_nms(xyxy, score, class_id, iou)
    assert nms(xyxy, score, None, iou).tolist() == slow_nms(xyxy, score, None, iou)


def test_a_box_exactly_at_the_threshold_is_kept():
    xyxy = np.array([[0, 0, 10, 10], [0, 0, 10, 5]], np.float32)  # IoU 0.5
    score = np.array([0.9, 0.8], np.float32)
    assert nms(xyxy, score, iou=0.5).tolist() == [0, 1]
    assert nms(xyxy, score, iou=0.49).tolist() == [0]


def test_of_equal_boxes_and_scores_the_first_is_kept():
    xyxy = np.tile(np.array([[5, 5, 20, 20]], np.float32), (500, 1))
    assert nms(xyxy, np.full(500, 0.5, np.float32), iou=0.5).tolist() == [0]


def test_a_suppressed_box_suppresses_nothing():
    # b overlaps a and c; a takes b out, so c stays.
    xyxy = np.array([[0, 0, 10, 10], [4, 0, 14, 10], [8, 0, 18, 10]], np.float32)
    assert nms(xyxy, np.array([0.9, 0.8, 0.7], np.float32), iou=0.3).tolist() == [0, 2]


# ------------------------------------------------------------------------------------------------------ whole frames


def choose(xyxy, scores, *, frames=1, min_score=0.1, sizes=(100, 100), geometry=(1, 1, 0, 0), iou=0.5, **options):
    """Run `select` on boxes (a, 4) with scores (a, c), the same for each frame."""
    scores = np.tile(np.asarray(scores, np.float32), (frames, 1, 1))
    boxes = np.tile(np.asarray(xyxy, np.float32), (frames, 1, 1))
    thresholds = np.full(scores.shape[2], min_score, np.float32)
    candidates = best_class(boxes, scores, min_score=thresholds, coding=Coding.XYXY, input_size=(100, 100))
    geometry = np.tile(np.float32(geometry), (frames, 1))
    sizes = np.tile(sizes, (frames, 1))
    return select(candidates, geometry, sizes, iou=iou, **options)


def causes(packed, frame=0):
    return {name: n for name, n in zip(("kept", *CAUSES), packed.counts[frame].tolist(), strict=True) if n}


def test_boxes_at_the_border_are_clipped_and_those_outside_counted():
    xyxy = [[-5, -5, 10, 10], [90, 90, 130, 120], [-9, 20, 0, 40], [100, 5, 110, 15], [-1, -1, 101, 101]]
    packed = choose(xyxy, [[0.9], [0.8], [0.7], [0.6], [0.5]])
    assert packed.rows[0, :3, :4].tolist() == [[0, 0, 10, 10], [90, 90, 100, 100], [0, 0, 100, 100]]
    assert causes(packed) == {"kept": 3, "outside": 2}


def test_size_limits_count_after_clipping_in_source_pixels():
    xyxy = [[0, 0, 4, 40], [0, 50, 90, 60], [50, 0, 60, 8], [96, 70, 130, 90]]
    packed = choose(xyxy, np.full((4, 1), 0.5), sizes=(200, 200), geometry=(0.5, 0.5, 0, 0), min_size=10, max_size=100)
    # 8x80 is too thin, 180x20 too long, the last one is cut to 8x40; 20x16 is left.
    assert packed.rows[0, 0, :4].tolist() == [100, 0, 120, 16]
    assert causes(packed) == {"kept": 1, "size": 3}


def test_top_k_counts_the_dropped_boxes():
    xyxy = [[x, 0, x + 8, 8] for x in range(0, 100, 10)] + [[1, 0, 9, 8]]
    packed = choose(xyxy, [[0.9 - i / 20] for i in range(11)], top_k=4)
    assert packed.rows.shape == (1, 4, 6)
    # The eleventh box overlaps the first: nms has it, though it comes after the fourth.
    assert causes(packed) == {"kept": 4, "nms": 1, "top_k": 6}


def test_top_k_is_filled_past_boxes_that_other_filters_take():
    xyxy = [[x, 0, x + 2, 2] for x in range(0, 60, 10)] + [[x, 0, x + 8, 8] for x in range(60, 100, 10)]
    packed = choose(xyxy, [[0.9 - i / 20] for i in range(10)], top_k=3, min_size=5)
    assert packed.rows[0, :, 0].tolist() == [60, 70, 80]
    assert causes(packed) == {"kept": 3, "size": 6, "top_k": 1}


def test_agnostic_suppresses_across_classes():
    xyxy = [[0, 0, 10, 10], [1, 0, 11, 10]]
    scores = [[0.9, 0], [0, 0.8]]
    assert causes(choose(xyxy, scores)) == {"kept": 2}
    assert causes(choose(xyxy, scores, agnostic=True)) == {"kept": 1, "nms": 1}


def test_without_nms_rows_are_sorted_only():
    packed = choose([[0, 0, 10, 10]] * 3, [[0.3], [0.9], [0.3]], iou=None)
    assert packed.rows[0, :, 4].tolist() == pytest.approx([0.9, 0.3, 0.3])
    assert causes(packed) == {"kept": 3}
    assert causes(choose([[0, 0, 10, 10]] * 3, [[0.3], [0.9], [0.3]], iou=None, top_k=2)) == {"kept": 2, "top_k": 1}


def test_empty_inputs_give_empty_outputs():
    packed = choose([[0, 0, 1, 1]] * 2, [[0.0], [0.05]], frames=3)
    assert packed.counts[:, 0].tolist() == [0, 0, 0]
    assert not packed.rows.any()
    assert causes(packed, 2) == {"min_score": 2}
    none = choose(np.zeros((0, 4)), np.zeros((0, 1)), frames=2)
    assert none.rows.shape == (2, 0, 6)
    assert not none.counts.any()


def test_every_anchor_is_accounted_for():
    rng = np.random.default_rng(5)
    xyxy = boxes_of(rng, 800, 120)
    scores = rng.random((800, 3))
    packed = choose(xyxy, scores, min_score=0.4, top_k=20, min_size=6, max_size=50, frames=2)
    assert packed.counts.sum(axis=1).tolist() == [800, 800]
    assert (packed.counts[0] == packed.counts[1]).all()
    assert packed.counts[0, 0] == 20


def test_a_single_buffer_holds_both_tables():
    packed = choose([[0, 0, 10, 10]], [[0.5]], frames=2)
    again = Packed.over(packed.buffer.copy(), packed.rows.shape)
    assert isinstance(again, Packed)
    np.testing.assert_array_equal(again.rows, packed.rows)
    np.testing.assert_array_equal(again.counts, packed.counts)
    assert again.counts.dtype == np.int32
    assert again.counts.base is not None
    assert packed.buffer.nbytes == packed.rows.nbytes + packed.counts.nbytes
