"""The tables' columns, by what a pipeline has, and the Arrow arrays that its results become."""

import sys

import numpy as np
import pyarrow as pa
import pytest
from support.cards import card_of, tiny_pose  # the paths are set just above
from support.dataset_runs import PLAIN, TRACKED, graph_of, settings

from streamkit.batch.tables import (
    KINDS,
    RUN_COLUMNS,
    DatasetTables,
    ObjectColumn,
    comparable,
    files_schema,
    others_of,
    tables_of,
)
from streamkit.core.errors import MissingPackage

ALWAYS = ["key", "source", "frame", "pts_s", "stage", "label", "class_id", "score", "damaged", "x1", "y1", "x2", "y2"]


def tables(folder, text):
    return tables_of(graph_of(settings(folder, text)))


def test_a_detector_has_the_basic_columns(tmp_path):
    dataset_tables = tables(tmp_path, PLAIN)
    schemas = dataset_tables.schemas()
    assert schemas["objects"].names == ALWAYS
    assert list(schemas) == ["objects", "events", "frames"]
    assert dataset_tables.labels == ("car", "person", "bike")


WHERE = {"key": "string", "source": "string", "frame": "int32", "pts_s": "double"}


def types_in(schema):
    return {name: str(type_) for name, type_ in zip(schema.names, schema.types, strict=True)}


def test_every_table_has_the_documented_types():
    schemas = DatasetTables((ObjectColumn("speed_kmh", "float"),), others=True).schemas()
    objects = {
        **WHERE,
        "stage": "string",
        "label": "string",
        "class_id": "int32",
        "score": "float",
        "damaged": "bool",
        "x1": "float",
        "y1": "float",
        "x2": "float",
        "y2": "float",
        "speed_kmh": "float",
        "extra": "string",
    }
    assert list(types_in(schemas["objects"]).items()) == list(objects.items())
    assert types_in(schemas["events"]) == {
        **WHERE,
        "stage": "string",
        "kind": "string",
        "track_id": "int64",
        "data": "string",
    }
    assert types_in(schemas["frames"]) == {
        **WHERE,
        "width": "int32",
        "height": "int32",
        "objects": "int32",
        "error": "string",
        "damaged": "bool",
        "facts": "string",
    }
    texts = ("key", "source", "path", "version", "status", "cause", "cause_kind", "codec", "pipeline", "streamkit")
    counts = (
        "size",
        "frames",
        "frames_failed",
        "frames_damaged",
        "objects",
        "frames_in_file",
        "concealed_errors",
        "parts_bytes",
    )
    assert types_in(files_schema()) == {
        **dict.fromkeys(texts, "string"),
        **dict.fromkeys(counts, "int64"),
        **dict.fromkeys(("processed_s", "duration_s", "fps", "seconds"), "double"),
        **dict.fromkeys(("width", "height", "attempts"), "int32"),
        "models": "list<item: struct<name: string, sha256: string>>",
        "finished_at": "timestamp[ms, tz=UTC]",
    }


def test_each_stage_that_adds_a_column_gives_it_a_type(tmp_path):
    dataset_tables = tables(
        tmp_path,
        TRACKED.replace(
            "  line_counter",
            "  speed: {points: [[0, 0], [9, 0], [9, 9], [0, 9]], ground: [[0, 0], [1, 0], [1, 1], [0, 1]]}\n"
            "  direction: {}\n  line_counter",
        ),
    )
    objects = dataset_tables.schemas()["objects"]
    assert objects.names == [*ALWAYS, "track_id", "predicted", "speed_kmh", "heading_deg"]
    types = [objects.field(name).type for name in ("track_id", "predicted", "speed_kmh")]
    assert types == [pa.int64(), pa.bool_(), pa.float32()]


def test_networks_add_their_columns(tmp_path, test_data):
    card_of("seg", test_data, tmp_path)
    tiny_pose(tmp_path)
    text = "stages:\n  segment: {model: seg}\n  points: {stage: pose, model: tiny, from: decode}\n"
    objects = tables(tmp_path, text).schemas()["objects"]
    assert objects.names == [*ALWAYS, "mask", "keypoints"]
    assert objects.field("mask").type == pa.struct([("size", pa.list_(pa.int32())), ("counts", pa.string())])
    assert objects.field("keypoints").type.value_type.field("x").type == pa.float32()


