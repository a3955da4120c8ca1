"""The result of a query in each format: its values, and where it goes."""

import csv
import datetime
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamkit.core.errors import ConfigError
from streamkit.query.result_files import format_of, opened, shown

COUNTS = pa.map_(pa.string(), pa.int32())
SCHEMA = pa.schema([("name", pa.string()), ("counts", COUNTS), ("share", pa.float64()), ("at", pa.timestamp("us"))])
NOON = datetime.datetime(2026, 1, 2, 12, 30)
ROWS = [("gate", {"car": 2, "bus": 1200}, 0.1 + 0.2, NOON), (None, {}, None, None)]


def write(form, rows=ROWS, *, out=None, limit=None, schema=SCHEMA):
    with opened(form, out, schema, limit) as writer:
        for row in rows:
            writer.add(row)


@pytest.mark.parametrize(
    ("option", "out", "form"),
    [
        (None, None, "table"),
        ("table", None, "table"),
        ("csv", None, "csv"),
        (None, "a.CSV", "csv"),
        (None, "a.json", "json"),
        (None, "a.parquet", "parquet"),
        ("json", "a.csv", "json"),
        ("csv", "a.table", "csv"),
    ],
)
def test_the_format_is_the_option_or_the_file_suffix(option, out, form):
    assert format_of(option, None if out is None else Path(out)) == form


@pytest.mark.parametrize(
    ("option", "out", "text"),
    [
        (None, "a.txt", "give --format csv, json or parquet"),
        (None, "a.table", "give --format csv, json or parquet"),
        (None, "a", "give --format csv, json or parquet"),
        ("table", "a.csv", "a table is for the terminal"),
        ("parquet", None, "--format parquet needs a file"),
    ],
)
def test_conflicting_formats_are_refused(option, out, text):
    with pytest.raises(ConfigError, match=text):
        format_of(option, None if out is None else Path(out))


def cells(text):
    """The cells of the table's rows."""
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]


def test_a_table_formats_values_for_people(capsys):
    write("table")
    text = capsys.readouterr().out
    assert cells(text) == [["gate", "car 2, bus 1,200", "0.3", "2026-01-02 12:30:00"], ["", "", "", ""]]
    assert [word.strip() for word in text.splitlines()[1].split("┃")[1:-1]] == ["name", "counts", "share", "at"]
    assert text.endswith("\n2 rows\n")


@pytest.mark.parametrize(
    ("rows", "limit", "shown_rows", "line"),
    [
        (1, None, 1, "1 row"),
        (0, None, 0, "0 rows"),
        (50, None, 50, "50 rows"),
        (51, None, 50, "51 rows, of which the first 50 are shown; --limit 0 shows all"),
        (3, 2, 2, "3 rows, of which the first 2 are shown; --limit 0 shows all"),
        (2, 2, 2, "2 rows"),
        (1200, 0, 1200, "1,200 rows"),
    ],
)
def test_a_table_shows_a_limited_number_of_rows(capsys, rows, limit, shown_rows, line):
    write("table", [(n,) for n in range(rows)], limit=limit, schema=pa.schema([("n", pa.int64())]))
    text = capsys.readouterr().out
    assert [int(cell) for (cell,) in cells(text)] == list(range(shown_rows))
    assert text.splitlines()[-1] == line


def test_control_characters_do_not_reach_the_terminal(capsys):
    write("table", [("a\x1b[2Jb\nc",)], schema=pa.schema([("na\x07me", pa.string())]))
    text = capsys.readouterr().out
    assert "a\\x1b[2Jb\\nc" in text
    assert "na\\x07me" in text


def test_a_piped_wide_table_is_not_folded(capsys):
    write("table", [("x" * 900,)], schema=pa.schema([("name", pa.string())]))
    assert "x" * 900 in capsys.readouterr().out


@pytest.mark.parametrize("piped", [True, False])
def test_csv_has_nested_values_as_json(tmp_path, capfdbinary, piped):
    out = None if piped else tmp_path / "a.csv"
    write("csv", out=out)
    data = capfdbinary.readouterr().out if piped else out.read_bytes()
    assert data == (
        b'name,counts,share,at\r\ngate,"{""car"":2,""bus"":1200}",0.30000000000000004,2026-01-02 12:30:00\r\n,{},,\r\n'
    )


def test_a_long_csv_is_complete(tmp_path):
    rows = [(f"{n:05}", {}, float(n), NOON) for n in range(5000)]
    write("csv", rows, out=tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    assert [row["name"] for row in read] == [row[0] for row in rows]


def test_text_that_utf_8_does_not_have_is_escaped_in_csv(tmp_path):
    write("csv", [("\ud800",)], out=tmp_path / "a.csv", schema=pa.schema([("name", pa.string())]))
    assert (tmp_path / "a.csv").read_bytes() == b"name\r\n\\ud800\r\n"


@pytest.mark.parametrize("piped", [True, False])
def test_json_has_an_object_per_line(tmp_path, capfdbinary, piped):
    out = None if piped else tmp_path / "a.json"
    write("json", out=out)
    data = capfdbinary.readouterr().out if piped else out.read_bytes()
    assert data == (
        b'[\n{"name":"gate","counts":{"car":2,"bus":1200},"share":0.30000000000000004,"at":"2026-01-02T12:30:00"},\n'
        b'{"name":null,"counts":{},"share":null,"at":null}\n]\n'
    )
    assert len(json.loads(data)) == 2


def test_json_without_rows_is_an_empty_array(tmp_path):
    write("json", [], out=tmp_path / "a.json")
    assert (tmp_path / "a.json").read_bytes() == b"[]\n"


def test_parquet_has_the_types_of_the_result(tmp_path):
    rows = [(f"{n:05}", {"car": n}, n / 4, NOON) for n in range(9000)]
    write("parquet", rows, out=tmp_path / "a.parquet")
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.schema.equals(SCHEMA)
    assert table["name"].to_pylist() == [row[0] for row in rows]
    assert table["counts"][8999].as_py() == [("car", 8999)]
    assert pq.ParquetFile(tmp_path / "a.parquet").metadata.num_row_groups == 3  # of 4,096 rows at most


def test_a_struct_stays_a_struct_in_parquet(tmp_path):
    schema = pa.schema([("point", pa.struct([("x", pa.int32())]))])
    write("parquet", [({"x": 3},)], out=tmp_path / "a.parquet", schema=schema)
    assert pq.read_table(tmp_path / "a.parquet").to_pylist() == [{"point": {"x": 3}}]


def test_a_file_appears_only_if_the_query_succeeds(tmp_path):
    for form in ("csv", "json", "parquet"):
        with pytest.raises(TypeError):
            write(form, [ROWS[0], 3], out=tmp_path / f"a.{form}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (None, ""),
        ({"car": 1, "bus": 1234}, "car 1, bus 1,234"),
        ({}, ""),
        ({"x": 0.5}, '{"x":0.5}'),
        ([1, None], "[1,null]"),
        (1 / 3, "0.3333333333"),
        (1e20, "1e+20"),
        (7, "7"),
        (True, "True"),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (NOON, "2026-01-02 12:30:00"),
        ("text", "text"),
    ],
)
def test_cells_are_formatted_for_people(cell, text):
    assert shown(cell) == text


def test_standard_output_may_be_replaced(monkeypatch):
    replaced = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr("sys.stdout", replaced)
    write("csv", [])
    assert replaced.buffer.getvalue() == b"name,counts,share,at\r\n"
