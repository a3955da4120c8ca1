import numpy as np
import pytest

from streamkit.models.families import family

BEST = np.array([[[0, 2, 1], [1, 0, 2]], [[2, 2, 0], [0, 1, 1]]])  # two frames, 2 x 3 places


def scores(classes, axis):
    """Scores of which those of `BEST` are the best; of the others the first class has the best."""
    values = np.where(np.arange(classes) == BEST[..., None], 0.75, 0.25 - np.arange(classes) / 100)
    return np.moveaxis(values, 3, axis).astype(np.float32)


@pytest.mark.parametrize(
    ("output", "classes"),
    [
        (scores(3, 1), 3),
        (scores(3, 3), 3),
        (scores(4, 1), 4),
        (BEST.astype(np.int64), 3),
        (BEST.astype(np.int64)[:, None], 3),
        (BEST.astype(np.int32), 1),
    ],
    ids=["classes first", "classes last", "four classes first", "the class", "the class of one map", "one label"],
)
def test_the_class_map_is_read_in_every_layout(output, classes):
    class_map = family("semantic").maps({"map": output, "more": np.zeros((2, 9), np.float32)}, classes)
    assert class_map.dtype == np.uint8
    assert class_map.tolist() == BEST.tolist()


def test_the_first_of_equal_classes_counts():
    assert family("semantic").maps({"map": np.zeros((1, 3, 2, 2), np.float32)}, 3).tolist() == [[[0, 0], [0, 0]]]


def test_a_single_class_covers_every_pixel():
    assert family("semantic").maps({"map": np.ones((1, 1, 2, 2), np.float32)}, 1).tolist() == [[[0, 0], [0, 0]]]