PLUGIN = '''
from streamkit import FrameStage, stage

@stage("tall", reads="detections", writes="height_m", columns={"height_m": "float", "nonsense": "vegetable"})
class Tall(FrameStage):
    """Measure."""

    def process(self, frame):
        pass
'''


def test_plugin_columns_without_a_type_go_into_extra(tmp_path):
    (tmp_path / "tall.py").write_text(PLUGIN)
    dataset_tables = tables(tmp_path, "plugins: [tall.py]\nstages:\n  detect: {model: demo}\n  tall: {}\n")
    assert dataset_tables.schemas()["objects"].names == [*ALWAYS, "height_m", "extra"]
    assert "frames" in dataset_tables.schemas()  # it may say something of whole frames


def array(kind, values, **more):
    return ObjectColumn("one", kind, **more).array(values)


def test_missing_values_become_nulls():
    assert array("float", np.array([1.5, np.nan], np.float32)).to_pylist() == [1.5, None]
    assert array("int", np.array([7, -1])).to_pylist() == [7, None]
    assert array("flag", np.array([True, False])).to_pylist() == [True, False]
    points = np.full((3, 2, 3), np.nan, np.float32)
    points[0] = [[1.004, 2, 0.5], [3, 4, 0.25]]
    points[2, 0] = [5, 6, 1]
    column = array("points", points)
    column.validate(full=True)
    assert [row_points and [p["x"] for p in row_points] for row_points in column.to_pylist()][:2] == [[1.0, 3.0], None]
    assert column.to_pylist()[2][0] == {"x": 5.0, "y": 6.0, "score": 1.0}
    vectors = array("vector", np.array([[np.nan, np.nan], [0.6, 0.8]], np.float32))
    vectors.validate(full=True)
    assert vectors.to_pylist()[0] is None
    assert vectors[1].values.to_numpy() == pytest.approx([0.6, 0.8])
    mask = {"size": [2, 2], "counts": "04"}
    assert array("mask", np.array([None, mask], object)).to_pylist() == [None, mask]
    colors = {"color": {"label": "red", "score": 0.75}}
    column = array("attributes", np.array([colors, None], object), fields=("color", "make"))
    assert column.to_pylist() == [{**colors, "make": None}, None]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_rows_without_a_column_get_nulls_of_its_type(kind):
    column = ObjectColumn("one", kind, ("color",))
    assert column.nulls(3).type == column.type
    assert len(column.nulls(3)) == 3


def test_empty_arrays_have_the_type_of_their_column():
    for kind, shape, dtype in (
        ("points", (0, 5, 3), np.float32),
        ("vector", (0, 8), np.float32),
        ("mask", (0,), object),
        ("float", (0,), np.float32),
        ("int", (0,), np.int64),
        ("flag", (0,), bool),
    ):
        column = ObjectColumn("one", kind)
        assert column.array(np.zeros(shape, dtype)).cast(column.type).type == column.type


def test_columns_of_unknown_types_are_json():
    extra = {"a": np.array([1.25, np.nan], np.float32), "b": np.array(["x", None], object), "c": np.array([1, 2])}
    assert others_of(extra, ["c"], 2).tolist() == ['{"a":1.25,"b":"x"}', None]


def test_tables_are_compared_without_run_specific_columns():
    def rows(*seconds):
        plain = [{"key": key, "status": "done", "seconds": s} for key, s in zip("ba", seconds, strict=True)]
        return pa.Table.from_pylist(plain, files_schema())

    assert comparable(rows(1.0, 2.0)).equals(comparable(rows(3.0, 4.0)))
    assert comparable(rows(1.0, 2.0))["key"].to_pylist() == ["a", "b"]
    assert not set(RUN_COLUMNS) & set(comparable(rows(1.0, 2.0)).column_names)


def test_missing_pyarrow_is_reported_with_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingPackage, match=r"streamkit batch needs the package pyarrow.*\[batch\]"):
        files_schema()
