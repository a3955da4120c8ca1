"""Parquet files that roll: whole or not there, each record once, whatever is killed; read with one line by others."""

import json
import os
import random
import shutil
import sqlite3
import time
from pathlib import Path

import numpy as np
import orjson
import pyarrow.parquet as pq
import pytest
from emit.test_delivery import Life, survive, with_spool
from emit.test_emitter import REGISTRY, problems, run
from hypothesis import given, settings
from hypothesis import strategies as st
from support.place import Place
from support.record_samples import GOOD

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Device
from streamkit.emit import parquet
from streamkit.emit.client import Message, SendError
from streamkit.emit.parquet import ParquetClient
from streamkit.io.formats.columns import arrow_schema
from streamkit.runtime.pipeline import PipelineRun

TEN = {"stage": "ten_objects"}


def files(folder):
    return sorted(folder.rglob("*.parquet"), key=lambda path: int(path.stem.split("-")[1]))


def read(folder):
    """All rows, in the order of their records' numbers."""
    return [row for path in files(folder) for row in pq.read_table(path).to_pylist()]


def sink(tmp_path, **options):
    return {"stage": "parquet", "path": str(tmp_path / "out"), "spool": {"path": str(tmp_path / "spool")}, **options}


def leftovers(folder):
    return list(folder.rglob(".*"))


# --------------------------------------------------------------------------------------------------------- a pipeline


def test_every_object_is_a_row_after_the_run(tmp_path):
    code, counts, logged = run(sink(tmp_path, send="objects"), above=TEN)
    assert (code, counts["records sent"]) == (0, 400)
    assert logged == []
    assert "records left in the spool" not in counts
    (path,) = files(tmp_path / "out")
    assert path.stem.split("-")[1:] == ["000000000001", "000000000400"]
    rows = read(tmp_path / "out")
    assert len({row["id"] for row in rows}) == 400
    for source in ("gate", "yard"):
        assert [row["frame"] for row in rows if row["source"] == source] == [n // 10 for n in range(200)]
    assert {row["label"] for row in rows} == {"car", "person", "bicycle"}
    assert all(row["x1"] < row["x2"] and row["extra"] is None for row in rows)
    assert leftovers(tmp_path / "out") == []


def test_rows_equal_the_records_of_a_database(tmp_path):
    each = {"stage": "numbered_frames", "uri": "none", "count": 3}
    other = {"path": str(tmp_path / "x.db"), "spool": {"path": str(tmp_path / "other")}}
    stages = {"ten_objects": {}, "parquet": sink(tmp_path, send="frames"), "sqlite": other}
    text = json.dumps({"device": "cpu", "sources": {"gate": each, "yard": each}, "stages": stages})
    assert PipelineRun(build(read_text(text, registry=REGISTRY)), Device("cpu")).run() == 0
    with sqlite3.connect(tmp_path / "x.db") as database:
        wanted = [orjson.loads(text) for (text,) in database.execute("SELECT record FROM frames")]
    database.close()
    order = lambda record: (record["source"], record["frame"])  # noqa: E731
    for row, record in zip(sorted(read(tmp_path / "out"), key=order), sorted(wanted, key=order), strict=True):
        assert orjson.loads(row["objects"]) == record["objects"]
        assert orjson.loads(row["events"]) == record["events"]
        assert {key: row[key] for key in ("source", "frame", "pts_s", "width", "height")} == {
            key: record[key] for key in ("source", "frame", "pts_s", "width", "height")
        }


def test_folders_by_source_and_date(tmp_path):
    before = time.gmtime()
    options = {"path": str(tmp_path / "out" / "source={source}" / "date={date}"), "send": "objects"}
    run(sink(tmp_path, **options), sources=("gate", "yard/one"), count=2, above=TEN)
    days = {time.strftime("date=%Y-%m-%d", moment) for moment in (before, time.gmtime())}
    for path in files(tmp_path / "out"):
        assert path.parent.name in days
        source = {row["source"] for row in pq.read_table(path, partitioning=None).to_pylist()}
        assert len(source) == 1
        assert path.parent.parent.name == f"source={source.pop().replace('/', '_')}"
    assert len(files(tmp_path / "out")) >= 2


def test_the_date_folder_of_a_camera_follows_its_clock():
    from streamkit.stages.sinks.parquet import ParquetSink
    from streamkit.testing.kit import frames

    (frame,) = frames(1)
    frame.time_s = 1785542399.9  # 2026-07-31T23:59:59.9Z
    assert ParquetSink(path="out/{date}").values(frame) == ("2026-07-31",)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"path": "out/{sauce}"}, r"path has an unknown variable \{sauce\}; did you mean 'source'"),
        ({"path": "out/{label}"}, r"path has an unknown variable \{label\}"),
        ({"path": "out/x.parquet"}, "path must name a folder, in which files are made; leave .parquet out"),
        ({"path": ""}, "path must be text with names such as"),
        ({"roll": {"every": 0}}, "roll.every must be longer than 0s, got 0s"),
        ({"roll": {"evry": 5}}, "evry"),
        ({"spool": {"age": "1min"}}, r"spool.age must be longer than roll.every, 300s, .* got 60s"),
    ],
)
def test_invalid_options_are_reported_before_the_run(options, why, tmp_path):
    import re

    assert re.search(why, problems({**sink(tmp_path), **options}))


