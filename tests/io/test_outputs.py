import errno
import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from streamkit.core.errors import OutputError
from streamkit.io import outputs
from streamkit.io.outputs import (
    AtomicFile,
    AtomicWriter,
    ReportFile,
    WrittenOutputs,
    check_path,
    discard_all,
    fill_path,
    fsync_folders,
    lock,
    output_error,
    sweep,
    tagged_path,
    unused_path,
)


@pytest.mark.parametrize("path", ["a.jsonl", "out/{source}.mp4", "-", "/tmp/x"])
def test_valid_paths_are_accepted(path):
    check_path(path)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "must name a file"),
        ("out/", "must name a file"),
        ("out/{sorce}.mp4", "{sorce}"),
        ("{}.csv", "{}"),
        ("a\0b", "a zero character"),
    ],
)
def test_invalid_paths_are_refused(path, message):
    with pytest.raises(ValueError, match=message):
        check_path(path)


def test_a_source_id_may_be_a_folder_but_not_lead_out():
    assert fill_path("out/{source}.mp4", "cam/street") == "out/cam/street.mp4"
    assert fill_path("out/all.jsonl", "../x") == "out/all.jsonl"
    for id_ in ("../x", "/etc/x", "a/../../x"):
        with pytest.raises(OutputError, match="leads out"):
            fill_path("out/{source}.mp4", id_)


def test_temporary_names_are_beside_the_output():
    assert tagged_path(Path("out/gate.mp4"), "2") == Path("out/gate-2.mp4")


def test_existing_names_get_a_number(tmp_path):
    path = tmp_path / "a.jsonl"
    assert unused_path(path) == path
    path.touch()
    (tmp_path / "a-2.jsonl").touch()
    assert unused_path(path) == tmp_path / "a-3.jsonl"
    assert unused_path(path, "x") == tmp_path / "a-x.jsonl"


def test_an_impossible_name_is_reported(tmp_path):
    with pytest.raises(OutputError, match=r"^cannot write .*x\.jsonl: the name is too long; set a shorter path$"):
        unused_path(tmp_path / f"{'x' * 300}.jsonl")


def test_a_part_file_that_cannot_be_removed_does_not_end_the_run(tmp_path, monkeypatch):
    file = AtomicFile(tmp_path / "a.jsonl")
    file.begin()

    def stale(self):
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", stale)
        file.discard()
    AtomicFile(tmp_path / "a.jsonl").begin()  # the name is free for another


def test_a_complete_file_appears_when_finished(tmp_path):
    path = tmp_path / "deep" / "er" / "a.txt"
    file = AtomicFile(path)
    file.begin().write_bytes(b"half")
    assert not path.exists()
    file.part.write_bytes(b"whole")
    file.finish()
    assert path.read_bytes() == b"whole"
    assert os.listdir(path.parent) == ["a.txt"]


@pytest.mark.parametrize("name", [None, "b.txt"])
def test_a_file_is_synced_before_it_is_renamed(tmp_path, monkeypatch, name):
    """After a power cut a file that has its name must have its bytes, too."""
    calls = []
    fsync = os.fsync
    replace = os.replace
    synced = lambda handle: (calls.append(("fsync", os.readlink(f"/proc/self/fd/{handle}"))), fsync(handle))  # noqa: E731
    renamed = lambda part, path: (calls.append(("replace", str(path))), replace(part, path))  # noqa: E731
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    file = AtomicFile(tmp_path / "a.txt")
    file.begin().write_bytes(b"whole")
    file.finish(name)
    final = str(tmp_path / (name or "a.txt"))
    assert calls == [("fsync", str(file.part)), ("replace", final)]
    assert os.listdir(tmp_path) == [name or "a.txt"]


