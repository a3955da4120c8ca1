"""The data set: where it is put into a pipeline, when a file is done, and that others read it."""

import dataclasses
import json
import os
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.dataset_runs import HERE, PLAIN, ROOT, TRACKED, do, graph_of, run, settings, sink_of, tree
from support.full_disk import small_disk

from streamkit.batch.identity import file_key
from streamkit.batch.job import BatchJob, Outcome, VideoFile
from streamkit.batch.parts import all_parts, check_formats, is_complete
from streamkit.batch.pipeline import attach, ignored
from streamkit.batch.tables import comparable
from streamkit.batch.work import commit, open_folder
from streamkit.core.errors import ConfigError, OutputError
from streamkit.io.outputs import AtomicFile
from streamkit.testing.kit import detections, frames

# ---------------------------------------------------------------------------------------------- its place in a graph

BRANCHES = """
stages:
  detect: {model: demo}
  track: {}
  people: {stage: detect, model: demo, labels: [person], from: decode}
  draw: {from: track}
  show: {stage: video, path: "a/{source}.mkv", quality: 30}
"""


def wired(folder, text, *formats):
    batch_settings = settings(folder, text, *formats)
    graph = attach(graph_of(batch_settings), batch_settings)
    return {node.id: node.inputs for node in graph.nodes.values() if node.id.startswith("dataset.")}, graph


@pytest.mark.parametrize(
    ("more", "inputs"),
    [
        ("", ["track", "people.postprocess"]),
        ('  jsonl: {path: "a/{source}.jsonl"}', ["track"]),  # behind the video and the drawing
        ('  jsonl: {path: "a/{source}.jsonl", from: people}', ["people.postprocess"]),
        (
            "  a: {stage: jsonl, path: a.jsonl, from: people}\n  b: {stage: csv, path: a.csv, from: track}",
            ["people.postprocess", "track"],
        ),
        ('  stream: {to: "rtmp://x/y", from: people}', ["track", "people.postprocess"]),
    ],
    ids=["last stages", "behind a drawing", "a branch", "two branches", "no record"],
)
def test_the_sink_reads_the_stage_whose_records_are_written(tmp_path, more, inputs):
    places, graph = wired(tmp_path, BRANCHES + more.replace("to:", "url:"))
    assert places == {"dataset.parquet": inputs}
    assert not {"draw", "show", "jsonl"} & set(graph.nodes)
    assert all(node.readers for node in graph.nodes.values() if node.id not in places)


def test_the_sink_reads_decoded_frames_without_a_stage(tmp_path):
    places, graph = wired(tmp_path, 'stages:\n  video: {path: "a/{source}.mp4"}\n')
    assert places == {"dataset.parquet": ["decode"]}
    assert graph.outputs == ["dataset.parquet"]


def test_the_video_is_that_of_the_yaml_or_drawn_by_default(tmp_path):
    places, graph = wired(tmp_path / "a", BRANCHES, "parquet", "video")
    assert places["dataset.video"] == ["draw"]
    assert graph.nodes["dataset.video"].options["quality"] == 30
    assert graph.nodes["dataset.video"].options["path"] == str(tmp_path / "a/out/video/{source}.mkv")
    places, _ = wired(tmp_path / "b", "stages:\n  detect: {model: demo}\n", "video")
    assert places == {"dataset.draw": ["detect.postprocess"], "dataset.video": ["dataset.draw"]}
    with pytest.raises(ConfigError, match="show has encoder: copy; set encoder: auto"):
        wired(
            tmp_path / "c",
            BRANCHES.replace("from: track", "from: decode").replace("quality: 30", "encoder: copy, from: decode"),
            "video",
        )


@pytest.mark.parametrize(
    ("paths", "name"), [(("x.mkv", "x.mp4"), "{source}.mkv"), (("x.mp4", "x.mkv"), "{source}.mp4")]
)
def test_the_first_of_several_videos_of_the_yaml_is_written(tmp_path, paths, name):
    text = f"""
stages:
  detect: {{model: demo}}
  track: {{}}
  one: {{stage: video, path: {paths[0]}, from: detect, quality: 31, if_exists: fail}}
  two: {{stage: video, path: {paths[1]}, from: decode, encoder: copy}}
"""
    places, graph = wired(tmp_path, text, "video")
    assert places == {"dataset.video": ["detect.postprocess"]}
    assert graph.nodes["dataset.video"].options == {
        "path": str(tmp_path / "out/video" / name),
        "quality": 31,
        "if_exists": "overwrite",
    }