def test_a_missing_package_is_reported(tmp_path, monkeypatch):
    import sys

    from streamkit.core.errors import MissingPackage

    arrow_schema.cache_clear()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingPackage, match=r"stage: parquet needs the package pyarrow; .*\[parquet\]"):
        run(sink(tmp_path))


def test_a_folder_that_cannot_be_created_is_reported_and_records_wait(tmp_path):
    (tmp_path / "out").write_text("a file")
    code, counts, logged = run(sink(tmp_path, drain_timeout=0.2), count=2)
    assert (code, counts["records left in the spool"]) == (0, 4)
    cause = "out: a part of the path is a file where a folder is needed"
    assert any(f"{cause}; rename {tmp_path}/out, or set another path; records wait" in text for text in logged)
    (tmp_path / "out").unlink()
    run(sink(tmp_path), count=1)
    assert len(read(tmp_path / "out")) == 6


def test_common_readers_open_the_files_in_a_line_of_code(tmp_path):
    import duckdb
    import pandas
    import polars

    options = {"path": str(tmp_path / "out" / "{source}"), "send": "objects"}
    run(sink(tmp_path, **options), count=5, above=TEN)
    every = f"{tmp_path}/out/*/*.parquet"
    wanted = [("gate", 50), ("yard", 50)]
    assert duckdb.sql(f"SELECT source, count(*) FROM '{every}' GROUP BY source ORDER BY source").fetchall() == wanted
    counts = polars.read_parquet(every).group_by("source").len().sort("source")
    assert counts.rows() == wanted
    table = pandas.read_parquet(tmp_path / "out")
    assert sorted(table.groupby("source", observed=True).size().items()) == wanted
    assert table["x1"].dtype == np.float64


# ------------------------------------------------------------------------------------------------------------- rolling


def messages(records, first=1, folder="out", name="abc"):
    return [
        Message(f"{name}-{n}", str(folder), "", orjson.dumps({"id": f"{name}-{n}", **record}))
        for n, record in enumerate(records, first)
    ]


def client(tmp_path, every_s=1e9, size=10**9, spool_bytes=10**9):
    writer = ParquetClient(str(tmp_path / "{source}"), "objects", every_s, size, spool_bytes)
    writer.connect()
    return writer


OBJECT = {key: value for key, value in GOOD["an object"].items() if key != "id"}


def test_records_are_acknowledged_once_their_file_is_complete(tmp_path):
    writer = client(tmp_path)
    writer.deliver(messages([OBJECT] * 3, folder=tmp_path / "a"))
    writer.idle()
    assert writer.held == 3
    assert files(tmp_path) == []
    writer.draining = lambda: True
    writer.idle()
    assert writer.held == 0
    assert len(read(tmp_path)) == 3


