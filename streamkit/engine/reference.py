# SPDX-License-Identifier: Apache-2.0
"""Programs of the engine in NumPy, on the host: what the device must compute."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import singledispatch

import numpy as np
from numpy.lib.stride_tricks import as_strided, sliding_window_view

from streamkit.engine.operators import Activation, Affine, Pads, Pair, PixelFactors
from streamkit.engine.program import (
    Added,
    Attend,
    Calculate,
    Convolve,
    ConvolveDepthwise,
    CopyChannels,
    Delegate,
    Enlarge,
    Export,
    Fill,
    Import,
    MeanOfImage,
    NormalizeChannels,
    Pointwise,
    PoolWindows,
    Program,
    Step,
    View,
    padded,
)
from streamkit.engine.sampling import DeformableAttention, strides
from streamkit.engine.strided import Strided

Read = Callable[[View], np.ndarray]


Delegated = Callable[[Delegate, Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]
"""Runs a part of the network in ONNX Runtime: takes all tensors outside of the buffers, returns its outputs."""


def run(
    program: Program, inputs: Mapping[str, np.ndarray], delegated: Delegated, dtype: type = np.float16
) -> dict[str, np.ndarray]:
    """Run a program.

    Args:
        program: the steps.
        inputs: the network's inputs, by name.
        delegated: runs the parts that the engine does not.
        dtype: of stored values: f16 as on the device, or f32 to examine the program without rounding.

    Returns:
        All tensors outside of the buffers by name: the network's inputs and outputs, and what passes between the engine
        and ONNX Runtime.
    """
    arena: np.ndarray = np.full(program.arena, np.nan, dtype)

    def array(view: View, channels: int | None = None) -> np.ndarray:
        """Return a view's values, with another number of channels if it is given; writes reach the buffer."""
        start = program.buffers[view.buffer].offset + view.offset
        shape = (*view.shape[:3], view.shape[3] if channels is None else channels)
        reach = sum((count - 1) * stride for count, stride in zip(shape, (*view.strides, 1), strict=True))
        values = arena[start : start + reach + 1]
        strides = [stride * arena.itemsize for stride in (*view.strides, 1)]
        return as_strided(values, shape, strides)

    tensors = dict(inputs)
    for step in program.steps:
        if isinstance(step, Import):
            array(step.target, padded(step.target.shape[3]))[...] = 0
            array(step.target)[...] = _in_blocks(tensors[step.name], step.block).transpose(0, 2, 3, 1)
        elif isinstance(step, Export):
            order = (0, 1, 2, 3) if step.channels_last else (0, 3, 1, 2)
            tensors[step.name] = array(step.source).transpose(order).astype(np.float32)
        elif isinstance(step, Delegate):
            tensors.update(delegated(step, tensors))
        elif isinstance(step, Attend):
            features = {name: array(view).transpose(0, 3, 1, 2) for name, view in step.features}
            tensors[step.output] = attend(step.attention, tensors | features)
        elif isinstance(step, Fill):
            array(step.target, padded(step.target.shape[3]))[...] = 0
        elif isinstance(step, CopyChannels):
            array(step.target)[...] = array(step.source)
            if step.zeros:
                array(step.target, step.target.shape[3] + step.zeros)[..., step.target.shape[3] :] = 0
        else:
            # all channels of a vector are computed, as on the device
            whole = padded(step.target.shape[3])
            with np.errstate(over="ignore", invalid="ignore"):
                array(step.target, whole)[...] = compute(step, lambda view: array(view, padded(view.shape[3])))
    return tensors


