# SPDX-License-Identifier: Apache-2.0
"""What the engine computes: its operators, and how they are recognized in an ONNX network.

Several ONNX nodes may be one operator: exporters write SiLU as a sigmoid and a product. A node that is no part of an
operator is left to ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from streamkit.engine.graph import OnnxGraph, OnnxNode
from streamkit.engine.sampling import DeformableAttention, find_attention

Pair = tuple[int, int]
Pads = tuple[int, int, int, int]
"""Rows above, columns to the left, rows below, columns to the right."""

ActivationName = Literal["relu", "leaky_relu", "silu", "sigmoid", "hard_sigmoid", "hard_swish", "clip"]


@dataclass(frozen=True, slots=True, eq=False)
class Convolution:
    """A convolution of images with fixed weights.

    Attributes:
        weight: (outputs, inputs / groups, height, width) f32.
        bias: (outputs,) f32.
    """

    weight: np.ndarray
    bias: np.ndarray
    strides: Pair
    pads: Pads
    dilations: Pair
    groups: int


@dataclass(frozen=True, slots=True, eq=False)
class Upconvolution:
    """A transposed convolution whose stride is its kernel's size, so that no two inputs meet in an output.

    Attributes:
        weight: (inputs, outputs, stride, stride) f32.
        bias: (outputs,) f32.
    """

    weight: np.ndarray
    bias: np.ndarray


@dataclass(frozen=True, slots=True)
class Activation:
    """A function of each value.

    Attributes:
        name: which function.
        a, b: its parameters: the slope of `leaky_relu`; slope and offset of `hard_sigmoid` and `hard_swish`; least and
            largest value of `clip`.
    """

    name: ActivationName
    a: float = 0.0
    b: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Affine:
    """A product and a sum with constants: `x * scale + shift`, each (1,) or (channels,) f32."""

    scale: np.ndarray
    shift: np.ndarray


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of two tensors; the second may have one value a channel."""


@dataclass(frozen=True, slots=True)
class Product:
    """The product of two tensors; the second may have one value a channel."""


@dataclass(frozen=True, slots=True)
class Concatenation:
    """Tensors behind each other along the channels."""


@dataclass(frozen=True, slots=True)
class Split:
    """Consecutive parts of a tensor's channels, one an output.

    Attributes:
        lengths: channels of each part.
    """

    lengths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Crop:
    """A part of a tensor: start, stop and step along channels, rows and columns."""

    starts: tuple[int, int, int]
    stops: tuple[int, int, int]
    steps: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Pool:
    """The maximum or the mean of windows; a mean counts padding if `count_pads`."""

    kind: Literal["max", "mean"]
    kernel: Pair
    strides: Pair
    pads: Pads
    count_pads: bool = False


@dataclass(frozen=True, slots=True)
class GlobalMean:
    """The mean of each channel of an image."""


@dataclass(frozen=True, slots=True)
class Resize:
    """A larger image: each output pixel is the input pixel below it, or interpolated between four.

    Attributes:
        kind: `nearest` reads pixel floor(x / scale); `linear` reads (x + .5) / scale - .5, within the image.
        scale: integer factors of height and width.
    """

    kind: Literal["nearest", "linear"]
    scale: Pair


@dataclass(frozen=True, slots=True)
class Padding:
    """Rows and columns of zeros around an image."""

    pads: Pads


@dataclass(frozen=True, slots=True)
class SpaceToDepth:
    """Blocks of pixels as channels of one pixel: first its upper row from left to right, then the lower.

    Attributes:
        block: rows and columns of a block.
        order: for each output channel, which of `block * block * channels` it is.
    """

    block: int
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PixelFactors:
    """A product with a constant of each pixel: (height, width) f32."""

    factors: np.ndarray


@dataclass(frozen=True, slots=True)
class PixelConcatenation:
    """The pixels of images one after another, row by row, as an image of one column."""


