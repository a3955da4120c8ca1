# SPDX-License-Identifier: Apache-2.0
"""The functions behind those methods of `Frame` and `Detections` that need pixels, files or optional packages.

Such functions belong to layers above core, and core imports none of them. `streamkit/__init__.py`, which is above all
layers, calls `set_functions`; the modules behind it are imported when a method is first called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

import numpy as np


class FrameFunctions(Protocol):
    """One function for each method, with the frame or the table as its first argument; the methods document them."""

    def image(self, frame: Any, order: Literal["rgb", "bgr"]) -> np.ndarray: ...  # noqa: D102
    def rgb_tensor(self, frame: Any) -> Any: ...  # noqa: D102
    def nv12_planes(self, frame: Any) -> Any: ...  # noqa: D102
    def record(self, frame: Any) -> dict[str, Any]: ...  # noqa: D102
    def html(self, frame: Any) -> str: ...  # noqa: D102
    def table_html(self, table: Any) -> str: ...  # noqa: D102
    def to_pandas(self, table: Any) -> Any: ...  # noqa: D102
    def to_supervision(self, table: Any) -> Any: ...  # noqa: D102
    def to_supervision_keypoints(self, table: Any) -> Any: ...  # noqa: D102


_load: list[Callable[[], FrameFunctions]] = []


def set_functions(load: Callable[[], FrameFunctions]) -> None:
    """Set the function that imports and returns the implementation."""
    _load[:] = [load]


def functions() -> FrameFunctions:
    """The implementation."""
    return _load[0]()
