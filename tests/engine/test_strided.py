"""Tensors that only move values, against NumPy."""

import numpy as np
import pytest
from support.small_networks import NetworkBuilder

from streamkit.engine.graph import simplify
from streamkit.engine.strided import reshaped, trace

SHAPE = (2, 6, 4, 8)


def moves(network: NetworkBuilder) -> dict[str, tuple[str, object]]:
    """Return tensors by a description, with what NumPy makes of the base, an array of SHAPE."""
    base = network.node("Exp", network.images)
    turned = network.node("Transpose", base, perm=[0, 2, 3, 1])
    part = network.node("Slice", turned, *map(network.integers, (1, 3, 1)))
    halves = network.node("Split", part, network.integers(3, 5), outputs=2, axis=2)
    chosen = network.node("Gather", base, network.constant(np.int64(-2), np.int64), axis=1)
    merged = network.node("Reshape", turned, network.integers(2, 32, 6))
    split = network.node("Reshape", base, network.integers(2, 2, 3, 4, 8))
    return {
        "transposed": (turned, lambda a: a.transpose(0, 2, 3, 1)),
        "sliced": (part, lambda a: a.transpose(0, 2, 3, 1)[:, 1:3]),
        "second part": (halves[1], lambda a: a.transpose(0, 2, 3, 1)[:, 1:3, 3:]),
        "one element": (chosen, lambda a: a[:, 4]),
        "merged axes": (merged, lambda a: a.transpose(0, 2, 3, 1).reshape(2, 32, 6)),
        "divided axis": (split, lambda a: a.reshape(2, 2, 3, 4, 8)),
    }


@pytest.mark.parametrize("name", ["transposed", "sliced", "second part", "one element", "merged axes", "divided axis"])
def test_a_moved_tensor_is_a_view_of_its_base(name):
    network = NetworkBuilder(SHAPE)
    tensors = moves(network)
    output, expected = tensors[name]
    # a sum of the tensor keeps it from being an output, which ONNX Runtime may rename
    graph = simplify(network.model(network.node("Neg", output)), {"images": SHAPE})
    source = next(node for node in graph.nodes if node.operator == "Neg").inputs[0]

    view = trace(graph, source)

    assert graph.nodes[graph.producers[view.base]].operator == "Exp"
    numbers = np.arange(np.prod(SHAPE)).reshape(SHAPE)
    flat = [factor for axis in view.axes for factor in axis]
    places = np.full([length for length, _ in flat], view.offset)
    for axis, (length, stride) in enumerate(flat):
        places += (np.arange(length) * stride).reshape([-1 if other == axis else 1 for other in range(len(flat))])
    wanted = expected(numbers)
    np.testing.assert_array_equal(places.reshape(wanted.shape), wanted)


def test_a_computed_tensor_is_its_base():
    network = NetworkBuilder(SHAPE)
    graph = simplify(network.model(network.node("Exp", network.images)), {"images": SHAPE})
    assert trace(graph, graph.outputs[0]).base == graph.outputs[0]


def test_an_unevenly_split_axis_is_not_a_view():
    assert reshaped([[(6, 1)], [(4, 100)]], (4, 6)) is None


def test_adjacent_axes_in_memory_are_merged():
    assert reshaped([[(6, 4)], [(4, 1)]], (4, 6)) == (((4, 6),), ((6, 1),))
