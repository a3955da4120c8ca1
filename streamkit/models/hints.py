# SPDX-License-Identifier: Apache-2.0
"""Usual mistakes in a card, found by trying other values on the same frames.

An alternative is reported only if it is clearly better: by its `_Limits` in the sum of squared scores, in most frames,
and with objects that are sure enough. The limits were chosen on seven sets of frames with YOLOX, YOLOv8, DEIMv2, YuNet
and the shipped detector, so that no right card has a hint there; the margin and the number of frames exclude sets with
few objects, `_SURE` excludes networks outside what they were trained on. A wrong resize or color order, where it is
found, loses by 1.17 or more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from streamkit.core.data import Detections, Frame
from streamkit.models.card import Card, family_of
from streamkit.models.facts import IMAGENET_MEAN
from streamkit.models.families.base import Family
from streamkit.models.families.rules import SLACK
from streamkit.models.finder import decode, find, finds_objects, run
from streamkit.models.network import check_model, inspect
from streamkit.models.run_facts import doubt
from streamkit.ops.letterbox import InputSpec

_FRAMES = 12
_MAPS = 3
"""Least number of frames that tell near from far."""
_SLOPE = 0.1
"""Least difference between the lower and the upper third of such a frame, as a share of the map's range."""
_FLAT = 1e-4
"""Range of a map without depth, as a share of its largest value."""
_MIN_SCORE = 0.1
"""Scores below are ignored."""
_COUNTS = 0.25
_SURE = 0.46
"""Least mean score of the objects of an alternative, of those with at least `_COUNTS`: of doubtful ones, more are no
better."""
_WINS = 0.8
"""Least share of the frames with objects that an alternative must be better in."""
_OVERDRIVEN = ((10, 0.95), (100, 0.7))
"""So many objects in a frame with such a median score are the answers of an overdriven network."""


_OUTSIDE = 0.2
"""Least share of the boxes outside of the picture, and with x and y exchanged inside of it, that tells swapped axes."""
_SURE_POINT = 0.5
_MIN_POINTS = 5
"""Sure keypoints of an object, and objects with so many, that a hint at keypoints needs at least."""
_LONG_BONES = 0.7
"""Mean line of a skeleton in mean distances of two points, from which it joins any points: 0.4 for COCO's points of a
person, 0.9 where OpenPose's or Human3.6M's points are taken for them, and 1 by chance."""
_FULL_SCORES = 0.5
"""Largest share of keypoints with the full score that is no hint."""
_INSIDE = (0.5, 0.8)
"""Largest share of keypoints in their boxes, and least one with x and y exchanged, for a hint at that."""

_SAME_MEAN = 0.005
"""Largest difference between a card's mean and ImageNet's, in shares of white: means are rounded to three digits."""


class _Limits(NamedTuple):
    """What an alternative must reach.

    Attributes:
        gain: least ratio of the sums of squared scores.
        margin: least difference of these sums.
        frames: least number of frames with objects.
    """

    gain: float
    margin: float
    frames: int


_SCALE = _Limits(2.0, 1.0, 3)
_OTHER = _Limits(1.15, 3.0, 8)


class _Alternative(NamedTuple):
    """A change of `input`: what the hint proposes."""

    text: str
    card: Card
    limits: _Limits


def hints(card: Card, frames: Sequence[Frame]) -> list[str]:
    """Return a sentence for each mistake that another value of the card would clearly correct.

    If there is none and nothing is found either, the sentence says that: a check of no objects proves little. Of
    networks that find no objects, only the family, the order of the channels and the scale of depth and scores are
    looked at.

    Args:
        card: the network; only detectors, `segment` with instances and `pose` are tried.
        frames: frames on the host; at most 12 of them are used, evenly.
    """
    doubts = _other_values(card)
    general = [*_channel_order(card.input), *doubts]
    if card.task in ("depth", "anomaly"):
        general += _MAP_HINTS[card.task](check_model(card), frames)
    return [*general, *_object_hints(card, frames, bool(doubts))] if finds_objects(card) else general


def _other_values(card: Card) -> list[str]:
    """Return a hint if the network's values cannot be those of the card's family."""
    info = inspect(card.file).without_outputs(card.ignore_outputs)
    reason = "" if card.decoder is not None else doubt(info, card.input.size, card.family, len(card.labels))
    return [f"family {card.family} does not fit: {reason}"] if reason else []


