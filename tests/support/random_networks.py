"""Random networks of convolutions and what surrounds them, for comparisons of the engine with ONNX Runtime."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from support.small_networks import NetworkBuilder

_MAX_CHANNELS = 80
_MAX_PIXELS = 144


class Tensor(NamedTuple):
    """A tensor of a network: its name, and the sizes of each image."""

    name: str
    channels: int
    rows: int
    columns: int

    def has_size(self, rows: int, columns: int) -> bool:
        return (self.rows, self.columns) == (rows, columns)


class RandomNetwork:
    """Adds nodes at random; each reads one of the last tensors, or the images.

    Args:
        seed: the same seed gives the same network.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        sizes = [self.random.choice(lengths) for lengths in ((1, 3, 4, 8, 12, 16), (4, 6, 7, 8, 12), (4, 5, 8, 10, 12))]
        self.shape = self.random.choice((1, 2, 3)), *sizes
        self.network = NetworkBuilder(self.shape, seed)
        self.tensors = [Tensor(self.network.images, *sizes)]
        for _ in range(self.random.randint(2, 12)):
            source = self.random.choice([self.tensors[0], *self.tensors[-6:]])
            self.tensors.extend(self.random.choice(_NODES)(self, source))

    def model(self) -> Any:
        """Return the network, which returns its last tensor and some others; None if it is empty."""
        others = [self.random.choice(self.tensors) for _ in range(self.random.randint(0, 2))]
        names = dict.fromkeys(tensor.name for tensor in (self.tensors[-1], *others))
        names.pop(self.network.images, None)
        return self.network.model(*names) if names else None


def _convolution(draft: RandomNetwork, source: Tensor) -> list[Tensor]:
    size = draft.random.choice((1, 1, 2, 3, 3, 5))
    stride = draft.random.choice((1, 1, 1, 2))
    channels = draft.random.choice((1, 3, 5, 8, 13, 16))
    half = size // 2
    pads = [draft.random.randint(0, half) for _ in range(4)] if draft.random.random() < 0.3 else [half] * 4
    rows = (source.rows + pads[0] + pads[2] - size) // stride + 1
    columns = (source.columns + pads[1] + pads[3] - size) // stride + 1
    if min(rows, columns) < 1:
        return []
    how = {"strides": [stride, stride], "pads": pads}
    name = draft.network.convolution(source.name, source.channels, channels, size, **how)
    return [Tensor(name, channels, rows, columns)]


def _depthwise(draft: RandomNetwork, source: Tensor) -> list[Tensor]:
    size = draft.random.choice((3, 5, 7))
    name = draft.network.convolution(source.name, source.channels, source.channels, size, groups=source.channels)
    return [source._replace(name=name)]


def _activation(draft: RandomNetwork, source: Tensor) -> list[Tensor]:
    if draft.random.random() < 0.4:
        return [source._replace(name=draft.network.silu(source.name))]
    operator = draft.random.choice(("Relu", "Sigmoid", "LeakyRelu", "HardSwish", "HardSigmoid", "Tanh"))
    return [source._replace(name=draft.network.node(operator, source.name))]


def _sum_or_product(draft: RandomNetwork, source: Tensor) -> list[Tensor]:
    others = [tensor for tensor in draft.tensors[-6:] if tensor.channels == source.channels]
    others = [tensor for tensor in others if tensor.has_size(1, 1) or tensor.has_size(source.rows, source.columns)]
    names = [source.name, draft.random.choice([source, *others]).name]
    draft.random.shuffle(names)
    return [source._replace(name=draft.network.node(draft.random.choice(("Add", "Mul")), *names))]


def _constants(draft: RandomNetwork, source: Tensor) -> list[Tensor]:
    shape = draft.random.choice(((1,), (1, source.channels, 1, 1), (source.channels, 1, 1)))
    names = [source.name, draft.network.random(*shape)]
    draft.random.shuffle(names)
    return [source._replace(name=draft.network.node(draft.random.choice(("Add", "Mul", "Sub")), *names))]


