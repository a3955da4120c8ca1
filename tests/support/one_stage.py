"""One stage in the runner of its kind, batches for it, and made-up stages of every kind."""

from typing import Any

import numpy as np

from streamkit.config.plan import Node, RunOptions
from streamkit.core.counters import Counters
from streamkit.core.data import Batch, Detections, Frame
from streamkit.core.errors import OutputError
from streamkit.core.stage import BatchStage, Collecting, Context, FrameStage, Registry, Sink, Stage, StreamStage, stage
from streamkit.runtime.execution.runners import runner
from streamkit.runtime.execution.stage_runner import Runner
from streamkit.testing.kit import detections
from support.messages import collect

Log = list[Any]


class Rig:
    """A runner of one stage, with what it says and fails with."""

    def __init__(self, kind: type[Stage], sources="ab", on_error="skip", **options: Any) -> None:
        self.failures: list[BaseException] = []
        self.logged = collect()
        node = Node("it", kind, options, [], RunOptions(on_error=on_error), None)
        self.runner: Runner = runner(node, self.context, self.failures.append, list(sources))
        self.runner.open()

    def context(self, id_: str) -> Context:
        return Context(id_, counters=Counters())

    def __call__(self, batch: Batch) -> Batch:
        return self.runner.run(batch)


def frames(text: str) -> list[Frame]:
    """`a0 b0 a1`: frames of the sources a, b, a; the digits are their indices."""
    listed = [Frame(word[0], int(word[1:]), int(word[1:]) / 10, 64, 48) for word in text.split()]
    for position, frame in enumerate(listed):
        frame._state.position = position
    return listed


def batch(text: str, ended: str = "", rows: tuple[int, ...] | None = None) -> Batch:
    """A batch of these frames; frame i has `rows[i]` objects whose score tells frame and object."""
    listed = frames(text)
    new_batch = Batch(listed, sequence=5, ended=tuple(ended))
    n = len(listed)
    new_batch.tensor = np.arange(n + 2, dtype=np.float32)[:, None] * np.ones((1, 3), np.float32)  # two rows of padding
    new_batch.geometry = np.arange(n * 4, dtype=np.float32).reshape(n, 4)
    new_batch.outputs = {"scores": np.arange(n + 2) * 10}
    counts = rows or (1,) * n
    parts = [
        detections([[i, k, i + 5, k + 5] for k in range(count)], score=[i + k / 10 for k in range(count)])
        for i, count in enumerate(counts)
    ]
    new_batch.tables["detect"] = Detections.concat(parts, rows=range(n)) if n else Detections.empty()
    return new_batch


def key(listed: list[Frame]) -> str:
    return " ".join(f"{frame.source}{frame.index}" for frame in listed)


with Collecting(Registry()):

    @stage("picky")
    class Picky(BatchStage):
        """Raises where a frame is among `bad`, or where a batch is larger than `most`."""

        bad: tuple[str, ...] = ()
        most: int = 99
        raises: Any = ZeroDivisionError

        def open(self) -> None:
            self.calls: list[str] = []

        def process(self, batch: Batch) -> Batch:
            self.calls.append(key(batch.frames))
            if len(batch) > self.most or set(key(batch.frames).split()) & set(self.bad):
                raise self.raises("no")
            table = batch.table("detect")
            batch.tables["twice"] = table.with_columns(score=table.score * 2)
            batch.outputs = {**batch.outputs, "sum": batch.tensor.sum(axis=1)[: len(batch)]}
            return batch

    @stage("numbers")
    class Numbers(StreamStage):
        """Counts the frames of each source."""

        log: Any

        def new_state(self, source: str) -> list[int]:
            self.log.append(f"new {source}")
            return []

        def process(self, batch: Batch, states: Any) -> Batch:
            for frame in batch.frames:
                states[frame.source].append(frame.index)
                frame.emit("seen", n=len(states[frame.source]))
            self.log.append(sorted(states))
            return batch

        def close(self) -> None:
            self.log.append("close")

    @stage("one_each")
    class OneEach(FrameStage):
        """Keeps count of its frames; raises on those of `bad`; drops objects below `least`."""

        log: Any
        bad: tuple[str, ...] = ()
        least: float | None = None

        def open(self) -> None:
            self.count = 0
            self.log.append("open")

        def process(self, frame: Frame) -> None:
            self.count += 1
            self.log.append((id(self), frame.source, frame.index, self.count))
            if key([frame]) in self.bad:
                raise ValueError("bad picture")
            if self.least is not None:
                frame.detections = frame.detections[frame.detections.score >= self.least]

        def close(self) -> None:
            self.log.append(f"close after {self.count}")

    @stage("writer")
    class Writer(Sink):
        """Notes what is written where; raises on those of `bad`, or in a method named in `trouble`."""

        log: Any
        path: str | None = None
        bad: tuple[str, ...] = ()
        trouble: str = ""
        raises: Any = OutputError

        def open(self) -> None:
            self.log.append(f"open {self.path}")
            self._perhaps("open")

        def write(self, frame: Frame) -> None:
            if key([frame]) in self.bad:
                raise self.raises("cannot write")
            self.log.append((self.path, key([frame]), frame.error, len(frame.detections)))

        def flush(self) -> None:
            self._perhaps("flush")

        def end(self, source: str) -> None:
            self.log.append(f"end {source} {self.path}")
            self._perhaps("end")

        def close(self) -> None:
            self.log.append(f"close {self.path}")
            self._perhaps("close")

        def _perhaps(self, where: str) -> None:
            if self.trouble == f"{where} {self.path}":
                raise self.raises(f"in {where}")
