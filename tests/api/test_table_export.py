"""Detections as pandas and supervision see them."""

import builtins
import gc

import numpy as np
import pytest

import streamkit
from streamkit.core.errors import MissingPackage
from streamkit.ops import rle
from streamkit.testing.kit import detections, frames

STREET = "samples/street.mp4"


def table(**columns):
    boxes = [[1.234567, 2, 30, 40], [-5, 0, 700, 10]]
    return detections(boxes, score=[0.98765432, 0.5], label=["car", "person"], **columns)


@pytest.fixture(scope="module", autouse=True)
def supervision():
    """Import both here: every process that collects the tests would import them, which takes a second."""
    pytest.importorskip("pandas")
    return pytest.importorskip("supervision")


@pytest.fixture
def missing(monkeypatch):
    """Make imports of pandas and supervision fail."""
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name in ("pandas", "supervision"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)


def test_pandas_has_a_row_for_each_object_as_in_records():
    frame = table(track_id=[7, -1]).to_pandas()
    assert list(frame) == ["label", "class_id", "score", "x1", "y1", "x2", "y2", "track_id"]
    assert frame.iloc[0].tolist() == ["car", 0, 0.9877, 1.23, 2.0, 30.0, 40.0, 7]
    assert frame.track_id.isna().tolist() == [False, True]
    assert str(frame.track_id.dtype) == "Int64"
    assert frame.x1[1] == -5  # not clipped: a table does not know its frame


def test_pandas_has_the_public_columns_of_stages():
    boxes = table(speed=np.array([np.nan, 0.1], np.float32), attributes=np.array([{"color": 1}, None]))
    boxes = streamkit.Detections(
        **{name: getattr(boxes, name) for name in ("xyxy", "score", "class_id", "labels")},
        extra={**boxes.extra, "secret": np.zeros(2)},
        private=frozenset({"secret"}),
    )
    frame = boxes.to_pandas()
    assert list(frame)[7:] == ["speed", "attributes"]
    assert np.isnan(frame.speed[0])
    assert frame.speed[1] == 0.1
    assert frame.attributes[0] == {"color": 1}


def test_an_empty_table_has_the_same_columns_and_dtypes():
    full = table(track_id=[1, 2]).to_pandas()
    empty = table(track_id=[1, 2])[:0].to_pandas()
    assert len(empty) == 0
    assert list(empty) == list(full)
    assert (empty.dtypes.drop("label") == full.dtypes.drop("label")).all()


def test_pandas_has_the_values_of_the_record():
    frame = next(streamkit.run(STREET, model="demo", stages={"track": {}}, device="cpu", limit=1))
    rows = frame.detections.to_pandas().to_dict("records")
    assert len(rows) > 5
    for row, entry in zip(rows, frame.record()["objects"], strict=True):
        assert [row["x1"], row["y1"], row["x2"], row["y2"]] == entry["box"]  # all within the frame
        assert (row["score"], row["label"], row["class_id"]) == (entry["score"], entry["label"], entry["class_id"])


def test_supervision_has_boxes_classes_and_tracks(supervision):
    converted = table(track_id=[7, -1], speed=[1.5, 2.5]).to_supervision()
    assert isinstance(converted, supervision.Detections)
    np.testing.assert_array_equal(converted.xyxy, np.array([[1.234567, 2, 30, 40], [-5, 0, 700, 10]], np.float32))
    assert converted.confidence.tolist() == [np.float32(0.98765432), 0.5]
    assert converted.class_id.tolist() == [0, 1]
    assert converted.tracker_id.tolist() == [7, -1]
    assert converted["class_name"].tolist() == ["car", "person"]
    assert converted["speed"].tolist() == [1.5, 2.5]
    assert converted.mask is None
    assert converted[converted["class_name"] == "person"].xyxy.shape == (1, 4)
    converted.xyxy[:] = 0  # the caller's own
    assert table().to_supervision().tracker_id is None


def test_supervision_has_masks():
    mask = np.zeros((20, 30), bool)
    mask[2:5, 10:20] = True
    column = np.array([rle.encode(mask, 30, 20), None], object)
    converted = table(mask=column).to_supervision()
    assert converted.mask.shape == (2, 20, 30)
    np.testing.assert_array_equal(converted.mask[0], mask)
    assert not converted.mask[1].any()
    assert table(mask=np.array([None, None], object)).to_supervision().mask is None


def test_supervision_draws_oriented_boxes(supervision):
    corners = np.array([[[50, 10], [90, 50], [50, 90], [10, 50]]], np.float32)
    converted = detections([[10, 10, 90, 90]], corners=corners).to_supervision()
    assert set(converted.data) == {"class_name", "xyxyxyxy"}
    image = np.zeros((100, 100, 3), np.uint8)
    drawn = supervision.OrientedBoxAnnotator(thickness=1).annotate(image, converted)
    assert drawn[30, 70].any()  # on an edge of the diamond
    assert not drawn[10, 10].any()  # a corner of its hull


def test_supervision_draws_and_counts(supervision):
    frame = next(streamkit.run(STREET, model="demo", stages={"track": {}}, device="cpu", limit=1))
    image = frame.image(order="bgr")
    converted = frame.detections.to_supervision()
    drawn = supervision.BoxAnnotator().annotate(image.copy(), converted)
    assert (drawn != image).any()
    zone = supervision.PolygonZone(np.array([[0, 0], [640, 0], [640, 360], [0, 360]]))
    assert zone.trigger(converted).sum() == len(converted) > 5


def test_supervision_has_keypoints(supervision):
    points = np.array([[[1, 2, 0.9], [3, 4, 0.8]], [[5, 6, 0.7], [np.nan, np.nan, np.nan]]], np.float32)
    key_points = table(keypoints=points).to_supervision_keypoints()
    assert isinstance(key_points, supervision.KeyPoints)
    assert key_points.xy.tolist() == [[[1, 2], [3, 4]], [[5, 6], [0, 0]]]
    np.testing.assert_array_equal(key_points.keypoint_confidence[0], points[0, :, 2])
    assert key_points.data["class_name"].tolist() == ["car", "person"]
    assert "keypoints" not in table(keypoints=points).to_supervision().data
    with pytest.raises(ValueError, match="no column keypoints; the stage pose writes it"):
        table().to_supervision_keypoints()


def test_empty_tables_are_exported():
    (frame,) = frames(1)
    assert len(frame.detections.to_pandas()) == len(frame.detections.to_supervision()) == 0


@pytest.mark.parametrize("method", ["to_pandas", "to_supervision", "to_supervision_keypoints"])
def test_a_missing_package_is_named_with_the_install_command(method, missing):
    package = "pandas" if method == "to_pandas" else "supervision"
    with pytest.raises(MissingPackage, match=f"^{method} needs the package {package}; .* pip install {package}$"):
        getattr(table(), method)()


def test_frames_of_a_loop_keep_their_pixels_while_views_live(monkeypatch):
    monkeypatch.setenv("STREAMKIT_POISON_SURFACES", "1")
    gc.collect()
    views = []
    for frame in streamkit.run(STREET, model="demo", device="cpu", limit=40):
        views.append((np.from_dlpack(frame.nv12().y), frame.surface.data[:360].copy()))
    assert len(views) == 40
    for view, before in views:
        np.testing.assert_array_equal(view, before)
    assert frame.image().shape == (360, 640, 3)  # the loop has ended, the frame has not