def test_the_names_in_a_folder_are_synced(tmp_path, monkeypatch):
    synced = []
    fsync = os.fsync
    opened = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(
        os, "fsync", lambda handle: (synced.append(os.readlink(f"/proc/self/fd/{handle}")), fsync(handle))
    )
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    fsync_folders(folders)
    assert synced == [str(folder) for folder in folders]
    assert len(os.listdir("/proc/self/fd")) == opened, "every handle is closed"
    (tmp_path / "file").touch()
    for wrong in (tmp_path / "none", tmp_path / "file"):
        with pytest.raises(OutputError, match=f"cannot write {wrong}"):
            fsync_folders([wrong])


def test_a_discarded_file_leaves_the_old_one(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")
    file = AtomicFile(path)
    file.begin()
    file.discard()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_two_outputs_cannot_share_a_name(tmp_path):
    first = AtomicFile(tmp_path / "a.txt")
    first.begin()
    with pytest.raises(OutputError, match="another output"):
        AtomicFile(tmp_path / "a.txt").begin()
    assert unused_path(tmp_path / "a.txt") == tmp_path / "a-2.txt"
    first.finish()
    AtomicFile(tmp_path / "a.txt").begin()


WRITING = """
import os, sys
from streamkit.io.outputs import AtomicFile

file = AtomicFile(sys.argv[1])
file.begin().write_text("theirs")
if "fork" in sys.argv and os.fork():
    os._exit(0)
print("begun", flush=True)
sys.stdin.read()
"fork" in sys.argv or file.finish()
"""


@contextmanager
def another_run(path: Path, *how: str) -> Iterator[subprocess.Popen[str]]:
    """A run that writes `path`, until its standard input is closed."""
    line = [sys.executable, "-c", WRITING, str(path), *how]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "begun\n"
        yield running
        running.kill()


def test_a_file_written_by_another_run_is_refused_unchanged(tmp_path):
    path = tmp_path / "a.txt"
    with another_run(path) as running:
        file = AtomicFile(path)
        with pytest.raises(
            OutputError, match=r"a\.txt: another run is writing it; wait until that run ends, or set another path"
        ):
            file.begin()
        file.discard()
        discard_all()
        assert file.part.read_text() == "theirs"
        running.communicate(timeout=20)
    assert path.read_text() == "theirs"
    file.begin()  # it has come to its end
    file.discard()
    assert os.listdir(tmp_path) == ["a.txt"]


def test_the_part_file_of_a_dead_run_is_taken_over(tmp_path):
    with another_run(tmp_path / "a.txt") as running:
        running.kill()
        running.wait()
        file = AtomicFile(tmp_path / "a.txt")
        assert file.part.read_text() == "theirs"
        assert file.begin().read_bytes() == b""
        file.discard()


def test_a_forked_process_does_not_keep_the_lock(tmp_path):
    with another_run(tmp_path / "a.txt", "fork") as running:
        running.wait()
        file = AtomicFile(tmp_path / "a.txt")
        file.begin()
        file.finish()
        assert running.stdin is not None
        running.stdin.close()  # and so the child ends


def test_a_part_file_of_a_dead_run_is_removed_at_any_age(tmp_path):
    part = tmp_path / ".a.txt.part"
    with another_run(tmp_path / "a.txt") as running:
        os.utime(part, (1, 1))
        assert not sweep(part)
        assert part.read_text() == "theirs"
        running.kill()
        running.wait()
        part.touch()
        assert sweep(part)
    assert os.listdir(tmp_path) == []
    assert not sweep(part)  # it is gone


def test_a_part_file_of_this_run_is_not_removed(tmp_path):
    file = AtomicFile(tmp_path / "a.txt")
    file.begin().write_text("mine")
    assert not sweep(file.part)
    file.finish()
    assert (tmp_path / "a.txt").read_text() == "mine"


def test_a_part_file_created_during_the_cleanup_is_not_removed(tmp_path, monkeypatch):
    """Between opening a part and locking it, its run may finish it, and the next one begin."""
    part = tmp_path / ".a.txt.part"
    locks = outputs.lock
    part.write_text("first")

    def slow(handle):
        os.replace(part, tmp_path / "a.txt")
        part.write_text("second")
        return locks(handle)

    monkeypatch.setattr(outputs, "lock", slow)
    assert not sweep(part)
    assert (part.read_text(), (tmp_path / "a.txt").read_text()) == ("second", "first")


def test_a_part_file_that_cannot_be_removed_is_an_error(tmp_path):
    (tmp_path / ".a.txt.part").mkdir()
    with pytest.raises(IsADirectoryError):
        sweep(tmp_path / ".a.txt.part")


@pytest.mark.parametrize("lacks", ["file system", "system"])
@pytest.mark.parametrize(("age_s", "goes"), [(0.0, False), (50.0, False), (70.0, True)])
def test_without_locks_only_old_part_files_are_removed(tmp_path, monkeypatch, lacks, age_s, goes):
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    if lacks == "system":
        monkeypatch.delattr(fcntl, "F_OFD_SETLK")
    else:
        monkeypatch.setattr(fcntl, "fcntl", refuse)
    part = tmp_path / ".a.txt.part"
    part.touch()
    os.utime(part, (time.time() - age_s,) * 2)
    assert sweep(part) is goes
    assert part.exists() is not goes


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EACCES])
def test_lock_errors_of_all_systems_are_recognized(tmp_path, monkeypatch, number):
    def refuse(*_: object) -> None:
        raise OSError(number, "locked")

    with (tmp_path / "a").open("w") as file:
        assert lock(file.fileno())
        monkeypatch.setattr(fcntl, "fcntl", refuse)
        with pytest.raises(BlockingIOError):
            lock(file.fileno())


