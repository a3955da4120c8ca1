"""Masks against plain loops: every source pixel on its own."""

import numpy as np
import pytest

from streamkit.ops import masks, rle
from streamkit.ops.resample import bilinear
from streamkit.ops.transfer import LateArray

INPUT = (96, 64)
MAP = (24, 16)
SIZES = np.array([(200, 140), (33, 71), (96, 64)])
SCALES = [(0.45, 0.45, 3.0, 0.5), (0.9, 0.9, 33.0, 0.0), (1.0, 1.0, 0.0, 0.0)]
GEOMETRY = np.array(SCALES, np.float32)
BOXES = [(-0.2, 0.1, 0.6, 0.9), (0.3, 0.3, 0.31, 0.8), (0.5, 0.2, 1.0, 1.0), (0.0, 0.0, 1.0, 1.0)]
COEFFICIENTS = 5


def random_outputs(n=3, seed=0):
    """Rows as `select` gives them, their counts, and smooth prototypes."""
    rng = np.random.default_rng(seed)
    rows = np.zeros((n, 6, 6 + COEFFICIENTS), np.float32)
    for frame, size in enumerate(SIZES[:n]):
        edges = np.tile(size, 2)
        rows[frame, : len(BOXES), :4] = np.clip(np.array(BOXES) * edges, 0, edges)
    rows[:, :, 6:] = rng.normal(0, 1, (n, 6, COEFFICIENTS))
    rough = rng.normal(0, 2, (n, COEFFICIENTS, MAP[1] // 4, MAP[0] // 4))
    prototypes = rough.repeat(4, axis=2).repeat(4, axis=3).astype(np.float32)
    counts = np.zeros((n, 8), np.int32)
    counts[:, 0] = len(BOXES)
    counts[1:2, 0] = 2
    return rows, counts, prototypes


def plain(row, prototypes, geometry, size):
    """The mask of one object, pixel by pixel, from logits in full precision; and how near to 0 the nearest logit is."""
    logits = np.tensordot(row[6:].astype(float), prototypes.astype(float), 1)
    width, height = size
    scale_x, scale_y, offset_x, offset_y = geometry.astype(float)
    inside = np.zeros((height, width), bool)
    margin = np.full((height, width), np.inf)
    for y in range(height):
        for x in range(width):
            if row[0] <= x + 0.5 < row[2] and row[1] <= y + 0.5 < row[3]:
                u = ((x + 0.5) * scale_x + offset_x) * MAP[0] / INPUT[0] - 0.5
                v = ((y + 0.5) * scale_y + offset_y) * MAP[1] / INPUT[1] - 0.5
                u = min(max(u, 0), MAP[0] - 1)
                v = min(max(v, 0), MAP[1] - 1)
                i = int(u)
                j = int(v)
                k = min(i + 1, MAP[0] - 1)
                m = min(j + 1, MAP[1] - 1)
                a = u - i
                b = v - j
                upper = logits[j, i] * (1 - a) + logits[j, k] * a
                lower = logits[m, i] * (1 - a) + logits[m, k] * a
                value = upper * (1 - b) + lower * b
                inside[y, x] = value > 0
                margin[y, x] = abs(value)
    return inside, margin


def instance_masks(rows, counts, prototypes, crops):
    frame = np.repeat(np.arange(len(rows)), counts[:, 0])
    rank = np.concatenate([np.arange(n) for n in counts[:, 0]])
    of = masks.InstanceMasks(rows[frame, rank, :4], frame, LateArray(crops), MAP, GEOMETRY, SIZES, INPUT)
    return of.rows(np.arange(len(frame))), frame, rank


def test_instance_masks_equal_plain_loops():
    rows, counts, prototypes = random_outputs()
    crops = masks.crop_logits(rows, counts, prototypes, GEOMETRY, INPUT)
    assert (crops.shape, crops.dtype) == ((3, 8 * MAP[0] * MAP[1]), np.int8)
    done, frame, rank = instance_masks(rows, counts, prototypes, crops)
    assert len(done) == counts[:, 0].sum()
    pixels = 0
    for mask, at, row in zip(done, frame, rank, strict=True):
        wanted, margin = plain(rows[at, row], prototypes[at], GEOMETRY[at], SIZES[at])
        decoded = rle.decode(mask)
        assert decoded.shape == tuple(SIZES[at][::-1])
        differs = decoded != wanted
        # A logit's root is kept in steps of 1/16: nothing else may differ than what is near to 0.
        assert not (differs & (margin > 0.1)).any()
        assert rle.iou(mask, rle.encode(wanted, *SIZES[at])) > 0.98 or wanted.sum() < 30
        pixels += wanted.sum()
    assert pixels > 5000


def test_unused_rows_have_no_piece():
    rows, counts, prototypes = random_outputs()
    crops = masks.crop_logits(rows, counts, prototypes, GEOMETRY, INPUT)
    counts[0, 0] -= 1
    fewer = masks.crop_logits(rows, counts, prototypes, GEOMETRY, INPUT)
    last = MAP[0] * MAP[1]  # the fourth box is the whole frame, after the other three
    assert np.count_nonzero(crops[0]) - np.count_nonzero(fewer[0]) == pytest.approx(last, rel=0.1)


def test_objects_beyond_the_mask_buffer_have_no_mask(monkeypatch):
    monkeypatch.setattr(masks, "FULL_MAPS", 1)
    rows, counts, prototypes = random_outputs()
    crops = masks.crop_logits(rows, counts, prototypes, GEOMETRY, INPUT)
    done, frame, rank = instance_masks(rows, counts, prototypes, crops)
    lost = [mask is None for mask in done]
    assert any(lost)
    assert not all(lost)
    last = (frame == 0) & (rank == 3)  # the whole frame, behind three others
    assert done[last][0] is None
    assert crops.shape[1] == MAP[0] * MAP[1]
    monkeypatch.setattr(masks, "FULL_MAPS", 8)
    roomy, *_ = instance_masks(rows, counts, prototypes, masks.crop_logits(rows, counts, prototypes, GEOMETRY, INPUT))
    assert all(few == many for few, many in zip(done, roomy, strict=True) if few is not None)


def test_non_finite_logits_are_outside_the_mask():
    rows, counts, prototypes = random_outputs()
    prototypes[0, :, :8] = np.nan
    crops = masks.crop_logits(rows, counts, prototypes, GEOMETRY, INPUT)
    done, frame, _ = instance_masks(rows, counts, prototypes, crops)
    assert all(mask is not None for mask in done)
    assert rle.area(done[frame == 0][-1]) < SIZES[0].prod() / 2


def several(seed):
    """Objects of all sizes in frames of all sizes, some outside, with logits that are often near to 0."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, [300, 200], (3, 2))
    scale = np.min(np.array(INPUT) / sizes, axis=1) * rng.uniform(0.8, 1.2, 3)
    geometry = np.column_stack([scale, scale, rng.uniform(-3, 9, (3, 2))]).astype(np.float32)
    edges = np.tile(sizes, 2)[:, None]
    boxes = np.sort(rng.uniform(-0.1, 1.1, (3, 9, 2, 2)), axis=2).reshape(3, 9, 4)
    boxes[:, 0] = 0, 0, 1, 1
    boxes = (np.clip(boxes, 0, 1) * edges).astype(np.float32)
    boxes[:, 1, 2:] = boxes[:, 1, :2] + np.float32(0.3)
    logits = np.rint(rng.normal(0, 1, (3, 8 * MAP[0] * MAP[1])) * rng.choice([0, 2, 127], (3, 1))).clip(-127, 127)
    return boxes.reshape(-1, 4), np.repeat(np.arange(3), 9), logits.astype(np.int8), geometry, sizes


def sampled(box, piece, corner, to_map, size):
    """One mask, each pixel sampled bilinearly in float32 from logits of int8."""
    first = np.ceil(box[:2] - 0.5).astype(int)
    last = np.ceil(box[2:] - 0.5).astype(int)
    left, top = np.maximum(first, 0)
    right, bottom = np.minimum(last, size)
    if right <= left or bottom <= top:
        return rle.encode(np.zeros((0, 0), bool), *size)
    roots = piece.astype(np.float32)
    x, y = (
        np.clip((np.arange(start, stop) + 0.5) * to_map[i] + to_map[2 + i] - 0.5, 0, MAP[i] - 1) - corner[i]
        for i, start, stop in ((0, left, right), (1, top, bottom))
    )
    return rle.encode(bilinear(roots * np.abs(roots), x, y) > 0, *size, int(left), int(top))


@pytest.mark.parametrize("seed", range(20))
def test_masks_equal_those_of_all_pixels_bit_for_bit(seed, monkeypatch):
    boxes, frame, logits, geometry, sizes = several(seed)
    of = masks.InstanceMasks(boxes, frame, LateArray(logits), MAP, geometry, sizes, INPUT)
    encoded = of.rows(np.arange(len(boxes)))
    to_map = masks._to_map(geometry, MAP, INPUT)
    rects = masks._crop_rects(boxes, to_map[frame], MAP).tolist()
    used = dict.fromkeys(range(3), 0)
    left_out = 0
    for i, ((x, y, w, h), at) in enumerate(zip(rects, frame.tolist(), strict=True)):
        if used[at] + w * h > logits.shape[1]:
            left_out += 1
            assert encoded[i] is None
            continue
        piece = logits[at, used[at] : used[at] + w * h].reshape(h, w)
        used[at] += w * h
        assert encoded[i] == sampled(boxes[i], piece, (x, y), to_map[at].astype(np.float64), sizes[at].tolist())
    assert of.lost == left_out
    some = np.array([20, 3, 3, 9])
    monkeypatch.setattr(masks, "_CELLS", 50)  # in many parts
    again = masks.InstanceMasks(boxes, frame, LateArray(logits), MAP, geometry, sizes, INPUT)
    assert again.rows(some).tolist() == encoded[some].tolist()
    assert again.rows(np.arange(len(boxes))).tolist() == encoded.tolist()


def test_an_object_without_pixels_has_an_empty_mask():
    boxes = np.array([[10.6, 10, 11.4, 50], [3, 3, 9, 9]], np.float32)
    logits = np.full((1, 8 * MAP[0] * MAP[1]), 9, np.int8)
    of = masks.InstanceMasks(boxes, np.zeros(2, int), LateArray(logits), MAP, GEOMETRY[:1], SIZES[:1], INPUT)
    encoded = of.rows(np.array([0]))[0]
    assert encoded == rle.encode(np.zeros((140, 200), bool), 200, 140)
    assert rle.area(of.rows(np.array([1]))[0]) == 36
    assert of.rows(np.array([], np.intp)).shape == (0,)


def test_a_mask_is_computed_once_on_access(monkeypatch):
    boxes, frame, logits, geometry, sizes = several(1)
    of = masks.InstanceMasks(boxes, frame, LateArray(logits), MAP, geometry, sizes, INPUT)
    counts = []
    right = masks._run_ends

    def counted(*arguments):
        counts.append(len(arguments[1]))
        return right(*arguments)

    monkeypatch.setattr(masks, "_run_ends", counted)
    first = of.rows(np.array([0, 9]))
    assert counts == [2]
    assert of.rows(np.array([9, 0]))[1] is first[0]
    assert counts == [2]
    of.rows(np.zeros(0, np.intp))
    of.rows(np.array([0, 9, 18]))
    assert counts == [2, 1]


@pytest.mark.gpu
@pytest.mark.parametrize("ends", [1, 4])
@pytest.mark.parametrize("seed", range(6))
def test_device_and_host_compute_equal_masks(seed, ends, monkeypatch):
    import cupy

    monkeypatch.setattr(masks, "_ENDS", ends)  # 1: too little room for the ends, so a second launch follows
    boxes, frame, logits, geometry, sizes = several(seed)
    here, there = (
        masks.InstanceMasks(boxes, frame, LateArray(logits_there), MAP, geometry, sizes, INPUT)
        for logits_there in (logits, cupy.asarray(logits))
    )
    cupy.cuda.Device().synchronize()
    assert there.rows(np.arange(len(boxes))).tolist() == here.rows(np.arange(len(boxes))).tolist()


@pytest.mark.gpu
def test_masks_of_a_batch_come_from_the_device_in_one_copy():
    import cupy

    from streamkit.ops import traffic

    boxes, frame, logits, geometry, sizes = several(0)
    logits[:] = 9
    late = LateArray(cupy.asarray(logits))
    cupy.cuda.Device().synchronize()
    before = traffic.so_far().to_host
    of = masks.InstanceMasks(boxes, frame, late, MAP, geometry, sizes, INPUT)
    assert traffic.so_far().to_host == before
    of.rows(np.array([5]))
    after = traffic.so_far().to_host
    columns = int((of._last - of._first)[of._pixels > 0, 0].sum())
    assert after - before == 4 * (len(boxes) + 4 * columns)
    of.rows(np.arange(len(boxes)))
    assert traffic.so_far().to_host == after
    del late
    assert of._logits is None  # the memory on the device is free


@pytest.mark.gpu
def test_masks_whose_logits_have_moved_to_the_host_are_the_same():
    import cupy

    boxes, frame, logits, geometry, sizes = several(2)
    late = LateArray(cupy.asarray(logits))
    cupy.cuda.Device().synchronize()
    late.to_host()
    assert isinstance(late.array, np.ndarray)
    of, wanted = (
        masks.InstanceMasks(boxes, frame, late_logits, MAP, geometry, sizes, INPUT)
        for late_logits in (late, LateArray(logits))
    )
    assert of.rows(np.arange(9)).tolist() == wanted.rows(np.arange(9)).tolist()


def test_another_number_of_coefficients_is_refused():
    rows, counts, prototypes = random_outputs()
    with pytest.raises(ValueError, match="4 prototypes need as many coefficients, at most 256; the objects have 5"):
        masks.crop_logits(rows, counts, prototypes[:, :4], GEOMETRY, INPUT)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("full", [1, 8])
def test_device_and_host_compute_equal_pieces(dtype, full, monkeypatch):
    import cupy

    monkeypatch.setattr(masks, "FULL_MAPS", full)
    rows, counts, prototypes = random_outputs()
    prototypes = prototypes.astype(dtype)
    host = masks.crop_logits(rows, counts, prototypes, GEOMETRY, INPUT)
    there = masks.crop_logits(cupy.asarray(rows), cupy.asarray(counts), cupy.asarray(prototypes), GEOMETRY, INPUT)
    on_host = there.get()
    for frame, last in enumerate(np.count_nonzero(np.cumsum(host[:, ::-1] != 0, axis=1), axis=1).tolist()):
        assert last > 100
        assert np.abs(on_host[frame, :last].astype(int) - host[frame, :last]).max() <= 1
    expected = instance_masks(rows, counts, prototypes, host)[0]
    from_device = instance_masks(rows, counts, prototypes, on_host)[0]
    assert instance_masks(rows, counts, prototypes, there)[0].tolist() == from_device.tolist()
    for a, b in zip(expected, from_device, strict=True):
        assert (a is None) == (b is None)
        assert a is None or rle.area(a) < 30 or rle.iou(a, b) >= 0.98