def test_replaced_sinks_are_reported(tmp_path):
    assert ignored(graph_of(settings(tmp_path / "a", PLAIN))) == (
        "batch writes the data set in place of the sinks video, jsonl"
    )
    text = "stages:\n  jsonl: {path: a.jsonl}\nalarms: {a: down_s > 3}\n"
    assert ignored(graph_of(settings(tmp_path / "d", text))) == (
        "batch writes the data set in place of the sink jsonl and ignores the alarms"
    )
    assert ignored(graph_of(settings(tmp_path / "b", "stages:\n  detect: {model: demo}\n"))) == ""
    alarmed = "stages:\n  detect: {model: demo}\nalarms: {a: down_s > 3}\n"
    assert ignored(graph_of(settings(tmp_path / "c", alarmed))) == "batch ignores the alarms"


def test_formats_are_checked():
    assert check_formats(["csv", "parquet", "csv"]) == ("parquet", "csv")
    with pytest.raises(ConfigError, match=r"there is no 'parket'; there are parquet, .*; did you mean 'parquet'"):
        check_formats(["parket"])
    with pytest.raises(ConfigError, match="--format names none; there are parquet, jsonl, csv, coco, mot, video"):
        check_formats([])


# --------------------------------------------------------------------------------------------------- done, or failed


@pytest.mark.parametrize(
    ("data", "whole"),
    [
        (b"PAR1" + b"x" + b"\1\0\0\0PAR1", True),
        (b"PAR1" + bytes(300) + b"\x2c\1\0\0PAR1", True),  # 300 bytes, all of what is between
        (b"PAR1" + bytes(300) + b"\x2d\1\0\0PAR1", False),
        (b"PAR1" + bytes(300) + b"\0\0\0\0PAR1", False),
        (b"PAR1" + bytes(300) + b"\1\0\0\0PAR2", False),
        (b"PAR1" + bytes(300), False),
        (b"\1\0\0\0PAR1", False),
        (b"PAR1", False),
        (b"", False),
    ],
)
def test_a_parquet_file_is_complete_if_its_footer_fits(tmp_path, data, whole):
    for suffix, complete in [("parquet", whole), ("jsonl", True)]:
        path = tmp_path / f"a.{suffix}"
        path.write_bytes(data)
        assert is_complete(path) is complete


def test_an_unfinished_video_leaves_no_file(tmp_path):
    batch_settings, sink = sink_of(tmp_path)
    for frame in frames(5):
        frame.tables = {"d": detections([[1, 2, 3, 4]])}
        sink.write(frame)
    sink._files["objects"].write(sink._objects.take())
    assert len(tree(batch_settings.out / "objects")) == 1
    sink.close()
    assert tree(batch_settings.out / "objects") == {}


def test_parts_are_written_before_the_row_of_their_file(tmp_path, monkeypatch):
    batch_settings = settings(tmp_path, PLAIN)
    order = []
    monkeypatch.setattr(
        os, "fsync", lambda handle, real=os.fsync: (order.append(os.readlink(f"/proc/self/fd/{handle}")), real(handle))
    )
    (key,) = do(batch_settings, limit=10)
    ordered_paths = [
        Path(path_text).relative_to(batch_settings.out) for path_text in order if str(batch_settings.out) in path_text
    ]
    last = [str(path) for path in ordered_paths if key in str(path) or path.name in ("objects", "events", "frames")]
    parts = ["objects", "frames", "objects", "events", "frames"]
    assert [path_text.split("/")[0] for path_text in last] == [*parts, "files"]
    assert last[0].endswith(".part")  # the part's bytes, the folders' names, and then the row
    (row,) = [
        file_row for file_row in pq.read_table(batch_settings.out / "files").to_pylist() if file_row["key"] == key
    ]
    assert (row["status"], row["source"], row["path"], row["size"]) == ("done", HERE.name, HERE.uri, HERE.size)
    assert row["models"][0]["name"] == "demo"
    assert len(row["models"][0]["sha256"]) == 64
    assert row["pipeline"] == json.loads((batch_settings.out / "streamkit.json").read_text())["pipeline"]


def test_a_failed_file_has_a_row_with_its_cause_only(tmp_path):
    batch_settings = settings(tmp_path, PLAIN, "parquet", "jsonl", "video")
    (key,) = do(batch_settings, limit=10)
    assert len([path for other, path in all_parts(batch_settings.out) if other == key]) == 4
    facts = {"codec": "h264", "width": 640, "concealed_errors": 3, "failed_frames": 2}
    commit(
        batch_settings, Outcome(BatchJob(HERE, key, 2), "failed", "it is cut off", "truncated", frames=7, facts=facts)
    )
    assert [path for other, path in all_parts(batch_settings.out) if other == key] == []
    (row,) = pq.read_table(batch_settings.out / "files").to_pylist()
    names = (
        "status",
        "cause",
        "cause_kind",
        "attempts",
        "codec",
        "width",
        "height",
        "concealed_errors",
        "frames_failed",
    )
    assert [row[name] for name in names] == ["failed", "it is cut off", "truncated", 2, "h264", 640, None, 3, 2]


