# SPDX-License-Identifier: Apache-2.0
"""Networks with the old operator `Upsample`, which ONNX Runtime computes differently on the CPU and on a GPU.

The operator (ONNX operator sets 7 to 9) takes pixel x / scale of its input. The CUDA provider rounds a non-integer
scale up, which shifts all of the output; both providers compute its successor, `Resize`, alike.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from streamkit.core.errors import ModelError
from streamkit.models.file_version import FileVersion, file_version

_OPERATOR = b"\x22\x08Upsample"  # field 4 of a node, its operator: a text of 8 bytes


def for_cuda(file: Path) -> Path | bytes:
    """Return the file, or its network with `Resize` instead of `Upsample`, for a session on a GPU.

    Raises:
        ModelError: it has the operator, and the package `onnx`, which rewrites it, is not installed.
    """
    return _rewritten(file, file_version(file)) or file


@lru_cache(maxsize=2)  # a network has a session for each batch size
def _rewritten(file: Path, version: FileVersion) -> bytes | None:
    """Return the network with `Resize`, or None if there is nothing to replace."""
    if _OPERATOR not in file.read_bytes():
        return None
    try:
        import onnx
        from onnx import helper, version_converter
    except ImportError:
        raise ModelError(
            f"{file.name} has the operator Upsample, whose results on a GPU differ from the CPU's; the package onnx, "
            "which replaces it with Resize on loading, is missing: pip install onnx"
        ) from None
    model = version_converter.convert_version(onnx.load(file), 11)
    for node in model.graph.node:
        if node.op_type == "Resize":  # each was an Upsample: before operator set 10 there is no Resize
            node.attribute.append(helper.make_attribute("coordinate_transformation_mode", "asymmetric"))
            node.attribute.append(helper.make_attribute("nearest_mode", "floor"))
    return bytes(model.SerializeToString())
