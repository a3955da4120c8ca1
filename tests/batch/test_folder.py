"""The output folder: whose it is, who is at it, what of it is done; and that a refusal changes nothing."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.dataset_runs import ROOT, tree

from streamkit.batch import folder as folder_module
from streamkit.batch.folder import LOCK, Folder, manifest, statuses
from streamkit.batch.job import BatchJob, BatchSettings, FrameSelection, Outcome, VideoFile
from streamkit.batch.work import commit
from streamkit.core.errors import ConfigError, OutputError

IDENTITY = {"streamkit": "0.1.0", "stages": {"detect": {"min_score": 0.4}}, "models": {"demo": {"sha256": "ab"}}}
OTHER = {**IDENTITY, "stages": {"detect": {"min_score": 0.5}}}
PARQUET = b"PAR1" + b"metadata" + (8).to_bytes(4, "little") + b"PAR1"
KEYS = [f"gate-{number:016x}" for number in range(3)]


def row(out: Path, key: str, status: str = "done", **file: str) -> BatchSettings:
    """Write a file's row, and some parts of it before."""
    settings = BatchSettings(Path("pipeline.yaml"), (), out, ("parquet", "jsonl", "video"), FrameSelection())
    for name in (f"objects/{key}.parquet", f"jsonl/{key}.jsonl", f"video/{key}.mkv", f"video/{key}-2.mkv"):
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_bytes(PARQUET if name.endswith(".parquet") else b"part")
    commit(settings, Outcome(BatchJob(VideoFile(file.get("uri", key), key, 1, "1"), key), status))
    return settings


def parts_of(out: Path, key: str) -> list[str]:
    return sorted(str(path.relative_to(out)) for path in out.rglob(f"{key}*"))


def test_a_new_folder_describes_its_pipeline(tmp_path):
    out = tmp_path / "deep" / "out"
    with Folder(out, IDENTITY) as folder:
        assert folder.done() == folder.failed() == set()
        assert re.fullmatch(r"[0-9a-f]{16}", folder.pipeline)
    assert manifest(out) == {"pipeline": folder.pipeline, "identity": IDENTITY}


def test_the_row_of_a_file_says_whether_it_is_done_or_failed(tmp_path):
    with Folder(tmp_path, IDENTITY) as folder:
        row(tmp_path, KEYS[0])
        row(tmp_path, KEYS[1], "failed")
        assert (folder.done(), folder.failed()) == ({KEYS[0]}, {KEYS[1]})
        assert parts_of(tmp_path, KEYS[1]) == [f"files/{KEYS[1]}.parquet"]  # a failed file has nothing else
        assert len(parts_of(tmp_path, KEYS[0])) == 5
        folder.clear(KEYS[0])
        assert (folder.done(), parts_of(tmp_path, KEYS[0])) == (set(), [])
    with Folder(tmp_path, IDENTITY) as again:
        assert (again.swept, again.failed()) == (0, {KEYS[1]})


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("objects/{}.parquet", PARQUET[:-1]),  # cut off
        ("objects/{}.parquet", b""),
        ("objects/{}.parquet", bytes(len(PARQUET))),  # of the right size, as some file systems leave it after a crash
        ("objects/{}.parquet", PARQUET[:12] + (9).to_bytes(4, "little") + b"PAR1"),  # a footer longer than the file
        ("objects/{}.parquet", PARQUET[:12] + bytes(4) + b"PAR1"),
        ("jsonl/{}.jsonl", b"par"),
        ("jsonl/{}.jsonl", b"parts"),
        ("jsonl/{}.jsonl", None),
        ("video/{}-2.mkv", b"par"),
        ("video/{}-2.mkv", None),
    ],
)
def test_a_file_with_incomplete_parts_is_processed_again(tmp_path, name, content):
    with Folder(tmp_path, IDENTITY) as folder:
        row(tmp_path, KEYS[0])
        row(tmp_path, KEYS[1])
        row(tmp_path, KEYS[2], "failed")
    with Folder(tmp_path, IDENTITY) as folder:
        assert (folder.broken, folder.swept) == ([], 0)
    path = tmp_path / name.format(KEYS[0])
    path.unlink() if content is None else path.write_bytes(content)
    with Folder(tmp_path, IDENTITY) as folder:
        assert (folder.broken, folder.done(), folder.failed()) == ([KEYS[0]], {KEYS[1]}, {KEYS[2]})
        assert parts_of(tmp_path, KEYS[0]) == []
        assert len(parts_of(tmp_path, KEYS[1])) == 5
        row(tmp_path, KEYS[0])
    with Folder(tmp_path, IDENTITY) as folder:
        assert (folder.broken, folder.done()) == ([], set(KEYS[:2]))


