"""Scores of tracks against the truth, by TrackEval's own metrics; and what they are measured on."""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from samples.score import ignored
from streamkit.core.data import Frame
from streamkit.stages.analytics.track import Track
from streamkit.testing.kit import detections, frames, run_stage

Boxes = list[tuple[np.ndarray, np.ndarray]]
"""For each frame ids (n,) int64 and boxes (n, 4) float64 x1, y1, x2, y2."""


class TruthFrame(NamedTuple):
    """The true objects of a frame.

    Attributes:
        ids: (n,) int64.
        boxes: (n, 4) float64 x1, y1, x2, y2.
        counts: (n,) bool, whether a track must follow it.
        ignored: (n,) bool, whether a track on it is neither right nor wrong.
    """

    ids: np.ndarray
    boxes: np.ndarray
    counts: np.ndarray
    ignored: np.ndarray


LABELS = ("car", "person", "bike")
DISTRACTORS = (2, 7, 8, 12)  # classes of MOTChallenge: people on vehicles, statues, distractors, reflections
NEAR = 0.5  # the IoU from which a box is a hit


# ------------------------------------------------------------------------------------------------ MOTChallenge files


def read(path: Path) -> np.ndarray:
    """(n, 7) float64 of a MOTChallenge file: frame from 1, id, x, y, width, height, score."""
    return read_whole(path)[:, :7]


def read_whole(path: Path) -> np.ndarray:
    """(n, 7 to 10) float64 of a MOTChallenge file; further columns are class, visibility, or -1.

    Raises:
        ValueError: it is not such a file; names it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of an empty file
        try:
            rows = np.loadtxt(path, delimiter=",", ndmin=2, encoding="utf-8-sig")
        except ValueError as error:
            raise ValueError(f"{path} is not a file of MOTChallenge: {error}") from error
    if not rows.size:
        return np.zeros((0, 9))
    if rows.shape[1] < 7:
        raise ValueError(f"{path} is not a file of MOTChallenge: it has {rows.shape[1]} columns of at least 7")
    return rows


def read_truth(path: Path, count: int) -> list[TruthFrame]:
    """The truth of a MOTChallenge file: rows of class 1 that are not marked 0 count, and distractors are ignored.

    Files of other authors in this form, such as those of SoccerNet, have no class: -1.
    """
    rows = read_whole(path)
    kind = rows[:, 7] if rows.shape[1] > 8 else np.ones(len(rows))
    boxes = np.column_stack([rows[:, 2:4], rows[:, 2:4] + rows[:, 4:6]])
    counts = (kind <= 1) & (rows[:, 6] != 0)
    ignored_rows = np.isin(kind, DISTRACTORS)
    ids = rows[:, 1].astype(np.int64)
    in_frames = [rows[:, 0] == number for number in range(1, count + 1)]
    return [TruthFrame(ids[there], boxes[there], counts[there], ignored_rows[there]) for there in in_frames]


def by_frame(rows: np.ndarray, count: int) -> Boxes:
    """The ids and boxes of each of `count` frames."""
    boxes = np.column_stack([rows[:, 2:4], rows[:, 2:4] + rows[:, 4:6]])
    return [(rows[rows[:, 0] == f, 1].astype(np.int64), boxes[rows[:, 0] == f]) for f in range(1, count + 1)]


def frames_with_detections(rows: np.ndarray, step_s: float, width: int, height: int) -> list[Frame]:
    """Frames with the detections of such a file."""
    listed = frames(int(rows[:, 0].max()), width=width, height=height, step_s=step_s)
    for frame, (_, boxes) in zip(listed, by_frame(rows, len(listed)), strict=True):
        score = rows[rows[:, 0] == frame.index + 1, 6]
        frame.tables = {"detect": detections(boxes, score, label=["person"] * len(boxes), labels=("person",))}
    return listed


# ------------------------------------------------------------------------------------------------------ drawn scenes


def every_nth(detected_frames: Iterable[Frame], n: int) -> list[Frame]:
    """The frames as `detect: {every: n}` would give them: those between have no objects, and say so."""
    thinned = [dataclasses.replace(frame, tables=dict(frame.tables)) for frame in detected_frames]
    for frame in thinned:
        if frame.index % n:
            frame.tables = {name: table[:0] for name, table in frame.tables.items()}
            frame._state.skipped_detectors = frozenset(frame.tables)
    return thinned


def counted(truth: Sequence[dict], tracks: Boxes) -> tuple[Boxes, Boxes]:
    """Truth and tracks of a drawn scene without objects of which too little is seen, and without the tracks on them."""
    return without_ignored([truth_frame(record) for record in truth], tracks)


def truth_frame(record: dict) -> TruthFrame:
    """A record of a drawn scene's truth."""
    objects = record["objects"]
    out = np.array([ignored(item) for item in objects], bool)
    return TruthFrame(
        np.array([item["id"] for item in objects], np.int64),
        np.array([item["box"] for item in objects], float).reshape(-1, 4),
        ~out,
        out,
    )


