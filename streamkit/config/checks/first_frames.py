# SPDX-License-Identifier: Apache-2.0
"""Checks that read the first frame of files: whether they can be opened, and whether shapes lie in their frames."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping

from streamkit.analytics.shapes import Shape, by_name, outside, outside_text
from streamkit.config.plan import Graph, Node
from streamkit.config.shape_options import SOURCES, ShapeOption, option_at, shape_options
from streamkit.core.errors import Problem, SourceError
from streamkit.core.stage import Source
from streamkit.media.source_resolver import missing_reason

_WITHIN_S = 2.0
"""For how long files are opened: a folder may have thousands."""

Sizes = Mapping[str, tuple[int, int]]
"""Width and height in pixels of the frames of each source, by its id."""


def check_first_frames(graph: Graph) -> None:
    """Warn of files that cannot be opened, and of lines and areas outside of the frames of a source."""
    graph.config.warnings.extend(shapes_outside(graph, open_files(graph)))


def shapes_outside(graph: Graph, sizes: Sizes) -> list[Problem]:
    """Return a problem for each line or area that is outside of the frames of a source."""
    return list(dict.fromkeys(problem for node in graph.nodes.values() for problem in _shapes_outside(node, sizes)))


def open_files(graph: Graph) -> Sizes:
    """Read the size of the first frame of the sources, as far as it is known before the run; warn of other files."""
    warnings = graph.config.warnings
    sizes: dict[str, tuple[int, int]] = {}
    until_s = time.monotonic() + _WITHIN_S
    for number, source in enumerate(graph.sources):
        if not issubclass(source.type, Source) or missing_reason(str(source.options.get("uri", ""))) is not None:
            continue  # the reason is a warning already
        if time.monotonic() > until_s:
            text = f"only the first {number} of {len(graph.sources)} sources were opened, which took {_WITHIN_S:g} s"
            warnings.append(Problem(graph.config.file, 0, 0, f"{text}; the others were not checked"))
            break
        try:
            size = source.type(**source.options).first_frame_size()
        except SourceError as error:
            warnings.append(source.node.follow(("uri",))[0].problem(f"source {source.id}: {error}"))
            continue
        if size is not None:
            sizes[source.id] = size
    return sizes


def _shapes_outside(node: Node, sizes: Sizes) -> Iterator[Problem]:
    """Yield a warning for each line or area that no frame of a source contains a part of."""
    if not dataclasses.is_dataclass(node.type):
        return
    for option in shape_options(node.type):
        shapes = option_at(node.options, option.path)
        if shapes is None or option.kind == "arrow":
            continue  # an arrow is a direction, wherever it lies
        by_share = option_at(node.options, option.units) == "share"
        for name, shape in by_name(shapes).items():
            which = ".".join(filter(None, (node.table, *option.path, name)))
            text = _outside(which, shape, option, {"": (1, 1)} if by_share else _used(node, name, sizes))
            if text:
                yield node.problem(text, *option.path, *([name] if name else []))


def _outside(which: str, shape: Shape, option: ShapeOption, sizes: Sizes) -> str:
    """The warning for a shape that is outside of the frames of a source; empty if there is none."""
    for source, (width, height) in sizes.items():
        if outside(shape, width, height, closed=option.kind == "area"):
            return outside_text(which, f"{width}x{height} of {source}" if source else "")
    return ""


def _used(node: Node, shape: str, sizes: Sizes) -> Sizes:
    """The sizes of the sources on which a stage uses a shape."""
    option = node.options.get(SOURCES) or ()
    ids = option.get(shape) if isinstance(option, Mapping) else option
    return {source: size for source, size in sizes.items() if not ids or source in ids}
