import json
import time
from collections import Counter, defaultdict

import pyarrow.parquet as pq
import pytest
from support.archives import opened

from streamkit.core.errors import ConfigError
from streamkit.query.database import Database
from streamkit.query.dataset_location import DatasetLocation
from streamkit.query.index import index_of
from streamkit.query.selected_frames import labels_of

COLUMNS = ["source", "frame", "pts_s", "counts", "key"]


def objects_of(folder):
    """The labels and scores of each frame, from the Parquet files."""
    objects = defaultdict(list)
    for row in pq.read_table(folder / "objects").to_pylist():
        objects[row["frame"]].append((row["label"], row["score"]))
    return objects


def frames_of(rows):
    return [row[rows.columns.index("frame")] for row in rows]


def test_frames_are_selected_by_their_number_of_objects(archive, database):
    counts = {frame: Counter(label for label, _ in objects) for frame, objects in objects_of(archive).items()}
    expected = [frame for frame, count in sorted(counts.items()) if count["person"] >= 9 and count["bike"] == 3]
    assert 0 < len(expected) < 40
    rows = database.where("count_of('person') >= 9 AND count_of('bike') = 3")
    assert rows.columns == COLUMNS
    matches = list(rows)
    assert [row[1] for row in matches] == expected
    assert matches[0][0] == "street.mp4"
    assert matches[0][2] == pytest.approx(expected[0] / 25)
    assert [row[3] for row in matches] == [dict(counts[frame]) for frame in expected]


def test_a_minimum_score_counts_only_more_certain_objects(archive, database):
    scores = {frame: [s for label, s in objects if label == "person"] for frame, objects in objects_of(archive).items()}
    middle = sorted(score for frame_scores in scores.values() for score in frame_scores)[len(scores) * 4]
    expected = [
        frame for frame, frame_scores in sorted(scores.items()) if sum(score >= middle for score in frame_scores) >= 5
    ]
    assert frames_of(database.where(f"count_of('person', {middle}) >= 5")) == expected
    assert 0 < len(expected) < 40


def test_a_minimum_score_includes_equal_scores(archive, database):
    frame, scores = next(
        (frame, [score for label, score in objects if label == "person"])
        for frame, objects in sorted(objects_of(archive).items())
        if len({score for label, score in objects if label == "person"}) > 1
    )
    for number, score in enumerate(sorted(scores, reverse=True), 1):
        rows = database.query(f"SELECT count_of('person', {score}) AS people FROM frames WHERE frame = {frame}")
        assert list(rows) == [(number,)]


def test_frames_can_be_aliased_and_joined(database):
    sql = "SELECT f.frame, o.label FROM frames f JOIN objects o USING (key, frame) WHERE count_of('car', 0) > 0 LIMIT 1"
    assert len(list(database.query(sql))) == 1


def test_an_alias_of_a_number_of_objects_is_kept(database):
    rows = database.query("SELECT count_of('car') AS cars, count_of('car', 0.5) sure, frame AS number FROM frames")
    assert rows.columns == ["cars", "sure", "number"]
    ordered = database.query("SELECT frame, count_of('car') AS cars FROM frames ORDER BY cars DESC, frame LIMIT 1")
    assert ordered.columns == ["frame", "cars"]


def test_every_processed_frame_has_a_row(archive, database):
    assert frames_of(database.where("true")) == list(range(40))
    assert list(database.query("SELECT count(*) FROM events")) == [(pq.read_table(archive / "events").num_rows,)]


def test_a_frame_without_objects_can_be_selected(archive):
    for path in (archive / "objects").glob("street-*.parquet"):
        table = pq.read_table(path)
        pq.write_table(table.filter([frame != 7 for frame in table["frame"].to_pylist()]), path)
    with opened(archive) as database:
        assert frames_of(database.where("count_of('person') = 0 AND count_of('car') = 0 AND counts = MAP {}")) == [7]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM frames WHERE count_of('persn') = 0",
        "SELECT * FROM frames f WHERE f.frame > 3 AND NOT (Count_Of('persn', 0.5) > 1)",
        "SELECT count(*) FROM objects WHERE label = 'persn'",
        "SELECT count(*) FROM objects o WHERE 'persn' = o.label",
        "SELECT count(*) FROM objects WHERE label IN ('car', 'persn')",
        "WITH a AS (SELECT * FROM objects WHERE label <> 'persn') SELECT count(*) FROM a",
        "SELECT count(*) FILTER (label = 'persn') FROM objects",
    ],
)
def test_an_unknown_label_is_refused_with_the_existing_ones(database, sql):
    with pytest.raises(ConfigError) as caught:
        database.query(sql)
    assert str(caught.value) == (
        "there is no label 'persn' in this data set; did you mean 'person'? (there are car, person, bike)"
    )