@dataclass(frozen=True, slots=True, eq=False)
class ChannelNormalization:
    """A normalization of each pixel's channels: `(x - mean) / sqrt(variance + epsilon) * scale + shift`.

    Attributes:
        scale, shift: (channels,) f32.
    """

    scale: np.ndarray
    shift: np.ndarray
    epsilon: float


@dataclass(frozen=True, slots=True)
class ChannelsLast:
    """The image as (batch, height, width, channels), for readers outside of the engine."""


Images = (
    Convolution
    | Upconvolution
    | Activation
    | Affine
    | Sum
    | Product
    | Concatenation
    | Split
    | Crop
    | Pool
    | GlobalMean
    | Resize
    | Padding
    | SpaceToDepth
    | PixelFactors
    | PixelConcatenation
    | ChannelNormalization
    | ChannelsLast
)
"""What is computed on images, (batch, channels, rows, columns)."""

Parameters = Images | DeformableAttention


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator in a network.

    Attributes:
        parameters: what it computes.
        inputs, outputs: tensor names; constants are part of the parameters.
        nodes: indices of the ONNX nodes that it replaces, in ascending order.
    """

    parameters: Parameters
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[int, ...]


def recognize(graph: OnnxGraph, without: frozenset[str] = frozenset()) -> dict[int, Operator]:
    """Return the operators of a network by the index of their last node.

    Args:
        graph: the network.
        without: names of tensors that must not pass through f16: an operator that reads or writes one is left out.
    """
    operators = dict[int, Operator]()
    covered = set[int]()
    for match in find_attention(graph):
        operators[match.nodes[-1]] = Operator(match.attention, match.inputs, (match.output,), match.nodes)
        covered.update(match.nodes)
    for index in range(len(graph.nodes)):
        if index in covered:
            continue
        for pattern in (_hard_swish_chain, _gated, _focus, _channel_normalization, _single):
            operator = pattern(graph, index)
            if operator is None or without.intersection((*operator.inputs, *operator.outputs)):
                continue
            if covered.isdisjoint(operator.nodes) and _are_images(graph, operator):
                operators[operator.nodes[-1]] = operator
                covered.update(operator.nodes)
                break
    read = {name for operator in operators.values() for name in operator.inputs}
    return {
        last: operator
        for last, operator in sorted(operators.items())
        if not isinstance(operator.parameters, ChannelsLast) or operator.outputs[0] not in read
    }


def _are_images(graph: OnnxGraph, operator: Operator) -> bool:
    """Whether all tensors of an operator are (batch, channels, height, width) of floating-point values."""
    return all(
        len(graph.shapes.get(name, ())) == 4 and graph.shapes[name][0] == graph.batch and graph.dtypes[name].kind == "f"
        for name in (*operator.inputs, *operator.outputs)
    )


# ------------------------------------------------------------------------------------------------ several nodes


def _gated(graph: OnnxGraph, index: int) -> Operator | None:
    """SiLU and HardSwish, written as `x * sigmoid(x)`."""
    gate = graph.nodes[index]
    if gate.operator not in ("Sigmoid", "HardSigmoid"):
        return None
    product = _only_reader(graph, gate.outputs[0])
    if product is None or graph.nodes[product].operator != "Mul":
        return None
    source = gate.inputs[0]
    if set(graph.nodes[product].inputs) != {source, gate.outputs[0]}:
        return None
    if gate.operator == "Sigmoid":
        function = Activation("silu")
    else:
        function = Activation("hard_swish", gate.attributes.get("alpha", 0.2), gate.attributes.get("beta", 0.5))
    return Operator(function, (source,), graph.nodes[product].outputs, (index, product))


def _hard_swish_chain(graph: OnnxGraph, index: int) -> Operator | None:
    """HardSwish, written as `x * clip(x + 3, 0, 6) / 6`."""
    first = graph.nodes[index]
    source, three = _with_scalar(graph, first, "Add")
    if source is None or three != 3.0:
        return None
    clip = _only_reader(graph, first.outputs[0])
    if clip is None or _clip_limits(graph, graph.nodes[clip]) != (0.0, 6.0):
        return None
    product = _only_reader(graph, graph.nodes[clip].outputs[0])
    if product is None or graph.nodes[product].operator != "Mul":
        return None
    if set(graph.nodes[product].inputs) != {source, graph.nodes[clip].outputs[0]}:
        return None
    sixth = _only_reader(graph, graph.nodes[product].outputs[0])
    if sixth is None:
        return None
    last = graph.nodes[sixth]
    divides = _with_scalar(graph, last, "Div")[1] == 6.0
    multiplies = abs((_with_scalar(graph, last, "Mul")[1] or 0.0) - 1 / 6) < 1e-6
    if not divides and not multiplies:
        return None
    return Operator(Activation("hard_swish", 1 / 6, 0.5), (source,), last.outputs, (index, clip, product, sixth))


def _focus(graph: OnnxGraph, index: int) -> Operator | None:
    """SpaceToDepth with channels in any order, which ONNX Runtime makes of YOLOX's slices."""
    blocks = graph.nodes[index]
    if blocks.operator != "SpaceToDepth" or blocks.outputs[0] not in graph.shapes:
        return None
    block = int(blocks.attributes["blocksize"])
    order = tuple(range(graph.shapes[blocks.outputs[0]][1]))
    reader = _only_reader(graph, blocks.outputs[0])
    if reader is not None and graph.nodes[reader].operator == "Gather":
        gather = graph.nodes[reader]
        indices = graph.constants.get(gather.inputs[1])
        if indices is not None and indices.ndim == 1 and gather.attributes.get("axis", 0) == 1:
            order = tuple(int(channel) % len(order) for channel in indices)
            return Operator(SpaceToDepth(block, order), blocks.inputs, gather.outputs, (index, reader))
    return Operator(SpaceToDepth(block, order), blocks.inputs, blocks.outputs, (index,))


