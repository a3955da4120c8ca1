# SPDX-License-Identifier: Apache-2.0
"""Launches of the kernels in `ops/cuda/engine.cu`: a step of a program with its addresses."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from streamkit.engine.operators import Activation, Affine, PixelFactors
from streamkit.engine.program import (
    MAX_FUNCTIONS,
    VECTOR,
    Added,
    Attend,
    Calculate,
    ConvolveDepthwise,
    CopyChannels,
    Enlarge,
    Export,
    Fill,
    Import,
    MeanOfImage,
    NormalizeChannels,
    Pointwise,
    PoolWindows,
    Step,
    View,
    padded,
)
from streamkit.engine.sampling import MAX_LEVELS, strides

_FILE = "engine.cu"
_THREADS = 128
_WARP = 32
_COLUMNS = 4  # outputs of one thread of a depthwise convolution
_TILE = 32
_LARGEST_F32 = 3e38
_CODES = {
    name: code
    for code, name in enumerate(("relu", "leaky_relu", "silu", "sigmoid", "hard_sigmoid", "hard_swish", "clip"))
}
_AFFINE, _ADD, _MULTIPLY, _PIXEL_FACTOR = range(len(_CODES), len(_CODES) + 4)
_SUFFIXES = {"float32": "f32", "float16": "f16"}


class Launch(Protocol):
    """Queues work on a CuPy stream."""

    def __call__(self, stream: Any) -> None:
        """Queue it."""


class _Structure(ctypes.Structure):
    """A parameter of a kernel that is passed by value."""


def _fields(kind: Any, names: str) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names.split()]


class _ViewParameter(_Structure):
    _fields_ = [
        ("data", ctypes.c_uint64),
        *_fields(ctypes.c_int64, "image row column"),
        *_fields(ctypes.c_int, "batch rows columns channels"),
    ]


class _Window(_Structure):
    _fields_ = _fields(ctypes.c_int, "height width stride_y stride_x top left dilation_y dilation_x")


class _Operation(_Structure):
    _fields_ = [
        *_fields(ctypes.c_int, "code per_channel"),
        *_fields(ctypes.c_float, "a b"),
        *_fields(ctypes.c_uint64, "scale shift operand"),
        *_fields(ctypes.c_int64, "image row column"),
    ]


class _Then(_Structure):
    _fields_ = [*_fields(ctypes.c_int, "count unused"), ("operations", _Operation * MAX_FUNCTIONS)]


class _Level(_Structure):
    _fields_ = [
        ("features", ctypes.c_uint64),
        *_fields(ctypes.c_int64, "image head channel row column"),
        ("points", ctypes.c_uint64),
        *_fields(ctypes.c_int64, "points_image points_head points_query points_point points_axis"),
        *_fields(ctypes.c_int, "rows columns count narrow"),
    ]


class _Attention(_Structure):
    _fields_ = [
        ("levels", _Level * MAX_LEVELS),
        ("weights", ctypes.c_uint64),
        *_fields(ctypes.c_int64, "weights_image weights_head weights_query weights_point"),
        ("target", ctypes.c_uint64),
        *_fields(ctypes.c_int64, "target_image target_head target_channel target_query"),
        *_fields(ctypes.c_int, "level_count batch heads channels queries unused"),
    ]


class Kernel:
    """A kernel with its grid and parameters."""

    def __init__(self, name: str, grid: tuple[int, int, int], block: tuple[int, int, int], *parameters: Any) -> None:
        from streamkit.ops.cuda.load import kernel

        self._function = kernel(_FILE, name)
        self._grid = grid
        self._block = block
        self._parameters = parameters
        self._addresses = [ctypes.addressof(parameter) for parameter in parameters]

    def __call__(self, stream: Any) -> None:
        """Queue the kernel on a CuPy stream of the current device."""
        from streamkit.ops.cuda import driver

        if not driver.launch(self._function, self._grid, self._block, stream, self._addresses):
            raise RuntimeError("the CUDA driver's library cannot be called, which fused networks need")


class Launcher:
    """Makes launches of steps in buffers at fixed addresses.

    Args:
        address: returns the address of a view's first value.
        constant: puts an array on the device, keeps it there, and returns its address.
    """

    def __init__(self, address: Callable[[View], int], constant: Callable[[np.ndarray], int]) -> None:
        self._address = address
        self._constant = constant

    def step(self, step: Step) -> Kernel:
        """Return the launch of a step within the buffers, other than a dense convolution."""
        if isinstance(step, Calculate):
            return self._each_vector("calculate", step.target, *self._views(step), self._then(step.then))
        if isinstance(step, ConvolveDepthwise):
            return self._depthwise(step)
        if isinstance(step, PoolWindows):
            return self._pool(step)
        if isinstance(step, Enlarge):
            scale = map(ctypes.c_int, step.scale)
            return self._each_vector(f"enlarge_{step.kind}", step.target, *self._views(step), *scale)
        if isinstance(step, MeanOfImage):
            blocks = step.source.shape[0] * padded(step.source.shape[3]) // VECTOR
            return Kernel("mean", (blocks, 1, 1), (256, 1, 1), *self._views(step))
        if isinstance(step, NormalizeChannels):
            return self._normalize(step)
        if isinstance(step, Fill):
            return self._each_vector("fill", step.target, self._view(step.target))
        if isinstance(step, CopyChannels):
            return self._copy(step)
        raise TypeError(f"no kernel for {type(step).__name__}")

    def functions(self, target: View, operations: Sequence[Pointwise]) -> Kernel:
        """Return the launch of functions of a view's values, in place."""
        return self.step(Calculate("", target, target, tuple(operations)))

    def import_(self, step: Import, array: Any) -> Kernel:
        """Return the launch that puts a dense CuPy array (batch, channels, rows, columns) into a buffer."""
        source = ctypes.c_uint64(array.data.ptr)
        suffix = _SUFFIXES[array.dtype.name]
        target = self._view(step.target)
        channels = step.target.shape[3] // step.block**2
        if step.block == 1 and channels >= VECTOR:
            return self._transpose(f"import_{suffix}", step.target, source, target)
        grid = _blocks(math.prod(step.target.shape[:3]))
        if (channels, step.block) == (3, 2):
            return Kernel(f"import_image_{suffix}", grid, (_THREADS, 1, 1), source, target)
        counts = map(ctypes.c_int, (channels, step.block))
        return Kernel(f"import_pixels_{suffix}", grid, (_THREADS, 1, 1), source, target, *counts)

    def export(self, step: Export, array: Any) -> Kernel:
        """Return the launch that copies a view into a dense CuPy array of the step's order."""
        target = ctypes.c_uint64(array.data.ptr)
        if step.channels_last:
            name = f"export_channels_last_{_SUFFIXES[array.dtype.name]}"
            return self._each_vector(name, step.source, target, self._view(step.source))
        return self._transpose(f"export_{_SUFFIXES[array.dtype.name]}", step.source, target, self._view(step.source))

    def _view(self, view: View) -> _ViewParameter:
        return _ViewParameter(self._address(view), *view.strides, *view.shape)

    def _views(self, step: Any) -> tuple[_ViewParameter, _ViewParameter]:
        return self._view(step.source), self._view(step.target)

    def _each_vector(self, name: str, target: View, *parameters: Any) -> Kernel:
        """Return a launch with a thread for each vector of a view."""
        vectors = math.prod(target.shape[:3]) * padded(target.shape[3]) // VECTOR
        return Kernel(name, _blocks(vectors), (_THREADS, 1, 1), *parameters)

    def _then(self, operations: Sequence[Pointwise]) -> _Then:
        then = _Then(len(operations), 0)
        for place, operation in enumerate(operations):
            then.operations[place] = self._operation(operation)
        return then

    def _operation(self, operation: Pointwise) -> _Operation:
        if isinstance(operation, Activation):
            a = operation.a
            b = operation.b
            if operation.name == "clip":
                a = max(a, -_LARGEST_F32)
                b = min(b, _LARGEST_F32)
            return _Operation(_CODES[operation.name], 0, a, b)
        if isinstance(operation, Affine):
            count = max(len(operation.scale), len(operation.shift))
            arrays = []
            for values in (operation.scale, operation.shift):
                constants = np.zeros(padded(count), np.float32)
                constants[:count] = values
                arrays.append(self._constant(constants))
            return _Operation(_AFFINE, int(count > 1), 0, 0, *arrays)
        if isinstance(operation, PixelFactors):
            factors = self._constant(operation.factors)
            return _Operation(_PIXEL_FACTOR, 0, 0, 0, factors, 0, 0, 0, operation.factors.shape[1], 1)
        view = operation.view
        steps = (view.strides[0], 0, 0) if view.shape[1:3] == (1, 1) else view.strides
        code = _ADD if isinstance(operation, Added) else _MULTIPLY
        return _Operation(code, 0, 0, 0, 0, 0, self._address(view), *steps)

    def _depthwise(self, step: ConvolveDepthwise) -> Kernel:
        size = step.weight.shape[:2]
        name = "depthwise"
        if size in ((3, 3), (5, 5)) and step.dilations == (1, 1) and step.strides in ((1, 1), (2, 2)):
            name = f"depthwise_{size[0]}x{size[1]}" + ("_stride_2" if step.strides == (2, 2) else "")
        batch, rows, columns, channels = step.target.shape
        threads = batch * rows * -(-columns // _COLUMNS) * padded(channels) // VECTOR
        weight = ctypes.c_uint64(self._constant(step.weight))
        bias = ctypes.c_uint64(self._constant(step.bias))
        window = _Window(*size, *step.strides, *step.pads[:2], *step.dilations)
        return Kernel(
            name, _blocks(threads), (_THREADS, 1, 1), *self._views(step), window, weight, bias, self._then(step.then)
        )

    def _normalize(self, step: NormalizeChannels) -> Kernel:
        constants = [ctypes.c_uint64(self._constant(values)) for values in (step.scale, step.shift)]
        pixels = math.prod(step.target.shape[:3])
        warps = _THREADS // _WARP
        grid = -(-pixels // warps), 1, 1
        epsilon = ctypes.c_float(step.epsilon)
        return Kernel("normalize", grid, (_WARP, warps, 1), *self._views(step), *constants, epsilon)

    def _pool(self, step: PoolWindows) -> Kernel:
        window = _Window(*step.kernel, *step.strides, *step.pads[:2], 1, 1)
        kind = 0
        if step.kind == "mean":
            kind = 2 if step.count_pads else 1
        outside = ctypes.c_float(0.0 if step.zeros else -math.inf)
        return self._each_vector("pool", step.target, *self._views(step), window, ctypes.c_int(kind), outside)

    def _copy(self, step: CopyChannels) -> Kernel:
        channels = step.source.shape[3]
        if step.source.vectors and step.target.vectors and not channels % VECTOR and not step.zeros:
            return self._each_vector("copy_vectors", step.target, *self._views(step))
        values = math.prod(step.source.shape[:3]) * (channels + step.zeros)
        zeros = ctypes.c_int(step.zeros)
        return Kernel("copy_values", _blocks(values), (_THREADS, 1, 1), *self._views(step), zeros)

    def _transpose(self, name: str, view: View, *parameters: Any) -> Kernel:
        batch, rows, columns, channels = view.shape
        grid = -(-rows * columns // _TILE), -(-padded(channels) // _TILE), batch
        return Kernel(name, grid, (_TILE, 8, 1), *parameters)


class AttentionKernel:
    """The launch of a deformable attention, whose tensors outside of the buffers are elsewhere in each run.

    Args:
        step: what is computed.
        address: returns the address of a view's first value.
    """

    def __init__(self, step: Attend, address: Callable[[View], int]) -> None:
        attention = step.attention
        sizes = attention.batch, attention.heads
        image, head, _, query, point = strides(attention.weights, *sizes)
        parameters = _Attention(
            level_count=len(attention.levels),
            batch=attention.batch,
            heads=attention.heads,
            channels=attention.channels,
            queries=attention.queries,
        )
        parameters.weights_image = image
        parameters.weights_head = head
        parameters.weights_query = query
        parameters.weights_point = point
        for axis, (_, stride) in zip(("image", "head", "channel", "query"), attention.target, strict=True):
            setattr(parameters, f"target_{axis}", stride)
        self._outside = [(parameters, "weights", attention.weights)]
        views = dict(step.features)
        for place, level in enumerate(attention.levels):
            features = level.features
            points = level.points
            steps = strides(features, *sizes)
            start = 0
            if view := views.get(features.base):
                start = address(view) + 2 * step_in_view(view, features.offset)
                steps = tuple(step_in_view(view, stride) for stride in steps)
            places = strides(points, *sizes)
            narrow = int(view is not None)
            parameters.levels[place] = _Level(start, *steps, 0, *places, *level.size_hw, level.count, narrow)
            if view is None:
                self._outside.append((parameters.levels[place], "features", features))
            self._outside.append((parameters.levels[place], "points", points))
        lanes = min(_WARP, 1 << (attention.channels - 1).bit_length())
        groups = _THREADS // lanes
        count = attention.batch * attention.heads * attention.queries
        self._parameters = parameters
        self._kernel = Kernel("attend", (-(-count // groups), 1, 1), (lanes, groups, 1), parameters)

    def __call__(self, arrays: Mapping[str, Any], target: Any, stream: Any) -> None:
        """Queue it.

        Args:
            arrays: dense f32 CuPy arrays by name, the step's inputs.
            target: the f32 CuPy array to write.
            stream: the CuPy stream.
        """
        for structure, pointer, tensor in self._outside:
            setattr(structure, pointer, arrays[tensor.base].data.ptr + 4 * tensor.offset)
        self._parameters.target = target.data.ptr
        self._kernel(stream)


def step_in_view(view: View, elements: int) -> int:
    """Return how far apart in a view are values that are so many elements apart in (batch, channels, rows, columns)."""
    _, rows, columns, channels = view.shape
    images, elements = divmod(elements, channels * rows * columns)
    planes, elements = divmod(elements, rows * columns)
    lines, pixels = divmod(elements, columns)
    return images * view.strides[0] + planes + lines * view.strides[1] + pixels * view.strides[2]


def _blocks(threads: int) -> tuple[int, int, int]:
    return -(-threads // _THREADS), 1, 1
