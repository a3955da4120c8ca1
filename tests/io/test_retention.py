import errno
import os
import shutil
import time
from pathlib import Path

import pytest
from support.messages import collect

from streamkit.core.counters import Counters
from streamkit.core.errors import OutputError
from streamkit.io import outputs
from streamkit.io.retention import FileRetention, removable

NOON = 1785585600.25  # 2026-08-01T12:00:00.250Z
TEMPLATE = "clips/{source}/{time}-{kind}.mp4"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shelf(keep=None, min_free=None, template=TEMPLATE, what="clips"):
    counters = Counters()
    retention = FileRetention(template, keep, min_free, counters, what)
    retention.logged = collect()
    retention.counts = counters
    return retention


def clip(source="gate", days=0.0, size=100, kind="crossed"):
    path = shelf().path(source, "crossing", kind, NOON - days * 86400, 0.0)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    at = time.time() - days * 86400
    os.utime(path, (at, at))
    return path


@pytest.mark.parametrize(
    ("template", "about", "path"),
    [
        (TEMPLATE, ("gate", "crossing", "crossed", NOON, 3.0), "clips/gate/20260801T120000.250Z-crossed.mp4"),
        (TEMPLATE, ("yard/n", "a", "in out/../x", None, 83.24), "clips/yard/n/000083.240s-in_out_.._x.mp4"),
        ("{stage}-{kind}.mkv", ("gate", "detect.post", "", None, 0), "detect.post-_.mkv"),
        (TEMPLATE, ("gate", "x", "y", None, -1.0), "clips/gate/000000.000s-y.mp4"),
    ],
)
def test_names_of_clips_are_filled_in(template, about, path):
    assert str(shelf(template=template).path(*about)) == path


@pytest.mark.parametrize("template", ["s/{time}_{label}_{track_id}.jpg", "s/{label}/{kind}_{label}_{stage}_{time}.jpg"])
@pytest.mark.parametrize("label", ["a" * 255, "é" * 200, "車" * 100], ids=["255 bytes", "two bytes", "three bytes"])
def test_long_labels_are_shortened_to_fit_the_file_name(template, label):
    retention = shelf({"size": 0}, template=template)
    kind = "happened_" * 20
    stage = "stage" * 20
    paths = [retention.path("gate", stage, kind, NOON, 0.0, label=text, track_id="7") for text in (label, f"{label}b")]
    for path in paths:
        outputs.AtomicFile(path).write(b"x")
        assert label[:3] in str(path)
    assert paths[0] != paths[1]
    retention.tidy(0.0)
    assert not [path for path in paths if path.exists()], "a cut name is removed like any other"


def test_an_existing_name_gets_a_number():
    assert [clip().name for _ in range(3)] == [f"20260801T120000.250Z-crossed{n}.mp4" for n in ("", "-2", "-3")]


def test_old_clips_are_removed():
    old = clip(days=8)
    new = clip("other", days=6)
    retention = shelf({"age": 7 * 86400})
    retention.tidy(0.0)
    assert (old.exists(), new.exists()) == (False, True)
    assert retention.counts.values == {"clips removed: over age": 1}


def test_the_oldest_clips_are_removed_above_the_size():
    clips = [clip(f"s{n}", days=4 - n, size=100) for n in range(4)]
    retention = shelf({"size": 250})
    retention.tidy(0.0)
    assert [path.exists() for path in clips] == [False, False, True, True]
    assert retention.counts.values == {"clips removed: over size": 2}


@pytest.mark.parametrize(("size", "left"), [(400, 4), (399, 3), (301, 3), (300, 3), (299, 2), (100, 1), (99, 0)])
def test_clips_of_exactly_the_size_are_kept(size, left):
    clips = [clip(f"s{n}", days=4 - n, size=100) for n in range(4)]
    retention = shelf({"size": size})
    retention.tidy(0.0)
    assert [path.exists() for path in clips] == [False] * (4 - left) + [True] * left
    assert retention.counts["clips removed: over size"] == 4 - left


@pytest.mark.parametrize(("older_s", "stays"), [(-0.5, True), (0.0, True), (0.5, False)])
def test_clips_of_exactly_the_age_are_kept(monkeypatch, older_s, stays):
    path = clip()
    os.utime(path, (1_000_000.0 - older_s,) * 2)
    monkeypatch.setattr(time, "time", lambda: 1_003_600.0)
    shelf({"age": 3600.0}).tidy(0.0)
    assert path.exists() is stays


