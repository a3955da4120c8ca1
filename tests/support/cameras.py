"""Pipelines of fake cameras that run on a thread while a test controls them."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_source, read_text
from streamkit.config.plan import SourceConfig
from streamkit.core.data import Color, Device, Frame, Surface
from streamkit.core.errors import SourceError
from streamkit.core.stage import BatchStage, Collecting, Registry, Sink, Source, default_registry, stage
from streamkit.runtime.pipeline import PipelineRun
from streamkit.runtime.run import RunConfig
from support.messages import collect

WAIT_S = 60.0  # nothing here should take so long: the machine may be busy
WRITTEN: dict[str, list[int]] = {}  # by source, the indices that came to the sink `note`
HOLD = threading.Event()  # cleared, it holds up `slow` and `stuck` sources

REGISTRY = Registry()
with Collecting(REGISTRY):

    @stage("camera", writes="pixels")
    class Camera(Source):
        """Endless gray frames at given times; it may hang or fail."""

        rate: float = 50.0
        frames_: int = 1_000_000_000
        hangs: bool = False
        fails: bool = False
        late_s: float = 0.0
        stop_s: float = 0.0

        @property
        def unbounded(self) -> bool:
            return True

        def open(self) -> None:
            self._over = threading.Event()
            if self.fails:
                raise SourceError("there is no such camera")

        def stop(self) -> None:
            self._over.set()

        def frames(self) -> Iterator[Frame]:
            if self.hangs:
                HOLD.wait(WAIT_S)
                return
            for index in range(self.frames_):
                if self._over.wait(1 / self.rate):
                    time.sleep(self.stop_s)
                    return
                surface = Surface(np.zeros((24, 16), np.uint8), Color())
                now_s = time.monotonic() - self.late_s
                yield Frame(self.context.id, index, index / self.rate, 16, 16, surface, time.time(), now_s)

    @stage("slow", reads="pixels", changeable=("pause_s",))
    class Slow(BatchStage):
        """Takes a while for each frame."""

        pause_s: float = 0.0
        hangs: bool = False

        def changed(self) -> None:
            if self.pause_s < 0:
                raise ArithmeticError("time does not go back")

        def process(self, batch: Any) -> Any:
            time.sleep(self.pause_s)
            if self.hangs:
                HOLD.wait(WAIT_S)
            return batch

    @stage("note")
    class Note(Sink):
        """Collects the frame indices of each source."""

        def write(self, frame: Frame) -> None:
            WRITTEN.setdefault(frame.source, []).append(frame.index)


def registry() -> Registry:
    kinds = default_registry()
    for name in REGISTRY.names():
        kind = REGISTRY.get(name)
        assert kind is not None
        kinds.add(kind)
    return kinds


def pipeline(text: str, folder: Path = Path(), **options: Any) -> tuple[PipelineRun, list[str]]:
    logged = collect()
    graph = build(read_text(text, folder=folder, registry=registry()))
    return PipelineRun(graph, Device("cpu"), RunConfig(**{"keep_running": True, **options})), logged


def source(running: PipelineRun, id_: str, **options: Any) -> SourceConfig:
    (config,) = read_source(running.graph.config, id_, options or {"stage": "camera"})
    return config


@contextmanager
def going(running: PipelineRun) -> Iterator[list[int]]:
    """Run a pipeline on a thread and stop it at the end; the list gets the exit code."""
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(running.run()), daemon=True)
    thread.start()
    try:
        until(lambda: running.ready or not thread.is_alive())
        yield codes
    finally:
        running.stop()
        thread.join(WAIT_S)
        assert not thread.is_alive(), "the run does not end"


def until(true: Callable[[], Any]) -> None:
    """Wait until a condition holds."""
    end_s = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < end_s, "it does not come"
        time.sleep(0.01)
