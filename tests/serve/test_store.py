"""What the server remembers over restarts: events, images and samples, and what it does with a full disk."""

import sqlite3
import threading
import time
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from support.clock import FakeClock

from streamkit.core.data import Event
from streamkit.core.errors import OutputError
from streamkit.runtime.preview.gallery import Gallery
from streamkit.serve.store import database, sample_table
from streamkit.serve.store.event_table import EventQuery
from streamkit.serve.store.sample_table import MetricSample
from streamkit.serve.store.serve_store import ServeStore

DAY = 86400.0


def crossed(source="gate", frame=3, track=7, stage="line", **data):
    return Event("crossed", stage, source, frame, frame / 25, track, {"direction": "in", "label": "car", **data})


class Run:
    """A store behind a gallery, which writes at each tick."""

    def __init__(self, folder, *, recorders=("clip",), snapshooters=("snap",), **limits):
        self.clock = FakeClock()
        self.store = ServeStore(folder, clock=self.clock, **limits)
        self.gallery = Gallery()
        self.store.follow(self.gallery)
        self.store.set_stages(recorders, snapshooters)

    def add(self, *events, time_s=None, jpeg=None):
        self.gallery.add_events(time.time() if time_s is None else time_s, events, jpeg)

    def tick(self):
        self.clock.sleep(60.0)
        self.store.write_due()

    def numbers(self, **query):
        return [event.number for event in self.store.events(EventQuery(**query), 500)]

    def end(self):
        with self.store.writing():
            pass

    def reopened(self, **limits):
        """End it, and open what its folder holds."""
        self.end()
        return Run(self.store.folder, **limits)


@pytest.fixture
def run(tmp_path):
    store_run = Run(tmp_path / "data")
    yield store_run
    store_run.end()


# ------------------------------------------------------------------------------------------------------- over restarts


def test_events_images_and_numbers_survive_a_restart(tmp_path):
    first = Run(tmp_path)
    first.add(crossed(), crossed(frame=4), jpeg=b"one")
    first.end()
    second = Run(tmp_path)
    second.add(crossed(source="yard"), jpeg=b"two")
    assert second.numbers() == [3, 2, 1], "an event is found before it is written"
    second.tick()
    assert second.numbers() == [3, 2, 1]
    assert second.numbers(source="yard") == [3]
    assert [second.store.image(number) for number in (1, 2, 3, 4)] == [b"one", b"one", b"two", None]
    old = second.store.event(2)
    assert (old.event, old.image) == (crossed(frame=4), True)
    second.end()


def test_hiding_applies_to_images_after_the_change_also_after_a_restart(tmp_path):
    first = Run(tmp_path)
    assert first.store.masked_from("faces") == 1
    first.add(crossed(), crossed(frame=4))
    assert first.store.masked_from("faces") == 1
    assert first.store.masked_from("faces, plates") == 3
    first.add(crossed(frame=5))
    first.end()
    second = Run(tmp_path)
    assert second.store.masked_from("faces, plates") == 3
    second.end()


def test_numbering_continues_after_all_events_were_removed(tmp_path):
    first = Run(tmp_path, keep_events_s=10)
    first.add(crossed(), crossed(), time_s=time.time() - 60)
    first.tick()
    assert first.numbers() == []
    first.end()
    second = Run(tmp_path)
    assert second.numbers() == []
    assert second.store.last_number == 2
    second.add(crossed())
    assert second.numbers() == [3]
    second.end()


def test_the_files_are_readable_by_their_owner_only(run, tmp_path):
    run.add(crossed())
    run.tick()
    files = list((tmp_path / "data").iterdir())
    assert {path.name for path in files} >= {"serve.db", "serve.db-wal", "lock"}
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_two_servers_cannot_share_a_folder(run, tmp_path):
    with pytest.raises(OutputError, match="used by another server; give each server its own with --data"):
        ServeStore(tmp_path / "data")


