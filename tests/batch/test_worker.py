"""A worker: one warm pipeline for many files, what it says of each, and results that depend on nothing else."""

import json
import os
import threading
from contextlib import suppress
from dataclasses import replace

import psutil
import pyarrow.parquet as pq
import pytest
from support.small_clips import clip, job, with_a_gap

from streamkit.batch import worker as worker_module
from streamkit.batch.inputs import find
from streamkit.batch.job import BatchJob, BatchSettings, FrameSelection, Outcome, VideoFile
from streamkit.batch.messages import FileRead, Leaving
from streamkit.batch.pipeline import graph_for
from streamkit.batch.work import opened
from streamkit.batch.worker import BatchWorker
from streamkit.core.errors import ConfigError
from streamkit.runtime.multiprocess.messages import Finish, Now, Ready, name_of

COUNT = """
device: cpu
plugins: [opened.py]
stages:
  opened: {file: FILE}
  jsonl: {path: "unused/{source}.jsonl"}
"""
OPENED = '''
from streamkit import BatchStage, stage

@stage("opened", writes="detections")
class Opened(BatchStage):
    """Write down in a file when it is opened, and find one object a frame; fail on these frames, -1 for all."""

    file: str
    fail: tuple[int, ...] = ()

    def open(self):
        with open(self.file, "a") as file:
            file.write("opened\\n")

    def process(self, batch):
        import numpy as np
        from streamkit import Detections

        for frame in batch.frames:
            if frame.index in self.fail or -1 in self.fail:
                raise ValueError("no such luck")
        n = len(batch.frames)
        rows = np.arange(n, dtype=np.int32)
        batch.tables["opened"] = Detections(
            np.zeros((n, 4), np.float32), np.ones(n, np.float32), np.zeros(n, np.int32), rows, labels=("thing",)
        )
        return batch
'''


@pytest.fixture
def settings(tmp_path):
    """Settings of a pipeline that writes down how often its stage was opened."""
    (tmp_path / "opened.py").write_text(OPENED)
    (tmp_path / "p.yaml").write_text(COUNT.replace("FILE", str(tmp_path / "opened.txt")))

    def make(look: FrameSelection = FrameSelection(), **overrides: str) -> BatchSettings:  # noqa: B008  a frozen value
        named = tuple((name.replace("__", "."), value) for name, value in overrides.items())
        return BatchSettings(tmp_path / "p.yaml", named, tmp_path / "out", ("jsonl",), look)

    return make


@pytest.fixture
def work(settings):
    """A worker, closed at the end."""
    workers: list[BatchWorker] = []

    def make(*args, **options) -> BatchWorker:
        workers.append(BatchWorker(*args, **options))
        return workers[-1]

    yield make
    for worker in workers:
        assert worker.close()
    assert not [
        thread.name for thread in threading.enumerate() if thread.name.startswith(("warm", "opened", "batcher"))
    ]


def test_a_pipeline_processes_all_files_and_reports_each_outcome(settings, work, root, tmp_path):
    worker = work(settings(), "cpu")
    street = root / "samples" / "street.mp4"
    (tmp_path / "text.mp4").write_text("no video at all\n" * 100)
    first, missing, text, again = (
        worker.process(job(path, n))
        for n, path in enumerate([street, tmp_path / "gone.mp4", tmp_path / "text.mp4", street])
    )
    assert (tmp_path / "opened.txt").read_text() == "opened\n" * len(os.sched_getaffinity(0))
    for outcome in (first, again):
        assert (outcome.status, outcome.cause, outcome.frames, outcome.objects) == ("done", "", 400, 400)
        assert outcome.duration_s == pytest.approx(16.0)
        facts = dict(outcome.facts)
        assert facts.pop("fps") == pytest.approx(25.0)
        assert facts == {
            "codec": "h264",
            "width": 640,
            "height": 360,
            "frames": 400,
            "expected_frames": 400,
            "duration_s": 16.0,
            "concealed_errors": 0,
            "damaged_frames": 0,
            "failed_frames": 0,
        }
    assert (missing.status, missing.cause_kind, missing.again) == ("failed", "missing", False)
    assert "there is no such file" in missing.cause
    assert (text.status, text.again) == ("failed", False)
    assert worker.progress() == []


