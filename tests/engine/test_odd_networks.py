"""Networks that exporters seldom write: each runs as in ONNX Runtime, or is refused with a reason."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.engine_cases import SHAPE, program_of, run_program
from support.small_networks import NetworkBuilder, run_network

from streamkit.engine.graph import read_graph, simplify
from streamkit.engine.operators import recognize
from streamkit.engine.partition import fused_share, partition
from streamkit.engine.program import MAX_FUNCTIONS


def images_of(shape):
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def linear_resize_of_opset_10(network):
    """Before opset 11, a resize maps pixels by their corners."""
    scales = network.constant([1, 1, 2, 2])
    return network.node("Resize", network.convolution(network.images, 8, 8), scales, mode="linear")


def nearest_resize_of_opset_10(network):
    scales = network.constant([1, 1, 2, 2])
    return network.node("Resize", network.convolution(network.images, 8, 8), scales, mode="nearest")


def nearest_resize_by_a_fraction(network):
    """Four pixels become eight, as with a factor of 2, but are read at x / 2.1."""
    first = network.convolution(network.images, 8, 8)
    scales = network.constant([1, 1, 2.1, 2.1])
    how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return network.node("Resize", first, "", scales, mode="nearest", **how)


def linear_resize_by_a_fraction(network):
    first = network.convolution(network.images, 8, 8)
    scales = network.constant([1, 1, 2.1, 2.1])
    return network.node("Resize", first, "", scales, mode="linear")


def padding_with_a_computed_number(network):
    number = network.node("ReduceMax", network.images, keepdims=0)
    return network.node(
        "Pad", network.convolution(network.images, 8, 8), network.integers(0, 0, 1, 1, 0, 0, 1, 1), number
    )


def some_channels_of_blocks(network):
    blocks = network.node("SpaceToDepth", network.images, blocksize=2)
    return network.convolution(network.node("Gather", blocks, network.integers(0, 3, 5), axis=1), 3, 8)


def channels_of_blocks_twice(network):
    blocks = network.node("SpaceToDepth", network.images, blocksize=2)
    return network.convolution(network.node("Gather", blocks, network.integers(*[1, 2] * 6), axis=1), 12, 8)


def product_of_open_length(network):
    """How many rows the product has depends on values."""
    places = network.node("NonZero", network.node("Relu", network.convolution(network.images, 8, 8)))
    rows = network.node("Cast", network.node("Transpose", places, perm=[1, 0]), to=TensorProto.FLOAT)
    mean = network.node("ReduceMean", network.node("MatMul", rows, network.random(4, 3)), keepdims=0)
    return network.node("Add", network.convolution(network.images, 8, 8), mean)


def many_functions(network):
    name = network.convolution(network.images, 8, 8)
    for place in range(3):
        name = network.node("Mul", network.node("Add", name, network.constant([place])), network.constant([1.1]))
        name = network.node("LeakyRelu", name, alpha=0.1 + place / 10)
    return name


def grouped_and_depthwise_with_factor(network):
    return network.convolution(network.convolution(network.images, 8, 16, groups=8), 16, 8, groups=2)


def no_convolution(network):
    return network.node("Relu", network.images)


CASES = [
    (linear_resize_of_opset_10, SHAPE, 10),
    (nearest_resize_of_opset_10, SHAPE, 10),
    (nearest_resize_by_a_fraction, (2, 8, 4, 4), 17),
    (linear_resize_by_a_fraction, (2, 8, 4, 4), 17),
    (padding_with_a_computed_number, SHAPE, 17),
    (some_channels_of_blocks, (2, 3, 12, 10), 17),
    (channels_of_blocks_twice, (2, 3, 12, 10), 17),
    (product_of_open_length, SHAPE, 17),
    (many_functions, SHAPE, 17),
    (grouped_and_depthwise_with_factor, SHAPE, 17),
    (no_convolution, SHAPE, 17),
]


@pytest.mark.parametrize(("case", "shape", "opset"), [pytest.param(*values, id=values[0].__name__) for values in CASES])
def test_a_network_computes_what_onnx_runtime_does(case, shape, opset):
    network = NetworkBuilder(shape)
    name = case(network)
    model = network.model(name, opset=opset)
    images = images_of(shape)
    expected = run_network(model, {"images": images})[name]
    computed = run_program(*program_of(model, shape), images)[name]
    np.testing.assert_allclose(computed, expected, rtol=1e-4, atol=3e-5)


def test_kernels_get_no_more_functions_than_they_take():
    network = NetworkBuilder(SHAPE)
    _, program = program_of(network.model(many_functions(network)), SHAPE)
    assert max(len(step.then) for step in program.steps if hasattr(step, "then")) <= MAX_FUNCTIONS


# ------------------------------------------------------------------------------------------------ refused


def test_control_flow_is_refused():
    network = NetworkBuilder(SHAPE)
    first = network.convolution(network.images, 8, 8)
    gate = network.node("Sigmoid", first)  # read by one branch only, which no node lists as an input

    def branch(node, name):
        return helper.make_graph([node], name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE)])

    above = network.node("Greater", network.node("ReduceMean", network.images, keepdims=0), network.constant(0.0))
    branches = {
        "then_branch": branch(helper.make_node("Add", [first, first], ["sum"]), "sum"),
        "else_branch": branch(helper.make_node("Identity", [gate], ["same"]), "same"),
    }
    chosen = network.node("If", above, **branches)
    model = network.model(chosen, network.node("Mul", first, gate))
    with pytest.raises(ValueError, match="it has control flow: If"):
        simplify(model, {"images": SHAPE})


def test_a_tensor_of_open_length_between_two_parts_is_refused():
    """ONNX Runtime would make it in one part and read it in another, with convolutions between."""
    network = NetworkBuilder(SHAPE)
    first = network.convolution(network.images, 8, 8)
    places = network.node("Transpose", network.node("NonZero", network.node("Relu", first)), perm=[1, 0])
    rows = network.node("Softmax", network.node("Reshape", first, network.integers(2, 8, 120)))
    last = network.convolution(network.node("Reshape", rows, network.integers(2, 8, 12, 10)), 8, 8)
    mean = network.node("ReduceMean", network.node("GatherND", last, places), keepdims=0)
    graph = simplify(network.model(last, mean), {"images": SHAPE})
    with pytest.raises(ValueError, match=f"the shape of {places} is not fixed"):
        partition(graph, recognize(graph), min_share=0.0)


def test_an_output_that_is_constant_is_refused():
    network = NetworkBuilder(SHAPE)
    first = network.convolution(network.images, 8, 8)
    model = network.model(first, network.node("Identity", network.random(3, 3)))
    with pytest.raises(ValueError, match="its output identity_1_0 is a constant"):
        simplify(model, {"images": SHAPE})


# ------------------------------------------------------------------------------------------------ inputs, types


@pytest.mark.parametrize("shape", [(), (1, 2), (2, 2)])
def test_images_need_not_be_the_first_input(shape):
    network = NetworkBuilder(SHAPE)
    model = network.model(network.silu(network.convolution(network.images, 8, 8)))
    size = helper.make_tensor_value_info("size", TensorProto.INT64, shape)
    inputs = [size, *model.graph.input]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    graph = simplify(model, {"images": SHAPE, "size": shape})
    assert graph.batch == SHAPE[0]
    assert fused_share(graph, partition(graph, recognize(graph))) == 1


def test_weights_that_are_listed_as_inputs_are_constants():
    """As in files of ONNX IR version 3, where shapes are inferred from weights only if they are inputs."""
    network = NetworkBuilder(SHAPE)
    first = network.convolution(network.images, 8, 8)
    statistics = network.random(8), network.random(8), network.random(8), network.constant(np.ones(8))
    name = network.node("Relu", network.node("BatchNormalization", first, *statistics))
    model = network.model(name)
    images = images_of(SHAPE)
    expected = run_network(model, {"images": images})[name]
    model.ir_version = 3
    for tensor in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    graph, program = program_of(model, SHAPE)
    assert [node.operator for node in graph.nodes] == ["Conv", "Relu"]
    assert fused_share(graph, partition(graph, recognize(graph))) == 1
    np.testing.assert_allclose(run_program(graph, program, images)[name], expected, rtol=1e-4, atol=3e-5)


def test_only_constants_are_taken_out_of_the_nodes():
    network = NetworkBuilder(SHAPE)
    number = network.node("Constant", value=numpy_helper.from_array(np.float32(2.0)))
    shape = network.node("Constant", value=numpy_helper.from_array(np.array([8, 1, 1])))
    filled = network.node("ConstantOfShape", shape, value=numpy_helper.from_array(np.array([3.0], np.float32)))
    name = network.node("Add", network.node("Mul", network.images, number), filled)
    graph = read_graph(network.model(name))
    assert [node.operator for node in graph.nodes] == ["ConstantOfShape", "Mul", "Add"]
    assert graph.constants[number] == 2.0
    assert graph.constants[shape].tolist() == [8, 1, 1]
    assert graph.inputs == ("images",)


def in_f16(model):
    """Turn all of a network into f16, in place."""
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.dtype == np.float32:
            tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float16), tensor.name))
    for tensor in (*model.graph.input, *model.graph.output):
        tensor.type.tensor_type.elem_type = TensorProto.FLOAT16
    del model.graph.value_info[:]
    return model


def test_an_f16_network_runs_in_the_engine():
    """ONNX Runtime's CPU provider puts casts around each of its convolutions, which the engine must not see."""
    network = NetworkBuilder(SHAPE)
    name = network.convolution(network.silu(network.convolution(network.images, 8, 8)), 8, 8)
    model = in_f16(network.model(name))
    images = images_of(SHAPE).astype(np.float16)
    expected = run_network(model, {"images": images})[name]
    graph, program = program_of(onnx.load_from_string(model.SerializeToString()), SHAPE)
    assert fused_share(graph, partition(graph, recognize(graph))) == 1
    assert (graph.dtypes["images"], graph.dtypes[name]) == (np.float16, np.float16)
    computed = run_program(graph, program, images)[name]
    assert np.linalg.norm(computed - expected) < 3e-3 * np.linalg.norm(expected)
