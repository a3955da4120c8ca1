# SPDX-License-Identifier: Apache-2.0
"""Cuts a network into segments that run one after the other: in the engine, or in ONNX Runtime."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from streamkit.engine.graph import OnnxGraph
from streamkit.engine.operators import Convolution, Operator, Upconvolution
from streamkit.engine.sampling import DeformableAttention

MIN_SHARE = 0.01
"""Least share of the network's multiply-adds in a segment of the engine.

Each segment costs one conversion of its inputs and outputs, and one call of ONNX Runtime behind it.
"""


@dataclass(frozen=True, slots=True)
class NetworkSegment:
    """Nodes that run together.

    Attributes:
        operators: for the engine, in topological order; empty for ONNX Runtime.
        nodes: indices of the ONNX nodes, in ascending order.
        inputs: tensors that it reads and does not write, in the order of their first use.
        outputs: tensors that other segments or the caller read.
    """

    operators: tuple[Operator, ...]
    nodes: tuple[int, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def fused(self) -> bool:
        """Whether the engine runs it."""
        return bool(self.operators)


def partition(
    graph: OnnxGraph, operators: Mapping[int, Operator], min_share: float = MIN_SHARE
) -> tuple[NetworkSegment, ...]:
    """Return the segments of a network in the order in which they run.

    Args:
        graph: the network.
        operators: what the engine can run, by the index of the last node.
        min_share: least share of the network's multiply-adds in connected operators on images; fewer are left to ONNX
            Runtime.

    Raises:
        ValueError: the shape of a tensor between two segments is not fixed.
    """
    least = max(1, min_share * multiply_adds(graph))
    candidates = dict(operators)
    while True:
        levels = _levels(graph, candidates)
        candidates = {last: operator for last, operator in candidates.items() if last in levels}
        dropped = {
            last
            for component in _components(candidates, levels)
            if _work(graph, candidates, component) < least
            for last in component
        }
        if not dropped:
            return tuple(_segments(graph, candidates, levels))
        candidates = {last: operator for last, operator in candidates.items() if last not in dropped}


def _work(graph: OnnxGraph, operators: Mapping[int, Operator], component: Iterable[int]) -> int:
    return sum(operator_multiply_adds(graph, operators[last]) for last in component)


def _components(operators: Mapping[int, Operator], levels: Mapping[int, int]) -> list[list[int]]:
    """Return the operators on images, by their last nodes, in groups that share tensors within a level."""
    group_of = dict[tuple[int, str], list[int]]()
    for last, operator in operators.items():
        if isinstance(operator.parameters, DeformableAttention):
            continue
        members = [last]
        for name in (*operator.inputs, *operator.outputs):
            other = group_of.get((levels[last], name), members)
            if other is not members:
                other.extend(members)
                for key, group in group_of.items():
                    if group is members:
                        group_of[key] = other
                members = other
            group_of[levels[last], name] = members
    return list({id(group): group for group in group_of.values()}.values())


def _levels(graph: OnnxGraph, operators: Mapping[int, Operator]) -> dict[int, int]:
    """Return the level of each unit by its last node: even in the engine, odd in ONNX Runtime.

    A unit is an operator, or a node that is no part of one. It reads from its own level and those below only, so all
    units of a level can run together. Units that nothing reads are left out.
    """
    unit_of = {node: last for last, operator in operators.items() for node in operator.nodes}
    levels = dict[int, int]()
    for index in sorted(_live(graph, operators, unit_of)):
        fused = index in operators
        level = 0 if fused else -1
        for name in _reads(graph, operators, index):
            producer = graph.producers.get(name)
            if producer is not None:
                source = unit_of.get(producer, producer)
                level = max(level, levels[source] + (fused != (source in operators)))
        levels[index] = level
    return levels


def _live(graph: OnnxGraph, operators: Mapping[int, Operator], unit_of: Mapping[int, int]) -> set[int]:
    """Return the units, by their last nodes, whose results the network's outputs depend on."""
    live = set[int]()
    waiting = [graph.producers[name] for name in graph.outputs if name in graph.producers]
    while waiting:
        node = waiting.pop()
        unit = unit_of.get(node, node)
        if unit not in live:
            live.add(unit)
            reads = _reads(graph, operators, unit)
            waiting.extend(graph.producers[name] for name in reads if name in graph.producers)
    return live


def _reads(graph: OnnxGraph, operators: Mapping[int, Operator], unit: int) -> tuple[str, ...]:
    """Return the tensors that a unit reads, without constants."""
    names = operators[unit].inputs if unit in operators else graph.nodes[unit].inputs
    return tuple(dict.fromkeys(name for name in names if name and name not in graph.constants))


def _segments(
    graph: OnnxGraph, operators: Mapping[int, Operator], levels: Mapping[int, int]
) -> Iterator[NetworkSegment]:
    needed_by = defaultdict[str, set[int]](set)  # levels that read a tensor
    for unit, level in levels.items():
        for name in _reads(graph, operators, unit):
            needed_by[name].add(level)
    for level in sorted(set(levels.values())):
        units = [unit for unit in levels if levels[unit] == level]
        fused = tuple(operators[unit] for unit in units if unit in operators)
        nodes = sorted(node for unit in units for node in (operators[unit].nodes if unit in operators else (unit,)))
        written = [
            name
            for unit in units
            for name in (operators[unit].outputs if unit in operators else graph.nodes[unit].outputs)
            if name
        ]
        reads = dict.fromkeys(name for unit in units for name in _reads(graph, operators, unit))
        inputs = [name for name in reads if name not in written]
        outputs = [name for name in written if name in graph.outputs or needed_by[name] - {level}]
        for name in outputs:
            if name not in graph.shapes:
                raise ValueError(f"the shape of {name} is not fixed, and two parts of the network use it")
        yield NetworkSegment(fused, tuple(nodes), tuple(inputs), tuple(outputs))


def fused_share(graph: OnnxGraph, segments: tuple[NetworkSegment, ...]) -> float:
    """Return the share of the network's multiply-adds that the engine runs, 0 to 1."""
    fused = sum(operator_multiply_adds(graph, operator) for segment in segments for operator in segment.operators)
    return fused / max(1, multiply_adds(graph))


def operator_multiply_adds(graph: OnnxGraph, operator: Operator) -> int:
    """Return the multiply-adds of the convolutions of an operator."""
    parameters = operator.parameters
    if isinstance(parameters, Convolution):
        return math.prod(graph.shapes[operator.outputs[0]]) * math.prod(parameters.weight.shape[1:])
    if isinstance(parameters, Upconvolution):
        return math.prod(graph.shapes[operator.inputs[0]]) * math.prod(parameters.weight.shape[1:])
    return 0


def multiply_adds(graph: OnnxGraph) -> int:
    """Return the multiply-adds of a network's convolutions and matrix products."""
    total = 0
    for node in graph.nodes:
        shapes = [
            graph.shapes.get(name) or (graph.constants[name].shape if name in graph.constants else ())
            for name in node.inputs
        ]
        output = graph.shapes.get(node.outputs[0], ())
        if not all(shapes[:2]):
            continue  # of open length, or not of several values
        if node.operator == "Conv":
            total += math.prod(output) * math.prod(shapes[1][1:])
        elif node.operator == "ConvTranspose":
            total += math.prod(shapes[0]) * math.prod(shapes[1][1:])
        elif node.operator == "MatMul":
            total += math.prod(output) * shapes[0][-1]
        elif node.operator == "Gemm":
            total += math.prod(output) * shapes[0][0 if node.attributes.get("transA") else 1]
    return total
