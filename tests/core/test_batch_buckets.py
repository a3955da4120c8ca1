from hypothesis import given
from hypothesis import strategies as st

from streamkit.core.batch_buckets import sizes, steps
from streamkit.core.data import Device


def test_sizes():
    assert sizes(3, Device("cpu")) == (1, 2, 3)
    assert sizes(64, Device("cuda")) == (16, 64)
    assert sizes(8, Device("cuda")) == (8,)


@given(st.integers(0, 500), st.integers(1, 70), st.sampled_from(["cpu", "cuda"]))
def test_steps_hold_all_rows_and_little_more(rows, largest, kind):
    known = sizes(largest, Device(kind))
    found = steps(rows, known)
    assert set(found) <= set(known)
    assert sum(found) >= rows
    assert sum(found[:-1]) < rows or not rows
    assert kind == "cuda" or sum(found) == rows
    assert steps(sum(found), known) == found  # who is given the padded rows cuts them alike
