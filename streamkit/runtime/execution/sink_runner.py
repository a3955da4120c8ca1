"""Runs a sink: one instance per path, all frames in order; reports outputs that cannot be written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from streamkit.config.plan import Node
from streamkit.core.data import Batch
from streamkit.core.errors import OutputError, StreamkitError, describe
from streamkit.core.stage import Sink, Stage
from streamkit.io.outputs import fill_path
from streamkit.runtime.execution.stage_runner import MakeContext, Runner
from streamkit.runtime.execution.tables import split


class SinkRunner(Runner):
    """Runs a sink: one instance for each distinct path.

    Sources may come and go. An instance of a single source is closed when that ends, one that sources share with the
    run: more of them may come.

    Args:
        sources: the ids of the sources that are known before the start.
    """

    def __init__(
        self, node: Node, context: MakeContext, fail: Callable[[BaseException], None], sources: Sequence[str]
    ) -> None:
        super().__init__(node, context, fail)
        self._first = next(iter(sources), "none")
        self._dead: set[Any] = set()
        self._paths: dict[str, Any] = {}
        self._instances: dict[Any, Sink] = {}
        self._template = path = node.options.get(self._kind.spec.target)
        self._per_source = isinstance(path, str) and "{source}" in path

    def instances(self) -> Iterable[Stage]:
        """The open instances."""
        return self._instances.values()

    def open(self) -> None:
        """Open a shared output, so that a folder without write permission is detected before the first frame."""
        if not self._per_source:
            self._instance(self._path(self._first))
            return
        probed = self.make(**{self._kind.spec.target: fill_path(str(self._template), self._first)})
        assert isinstance(probed, Sink)
        probed.probe()

    def process(self, batch: Batch) -> Batch:
        """Write every frame of the batch in order, including failed ones."""
        encoded = self._encoded(batch)
        if not encoded:
            split(batch)
        frames = batch.frames
        if batch.failed:
            self.mark(batch.failed)
            frames = sorted([*batch.frames, *batch.failed], key=lambda frame: frame._state.position)
        errors: dict[int, BaseException] = {}
        for frame in frames:
            path = self._path(frame.source)
            if path in self._dead:
                continue
            try:
                sink = self._instances.get(path) or self._instance(path)
                if id(frame) in encoded:
                    sink.write_encoded(frame, encoded[id(frame)])
                else:
                    sink.write(frame)
            except OutputError as error:
                self._dead.add(path)
                self._fail(error)
            except StreamkitError:
                raise
            except Exception as error:
                row = next((i for i, f in enumerate(batch.frames) if f is frame), None)
                if row is None:  # one that had failed before, and now has no record either
                    self._tell(frame, error)
                else:
                    errors[row] = error
        self._flush()
        return self.failed(batch, errors) if errors else batch

    def _flush(self) -> None:
        """Flush the sinks after a batch."""
        for path, sink in self._instances.items():
            if path in self._dead:
                continue
            try:
                sink.flush()
            except (
                StreamkitError,
                OSError,
            ) as error:
                # not raised, or the batch would be tried again, and written twice
                self._dead.add(path)
                self._fail(error if isinstance(error, StreamkitError) else OutputError(describe(error)))
            except Exception as error:
                self.trouble(error, " as it wrote what a batch had left")

    def _encoded(self, batch: Batch) -> dict[int, Any]:
        """Encode all frames at once, by the frame's identity; empty if the sink encodes frame by frame."""
        if not batch.tables and any(frame.tables for frame in batch.frames):
            return {}
        try:
            made = self.node.type.encode(batch)  # type: ignore[attr-defined]
            return {} if made is None else dict(zip(map(id, batch.frames), made, strict=True))
        except StreamkitError:
            raise
        except Exception:  # frame by frame the one that is at fault will be found
            return {}

    def run(self, batch: Batch) -> Batch:
        """Also write batches that contain failed frames only."""
        if batch.failed and not batch.frames:
            self.process(batch)
        return super().run(batch)

    @property
    def _kind(self) -> type[Sink]:
        assert issubclass(self.node.type, Sink)
        return self.node.type

    def _path(self, source: str) -> Any:
        known = self._paths.get(source)
        if known is None:
            path = self._template
            known = self._paths[source] = fill_path(path, source) if isinstance(path, str) else path
        return known

    def _instance(self, path: Any) -> Sink:
        found = self._instances.get(path)
        if found is None:
            made = self.opened(path, **({self._kind.spec.target: path} if path is not None else {}))
            assert isinstance(made, Sink)
            found = self._instances[path] = made
        return found

    def end(self, source: str) -> None:
        """Notify the source's instance; close it if no other source uses it."""
        path = self._path(source)
        instance = self._instances.get(path)
        self._paths.pop(source, None)
        self._unopened.pop(path, None)
        if instance is None:
            return
        try:
            instance.end(source)
            if self._per_source:
                del self._instances[path]
                instance.close()
        except OutputError as error:  # the other files are still to be written
            self._dead.add(path)
            self._fail(error)

    def close(self) -> None:
        """Close the remaining instances, even if closing one of them fails."""
        for path in list(self._instances):
            try:
                self._instances.pop(path).close()
            except (StreamkitError, OSError) as error:
                self._fail(error if isinstance(error, StreamkitError) else OutputError(describe(error)))
            except Exception as error:
                self.trouble(error, " as it was closed")
