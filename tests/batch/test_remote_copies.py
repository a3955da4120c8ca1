import errno
import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from support.s3_server import bucket, s3, s3_server  # noqa: F401  fixtures; the path is set just above

from streamkit.batch import remote
from streamkit.batch.inputs import find
from streamkit.batch.probe import cause
from streamkit.batch.remote import local, sweep
from streamkit.core.errors import OutputError, SourceError

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "street.mp4"


def test_a_local_file_is_not_copied(tmp_path):
    (file,) = find([str(SAMPLE)])
    with local(file, tmp_path / "out") as path:
        assert path == SAMPLE
    assert not (tmp_path / "out").exists()


@pytest.fixture
def stored(s3, bucket):  # noqa: F811
    s3.put_object(Bucket=bucket, Key="gate 1/street.mp4", Body=SAMPLE.read_bytes())
    (file,) = find(["s3://gates/**/*.mp4"])
    return s3, file


def test_a_remote_file_is_copied_and_the_copy_removed(stored, tmp_path):
    _, file = stored
    with local(file, tmp_path / "out") as path:
        assert path.name == "street.mp4"
        assert path.is_relative_to(tmp_path / "out")
        assert path.read_bytes() == SAMPLE.read_bytes()
    assert list((tmp_path / "out").iterdir()) == []
    with pytest.raises(KeyError), local(file, tmp_path / "out"):
        raise KeyError
    assert list((tmp_path / "out").iterdir()) == []


def test_a_copy_decodes_as_the_original(stored, tmp_path):
    from streamkit.core.stage import Context
    from streamkit.stages.sources.source import VideoSource

    with local(stored[1], tmp_path) as path:
        source = VideoSource(uri=str(path), keyframes=True)
        source.context = Context(id="a")
        copied = [(frame.index, frame.pts_s, frame.surface.data.tobytes()) for frame in source.frames()]
    source = VideoSource(uri=str(SAMPLE), keyframes=True)
    source.context = Context(id="a")
    assert copied == [(frame.index, frame.pts_s, frame.surface.data.tobytes()) for frame in source.frames()]


def test_a_removed_file_is_reported(stored, tmp_path):
    s3, file = stored  # noqa: F811
    s3.delete_object(Bucket="gates", Key="gate 1/street.mp4")
    with pytest.raises(SourceError, match="there is no such bucket, folder or file") as caught, local(file, tmp_path):
        pass
    assert cause(caught.value) == ("missing", False)
    assert list(tmp_path.glob(".fetch-*")) == []


def test_a_changed_file_is_reported(stored, tmp_path):
    s3, file = stored  # noqa: F811
    s3.put_object(Bucket="gates", Key="gate 1/street.mp4", Body=b"shorter")
    with pytest.raises(SourceError, match="has 7 bytes, and had 459,039 when") as caught, local(file, tmp_path):
        pass
    assert cause(caught.value) == ("lost", True)


@pytest.mark.parametrize(("grown_by", "fits"), [(-1, False), (0, True), (1, False), (1000, False)])
def test_a_copy_of_another_size_is_refused(tmp_path, grown_by, fits):
    memory = MemoryFileSystem()
    memory.pipe_file("/gates/a.mp4", bytes(2000))
    (file,) = find(["memory://gates/a.mp4"])
    memory.pipe_file("/gates/a.mp4", bytes(2000 + grown_by))
    try:
        with nullcontext() if fits else pytest.raises(SourceError) as caught, local(file, tmp_path) as path:
            assert (fits, path.stat().st_size) == (True, 2000)
        if not fits:
            assert f"has {2000 + grown_by:,} bytes, and had 2,000 when it was found" in str(caught.value)
            assert cause(caught.value) == ("lost", True)
    finally:
        memory.rm("/gates", recursive=True)
    assert list(tmp_path.iterdir()) == []


def test_a_copy_of_a_file_of_unknown_size_is_accepted(tmp_path):
    memory = MemoryFileSystem()
    memory.pipe_file("/gates/a.mp4", bytes(2000))
    (file,) = find(["memory://gates/a.mp4"])
    with local(replace(file, size=None), tmp_path) as path:
        assert path.stat().st_size == 2000
    memory.rm("/gates", recursive=True)


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.ENOSPC, OutputError), (errno.EDQUOT, OutputError), (errno.EROFS, OutputError), (errno.EIO, SourceError)],
)
def test_failed_copies_are_attributed_to_file_server_or_disk(tmp_path, monkeypatch, number, kind):
    memory = MemoryFileSystem()
    memory.pipe_file("/gates/a.mp4", b"1234")
    (file,) = find(["memory://gates/a.mp4"])

    def fails(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(MemoryFileSystem, "get_file", fails)
    with pytest.raises(kind), local(file, tmp_path):
        pass
    memory.rm("/gates", recursive=True)


def test_a_lost_server_is_reported(stored, tmp_path, monkeypatch):
    import s3fs

    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")  # botocore's own; s3fs tries again above it
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(SourceError, match="cannot be reached") as caught, local(stored[1], tmp_path):
        pass
    assert cause(caught.value) == ("lost", True)
    assert os.environ["AWS_SECRET_ACCESS_KEY"] not in str(caught.value)


def test_a_full_disk_is_reported(tmp_path, monkeypatch):
    memory = MemoryFileSystem()
    memory.pipe_file("/gates/a.mp4", b"1234")
    (file,) = find(["memory://gates/a.mp4"])
    # a device that is always full
    monkeypatch.setattr(remote, "_copy_path", lambda place, file: Path("/dev/full"))
    with pytest.raises(OutputError, match="no file can be copied there: No space left"), local(file, tmp_path):
        pass
    memory.rm("/gates", recursive=True)


def test_an_impossible_folder_is_reported(tmp_path):
    memory = MemoryFileSystem()
    memory.pipe_file("/gates/a.mp4", b"1234")
    (file,) = find(["memory://gates/a.mp4"])
    (tmp_path / "out").touch()
    with pytest.raises(OutputError, match="no file can be copied there"), local(file, tmp_path / "out"):
        pass
    memory.rm("/gates", recursive=True)


def test_leftovers_of_killed_processes_are_removed(tmp_path):
    for name in (".fetch-1/a.mp4", ".fetch-2/b.mp4", "objects/c.parquet"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    assert sweep(tmp_path) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["objects"]
    assert sweep(tmp_path / "none") == 0
