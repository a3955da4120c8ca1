# SPDX-License-Identifier: Apache-2.0
"""Which frames the motion of a camera is measured on, source by source, and what `track` takes from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamkit.core.counters import Counters
from streamkit.core.data import Batch, Detections, Frame
from streamkit.ops.camera_motion import Landmarks, camera_motions, displacement
from streamkit.tracking.tracker import CameraMotion

MEASURED = "camera motion: frames measured"
COMPENSATED = "camera motion: frames compensated"
UNKNOWN = "camera motion: frames not trusted"
NO_PIXELS = "camera motion: frames without pixels"

_CHECK_S = 0.2  # between two looks at a camera that stands still
_MOVING_S = 2.0  # for how long every frame of a camera is looked at after it moved, and at the beginning
_STILL = 0.001  # of the frame's longer side: a camera that moves the picture less stands still
_SLACK_S = 1e-6


@dataclass(slots=True)
class _Camera:
    """What is known about the camera of a source.

    Attributes:
        epoch: restarts of the source so far.
        watched_until_s: until then, every frame is measured.
        moving_until_s: until then, what is measured is applied.
        landmarks: of the last frame that was measured; None before the first.
        measured_s: that frame's time.
        ordinal: number of frames since the source began.
        measured: that frame's number.
    """

    epoch: int
    watched_until_s: float
    moving_until_s: float = -np.inf
    landmarks: Landmarks | None = None
    measured_s: float = -np.inf
    ordinal: int = 0
    measured: int = -1


class CameraMotions:
    """Measures the motion of the cameras of all sources.

    Args:
        always: measure every frame; otherwise, of a camera that stands still, a frame each 0.2 s.
        counters: counts the frames that are measured, compensated, not trusted, or without pixels.
    """

    def __init__(self, always: bool, counters: Counters) -> None:
        self._always = always
        self._counters = counters
        self._cameras: dict[str, _Camera] = {}

    def end(self, source: str) -> None:
        """Forget a source."""
        self._cameras.pop(source, None)

    def measure(self, batch: Batch, tables: Sequence[Detections]) -> list[CameraMotion | None]:
        """Return how the camera of each frame has moved the picture.

        Args:
            batch: its frames, each source's in order.
            tables: all detections in them; what moves by itself is mostly inside their boxes.

        Returns:
            The motion of each frame in its pixels; None if its camera stands still, or if the motion is not known.
        """
        motions: list[CameraMotion | None] = [None] * len(batch.frames)
        boxes = np.concatenate([table.xyxy for table in tables]) if tables else np.zeros((0, 4), np.float32)
        rows = np.concatenate([table.batch_row for table in tables]) if tables else np.zeros(0, np.int32)
        for frame_rows in _rounds(batch.frames):
            due = [row for row in frame_rows if self._due(batch.frames[row])]
            if due:
                self._measure(batch.frames, due, [boxes[rows == row] for row in due], motions)
        return motions

    def _due(self, frame: Frame) -> bool:
        """Count the frame, and return whether its camera is measured on it."""
        camera = self._cameras.get(frame.source)
        if camera is None or camera.epoch != frame._state.epoch or frame.pts_s < camera.measured_s:
            camera = _Camera(frame._state.epoch, frame.pts_s + _MOVING_S)
            self._cameras[frame.source] = camera
        camera.ordinal += 1
        if frame.surface is None:
            self._counters.add(NO_PIXELS)
            return False
        return (
            self._always
            or frame.pts_s < camera.watched_until_s
            or frame.pts_s - camera.measured_s >= _CHECK_S - _SLACK_S
        )

    def _measure(
        self,
        frames: Sequence[Frame],
        due: Sequence[int],
        boxes: Sequence[np.ndarray],
        motions: list[CameraMotion | None],
    ) -> None:
        """Measure the cameras of the frames `due`, no two of a source, and write their motion to `motions`."""
        measured = [frames[row] for row in due]
        self._counters.add(MEASURED, len(measured))
        cameras = [self._cameras[frame.source] for frame in measured]
        surfaces = [frame.surface for frame in measured if frame.surface is not None]
        sizes = [(frame.width, frame.height) for frame in measured]
        earlier = [camera.landmarks for camera in cameras]
        marks, estimates = camera_motions(surfaces, sizes, boxes, earlier)
        for row, frame, camera, mark, estimate in zip(due, measured, cameras, marks, estimates, strict=True):
            if camera.landmarks is not None:
                motions[row] = self._trusted(frame, camera, estimate)
            camera.landmarks = mark
            camera.measured_s = frame.pts_s
            camera.measured = camera.ordinal

    def _trusted(self, frame: Frame, camera: _Camera, motion: np.ndarray | None) -> CameraMotion | None:
        """Return the motion that is applied: of a camera that moves, or that began to between two looks at it."""
        if motion is None:
            self._counters.add(UNKNOWN)
            return None
        if displacement(motion, frame.width, frame.height) >= _STILL:
            camera.moving_until_s = frame.pts_s + _MOVING_S
            camera.watched_until_s = camera.moving_until_s
        if not (self._always or frame.pts_s < camera.moving_until_s):
            return None
        self._counters.add(COMPENSATED)
        return CameraMotion(motion, since_earlier=camera.measured != camera.ordinal - 1)


def _rounds(frames: Sequence[Frame]) -> list[list[int]]:
    """Return the rows of the frames in rounds with a frame of each source, so that batches change nothing."""
    rounds: list[list[int]] = []
    seen: dict[str, int] = {}
    for row, frame in enumerate(frames):
        number = seen.get(frame.source, 0)
        seen[frame.source] = number + 1
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(row)
    return rounds
