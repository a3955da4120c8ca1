"""On the GPU: the same rows and counts as on the host, of the same outputs."""

import itertools

import numpy as np
import pytest
from support.detector_forms import SINGLE_CLASS, TOP_DOWN, reader_of

from streamkit.models.families import CAUSES, ReadOptions, family
from streamkit.models.families.base import stack_images

pytestmark = pytest.mark.gpu

SIZE = (96, 64)


def frames_of(n):
    rng = np.random.default_rng(1)
    scale = rng.uniform(0.3, 1.5, (n, 2))
    geometry = np.concatenate([scale, rng.uniform(-5, 9, (n, 2))], axis=1).astype(np.float32)
    return geometry, rng.integers(40, 200, (n, 2))


def to_device(outputs):
    import cupy

    return {name: cupy.asarray(value) for name, value in outputs.items()}


def read_on_device(name, outputs, *arguments):
    """Read on the GPU; bring the tables to the host with one copy."""
    import cupy

    packed = reader_of(name).read(outputs, *arguments)
    assert isinstance(packed.rows, cupy.ndarray)
    return packed.over(cupy.asnumpy(packed.buffer), packed.rows.shape)


def assert_same(name, outputs, *arguments):
    host = reader_of(name).read(outputs, *arguments)
    device = read_on_device(name, to_device(outputs), *arguments)
    np.testing.assert_array_equal(device.counts, host.counts)
    np.testing.assert_allclose(device.rows, host.rows, rtol=1e-6, atol=1e-4)
    return host


