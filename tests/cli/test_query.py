"""`run.py query` and `run.py export` as a user meets them: what they print and write, and the mistakes people make."""

import csv
import io
import json
import shutil
import sys

import cv2
import pyarrow.parquet as pq
import pytest
from support.archives import archive, shared_archive  # noqa: F401  fixtures

WHERE = "count_of('person') >= 9 AND count_of('bike') = 3"


@pytest.fixture
def run(here, archive, tmp_path):  # noqa: F811
    """Run a command on the data set `archive`."""

    def call(command, *words):
        return here(command, "archive", *words, cwd=tmp_path)

    return call


def frames_in(done):
    return [int(row["frame"]) for row in csv.DictReader(io.StringIO(done.stdout))]


def test_query_without_sql_lists_tables_and_labels(run):
    completed = run("query")
    assert completed.returncode == 0
    assert "frames             40 rows   key, source, frame, pts_s, counts" in completed.stdout
    assert "labels   person " in completed.stdout


def test_a_table_shows_fifty_rows_and_counts_all(run):
    completed = run("query", "SELECT frame FROM objects")
    assert completed.stdout.count("│") == 50 * 2
    assert ", of which the first 50 are shown; --limit 0 shows all" in completed.stdout
    completed = run("query", "--where", WHERE, "--limit", "2")
    assert "bike 3, car 3, person 9" in completed.stdout
    assert "2 rows\n" in completed.stdout
    assert "1 row\n" in run("query", "SELECT 1.5 AS a, NULL AS b, [1] AS c").stdout


def test_all_formats_have_the_same_rows(run, tmp_path):
    plain = run("query", "--where", WHERE, "--format", "csv")
    frames = frames_in(plain)
    assert 0 < len(frames) < 40
    assert json.loads(next(csv.DictReader(io.StringIO(plain.stdout)))["counts"])["bike"] == 3
    assert [row["frame"] for row in json.loads(run("query", "--where", WHERE, "--format", "json").stdout)] == frames
    assert json.loads(run("query", "--where", "frame < 0", "--format", "json").stdout) == []
    for name in ("a.csv", "a.json", "a.parquet", "b/c.parquet"):
        completed = run("query", "--where", WHERE, "--out", name)
        assert (completed.returncode, completed.stdout) == (0, "")
    with (tmp_path / "a.csv").open(newline="") as file:
        assert [int(row["frame"]) for row in csv.DictReader(file)] == frames
    assert [row["frame"] for row in json.loads((tmp_path / "a.json").read_text())] == frames
    table = pq.read_table(tmp_path / "a.parquet")
    assert table["frame"].to_pylist() == frames
    assert dict(table["counts"][0].as_py())["bike"] == 3


def test_a_query_that_fails_leaves_no_file(run, tmp_path):
    completed = run("query", "SELECT CAST(source AS INTEGER) FROM frames", "--out", "a.csv")
    assert completed.returncode == 2
    assert "Could not convert" in completed.stderr
    assert "Traceback" not in completed.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]


def test_images_are_those_of_the_result(run, tmp_path, shared_archive):  # noqa: F811
    completed = run("query", "--where", "frame IN (3, 8)", "--pictures", "plain")
    assert (completed.returncode, "2 images in plain" in completed.stderr) == (0, True)
    plain = sorted((tmp_path / "plain").iterdir())
    assert [path.name[-11:] for path in plain] == ["-000003.jpg", "-000008.jpg"]
    run("query", "SELECT key, frame FROM frames", "--limit", "1", "--pictures", "drawn", "--draw")
    (drawn,) = (tmp_path / "drawn").iterdir()
    images = [cv2.imread(str(path)) for path in (plain[0], drawn)]
    assert images[0].shape == images[1].shape == (360, 640, 3)
    assert (images[0] != images[1]).any(axis=2).mean() > 0.02
    again = run("query", "--where", "true", "--pictures", "plain")
    assert (again.returncode, again.stdout, again.stderr) == (2, "", "plain is not empty; give another folder\n")


@pytest.mark.parametrize("form", ["coco", "yolo", "cvat", "label-studio"])
def test_an_export_is_a_folder_with_images_and_annotations(run, tmp_path, form):
    completed = run("export", "--where", WHERE, "--format", form, "--out", "out", "--limit", "3", "--images", "png")
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, "", "3 frames in out\n")
    out = tmp_path / "out"
    files = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    images = {name for name in files if name.startswith("images/") and name.endswith(".png")}
    stems = {name.removeprefix("images/").removesuffix(".png") for name in images}
    others = {
        "coco": {"annotations/instances_default.json"},
        "cvat": {"annotations.xml"},
        "label-studio": {"tasks.json", "label_config.xml"},
        "yolo": {"data.yaml", *(f"labels/{stem}.txt" for stem in stems)},
    }
    assert len(images) == 3
    assert files == images | others[form]
    assert not list(tmp_path.glob(".*"))


