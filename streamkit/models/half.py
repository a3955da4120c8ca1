# SPDX-License-Identifier: Apache-2.0
"""f16 networks for a GPU, by ONNX Runtime's converter.

Images go in as f16. The nodes behind the last layer and all outputs stay in f32: f16 has 11 bits, half a pixel at 640.
Nodes whose values come near the largest f16 number on real frames stay in f32 too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamkit.core.errors import ModelError
from streamkit.models.calibration import CalibrationReader, quiet
from streamkit.models.network_file import short
from streamkit.models.onnx_graph import is_quantized, load_onnx, name_nodes, parts
from streamkit.models.onnxruntime_package import need_onnxruntime

_LARGEST = 65504.0 / 2
"""Half of the largest f16 number: other frames may have larger values than those seen."""


@dataclass(frozen=True, slots=True)
class HalfFacts:
    """What was converted.

    Attributes:
        nodes: number of nodes of the network.
        tail: number of nodes behind the last layers, in f32.
        large: number of further nodes in f32 because of large values.
        frames: number of frames in which values were looked at.
    """

    nodes: int
    tail: int
    large: int
    frames: int

    def __str__(self) -> str:
        large = f", and {self.large} nodes with values above {_LARGEST:,.0f}" if self.large else ""
        return (
            f"{self.nodes - self.tail - self.large} of {self.nodes} nodes; in f32: the {self.tail} nodes behind the "
            f"last layers{large} (largest values of {self.frames} frames)"
        )


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
    from onnxruntime.transformers.float16 import convert_float_to_float16

    name_nodes(model)
    tail = set(parts(model, products=True).tail)
    reader = CalibrationReader(feeds)
    try:
        with quiet():
            large = _with_large_values(model, reader) - tail
            made = convert_float_to_float16(
                model, keep_io_types=[one.name for one in model.graph.output], node_block_list=sorted(tail | large)
            )
            _remove_round_trips(made)
            onnx.save(made, out)
    except Exception as error:  # the converter raises anything, from ValueError to ONNX Runtime's own
        raise ModelError(f"{file.name} cannot be converted to f16: {short(error)}; keep the f32 network") from None
    return HalfFacts(len(tail) + _others(model, tail), len(tail), len(large), reader.frames)


def _others(model: Any, tail: set[str]) -> int:
    return sum(node.name not in tail for node in model.graph.node)


def _check(model: Any, file: Path) -> None:
    from onnx import TensorProto

    if is_quantized(file):
        raise ModelError(f"{file.name} is quantised; f16 is made from the float network it was made from")
    floats = {one.data_type for one in model.graph.initializer}
    if TensorProto.FLOAT16 in floats and TensorProto.FLOAT not in floats:
        raise ModelError(f"{file.name} is an f16 network already")


def _remove_round_trips(model: Any) -> None:
    """Connect f32 nodes directly, in place: the converter rounds to f16 and back between any two of them."""
    from onnx import TensorProto

    graph = model.graph
    casts = {
        node.output[0]: (node.input[0], next(one.i for one in node.attribute if one.name == "to"))
        for node in graph.node
        if node.op_type == "Cast"
    }
    made = _f32_results(graph, casts)
    for node in graph.node:
        rounded, to = casts.get(node.output[0], ("", 0))
        if to == TensorProto.FLOAT and rounded in casts:
            source, kind = casts[rounded]
            if kind == TensorProto.FLOAT16 and source in made:
                del node.attribute[:]
                node.op_type, node.input[0] = "Identity", source
    read = {name for node in graph.node for name in node.input} | {one.name for one in graph.output}
    for node in [one for one in graph.node if one.op_type == "Cast" and one.output[0] not in read]:
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
        given = Path(folder) / "given.onnx"
        onnx.save(onnx.shape_inference.infer_shapes(model), given)
        calibrator = create_calibrator(
            given,
            augmented_model_path=str(Path(folder) / "augmented.onnx"),
            calibrate_method=CalibrationMethod.MinMax,
            extra_options={"symmetric": True},
        )
        calibrator.collect_data(reader)
        ranges = calibrator.compute_data()
        del calibrator  # closes its session before the folder goes
    large = {name for name, one in ranges.items() if float(np.max(np.abs(one.range_value))) > _LARGEST}
    return {node.name for node in model.graph.node if large & {*node.input, *node.output}}