def _channel_normalization(graph: OnnxGraph, index: int) -> Operator | None:
    """A normalization of the last axis, to which channels are moved and from which they are moved back."""
    turn = graph.nodes[index]
    if turn.operator != "Transpose" or list(turn.attributes.get("perm", ())) != [0, 2, 3, 1]:
        return None
    reader = _only_reader(graph, turn.outputs[0])
    if reader is None or graph.nodes[reader].operator != "LayerNormalization":
        return None
    norm = graph.nodes[reader]
    scale = graph.constants.get(norm.inputs[1])
    shift = graph.constants.get(norm.inputs[2]) if len(norm.inputs) > 2 and norm.inputs[2] else np.zeros(1)
    back = _only_reader(graph, norm.outputs[0])
    if scale is None or shift is None or back is None or norm.attributes.get("axis", -1) not in (-1, 3):
        return None
    last = graph.nodes[back]
    if last.operator != "Transpose" or list(last.attributes.get("perm", ())) != [0, 3, 1, 2]:
        return None
    channels = graph.shapes[norm.inputs[0]][3]
    vectors = [np.broadcast_to(values.astype(np.float32).reshape(-1), channels) for values in (scale, shift)]
    parameters = ChannelNormalization(vectors[0], vectors[1], norm.attributes.get("epsilon", 1e-5))
    return Operator(parameters, turn.inputs, last.outputs, (index, reader, back))


def _only_reader(graph: OnnxGraph, name: str) -> int | None:
    """Return the node that reads a tensor, if it is the only one and the network does not return the tensor."""
    readers = graph.readers.get(name, ())
    return readers[0] if len(readers) == 1 and name not in graph.outputs else None


def _with_scalar(graph: OnnxGraph, node: OnnxNode, operator: str) -> tuple[str | None, float | None]:
    """Return the tensor and the number that a node combines; None, None if it does something else."""
    if node.operator != operator or len(node.inputs) != 2:
        return None, None
    for source, constant in (node.inputs, node.inputs[::-1]):
        array = graph.constants.get(constant)
        if array is not None and array.size == 1 and source not in graph.constants:
            if operator == "Div" and constant == node.inputs[0]:
                return None, None
            return source, float(array.reshape(()))
    return None, None