def test_frames_concealed_by_the_decoder_are_in_the_files_row(settings, work, root, tmp_path):
    data = bytearray((root / "samples" / "street.mp4").read_bytes())
    for place in range(data.index(b"mdat") + 20_000, len(data), 9973):
        data[place] ^= 0xFF
    (tmp_path / "flipped.mp4").write_bytes(data)
    batch_settings = settings()
    with opened(graph_for(batch_settings, "cpu"), batch_settings, list(find([str(tmp_path / "flipped.mp4")]))) as todo:
        outcome = work(batch_settings, "cpu").process(todo.jobs[0])
        todo.commit(outcome)
    (row,) = [row for row in pq.read_table(batch_settings.out / "files").to_pylist() if row["key"] == todo.jobs[0].key]
    assert outcome.facts["concealed_errors"] > 0
    assert (row["concealed_errors"], row["frames_failed"]) == (outcome.facts["concealed_errors"], 0)


def test_a_file_with_damaged_frames_has_all_rows_and_their_count(settings, work, tmp_path):
    path = with_a_gap(tmp_path / "gap.ts")
    batch_settings = settings(stages__jsonl__path="unused/{source}.jsonl")
    with opened(graph_for(batch_settings, "cpu"), batch_settings, list(find([str(path)]))) as todo:
        (batch_job,) = todo.jobs
        outcome = work(batch_settings, "cpu").process(batch_job)
        todo.commit(outcome)
    assert (outcome.status, outcome.cause, outcome.again) == ("done", "", False)
    (row,) = [row for row in pq.read_table(batch_settings.out / "files").to_pylist() if row["key"] == batch_job.key]
    assert (row["status"], row["frames"], row["frames_damaged"], row["frames_failed"]) == ("done", 20, 1, 0)
    records = [
        json.loads(line) for line in (batch_settings.out / "jsonl" / f"{batch_job.key}.jsonl").read_text().splitlines()
    ]
    assert len(records) == 20
    assert [len(record["objects"]) for record in records] == [1] * 20
    assert sum("damaged" in record for record in records) == 1


def test_strict_fails_a_file_with_damaged_frames(settings, work, tmp_path):
    path = with_a_gap(tmp_path / "gap.ts")
    batch_settings = replace(settings(), strict=True)
    with opened(graph_for(batch_settings, "cpu"), batch_settings, list(find([str(path)]))) as todo:
        (batch_job,) = todo.jobs
        outcome = work(batch_settings, "cpu").process(batch_job)
        todo.commit(outcome)
    assert (outcome.status, outcome.cause_kind, outcome.again) == ("failed", "damaged", False)
    assert outcome.cause == "is damaged: 1 frame was lost or concealed"
    assert outcome.facts["damaged_frames"] == 1
    assert not list((batch_settings.out / "jsonl").glob("*.jsonl"))
    (row,) = [row for row in pq.read_table(batch_settings.out / "files").to_pylist() if row["key"] == batch_job.key]
    assert (row["status"], row["frames_damaged"]) == ("failed", 1)


def test_a_damaged_file_without_frames_fails(settings, work, tmp_path):
    data = bytearray(clip(tmp_path / "whole.mp4").read_bytes())
    begin = data.index(b"mdat") + 4
    end = data.index(b"moov") - 4
    data[begin:end] = bytes(end - begin)
    (tmp_path / "zeros.mp4").write_bytes(data)
    outcome = work(settings(), "cpu").process(job(tmp_path / "zeros.mp4"))
    assert (outcome.status, outcome.cause_kind, outcome.frames) == ("failed", "damaged", 0)


def test_only_the_selected_part_is_processed(settings, work, root):
    look = FrameSelection(start_s=2.0, end_s=4.0, every=5)
    outcome = work(settings(look), "cpu").process(job(root / "samples" / "street.mp4"))
    assert (outcome.frames, outcome.duration_s) == (10, 2.0)
    lines = (settings().out / "jsonl").glob("*.jsonl")
    assert sum(path.read_text().count("\n") for path in lines) == 10


