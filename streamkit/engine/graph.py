# SPDX-License-Identifier: Apache-2.0
"""An ONNX network as plain values: nodes, constants, and the shape of every tensor."""

from __future__ import annotations

import math
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

Shape = tuple[int, ...]

_LARGEST_SHAPE = 1024
"""Values of a constant from which shapes follow, at most: lengths, axes, pads, factors."""


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """One node of a network.

    Attributes:
        name: unique in the network.
        operator: the operator's name, `Conv`.
        inputs: names of tensors; empty for an input that is left out.
        outputs: names of tensors.
        attributes: the operator's attributes by name.
    """

    name: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OnnxGraph:
    """A network for one batch size and one image size.

    Attributes:
        nodes: in topological order.
        constants: arrays by tensor name.
        shapes, dtypes: of every tensor that is not a constant.
        inputs, outputs: tensor names, in the file's order.
        model: the `onnx.ModelProto` that this was read from.
    """

    nodes: tuple[OnnxNode, ...]
    constants: Mapping[str, np.ndarray]
    shapes: Mapping[str, Shape]
    dtypes: Mapping[str, np.dtype[Any]]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    model: Any = field(repr=False, compare=False)

    @cached_property
    def producers(self) -> Mapping[str, int]:
        """The index of the node that writes a tensor, by tensor name."""
        return {name: index for index, node in enumerate(self.nodes) for name in node.outputs if name}

    @cached_property
    def batch(self) -> int:
        """How many images a run has: the length of the first input of rank 4, 1 without one."""
        shapes = (self.shapes[name] for name in self.inputs)
        return next((shape[0] for shape in shapes if len(shape) == 4), 1)

    @cached_property
    def readers(self) -> Mapping[str, tuple[int, ...]]:
        """The indices of the nodes that read a tensor, by tensor name."""
        readers = defaultdict[str, list[int]](list)
        for index, node in enumerate(self.nodes):
            for name in dict.fromkeys(node.inputs):
                readers[name].append(index)
        return {name: tuple(indices) for name, indices in readers.items()}


def read_graph(model: Any) -> OnnxGraph:
    """Return the graph of an `onnx.ModelProto` whose inputs and outputs have fixed shapes.

    Raises:
        ValueError: such a shape is not fixed, an output is a constant, or there is control flow.
    """
    import onnx
    from onnx import helper, numpy_helper

    graph = model.graph
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    nodes = []
    for index, proto in enumerate(graph.node):
        attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in proto.attribute}
        if any(attribute.HasField("g") or attribute.graphs for attribute in proto.attribute):
            raise ValueError(f"it has control flow: {proto.op_type}")  # whose branches read tensors unseen
        if proto.op_type == "Constant" and "value" in attributes:
            constants[proto.output[0]] = numpy_helper.to_array(attributes["value"])
            continue
        name = proto.name or f"{proto.op_type}_{index}"
        nodes.append(OnnxNode(name, proto.op_type, tuple(proto.input), tuple(proto.output), attributes))
    typed = onnx.shape_inference.infer_shapes(_without_weights(model)).graph
    shapes = dict[str, Shape]()
    dtypes = dict[str, np.dtype[Any]]()
    for tensor in (*typed.input, *typed.value_info, *typed.output):
        kind = tensor.type.tensor_type
        if tensor.name in constants or not kind.HasField("shape"):
            continue
        shape = tuple(int(dim.dim_value) if dim.HasField("dim_value") else -1 for dim in kind.shape.dim)
        if -1 in shape:
            continue  # a tensor that ONNX Runtime alone reads and writes may leave it open
        shapes[tensor.name] = shape
        dtypes[tensor.name] = np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
    inputs = tuple(tensor.name for tensor in graph.input if tensor.name not in constants)
    outputs = tuple(tensor.name for tensor in graph.output)
    constant = [name for name in outputs if name in constants]
    if constant:
        raise ValueError(f"its output {constant[0]} is a constant")
    missing = [name for name in (*inputs, *outputs) if name not in shapes]
    if missing:
        raise ValueError(f"the shape of {missing[0]} is not fixed")
    return OnnxGraph(tuple(nodes), constants, shapes, dtypes, inputs, outputs, model)


def _without_weights(model: Any) -> Any:
    """Return a network whose large constants are inputs: shapes do not follow from their values."""
    import onnx
    from onnx import helper

    graph = model.graph
    small = []
    inputs = list(graph.input)
    for tensor in graph.initializer:
        if math.prod(tensor.dims) <= _LARGEST_SHAPE:
            small.append(tensor)
        else:
            inputs.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    light = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
    light.graph.name = graph.name
    light.graph.node.extend(graph.node)
    light.graph.input.extend(inputs)
    light.graph.output.extend(graph.output)
    light.graph.value_info.extend(graph.value_info)
    light.graph.initializer.extend(small)
    return light


