import os
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from support import corpus
from support.breaking import WAYS
from support.s3_server import bucket, s3, s3_server  # noqa: F401  fixtures

from streamkit.batch.probe import Probe, cause, probe
from streamkit.core.errors import DeviceError, OutputError, SourceError, StageError
from streamkit.core.stage import Context
from streamkit.stages.sources.source import VideoSource

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "street.mp4"
STREET = Probe(16.0, "h264", 640, 360, 25.0, 400)


@pytest.fixture(scope="module")
def video_corpus(tmp_path_factory, test_data):
    folder = tmp_path_factory.mktemp("corpus")
    videos = test_data / "videos"
    return corpus.make(folder, videos, 18 + len(WAYS), len(WAYS), seed=3)


def test_a_header_is_read(monkeypatch):
    import av

    def refused(*arguments):
        raise AssertionError("nothing is decoded")

    monkeypatch.setattr(av, "VideoFrame", refused)
    assert probe(str(SAMPLE)) == STREET


def test_a_remote_header_is_read(s3, bucket):  # noqa: F811
    s3.put_object(Bucket=bucket, Key="street.mp4", Body=SAMPLE.read_bytes())
    s3.put_object(Bucket=bucket, Key="text.mp4", Body=b"no video " * 100)
    assert probe("s3://gates/street.mp4") == STREET
    text = probe("s3://gates/text.mp4")
    assert (text.kind, text.problem) == ("no_video", "this is a text file, not a video")
    assert probe("s3://gates/gone.mp4").kind == "missing"


def test_only_the_header_of_a_remote_file_is_read(monkeypatch):
    memory = MemoryFileSystem()
    memory.pipe_file("/gates/street.mp4", SAMPLE.read_bytes() + bytes(50_000_000))
    blocks = []
    opened = MemoryFileSystem.open

    def watched(self, path, mode="rb", block_size=None, **options):
        blocks.append(block_size)
        return opened(self, path, mode, block_size, **options)

    monkeypatch.setattr(MemoryFileSystem, "open", watched)
    assert probe("memory://gates/street.mp4") == STREET
    assert blocks == [1 << 18]
    memory.rm("/gates", recursive=True)


def test_a_pipe_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe.mp4")
    header = probe(str(tmp_path / "pipe.mp4"))
    assert (header.kind, header.problem) == ("no_video", "this is a named pipe, not a video file")


def test_good_files_have_valid_headers(video_corpus):
    assert len({Path(name).suffix for name in video_corpus.good}) >= 5
    headers = {name: probe(str(video_corpus.folder / name)) for name in video_corpus.good}
    assert {header.codec for header in headers.values()} == set(corpus.FORMS)
    for name, header in headers.items():
        assert (header.problem, header.kind, header.width, header.height, header.fps) == (None, "", 320, 192, 25.0), (
            name
        )
        assert header.frames == video_corpus.good[name], name
        assert header.duration_s == pytest.approx(video_corpus.good[name] / 25, abs=0.05), name


def test_wrong_headers_are_reported(video_corpus):
    for name, kind in video_corpus.broken.items():
        header = probe(str(video_corpus.folder / name))
        assert header.kind in (kind, ""), name
        assert bool(header.problem) == bool(header.kind)
        assert str(video_corpus.folder) not in (header.problem or ""), "who shows it says which file it is"
    seen = [probe(str(video_corpus.folder / name)).kind for name in video_corpus.broken]
    assert sum(map(bool, seen)) >= 12


def test_each_kind_of_damage_has_its_cause(video_corpus):
    wrong = {}
    for name, kind in video_corpus.broken.items():
        source = VideoSource(uri=str(video_corpus.folder / name))
        source.context = Context(id="a")
        with pytest.raises(SourceError) as caught:
            list(source.frames())
        if cause(caught.value) != (kind, False):
            wrong[name] = cause(caught.value), kind
    assert not wrong
    assert len(video_corpus.broken) == len(WAYS) == 20
    assert len(set(video_corpus.broken.values())) >= 6


def test_good_files_have_all_their_frames(video_corpus):
    for name, count in video_corpus.good.items():
        source = VideoSource(uri=str(video_corpus.folder / name))
        source.context = Context(id="a")
        assert [frame.index for frame in source.frames()] == list(range(count)), name


def test_keyframes_of_good_files_are_a_second_apart(video_corpus):
    for name, count in video_corpus.good.items():
        source = VideoSource(uri=str(video_corpus.folder / name), keyframes=True)
        source.context = Context(id="a")
        step = 1 if "mjpeg" in probe(str(video_corpus.folder / name)).codec else 25
        assert [frame.index for frame in source.frames()] == list(range(0, count, step)), name


def test_the_corpus_is_the_same_each_time(tmp_path, video_corpus, test_data):
    videos = test_data / "videos"
    again = corpus.make(tmp_path, videos, len(video_corpus.good) + len(WAYS), len(WAYS), seed=3)
    assert (again.good, again.broken) == (video_corpus.good, video_corpus.broken)
    for name in [*again.good, *again.broken]:
        original = video_corpus.folder / name
        other = tmp_path / name
        if original.is_file():
            assert original.read_bytes() == other.read_bytes(), name
    other, third = (corpus.make(tmp_path / str(seed), videos, 6, 0, seed=seed) for seed in (4, 5))
    assert other.good != third.good


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (SourceError("a", cause="truncated"), ("truncated", False)),
        (SourceError("a", cause="auth"), ("permission", False)),
        (SourceError("a", cause="not_found"), ("missing", False)),
        (SourceError("a", cause="refused"), ("lost", True)),
        (SourceError("a", cause="timeout"), ("timeout", True)),
        (SourceError("a"), ("damaged", False)),
        (MemoryError(), ("memory", True)),
        (RuntimeError("CUDA error: out of memory"), ("memory", True)),
        (OutputError("full"), ("output", False)),
        (DeviceError("gone"), ("device", True)),
        (PermissionError(13, "no"), ("permission", False)),
        (FileNotFoundError(2, "no"), ("missing", False)),
        (TimeoutError(), ("timeout", True)),
        (OSError(5, "Input/output error"), ("lost", True)),
        (StageError("detect", ValueError("x")), ("stage", False)),
        (ValueError("x"), ("stage", False)),
    ],
    ids=repr,
)
def test_errors_map_to_causes(error, expected):
    assert cause(error) == expected


def test_every_source_error_has_a_cause():
    causes = set(SourceError.CAUSES)
    words = {cause(SourceError("a", cause=source_cause))[0] for source_cause in causes}
    assert words <= causes | {"permission", "missing", "lost"}
    assert {"damaged", "empty", "no_video", "codec", "truncated", "missing", "permission", "timeout"} <= words