# ------------------------------------------------------------------------------------------------ single nodes


def _single(graph: OnnxGraph, index: int) -> Operator | None:
    node = graph.nodes[index]
    read = _READERS.get(node.operator)
    return None if read is None else next(read(graph, node, index), None)


def _convolution(graph: OnnxGraph, node: OnnxNode, index: int) -> Iterator[Operator]:
    weight = graph.constants.get(node.inputs[1])
    bias_name = node.inputs[2] if len(node.inputs) > 2 else ""
    bias = graph.constants.get(bias_name)
    source = node.inputs[0]
    if weight is None or weight.ndim != 4 or (bias_name and bias is None) or source not in graph.shapes:
        return
    kernel = weight.shape[2], weight.shape[3]
    strides = _pair(node.attributes.get("strides", (1, 1)))
    dilations = _pair(node.attributes.get("dilations", (1, 1)))
    pads = _pads(graph, node, kernel, strides, dilations)
    if bias is None:
        bias = np.zeros(len(weight), np.float32)
    groups = int(node.attributes.get("group", 1))
    parameters = Convolution(weight.astype(np.float32), bias.astype(np.float32), strides, pads, dilations, groups)
    depthwise = parameters.groups == len(weight) and weight.shape[1] == 1
    if parameters.groups == 1 or depthwise:
        yield Operator(parameters, (source,), node.outputs, (index,))


def _upconvolution(graph: OnnxGraph, node: OnnxNode, index: int) -> Iterator[Operator]:
    weight = graph.constants.get(node.inputs[1])
    bias_name = node.inputs[2] if len(node.inputs) > 2 else ""
    bias = graph.constants.get(bias_name)
    if weight is None or weight.ndim != 4 or (bias_name and bias is None):
        return
    kernel = weight.shape[2], weight.shape[3]
    plain = (
        _pair(node.attributes.get("strides", (1, 1))) == kernel
        and not any(node.attributes.get("pads", ()))
        and not any(node.attributes.get("output_padding", ()))
        and _pair(node.attributes.get("dilations", (1, 1))) == (1, 1)
        and node.attributes.get("group", 1) == 1
        and node.attributes.get("auto_pad", b"NOTSET") in (b"NOTSET", b"VALID")
        and "output_shape" not in node.attributes
    )
    if plain:
        if bias is None:
            bias = np.zeros(weight.shape[1], np.float32)
        parameters = Upconvolution(weight.astype(np.float32), bias.astype(np.float32))
        yield Operator(parameters, (node.inputs[0],), node.outputs, (index,))


def _activation(graph: OnnxGraph, node: OnnxNode, index: int) -> Iterator[Operator]:
    attributes = node.attributes
    functions: dict[str, Callable[[], Activation]] = {
        "Relu": lambda: Activation("relu"),
        "LeakyRelu": lambda: Activation("leaky_relu", attributes.get("alpha", 0.01)),
        "Sigmoid": lambda: Activation("sigmoid"),
        "HardSigmoid": lambda: Activation("hard_sigmoid", attributes.get("alpha", 0.2), attributes.get("beta", 0.5)),
        "HardSwish": lambda: Activation("hard_swish", 1 / 6, 0.5),
    }
    yield Operator(functions[node.operator](), node.inputs[:1], node.outputs, (index,))


def _clip(graph: OnnxGraph, node: OnnxNode, index: int) -> Iterator[Operator]:
    limits = _clip_limits(graph, node)
    if limits is not None:
        yield Operator(Activation("clip", *limits), node.inputs[:1], node.outputs, (index,))


def _clip_limits(graph: OnnxGraph, node: OnnxNode) -> tuple[float, float] | None:
    if node.operator != "Clip":
        return None
    limits = [node.attributes.get("min", -np.inf), node.attributes.get("max", np.inf)]
    for place, name in enumerate(node.inputs[1:3]):
        if name:
            constant = graph.constants.get(name)
            if constant is None:
                return None
            limits[place] = constant.reshape(())
    return float(limits[0]), float(limits[1])


