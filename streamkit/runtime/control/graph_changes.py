# SPDX-License-Identifier: Apache-2.0
"""Differences between the graph of a YAML and another one, or a running pipeline that calls have changed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple, Protocol

from streamkit.config.pipeline_config import source_entry
from streamkit.config.plan import Graph, Node, SourceConfig
from streamkit.config.source_details import DETAIL_KEYS
from streamkit.core.errors import StreamkitError
from streamkit.core.stage import Stage
from streamkit.rules.scope import Scope
from streamkit.runtime.control.settings import value_of
from streamkit.runtime.ingest.source_status import SourceState

logger = logging.getLogger(__name__)

_VALUE_CHARS = 40  # of a value that a description shows


class ChangeableRun(Protocol):
    """A run that calls change; `Controls` is one."""

    @property
    def graph(self) -> Graph:
        """The running graph."""

    @property
    def states(self) -> Mapping[str, SourceState]:
        """State of each source, by id."""

    def add(self, source: SourceConfig) -> None:
        """See `Controls.add`."""

    def remove(self, id_: str) -> None:
        """See `Controls.remove`."""

    def change(self, source: SourceConfig) -> None:
        """See `Controls.change`."""

    def follow(self, id_: str, source: SourceConfig | None) -> None:
        """See `Controls.follow`."""

    def forget(self, sources: Iterable[str], settings: Mapping[str, Collection[str]]) -> None:
        """See `Controls.forget`."""

    def pause(self, id_: str) -> None:
        """See `Controls.pause`."""

    def resume(self, id_: str) -> None:
        """See `Controls.resume`."""

    def apply(self, node: Node, new: Mapping[str, Any]) -> None:
        """See `Controls.apply`."""


class Difference(NamedTuple):
    """One difference of a running pipeline from its YAML.

    Attributes:
        kind: `source` or `setting`.
        id: the id of the source or of the stage.
        text: what differs.
    """

    kind: Literal["source", "setting"]
    id: str
    text: str


@dataclass(frozen=True, slots=True)
class LiveChanges:
    """Changes to a running pipeline by calls, which its YAML does not have: they outlive a rebuild.

    With `state` in the YAML they are in that file, and are restored from it.

    Attributes:
        base: the YAML's graph that they changed; None if there are none.
        sources: sources that were added or changed.
        removed: ids of the sources that were removed.
        paused: ids of the paused sources.
        settings: values of options, by node.
    """

    base: Graph | None = None
    sources: tuple[SourceConfig, ...] = ()
    removed: tuple[str, ...] = ()
    paused: tuple[str, ...] = ()
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, base: Graph, graph: Graph, paused: Collection[str]) -> LiveChanges:
        """The changes to a graph since it was created from the YAML's; `paused` are the ids of its paused sources."""
        in_yaml = {source.id: source_facts(source) for source in base.sources}
        settings: dict[str, dict[str, Any]] = {}
        for id_, node in base.nodes.items():
            live = graph.nodes[id_]
            values = {name: value_of(live, name) for name in node.type.spec.changeable}
            values = {name: value for name, value in values.items() if value != value_of(node, name)}
            if values:
                settings[id_] = values
        present = {source.id for source in graph.sources}
        return cls(
            base,
            tuple(source for source in graph.sources if source_facts(source) != in_yaml.get(source.id)),
            tuple(id_ for id_ in in_yaml if id_ not in present),
            tuple(source.id for source in graph.sources if source.id in paused),
            settings,
        )

    def apply(self, graph: Graph, running: ChangeableRun) -> None:
        """Apply them to a pipeline that does not run yet; where its YAML's graph differs from `base`, that counts."""
        if self.base is None or graph.config.state is not None:
            return
        before, after = ({source.id: source_facts(source) for source in each.sources} for each in (self.base, graph))
        for id_ in self.removed:
            if id_ in after and after[id_] == before[id_]:
                self._try(running.remove, id_)
        for source in self.sources:
            if source.id in after and after[source.id] == before.get(source.id):
                self._try(running.change, source)
            elif source.id not in after and source.id not in before:
                self._try(running.add, source)
        for id_ in self.paused:
            if id_ in running.states and (id_ not in before or after.get(id_) == before[id_]):
                self._try(running.pause, id_)
        for id_, values in self.settings.items():
            node = running.graph.nodes.get(id_)
            base_node = self.base.nodes[id_]
            if node is not None and _origin(node.type) == _origin(base_node.type):
                names = [name for name in values if name in node.type.spec.changeable]
                names = [name for name in names if value_of(node, name) == value_of(base_node, name)]
                if names:
                    running.apply(node, {name: values[name] for name in names})

    def take_back(self, running: ChangeableRun) -> None:
        """Let a running pipeline be as its YAML says again; sources that are as there go on without an interruption.

        Raises:
            StreamkitError: a sink does not support it, the run is over, or the state cannot be written.
        """
        if self.base is None:
            return
        in_yaml = {source.id: source for source in self.base.sources}
        for source in self.sources:
            running.follow(source.id, in_yaml.get(source.id))
        for id_ in self.removed:
            running.follow(id_, in_yaml[id_])
        for id_ in self.paused:
            if id_ in running.states and running.states[id_].state == "paused":
                running.resume(id_)
        for id_, values in self.settings.items():
            running.forget((), {id_: values})
            running.apply(running.graph.nodes[id_], {name: value_of(self.base.nodes[id_], name) for name in values})

    def differences(self) -> Iterator[Difference]:
        """Yield each, in words."""
        if self.base is None:
            return
        in_yaml = {source.id: source for source in self.base.sources}
        for id_ in self.removed:
            yield Difference("source", id_, f"source {id_} of the YAML is removed")
        for source in self.sources:
            if source.id in in_yaml:
                names = ", ".join(changed_options(in_yaml[source.id], source)) or "its kind"
                yield Difference("source", source.id, f"source {source.id} has another {names}")
            else:
                yield Difference("source", source.id, f"source {source.id} is not in the YAML")
        for id_ in self.paused:
            yield Difference("source", id_, f"source {id_} is paused")
        for id_, values in self.settings.items():
            for name, value in values.items():
                yield Difference("setting", id_, _setting_text(self.base.nodes[id_], name, value))

    @staticmethod
    def _try(call: Callable[[Any], None], argument: Any) -> None:
        try:
            call(argument)
        except StreamkitError as error:
            logger.warning(f"a change cannot be kept: {error}")


