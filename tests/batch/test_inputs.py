import os
import sys
from pathlib import Path

import pytest
from support.messages import collect
from support.s3_server import bucket, s3, s3_server  # noqa: F401  fixtures
from support.unprivileged import without_rights

from streamkit.batch.inputs import NO_VERSION, find
from streamkit.core.errors import ConfigError, MissingPackage


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """Files that are not opened, and the current folder."""
    for name in (
        "videos/gate 2/a.mp4",
        "videos/gate 10/a.mp4",
        "videos/gate 2/b.MKV",
        "videos/notes.txt",
        "videos/clip9.avi",
        "videos/clip10.avi",
        "videos/.hidden/c.mp4",
        "videos/gate 2/._a.mp4",
        "other/a.mp4",
        "other/raw.dat",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(*patterns):
    return [file.name for file in find(patterns)]


def test_folders_are_searched_recursively(archive):
    files = find(["videos"])
    assert [file.name for file in files] == ["clip9.avi", "clip10.avi", "gate 2/a.mp4", "gate 2/b.MKV", "gate 10/a.mp4"]
    first = files[0]
    path = archive / "videos" / "clip9.avi"
    assert (first.uri, first.size, first.version) == (str(path), 16, str(path.stat().st_mtime_ns))


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("videos/**/*.mp4", ["gate 2/a.mp4", "gate 10/a.mp4"]),
        ("videos/*/a.mp4", ["gate 2/a.mp4", "gate 10/a.mp4"]),
        ("videos/*", ["clip9.avi", "clip10.avi"]),
        ("videos/**", ["clip9.avi", "clip10.avi", "gate 2/a.mp4", "gate 2/b.MKV", "gate 10/a.mp4"]),
        ("videos/gate [2]/*.*", ["gate 2/a.mp4", "gate 2/b.MKV"]),
        ("other/*.dat", ["raw.dat"]),
        ("other/raw.dat", ["raw.dat"]),
        ("*/clip?.avi", ["videos/clip9.avi"]),
        ("./videos/clip9.avi", ["clip9.avi"]),
        ("file://videos/clip9.avi", ["clip9.avi"]),
    ],
)
def test_patterns_match_files(archive, pattern, expected):
    assert names(pattern) == expected


def test_a_file_listed_twice_is_processed_once(archive):
    assert len(find(["videos", "videos/**/*.mp4", "./videos/../videos", str(archive / "videos")])) == 5
    (archive / "videos" / "again").symlink_to(archive / "videos")
    assert len(find(["videos"])) == 5


def test_files_have_distinct_names(archive):
    files = find(["videos/gate 2/a.mp4", "other/a.mp4", "videos/clip9.avi"])
    whole = str(archive)[1:]
    assert [file.name for file in files] == ["clip9.avi", f"{whole}/other/a.mp4", f"{whole}/videos/gate 2/a.mp4"]


@pytest.mark.parametrize(
    "patterns",
    [
        ["videos"],
        ["videos/**/*.*"],
        ["@all.txt"],
        ["videos/clip9.avi", "linked/clip10.avi", "videos/gate 2", "videos/gate 10", "videos/out/video/a.mp4"],
        ["videos", "again.mp4"],
    ],
)
@pytest.mark.parametrize("out", ["videos/out", "{}/videos/out", "linked/../linked/out", "out"])
def test_outputs_of_the_run_are_excluded(archive, patterns, out):
    (archive / "videos" / "out" / "video").mkdir(parents=True)
    (archive / "videos" / "out" / "video" / "a.mp4").touch()
    (archive / "linked").symlink_to("videos")
    (archive / "out").symlink_to("videos/out")
    (archive / "again.mp4").symlink_to("videos/out/video/a.mp4")
    (archive / "all.txt").write_text("linked\nvideos/out/video/*.mp4\n")
    logged = collect()
    folder = Path(out.format(archive))
    assert len(find(patterns, folder)) > 5, "it is no data set: whoever opens it refuses it"
    (archive / "videos" / "out" / "streamkit.json").touch()
    files = find(patterns, folder)
    assert {file.name.rpartition("/")[2] for file in files} == {"a.mp4", "b.MKV", "clip9.avi", "clip10.avi"}
    assert len(files) == 5
    count = 1 + ("again.mp4" in patterns)
    assert logged == [f"{count} file{'s' * (count > 1)} in {folder} skipped: it is the output folder of this run"]
    with pytest.raises(ConfigError, match=r"all files found are in .*out, the output folder of this run"):
        find(["videos/out"], folder)
    assert len(find(["videos"], archive / "videos" / "ou")) == 6


