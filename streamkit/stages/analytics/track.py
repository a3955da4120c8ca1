# SPDX-License-Identifier: Apache-2.0
"""`track`: multi-object tracking."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np

from streamkit.analytics.per_source_steps import shape_scales
from streamkit.core.carried import CarriedCounts
from streamkit.core.data import Batch, Detections
from streamkit.core.stage import Score, Seconds, StreamStage, stage
from streamkit.stages.analytics.camera_motion import CameraMotions
from streamkit.tracking.methods import MethodName, resolve_method
from streamkit.tracking.settings import TrackerSettings
from streamkit.tracking.tracker import BatchFrame, CameraMotion, TrackerDetections, TrackerMethod

logger = logging.getLogger(__name__)

_SHOWN_S = 0.5
_PREDICTED_ROW = 1 << 30  # row ids from here on are of rows that no detector made


@stage(
    "track",
    reads="detections",
    writes="track_id",
    reads_if={"camera_motion": "pixels"},
    device_copy="the corners of frames that are measured go from device to host, 2 kB each",
)
class Track(StreamStage):
    """Follow objects from frame to frame: each gets the number of its track.

    Track ids count from 1 in each source and are never reused. All tracks of a source end when it ends, restarts (a
    file that loops), or has no frame for `max_frame_gap`. Objects in no track, such as those too weak to begin one,
    have no id. Times are in seconds of the source, so results do not depend on the frame rate. The built-in
    methods need Numba: the extra `track`.
    """

    method: Annotated[
        MethodName,
        "bytetrack; botsort, which also smooths boxes and compensates the motion of the camera; auto, bytetrack that "
        "compensates the motion of cameras that move; ocsort, which prefers observations to predictions; sort, which "
        "uses strong objects only; iou, which has no motion model; or a method of a plugin.",
    ] = "bytetrack"
    new_score: Annotated[Score, "minimum score of an object that begins a track."] = 0.5
    high_score: Annotated[Score, "minimum score of objects that are matched first, and to lost tracks."] = 0.4
    low_score: Annotated[Score, "minimum score of objects that continue a recent track; bytetrack and botsort."] = 0.1
    min_iou: Annotated[
        Score,
        "minimum overlap of an object and the expected box of its track, 0 to 1. It is low because the overlap is "
        "reduced where the heights differ, and the assignment as a whole is optimized.",
    ] = 0.03
    confirm: Annotated[Seconds, "how long a track is seen before it gets its id; in a first frame, at once."] = 0.1
    track_ttl: Annotated[Seconds, "how long an unseen track is remembered."] = 5.0
    max_frame_gap: Annotated[Seconds, "a longer time between two frames of a source ends all its tracks."] = 10.0
    class_aware: Annotated[bool, "match objects with tracks of the same class only."] = True
    appearance: Annotated[
        bool,
        "also compare appearance, by the vectors of an `embed` stage above: for objects that overlap well, and to "
        "find lost tracks again at any position.",
    ] = False
    min_similarity: Annotated[Score, "minimum cosine similarity of two vectors of one object."] = 0.7
    predicted: Annotated[
        bool | Seconds,
        "output tracks that are not seen for up to half a second, or this long, as objects marked `predicted`. Frames "
        "skipped by a detector's `every` have all their objects like this in any case.",
    ] = False
    smooth: Annotated[bool | None, "steady the boxes by a motion filter; default for botsort."] = None
    camera_motion: Annotated[
        bool | Literal["auto"] | None,
        "move the tracks as the camera moves the picture. true measures every frame; auto, the default for botsort and "
        "auto, measures five frames a second while the camera stands still. Where few corners of the background agree, "
        "tracks stay where they are; the summary counts these frames.",
    ] = None

    def __post_init__(self) -> None:
        """Check the method, and the thresholds against each other."""
        method = self.tracker_method
        if not self.low_score <= self.high_score <= self.new_score:
            raise ValueError(
                f"low_score, high_score and new_score must be in ascending order, got {self.low_score:g}, "
                f"{self.high_score:g} and {self.new_score:g}"
            )
        if self.max_frame_gap < self.track_ttl:
            raise ValueError(
                "max_frame_gap must be at least track_ttl, or lost tracks end earlier, got "
                f"{self.max_frame_gap:g} s and {self.track_ttl:g} s"
            )
        if self.smooth and not method.has_motion_filter:
            raise ValueError(
                f"method {method} has no motion model to smooth boxes with: leave out smooth or change method"
            )
        if self.camera_motion and not method.takes_camera_motion:
            reason = "has no motion model for the camera to move"
            if not method.compiled:
                reason = "does not ask for camera motion"
            raise ValueError(f"method {method} {reason}: leave out camera_motion or change method")

    @property
    def tracker_method(self) -> TrackerMethod:
        """The method that `method` names."""
        return resolve_method(self.method)

    def probe(self) -> None:
        """Check that Numba is installed, which the built-in methods need."""
        if self.tracker_method.compiled:
            from streamkit.tracking.jit import need_numba

            need_numba()

    def open(self) -> None:
        """Load the compiled code of a built-in method, which the first run on a machine compiles."""
        self.probe()
        method = self.tracker_method
        self._settings = self._tracker_settings(method)
        self.tracker = method.start(self._settings)
        self._carried = CarriedCounts(self.context.runtime.carried)
        self._running: dict[str, object] = {}
        camera_motion = method.camera_motion if self.camera_motion is None else self.camera_motion
        self._cameras = CameraMotions(camera_motion is True, self.context.counters) if camera_motion else None
        if method.compiled:
            self._compile()

    def _tracker_settings(self, method: TrackerMethod) -> TrackerSettings:
        steps: dict[str, Any] = {
            "motion": True,
            "two_rounds": True,
            "heading": 0.0,
            "recover": False,
            "smooth": False,
            **method.steps,
        }
        if self.smooth is not None:
            steps["smooth"] = self.smooth
        show_lost_s = _SHOWN_S if self.predicted is True else float(self.predicted)
        numbers = {
            "new_score": self.new_score,
            "high_score": self.high_score,
            "low_score": self.low_score,
            "min_iou": self.min_iou,
            "min_iou_weak": max(0.3, self.min_iou),
            "min_iou_new": max(0.1, self.min_iou),
            "min_similarity": self.min_similarity,
            "confirm_s": self.confirm,
            "track_ttl_s": self.track_ttl,
            "max_frame_gap_s": self.max_frame_gap,
            "show_lost_s": show_lost_s,
        }
        # an int would compile everything again
        floats: dict[str, Any] = {name: float(number) for name, number in numbers.items()}
        steps |= {"class_aware": self.class_aware, "appearance": self.appearance}
        return TrackerSettings(**steps, **floats)

    def _compile(self) -> None:
        from streamkit.tracking.compiled_tracker import is_compiled

        if not is_compiled():
            self.context.runtime.opening_note = "compiling, first run only"
            logger.info("compiling the tracker (first run only)")
        self._advance([], Batch([]))

    def new_state(self, source: str) -> object:
        """Return a token: the source runs while it exists. The tracker holds the tracks of all sources."""
        if self._running.pop(source, None) is not None:
            self._end(source)
        if (last_id := self._carried.take(source)) is not None:  # the pipeline was rebuilt
            self.tracker.continue_after(source, last_id)
        self._running[source] = token = object()
        return token

    def _end(self, source: str) -> None:
        self.tracker.end(source)
        if self._cameras is not None:
            self._cameras.end(source)

    def close(self) -> None:
        """Pass on the last track id of each source."""
        for source, last_id in self.tracker.last_ids().items():
            self._carried.put(source, last_id)
        self._carried.save()

    def process(self, batch: Batch, states: Mapping[str, Any]) -> Batch:
        """Add `track_id`, and rows for predicted objects where they are requested."""
        if len(self._running) > len(states):
            for source in [source for source in self._running if source not in states]:
                del self._running[source]
                self._end(source)
        names = list(batch.tables)
        tables = [_sorted(batch.table(name)) for name in names]
        for name, table in zip(names, self._advance(tables, batch), strict=True):
            batch.tables[name] = table
        return batch

    def _advance(self, tables: list[Detections], batch: Batch) -> list[Detections]:
        """Return the tables with their tracks. The tracker is called once, with each table's part of each frame."""
        frames = batch.frames
        scales = np.tile(shape_scales(frames), 2).astype(np.float32)  # tracks outlive a change of a source's size
        bounds = [np.searchsorted(table.batch_row, np.arange(len(frames) + 1)) for table in tables]
        order = _interleaved(bounds, len(frames))
        objects = self._objects(tables, order, scales)
        ids = np.full(len(order), -1, np.int64)
        motions = self._cameras.measure(batch, tables) if self._cameras is not None else [None] * len(frames)
        tracker_frames = _batch_frames(batch, bounds, scales, motions)
        predicted = self.tracker.update(tracker_frames, objects, ids)
        predicts = self._settings.show_lost_s > 0 or not all(frame.detected for frame in tracker_frames)
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        begin = 0
        tracked: list[Detections] = []
        for number, table in enumerate(tables):
            table_places = places[begin : begin + len(table)]
            begin += len(table)
            columns = {"track_id": ids[table_places]}
            if self._settings.smooth:
                columns["xyxy"] = _within(objects.box[table_places] * scales[table.batch_row], table, frames)
            table = table.with_columns(**columns)
            tracked.append(_with_predicted(table, predicted, number, len(tables), scales) if predicts else table)
        return tracked

    def _objects(self, tables: list[Detections], order: np.ndarray, scales: np.ndarray) -> TrackerDetections:
        tables = tables or [Detections.empty()]
        embeddings = [table.extra.get("embedding") for table in tables] if self.appearance else []
        size = next((vectors.shape[1] for vectors in embeddings if vectors is not None), 0)
        parts = [
            np.zeros((len(table), size), np.float32) if vectors is None or vectors.shape[1] != size else vectors
            for table, vectors in zip(tables, embeddings or [None] * len(tables), strict=True)
        ]
        return TrackerDetections(
            np.concatenate([table.xyxy / scales[table.batch_row] for table in tables])[order],
            np.concatenate([table.score for table in tables])[order],
            np.concatenate([table.class_id for table in tables])[order],
            np.concatenate(parts)[order],
        )