def _setting_text(node: Node, name: str, value: Any) -> str:
    yaml_value = node.options.get(name)
    texts = str(value), "not set" if yaml_value is None else str(yaml_value)
    if max(map(len, texts)) > _VALUE_CHARS:
        return f"{node.id}.{name} has another value"
    return f"{node.id}.{name} is {texts[0]}, and {texts[1]} in the YAML"


def changed_options(before: SourceConfig, after: SourceConfig) -> list[str]:
    """The options of a source that have other values, in the form of the YAML."""
    old = source_entry(before)
    new = source_entry(after)
    return [name for name in {**old, **new} if old.get(name) != new.get(name)]


def only_details_differ(before: SourceConfig, after: SourceConfig) -> bool:
    """Whether two entries of a source differ in what people call it and in nothing else."""
    changed_keys = set(changed_options(before, after))
    return before.type is after.type and bool(changed_keys) and changed_keys <= set(DETAIL_KEYS)


def copied(graph: Graph) -> Graph:
    """Copy a graph, so that a pipeline can change its sources and the options of its nodes."""
    return replace(graph, nodes={id_: replace(node) for id_, node in graph.nodes.items()})


def alike(old: Graph, new: Graph) -> bool:
    """Whether two graphs differ only in sources and in options that may change live."""
    return not rebuild_reasons(old, new)


