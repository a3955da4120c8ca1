"""Memory that is used again: never while somebody holds it."""

import numpy as np

from streamkit.ops.scratch import Scratch, scratch, tensor


def test_arrays_do_not_overlap_and_are_aligned() -> None:
    new = Scratch()
    for attempt in range(2):
        arrays = [new((3, 5)), new((7,), np.uint8), new((2, 2, 2)), new((0, 4))]
        for i, array in enumerate(arrays):
            array[...] = i
        assert [set(array.ravel().tolist()) for array in arrays] == [{0}, {1}, {2}, set()]
        new.reset()
        if attempt:
            assert len({array.base is None for array in arrays}) == 1


def test_each_array_begins_at_a_line_of_the_cache() -> None:
    new = Scratch()
    for shape, dtype, used in (((3, 5), np.float32, 64), ((1,), np.uint8, 128), ((65,), np.uint8, 256)):
        new(shape, dtype)
        assert new.used == used
    new((0, 4))
    assert new.used == 256
    new((16,))
    assert new.used == 320


def test_memory_grows_to_the_largest_need() -> None:
    new = Scratch()
    new((1000,), np.uint8)
    new.reset()
    new((1000,), np.uint8)
    large = new((500,), np.uint8)
    assert large.base is None, "there is no room for it yet"
    new.reset()
    assert [new((1000,), np.uint8).base is None, new((500,), np.uint8).base is None] == [False, False]


def test_memory_is_reused() -> None:
    new = Scratch()
    new((100,))
    new.reset()
    first = new((100,))
    new.used = 0
    assert np.shares_memory(first, new((100,)))


def test_concurrent_tensors_are_distinct() -> None:
    with scratch() as first, scratch() as second:
        assert first is not second
    with scratch() as again:
        assert again in (first, second)


def test_a_tensor_is_reused_only_once_released() -> None:
    shape = (3, 12345)
    dtype = np.dtype(np.float32)
    first = tensor(shape, dtype)
    view = first[1:, 5:]
    address = first.ctypes.data
    assert not np.shares_memory(first, tensor(shape, dtype))
    del first
    others = [tensor(shape, dtype) for _ in range(3)]
    assert not any(np.shares_memory(view, other) for other in others)
    del view, others
    assert address in [t.ctypes.data for t in [tensor(shape, dtype) for _ in range(4)]]


def test_tensors_of_other_shapes_are_distinct() -> None:
    assert tensor((2, 3), np.dtype(np.float32)).shape == (2, 3)
    assert tensor((2, 3), np.dtype(np.float16)).dtype == np.float16
    assert tensor((3, 2), np.dtype(np.float32)).shape == (3, 2)