def test_the_row_is_removed_before_broken_parts(tmp_path, monkeypatch):
    """Killed in between, the next run finds parts without a row, and sweeps them."""
    with Folder(tmp_path, IDENTITY):
        row(tmp_path, KEYS[0])
    (tmp_path / "objects" / f"{KEYS[0]}.parquet").write_bytes(b"")
    order = []
    unlink = Path.unlink
    monkeypatch.setattr(Path, "unlink", lambda path, **how: (order.append(path.parent.name), unlink(path, **how)))
    with Folder(tmp_path, IDENTITY):
        assert order[0] == "files"
        assert len(order) == 5


def test_clearing_a_file_removes_its_row_before_its_parts(tmp_path, monkeypatch):
    with Folder(tmp_path, IDENTITY) as folder:
        row(tmp_path, KEYS[0])
        order = []
        unlink = Path.unlink
        monkeypatch.setattr(Path, "unlink", lambda path, **how: (order.append(path.parent.name), unlink(path, **how)))
        folder.clear(KEYS[0])
        assert (order[0], sorted(order)) == ("files", ["files", "jsonl", "objects", "video", "video"])


def test_the_row_has_the_sizes_of_the_parts(tmp_path):
    with Folder(tmp_path, IDENTITY):
        row(tmp_path, KEYS[0])
        row(tmp_path, KEYS[1], "failed")
    rows = {file_row["key"]: file_row["parts_bytes"] for file_row in pq.read_table(tmp_path / "files").to_pylist()}
    assert rows == {KEYS[0]: len(PARQUET) + 12, KEYS[1]: 0}


def test_the_row_has_all_facts_of_a_file(tmp_path):
    with Folder(tmp_path, IDENTITY) as folder:
        settings = row(tmp_path, KEYS[0])
        facts = {
            "codec": "h264",
            "width": 640,
            "height": 480,
            "fps": 25,
            "duration_s": 8.5,
            "frames": 200,
            "failed_frames": 3,
            "damaged_frames": 2,
            "concealed_errors": 5,
        }
        job = BatchJob(VideoFile("/v/gate.mp4", "gate.mp4", 1000, "v7"), KEYS[0], 2)
        commit(settings, Outcome(job, "done", frames=40, objects=12, duration_s=8.0, seconds=0.5, facts=facts))
    (file_row,) = pq.read_table(tmp_path / "files" / f"{KEYS[0]}.parquet").to_pylist()
    assert abs(file_row.pop("finished_at").timestamp() - time.time()) < 60
    assert file_row == {
        "key": KEYS[0],
        "source": "gate.mp4",
        "path": "/v/gate.mp4",
        "size": 1000,
        "version": "v7",
        "status": "done",
        "cause": None,
        "cause_kind": None,
        "frames": 40,
        "frames_failed": 3,
        "frames_damaged": 2,
        "objects": 12,
        "processed_s": 8.0,
        "codec": "h264",
        "width": 640,
        "height": 480,
        "fps": 25.0,
        "duration_s": 8.5,
        "frames_in_file": 200,
        "concealed_errors": 5,
        "parts_bytes": len(PARQUET) + 12,
        "pipeline": folder.pipeline,
        "models": [{"name": "demo", "sha256": "ab"}],
        "streamkit": "0.1.0",
        "attempts": 2,
        "seconds": 0.5,
    }


def test_a_row_without_sizes_of_parts_is_valid(tmp_path):
    with Folder(tmp_path, IDENTITY):
        row(tmp_path, KEYS[0])
    path = tmp_path / "files" / f"{KEYS[0]}.parquet"
    table = pq.read_table(path)
    place = table.column_names.index("parts_bytes")
    pq.write_table(table.set_column(place, table.field(place), pa.nulls(1, pa.int64()).cast(pa.int64())), path)
    with Folder(tmp_path, IDENTITY) as folder:
        assert (folder.broken, folder.done()) == ([], {KEYS[0]})
    (tmp_path / "objects" / f"{KEYS[0]}.parquet").write_bytes(PARQUET[:-1])
    with Folder(tmp_path, IDENTITY) as folder:
        assert (folder.broken, folder.done()) == ([KEYS[0]], set())


