"""Made-up sources and stages for whole runs; they note in LOG what becomes of them."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Batch, Color, Device, Frame, Surface
from streamkit.core.errors import ModelError, OutputError, SourceError, StreamkitError
from streamkit.core.stage import BatchStage, Collecting, FrameStage, Registry, Sink, Source, StreamStage, stage
from streamkit.runtime.pipeline import PipelineRun
from streamkit.runtime.run import RunConfig
from streamkit.testing.kit import detections

LOG: list[Any] = []  # what the stages below note; emptied before each test
WAIT_S = 60.0


@pytest.fixture(autouse=True)
def _nothing_is_left_behind():
    """Every run, however it ends, leaves no thread."""
    LOG.clear()
    before = set(threading.enumerate())
    yield
    left = [thread.name for thread in set(threading.enumerate()) - before]
    assert left == []


def test_uri(**options: Any) -> str:
    wanted = {"width": 64, "height": 48, "frames": 5, **options}
    return "'test://?" + "&".join(f"{k}={v}" for k, v in wanted.items()) + "'"


test_uri.__test__ = False  # type: ignore[attr-defined]
REGISTRY = Registry()

with Collecting(REGISTRY):

    @stage("gray", writes="pixels")
    class Gray(Source):
        """Frames of one gray; slowly, without an end, or with an error, as asked."""

        level: int = 128
        frames_: int = 5
        width: int = 64
        height: int = 48
        pause_s: float = 0.0
        fails_at: int | None = None
        trouble: str = ""

        def open(self) -> None:
            LOG.append(("open", self.context.id))
            if self.trouble == "open":
                raise SourceError("there is no such camera")

        def close(self) -> None:
            LOG.append(("close", self.context.id))

        def frames(self) -> Iterator[Frame]:
            for index in range(self.frames_):
                if index == self.fails_at:
                    raise {"error": ValueError, "": SourceError}[self.trouble]("it broke")
                time.sleep(self.pause_s)
                surface = Surface(np.full((self.height * 3 // 2, self.width), self.level, np.uint8), Color())
                yield Frame(self.context.id, index, index / 25, self.width, self.height, surface)

    @stage("find", reads="pixels", writes="detections")
    class Find(BatchStage):
        """As many objects as the frame's index modulo 3 says; notes the batch; raises as asked."""

        bad: int | None = None
        pause_s: float = 0.0

        def process(self, batch: Batch) -> Batch:
            LOG.append([(frame.source, frame.width) for frame in batch.frames])
            time.sleep(self.pause_s)
            if any(frame.index == self.bad for frame in batch.frames):
                raise ValueError("a bad one")
            boxes = []
            rows = []
            for row, frame in enumerate(batch.frames):
                for n in range(frame.index % 3):
                    boxes.append([n, frame.index, n + 5, frame.index + 5])
                    rows.append(row)
            table = detections(boxes)
            batch.tables[self.context.id] = table.with_columns(batch_row=np.array(rows, np.int32))
            return batch

    @stage("paint", reads="pixels", writes="pixels")
    class Paint(BatchStage):
        """Make the picture black, in place where the runner says that it may."""

        level: int = 0

        def process(self, batch: Batch) -> Batch:
            for frame in batch.frames:
                assert frame.surface is not None
                if getattr(self, "in_place", False):
                    frame.surface.data[:] = self.level
                else:
                    frame.surface = Surface(np.full_like(frame.surface.data, self.level), frame.surface.color)
            return batch

    @stage("tell", writes="events")
    class Tell(FrameStage):
        """An event a frame."""

        kind: str = "seen"
        bad: int | None = None

        def process(self, frame: Frame) -> None:
            if frame.index == self.bad:
                raise ValueError("cannot tell")
            frame.emit(self.kind)

    @stage("in_order")
    class InOrder(StreamStage):
        """Notes a source's frames out of order."""

        def new_state(self, source: str) -> list[int]:
            return []

        def process(self, batch: Batch, states: Any) -> Batch:
            for frame in batch.frames:
                states[frame.source].append(frame.index)
                if states[frame.source] != list(range(len(states[frame.source]))):
                    LOG.append(("out of order", frame.source, frame.index))
            return batch

    @stage("keep")
    class Keep(Sink):
        """Keeps what is written in LOG: (id, source, index, middle pixel, objects, error)."""

        pause_s: float = 0.0

        def write(self, frame: Frame) -> None:
            time.sleep(self.pause_s)
            middle = None if frame.surface is None else int(frame.surface.data[3, 3])
            LOG.append((self.context.id, frame.source, frame.index, middle, len(frame.detections), frame.error))

    @stage("trouble", reads="pixels")
    class Trouble(BatchStage):
        """Raises where it is told to."""

        where: str = "open"
        error: Any = RuntimeError

        def open(self) -> None:
            LOG.append("trouble opened")
            self._perhaps("open")

        def process(self, batch: Batch) -> Batch:
            if self.where == "process":
                raise StreamkitError("no more of this")
            return batch

        def close(self) -> None:
            LOG.append("trouble closed")
            self._perhaps("close")

        def _perhaps(self, where: str) -> None:
            if self.where == where:
                raise self.error("it does not work")

    @stage("model_trouble", reads="pixels")
    class ModelTrouble(BatchStage):
        """A model that cannot be used."""

        def open(self) -> None:
            raise ModelError("no such model")

        def process(self, batch: Batch) -> Batch:
            return batch

    @stage("noted", reads="pixels")
    class Noted(BatchStage):
        """Notes that it was opened and closed, and on which thread."""

        def open(self) -> None:
            LOG.append(("opened", self.context.id, threading.get_ident()))

        def process(self, batch: Batch) -> Batch:
            return batch

        def close(self) -> None:
            LOG.append(("closed", self.context.id, threading.get_ident()))

    @stage("unwritable")
    class Unwritable(Sink):
        """A file that cannot be written, at the moment asked for."""

        path: str = "x"
        where: str = "open"

        def open(self) -> None:
            if self.where == "open":
                raise OutputError("the disk is full")

        def write(self, frame: Frame) -> None:
            if self.where == "write":
                raise OutputError("the disk is full")

        def end(self, source: str) -> None:
            if self.where == "end":
                raise OutputError("the disk is full")


EXTRA = [REGISTRY.get(name) for name in REGISTRY.names()]


@pytest.fixture(name="run")
def run_fixture(run_pipeline):
    def call(sources: dict[str, str], *stages: str, limit: int | None = None, head: str = ""):
        listed = "".join(f"  {name}: {text}\n" for name, text in sources.items())
        text = f"{head}\nsources:\n{listed}stages:\n" + "".join(f"  {line}\n" for line in stages)
        return run_pipeline(text, extra=EXTRA, limit=limit)

    return call


def pipeline(sources: dict[str, str], *stages: str, **options: Any) -> PipelineRun:
    from streamkit.core.stage import default_registry

    registry = default_registry()
    for kind in EXTRA:
        registry.add(kind)
    listed = "".join(f"  {name}: {text}\n" for name, text in sources.items())
    text = f"sources:\n{listed}stages:\n" + "".join(f"  {line}\n" for line in stages)
    return PipelineRun(build(read_text(text, registry=registry)), Device("cpu"), RunConfig(**options))


def entries_of(id_: str = "keep", source: str | None = None) -> list[tuple[Any, ...]]:
    return [e[1:] for e in LOG if isinstance(e, tuple) and e[0] == id_ and (source is None or e[1] == source)]
