"""Remote files that are read by ranges: what is requested, what comes out, and what happens if the server fails."""

import shutil
from collections import Counter
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.clips import write
from support.dataset_runs import graph_of, run, settings
from support.s3_server import bucket, s3, s3_server  # noqa: F401  fixtures
from support.small_clips import clip, with_a_gap

from streamkit.batch import remote
from streamkit.batch.inputs import find
from streamkit.batch.job import BatchJob, FrameSelection
from streamkit.batch.manager import BatchCounts
from streamkit.batch.probe import cause
from streamkit.batch.processed_duration import MeasuredSource
from streamkit.batch.summary import lines
from streamkit.batch.worker import BatchWorker
from streamkit.core.errors import SourceError
from streamkit.core.stage import Context
from streamkit.media.demux import Demuxer
from streamkit.stages.sources.source import VideoSource

ROOT = Path(__file__).resolve().parents[2]
STREET = ROOT / "samples" / "street.mp4"
COUNT = """
device: cpu
stages:
  jsonl: {path: "unused/{source}.jsonl"}
"""
BLOCK = 1 << 16


@pytest.fixture
def calls(monkeypatch):
    """The calls to S3 by their names, and the bytes of the ranges that were asked for; in blocks of 64 KiB."""
    import s3fs

    seen = Counter()
    ask = s3fs.S3FileSystem._call_s3

    async def counted(self, method, *args, **options):
        seen[method] += 1
        if "Range" in options:
            first, last = options["Range"].removeprefix("bytes=").split("-")
            seen["bytes"] += int(last) - int(first) + 1
        return await ask(self, method, *args, **options)

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", counted)
    monkeypatch.setattr(remote, "open_ranges", partial(remote.open_ranges, block_bytes=BLOCK))
    return seen


def stored(s3, path):  # noqa: F811
    s3.put_object(Bucket="gates", Key=path.name, Body=path.read_bytes())
    (file,) = find([f"s3://gates/{path.name}"])
    return file


def decoded(path, file=None, **options):
    source = MeasuredSource(uri=str(path), file=file, **options)
    source.context = Context(id="a")
    return [(frame.index, frame.pts_s, frame.damaged, frame.surface.data.tobytes()) for frame in source.frames()]


def local(path, **options):
    source = VideoSource(uri=str(path), **options)
    source.context = Context(id="a")
    return [(frame.index, frame.pts_s, frame.damaged, frame.surface.data.tobytes()) for frame in source.frames()]


def test_thousands_of_objects_are_listed_in_few_requests(s3, bucket, calls):  # noqa: F811
    from moto.backends import get_backend

    server = get_backend("s3")["123456789012"]["aws"]  # of the same process: a request for each takes long
    for number in range(1001):
        server.put_object(bucket, f"2026/cam{number % 7}/{number}.mp4", b"x" * (number % 5))
    calls.clear()
    files = find(["s3://gates/2026/**/*.mp4"])
    assert len(files) == 1001
    assert all(file.version and file.size is not None for file in files)
    assert calls == {"list_objects_v2": 2}
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": entry["Key"]} for entry in page["Contents"]]})


@pytest.mark.parametrize("suffix", ["mp4", "moov last.mp4", "mkv", "avi", "ts", "h264", "mov"])
def test_frames_equal_those_of_the_local_file(s3, bucket, calls, tmp_path, suffix):  # noqa: F811
    path = tmp_path / f"a.{suffix}"
    if suffix == "mp4":
        shutil.copyfile(STREET, path)
    elif suffix == "moov last.mp4":
        clip(path, 20)
    else:
        write(path, frames=20)
    expected = local(path, end=2.0)
    assert len(expected) >= 20
    with remote.opened(stored(s3, path), tmp_path / "out") as (name, file):
        assert name == path.name
        assert decoded(name, file, end=2.0) == expected
    assert not (tmp_path / "out").exists(), "nothing is copied"
    assert calls["bytes"] <= path.stat().st_size + 2 * BLOCK