def _channel_order(spec: InputSpec) -> list[str]:
    """Return a hint if `mean` is ImageNet's for the other order of channels than `color`."""
    white = 255 * spec.scale
    shares = np.array(spec.mean) / white
    if np.abs(shares - IMAGENET_MEAN[:: 1 if spec.color == "bgr" else -1]).max() > _SAME_MEAN:
        return []
    order = "rgb" if spec.color == "bgr" else "bgr"
    return [
        f"input.mean {[round(value, 4) for value in spec.mean]} is ImageNet's in the order {order}, and color is "
        f"{spec.color}: unless the network was trained so, as PP-OCR's are, reverse mean and std, or set color: {order}"
    ]


def _values_of_frames(card: Card, outputs: Sequence[Any]) -> Iterator[str]:
    """Yield a hint if the values of all frames cannot be those of the card's family.

    Networks with a selection of their own find nothing on a gray image.
    """
    rule = family_of(card).traits.doubt
    if rule is None or card.decoder is not None:
        return
    reasons = {rule(results, card.input.size, len(card.labels)) for results, _ in outputs}
    if reasons and "" not in reasons:
        yield f"family {card.family} does not fit: {min(reasons)}"


def _swapped_axes(card: Card, frames: Sequence[Frame], outputs: Sequence[Any]) -> Iterator[str]:
    """Yield a hint if many boxes are outside of the picture, and inside with x and y exchanged.

    Seen where the picture fills another part of the input in width than in height.
    """
    reads = family_of(card)
    if type(reads).read is not Family.read:
        return  # the boxes are not in network pixels
    min_score = np.full(max(1, len(card.labels)), max(card.score, _COUNTS), np.float32)
    shares = []
    for frame, (results, geometry) in zip(frames, outputs, strict=True):
        boxes = reads.candidates(results, 1, card.input.size, min_score).xyxy
        corner = geometry[0, 2:]
        picture = np.concatenate([corner, corner + geometry[0, :2] * (frame.width, frame.height)])
        if len(boxes):
            shares.append([_inside(boxes, picture), _inside(boxes[:, [1, 0, 3, 2]], picture)])
    now, then = np.mean(shares, axis=0) if shares else (1.0, 1.0)
    if now <= 1 - _OUTSIDE and then >= 1 - _OUTSIDE / 4:
        yield (
            f"x and y of the boxes are swapped: {1 - now:.0%} of them is outside of the frames, and {1 - then:.0%} "
            "with x and y exchanged; export the network with x first, or exchange them in a family of a plugin"
        )


def _inside(boxes: np.ndarray, picture: np.ndarray) -> float:
    """Return the mean share of boxes (n, 4) that is inside of a rectangle (4,)."""
    sides = boxes[:, 2:] - boxes[:, :2]
    covered = np.minimum(boxes[:, 2:], picture[2:]) - np.maximum(boxes[:, :2], picture[:2])
    return float((covered.clip(0).prod(axis=1) / sides.prod(axis=1).clip(1e-6)).mean())


def _depth_hints(card: Card, frames: Sequence[Frame]) -> list[str]:
    """Return the hints of a network for depth: what its values cannot be, and near and far exchanged.

    Most cameras look down: the lower part of a frame is nearer than the upper one.
    """
    reads: Any = family_of(card)
    maps = [reads.maps(run(card, frame)[0])[0] for frame in _evenly(frames)]
    broken = sum(not np.isfinite(values).all() for values in maps)
    if broken:
        return [f"{broken} of {len(maps)} maps have values that are not finite: export the network in f32"]
    spreads = [float(np.ptp(values)) for values in maps]
    if all(spread <= _FLAT * np.abs(values).max() for spread, values in zip(spreads, maps, strict=True)):
        return ["every place has the same depth: correct input.scale, mean and std"]
    inverse = reads.form == "inverse"
    if not inverse and any(values.min() < 0 for values in maps):
        return [f"some depths are below 0, which {card.family} never is: choose another family of depth"]
    third = len(maps[0]) // 3
    rises = [np.median(values[-third:]) - np.median(values[:third]) for values in maps] if third else []
    nearer_above = [
        (-rise if inverse else rise) > _SLOPE * spread for rise, spread in zip(rises, spreads, strict=False)
    ]
    if len(rises) < _MAPS or not all(nearer_above):
        return []
    other = "metric_depth or relative_depth" if inverse else "inverse_depth"
    return [
        f"by {card.family}, the lower third of every frame is farther than the upper one: unless the camera looks up, "
        f"larger values are {'farther' if inverse else 'nearer'}, as in the family {other}"
    ]


