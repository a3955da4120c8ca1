"""Iterators that are closed at the end of a block."""

import pytest

from streamkit.runtime.execution.iterators import closing_iterator


def numbers(closed):
    try:
        yield from range(10)
    finally:
        closed.append(True)


def test_a_generator_is_closed_at_the_end_of_the_block():
    closed = []
    with closing_iterator(numbers(closed)) as items:
        assert next(items) == 0
        assert closed == []
    assert closed == [True]
    assert next(items, None) is None


def test_a_generator_is_closed_after_an_error():
    closed = []
    with pytest.raises(KeyError), closing_iterator(numbers(closed)) as items:
        raise KeyError(next(items))
    assert closed == [True]


def test_a_list_needs_no_closing():
    with closing_iterator([1, 2]) as items:
        assert list(items) == [1, 2]
