import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.core.data import Detections, merge
from streamkit.testing.kit import detections


def table(rows, *, frames=None, tracks=None, labels=("car", "person"), **extra):
    """A batch's table of `rows` boxes; row i at x = i."""
    rows_of_boxes = detections(
        [[i, 0, i + 10, 20] for i in range(rows)], score=np.linspace(0.1, 0.9, rows), labels=labels
    )
    extra = {name: np.asarray(column, np.float32) for name, column in extra.items()}
    columns = {"batch_row": np.asarray(frames if frames is not None else [0] * rows, np.int32)}
    if tracks is not None:
        columns["track_id"] = np.asarray(tracks, np.int64)
    return rows_of_boxes.with_columns(**columns, **extra)


def xs(boxes):
    return boxes.xyxy[:, 0].tolist()


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (
            {"xyxy": np.zeros((3, 5), np.float32)},
            r"Detections.xyxy must have shape \(3, 4\) to match xyxy, got \(3, 5\)",
        ),
        ({"xyxy": np.zeros((3, 4))}, "Detections.xyxy must be float32, got float64"),
        ({"score": np.zeros(2, np.float32)}, r"Detections.score must have shape \(3,\) to match xyxy, got \(2,\)"),
        ({"score": np.zeros(3)}, "Detections.score must be float32, got float64"),
        ({"class_id": np.zeros(3, np.int64)}, "Detections.class_id must be int32, got int64"),
        ({"batch_row": np.zeros(4, np.int32)}, r"Detections.batch_row must have shape \(3,\)"),
        ({"row_id": np.zeros((3, 1), np.int32)}, r"Detections.row_id must have shape \(3,\)"),
        ({"track_id": np.zeros(3, np.int32)}, "Detections.track_id must be int64, got int32"),
        ({"track_id": np.zeros(0, np.int64)}, r"Detections.track_id must have shape \(3,\)"),
        ({"extra": {"speed": np.zeros(2)}}, r"Detections.extra\['speed'\] must have 3 rows to match xyxy, got 2"),
    ],
)
def test_columns_of_wrong_length_are_refused(columns, text):
    good = {
        "xyxy": np.zeros((3, 4), np.float32),
        "score": np.zeros(3, np.float32),
        "class_id": np.zeros(3, np.int32),
    }
    with pytest.raises(ValueError, match=text):
        Detections(**{**good, **columns})


def test_an_empty_table_has_all_columns():
    empty = Detections.empty(["car"])
    assert len(empty) == 0
    assert (empty.labels, empty.label, empty.center.shape, empty.foot.shape) == (("car",), [], (0, 2), (0, 2))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (np.array([True, False, True]), [0, 2]),
        (slice(1, None), [1, 2]),
        ([2, 0], [2, 0]),
        (1, [1]),
        (-1, [2]),
        (np.int64(0), [0]),
        (np.zeros(3, bool), []),
        (np.zeros(0, np.intp), []),
        (slice(None, None, -1), [2, 1, 0]),
    ],
)
def test_selection_applies_to_every_column(rows, expected):
    selected = table(3, frames=[0, 0, 1], tracks=[5, 6, 7], speed=[0, 1, 2])[rows]
    assert xs(selected) == expected
    assert selected.row_id.tolist() == expected
    assert selected.track_id.tolist() == [5 + i for i in expected]
    assert selected.extra["speed"].tolist() == expected
    assert selected.batch_row.tolist() == [int(i == 2) for i in expected]
    assert selected.labels == ("car", "person")


def test_keypoints_and_labels_are_accessible():
    boxes = detections([[10, 20, 30, 60]] * 3, class_id=[0, 2, -1], labels=["car", "bike"])
    assert boxes.center.tolist() == [[20, 40]] * 3
    assert boxes.foot.tolist() == [[20, 60]] * 3
    assert boxes.label == ["car", "2", "-1"]


def test_with_columns_returns_a_changed_copy():
    first = table(2)
    second = first.with_columns(score=np.ones(2, np.float32), speed=np.array([1.0, 2.0]))
    assert second.score.tolist() == [1, 1]
    assert second.extra["speed"].tolist() == [1, 2]
    assert first.extra == {}
    assert first.score.tolist() != [1, 1]
    with pytest.raises(ValueError, match=r"extra\['speed'\] must have 2 rows"):
        first.with_columns(speed=np.zeros(3))


def test_split_gives_each_frame_its_rows():
    parts = table(4, frames=[0, 2, 2, 3]).split(5)
    assert [xs(part) for part in parts] == [[0], [], [1, 2], [3], []]
    assert all((part.batch_row == 0).all() for part in parts)
    assert parts[2].row_id.tolist() == [1, 2]