def _anomaly_hints(card: Card, frames: Sequence[Frame]) -> list[str]:
    """Return the hints of a network for anomalies: scores that are none."""
    reads: Any = family_of(card)
    scores = np.array([reads.vectors(run(card, frame)[0])[0, 0] for frame in _evenly(frames)], np.float64)
    if not np.isfinite(scores).all():
        return ["some scores are not finite: export the network in f32"]
    if scores.min() < -SLACK or scores.max() > 1 + SLACK:
        return [
            f"scores reach from {scores.min():.3g} to {scores.max():.3g}, and a score is from 0 to 1: these are "
            "distances or logits; export the network after a validation, which fits its post-processor"
        ]
    if len(scores) > 1 and np.ptp(scores) == 0:
        return [f"every frame has the score {scores[0]:.3g}: correct input.scale, mean and std"]
    return []


_MAP_HINTS = {"depth": _depth_hints, "anomaly": _anomaly_hints}


def _evenly(frames: Sequence[Frame]) -> list[Frame]:
    """Return at most 12 frames, evenly."""
    return [frames[i] for i in sorted({int(i) for i in np.linspace(0, len(frames) - 1, _FRAMES)})]


def _object_hints(card: Card, frames: Sequence[Frame], doubted: bool) -> list[str]:
    """Return the hints of a network that finds objects, see `hints`; `doubted` by a run on a gray image."""
    card = check_model(card)
    shown = _evenly(frames)
    outputs = [run(card, frame) for frame in shown]
    tables = [
        decode(card, results, geometry, (frame.width, frame.height), _MIN_SCORE)
        for frame, (results, geometry) in zip(shown, outputs, strict=True)
    ]
    now = _strength(tables)
    texts = [] if doubted else list(_values_of_frames(card, outputs))
    texts += [*_swapped_axes(card, shown, outputs), *_shifted(card, shown, outputs)]
    texts += _keypoint_hints(card, tables, [geometry[0] for _, geometry in outputs])
    for other in _alternatives(card):
        then = _strength([find(other.card, frame, _MIN_SCORE) for frame in shown])
        if _clearly_better(then, now, other.limits):
            texts.append(
                f"{other.text}: the sum of squared scores is {then.squares.sum():.1f} then, {now.squares.sum():.1f} now"
            )
            if other.limits is _SCALE:
                break  # with a wrong scale, nothing else can be compared
    best = max((float(table.score.max()) for table in tables if len(table)), default=0.0)
    if not texts and best < card.score:
        where = f"in {len(shown)} frame{'' if len(shown) == 1 else 's'}"
        texts.append(
            f"no object has a score of {card.score:g} or more {where} (the best: {best:.2f}): show frames with objects "
            "of its classes, or correct input.color, scale, mean and std"
        )
    return texts


class _Strength(NamedTuple):
    """How sure the objects of some frames are.

    Attributes:
        squares: (n,) sum of the squared scores of each frame; 0 for an overdriven network.
        mean: the mean score of the objects that count in practice, weighted by the scores.
    """

    squares: np.ndarray
    mean: float


def _strength(tables: Sequence[Detections]) -> _Strength:
    scores = [table.score.astype(np.float64) for table in tables]
    overdriven = any(len(score) >= n and np.median(score) > limit for score in scores for n, limit in _OVERDRIVEN)
    if overdriven:
        return _Strength(np.zeros(len(tables)), 0.0)
    every = np.concatenate([score[score >= _COUNTS] for score in scores])
    mean = float((every**2).sum() / every.sum()) if len(every) else 0.0
    return _Strength(np.array([(score**2).sum() for score in scores]), mean)


def _clearly_better(then: _Strength, now: _Strength, limits: _Limits) -> bool:
    total = float(then.squares.sum())
    before = float(now.squares.sum())
    seen = (then.squares + now.squares) > 0
    wins = (then.squares > now.squares)[seen]
    return bool(
        total >= limits.gain * before
        and total - before >= limits.margin
        and then.mean >= _SURE
        and len(wins) >= limits.frames
        and wins.mean() >= _WINS
    )


def _alternatives(card: Card) -> Iterator[_Alternative]:
    """Yield other values of `input`, one changed at a time."""
    spec = card.input

    def other(text: str, limits: _Limits = _OTHER, **changes: Any) -> _Alternative:
        changed = dataclasses.replace(spec, **changes)
        return _Alternative(text, dataclasses.replace(card, input=changed), limits)

    if spec.scale < 0.06:
        yield other("input.scale: 1 fits better than 1/255", _SCALE, scale=spec.scale * 255)
    else:
        yield other("input.scale: 1/255 fits better than 1", _SCALE, scale=spec.scale / 255)
    color = "bgr" if spec.color == "rgb" else "rgb"
    yield other(f"input.color: {color} fits better than {spec.color}", color=color)
    if spec.resize == "stretch":
        yield other("input.resize: letterbox fits better than stretch", resize="letterbox")
    elif spec.resize == "letterbox":
        yield other("input.resize: stretch fits better than letterbox", resize="stretch")


