# SPDX-License-Identifier: Apache-2.0
"""Checks of single stages against the graph: what they read, write and need."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from streamkit.config.alarms import KINDS
from streamkit.config.alarms import STAGE as ALARMS
from streamkit.config.plan import DECODE, Graph, Node, SourceConfig, Unread, stages_above
from streamkit.core.errors import ConfigError, MissingPackage, Problem, StreamkitError
from streamkit.core.stage import Sink
from streamkit.core.text import did_you_mean
from streamkit.emit.emitter import Emitter
from streamkit.media.uris import is_live, mask

_PRODUCERS = {
    "tensor": "preprocess",
    "outputs": "infer",
    "detections": "a detector such as detect",
    "track_id": "a tracker",
    "pixels": "a source with frames",
    "attributes": "classify",
    "embedding": "embed",
}


def check_words(graph: Graph, problems: list[Problem]) -> None:
    """Check that every word a stage reads is written above it, and set each node's `available`."""
    kinds = [*(source.type for source in graph.sources), *graph.config.unread_sources.values()]
    written = [set(kind.spec.writes) for kind in kinds if kind is not None]
    decoded = frozenset(set.intersection(*written)) if written else frozenset({"pixels"})
    for node in graph.nodes.values():
        above = frozenset().union(*(decoded if name == DECODE else graph.nodes[name].available for name in node.inputs))
        for word in node.reads if node.id not in graph.uncertain else ():
            if word not in above:
                hint = f"; put {_PRODUCERS[word]} above it" if word in _PRODUCERS else ""
                text = f"{node.id} reads {word}, which no earlier stage writes{hint}"
                if word == "tensor" and "outputs" in above:
                    text = f"{node.id} reads tensor, which infer uses up; put it between preprocess and infer"
                problems.append(node.problem(text))
        spec = node.type.spec
        used = frozenset({"tensor"} if "tensor" in spec.reads and "outputs" in spec.writes else ())
        node.available = above - used | frozenset(node.writes)


def check_inputs(graph: Graph, problems: list[Problem]) -> None:
    """Read the file of each source that a stage names with its `input_file`; refuse what cannot be read."""
    count = _source_count(graph)
    for node in graph.nodes.values():
        if not (option := node.type.spec.input_file):
            continue
        reader: Any = node.type(**node.options)
        path = str(node.options[option])
        for source in graph.sources:
            if reason := _without_frame_numbers(source):
                problems.append(node.problem(f"{node.id}: the boxes belong to frames by number, but {reason}"))
                continue
            try:
                chosen = reader.read(source.id).chosen
            except StreamkitError as error:
                problems.append(node.problem(f"{node.id}.{option}: {error}", option))
                continue
            if count > 1 and "{source}" not in path and not chosen:
                text = f'{path} has the boxes of one source, for {count}; write "{{source}}" into the path'
                problems.append(node.problem(f"{node.id}.{option}: {text}", option))
                break


def _source_count(graph: Graph) -> int:
    """The number of sources, with those that cannot be read."""
    return len(graph.sources) + len(graph.config.unread_sources)


def _without_frame_numbers(source: SourceConfig) -> str:
    """Why the frames of a source have other numbers in each run; empty if they have not."""
    if is_live(str(source.options.get("uri", ""))):
        return f"{source.id} is live, and its frames have no fixed numbers; record it first, and read the file"
    if source.options.get("loop"):
        return f"{source.id} is repeated, and its frames are numbered on; remove loop"
    return ""


def check_outputs(graph: Graph, problems: list[Problem]) -> None:
    """Refuse sinks or sources that would write the same file, and two formats on standard output."""
    claimed: dict[str, Node] = {}
    count = _source_count(graph)
    for node in graph.nodes.values():
        if not issubclass(node.type, Sink):
            continue
        option = node.type.spec.target or "path"
        path = node.options.get(option)
        if not isinstance(path, str):
            continue
        if node.type.spec.one_source and "{source}" not in path and count > 1:
            what = f"{count} sources into the one {'file ' if option == 'path' else ''}{mask(path)}"
            problems.append(node.problem(f'{node.id}: {what}; write "{{source}}" into the {option}', option))
        drawn = any("pixels" in stage.type.spec.writes for stage in stages_above(graph.nodes, node).values())
        if drawn and node.options.get("encoder") == "copy":
            text = "encoder: copy takes the source's own packets, without what is drawn above; read from decode instead"
            problems.append(node.problem(f"{node.id}: {text}", "encoder"))
        file = os.path.normpath(path)
        name = "standard output" if path == "-" else mask(path)
        if file in claimed and (path != "-" or claimed[file].type is not node.type):
            text = f"{node.id}: {claimed[file].id} writes {name} already; give it a path of its own"
            problems.append(node.problem(text, option))
        claimed[file] = node


