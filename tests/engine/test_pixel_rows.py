"""Matrix products on pixels of images: the rewritten network computes the same, in ONNX Runtime and in the engine."""

import numpy as np
import pytest
from support.engine_cases import SHAPE, program_of, run_program
from support.small_networks import NetworkBuilder, run_network

from streamkit.engine.graph import extract, simplify
from streamkit.engine.pixel_rows import products_as_convolutions


def rows_of(network: NetworkBuilder, channels: int = 8) -> str:
    """Return the pixels of an image, (2, 120, channels)."""
    image = network.convolution(network.images, 8, channels)
    planes = network.node("Reshape", image, network.integers(2, channels, 120))
    return str(network.node("Transpose", planes, perm=[0, 2, 1]))


def images(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32)


def check_all(network: NetworkBuilder, *outputs: str) -> set[str]:
    """Compare a network with its rewritten form and its program; return the operators of the rewritten form."""
    model = network.model(*outputs)
    feeds = {"images": images()}
    expected = run_network(model, feeds)
    rewritten = products_as_convolutions(simplify(model, {"images": SHAPE}))
    whole = extract(rewritten, range(len(rewritten.nodes)), rewritten.inputs, rewritten.outputs)
    in_onnx_runtime = run_network(whole, feeds)
    graph, program = program_of(network.model(*outputs), SHAPE)
    computed = run_program(graph, program, feeds["images"])
    for name in outputs:
        np.testing.assert_allclose(in_onnx_runtime[name], expected[name], rtol=1e-4, atol=2e-5)
        np.testing.assert_allclose(computed[name], expected[name], rtol=1e-4, atol=2e-5)
    return {node.operator for node in rewritten.nodes}


def test_a_product_becomes_a_convolution():
    network = NetworkBuilder(SHAPE)
    product = network.node("MatMul", rows_of(network), network.random(8, 4))
    assert "MatMul" not in check_all(network, network.node("Softmax", product))


def test_factors_of_as_many_pixels_as_channels_stay_factors_of_pixels():
    network = NetworkBuilder(SHAPE)
    rows = rows_of(network, 120)
    factors = network.constant(np.linspace(0.5, 2, 120).reshape(120, 1))
    product = network.node("MatMul", network.node("Mul", rows, factors), network.random(120, 8))
    check_all(network, network.node("Softmax", product))


@pytest.mark.parametrize("attributes", [{"alpha": 2.0}, {"beta": 0.5}], ids=str)
def test_a_product_that_is_not_a_convolution_is_unchanged(attributes):
    network = NetworkBuilder(SHAPE)
    matrix = network.node("Reshape", rows_of(network), network.integers(240, 8))
    product = network.node("Gemm", matrix, network.random(8, 4), network.random(4), **attributes)
    assert "Gemm" in check_all(network, network.node("Softmax", product))


def test_a_product_of_two_tensors_is_unchanged():
    network = NetworkBuilder(SHAPE)
    rows = rows_of(network)
    turned = network.node("Transpose", rows, perm=[0, 2, 1])
    projected = network.node("MatMul", rows, network.random(8, 8))
    assert "MatMul" in check_all(network, network.node("Softmax", network.node("MatMul", turned, projected)))


def test_offsets_of_pixels_and_channels_are_added_outside():
    network = NetworkBuilder(SHAPE)
    places = network.constant(np.random.default_rng(1).standard_normal((1, 120, 8)))
    product = network.node("MatMul", network.node("Add", rows_of(network), places), network.random(8, 4))
    assert "MatMul" in check_all(network, network.node("Softmax", product))


def test_an_activation_of_transposed_images_is_correct():
    network = NetworkBuilder(SHAPE)
    turned = network.node("Transpose", network.convolution(network.images, 8, 8), perm=[0, 2, 3, 1])
    check_all(network, network.node("Relu", turned))


def test_a_normalization_without_offsets_is_correct():
    network = NetworkBuilder(SHAPE)
    scale = network.constant(np.linspace(0.5, 2, 8))
    normalized = network.node("LayerNormalization", rows_of(network), scale, axis=-1, epsilon=0.1)
    check_all(network, network.node("Softmax", network.node("MatMul", normalized, network.random(8, 4))))


def test_a_sum_with_a_tensor_of_open_length_is_unchanged():
    network = NetworkBuilder(SHAPE)
    product = network.node("MatMul", rows_of(network), network.random(8, 4))
    positive = network.node("NonZero", network.node("ReduceMax", network.images, axes=[1, 2, 3], keepdims=0))
    count = network.node("Shape", positive)
    ones = network.node("ConstantOfShape", network.node("Concat", count, network.integers(1, 1), axis=0))
    total = network.node("ReduceSum", network.node("Add", product, ones), network.integers(0), keepdims=0)
    output = network.node("Softmax", total)
    rewritten = products_as_convolutions(simplify(network.model(output), {"images": SHAPE}))
    whole = extract(rewritten, range(len(rewritten.nodes)), rewritten.inputs, rewritten.outputs)
    expected = run_network(network.model(output), {"images": images()})
    np.testing.assert_allclose(run_network(whole, {"images": images()})[output], expected[output], rtol=1e-4)