def test_the_error_of_an_uncreatable_folder_names_the_option(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"cannot write the data folder .*file/data: .*; give another one"):
        ServeStore(tmp_path / "file" / "data")


def test_a_foreign_or_newer_database_is_refused_unchanged(tmp_path):
    (tmp_path / "serve.db").write_bytes(b"something else " * 100)
    with pytest.raises(OutputError, match="file is not a database; repair or remove the file"):
        ServeStore(tmp_path)
    assert (tmp_path / "serve.db").read_bytes().startswith(b"something else")
    (tmp_path / "serve.db").unlink()
    Run(tmp_path).end()
    with sqlite3.connect(tmp_path / "serve.db") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(OutputError, match="newer version"):
        ServeStore(tmp_path)


# ----------------------------------------------------------------------------------------------------------- retention


def test_events_are_removed_by_age_with_their_images(tmp_path):
    run = Run(tmp_path, keep_events_s=10 * DAY)
    now = time.time()
    for age in (20, 11, 9, 1):
        run.add(crossed(frame=age), time_s=now - age * DAY, jpeg=b"%d" % age)
    run.tick()
    assert run.store.counts.values == {"events removed: age": 2, "images removed: age": 2}
    run = run.reopened()
    assert run.numbers() == [4, 3]
    assert [run.store.image(number) for number in (1, 2, 3, 4)] == [None, None, b"9", b"1"]
    run.end()


def test_images_are_removed_with_the_last_events(tmp_path):
    run = Run(tmp_path, keep_events_s=10 * DAY)
    for age in (20, 11):
        run.add(crossed(frame=age), time_s=time.time() - age * DAY, jpeg=b"%d" % age)
    run.tick()
    assert run.store.counts.values == {"events removed: age": 2, "images removed: age": 2}
    run.end()


def test_the_oldest_images_are_removed_before_the_oldest_events(tmp_path):
    limit = 600_000
    run = Run(tmp_path, keep_bytes=limit)
    for number in range(120):
        run.add(crossed(frame=number), jpeg=b"%03d" % number + bytes(20_000))
    run.tick()
    removed_images = run.store.counts["images removed: size"]
    run = run.reopened(keep_bytes=limit)
    images = [number for number in range(1, 121) if run.store.image(number)]
    assert run.store.used_bytes() <= limit
    assert images == list(range(images[0], 121)), "the newest are kept"
    assert 5 < len(images) < 40
    assert len(run.numbers()) == 120, "no event was removed"
    assert removed_images == 120 - len(images)
    for number in range(3000):
        run.add(crossed(frame=number, note="x" * 600))
    run.tick()
    assert run.store.used_bytes() <= limit
    left = [event.number for event in run.store.events(EventQuery(), 5000)]
    assert left == list(range(3120, 3120 - len(left), -1))
    assert 50 < len(left) < 2500
    assert run.store.counts["events removed: size"] == 3120 - len(left)
    assert (tmp_path / "serve.db").stat().st_size < 4 * limit, "the file has become smaller"
    run.end()


# ------------------------------------------------------------------------------------------------------------- filters


