# SPDX-License-Identifier: Apache-2.0
"""Live changes to a running pipeline, from any thread: add, remove and pause sources, change options.

No call here waits for a source, a stage or a file.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from streamkit.config.graph import with_source
from streamkit.config.plan import Graph, Node, SourceConfig
from streamkit.core.errors import ConfigError, OutputError
from streamkit.core.masking import mask
from streamkit.core.text import did_you_mean
from streamkit.core.timeline import LastFrame
from streamkit.runtime.control.graph_changes import LiveChanges, copied, only_details_differ
from streamkit.runtime.control.settings import changeable, checked, follow_zones, value_of
from streamkit.runtime.control.stage_state import CarriedState, StageStateFile
from streamkit.runtime.control.state_store import StateStore
from streamkit.runtime.ingest.push_source import PushedFrames
from streamkit.runtime.ingest.source_status import RemovedSources, SourceState
from streamkit.runtime.ingest.sources import stream_numbers

logger = logging.getLogger(__name__)

_SHOWN_DIFFERENCES = 8


class SourceControl(Protocol):
    """The sources of a run: `ingest.Sources` of this process, or `SourceScheduler` over several."""

    states: dict[str, SourceState]

    @property
    def removed(self) -> RemovedSources:
        """Totals of the removed sources."""

    def check_free(self, id_: str) -> None:
        """Raise ConfigError if a source with that id exists."""

    def check_open(self, id_: str) -> None:
        """Raise ConfigError if no source can be added now."""

    def add(self, config: SourceConfig, after: LastFrame | None = None, paused: bool = False) -> None:
        """Add a source."""

    def remove(self, id_: str) -> None:
        """Remove a source."""

    def pause(self, id_: str, paused: bool = True) -> None:
        """Pause or resume a source."""


class Controls:
    """Live changes to a run; `PipelineRun` runs in this process, `WorkerFleet` in several.

    If the YAML sets `state`, changes are stored in that file first, and applied again at the next start.

    Args:
        graph: the running graph. Its list `sources` is replaced, never mutated, when sources change.

    Attributes:
        carried: the file through which stages pass on counts when the pipeline is rebuilt; set before the run.
        addresses: addresses by source, for stages that read a source's own packets.
        streams: video stream numbers by source, if the source sets one.
    """

    sources: SourceControl
    carried: Path | None = None

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._store = None if graph.config.state is None else StateStore(graph.config.state)
        self._paused = set() if self._store is None else self._restored(self._store, graph)
        self.addresses = {source.id: str(source.options.get("uri", "")) for source in graph.sources}
        self.streams = stream_numbers(graph.sources)
        self._changing = threading.RLock()

    @staticmethod
    def _restored(store: StateStore, graph: Graph) -> set[str]:
        """Apply the stored changes to a graph, and log what differs from the YAML; return the ids of paused sources."""
        base = copied(graph)
        paused = store.restore(graph)
        texts = [difference.text for difference in LiveChanges.of(base, graph, paused).differences()]
        if texts:
            more = f"; and {len(texts) - _SHOWN_DIFFERENCES} more" if len(texts) > _SHOWN_DIFFERENCES else ""
            shown = "; ".join(texts[:_SHOWN_DIFFERENCES])
            hint = "remove the file to run as the YAML says"
            logger.info(mask(f"{graph.config.state} changes what the YAML says: {shown}{more}; {hint}"))
        return paused

    def stage_state(self, id_: str) -> StageStateFile | None:
        """What a stage keeps over restarts; None unless the YAML sets `state`."""
        return None if self.graph.config.state is None else StageStateFile(self.graph.config.state, id_)

    def carried_state(self, id_: str) -> CarriedState | None:
        """What a stage passes on when the pipeline is rebuilt; None if it never is."""
        return None if self.carried is None else CarriedState(self.carried, id_)

    @property
    def states(self) -> dict[str, SourceState]:
        """State of each source, by id; the dict itself is never mutated."""
        return self.sources.states

    def add(self, source: SourceConfig, after: LastFrame | None = None, paused: bool = False) -> None:
        """Add a source.

        Args:
            source: the source.
            after: the last frame that another process has read of it; its indices and times continue after that one.
            paused: whether it is not opened before it is resumed.

        Raises:
            ConfigError: its id is taken, a sink does not support it, or the run is over.
            OutputError: the state cannot be written.
        """
        with self._changing:
            self.sources.check_free(source.id)
            sources = with_source(self.graph, source)
            with self._storing(source, lambda store: store.added(source, paused)):
                self._add(source, sources, after, paused)

    def _add(
        self, source: SourceConfig, sources: list[SourceConfig], after: LastFrame | None = None, paused: bool = False
    ) -> None:
        """Add a source that was checked; `sources` are those of the graph with it."""
        self.sources.check_open(source.id)
        self._prepare_source(source)
        self.addresses[source.id] = str(source.options.get("uri", ""))
        self.streams.update(stream_numbers([source]))
        self.sources.add(source, after, paused)
        self.graph.sources = sources

    def remove(self, id_: str) -> None:
        """Remove a source; its frames in flight are still processed.

        Raises:
            ConfigError: the id is unknown.
            OutputError: the state cannot be written.
        """
        with self._changing, self._storing(None, lambda store: store.removed(id_)):
            self._remove(id_)

    def _remove(self, id_: str) -> None:
        self.sources.remove(id_)
        self.graph.sources = [source for source in self.graph.sources if source.id != id_]
        self.addresses.pop(id_, None)
        self.streams.pop(id_, None)
        self._forget_source(id_)

    def change(self, source: SourceConfig) -> None:
        """Replace the source with the same id: the old one ends, the new one starts.

        If only its details differ, such as its name, it goes on.

        Raises:
            ConfigError: the id is unknown, a sink does not support the new source, or none can be added now.
            OutputError: the state cannot be written.
        """
        with self._changing, self._storing(source, lambda store: store.added(source)):
            self._change(source)

    def _change(self, source: SourceConfig) -> None:
        before = next((other for other in self.graph.sources if other.id == source.id), None)
        if before is not None and only_details_differ(before, source):
            self.graph.sources = [source if other is before else other for other in self.graph.sources]
            return
        self.sources.check_open(source.id)  # before the old one ends
        others = [other for other in self.graph.sources if other.id != source.id]
        sources = with_source(replace(self.graph, sources=others), source)
        self._remove(source.id)
        self._add(source, sources)

    def follow(self, id_: str, source: SourceConfig | None) -> None:
        """Apply an edit of a source in the YAML, or its removal; the state file forgets changes by other calls.

        Raises:
            ConfigError: a sink does not support it, or the run is over.
            OutputError: the state cannot be written.
        """
        with self._changing:
            self.forget([id_], {})
            if source is None:
                if id_ in self.states:
                    self._remove(id_)
            elif id_ in self.states:
                self._change(source)
            else:
                self._add(source, with_source(self.graph, source))

    @contextmanager
    def _storing(self, source: SourceConfig | None, write: Callable[[StateStore], None]) -> Iterator[None]:
        """Store a change, then apply it in the block; if that fails, the stored change is taken back.

        Args:
            source: the source that is added, if any; pushed sources are not stored.
            write: stores the change.

        Raises:
            OutputError: the state cannot be written; the block does not run.
        """
        if self._store is None or (source is not None and issubclass(source.type, PushedFrames)):
            yield
            return
        with self._store.taken_back():
            write(self._store)
            yield

    def forget(self, sources: Iterable[str], settings: Mapping[str, Collection[str]]) -> None:
        """Remove these sources, and these options by node, from the state file: the YAML was edited.

        Raises:
            OutputError: the state cannot be written; it is unchanged.
        """
        with self.forgetting(sources, settings):
            pass

    @contextmanager
    def forgetting(self, sources: Iterable[str], settings: Mapping[str, Collection[str]]) -> Iterator[None]:
        """Do as `forget`, then run the block, which applies the edit; if it raises, the state file is as before."""
        if self._store is None:
            yield
            return
        with self._store.taken_back():
            for id_ in sources:
                self._store.forget(id_)
            for id_, names in settings.items():
                for name in {id_, id_.split(".", 1)[0]}:  # the change may name the part or the composite
                    self._store.forget_settings(name, names)
            yield

    def resume(self, id_: str) -> None:
        """Resume a source: a file continues, a camera is opened again. Raises ConfigError if the id is unknown."""
        self.pause(id_, False)

    def pause(self, id_: str, paused: bool = True) -> None:
        """Pause a source: a file holds its position, a camera is closed.

        Raises:
            ConfigError: the id is unknown.
            OutputError: the state cannot be written.
        """
        with self._changing, self._storing(None, lambda store: store.paused(id_, paused)):
            self.sources.pause(id_, paused)

    def changeable(self, id_: str) -> dict[str, Any]:
        """Changeable options of a stage, with their values. Raises ConfigError if the id is unknown."""
        return changeable(self.graph, id_)

    def set(self, id_: str, values: Mapping[str, Any]) -> None:
        """Change options of a stage from its next batch on, with values as in the YAML; all or none.

        Args:
            id_: the stage; for a composite such as `detect`, the part with the option is found.
            values: new values by option; each option must be `changeable`.

        Raises:
            ConfigError: lists every problem.
            OutputError: the state cannot be written.
        """
        with self._changing:
            changes = checked(self.graph, id_, values)
            with self._storing(None, lambda store: store.changed(id_, values)):
                for node, new in changes:
                    self.apply(node, new)

    def apply(self, node: Node, new: Mapping[str, Any]) -> None:
        """Set validated option values of a node from its next batch on.

        If the stage rejects them, the old values are restored, and the state file keeps nothing of these options.
        """

        def refused() -> None:
            with self._changing:
                if all(node.options.get(name) is value for name, value in new.items()):
                    node.options = {**node.options, **before}
                    self._follow_zones()
                    try:
                        self.forget((), {node.id: new})
                    except OutputError as error:
                        logger.warning(f"the state keeps options of {node.id} that the stage has refused: {error}")

        with self._changing:  # a process that starts meanwhile gets the option with its job or as an order
            before = {name: value_of(node, name) for name in new}
            node.options = {**node.options, **new}
            self._change_stage(node, new, refused)
            self._follow_zones()

    def _follow_zones(self) -> None:
        for node in follow_zones(self.graph):
            self._change_rules(node)

    def trigger(self, id_: str, source: str, **data: Any) -> None:
        """Let a recording stage record at the source's next frame; `data` becomes the data of its event `manual`.

        Raises:
            ConfigError: the source does not exist, or no stage with that id records.
        """
        recorders = {node.id: node for node in self.graph.nodes.values() if node.type.spec.on_demand}
        for name, existing, what in ((id_, recorders, "stage that records"), (source, self.states, "source")):
            if name not in existing:
                raise ConfigError(f"there is no {what} {name!r}{did_you_mean(name, existing, all_if_few=True)}")
        self._trigger_stage(id_, source, data)

    def lost_nodes(self) -> list[str]:
        """The machines of the run that are not there: none, as it runs on this one."""
        return []

    def _prepare_source(self, source: SourceConfig) -> None:
        """Called with a source that is about to be added."""

    def _forget_source(self, id_: str) -> None:
        """Called after a source was removed."""

    def _change_stage(self, node: Node, new: Mapping[str, Any], refused: Callable[[], None]) -> None:
        """Change options of a stage from its next batch on; call `refused` if the stage rejects them."""
        raise NotImplementedError

    def _change_rules(self, node: Node) -> None:
        """Called when the areas above a stage with rules have changed."""

    def _trigger_stage(self, id_: str, source: str, data: Mapping[str, Any]) -> None:
        """Let a stage record a source."""
        raise NotImplementedError