def _arithmetic(graph: OnnxGraph, node: OnnxNode, index: int) -> Iterator[Operator]:
    """Sums and products of two tensors, and of a tensor with constants of one value or one a channel."""
    first, second = node.inputs
    if first in graph.constants or second in graph.constants:
        source, constant = (second, first) if first in graph.constants else (first, second)
        factors = graph.constants[constant]
        if node.operator == "Mul" and factors.shape == (1, 1, *graph.shapes.get(source, ())[2:]) and factors.size > 1:
            yield Operator(PixelFactors(factors[0, 0].astype(np.float32)), (source,), node.outputs, (index,))
            return
        affine = _affine(node.operator, graph.constants[constant], graph.shapes.get(source, ()), constant == first)
        if affine is not None:
            yield Operator(affine, (source,), node.outputs, (index,))
        return
    kinds: dict[str, Sum | Product] = {"Add": Sum(), "Mul": Product()}
    parameters = kinds.get(node.operator)
    shapes = [graph.shapes.get(name, ()) for name in node.inputs]
    if parameters is None or len(shapes[0]) != 4 or len(shapes[1]) != 4:
        return
    inputs = first, second
    if shapes[0][2:] == (1, 1) and shapes[1][2:] != (1, 1):
        inputs = second, first
        shapes.reverse()
    if shapes[1] in (shapes[0], (*shapes[0][:2], 1, 1)):
        yield Operator(parameters, inputs, node.outputs, (index,))


def _affine(operator: str, constant: np.ndarray, shape: tuple[int, ...], constant_first: bool) -> Affine | None:
    if len(shape) != 4:
        return None
    values = constant.astype(np.float32)
    if values.size == 1:
        values = values.reshape(1)
    elif values.size == shape[1] and values.shape[values.ndim - 3 :] == (shape[1], 1, 1):
        values = values.reshape(-1)
    else:
        return None
    unit = np.ones(1, np.float32)
    zero = np.zeros(1, np.float32)
    if operator == "Add":
        return Affine(unit, values)
    if operator == "Mul":
        return Affine(values, zero)
    if operator == "Sub":
        return Affine(-unit, values) if constant_first else Affine(unit, -values)
    if operator == "Div" and not constant_first and np.all(values):
        return Affine(1 / values, zero)
    return None


def _concatenation(graph: OnnxGraph, node: OnnxNode, index: int) -> Iterator[Operator]:
    axis = node.attributes.get("axis")
    if any(name in graph.constants for name in node.inputs):
        return
    if axis in (1, -3):
        yield Operator(Concatenation(), node.inputs, node.outputs, (index,))
    elif axis in (2, -2) and graph.shapes.get(node.outputs[0], ())[3:] == (1,):
        images = list[str]()
        reshapes = list[int]()
        for name in node.inputs:
            reshape = graph.producers.get(name, -1)
            image = graph.nodes[reshape].inputs[0]
            shape = graph.shapes.get(image, ())
            if reshape < 0 or graph.nodes[reshape].operator != "Reshape" or _only_reader(graph, name) != index:
                return
            if len(shape) != 4 or graph.shapes[name] != (*shape[:2], shape[2] * shape[3], 1):
                return
            images.append(image)
            reshapes.append(reshape)
        nodes = sorted({*reshapes, index})
        yield Operator(PixelConcatenation(), tuple(images), node.outputs, tuple(nodes))


def _channels_last(graph: OnnxGraph, node: OnnxNode, index: int) -> Iterator[Operator]:
    if list(node.attributes.get("perm", ())) == [0, 2, 3, 1]:
        yield Operator(ChannelsLast(), node.inputs, node.outputs, (index,))


