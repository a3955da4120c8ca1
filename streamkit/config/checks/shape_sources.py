# SPDX-License-Identifier: Apache-2.0
"""Warns of lines and areas for sources that do not exist; such a source may still be added while the pipeline runs."""

from __future__ import annotations

from collections.abc import Mapping

from streamkit.config.plan import Graph
from streamkit.config.shape_options import SOURCES, has_sources
from streamkit.core.text import did_you_mean


def check_shape_sources(graph: Graph) -> None:
    """Warn of each name in the option `sources` of a stage that is no source's id."""
    known = [source.id for source in graph.sources]
    for node in graph.nodes.values():
        given = node.options.get(SOURCES)
        if not given or not has_sources(node.type):
            continue
        named = given.items() if isinstance(given, Mapping) else [("", given)]
        for shape, ids in named:
            for i, id_ in enumerate(ids):
                if id_ not in known:
                    option = ".".join(filter(None, (node.id, SOURCES, shape)))
                    text = f"{option}: there is no source {id_!r}{did_you_mean(id_, known, all_if_few=True)}"
                    graph.config.warnings.append(node.problem(text, SOURCES, *([shape] if shape else []), i))
