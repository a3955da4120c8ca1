"""Batch sizes that a session has warmed, and how other sizes run."""

import numpy as np
import pytest
from support.plus_one import F32, network
from support.tuned_sessions import CpuSession

from streamkit.core.data import Device


def warm_session(tmp_path, inputs, sizes, *, quick=False) -> CpuSession:
    session = CpuSession(network(tmp_path / "net.onnx", inputs), Device("cuda"), quick=quick)
    session.warm(sizes, (8, 8))
    session.rows.clear()
    return session


@pytest.mark.parametrize(("rows", "steps"), [(1, [2]), (2, [2]), (3, [4]), (4, [4]), (5, [4, 4]), (0, [0])])
def test_an_unwarmed_size_runs_as_the_next_warm_size(rows, steps, tmp_path):
    session = warm_session(tmp_path, {"x": (F32, ["n", 3, 8, 8])}, (2, 4))
    x = np.random.default_rng(0).random((rows, 3, 8, 8), np.float32)
    assert np.array_equal(session.run({"x": x})["out_x"], x + 1)
    assert session.rows == steps
    assert session.is_warm(rows) == (rows in (2, 4))


@pytest.mark.parametrize("quick", [False, True])
def test_an_output_without_a_row_for_each_image_is_never_padded_or_split(quick, tmp_path):
    inputs = {"x": (F32, ["n", 3, 8, 8]), "more": (F32, [5, 2])}
    session = warm_session(tmp_path, inputs, (1, 4), quick=quick)
    x = np.ones((2, 3, 8, 8), np.float32)
    more = np.ones((5, 2), np.float32)
    outputs = session.run({"x": x, "more": more})
    assert (outputs["out_x"].shape, outputs["out_more"].shape) == ((2, 3, 8, 8), (5, 2))
    assert session.rows == [2]


def test_an_untuned_session_runs_in_steps_of_the_smallest_size(tmp_path):
    session = warm_session(tmp_path, {"x": (F32, ["n", 3, 8, 8])}, (2, 4), quick=True)
    x = np.random.default_rng(0).random((4, 3, 8, 8), np.float32)
    assert np.array_equal(session.run({"x": x})["out_x"], x + 1)
    assert session.rows == [2, 2]


def test_sizes_are_warmed_once_the_largest_first(tmp_path):
    session = CpuSession(network(tmp_path / "net.onnx", {"x": (F32, ["n", 3, 8, 8])}), Device("cuda"), quick=False)
    assert session.warm((2, 8), (8, 8)) == {"out_x": (2, 3, 8, 8)}
    session.warm((1, 2, 4, 8), (8, 8))
    assert session.rows == [8, 2, 4, 1]
    assert [session.is_warm(rows) for rows in (1, 2, 3, 4, 8)] == [True, True, False, True, True]


def test_dropping_a_session_stops_warming_after_the_first_size(tmp_path):
    session = CpuSession(network(tmp_path / "net.onnx", {"x": (F32, ["n", 3, 8, 8])}), Device("cuda"), quick=False)
    session.warm((1, 2, 4), (8, 8), dropped=lambda: len(session.rows) == 2)
    assert session.rows == [4, 2]
    another = CpuSession(session.info.file, Device("cuda"), quick=False)
    another.warm((1, 2), (8, 8), dropped=lambda: True)
    assert another.rows == [2]


def test_a_fixed_batch_is_the_only_size_that_is_warmed(tmp_path):
    session = warm_session(tmp_path, {"x": (F32, [2, 3, 8, 8])}, (1, 4, 8))
    x = np.random.default_rng(0).random((3, 3, 8, 8), np.float32)
    assert np.array_equal(session.run({"x": x})["out_x"], x + 1)
    assert session.rows == [2, 2]
    assert session.is_warm(7)


def test_a_batch_in_steps_needs_a_row_of_each_output_for_each_image(tmp_path):
    session = warm_session(tmp_path, {"x": (F32, [2, 3, 8, 8]), "more": (F32, [5, 2])}, (2,))
    feeds = {"x": np.ones((4, 3, 8, 8), np.float32), "more": np.ones((5, 2), np.float32)}
    with pytest.raises(ValueError, match="output 'out_more' has no row for each image: use batches of 2"):
        session.run(feeds)