def _split(graph: OnnxGraph, node: OnnxNode, index: int) -> Iterator[Operator]:
    if node.attributes.get("axis", 0) in (1, -3) and all(name in graph.shapes for name in node.outputs):
        lengths = tuple(graph.shapes[name][1] for name in node.outputs if len(graph.shapes[name]) == 4)
        if len(lengths) == len(node.outputs):
            yield Operator(Split(lengths), node.inputs[:1], node.outputs, (index,))


def _crop(graph: OnnxGraph, node: OnnxNode, index: int) -> Iterator[Operator]:
    shape = graph.shapes.get(node.inputs[0], ())
    parameters = [graph.constants.get(name) for name in node.inputs[1:] if name]
    if len(shape) != 4 or len(node.inputs) < 3 or any(array is None for array in parameters):
        return
    arrays = [graph.constants[name].reshape(-1).tolist() if name else None for name in node.inputs[1:]]
    starts = arrays[0]
    stops = arrays[1]
    assert starts is not None
    assert stops is not None
    axes = arrays[2] if len(arrays) > 2 and arrays[2] is not None else list(range(len(starts)))
    steps = arrays[3] if len(arrays) > 3 and arrays[3] is not None else [1] * len(starts)
    ranges = [(0, length, 1) for length in shape]
    for axis, start, stop, step in zip(axes, starts, stops, steps, strict=True):
        if step < 1:
            return
        first, last, _ = slice(start, stop, step).indices(shape[axis])
        ranges[axis % 4] = first, max(first, last), step
    if ranges[0] == (0, shape[0], 1) and ranges[1][2] == 1:
        crop = Crop(*zip(*ranges[1:], strict=True))
        yield Operator(crop, node.inputs[:1], node.outputs, (index,))


def _pool(graph: OnnxGraph, node: OnnxNode, index: int) -> Iterator[Operator]:
    kernel = tuple(node.attributes.get("kernel_shape", ()))
    dilations = tuple(node.attributes.get("dilations", (1, 1)))
    outputs = [name for name in node.outputs if name]
    if len(kernel) != 2 or dilations != (1, 1) or len(outputs) != 1 or outputs[0] not in graph.shapes:
        return
    strides = _pair(node.attributes.get("strides", (1, 1)))
    pads = _pads(graph, node, kernel, strides, (1, 1))
    rows, columns = graph.shapes[node.inputs[0]][2:]
    out_rows, out_columns = graph.shapes[outputs[0]][2:]
    # ceil_mode gives windows that leave the padded image: more padding gives the same values
    below = max(pads[2], (out_rows - 1) * strides[0] + kernel[0] - rows - pads[0])
    right = max(pads[3], (out_columns - 1) * strides[1] + kernel[1] - columns - pads[1])
    if node.operator == "MaxPool":
        yield Operator(Pool("max", kernel, strides, (*pads[:2], below, right)), node.inputs, tuple(outputs), (index,))
        return
    count_pads = bool(node.attributes.get("count_include_pad", 0))
    if count_pads and (below, right) != pads[2:]:
        return  # the pads that ceil_mode adds are not counted
    pool = Pool("mean", kernel, strides, (*pads[:2], below, right), count_pads)
    yield Operator(pool, node.inputs, tuple(outputs), (index,))


def _global_mean(graph: OnnxGraph, node: OnnxNode, index: int) -> Iterator[Operator]:
    if node.operator == "ReduceMean":
        axes = node.attributes.get("axes")
        if axes is None and len(node.inputs) > 1 and node.inputs[1] in graph.constants:
            axes = graph.constants[node.inputs[1]].reshape(-1).tolist()
        if axes is None or {axis % 4 for axis in axes} != {2, 3} or not node.attributes.get("keepdims", 1):
            return
    yield Operator(GlobalMean(), node.inputs[:1], node.outputs, (index,))


