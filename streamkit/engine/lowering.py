# SPDX-License-Identifier: Apache-2.0
"""From operators to the steps of a program.

What follows a convolution (activation, residual sum, factors) becomes part of it. Concatenations and splits become
places in buffers, see `placement`; where a tensor would have to lie in two places, it is copied.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from streamkit.engine.graph import OnnxGraph
from streamkit.engine.memory import arrange
from streamkit.engine.operators import (
    Activation,
    Affine,
    ChannelNormalization,
    ChannelsLast,
    Concatenation,
    Convolution,
    Crop,
    GlobalMean,
    Operator,
    Padding,
    Pads,
    PixelConcatenation,
    PixelFactors,
    Pool,
    Product,
    Resize,
    SpaceToDepth,
    Split,
    Sum,
    Upconvolution,
)
from streamkit.engine.partition import NetworkSegment
from streamkit.engine.placement import ChannelLines
from streamkit.engine.program import (
    MAX_FUNCTIONS,
    VECTOR,
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
    Multiplied,
    NormalizeChannels,
    Pointwise,
    PoolWindows,
    Program,
    Step,
    View,
    padded,
)
from streamkit.engine.sampling import DeformableAttention


@dataclass(frozen=True, slots=True)
class _Operand:
    """A tensor that a fused sum or product reads, before tensors have places."""

    name: str
    kind: type[Added] | type[Multiplied]


@dataclass(slots=True)
class _Task:
    """An operator with what is fused into it.

    Attributes:
        operator: the first.
        then: what follows in turn.
        output: the tensor that the last of them writes.
    """

    operator: Operator
    then: list[Activation | Affine | PixelFactors | _Operand]
    output: str


def lower(graph: OnnxGraph, segments: Sequence[NetworkSegment]) -> Program:
    """Return the program of a network.

    Args:
        graph: the network.
        segments: all of its segments, in the order in which they run.
    """
    return _Lowering(graph, segments).program()


class _Lowering:
    def __init__(self, graph: OnnxGraph, segments: Sequence[NetworkSegment]) -> None:
        self._graph = graph
        self._segments = segments
        operators = [operator for segment in segments for operator in segment.operators]
        attention = [operator for operator in operators if isinstance(operator.parameters, DeformableAttention)]
        self._operators = [operator for operator in operators if operator not in attention]
        self._writers = {name: operator for operator in self._operators for name in operator.outputs}
        delegated = [name for segment in segments if not segment.fused for name in segment.inputs]
        attended = [name for operator in attention for name in self._read_outside(operator)]
        self._exported = {name for name in (*delegated, *attended, *graph.outputs) if name in self._writers}
        self._batch = graph.batch
        self._lines = ChannelLines()
        self._channels: dict[str, int] = {}
        self._crops: dict[str, tuple[str, Crop]] = {}  # cropped tensors, by their name
        self._copies: dict[str, list[tuple[str, int]]] = {}  # of a concatenation: part, channel
        self._blocks: dict[str, str] = {}  # tensors from outside whose blocks of pixels become channels
        self._readers: dict[str, list[Operator]] = {}
        for operator in self._operators:
            for name in operator.outputs:
                self._readers[name] = []
            for name in operator.inputs:
                self._readers.setdefault(name, []).append(operator)

    def _read_outside(self, operator: Operator) -> tuple[str, ...]:
        """Return the inputs of a deformable attention that it reads outside of the buffers."""
        attention = operator.parameters
        assert isinstance(attention, DeformableAttention)
        features = {level.features.base for level in attention.levels if level.features.base in self._writers}
        elsewhere = {attention.weights.base, *(level.points.base for level in attention.levels)}
        return tuple(name for name in operator.inputs if name not in features or name in elsewhere)

    def program(self) -> Program:
        schedule = self._schedule()
        self._place([task for task in schedule if isinstance(task, _Task)])
        self._views, sizes = self._lines.views(self._batch, self._channels)
        self._sizes = list(sizes)
        steps = list(self._imports(self._graph.inputs))
        for task in schedule:
            if isinstance(task, _Task):
                steps.extend(self._steps(task))
            else:
                steps.append(Delegate(task.nodes, task.inputs, task.outputs))
            steps.extend(self._exports(task))
            steps.extend(self._imports(task.outputs if isinstance(task, NetworkSegment) else task.operator.outputs))
        buffers, arena = arrange(steps, self._sizes)
        return Program(tuple(steps), buffers, arena)

    # -------------------------------------------------------------------------------------------- fusion

    def _schedule(self) -> list[_Task | NetworkSegment]:
        """Return tasks and delegated segments in an order in which each reads what is written before."""
        schedule = list[_Task | NetworkSegment]()
        by_output = dict[str, _Task]()
        for segment in self._segments:
            if not segment.fused:
                schedule.append(segment)
            for operator in segment.operators:
                task = self._continued(operator, by_output)
                if task is None:
                    task = _Task(operator, [], operator.outputs[0])
                else:
                    del by_output[task.output]
                    schedule.remove(task)
                    task.output = operator.outputs[0]
                schedule.append(task)
                by_output[task.output] = task
        return schedule

    def _continued(self, operator: Operator, by_output: dict[str, _Task]) -> _Task | None:
        """Fuse an operator into the task that writes its input, and return that; None if there is none."""
        parameters = operator.parameters
        if not isinstance(parameters, Activation | Affine | PixelFactors | Sum | Product):
            return None
        for place, name in reversed(list(enumerate(operator.inputs))):
            task = by_output.get(name)
            if task is None or len(self._readers[name]) != 1 or name in self._exported:
                continue
            first = task.operator.parameters
            if not isinstance(first, Convolution | Activation | Affine | PixelFactors | Sum | Product):
                continue
            of_its_own = not isinstance(first, Convolution)
            if len(task.then) + of_its_own == MAX_FUNCTIONS:
                continue
            if isinstance(parameters, Activation | Affine | PixelFactors):
                task.then.append(parameters)
                return task
            other = operator.inputs[1 - place]
            same_size = self._graph.shapes[other] == self._graph.shapes[name]
            if other == name or (not same_size and place == 1):
                continue  # the task must compute the larger of the two
            if any(isinstance(step, _Operand) for step in task.then):
                continue  # cuDNN's kernels take one
            task.then.append(_Operand(other, Added if isinstance(parameters, Sum) else Multiplied))
            return task
        return None

    # -------------------------------------------------------------------------------------------- places

    def _place(self, tasks: Sequence[_Task]) -> None:
        for name in self._readers:
            if name not in self._writers:
                self._add_input(name)
        concatenations = []
        for task in tasks:
            parameters = task.operator.parameters
            if isinstance(parameters, Split | Crop):
                self._place_parts(task.operator)
            elif isinstance(parameters, Concatenation):
                self._add(task.output, written=False)
                concatenations.append(task.operator)
            elif isinstance(parameters, DeformableAttention):
                continue
            elif isinstance(parameters, ChannelsLast):
                self._crops[task.output] = task.operator.inputs[0], self._whole_crop(task.operator.inputs[0])
            elif not isinstance(parameters, SpaceToDepth | Padding) or not self._absorbed(task.operator):
                self._add(task.output)
        for operator in concatenations:
            self._join_parts(operator)

    def _pixel_parts(self, operator: Operator) -> Iterator[View]:
        """Yield the places of the images in the buffer of their joined pixels."""
        target = self._views[operator.outputs[0]]
        pitch = target.strides[2]
        offset = target.offset
        for name in operator.inputs:
            batch, channels, rows, columns = self._graph.shapes[name]
            yield View(
                target.buffer, offset, (batch, rows, columns, channels), (target.strides[0], columns * pitch, pitch)
            )
            offset += rows * columns * pitch

    def _whole_crop(self, name: str) -> Crop:
        _, channels, rows, columns = self._graph.shapes[name]
        return Crop((0, 0, 0), (channels, rows, columns), (1, 1, 1))

    def _add(self, name: str, *, written: bool = True) -> None:
        _, channels, rows, columns = self._graph.shapes[name]
        self._channels[name] = channels
        self._lines.add(name, channels, (rows, columns), written=written)

    def _add_input(self, name: str) -> None:
        """Put a tensor from outside into a buffer, as blocks of pixels where all that reads it can take them."""
        _, channels, rows, columns = self._graph.shapes[name]
        readers = self._readers[name]
        if name not in self._exported and all(self._takes_blocks(reader) for reader in readers):
            self._blocks[name] = f"{name} in blocks"
            self._channels[self._blocks[name]] = 4 * channels
            self._lines.add(self._blocks[name], 4 * channels, (rows // 2, columns // 2))
        else:
            self._add(name)

    def _takes_blocks(self, operator: Operator) -> bool:
        """Whether an operator can read the image, its input, in blocks of 2 x 2 pixels."""
        _, channels, rows, columns = self._graph.shapes[operator.inputs[0]]
        parameters = operator.parameters
        output = operator.outputs[0]
        if rows % 2 or columns % 2 or 4 * channels > 2 * VECTOR:
            return False
        if isinstance(parameters, SpaceToDepth):
            readers = [reader.parameters for reader in self._readers[output]]
            plain = all(isinstance(reader, Convolution) and reader.groups == 1 for reader in readers)
            return parameters.block == 2 and plain and output not in self._exported
        if not isinstance(parameters, Convolution) or parameters.strides != (2, 2) or parameters.groups != 1:
            return False
        out_hw = self._graph.shapes[output][2:]
        return parameters.dilations == (1, 1) and on_blocks(parameters, (rows // 2, columns // 2), out_hw) is not None

    def _absorbed(self, operator: Operator) -> bool:
        """Whether the readers of an operator's output take its input in place of it."""
        if isinstance(operator.parameters, SpaceToDepth):
            return operator.inputs[0] in self._blocks
        return all(_takes_padding(reader) for reader in self._readers[operator.outputs[0]]) and (
            operator.outputs[0] not in self._exported
        )

    def _place_parts(self, operator: Operator) -> None:
        source = operator.inputs[0]
        parameters = operator.parameters
        if isinstance(parameters, Crop):
            self._crops[operator.outputs[0]] = source, parameters
            return
        assert isinstance(parameters, Split)
        channels = self._graph.shapes[source][1]
        first = 0
        for name, length in zip(operator.outputs, parameters.lengths, strict=True):
            rows, columns = self._graph.shapes[source][2:]
            crop = Crop((first, 0, 0), (first + length, rows, columns), (1, 1, 1))
            self._crops[name] = source, crop
            first += length
        assert first == channels

    def _join_parts(self, operator: Operator) -> None:
        """Let the parts of a concatenation be written in their places; note those that must be copied."""
        output = operator.outputs[0]
        channel = 0
        groups = defaultdict[tuple[str, int], list[tuple[str, int]]](list)  # parts of one tensor that lies in one place
        for name, length in self._whole_parts(operator.inputs):
            whole, first = self._whole(name)
            groups[whole, channel - first].append((name, channel))
            self._lines.reserve(output, f"{output} at {channel}", channel, length)
            channel += length
        copies = []
        for (whole, place), parts in groups.items():
            for _, start in parts:
                self._lines.release(output, f"{output} at {start}")
            if whole in self._lines and self._lines.join(whole, output, place):
                continue
            for name, start in parts:
                self._lines.reserve(output, f"{output} at {start}", start, self._graph.shapes[name][1])
                copies.append((name, start))
        self._copies[output] = sorted(copies, key=lambda copy: copy[1])

    def _whole(self, name: str) -> tuple[str, int]:
        """Return the tensor whose consecutive channels a tensor is, and the first of them; itself and 0 otherwise."""
        first = 0
        while name in self._crops:
            source, crop = self._crops[name]
            _, _, rows, columns = self._graph.shapes[source]
            if crop.starts[1:] != (0, 0) or crop.stops[1:] != (rows, columns) or crop.steps != (1, 1, 1):
                break
            name = source
            first += crop.starts[0]
        return name, first

    def _whole_parts(self, names: Sequence[str]) -> Iterator[tuple[str, int]]:
        """Yield the parts of a concatenation; consecutive parts of one tensor that are all of it are that tensor."""
        index = 0
        while index < len(names):
            count = self._count_parts_of_tensor(names[index:])
            name = names[index]
            if count:
                name = self._crops[name][0]
            yield name, self._graph.shapes[name][1]
            index += max(1, count)

    def _count_parts_of_tensor(self, names: Sequence[str]) -> int:
        """Return how many of the first names are together all channels of one tensor, in order; 0 if they are not."""
        source = self._crops[names[0]][0] if names[0] in self._crops else ""
        shape = self._graph.shapes.get(source, ())
        channel = 0
        for count, name in enumerate(names, start=1):
            parent, crop = self._crops.get(name, ("", None))
            if crop is None or parent != source or crop.starts != (channel, 0, 0) or crop.steps != (1, 1, 1):
                return 0
            if crop.stops[1:] != shape[2:]:
                return 0
            channel = crop.stops[0]
            if channel == shape[1]:
                return count
        return 0

    def _view(self, name: str) -> View:
        """Return the view of a tensor, which may be a part of another."""
        if name not in self._crops:
            return self._views[name]
        source, crop = self._crops[name]
        view = self._view(source)
        counts = tuple(len(range(*bounds)) for bounds in zip(crop.starts, crop.stops, crop.steps, strict=True))
        offset = view.offset + crop.starts[0] + crop.starts[1] * view.strides[1] + crop.starts[2] * view.strides[2]
        strides = view.strides[0], view.strides[1] * crop.steps[1], view.strides[2] * crop.steps[2]
        return View(view.buffer, offset, (view.shape[0], counts[1], counts[2], counts[0]), strides)

    def _new_view(self, shape: tuple[int, int, int, int]) -> View:
        """Return a view of a new buffer."""
        batch, rows, columns, channels = shape
        pitch = padded(channels)
        self._sizes.append(batch * rows * columns * pitch)
        return View(len(self._sizes) - 1, 0, shape, (rows * columns * pitch, columns * pitch, pitch))

    # -------------------------------------------------------------------------------------------- steps

    def _exports(self, task: _Task | NetworkSegment) -> Iterator[Step]:
        """Return the exports of what a task writes, or the parts of it."""
        if isinstance(task, NetworkSegment):
            return
        names = task.operator.outputs if isinstance(task.operator.parameters, Split) else (task.output,)
        for name in names:
            if name in self._exported:
                yield Export(name, self._view(name), isinstance(task.operator.parameters, ChannelsLast))

    def _imports(self, names: Sequence[str]) -> Iterator[Step]:
        for name in names:
            if name not in self._readers or name in self._writers:
                continue
            if name in self._blocks:
                yield Import(name, self._views[self._blocks[name]], 2)
            else:
                yield Import(name, self._views[name])

    def _steps(self, task: _Task) -> Iterator[Step]:
        operator = task.operator
        parameters = operator.parameters
        if isinstance(parameters, Split | Crop | ChannelsLast):
            return
        if isinstance(parameters, DeformableAttention):
            bases = dict.fromkeys(level.features.base for level in parameters.levels)
            features = tuple((name, self._view(name)) for name in bases if name in self._writers)
            yield Attend(operator.outputs[0], parameters, self._read_outside(operator), features)
        elif isinstance(parameters, PixelConcatenation):
            yield from self._concatenate_pixels(operator)
        elif isinstance(parameters, Concatenation):
            yield from self._concatenate(operator)
        elif isinstance(parameters, Padding):
            if operator.outputs[0] in self._views:
                yield from self._pad(operator, parameters.pads)
        elif isinstance(parameters, SpaceToDepth):
            if operator.inputs[0] not in self._blocks:
                yield from self._to_depth(operator, parameters)
        elif isinstance(parameters, Convolution):
            yield from self._convolve(task, parameters)
        elif isinstance(parameters, Upconvolution):
            yield from self._upconvolve(operator, parameters)
        else:
            source = yield from self._vectors(operator.inputs[0])
            yield from self._plain(task, source)

    def _plain(self, task: _Task, source: View) -> Iterator[Step]:
        """Yield the step of an operator that reads one tensor in vectors."""
        operator = task.operator
        parameters = operator.parameters
        target = self._views[task.output]
        if isinstance(parameters, Pool):
            pads = parameters.pads
            zeros = False
            if (padding := self._padding(operator.inputs[0])) is not None:
                pads = padding
                zeros = True
            window = parameters.kernel, parameters.strides, pads
            yield PoolWindows(task.output, source, target, parameters.kind, *window, parameters.count_pads, zeros)
        elif isinstance(parameters, GlobalMean):
            yield MeanOfImage(task.output, source, target)
        elif isinstance(parameters, Resize):
            yield Enlarge(task.output, source, target, parameters.kind, parameters.scale)
        elif isinstance(parameters, ChannelNormalization):
            vectors = _padded_vector(parameters.scale), _padded_vector(parameters.shift)
            yield NormalizeChannels(task.output, source, target, *vectors, parameters.epsilon)
        elif isinstance(parameters, Sum | Product):
            kind = Added if isinstance(parameters, Sum) else Multiplied
            operand = yield from self._vectors(operator.inputs[1])
            then = yield from self._then(task)
            yield Calculate(task.output, source, target, (kind(operand), *then))
        else:
            assert isinstance(parameters, Activation | Affine | PixelFactors)
            then = yield from self._then(task)
            yield Calculate(task.output, source, target, (parameters, *then))

    def _vectors(self, name: str) -> Generator[Step, None, View]:
        """Return a view of a tensor that can be read in vectors, after a copy where that needs one."""
        if self._padding(name) is not None:
            name = self._writers[name].inputs[0]
        view = self._view(name)
        # the values behind the last channel are the tensor's own padding or another tensor's
        if view.vectors and padded(view.shape[3]) <= view.strides[2]:
            return view
        target = self._new_view(view.shape)
        yield CopyChannels(view, target, padded(view.shape[3]) - view.shape[3])
        return target

    def _then(self, task: _Task) -> Generator[Step, None, tuple[Pointwise, ...]]:
        """Return what follows an operator, with the views of the tensors that it reads."""
        then = list[Pointwise]()
        for operation in task.then:
            if isinstance(operation, _Operand):
                view = yield from self._vectors(operation.name)
                then.append(operation.kind(view))
            else:
                then.append(operation)
        return tuple(then)

    def _convolve(self, task: _Task, parameters: Convolution) -> Iterator[Step]:
        name = task.operator.inputs[0]
        pads = parameters.pads
        if (padding := self._padding(name)) is not None:
            pads = tuple(a + b for a, b in zip(pads, padding, strict=True))  # type: ignore[assignment]
        weight = parameters.weight
        strides = parameters.strides
        if (source_name := self._block_source(name)) is not None:
            source = self._views[self._blocks[source_name]]
            weight, strides, pads = self._in_blocks(name, parameters)
        else:
            source = yield from self._vectors(name)
        target = self._views[task.output]
        then = yield from self._then(task)
        bias = parameters.bias
        if then and isinstance(then[0], Affine):
            weight = weight * then[0].scale.reshape(-1, 1, 1, 1)
            bias = bias * then[0].scale + then[0].shift
            then = then[1:]
        if parameters.groups == 1:
            packed = pack_weight(weight)
            bias = _padded_vector(bias)
            yield Convolve(task.output, source, target, packed, bias, strides, pads, parameters.dilations, then)
            return
        depthwise = np.zeros((*weight.shape[2:], padded(len(weight))), np.float32)
        depthwise[..., : len(weight)] = weight[:, 0].transpose(1, 2, 0)
        bias = _padded_vector(bias)
        yield ConvolveDepthwise(task.output, source, target, depthwise, bias, strides, pads, parameters.dilations, then)

    def _upconvolve(self, operator: Operator, parameters: Upconvolution) -> Iterator[Step]:
        """One convolution of single pixels computes all values of the enlarged pixel, which are then put in place."""
        name = operator.outputs[0]
        source = yield from self._vectors(operator.inputs[0])
        target = self._views[name]
        batch, rows, columns, channels = target.shape
        inputs, _, high, wide = parameters.weight.shape
        pitch = padded(channels)
        weight = np.zeros((high, wide, pitch, inputs), np.float32)
        weight[:, :, :channels] = parameters.weight.transpose(2, 3, 1, 0)
        bias = np.zeros((high, wide, pitch), np.float32)
        bias[:, :, :channels] = parameters.bias
        count = high * wide * pitch
        pixels = self._new_view((batch, rows // high, columns // wide, count))
        packed = pack_weight(weight.reshape(count, inputs, 1, 1))
        yield Convolve(name, source, pixels, packed, bias.reshape(-1), (1, 1), (0, 0, 0, 0), (1, 1), ())
        for row in range(high):
            for column in range(wide):
                first = (row * wide + column) * pitch
                part = replace(pixels, offset=first, shape=(*pixels.shape[:3], pitch))
                offset = target.offset + row * target.strides[1] + column * target.strides[2]
                strides = target.strides[0], target.strides[1] * high, target.strides[2] * wide
                yield CopyChannels(part, View(target.buffer, offset, part.shape, strides))

    def _concatenate(self, operator: Operator) -> Iterator[Step]:
        output = operator.outputs[0]
        target = self._views[output]
        copies = self._copies.get(output, [])
        for place, (name, channel) in enumerate(copies):
            source = self._view(name)
            part = replace(target, offset=target.offset + channel, shape=source.shape)
            ends = channel + source.shape[3] == target.shape[3] and place == len(copies) - 1
            yield CopyChannels(source, part, padded(target.shape[3]) - target.shape[3] if ends else 0)

    def _concatenate_pixels(self, operator: Operator) -> Iterator[Step]:
        """Copy each image to its place: cuDNN's convolutions write wrong values where images are not back to back."""
        for name, part in zip(operator.inputs, self._pixel_parts(operator), strict=True):
            yield CopyChannels(self._view(name), part, padded(part.shape[3]) - part.shape[3])

    def _pad(self, operator: Operator, pads: Pads) -> Iterator[Step]:
        source = self._view(operator.inputs[0])
        target = self._views[operator.outputs[0]]
        yield Fill(target)
        offset = target.offset + pads[0] * target.strides[1] + pads[1] * target.strides[2]
        yield CopyChannels(source, replace(target, offset=offset, shape=source.shape))

    def _to_depth(self, operator: Operator, parameters: SpaceToDepth) -> Iterator[Step]:
        source = self._view(operator.inputs[0])
        target = self._views[operator.outputs[0]]
        batch, rows, columns, channels = source.shape
        block = parameters.block
        for place, origin in enumerate(parameters.order):
            row, column, channel = np.unravel_index(origin, (block, block, channels))
            offset = source.offset + int(row) * source.strides[1] + int(column) * source.strides[2] + int(channel)
            strides = source.strides[0], source.strides[1] * block, source.strides[2] * block
            part = View(source.buffer, offset, (batch, rows // block, columns // block, 1), strides)
            last = place == len(parameters.order) - 1
            zeros = padded(target.shape[3]) - target.shape[3] if last else 0
            yield CopyChannels(part, replace(target, offset=target.offset + place, shape=(*target.shape[:3], 1)), zeros)

    # -------------------------------------------------------------------------------------------- absorbed operators

    def _padding(self, name: str) -> Pads | None:
        """Return the zeros around a tensor's source that its reader must add; None if it is no such tensor."""
        writer = self._writers.get(name)
        if writer is None or not isinstance(writer.parameters, Padding) or name in self._views:
            return None
        return writer.parameters.pads

    def _block_source(self, name: str) -> str | None:
        """Return the tensor from outside whose blocks of pixels a convolution of this tensor reads."""
        if name in self._blocks:
            return name
        writer = self._writers.get(name)
        if writer is not None and isinstance(writer.parameters, SpaceToDepth) and writer.inputs[0] in self._blocks:
            return writer.inputs[0]
        return None

    def _in_blocks(self, name: str, parameters: Convolution) -> tuple[np.ndarray, tuple[int, int], Pads]:
        """Return weight, strides and pads of a convolution on blocks of pixels."""
        writer = self._writers.get(name)
        if writer is not None and isinstance(writer.parameters, SpaceToDepth):
            outputs, _, *kernel = parameters.weight.shape
            channels = self._channels[self._blocks[writer.inputs[0]]]
            weight = np.zeros((outputs, channels, *kernel), np.float32)
            for place, channel in enumerate(writer.parameters.order):
                weight[:, channel] += parameters.weight[:, place]
            return weight, parameters.strides, parameters.pads
        _, _, rows, columns = self._graph.shapes[name]
        output = next(reader.outputs[0] for reader in self._readers[name] if reader.parameters is parameters)
        rewritten = on_blocks(parameters, (rows // 2, columns // 2), self._graph.shapes[output][2:])
        assert rewritten is not None
        weight, pads = rewritten
        return weight, (1, 1), pads


# ------------------------------------------------------------------------------------------------ weights


def pack_weight(weight: np.ndarray) -> np.ndarray:
    """Return a weight (outputs, inputs, height, width) as (outputs, height, width, inputs), filled with zeros."""
    outputs, inputs, height, width = weight.shape
    packed = np.zeros((padded(outputs), height, width, padded(inputs)), np.float32)
    packed[:outputs, :, :, :inputs] = weight.transpose(0, 2, 3, 1)
    return packed


def on_blocks(parameters: Convolution, size_hw: Sequence[int], out_hw: Sequence[int]) -> tuple[np.ndarray, Pads] | None:
    """Return weight and pads of a convolution of stride 2 for an image whose blocks of 2 x 2 pixels are channels.

    Pixel row 2y - top + k of the image is row (k - top) mod 2 of block y + floor((k - top) / 2).

    Args:
        parameters: the convolution.
        size_hw: rows, columns of the image in blocks.
        out_hw: rows, columns of the output.

    Returns:
        None if the blocks give more outputs than the pixels.
    """
    outputs, inputs, height, width = parameters.weight.shape
    top, left = parameters.pads[:2]
    above = -(-top // 2)
    beside = -(-left // 2)
    kernel = above + (height - 1 - top) // 2 + 1, beside + (width - 1 - left) // 2 + 1
    below = out_hw[0] - (size_hw[0] + above - kernel[0] + 1)
    after = out_hw[1] - (size_hw[1] + beside - kernel[1] + 1)
    if below < 0 or after < 0:
        return None
    blocks = np.zeros((outputs, 2, 2, inputs, *kernel), np.float32)
    for k_row in range(height):
        for k_column in range(width):
            row, sub_row = divmod(k_row - top, 2)
            column, sub_column = divmod(k_column - left, 2)
            blocks[:, sub_row, sub_column, :, above + row, beside + column] = parameters.weight[:, :, k_row, k_column]
    return blocks.reshape(outputs, 4 * inputs, *kernel), (above, beside, below, after)


def _padded_vector(values: np.ndarray) -> np.ndarray:
    vector = np.zeros(padded(len(values)), np.float32)
    vector[: len(values)] = values
    return vector


def _takes_padding(operator: Operator) -> bool:
    """Whether an operator can add zeros around what it reads."""
    parameters = operator.parameters
    if isinstance(parameters, Convolution):
        return True
    return isinstance(parameters, Pool) and parameters.kind == "max" and not any(parameters.pads)


def multiply_adds(step: Convolve | ConvolveDepthwise) -> int:
    """Return the multiply-adds of a convolution, padding included."""
    outputs = math.prod(step.target.shape[:3])
    return outputs * math.prod(step.weight.shape)