def test_parts_and_keyframes_equal_those_of_the_local_file(s3, bucket, calls, tmp_path):  # noqa: F811
    file = stored(s3, STREET)
    for options in ({"keyframes": True}, {"start": 14.0, "every": 3}, {"start": 3.0, "end": 4.0}):
        with remote.opened(file, tmp_path) as (name, opened):
            assert decoded(name, opened, **options) == local(STREET, **options)


def test_only_the_needed_ranges_are_fetched(s3, bucket, calls, tmp_path):  # noqa: F811
    file = stored(s3, STREET)
    calls.clear()
    with remote.opened(file, tmp_path) as (name, opened):
        assert len(decoded(name, opened, end=1.0)) == 25
    assert calls["bytes"] <= 4 * BLOCK < STREET.stat().st_size / 1.7
    assert calls["head_object"] == 1


def test_damage_of_a_transport_stream_is_reported_as_for_a_local_file(s3, bucket, calls, tmp_path):  # noqa: F811
    path = with_a_gap(tmp_path / "a.ts")
    with pytest.raises(SourceError) as expected:
        local(path)
    with pytest.raises(SourceError) as caught, remote.opened(stored(s3, path), tmp_path) as (name, opened):
        decoded(name, opened)
    assert (caught.value.cause, caught.value.damaged) == (expected.value.cause, expected.value.damaged)


def test_bytes_are_read_again_without_moving_the_demuxer(s3, bucket, calls, tmp_path):  # noqa: F811
    with remote.opened(stored(s3, STREET), tmp_path) as (name, file), closing(Demuxer(name, file=file)) as demuxer:
        packets = demuxer.packets()
        first = [bytes(next(packets)) for _ in range(50)]
        assert demuxer.read_bytes(100, 70_000) == STREET.read_bytes()[100:70_000]
        packet_bytes = [*first, *map(bytes, packets)]
    with closing(Demuxer(str(STREET))) as demuxer:
        assert demuxer.read_bytes(100, 200) == STREET.read_bytes()[100:200]
        assert packet_bytes == [bytes(packet) for packet in demuxer.packets()]


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", "empty"),
        (b"no video at all\n" * 10, "no_video"),
        (STREET.read_bytes()[:200_000], "truncated"),
        (np.random.default_rng(1).bytes(5000), "no_video"),
    ],
)
def test_incomplete_videos_have_the_cause_of_a_local_file(s3, bucket, calls, tmp_path, content, kind):  # noqa: F811
    path = tmp_path / "a.mp4"
    path.write_bytes(content)
    with pytest.raises(SourceError) as expected:
        local(path)
    with pytest.raises(SourceError) as caught, remote.opened(stored(s3, path), tmp_path) as (name, opened):
        decoded(name, opened)
    assert cause(caught.value) == cause(expected.value)
    assert cause(caught.value)[0] == kind
    assert str(caught.value) == str(expected.value).replace(str(path), path.name)


def half_read(s3, then, tmp_path):  # noqa: F811
    """Read the street's first frame, let something happen, and read on."""
    with remote.opened(stored(s3, STREET), tmp_path) as (name, file):
        source = MeasuredSource(uri=name, file=file)
        source.context = Context(id="a")
        frames = source.frames()
        next(frames)
        then()
        return sum(1 for _ in frames)


def test_an_object_removed_while_reading_is_reported(s3, bucket, calls, tmp_path):  # noqa: F811
    with pytest.raises(SourceError, match="there is no such bucket, folder or file") as caught:
        half_read(s3, lambda: s3.delete_object(Bucket="gates", Key="street.mp4"), tmp_path)
    assert cause(caught.value) == ("missing", False)


def test_an_object_replaced_while_reading_is_reported(s3, bucket, calls, tmp_path):  # noqa: F811
    other = STREET.read_bytes()[::-1]
    with pytest.raises(SourceError) as caught:
        half_read(s3, lambda: s3.put_object(Bucket="gates", Key="street.mp4", Body=other), tmp_path)
    assert cause(caught.value) == ("lost", True)


