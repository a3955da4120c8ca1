"""How much work files are: by bytes at first, by seconds once headers are read, with what is done already."""

import os
import threading
import time

import pytest

from streamkit.batch.job import BatchJob, VideoFile
from streamkit.batch.manager import WorkEstimate


def jobs(*sizes: int | None) -> list[BatchJob]:
    return [BatchJob(VideoFile(f"/v/{n}.mp4", f"{n}.mp4", size, "1"), f"k{n}") for n, size in enumerate(sizes)]


def settled(lengths: WorkEstimate) -> None:
    until = time.monotonic() + 10
    while lengths._later is not None and time.monotonic() < until:
        assert lengths.total
        time.sleep(0.001)


def test_the_estimate_uses_bytes_by_default():
    some = jobs(600, 300, 0)
    lengths = WorkEstimate(some, None)
    lengths.add(some[1])
    assert (lengths.total, lengths.done, lengths.of(some[0].key)) == (901, 300, 600)


def test_a_file_of_unknown_size_counts_as_the_average():
    some = jobs(None, 600, 300)
    assert (WorkEstimate(some, None).total, WorkEstimate(jobs(None, None), None).total) == (1350, 2)
    lengths = WorkEstimate(some, lambda file: 10.0)
    settled(lengths)
    assert [lengths.of(job.key) for job in some] == [10.0, 10.0, 10.0]


def test_the_estimate_uses_durations_once_known_including_finished_files():
    some = jobs(6000, 300, 100)
    may_read = threading.Event()
    seconds = {"0.mp4": 10.0, "1.mp4": 30.0, "2.mp4": 20.0}

    def read(file: VideoFile) -> float:
        may_read.wait(10)
        return seconds[file.name]

    lengths = WorkEstimate(some, read)
    lengths.add(some[0])
    assert lengths.done == 6000
    may_read.set()
    settled(lengths)
    assert (lengths.total, lengths.done) == (pytest.approx(60.0), pytest.approx(10.0))
    lengths.add(some[2])
    assert lengths.done == pytest.approx(30.0)


def test_a_hundred_headers_of_many_files_approximate_the_sum():
    read: list[str] = []

    def seconds(file: VideoFile) -> float:
        read.append(file.name)
        return file.size / 100 if file.size > 5000 else file.size / 10  # large ones have more bytes a second

    some = jobs(*range(10_000, 0, -7))
    lengths = WorkEstimate(some, seconds)
    settled(lengths)
    assert 50 < len(read) <= 100
    assert lengths.total == pytest.approx(sum(seconds(job.file) for job in some), rel=0.02)


def test_headers_without_duration_leave_the_estimate_to_bytes():
    lengths = WorkEstimate(jobs(600, 300), lambda file: 0.0)
    settled(lengths)
    assert lengths.total == 900


def test_the_end_of_the_run_stops_reading_headers():
    read: list[str] = []

    def slow(file: VideoFile) -> float:
        read.append(file.name)
        time.sleep(0.05)
        return 1.0

    WorkEstimate(jobs(*range(99, 0, -1)), slow).close()
    assert len(read) < 20


def test_a_hanging_header_read_does_not_delay_the_end(monkeypatch, tmp_path):
    monkeypatch.setattr("streamkit.batch.manager._CLOSE_S", 0.2)
    os.mkfifo(tmp_path / "pipe")
    lengths = WorkEstimate(jobs(100), lambda file: float((tmp_path / "pipe").read_text()))
    lengths.close()
    (tmp_path / "pipe").write_text("1")  # let the thread go
