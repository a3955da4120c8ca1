"""Places of buffers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.engine.memory import arrange
from streamkit.engine.program import CopyChannels, View


def copy(source: int, target: int) -> CopyChannels:
    views = (View(buffer, 0, (1, 1, 1, 8), (8, 8, 8)) for buffer in (source, target))
    return CopyChannels(*views)


@given(
    steps=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30),
    sizes=st.lists(st.integers(1, 5000), min_size=10, max_size=10),
)
def test_buffers_that_are_used_at_the_same_time_do_not_overlap(steps, sizes):
    buffers, arena = arrange([copy(source, target) for source, target in steps], sizes)
    uses = {number: [place for place, pair in enumerate(steps) if number in pair] for number in range(10)}
    lives = {number: (min(places), max(places)) for number, places in uses.items() if places}
    for number, (first, last) in lives.items():
        place = buffers[number]
        assert place.offset + place.size <= arena
        for other, (other_first, other_last) in lives.items():
            if other != number and first <= other_last and other_first <= last:
                apart = place.offset + place.size <= buffers[other].offset
                assert apart or buffers[other].offset + buffers[other].size <= place.offset


def test_memory_of_buffers_that_are_no_longer_read_is_used_again():
    chain = [copy(number, number + 1) for number in range(20)]
    _, arena = arrange(chain, [1024] * 21)
    assert arena == 2 * 1024


@pytest.mark.parametrize("size", [1, 127, 129])
def test_buffers_begin_at_multiples_of_128_elements(size):
    buffers, _ = arrange([copy(0, 1), copy(0, 2)], [size] * 3)
    assert not np.any(np.array([buffer.offset for buffer in buffers]) % 128)