def test_a_connection_lost_while_reading_is_reported(s3, bucket, calls, tmp_path, monkeypatch, capfd):  # noqa: F811
    import s3fs

    async def lost(*_, **__):
        raise ConnectionResetError("reset by peer")

    with pytest.raises(SourceError, match=r"s3://gates/street\.mp4: the server cannot be reached") as caught:
        half_read(s3, lambda: monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", lost), tmp_path)
    assert cause(caught.value) == ("lost", True)
    assert capfd.readouterr().err == ""


def test_a_failed_read_is_reported_although_the_video_looks_complete():
    class Fails:
        reads = 0

        def read(self, size):
            self.reads += 1
            raise TimeoutError

    file = remote.RangeFile("s3://gates/a.h264", Fails())
    with pytest.raises(SourceError, match=r"s3://gates/a\.h264: the server cannot be reached"), file.checked():
        assert file.read(10) == file.read(10) == b""
    assert file._file.reads == 1


def test_an_object_changed_since_the_listing_is_reported(s3, bucket, tmp_path):  # noqa: F811
    file = stored(s3, STREET)
    s3.put_object(Bucket="gates", Key="street.mp4", Body=STREET.read_bytes()[::-1])
    with pytest.raises(SourceError, match="its ETag is another one") as caught, remote.opened(file, tmp_path):
        pass
    assert cause(caught.value) == ("lost", True)
    with pytest.raises(SourceError, match="and had 459,040 when it was found"):
        remote.opened(replace(file, size=459_040), tmp_path).__enter__()


def test_a_worker_continues_with_the_other_files(s3, bucket, calls, tmp_path):  # noqa: F811
    batch_settings = settings(tmp_path, COUNT, "jsonl", look=FrameSelection(end_s=1.0))
    there = stored(s3, STREET)
    absent = stored(s3, clip(tmp_path / "gone.mp4"))
    s3.delete_object(Bucket="gates", Key="gone.mp4")
    worker = BatchWorker(batch_settings, "cpu")
    try:
        first = worker.process(BatchJob(absent, "gone-0"))
        then = worker.process(BatchJob(there, "street-0"))
    finally:
        assert worker.close()
    assert (first.status, first.cause_kind) == ("failed", "missing")
    assert (then.status, then.frames, then.facts["codec"]) == ("done", 25, "h264")
    assert "copied" not in then.facts
    assert (batch_settings.out / "jsonl" / "street-0.jsonl").read_bytes().count(b"\n") == 25
    run(batch_settings, graph_of(batch_settings), {"local-0": there}, uri=STREET, limit=25)
    texts = [(batch_settings.out / "jsonl" / f"{key}-0.jsonl").read_text() for key in ("street", "local")]
    assert texts[0] == texts[1]


def test_the_cause_of_a_lost_connection_omits_the_address(s3, bucket, tmp_path, monkeypatch):  # noqa: F811
    batch_settings = settings(tmp_path, COUNT, "jsonl")
    monkeypatch.setattr(remote, "open_ranges", partial(remote.open_ranges, block_bytes=BLOCK))
    monkeypatch.setattr(remote.RangeFile, "read", read_until_lost(remote.RangeFile.read, 3 * BLOCK))
    worker = BatchWorker(batch_settings, "cpu")
    try:
        outcome = worker.process(BatchJob(stored(s3, STREET), "street-0"))
    finally:
        assert worker.close()
    assert (outcome.status, outcome.cause_kind, outcome.again) == ("failed", "lost", True)
    assert outcome.cause.startswith("the server cannot be reached (ConnectionResetError")


def read_until_lost(read, offset):
    """Return a `read` whose connection is lost after an offset in the file, in bytes."""

    def read_or_lose(self, size=-1):
        if offset < self.tell() < STREET.stat().st_size:
            self._file.read = lose_connection
        return read(self, size)

    def lose_connection(*_):
        raise ConnectionResetError

    return read_or_lose


def test_copies_are_counted_in_the_summary():
    counts = BatchCounts(done=3, copied=2)
    assert "copied before they were read, because their server sends only whole files: 2 files" in list(lines(counts))
