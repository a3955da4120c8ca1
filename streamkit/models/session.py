# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime session: one network on one device, always run from one thread and on one CUDA stream.

On a GPU nothing is copied to the host: inputs and outputs are bound by device address (IO binding), ONNX Runtime works
on the CUDA stream that was current when the session was made, and a run returns before the GPU has finished it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from weakref import WeakValueDictionary

import numpy as np

from streamkit.core.crops import dense
from streamkit.core.data import Array, Device, array_module
from streamkit.engine.errors import EngineError
from streamkit.models.arithmetic import F32, Arithmetic
from streamkit.models.file_version import file_version
from streamkit.models.half import f16_file
from streamkit.models.io_binding import IoBinding
from streamkit.models.layer_check import LayerCheck
from streamkit.models.network_file import inspect, not_run
from streamkit.models.network_rate import NetworkRate
from streamkit.models.providers import nodes_by_provider, open_session, provider_options
from streamkit.models.shared_inputs import SharedInputs
from streamkit.models.tensorrt import tensorrt_options

if TYPE_CHECKING:
    from streamkit.models.fused import FusedEngine, FusedNetwork

P = ParamSpec("P")
T = TypeVar("T")

_cpu_sessions: WeakValueDictionary[Any, Any] = WeakValueDictionary()