def test_events_are_filtered_and_paged(run):
    now = time.time()
    for number in range(1, 9):
        event = crossed(source="gate" if number % 2 else "yard", frame=number, label="car" if number < 5 else "bike")
        run.add(event, time_s=now - 100 + number)
    run.add(Event("entered", "till", "gate", 1, 0.1, 3, {"count": 1}), time_s=now)
    for _ in range(2):  # in memory, and written
        assert run.numbers(source="yard") == [8, 6, 4, 2]
        assert run.numbers(stage="till") == run.numbers(kind="entered") == [9]
        assert run.numbers(label="bike", source="gate") == [7, 5]
        assert run.numbers(from_s=now - 96, to_s=now - 93) == [6, 5, 4]
        assert run.numbers(after=3, before=6) == [5, 4]
        assert [event.number for event in run.store.events(EventQuery(before=8), 3)] == [7, 6, 5]
        run.tick()
    assert run.store.names() == {
        "sources": ["gate", "yard"],
        "stages": ["line", "till"],
        "kinds": ["crossed", "entered"],
        "labels": ["bike", "car"],
    }
    assert run.store.timeline(EventQuery(), now - 100, now + 1, 2) == {"gate": [4, 1], "yard": [4, 0]}


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("car", [1]),
        ("CAR", [1]),
        ("ca nor", [1]),
        ("north car", [1]),
        ("arn", []),
        ("bike", [2]),
        ("  ", [3, 2, 1]),
        ('"', [3, 2, 1]),
        ('car" OR "bike', []),
        ("car*", [1]),
        ("car AND bike", []),
        ("NOT car", []),
        ("(car", [1]),
        ("kind:crossed", []),
        ("-car", [1]),
        ("o'brien", [3]),
        ("50%", [3]),
        ("müller", [3]),
        ("Muller", [3]),
        ("under_score", [3]),
        ("线", [3]),
        ("'; DROP TABLE events; --", []),
        ("NEAR(car north)", []),
        ("\0car", [1]),
        ("^car", [1]),
        ("{car}", [1]),
        ("car + north", [1]),
    ],
)
def test_free_text_matches_words_literally(run, text, numbers):
    run.add(crossed(line="north"), crossed(label="bike"))
    run.add(Event("said", "talk", "gate", 1, 0.1, None, {"who": "O'Brien & Müller", "what": "50% under_score 线"}))
    run.tick()
    assert run.numbers(text=text) == numbers


# -------------------------------------------------------------------------------------------------- clips and snapshots


def recorded(path, start_s, duration_s, frame, stage="clip", source="gate"):
    data = {"clip": str(path), "start_s": start_s, "duration_s": duration_s, "bytes": 3}
    return Event("recorded", stage, source, frame, frame / 25, None, data)


def clips(run):
    return {
        event.number: (event.clip and Path(event.clip).name, event.clip_s)
        for event in run.store.events(EventQuery(), 500)
    }


def test_a_clip_is_linked_to_its_events_in_either_order(run):
    run.add(crossed(frame=20), crossed(frame=50), crossed(frame=75, source="yard"))
    run.tick()
    run.add(recorded("/a.mp4", 1.0, 3.0, 110))
    run.add(crossed(frame=80), crossed(frame=105))  # the other way was slower
    run.tick()
    assert clips(run) == {
        1: (None, None),
        2: ("a.mp4", 1.0),
        3: (None, None),
        4: ("a.mp4", 0.0),
        5: ("a.mp4", 2.2),
        6: (None, None),
    }


def test_clips_of_a_restarted_source_are_separate(run):
    for frame in (50, 2500, 50):
        run.add(crossed(frame=frame))
    run.add(recorded("/a.mp4", 1.0, 3.0, 110))
    run.tick()
    assert clips(run)[3] == ("a.mp4", 1.0)
    assert clips(run)[1] == (None, None), "its times are those of an earlier reading"


def test_clips_of_an_earlier_run_are_separate(tmp_path):
    first = Run(tmp_path)
    first.add(crossed(frame=50))
    first.end()
    second = Run(tmp_path)
    second.add(recorded("/a.mp4", 1.0, 3.0, 110))
    second.tick()
    assert clips(second) == {1: (None, None), 2: ("a.mp4", 0.0)}
    second.end()


def test_files_are_accepted_only_from_the_stages_that_write_them(run):
    run.add(crossed(frame=50))
    run.add(recorded("/etc/passwd", 0.0, 9.0, 60, stage="plugin"))
    run.add(Event("saved", "plugin", "gate", 60, 2.4, 7, {"path": "/etc/passwd", "of": of(50)}))
    run.add(crossed(frame=51, clip="/etc/passwd", clip_s=1, snapshot="/etc/passwd"))
    run.tick()
    assert {(event.clip, event.snapshot) for event in run.store.events(EventQuery(), 9)} == {(None, None)}


