# SPDX-License-Identifier: Apache-2.0
"""f16 networks for a GPU, by ONNX Runtime's converter.

Images go in as f16. The nodes behind the last layer and all outputs stay in f32: f16 has 11 bits, half a pixel at 640.
Nodes whose values come near the largest f16 number on real frames stay in f32 too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamkit.core.errors import ModelError, OutputError
from streamkit.core.user_cache import user_cache
from streamkit.io.outputs import write_cache_file
from streamkit.models.calibration import CalibrationReader, quiet
from streamkit.models.network import network_hash
from streamkit.models.network_file import short
from streamkit.models.onnx_graph import is_quantized, load_onnx, name_nodes, parts
from streamkit.models.onnxruntime_package import need_onnxruntime

logger = logging.getLogger(__name__)

_FORMAT = 2
"""Of converted networks in the user's folder."""
_F32_ONLY = frozenset({"GridSample"})
"""Operators that ONNX Runtime's CUDA provider has in f32 only (1.31): in f16 they run on the CPU, between copies."""
_LARGEST = 65504.0 / 2
"""Half of the largest f16 number: other frames may have larger values than those seen."""


@dataclass(frozen=True, slots=True)
class HalfFacts:
    """What was converted.

    Attributes:
        nodes: number of nodes of the network.
        tail: number of nodes behind the last layers, in f32.
        large: number of further nodes in f32 because of large values.
        without_kernel: number of further nodes in f32 because ONNX Runtime has no f16 kernel for a GPU.
        frames: number of frames in which values were looked at.
    """

    nodes: int
    tail: int
    large: int
    without_kernel: int
    frames: int

    def __str__(self) -> str:
        in_f32 = [f"the {self.tail} nodes behind the last layers"]
        if self.large:
            in_f32.append(f"{self.large} nodes with values above {_LARGEST:,.0f}")
        if self.without_kernel:
            in_f32.append(f"{self.without_kernel} nodes ({', '.join(sorted(_F32_ONLY))}) without a kernel in f16")
        converted = self.nodes - self.tail - self.large - self.without_kernel
        places = ", and ".join(in_f32)
        return f"{converted} of {self.nodes} nodes; in f32: {places} (largest values of {self.frames} frames)"


def write_f16(file: Path, out: Path, feeds: Iterable[Mapping[str, np.ndarray]]) -> HalfFacts:
    """Write a network's f16 version, with f16 images and f32 outputs.

    Args:
        file: the f32 network.
        out: the file to write.
        feeds: the inputs of frames, by name; read once.

    Raises:
        MissingPackage: `onnx` is not installed.
        ModelError: the network cannot be converted.
    """
    need_onnxruntime()
    model = load_onnx(file, "convert --f16")
    _check(model, file)
    import onnx

    name_nodes(model)
    reader = CalibrationReader(feeds)
    with _conversion_of(file):
        large = _with_large_values(model, reader)
        converted, facts = _converted(model, large, [tensor.name for tensor in model.graph.output])
        onnx.save(converted, out)
    return dataclasses.replace(facts, frames=reader.frames)


def f16_file(file: Path) -> Path:
    """Return a network that computes in f16, with the inputs and outputs of a file: itself, or a converted one.

    The converted one is kept in the user's folder; where that cannot be written, in a folder until the process ends.
    Nodes with values too large for f16 are not known.

    Raises:
        MissingPackage: `onnx` is not installed.
        ModelError: the network cannot be converted.
    """
    need_onnxruntime()
    cached = user_cache("networks", f"{network_hash(file)}-f16-{_FORMAT}.onnx")
    if cached.is_file():
        return cached
    model = load_onnx(file, "precision: f16")
    if _is_f16(model):
        return file
    _check(model, file)
    name_nodes(model)
    with _conversion_of(file):
        ends = [tensor.name for tensor in (*model.graph.input, *model.graph.output)]
        converted, _ = _converted(model, set(), ends)
        network = converted.SerializeToString()
    try:
        write_cache_file(cached, network)
    except OutputError as error:
        logger.warning(f"{file.name} is converted to f16 at each start: {error}")
        cached = Path(_temporary_folder().name, f"{file.stem}-{network_hash(file)[:24]}.onnx")
        cached.write_bytes(network)
    return cached


