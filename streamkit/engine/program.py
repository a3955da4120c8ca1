# SPDX-License-Identifier: Apache-2.0
"""What a network does, step by step, on buffers of f16 values in NHWC order.

A tensor of the network is a view of a buffer: several tensors share one where they are parts of a concatenation.
Channels are contiguous. A buffer has room for a multiple of 8 channels, so that vectors of 16 bytes never straddle
pixels; what lies behind the last channel of a tensor is finite, and is multiplied by zero where a convolution reads it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamkit.engine.operators import Activation, Affine, Pads, Pair, PixelFactors
from streamkit.engine.sampling import DeformableAttention

VECTOR = 8
"""Channels in 16 bytes."""
MAX_FUNCTIONS = 4
"""Functions of each value that a kernel applies in turn; `ops/cuda/engine.cu` has the same number."""


def padded(channels: int) -> int:
    """Return the next multiple of 8."""
    return -(-channels // VECTOR) * VECTOR


@dataclass(frozen=True, slots=True)
class View:
    """A tensor in a buffer.

    Attributes:
        buffer: number of the buffer.
        offset: elements before the first.
        shape: batch, rows, columns, channels.
        strides: elements from one image, row and column to the next.
    """

    buffer: int
    offset: int
    shape: tuple[int, int, int, int]
    strides: tuple[int, int, int]

    @property
    def vectors(self) -> bool:
        """Whether each pixel begins at a multiple of 16 bytes."""
        return not any(count % VECTOR for count in (self.offset, *self.strides))


@dataclass(frozen=True, slots=True)
class Added:
    """The sum with a tensor of the same size, or with one value a channel of each image."""

    view: View


@dataclass(frozen=True, slots=True)
class Multiplied:
    """The product with a tensor of the same size, or with one value a channel of each image."""

    view: View


Pointwise = Activation | Affine | PixelFactors | Added | Multiplied
"""What is done with each value in turn."""


@dataclass(frozen=True, slots=True, eq=False)
class Convolve:
    """A convolution, with what is done with each sum.

    Attributes:
        output: name of the tensor.
        weight: (outputs, height, width, inputs) f32, which the device rounds to f16; both counts are multiples of 8,
            filled with zeros.
        bias: (outputs,) f32, likewise.
        then: in turn, on sums in f32.
    """

    output: str
    source: View
    target: View
    weight: np.ndarray
    bias: np.ndarray
    strides: Pair
    pads: Pads
    dilations: Pair
    then: tuple[Pointwise, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ConvolveDepthwise:
    """A convolution of each channel by itself.

    Attributes:
        output: name of the tensor.
        weight: (height, width, channels) f32; channels are a multiple of 8.
        bias: (channels,) f32.
        then: in turn, on sums in f32.
    """

    output: str
    source: View
    target: View
    weight: np.ndarray
    bias: np.ndarray
    strides: Pair
    pads: Pads
    dilations: Pair
    then: tuple[Pointwise, ...]


@dataclass(frozen=True, slots=True)
class Calculate:
    """Functions of each value in turn, in f32."""

    output: str
    source: View
    target: View
    then: tuple[Pointwise, ...]


@dataclass(frozen=True, slots=True)
class PoolWindows:
    """The maximum or mean of windows. `zeros`: what lies outside of the image counts as zero for a maximum."""

    output: str
    source: View
    target: View
    kind: str
    kernel: Pair
    strides: Pair
    pads: Pads
    count_pads: bool
    zeros: bool = False


@dataclass(frozen=True, slots=True)
class MeanOfImage:
    """The mean of each channel of an image, summed in f32."""

    output: str
    source: View
    target: View


@dataclass(frozen=True, slots=True)
class Enlarge:
    """An image of more pixels; see `operators.Resize`."""

    output: str
    source: View
    target: View
    kind: str
    scale: Pair


@dataclass(frozen=True, slots=True, eq=False)
class NormalizeChannels:
    """Each pixel's channels, normalized; see `operators.ChannelNormalization`.

    Attributes:
        scale, shift: (channels,) f32; channels are a multiple of 8, filled with zeros.
    """

    output: str
    source: View
    target: View
    scale: np.ndarray
    shift: np.ndarray
    epsilon: float


Layer = Convolve | ConvolveDepthwise | Calculate | PoolWindows | MeanOfImage | Enlarge | NormalizeChannels
"""A step that computes a tensor of the network."""


@dataclass(frozen=True, slots=True)
class CopyChannels:
    """A tensor in another place, with so many channels of zeros behind it."""

    source: View
    target: View
    zeros: int = 0


@dataclass(frozen=True, slots=True)
class Fill:
    """Zeros."""

    target: View


@dataclass(frozen=True, slots=True)
class Attend:
    """Deformable attention; points, weights and output are outside of the buffers, features may be in them.

    Attributes:
        inputs: the tensors outside of the buffers that its views are of.
        output: name of the tensor that it writes.
        features: the tensors in the buffers that its views are of, by name.
    """

    output: str
    attention: DeformableAttention
    inputs: tuple[str, ...]
    features: tuple[tuple[str, View], ...] = ()


@dataclass(frozen=True, slots=True)
class Delegate:
    """A part of the network that ONNX Runtime runs, on tensors outside of the buffers.

    Attributes:
        nodes: indices of the ONNX nodes.
        inputs, outputs: tensor names.
    """

    nodes: tuple[int, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Import:
    """A tensor from outside, (batch, channels, rows, columns) of any floating-point type.

    Attributes:
        name: of the tensor.
        block: rows and columns of the blocks of pixels that become channels of one; 1 to keep pixels.
    """

    name: str
    target: View
    block: int = 1


@dataclass(frozen=True, slots=True)
class Export:
    """A tensor for the outside: (batch, channels, rows, columns), or (batch, rows, columns, channels)."""

    name: str
    source: View
    channels_last: bool = False


Step = (
    Convolve
    | ConvolveDepthwise
    | Calculate
    | PoolWindows
    | MeanOfImage
    | Enlarge
    | NormalizeChannels
    | CopyChannels
    | Fill
    | Import
    | Export
    | Attend
    | Delegate
)


def views_read(step: Step) -> tuple[View, ...]:
    """Return the views that a step reads."""
    if isinstance(step, Attend):
        return tuple(view for _, view in step.features)
    then = getattr(step, "then", ())
    source = getattr(step, "source", None)
    operands = tuple(operation.view for operation in then if isinstance(operation, Added | Multiplied))
    return ((source,) if source is not None else ()) + operands


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory of a program.

    Attributes:
        size: in elements.
        offset: elements from the start of the arena; buffers that are not used at the same time may overlap.
    """

    size: int
    offset: int


@dataclass(frozen=True)
class Program:
    """The steps of a network.

    Attributes:
        steps: in order.
        buffers: by number.
        arena: elements of memory for all buffers.
    """

    steps: tuple[Step, ...]
    buffers: tuple[Buffer, ...]
    arena: int
