# SPDX-License-Identifier: Apache-2.0
"""The GPU and the versions of what computes on it, as texts: what is measured on one does not hold on another."""

from __future__ import annotations

import importlib.metadata


def plan_versions(index: int) -> str:
    """Return the GPU's model and the versions of driver, cuDNN and cuDNN's frontend, fit for the name of a folder."""
    import cudnn
    import cupy

    card = cupy.cuda.runtime.getDeviceProperties(index)["name"].decode().replace(" ", "-")
    driver = cupy.cuda.runtime.driverGetVersion()
    return f"{card}-driver{driver}-cudnn{cudnn.backend_version()}-frontend{cudnn.__version__}"


def gpu_versions(index: int) -> str:
    """Return the GPU's model and the versions of driver, ONNX Runtime, and, if installed, cuDNN's frontend."""
    import cupy
    import onnxruntime

    card = cupy.cuda.runtime.getDeviceProperties(index)["name"].decode()
    driver = cupy.cuda.runtime.driverGetVersion()
    try:
        frontend = importlib.metadata.version("nvidia-cudnn-frontend")
    except importlib.metadata.PackageNotFoundError:
        frontend = "none"
    return f"{card}, driver {driver}, onnxruntime {onnxruntime.__version__}, cudnn-frontend {frontend}"
