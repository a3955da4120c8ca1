"""Which parts of a network the engine runs."""

import numpy as np
from support.engine_cases import SHAPE, attention_between_convolutions, conv_silu
from support.small_networks import NetworkBuilder

from streamkit.engine.graph import simplify
from streamkit.engine.operators import Convolution, recognize
from streamkit.engine.partition import fused_share, multiply_adds, partition


def graph_of(*cases, shape=SHAPE):
    network = NetworkBuilder(shape)
    outputs = [output for case in cases for output in case(network)]
    return simplify(network.model(*outputs), {"images": shape})


def test_segments_alternate_in_the_order_of_what_they_read():
    graph = graph_of(attention_between_convolutions)
    segments = partition(graph, recognize(graph), min_share=0.0)
    assert [segment.fused for segment in segments] == [True, False, True]
    written = set(graph.inputs)
    for segment in segments:
        assert written.issuperset(segment.inputs)
        written.update(segment.outputs)
    assert written.issuperset(graph.outputs)


def test_every_node_is_in_one_segment():
    graph = graph_of(attention_between_convolutions)
    segments = partition(graph, recognize(graph), min_share=0.0)
    nodes = [node for segment in segments for node in segment.nodes]
    assert sorted(nodes) == list(range(len(graph.nodes)))


def test_operators_without_a_convolution_are_left_to_onnx_runtime():
    network = NetworkBuilder(SHAPE)
    graph = simplify(network.model(network.node("Relu", network.node("Exp", network.images))), {"images": SHAPE})
    segments = partition(graph, recognize(graph))
    assert [segment.fused for segment in segments] == [False]


def test_a_small_convolution_behind_other_work_is_left_to_onnx_runtime():
    network = NetworkBuilder(SHAPE)
    first = network.silu(network.convolution(network.images, 8, 256))
    last = network.convolution(network.node("Exp", network.node("ReduceMax", first, axes=[1])), 1, 1, 1)
    graph = simplify(network.model(first, last), {"images": SHAPE})
    segments = partition(graph, recognize(graph))
    assert [segment.fused for segment in segments] == [True, False]
    assert sum(isinstance(operator.parameters, Convolution) for operator in segments[0].operators) == 1


def test_tensors_that_must_not_be_f16_stay_outside():
    graph = graph_of(conv_silu)
    whole = partition(graph, recognize(graph), min_share=0.0)
    assert fused_share(graph, whole) == 1
    convolution = next(node for node in graph.nodes if node.operator == "Conv")
    without = frozenset(convolution.outputs)
    assert fused_share(graph, partition(graph, recognize(graph, without), min_share=0.0)) == 0


def test_multiply_adds_are_those_of_the_file():
    network = NetworkBuilder((1, 8, 12, 10))
    first = network.convolution(network.images, 8, 16)
    depthwise = network.convolution(first, 16, 16, 5, groups=16)
    up = network.node("ConvTranspose", depthwise, network.random(16, 4, 2, 2), strides=[2, 2])
    rows = network.node("Reshape", up, network.integers(1, 4, 480))
    product = network.node("MatMul", network.node("Transpose", rows, perm=[0, 2, 1]), network.random(4, 7))
    flat = network.node("Reshape", product, network.integers(1, 3360))
    output = network.node("Gemm", flat, network.random(3360, 3))
    graph = simplify(network.model(output), {"images": (1, 8, 12, 10)})
    parts = 120 * 16 * 8 * 9, 120 * 16 * 25, 120 * 16 * 4 * 4, 480 * 7 * 4, 3360 * 3
    assert multiply_adds(graph) == np.sum(parts)
