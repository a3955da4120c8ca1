"""What is left to do: what is done stays done, whatever becomes of the files; what has changed is done anew."""

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.dataset_runs import PLAIN, graph_of, settings

from streamkit.batch.folder import statuses
from streamkit.batch.inputs import find
from streamkit.batch.job import Outcome
from streamkit.batch.parts import parts
from streamkit.batch.work import opened
from streamkit.core.errors import ConfigError


@pytest.fixture
def run(tmp_path):
    """Do what is left to do of the files at some places; how many had been done, had failed, and were left."""
    batch_settings = settings(tmp_path / "set", PLAIN)
    graph = graph_of(batch_settings)

    counts: list[int] = []

    def call(*places: Path, status: str = "done", **how: bool) -> tuple[int, int, list[str]]:
        with opened(graph, batch_settings, find([str(place) for place in places]), **how) as work:
            counts.append(work.broken)
            for job in work.jobs:
                part = parts(batch_settings, job.key)[0]
                part.parent.mkdir(parents=True, exist_ok=True)
                pq.write_table(pa.table({"key": [job.key]}), part)
                work.commit(Outcome(job, "failed" if job.file.missing else status))  # type: ignore[arg-type]
            return work.done, work.failed, [job.file.name for job in work.jobs]

    call.out = batch_settings.out  # type: ignore[attr-defined]
    call.broken = lambda: counts[-1:]  # type: ignore[attr-defined]
    return call


def done_keys(out: Path) -> list[str]:
    """The keys of files that are done and have their part."""
    return [
        key for key, status in statuses(out).items() if status == "done" and (out / f"objects/{key}.parquet").exists()
    ]


def video(path: Path, content: bytes = b"video", time_s: int = 1_700_000_000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (time_s, time_s))
    return path


def test_an_unmounted_share_does_not_invalidate_done_files(run, tmp_path):
    for name in ("a.mp4", "b.mp4"):
        (tmp_path / "links").mkdir(exist_ok=True)
        (tmp_path / "links" / name).symlink_to(video(tmp_path / "share" / name))
    assert run(tmp_path / "links") == (0, 0, ["a.mp4", "b.mp4"])
    before = done_keys(run.out)
    (tmp_path / "share").rename(tmp_path / "away")
    assert run(tmp_path / "links") == (2, 0, [])
    assert done_keys(run.out) == before
    (tmp_path / "links" / "new.mp4").symlink_to(tmp_path / "share" / "new.mp4")
    assert run(tmp_path / "links", retry_failed=True) == (2, 0, ["new.mp4"])  # of it nothing is done: it is missing
    (tmp_path / "away").rename(tmp_path / "share")
    video(tmp_path / "share" / "new.mp4")
    assert run(tmp_path / "links") == (2, 0, ["new.mp4"])
    assert (len(done_keys(run.out)), len(statuses(run.out))) == (3, 3)


def test_a_truncated_part_is_processed_again_in_any_run(run, tmp_path):
    run(video(tmp_path / "v" / "a.mp4"), video(tmp_path / "v" / "b.mp4"))
    keys = done_keys(run.out)
    assert (len(keys), run.broken()) == (2, [0])
    part = run.out / "objects" / f"{keys[0]}.parquet"
    part.write_bytes(part.read_bytes()[:-1])
    assert run(tmp_path / "v" / "b.mp4") == (1, 0, [])
    assert run.broken() == [1]
    assert done_keys(run.out) == keys[1:]
    assert run(tmp_path / "v") == (1, 0, ["a.mp4"])
    assert (run.broken(), done_keys(run.out)) == ([0], keys)


def test_a_failed_file_is_skipped_until_requested(run, tmp_path):
    good = video(tmp_path / "v" / "a.mp4")
    bad = video(tmp_path / "v" / "b.mp4")
    assert run(bad, status="failed") == (0, 0, ["b.mp4"])
    assert run(good, bad) == (0, 1, ["a.mp4"])
    assert run(good, bad) == (1, 1, [])
    assert sorted(statuses(run.out).values()) == ["done", "failed"]
    assert run(good, bad, retry_failed=True) == (1, 0, ["b.mp4"])
    assert sorted(statuses(run.out).values()) == ["done", "done"]
    assert run(good, bad, retry_failed=True) == (2, 0, [])


def test_another_pipeline_is_refused_and_again_starts_over(run, tmp_path):
    file = video(tmp_path / "v" / "a.mp4")
    run(file)
    before = done_keys(run.out)
    manifest = json.loads((run.out / "streamkit.json").read_text())
    (run.out / "streamkit.json").write_text(json.dumps({**manifest, "pipeline": "0" * 16}))
    with pytest.raises(ConfigError, match="--overwrite"):
        run(file)
    assert done_keys(run.out) == before
    assert run(file, overwrite=True) == (0, 0, ["a.mp4"])
    assert run(file, overwrite=True) == (1, 0, [])


