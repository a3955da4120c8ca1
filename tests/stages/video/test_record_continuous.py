"""Recording around the clock: files that hold every frame once, whatever happens, and only as long as they should."""

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np
import pytest
from support.fed_recorders import FedCamera, FedRecorder, drawn
from support.full_disk import small_disk
from support.recorded import run_fixture, shown, video_fixture  # noqa: F401  fixtures

from streamkit.io.segment_files import SegmentFolder
from streamkit.io.segment_retention import SegmentLimits
from streamkit.media.segment_reader import read_content

START_S = 1_790_000_000.0
DAY_S = 86_400.0


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return drawn(tmp_path_factory.mktemp("drawn") / "clip.mp4")


def numbers(files):
    return [number for file in files for _, number in shown(file.path)]


def files_of(root):
    folder = SegmentFolder(root)
    folder.refresh()
    return [file for file in folder.segments() if file.complete]


# ------------------------------------------------------------------------------------------------------------ pipelines


def test_a_pipeline_records_every_frame_once(run, video, tmp_path):
    completed = run(video, [], when=None, continuous=True, folder="rec", segment="3s")
    files = files_of(tmp_path / "rec")
    assert [file.duration_ms for file in files] == [3000, 3000, 3000, 1000]
    assert all(later.start_s == earlier.end_s for earlier, later in pairwise(files))
    assert numbers(files) == list(range(250))
    assert all(file.event for file in files), "without when, all events count"
    assert completed.report["counts"]["segments recorded"] == 4


def test_files_around_events_are_marked_and_clips_are_recorded_beside(run, video, tmp_path):
    run(video, [210], continuous=True, folder="rec", segment="2s")
    files = files_of(tmp_path / "rec")
    assert [file.event for file in files] == [False, False, False, True, True], "2 s before 8.4 s, and 1 s after it"
    assert len(list((tmp_path / "clips").rglob("*.mp4"))) == 1


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"keep": "7d"}, "keep limits a recording around the clock: add continuous: true"),
        ({"continuous": True, "segment": "0.1s"}, "segment must be 1s to 600s, got 0.1s"),
        ({"continuous": True, "folder": "."}, "folder must name a folder of its own"),
        (
            {"continuous": True, "archive": {"path": "recordings", "after": "1d"}},
            "archive.path must be outside of folder",
        ),
        ({"continuous": True, "archive": {"path": "x"}}, "after"),
    ],
    ids=["no continuous", "segment", "folder", "archive", "no age"],
)
def test_options_that_make_no_sense_are_refused(run, video, options, rule):
    from streamkit.core.errors import ConfigError

    with pytest.raises(ConfigError, match=re.escape(rule)):
        run(video, [], **options)


# ---------------------------------------------------------------------------------------------------- times and causes


def test_a_camera_that_is_away_leaves_a_gap(clip, tmp_path, caplog):
    recorder = FedRecorder(tmp_path)
    camera = FedCamera("gate", clip, START_S)
    recorder.feed(camera, 50)
    camera.away(30)
    with caplog.at_level(logging.INFO):
        recorder.feed(camera, 50)
    recorder.recorder.close()
    first, second = recorder.files()
    assert (first.start_s, first.end_s) == (START_S, START_S + 2)
    assert second.start_s == pytest.approx(START_S + 32, abs=0.05)
    assert read_content(second.path).cause == "camera away"
    assert "gate: recording goes on after 30.0 s that are not recorded: camera away" in caplog.text
    assert numbers([first, second]) == [40 + n for n in range(50)] * 2


