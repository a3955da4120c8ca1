# SPDX-License-Identifier: Apache-2.0
"""Label lists and sets of keypoints that a card may name instead of listing them."""

from __future__ import annotations

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
_FACE = "right_eye, left_eye, nose, right_mouth, left_mouth"

SKELETONS = {
    "coco": Skeleton(_names(_POINTS), _EDGES),
    "face": Skeleton(_names(_FACE)),
}
"""`coco`: the 17 points of a person; `face`: five landmarks, with left and right as seen by the person."""
