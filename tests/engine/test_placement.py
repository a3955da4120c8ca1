"""Which tensors may share a line of channels."""

import pytest

from streamkit.engine.placement import ChannelLines


def lines(**channels: int) -> ChannelLines:
    placed = ChannelLines()
    for name, count in channels.items():
        placed.add(name, count, (4, 4), written=not name.startswith("joined"))
    return placed


def test_parts_are_placed_one_after_another_in_the_whole():
    placed = lines(first=8, second=16, joined=24)
    assert placed.join("first", "joined", 0)
    assert placed.join("second", "joined", 8)
    views, sizes = placed.views(2, {"first": 8, "second": 16, "joined": 24})
    assert sizes == (2 * 4 * 4 * 24,)
    assert [views[name].offset for name in ("first", "second", "joined")] == [0, 8, 0]
    assert {view.strides for view in views.values()} == {(4 * 4 * 24, 4 * 24, 24)}


def test_a_tensor_cannot_lie_in_two_places():
    placed = lines(part=8, other=8, joined_1=16, joined_2=16)
    assert placed.join("part", "joined_1", 0)
    assert placed.join("other", "joined_1", 8)
    assert placed.join("other", "joined_2", 0)  # the second whole begins where the part does
    assert not placed.join("part", "joined_2", 8)


def test_tensors_that_different_steps_write_do_not_overlap():
    placed = lines(part=8, wide=16, joined_1=24, joined_2=24)
    assert placed.join("part", "joined_1", 0)
    assert placed.join("part", "joined_2", 8)
    assert placed.join("wide", "joined_1", 8)
    other = lines(part=8, wide=16, joined_1=24, joined_2=16)
    assert other.join("part", "joined_1", 0)
    assert other.join("part", "joined_2", 0)
    assert other.join("wide", "joined_1", 8)
    other.add("late", 8, (4, 4))
    assert not other.join("late", "joined_2", 8)


def test_padding_behind_a_tensor_counts_as_written():
    placed = lines(part=8, ragged=5, joined=13)
    assert placed.join("ragged", "joined", 0)
    assert not placed.join("part", "joined", 5)  # no multiple of 8
    late = lines(ragged=5, part=8, joined_outer=16, joined=5)
    assert late.join("ragged", "joined", 0)
    assert late.join("part", "joined_outer", 8)
    assert late.join("joined", "joined_outer", 0)


def test_tensors_of_another_size_do_not_join():
    placed = lines(joined=16)
    placed.add("smaller", 8, (2, 2))
    assert not placed.join("smaller", "joined", 0)


def test_a_tensor_may_begin_before_the_whole():
    placed = lines(parent=16, joined=16)
    assert placed.join("parent", "joined", -8)
    views, _ = placed.views(1, {"parent": 16, "joined": 16})
    assert views["parent"].offset == 0
    assert views["joined"].offset == 8


@pytest.mark.parametrize(("reserved", "free"), [(0, 8), (8, 0)])
def test_reserved_channels_are_kept_free(reserved, free):
    placed = lines(part=8, joined=16)
    placed.reserve("joined", "copy", reserved, 8)
    assert not placed.join("part", "joined", reserved)
    assert placed.join("part", "joined", free)


def test_channels_are_reserved_where_a_tensor_lies_in_its_line():
    placed = lines(part=8, joined_inner=16, joined=32)
    assert placed.join("joined_inner", "joined", 16)
    placed.reserve("joined_inner", "copy", 8, 8)
    assert not placed.join("part", "joined", 24)
    placed.release("joined_inner", "copy")
    assert placed.join("part", "joined", 24)


def test_a_buffer_holds_a_tensor_that_nothing_has_written_yet():
    placed = lines(part=8, joined=24)
    assert placed.join("part", "joined", 0)
    _, sizes = placed.views(1, {"part": 8, "joined": 24})
    assert sizes == (4 * 4 * 24,)