def test_a_camera_that_changes_its_size_begins_another_file(clip, tmp_path):
    recorder = FedRecorder(tmp_path)
    camera = FedCamera("gate", clip, START_S)
    recorder.feed(camera, 50)
    camera.connect(drawn(tmp_path / "large.mp4", (128, 96)))
    recorder.feed(camera, 50)
    recorder.recorder.close()
    contents = [read_content(file.path) for file in recorder.files()]
    assert [(content.width, content.height, content.cause) for content in contents] == [(64, 48, ""), (128, 96, "")]
    assert numbers(recorder.files()) == [40 + n for n in range(50)] * 2


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0], ids=["forward", "back"])
def test_a_clock_that_is_set_begins_another_file(clip, tmp_path, jump_s):
    recorder = FedRecorder(tmp_path)
    camera = FedCamera("gate", clip, START_S)
    recorder.feed(camera, 250)
    camera.time_s += jump_s
    recorder.feed(camera, 250)
    recorder.recorder.close()
    before, after = sorted(recorder.files(), key=lambda file: file.duration_ms, reverse=True)
    assert read_content(after.path).cause == "clock changed"
    assert before.duration_ms == pytest.approx(13_000, abs=300), "the change counts once it has lasted for 3 s"
    assert after.end_s == pytest.approx(START_S + 20 + jump_s, abs=0.05)
    assert len(numbers([before, after])) == 500


def test_frames_that_come_late_are_no_change_of_the_clock(clip, tmp_path):
    recorder = FedRecorder(tmp_path)
    camera = FedCamera("gate", clip, START_S)
    for _ in range(10):
        recorder.feed(camera, 50)
        camera.time_s += 5.0  # a stall of the network,
        camera.step_s = 0.04
        for frame in camera.frames(50):  # and what was held up comes at once
            frame.time_s = camera.time_s
            recorder.recorder.write(frame)
        camera.time_s -= 5.0
    recorder.recorder.close()
    assert [read_content(file.path).cause for file in recorder.files()] == [""]


def test_a_slow_drift_makes_no_gaps(clip, tmp_path):
    recorder = FedRecorder(tmp_path, segment_s=2)
    camera = FedCamera("gate", clip, START_S)
    for _ in range(1000):
        recorder.feed(camera, 1)
        camera.time_s += 0.0004  # 1 %
    recorder.recorder.close()
    files = recorder.files()
    assert all(0 <= later.start_s - earlier.end_s <= 0.06 for earlier, later in pairwise(files))
    assert files[-1].end_s == pytest.approx(camera.time_s, abs=0.1)