@pytest.mark.parametrize(
    "view",
    [
        {},
        {"agnostic": True, "iou": 0.2},
        {"top_k": 4},
        {"min_size": 12, "max_size": 60, "top_k": 9},
    ],
)
def test_random_outputs_decode_as_on_the_host(form, view, outputs_for):
    thresholds = np.array([0.2, 0.5, np.inf, 0.3, 0.6], np.float32)
    options = ReadOptions(thresholds[:1] if form in SINGLE_CLASS else thresholds, **view)
    for n, dtype in itertools.product((1, 8, 32), (np.float32, np.float16)):
        packed = assert_same(form, outputs_for(form, n + 1, dtype, seed=n), *frames_of(n), SIZE, options)
        fills_picture = form in ("movenet", *TOP_DOWN) and "max_size" in view  # its one object
        assert packed.counts[:, 0].any() or fills_picture, (n, dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("min_score", [0.3, 0.001])
@pytest.mark.parametrize("n", [1, 8, 32])
@pytest.mark.parametrize("name", ["yolox", "yolov8", "detr", "yunet"])
def test_real_outputs_decode_as_on_the_host(name, dtype, min_score, n, real):
    run = real(name, n)
    outputs = {k: v.astype(dtype) if v.dtype == np.float32 else v for k, v in run.outputs.items()}
    options = ReadOptions(np.full(run.classes, min_score, np.float32))
    packed = assert_same(name, outputs, run.geometry, run.sizes, run.input_size, options)
    assert packed.counts[:, 0].sum() >= 1 or name == "yunet"


@pytest.mark.parametrize(("anchors", "top_k"), [(2047, 3000), (2048, 300), (2049, 3000), (8400, 1), (25200, 300)])
def test_no_candidate_is_lost_at_any_number(anchors, top_k):
    rng = np.random.default_rng(anchors)
    output = rng.random((2, 7, anchors)).astype(np.float32)
    output[:, :2] *= 3000
    output[:, 2:4] = output[:, 2:4] * 30 + 2
    frames = np.tile(np.float32([1, 1, 0, 0]), (2, 1)), np.full((2, 2), 3000)
    options = ReadOptions(np.zeros(3, np.float32), top_k=top_k)
    packed = assert_same("yolov8", {"output0": output}, *frames, (3000, 3000), options)
    assert packed.counts[:, 1 + CAUSES.index("min_score")].tolist() == [0, 0]
    assert packed.counts.sum(axis=1).tolist() == [anchors, anchors]


def test_equal_scores_are_ordered_by_anchor():
    output = np.full((2, 5, 3000), 0.5, np.float32)
    output[:, 0] = np.arange(3000) % 97 * 9
    output[:, 1] = np.arange(3000) // 97 * 9
    output[:, 2:4] = 20
    frames = np.tile(np.float32([1, 1, 0, 0]), (2, 1)), np.full((2, 2), 900)
    assert_same("yolov8", {"o": output}, *frames, (900, 900), ReadOptions(np.full(1, 0.1, np.float32), top_k=200))


def test_non_finite_values_are_dropped_as_on_the_host(outputs_for):
    outputs = outputs_for("yolox", 2, np.float32)
    rows = outputs["output"]
    rows[:, 3, 4] = np.nan
    rows[:, 5, 7] = np.nan
    rows[:, 6, 6] = np.inf
    rows[:, 9, 0] = -np.inf
    rows[:, 11, 2] = 1000
    rows[:, :20, 4] = 0.9
    rows[:, 13, 5:] = np.nan
    packed = assert_same("yolox", outputs, *frames_of(2), SIZE, ReadOptions(np.full(5, 0.1, np.float32)))
    assert (packed.counts[:, 1 + CAUSES.index("not_finite")] >= 4).all()


@pytest.mark.parametrize("anchors", [0, 1, 50])
def test_outputs_without_objects_give_an_empty_table(anchors):
    outputs = {"o": np.zeros((3, 9, anchors), np.float32)}
    packed = assert_same("yolov8", outputs, *frames_of(2), (64, 64), ReadOptions(np.full(5, 0.1, np.float32)))
    assert not packed.rows.any()


def test_a_batch_equals_its_frames_one_by_one_bit_for_bit(form, outputs_for):
    outputs = to_device(outputs_for(form, 8, np.float32))
    name = form
    geometry, sizes = frames_of(8)
    options = ReadOptions(np.full(1 if form == "yunet" else 5, 0.2, np.float32), top_k=25)
    whole = read_on_device(name, outputs, geometry, sizes, SIZE, options)
    again = read_on_device(name, outputs, geometry, sizes, SIZE, options)
    np.testing.assert_array_equal(again.rows, whole.rows)
    for i in range(8):
        outputs_of_frame = {k: v[i : i + 1] for k, v in outputs.items()}
        alone = read_on_device(name, outputs_of_frame, geometry[i : i + 1], sizes[i : i + 1], SIZE, options)
        np.testing.assert_array_equal(alone.rows[0], whole.rows[i])
        np.testing.assert_array_equal(alone.counts[0], whole.counts[i])


def test_decoding_takes_two_kernel_launches_a_batch(form, outputs_for, monkeypatch):
    from streamkit.ops import candidates, nms
    from streamkit.ops.cuda import load

    launched = []
    kernel = load.kernel

    def counting(file, name, defines=()):
        launched.append(name)
        return kernel(file, name, defines)

    monkeypatch.setattr(candidates, "kernel", counting)
    monkeypatch.setattr(nms, "kernel", counting)
    options = ReadOptions(np.full(1 if form == "yunet" else 5, 0.2, np.float32))
    reader_of(form).read(to_device(outputs_for(form, 8, np.float32)), *frames_of(8), SIZE, options)
    assert len(launched) == 2
    assert launched[1] == "select_objects"


def test_decoding_uses_the_current_stream_and_retains_no_memory(outputs_for):
    import cupy

    geometry, sizes = frames_of(8)
    options = ReadOptions(np.full(5, 0.2, np.float32))
    host = outputs_for("yolox", 8, np.float32)
    expected = family("yolox").read(host, geometry, sizes, SIZE, options)
    pool = cupy.get_default_memory_pool()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        outputs = to_device(host)
        used = []
        for _ in range(100):
            packed = family("yolox").read(outputs, geometry, sizes, SIZE, options)
            used.append(pool.total_bytes())
        stream.synchronize()
        np.testing.assert_array_equal(cupy.asnumpy(packed.counts), expected.counts)
    assert used[-1] == used[10]


def test_sizes_for_the_network_are_on_the_device():
    import cupy

    sizes = family("detr").extra_inputs(np.array([[640, 360], [1, 1]]), cupy)["orig_target_sizes"]
    assert isinstance(sizes, cupy.ndarray)
    assert sizes.dtype == np.int64
    assert cupy.asnumpy(sizes).tolist() == [[640, 360], [1, 1]]


@pytest.mark.parametrize("name", ["ppyoloe", "ppyoloe_e2e"])
def test_the_scale_for_the_network_is_on_the_device(name):
    import cupy

    factors = family(name).extra_inputs(np.array([[640, 360], [1, 1]]), cupy)["scale_factor"]
    assert isinstance(factors, cupy.ndarray)
    assert factors.dtype == np.float32
    assert cupy.asnumpy(factors).tolist() == [[1, 1], [1, 1]]


def test_outputs_of_single_images_are_stacked_on_the_device():
    import cupy

    runs = [{"rows": cupy.full((count, 6), count, np.float32), "count": cupy.array([count])} for count in (2, 0, 3)]
    stacked = stack_images(runs, cupy)
    assert cupy.asnumpy(stacked["rows"])[:, :, 0].tolist() == [[2, 2, 0], [0, 0, 0], [3, 3, 3]]
    assert cupy.asnumpy(stacked["count"]).tolist() == [[2], [0], [3]]