def of(frame):
    return {"stage": "line", "kind": "crossed", "frame": frame, "pts_s": frame / 25}


def test_a_snapshot_is_linked_to_its_event_in_either_order(run):
    run.add(crossed(frame=50), crossed(frame=50, track=8))
    run.tick()
    run.add(Event("saved", "snap", "gate", 60, 2.4, 7, {"path": "/s.jpg", "of": of(50)}))
    run.add(Event("saved", "snap", "gate", 61, 2.44, 9, {"path": "/t.jpg", "of": of(61)}))
    run.add(crossed(frame=61, track=9))
    run.tick()
    assert [event.snapshot for event in run.store.events(EventQuery(), 9)] == [
        "/t.jpg",
        "/t.jpg",
        "/s.jpg",
        None,
        "/s.jpg",
    ]


# ---------------------------------------------------------------------------------------------- what cannot be written


def test_a_full_disk_is_reported_and_events_wait_in_memory(tmp_path, monkeypatch):
    run = Run(tmp_path)

    def full(self):
        connection = connect(self)
        connection.execute("PRAGMA max_page_count = 1")  # not less than there are: every new page is one too many
        return connection

    connect = database.ServeDatabase.connect
    with monkeypatch.context() as patch:
        patch.setattr(database.ServeDatabase, "connect", full)
        for number in range(100):
            run.add(crossed(frame=number), jpeg=bytes(9000))
        run.tick()
        assert "disk is full" in run.store.problem
        assert "events are not stored" in run.store.problem
        assert len(run.numbers()) == 100, "the latest are in memory"
        run.clock.sleep(4.0)
        run.store.write_due()
        assert "disk is full" in run.store.problem, "it waits before it tries again"
    run.tick()
    assert run.store.problem == ""
    assert run.store.counts.values == {}
    run = run.reopened()
    assert len(run.numbers()) == 100
    run.end()


def test_waiting_events_are_bounded_and_losses_counted(tmp_path):
    run = Run(tmp_path)
    for number in range(5010):
        run.add(crossed(frame=number), jpeg=b"x")
    assert run.store.counts.values == {
        "events lost: not written in time": 10,
        "images lost: not written in time": 4500,
    }
    run = run.reopened()
    events = run.store.events(EventQuery(), 6000)
    assert [event.number for event in events] == list(range(5000, 0, -1))
    assert [event.image for event in events] == [False] * 4500 + [True] * 500
    run.end()


def test_a_locked_database_delays_no_caller(run, tmp_path, monkeypatch):
    monkeypatch.setattr(database, "BUSY_S", 0.3)
    other = sqlite3.connect(tmp_path / "data" / "serve.db")
    other.execute("BEGIN IMMEDIATE")
    writer = threading.Thread(target=run.tick)
    run.add(crossed())
    writer.start()
    started_s = time.monotonic()
    for number in range(300):
        run.add(crossed(frame=number))
    assert time.monotonic() - started_s < 300 * 0.3 / 2  # it does not wait for each of them
    writer.join()
    assert "database is locked" in run.store.problem
    assert len(run.numbers()) > 100
    other.rollback()
    other.close()
    run.tick()
    assert run.store.problem == ""
    assert len(run.numbers()) == 301


def test_an_unstorable_event_is_counted_and_the_others_are_stored(tmp_path):
    run = Run(tmp_path)
    huge = Event("crossed", "line", "gate", 2**70, 0.1, None, {})
    odd = {"x": object()}
    run.add(crossed(), huge, Event("\ud800", "line", "gate", 1, 0.1, 3, odd))
    run.add(Event("long", "line", "gate", 1, 0.1, None, {"x": "y" * 200_000}), crossed())
    run.tick()
    assert run.store.counts.values == {"events lost: not storable": 1}
    run = run.reopened()
    event_by_number = {stored_event.number: stored_event.event for stored_event in run.store.events(EventQuery(), 9)}
    assert sorted(event_by_number) == [1, 3, 4, 5]
    assert event_by_number[3].kind == "?"
    assert event_by_number[4].data == {}
    run.end()


