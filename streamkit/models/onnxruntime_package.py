# SPDX-License-Identifier: Apache-2.0
"""The installed package of ONNX Runtime: its CPU and its GPU build overwrite each other's files."""

from __future__ import annotations

import ctypes
import logging
import sys
from importlib import metadata
from typing import Any

from streamkit.core.errors import MissingPackage, StreamkitError, describe
from streamkit.core.text import ONNXRUNTIMES, UNINSTALL, install_command

logger = logging.getLogger(__name__)

BOTH_INSTALLED = "onnxruntime and onnxruntime-gpu are both installed and overwrite each other's files"

_warned = False


def installed_builds() -> dict[str, str]:
    """Return the versions of the installed builds, by the name of the package."""
    versions = {}
    for name in ONNXRUNTIMES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def has_driver() -> bool:
    """Whether the NVIDIA driver is installed."""
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True


def repair_command() -> str:
    """Return the commands that leave one whole build: the installed one; if both are, the one for this machine."""
    builds = list(installed_builds())
    on_gpu = builds[0].endswith("-gpu") if len(builds) == 1 else has_driver()
    return f"{UNINSTALL} && {install_command('gpu' if on_gpu else 'cpu')}"


def need_onnxruntime() -> Any:
    """Return the module `onnxruntime`; the first call logs a warning if both builds are installed.

    Raises:
        MissingPackage: it is not installed.
        DamagedOnnxRuntime: it is incomplete, as it is once one of two builds was uninstalled.
    """
    global _warned
    try:
        import onnxruntime

        onnxruntime.get_available_providers()
    except ImportError as error:
        if not installed_builds():
            raise MissingPackage("onnxruntime", "gpu" if has_driver() else "cpu", "a network") from error
        raise DamagedOnnxRuntime(error) from error
    except AttributeError as error:  # a folder without the files that the uninstalled build has taken along
        raise DamagedOnnxRuntime(error) from error
    if not _warned and len(installed_builds()) == len(ONNXRUNTIMES):
        logger.warning(f"{BOTH_INSTALLED}; repair them with: {repair_command()}")
    _warned = True
    return onnxruntime


class DamagedOnnxRuntime(MissingPackage):
    """ONNX Runtime is installed, but its files are not all there."""

    def __init__(self, cause: Exception) -> None:
        names = " and ".join(f"{name} {version}" for name, version in installed_builds().items()) or "onnxruntime"
        text = f"{names} cannot be imported ({describe(cause)}); repair it with: {repair_command()}"
        StreamkitError.__init__(self, text)
