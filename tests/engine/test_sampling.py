"""Deformable attention, as exporters write it, against ONNX Runtime."""

import numpy as np
import pytest
from support.engine_cases import ATTENTION_SHAPE as SHAPE
from support.engine_cases import attention, attention_to_rows, program_of, run_program
from support.small_networks import NetworkBuilder, run_network

from streamkit.engine.program import Attend, Delegate, Export


@pytest.mark.parametrize("options", [{}, {"one_level": True}, {"channels_first": True}, {"of_rows": True}], ids=str)
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
    grid = network.node("Reshape", network.images, network.integers(2, 6, 30, 2))
    sampled = network.node("GridSample", network.images, grid, mode="nearest", padding_mode="border")
    output = network.node("ReduceSum", sampled, network.integers(-1), keepdims=0)
    _, program = program_of(network.model(output), SHAPE)
    assert not any(isinstance(step, Attend) for step in program.steps)


def test_features_that_the_engine_computes_are_read_in_its_buffers():
    network = NetworkBuilder(SHAPE)
    _, program = program_of(network.model(*attention_to_rows(network)), SHAPE)
    attend = next(step for step in program.steps if isinstance(step, Attend))
    assert [view.shape for _, view in attend.features] == [(2, 6, 5, 12)]
    exported = {step.name for step in program.steps if isinstance(step, Export)}
    assert not exported & {name for name, _ in attend.features}
