"""Small networks, each with a case that decides how the engine lays out its buffers, against ONNX Runtime."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from support.engine_cases import (
    CASES,
    IMAGES,
    ROWS,
    SHAPE,
    attention_between_convolutions,
    c2f_block,
    channel_factors_after_a_convolution,
    channel_factors_after_a_depthwise_convolution,
    concatenation_in_a_concatenation,
    conv_silu,
    half_of_a_split_is_joined,
    halves_in_the_other_order,
    hard_swish_of_four_nodes,
    leaky_relu,
    padding_before_a_pool_and_a_convolution,
    padding_that_others_read,
    program_of,
    residual_after_activation,
    residual_before_activation,
    rows_by_joined_planes,
    rows_of_one_image,
    rows_of_two_images,
    run_program,
    tensor_in_two_concatenations,
    tensor_twice_in_a_concatenation,
)
from support.small_networks import NetworkBuilder, run_network

from streamkit.engine.graph import simplify
from streamkit.engine.pixel_rows import products_as_convolutions
from streamkit.engine.program import Attend, Convolve, ConvolveDepthwise, Delegate, Export, Import


@pytest.mark.parametrize(("case", "shape"), CASES)
def test_a_program_computes_what_the_network_does(case, shape):
    network = NetworkBuilder(shape)
    outputs = case(network)
    model = network.model(*outputs)
    images = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    expected = run_network(model, {"images": images})

    graph, program = program_of(model, shape)
    computed = run_program(graph, program, images)

    for name in outputs:
        np.testing.assert_allclose(computed[name], expected[name], rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize(("case", "shape"), CASES)
def test_f16_values_are_close_to_f32(case, shape):
    network = NetworkBuilder(shape)
    outputs = case(network)
    model = network.model(*outputs)
    images = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    expected = run_network(model, {"images": images})

    graph, program = program_of(model, shape)
    computed = run_program(graph, program, images, np.float16)

    for name in outputs:
        assert np.linalg.norm(computed[name] - expected[name]) < 3e-3 * np.linalg.norm(expected[name])


def counts(case: Callable[[NetworkBuilder], list[str]], shape: tuple[int, ...] = SHAPE) -> Counter[str]:
    """Return how many steps of each kind a case has."""
    network = NetworkBuilder(shape)
    _, program = program_of(network.model(*case(network)), shape)
    return Counter(type(step).__name__ for step in program.steps)


@pytest.mark.parametrize("case", [conv_silu, residual_after_activation, residual_before_activation, leaky_relu])
def test_functions_after_a_convolution_are_fused_into_it(case):
    assert set(counts(case)) == {"Import", "Convolve", "Export"}


NOT_WHOLE = ("attention_between_convolutions", "attention_to_rows", *(case.__name__ for case in ROWS))


@pytest.mark.parametrize(("case", "shape"), [case for case in CASES if case.id not in NOT_WHOLE])
def test_all_supported_operators_run_in_the_engine(case, shape):
    assert counts(case, shape)["Delegate"] == 0


@pytest.mark.parametrize(
    ("case", "left"),
    [
        (rows_of_two_images, {"Reshape", "ReduceMax", "Neg"}),
        (rows_by_joined_planes, {"Reshape", "Neg"}),
        (rows_of_one_image, {"Reshape", "Softmax", "Neg"}),
    ],
)
def test_products_on_pixels_of_images_run_in_the_engine(case, left):
    network = NetworkBuilder(SHAPE)
    graph, program = program_of(network.model(*case(network)), SHAPE)
    delegated = {
        graph.nodes[node].operator for step in program.steps if isinstance(step, Delegate) for node in step.nodes
    }
    assert delegated <= left


def test_rows_leave_the_engine_in_their_memory_layout():
    network = NetworkBuilder(SHAPE)
    graph, program = program_of(network.model(*rows_of_two_images(network)), SHAPE)
    exports = {graph.shapes[step.name]: step.channels_last for step in program.steps if isinstance(step, Export)}
    assert exports == {(2, 150, 1, 20): True, (2, 150, 1, 5): True}


def test_a_network_without_such_products_is_not_changed():
    network = NetworkBuilder(SHAPE)
    graph = simplify(network.model(*attention_between_convolutions(network)), {"images": SHAPE})
    assert products_as_convolutions(graph) is graph


def functions_after(case: Callable[[NetworkBuilder], list[str]]) -> list[list[str]]:
    """Return the functions that each convolution of a case computes in its kernel."""
    network = NetworkBuilder(SHAPE)
    _, program = program_of(network.model(*case(network)), SHAPE)
    steps = [step for step in program.steps if isinstance(step, Convolve | ConvolveDepthwise)]
    return [[getattr(function, "name", type(function).__name__) for function in step.then] for step in steps]


def test_a_hard_swish_of_four_nodes_is_a_function_of_its_convolution():
    assert functions_after(hard_swish_of_four_nodes) == [["hard_swish"]]


def test_channel_factors_after_a_convolution_are_part_of_its_weights():
    assert functions_after(channel_factors_after_a_convolution) == [["Affine"]]  # only the second
    assert functions_after(channel_factors_after_a_depthwise_convolution) == [[]]


@pytest.mark.parametrize("case", [c2f_block, half_of_a_split_is_joined, concatenation_in_a_concatenation])
def test_parts_of_a_concatenation_are_written_in_place(case):
    assert counts(case)["CopyChannels"] == 0


@pytest.mark.parametrize(
    ("case", "copies"),
    [(tensor_in_two_concatenations, 1), (tensor_twice_in_a_concatenation, 1), (halves_in_the_other_order, 1)],
)
def test_a_tensor_in_two_places_is_copied_once(case, copies):
    assert counts(case)["CopyChannels"] == copies


def test_blocks_of_pixels_are_channels_of_the_first_layer():
    for case in IMAGES[:4]:
        network = NetworkBuilder((2, 3, 12, 10))
        _, program = program_of(network.model(*case(network)), (2, 3, 12, 10))
        first, second, *_ = program.steps
        assert isinstance(first, Import)
        assert isinstance(second, Convolve)
        assert first.block == 2
        assert second.strides == (1, 1)
        assert second.source.shape == (2, 6, 5, 12)


def test_a_tensor_stays_in_its_buffer_while_onnx_runtime_runs_a_part():
    steps = counts(attention_between_convolutions)
    assert steps["Delegate"] == 1
    assert steps["Import"] == 2  # the images, and what the part returns


def test_padding_is_fused_into_its_reader():
    assert counts(padding_before_a_pool_and_a_convolution)["Fill"] == 0
    assert counts(padding_that_others_read)["Fill"] == 1


def test_steps_come_after_what_they_read():
    network = NetworkBuilder(SHAPE)
    _, program = program_of(network.model(*attention_between_convolutions(network)), SHAPE)
    ready = {"images"}
    for step in program.steps:
        if isinstance(step, Import):
            assert step.name in ready
        elif isinstance(step, Export):
            ready.add(step.name)
        elif isinstance(step, Delegate | Attend):
            assert ready.issuperset(step.inputs)
            ready.update(step.outputs if isinstance(step, Delegate) else (step.output,))
