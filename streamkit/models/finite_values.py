# SPDX-License-Identifier: Apache-2.0
"""Whether a network's outputs are finite, looked at now and then while it runs in f16, which ends at 65,504."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from streamkit.core.data import Array

_EVERY_S = 1.0


class FiniteValues:
    """Looks at the outputs of a run each second. Minus infinity is finite here: networks rule out values with it.

    Args:
        clock_s: monotonic time.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._next_s = 0.0
        self._finite: list[Any] = []  # of the last run that was looked at, one flag for each output

    def broken_by(self, outputs: Mapping[str, Array]) -> bool:
        """Whether an earlier run that was looked at had a value that is not finite; look at this one if it is time."""
        now_s = self._clock_s()
        if now_s < self._next_s:
            return False
        self._next_s = now_s + _EVERY_S
        before = self._finite
        # NaN is not less
        self._finite = [(values < np.inf).all() for values in outputs.values() if values.dtype.kind == "f"]
        return not all(bool(flag) for flag in before)  # computed a second ago