def test_copies_of_a_killed_run_are_removed_at_the_next_start(run, tmp_path):
    left = run.out / ".fetch-abc"
    left.mkdir(parents=True)
    (left / "a.mp4").write_bytes(b"half")
    with pytest.raises(ConfigError):  # what is in the folder tells nothing of whose it is
        run(video(tmp_path / "v" / "a.mp4"))


def test_a_moved_list_does_not_invalidate_done_files(run, tmp_path):
    files = [video(tmp_path / "v" / name) for name in ("a.mp4", "b.mp4")]
    (tmp_path / "list.txt").write_text("\n".join(map(str, files)))
    assert run(tmp_path / "list.txt") == (0, 0, ["a.mp4", "b.mp4"])
    before = done_keys(run.out)
    files[0].rename(tmp_path / "moved.mp4")
    assert run(tmp_path / "list.txt") == (2, 0, [])
    assert done_keys(run.out) == before


def test_a_changed_file_replaces_its_earlier_results(run, tmp_path):
    run(video(tmp_path / "v" / "a.mp4"))
    before = done_keys(run.out)
    assert run(video(tmp_path / "v" / "a.mp4", b"another")) == (0, 0, ["a.mp4"])
    assert len(done_keys(run.out)) == len(statuses(run.out)) == 1
    assert done_keys(run.out) != before


def test_equal_files_in_two_folders_are_separate(run, tmp_path):
    first = video(tmp_path / "d1" / "cam.mp4", b"first")
    second = video(tmp_path / "d2" / "cam.mp4", b"other")
    assert run(first) == (0, 0, ["cam.mp4"])
    assert run(second) == (0, 0, ["cam.mp4"])
    assert len(done_keys(run.out)) == 2
    for path in (first, second, first):
        assert run(path) == (1, 0, [])
    first.unlink()
    assert run(second) == (1, 0, [])
    assert len(done_keys(run.out)) == 2


def test_a_moved_folder_is_recognized(run, tmp_path):
    for name in ("a.mp4", "deep/b.mp4"):
        video(tmp_path / "before" / name)
    run(tmp_path / "before")
    (tmp_path / "before").rename(tmp_path / "after")
    assert run(tmp_path / "after") == (2, 0, [])
    os.link(tmp_path / "after" / "a.mp4", video(tmp_path / "linked" / "x.mp4").with_name("a.mp4"))
    (tmp_path / "linked" / "x.mp4").unlink()
    assert run(tmp_path / "linked")[0] == 1  # the very same file by another way


def test_a_folder_that_becomes_readable_is_processed(run, tmp_path):
    video(tmp_path / "v" / "a.mp4")
    (tmp_path / "v" / "sub.mp4").mkdir()
    run(tmp_path / "v" / "a.mp4")
    assert run(tmp_path / "v", status="failed") == (1, 0, ["sub.mp4"])
    video(tmp_path / "v" / "sub.mp4" / "b.mp4")
    run(tmp_path / "v" / "sub.mp4" / "b.mp4")
    assert sorted(statuses(run.out).values()) == ["done", "done"]


def test_a_file_name_that_is_not_utf_8_is_processed_once(run, tmp_path):
    video(tmp_path / "v" / os.fsdecode(b"caf\xe9.mp4"))
    assert run(tmp_path / "v") == (0, 0, ["caf\\xe9.mp4"])
    assert run(tmp_path / "v") == (1, 0, [])


@pytest.mark.parametrize("formats", [("parquet", "coco"), ("parquet",)])
def test_coco_files_are_merged_at_the_end_in_order_of_names(tmp_path, formats):
    batch_settings = settings(tmp_path / "set", PLAIN, *formats)
    with opened(graph_of(batch_settings), batch_settings, find([str(video(tmp_path / "a.mp4"))])) as work:
        (batch_settings.out / "coco").mkdir()
        for name in ("b", "a"):
            text = json.dumps({"images": [{"id": 1, "file_name": name}], "annotations": [], "categories": []})
            (batch_settings.out / "coco" / f"{name}.json").write_text(text)
        work.finish()
    if "coco" in formats:
        images = json.loads((batch_settings.out / "coco.json").read_text())["images"]
        assert images == [{"id": 1, "file_name": "a"}, {"id": 2, "file_name": "b"}]
    else:
        assert not (batch_settings.out / "coco.json").exists()
