# SPDX-License-Identifier: Apache-2.0
"""Deformable attention: the weighted sum of image features at a few points for each query.

Exporters write it as one GridSample for each resolution, a concatenation, a product with the weights and a sum, among
transpositions that only move values. See X. Zhu et al., Deformable DETR, https://arxiv.org/abs/2010.04159, section 4.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from streamkit.engine.graph import OnnxGraph, OnnxNode
from streamkit.engine.strided import Factor, Strided, reshaped, trace

MAX_LEVELS = 4


@dataclass(frozen=True, slots=True)
class Level:
    """Features in one resolution, and where they are sampled.

    Attributes:
        features: view of (batch x heads, channels, rows, columns).
        points: view of (batch x heads, queries, points, 2): x and y, -1 to 1 from edge to edge.
    """

    features: Strided
    points: Strided
    size_hw: tuple[int, int]
    count: int


@dataclass(frozen=True, slots=True)
class DeformableAttention:
    """A weighted sum of features at points, bilinear, zero outside.

    Attributes:
        levels: the resolutions.
        weights: view of (batch x heads, queries, points of all levels).
        batch, heads, channels, queries: sizes; channels are of one head.
        target: axes of the output as (batch, heads, channels, queries), in elements.
    """

    levels: tuple[Level, ...]
    weights: Strided
    batch: int
    heads: int
    channels: int
    queries: int
    target: tuple[Factor, Factor, Factor, Factor]


@dataclass(frozen=True, slots=True)
class AttentionMatch:
    """A deformable attention in a network.

    Attributes:
        attention: what it computes.
        inputs: the tensors that its views are of.
        output: the tensor that it writes.
        nodes: indices of the nodes that it replaces.
    """

    attention: DeformableAttention
    inputs: tuple[str, ...]
    output: str
    nodes: tuple[int, ...]


def find_attention(graph: OnnxGraph) -> Iterator[AttentionMatch]:
    """Yield each deformable attention of a network."""
    for last, node in enumerate(graph.nodes):
        if node.operator == "ReduceSum":
            match = _match(graph, last)
            if match is not None:
                yield match


def _match(graph: OnnxGraph, last: int) -> AttentionMatch | None:
    total = graph.nodes[last]
    product_index = graph.producers.get(total.inputs[0])
    if not _sums_last_axis(graph, last) or product_index is None or graph.nodes[product_index].operator != "Mul":
        return None
    product = graph.nodes[product_index]
    sampled, weights_name = product.inputs
    if _sampled(graph, sampled) is None:
        sampled, weights_name = weights_name, sampled
    samples = _sampled(graph, sampled)
    shape = graph.shapes.get(sampled, ())
    if samples is None or len(shape) != 4:
        return None
    grids, inner = samples
    rows, channels, queries, points = shape
    if graph.shapes.get(weights_name) != (rows, 1, queries, points):
        return None
    levels = [_level(graph, graph.nodes[index]) for index in grids]
    features = [graph.shapes[graph.nodes[index].inputs[0]] for index in grids]
    places = [graph.shapes[graph.nodes[index].inputs[1]] for index in grids]
    if any(shape[:2] != (rows, channels) for shape in features) or any(shape[1] != queries for shape in places):
        return None
    batch = graph.shapes[graph.inputs[0]][0]
    heads = rows // batch
    weights = trace(graph, weights_name)
    if sum(level.count for level in levels) != points or len(levels) > MAX_LEVELS or rows % batch:
        return None
    views = [weights, *(view for level in levels for view in (level.features, level.points))]
    if any(_rows_of(view, batch, heads) is None for view in views):
        return None
    output, target, behind = _target(graph, last, (batch, heads, channels, queries))
    covered = {last, product_index, *inner, *grids, *behind}
    for view in views:
        covered |= view.nodes
    nodes = _only_inside(graph, covered, output)
    inputs = tuple(dict.fromkeys(view.base for view in views))
    attention = DeformableAttention(tuple(levels), weights, batch, heads, channels, queries, target)
    return AttentionMatch(attention, inputs, output, nodes)


def _level(graph: OnnxGraph, sample: OnnxNode) -> Level:
    """Return the level that a GridSample reads."""
    features, points = sample.inputs
    rows, columns = graph.shapes[features][2:]
    return Level(trace(graph, features), trace(graph, points), (rows, columns), graph.shapes[points][2])


def _sums_last_axis(graph: OnnxGraph, index: int) -> bool:
    node = graph.nodes[index]
    axes = node.attributes.get("axes")
    if axes is None and len(node.inputs) > 1 and node.inputs[1] in graph.constants:
        axes = graph.constants[node.inputs[1]].reshape(-1).tolist()
    return axes in ([-1], [3]) and not node.attributes.get("keepdims", 1)


def _sampled(graph: OnnxGraph, name: str) -> tuple[list[int], list[int]] | None:
    """Return the GridSamples whose outputs a tensor joins along its points, and the nodes between them."""
    inner = list[int]()
    index = graph.producers.get(name)
    if index is not None and graph.nodes[index].operator == "Reshape":
        inner.append(index)
        index = graph.producers.get(graph.nodes[index].inputs[0])
    if index is None:
        return None
    if graph.nodes[index].operator == "GridSample":
        return ([index], inner) if _is_bilinear(graph, index) else None
    if graph.nodes[index].operator != "Concat":
        return None
    inner.append(index)
    grids = list[int]()
    for part in graph.nodes[index].inputs:
        producer = graph.producers.get(part)
        if producer is not None and graph.nodes[producer].operator == "Unsqueeze":
            inner.append(producer)
            producer = graph.producers.get(graph.nodes[producer].inputs[0])
        if producer is None or graph.nodes[producer].operator != "GridSample" or not _is_bilinear(graph, producer):
            return None
        grids.append(producer)
    return grids, inner


def _is_bilinear(graph: OnnxGraph, index: int) -> bool:
    attributes = graph.nodes[index].attributes
    return (
        attributes.get("mode", b"bilinear") in (b"bilinear", b"linear")
        and attributes.get("padding_mode", b"zeros") == b"zeros"
        and not attributes.get("align_corners", 0)
    )


def _rows_of(view: Strided, batch: int, heads: int) -> tuple[int, int] | None:
    """Return the strides of image and head, the first axis of a view; None if it has no such strides."""
    axes = reshaped(view.axes[:1], (batch, heads))
    if axes is None or any(len(axis) != 1 for axis in (*axes, *view.axes[1:])):
        return None
    return axes[0][0][1], axes[1][0][1]


def strides(view: Strided, batch: int, heads: int) -> tuple[int, ...]:
    """Return a view's strides of image, head, and each further axis, in elements."""
    rows = _rows_of(view, batch, heads)
    assert rows is not None
    return (*rows, *(axis[0][1] for axis in view.axes[1:]))


