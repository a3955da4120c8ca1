# SPDX-License-Identifier: Apache-2.0
"""A network for one batch size whose convolutions run in the fused engine, and the rest in ONNX Runtime.

Both queue their work on one CUDA stream. Convolutions compute in f16 with sums in f32; the rest in the precision of its
ONNX Runtime session.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from streamkit.core.data import Array
from streamkit.core.text import install_command
from streamkit.core.user_cache import user_cache
from streamkit.engine.device import DeviceProgram, Weights, signatures
from streamkit.engine.errors import EngineError
from streamkit.engine.graph import OnnxGraph, Shape, extract, simplify
from streamkit.engine.lowering import lower
from streamkit.engine.operators import recognize
from streamkit.engine.partition import fused_share, partition
from streamkit.engine.pixel_rows import products_as_convolutions
from streamkit.engine.plans import PlanStore
from streamkit.engine.program import Delegate
from streamkit.models.arithmetic import missing_package
from streamkit.models.file_version import FileVersion, file_version
from streamkit.models.io_binding import IoBinding
from streamkit.models.layer_check import LayerCheck, compare_layers, tensors_outside, too_large
from streamkit.models.network_file import ModelInfo, TensorInfo
from streamkit.models.providers import nodes_by_provider, open_session
from streamkit.models.simplified import SimplifiedNetwork
from streamkit.models.upsample import for_cuda
from streamkit.models.versions import plan_versions

logger = logging.getLogger(__name__)

MIN_SHARE = 0.2
"""Least share of a network's multiply-adds for which the engine is tried."""


class FusedEngine:
    """Makes the programs of a network for its batch sizes, on the CuPy stream that is current when it is made.

    Args:
        info: of the network's file.
        open_part: opens an ONNX Runtime session on the same stream for a part of the network, given as bytes.

    Raises:
        EngineError: a package is missing or cannot be imported.
    """

    def __init__(self, info: ModelInfo, open_part: Callable[[bytes], Any]) -> None:
        if missing := missing_package():
            raise EngineError(f"the package {missing} is not installed; install it with: {install_command('gpu')}")
        import cupy

        self._info = info
        self._version = file_version(info.file)
        self._open_part = open_part
        self._weights = Weights()
        self._first = True  # a run begins with one batch size, and waits for no other
        try:
            self._folder = user_cache("plans", plan_versions(int(cupy.cuda.runtime.getDevice())))
        except (ImportError, OSError, RuntimeError) as error:  # of cuDNN's library
            raise EngineError(f"nvidia-cudnn-frontend cannot be used: {error}") from None

    def network(self, shapes: Mapping[str, Shape]) -> FusedNetwork:
        """Return the network for these shapes of all inputs.

        Raises:
            EngineError: it cannot run so; the text says why.
        """
        check_unchanged(self._info.file, self._version)
        first = self._first
        self._first = False
        return FusedNetwork(self._info, shapes, self._weights, PlanStore(self._folder), self._open_part, keep=first)


