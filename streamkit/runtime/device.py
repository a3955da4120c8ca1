"""The device a pipeline runs on: which one, a CUDA stream a lane, and hand-over between streams.

Every hand-over between lanes records an event on the producer's stream, and the consumer waits for it: a device lane
on its stream, a host lane on its thread. What a lane has read is kept until its stream is past it: so a surface or
tensor is free when nothing refers to it, and neither the pool nor CuPy's allocator can hand it out too early.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from streamkit.data import Batch, Device
from streamkit.errors import ConfigError, DeviceError
from streamkit.messages import gpu_command

_IN_FLIGHT = 4


def choose(wanted: str | list[str], say: Callable[[str], None]) -> Device:
    """The device for a pipeline's `device:`.

    `auto` takes the first GPU that everything needed is there for, else the CPU, and says why.

    Raises:
        DeviceError: a GPU is asked for and there is none, or a package is missing.
        ConfigError: several devices are asked for; `fleet.prepare` is for those.
    """
    if isinstance(wanted, list):
        if len(wanted) != 1:
            raise ConfigError(f"device: {wanted}: this takes one device; name one")
        wanted = wanted[0]
    if wanted == "cpu":
        return Device("cpu")
    index = int(wanted.partition(":")[2] or 0)
    trouble = gpu_trouble(index)
    if trouble is None:
        return Device("cuda", index)
    if wanted != "auto":
        raise DeviceError(f"device {wanted} cannot be used: {trouble}; run.py doctor says more")
    say(f"running on the CPU: {trouble}")
    return Device("cpu")


def gpu_trouble(index: int = 0) -> str | None:
    """Why GPU `index` cannot be used, with the way out; None where it can."""
    try:
        import cupy
    except ImportError:
        if not _driver():
            return "there is no NVIDIA driver on this machine"
        return f"the package cupy is missing; {gpu_command()}"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:
        return f"no NVIDIA GPU or driver ({' '.join(str(error).split())})"
    if index >= count:
        return f"there is no GPU {index}, only {count}"
    try:
        import onnxruntime
    except ImportError:
        return f"the package onnxruntime-gpu is missing; {gpu_command()}"
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        return f"the onnxruntime installed has no CUDA provider; {gpu_command()}"
    return None


def _driver() -> bool:
    """Whether NVIDIA's driver is there."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


class LaneDevice:
    """A lane's way to the device. On the CPU it does nothing."""

    def enter(self) -> contextlib.AbstractContextManager[Any]:
        """Make the lane's stream the current one of this thread."""
        return contextlib.nullcontext()

    def receive(self, batch: Batch) -> None:
        """Wait until the batch's arrays may be read here."""

    def hand_on(self, batch: Batch) -> None:
        """Mark what is ready when, before the batch goes to another lane."""

    def settle(self) -> None:
        """Wait for all work of the lane."""


class HostLane(LaneDevice):
    """A lane of host stages beside a GPU: waits on its thread.

    Args:
        device: the GPU, so that what a stage does with CuPy happens there; None leaves the current one.
    """

    def __init__(self, device: Device | None = None) -> None:
        self._device = device

    def enter(self) -> contextlib.AbstractContextManager[Any]:
        """Make the GPU the current one of this thread."""
        if self._device is None:
            return contextlib.nullcontext()
        cuda, index = self._device.xp.cuda, self._device.index

        @contextlib.contextmanager
        def current() -> Iterator[None]:
            with cuda.Device(index):
                # `Device` leaves the call out where the GPU is current already, and then this thread has no context
                # for calls of CUDA's driver, such as those of `ops.cuda.driver`
                cuda.runtime.setDevice(index)
                cuda.runtime.deviceSynchronize()
                yield

        return current()

    def receive(self, batch: Batch) -> None:
        """Wait on this thread until the GPU has written the batch."""
        if batch.ready is not None:
            batch.ready.synchronize()
            batch.ready = None


class CudaLane(LaneDevice):
    """A lane with a CUDA stream of its own."""

    def __init__(self, device: Device) -> None:
        self._cupy = device.xp
        self._device = device
        self._kept: deque[tuple[Any, Any]] = deque()
        self._reading: Any = None
        self._stream: Any = None

    def enter(self) -> contextlib.AbstractContextManager[Any]:
        """Make a stream and make it the current one of this thread."""

        @contextlib.contextmanager
        def streams() -> Iterator[None]:
            with self._cupy.cuda.Device(self._device.index):
                self._stream = self._cupy.cuda.Stream(non_blocking=True)
                with self._stream:
                    yield

        return streams()

    def receive(self, batch: Batch) -> None:
        """Make the stream wait for the batch and for the decoders' copies."""
        from streamkit.ops.cuda import driver

        if batch.ready is not None:
            driver.wait(self._stream, batch.ready)
        surfaces = [frame.surface for frame in batch.frames if frame.surface is not None]
        driver.wait_for(self._stream, surfaces)
        for surface in surfaces:
            surface.awaited = True
        self._reading = _held(batch)

    def hand_on(self, batch: Batch) -> None:
        """Record an event after the lane's work; keep what it read until the GPU is past it."""
        from streamkit.ops.cuda import driver

        event = self._cupy.cuda.Event(block=True, disable_timing=True)  # who waits for it leaves the core to decoders
        driver.record(event, self._stream)
        batch.ready = event
        self._kept.append((event, (self._reading, _held(batch))))
        while self._kept and (self._kept[0][0].done or len(self._kept) > _IN_FLIGHT):
            self._kept[0][0].synchronize()
            self._kept.popleft()

    def settle(self) -> None:
        """Wait for the stream and let go of everything kept."""
        if self._stream is not None:
            self._stream.synchronize()
        self._kept.clear()


def _held(batch: Batch) -> Any:
    """The arrays of a batch: its own fields change as it goes on."""
    return [frame.surface for frame in batch.frames], batch.tensor, dict(batch.outputs)


def lane_device(device: Device, on_device: bool) -> LaneDevice:
    """The way to the device for a lane of device stages or of host stages."""
    if device.kind == "cpu":
        return LaneDevice()
    return CudaLane(device) if on_device else HostLane(device)


def describe_gpu(index: int) -> dict[str, Any]:
    """Name, compute capability, free and total bytes of GPU `index`, and CUDA versions as (major, minor).

    `driver` is the newest CUDA that the driver takes, `runtime` the one that CuPy runs with.
    """
    import cupy

    runtime = cupy.cuda.runtime
    with cupy.cuda.Device(index) as device:
        free, total = runtime.memGetInfo()
        name, capability = runtime.getDeviceProperties(index)["name"].decode(), str(device.compute_capability)
    versions = {"driver": runtime.driverGetVersion(), "runtime": runtime.runtimeGetVersion()}
    return {
        "name": name,
        "compute": f"{capability[:-1]}.{capability[-1:]}",
        "free": int(free),
        "total": int(total),
        **{which: (number // 1000, number % 1000 // 10) for which, number in versions.items()},
    }


def gpu_count() -> int:
    """How many GPUs there are to use; `gpu_trouble` says why there is none."""
    import cupy

    return int(cupy.cuda.runtime.getDeviceCount())