def test_missing_videos_are_named_and_the_others_are_exported(run, tmp_path, archive):  # noqa: F811
    rows = {path: pq.read_table(path) for path in (archive / "files").glob("street-*")}
    for path, table in rows.items():  # a second video, which is gone
        key = path.stem.replace("street-", "away-")
        for name in ("objects", "frames", "events"):
            part = archive / name / path.name
            if part.exists():
                shutil.copyfile(part, part.with_name(f"{key}.parquet"))
                moved(part.with_name(f"{key}.parquet"), key=key, source="away.mp4")
        pq.write_table(table, path.with_name(f"{key}.parquet"))
        moved(path.with_name(f"{key}.parquet"), key=key, source="away.mp4", path="/gone/away.mp4")
    completed = run("export", "--where", "frame < 2", "--format", "coco", "--out", "out")
    assert completed.returncode == 1
    assert completed.stderr == (
        "2 frames in out\n2 frames of 1 videos could not be read:\n  away.mp4: /gone/away.mp4: there is no such file\n"
    )
    assert len(list((tmp_path / "out" / "images").iterdir())) == 2
    completed = run("export", "--where", "source = 'away.mp4'", "--format", "coco", "--out", "none")
    assert (completed.returncode, completed.stderr) == (
        2,
        "none of the 40 selected frames has an image: away.mp4: /gone/away.mp4: there is no such file\n",
    )
    assert not (tmp_path / "none").exists()


def moved(part, **values):
    table = pq.read_table(part)
    for name, value in values.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(place), [[value] * table.num_rows])
    pq.write_table(table, part)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("query", "--where", "count_of('cra') > 1"), "there is no label 'cra' in this data set; did you mean 'car'?"),
        (("query", "SELECT 1", "--where", "true"), "give a SELECT or --where, not both; a SELECT has its own WHERE"),
        (("query", "--draw", "--where", "true"), "--draw needs --pictures FOLDER"),
        (("query", "--out", "a.csv"), "give a SELECT, --where or --like: without them the tables are shown"),
        (("query", "SELECT 1", "--out", "a.txt"), "--out a.txt: give --format csv, json or parquet, or a file with"),
        (("query", "SELECT 1", "--format", "parquet"), "--format parquet needs a file: add --out FILE.parquet"),
        (("query", "SELECT 1", "--format", "table", "--out", "a.csv"), "--out a.csv: a table is for the terminal"),
        (("query", "SELECT source, frame FROM frames", "--pictures", "a"), "got source, frame; add key to the SELECT"),
        (
            ("query", "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b", "--timeout", "300ms"),
            "the query took longer than 0.3 s: select less, or give it more time",
        ),
        (("query", "SELECT 1", "--timeout", "soon"), "--timeout must be a duration such as 10s"),
        (("query", "SELECT DATE '20000-01-01' AS day"), "the column day has a date before the year 1 or after 9999"),
        (("query", "--where", "count_of('car', 1, 2)"), "count_of takes a label and optionally a minimum score, got 3"),
        (("export", "--format", "coco", "--out", "a"), "give --where or a SELECT: they select the frames"),
        (("export", "--where", "frame < 0", "--format", "yolo", "--out", "a"), "the query selects no frame"),
        (("export", "--where", "true", "--format", "coco", "--out", "archive"), "archive is not empty; give another"),
        (("export", "--where", "true", "--format", "voc", "--out", "a"), "'voc' is not one of 'coco', 'yolo', 'cvat'"),
    ],
)
def test_errors_are_explained(run, tmp_path, words, message):
    completed = run(*words)
    assert completed.returncode == 2
    assert message in completed.stderr
    assert "Traceback" not in completed.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]


def test_files_without_a_table_of_frames_are_counted(run, archive):  # noqa: F811
    assert run("query", "--where", "true").stderr == ""
    shutil.rmtree(archive / "frames")
    for path in (archive / "files").glob("street-*"):
        moved(path, status="done")
    completed = run("query", "--where", "true")
    assert "40 rows" in completed.stdout
    assert completed.stderr == ""  # every frame of this video has an object
    bare = min(set(range(40)) - set(pq.read_table(archive / "events")["frame"].to_pylist()))
    for path in (archive / "objects").glob("street-*"):
        table = pq.read_table(path)
        pq.write_table(table.filter([frame != bare for frame in table["frame"].to_pylist()]), path)
    for path in (archive / "files").glob("street-*"):
        moved(path, status="done")
    completed = run("query", "--where", "true")
    assert "39 rows" in completed.stdout
    assert completed.stderr.startswith(
        "files whose processing kept no table of frames: 1; only their frames with objects"
    )


def test_a_missing_package_is_named_with_its_extra(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    completed = run("query", "--where", "true")
    assert completed.returncode == 2
    assert "streamkit query needs the package duckdb; install it with: python -m pip install -e '" in completed.stderr
    assert "[query]'" in completed.stderr


def test_a_folder_without_a_data_set_is_refused(here, tmp_path):
    completed = here("query", "gone", "--where", "true", cwd=tmp_path)
    assert (completed.returncode, completed.stderr) == (
        2,
        "gone: there is no such folder; give the --out of a batch run\n",
    )
