"""Parquet files: whole or not there, in row groups, under a name that may be known at the end only."""

import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamkit.core.errors import MissingPackage, OutputError
from streamkit.io.parquet_file import TableFile, arrow

SCHEMA = pa.schema([("source", pa.string()), ("n", pa.int64())])


def rows(*numbers):
    return pa.table({"source": ["gate"] * len(numbers), "n": numbers}, SCHEMA)


def test_a_parquet_file_appears_when_complete(tmp_path):
    file = TableFile(tmp_path / "a.parquet", SCHEMA)
    assert file.size_bytes == 0
    file.write(rows(1, 2))
    assert [path.suffix for path in tmp_path.iterdir()] == [".part"]
    assert file.size_bytes > 0
    file.write(rows(3))
    file.finish()
    assert os.listdir(tmp_path) == ["a.parquet"]
    parquet_file = pq.ParquetFile(tmp_path / "a.parquet")
    assert parquet_file.num_row_groups == 2
    assert parquet_file.read().column("n").to_pylist() == [1, 2, 3]


def test_a_parquet_file_may_be_renamed(tmp_path):
    file = TableFile(tmp_path / "1.parquet", SCHEMA)
    file.write(rows(1))
    file.finish("1-9.parquet")
    assert os.listdir(tmp_path) == ["1-9.parquet"]


def test_a_discarded_parquet_file_leaves_nothing(tmp_path):
    def abandoned():
        with TableFile(tmp_path / "a.parquet", SCHEMA) as file:
            file.write(rows(1))
            raise KeyError

    with pytest.raises(KeyError):
        abandoned()
    assert os.listdir(tmp_path) == []


def test_a_parquet_file_without_rows_is_not_created(tmp_path):
    with TableFile(tmp_path / "a.parquet", SCHEMA):
        pass
    assert os.listdir(tmp_path) == []


def test_each_failed_write_is_reported(tmp_path):
    (tmp_path / "a").write_text("a file")
    file = TableFile(tmp_path / "a" / "b.parquet", SCHEMA)
    with pytest.raises(OutputError, match=r"b\.parquet: a part of the path is a file where a folder is needed"):
        file.write(rows(1))
    file.discard()


def test_missing_pyarrow_is_reported_with_the_stage_that_needs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingPackage, match=r"stage: parquet needs the package pyarrow"):
        arrow("stage: parquet")
