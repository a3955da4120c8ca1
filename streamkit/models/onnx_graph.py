# SPDX-License-Identifier: Apache-2.0
"""Reading and analysis of ONNX graphs with the package `onnx`, for the commands that write new networks."""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from pathlib import Path
from typing import Any

from streamkit.core.errors import ModelError, needs
from streamkit.models.file_version import FileVersion, file_version
from streamkit.models.network_file import short

MIN_OPSET = 13
"""The first opset whose DequantizeLinear has an axis, which weights per channel need."""
_QUANTIZED = (b"DequantizeLinear", b"QLinearConv", b"ConvInteger", b"MatMulInteger")
_CONVOLUTIONS = ("Conv", "ConvTranspose")
_PRODUCTS = ("MatMul", "Gemm")
_SAME_VALUES = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity")
"""Operators that only move values."""


def load_onnx(file: Path, why: str) -> Any:
    """Return a file's `onnx.ModelProto`; `why` is the command, for the message about a missing package.

    Raises:
        MissingPackage: `onnx` is not installed.
        ModelError: the file cannot be read.
    """
    with needs("onnx", "quantize", why):
        import onnx
    if not file.is_file():
        raise ModelError(f"there is no file {file}")
    try:
        return onnx.load(file)
    except Exception as error:  # Protobuf's and onnx's exceptions have no common base but Exception
        raise ModelError(f"{file} is not an ONNX model that can be read: {short(error)}") from None


def is_quantized(file: Path) -> bool:
    """Whether a file's network computes with integers; cached until the file changes. Needs no package."""
    return _is_quantized(file, file_version(file))


@functools.lru_cache(maxsize=64)
def _is_quantized(file: Path, version: FileVersion) -> bool:
    data = file.read_bytes()
    return any(operator in data for operator in _QUANTIZED)


def opset(model: Any) -> int:
    """Return the version of the standard operators."""
    return next((int(entry.version) for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 1)


def with_opset(model: Any, minimum: int, name: str) -> Any:
    """Return the model in the opset `minimum` or a later one.

    Raises:
        ModelError: an operator has no such version.
    """
    from onnx import version_converter

    version = opset(model)
    if version >= minimum:
        return model
    try:
        return version_converter.convert_version(model, minimum)
    except Exception as error:  # a RuntimeError of C++, or a ConvertError
        raise ModelError(
            f"{name} has opset {version}, int8 needs {minimum}, and onnx cannot convert it: {short(error)}; export the "
            f"network again with opset {minimum} or later"
        ) from None


def name_nodes(model: Any) -> None:
    """Give every node a unique name, in place."""
    taken = set[str]()
    for number, node in enumerate(model.graph.node):
        if not node.name or node.name in taken:
            node.name = f"{node.op_type}_{number}"
        taken.add(node.name)


@dataclasses.dataclass(frozen=True, slots=True)
class NetworkParts:
    """The nodes of a network by their place, as names.

    Attributes:
        body: layers whose results other layers read.
        last: layers whose results no other one reads: those that predict.
        tail: the nodes behind the last layers, which decode what these predict.
    """

    body: list[str]
    last: list[str]
    tail: list[str]


def parts(model: Any, *, products: bool = False) -> NetworkParts:
    """Split a network at its last layers.

    A node belongs to the tail if no layer reads what comes of it. A convolution of a softmax is no layer: it computes
    the mean of a distribution, as in the box decoding of YOLOv8 (Distribution Focal Loss).

    Args:
        model: an `onnx.ModelProto` whose nodes are in topological order, as the format requires, and have names.
        products: whether matrix products with weights are layers, like convolutions.
    """
    nodes = list(model.graph.node)
    producers = {output: node for node in nodes for output in node.output}
    weights = {initializer.name for initializer in model.graph.initializer}
    readers = defaultdict[str, list[Any]](list)
    for node in nodes:
        for name in node.input:
            readers[name].append(node)

    def is_layer(node: Any) -> bool:
        if node.op_type in _CONVOLUTIONS:
            return not _reads_softmax(node, producers)
        return products and node.op_type in _PRODUCTS and any(name in weights for name in node.input[:2])

    layers = {node.name for node in nodes if is_layer(node)}
    before = dict[str, bool]()  # whether a layer reads what comes of a node
    for node in reversed(nodes):
        following = (reader.name for output in node.output for reader in readers[output])
        before[node.name] = any(name in layers or before[name] for name in following)
    return NetworkParts(
        body=[node.name for node in nodes if node.name in layers and before[node.name]],
        last=[node.name for node in nodes if node.name in layers and not before[node.name]],
        tail=[node.name for node in nodes if node.name not in layers and not before[node.name]],
    )


def _reads_softmax(node: Any, producers: dict[str, Any]) -> bool:
    source = producers.get(node.input[0])
    while source is not None and source.op_type in _SAME_VALUES:
        source = producers.get(source.input[0])
    return source is not None and source.op_type == "Softmax"
