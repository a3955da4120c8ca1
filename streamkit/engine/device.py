# SPDX-License-Identifier: Apache-2.0
"""Programs of the engine on a GPU."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamkit.core.crops import LazyRows, dense
from streamkit.engine import convolutions
from streamkit.engine.convolutions import BIAS, OPERAND, SOURCE, TARGET, WEIGHT, Signature
from streamkit.engine.errors import EngineError
from streamkit.engine.graph import OnnxGraph
from streamkit.engine.kernels import AttentionKernel, Launch, Launcher
from streamkit.engine.plans import PlanError, PlanStore
from streamkit.engine.program import (
    Added,
    Attend,
    Convolve,
    Delegate,
    Export,
    Import,
    Layer,
    Multiplied,
    Pointwise,
    Program,
    Step,
    View,
)
from streamkit.ops.preprocess_cuda import PackedImages

logger = logging.getLogger(__name__)

Delegated = Callable[[Delegate, Mapping[str, Any]], Mapping[str, Any]]
"""Runs a part of the network in ONNX Runtime: takes all tensors outside of the buffers, returns its outputs."""


class Weights:
    """The weights of a network on a GPU, which its programs for all batch sizes share."""

    def __init__(self) -> None:
        self._constants = dict[tuple[str, str], Any]()

    def weight(self, name: str, kind: str, values: np.ndarray) -> int:
        """Put a weight on the device, once for all programs, and return its address."""
        import cupy

        if (name, kind) not in self._constants:
            self._constants[name, kind] = cupy.asarray(values)
        return int(self._constants[name, kind].data.ptr)


@dataclass(slots=True)
class _Launches:
    """Steps between two that have changing addresses.

    Attributes:
        launches: in order.
        graph: a CUDA graph of them, once captured.
    """

    launches: list[Launch]
    graph: Any = None

    def run(self, stream: Any) -> None:
        if self.graph is not None:
            self.graph.launch(stream)
            return
        for launch in self.launches:
            launch(stream)

    def capture(self, stream: Any) -> None:
        """Make the CUDA graph on a stream that nothing else uses."""
        import cupy

        stream.begin_capture(cupy.cuda.runtime.streamCaptureModeRelaxed)
        try:
            for launch in self.launches:
                launch(stream)
        finally:
            graph = stream.end_capture()
        self.graph = graph


class _ProgramMemory:
    """The buffers and constants of a program on the GPU.

    It is apart from `DeviceProgram` so that no objects refer to each other: memory of the device is freed where the
    last reference goes, and never by Python's garbage collection, which may run on any thread.
    """

    def __init__(self, program: Program) -> None:
        import cupy

        self._buffers = program.buffers
        self._arena = cupy.zeros(program.arena, np.float16)
        self._constants = list[Any]()

    def address(self, view: View) -> int:
        """Return the address of a view's first value."""
        return int(self._arena.data.ptr) + 2 * (self._buffers[view.buffer].offset + view.offset)

    def constant(self, values: np.ndarray) -> int:
        """Put an array on the device, keep it, and return its address."""
        import cupy

        self._constants.append(cupy.asarray(values))
        return int(self._constants[-1].data.ptr)

    @contextlib.contextmanager
    def temporary_constants(self, stream: Any) -> Iterator[None]:
        """Free what is put on the device in the block, once the stream has passed it."""
        count = len(self._constants)
        try:
            yield
        finally:
            stream.synchronize()
            del self._constants[count:]