def without_ignored(truth: Sequence[TruthFrame], tracks: Boxes) -> tuple[Boxes, Boxes]:
    """What counts of the truth, and the tracks that are not on ignored objects, as TrackEval does for MOTChallenge."""
    from scipy.optimize import linear_sum_assignment

    counted_truth = []
    counted_tracks = []
    for frame, (ids, boxes) in zip(truth, tracks, strict=True):
        overlap = iou(frame.boxes, boxes)
        overlap[overlap < NEAR] = 0
        rows, columns = linear_sum_assignment(-overlap)
        on_ignored = columns[(overlap[rows, columns] > 0) & frame.ignored[rows]]
        left = np.setdiff1d(np.arange(len(ids)), on_ignored)
        counted_truth.append((frame.ids[frame.counts], frame.boxes[frame.counts]))
        counted_tracks.append((ids[left], boxes[left]))
    return counted_truth, counted_tracks


def truth_of(path: Path) -> list[dict]:
    """The records of a scene's truth file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


# ----------------------------------------------------------------------------------------------------------- scores


def tracked(detected_frames: Sequence[Frame], batch: int = 16, **options) -> Boxes:
    """What `track` with these options makes of frames with detections."""
    return boxes_of(run_stage(Track(**options), detected_frames, batch=batch))


def boxes_of(done: Iterable[Frame]) -> Boxes:
    """The tracks of each frame."""
    tracks = []
    for frame in done:
        table = frame.detections
        has_track = table.track_id > 0
        tracks.append((table.track_id[has_track], table.xyxy[has_track].astype(float)))
    return tracks


def lengths(tracks: Boxes) -> np.ndarray:
    """In how many frames each track is."""
    return np.unique(np.concatenate([ids for ids, _ in tracks]), return_counts=True)[1]


def together(parts: Iterable[Boxes]) -> Boxes:
    """Several sequences as one: their ids are told apart."""
    return [(ids + 1_000_000 * number, boxes) for number, part in enumerate(parts) for ids, boxes in part]


def iou(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(n, m) overlap of boxes x1, y1, x2, y2."""
    side = np.minimum(a[:, None, 2:], b[None, :, 2:]) - np.maximum(a[:, None, :2], b[None, :, :2])
    both = np.clip(side, 0, None).prod(-1)
    area = [(box[:, 2:] - box[:, :2]).prod(-1) for box in (a, b)]
    return both / np.maximum(area[0][:, None] + area[1][None] - both, 1e-9)


def box_quality(truth: Boxes, tracks: Boxes) -> float:
    """The mean IoU of the boxes that are hits."""
    from scipy.optimize import linear_sum_assignment

    hits = []
    for (_, real), (_, boxes) in zip(truth, tracks, strict=True):
        overlap = iou(real, boxes)
        rows, columns = linear_sum_assignment(-np.where(overlap >= NEAR, overlap, 0))
        hits.append(overlap[rows, columns])
    every = np.concatenate(hits)
    return float(every[every >= NEAR].mean())


def scores(truth: Boxes, tracks: Boxes) -> dict[str, float]:
    """HOTA, MOTA, IDF1, identity switches and the number of ids of one sequence."""
    from trackeval.metrics import CLEAR, HOTA, Identity

    numbers = [
        {i: n for n, i in enumerate(sorted(set(np.concatenate([ids for ids, _ in side]).tolist())))}
        for side in (truth, tracks)
    ]
    data = {
        "gt_ids": [np.array([numbers[0][i] for i in ids.tolist()], int) for ids, _ in truth],
        "tracker_ids": [np.array([numbers[1][i] for i in ids.tolist()], int) for ids, _ in tracks],
        "similarity_scores": [iou(real, boxes) for (_, real), (_, boxes) in zip(truth, tracks, strict=True)],
        "num_gt_ids": len(numbers[0]),
        "num_tracker_ids": len(numbers[1]),
        "num_gt_dets": sum(len(ids) for ids, _ in truth),
        "num_tracker_dets": sum(len(ids) for ids, _ in tracks),
        "num_timesteps": len(truth),
    }
    quiet = {"PRINT_CONFIG": False}
    clear = CLEAR(quiet).eval_sequence(data)
    identity = Identity(quiet).eval_sequence(data)
    return {
        "HOTA": float(HOTA().eval_sequence(data)["HOTA"].mean()),
        "MOTA": float(clear["MOTA"]) if data["num_tracker_dets"] else 0.0,
        "IDF1": float(identity["IDF1"]),
        "switches": int(clear["IDSW"]),
        "ids": len(numbers[1]),
    }