def test_a_failing_sampler_does_not_stop_the_store(tmp_path):
    called = threading.Event()

    def broken():
        called.set()
        raise ArithmeticError("no")

    run = Run(tmp_path)
    with run.store.writing(broken):
        assert called.wait(10.0)
        run.add(crossed())
    assert run.store.problem == ""
    run = Run(tmp_path)
    assert run.numbers() == [1]
    run.end()


# ----------------------------------------------------------------------------------------------------- samples


@contextmanager
def database_file(run):
    with closing(sqlite3.connect(run.store.folder / "serve.db")) as connection, connection:
        yield connection


def test_samples_are_aggregated_to_means_and_sums_of_longer_steps(run):
    now = time.time() // 600 * 600
    for second in range(0, 1200, 10):
        samples = [MetricSample("frames", "gate", "", second / 10), MetricSample("dropped", "gate", "", 2.0)]
        with database_file(run) as connection:
            sample_table.add_samples(connection, now - 1200 + second, samples)

    def values(name, step):
        step_and_series = run.store.series(name, None, now - 1200, now, step)
        return step_and_series[0], [metric_series.values for metric_series in step_and_series[1]]

    assert values("frames", 0)[0] == 10
    assert values("frames", 0)[1][0][:3] == [(now - 1200, 0.0), (now - 1190, 1.0), (now - 1180, 2.0)]
    assert values("frames", 60)[1][0][:2] == [(now - 1200, 2.5), (now - 1140, 8.5)]
    assert values("frames", 61) == (600, [[(now - 1200, 29.5), (now - 600, 89.5)]])
    assert values("dropped", 60)[1][0][0] == (now - 1200, 12.0)
    assert values("dropped", 600)[1] == [[(now - 1200, 120.0), (now - 600, 120.0)]]
    assert run.store.series("frames", "yard", now - 1200, now, 0)[1] == []
    assert run.store.series("frames", None, now - 5 * 3600, now, 0)[0] == 60
    assert run.store.series("frames", None, now - 5 * DAY, now, 0)[0] == 600


def test_older_samples_are_stored_at_longer_steps(run):
    now = time.time()
    with database_file(run) as connection:
        for age_s in (60, 7200, 2 * DAY, 40 * DAY):
            sample_table.add_samples(connection, now - age_s, [MetricSample("frames", f"c{age_s:.0f}", "", 1.0)])
    run.tick()
    with database_file(run) as connection:
        remaining = connection.execute("SELECT source, step_s FROM samples JOIN series ON id = series").fetchall()
        series = connection.execute("SELECT source FROM series").fetchall()
    assert sorted(remaining) == [
        ("c172800", 600),
        ("c60", 10),
        ("c60", 60),
        ("c60", 600),
        ("c7200", 60),
        ("c7200", 600),
    ]
    assert len(series) == 3, "a series without a step is forgotten"


def test_lines_and_zones_are_counted_from_their_events(run):
    now = time.time() // 10 * 10
    entered = Event("entered", "area", "gate", 1, 0.1, 3, {"zone": "till", "count": 1})
    run.add(crossed(), crossed(), crossed(line="north", direction="out"), entered, time_s=now)
    run.add(Event("crossed", "odd", "gate", 1, 0.1, 3, {}), time_s=now)
    run.tick()
    _, series = run.store.series("counts", "gate", now - 60, now + 60, 0)
    assert {metric_series.label: metric_series.values for metric_series in series} == {
        "line in": [(now, 2.0)],
        "north out": [(now, 1.0)],
        "till entered": [(now, 1.0)],
    }
