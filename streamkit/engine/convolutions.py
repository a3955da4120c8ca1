# SPDX-License-Identifier: Apache-2.0
"""Convolutions by cuDNN: convolution, bias and what follows in one kernel, as a graph of cuDNN's frontend.

A graph has several plans (kernels with their parameters). cuDNN orders them by a heuristic; `plans` finds the fastest
of the first few. See https://docs.nvidia.com/deeplearning/cudnn/frontend/latest/index.html.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streamkit.engine.operators import Activation, Pads, Pair
from streamkit.engine.program import Added, Convolve, Multiplied, Pointwise, View, padded

SOURCE, WEIGHT, BIAS, TARGET, OPERAND = range(1, 6)
"""Identifiers of the tensors in a graph."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What a plan depends on: sizes, not addresses.

    Attributes:
        source, target: shape (batch, rows, columns, channels) and strides of the views, channels padded.
        weight: shape of the weight.
        strides, pads, dilations: of the convolution.
        then: the functions that are part of the graph; tensors by their shape and strides.
    """

    source: tuple[int, ...]
    target: tuple[int, ...]
    weight: tuple[int, ...]
    strides: Pair
    pads: Pads
    dilations: Pair
    then: tuple[tuple[Any, ...], ...]


def signature(step: Convolve, then: Sequence[Pointwise]) -> Signature:
    """Return what the plan of a convolution depends on."""
    functions = tuple(
        (operation.name, operation.a, operation.b)
        if isinstance(operation, Activation)
        else (type(operation).__name__, *_layout(operation.view))
        for operation in then
        if isinstance(operation, Activation | Added | Multiplied)
    )
    views = _layout(step.source), _layout(step.target)
    return Signature(*views, step.weight.shape, step.strides, step.pads, step.dilations, functions)


def _layout(view: View) -> tuple[int, ...]:
    return (*view.shape[:3], padded(view.shape[3]), *view.strides)


def can_fuse(operation: Pointwise) -> bool:
    """Whether a function can be part of a graph."""
    if isinstance(operation, Activation):
        return operation.name in ("relu", "leaky_relu", "silu", "sigmoid", "clip")
    return isinstance(operation, Added | Multiplied)


def fused_functions(step: Convolve) -> tuple[Pointwise, ...]:
    """Return the functions of a convolution that its graph can have, up to the first that it cannot."""
    fused = []
    for operation in step.then:
        if not can_fuse(operation):
            break
        fused.append(operation)
    return tuple(fused)


def build_graph(about: Signature, handle: int | None, **options: Any) -> Any:
    """Return the graph of a convolution, validated, with its plans listed but not built.

    Raises:
        cudnn.cudnnGraphNotSupportedError: cuDNN has no plan for it.
    """
    import cudnn

    graph = cudnn.pygraph(
        io_data_type=cudnn.data_type.HALF,
        intermediate_data_type=cudnn.data_type.FLOAT,
        compute_data_type=cudnn.data_type.FLOAT,
        handle=handle,
        **options,
    )
    outputs, height, width, inputs = about.weight
    source = graph.tensor(**_tensor(about.source), uid=SOURCE)
    weight = graph.tensor(
        dim=[outputs, inputs, height, width],
        stride=[height * width * inputs, 1, width * inputs, inputs],
        uid=WEIGHT,
    )
    bias = graph.tensor(
        dim=[1, outputs, 1, 1], stride=[outputs, 1, outputs, outputs], data_type=cudnn.data_type.FLOAT, uid=BIAS
    )
    top, left, bottom, right = about.pads
    rows, columns = about.target[1:3]
    bottom = (rows - 1) * about.strides[0] + (height - 1) * about.dilations[0] + 1 - about.source[1] - top
    right = (columns - 1) * about.strides[1] + (width - 1) * about.dilations[1] + 1 - about.source[2] - left
    values = graph.conv_fprop(
        image=source,
        weight=weight,
        pre_padding=[top, left],
        post_padding=[max(0, bottom), max(0, right)],
        stride=list(about.strides),
        dilation=list(about.dilations),
    )
    values = graph.add(values, bias)
    for function in about.then:
        values = _with(graph, values, function)
    layout = _tensor(about.target)
    values.set_output(True).set_data_type(cudnn.data_type.HALF).set_uid(TARGET)
    values.set_dim(layout["dim"]).set_stride(layout["stride"])
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    graph.check_support()
    return graph


def _tensor(layout: Sequence[int]) -> dict[str, Any]:
    batch, rows, columns, channels, image, row, column = layout
    return {"dim": [batch, channels, rows, columns], "stride": [image, 1, row, column]}


def _with(graph: Any, values: Any, function: tuple[Any, ...]) -> Any:
    name = function[0]
    if name in ("Added", "Multiplied"):
        operand = graph.tensor(**_tensor(function[1:]), uid=OPERAND)
        return graph.add(values, operand) if name == "Added" else graph.mul(values, operand)
    _, a, b = function
    if name == "relu":
        return graph.relu(values)
    if name == "leaky_relu":
        return graph.relu(values, negative_slope=a)
    if name == "clip":
        return graph.relu(values, lower_clip=a, upper_clip=b)
    return graph.swish(values) if name == "silu" else graph.sigmoid(values)
