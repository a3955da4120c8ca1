# SPDX-License-Identifier: Apache-2.0
"""The device of a pipeline: selection, one CUDA stream per lane, and synchronization between streams.

Each batch that leaves a lane carries an event recorded on the producer's stream. The consumer waits for it: a device
lane on its stream, a host lane on its thread. Arrays that a lane has read are kept until its stream has passed them. A
surface or tensor without references is therefore free, and neither the pool nor CuPy's allocator can reuse it early.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections import deque
from collections.abc import Iterator
from typing import Any

from streamkit.core.data import Batch, Device
from streamkit.core.errors import ConfigError, DeviceError, DeviceLostError, MissingPackage, describe
from streamkit.core.text import gpu_command, text_of
from streamkit.models.onnxruntime_package import has_driver, installed_builds, need_onnxruntime

logger = logging.getLogger(__name__)

_IN_FLIGHT = 4
_warned: set[str] = set()
_LOST = re.compile(
    r"cudaError(IllegalAddress|LaunchFailure|LaunchTimeout|Assert|HardwareStackError|IllegalInstruction"
    r"|MisalignedAddress|InvalidAddressSpace|InvalidPc|ECCUncorrectable|Mps\w+|DevicesUnavailable)"
    r"|CUDA_ERROR_(ILLEGAL_ADDRESS|LAUNCH_FAILED|LAUNCH_TIMEOUT|ASSERT|HARDWARE_STACK_ERROR|ILLEGAL_INSTRUCTION"
    r"|MISALIGNED_ADDRESS|INVALID_ADDRESS_SPACE|INVALID_PC|ECC_UNCORRECTABLE|MPS_\w+|DEVICE_UNAVAILABLE)"
    r"|CUDA failure (700|702|710|71[4-9]|80[5-9]|810|214)\b"
)
"""Errors after which a CUDA context cannot be used, as CuPy, the driver and ONNX Runtime write them; see
https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html ("the process must be terminated")."""


def lost_device(error: BaseException) -> DeviceLostError | None:
    """The error to end the process with, if `error` means that it can no longer use its GPU."""
    if isinstance(error, DeviceLostError):
        return error
    if isinstance(error, ConfigError) or not _LOST.search(text_of(error)):
        return None
    return DeviceLostError(f"lost its GPU: {describe(error)}")


def choose(wanted: str | list[str]) -> Device:
    """Select the device for a pipeline's `device:`.

    `auto` selects the first GPU if it and all packages for it are available, else the CPU, and logs the reason: as a
    warning once per process, since a notebook shows warnings under every cell.

    Raises:
        DeviceError: the GPU asked for does not exist, or a package is missing.
        ConfigError: several devices are given; `fleet.prepare` handles those.
    """
    if isinstance(wanted, list):
        if len(wanted) != 1:
            raise ConfigError(f"device: {wanted}: only one device is supported here; name one")
        wanted = wanted[0]
    if wanted == "cpu":
        return Device("cpu")
    index = int(wanted.partition(":")[2] or 0)
    trouble = gpu_trouble(index)
    if trouble is None:
        return Device("cuda", index)
    if wanted != "auto":
        raise DeviceError(f"device {wanted} cannot be used: {trouble}; `streamkit doctor` shows details")
    logger.log(logging.INFO if trouble in _warned else logging.WARNING, f"running on the CPU: {trouble}")
    _warned.add(trouble)
    return Device("cpu")


def gpu_trouble(index: int = 0) -> str | None:
    """The reason why GPU `index` cannot be used, with the fix; None if it can."""
    try:
        import cupy
    except ImportError:
        if not has_driver():
            return "there is no NVIDIA driver on this machine"
        return f"the package cupy is missing; {gpu_command()}"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:
        return f"no NVIDIA GPU or driver ({' '.join(str(error).split())})"
    if index >= count:
        return f"there is no GPU {index}, only {count}"
    try:
        providers = need_onnxruntime().get_available_providers()
    except MissingPackage:
        state = "incomplete" if "onnxruntime-gpu" in installed_builds() else "missing"
        return f"the package onnxruntime-gpu is {state}; {gpu_command()}"
    if "CUDAExecutionProvider" not in providers:
        return f"the onnxruntime installed has no CUDA provider; {gpu_command()}"
    return None


class LaneDevice:
    """Synchronization of a lane with the device. On the CPU it does nothing."""

    @contextlib.contextmanager
    def activate(self) -> Iterator[None]:
        """Make the lane's stream current on this thread."""
        yield

    def acquire(self, batch: Batch) -> None:
        """Wait until this lane may read the batch's arrays."""

    def release(self, batch: Batch) -> None:
        """Record when the batch will be ready, before it goes to another lane."""

    def synchronize(self) -> None:
        """Wait for all work of the lane."""

    def stuck_s(self, now_s: float) -> float:
        """For how many seconds the device has not finished work that was queued.

        One thread calls this at intervals, which need not be the lane's; `now_s` is the monotonic time. On a GPU it
        raises what CUDA raises once the GPU cannot be used.
        """
        return 0.0