def _batch_frames(
    batch: Batch, bounds: list[np.ndarray], scales: np.ndarray, motions: Sequence[CameraMotion | None]
) -> list[BatchFrame]:
    """Each table's part of each frame, frame by frame; sizes are those of the source's first frame."""
    names = list(batch.tables)
    counts = np.stack([np.diff(ends) for ends in bounds], axis=1).reshape(-1) if bounds else np.zeros(0, np.int64)
    ends = iter(np.cumsum(counts).tolist())
    return [
        BatchFrame(
            frame.source,
            name,
            frame.pts_s,
            frame._state.epoch,
            name not in frame._state.skipped_detectors,
            frame.width / across,
            frame.height / down,
            next(ends),
            None if motion is None else _scaled(motion, across, down),
        )
        for frame, (across, down, *_), motion in zip(batch.frames, scales.tolist(), motions, strict=True)
        for name in names
    ]


def _scaled(motion: CameraMotion, across: float, down: float) -> CameraMotion:
    """A camera's motion in pixels of the source's first frame."""
    factors = np.array([(1, down / across, 1 / across), (across / down, 1, 1 / down)])
    return motion._replace(matrix=motion.matrix * factors)


def _sorted(table: Detections) -> Detections:
    rows = table.batch_row
    return table[np.argsort(rows, kind="stable")] if len(rows) > 1 and (rows[1:] < rows[:-1]).any() else table