def test_expired_clips_do_not_count_toward_the_size():
    old = clip("old", days=9, size=1000)
    clips = [clip(f"s{n}", days=4 - n, size=100) for n in range(2)]
    retention = shelf({"age": 7 * 86400, "size": 200})
    retention.tidy(0.0)
    assert [path.exists() for path in (old, *clips)] == [False, True, True]
    assert retention.counts.values == {"clips removed: over age": 1}


def test_of_simultaneous_files_the_first_by_name_is_removed():
    clips = [clip(f"s{n}", size=100) for n in (2, 0, 1)]
    for path in clips:
        os.utime(path, (1000, 1000))
    shelf({"size": 200}).tidy(0.0)
    assert [path.exists() for path in clips] == [True, False, True]


@pytest.mark.parametrize(("free", "there"), [(799, False), (800, True), (801, True)])
def test_exactly_min_free_is_enough(monkeypatch, free, there):
    usage = shutil.disk_usage(".")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=free))
    assert shelf(min_free=800).room() is there


@pytest.mark.parametrize(("free", "there"), [(99_999_999, False), (100_000_000, True)])
def test_the_default_min_free_is_100_mb(monkeypatch, free, there):
    path = clip(days=9)
    usage = shutil.disk_usage(".")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=free))
    assert shelf().room() is there
    assert path.exists()


def test_removal_stops_as_soon_as_there_is_enough_space(monkeypatch):
    clips = [clip(f"s{n}", days=4 - n) for n in range(4)]
    usage = shutil.disk_usage(".")
    monkeypatch.setattr(
        shutil,
        "disk_usage",
        lambda path: usage._replace(free=400 - 100 * sum(clip_path.exists() for clip_path in clips)),
    )
    assert shelf(min_free=100).room()
    assert [path.exists() for path in clips] == [False, True, True, True]


def test_retention_runs_once_a_minute_or_after_a_new_clip():
    retention = shelf({"size": 50})
    retention.tidy(0.0)
    path = clip()
    retention.tidy(59.0)
    assert path.exists()
    retention.tidy(60.0)
    assert not path.exists()
    path = clip()
    retention.tidy_soon()
    retention.tidy(61.0)
    assert not path.exists()


def test_other_files_are_never_removed():
    ours = clip(days=9)
    folder = ours.parent
    others = [
        folder / "notes.txt",
        folder / "best.mp4",
        folder / "20260801T120000.250Z-crossed.mkv",
        folder / ".20260801T120000.250Z-crossed.mp4.part",
        Path("20260801T120000.250Z-crossed.mp4"),
        folder.parent / "20260801T120000.250Z-crossed.mp4",
    ]
    for path in others:
        path.touch()
        os.utime(path, (0, 0))
    shelf({"age": 86400, "size": 1}, min_free=1).tidy(0.0)
    assert not ours.exists()
    assert all(path.exists() for path in others)


def test_nothing_is_removed_without_keep():
    path = clip(days=9999)
    shelf().tidy(0.0)
    assert path.exists()


@pytest.mark.parametrize("there", [True, False])
def test_clips_are_removed_to_free_space_if_allowed(monkeypatch, there):
    clips = [clip(f"s{n}", days=4 - n) for n in range(4)]
    usage = shutil.disk_usage(".")

    def free(path):
        return usage._replace(free=1000 - 100 * sum(clip_path.exists() for clip_path in clips) - (0 if there else 5000))

    monkeypatch.setattr(shutil, "disk_usage", free)
    retention = shelf(min_free=800)
    assert retention.room() is there
    assert [path.exists() for path in clips] == ([False, False, True, True] if there else [False] * 4)
    assert retention.counts["clips removed: disk full"] == (2 if there else 4)
    assert "it resumes when there is room" in retention.full()


def test_no_space_is_freed_without_the_option(monkeypatch):
    path = clip(days=9)
    usage = shutil.disk_usage(".")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1))
    assert not shelf({"age": 1}).room()
    assert path.exists()


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EACCES])
def test_a_hanging_share_is_reported_when_a_file_is_written(number, monkeypatch):
    retention = shelf(keep={"age": 3600.0}, min_free=1000)
    clip(days=1)

    def broken(*args, **how):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", broken)
        patched.setattr(shutil, "disk_usage", broken)
        assert retention.room()
        retention.tidy(1e9)
        with pytest.raises(OutputError, match=r"^cannot write clips/gate/"):
            retention.path("gate", "crossing", "crossed", NOON, 0.0)
    assert dict(retention.counts.values) == {}