def test_a_label_of_the_model_without_objects_matches_nothing(archive):
    for path in (archive / "objects").glob("street-*.parquet"):
        table = pq.read_table(path)
        pq.write_table(table.filter([label != "bike" for label in table["label"].to_pylist()]), path)
    with opened(archive) as database:
        assert database.labels == ("car", "person", "bike")
        assert frames_of(database.where("count_of('bike') > 0")) == []
        with pytest.raises(
            ConfigError, match="there is no label 'zebra' in this data set; there are car, person, bike"
        ):
            database.where("count_of('zebra') > 0")


def test_other_texts_are_not_checked_as_labels(database):
    assert list(database.query("SELECT count(*) FROM events WHERE kind = 'nothing' OR source = 'persn'")) == [(0,)]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("INSERT INTO files SELECT * FROM files", "write one SELECT, got INSERT"),
        ("DELETE FROM objects", "write one SELECT, got DELETE"),
        ("CREATE TABLE a AS SELECT 1", "write one SELECT, got CREATE"),
        ("COPY objects TO '{out}'", "write one SELECT, got COPY"),
        ("EXPORT DATABASE '{out}'", "write one SELECT, got EXPORT"),
        ("ATTACH '{out}' AS other", "write one SELECT, got ATTACH"),
        ("INSTALL httpfs", "write one SELECT, got LOAD"),
        ("SET enable_external_access = true", "write one SELECT, got SET"),
        ("SELECT 1; SELECT 2", "write one SELECT, got SELECT, SELECT"),
        ("", "write one SELECT, got nothing"),
        ("SELECT * FROM read_csv('{file}')", "the query is wrong: Permission Error"),
        ("SELECT * FROM read_text('{file}')", "the query is wrong: Permission Error"),
        ("SELECT * FROM glob('/*')", "the query is wrong: Permission Error"),
        ("SELECT * FROM '{parquet}'", "the query is wrong: .*(Cannot access file|does not exist|disabled)"),
        ("SELECT * FROM secret", "the query is wrong: .*Table with name secret does not exist"),
        ("SELECT * FROM nothing", "the query is wrong: .*Table with name nothing does not exist"),
        ("SELECT fram FROM frames", 'Referenced column "fram" not found.*frame'),
        ("SELECT * FROM frames WHERE count_of(car) > 1", r"a label is text: write count_of\('car'\)"),
        ("SELEC 1", "the query is wrong: Parser Error: syntax error"),
    ],
)
def test_a_query_cannot_read_other_files(database, archive, tmp_path, sql, message):
    secret = pq.read_table(archive / "files")
    assert secret.num_rows
    file = tmp_path / "secret.csv"
    file.write_text("a,b\n1,2\n")
    parquet = next((archive / "objects").glob("street*"))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match=message) as caught:
        list(database.query(sql.format(file=file, out=tmp_path / "out", parquet=parquet)))
    assert "\n" not in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_long_queries_print_no_progress(database):
    assert list(database.query("SELECT current_setting('enable_progress_bar')")) == [(False,)]


def test_an_error_of_a_value_is_a_single_line(database):
    with pytest.raises(ConfigError, match=r"the query (failed|is wrong): .*Could not convert string"):
        list(database.query("SELECT CAST(source AS INTEGER) FROM files"))


def test_values_are_python_objects(database):
    (row,) = database.query("SELECT finished_at, counts, models FROM files, (SELECT counts FROM frames LIMIT 1)")
    assert row[0].utcoffset().total_seconds() == 0
    assert isinstance(row[1], dict)
    assert json.dumps(row[2])


@pytest.mark.parametrize(
    "value",
    [
        "DATE '20000-01-01'",
        "DATE 'infinity'",
        "TIMESTAMP '-0044-03-15 00:00:00'",
        "TIMESTAMPTZ 'infinity'",
        "[DATE '20000-01-01']",
        "MAP {DATE '20000-01-01': 1}",
    ],
)
def test_a_date_out_of_pythons_range_is_reported_with_the_fix(database, value):
    with pytest.raises(ConfigError, match=r"^the column day has a date before .* select it as text: day::TEXT$"):
        list(database.query(f"SELECT {value} AS day"))
    assert len(list(database.query(f"SELECT ({value})::TEXT AS day"))) == 1


ENDLESS = "SELECT count(*) FROM range(1000000) a, range(1000000) b, range(1000000) c WHERE a.range + b.range = c.range"


@pytest.mark.parametrize("sql", [ENDLESS, f"SELECT 1 WHERE ({ENDLESS}) > 0"])
def test_a_query_has_a_time_limit(archive, sql):
    location = DatasetLocation(str(archive))
    with Database(index_of(location), labels_of(location), timeout_s=0.3) as database:
        with pytest.raises(ConfigError, match=r"^the query took longer than 0\.3 s: select less, or .* --timeout 1h$"):
            list(database.query(sql))
        assert list(database.query("SELECT 1")) == [(1,)]  # the next question has its own time


def test_the_time_between_rows_does_not_count_toward_the_limit(archive):
    location = DatasetLocation(str(archive))
    with Database(index_of(location), labels_of(location), timeout_s=0.5) as database:
        rows = iter(database.query("SELECT * FROM range(10000)"))
        next(rows)
        time.sleep(0.7)
        assert sum(1 for _ in rows) == 9999
