import numpy as np
import pytest

from streamkit.ops.transfer import fetch


def arrays():
    rng = np.random.default_rng(3)
    return [
        rng.random((5, 7)).astype(np.float32),
        rng.integers(0, 255, (3, 4, 2)).astype(np.uint8),
        rng.integers(-9, 9, 11).astype(np.int64),
        np.zeros((0, 4), np.float32),
        rng.random((2, 3)).astype(np.float16),
        np.asarray(rng.random((6, 4)), np.float32)[::2, 1:],  # not contiguous
    ]


def test_host_arrays_are_returned_unchanged():
    host_arrays = arrays()
    wait = fetch(host_arrays)
    assert all(fetched is other for fetched, other in zip(wait(), host_arrays, strict=True))
    assert all(fetched is other for fetched, other in zip(wait(), host_arrays, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("pick", [slice(None), slice(0, 1), slice(1, 4)])
def test_device_arrays_are_fetched_with_a_single_copy(pick):
    import cupy

    # 8-byte dtypes first: behind odd sizes their views would not be aligned
    host_arrays = sorted(arrays(), key=lambda a: -a.dtype.itemsize)[pick]
    with cupy.cuda.Stream(non_blocking=True):
        wait = fetch([cupy.asarray(a) for a in host_arrays])
    for _ in range(2):
        copies = wait()
        for copied, other in zip(copies, host_arrays, strict=True):
            assert (copied.dtype, copied.shape) == (other.dtype, other.shape)
            np.testing.assert_array_equal(copied, other)


@pytest.mark.gpu
def test_the_copy_has_the_values_of_its_start():
    import cupy

    with cupy.cuda.Stream(non_blocking=True):
        array = cupy.arange(1 << 20, dtype=np.int32)
        wait = fetch([array, array[:3]])
        array += 1
    np.testing.assert_array_equal(wait()[0], np.arange(1 << 20))
