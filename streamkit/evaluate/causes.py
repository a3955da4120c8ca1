# SPDX-License-Identifier: Apache-2.0
"""Why each object of the truth is missed: which threshold, filter or tracker setting removed it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamkit.config.plan import Node
from streamkit.evaluate.boxes import HIT_IOU, FlatBoxes, overlaps
from streamkit.evaluate.detection import Matches
from streamkit.evaluate.observe import Observations, known_classes
from streamkit.models.card import Card
from streamkit.stages.analytics.track import Track
from streamkit.stages.inference.inference_regions import InferenceRegions
from streamkit.stages.inference.postprocess import Postprocess

CANDIDATE_SCORE = 0.05
"""Minimum score at which the network has seen an object at all."""

NOT_DETECTED = "not detected"
WRONG_CLASS = "wrong class"
MERGED = "merged"
LATER = "removed by a later stage"
CAUSES = {
    NOT_DETECTED: f"no candidate with a score of {CANDIDATE_SCORE:g} or more overlaps it",
    "min_score": "a candidate is there, with a score below min_score",
    "nms": "a better box suppressed its candidate: iou",
    MERGED: "its only candidates are those of an object that is found: both have one box",
    WRONG_CLASS: "an object of another class is there, or a candidate of one",
    "labels": "its candidate has a class that labels removes",
    "size": "its candidate is smaller than min_size, or larger than max_size",
    "top_k": "its candidate is not among the top_k best",
    "roi": "it is outside of the detector's roi",
    "every": "the network did not run on the frame, and no track predicts the object",
    LATER: "a stage after the detector removed its box, or changed it",
    "track.low_score": "detected, but too weak for a track to take it",
    "track.high_score": "detected, but too weak for a lost track to take it, or for a method with one round",
    "track.new_score": "detected, but too weak to begin a track",
    "track.confirm": "detected, but its track is too young, or did not match",
}
"""Every cause of a miss, with its meaning."""


@dataclass(slots=True, frozen=True)
class Miss:
    """One missed object.

    Attributes:
        row: the row in the truth.
        cause: one of `CAUSES`.
        score: score of the candidate that was removed; None if there is none.
    """

    row: int
    cause: str
    score: float | None


def attribute(seen: Observations, matches: Matches, tracked: bool) -> list[Miss]:
    """The cause of every miss; with `tracked` also of objects that are detected but in no track.

    The candidates of an object overlap it by `HIT_IOU` or more. The best decides: a box of its own class that passes
    `min_score` before one of another class, and that before one below `min_score`.
    """
    misses = []
    for row in np.flatnonzero(matches.missed).tolist():
        cause, score = _cause(seen, row)
        misses.append(Miss(row, cause, score))
    if tracked:
        settings = _tracker(seen)
        for row, box in enumerate(matches.of.tolist()):
            if box >= 0 and seen.detections.track_id[box] < 0 and settings is not None:
                score = float(seen.detections.score[box])
                misses.append(Miss(row, f"track.{_tracker_cause(settings, score)}", score))
    return sorted(misses, key=lambda miss: miss.row)


def suggestions(seen: Observations, misses: Sequence[Miss]) -> list[str]:
    """What the causes suggest to change, the most frequent first."""
    counts = Counter(miss.cause for miss in misses)
    texts = []
    for cause, count in counts.most_common(3):
        scores = [miss.score for miss in misses if miss.cause == cause and miss.score is not None]
        if cause in ("min_score", "track.new_score", "track.high_score", "track.low_score") and count >= 3:
            half = float(np.median(scores))
            texts.append(f"{cause}: half of these {count:,} boxes have a score of {half:.2f} or more")
    return texts


def _cause(seen: Observations, row: int) -> tuple[str, float | None]:
    truth = seen.truth
    class_id = seen.truth.class_id[row]
    frame = int(truth.frame[row])
    overlapping = _near(seen.detections, frame, truth.xyxy[row])
    if frame not in seen.inferred:
        return "every", None
    if _is_outside(seen, row):
        return "roi", None
    raw, low = (_near(boxes, frame, truth.xyxy[row]) for boxes in (seen.raw, seen.low))
    strong = raw[seen.raw.class_id[raw] == class_id]
    if len(strong):
        closest = _closest_to(seen, strong, row)
        if not len(closest):
            return MERGED, float(seen.raw.score[strong].max())
        strong = closest
        best = strong[np.argmax(seen.raw.score[strong])]
        return _filter(seen, int(best)), float(seen.raw.score[best])
    low = low[seen.low.score[low] >= CANDIDATE_SCORE]
    same_class = low[seen.low.class_id[low] == class_id]
    weak = seen.low.score[same_class].max(initial=0.0)
    # of a detector without `raw`, such as boxes from a file
    if len(same_class) and weak >= _lowest_min_score(seen, int(class_id)):
        return MERGED if (seen.detections.class_id[overlapping] == class_id).any() else LATER, float(weak)
    others = overlapping[seen.detections.class_id[overlapping] != class_id]
    if len(others):
        return WRONG_CLASS, float(seen.detections.score[others].max())
    if len(raw):
        filtered = known_classes(seen.detectors)[1]
        removed = any(seen.names[number] in filtered for number in seen.raw.class_id[raw])
        return "labels" if removed else WRONG_CLASS, float(seen.raw.score[raw].max())
    return ("min_score", float(weak)) if len(same_class) else (NOT_DETECTED, None)


def _is_outside(seen: Observations, row: int) -> bool:
    """Whether an object of the truth is outside of the regions of every detector."""
    frame = seen.frames[seen.truth.frame[row]]
    box = seen.truth.xyxy[row][None].astype(np.float32)
    size = np.array([[frame.width, frame.height]], np.float64)
    scale = np.array([frame.shape_scale], np.float64)
    options = [node.options for node in seen.detectors if node.options.get("roi")]
    if len(options) < len(seen.detectors):
        return False
    regions = [
        InferenceRegions(of["roi"], of.get("units", "pixels"), of.get("anchor", "foot"), of.get("tiles"))
        for of in options
    ]
    return not any(region.inside(box, size, scale)[0] for region in regions)


def _closest_to(seen: Observations, rows: np.ndarray, row: int) -> np.ndarray:
    """Those rows of `raw` that overlap this object of the truth more than any other of its class."""
    part = seen.truth.rows_of(int(seen.truth.frame[row]))
    rivals = part.start + np.flatnonzero(seen.truth.class_id[part] == seen.truth.class_id[row])
    share = overlaps(seen.raw.xyxy[rows], seen.truth.xyxy[rivals])
    return np.asarray(rows[share.argmax(axis=1) == np.flatnonzero(rivals == row)[0]])


def _near(boxes: FlatBoxes, frame: int, xyxy: np.ndarray) -> np.ndarray:
    """The rows that overlap a box of the truth."""
    part = boxes.rows_of(frame)
    return np.asarray(part.start + np.flatnonzero(overlaps(boxes.xyxy[part], xyxy[None])[:, 0] >= HIT_IOU))


def _filter(seen: Observations, row: int) -> str:
    """What removed a candidate of `raw` that passes `min_score`."""
    sides = seen.raw.xyxy[row, 2:] - seen.raw.xyxy[row, :2]
    options = [node.options for node in seen.detectors if issubclass(node.type, Postprocess)]
    small = all(sides.min() < (postprocess.get("min_size") or 0.0) for postprocess in options)
    large = all(sides.max() > (postprocess.get("max_size") or np.inf) for postprocess in options)
    if small or large:
        return "size"
    frame = int(seen.raw.frame[row])
    class_id = seen.raw.class_id[row]
    near = _near(seen.low, frame, seen.raw.xyxy[row])
    same = near[(seen.low.class_id[near] == class_id) & (np.abs(seen.low.score[near] - seen.raw.score[row]) < 1e-6)]
    if not len(same):
        return "nms"
    ranked = int((seen.low.score[seen.low.rows_of(frame)] >= seen.raw.score[row]).sum())
    return "top_k" if ranked > min((postprocess.get("top_k", 300) for postprocess in options), default=300) else LATER


def _lowest_min_score(seen: Observations, class_id: int) -> float:
    """The lowest `min_score` of the detectors for a class."""
    return min(_min_score(node, seen.names[class_id]) for node in seen.detectors)


def _min_score(node: Node, label: str) -> float:
    min_score = node.options.get("min_score")
    card = node.options.get("model")
    if isinstance(min_score, dict):
        min_score = min_score.get(label)
    if min_score is None:
        return card.score if isinstance(card, Card) else 0.0
    return float(min_score)


def _tracker(seen: Observations) -> Track | None:
    trackers = [node for node in seen.graph.nodes.values() if issubclass(node.type, Track)]
    return Track(**trackers[-1].options) if trackers else None


def _tracker_cause(settings: Track, score: float) -> str:
    two_rounds = settings.tracker_method.steps.get("two_rounds", True)
    if two_rounds and score < settings.low_score:
        return "low_score"
    if score < settings.high_score:
        return "high_score"
    return "new_score" if score < settings.new_score else "confirm"
