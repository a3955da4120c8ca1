# SPDX-License-Identifier: Apache-2.0
"""Networks that were exported for one image at a time, changed to take any number of images."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from streamkit.core.errors import OutputError
from streamkit.core.text import install_command
from streamkit.io.outputs import write_cache_file
from streamkit.models.arithmetic import has_onnx
from streamkit.models.card import Card, downloaded_network
from streamkit.models.network_file import inspect, short
from streamkit.models.onnx_graph import load_onnx
from streamkit.models.onnxruntime_package import need_onnxruntime

logger = logging.getLogger(__name__)

_SUFFIX = "-batches.onnx"
_TOLERANCE = 1e-4
"""Largest difference of an output of the changed network, absolute and relative: sums in another order differ less."""
_IMAGES = 3


def with_batches(file: Path) -> Path:
    """Return a network like `file` that takes any number of images, beside it; `file` if there is none.

    It is made once, where `onnx` is installed, and compared with the original on random images.

    Args:
        file: a network in a folder that can be written.
    """
    changed = _path(file)
    if changed.is_file():
        return changed
    slower = f"{file.name} takes one image at a time, and so it runs: the results are the same, it is slower"
    try:
        if inspect(file).batch != 1:
            return file
        if not has_onnx():
            logger.info(f"{slower}. To let it take several, install onnx: {install_command('quantize')}")
            return file
        network = _changed(load_onnx(file, "a dynamic batch"))
        difference = _difference(file.read_bytes(), network)
        if difference <= _TOLERANCE:
            write_cache_file(changed, network)
            return changed
        logger.info(f"{slower} (changed to take several, its outputs differ by {difference:.1e})")
    except OutputError as error:
        logger.info(f"{slower} ({error})")
    except Exception as error:  # those of ONNX Runtime, Protobuf and onnx have no common base but Exception
        logger.info(f"{slower} (it cannot be changed to take several: {short(error)})")
    return file


def for_batches(card: Card) -> Card:
    """Return the card with the network that `with_batches` has made of the downloaded one, if it has made one."""
    changed = _path(card.file)
    is_downloaded = card.file == downloaded_network(card.name, card.sha256)
    return card.with_file(changed) if is_downloaded and changed.is_file() else card


def _path(file: Path) -> Path:
    return file.with_name(f"{file.stem}{_SUFFIX}")


def _changed(model: Any) -> bytes:
    """Return the network with an open first dimension of its inputs and outputs.

    Reshapes to a constant shape that begins with 1 begin with 0 then, which stands for the dimension of their input.
    """
    from onnx import numpy_helper

    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    shapes = {node.input[1] for node in model.graph.node if node.op_type == "Reshape"}
    for name in shapes & constants.keys():
        shape = numpy_helper.to_array(constants[name])
        if shape.ndim == 1 and len(shape) and shape[0] == 1:
            open_shape = np.concatenate([[0], shape[1:]]).astype(shape.dtype)
            constants[name].CopyFrom(numpy_helper.from_array(open_shape, name))
    for tensor in (*model.graph.input, *model.graph.output):
        first = tensor.type.tensor_type.shape.dim[0]
        first.Clear()
        first.dim_param = "N"
    del model.graph.value_info[:]  # shapes of the fixed batch
    return bytes(model.SerializeToString())


def _difference(original: bytes, changed: bytes) -> float:
    """Return the largest difference of an output between images one by one and all of them at once."""
    ort = need_onnxruntime()
    options = ort.SessionOptions()
    options.log_severity_level = 4
    single, several = (
        ort.InferenceSession(network, options, ["CPUExecutionProvider"]) for network in (original, changed)
    )
    random = np.random.default_rng(0)
    feeds = {node.name: _values(random, node, _IMAGES) for node in single.get_inputs()}
    outputs = several.run(None, feeds)
    rows = [single.run(None, _row(feeds, row)) for row in range(_IMAGES)]
    differences = [0.0]
    for together, *separate in zip(outputs, *rows, strict=True):
        expected = np.concatenate(separate)
        if together.shape != expected.shape:
            return float("inf")
        relative = np.abs(together - expected) / np.maximum(1, np.abs(expected))
        differences.append(float(relative.max(initial=0.0)))
    return max(differences)


def _row(feeds: Mapping[str, np.ndarray], row: int) -> dict[str, np.ndarray]:
    return {name: feed[row : row + 1] for name, feed in feeds.items()}


def _values(random: np.random.Generator, node: Any, images: int) -> np.ndarray:
    """Return random images for an input with a fixed shape."""
    values = random.uniform(0, 255, (images, *node.shape[1:]))
    return values.astype(np.uint8 if node.type == "tensor(uint8)" else np.float32)