class HostLane(LaneDevice):
    """A lane of host stages in a GPU pipeline; waits on its thread.

    Args:
        device: the GPU, made current so that a stage's CuPy calls use it.
    """

    def __init__(self, device: Device) -> None:
        self._device = device

    @contextlib.contextmanager
    def activate(self) -> Iterator[None]:
        """Make the GPU current on this thread."""
        cuda = self._device.xp.cuda
        index = self._device.index
        with cuda.Device(index):
            # `Device` omits the call if the GPU is already current, and then this thread has no context for calls of
            # CUDA's driver, such as those of `ops.cuda.driver`
            cuda.runtime.setDevice(index)
            cuda.runtime.deviceSynchronize()
            yield

    def acquire(self, batch: Batch) -> None:
        """Wait on this thread until the GPU has written the batch."""
        if batch.ready is not None:
            batch.ready.synchronize()
            batch.ready = None


class CudaLane(LaneDevice):
    """A lane with its own CUDA stream."""

    def __init__(self, device: Device) -> None:
        self._cupy = device.xp
        self._device = device
        self._pending: deque[tuple[Any, Any]] = deque()
        self._reading: Any = None
        self._stream: Any = None
        self._probe: tuple[Any, float] | None = None

    @contextlib.contextmanager
    def activate(self) -> Iterator[None]:
        """Create a stream and make it current on this thread."""
        with self._cupy.cuda.Device(self._device.index):
            self._stream = self._cupy.cuda.Stream(non_blocking=True)
            with self._stream:
                yield

    def acquire(self, batch: Batch) -> None:
        """Make the stream wait for the batch and for the decoders' copies."""
        from streamkit.ops.cuda import driver

        if batch.ready is not None:
            driver.wait(self._stream, batch.ready)
        surfaces = [frame.surface for frame in batch.frames if frame.surface is not None]
        driver.wait_for(self._stream, surfaces)
        for surface in surfaces:
            surface.awaited = True
        self._reading = _held(batch)

    def release(self, batch: Batch) -> None:
        """Record an event after the lane's work; keep what it read until the GPU has passed the event."""
        from streamkit.ops.cuda import driver

        event = self._cupy.cuda.Event(block=True, disable_timing=True)  # a waiting thread sleeps
        driver.record(event, self._stream)
        batch.ready = event
        self._pending.append((event, (self._reading, _held(batch))))
        while self._pending and (self._pending[0][0].done or len(self._pending) > _IN_FLIGHT):
            self._pending[0][0].synchronize()
            self._pending.popleft()

    def stuck_s(self, now_s: float) -> float:
        """See `LaneDevice.stuck_s`: the age of an event behind the work that the stream had at an earlier call."""
        if self._stream is None:
            return 0.0
        if self._probe is None or self._probe[0].done:
            with self._cupy.cuda.Device(self._device.index):
                event = self._cupy.cuda.Event(disable_timing=True)
                event.record(self._stream)
            self._probe = event, now_s
        return now_s - self._probe[1]

    def synchronize(self) -> None:
        """Wait for the stream and release everything kept."""
        if self._stream is not None:
            self._stream.synchronize()
        self._pending.clear()


def _held(batch: Batch) -> Any:
    """References to a batch's arrays; the batch's own fields change later in the graph."""
    frames = [(frame.surface, frame.maps.copy()) for frame in batch.frames]
    return frames, batch.tensor, dict(batch.outputs)


def lane_device(device: Device, on_device: bool) -> LaneDevice:
    """Create the synchronization for a lane of device stages or of host stages."""
    if device.kind == "cpu":
        return LaneDevice()
    return CudaLane(device) if on_device else HostLane(device)


def describe_gpu(index: int) -> dict[str, Any]:
    """Name, compute capability, free and total bytes of GPU `index`, and CUDA versions as (major, minor).

    `driver` is the newest CUDA version that the driver supports, `runtime` the one that CuPy uses.
    """
    import cupy

    runtime = cupy.cuda.runtime
    with cupy.cuda.Device(index) as device:
        free, total = runtime.memGetInfo()
        name = runtime.getDeviceProperties(index)["name"].decode()
        capability = str(device.compute_capability)
    versions = {"driver": runtime.driverGetVersion(), "runtime": runtime.runtimeGetVersion()}
    return {
        "name": name,
        "compute": f"{capability[:-1]}.{capability[-1:]}",
        "free": int(free),
        "total": int(total),
        **{which: (number // 1000, number % 1000 // 10) for which, number in versions.items()},
    }


def gpu_count() -> int:
    """Number of usable GPUs; `gpu_trouble` gives the reason if there is none."""
    import cupy

    return int(cupy.cuda.runtime.getDeviceCount())