def _target(
    graph: OnnxGraph, last: int, shape: tuple[int, int, int, int]
) -> tuple[str, tuple[Factor, Factor, Factor, Factor], list[int]]:
    """Return where the sums are written: behind a reshape and a transposition, if nothing else reads between."""
    batch, heads, channels, queries = shape
    output = graph.nodes[last].outputs[0]
    plain = ((batch, heads * channels * queries), (heads, channels * queries), (channels, queries), (queries, 1))
    reshape = _only_reader(graph, output, "Reshape")
    if reshape is None or graph.shapes[graph.nodes[reshape].outputs[0]] != (batch, heads * channels, queries):
        return output, plain, []
    transpose = _only_reader(graph, graph.nodes[reshape].outputs[0], "Transpose")
    if transpose is None or list(graph.nodes[transpose].attributes.get("perm", ())) != [0, 2, 1]:
        return output, plain, []
    across = heads * channels
    turned = ((batch, queries * across), (heads, channels), (channels, 1), (queries, across))
    return graph.nodes[transpose].outputs[0], turned, [reshape, transpose]


def _only_reader(graph: OnnxGraph, name: str, operator: str) -> int | None:
    readers = graph.readers.get(name, ())
    if len(readers) != 1 or name in graph.outputs or graph.nodes[readers[0]].operator != operator:
        return None
    return readers[0]


def _only_inside(graph: OnnxGraph, nodes: set[int], output: str) -> tuple[int, ...]:
    """Return those of the nodes whose outputs nothing else reads; the others stay in the network, too."""
    inside = set(nodes)
    while True:
        needed = {
            index
            for index in inside
            for name in graph.nodes[index].outputs
            if name != output
            and (name in graph.outputs or any(reader not in inside for reader in graph.readers.get(name, ())))
        }
        if not needed:
            return tuple(sorted(inside))
        inside -= needed
