"""How busy a GPU and its decoders are, asked of the driver's own library (NVML): no package, no CUDA context.

Both are NVML's figures over its last sample of a sixth of a second to a second. `gpu` is the share of time in which any
kernel ran, however small; `decoder` the mean over the decoder engines.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple


class Use(NamedTuple):
    """Shares of time, 0 to 1; None where the driver does not say."""

    gpu: float | None = None
    decoder: float | None = None


class _Rates(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Nvml:
    """One GPU, found by its PCI address, since NVML and CUDA count GPUs differently. `use` is `Use()` where it fails.

    Args:
        index: the GPU's number as CUDA counts.
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
        except Exception:  # no driver, no such function, no CuPy: all mean that nobody can be asked
            self._library = None

    def use(self) -> Use:
        """How busy it is now."""
        if self._library is None:
            return Use()
        rates, decoder, period_us = _Rates(), ctypes.c_uint(), ctypes.c_uint()
        gpu = self._library.nvmlDeviceGetUtilizationRates(self._handle, ctypes.byref(rates)) == 0
        by = ctypes.byref(decoder), ctypes.byref(period_us)
        found = self._library.nvmlDeviceGetDecoderUtilization(self._handle, *by) == 0
        return Use(rates.gpu / 100 if gpu else None, decoder.value / 100 if found else None)

    def memory(self) -> float | None:
        """The share of the memory that is used, by anybody, 0 to 1; None where the driver does not say."""
        found = _Memory()
        if self._library is None or self._library.nvmlDeviceGetMemoryInfo(self._handle, ctypes.byref(found)) != 0:
            return None
        return found.used / found.total if found.total else None

    def close(self) -> None:
        """Let the library go."""
        if self._library is not None:
            self._library.nvmlShutdown()
            self._library = None
