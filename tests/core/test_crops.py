import numpy as np
import pytest

from streamkit.core.crops import Crops, LazyOutputs, LazyRows
from streamkit.core.data import Batch
from streamkit.testing.kit import detections, frames


def batch():
    filled = Batch(frames(3))
    filled.rows = np.array([0, 2, 2], np.int32)
    filled.crops = Crops(np.array([[0, 0, 8, 8], [2, 2, 9, 9], [4, 4, 6, 6]], np.int32), np.array([5, 6, 7], np.int32))
    filled.tensor = np.arange(4.0).reshape(4, 1, 1, 1)  # the last row is padding
    filled.geometry = np.ones((3, 4), np.float32)
    filled.outputs = {"y": np.arange(8.0).reshape(4, 2)}
    filled.tables["detect"] = detections([[0, 0, 9, 9]] * 3).with_columns(batch_row=np.array([0, 2, 2], np.int32))
    return filled


def test_splitting_a_batch_splits_its_crops():
    whole = batch()
    first, second, third = (whole.take([row]) for row in range(3))
    assert (len(first.crops), len(second.crops), len(third.crops)) == (1, 0, 2)
    assert third.crops.row_id.tolist() == [6, 7]
    assert third.rows.tolist() == [0, 0]
    assert third.tensor.ravel().tolist() == [1, 2]
    assert third.outputs["y"].tolist() == [[2, 3], [4, 5]]
    again = Batch.join([first, second, third], whole)
    assert again.rows.tolist() == [0, 2, 2]
    assert again.crops.rects.tolist() == whole.crops.rects.tolist()
    assert again.outputs["y"].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert again.tensor.ravel().tolist() == [0, 1, 2]


def test_frames_without_crops_have_no_outputs():
    whole = batch()
    parts = [whole.take([row]) for row in (1, 0)]
    parts[0].outputs = {}
    again = Batch.join(parts, whole)
    assert again.outputs["y"].tolist() == [[0, 1]]
    assert again.rows.tolist() == [1]


def test_outputs_stay_with_their_crops():
    whole = batch()
    calls = []
    whole.crops = Crops(whole.crops.rects, whole.crops.row_id, lambda: calls.append(1) or np.eye(3, dtype=np.float32))
    parts = [whole.take([row]) for row in range(3)]
    assert parts[2].crops.wait().tolist() == [[0, 1, 0], [0, 0, 1]]
    joined = Batch.join(parts, whole)
    assert joined.crops.wait().tolist() == np.eye(3).tolist()
    assert calls


def test_corners_and_quality_survive_frames_without_crops():
    corners = np.ones((1, 4, 2), np.float32)
    quality = np.array([5.0])
    some = Crops(np.array([[0, 0, 8, 8]], np.int32), np.array([5], np.int32), corners=corners, quality=quality)
    none = Crops(np.zeros((0, 4), np.int32), np.zeros(0, np.int32))
    joined = Crops.join([none, some, none])
    assert joined.corners.tolist() == corners.tolist()
    assert joined.quality.tolist() == [5.0]
    assert Crops.join([none, none]).corners is None


def test_mismatching_crops_are_refused():
    with pytest.raises(ValueError, match=r"got \[2, 4\] and \[3\]"):
        Crops(np.zeros((2, 4), np.int32), np.zeros(3, np.int32))
    with pytest.raises(ValueError, match="no results yet"):
        Crops(np.zeros((2, 4), np.int32), np.zeros(2, np.int32)).wait()


def test_rows_are_computed_on_access():
    runs = []

    def make(rows):
        runs.append(rows.tolist())
        return rows[:, None].astype(np.float32)

    rows = LazyRows(make, (6, 1), np.dtype(np.float32))
    assert len(rows) == 6
    assert runs == []
    assert rows[2:4].ravel().tolist() == [2, 3]
    assert rows[np.array([5, 0])].ravel().tolist() == [5, 0]
    assert runs == [[2, 3], [5, 0]]


def test_a_part_of_uncomputed_rows_is_computed_or_written_later():
    values = np.arange(6.0)
    written = []
    rows = LazyRows(
        lambda picked: values[picked], (6,), values.dtype, lambda picked, target: written.append((picked, target))
    )
    part = rows.part(np.array([4, 1, 3])).part(slice(1, 3))
    assert part.shape == (2,)
    assert part[:].tolist() == [1, 3]
    part.write("memory")
    ((picked, target),) = written
    assert picked.tolist() == [1, 3]
    assert target == "memory"


def test_rows_that_can_only_be_computed_are_not_written():
    rows = LazyRows(lambda picked: picked, (3,), np.dtype(np.int64))
    assert not rows.part(slice(2)).can_be_written
    with pytest.raises(ValueError, match="can only be created"):
        rows.write("memory")


def test_frames_select_rows_of_uncomputed_crops():
    whole = batch()
    values = whole.tensor
    whole.tensor = None
    whole.tensor = LazyRows(lambda rows: values[rows], values.shape, values.dtype)
    parts = [whole.take([row]) for row in range(3)]
    assert [part.tensor[:].ravel().tolist() for part in parts] == [[0], [], [1, 2]]
    assert Batch.join(parts, whole).tensor.ravel().tolist() == [0, 1, 2]


def lazy_outputs(count, lengths):
    """Outputs whose values are the rows, and the runs that made them."""
    row_runs = []

    def run(rows):
        row_runs.append(rows.tolist())
        return {"a": rows[:, None] * 10.0, "b": rows}

    return LazyOutputs(run, lengths, count), row_runs


def test_outputs_are_computed_run_by_run():
    outputs, row_runs = lazy_outputs(5, [4, 4])
    assert outputs
    assert row_runs == []
    runs = outputs.runs()
    rows, first = next(runs)
    assert (rows, row_runs) == (slice(0, 4), [[0, 1, 2, 3]])
    assert first["b"].tolist() == [0, 1, 2, 3]
    rows, second = next(runs)
    assert rows == slice(4, 5)
    assert len(second["a"]) == 4  # padding
    assert list(runs) == []
    whole = outputs.whole(np)
    assert whole["a"].tolist() == [[0], [10], [20], [30], [40]]
    assert whole["b"].tolist() == [0, 1, 2, 3, 4]


def test_a_run_of_only_padding_is_skipped():
    outputs, row_runs = lazy_outputs(4, [4, 1])
    assert [rows for rows, _ in outputs.runs()] == [slice(0, 4)]
    assert row_runs == [[0, 1, 2, 3]]


def test_frames_select_rows_of_uncomputed_outputs():
    whole = batch()
    whole.tensor = None
    whole.outputs, row_runs = lazy_outputs(3, [2, 2])
    parts = [whole.take([row]) for row in range(3)]
    assert row_runs == []
    assert [part.outputs.whole(np).get("b", np.zeros(0)).tolist() for part in parts] == [[0], [], [1, 2]]
    assert row_runs == [[0, 0], [1, 2]]