@functools.cache
def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a folder that is removed when the process ends."""
    return tempfile.TemporaryDirectory(prefix="streamkit-f16-")


@contextlib.contextmanager
def _conversion_of(file: Path) -> Iterator[None]:
    """Turn what the converter raises, from ValueError to ONNX Runtime's own errors, into a ModelError."""
    try:
        with quiet():
            yield
    except Exception as error:
        raise ModelError(f"{file.name} cannot be converted to f16: {short(error)}; keep the f32 network") from None


def _converted(model: Any, large: set[str], in_f32: list[str]) -> tuple[Any, HalfFacts]:
    """Return the network in f16, and what was converted.

    Args:
        model: the f32 network, whose nodes have names.
        large: names of nodes with large values.
        in_f32: names of inputs and outputs that stay in f32.
    """
    from onnxruntime.transformers.float16 import convert_float_to_float16

    tail = set(parts(model, products=True).tail)
    large = large - tail
    without_kernel = {node.name for node in model.graph.node if node.op_type in _F32_ONLY} - tail - large
    nodes = len(model.graph.node)
    converted = convert_float_to_float16(
        model, keep_io_types=in_f32, node_block_list=sorted(tail | large | without_kernel)
    )
    _remove_repeated_nodes(converted)
    _remove_round_trips(converted)
    return converted, HalfFacts(nodes, len(tail), len(large), len(without_kernel), 0)


def _is_f16(model: Any) -> bool:
    from onnx import TensorProto

    kinds = {tensor.data_type for tensor in model.graph.initializer}
    return TensorProto.FLOAT16 in kinds and TensorProto.FLOAT not in kinds


def _check(model: Any, file: Path) -> None:
    if is_quantized(file):
        raise ModelError(f"{file.name} is quantized; f16 is made from the float network it was made from")
    if _is_f16(model):
        raise ModelError(f"{file.name} is an f16 network already")


def _remove_repeated_nodes(model: Any) -> None:
    """Remove nodes whose outputs exist already, in place.

    The converter of onnxruntime-gpu 1.31 casts a tensor to f32 once for each f32 node that reads it, under one name.
    """
    outputs = set[str]()
    for node in list(model.graph.node):
        if outputs.issuperset(node.output):
            model.graph.node.remove(node)
        outputs.update(node.output)


def _remove_round_trips(model: Any) -> None:
    """Connect f32 nodes directly, in place: the converter rounds to f16 and back between any two of them."""
    from onnx import TensorProto

    graph = model.graph
    casts = {
        node.output[0]: (node.input[0], next(attribute.i for attribute in node.attribute if attribute.name == "to"))
        for node in graph.node
        if node.op_type == "Cast"
    }
    f32_results = _f32_results(graph, casts)
    for node in graph.node:
        rounded, to = casts.get(node.output[0], ("", 0))
        if to == TensorProto.FLOAT and rounded in casts:
            source, kind = casts[rounded]
            if kind == TensorProto.FLOAT16 and source in f32_results:
                del node.attribute[:]
                node.op_type = "Identity"
                node.input[0] = source
    read = {name for node in graph.node for name in node.input} | {output.name for output in graph.output}
    for node in [cast for cast in graph.node if cast.op_type == "Cast" and cast.output[0] not in read]:
        graph.node.remove(node)


def _f32_results(graph: Any, casts: Mapping[str, tuple[str, int]]) -> set[str]:
    """Return the tensors that the converter casts to f16 right after an f32 node; it names them so."""
    results = {name for node in graph.node for name in node.output}
    return {source for source, _ in casts.values() if source in results and source.endswith("_cast_to_fp16")}


def _with_large_values(model: Any, reader: CalibrationReader) -> set[str]:
    """Return the nodes that read or make a value too large for f16, on any of the frames."""
    import onnx
    from onnxruntime.quantization.calibrate import CalibrationMethod, create_calibrator

    with tempfile.TemporaryDirectory(prefix="streamkit-f16-") as folder:
        source = Path(folder) / "given.onnx"
        onnx.save(onnx.shape_inference.infer_shapes(model), source)
        calibrator = create_calibrator(
            source,
            augmented_model_path=str(Path(folder) / "augmented.onnx"),
            calibrate_method=CalibrationMethod.MinMax,
            extra_options={"symmetric": True},
        )
        calibrator.collect_data(reader)
        ranges = calibrator.compute_data()
        del calibrator  # closes its session before the folder goes
    large = {
        name for name, tensor_range in ranges.items() if float(np.max(np.abs(tensor_range.range_value))) > _LARGEST
    }
    return {node.name for node in model.graph.node if large & {*node.input, *node.output}}
