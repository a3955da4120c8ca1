# SPDX-License-Identifier: Apache-2.0
"""An ONNX Runtime session on a GPU: inputs and outputs bound by device address, and safe destruction."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from streamkit.core.data import Array
from streamkit.models.network_file import ModelInfo
from streamkit.ops import traffic

_DRAIN_EVERY = 1024  # runs

# Streams of sessions that are not drained. The objects of a garbage cycle are finalized in any order: without this
# reference, a stream could be destroyed before its session's last run.
_streams: dict[int, Any] = {}


class IoBinding:
    """Runs a session with inputs and outputs bound by device address, on one CUDA stream.

    ONNX Runtime keeps small host buffers for work in flight. In version 1.27, if no run waits for completion, they
    accumulate until the session is destroyed, are then freed in a CUDA callback, and the process crashes (cudaFreeHost
    returns 800, not permitted in a callback). Therefore every 1,024 runs, and before destruction, a run waits: see
    `drain`.
    """

    def __init__(self, session: Any, info: ModelInfo, index: int) -> None:
        import cupy

        self.binding = session.io_binding()  # first, so that it is released before the session
        self.session = session
        self.info = info
        self.index = index
        self.stream = cupy.cuda.get_current_stream()
        _streams[id(self)] = self.stream
        self.options = _run_options()
        self._waiting = _run_options(wait=True)
        self._runs = 0  # since the last that waited
        self._last_feeds = dict[str, tuple[tuple[int, ...], Any]]()

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """See `Session.run`; the outputs are complete once the stream reaches this point."""
        import cupy

        if cupy.cuda.get_current_stream().ptr != self.stream.ptr:
            raise ValueError(
                "this session belongs to another CUDA stream: run it with the stream that it was created with"
            )
        return self._run({name: self._on_device(name, feeds[name]) for name in self.info.inputs})

    def warm(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run these shapes and wait; return the outputs."""
        outputs = self.run(feeds)
        self.stream.synchronize()
        return outputs

    def drain(self) -> None:
        """Wait for the stream, and make ONNX Runtime free its buffers for work in flight, by a run that waits."""
        import cupy

        if self._runs:
            with cupy.cuda.Device(self.index), self.stream:
                self._runs = _DRAIN_EVERY
                self._run({name: cupy.zeros(*like) for name, like in self._last_feeds.items()})
        self.stream.synchronize()

    def __del__(self) -> None:
        if not sys.is_finalizing():
            with contextlib.suppress(Exception):  # a failed device has no work in flight
                self.drain()
            _streams.pop(id(self), None)

    def _on_device(self, name: str, feed: Array) -> Array:
        import cupy

        if not isinstance(feed, cupy.ndarray):
            if name == self.info.image_input:
                raise ValueError(f"the images must be on cuda:{self.index}; they are on the host")
            traffic.sent(feed.nbytes)
            return cupy.asarray(feed)
        if not feed.flags.c_contiguous:
            raise ValueError(f"the network's input {name!r} must be C-contiguous")
        return feed

    def _run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run once. Outputs with a known shape go to arrays of CuPy's pool, others to ONNX Runtime's arena."""
        import cupy

        sizes = self._sizes(feeds)
        outputs: dict[str, Array] = {}
        for name, info in self.info.outputs.items():
            shape = [sizes.get(dim) if isinstance(dim, str) else dim for dim in info.dims]
            if None not in shape and 0 not in shape:
                outputs[name] = cupy.empty(shape, info.dtype)
        self.bind(self.binding, feeds, outputs)
        self._runs += 1
        waits = self._runs > _DRAIN_EVERY
        self.session.run_with_iobinding(self.binding, self._waiting if waits else self.options)
        if waits or not self._last_feeds:
            self._runs = 0 if waits else 1
            self._last_feeds = {name: (feed.shape, feed.dtype) for name, feed in feeds.items()}
        if len(outputs) < len(self.info.outputs):
            values = dict(zip(self.info.outputs, self.binding.get_outputs(), strict=True))
            for name in values.keys() - outputs.keys():
                outputs[name] = self._adopt(values[name], self.info.outputs[name].dtype)
            self.binding.clear_binding_outputs()
        return {name: outputs[name] for name in self.info.outputs}

    def bind(self, binding: Any, feeds: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        """Bind all inputs, and all outputs: to `outputs`, or to memory that ONNX Runtime allocates."""
        for name, feed in feeds.items():
            binding.bind_input(name, "cuda", self.index, self.info.inputs[name].dtype.type, feed.shape, feed.data.ptr)
        for name, info in self.info.outputs.items():
            if name in outputs:
                array = outputs[name]
                binding.bind_output(name, "cuda", self.index, info.dtype.type, array.shape, array.data.ptr)
            else:
                binding.bind_output(name, "cuda", self.index)

    def _sizes(self, feeds: Mapping[str, Array]) -> dict[str, int]:
        """Return the size of every named dimension of the inputs."""
        pairs = ((self.info.inputs[name].dims, feed.shape) for name, feed in feeds.items())
        return {dim: n for dims, shape in pairs for dim, n in zip(dims, shape, strict=True) if isinstance(dim, str)}

    def _adopt(self, value: Any, dtype: np.dtype[Any]) -> Array:
        """Wrap an output that ONNX Runtime allocated as a CuPy array, which keeps it alive."""
        import cupy

        shape = tuple(value.shape())
        bytes_ = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if not bytes_:
            return cupy.empty(shape, dtype)
        memory = cupy.cuda.UnownedMemory(value.data_ptr(), bytes_, value, self.index)
        return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0))


def _run_options(*, wait: bool = False) -> Any:
    """ONNX Runtime's options of a run: whether it waits for its completion."""
    import onnxruntime as ort

    options = ort.RunOptions()
    if not wait:
        options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    return options