def test_files_and_folders_are_synced_before_the_acknowledgement(tmp_path, monkeypatch):
    writer = client(tmp_path)
    order = []
    fsync = os.fsync

    def synced(handle):
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        order.append((path.name if path.is_dir() else f"{path.parent.name}/file", writer.held))
        fsync(handle)

    writer.deliver(messages([OBJECT] * 3, folder=tmp_path / "a"))
    writer.deliver(messages([OBJECT] * 2, first=4, folder=tmp_path / "b"))
    monkeypatch.setattr(os, "fsync", synced)
    writer.draining = lambda: True
    writer.idle()
    assert sorted(order[:2]) == [("a/file", 5), ("b/file", 5)]
    assert sorted(order[2:]) == [("a", 5), ("b", 5)]
    assert writer.held == 0


def test_a_file_is_completed_after_its_interval(tmp_path, monkeypatch):
    now_s = [100.0]
    monkeypatch.setattr(parquet.time, "monotonic", lambda: now_s[0])
    writer = client(tmp_path, every_s=60.0)
    for at_s, held in ((100.0, 1), (110.0, 2), (159.99, 3)):
        now_s[0] = at_s
        writer.deliver(messages([OBJECT], first=held, folder=tmp_path / "a"))
        writer.idle()
        assert writer.held == held
    now_s[0] = 160.0
    writer.idle()
    assert (writer.held, len(read(tmp_path))) == (0, 3)
    writer.deliver(messages([OBJECT], first=4, folder=tmp_path / "a"))
    now_s[0] = 219.99
    writer.idle()
    assert writer.held == 1, "the time counts from the first record of a file"
    now_s[0] = 220.0
    writer.idle()
    assert (writer.held, len(read(tmp_path))) == (0, 4)


@pytest.mark.parametrize("limits", [{"every_s": 0.0}, {"spool_bytes": 1}])
def test_a_file_is_completed_early_when_the_spool_is_half_full(limits, tmp_path):
    writer = client(tmp_path, **limits)
    for n in range(3):
        writer.deliver(messages([OBJECT] * 10, first=1 + 10 * n, folder=tmp_path / "a"))
    assert writer.held == 10
    assert [path.stem for path in files(tmp_path)] == ["abc-000000000001-000000000010", "abc-000000000011-000000000020"]


def test_a_file_of_full_size_is_completed_and_the_others_stay_open(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "_GROUP_ROWS", 20)
    writer = client(tmp_path, size=1)
    for n in range(4):
        writer.deliver(messages([OBJECT] * 10, first=1 + 11 * n, folder=tmp_path / "a"))
        writer.deliver(messages([OBJECT], first=11 + 11 * n, folder=tmp_path / "b"))
    assert [path.stem for path in files(tmp_path)] == ["abc-000000000001-000000000021", "abc-000000000023-000000000043"]
    assert writer.held == 44, "records of the other folder, which come between, are not whole"
    writer.close()
    assert leftovers(tmp_path) == []
    again = client(tmp_path)
    again.draining = lambda: True
    for n in range(4):
        again.deliver(messages([OBJECT] * 10, first=1 + 11 * n, folder=tmp_path / "a"))
        again.deliver(messages([OBJECT], first=11 + 11 * n, folder=tmp_path / "b"))
    again.idle()
    assert sorted(int(row["id"].split("-")[1]) for row in read(tmp_path)) == list(range(1, 45)), "each of them once"


def test_memory_and_open_files_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "_WAITING_BYTES", 1000)
    monkeypatch.setattr(parquet, "_OPEN", 5)
    writer = client(tmp_path)
    for n in range(20):
        writer.deliver(messages([OBJECT] * 10, first=1 + 10 * n, folder=tmp_path / f"{n}"))
        assert sum(file.waiting_bytes for file in writer._files.values()) <= 1000
        assert len(leftovers(tmp_path)) <= 5
    assert len(files(tmp_path)) >= 10
    writer.draining = lambda: True
    writer.idle()
    assert len(read(tmp_path)) == 200


def test_partial_files_of_a_crash_are_removed_and_those_of_others_stay(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / ".abc-000000000001.parquet.1234.part").write_bytes(b"half")
    (folder / ".other-000000000001.parquet.1234.part").write_bytes(b"half")
    (folder / "abc-of-mine.parquet").write_bytes(b"of the user")
    writer = client(tmp_path, every_s=0.0)
    writer.deliver(messages([OBJECT], folder=folder))
    assert [path.name for path in leftovers(folder)] == [".other-000000000001.parquet.1234.part"]