def test_split_accepts_rows_in_any_order():
    assert [xs(part) for part in table(4, frames=[1, 0, 1, 0]).split(2)] == [[1, 3], [0, 2]]


def test_concat_fills_missing_columns():
    both = Detections.concat([table(1, tracks=[4], speed=[2.5]), table(2)], rows=[3, 5])
    assert both.batch_row.tolist() == [3, 5, 5]
    assert both.track_id.tolist() == [4, -1, -1]
    assert both.extra["speed"][0] == 2.5
    assert np.isnan(both.extra["speed"][1:]).all()
    assert both.extra["speed"].dtype == np.float32
    count = Detections.concat([table(1).with_columns(n=np.array([7], np.int32)), table(1)])
    assert count.extra["n"].tolist() == [7, -1]
    with pytest.raises(ValueError, match="at least one table"):
        Detections.concat([])


@pytest.mark.parametrize(
    ("first", "second", "filled", "exact"),
    [
        (np.array([1, 2]), np.array(["a"]), ["1", "2", "a"], [1, 2, "a"]),
        (np.array([True, False]), None, [True, False, False], [True, False, None]),
        (np.array([1, 2]), None, [1, 2, -1], [1, 2, -1]),
        (np.array([1, 2]), np.array([3]), [1, 2, 3], [1, 2, 3]),
        (np.array([{"a": 1}, None]), None, [{"a": 1}, None, None], [{"a": 1}, None, None]),
    ],
)
def test_an_exact_concat_keeps_the_values_of_each_table(first, second, filled, exact):
    tables = [table(2).with_columns(n=first), table(1) if second is None else table(1).with_columns(n=second)]
    assert Detections.concat(tables).extra["n"].tolist() == filled
    assert Detections.concat(tables, exact=True).extra["n"].tolist() == exact


def test_a_loop_over_a_table_yields_its_rows():
    tracks_of_rows = [row.track_id.tolist() for row in table(3, tracks=[5, 6, 7])]
    assert tracks_of_rows == [[5], [6], [7]]
    assert list(table(0)) == []
    assert table(3, tracks=[5, 6, 7])[-3].track_id.tolist() == [5]
    for row in (3, -4):
        with pytest.raises(IndexError, match=f"row {row} of a table of 3 rows"):
            table(3)[row]


def test_repr_shows_shapes_and_no_data():
    text = repr(table(2, tracks=[1, 2], speed=[0.125, 0.125]))
    assert text.startswith("Detections(2 rows: ")
    assert "xyxy=float32[2, 4]@host, track_id=int64[2]@host, speed=float32[2]@host" in text
    assert "0.125" not in text


@given(st.lists(st.integers(0, 4), max_size=20))
def test_split_and_concat_are_inverse(frames):
    whole = table(len(frames), frames=sorted(frames), speed=range(len(frames)))
    back = Detections.concat(whole.split(5), rows=range(5))
    for name in ("xyxy", "score", "batch_row", "row_id"):
        assert getattr(back, name).tolist() == getattr(whole, name).tolist()
    assert back.extra["speed"].tolist() == whole.extra["speed"].tolist()


# ------------------------------------------------------------------------------------- where branches meet


@st.composite
def branches(draw):
    """A detector's table, and two selections of it, each with columns of its own."""
    n = draw(st.integers(0, 12))
    source = table(n, frames=sorted(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))))
    # A detector numbers the rows of its whole table, or those of each frame.
    if draw(st.booleans()):
        numbers = [i - np.searchsorted(source.batch_row, f) for i, f in enumerate(source.batch_row)]
        source = source.with_columns(row_id=np.array(numbers, np.int32))
    masks = [np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)), bool) for _ in range(2)]
    return source, source[masks[0]], source[masks[1]], masks


def keys(boxes):
    return list(zip(boxes.batch_row.tolist(), boxes.row_id.tolist(), strict=True))


@given(branches())
def test_merged_branches_have_every_row_once_in_order(case):
    source, first, second, masks = case
    both = merge(first, second)
    assert keys(both) == keys(source[masks[0] | masks[1]])
    assert both.xyxy.tolist() == source.xyxy[masks[0] | masks[1]].tolist()
    assert keys(merge(second, first)) == keys(both)
    assert both.labels == source.labels


