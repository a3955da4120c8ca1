# SPDX-License-Identifier: Apache-2.0
"""GPU and decoder utilization from the driver's library (NVML): needs no package and no CUDA context.

Both are NVML's figures over its last sample period of 1/6 s to 1 s. `gpu` is the share of time in which any kernel ran,
however small; `decoder` is the mean over the decoder engines.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple


class GpuUtilization(NamedTuple):
    """Shares of time, 0 to 1; None where the driver does not say."""

    gpu: float | None = None
    decoder: float | None = None


class _Rates(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


_NAME_BYTES = 96  # NVML_DEVICE_NAME_V2_BUFFER_SIZE


class Nvml:
    """One GPU, found by its PCI address because NVML and CUDA number GPUs differently. `use` is `GpuUtilization()` if
    NVML fails.

    Args:
        index: the GPU's CUDA index.
    """

    def __init__(self, index: int) -> None:
        self._library: Any = None
        self._handle = ctypes.c_void_p()
        try:
            import cupy

            address = str(cupy.cuda.runtime.deviceGetPCIBusId(index)).encode()
            library = ctypes.CDLL("libnvidia-ml.so.1")
            if library.nvmlInit_v2() == 0:
                if library.nvmlDeviceGetHandleByPciBusId_v2(address, ctypes.byref(self._handle)) == 0:
                    self._library = library
                else:
                    library.nvmlShutdown()
        except Exception:  # no driver, no such function, no CuPy: all mean that NVML is not available
            self._library = None

    def name(self) -> str | None:
        """Name of the GPU, such as `NVIDIA H200`; None if unknown."""
        text = ctypes.create_string_buffer(_NAME_BYTES)
        if self._library is None or self._library.nvmlDeviceGetName(self._handle, text, _NAME_BYTES) != 0:
            return None
        return text.value.decode("utf-8", "replace")

    def use(self) -> GpuUtilization:
        """Current utilization."""
        if self._library is None:
            return GpuUtilization()
        rates = _Rates()
        decoder = ctypes.c_uint()
        period_us = ctypes.c_uint()
        gpu = self._library.nvmlDeviceGetUtilizationRates(self._handle, ctypes.byref(rates)) == 0
        by = ctypes.byref(decoder), ctypes.byref(period_us)
        decodes = self._library.nvmlDeviceGetDecoderUtilization(self._handle, *by) == 0
        return GpuUtilization(rates.gpu / 100 if gpu else None, decoder.value / 100 if decodes else None)

    def memory(self) -> float | None:
        """Share of the memory in use by all processes, 0 to 1; None if unknown."""
        memory = self._memory()
        return memory.used / memory.total if memory is not None and memory.total else None

    def free_bytes(self) -> int | None:
        """Free memory in bytes; None if unknown."""
        memory = self._memory()
        return None if memory is None else memory.free

    def used_bytes(self) -> int | None:
        """Memory in use by all processes, in bytes; None if unknown."""
        memory = self._memory()
        return None if memory is None else memory.used

    def total_bytes(self) -> int | None:
        """All memory in bytes; None if unknown."""
        memory = self._memory()
        return None if memory is None else memory.total

    def _memory(self) -> _Memory | None:
        memory = _Memory()
        if self._library is None or self._library.nvmlDeviceGetMemoryInfo(self._handle, ctypes.byref(memory)) != 0:
            return None
        return memory

    def close(self) -> None:
        """Release the library."""
        if self._library is not None:
            self._library.nvmlShutdown()
            self._library = None
