# SPDX-License-Identifier: Apache-2.0
"""What ONNX Runtime's quantizer and calibrator are given, and the silencing of what they print."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterable, Iterator, Mapping

import numpy as np


class CalibrationReader:
    """Hands out the inputs of one frame after the other; a `CalibrationDataReader` of ONNX Runtime by its method.

    Attributes:
        frames: number of frames handed out.
    """

    def __init__(self, feeds: Iterable[Mapping[str, np.ndarray]]) -> None:
        self._feeds = iter(feeds)
        self.frames = 0

    def get_next(self) -> Mapping[str, np.ndarray] | None:
        """Return the next frame's inputs by name; None after the last."""
        feed = next(self._feeds, None)
        self.frames += feed is not None
        return feed


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence what the quantizer prints: advice for its own command line."""
    import onnxruntime as ort

    ort.set_default_logger_severity(4)
    root = logging.getLogger()
    before = root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