def simplify(
    model: Any, shapes: Mapping[str, Shape], keep: Callable[[bytes], None] = lambda network: None
) -> OnnxGraph:
    """Return a network for fixed input shapes, without its arithmetic on shapes.

    ONNX Runtime folds constants and batch normalization when it optimizes the network; it runs nothing. What is f16 in
    the file is f32 in the graph, except for inputs and outputs: the engine rounds where it computes in f16.

    Args:
        model: an `onnx.ModelProto`; its shapes are fixed in place.
        shapes: of every input.
        keep: takes the simplified network, of which `read_network` makes the same graph.

    Raises:
        ValueError: ONNX Runtime cannot load it with these shapes, or see `read_graph`.
    """
    import onnxruntime as ort

    del model.graph.value_info[:]
    _fix_weights(model)
    _widen(model)
    for tensor in model.graph.input:
        for dim, length in zip(tensor.type.tensor_type.shape.dim, shapes.get(tensor.name, ()), strict=False):
            dim.dim_value = length  # and no longer a name
    for tensor in model.graph.output:
        tensor.type.tensor_type.ClearField("shape")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    with tempfile.TemporaryDirectory(prefix="streamkit-engine-") as folder:
        optimized = Path(folder) / "simplified.onnx"
        options.optimized_model_filepath = str(optimized)
        try:
            network = model.SerializeToString()
            ort.InferenceSession(network, options, providers=["CPUExecutionProvider"], enable_fallback=0)
        except Exception as error:  # ONNX Runtime's and Protobuf's exceptions have no common base but Exception
            raise ValueError(" ".join(str(error).split())) from None
        simplified = optimized.read_bytes()
    keep(simplified)
    return read_network(simplified)


def read_network(network: bytes) -> OnnxGraph:
    """Return the graph of a serialized network; see `read_graph`."""
    import onnx

    return read_graph(onnx.load_from_string(network))


def _fix_weights(model: Any) -> None:
    """Make constants of weights that a caller might replace, in place."""
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [tensor for tensor in model.graph.input if tensor.name not in weights]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    model.ir_version = max(4, model.ir_version)  # before, shapes are inferred from weights only if they are inputs


def _widen(model: Any) -> None:
    """Turn f16 within a network into f32, in place; its inputs and outputs are not changed.

    The CPU provider, which optimizes the network, would put casts around each f16 convolution.
    """
    from onnx import TensorProto, helper, numpy_helper

    graph = model.graph
    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.FLOAT16:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype") and attribute.i == TensorProto.FLOAT16:
                attribute.i = TensorProto.FLOAT
            if attribute.HasField("t") and attribute.t.data_type == TensorProto.FLOAT16:
                values = numpy_helper.to_array(attribute.t).astype(np.float32)
                attribute.t.CopyFrom(numpy_helper.from_array(values, attribute.t.name))
    narrow = [tensor.name for tensor in graph.input if tensor.type.tensor_type.elem_type == TensorProto.FLOAT16]
    casts = [helper.make_node("Cast", [name], [f"{name} in f32"], to=TensorProto.FLOAT) for name in narrow]
    for node in graph.node:
        node.input[:] = [f"{name} in f32" if name in narrow else name for name in node.input]
    nodes = [*casts, *graph.node]
    for tensor in graph.output:
        if tensor.type.tensor_type.elem_type == TensorProto.FLOAT16:
            wide = f"{tensor.name} in f32"
            for node in nodes:
                node.input[:] = [wide if name == tensor.name else name for name in node.input]
                node.output[:] = [wide if name == tensor.name else name for name in node.output]
            nodes.append(helper.make_node("Cast", [wide], [tensor.name], to=TensorProto.FLOAT16))
    del graph.node[:]
    graph.node.extend(nodes)


def extract(graph: OnnxGraph, nodes: Sequence[int], inputs: Sequence[str], outputs: Sequence[str]) -> Any:
    """Return a part of a network as an `onnx.ModelProto`.

    Args:
        graph: the network.
        nodes: indices of the part's nodes.
        inputs: tensors that it reads from outside.
        outputs: tensors that it returns.
    """
    from onnx import helper, numpy_helper

    protos = [proto for proto in graph.model.graph.node if proto.op_type != "Constant"]
    part = [protos[index] for index in nodes]
    constants = sorted({name for proto in part for name in proto.input if name in graph.constants})

    def typed(name: str) -> Any:
        kind = helper.np_dtype_to_tensor_dtype(graph.dtypes[name])
        return helper.make_tensor_value_info(name, kind, graph.shapes[name])

    body = helper.make_graph(
        part,
        "part",
        [typed(name) for name in inputs],
        [typed(name) for name in outputs],
        [numpy_helper.from_array(graph.constants[name], name) for name in constants],
    )
    domains = {proto.domain for proto in part} | {""}
    opsets = [opset for opset in graph.model.opset_import if opset.domain in domains]
    return helper.make_model(body, opset_imports=opsets, ir_version=graph.model.ir_version)
