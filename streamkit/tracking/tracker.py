# SPDX-License-Identifier: Apache-2.0
"""The contract of trackers: what the stage `track` passes to a tracker, and what it takes back.

A tracker of a plugin is a class with `Tracker.update`, which `plugin.tracker` registers under a name. The option
`method` of `track` takes that name and creates an instance for each detector of each source. `BatchTracker` is what
`track` itself calls: `plugin.SourceTrackers` runs a plugin's trackers, `compiled_tracker.CompiledTracker` the built-in
methods, with all sources in one call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from streamkit.tracking.settings import TrackerSettings

PREDICTED = np.dtype(
    [
        ("frame", np.int64),  # its place in the batch's frames
        ("id", np.int64),
        ("class_id", np.int64),
        ("score", np.float64),  # of the last detection
        ("box", np.float64, (4,)),  # x1, y1, x2, y2 within the frame
    ],
    align=True,
)
"""The expected position of a track that was not detected in a frame."""


class TrackerDetections(NamedTuple):
    """Objects to track: of one frame, or of a batch's frames one after the other.

    Attributes:
        box: (n, 4) float32, x1, y1, x2, y2 in source pixels.
        score: (n,) float32, 0 to 1.
        class_id: (n,) int32.
        embedding: (n, d) float32; d is 0 unless `track` has `appearance: true`.
    """

    box: np.ndarray
    score: np.ndarray
    class_id: np.ndarray
    embedding: np.ndarray


class CameraMotion(NamedTuple):
    """How a camera has moved the picture.

    Attributes:
        matrix: (2, 3) float64, which takes (x, y, 1) to (x, y) in source pixels.
        since_earlier: whether this is the motion since an earlier frame than the source's previous one, at which the
            camera stood still; it then holds for the tracks that were lost as it began to move.
    """

    matrix: np.ndarray
    since_earlier: bool

    def moved(self, boxes: np.ndarray) -> np.ndarray:
        """Return (n, 4) boxes x1, y1, x2, y2 as the picture moves them: their centers, and their sizes by the zoom."""
        centers = (boxes[:, :2] + boxes[:, 2:]) / 2 @ self.matrix[:, :2].T + self.matrix[:, 2]
        halves = (boxes[:, 2:] - boxes[:, :2]) / 2 * np.hypot(*self.matrix[:, :2])
        return np.concatenate([centers - halves, centers + halves], axis=1).astype(boxes.dtype)

    def after(self, earlier: CameraMotion | None) -> CameraMotion:
        """Return the motion over two steps, of which the `earlier` one comes first."""
        if earlier is None:
            return self
        turn = self.matrix[:, :2]
        matrix = np.column_stack([turn @ earlier.matrix[:, :2], turn @ earlier.matrix[:, 2] + self.matrix[:, 2]])
        return CameraMotion(matrix, self.since_earlier or earlier.since_earlier)


class TrackerFrame(NamedTuple):
    """The frame whose objects a tracker receives.

    Attributes:
        source: the source's id.
        detector: the id of the stage that detected the objects.
        time_s: presentation time in seconds; later than that of the previous call.
        width: width in source pixels.
        height: height in source pixels.
        last_id: the last track id of the source; new tracks get the numbers after it.
        camera: how the camera has moved the picture since the previous call, for a tracker that asks for it with
            `@tracker(NAME, camera_motion="auto")`; None if it stands still, or if the motion is not known.
    """

    source: str
    detector: str
    time_s: float
    width: float
    height: float
    last_id: int
    camera: CameraMotion | None = None


class Tracker(Protocol):
    """Follows the objects of one detector of one source.

    `track` creates an instance, with the `TrackerSettings` as its argument, when a source starts, restarts, or had no
    frame for `max_frame_gap`. It calls `update` with the frames on which the detector ran, in order, on the host.
    """

    def update(self, objects: TrackerDetections, frame: TrackerFrame) -> np.ndarray:
        """Return the track of each object of a frame.

        Args:
            objects: the frame's n objects; all boxes are finite and not empty.
            frame: the frame.

        Returns:
            (n,) integers: an id that an earlier frame's object has, `frame.last_id + 1` and following for new tracks,
            -1 for an object without a track. No two objects have the same id.
        """


class BatchFrame(NamedTuple):
    """One detector's objects of one frame of a batch.

    Attributes:
        source: the source's id.
        detector: the id of the stage that detected the objects.
        time_s: presentation time in seconds.
        epoch: restarts of the source so far.
        detected: whether the detector ran on the frame; if not, its objects are predicted.
        width: width in source pixels.
        height: height in source pixels.
        end: end of its objects in the batch's; they begin at the end of the previous frame's.
        camera: its motion; None if it stands still, or if the motion is not known.
    """

    source: str
    detector: str
    time_s: float
    epoch: int
    detected: bool
    width: float
    height: float
    end: int
    camera: CameraMotion | None = None


class BatchTracker(Protocol):
    """Tracks the objects of all sources; frames of one source come in order."""

    def update(self, frames: Sequence[BatchFrame], objects: TrackerDetections, ids: np.ndarray) -> np.ndarray:
        """Track a batch.

        Args:
            frames: the frames of the batch, once for each detector.
            objects: their n objects; with `smooth`, their boxes are replaced in place.
            ids: (n,) int64, all -1; receives the track of each object.

        Returns:
            (p,) PREDICTED: the tracks to output that were not detected, in the order of the frames.
        """

    def end(self, source: str) -> None:
        """End all tracks of a source. Its ids are not reused."""

    def continue_after(self, source: str, last_id: int) -> None:
        """Let the track ids of a source go on after this one."""

    def last_ids(self) -> dict[str, int]:
        """Return the last track id of each source."""


@dataclass(frozen=True, kw_only=True)
class TrackerMethod:
    """A value of the option `method` of `track`.

    Attributes:
        name: the name in the YAML.
        summary: what it does, in one line.
        start: creates the tracker of a pipeline.
        origin: the file and the name of the class that implements it.
        steps: settings that the method fixes, by their names in `TrackerSettings`.
        compiled: whether it is compiled with Numba: all built-in methods are.
        camera_motion: the default of the option of this name.
    """

    name: str
    summary: str
    start: Callable[[TrackerSettings], BatchTracker]
    origin: tuple[str, str]
    steps: Mapping[str, Any] = field(default_factory=dict)
    compiled: bool = False
    camera_motion: bool | Literal["auto"] = False

    def __str__(self) -> str:
        return self.name

    @property
    def has_motion_filter(self) -> bool:
        """Whether `smooth` can replace boxes by those of a motion filter."""
        return self.compiled and bool(self.steps.get("motion", True))

    @property
    def takes_camera_motion(self) -> bool:
        """Whether the option `camera_motion` may be set: of a plugin's method, if the method asks for it."""
        return self.has_motion_filter or self.camera_motion is not False
