# SPDX-License-Identifier: Apache-2.0
"""The environment of child processes that run a module of this package."""

from __future__ import annotations

import os
import sys


def child_environment() -> dict[str, str]:
    """Return the environment for a child with this interpreter, which finds the same modules in any folder.

    The package may be a checkout that is not installed, which `python -m` finds in the working folder only.
    """
    return {**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(part) for part in sys.path)}