@given(branches())
def test_merged_branches_have_every_column(case):
    _, first, second, masks = case
    number = np.arange(len(masks[0]))
    first = first.with_columns(a=number[masks[0]].astype(np.float32), both=np.full(len(first), 1, np.int32))
    second = second.with_columns(
        b=number[masks[1]].astype(np.float32),
        both=np.full(len(second), 2, np.int32),
        track_id=number[masks[1]].astype(np.int64),
    )
    merged = merge(first, second)
    for i, row in enumerate(number[masks[0] | masks[1]].tolist()):
        a = masks[0][row]
        b = masks[1][row]
        assert merged.extra["a"][i] == row if a else np.isnan(merged.extra["a"][i])
        assert merged.extra["b"][i] == row if b else np.isnan(merged.extra["b"][i])
        assert merged.extra["both"][i] == (1 if a else 2)
        assert merged.track_id[i] == (row if b else -1)


@given(branches())
def test_merging_with_itself_changes_nothing(case):
    source = case[0]
    assert merge(source, source) is source
    again = merge(source, source[np.arange(len(source))])
    assert keys(again) == keys(source)
    assert again.track_id is None


def test_merging_an_empty_branch_changes_nothing():
    whole = table(2, tracks=[1, 2])
    assert merge(whole, whole[:0]).track_id.tolist() == [1, 2]
    assert merge(whole[:0], whole).track_id.tolist() == [1, 2]


def test_the_first_branch_wins_conflicting_changes():
    whole = table(2)
    first = whole.with_columns(score=np.array([0.5, 0.6], np.float32))
    assert merge(first, whole).score.tolist() == pytest.approx([0.5, 0.6])
    assert merge(whole, first).score.tolist() == pytest.approx(whole.score.tolist())


def test_objects_are_filled_with_none():
    first = table(2)
    second = table(1)
    first = first.with_columns(attributes=np.array([{"color": {"label": "red"}}, None]))
    both = Detections.concat([second, first])
    assert both.extra["attributes"].tolist() == [None, {"color": {"label": "red"}}, None]
    assert merge(first, second).extra["attributes"].tolist() == [{"color": {"label": "red"}}, None]
    assert merge(second, first).extra["attributes"].tolist() == [{"color": {"label": "red"}}, None]


def test_attributes_of_merged_branches_are_combined():
    plain = table(3)
    first = plain.with_columns(attributes=np.array([{"a": 1}, {"a": 2}, None]))
    second = plain.with_columns(attributes=np.array([{"b": 3}, None, {"b": 4}]))
    assert merge(first, second).extra["attributes"].tolist() == [{"a": 1, "b": 3}, {"a": 2}, {"b": 4}]
    assert first.extra["attributes"].tolist() == [{"a": 1}, {"a": 2}, None]
    again = plain.with_columns(attributes=np.array([{"a": 9}, None, None]))
    assert merge(first, again).extra["attributes"].tolist() == [{"a": 1}, {"a": 2}, None]


def test_private_columns_stay_private():
    hidden = table(2).with_columns(vector=np.ones((2, 3), np.float32), private=frozenset({"vector"}))
    for hidden_table in (
        hidden[:1],
        hidden.with_columns(score=hidden.score),
        *hidden.split(1),
        merge(table(2), hidden),
    ):
        assert hidden_table.private == {"vector"}
    assert Detections.concat([table(1), hidden]).private == {"vector"}


def test_a_table_cannot_be_changed():
    scores = np.array([0.5, 0.25], np.float32)
    scored = detections([[0, 0, 1, 1]] * 2, score=scores).with_columns(foo=np.array([1, 2]))
    for frozen in (
        scored,
        scored[:1],
        scored[np.array([1, 0])],
        scored.split(1)[0],
        Detections.concat([scored, scored]),
        pickle.loads(pickle.dumps(scored)),
        copy.deepcopy(scored),
    ):
        for column in (
            frozen.xyxy,
            frozen.score,
            frozen.class_id,
            frozen.batch_row,
            frozen.row_id,
            frozen.extra["foo"],
        ):
            with pytest.raises(ValueError, match="read-only"):
                column[:] = 0
        with pytest.raises(
            AttributeError, match=r"write frame.detections = frame.detections.with_columns\(score=array"
        ):
            frozen.score = scores
        with pytest.raises(TypeError, match=r"table.with_columns\(name=array\)"):
            frozen.extra["bar"] = scores


def test_input_arrays_are_made_read_only_or_copied():
    boxes = np.zeros((2, 4), np.float32)
    buffer = np.zeros(8, np.float32)
    protected = Detections(boxes, buffer[:2], np.zeros(2, np.int32))
    with pytest.raises(ValueError, match="read-only"):
        boxes[:] = 1
    buffer[:] = 1
    assert protected.score.tolist() == [0, 0]