def test_the_readable_part_of_a_truncated_file_is_processed(settings, work, tmp_path):
    data = clip(tmp_path / "whole.mkv", 200).read_bytes()
    (tmp_path / "cut.mkv").write_bytes(data[: len(data) // 2])
    cut = work(settings(FrameSelection(every=40)), "cpu").process(job(tmp_path / "cut.mkv"))
    assert (cut.cause_kind, cut.facts["duration_s"]) == ("truncated", 20.0)
    assert f" {cut.duration_s:.1f} of 20.0 s could be read" in cut.cause
    assert 0.0 < cut.duration_s < 15.0
    assert "processed_s" not in cut.facts


def test_a_file_shorter_than_the_start_is_done_without_frames(settings, work, root, tmp_path):
    worker = work(settings(FrameSelection(start_s=10.0)), "cpu")
    short = worker.process(job(clip(tmp_path / "short.mp4")))
    assert (short.status, short.frames, short.duration_s, short.facts["codec"]) == ("done", 0, 0.0, "h264")
    assert worker.process(job(root / "samples" / "street.mp4", 1)).frames == 150
    (tmp_path / "cut.mkv").write_bytes(clip(tmp_path / "whole.mkv", 200).read_bytes()[:2000])
    cut = worker.process(job(tmp_path / "cut.mkv", 2))
    assert (cut.status, cut.frames) == ("failed", 0)  # its header says that there is something


def test_a_pipe_fails_without_waiting(settings, work, tmp_path):
    os.mkfifo(tmp_path / "pipe.mp4")
    outcome = work(settings(), "cpu").process(job(tmp_path / "pipe.mp4"))
    assert (outcome.status, outcome.cause_kind, outcome.cause) == (
        "failed",
        "no_video",
        "this is a named pipe, not a video file",
    )


def test_a_cause_is_printable_with_any_file_name(settings, work, tmp_path):
    (tmp_path / "link.mp4").symlink_to(os.fsdecode(b"caf\xe9.mp4"))
    outcome = work(settings(), "cpu").process(job(tmp_path / "link.mp4"))
    assert outcome.cause == "there is no such file: the link points to caf\\xe9.mp4, which does not exist"


def test_a_file_is_read_while_the_previous_one_ends(settings, work, root):
    worker = work(settings(), "cpu", 1, 1)
    street = root / "samples" / "street.mp4"
    read = threading.Event()
    outcomes = list[Outcome]()
    first = threading.Thread(target=lambda: outcomes.append(worker.process(job(street, 1), read.set)))
    first.start()
    assert read.wait(60)
    outcomes.append(worker.process(job(street, 2)))
    first.join()
    assert [outcome.frames for outcome in outcomes] == [400, 400]


def test_concurrent_files_have_separate_results(settings, work, root):
    worker = work(settings(FrameSelection(every=8)), "cpu", slots=3)
    outcomes = dict[int, Outcome]()
    threads = [
        threading.Thread(
            target=lambda n=n: outcomes.update({n: worker.process(job(root / "samples" / "street.mp4", n))})
        )
        for n in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {n: (outcome.status, outcome.frames) for n, outcome in outcomes.items()} == dict.fromkeys(
        range(5), ("done", 50)
    )
    texts = {path.read_text().replace(path.stem, "KEY") for path in (settings().out / "jsonl").iterdir()}
    assert len({text.replace("KEY", "") for text in texts}) == 1


def test_failed_frames_are_counted_and_a_file_of_failed_frames_fails(settings, work, root):
    street = root / "samples" / "street.mp4"
    some = work(settings(stages__opened__fail="[3, 7]"), "cpu").process(job(street))
    assert (some.status, some.frames, some.facts["failed_frames"]) == ("done", 400, 2)
    every = work(settings(FrameSelection(end_s=1.0), stages__opened__fail="[-1]"), "cpu").process(job(street))
    assert (every.status, every.cause_kind, every.again) == ("failed", "stage", False)
    assert "no such luck" in every.cause


def test_a_stage_that_ends_the_run_ends_the_worker(settings, work, root):
    worker = work(
        settings(FrameSelection(end_s=1.0), stages__opened__fail="[3]", stages__opened__run="{on_error: stop}"), "cpu"
    )
    first = worker.process(job(root / "samples" / "street.mp4"))
    assert (first.status, first.cause_kind, first.again) == ("failed", "stage", True)
    assert worker.over
    after = worker.process(job(root / "samples" / "street.mp4", 1))
    assert (after.status, after.cause_kind) == ("failed", "stage")


def test_an_unwritable_output_is_reported_as_such(settings, work, root):
    batch_settings = settings(FrameSelection(end_s=1.0))
    worker = work(batch_settings, "cpu")
    batch_settings.out.mkdir(exist_ok=True)
    (batch_settings.out / "jsonl").write_text("in the way")
    outcome = worker.process(job(root / "samples" / "street.mp4"))
    assert (outcome.status, outcome.cause_kind, outcome.again) == ("failed", "output", False)
    assert "cannot write" in outcome.cause


def test_a_pipeline_that_cannot_be_built_is_reported_at_once(settings):
    with pytest.raises(ConfigError, match="min_scor"):
        BatchWorker(settings(stages__opened__min_scor="1"), "cpu")


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_memory_is_flat_over_2000_files(settings, work, tmp_path):
    batch_settings = replace(settings(), formats=("parquet", "jsonl"))
    worker = work(batch_settings, "cpu")
    path = clip(tmp_path / "a.mp4")
    process = psutil.Process()
    (tmp_path / "text.mp4").write_text("no video\n" * 50)
    rss: list[int] = []
    for number in range(2300):
        batch_job = job(tmp_path / "text.mp4" if number % 20 == 0 else path, number)
        assert worker.process(batch_job).status == ("failed" if number % 20 == 0 else "done")
        if number % 100 == 99:
            rss.append(process.memory_info().rss >> 20)
    print("MiB after each 100 files:", *rss)
    assert rss[-1] - rss[2] < 10


DONE = ("do", "read", "outcome")
ORDERS = {"end": Finish(), "now": Now()}


@pytest.mark.parametrize(
    ("orders", "worker", "steps"),
    [
        (["end"], {}, ["ready", "close"]),
        (["end"], {"hangs": True}, ["ready", "close", "end at once"]),
        (["now"], {}, ["ready", "end at once"]),
        (["job a", "job b", "end"], {}, ["ready", *(f"{step} {name}" for name in "ab" for step in DONE), "close"]),
        (["job a"], {"over": True}, ["ready", "do a", "read a", "leaving", "outcome a", "end at once"]),
        (["job a", "end"], {"over": True, "left": 1}, ["ready", "do a", "read a", "leaving", "outcome a", "close"]),
        (["job a", "now"], {}, ["ready", *(f"{step} a" for step in DONE), "end at once"]),
    ],
)
def test_a_worker_obeys_each_order(settings, monkeypatch, orders, worker, steps):
    """An order that is missing would be waited for."""
    done = []

    class Connection:
        def send(self, message):
            match message:
                case FileRead(key):
                    done.append(f"read {key}")
                case Ready() | Leaving():
                    done.append(name_of(message))

        def deliver(self, outcome):
            done.append(f"outcome {outcome}")

        def orders(self):
            for order in orders:
                name = order.removeprefix("job ")
                yield ORDERS[order] if order in ORDERS else BatchJob(VideoFile(f"/v/{name}", name, 1, "1"), name)
            pytest.fail("it waits for one more order")

    class Works:
        over = worker.get("over", False)

        def __init__(self, *arguments):
            assert arguments == (settings, "cpu", 3, 2, (1, 4))

        def process(self, job, read):
            done.append(f"do {job.key}")
            read()
            return job.key

        def progress(self):
            return [None] * worker.get("left", 0)

        def close(self):
            done.append("close")
            return not worker.get("hangs", False)

    def end_at_once():
        done.append("end at once")
        raise SystemExit

    monkeypatch.setattr(worker_module, "BatchWorker", Works)
    monkeypatch.setattr(worker_module, "start", lambda name, call: call())
    monkeypatch.setattr(worker_module, "end_at_once", end_at_once)
    with suppress(SystemExit):
        worker_module.work(Connection(), settings, "cpu", 3, 2, (1, 4))
    assert done == steps
