# SPDX-License-Identifier: Apache-2.0
"""CUDA driver calls that are made once per frame, without releasing the GIL.

CuPy releases the GIL around every CUDA call, as calls that wait must. These calls only queue work and take about a
microsecond; reacquiring the GIL among dozens of decoding threads takes ten times that. If the driver's library cannot
be called this way, CuPy's own calls are used.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from streamkit.core.data import Surface

_DEVICE_TO_DEVICE = 3
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_BLOCK = 16  # bytes
_THREADS = 256  # of a thread block
_EACH = 4  # blocks that a thread copies


class Copy:
    """Copies memory within a device. Belongs to one thread and one device.

    The driver's own copy takes 15 µs to queue (H200), all with the GIL held. A kernel therefore copies whenever sizes
    and addresses are multiples of 16, as for most frames.
    """

    def __init__(self) -> None:
        self._to = ctypes.c_uint64()
        self._from = ctypes.c_uint64()
        self._count = ctypes.c_size_t()
        values = (self._to, self._from, self._count)
        self._arguments = (ctypes.c_void_p * 3)(*map(ctypes.addressof, values))
        self._kernel: int | None = None

    def __call__(self, to: int, source: int, size: int, stream: Any) -> None:
        """Queue a copy in the order of `stream`.

        Args:
            to: the address to write.
            source: the address to read.
            size: in bytes.
            stream: a CuPy stream of the current device.
        """
        calls = _calls()
        if calls is None:
            import cupy

            cupy.cuda.runtime.memcpyAsync(to, source, size, _DEVICE_TO_DEVICE, stream.ptr)
            return
        if self._kernel is None:
            self._kernel = _copy_blocks()
        if not self._kernel or (to | source | size) % _BLOCK:
            _check(calls.cuMemcpyDtoDAsync_v2(to, source, size, stream.ptr))
            return
        count = size // _BLOCK
        self._to.value = to
        self._from.value = source
        self._count.value = count
        blocks = -(-count // (_THREADS * _EACH))
        _check(calls.cuLaunchKernel(self._kernel, blocks, 1, 1, _THREADS, 1, 1, 0, stream.ptr, self._arguments, None))


def launch(
    kernel: Any, grid: tuple[int, int, int], block: tuple[int, int, int], stream: Any, arguments: Sequence[int]
) -> bool:
    """Queue a kernel in the order of `stream`.

    Args:
        kernel: a kernel of `ops.cuda.load`.
        grid: numbers of thread blocks.
        block: numbers of threads in a block.
        stream: a CuPy stream of the current device.
        arguments: the host address of each argument's value.

    Returns:
        False if the driver cannot be called this way; nothing is queued then.
    """
    calls = _calls()
    address = _address(kernel)
    if calls is None or not address:
        return False
    pointers = (ctypes.c_void_p * len(arguments))(*arguments)
    _check(calls.cuLaunchKernel(address, *grid, *block, 0, stream.ptr, pointers, None))
    return True


def record(event: Any, stream: Any) -> None:
    """Record a CuPy event after all work queued on `stream`."""
    calls = _calls()
    if calls is None:
        event.record(stream)
    else:
        _check(calls.cuEventRecord(event.ptr, stream.ptr))


def wait(stream: Any, event: Any) -> None:
    """Make `stream` wait for a CuPy event."""
    calls = _calls()
    if calls is None:
        stream.wait_event(event)
    else:
        _check(calls.cuStreamWaitEvent(stream.ptr, event.ptr, 0))


def wait_for(stream: Any, surfaces: Iterable[Surface]) -> None:
    """Make `stream` wait until these surfaces are written: one wait per writing stream, for its last surface."""
    last: dict[Any, Surface] = {}
    for surface in surfaces:
        if surface.ready is None:
            continue
        turn = surface.turn
        if turn is None:
            last[id(surface)] = surface
            continue
        writer = turn[0]
        latest = last.get(writer)
        if latest is None or latest.turn < turn:  # type: ignore[operator]  # of this writer, so it has a turn
            last[writer] = surface
    for surface in last.values():
        wait(stream, surface.ready)


def relax_capture() -> None:
    """Let the calling thread allocate, free and query events while another thread captures a CUDA graph.

    ONNX Runtime captures in CUDA's global mode: such calls then fail on any thread that has not called this, and the
    capture fails with them. Waiting for the whole device fails in any case. Call it after CUDA is initialized; without
    CuPy it does nothing. See cuThreadExchangeStreamCaptureMode in
    https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__STREAM.html.
    """
    if "cupy" in sys.modules and (calls := _calls()) is not None:
        calls.cuThreadExchangeStreamCaptureMode(ctypes.byref(ctypes.c_int(_RELAXED)))


def clear_last_error(maps: Path = Path("/proc/self/maps")) -> None:
    """Clear the calling thread's last error in each CUDA runtime of this process.

    A library that checks for errors of its own, as ONNX Runtime does after each launch, would take it for its own.

    Args:
        maps: the libraries of this process.
    """
    for library in loaded_libraries("libcudart", maps):
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(library).cudaGetLastError()


def loaded_libraries(prefix: str, maps: Path = Path("/proc/self/maps")) -> list[str]:
    """Return the paths of the shared libraries that this process has loaded; empty where that is not known.

    Args:
        prefix: with which their names begin.
        maps: the memory of the process, as Linux lists it.
    """
    try:
        lines = maps.read_text(errors="replace").splitlines()
    except OSError:
        return []
    paths = {line.split(maxsplit=5)[5] for line in lines if f"/{prefix}" in line}
    return sorted(path for path in paths if ".so" in path)


@lru_cache(maxsize=1)
def _calls() -> Any:
    """Return the driver's library, called with the GIL held; None if there is none."""
    try:
        library = ctypes.PyDLL("libcuda.so.1")
        library.cuMemcpyDtoDAsync_v2.argtypes = ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p
        number = ctypes.c_uint
        library.cuLaunchKernel.argtypes = (
            ctypes.c_void_p,
            *[number] * 7,
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_void_p,
        )
        library.cuEventRecord.argtypes = ctypes.c_void_p, ctypes.c_void_p
        library.cuStreamWaitEvent.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint
        library.cuThreadExchangeStreamCaptureMode.argtypes = (ctypes.c_void_p,)
    except (OSError, AttributeError):
        return None
    return library


def _copy_blocks() -> int:
    """Return the address of the copying kernel for the current device; 0 if CuPy does not expose it."""
    from streamkit.ops.cuda.load import kernel

    return _address(kernel("planes.cu", "copy_blocks"))


def _address(kernel: Any) -> int:
    """Return a kernel's address; 0 if CuPy does not expose it."""
    return int(getattr(getattr(kernel, "kernel", None), "ptr", 0))


def _check(code: int) -> None:
    if code:
        raise RuntimeError(f"the CUDA driver rejected a call with error {code}; `streamkit doctor` examines the GPU")
