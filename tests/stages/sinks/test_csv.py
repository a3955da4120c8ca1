import csv
import os

import numpy as np
import pytest

from streamkit.core.data import Detections, Frame
from streamkit.core.errors import OutputError
from streamkit.core.stage import Context
from streamkit.stages.sinks.csv import COLUMNS, CsvSink


def table(n, labels=("car",), tracked=True):
    return Detections(
        np.tile(np.array([[1, 2, 3.456, 400]], np.float32), (n, 1)),
        np.full(n, 0.5, np.float32),
        np.zeros(n, np.int32),
        track_id=np.arange(n) - 1 if tracked else None,
        labels=labels,
    )


def sink(path, **options):
    csv_sink = CsvSink(path=str(path), **options)
    csv_sink.context = Context(id="csv")
    csv_sink.open()
    return csv_sink


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_each_object_is_a_row(tmp_path):
    path = tmp_path / "a.csv"
    out = sink(path)
    out.write(Frame("street", 0, 0.0, 64, 48, tables={"detect": table(2)}))
    out.write(Frame("street", 1, 0.04, 64, 48, tables={"detect": Detections.empty()}))
    out.write(Frame("street", 2, 0.08, 64, 48, tables={"a": table(1), "b": table(1, ('a "b", c',), tracked=False)}))
    out.write(Frame("street", 3, 0.12, 64, 48, error="detect\nfailed"))
    assert not path.exists()
    out.close()
    assert path.read_text().splitlines()[0] == ",".join(COLUMNS)
    rows = read(path)
    assert rows[0] == {
        "source": "street",
        "frame": "0",
        "pts_s": "0.0",
        "label": "car",
        "class_id": "0",
        "score": "0.5",
        "x1": "1.0",
        "y1": "2.0",
        "x2": "3.46",
        "y2": "48.0",
        "track_id": "",
        "stage": "detect",
        "time": "",
        "error": "",
    }
    assert [(r["frame"], r["track_id"], r["stage"], r["label"]) for r in rows[1:]] == [
        ("0", "0", "detect", "car"),
        ("1", "", "", ""),
        ("2", "", "a", "car"),
        ("2", "", "b", 'a "b", c'),
        ("3", "", "", ""),
    ]
    assert rows[-1]["error"] == "detect failed"
    assert len(path.read_text().splitlines()) == 1 + len(rows), "a row is a line"


def test_a_run_without_frames_writes_a_header(tmp_path):
    sink(tmp_path / "a.csv").close()
    assert (tmp_path / "a.csv").read_text() == ",".join(COLUMNS) + "\n"


def test_a_camera_appends_without_a_second_header(tmp_path):
    path = tmp_path / "a.csv"
    for run in range(2):
        out = sink(path)
        out.write(Frame("gate", run, 0.0, 64, 48, tables={"detect": table(1)}, time_s=0.0))
        out.end("gate")
        assert len(read(path)) == run + 1
        out.close()
    assert [row["frame"] for row in read(path)] == ["0", "1"]
    assert read(path)[0]["time"] == "1970-01-01T00:00:00.000Z"


def test_a_torn_row_is_removed_and_a_different_file_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(",".join(COLUMNS) + "\nstreet,0,0.0,c")
    out = sink(path, if_exists="append")
    out.write(Frame("street", 1, 0.04, 64, 48))
    out.close()
    assert [row["frame"] for row in read(path)] == ["1"]
    path.write_text("a,b\n1,2\n")
    with pytest.raises(OutputError, match="header"):
        sink(path, if_exists="append")
    assert path.read_text() == "a,b\n1,2\n"


def test_each_rotated_file_has_the_header(tmp_path):
    out = sink(tmp_path / "a.csv", rotate={"size": 200})
    for i in range(6):
        out.write(Frame("street", i, i / 25, 64, 48, tables={"detect": table(1)}))
    out.close()
    files = sorted(os.listdir(tmp_path))
    assert len(files) > 1
    assert sum(len(read(tmp_path / name)) for name in files) == 6


def test_rows_are_written_to_standard_output(capfdbinary):
    out = sink("-")
    out.write(Frame("street", 1, 0.04, 64, 48))
    out.close()
    assert capfdbinary.readouterr().out.decode().splitlines() == [",".join(COLUMNS), "street,1,0.04" + "," * 11]


def test_invalid_options_are_refused():
    with pytest.raises(ValueError, match="placeholder"):
        CsvSink(path="{x}.csv")
    with pytest.raises(ValueError, match="standard output"):
        CsvSink(path="-", rotate={"size": 5})


FORMULAS = [
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    " =1",
    "=cmd|'/C calc'!A0",
    "\uff1d1",
    "\uff0b1",
    "\uff0d1",
    "\uff201",
]
PLAIN = ["car", "a=1", "1-2", "'=1", "", "(1)", "é"]


@pytest.mark.parametrize("text", [*FORMULAS, *PLAIN])
@pytest.mark.parametrize("guarded", [True, False])
def test_spreadsheet_formulas_are_escaped_by_option(text, guarded, tmp_path):
    path = tmp_path / "a.csv"
    out = sink(path, escape_formulas=True) if guarded else sink(path)
    out.write(Frame(text, 0, -0.5, 64, 48, tables={text: table(1, labels=(text,))}))
    out.write(Frame(text, 1, 0.0, 64, 48, error=text))
    out.close()
    row, failed = read(path)
    plain = " ".join(text.split())
    wanted = " ".join(f"'{text}".split()) if guarded and text in FORMULAS else plain
    assert (row["label"], row["source"], row["stage"]) == (wanted, wanted, wanted)
    assert failed["error"] == wanted
    assert (row["pts_s"], row["x1"], row["track_id"]) == ("-0.5", "1.0", ""), "numbers are numbers"
