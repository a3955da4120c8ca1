# SPDX-License-Identifier: Apache-2.0
"""HOTA, MOTA and IDF1 by TrackEval, and where tracks go wrong."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamkit.core.errors import MissingPackage, StreamkitError
from streamkit.core.text import eval_command
from streamkit.evaluate.boxes import HIT_IOU, EvaluatedFrame, FlatBoxes, overlaps


@dataclass(slots=True, frozen=True)
class TrackError:
    """A frame at which an object's track goes wrong.

    Attributes:
        kind: `switch`: the object continues under another track; `fragment`: its track was interrupted before.
        frame: index into the evaluated frames.
        class_id: the object's class.
        object_id: the object's id in the truth.
        before: its last track.
        after: its track from this frame on.
        lost: for how many frames it had no track.
    """

    kind: str
    frame: int
    class_id: int
    object_id: int
    before: int
    after: int
    lost: int


def check_packages() -> None:
    """Check that pycocotools, TrackEval and what they need are installed. Raises MissingPackage or StreamkitError."""
    for package in ("pycocotools", "scipy", "tabulate"):
        try:
            __import__(package)
        except ImportError as error:
            raise MissingPackage(package, "eval", "streamkit eval") from error
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            import trackeval.metrics  # noqa: F401
    except ImportError as error:
        raise NoTrackEval() from error


class NoTrackEval(MissingPackage):
    """TrackEval is missing; it is not in an extra because of its dependency on opencv-python."""

    def __init__(self) -> None:
        text = f"streamkit eval needs the package trackeval; install it with: {eval_command()}"
        StreamkitError.__init__(self, text)


def tracking_scores(
    truth: FlatBoxes, detections: FlatBoxes, frames: Sequence[EvaluatedFrame], classes: Sequence[str]
) -> dict[str, Any]:
    """TrackEval's scores, of each class and of all.

    Sources are sequences, combined as TrackEval does; classes are combined over detections. Boxes without a track do
    not count. Boxes on ignored truth are removed first, as TrackEval does for MOTChallenge.
    """
    from trackeval.metrics import CLEAR, HOTA, Identity

    quiet = {"PRINT_CONFIG": False}
    with contextlib.redirect_stdout(io.StringIO()):
        metrics = [HOTA(), CLEAR(quiet), Identity(quiet)]
    sources = list(dict.fromkeys(frame.source for frame in frames))
    by_class: list[dict[str, Any]] = [{} for _ in metrics]
    for number, name in enumerate(classes):
        sequences = {
            source: _sequence(
                truth, detections, [n for n, frame in enumerate(frames) if frame.source == source], number
            )
            for source in sources
        }
        for metric, results in zip(metrics, by_class, strict=True):
            results[name] = metric.combine_sequences(
                {source: metric.eval_sequence(data) for source, data in sequences.items()}
            )
    whole = [
        metric.combine_classes_det_averaged(class_results)
        for metric, class_results in zip(metrics, by_class, strict=True)
    ]
    return {
        **_scores(*whole),
        "per_class": {name: _scores(*(class_results[name] for class_results in by_class)) for name in classes},
    }


def _scores(hota: dict[str, Any], clear: dict[str, Any], identity: dict[str, Any]) -> dict[str, Any]:
    there = clear["CLR_TP"] + clear["CLR_FN"]
    if not there:
        return dict.fromkeys(("hota", "deta", "assa", "mota", "idf1")) | {"switches": 0, "fragments": 0}
    return {
        "hota": float(np.mean(hota["HOTA"])),
        "deta": float(np.mean(hota["DetA"])),
        "assa": float(np.mean(hota["AssA"])),
        "mota": float(clear["MOTA"]),
        "idf1": float(identity["IDF1"]),
        "switches": int(clear["IDSW"]),
        "fragments": int(clear["Frag"]),
    }


def _sequence(truth: FlatBoxes, detections: FlatBoxes, frames: Sequence[int], class_id: int) -> dict[str, Any]:
    """TrackEval's input of one sequence and class."""
    pairs = [tracked_pair(truth, detections, frame, class_id) for frame in frames]
    real_ids, real_of = _renumber([truth.track_id[pair.real] for pair in pairs])
    ids, of = _renumber([detections.track_id[pair.boxes] for pair in pairs])
    return {
        "gt_ids": real_of,
        "tracker_ids": of,
        "similarity_scores": [pair.iou for pair in pairs],
        "num_gt_ids": real_ids,
        "num_tracker_ids": ids,
        "num_gt_dets": sum(map(len, real_of)),
        "num_tracker_dets": sum(map(len, of)),
        "num_timesteps": len(frames),
    }


