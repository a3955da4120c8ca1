# SPDX-License-Identifier: Apache-2.0
"""Imports cuDNN's frontend without PyTorch."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

_WRAPPER = "cudnn.wrapper"


def import_cudnn() -> ModuleType:
    """Return the module `cudnn`, which loads cuDNN's library.

    One of its modules, which nothing here uses, imports PyTorch where that is installed: for 2 to 3 s in every process.
    It is left out unless PyTorch is imported already.

    Raises:
        ImportError: it is not installed, or its library cannot be loaded.
    """
    if "cudnn" in sys.modules or "torch" in sys.modules:
        return importlib.import_module("cudnn")
    stand_in = ModuleType(_WRAPPER)
    stand_in.Graph = None  # type: ignore[attr-defined]
    sys.modules[_WRAPPER] = stand_in
    try:
        frontend = importlib.import_module("cudnn")
    except ImportError:
        raise
    except Exception as error:  # a library that cannot be loaded is an OSError, two of them an AssertionError
        raise ImportError(f"cuDNN cannot be loaded: {error}") from error
    else:
        vars(frontend).pop("Graph", None)
        return frontend
    finally:
        if sys.modules.get(_WRAPPER) is stand_in:  # another thread may import it, too
            del sys.modules[_WRAPPER]