def _in_blocks(images: np.ndarray, block: int) -> np.ndarray:
    """Return images whose blocks of pixels are channels: (row, column, channel)."""
    batch, channels, rows, columns = images.shape
    blocks = images.reshape(batch, channels, rows // block, block, columns // block, block)
    return blocks.transpose(0, 3, 5, 1, 2, 4).reshape(batch, -1, rows // block, columns // block)


@singledispatch
def compute(step: Step, read: Read) -> np.ndarray:
    """Return what a step writes, (batch, rows, columns, channels) f32."""
    raise TypeError(f"the reference has no {type(step).__name__}")


@compute.register
def _(step: Convolve, read: Read) -> np.ndarray:
    image = read(step.source)
    outputs, height, width, inputs = step.weight.shape
    image = image[..., :inputs]
    weight = _rounded(step.weight, image.dtype)
    windows = _windows(image, (height, width), step.strides, step.pads, step.dilations, step.target)
    # (batch, rows, columns, inputs, height, width) x (outputs, height, width, inputs)
    columns = windows.transpose(0, 1, 2, 4, 5, 3).reshape(-1, height * width * inputs)
    sums = columns @ weight.reshape(outputs, -1).T
    return apply(sums.reshape(*step.target.shape[:3], outputs) + step.bias, step.then, read)


@compute.register
def _(step: ConvolveDepthwise, read: Read) -> np.ndarray:
    size = step.weight.shape[0], step.weight.shape[1]
    windows = _windows(read(step.source), size, step.strides, step.pads, step.dilations, step.target)
    sums = np.einsum("nyxchw,hwc->nyxc", windows, step.weight, optimize=True)
    return apply(sums + step.bias, step.then, read)


@compute.register
def _(step: Calculate, read: Read) -> np.ndarray:
    return apply(read(step.source).astype(np.float32), step.then, read)


@compute.register
def _(step: PoolWindows, read: Read) -> np.ndarray:
    image = read(step.source).astype(np.float32)
    outside = 0.0 if step.kind == "mean" or step.zeros else -np.inf
    windows = _windows(image, step.kernel, step.strides, step.pads, (1, 1), step.target, outside)
    if step.kind == "max":
        return np.asarray(windows.max(axis=(4, 5)))
    total = windows.sum(axis=(4, 5))
    if step.count_pads:
        return np.asarray(total / math.prod(step.kernel))
    inside = _windows(np.ones_like(image[:1, ..., :1]), step.kernel, step.strides, step.pads, (1, 1), step.target)
    return np.asarray(total / inside.sum(axis=(4, 5)))


@compute.register
def _(step: MeanOfImage, read: Read) -> np.ndarray:
    return np.asarray(read(step.source).astype(np.float32).mean(axis=(1, 2), keepdims=True))


@compute.register
def _(step: NormalizeChannels, read: Read) -> np.ndarray:
    channels = step.source.shape[3]
    image = read(step.source).astype(np.float32)[..., :channels]
    image = image - image.mean(axis=3, keepdims=True)
    image = image / np.sqrt((image**2).mean(axis=3, keepdims=True) + np.float32(step.epsilon))
    values = image * step.scale[:channels] + step.shift[:channels]
    return np.pad(values, ((0, 0), (0, 0), (0, 0), (0, padded(channels) - channels)))


@compute.register
def _(step: Enlarge, read: Read) -> np.ndarray:
    image = read(step.source).astype(np.float32)
    if step.kind == "nearest":
        return image.repeat(step.scale[0], axis=1).repeat(step.scale[1], axis=2)
    for axis, scale in zip((1, 2), step.scale, strict=True):
        length = image.shape[axis]
        places = np.clip((np.arange(length * scale) + 0.5) / scale - 0.5, 0, length - 1)
        before = np.floor(places).astype(int)
        share = (places - before).astype(np.float32).reshape([-1 if i == axis else 1 for i in range(4)])
        after = np.minimum(before + 1, length - 1)
        image = image.take(before, axis) * (1 - share) + image.take(after, axis) * share
    return image


def _rounded(weight: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return weight.astype(dtype).astype(np.float32)


def _windows(
    image: np.ndarray,
    kernel: Pair,
    strides: Pair,
    pads: Pads,
    dilations: Pair,
    target: View,
    outside: float = 0.0,
) -> np.ndarray:
    """Return (batch, rows, columns, channels, height, width) f32: the window of each output."""
    rows, columns = target.shape[1:3]
    reach = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    below = max(0, (rows - 1) * strides[0] + reach[0] - image.shape[1] - pads[0])
    right = max(0, (columns - 1) * strides[1] + reach[1] - image.shape[2] - pads[1])
    widths = ((0, 0), (pads[0], below), (pads[1], right), (0, 0))
    image = np.pad(image.astype(np.float32), widths, constant_values=outside)
    windows = sliding_window_view(image, reach, axis=(1, 2))
    return windows[:, :: strides[0], :: strides[1], :, :: dilations[0], :: dilations[1]][:, :rows, :columns]


def apply(values: np.ndarray, then: tuple[Pointwise, ...], read: Read) -> np.ndarray:
    """Return f32 values after each function in turn."""
    for operation in then:
        if isinstance(operation, Activation):
            values = activate(values, operation)
        elif isinstance(operation, Affine):
            values = values * _channels(operation.scale, values) + _channels(operation.shift, values)
        elif isinstance(operation, PixelFactors):
            values = values * operation.factors[:, :, None]
        elif isinstance(operation, Added):
            values = values + read(operation.view)
        else:
            values = values * read(operation.view)
    return values


def _channels(constants: np.ndarray, values: np.ndarray) -> np.ndarray:
    if len(constants) == 1:
        return constants
    return np.pad(constants, (0, values.shape[3] - len(constants)))


def activate(values: np.ndarray, activation: Activation) -> np.ndarray:
    """Return a function of f32 values."""
    name = activation.name
    a = np.float32(activation.a)
    b = np.float32(activation.b)
    outputs: np.ndarray
    if name == "relu":
        outputs = np.maximum(values, np.float32(0))
    elif name == "leaky_relu":
        outputs = np.where(values > 0, values, values * a)
    elif name == "clip":
        outputs = np.clip(values, a, b)
    elif name in ("hard_sigmoid", "hard_swish"):
        gate = np.clip(values * a + b, 0, 1)
        outputs = gate if name == "hard_sigmoid" else values * gate
    else:
        gate = 1 / (1 + np.exp(-np.clip(values, -80, 80)))
        outputs = gate if name == "sigmoid" else values * gate
    return outputs


def attend(attention: DeformableAttention, tensors: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the output of a deformable attention, f32, in the shape of its memory.

    Points between pixels are interpolated; pixels outside of the image are zero.
    """
    heads = attention.batch * attention.heads

    def array(view: Strided, shape: tuple[int, ...]) -> np.ndarray:
        base = np.ascontiguousarray(tensors[view.base], np.float32).reshape(-1)[view.offset :]
        steps = [stride * base.itemsize for stride in strides(view, attention.batch, attention.heads)]
        return as_strided(base, (attention.batch, attention.heads, *shape), steps).reshape(heads, *shape)

    total = sum(level.count for level in attention.levels)
    weights = array(attention.weights, (1, attention.queries, total))
    sums = np.zeros((heads, attention.channels, attention.queries), np.float32)
    first = 0
    rows = np.arange(heads)[:, None, None]
    for level in attention.levels:
        height, width = level.size_hw
        features = array(level.features, (attention.channels, height, width))
        points = array(level.points, (attention.queries, level.count, 2))
        x = (points[..., 0] + 1) * width / 2 - 0.5
        y = (points[..., 1] + 1) * height / 2 - 0.5
        left = np.floor(x)
        top = np.floor(y)
        for down in (0, 1):
            for across in (0, 1):
                row = (top + down).astype(int)
                column = (left + across).astype(int)
                share = (1 - np.abs(x - column)) * (1 - np.abs(y - row))
                share = share * ((row >= 0) & (row < height) & (column >= 0) & (column < width))
                share = share * weights[:, 0, :, first : first + level.count]
                pixel = features[rows, :, row.clip(0, height - 1), column.clip(0, width - 1)]
                sums += np.einsum("hqpc,hqp->hcq", pixel, share, optimize=True)
        first += level.count
    shape = attention.batch, attention.heads, attention.channels, attention.queries
    output = np.empty(sums.size, np.float32)
    as_strided(output, shape, [stride * output.itemsize for _, stride in attention.target])[...] = sums.reshape(shape)
    return output
