import os
import resource
import shutil
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.archives import opened

from benchmarks.query import TRUCKS, make, seconds_of
from streamkit.core.errors import ConfigError, OutputError
from streamkit.query import index as index_module
from streamkit.query.dataset_location import DatasetLocation
from streamkit.query.index import NAME, index_of


def count(folder, sql):
    with opened(folder) as database:
        return database.fetch(sql)[0][0]


def keys(folder):
    with opened(folder) as database:
        return {
            table: sorted(key for (key,) in database.fetch(f"SELECT DISTINCT key FROM {table}"))
            for table in ("files", "frames", "objects")
        }


@pytest.fixture
def small(tmp_path):
    make(tmp_path / "small", 5, 10, 30)
    return tmp_path / "small"


def name(number):
    return f"cam-{number:016x}"


def test_an_index_has_all_rows_of_all_tables(small):
    for table in ("files", "frames", "objects", "events"):
        assert count(small, f"SELECT count(*) FROM {table}") == pq.read_table(small / table).num_rows
    assert [path.name for path in small.iterdir() if path.name.startswith((".", "index"))] == [NAME]


def test_an_up_to_date_index_is_used_without_reading_tables(small, monkeypatch):
    path = index_of(DatasetLocation(str(small)))
    before = path.stat()

    def fails(*_):
        raise AssertionError("a table was read")

    monkeypatch.setattr(DatasetLocation, "parts", fails)
    with opened(small) as database:
        assert len(list(database.where("count_of('car') >= 2"))) > 0
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_the_index_follows_the_data_set(small, monkeypatch):
    first = [name(number) for number in range(5)]
    assert keys(small) == dict.fromkeys(("files", "frames", "objects"), first)
    make(small, 2, 10, 30, first=5)
    read = []
    parts = DatasetLocation.parts
    monkeypatch.setattr(DatasetLocation, "parts", lambda *a: read.append(a[2]) or parts(*a))
    assert keys(small)["objects"] == [name(number) for number in range(7)]
    assert {tuple(paths) for paths in read} == {(name(5), name(6)), ()}, "only the new parts are read; none has events"

    for table in ("objects", "frames", "files"):
        (small / table / f"{name(0)}.parquet").unlink()
    row = small / "files" / f"{name(1)}.parquet"
    part = small / "objects" / row.name
    pq.write_table(pq.read_table(part).slice(0, 4), part)
    pq.write_table(pq.read_table(row), row)  # batch writes it again, last
    assert keys(small)["files"] == keys(small)["frames"] == [name(number) for number in range(1, 7)]
    assert count(small, f"SELECT count(*) FROM objects WHERE key = '{name(1)}'") == 4
    assert count(small, f"SELECT sum(map_values(counts).list_sum()) FROM frames WHERE key = '{name(1)}'") == 4
    assert count(small, "SELECT count(*) FROM objects") == 4 + 5 * 30


def test_hidden_files_in_a_table_are_not_read(small):
    (small / "files" / f"._{name(0)}.parquet").write_bytes(b"a file manager wrote this")
    assert keys(small)["files"] == [name(number) for number in range(5)]


def test_a_data_set_may_start_empty(small, tmp_path):
    empty = tmp_path / "empty"
    make(empty, 0, 1, 1)
    assert count(empty, "SELECT count(*) FROM files") == 0
    make(empty, 1, 10, 30)
    assert keys(empty)["objects"] == [name(0)]


def test_a_foreign_or_damaged_index_is_rebuilt(small):
    keys(small)
    text = (small / "streamkit.json").read_text()
    (small / "streamkit.json").write_text(text.replace("0123456789abcdef", "fedcba9876543210"))
    for table in ("objects", "frames", "files", "events"):
        for path in (small / table).glob("cam*"):
            path.unlink()
    make_again = text.replace("0123456789abcdef", "fedcba9876543210")
    make(small, 1, 10, 30, first=9)
    (small / "streamkit.json").write_text(make_again)
    assert keys(small)["files"] == [name(9)]
    (small / NAME).write_bytes(b"no database" * 1000)
    assert keys(small)["files"] == [name(9)]


@pytest.mark.parametrize("changed", ["pipeline", "format", "nothing"])
def test_an_index_of_another_pipeline_or_format_is_not_used(small, changed):
    """The tables are unchanged, but the index holds other rows than they do."""
    path = index_of(DatasetLocation(str(small)))
    with index_module.duckdb().connect(str(path)) as database:
        database.execute("UPDATE files SET source = 'stale'")
        if changed != "nothing":
            setting = "pipeline = 'another'" if changed == "pipeline" else "format = 1"
            database.execute(f"UPDATE index_about SET {setting}")
    sources = count(small, "SELECT list(DISTINCT source) FROM files")
    assert (sources == ["stale"]) == (changed == "nothing")