class FusedNetwork:
    """A network for one batch size, on one GPU and one CUDA stream.

    Attributes:
        share: of the network's multiply-adds that the engine runs, 0 to 1.
        nodes: number of the nodes that ONNX Runtime runs, by the names of its providers.
        outside: names of tensors that do not pass through f16, as their values are too large.
    """

    def __init__(
        self,
        info: ModelInfo,
        shapes: Mapping[str, Shape],
        weights: Weights,
        plans: PlanStore,
        open_part: Callable[[bytes], Any],
        *,
        keep: bool = False,
    ) -> None:
        """Load a network.

        Args:
            info: of its file.
            shapes: of every input.
            weights: shared by the batch sizes of the network.
            plans: of this batch size.
            open_part: opens an ONNX Runtime session on the same stream for a part of the network.
            keep: keep the simplified network on disk, as large as its file, so that it loads in a fifth of the time.

        Raises:
            EngineError: the network cannot run so; the text says why.
        """
        try:
            graph = engine_graph(info.file, shapes, keep=keep)
            self.outside = tensors_outside(info.file)
            segments = partition(graph, recognize(graph, self.outside))
        except ValueError as error:
            raise EngineError(str(error)) from None
        self._info = info
        self._shapes = shapes
        self.share = fused_share(graph, segments)
        if self.share < MIN_SHARE:
            raise EngineError(f"convolutions are {self.share:.0%} of its work")
        program = lower(graph, segments)
        self._outputs = tuple(info.outputs)
        self._stream = plans.stream
        self._parts: dict[Delegate, IoBinding] = {}
        nodes = Counter[str]()
        plans.prepare_all(signatures(program))
        self._program = DeviceProgram(program, graph, weights, plans)
        for step in program.steps:
            if isinstance(step, Delegate):
                session = open_part(extract(graph, step.nodes, step.inputs, step.outputs).SerializeToString())
                nodes.update(nodes_by_provider(session))
                self._parts[step] = IoBinding(session, _part_info(info, graph, step), plans.index)
        self.nodes = dict(nodes)

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Queue a run; see `Session.run`."""
        outputs = self._program.run(feeds, self._delegated)
        return {name: outputs[name] for name in self._outputs}

    def warm(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run once, capture CUDA graphs, wait; return the outputs."""
        outputs = self.run(feeds)
        self._program.capture()
        self._stream.synchronize()
        return outputs

    def large_tensors(self, feeds: Mapping[str, Array]) -> tuple[str, ...]:
        """Return the names of the engine's tensors with values too large for f16 on these images."""
        try:
            return too_large(self._program.tensors(feeds, self._delegated))
        finally:
            _free_unused_memory()

    def check_layers(self, feeds: Mapping[str, Array]) -> LayerCheck:
        """Compare each tensor of the engine with ONNX Runtime on the CPU in f32, on the first image if that can be."""
        batch = len(feeds[self._info.image_input])
        if self._info.batch is None:
            batch = 1
        shapes = {
            name: (batch, *shape[1:]) if len(feeds[name]) == len(feeds[self._info.image_input]) else shape
            for name, shape in self._shapes.items()
        }
        graph = engine_graph(self._info.file, shapes)
        names = [name for name in self._program.tensor_names if name in graph.producers and name in graph.shapes]
        part = extract(graph, range(len(graph.nodes)), graph.inputs, names).SerializeToString()
        session = open_session(self._info.file, ("cpu",), [{}], 1, part)
        first_rows = {name: feeds[name][: shapes[name][0]] for name in graph.inputs}
        images = {name: rows if isinstance(rows, np.ndarray) else rows.get() for name, rows in first_rows.items()}
        references = dict(zip(names, session.run(names, images), strict=True))
        try:
            return compare_layers(self._program.tensors(feeds, self._delegated), references)
        finally:
            _free_unused_memory()

    def _delegated(self, step: Delegate, tensors: Mapping[str, Array]) -> dict[str, Array]:
        return self._parts[step].run({name: tensors[name] for name in step.inputs})


def _free_unused_memory() -> None:
    """Give memory back to the GPU: each layer in f32 takes up to a gigabyte, once."""
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()


def _part_info(info: ModelInfo, graph: OnnxGraph, step: Delegate) -> ModelInfo:
    """Return the inputs and outputs of a part of a network."""
    inputs, outputs = (
        {name: TensorInfo(name, graph.dtypes[name], graph.shapes[name]) for name in names}
        for names in (step.inputs, step.outputs)
    )
    return dataclasses.replace(info, inputs=inputs, outputs=outputs, image_input="")


def check_unchanged(file: Path, version: FileVersion) -> None:
    """Check that a file is the one whose weights are on the GPU, which all batch sizes share.

    Raises:
        EngineError: it was changed, replaced or removed.
    """
    try:
        unchanged = file_version(file) == version
    except OSError:
        unchanged = False
    if not unchanged:
        raise EngineError(f"{file} has changed since it was loaded: restart the pipeline")


def engine_graph(file: Path, shapes: Mapping[str, Shape], *, keep: bool = False) -> OnnxGraph:
    """Return a network as the engine runs it, for these shapes of all inputs.

    Args:
        file: the network.
        shapes: of all inputs.
        keep: read the simplified network from disk, where an earlier call with `keep` has left it.

    Raises:
        ValueError: see `simplify`.
    """
    if not keep:
        return products_as_convolutions(simplify(load_network(file), shapes))
    simplified = SimplifiedNetwork(file, shapes)
    graph = simplified.read()
    return products_as_convolutions(graph or simplify(load_network(file), shapes, simplified.write))


def load_network(file: Path) -> Any:
    """Return the network that a GPU runs, as an `onnx.ModelProto`."""
    import onnx

    network = for_cuda(file)
    return onnx.load_from_string(network) if isinstance(network, bytes) else onnx.load(network)


def share_that_can_be_fused(info: ModelInfo, size: tuple[int, int]) -> float:
    """Return the share of a network's multiply-adds that the engine can run, 0 to 1. Needs no GPU.

    Args:
        info: of the network's file.
        size: width and height of the images.

    Raises:
        EngineError: the network cannot run in the engine.
    """
    batch = info.batch or 1
    images = info.image_shape(batch, size)
    shapes = {
        name: tuple(
            (batch if axis == 0 else 1) if length is None else length for axis, length in enumerate(tensor.shape)
        )
        for name, tensor in info.inputs.items()
    } | {info.image_input: images}
    try:
        graph = engine_graph(info.file, shapes)
        segments = partition(graph, recognize(graph))
    except ValueError as error:
        raise EngineError(str(error)) from None
    return fused_share(graph, segments)