def test_daylight_saving_changes_nothing(clip, tmp_path, monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        change_s = datetime(2026, 10, 25, 1, 0, tzinfo=UTC).timestamp()
        recorder = FedRecorder(tmp_path, segment_s=60)
        camera = FedCamera("gate", clip, change_s - 120, step_s=1.0)
        recorder.feed(camera, 240)
        recorder.recorder.close()
        files = recorder.files()
        names = [file.path.name[:15] for file in files]
        assert names == ["20261025T005800", "20261025T005900", "20261025T010000", "20261025T010100"]
        assert {read_content(file.path).cause for file in files} == {""}
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()


def test_a_restart_is_a_gap_with_its_cause(clip, tmp_path):
    first = FedRecorder(tmp_path)
    first.feed(FedCamera("gate", clip, START_S), 50)
    first.recorder.close()
    second = FedRecorder(tmp_path)
    second.feed(FedCamera("gate", clip, START_S + 100), 50)
    second.recorder.close()
    assert [read_content(file.path).cause for file in second.files()] == ["", "restart"]
    assert second.counters.values["gaps in recordings: restart"] == 1


# ------------------------------------------------------------------------------------------------------------ retention


def test_a_day_stays_within_its_limit_of_size(clip, tmp_path):
    limit = 150_000
    recorder = FedRecorder(tmp_path / "rec", SegmentLimits(size_bytes=limit), segment_s=600)
    cameras = [FedCamera(f"gate{number}", clip, START_S, step_s=20.0) for number in range(2)]
    sizes = []
    for _ in range(24 * 6):
        for camera in cameras:
            recorder.feed(camera, 30)
        recorder.retention.tidy()
        sizes.append(sum(path.stat().st_size for path in (tmp_path / "rec").rglob("*") if path.is_file()))
    recorder.recorder.close()
    assert sizes[20] < limit, "the first hours fit"
    assert max(sizes[100:]) <= 1.02 * limit
    assert min(sizes[100:]) >= 0.96 * limit, "a file has 2 % of it"
    assert {file.source for file in recorder.files()} == {camera.source for camera in cameras}
    assert recorder.counters.values["segments removed: over size"] > 50


def test_old_files_are_removed_and_those_around_events_later(clip, tmp_path):
    limits = SegmentLimits(keep_s=7200, keep_events_s=6 * 3600)
    recorder = FedRecorder(tmp_path / "rec", limits, segment_s=600, after_s=0)
    camera = FedCamera("gate", clip, START_S, step_s=20.0)
    for minute in range(0, 12 * 60, 10):
        recorder.feed(camera, 30)
        if minute == 400:
            recorder.recorder.event("gate", camera.time_s)
    recorder.recorder.close()
    recorder.retention.tidy()
    ages = [(camera.time_s - file.end_s, file.event) for file in recorder.files()]
    assert max(age for age, event in ages if not event) <= 7200
    assert [event for age, event in ages if age > 7200] == [True] * sum(event for _, event in ages)
    assert any(event for _, event in ages)


def test_files_move_to_the_archive_and_count_there(clip, tmp_path):
    archive = tmp_path / "archive"
    limits = SegmentLimits(archive=archive, archive_after_s=600, size_bytes=130_000)
    recorder = FedRecorder(tmp_path / "rec", limits, segment_s=60)
    camera = FedCamera("gate", clip, START_S, step_s=2.0)
    for _ in range(60):
        recorder.feed(camera, 30)
        for _ in range(3):
            recorder.retention._next_move_s = 0.0
            recorder.retention.move_due()
    recorder.recorder.close()
    moved = files_of(archive)
    assert len(moved) > 30
    assert max(file.end_s for file in moved) < camera.time_s - 600
    assert min(file.end_s for file in recorder.files()) >= camera.time_s - 700
    recorder.retention.tidy()
    total = sum(file.bytes for file in files_of(archive) + recorder.files())
    assert total <= 130_000
    assert numbers(files_of(archive)[-1:]), "it is readable there"


def test_a_copy_that_a_crash_left_in_both_folders_is_moved_once(clip, tmp_path):
    limits = SegmentLimits(archive=tmp_path / "archive", archive_after_s=0)
    recorder = FedRecorder(tmp_path / "rec", limits)
    recorder.feed(FedCamera("gate", clip, START_S), 50)
    recorder.recorder.close()
    (file,) = recorder.files()
    copy = tmp_path / "archive" / file.path.relative_to(tmp_path / "rec")
    copy.parent.mkdir(parents=True)
    shutil.copyfile(file.path, copy)
    recorder.now_s = START_S + 1000
    recorder.retention._refresh()
    recorder.retention.move_due()
    assert recorder.files() == []
    assert len(files_of(tmp_path / "archive")) == 1


# ------------------------------------------------------------------------------------------------------------ full disk


def test_a_full_disk_pauses_and_resumes_without_spoiling_a_file(clip, tmp_path, caplog):
    with small_disk(tmp_path / "disk") as disk:
        recorder = FedRecorder(disk.folder / "rec", segment_s=4)
        camera = FedCamera("gate", clip, START_S)
        recorder.feed(camera, 150)
        disk.fill()
        recorder.feed(camera, 250)
        disk.free()
        recorder.recorder._retry_s = 0.0  # five seconds later
        recorder.feed(camera, 100)
        recorder.recorder.close()
        before, cut, *_, after = recorder.files()
        assert before.duration_ms == 4000
        assert cut.duration_ms >= 1600, "what was written before the disk was full"
        assert read_content(after.path).cause == "disk full"
        assert after.end_s == pytest.approx(START_S + 20, abs=0.05)
        for file in recorder.files():
            assert file.duration_ms == 40 * len(shown(file.path))
    assert recorder.counters.values["segments interrupted: disk full"] >= 1
    assert "cannot be written: the disk is full" in caplog.text


def test_below_min_free_the_oldest_files_make_room(clip, tmp_path):
    with small_disk(tmp_path / "disk") as disk:
        recorder = FedRecorder(disk.folder / "rec", SegmentLimits(min_free_bytes=120_000), segment_s=2)
        camera = FedCamera("gate", clip, START_S)
        for _ in range(40):
            recorder.feed(camera, 50)
            recorder.recorder._check_room()
        recorder.recorder.close()
        assert recorder.counters.values["segments removed: disk full"] > 0
        assert "recordings paused: disk full" not in recorder.counters.values
        assert recorder.files()[-1].end_s == pytest.approx(START_S + 80, abs=0.05)


def test_without_room_the_recording_pauses(clip, tmp_path):
    with small_disk(tmp_path / "disk") as disk:  # less than 100 MB are free
        recorder = FedRecorder(disk.folder / "rec")
        camera = FedCamera("gate", clip, START_S)
        recorder.feed(camera, 50)
        recorder.recorder._check_room()
        recorder.feed(camera, 50)
        recorder.recorder.close()
        (file,) = recorder.files()
        assert file.duration_ms == 2000
        assert recorder.counters.values["recordings paused: disk full"] == 1


# ---------------------------------------------------------------------------------------------------------------- kills

_PIPELINE = """
sources:
  gate: {{uri: "{video}", pace: realtime, loop: true, pace_seed: 1}}
stages:
  record: {{continuous: true, folder: "{folder}", segment: 2s}}
"""


def killed_run(folder, video, seconds):
    """Record until a SIGKILL that comes at any moment; return the messages of the start."""
    yaml = folder.parent / "kill.yaml"
    yaml.write_text(_PIPELINE.format(video=video, folder=folder))
    log = folder.parent / "log.txt"
    before = {path.name for path in folder.rglob("*")}
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "streamkit", "run", str(yaml)], stdout=output, stderr=output, env=os.environ
        )
    try:
        until_s = time.monotonic() + 60
        while not {path.name for path in folder.rglob("*.part") if path.stat().st_size} - before:
            assert time.monotonic() < until_s
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        time.sleep(seconds)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    return log.read_text()