def _interleaved(bounds: list[np.ndarray], frames: int) -> np.ndarray:
    """Row order of the concatenated tables, frame by frame."""
    if len(bounds) == 1:
        return np.arange(bounds[0][-1])
    frame = [np.repeat(np.arange(frames), np.diff(ends)) for ends in bounds]
    return np.argsort(np.concatenate(frame), kind="stable") if frame else np.zeros(0, np.int64)


def _within(boxes: np.ndarray, table: Detections, frames: list[Any]) -> np.ndarray:
    """Boxes clipped at their frames' borders."""
    limits = np.array([(f.width, f.height, f.width, f.height) for f in frames], np.float32).reshape(-1, 4)
    return np.asarray(np.clip(boxes, 0, limits[table.batch_row]))


def _with_predicted(
    table: Detections, predicted: np.ndarray, number: int, tables: int, scales: np.ndarray
) -> Detections:
    """Add the rows of `predicted` that belong to the table, and a column that marks them."""
    rows = predicted[predicted["frame"] % tables == number]
    table = table.with_columns(predicted=np.zeros(len(table), bool))
    if not len(rows):
        return table
    frame = (rows["frame"] // tables).astype(np.int32)
    added = Detections(
        rows["box"].astype(np.float32) * scales[frame],
        rows["score"].astype(np.float32),
        rows["class_id"].astype(np.int32),
        frame,
        rows["id"],
        table.labels,
        {"predicted": np.ones(len(rows), bool)},
        (_PREDICTED_ROW + rows["id"] % _PREDICTED_ROW).astype(np.int32),
    )
    whole = Detections.concat([table, added])
    return whole[np.argsort(whole.batch_row, kind="stable")]
