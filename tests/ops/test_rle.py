"""Run-length encoding beside pycocotools, COCO's own."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.ops import rle

masks = st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**32 - 1), st.sampled_from([0, 0.1, 0.5, 1]))


def random_mask(height, width, seed, share):
    return np.random.default_rng(seed).random((height, width)) < share


def theirs(mask):
    coco = pytest.importorskip("pycocotools.mask")
    encoded = coco.encode(np.asfortranarray(mask, np.uint8))
    return {"size": list(encoded["size"]), "counts": encoded["counts"].decode()}


@given(masks)
def test_encoding_equals_coco_and_is_inverted_by_decoding(size_seed_share):
    mask = random_mask(*size_seed_share)
    encoded = rle.encode(mask, mask.shape[1], mask.shape[0])
    assert encoded == theirs(mask)
    assert np.array_equal(rle.decode(encoded), mask)
    assert rle.area(encoded) == mask.sum()


@given(masks, st.integers(0, 5), st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))
def test_a_part_is_encoded_as_the_whole_with_nothing_around(size_seed_share, left, top, right, bottom):
    part = random_mask(*size_seed_share)
    whole = np.pad(part, ((top, bottom), (left, right)))
    encoded = rle.encode(part, whole.shape[1], whole.shape[0], left, top)
    assert encoded == theirs(whole)
    again, x, y = rle.crop(encoded)
    there = np.argwhere(whole)
    if not len(there):
        assert again.shape == (0, 0)
        return
    first = there.min(0)
    last = there.max(0) + 1
    assert (y, x) == tuple(first)
    assert np.array_equal(again, whole[first[0] : last[0], first[1] : last[1]])


def test_large_counts_and_falling_ones():
    mask = np.zeros((1080, 1920), bool)
    mask[5:900, 300:1500] = True
    mask[400:500, 700:701] = False
    mask[:, 1900] = True
    mask[:, 1901] = True
    encoded = rle.encode(mask, 1920, 1080)
    assert encoded == theirs(mask)
    assert np.array_equal(rle.decode(encoded), mask)


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=30))
def test_any_counts_survive_a_round_trip(counts):
    assert rle.decompress(rle.compress(np.array(counts, np.int64))).tolist() == counts


def test_iou_of_masks():
    left_mask, right_mask = np.zeros((2, 8, 9), bool)
    left_mask[:, :4] = True
    right_mask[:, 2:6] = True
    a, b = (rle.encode(mask, 9, 8) for mask in (left_mask, right_mask))
    assert rle.iou(a, b) == pytest.approx(2 / 6)
    nothing = rle.encode(np.zeros((8, 9), bool), 9, 8)
    assert rle.iou(nothing, nothing) == 1


def test_counts_of_another_size_are_refused():
    with pytest.raises(ValueError, match="of a mask of 3x3 add up to 8, not 9"):
        rle.decode({"size": [3, 3], "counts": "8"})


@pytest.mark.parametrize("seed", range(5))
def test_several_masks_are_encoded_as_each_alone(seed):
    rng = np.random.default_rng(seed)
    arrays = [np.zeros((3, 2), bool), np.ones((4, 5), bool), np.zeros((1, 1), bool)]
    arrays += [rng.random((rng.integers(1, 6), rng.integers(1, 6))) < rng.random() for _ in range(20)]
    ends = [np.flatnonzero(np.diff(array.T.ravel(), prepend=False, append=False)) for array in arrays]
    owner = np.repeat(np.arange(len(arrays)), [len(ends_of_mask) for ends_of_mask in ends])
    sizes = np.array([array.shape[::-1] for array in arrays])
    assert rle.from_ends(np.concatenate(ends), owner, sizes) == [
        rle.encode(array, *array.shape[::-1]) for array in arrays
    ]


def test_a_mask_that_begins_where_the_one_before_ends_is_another_mask():
    encoded = rle.from_ends(np.array([1, 5, 5, 9]), np.array([0, 0, 1, 1]), np.array([(3, 3), (3, 3)]))
    assert [rle.decompress(mask["counts"]).tolist() for mask in encoded] == [[1, 4, 4], [5, 4]]