def test_leftovers_of_a_crash_are_removed(tmp_path):
    with Folder(tmp_path, IDENTITY):
        row(tmp_path, KEYS[0])
    whole_tree = tree(tmp_path)
    for name in (
        f"objects/{KEYS[1]}.parquet",
        f"objects/.{KEYS[2]}.parquet.1a2b3c4d.part",
        f"video/.{KEYS[2]}.mp4.part",
        f"video/{KEYS[2]}-2.mp4",
        f"files/.{KEYS[1]}.parquet.00000000.part",
        ".streamkit.json.12345678.part",
        ".coco.json.12345678.part",
    ):
        (tmp_path / name).write_bytes(b"half")
    (tmp_path / "files" / f"{KEYS[2]}.parquet").write_bytes(b"")  # as a power cut may leave it
    (tmp_path / "notes.txt").write_text("mine")
    with Folder(tmp_path, IDENTITY) as folder:
        assert (folder.swept, folder.done()) == (8, {KEYS[0]})
    after = tree(tmp_path)
    assert after.pop("notes.txt") == b"mine"
    assert {**after, LOCK: None} == {**whole_tree, LOCK: None}


def test_the_data_set_of_another_pipeline_is_refused_with_the_differences(tmp_path):
    with Folder(tmp_path, IDENTITY):
        row(tmp_path, KEYS[0])
    before = tree(tmp_path)
    message = r"is the data set of another pipeline: stages.detect.min_score was 0.4 and is 0.5. .*--overwrite"
    with pytest.raises(ConfigError, match=message):
        Folder(tmp_path, OTHER)
    assert tree(tmp_path) == before
    (tmp_path / "coco.json").write_text("{}")
    with Folder(tmp_path, OTHER, overwrite=True) as folder:
        assert folder.done() == set()
        assert parts_of(tmp_path, KEYS[0]) == []
        assert not (tmp_path / "coco.json").exists()  # it is of the other pipeline too
        assert manifest(tmp_path)["identity"] == OTHER
        row(tmp_path, KEYS[1])
    with Folder(tmp_path, OTHER, overwrite=True) as folder:  # gone on with: nothing is done twice
        assert folder.done() == {KEYS[1]}


def test_a_killed_wipe_is_completed_at_the_next_start(tmp_path, monkeypatch):
    with Folder(tmp_path, IDENTITY):
        row(tmp_path, KEYS[0])

    left = 1
    rmtree = shutil.rmtree

    def killed(path):
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        rmtree(path)

    monkeypatch.setattr("streamkit.batch.folder.shutil.rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        Folder(tmp_path, OTHER, overwrite=True)
    monkeypatch.undo()
    assert statuses(tmp_path) == {}, "the rows go first: no row may speak of parts that are gone"
    assert parts_of(tmp_path, KEYS[0]) != []
    with pytest.raises(ConfigError, match="another pipeline"):
        Folder(tmp_path, OTHER)
    with Folder(tmp_path, OTHER, overwrite=True) as folder:
        assert (folder.done(), parts_of(tmp_path, KEYS[0])) == (set(), [])


def test_a_foreign_folder_is_refused_unchanged(tmp_path):
    (tmp_path / "holiday.jpg").write_bytes(b"x")
    for overwrite in (False, True):
        with pytest.raises(ConfigError, match=r"is not empty and no data set \(it has holiday.jpg"):
            Folder(tmp_path, IDENTITY, overwrite=overwrite)
    assert tree(tmp_path) == {"holiday.jpg": b"x"}
    with pytest.raises(ConfigError, match="is a file"):
        Folder(tmp_path / "holiday.jpg", IDENTITY)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "streamkit.json").write_text("{")
    with pytest.raises(ConfigError, match=r"broken/streamkit.json is not the description of a data set"):
        Folder(tmp_path / "broken", IDENTITY, overwrite=True)


@pytest.mark.parametrize(
    ("name", "ours"),
    [(".a.json.part", True), (".hidden", False), ("a.part", False), ("lost+found", True), (LOCK, True)],
)
def test_harmless_files_do_not_make_a_folder_foreign(tmp_path, name, ours):
    (tmp_path / name).touch()
    if ours:
        Folder(tmp_path, IDENTITY).close()
        return
    with pytest.raises(ConfigError, match=f"is not empty and no data set .it has {re.escape(name)}, and no"):
        Folder(tmp_path, IDENTITY)


@pytest.mark.parametrize(("count", "more"), [(6, ""), (7, ", and 1 more"), (9, ", and 3 more")])
def test_the_error_names_some_of_many_foreign_files(tmp_path, count, more):
    for number in range(count):
        (tmp_path / f"f{number}").touch()
    with pytest.raises(ConfigError, match=rf"it has f0, f1, f2, f3, f4, f5{more}, and no streamkit\.json"):
        Folder(tmp_path, IDENTITY)