def _concatenation(draft: RandomNetwork, source: Tensor) -> list[Tensor]:
    same_size = [tensor for tensor in draft.tensors[-8:] if tensor.has_size(source.rows, source.columns)]
    parts = [source, *(draft.random.choice([source, *same_size]) for _ in range(draft.random.randint(1, 3)))]
    channels = sum(part.channels for part in parts)
    if channels > _MAX_CHANNELS:
        return []
    draft.random.shuffle(parts)
    name = draft.network.node("Concat", *(part.name for part in parts), axis=1)
    return [source._replace(name=name, channels=channels)]


def _split(draft: RandomNetwork, source: Tensor) -> list[Tensor]:
    if source.channels == 1:
        return []
    first = draft.random.choice((source.channels // 2, draft.random.randint(1, source.channels - 1)))
    lengths = first, source.channels - first
    names = draft.network.node("Split", source.name, draft.network.integers(*lengths), outputs=2, axis=1)
    return [source._replace(name=name, channels=length) for name, length in zip(names, lengths, strict=True)]


def _slice(draft: RandomNetwork, source: Tensor) -> list[Tensor]:
    axis = draft.random.choice((1, 2, 3))
    length = source[axis]
    start = draft.random.randint(0, length - 1)
    stop = draft.random.randint(start + 1, length)
    step = draft.random.choice((1, 2)) if axis > 1 else 1
    numbers = [draft.network.integers(number) for number in (start, stop, axis, step)]
    sizes = list(source[1:])
    sizes[axis - 1] = len(range(start, stop, step))
    return [Tensor(draft.network.node("Slice", source.name, *numbers), *sizes)]


def _pool(draft: RandomNetwork, source: Tensor) -> list[Tensor]:
    operator = draft.random.choice(("MaxPool", "AveragePool"))
    size = draft.random.choice((3, 5))
    name = draft.network.node(operator, source.name, kernel_shape=[size, size], pads=[size // 2] * 4)
    return [source._replace(name=name)]


def _mean(draft: RandomNetwork, source: Tensor) -> list[Tensor]:
    return [Tensor(draft.network.node("GlobalAveragePool", source.name), source.channels, 1, 1)]


def _enlarge(draft: RandomNetwork, source: Tensor) -> list[Tensor]:
    if source.rows * source.columns > _MAX_PIXELS:
        return []
    mode = draft.random.choice(("nearest", "linear"))
    down, across = draft.random.choice(((2, 2), (2, 1), (3, 2)))
    scales = draft.network.constant([1, 1, down, across])
    name = draft.network.node("Resize", source.name, "", scales, mode=mode)
    return [source._replace(name=name, rows=source.rows * down, columns=source.columns * across)]


def _upconvolution(draft: RandomNetwork, source: Tensor) -> list[Tensor]:
    if source.rows * source.columns > _MAX_PIXELS:
        return []
    channels = draft.random.choice((3, 8, 16))
    weights = draft.network.random(source.channels, channels, 2, 2), draft.network.random(channels)
    name = draft.network.node("ConvTranspose", source.name, *weights, strides=[2, 2])
    return [Tensor(name, channels, source.rows * 2, source.columns * 2)]


def _padding(draft: RandomNetwork, source: Tensor) -> list[Tensor]:
    top, left, bottom, right = (draft.random.randint(0, 2) for _ in range(4))
    name = draft.network.node("Pad", source.name, draft.network.integers(0, 0, top, left, 0, 0, bottom, right))
    return [Tensor(name, source.channels, source.rows + top + bottom, source.columns + left + right)]


def _blocks(draft: RandomNetwork, source: Tensor) -> list[Tensor]:
    if source.rows % 2 or source.columns % 2 or source.channels > _MAX_CHANNELS // 4:
        return []
    name = draft.network.node("SpaceToDepth", source.name, blocksize=2)
    return [Tensor(name, 4 * source.channels, source.rows // 2, source.columns // 2)]


def _delegated(draft: RandomNetwork, source: Tensor) -> list[Tensor]:
    return [source._replace(name=draft.network.node("Softmax", source.name, axis=1))]


_NODES: tuple[Callable[[RandomNetwork, Tensor], list[Tensor]], ...] = (
    *[_convolution] * 4,
    _depthwise,
    *[_activation] * 2,
    *[_sum_or_product] * 2,
    _constants,
    *[_concatenation] * 2,
    _split,
    _slice,
    _pool,
    _mean,
    _enlarge,
    _upconvolution,
    _padding,
    _blocks,
    _delegated,
)