def check_events(graph: Graph, problems: list[Problem]) -> None:
    """Refuse a `when` that names events of stages that are not above it."""
    any_alarms = bool(graph.config.alarms) or not graph.config.alarms_complete
    every_source_read = graph.config.sources_complete and not graph.config.unread_sources
    for node in graph.nodes.values():
        if not (issubclass(node.type, Sink) or node.type.spec.selects_events):
            continue
        others = {ALARMS: KINDS} if any_alarms and issubclass(node.type, Emitter) else {}
        certain = node.id not in graph.uncertain
        unknown = unknown_events(node.options.get("when"), node, graph.nodes, others, certain=certain)
        problems.extend(node.problem(f"{node.id}: {text}", "when") for text in unknown)
        packets = not graph.sources or any(source.type.spec.reads_packets for source in graph.sources)
        if node.type.spec.wants_packets and not packets and every_source_read:
            text = f"{node.id} records the packets of videos and cameras, and no source here has any"
            problems.append(node.problem(text))


def unknown_events(
    when: str | Collection[str] | None,
    node: Node,
    nodes: Mapping[str, Node],
    others: Mapping[str, Collection[str]] = MappingProxyType({}),
    *,
    certain: bool = True,
) -> Iterator[str]:
    """Problems with the event names in an option of `node`: events that no stage above it writes.

    Args:
        when: the option's value.
        node: the stage with the option.
        nodes: all stages by id.
        others: ids outside the graph whose events `node` also receives, with the kinds of each.
        certain: whether it is certain which stages are above `node`; see `Graph.uncertain`.
    """
    ids = stages_above(nodes, node)
    above = {id_: nodes[id_] for id_ in nodes if id_ in ids}
    kinds_by_stage = {id_: _kinds(stage) for id_, stage in above.items() if "events" in stage.type.spec.writes}
    outside = [name for id_, kinds in others.items() for name in (id_, *_named(id_, kinds))]
    names = [name for id_, kinds in kinds_by_stage.items() for name in _named(id_, kinds) or [id_]] + outside
    for name in [when] if isinstance(when, str) else when or ():
        if name in outside:
            continue
        # ids may have dots
        id_ = max((id_ for id_ in nodes if f"{name}.".startswith(f"{id_}.")), key=len, default=None)
        if id_ is None:
            yield f"no stage writes the event {name!r}{did_you_mean(name, names, all_if_few=True)}"
        elif nodes[id_].type is Unread:
            continue
        elif "events" not in nodes[id_].type.spec.writes:
            yield f"{id_} writes no events, so there is no {name!r}{did_you_mean(name, names, all_if_few=True)}"
        elif id_ not in above:
            if certain:
                yield f"{node.id} does not see the events of {id_}; write from: {id_}, or put {node.id} after {id_}"
        elif name != id_ and kinds_by_stage[id_] and name.removeprefix(f"{id_}.") not in kinds_by_stage[id_]:
            near = did_you_mean(name, _named(id_, kinds_by_stage[id_]), all_if_few=True)
            yield f"{id_} writes no event {name!r}{near}"


def _kinds(node: Node) -> tuple[str, ...]:
    """The kinds of a stage's events, its rules, and the kinds of the events of each rule."""
    kinds = node.type.spec.emits
    rules = node.options.get("rules", ()) if node.type.spec.has_rules else ()
    return (*kinds, *rules, *(f"{rule}.{kind}" for rule in rules for kind in kinds))


def _named(id_: str, kinds: Collection[str]) -> list[str]:
    return [f"{id_}.{kind}" for kind in kinds]


def check_packages(graph: Graph) -> None:
    """Probe every stage for missing packages of install extras; nothing is opened.

    Raises:
        ConfigError: packages are missing; each problem at the stage that needs it, with the command that installs it.
    """
    problems: list[Problem] = []
    for node in graph.nodes.values():
        try:
            node.type(**node.options).probe()
        except MissingPackage as error:
            problems.append(node.problem(f"{node.table}: {error}"))
        except StreamkitError:
            pass  # such as a missing encoder: `run` reports it for the device that it uses
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))


def check_networks(graph: Graph) -> None:
    """Check the network of every card that a stage names; no device is used.

    Raises:
        ConfigError: networks are missing or do not fit their cards; each problem at the `model:` of the YAML.
    """
    from streamkit.models.card import Card
    from streamkit.models.network import check_model

    problems: list[Problem] = []
    for node in graph.nodes.values():
        card = node.options.get("model")
        if not isinstance(card, Card):
            continue
        try:
            check_model(card)
        except MissingPackage:
            continue  # a problem that `check_packages` reports
        except ConfigError as error:
            about = f"{node.table}: {'network' if card.derived else 'model card'} {card.name} ({card.path})"
            problems += [node.problem(f"{about}: {problem.text}", "model") for problem in error.problems]
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
