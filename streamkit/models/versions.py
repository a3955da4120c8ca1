# SPDX-License-Identifier: Apache-2.0
"""The GPU and the versions of what computes on it, as texts: what is measured on one does not hold on another."""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import sys

from streamkit.core.version import __version__
from streamkit.engine.frontend import import_cudnn


@functools.cache
def gpu_name(index: int) -> str:
    """Return a GPU's model and the newest CUDA that its driver knows; empty without a driver. Makes no context."""
    name = ctypes.create_string_buffer(256)
    version = ctypes.c_int()
    device = ctypes.c_int()
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ""
    calls = (
        driver.cuInit(0),
        driver.cuDeviceGet(ctypes.byref(device), index),
        driver.cuDeviceGetName(name, len(name), device),
        driver.cuDriverGetVersion(ctypes.byref(version)),
    )
    return "" if any(calls) else f"{name.value.decode()}, CUDA {version.value // 1000}.{version.value % 1000 // 10}"


def gpu_versions(index: int) -> str:
    """Return a GPU's model, its driver's CUDA, and the versions of ONNX Runtime and cuDNN; empty without a GPU."""
    name = gpu_name(index)
    packages = ("onnxruntime-gpu", "nvidia-cudnn-cu13", "nvidia-cudnn-frontend")
    return ", ".join([name, *(f"{package} {_version(package)}" for package in packages)]) if name else ""


def decoding_versions(index: int) -> str:
    """Return a GPU's model, its driver's CUDA, and the versions of what decodes; empty without a GPU."""
    name = gpu_name(index)
    python = ".".join(map(str, sys.version_info[:2]))
    decoder = f"PyNvVideoCodec {_version('PyNvVideoCodec')}"
    return f"{name}, {decoder}, Python {python}, streamkit {__version__}" if name else ""


def plan_versions(index: int) -> str:
    """Return a GPU's model, its driver's CUDA, and the versions of cuDNN and its frontend, fit for a folder's name."""
    cudnn = import_cudnn()
    parts = gpu_name(index), f"cudnn {cudnn.backend_version()}", f"frontend {cudnn.__version__}"
    return "-".join(parts).replace(",", "").replace(" ", "-")


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"
