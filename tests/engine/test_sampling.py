"""Deformable attention, as exporters write it, against ONNX Runtime."""

import numpy as np
import pytest
from support.engine_cases import program_of, run_program
from support.small_networks import NetworkBuilder, run_network

from streamkit.engine.program import Attend, Delegate

BATCH, HEADS, CHANNELS, QUERIES = 2, 3, 4, 5
LEVELS = ((6, 4), (3, 2))
POINTS = (4, 2)
SHAPE = (BATCH, HEADS * CHANNELS, 6, 5)


def attention(network: NetworkBuilder, *, one_level: bool = False, channels_first: bool = False) -> str:
    """Add a deformable attention whose features, points and weights come from the images."""
    levels = LEVELS[:1] if one_level else LEVELS
    points = POINTS[:1] if one_level else POINTS
    pixels = sum(rows * columns for rows, columns in levels)
    total = sum(points)
    across = HEADS * CHANNELS

    def projected(*shape: int) -> str:
        """Return a tensor of this shape, a projection of all of the images' values."""
        flat = network.node("Reshape", network.images, network.integers(BATCH, int(np.prod(SHAPE[1:]))))
        values = network.node("MatMul", flat, network.random(int(np.prod(SHAPE[1:])), int(np.prod(shape))))
        return str(network.node("Reshape", values, network.integers(BATCH, *shape)))

    if channels_first:
        features = network.node("Reshape", projected(across, pixels), network.integers(BATCH * HEADS, CHANNELS, pixels))
    else:
        rows = network.node("Reshape", projected(pixels, across), network.integers(BATCH, pixels, HEADS, CHANNELS))
        turned = network.node("Transpose", rows, perm=[0, 2, 3, 1])
        features = network.node("Reshape", turned, network.integers(BATCH * HEADS, CHANNELS, pixels))
    places = network.node("Transpose", projected(QUERIES, HEADS, total, 2), perm=[0, 2, 1, 3, 4])
    places = network.node("Reshape", places, network.integers(BATCH * HEADS, QUERIES, total, 2))
    weights = network.node("Softmax", projected(QUERIES, HEADS, total))
    weights = network.node("Transpose", weights, perm=[0, 2, 1, 3])
    weights = network.node("Reshape", weights, network.integers(BATCH * HEADS, 1, QUERIES, total))
    samples = []
    pixel, point = 0, 0
    for (rows_count, columns), count in zip(levels, points, strict=True):
        end = pixel + rows_count * columns
        part = network.node("Slice", features, *map(network.integers, (pixel, end, 2)))
        image = network.node("Reshape", part, network.integers(BATCH * HEADS, CHANNELS, rows_count, columns))
        grid = network.node("Slice", places, *map(network.integers, (point, point + count, 2)))
        samples.append(network.node("GridSample", image, grid, mode="bilinear", padding_mode="zeros", align_corners=0))
        pixel, point = end, point + count
    joined = samples[0] if one_level else network.node("Concat", *samples, axis=-1)
    total_sum = network.node("ReduceSum", network.node("Mul", joined, weights), network.integers(-1), keepdims=0)
    turned_sum = network.node("Reshape", total_sum, network.integers(BATCH, across, QUERIES))
    return str(network.node("Transpose", turned_sum, perm=[0, 2, 1]))


@pytest.mark.parametrize("options", [{}, {"one_level": True}, {"channels_first": True}], ids=str)
def test_attention_runs_in_the_engine_and_computes_the_same(options):
    network = NetworkBuilder(SHAPE)
    output = network.node("Neg", attention(network, **options))
    model = network.model(output)
    images = np.random.default_rng(3).standard_normal(SHAPE).astype(np.float32)
    expected = run_network(model, {"images": images})[output]

    graph, program = program_of(model, SHAPE)

    assert sum(isinstance(step, Attend) for step in program.steps) == 1
    left = {graph.nodes[node].operator for step in program.steps if isinstance(step, Delegate) for node in step.nodes}
    assert not left & {"GridSample", "Transpose", "Slice", "Concat", "ReduceSum"}
    computed = run_program(graph, program, images)[output]
    np.testing.assert_allclose(computed, expected, rtol=1e-4, atol=1e-5)


def test_points_outside_of_the_image_count_as_zero():
    network = NetworkBuilder(SHAPE)
    output = network.node("Neg", attention(network))
    model = network.model(output)
    images = 20 * np.random.default_rng(4).standard_normal(SHAPE).astype(np.float32)
    expected = run_network(model, {"images": images})[output]
    graph, program = program_of(model, SHAPE)
    np.testing.assert_allclose(run_program(graph, program, images)[output], expected, rtol=1e-4, atol=1e-3)


def test_tensors_that_others_read_are_computed_too():
    network = NetworkBuilder(SHAPE)
    sums = attention(network)
    reader = network.node("Softmax", sums)
    outputs = network.node("Neg", sums), reader
    model = network.model(*outputs)
    images = np.random.default_rng(5).standard_normal(SHAPE).astype(np.float32)
    expected = run_network(model, {"images": images})
    graph, program = program_of(model, SHAPE)
    computed = run_program(graph, program, images)
    for name in outputs:
        np.testing.assert_allclose(computed[name], expected[name], rtol=1e-4, atol=1e-5)


def test_a_sampling_of_another_kind_is_left_to_onnx_runtime():
    network = NetworkBuilder(SHAPE)
    grid = network.node("Reshape", network.images, network.integers(BATCH, 6, 30, 2))
    sampled = network.node("GridSample", network.images, grid, mode="nearest", padding_mode="border")
    output = network.node("ReduceSum", sampled, network.integers(-1), keepdims=0)
    _, program = program_of(network.model(output), SHAPE)
    assert not any(isinstance(step, Attend) for step in program.steps)