def _resize(graph: OnnxGraph, node: OnnxNode, index: int) -> Iterator[Operator]:
    before = graph.shapes.get(node.inputs[0], ())
    after = graph.shapes.get(node.outputs[0], ())
    if len(before) != 4 or len(after) != 4 or before[1] != after[1] or node.attributes.get("axes"):
        return
    if after[2] % before[2] or after[3] % before[3]:
        return
    scale = after[2] // before[2], after[3] // before[3]
    opset_10 = len(node.inputs) == 2  # where scales follow the image, and pixels are mapped by their corners
    factors = graph.constants.get(node.inputs[1 if opset_10 else 2])
    if factors is not None and factors.size and not np.array_equal(factors, (1, 1, *scale)):
        return  # such as 2.1, by which 4 pixels become 8 too
    mode = node.attributes.get("mode", b"nearest")
    default = b"asymmetric" if opset_10 else b"half_pixel"
    coordinates = node.attributes.get("coordinate_transformation_mode", default)
    rounding = node.attributes.get("nearest_mode", b"floor" if opset_10 else b"round_prefer_floor")
    # With integer factors, all of these read pixel floor(x / scale).
    floors = (coordinates, rounding) in ((b"asymmetric", b"floor"), (b"half_pixel", b"round_prefer_floor")) or (
        coordinates,
        rounding,
    ) == (b"half_pixel", b"round_prefer_ceil")
    if mode == b"nearest" and floors:
        yield Operator(Resize("nearest", scale), node.inputs[:1], node.outputs, (index,))
    elif mode == b"linear" and coordinates in (b"half_pixel", b"pytorch_half_pixel") and min(after[2:]) > 1:
        yield Operator(Resize("linear", scale), node.inputs[:1], node.outputs, (index,))


def _padding(graph: OnnxGraph, node: OnnxNode, index: int) -> Iterator[Operator]:
    pads = graph.constants.get(node.inputs[1]) if len(node.inputs) > 1 else None
    value = graph.constants.get(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else np.zeros(1)
    if node.attributes.get("mode", b"constant") != b"constant" or pads is None or pads.size != 8 or value is None:
        return
    if len(node.inputs) > 3:  # only some axes
        return
    before, after = pads.reshape(2, 4).tolist()
    if not value.reshape(-1)[0] and not any((*before[:2], *after[:2])) and min((*before, *after)) >= 0:
        yield Operator(Padding((before[2], before[3], after[2], after[3])), node.inputs[:1], node.outputs, (index,))


def _pair(values: Sequence[int]) -> Pair:
    height, width = values
    return int(height), int(width)


def _pads(graph: OnnxGraph, node: OnnxNode, kernel: Pair, strides: Pair, dilations: Pair) -> Pads:
    """Return a node's padding; `auto_pad` means as much as keeps `ceil(length / stride)` outputs."""
    automatic = node.attributes.get("auto_pad", b"NOTSET")
    if automatic in (b"NOTSET", b""):
        top, left, bottom, right = node.attributes.get("pads", (0, 0, 0, 0))
        return int(top), int(left), int(bottom), int(right)
    if automatic == b"VALID":
        return 0, 0, 0, 0
    before = []
    after = []
    for axis in (0, 1):
        length = graph.shapes[node.inputs[0]][2 + axis]
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        total = max(0, (-(-length // strides[axis]) - 1) * strides[axis] + reach - length)
        small = total // 2
        before.append(small if automatic == b"SAME_UPPER" else total - small)
        after.append(total - before[-1])
    return before[0], before[1], after[0], after[1]


_READERS: dict[str, Callable[[OnnxGraph, OnnxNode, int], Iterator[Operator]]] = {
    "Conv": _convolution,
    "ConvTranspose": _upconvolution,
    **dict.fromkeys(("Relu", "LeakyRelu", "Sigmoid", "HardSigmoid", "HardSwish"), _activation),
    "Clip": _clip,
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), _arithmetic),
    "Concat": _concatenation,
    "Transpose": _channels_last,
    "Split": _split,
    "Slice": _crop,
    **dict.fromkeys(("MaxPool", "AveragePool"), _pool),
    **dict.fromkeys(("GlobalAveragePool", "ReduceMean"), _global_mean),
    "Resize": _resize,
    "Pad": _padding,
}