class DeviceProgram:
    """A program with its memory, which runs on one stream.

    Another program of the network may be made and run on another thread and the same stream: both share weights only.

    Args:
        program: the steps.
        graph: the network, for the shapes of what it returns.
        weights: of the network.
        plans: of this program; they are prepared, see `signatures`.

    Raises:
        EngineError: a convolution has no plan.
    """

    def __init__(self, program: Program, graph: OnnxGraph, weights: Weights, plans: PlanStore) -> None:
        self._program = program
        self._graph = graph
        self._weights = weights
        self._plans = plans
        self._memory = _ProgramMemory(program)
        self._launcher = Launcher(self._memory.address, self._memory.constant)
        self._attention = {
            step.output: AttentionKernel(step, self._memory.address)
            for step in program.steps
            if isinstance(step, Attend)
        }
        self._packed = {step.name for step in program.steps if isinstance(step, Import) and takes_packed(step, program)}
        self._parts: list[_Launches | Import | Export | Attend | Delegate] = []
        for step in program.steps:
            if isinstance(step, Import | Export | Attend | Delegate):
                self._parts.append(step)
                continue
            if not self._parts or not isinstance(self._parts[-1], _Launches):
                self._parts.append(_Launches([]))
            part = self._parts[-1]
            assert isinstance(part, _Launches)
            part.launches.extend(self._launches(step))

    def run(self, inputs: Mapping[str, Any], delegated: Delegated) -> dict[str, Any]:
        """Queue a run; return the network's outputs, complete once the stream reaches this point.

        Args:
            inputs: dense CuPy arrays, by name; or `LazyRows`, written to the buffers if only convolutions read them.
            delegated: runs the parts that the engine does not, on the same stream.
        """
        packed = self._packed
        tensors = {name: tensor if name in packed else dense(tensor) for name, tensor in inputs.items()}
        for part in self._parts:
            if isinstance(part, _Launches):
                part.run(self._plans.stream)
            else:
                self._outside(part, tensors, delegated)
        return {name: tensors[name] for name in self._graph.outputs}

    def capture(self) -> None:
        """Replace launches by CUDA graphs, which the CPU queues at once. If that fails, launches stay."""
        import cupy

        stream = cupy.cuda.Stream(non_blocking=True)
        with self._plans.on(stream):
            for part in self._parts:
                if not isinstance(part, _Launches) or part.graph is not None:
                    continue
                try:
                    part.capture(stream)
                except cupy.cuda.runtime.CUDARuntimeError as error:  # another library waited for the whole device
                    part.graph = None
                    logger.info(f"a part of a network runs without a CUDA graph: {error}")

    @property
    def tensor_names(self) -> list[str]:
        """The names of what `tensors` yields."""
        return [step.output for step in self._program.steps if isinstance(step, Layer)]

    def tensors(self, inputs: Mapping[str, Any], delegated: Delegated) -> Iterator[tuple[str, Any]]:
        """Run step by step; yield each tensor that the engine computes, in the order of the steps.

        Args:
            inputs: as for `run`.
            delegated: as for `run`.

        Yields:
            Name, and values as a CuPy array (batch, channels, rows, columns) float32.
        """
        import cupy

        tensors = dict(inputs)
        with self._memory.temporary_constants(self._plans.stream):
            for step in self._program.steps:
                if isinstance(step, Import | Export | Attend | Delegate):
                    self._outside(step, tensors, delegated)
                    continue
                for launch in self._launches(step):
                    launch(self._plans.stream)
                if isinstance(step, Layer):
                    values = cupy.empty(self._graph.shapes[step.output], np.float32)
                    self._launcher.export(Export(step.output, step.target), values)(self._plans.stream)
                    yield step.output, values

    def _outside(
        self, step: Import | Export | Attend | Delegate, tensors: dict[str, Any], delegated: Delegated
    ) -> None:
        import cupy

        stream = self._plans.stream
        if isinstance(step, Delegate):
            tensors.update(delegated(step, tensors))
        elif isinstance(step, Import):
            tensor = tensors[step.name]
            if isinstance(tensor, LazyRows) and tensor.can_be_written:
                tensor.write(self._packed_images(step))
            else:
                self._launcher.import_(step, dense(tensor))(stream)
        elif isinstance(step, Export):
            tensors[step.name] = cupy.empty(self._graph.shapes[step.name], self._graph.dtypes[step.name])
            self._launcher.export(step, tensors[step.name])(stream)
        else:
            tensors[step.output] = cupy.empty(self._graph.shapes[step.output], np.float32)
            self._attention[step.output](tensors, tensors[step.output], stream)

    def _packed_images(self, step: Import) -> PackedImages:
        view = step.target
        return PackedImages(self._memory.address(view), view.shape[0], step.block, view.strides[2])

    def _launches(self, step: Step) -> Iterator[Launch]:
        if not isinstance(step, Convolve):
            yield self._launcher.step(step)
            return
        fused = fused_functions(step, self._plans)
        about = convolutions.signature(step, fused)
        addresses = {
            SOURCE: self._memory.address(step.source),
            WEIGHT: self._weights.weight(step.output, "weight", step.weight.astype(np.float16)),
            BIAS: self._weights.weight(step.output, "bias", step.bias),
            TARGET: self._memory.address(step.target),
        }
        for operation in fused:
            if isinstance(operation, Added | Multiplied):
                addresses[OPERAND] = self._memory.address(operation.view)
        yield _Convolution(self._plans, about, addresses)
        if fused != step.then:
            yield self._launcher.functions(step.target, step.then[len(fused) :])


def takes_packed(step: Import, program: Program) -> bool:
    """Whether images may be written to the buffer in place of a tensor: nothing else reads it, and they are dense."""
    _, rows, columns, channels = step.target.shape
    pitch = step.target.strides[2]
    dense_strides = (rows * columns * pitch, columns * pitch, pitch)
    others = [other for other in program.steps if other is not step and step.name in outside_reads(other)]
    return channels == 3 * step.block**2 and step.target.strides == dense_strides and not others


def outside_reads(step: Step) -> tuple[str, ...]:
    """Return the names of the tensors outside of the buffers that a step reads."""
    if isinstance(step, Import):
        return (step.name,)
    return step.inputs if isinstance(step, Attend | Delegate) else ()


class _Convolution:
    """The launch of a dense convolution."""

    def __init__(self, plans: PlanStore, about: Signature, addresses: dict[int, int]) -> None:
        self._plans = plans
        self._about = about
        self._addresses = addresses

    def __call__(self, stream: Any) -> None:
        self._plans.run(self._about, self._addresses)


def fused_functions(step: Convolve, plans: PlanStore) -> tuple[Pointwise, ...]:
    """Return those functions of a convolution that its plan computes, as many of the first as cuDNN supports.

    Raises:
        EngineError: cuDNN has no plan for the convolution alone.
    """
    functions = convolutions.fused_functions(step)
    for count in range(len(functions), -1, -1):
        try:
            plans.prepare(convolutions.signature(step, functions[:count]))
        except PlanError as error:
            if count == 0:
                raise EngineError(f"cuDNN cannot compute the convolution of {step.output}: {error}") from None
            logger.info(f"cuDNN cannot fuse {len(functions)} functions with {step.output}: {error}")
        else:
            break
    return functions[:count]


def signatures(program: Program) -> Sequence[Signature]:
    """Return what the plans of a program's convolutions depend on, each once."""
    steps = (step for step in program.steps if isinstance(step, Convolve))
    return list(dict.fromkeys(convolutions.signature(step, convolutions.fused_functions(step)) for step in steps))


def relative_error(values: Any, reference: Any) -> float:
    """Return the norm of a difference, in shares of the reference's; infinite if a value is not finite."""
    xp = __import__("cupy") if not isinstance(values, np.ndarray) else np
    difference = float(xp.linalg.norm((values.astype(np.float32) - reference).ravel()))
    norm = float(xp.linalg.norm(reference.ravel()))
    return difference / max(norm, 1e-30) if np.isfinite(difference) else float("inf")