@pytest.mark.parametrize("format_", ["parquet", "jsonl", "csv", "coco", "mot"])
def test_a_full_disk_is_reported_and_leaves_no_partial_file(tmp_path, format_):
    batch_settings = settings(tmp_path, PLAIN, format_)
    with small_disk(batch_settings.out, "64k") as disk:
        graph = graph_of(batch_settings)
        with open_folder(graph, batch_settings) as folder:
            disk.fill(free_bytes=4096)
            key = file_key(HERE, folder.pipeline)
            with pytest.raises(OutputError, match=r"cannot write .*: the disk is full"):
                run(batch_settings, graph, {key: HERE}, limit=40)
        assert [name for name in tree(batch_settings.out) if key in name] == []


def test_two_writers_never_share_a_part_file(tmp_path):
    first = AtomicFile(tmp_path / "x.json", unique=True)
    second = AtomicFile(tmp_path / "x.json", unique=True)
    assert first.part != second.part
    assert first.part.name.startswith(".x.json.")
    assert first.part.name.endswith(".part")


# ------------------------------------------------------------------------------------------------ as others read it

DOCS = (ROOT / "docs" / "archive-tables.md").read_text(encoding="utf-8").replace("out/archive/", "out/")


def readers():
    return [line for line in DOCS.splitlines() if line.startswith(("duckdb.", "polars.", "pandas."))]


def test_a_line_of_code_reads_the_data_set_also_when_empty(tmp_path, monkeypatch):
    import pandas as pd  # not above: every process that collects the tests would import them
    import polars as pl

    lines = readers()
    assert len(lines) == 3
    for name, folder in (("full", tmp_path / "a"), ("empty", tmp_path / "b")):
        batch_settings = settings(folder, TRACKED)
        if name == "full":
            do(batch_settings, HERE, VideoFile("u", "other.mp4", 3, "2"), limit=12)
        else:
            open_folder(graph_of(batch_settings), batch_settings).close()
        monkeypatch.chdir(folder)
        whole = pq.read_table("out/objects")
        for line in lines:
            loaded = eval(line, {"duckdb": duckdb, "polars": pl, "pandas": pd})
            loaded = loaded.to_arrow_table() if hasattr(loaded, "to_arrow_table") else loaded
            columns = list(loaded.column_names if isinstance(loaded, pa.Table) else loaded.columns)
            assert columns == whole.column_names, line
            assert len(loaded) == len(whole), line
        query = DOCS.partition("```sql\n")[2].partition("```")[0].replace("label = 'car'", "label = 'person'")
        cars = duckdb.sql(query).fetchall()
        assert [source for source, _, _ in sorted(cars)] == (["2026/street.mp4", "other.mp4"] if len(whole) else [])
        for table in ("events", "files"):
            assert len(pl.read_parquet(f"out/{table}")) == len(pd.read_parquet(f"out/{table}"))
    assert not len(whole)


def test_the_docs_page_names_every_column(tmp_path):
    batch_settings = settings(tmp_path, TRACKED)
    do(batch_settings, limit=1)
    for table in ("objects", "events", "files"):
        section = DOCS.partition(f"## `{table}`")[2].partition("\n## ")[0]
        named = [
            name.strip(" `")
            for line in section.splitlines()
            if line.startswith("| `")
            for name in line.split("|")[1].split(",")
        ]
        columns = pq.read_table(batch_settings.out / table).column_names
        assert set(columns) <= set(named), set(columns) - set(named)
        optional = {"speed_kmh", "heading_deg", "attributes", "keypoints", "mask", "embedding", "identity", "extra"}
        assert set(named) - set(columns) <= optional


def test_two_runs_make_equal_tables(tmp_path):
    tables = []
    for name in ("a", "b"):
        batch_settings = settings(tmp_path / name, PLAIN)
        do(batch_settings, HERE, dataclasses.replace(HERE, name="b.mp4"), limit=8)
        tables.append(comparable(pq.read_table(batch_settings.out / "files")))
    assert tables[0].equals(tables[1])
    assert len(tables[0]) == 2
