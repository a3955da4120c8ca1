"""What may be done to a pipeline while it runs, from any thread: sources come and go, settings change.

Nothing here waits for a source, a stage or a file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from streamkit.errors import ConfigError
from streamkit.graph import with_source
from streamkit.messages import did_you_mean
from streamkit.plan import Graph, Node, SourceConfig
from streamkit.runtime.ends import Ends, Seen
from streamkit.runtime.faulty import Faults, faults_of, faults_told
from streamkit.runtime.nodes import Runner
from streamkit.runtime.settings import changeable, checked, value_of
from streamkit.runtime.sources import Sources
from streamkit.runtime.states import SourceState
from streamkit.runtime.store import Store


class Controls:
    """The part of `Pipeline` that others order about.

    Where the YAML names a file for its `state`, what is done here is kept in it, and done again at the next start.

    Args:
        graph: the graph that runs. Its `sources` are those there are now: the list is replaced, never changed.
        say: takes messages for the user.

    Attributes:
        addresses: by source, for stages that read a source's own packets.
        streams: by source, the number of the video stream, where the source sets one.
    """

    sources: Sources
    ends: Ends

    def __init__(self, graph: Graph, say: Callable[[str], None]) -> None:
        self.graph, self.say = graph, say
        self._store = None if graph.config.state is None else Store(graph.config.state)
        self._paused = set() if self._store is None else self._store.restore(graph, say)
        self.addresses = {source.id: str(source.options.get("uri", "")) for source in graph.sources}
        self.streams = stream_numbers(graph.sources)
        self._faults = faults_of(graph.sources)
        self._runners: list[tuple[Node, Runner]] = []
        self._changing = threading.RLock()

    @property
    def states(self) -> dict[str, SourceState]:
        """What is known of each source, by id; a dict that does not change any more."""
        return self.sources.states

    def add(self, source: SourceConfig, *, from_yaml: bool = False) -> None:
        """Take in one more source.

        Args:
            source: the source.
            from_yaml: the YAML has it now, so the state need not keep it; likewise below.

        Raises:
            ConfigError: its id is taken, a sink cannot take it, or the run is over.
            OutputError: the state cannot be written.
        """
        with self._changing:
            self.sources.check_free(source.id)
            known = with_source(self.graph, source)
            if source.fault is not None:
                self._faults[source.id] = Faults(source.fault, source.id)
                self.say(faults_told({source.id: self._faults[source.id]}))
            self.addresses[source.id] = str(source.options.get("uri", ""))
            self.streams.update(stream_numbers([source]))
            self.sources.add(source)
            self.graph.sources = known
            if self._store is not None:
                self._store.forget(source.id) if from_yaml else self._store.added(source)

    def remove(self, id_: str, *, from_yaml: bool = False) -> None:
        """Take a source out; what is decoded of it goes through. Raises ConfigError where there is none."""
        with self._changing:
            self.sources.remove(id_)
            self.graph.sources = [source for source in self.graph.sources if source.id != id_]
            self._faults.pop(id_, None)
            self.addresses.pop(id_, None)
            self.streams.pop(id_, None)
            if self._store is not None:
                self._store.forget(id_) if from_yaml else self._store.removed(id_)

    def change(self, source: SourceConfig, *, from_yaml: bool = False) -> None:
        """Put a source in the place of the one of its id: that ends, and this begins anew. Raises ConfigError."""
        with self._changing:
            self.remove(source.id, from_yaml=from_yaml)
            self.add(source, from_yaml=from_yaml)

    def follow(self, id_: str, source: SourceConfig | None) -> None:
        """The YAML was edited: what it says of this source, or that there is none, holds, whatever was done by hand.

        Raises:
            ConfigError: a sink cannot take it, or the run is over.
            OutputError: the state cannot be written.
        """
        with self._changing:
            if id_ in self.states:
                self.remove(id_, from_yaml=True)
            if source is not None:
                self.add(source, from_yaml=True)

    def forget(self, sources: Iterable[str], settings: Mapping[str, Collection[str]]) -> None:
        """The YAML was edited: let the state keep nothing of these sources, and of these options by node.

        Raises:
            OutputError: the state cannot be written.
        """
        if self._store is None:
            return
        for id_ in sources:
            self._store.forget(id_)
        for id_, names in settings.items():
            for name in {id_, id_.split(".", 1)[0]}:  # either may have been named: the part, or the composite
                self._store.forget_settings(name, names)

    def pause(self, id_: str) -> None:
        """Stop reading a source: a file stands still, a camera is closed. Raises ConfigError where there is none."""
        self._pause(id_, True)

    def resume(self, id_: str) -> None:
        """Read on: a file goes on where it stands, a camera is opened again. Raises ConfigError where there is none."""
        self._pause(id_, False)

    def _pause(self, id_: str, paused: bool) -> None:
        with self._changing:
            self.sources.pause(id_, paused)
            if self._store is not None:
                self._store.paused(id_, paused)

    def changeable(self, id_: str) -> dict[str, Any]:
        """The options of a stage that may change now, with their values. Raises ConfigError where there is none."""
        return changeable(self.graph, id_)

    def set(self, id_: str, values: Mapping[str, Any]) -> None:
        """Change options of a stage, given as a YAML has them, from its next batch on; all or none.

        Args:
            id_: the stage; of a composite such as `detect` its part that has the option is found.
            values: by option; each must be `changeable`.

        Raises:
            ConfigError: with every problem.
        """
        with self._changing:
            for node, new in checked(self.graph, id_, values):
                self.apply(node, new)
            if self._store is not None:
                self._store.changed(id_, values)

    def apply(self, node: Node, new: Mapping[str, Any]) -> None:
        """Give options of a node of the graph these values, which are checked, from its next batch on.

        Where the stage refuses them, the old ones come back, and the state keeps nothing of these options.
        """
        before = {name: value_of(node, name) for name in new}

        def refused() -> None:
            with self._changing:
                if all(node.options.get(name) is value for name, value in new.items()):
                    node.options = {**node.options, **before}
                    self.forget((), {node.id: new})

        node.options = {**node.options, **new}
        for own, one in list(self._runners):
            if own is node:
                one.change(new, refused)

    def trigger(self, id_: str, source: str, **data: Any) -> None:
        """Let a stage that records do so at the source's next frame; `data` is what its event `manual` is to say.

        Raises:
            ConfigError: there is no such source, or no such stage that records.
        """
        recorders = {node.id: one for node, one in list(self._runners) if hasattr(node.type, "trigger")}
        for name, known, what in ((id_, recorders, "stage that records"), (source, self.states, "source")):
            if name not in known:
                raise ConfigError(f"there is no {what} {name!r}{did_you_mean(name, known, all_if_few=True)}")
        for stage in recorders[id_].instances():
            stage.trigger(source, **data)  # type: ignore[attr-defined]

    def listen(self, seen: Seen) -> Callable[[], None]:
        """See `Ends.listen`."""
        return self.ends.listen(seen)


def stream_numbers(sources: Iterable[SourceConfig]) -> dict[str, int]:
    """The option `stream` of the sources that set it, by id."""
    return {source.id: source.options["stream"] for source in sources if source.options.get("stream") is not None}