def check_kills(tmp_path, video, times):
    from streamkit.serve.store.recording_index import RecordingIndex

    folder = tmp_path / "rec"
    folder.mkdir()
    (tmp_path / "data").mkdir()
    for count, seconds in enumerate(times):
        messages = killed_run(folder, video, seconds)
        if count:
            assert re.search(r"interrupted: \d+\.\d s of its last file are readable, [\d,]+ bytes", messages)
        index = RecordingIndex(tmp_path / "data")
        index.follow([folder])
        indexed = [segment for segment in index.segments("gate", 0, 1e11) if segment.id]
        assert [segment.path for segment in indexed] == [file.path for file in files_of(folder)]
    recorder = FedRecorder(folder)  # completes the last one
    files = recorder.files()
    assert not list(folder.rglob("*.part"))
    for file in files:
        seen = [number for _, number in shown(file.path)]
        steps = np.diff(seen) % 250
        assert set(steps) <= {1}, "every frame up to the end of the file is there, once"
        assert file.duration_ms == pytest.approx(len(seen) * 40, abs=80)


@pytest.mark.slow
@pytest.mark.alone
def test_a_killed_run_loses_only_the_open_fragment(video, tmp_path):
    check_kills(tmp_path, video, [1.1, 2.3])


@pytest.mark.long
@pytest.mark.alone
def test_files_and_index_agree_after_twenty_kills(video, tmp_path):
    check_kills(tmp_path, video, np.random.default_rng(1).uniform(0, 4, 20))
