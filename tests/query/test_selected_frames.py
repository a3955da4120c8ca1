import os

import numpy as np
import pyarrow.parquet as pq
import pytest
from support.archives import opened
from support.dataset_runs import STREET, TRACKED, do, settings

from streamkit.batch.inputs import find
from streamkit.core.data import Skeleton
from streamkit.core.errors import ConfigError
from streamkit.core.stage import Context
from streamkit.query.export import EXPORT_FORMATS, export, write_images
from streamkit.query.selected_frames import SelectedFrames, detections, frame_columns
from streamkit.stages.sources.source import VideoSource
from streamkit.testing.kit import detections as table_of


@pytest.fixture(scope="module")
def street():
    """The first frames of the video, by number."""
    source = VideoSource(uri=str(STREET), end=1.6)
    source.context = Context(id="a")
    return {frame.index: frame for frame in source.frames()}


def key_of(database):
    return database.fetch("SELECT key FROM files")[0][0]


def chosen(database, *frames):
    key = key_of(database)
    return SelectedFrames(database, database.labels, None, [(key, frame) for frame in frames])


def test_exported_frames_are_the_processed_ones(database, archive, street):
    frames = chosen(database, 31, 3, 30, 3)
    selection = list(frames)
    assert frames.count == 3
    assert [selected_frame.frame.index for selected_frame in selection] == [3, 30, 31]
    assert [selected_frame.name for selected_frame in selection] == [
        f"{key_of(database)}-{number:06}" for number in (3, 30, 31)
    ]
    rows = pq.read_table(archive / "objects").to_pylist()
    for selected_frame in selection:
        expected = street[selected_frame.frame.index]
        assert np.array_equal(selected_frame.frame.surface.data, expected.surface.data)
        assert (selected_frame.frame.pts_s, selected_frame.video) == (expected.pts_s, "street.mp4")
        frame_rows = [row for row in rows if row["frame"] == selected_frame.frame.index]
        table = selected_frame.frame.tables["objects"]
        assert table.label == [row["label"] for row in frame_rows]
        assert table.track_id.tolist() == [-1 if row["track_id"] is None else row["track_id"] for row in frame_rows]
        np.testing.assert_array_equal(
            table.xyxy, [[row[name] for name in ("x1", "y1", "x2", "y2")] for row in frame_rows]
        )
    assert frames.missing.frames == 0


def test_missing_videos_are_counted_and_named(archive, shared_archive, tmp_path):
    moved = tmp_path / "gone.mp4"
    for path in (archive / "files").glob("street-*"):
        table = pq.read_table(path)
        place = table.schema.get_field_index("path")
        pq.write_table(table.set_column(place, table.schema.field(place), [[str(moved)]]), path)
    with opened(archive) as database:
        frames = chosen(database, 1, 2)
        assert list(frames) == []
        assert frames.missing.frames == 2
        assert frames.missing.causes == {"street.mp4": f"{moved}: there is no such file"}
        moved.write_bytes(STREET.read_bytes())
        frames = chosen(database, 1, 2, 3)
        assert list(frames) == []
        assert frames.missing.causes == {"street.mp4": f"{moved} has changed since it was processed"}
        assert frames.missing.frames == 3


@pytest.mark.parametrize("key", ["{folder}/pwned", "../pwned", "..", "a/b", "a\\b", "", "a\nb", "a.b"])
def test_keys_that_leave_the_folder_are_refused_as_image_names(archive, tmp_path, key):
    """The tables of a data set from elsewhere may say anything."""
    key = key.format(folder=tmp_path)
    for path in archive.glob("*/street-*.parquet"):
        table = pq.read_table(path)
        place = table.schema.get_field_index("key")
        pq.write_table(table.set_column(place, table.schema.field(place), [[key] * table.num_rows]), path)
    before = set(tmp_path.rglob("*"))
    with opened(archive) as database:
        index = {archive / "index.duckdb"}
        frames = SelectedFrames(database, database.labels, None, [(key, 3)])
        with pytest.raises(ConfigError, match="batch makes keys of letters, digits, _ and - only"):
            write_images(frames, tmp_path / "out" / "pictures", "jpg")
        for form in EXPORT_FORMATS:
            with pytest.raises(ConfigError, match="batch makes keys of letters, digits, _ and - only"):
                export(frames, database, tmp_path / "out" / form, form, "jpg")
    assert set(tmp_path.rglob("*")) - before <= {*index, tmp_path / "out"}