def test_an_existing_file_takes_precedence_over_a_pattern(archive):
    (archive / "a[1].mp4").touch()
    assert names("a[1].mp4") == ["a[1].mp4"]


@pytest.mark.parametrize("call", ["night.txt", "@night.txt"])
def test_a_list_of_files_is_read(archive, call):
    (archive / "night.txt").write_text("\ufeff# of last night\n\nvideos/clip9.avi\n  other/*.mp4  \nvideos/gone.mp4\n")
    assert [(file.name, file.size, file.version == NO_VERSION) for file in find([call])] == [
        ("a.mp4", 11, False),
        ("clip9.avi", 16, False),
        ("gone.mp4", 0, True),
    ]


def test_broken_files_are_included(archive):
    (archive / "videos" / "folder.mp4").mkdir()
    (archive / "videos" / "link.mp4").symlink_to("nowhere.mp4")
    (archive / "videos" / "self.mp4").symlink_to("self.mp4")
    for pattern in ("videos", "videos/**/*.mp4", "videos/*.mp4"):
        files = {file.name: file for file in find([pattern])}
        assert {"folder.mp4", "link.mp4", "self.mp4"} <= set(files)
        assert files["link.mp4"].size == files["folder.mp4"].size == 0
    assert names("videos/folder.mp4") == ["folder.mp4"]
    (archive / "videos" / "folder.mp4" / "z.mp4").touch()
    assert names("videos/folder.mp4") == ["z.mp4"]


def test_a_name_that_is_not_utf_8_is_printable_and_can_be_opened(archive):
    path = archive / "videos" / os.fsdecode(b"caf\xe9.mp4")
    path.write_bytes(b"video")
    (file,) = find(["videos/caf*"])
    assert (file.name, file.size) == ("caf\\xe9.mp4", 5)
    assert Path(file.uri).read_bytes() == b"video"
    (archive / "other" / path.name).touch()
    assert {file.name.rpartition("/")[2] for file in find(["videos/caf*", "other/caf*"])} == {"caf\\xe9.mp4"}


def test_pipes_are_included(archive):
    os.mkfifo(archive / "videos" / "pipe.mp4")
    assert "pipe.mp4" in names("videos")
    assert names("videos/p*") == ["pipe.mp4"]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("videos", "clip9.avi clip10.avi gate 2/a.mp4 gate 2/b.MKV gate 10/a.mp4 shut"),
        ("videos/", "clip9.avi clip10.avi gate 2/a.mp4 gate 2/b.MKV gate 10/a.mp4 shut"),
        ("videos/**/*.mp4", "gate 2/a.mp4 gate 10/a.mp4 shut"),
        ("videos/*/a.mp4", "gate 2/a.mp4 gate 10/a.mp4 shut"),
        ("videos/*.avi", "clip9.avi clip10.avi"),
        ("videos/shut", "videos/shut: no permission to read the folder videos/shut"),
        ("videos/shut/*.mp4", "videos/shut/*.mp4: no permission to read the folder videos/shut"),
        ("videos/shut/deep/a.mp4", "videos/shut/deep/a.mp4: no permission to read the folder videos/shut"),
    ],
)
def test_an_unreadable_folder_is_an_error(archive, pattern, message):
    (archive / "videos" / "shut").mkdir(mode=0)
    code = (
        "import sys; from streamkit.batch.inputs import find; from streamkit.core.errors import ConfigError\n"
        "try: print(*[file.name for file in find(sys.argv[1:])])\n"
        "except ConfigError as error: print(error)"
    )
    completed = without_rights("-c", code, pattern, cwd=archive)
    assert (completed.stdout.rstrip(), completed.stderr) == (message, "")


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("vidoes", r"^vidoes: there is no such file or folder$"),
        ("vidoes/*.mp4", r"^vidoes/\*\.mp4: there is no folder vidoes$"),
        ("videos/*.mp4", r"matches no video; \*\* matches any number of folders"),
        ("videos/**/*.webm", r"matches no video$"),
        ("empty", r"has no file with a video extension"),
        ("gone.txt", r"there is no list gone\.txt"),
        ("@gone", r"there is no list gone"),
        ("blank.txt", r"the list blank\.txt is empty"),
        ("bytes.txt", r"not UTF-8 text"),
        ("lost.txt", r"none of the 2 files in the list lost\.txt exists, relative to /"),
        ("nothing.txt", r"vidoes/\*\.mp4, in the list nothing\.txt: there is no folder vidoes"),
        ("rtsp://user:secret@host/a", r"rtsp://user:\*\*\*@host/a: batch processes files"),
        ("s4://bucket/*.mp4", r"no scheme s4://; there are s3, gs, abfs, sftp, http"),
        ("ftp://me:secret@host/a.mp4", r"ftp://me:\*\*\*@host/a\.mp4: remove the password"),
        ("https://host/a.mp4?token=secret", r"token=\*\*\*: remove the password"),
        ("memory://nowhere/*.mp4", r"no such bucket, folder or file|matches no video"),
    ],
)
def test_inputs_without_files_are_refused(archive, pattern, text):
    (archive / "empty").mkdir()
    (archive / "blank.txt").write_text("# nothing\n")
    (archive / "bytes.txt").write_bytes(b"\xff\xfe\x00")
    (archive / "lost.txt").write_text("a.mp4\nb.mp4\n")
    (archive / "nothing.txt").write_text("vidoes/*.mp4\n")
    with pytest.raises(ConfigError, match=text) as caught:
        find(["other/a.mp4", pattern])
    assert "secret" not in str(caught.value)