class Session:
    """One network, ready to run on one device.

    Attributes:
        info: inputs and outputs of the file.
        inputs, outputs, image_input, layout, dtype: shortcuts to `info`.
        fixed_batch: the only batch size that the file supports; None for any. `run` then splits a batch into several
            steps, which is slower: the caller should log that once.
        arithmetic: how a GPU computes the network.
        nodes: number of the nodes that ONNX Runtime runs, by the names of its providers. Under `device: cuda`, any on
            the CPU provider mean copies between host and device within the network.
        fused_share: of the network's multiply-adds, that of the fused engine, 0 to 1, once it is warm.
    """

    def __init__(
        self,
        file: Path,
        device: Device,
        *,
        arithmetic: Arithmetic = F32,
        threads: int = 1,
        quick: bool = False,
        batch_sizes: Sequence[int] = (),
        size: tuple[int, int] | None = None,
        shared: SharedInputs | None = None,
        ignore_outputs: Collection[str] = (),
        frames: int | None = None,
    ) -> None:
        """Load the network.

        Args:
            file: the ONNX file.
            device: where it runs. For a GPU, create the session while that GPU and a separate CuPy stream are current,
                and run it only on that stream and thread.
            arithmetic: how a GPU computes it. The CPU computes in f32. An f16 network is computed in f16.
            threads: CPU threads for one run.
            quick: on a GPU, warm in a tenth of the time but run slowly, to bridge the tuning of another session.
                Batches run in steps of the smallest size, each waited for.
            batch_sizes: the batch sizes that will occur: TensorRT builds one engine for all of them. Other engines do
                not need them.
            size: width and height of the images, likewise.
            shared: inputs beside the images that `run` takes if it is given no others.
            ignore_outputs: names of outputs that `info` and `run` leave out.
            frames: number of frames of a clip, for a network that takes clips and leaves it open.

        Raises:
            ModelError: the file cannot be used.
            DeviceError: a provider did not load; has the reason and the fix.
        """
        self.info = inspect(file).without_outputs(ignore_outputs)
        self.device = device
        self.arithmetic = arithmetic
        self.inputs = self.info.inputs
        self.outputs = self.info.outputs
        self.image_input = self.info.image_input
        self.layout = self.info.layout
        self.dtype = self.info.dtype
        self.fixed_batch = self.info.batch
        self.nodes: dict[str, int] = {}
        self.fused_share = 0.0
        self._threads = threads
        self._quick = quick
        self._step = self.fixed_batch
        self._frames = frames
        self._constants = shared or SharedInputs()
        self._single_engine = arithmetic.engine == "tensorrt" and device.kind == "cuda"
        self._by_batch: dict[int, IoBinding | FusedNetwork] = {}
        self._pads = True
        self._stream = _current_stream(device) if device.kind == "cuda" else 0
        self._gpu: IoBinding | None = None
        self._engine: FusedEngine | None = None
        if device.kind == "cuda" and arithmetic.engine == "fused":
            from streamkit.models.fused import FusedEngine  # on a GPU only: it imports the whole engine

            self._engine = FusedEngine(self.info, self._part_opener())
            return
        self._open = self._opener(file, batch_sizes, size)
        self._session = self._shared(file, threads) if device.kind == "cpu" else self._open()
        self.nodes = nodes_by_provider(self._session)
        if device.kind == "cuda":
            self._gpu = self._bind(self._session)

    def run(self, feeds: Mapping[str, Array], shared: SharedInputs | None = None) -> dict[str, Array]:
        """Run a batch.

        Args:
            feeds: every input by name, C-contiguous and of the file's dtype; names that the network lacks are ignored.
                On a GPU the images must be on the device, or `LazyRows` that are created there; a small extra input
                may be on the host and is copied.
            shared: the inputs that all images share; by default those of the constructor.

        Returns:
            Every output by name, on the session's device. On a GPU they are complete once the session's stream reaches
            this point.

        Raises:
            ValueError: an input is missing, or has the wrong dtype or rank; or the batch runs in steps, and an output
                has no row for each image.
        """
        shared = self._constants if shared is None else shared
        feeds = self._checked(feeds, shared)
        rows = len(feeds[self.image_input])
        step = self._step_of(rows)
        if step is None or (rows == step and not self._quick):
            return self._run({**feeds, **shared.of(rows)})
        parts = []
        for first in range(0, rows, step):
            part = {name: _rows(feed, first, step) if len(feed) == rows else feed for name, feed in feeds.items()}
            parts.append(self._run({**part, **shared.of(step)}))
            if self._quick and self._gpu is not None:  # another session's CUDA calls would wait for all queued work
                self._gpu.stream.synchronize()
        xp = self.device.xp
        for name, part in parts[0].items():
            if len(part) != step:
                raise ValueError(f"the network's output {name!r} has no row for each image: use batches of {step}")
        return {name: xp.concatenate([part[name] for part in parts])[:rows] for name in self.outputs}

    def warm(
        self, batch_sizes: Sequence[int], size: tuple[int, int], dropped: Callable[[], bool] = lambda: False
    ) -> dict[str, tuple[int, ...]]:
        """Run every batch size once, the largest first, so that no later run waits for tuning or allocation.

        Sizes that were warmed before are skipped. Another thread may warm further sizes on the same stream while the
        session runs.

        On a GPU each size gets a separate ONNX Runtime session with its own weights: a session caches cuDNN's plans
        only for the shape it ran last, and making them again takes seconds. TensorRT's engine is for all sizes, so they
        share a session. The CPU needs no tuning: there, only the smallest size is run, to detect a broken network
        before the first frame.

        Args:
            batch_sizes: all sizes that will occur.
            size: width, height of the images.
            dropped: called before each size but the first; if it returns true, the rest are skipped.

        Returns:
            The shape of each output in the last run: a file may leave shapes open.

        Raises:
            ModelError: on the CPU, the network fails on images of this size.
            EngineError: the fused engine cannot run the network; has the reason.
        """
        outputs: dict[str, Array] = {}
        sizes = {self.fixed_batch} if self.fixed_batch is not None else set(batch_sizes)
        if self._quick:
            self._step = min(sizes)
            sizes = {self._step}
        binds = self._gpu is not None or self._engine is not None
        order = sorted(sizes, reverse=True) if binds else [min(sizes)]
        for batch in order:
            if batch in self._by_batch:
                continue
            if self._by_batch and dropped():
                break
            feeds = self._zeros(batch, size)
            if binds:
                bound = self._bound(batch, size)
                outputs = bound.warm(feeds)
                self._pads = self._pads and all(array.ndim and len(array) == batch for array in outputs.values())
                self._by_batch[batch] = bound
            else:
                try:
                    outputs = self._run(feeds)
                except Exception as error:  # ONNX Runtime's exceptions have no common base but Exception
                    clip = self.info.clip
                    frames = None if clip is None else clip.count(self._frames)
                    raise not_run(self.info.file, size, error, frames) from None
        return {name: output.shape for name, output in outputs.items()}

    def measure(self, batch: int, size: tuple[int, int], runs: int = 3) -> NetworkRate:
        """Return the rate of a warm batch size on a GPU, from the fastest of some runs on random images.

        Args:
            batch: images in a run.
            size: width, height of the images.
            runs: how many.
        """
        xp = self.device.xp
        feeds = self._zeros(batch, size)
        images = feeds[self.image_input]
        # NumPy's, since importing CuPy's random numbers takes longer than the measurement
        pixels = np.random.default_rng(0).random(images.shape[1:], np.float32) * (255 if self.dtype == "u8" else 1)
        images[...] = xp.asarray(pixels.astype(images.dtype))
        times_s = []
        for _ in range(runs):
            start = xp.cuda.Event()
            end = xp.cuda.Event()
            start.record()
            start_s = time.perf_counter()
            self._run(feeds)
            queued_s = time.perf_counter() - start_s
            end.record()
            end.synchronize()
            times_s.append((float(xp.cuda.get_elapsed_time(start, end)) / 1000, queued_s))
        run_s, queued_s = min(times_s)
        return NetworkRate(batch / run_s, batch, round(queued_s / run_s, 3))

    def large_tensors(self, feeds: Mapping[str, Array]) -> tuple[str, ...]:
        """Return the tensors of the fused engine with values too large for f16; none in other engines.

        Args:
            feeds: as for `run`.
        """
        network, warm_feeds = self._fused(feeds)
        return () if network is None else network.large_tensors(warm_feeds)

    def check_layers(self, feeds: Mapping[str, Array]) -> LayerCheck | None:
        """Compare each tensor of the fused engine with f32 on the CPU; None in other engines.

        Args:
            feeds: as for `run`.
        """
        network, warm_feeds = self._fused(feeds)
        return None if network is None else network.check_layers(warm_feeds)

    @property
    def outside(self) -> frozenset[str]:
        """The tensors that do not pass through f16 in the fused engine."""
        networks = [network for network in self._by_batch.values() if not isinstance(network, IoBinding)]
        return networks[0].outside if networks else frozenset()

    def _fused(self, feeds: Mapping[str, Array]) -> tuple[FusedNetwork | None, dict[str, Array]]:
        """Return the fused network that runs these images, and its first inputs for them, padded as a run is."""
        checked = {name: dense(feed) for name, feed in self._checked(feeds, self._constants).items()}
        rows = len(checked[self.image_input])
        step = self._step_of(rows)
        if step is not None and step != rows:
            checked = {name: _rows(feed, 0, step) if len(feed) == rows else feed for name, feed in checked.items()}
        network = self._by_batch.get(step or rows)
        return (None if isinstance(network, IoBinding) else network), checked

    def _zeros(self, batch: int, size: tuple[int, int]) -> dict[str, Array]:
        """Return inputs of a batch for a first run."""
        shared = self._constants.of(batch)
        return {
            name: shared[name] if name in shared else self.device.xp.zeros(self._shape(name, batch, size), tensor.dtype)
            for name, tensor in self.inputs.items()
        }

    def _bound(self, batch: int, size: tuple[int, int]) -> IoBinding | FusedNetwork:
        """Return what runs batches of this size on the GPU."""
        if self._engine is not None:
            if self._constants.arrays:
                raise EngineError("it takes prompts, whose number changes its shapes")
            shapes = {name: self._shape(name, batch, size) for name in self.inputs}
            network = self._engine.network(shapes)
            self.nodes = network.nodes
            self.fused_share = network.share
            return network
        assert self._gpu is not None
        return self._bind(self._open()) if self._by_batch and not self._single_engine else self._gpu

    def _opener(self, file: Path, batch_sizes: Sequence[int], size: tuple[int, int] | None) -> Callable[[], Any]:
        """Return what opens an ONNX Runtime session of the whole network.

        It has no reference to this session, which must be freed where its last reference goes: garbage collection runs
        on any thread, and in the last moments of a process, when a stream can no longer be waited for.
        """
        if self.device.kind == "cpu":
            return partial(open_session, file, ("cpu",), provider_options(("cpu",), self.device, 0), self._threads)
        precision = self.arithmetic.precision
        names: tuple[str, ...] = ("cuda", "cpu")
        tensorrt = None
        if self._single_engine:
            names = ("tensorrt", "cuda", "cpu")
            tensorrt = tensorrt_options(self.info, precision == "f16", self._profile(batch_sizes, size))
        elif precision == "f16":
            file = f16_file(file)
        options = provider_options(names, self.device, self._stream, precision != "f32", self._quick, tensorrt)
        return partial(open_session, file, names, options, self._threads)

    def _part_opener(self) -> Callable[[bytes], Any]:
        """Return what opens an ONNX Runtime session for a part of the network, on the session's stream."""
        names = ("cuda", "cpu")
        options = provider_options(names, self.device, self._stream, tf32=True)
        return partial(open_session, self.info.file, names, options, self._threads)

    def _shared(self, file: Path, threads: int) -> Any:
        """Return the ONNX Runtime session shared by all users of this file on the CPU, so they share its weights."""
        key = (file, file_version(file), threads)
        session = _cpu_sessions.get(key)
        if session is None:
            session = _cpu_sessions[key] = self._open()
        return session

    def _bind(self, session: Any) -> IoBinding:
        return IoBinding(session, self.info, self.device.index)

    def _profile(self, batch_sizes: Sequence[int], size: tuple[int, int] | None) -> dict[str, Any] | None:
        """Return the least, usual and largest shape of each input with open dimensions; None if not known or fixed."""
        size = size or self.info.size
        if not batch_sizes or size is None or self.fixed_batch is not None:
            return None
        batches = min(batch_sizes), max(batch_sizes), max(batch_sizes)
        return {
            name: tuple(self._shape(name, batch, size) for batch in batches)
            for name, network_input in self.inputs.items()
            if None in network_input.shape
        }

    def _shape(self, name: str, batch: int, size: tuple[int, int]) -> tuple[int, ...]:
        if name in self._constants.arrays:
            return tuple(self._constants.of(batch)[name].shape)
        if name == self.image_input:
            return self.info.image_shape(batch, size, self._frames)
        shape = self.inputs[name].shape
        return tuple((batch if i == 0 else 1) if n is None else n for i, n in enumerate(shape))

    def is_warm(self, rows: int) -> bool:
        """Whether this batch size was warmed on a GPU, or runs in steps of one that was."""
        return self._step is not None or rows in self._by_batch

    def _step_of(self, rows: int) -> int | None:
        """The batch size in whose steps so many rows run; None for a run of exactly these rows.

        Rows of another size than those warmed are padded: cuDNN's plans for it would take seconds. Without a row of
        each output for each image, a batch can neither be padded nor split.
        """
        if self._quick and not self._pads and self.fixed_batch is None:
            return None
        if self._step is not None or not self._by_batch or self._single_engine or rows in self._by_batch:
            return self._step
        warmed = sorted(self._by_batch)
        return next((size for size in warmed if size >= rows), warmed[-1]) if rows and self._pads else None

    def _run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        rows = len(feeds[self.image_input])
        bound = self._by_batch.get(rows) or self._gpu
        if bound is None and self._engine is not None:  # it has a program for each batch size
            height, width = feeds[self.image_input].shape[slice(-2, None) if self.layout == "nchw" else slice(-3, -1)]
            bound = self._by_batch[rows] = self._bound(rows, (width, height))
        if bound is not None and not isinstance(bound, IoBinding):
            return bound.run(feeds)
        feeds = {name: dense(feed) for name, feed in feeds.items()}
        if bound is not None:
            return bound.run(feeds)
        return dict(zip(self.outputs, self._session.run(list(self.outputs), dict(feeds)), strict=True))

    def _checked(self, feeds: Mapping[str, Array], shared: SharedInputs) -> dict[str, Array]:
        for name, info in self.inputs.items():
            arrays = shared.arrays if name in shared.arrays else feeds
            if name not in arrays:
                raise ValueError(f"the network's input {name!r} is missing; given: {', '.join(feeds)}")
            feed = arrays[name]
            if feed.dtype != info.dtype or len(feed.shape) != len(info.dims):
                raise ValueError(
                    f"the network's input {name!r} is {info.dtype}{list(info.dims)}, got {feed.dtype}{list(feed.shape)}"
                )
        return {name: feeds[name] for name in self.inputs if name not in shared.arrays}


def _rows(feed: Array, first: int, step: int) -> Array:
    """Return `step` rows starting at `first`, padded by repeating the last row."""
    part = feed[first : first + step]
    missing = step - len(part)
    if not missing:
        return part
    xp = array_module(part)
    return xp.concatenate([part, xp.repeat(part[-1:], missing, axis=0)])


# -------------------------------------------------------------------------------------------------- on the GPU


def on_this_stream(work: Callable[P, T], device: Device) -> Callable[P, T]:
    """Wrap `work` for another thread, with the device and the CUDA stream that are current here."""
    import cupy

    stream = cupy.cuda.get_current_stream()

    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        with cupy.cuda.Device(device.index), stream:
            return work(*args, **kwargs)

    return run


def _current_stream(device: Device) -> int:
    """Return the address of the current CUDA stream, which must be the device's and not the default one."""
    import cupy

    if cupy.cuda.runtime.getDevice() != device.index:
        raise ValueError(f"create the session while {device} is current, not cuda:{cupy.cuda.runtime.getDevice()}")
    stream = int(cupy.cuda.get_current_stream().ptr)
    if not stream:
        raise ValueError("create the session while a separate CUDA stream is current, not the default stream")
    return stream