@pytest.mark.parametrize("lacks", ["file system", "system"])
def test_files_are_written_without_lock_support(tmp_path, monkeypatch, lacks):
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    if lacks == "system":
        monkeypatch.delattr(fcntl, "F_OFD_SETLK")
    else:
        monkeypatch.setattr(fcntl, "fcntl", refuse)
    with another_run(tmp_path / "a.txt"):
        file = AtomicFile(tmp_path / "a.txt")
        file.begin().write_text("mine")
        file.finish()
    assert (tmp_path / "a.txt").read_text() == "mine"


def test_an_existing_file_is_refused_if_it_must_be_new(tmp_path):
    (tmp_path / "a.txt").touch()
    with pytest.raises(OutputError, match="it exists, and if_exists is fail"):
        AtomicFile(tmp_path / "a.txt", must_be_new=True).begin()
    AtomicFile(tmp_path / "b.txt", must_be_new=True).begin()


def test_a_report_is_probed_first_and_written_completely(tmp_path):
    path = tmp_path / "deep" / "r.json"
    write = ReportFile(path)
    assert os.listdir(path.parent) == [".r.json.part"]
    with pytest.raises(OutputError, match="another output"):
        AtomicFile(path).begin()
    write("{}\n")
    assert path.read_text() == "{}\n"
    assert os.listdir(path.parent) == ["r.json"]
    with pytest.raises(OutputError, match=r"deep: it is a folder"):
        ReportFile(path.parent)
    assert ReportFile(Path("/dev/null"))("x") is None


def test_a_growing_report_is_complete_at_any_moment(tmp_path):
    path = tmp_path / "r.json"
    write = ReportFile(path)
    for number in range(3):
        write(f"{number}\n", last=False)
        assert path.read_text() == f"{number}\n"
        with pytest.raises(OutputError, match="another output"):  # it is still this one's
            AtomicFile(path).begin()
    write("all\n")
    assert path.read_text() == "all\n"
    assert os.listdir(tmp_path) == ["r.json"]
    AtomicFile(path).begin()


