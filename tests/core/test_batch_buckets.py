from hypothesis import given
from hypothesis import strategies as st

from streamkit.core.batch_buckets import sizes, steps
from streamkit.core.data import Device


def test_the_batch_sizes_of_a_maximum():
    assert sizes(3, Device("cpu")) == (1, 2, 3)
    assert sizes(64, Device("cuda")) == (16, 64)
    assert sizes(8, Device("cuda")) == (8,)


@given(st.integers(0, 500), st.integers(1, 70), st.sampled_from(["cpu", "cuda"]))
def test_steps_cover_all_rows_with_little_padding(rows, largest, kind):
    bucket_sizes = sizes(largest, Device(kind))
    taken = steps(rows, bucket_sizes)
    assert set(taken) <= set(bucket_sizes)
    assert sum(taken) >= rows
    assert sum(taken[:-1]) < rows or not rows
    assert kind == "cuda" or sum(taken) == rows
    assert steps(sum(taken), bucket_sizes) == taken  # who is given the padded rows cuts them alike
