# SPDX-License-Identifier: Apache-2.0
"""Simplified networks on disk: to simplify one takes ONNX Runtime a second, and each process that begins needs it."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path

from streamkit.core.errors import OutputError
from streamkit.core.user_cache import user_cache
from streamkit.engine.graph import OnnxGraph, Shape, read_network
from streamkit.io.outputs import write_cache_file
from streamkit.models.network import network_hash
from streamkit.models.onnxruntime_package import need_onnxruntime

logger = logging.getLogger(__name__)

_FORMAT = 1
_DIGEST_BYTES = hashlib.sha256().digest_size


class SimplifiedNetwork:
    """The file of a network that `engine.graph.simplify` has simplified: its SHA-256, and the ONNX network.

    Args:
        network: the original file.
        shapes: of all inputs.
    """

    def __init__(self, network: Path, shapes: Mapping[str, Shape]) -> None:
        key = json.dumps([_FORMAT, network_hash(network), sorted(shapes.items()), need_onnxruntime().__version__])
        self._file = user_cache("simplified", f"{network.stem}-{hashlib.sha256(key.encode()).hexdigest()[:24]}.bin")

    def read(self) -> OnnxGraph | None:
        """Return the graph; None if there is no such file, or it is damaged."""
        try:
            content = self._file.read_bytes()
        except OSError:
            return None
        digest = content[:_DIGEST_BYTES]
        network = content[_DIGEST_BYTES:]
        if hashlib.sha256(network).digest() != digest:
            logger.warning(f"{self._file} is damaged: the network is simplified again")
            return None
        return read_network(network)

    def write(self, network: bytes) -> None:
        """Keep a serialized network. If it cannot be written, the next process simplifies it again."""
        try:
            write_cache_file(self._file, hashlib.sha256(network).digest() + network)
        except OutputError as error:
            logger.debug(f"a simplified network is not kept: {error}")