def test_a_pipe_gets_a_report_once(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    texts = []
    reader = threading.Thread(target=lambda: texts.append(pipe.read_text()))
    reader.start()
    write = ReportFile(pipe)
    write("some\n", last=False)
    write("all\n")
    reader.join(10)
    assert texts == ["all\n"]


def test_a_failed_report_leaves_the_old_one(tmp_path):
    path = tmp_path / "r.json"
    path.write_text("old")
    write = ReportFile(path)
    (tmp_path / ".r.json.part").unlink()
    (tmp_path / ".r.json.part").mkdir()
    with pytest.raises(OutputError, match=r"cannot write .*r\.json: it is a folder"):
        write("new")
    assert path.read_text() == "old"


def test_an_immediate_end_leaves_no_part_file(tmp_path):
    whole, other, removed = (AtomicFile(tmp_path / name) for name in ("a.txt", "b.txt", "c.txt"))
    for file in (whole, other, removed):
        file.begin()
    whole.finish()
    removed.part.unlink()
    discard_all()
    assert os.listdir(tmp_path) == ["a.txt"]


def test_impossible_paths_are_refused(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    text = (
        rf"file/a\.txt: a part of the path is a file where a folder is needed; rename {tmp_path}/file, or set another"
    )
    with pytest.raises(OutputError, match=text):
        AtomicFile(tmp_path / "file" / "a.txt").begin()
    with pytest.raises(OutputError, match=r"folder: it is a folder; set the path of a file"):
        AtomicFile(tmp_path / "folder").begin()
    with pytest.raises(
        OutputError, match=r"nothing/a\.txt: its folder does not exist .*; set a path in a folder that exists"
    ):
        AtomicFile("/proc/nothing/a.txt").begin()
    with pytest.raises(OutputError, match=r"/proc/a\.txt: its folder takes no new files; set a path in another folder"):
        AtomicFile("/proc/a.txt").begin()


def test_errors_have_the_path_the_cause_and_the_fix():
    full = OSError(errno.ENOSPC, "No space")
    text = "cannot write a/b: the disk is full; free some space, or set a path on another disk"
    assert str(output_error("a/b", full)) == text
    assert str(output_error("a/b", full, "wait")) == "cannot write a/b: the disk is full; wait"
    assert "Input/output error; check that disk" in str(output_error("a/b", OSError(errno.EIO, "Input/output error")))
    assert str(output_error("a/b", OSError(errno.EBUSY, "Busy"))) == "cannot write a/b: Busy"
    assert str(output_error("a/b", ValueError("two\nlines"))) == "cannot write a/b: two lines"


def test_a_file_may_be_named_at_its_end(tmp_path):
    file = AtomicFile(tmp_path / "from-1.txt", unique=True)
    file.begin().write_text("x")
    file.finish("from-1-to-9.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["from-1-to-9.txt"]
    AtomicFile(tmp_path / "from-1.txt").begin()  # nobody claims the first name any more


def test_two_processes_may_each_write_a_part_file(tmp_path):
    first = AtomicFile(tmp_path / "a.txt", unique=True)
    other = AtomicFile(tmp_path / "a.txt", unique=True)
    assert first.part != other.part
    assert first.path == other.path


def test_written_outputs_are_listed_once_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    clips = "out/clips/{source}-{time}.mp4"
    templates = ["out/{source}.mp4", "all.jsonl", clips, "no/{time}.jpg", "{time}.jpg", "all.jsonl"]
    outputs = WrittenOutputs(templates, ["a", "b"])
    for file in ("out/a.mp4", "out/clips/x.mp4", "all.jsonl"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    assert outputs.paths(templates, ["a", "b"]) == ["out/a.mp4", "all.jsonl", "out/clips", "."]
    assert outputs.paths(["out/{source}/{time}.mp4"], ["clips"]) == ["out/clips"]
    assert outputs.paths([], ["a"]) == outputs.paths(["out/{source}.mp4"], []) == []


@pytest.mark.parametrize(
    ("change", "listed"),
    [
        (lambda path: None, []),
        (lambda path: path.write_text("more than before"), ["a.csv"]),
        (lambda path: os.truncate(path, 10), ["a.csv"]),
        (lambda path: AtomicFile(path).write(b"old"), ["a.csv"]),
        (lambda path: path.unlink(), []),
    ],
    ids=["untouched", "overwritten", "extended", "replaced by equal text", "removed"],
)
def test_a_file_of_an_earlier_run_is_listed_only_if_it_has_changed(tmp_path, monkeypatch, change, listed):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a.csv"
    path.write_text("old")
    outputs = WrittenOutputs(["{source}.csv"], ["a"])
    change(path)
    assert outputs.paths(["{source}.csv"], ["a"]) == listed


def test_a_folder_without_a_complete_file_is_not_listed(tmp_path):
    (tmp_path / "out" / "gate").mkdir(parents=True)
    (tmp_path / "out" / "gate" / ".a.parquet.part").touch()
    templates = [f"{tmp_path}/out/{{source}}/{{date}}"]
    outputs = WrittenOutputs(templates, ["gate"])
    assert outputs.paths(templates, ["gate"]) == []
    (tmp_path / "out" / "gate" / "2026-01-02").mkdir()
    (tmp_path / "out" / "gate" / "2026-01-02" / "a.parquet").touch()
    assert outputs.paths(templates, ["gate"]) == [f"{tmp_path}/out/gate"]


def test_numbered_files_are_listed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "v").mkdir()
    (tmp_path / "v" / "a-2.mp4").touch()
    outputs = WrittenOutputs(["v/{source}.mp4"], ["a", "b"])
    for name in ("a.mp4", "a-3.mp4", "a-4.mkv", "ab.mp4", "b-20260102T030405Z.mp4", "c.mp4"):
        (tmp_path / "v" / name).touch()
    assert outputs.paths(["v/{source}.mp4"], ["a", "b"]) == ["v/a.mp4", "v/a-3.mp4", "v/b-20260102T030405Z.mp4"]


def test_a_file_has_the_permissions_of_the_umask(tmp_path):
    before = os.umask(0)
    try:
        file = AtomicFile(tmp_path / "a.txt")
        file.begin()
        file.finish()
    finally:
        os.umask(before)
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o666


def test_the_locked_byte_is_beyond_all_data(tmp_path):
    """Where locks are mandatory, as on SMB, what is locked cannot be written through another handle."""
    file = AtomicFile(tmp_path / "a.txt")
    with file.begin().open("r+b") as other:
        fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB, 1 << 60, 0)
        with pytest.raises(BlockingIOError):
            fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB, 0, 0)  # to the end of all files
    file.discard()


def test_an_unknown_placeholder_is_reported_with_the_valid_ones():
    with pytest.raises(ValueError, match=r"^path knows the placeholder \{source\} only, got \{x\} in 'a\{x\}'$"):
        check_path("a{x}")
    with pytest.raises(ValueError, match=r"^path knows the placeholders \{a\}, \{b\}, got \{source\} in "):
        check_path("{a}/{source}", ("a", "b"))
    check_path("{a}/{b}", ("a", "b"))


class Text:
    """What `AtomicWriter` opens: a file that keeps its lines until it is closed."""

    def __init__(self, part):
        self.part = part
        self.lines = []
        self.closed = 0

    def close(self):
        self.closed += 1
        self.part.write_text("".join(self.lines))


def test_a_writer_has_its_file_once_it_is_finished(tmp_path):
    path = tmp_path / "a.txt"
    opened = []
    writer = AtomicWriter(path, lambda part: opened.append(Text(part)) or opened[-1])
    for text in ("one\n", "two\n"):
        with writer.out() as out:
            out.lines.append(text)
    assert not path.exists()
    writer.finish()
    assert path.read_text() == "one\ntwo\n"
    assert [text.closed for text in opened] == [1]
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_an_unused_writer_creates_no_file(tmp_path):
    with AtomicWriter(tmp_path / "a.txt", Text):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_broken_writer_raises_its_error_again_and_leaves_no_file(tmp_path):
    writer = AtomicWriter(tmp_path / "a.txt", Text)
    with pytest.raises(OutputError, match="the disk is full"), writer.out():
        raise OSError(errno.ENOSPC, "No space left on device")
    for use in (writer.finish, lambda: writer.out().__enter__()):
        with pytest.raises(OutputError, match="the disk is full"):
            use()
    assert list(tmp_path.iterdir()) == []
