"""What a plugin does wrong is a failure with the place in its file, never a crash of the run or silence."""

from pathlib import Path

import pytest

import streamkit

PLUGIN = '''
from streamkit import BatchStage, Frame, FrameStage, Sink, Source, SourceError, StreamStage, stage


class Unreadable(SourceError):
    def __str__(self):
        raise ZeroDivisionError


class Thing:
    def __str__(self):
        raise ZeroDivisionError

    __repr__ = __str__


def fail(frames):
    if any(frame.index == 1 for frame in frames):
        raise type("Broken", (Exception,), {"__str__": Unreadable.__str__})


@stage("function")
def function(frame):
    """Fail."""
    fail([frame])


@stage("frames")
class Frames(FrameStage):
    """Fail."""

    def process(self, frame):
        fail([frame])


@stage("batches", reads="pixels")
class Batches(BatchStage):
    """Fail."""

    def process(self, batch):
        fail(batch.frames)
        return batch


@stage("streams", reads="pixels")
class Streams(StreamStage):
    """Fail."""

    def process(self, batch, states):
        fail(batch.frames)
        return batch


@stage("sink", reads="pixels", target="")
class Last(Sink):
    """Fail."""

    def write(self, frame):
        fail([frame])


@stage("camera")
class Camera(Source):
    """Fail."""

    def frames(self):
        raise Unreadable
        yield


@stage("thing", writes="events")
def thing(frame):
    """Emit what has no text."""
    frame.emit("seen", what=Thing())


@stage("answer", reads="pixels")
def answer(frame, *, kind: str):
    """Return something."""
    if kind == "nothing":
        return None
    return {"frame": frame, "image": frame.image(), "mapping": {"people": 3}, "generator": (n for n in [1])}[kind]
'''

IS_COPY = "frame.image() is a copy: to change the picture, assign frame.surface, an NV12 Surface"


@pytest.fixture
def run(tmp_path: Path):
    (tmp_path / "mine.py").write_text(PLUGIN)

    def run_stages(stages: str, source: str = "'test://?frames=3&width=64&height=48'"):
        path = tmp_path / "pipeline.yaml"
        path.write_text(f"plugins: [mine.py]\nsources: {{a: {source}}}\nstages: {stages}\n")
        return list(streamkit.run(str(path), device="cpu"))

    return run_stages


@pytest.mark.parametrize("kind", ["function", "frames", "batches", "streams", "sink"])
def test_an_exception_whose_text_raises_fails_its_frame(run, kind, tmp_path):
    records = tmp_path / "a.jsonl"
    frames = run(f"{{{kind}: {{}}, jsonl: {{path: '{records}'}}}}")
    assert [frame.error for frame in frames[::2]] == [None, None]
    line = 1 + PLUGIN.splitlines().index('        raise type("Broken", (Exception,), {"__str__": Unreadable.__str__})')
    text = f"{kind} failed on a frame 1 (0.04 s): Broken: (no text: __str__ raises ZeroDivisionError) (mine.py:{line})"
    assert frames[1].error == text
    assert [text in record for record in records.read_text().splitlines()] == [False, True, False]


def test_a_source_error_whose_text_raises_fails_the_source(run):
    with pytest.raises(streamkit.SourceError, match="no text: __str__ raises ZeroDivisionError"):
        run("{thing: {}}", "{stage: camera}")


def test_data_whose_text_raises_is_marked_in_the_record(run, tmp_path):
    path = tmp_path / "a.jsonl"
    run(f"{{thing: {{}}, jsonl: {{path: '{path}'}}}}")
    assert path.read_text().count('"data":{"what":"(no text: __str__ raises ZeroDivisionError)"}') == 3


@pytest.mark.parametrize("kind", ["nothing", "frame"])
def test_a_frame_stage_may_return_nothing_or_its_frame(run, kind):
    assert [frame.error for frame in run(f"{{answer: {{kind: {kind}}}}}")] == [None] * 3


@pytest.mark.parametrize(
    ("kind", "type_name", "hint"),
    [
        ("image", "numpy.ndarray", IS_COPY),
        ("mapping", "dict", "assign frame.detections, or call frame.emit(...)"),
        ("generator", "generator", "assign frame.detections, or call frame.emit(...)"),
    ],
)
def test_any_other_return_value_of_a_frame_stage_fails_the_frame(run, kind, type_name, hint):
    line = 1 + PLUGIN.splitlines().index('@stage("answer", reads="pixels")')
    errors = [frame.error for frame in run(f"{{answer: {{kind: {kind}}}}}")]
    text = f"TypeError: a frame stage must return None or its frame, got {type_name}; {hint} (mine.py:{line})"
    assert [text in error for error in errors] == [True] * 3