def rebuild_reasons(old: Graph, new: Graph) -> list[str]:
    """What differs between two graphs and cannot change live: `device`, `batch` and so on, and stages with options."""
    before = _whole(old)
    after = _whole(new)
    reasons = [name for name in before if before[name] != after[name]]
    for id_, node in new.nodes.items():
        if id_ not in old.nodes:
            reasons.append(f"{id_} is new")
        elif _shape(old.nodes[id_]) != _shape(node):
            reasons.append(f"{id_}: {', '.join(_fixed_differences(old.nodes[id_], node))}")
    reasons += [f"{id_} is gone" for id_ in old.nodes if id_ not in new.nodes]
    if not reasons and list(old.nodes) != list(new.nodes):
        reasons.append("the order of the stages")
    return reasons


def _fixed_differences(old: Node, new: Node) -> list[str]:
    """What differs in a stage and cannot change live, by its keys in the YAML."""
    before = _fixed(old)
    after = _fixed(new)
    wiring = {
        "stage": _origin(old.type) != _origin(new.type),
        "from": old.inputs != new.inputs,
        "run": old.run != new.run,
    }
    options = [name for name in {**before, **after} if before.get(name) != after.get(name) and name != "above"]
    return [*options, *(name for name, differs in wiring.items() if differs)] or ["the stages above it"]


def edited_sources(old: Graph, new: Graph) -> dict[str, str]:
    """Changes of sources in the file, by id: `removed`, `added` or `changed`."""
    before, after = ({source.id: source_facts(source) for source in graph.sources} for graph in (old, new))
    return (
        {id_: "removed" for id_ in before if id_ not in after}
        | {id_: "added" for id_ in after if id_ not in before}
        | {id_: "changed" for id_ in after if id_ in before and after[id_] != before[id_]}
    )


def changed_settings(old: Graph, new: Graph) -> dict[str, dict[str, Any]]:
    """New values of changeable options, by node id."""
    changed: dict[str, dict[str, Any]] = {}
    for id_, node in new.nodes.items():
        before = old.nodes.get(id_)
        if before is not None and _origin(before.type) == _origin(node.type):
            both = [name for name in node.type.spec.changeable if name in before.type.spec.changeable]
            values = {name: value_of(node, name) for name in both}
            values = {name: value for name, value in values.items() if value != value_of(before, name)}
            if values:
                changed[id_] = values
    return changed


def _whole(graph: Graph) -> dict[str, Any]:
    """Everything that defines a pipeline, except for its sources and its stages."""
    config = graph.config
    return {
        "device": (config.device, config.processes),
        "batch": config.batch,
        "watchdog": config.watchdog_s,
        "state": config.state,
        "alarms": config.alarms,
    }


def _shape(node: Node) -> tuple[Any, ...]:
    """Everything that defines a stage, except for its changeable options."""
    return node.id, _origin(node.type), node.type.spec.changeable, _fixed(node), node.inputs, node.run


def _fixed(node: Node) -> dict[str, Any]:
    """The options of a stage that cannot change live."""
    fixed = {name: value for name, value in node.options.items() if name not in node.type.spec.changeable}
    if isinstance(above := fixed.get("above"), Scope):  # areas and prompts change live, others with their own stage
        zones = {id_: replace(zone, areas={}) for id_, zone in above.zones.items()}
        fixed["above"] = replace(above, labels=None, zones=zones)
    return fixed


def source_facts(source: SourceConfig) -> tuple[Any, ...]:
    """Everything that defines a source, except for its position in the file."""
    names = [entry.name for entry in fields(source) if entry.name not in ("type", "node")]
    return _origin(source.type), *(getattr(source, name) for name in names)


def _origin(kind: type[Stage]) -> tuple[str, str]:
    """A stage's class by name: a plugin's class is a new object each time its file is read."""
    return kind.__module__, kind.__qualname__
