"""Keypoint sets that a card may name instead of listing the points, with the lines that a drawing joins them by."""

from __future__ import annotations

from streamkit.core.detections import Skeleton

_COCO = """
nose, left_eye, right_eye, left_ear, right_ear, left_shoulder, right_shoulder, left_elbow, right_elbow, left_wrist,
right_wrist, left_hip, right_hip, left_knee, right_knee, left_ankle, right_ankle
"""
_COCO_EDGES = (
    (0, 1), (0, 2), (1, 3), (2, 4), (5, 6), (5, 7), (7, 9), (6, 8), (8, 10), (5, 11), (6, 12), (11, 12), (11, 13),
    (13, 15), (12, 14), (14, 16),
)  # fmt: skip
_FACE = "right_eye, left_eye, nose, right_mouth, left_mouth"

KNOWN = {
    "coco": Skeleton(tuple(name.strip() for name in _COCO.split(",")), _COCO_EDGES),
    "face": Skeleton(tuple(name.strip() for name in _FACE.split(","))),
}
"""`coco`: the 17 points of a person; `face`: five landmarks, left and right as the person has them."""
