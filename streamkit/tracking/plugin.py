# SPDX-License-Identifier: Apache-2.0
"""Trackers of plugins: registers their classes, and runs an instance for each detector of each source."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from traceback import walk_tb
from typing import Any, Literal, TypeVar

import numpy as np

from streamkit.core.errors import describe
from streamkit.core.stage import current_registry
from streamkit.tracking.jit import need_numba
from streamkit.tracking.settings import TrackerSettings
from streamkit.tracking.tracker import (
    PREDICTED,
    BatchFrame,
    BatchTracker,
    CameraMotion,
    Tracker,
    TrackerDetections,
    TrackerFrame,
    TrackerMethod,
)

_TrackerClass = TypeVar("_TrackerClass", bound=Callable[[TrackerSettings], Any])


def tracker(name: str, *, camera_motion: bool | Literal["auto"] = False) -> Callable[[_TrackerClass], _TrackerClass]:
    """Register a class as a method of the stage `track`: `track: {method: NAME}`.

    The class takes the `TrackerSettings` and has the method `update` of `Tracker`; its docstring's first line is shown
    by `streamkit list`.

    Args:
        name: the name in the YAML.
        camera_motion: the default of the option `camera_motion` of `track` with this method: "auto" or true fills
            `TrackerFrame.camera`; false for a tracker that does not read it.

    Raises:
        TypeError: the name is missing, `camera_motion` is another value, or the class has no method `update`.
    """
    if not isinstance(name, str) or not name:
        raise TypeError('@tracker needs the name that the YAML uses: write @tracker("my_tracker")')
    if not (isinstance(camera_motion, bool) or camera_motion == "auto"):
        raise TypeError(f'camera_motion of tracker {name!r} must be "auto", True or False, got {camera_motion!r}')

    def decorate(tracker_class: _TrackerClass) -> _TrackerClass:
        update: Any = getattr(tracker_class, "update", None)
        if not isinstance(tracker_class, type) or not inspect.isfunction(update):
            raise TypeError(f"tracker {name!r} must be a class with the method update(objects, frame)")
        file = update.__code__.co_filename
        create: Callable[[TrackerSettings], Tracker] = tracker_class
        method = TrackerMethod(
            name=name,
            summary=(inspect.getdoc(tracker_class) or "").split("\n", 1)[0],
            start=_SourceTrackersOf(name, file, create),
            origin=(file, tracker_class.__qualname__),
            camera_motion=camera_motion,
        )
        current_registry().add_tracker(method)
        return tracker_class

    return decorate


@dataclass
class _Lane:
    """One detector's objects of one source.

    Attributes:
        tracker: the plugin's tracker.
        epoch: restarts of the source so far.
        time_s: time of the last frame.
        detected_s: time of the last frame on which the detector ran.
        seen: the last detection of each track by its id: (1,) PREDICTED, and its time.
        camera: how the camera has moved the picture since the tracker was last called; None if it stood still.
    """

    tracker: Tracker
    epoch: int
    time_s: float
    detected_s: float = math.nan
    seen: dict[int, tuple[np.ndarray, float]] = field(default_factory=dict)
    camera: CameraMotion | None = None

    def move(self, camera: CameraMotion) -> None:
        """Take in how the camera has moved the picture: the last detections move with it."""
        self.camera = camera.after(self.camera)
        for sighting, seen_s in self.seen.values():
            if seen_s < self.detected_s or not camera.since_earlier:
                sighting["box"] = camera.moved(sighting["box"])


class SourceTrackers:
    """Runs the trackers of a plugin's class; see `tracker.BatchTracker`.

    A track that was not detected is expected where it was last seen, moved by the camera for trackers that ask for it.

    Args:
        name: the method's name, for messages.
        file: the plugin's file, for messages.
        tracker_class: creates a tracker.
        settings: its argument.
    """

    def __init__(
        self, name: str, file: str, tracker_class: Callable[[TrackerSettings], Tracker], settings: TrackerSettings
    ) -> None:
        self._name = name
        self._file = file
        self._tracker_class = tracker_class
        self._settings = settings
        self._lanes: dict[tuple[str, str], _Lane] = {}
        self._last_ids: dict[str, int] = {}

    def update(self, frames: Sequence[BatchFrame], objects: TrackerDetections, ids: np.ndarray) -> np.ndarray:
        """See `BatchTracker.update`.

        Raises:
            ValueError: a tracker failed, or returned invalid ids; names the method.
        """
        predicted: list[np.ndarray] = []
        begin = 0
        for number, frame in enumerate(frames):
            lane = self._lane(frame)
            if frame.camera is not None:
                lane.move(frame.camera)
            if frame.detected:
                ids[begin : frame.end] = self._track(lane, frame, [column[begin : frame.end] for column in objects])
            predicted += self._unseen(lane, frame, number)
            begin = frame.end
        return np.concatenate(predicted) if predicted else np.zeros(0, PREDICTED)

    def end(self, source: str) -> None:
        """See `BatchTracker.end`."""
        for key in [key for key in self._lanes if key[0] == source]:
            del self._lanes[key]

    def continue_after(self, source: str, last_id: int) -> None:
        """See `BatchTracker.continue_after`."""
        self._last_ids[source] = last_id

    def last_ids(self) -> dict[str, int]:
        """See `BatchTracker.last_ids`."""
        return dict(self._last_ids)

    def _lane(self, frame: BatchFrame) -> _Lane:
        key = frame.source, frame.detector
        lane = self._lanes.get(key)
        if lane is not None:
            elapsed_s = frame.time_s - lane.time_s
            if elapsed_s > self._settings.max_frame_gap_s or elapsed_s < 0 or lane.epoch != frame.epoch:
                lane = None
        if lane is None:
            lane = self._lanes[key] = _Lane(self._call(self._tracker_class, self._settings), frame.epoch, frame.time_s)
        lane.time_s = frame.time_s
        return lane

    def _track(self, lane: _Lane, frame: BatchFrame, columns: list[np.ndarray]) -> np.ndarray:
        """Return the id of each of the frame's objects; -1 also for empty boxes, which the tracker does not receive."""
        box = columns[0]
        valid = np.isfinite(box).all(axis=1) & (box[:, 2] > box[:, 0]) & (box[:, 3] > box[:, 1])
        objects = TrackerDetections(*(column[valid] for column in columns))
        last_id = self._last_ids.get(frame.source, 0)
        tracker_frame = TrackerFrame(
            frame.source, frame.detector, frame.time_s, frame.width, frame.height, last_id, lane.camera
        )
        lane.camera = None
        tracked = self._call(lane.tracker.update, objects, tracker_frame)
        self._check(tracked, objects)
        ids = np.full(len(box), -1, np.int64)
        ids[valid] = tracked
        self._last_ids[frame.source] = max(last_id, int(ids.max(initial=0)))
        lane.detected_s = frame.time_s
        for row in np.flatnonzero(ids > 0):
            sighting = np.array([(0, ids[row], columns[2][row], columns[1][row], box[row])], PREDICTED)
            lane.seen[int(ids[row])] = sighting, frame.time_s
        return ids

    def _unseen(self, lane: _Lane, frame: BatchFrame, number: int) -> list[np.ndarray]:
        """Return rows for the lane's tracks that are not detected in this frame but are output; forget old ones."""
        oldest_s = min(frame.time_s - self._settings.show_lost_s, lane.detected_s)
        lane.seen = {id_: (row, seen_s) for id_, (row, seen_s) in lane.seen.items() if seen_s >= oldest_s}
        rows = []
        for sighting, seen_s in lane.seen.values():
            if frame.detected and seen_s == frame.time_s:
                continue
            row = sighting.copy()
            row["frame"] = number
            limits = (frame.width, frame.height, frame.width, frame.height)
            row["box"] = np.clip(row["box"], 0, limits)
            width, height = row["box"][0, 2:] - row["box"][0, :2]
            if width >= 1 and height >= 1:
                rows.append(row)
        return rows

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:  # a plugin may raise anything
            lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == self._file]
            place = f":{lines[-1]}" if lines else ""
            raise ValueError(f"tracker {self._name} of {self._file}{place}: {describe(error)}") from error

    def _check(self, ids: Any, objects: TrackerDetections) -> None:
        count = len(objects.box)
        rule = f"tracker {self._name} of {self._file}: update must return {count} integers, one for each object"
        if not isinstance(ids, np.ndarray) or ids.dtype.kind not in "iu":
            got = f"an array of {ids.dtype}" if isinstance(ids, np.ndarray) else type(ids).__name__
            raise ValueError(f"{rule}, got {got}")
        if ids.shape != (count,):
            raise ValueError(f"{rule}, got the shape {ids.shape}")
        tracks = ids[ids != -1]
        if (tracks < 1).any():
            raise ValueError(f"{rule}: a track's id, from 1, or -1, got {int(tracks.min())}")
        if len(np.unique(tracks)) < len(tracks):
            raise ValueError(f"{rule}: no two objects have the same id, got {ids.tolist()}")


@dataclass(frozen=True)
class _SourceTrackersOf:
    """Creates the `SourceTrackers` of a plugin's class; two of the same class are equal."""

    name: str
    file: str
    tracker_class: Callable[[TrackerSettings], Tracker]

    def __call__(self, settings: TrackerSettings) -> BatchTracker:
        return SourceTrackers(self.name, self.file, self.tracker_class, settings)


def best_pairs(gain: np.ndarray) -> np.ndarray:
    """Return the column of each row, so that the pairs have the greatest total gain; needs Numba, the extra `track`.

    Args:
        gain: (n, m) numbers; a pair with a gain of 0 or less is never taken.

    Returns:
        (n,) int64; -1 for a row without a column.

    Raises:
        MissingPackage: Numba is not installed.
    """
    need_numba()
    from streamkit.tracking import assign

    return assign.best_pairs(np.ascontiguousarray(gain, np.float64))
