# SPDX-License-Identifier: Apache-2.0
"""Checks options that name sources: those of lines and areas, and those of stages that look across sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamkit.config.plan import Graph
from streamkit.config.shape_options import SOURCES, has_sources
from streamkit.core.errors import Problem
from streamkit.core.text import did_you_mean


def check_shape_sources(graph: Graph) -> None:
    """Warn of each name in the option `sources` of a stage that is no source's id: it may still be added."""
    source_ids = [source.id for source in graph.sources]
    for node in graph.nodes.values():
        option = node.options.get(SOURCES)
        if not option or not has_sources(node.type):
            continue
        by_shape = option.items() if isinstance(option, Mapping) else [("", option)]
        for shape, ids in by_shape:
            for i, id_ in enumerate(ids):
                if not graph.config.may_have_source(id_):
                    name = ".".join(filter(None, (node.id, SOURCES, shape)))
                    text = f"{name}: there is no source {id_!r}{did_you_mean(id_, source_ids, all_if_few=True)}"
                    graph.config.warnings.append(node.problem(text, SOURCES, *([shape] if shape else []), i))


def check_named_sources(graph: Graph, problems: list[Problem]) -> None:
    """Refuse the names in other options of stages that are no source's id, unless all sources are yet to be added."""
    source_ids = [source.id for source in graph.sources]
    for node in graph.nodes.values() if source_ids else ():
        if not node.type.spec.names_sources:
            continue
        stage: Any = node.type(**node.options)
        for path, id_ in stage.named_sources():
            if not graph.config.may_have_source(id_):
                text = f"{'.'.join((node.id, *path))}: there is no source {id_!r}"
                problems.append(node.problem(text + did_you_mean(id_, source_ids, all_if_few=True), *path))