def _renumber(ids: Sequence[np.ndarray]) -> tuple[int, list[np.ndarray]]:
    """The number of different ids, and the ids renumbered from 0."""
    unique_ids, places = np.unique(np.concatenate([np.zeros(0, np.int64), *ids]), return_inverse=True)
    return len(unique_ids), np.split(places, np.cumsum([len(frame_ids) for frame_ids in ids])[:-1]) if ids else []


@dataclass(slots=True, eq=False)
class TrackedPair:
    """The rows of one class in one frame: of the truth, of the pipeline's tracks, and their (n, m) IoU."""

    real: np.ndarray
    boxes: np.ndarray
    iou: np.ndarray


def tracked_pair(truth: FlatBoxes, detections: FlatBoxes, frame: int, class_id: int) -> TrackedPair:
    """The rows of a class in a frame that tracking is measured on."""
    from scipy.optimize import linear_sum_assignment

    part = truth.rows_of(frame)
    frame_rows = detections.rows_of(frame)
    real = part.start + np.flatnonzero(truth.class_id[part] == class_id)
    boxes = frame_rows.start + np.flatnonzero(
        (detections.class_id[frame_rows] == class_id) & (detections.track_id[frame_rows] >= 0)
    )
    iou = overlaps(truth.xyxy[real], detections.xyxy[boxes])
    out = truth.ignore[real]
    if out.any() and len(boxes):
        inside = overlaps(detections.xyxy[boxes], truth.xyxy[real[out]], np.ones(int(out.sum()))).max(axis=1, initial=0)
        near = np.where(iou >= HIT_IOU, iou, 0.0)
        rows, columns = linear_sum_assignment(-near)
        taken = columns[(near[rows, columns] > 0) & ~out[rows]]
        keep = inside < HIT_IOU
        keep[taken] = True
        boxes = boxes[keep]
        iou = iou[:, keep]
    return TrackedPair(real[~out], boxes, iou[~out])


def track_errors(
    truth: FlatBoxes, detections: FlatBoxes, frames: Sequence[EvaluatedFrame], classes: Sequence[str]
) -> list[TrackError]:
    """Where tracks go wrong.

    The matching is that of CLEAR MOT as TrackEval implements it: a pair of the frame before is kept, then the overlap
    decides; so the number of switches equals TrackEval's.
    """
    errors: list[TrackError] = []
    for source in dict.fromkeys(frame.source for frame in frames):
        source_frames = [n for n, frame in enumerate(frames) if frame.source == source]
        for number in range(len(classes)):
            errors += _class_errors(truth, detections, source_frames, number)
    return sorted(errors, key=lambda error: (error.frame, error.object_id))


def _class_errors(truth: FlatBoxes, detections: FlatBoxes, frames: Sequence[int], class_id: int) -> list[TrackError]:
    from scipy.optimize import linear_sum_assignment

    errors = []
    before: dict[int, int] = {}  # the pairs of the previous frame
    last: dict[int, tuple[int, int]] = {}  # the last track of each object, and the frame's place
    for place, frame in enumerate(frames):
        pair = tracked_pair(truth, detections, frame, class_id)
        objects = truth.track_id[pair.real].tolist()
        tracks = detections.track_id[pair.boxes]
        if not objects or not len(tracks):
            continue  # as in TrackEval, the pairs of the frame before are kept
        continued = np.array([[before.get(object_id) == track for track in tracks.tolist()] for object_id in objects])
        score = 1000.0 * continued + pair.iou
        score[pair.iou < HIT_IOU - np.finfo(float).eps] = 0
        rows, columns = linear_sum_assignment(-score)
        good = score[rows, columns] > np.finfo(float).eps
        now = {objects[row]: int(tracks[column]) for row, column in zip(rows[good], columns[good], strict=True)}
        for object_id, track in now.items():
            if object_id in last:
                last_track, at = last[object_id]
                lost = place - at - 1
                if last_track != track:
                    errors.append(TrackError("switch", frame, class_id, object_id, last_track, track, lost))
                elif lost:
                    errors.append(TrackError("fragment", frame, class_id, object_id, last_track, track, lost))
            last[object_id] = (track, place)
        before = now
    return errors
