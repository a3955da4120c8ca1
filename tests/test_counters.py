from streamkit.counters import Counters


def test_counts_add_up_by_name():
    one, other = Counters(), Counters()
    one.add("pixels to host")
    one.add("pixels to host", 3)
    one.add("boxes removed: size", 2)
    other.add("pixels to host", 10)
    assert one["pixels to host"] == 4
    assert one["never"] == 0
    total = Counters.total([one, other])
    assert total == {"boxes removed: size": 2, "pixels to host": 14}
    assert list(total) == sorted(total)
    assert one["pixels to host"] == 4  # the parts stay as they are


def test_reading_leaves_no_trace():
    counters = Counters()
    assert counters["drops"] == 0
    assert Counters.total([counters]) == {}
    assert Counters.total([]) == {}