def test_a_frame_missing_in_the_video_is_reported(database):
    frames = chosen(database, 5, 100_000)
    assert [selected_frame.frame.index for selected_frame in frames] == [5]
    assert frames.missing.frames == 1
    assert frames.missing.causes == {"street.mp4": "the video has fewer frames than when it was processed"}


def test_a_video_whose_name_is_not_utf_8_is_exported(tmp_path):
    video = tmp_path / os.fsdecode(b"caf\xe9.mp4")
    video.write_bytes(STREET.read_bytes())
    dataset_settings = settings(tmp_path / "set", TRACKED)
    do(dataset_settings, *find([str(tmp_path / "caf*")]), limit=2)
    with opened(dataset_settings.out) as database:
        assert [selected_frame.frame.index for selected_frame in chosen(database, 1)] == [1]


def test_videos_on_s3_are_read(s3, bucket, tmp_path, street):
    s3.put_object(Bucket=bucket, Key="street.mp4", Body=STREET.read_bytes())
    dataset_settings = settings(tmp_path / "set", TRACKED)
    do(dataset_settings, *find(["s3://gates/street.mp4"]), limit=4)
    with opened(dataset_settings.out) as database:
        (selected_frame,) = chosen(database, 3)
        assert np.array_equal(selected_frame.frame.surface.data, street[3].surface.data)
        s3.put_object(Bucket=bucket, Key="street.mp4", Body=STREET.read_bytes() + b"1")
        frames = chosen(database, 3)
        assert list(frames) == []
        assert "it has changed" in frames.missing.causes["street.mp4"]


def test_columns_of_all_kinds_are_exported(tmp_path):
    import pyarrow as pa

    mask = {"size": [4, 6], "counts": "5d0"}
    rows = [
        {
            "label": "car",
            "class_id": 0,
            "score": 0.5,
            "x1": 1.0,
            "y1": 2.0,
            "x2": 3.0,
            "y2": 4.0,
            "mask": mask,
            "keypoints": [{"x": 1.0, "y": 2.0, "score": 0.5}, {"x": None, "y": None, "score": None}],
            "corners": None,
        },
        {
            "label": None,
            "class_id": 7,
            "score": 0.25,
            "x1": 1.0,
            "y1": 2.0,
            "x2": 3.0,
            "y2": 4.0,
            "mask": None,
            "keypoints": None,
            "corners": [{"x": float(n), "y": 1.0} for n in range(4)],
        },
    ]
    table = detections(pa.Table.from_pylist(rows), ["person", "car"], Skeleton(("a", "b")))
    assert (table.label, table.class_id.tolist(), table.track_id) == (["car", "7"], [1, 2], None)
    assert table.extra["mask"].tolist() == [mask, None]
    np.testing.assert_array_equal(table.extra["keypoints"][0], [[1, 2, 0.5], [np.nan] * 3])
    assert np.isnan(table.extra["keypoints"][1]).all()
    assert np.isnan(table.extra["corners"][0]).all()
    assert table.extra["corners"][1].tolist() == [[0, 1], [1, 1], [2, 1], [3, 1]]
    assert len(detections(pa.Table.from_pylist(rows).slice(0, 0), ["car"])) == len(table_of([])) == 0


def test_the_columns_that_identify_a_frame_are_recognized():
    assert frame_columns(["frame", "x", "key"]) == (2, 0)
    with pytest.raises(ConfigError, match="got source, frame; add key to the SELECT"):
        frame_columns(["source", "frame"])