def test_a_partial_report_does_not_make_a_folder_foreign(tmp_path):
    (tmp_path / ".report.json.part").write_bytes(b"")
    with Folder(tmp_path, IDENTITY) as folder:
        assert folder.done() == set()


def test_a_folder_that_cannot_be_created_is_reported(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="a part of the path is a file"):
        Folder(tmp_path / "file" / "out", IDENTITY)


def test_two_runs_cannot_share_a_folder_and_a_killed_run_frees_it(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from streamkit.batch.folder import Folder\n"
        f"with Folder(Path({str(tmp_path)!r}), {IDENTITY!r}): print('in', flush=True); time.sleep(60)"
    )
    first = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert first.stdout.readline() == "in\n"
        before = tree(tmp_path)
        for overwrite in (False, True):
            with pytest.raises(ConfigError, match=rf"another run writes into .* \(process {first.pid} on "):
                Folder(tmp_path, IDENTITY, overwrite=overwrite)
        assert tree(tmp_path) == before
    finally:
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        first.stdout.close()
    with Folder(tmp_path, IDENTITY) as folder:
        assert folder.done() == set()


@pytest.mark.parametrize("overwrite", [False, True])
def test_changes_before_the_lock_are_read_after_it(tmp_path, monkeypatch, overwrite):
    """Between the first look and the lock another run may fill the folder, and come to its end."""
    locked = folder_module._locked

    def late(out):
        monkeypatch.undo()
        with Folder(out, OTHER):
            row(out, KEYS[0])
        before.update(tree(out))
        return locked(out)

    before = {}
    monkeypatch.setattr(folder_module, "_locked", late)
    if overwrite:
        with Folder(tmp_path / "out", IDENTITY, overwrite=True) as folder:
            assert (folder.done(), manifest(tmp_path / "out")["identity"]) == (set(), IDENTITY)
        return
    with pytest.raises(ConfigError, match="is the data set of another pipeline"):
        Folder(tmp_path / "out", IDENTITY)
    assert {**tree(tmp_path / "out"), LOCK: None} == {**before, LOCK: None}
    with Folder(tmp_path / "out", OTHER) as folder:  # the one that was refused holds no lock
        assert folder.done() == {KEYS[0]}


def test_parts_of_failed_files_are_removed(tmp_path):
    """A worker that hangs may write its part after its file was put aside."""
    with Folder(tmp_path, IDENTITY):
        row(tmp_path, KEYS[0])
        row(tmp_path, KEYS[1], "failed")
    for name in (f"objects/{KEYS[1]}.parquet", f"jsonl/{KEYS[1]}.jsonl", f"video/{KEYS[1]}-2.mp4"):
        (tmp_path / name).write_bytes(b"late")
    with Folder(tmp_path, IDENTITY) as folder:
        assert (folder.swept, folder.failed()) == (3, {KEYS[1]})
        assert parts_of(tmp_path, KEYS[1]) == [f"files/{KEYS[1]}.parquet"]
        assert len(parts_of(tmp_path, KEYS[0])) == 5


def test_each_row_has_its_path(tmp_path):
    with Folder(tmp_path, IDENTITY) as folder:
        row(tmp_path, KEYS[0], uri="v/0.mp4")
        row(tmp_path, KEYS[1], "failed", uri="v/caf\udce9.mp4")
        assert folder.paths() == {KEYS[0]: "v/0.mp4", KEYS[1]: "v/caf\\xe9.mp4"}


def test_only_newer_rows_are_read_again(tmp_path, monkeypatch):
    read = []
    row_of = folder_module._row
    monkeypatch.setattr(folder_module, "_row", lambda path: (read.append(Path(path).stem), row_of(path))[1])
    seen = {}
    with Folder(tmp_path, IDENTITY):
        row(tmp_path, KEYS[0])
        row(tmp_path, KEYS[1])
        assert statuses(tmp_path, seen) == {KEYS[0]: "done", KEYS[1]: "done"}
        assert statuses(tmp_path, seen) == {KEYS[0]: "done", KEYS[1]: "done"}
        row(tmp_path, KEYS[1], "failed")
        assert statuses(tmp_path, seen) == {KEYS[0]: "done", KEYS[1]: "failed"}
    assert read == [KEYS[0], KEYS[1], KEYS[1]]


def test_done_files_are_readable_without_the_lock(tmp_path):
    with Folder(tmp_path, IDENTITY):
        row(tmp_path, KEYS[0])
        row(tmp_path, KEYS[1], "failed")
        assert statuses(tmp_path) == {KEYS[0]: "done", KEYS[1]: "failed"}
    assert statuses(tmp_path / "nowhere") == {}