def test_partial_clips_are_removed():
    folder = clip().parent
    part = folder / ".20260801T120000.250Z-crossed-2.mp4.part"
    for path in (part, folder / ".x.mp4.part", folder / "20260801T120000.250Z-crossed-2.mp4.part"):
        path.touch()
    assert [path.resolve() for path in shelf().parts()] == [part.resolve()]
    retention = shelf()
    retention.sweep()
    assert not part.exists()
    assert retention.counts.values == {"unfinished clips removed": 1}
    assert len([name for name in os.listdir(folder) if name.endswith(".part")]) == 2


def test_a_partial_clip_that_cannot_be_removed_is_reported(monkeypatch):
    folder = clip().parent
    parts = [folder / f".20260801T120000.250Z-crossed-{n}.mp4.part" for n in (2, 3)]
    for part in parts:
        part.touch()

    def first_refused(part):
        if part.resolve() == parts[0].resolve():
            raise PermissionError(13, "Permission denied")
        return outputs.sweep(part)

    monkeypatch.setattr("streamkit.io.retention.sweep", first_refused)
    retention = shelf()
    retention.sweep()
    assert retention.counts.values == {
        "unfinished clips removed": 1,
        "unfinished clips not removed": 1,
    }
    assert retention.logged == [f"cannot remove {parts[0]}: Permission denied"]


@pytest.mark.parametrize(
    ("template", "may"),
    [
        (TEMPLATE, True),
        ("/data/{time}.mp4", True),
        ("{source}/{time}.mp4", False),
        ("./{time}.mp4", False),
        ("clips/{kind}.mp4", False),
    ],
)
def test_templates_that_support_retention_are_recognized(template, may):
    assert removable(template) is may


def test_a_clip_that_cannot_be_removed_is_reported(monkeypatch):
    clip(days=9)
    retention = shelf({"age": 1})

    def refuse(self, missing_ok=False):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)
    retention.tidy(0.0)
    assert retention.counts.values == {"clips not removed": 1}
    assert "Permission denied" in retention.logged[0]


DATED = "snaps/{source}/{date}/{time}_{label}_{track_id}.jpg"


def picture(label="person", track="7", time_s=NOON, source="gate"):
    return shelf(template=DATED).path(source, "door", "crossed", time_s, 83.24, label=label, track_id=track)


def test_snapshots_have_more_in_their_names():
    assert str(picture()) == "snaps/gate/2026-08-01/20260801T120000.250Z_person_7.jpg"
    assert str(picture("a/../{source}", "none", None)) == "snaps/gate/video/000083.240s_a_..__source__none.jpg"
    assert str(picture(source="yard/{date}")) == "snaps/yard/{date}/2026-08-01/20260801T120000.250Z_person_7.jpg"


def test_a_folder_is_removed_with_its_last_image():
    old = picture()
    other = picture(time_s=NOON + 86400)
    paths = [old, old.with_name("20260801T120001.250Z_person_8.jpg"), other, other.with_name("notes.txt")]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
        os.utime(path, (1, 1))
    retention = shelf({"age": 3600.0}, template=DATED, what="snapshots")
    retention.tidy(0.0)
    assert [path.exists() for path in paths] == [False, False, False, True]
    assert not old.parent.exists()
    assert other.parent.exists()
    assert retention.counts["snapshots removed: over age"] == 3


def test_the_root_folder_is_not_removed():
    """A share may be mounted there."""
    retention = shelf({"age": 3600.0}, template="clips/{time}.mp4")
    path = retention.path("gate", "door", "crossed", NOON, 0.0)
    path.parent.mkdir()
    path.touch()
    os.utime(path, (1, 1))
    retention.tidy(0.0)
    assert not path.exists()
    assert path.parent.is_dir()


@pytest.mark.parametrize(
    ("what", "min_free", "text"),
    [
        ("clips", 1_600_000, "recording stops: less than 2 MB are free under clips; it resumes when there is room"),
        ("snapshots", None, "no snapshots are written: less than 100 MB are free under clips; it resumes when there"),
        ("clips", 5_000_000_000, "recording stops: less than 5,000 MB are free under clips; it resumes when there"),
    ],
)
def test_missing_space_is_reported(what, min_free, text):
    assert FileRetention(TEMPLATE, None, min_free, Counters(), what).full().startswith(text)


def test_free_space_is_measured_at_the_future_folder(monkeypatch):
    checked_paths = []
    usage = shutil.disk_usage(".")
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: checked_paths.append(str(path)) or usage._replace(free=10**12)
    )
    assert shelf(template="deep/er/{time}.mp4").room()
    Path("deep").mkdir()
    assert shelf(template="deep/er/{time}.mp4").room()
    assert checked_paths == [".", "deep"]