def test_a_missing_package_is_named(archive, monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(MissingPackage, match=r"fsspec; install it with: .*\[batch\]'"):
        find(["s3://gates/*.mp4"])
    monkeypatch.delitem(sys.modules, "fsspec.core")
    from fsspec.registry import _registry

    monkeypatch.delitem(_registry, "s3", raising=False)
    with pytest.raises(MissingPackage, match=r"s3fs; install it with: .*\[s3\]'"):
        find(["s3://gates/*.mp4"])


# ------------------------------------------------------------------------------------------------------------ S3


@pytest.fixture
def stored(s3, bucket):  # noqa: F811
    for key in ("2026/gate 2/a.mp4", "2026/gate 10/a.mp4", "2026/b.mkv", "2026/notes.txt", "raw.dat"):
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    return s3


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("s3://gates/**/*.mp4", ["2026/gate 2/a.mp4", "2026/gate 10/a.mp4"]),
        ("s3://gates/2026/*/a.mp4", ["gate 2/a.mp4", "gate 10/a.mp4"]),
        ("s3://gates/2026", ["b.mkv", "gate 2/a.mp4", "gate 10/a.mp4"]),
        ("s3://gates/2026/", ["b.mkv", "gate 2/a.mp4", "gate 10/a.mp4"]),
        ("s3://gates", ["2026/b.mkv", "2026/gate 2/a.mp4", "2026/gate 10/a.mp4"]),
        ("s3://gates/raw.dat", ["raw.dat"]),
    ],
)
def test_files_of_a_bucket_are_listed(stored, pattern, expected):
    files = find([pattern])
    assert [file.name for file in files] == expected
    assert all(file.uri.startswith("s3://gates/") for file in files)


def test_the_etag_identifies_the_version_of_a_bucket_file(stored):
    (file,) = find(["s3://gates/2026/b.mkv"])
    assert (file.uri, file.size) == ("s3://gates/2026/b.mkv", 10)
    assert file.version == stored.head_object(Bucket="gates", Key="2026/b.mkv")["ETag"].strip('"')


def test_a_list_may_mix_local_and_remote_files(stored, archive):
    (archive / "both.txt").write_text("videos/clip9.avi\ns3://gates/2026/*/*.mp4\n")
    assert names("both.txt") == ["clip9.avi", "gate 2/a.mp4", "gate 10/a.mp4"]


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("s3://nobody/*.mp4", r"^s3://nobody/\*\.mp4: there is no such bucket, folder or file"),
        ("s3://nobody/a.mp4", r"there is no such bucket, folder or file"),
        ("s3://gates/2027/**/*.mp4", r"^s3://gates/2027/\*\*/\*\.mp4: the pattern matches no video$"),
        ("s3://gates/2027", r"there is no such bucket, folder or file"),
    ],
)
def test_a_missing_file_of_a_bucket_is_reported(stored, pattern, text):
    with pytest.raises(ConfigError, match=text):
        find([pattern])


def test_missing_credentials_are_reported(stored, monkeypatch):
    import s3fs

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(ConfigError, match=r"credentials are missing; set AWS_ACCESS_KEY_ID"):
        find(["s3://gates/*.mp4"])


def test_an_unreachable_server_is_reported(stored, monkeypatch):
    import s3fs

    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")  # botocore's own; s3fs tries again above it
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(ConfigError, match=r"the server cannot be reached") as caught:
        find(["s3://gates/*.mp4"])
    assert os.environ["AWS_SECRET_ACCESS_KEY"] not in str(caught.value)