@pytest.mark.parametrize("rows", [1, 100])
def test_a_file_that_cannot_be_completed_loses_no_record(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "_GROUP_ROWS", rows)  # with 1, a group has been started
    writer = client(tmp_path, every_s=0.0)
    writer.deliver(messages([OBJECT], folder=tmp_path / "a"))
    shutil.rmtree(tmp_path / "a", ignore_errors=True)
    (tmp_path / "a").write_text("in the way")
    with pytest.raises(SendError, match="a part of the path is a file where a folder is needed"):
        writer.idle()
    assert writer.held == 1
    writer.close()
    (tmp_path / "a").unlink()
    writer.deliver(messages([OBJECT], folder=tmp_path / "a"))
    writer.idle()
    assert len(read(tmp_path)) == 1


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("adrc"), st.integers(1, 7)), max_size=25), st.randoms(use_true_random=False))
def test_each_record_is_written_once_in_any_order_of_deliveries_rolls_and_crashes(tmp_path_factory, steps, chance):
    """`d` delivers, `r` rolls, `a` settles what is whole, `c` is a crash: what was not acknowledged comes again."""
    folder = tmp_path_factory.mktemp("any")
    writer = client(folder)
    acknowledged = 0
    next_ = 1
    end = 1
    for step, n in [*steps, ("d", 0), ("r", 1)]:
        n = n or end + 1 - next_  # at the end all of them
        if step == "d":
            for number in range(next_, next_ + n):
                writer.deliver(messages([OBJECT], first=number, folder=folder / str(number % 2)))
            next_ += n
            end = max(end, next_)
        elif step == "r":
            writer._roll_if_due(True)
        elif step == "a":
            acknowledged = max(acknowledged, next_ - 1 - writer.held)
        else:
            if chance.random() < 0.5 and writer._files:  # in the midst of a roll
                next(iter(writer._files.values())).finish()
            writer.close()
            writer = client(folder)
            next_ = acknowledged + 1
    assert sorted(int(row["id"].split("-")[1]) for row in read(folder)) == list(range(1, next_))
    shutil.rmtree(folder)


# -------------------------------------------------------------------------------------------------------------- killed


class Folder(Place):
    """A folder of files; what goes wrong with it is that a file stands in its place for a while."""

    kind = "parquet"

    def options(self, password=None):
        return {"path": f"{self.folder}/out/{{source}}", "roll": {"every": 0.15}}

    def restart(self):
        (self.folder / "out").rename(self.folder / "away")
        (self.folder / "out").write_text("in the way")
        time.sleep(0.4)
        (self.folder / "out").unlink()
        (self.folder / "away").rename(self.folder / "out")

    def received(self):
        return [{key: row[key] for key in ("id", "source", "frame")} for row in read(self.folder / "out")]


def test_a_killed_pipeline_writes_each_record_once(tmp_path):
    _, repeats = survive(Folder(tmp_path), tmp_path, broker_kills=0, pipeline_kills=1, rate=1000)
    assert repeats == 0


def test_records_wait_for_a_folder_that_was_removed(tmp_path):
    there = Folder(tmp_path)
    life = Life(with_spool(there, tmp_path, max_backoff="500ms", drain_timeout="1h"), ["gate"], 1500, 1000)
    life.wait_for_first()
    deadline_s = time.monotonic() + 60
    while not files(tmp_path) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    there.restart()
    assert life.end() == 0
    assert "are left in" not in life.logged, life.logged
    assert [row["frame"] for row in there.received()] == list(range(1500))
    assert leftovers(tmp_path / "out") == []


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_each_record_is_written_once_after_twenty_kills_at_2000_records_a_second(tmp_path):
    seed = random.randrange(10**6)
    there = Folder(tmp_path)
    records, repeats = survive(
        there, tmp_path, broker_kills=20, pipeline_kills=20, rate=2000, shortest_s=0.2, longest_s=1.5, seed=seed
    )
    print(f"\nparquet: {records} records, {repeats} repeats, {len(files(tmp_path))} files, seed {seed}")
    assert repeats == 0
    assert records > 20_000
