# SPDX-License-Identifier: Apache-2.0
"""Tensors that only move the values of another one, as strides over it: transposed, sliced, split, reshaped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from streamkit.engine.graph import OnnxGraph, OnnxNode

Factor = tuple[int, int]
"""A length and a stride in elements."""


@dataclass(frozen=True, slots=True)
class Strided:
    """A tensor as a view of a dense one.

    Attributes:
        base: the dense tensor.
        offset: elements of the base before the first.
        axes: for each axis its factors, the slowest first: an axis that merges two has the factors of both.
        nodes: indices of the nodes between the base and this tensor.
    """

    base: str
    offset: int
    axes: tuple[tuple[Factor, ...], ...]
    nodes: frozenset[int] = frozenset()


def trace(graph: OnnxGraph, name: str) -> Strided:
    """Return a tensor as a view of the farthest tensor behind it of which it is one."""
    index = graph.producers.get(name)
    if index is not None:
        moved = _moved(graph, graph.nodes[index], name)
        if moved is not None:
            return replace(moved, nodes=moved.nodes | {index})
    return Strided(name, 0, dense(graph.shapes[name]))


def dense(shape: Sequence[int]) -> tuple[tuple[Factor, ...], ...]:
    """Return the axes of a dense tensor."""
    return tuple(((length, math.prod(shape[axis + 1 :])),) for axis, length in enumerate(shape))


def reshaped(axes: Sequence[Sequence[Factor]], shape: Sequence[int]) -> tuple[tuple[Factor, ...], ...] | None:
    """Return the axes of a view in another shape with as many elements; None if a factor would be cut unevenly."""
    factors = list[Factor]()
    for size, stride in (factor for axis in axes for factor in axis if factor[0] != 1):
        if factors and factors[-1][1] == size * stride:
            factors[-1] = factors[-1][0] * size, stride
        else:
            factors.append((size, stride))
    result = list[tuple[Factor, ...]]()
    for length in shape:
        axis = list[Factor]()
        missing = length
        while missing > 1:
            size, stride = factors.pop(0)
            if size > missing and size % missing == 0:
                inner = size // missing
                factors.insert(0, (inner, stride))
                size = missing
                stride = stride * inner
            if missing % size:
                return None
            axis.append((size, stride))
            missing //= size
        result.append(tuple(axis) or ((1, 0),))
    return tuple(result)


def _moved(graph: OnnxGraph, node: OnnxNode, name: str) -> Strided | None:
    """Return the output of a node that only moves values, as a view of what is behind its input."""
    move = _MOVES.get(node.operator)
    if move is None or node.inputs[0] not in graph.shapes or name not in graph.shapes:
        return None
    return move(graph, node, name, trace(graph, node.inputs[0]))


def _reshape(graph: OnnxGraph, node: OnnxNode, name: str, source: Strided) -> Strided | None:
    axes = reshaped(source.axes, graph.shapes[name])
    return None if axes is None else replace(source, axes=axes)


def _transpose(graph: OnnxGraph, node: OnnxNode, name: str, source: Strided) -> Strided | None:
    order = node.attributes.get("perm", range(len(source.axes))[::-1])
    return replace(source, axes=tuple(source.axes[axis] for axis in order))


def _part(source: Strided, axis: int, start: int, length: int) -> Strided | None:
    """Return consecutive elements of one axis."""
    factors = source.axes[axis]
    if len(factors) != 1:
        return None
    stride = factors[0][1]
    axes = (*source.axes[:axis], ((length, stride),), *source.axes[axis + 1 :])
    return replace(source, offset=source.offset + start * stride, axes=axes)


def _split(graph: OnnxGraph, node: OnnxNode, name: str, source: Strided) -> Strided | None:
    axis = node.attributes.get("axis", 0) % len(source.axes)
    start = 0
    for output in node.outputs:
        length = graph.shapes[output][axis]
        if output == name:
            return _part(source, axis, start, length)
        start += length
    return None


def _slice(graph: OnnxGraph, node: OnnxNode, name: str, source: Strided) -> Strided | None:
    constants = [graph.constants.get(parameter) for parameter in node.inputs[1:]]
    if len(constants) < 3 or any(constant is None or constant.size != 1 for constant in constants):
        return None
    start, stop, axis, *steps = (int(constant.reshape(())) for constant in constants if constant is not None)
    if steps not in ([], [1]):
        return None
    axis %= len(source.axes)
    length = graph.shapes[node.inputs[0]][axis]
    first, last, _ = slice(start, stop).indices(length)
    return _part(source, axis, first, last - first)


def _select(graph: OnnxGraph, node: OnnxNode, name: str, source: Strided) -> Strided | None:
    """One element of an axis, which goes."""
    index = graph.constants.get(node.inputs[1])
    if index is None or index.ndim != 0:
        return None
    axis = node.attributes.get("axis", 0) % len(source.axes)
    length = graph.shapes[node.inputs[0]][axis]
    part = _part(source, axis, int(index) % length, 1)
    return None if part is None else replace(part, axes=(*part.axes[:axis], *part.axes[axis + 1 :]))


_MOVES = {
    **dict.fromkeys(("Reshape", "Unsqueeze", "Squeeze", "Flatten", "Identity"), _reshape),
    "Transpose": _transpose,
    "Split": _split,
    "Slice": _slice,
    "Gather": _select,
}