def _keypoint_hints(card: Card, tables: Sequence[Detections], geometries: Sequence[np.ndarray]) -> Iterator[str]:
    """Yield a hint if the skeleton joins points that are no neighbors, or if x and y of the points are exchanged."""
    edges = card.skeleton.edges if card.skeleton is not None else ()
    bones: list[float] = []
    inside: list[np.ndarray] = []
    full: list[float] = []
    for table, geometry in zip(tables, geometries, strict=True):
        if "keypoints" not in table.extra:
            continue
        for box, points in zip(table.xyxy, table.extra["keypoints"], strict=True):
            sure = points[:, 2] >= _SURE_POINT
            if sure.sum() >= _MIN_POINTS:
                bones += _bone_ratio(points, sure, edges)
                full.append(float((points[:, 2] >= 1).mean()))
                inside.append(_shares_inside(box, points[sure, :2], geometry))
    if len(inside) < _MIN_POINTS:
        return
    if np.mean(full) > _FULL_SCORES:
        yield (
            f"keypoints: {np.mean(full):.0%} of the points have a score of 1 or more, as where logits are taken for "
            "scores: export the network with its last sigmoid or softmax"
        )
    now, exchanged = np.mean(inside, axis=0)
    if now < _INSIDE[0] and exchanged > _INSIDE[1]:
        yield (
            f"keypoints: x and y are exchanged: {now:.0%} of the points are in their objects' boxes, {exchanged:.0%} "
            "with y first; export the network with x first"
        )
    elif len(bones) >= _MIN_POINTS and np.mean(bones) > _LONG_BONES:
        yield (
            f"keypoints: the skeleton joins points that are far apart, {np.mean(bones):.1f} times as far as any two: "
            "list the keypoints in the order of this network"
        )


def _bone_ratio(points: np.ndarray, sure: np.ndarray, edges: Sequence[tuple[int, int]]) -> list[float]:
    """Return the mean length of the lines between sure points, in mean distances of two of them; empty if unknown."""
    joined = [(a, b) for a, b in edges if max(a, b) < len(points) and sure[a] and sure[b]]
    if len(joined) < _MIN_POINTS - 1:
        return []
    xy = points[sure, :2].astype(np.float64)
    away = np.linalg.norm(xy[:, None] - xy, axis=2)
    mean = away.sum() / (len(xy) * (len(xy) - 1))
    first, second = np.array(joined).T
    length = np.linalg.norm(points[first, :2] - points[second, :2], axis=1).mean()
    return [float(length / mean)] if mean > 0 else []


def _shares_inside(box: np.ndarray, xy: np.ndarray, geometry: np.ndarray) -> np.ndarray:
    """Return the share of points in a box, as they are and with x and y of the network's pixels exchanged, (2,)."""
    scale = geometry[:2]
    offset = geometry[2:]
    exchanged = ((xy * scale + offset)[:, ::-1] - offset) / scale
    ways = np.stack([xy, exchanged])
    return np.asarray(((ways >= box[:2]) & (ways <= box[2:])).all(axis=2).mean(axis=1))


def _shifted(card: Card, frames: Sequence[Frame], outputs: Sequence[Any]) -> Iterator[str]:
    """Yield a hint if the numbers of the classes are shifted by a background class.

    Seen where a class is found that cannot be: `background`, or the number behind the last label.
    """
    more = dataclasses.replace(card, labels=(*card.labels, ""))
    class_ids: set[int] = set()
    try:
        for frame, (results, geometry) in zip(frames, outputs, strict=True):
            table = decode(more, results, geometry, (frame.width, frame.height), max(card.score, 0.25))
            class_ids |= set(table.class_id.tolist())
    except (ValueError, IndexError):
        return  # the family reads the number of classes from the shapes, which `check` has compared
    first = card.labels[0].lower()
    if 0 in class_ids and first in ("background", "__background__"):
        yield f"labels: the class {card.labels[0]!r} is found, so the network counts classes from 0; remove that label"
    elif len(card.labels) in class_ids and 0 not in class_ids and first != "background":
        yield (
            f"labels: class number {len(card.labels)} is found and 0 is not, so the network counts classes from 1; put "
            "background before the first label"
        )
