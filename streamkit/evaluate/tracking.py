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
    truth: FlatBoxes, found: FlatBoxes, frames: Sequence[EvaluatedFrame], classes: Sequence[str]
) -> dict[str, Any]:  # fmt: skip
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
            source: _sequence(truth, found, [n for n, one in enumerate(frames) if one.source == source], number)
            for source in sources
        }
        for metric, results in zip(metrics, by_class, strict=True):
            results[name] = metric.combine_sequences(
                {source: metric.eval_sequence(data) for source, data in sequences.items()}
            )
    whole = [metric.combine_classes_det_averaged(one) for metric, one in zip(metrics, by_class, strict=True)]
    return {
        **_scores(*whole),
        "per_class": {name: _scores(*(one[name] for one in by_class)) for name in classes},
    }


def _scores(hota: dict[str, Any], clear: dict[str, Any], identity: dict[str, Any]) -> dict[str, Any]:
    there = clear["CLR_TP"] + clear["CLR_FN"]
    if not there:
        return dict.fromkeys(("hota", "deta", "assa", "mota", "idf1")) | {"switches": 0, "fragments": 0}
    return {
        "hota": float(np.mean(hota["HOTA"])), "deta": float(np.mean(hota["DetA"])),
        "assa": float(np.mean(hota["AssA"])), "mota": float(clear["MOTA"]), "idf1": float(identity["IDF1"]),
        "switches": int(clear["IDSW"]), "fragments": int(clear["Frag"]),
    }  # fmt: skip


def _sequence(truth: FlatBoxes, found: FlatBoxes, frames: Sequence[int], class_id: int) -> dict[str, Any]:
    """TrackEval's input of one sequence and class."""
    pairs = [tracked_pair(truth, found, frame, class_id) for frame in frames]
    real_ids, real_of = _numbered([truth.track_id[one.real] for one in pairs])
    ids, of = _numbered([found.track_id[one.boxes] for one in pairs])
    return {
        "gt_ids": real_of, "tracker_ids": of, "similarity_scores": [one.iou for one in pairs],
        "num_gt_ids": real_ids, "num_tracker_ids": ids, "num_gt_dets": sum(map(len, real_of)),
        "num_tracker_dets": sum(map(len, of)), "num_timesteps": len(frames),
    }  # fmt: skip


def _numbered(ids: Sequence[np.ndarray]) -> tuple[int, list[np.ndarray]]:
    """The number of different ids, and the ids renumbered from 0."""
    known, places = np.unique(np.concatenate([np.zeros(0, np.int64), *ids]), return_inverse=True)
    return len(known), np.split(places, np.cumsum([len(one) for one in ids])[:-1]) if ids else []


@dataclass(slots=True, eq=False)
class TrackedPair:
    """The rows of one class in one frame: of the truth, of the pipeline's tracks, and their (n, m) IoU."""

    real: np.ndarray
    boxes: np.ndarray
    iou: np.ndarray


def tracked_pair(truth: FlatBoxes, found: FlatBoxes, frame: int, class_id: int) -> TrackedPair:
    """The rows of a class in a frame that tracking is measured on."""
    from scipy.optimize import linear_sum_assignment

    part, mine = truth.rows_of(frame), found.rows_of(frame)
    real = part.start + np.flatnonzero(truth.class_id[part] == class_id)
    boxes = mine.start + np.flatnonzero((found.class_id[mine] == class_id) & (found.track_id[mine] >= 0))
    iou = overlaps(truth.xyxy[real], found.xyxy[boxes])
    out = truth.ignore[real]
    if out.any() and len(boxes):
        inside = overlaps(found.xyxy[boxes], truth.xyxy[real[out]], np.ones(int(out.sum()))).max(axis=1, initial=0)
        near = np.where(iou >= HIT_IOU, iou, 0.0)
        rows, columns = linear_sum_assignment(-near)
        taken = columns[(near[rows, columns] > 0) & ~out[rows]]
        keep = inside < HIT_IOU
        keep[taken] = True
        boxes, iou = boxes[keep], iou[:, keep]
    return TrackedPair(real[~out], boxes, iou[~out])


def track_errors(
    truth: FlatBoxes, found: FlatBoxes, frames: Sequence[EvaluatedFrame], classes: Sequence[str]
) -> list[TrackError]:  # fmt: skip
    """Where tracks go wrong.

    The matching is that of CLEAR MOT as TrackEval implements it: a pair of the frame before is kept, then the overlap
    decides; so the number of switches equals TrackEval's.
    """
    errors: list[TrackError] = []
    for source in dict.fromkeys(frame.source for frame in frames):
        mine = [n for n, one in enumerate(frames) if one.source == source]
        for number in range(len(classes)):
            errors += _class_errors(truth, found, mine, number)
    return sorted(errors, key=lambda one: (one.frame, one.object_id))


def _class_errors(
    truth: FlatBoxes, found: FlatBoxes, frames: Sequence[int], class_id: int
) -> list[TrackError]:  # fmt: skip
    from scipy.optimize import linear_sum_assignment

    errors = []
    before: dict[int, int] = {}  # the pairs of the previous frame
    last: dict[int, tuple[int, int]] = {}  # the last track of each object, and the frame's place
    for place, frame in enumerate(frames):
        pair = tracked_pair(truth, found, frame, class_id)
        objects, tracks = truth.track_id[pair.real].tolist(), found.track_id[pair.boxes]
        if not objects or not len(tracks):
            continue  # as in TrackEval, the pairs of the frame before are kept
        kept = np.array([[before.get(one) == track for track in tracks.tolist()] for one in objects])
        score = 1000.0 * kept + pair.iou
        score[pair.iou < HIT_IOU - np.finfo(float).eps] = 0
        rows, columns = linear_sum_assignment(-score)
        good = score[rows, columns] > np.finfo(float).eps
        now = {objects[row]: int(tracks[column]) for row, column in zip(rows[good], columns[good], strict=True)}
        for one, track in now.items():
            if one in last:
                known, at = last[one]
                lost = place - at - 1
                if known != track:
                    errors.append(TrackError("switch", frame, class_id, one, known, track, lost))
                elif lost:
                    errors.append(TrackError("fragment", frame, class_id, one, known, track, lost))
            last[one] = (track, place)
        before = now
    return errors
