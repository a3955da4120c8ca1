# SPDX-License-Identifier: Apache-2.0
"""Label lists and sets of keypoints that a card may name instead of listing them."""

from __future__ import annotations

import itertools

from streamkit.core.detections import Skeleton

_COCO = """
person, bicycle, car, motorcycle, airplane, bus, train, truck, boat, traffic light, fire hydrant, stop sign,
parking meter, bench, bird, cat, dog, horse, sheep, cow, elephant, bear, zebra, giraffe, backpack, umbrella, handbag,
tie, suitcase, frisbee, skis, snowboard, sports ball, kite, baseball bat, baseball glove, skateboard, surfboard,
tennis racket, bottle, wine glass, cup, fork, knife, spoon, bowl, banana, apple, sandwich, orange, broccoli, carrot,
hot dog, pizza, donut, cake, chair, couch, potted plant, bed, dining table, toilet, tv, laptop, mouse, remote,
keyboard, cell phone, microwave, oven, toaster, sink, refrigerator, book, clock, vase, scissors, teddy bear,
hair drier, toothbrush
"""

_VOC = """
aeroplane, bicycle, bird, boat, bottle, bus, car, cat, chair, cow, diningtable, dog, horse, motorbike, person,
pottedplant, sheep, sofa, train, tvmonitor
"""


def _names(text: str) -> tuple[str, ...]:
    return tuple(" ".join(name.split()) for name in text.split(","))


LABEL_LISTS: dict[str, tuple[str, ...]] = {
    "coco": _names(_COCO),
    "voc": _names(_VOC),
    "voc_segmentation": ("background", *_names(_VOC)),
    "face": ("face",),
    "person": ("person",),
}
"""Label lists by name. `coco` holds COCO's 80 detection classes in the order that networks are trained on."""

_POINTS = """
nose, left_eye, right_eye, left_ear, right_ear, left_shoulder, right_shoulder, left_elbow, right_elbow, left_wrist,
right_wrist, left_hip, right_hip, left_knee, right_knee, left_ankle, right_ankle
"""
_EDGES = (
    (0, 1), (0, 2), (1, 3), (2, 4), (5, 6), (5, 7), (7, 9), (6, 8), (8, 10), (5, 11), (6, 12), (11, 12), (11, 13),
    (13, 15), (12, 14), (14, 16),
)  # fmt: skip
_FEET = "left_big_toe, left_small_toe, left_heel, right_big_toe, right_small_toe, right_heel"
_HALPE = """
head, neck, hip, left_big_toe, right_big_toe, left_small_toe, right_small_toe, left_heel, right_heel
"""
_HALPE_EDGES = (
    (17, 18), (18, 5), (18, 6), (18, 19), (19, 11), (19, 12), (15, 20), (15, 22), (15, 24), (16, 21), (16, 23),
    (16, 25),
)  # fmt: skip
_FEET_EDGES = ((15, 17), (15, 18), (15, 19), (16, 20), (16, 21), (16, 22))
_FACE_POINTS = 68
_HANDS = (91, 112)
"""The first point of the left and of the right hand among those of the whole body."""
_FINGERS = ("thumb", "forefinger", "middle_finger", "ring_finger", "pinky_finger")
_FINGER_POINTS = 4


def _hand(side: str) -> tuple[str, ...]:
    points = [f"{side}_{finger}{i + 1}" for finger in _FINGERS for i in range(_FINGER_POINTS)]
    return f"{side}_hand_root", *points


def _hand_edges(root: int) -> list[tuple[int, int]]:
    """Return the pairs of points of each finger, from the root of the hand to the tip."""
    edges = []
    for first in range(root + 1, root + 1 + len(_FINGERS) * _FINGER_POINTS, _FINGER_POINTS):
        chain = (root, *range(first, first + _FINGER_POINTS))
        edges += list(itertools.pairwise(chain))
    return edges


_FACE = "right_eye, left_eye, nose, right_mouth, left_mouth"

SKELETONS = {
    "coco": Skeleton(_names(_POINTS), _EDGES),
    "face": Skeleton(_names(_FACE)),
    "halpe": Skeleton((*_names(_POINTS), *_names(_HALPE)), (*_EDGES, *_HALPE_EDGES)),
    "wholebody": Skeleton(
        (
            *_names(_POINTS),
            *_names(_FEET),
            *(f"face_{i}" for i in range(_FACE_POINTS)),
            *_hand("left"),
            *_hand("right"),
        ),
        (*_EDGES, *_FEET_EDGES, *(edge for root in _HANDS for edge in _hand_edges(root))),
    ),
}
"""`coco`: the 17 points of a person; `face`: five landmarks, with left and right as seen by the person; `halpe`: 26,
those of COCO, then head, neck, hip and feet; `wholebody`: 133, those of COCO, then feet, face and hands."""