def test_a_killed_query_leaves_the_old_index_and_its_leftovers_are_removed(small, monkeypatch):
    index_of(DatasetLocation(str(small)))
    make(small, 1, 10, 30, first=5)

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(index_module, "_add", interrupt)
        patched.setattr(index_module.shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            index_of(DatasetLocation(str(small)))
    (unfinished,) = small.glob(".index-*.part")
    with index_module.duckdb().connect(str(small / NAME), read_only=True) as database:
        assert database.execute("SELECT count(*) FROM files").fetchone() == (5,)
    assert len(keys(small)["files"]) == 6
    assert unfinished.exists(), "another query may still be writing it"
    make(small, 1, 10, 30, first=6)
    for path in (unfinished, *unfinished.iterdir()):
        os.utime(path, (time.time() - 4000,) * 2)
    assert len(keys(small)["files"]) == 7
    assert not unfinished.exists()


@pytest.fixture
def limit_file_size():
    """Return a function that limits the size of the files that this process writes, in bytes, until the test ends."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda limit: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("limit", [1_000, 8_000, 100_000], ids=["opening", "commit", "checkpoint"])
def test_a_full_disk_is_reported_with_the_index_and_leaves_no_partial_file(small, limit_file_size, limit):
    limit_file_size(limit)
    with pytest.raises(
        OutputError, match=f"cannot write {small / NAME}: .*File too large.*; make sure that its disk has space"
    ):
        index_of(DatasetLocation(str(small)))
    assert not [path.name for path in small.iterdir() if path.name.startswith((".", "index"))]


def test_frames_of_a_data_set_without_a_table_of_frames_are_those_with_objects(small):
    frames = {(row["key"], row["frame"]) for row in pq.read_table(small / "objects").to_pylist()}
    shutil.rmtree(small / "frames")
    assert count(small, "SELECT count(*) FROM frames") == len(frames) < 50
    assert count(small, "SELECT sum(objects) FROM frames") == 150
    assert count(small, "SELECT count(*) FROM frames WHERE width = 1920 AND pts_s = frame / 25") == len(frames)


def test_a_folder_without_a_data_set_is_refused(small, tmp_path):
    for location, message in (
        (str(tmp_path / "gone"), "there is no such folder; give the --out of a batch run"),
        (str(tmp_path), "is no data set: it has no streamkit.json"),
        ("rtsp://host/a", "batch processes files"),
    ):
        with pytest.raises(ConfigError, match=message):
            DatasetLocation(location)
    text = (small / "streamkit.json").read_text()
    (small / "streamkit.json").write_text(text.replace('["parquet"]', '["coco"]'))
    with pytest.raises(ConfigError, match="has no tables: run batch with --format parquet"):
        DatasetLocation(str(small))
    (small / "streamkit.json").write_text("{}")
    with pytest.raises(ConfigError, match="is not the description of a data set"):
        DatasetLocation(str(small))


def test_a_damaged_table_is_named(small):
    part = small / "objects" / f"{name(3)}.parquet"
    part.write_bytes(part.read_bytes()[:-20])
    with pytest.raises(ConfigError, match=rf"a table is damaged, and batch repairs it: .*{name(3)}"):
        index_of(DatasetLocation(str(small)))
    assert not (small / NAME).exists()


def test_a_data_set_on_s3_is_indexed_in_the_cache(small, s3, bucket, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def upload(*paths):
        for path in paths:
            s3.put_object(Bucket=bucket, Key=f"set/{path.relative_to(small).as_posix()}", Body=path.read_bytes())

    upload(*(path for path in small.rglob("*") if path.is_file()))
    assert keys("s3://gates/set")["frames"] == [name(number) for number in range(5)]
    (index,) = (tmp_path / "cache" / "streamkit" / "index").iterdir()
    before = index.stat().st_mtime_ns
    assert len(keys("s3://gates/set/")["frames"]) == 5
    assert index.stat().st_mtime_ns == before
    row = small / "files" / f"{name(0)}.parquet"
    table = pq.read_table(row)
    pq.write_table(table.set_column(table.schema.get_field_index("fps"), "fps", pa.array([12.5])), row)
    upload(row)
    assert count("s3://gates/set", f"SELECT fps FROM files WHERE key = '{name(0)}'") == 12.5


@pytest.mark.long
@pytest.mark.alone
@pytest.mark.timeout(900)
def test_a_query_over_ten_thousand_videos_takes_under_two_seconds(tmp_path):
    make(tmp_path / "archive", 10_000, 150, 300)
    index_of(DatasetLocation(str(tmp_path / "archive")))
    took_s = [seconds_of(tmp_path / "archive", f"SELECT key, frame FROM frames WHERE {TRUCKS}") for _ in range(3)]
    assert min(took_s) < 2.0
