"""Runs a sink: one instance for each distinct path, every frame in order, and what cannot be written told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from streamkit.data import Batch
from streamkit.errors import OutputError, StreamkitError, describe
from streamkit.graph import Node
from streamkit.outputs import fill_path
from streamkit.runtime.nodes import MakeContext, Runner
from streamkit.runtime.tables import split
from streamkit.stage import Sink


class SinkRunner(Runner):
    """Runs a sink: one instance for each distinct path.

    Args:
        sources: the ids of all sources, known before the start.
    """

    def __init__(
        self, node: Node, context: MakeContext, fail: Callable[[BaseException], None], sources: Sequence[str]
    ) -> None:
        super().__init__(node, context, fail)
        self._sources = sources
        self._dead: set[Any] = set()
        self._paths: dict[str, Any] = {}
        self._instances: dict[Any, Sink] = {}
        self._users: dict[Any, set[str]] = {}
        for source in sources:
            self._users.setdefault(self._path(source), set()).add(source)

    def open(self) -> None:
        """Open what all sources share, so that a folder that cannot be written is known before the first frame."""
        path = self.node.options.get("path")
        first = self._sources[0] if self._sources else ""
        if not isinstance(path, str) or "{source}" not in path:
            self._instance(self._path(first))
            return
        probed = self.make(path=self._path(first))
        assert isinstance(probed, Sink)
        probed.probe()

    def process(self, batch: Batch) -> Batch:
        """Write every frame of the batch, failed ones too, in order."""
        encoded = self._encoded(batch)
        if not encoded:
            split(batch)
        frames = batch.frames
        if batch.failed:
            self.mark(batch.failed)
            frames = sorted([*batch.frames, *batch.failed], key=lambda frame: frame.position)
        errors: dict[int, Exception] = {}
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
        return self.failed(batch, errors) if errors else batch

    def _encoded(self, batch: Batch) -> dict[int, Any]:
        """What the sink makes of all frames at once, by the frame's identity; nothing where it has to go one by one."""
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
        """Also write batches of failed frames alone."""
        if batch.failed and not batch.frames:
            self.process(batch)
        return super().run(batch)

    def _path(self, source: str) -> Any:
        known = self._paths.get(source)
        if known is None:
            path = self.node.options.get("path")
            known = self._paths[source] = fill_path(path, source) if isinstance(path, str) else path
        return known

    def _instance(self, path: Any) -> Sink:
        found = self._instances.get(path)
        if found is None:
            made = self.make(**({"path": path} if path is not None else {}))
            assert isinstance(made, Sink)
            made.open()
            found = self._instances[path] = made
        return found

    def end(self, source: str) -> None:
        """Tell the source's instance; close it when no other source uses it."""
        path = self._path(source)
        instance, users = self._instances.get(path), self._users.get(path, set())
        users.discard(source)
        if instance is None:
            return
        try:
            instance.end(source)
            if not users:
                del self._instances[path]
                instance.close()
        except OutputError as error:  # the other files are still to be written
            self._dead.add(path)
            self._fail(error)

    def close(self) -> None:
        """Close what is left, also where one of them cannot be."""
        for path in list(self._instances):
            try:
                self._instances.pop(path).close()
            except Exception as error:
                self._fail(error if isinstance(error, StreamkitError) else OutputError(describe(error)))
