# SPDX-License-Identifier: Apache-2.0
"""The outputs that each family reads, in words: for the reference of model cards.

N is the batch, A anchors, C classes, Q queries, K objects, P keypoints, M mask coefficients, D values, h and w a map,
T places along a text.
Outputs in backticks are found by name, the others by their shape.
"""

from __future__ import annotations

from typing import NamedTuple


class OutputFormat(NamedTuple):
    """One form of outputs that a family reads: their shapes, and what the values mean."""

    outputs: str
    values: str


_BOX = "cx, cy, w, h in network pixels"
_SHARES = "cx, cy, w, h in shares of the input"
_PROTOTYPES = "prototypes, whose sum by the coefficients is a mask"

FORMATS: dict[str, tuple[OutputFormat, ...]] = {
    "yolox": (
        OutputFormat(
            "(N, A, 5 + C)",
            "cx, cy, w, h as raw values of the strides 8, 16 and 32; objectness; a score for each class",
        ),
    ),
    "yolov5": (OutputFormat("(N, A, 5 + C)", f"{_BOX}; objectness; a score for each class. YOLOv5 and v7"),),
    "yolov8": (OutputFormat("(N, 4 + C, A)", f"{_BOX}; a score for each class. YOLOv8, v9, v11 and v12"),),
    "yolov8_obb": (OutputFormat("(N, 4 + C + 1, A)", "as yolov8, then the angle in radians"),),
    "yolov8_pose": (
        OutputFormat("(N, 4 + C + 3 P, A)", "as yolov8, then x, y in network pixels and a score for each keypoint"),
    ),
    "yolov8_seg": (
        OutputFormat("(N, 4 + C + M, A) and (N, M, h, w)", f"as yolov8, then mask coefficients; {_PROTOTYPES}"),
    ),
    "yolo_world": (
        OutputFormat(
            "scores (N, A, C), boxes (N, A, 4)",
            "a score for each class; x1, y1, x2, y2 in network pixels. YOLO-World as its authors export it, and "
            "YOLO-NAS, without non-max suppression",
        ),
    ),
    "yolo_e2e": (
        OutputFormat(
            "(N, K, 6)", "x1, y1, x2, y2 in network pixels; score; class. YOLOv10, 26, and exports with `nms=True`"
        ),
    ),
    "yolo_e2e_pose": (
        OutputFormat("(N, K, 6 + 3 P)", "as yolo_e2e, then x, y in network pixels and a score for each keypoint"),
    ),
    "yolo_e2e_seg": (
        OutputFormat("(N, K, 6 + M) and (N, M, h, w)", f"as yolo_e2e, then mask coefficients; {_PROTOTYPES}"),
    ),
    "detr": (
        OutputFormat(
            "`labels` (N, Q), `boxes` (N, Q, 4), `scores` (N, Q)",
            "x1, y1, x2, y2 in pixels of the frame, whose size the network takes as the input `orig_target_sizes`: "
            "the authors' postprocessor",
        ),
        OutputFormat(
            "logits (N, Q, C), boxes (N, Q, 4)",
            f"class logits; {_SHARES}, in an output called `pred_boxes`, `boxes` or `dets`. The card's `select` says "
            "what is an object; with `softmax`, C + 1 logits. Features beside "
            "them, called `..._embeds` or `...hidden_state`, and OWLv2's `objectness_logits` are not needed",
        ),
    ),
    "rtdetr": (OutputFormat("(N, Q, 4 + C)", f"{_SHARES}; a score for each class. RT-DETR of Ultralytics"),),
    "rtdetr_e2e": (OutputFormat("(N, K, 6)", f"{_SHARES}; score; class. RT-DETR of Ultralytics since version 8.4"),),
    "ssd": (
        OutputFormat("(N, 1, K, 7)", "image, class, score; x1, y1, x2, y2 in shares of the input. OpenVINO"),
        OutputFormat(
            "`detection_boxes` (N, K, 4), `detection_scores` (N, K), `detection_classes` (N, K)",
            "y1, x1, y2, x2 in shares of the input. TensorFlow",
        ),
        OutputFormat(
            "`bboxes` (N, K, 4), `scores` (N, K), `labels` (N, K)",
            "x1, y1, x2, y2 in shares of the input. ONNX model zoo",
        ),
        OutputFormat(
            "`boxes` (N, K, 4), `scores` (N, K), `labels` (N, K)",
            "x1, y1, x2, y2 in network pixels. torchvision, which leaves out N",
        ),
    ),
    "yunet": (
        OutputFormat(
            "`cls_S` (N, A, 1), `obj_S` (N, A, 1), `bbox_S` (N, A, 4), `kps_S` (N, A, 10), with S = 8, 16 and 32",
            "faces: two parts of the score; dx, dy, log w, log h in strides from the cell; five landmarks",
        ),
    ),
    "movenet": (OutputFormat("(N, 1, 17, 3)", "y, x in shares of the input, score; one person"),),
    "semantic": (
        OutputFormat("(N, C, h, w) or (N, h, w, C)", "a score for each class, of which the best wins"),
        OutputFormat("(N, h, w) or (N, 1, h, w), integers", "the class"),
    ),
    "logits": (OutputFormat("(N, C)", "a value for each class, before the softmax"),),
    "probabilities": (OutputFormat("(N, C)", "a value for each class, after the softmax"),),
    "ctc": (
        OutputFormat(
            "(N, T, C + 1) or (N, C + 1, T)",
            "logits or probabilities of the blank and the C characters of the alphabet, for T columns. PP-OCR, CRNN, "
            "LPRNet",
        ),
    ),
    "slots": (
        OutputFormat(
            "(N, T, C + 1)",
            "logits or probabilities of the C characters of the alphabet and of the padding, for T characters; also "
            "flat, as (N, values). fast-plate-ocr",
        ),
    ),
    "embedding": (OutputFormat("(N, D)", "a vector; it is scaled to length 1"),),
}
"""By the family's name."""
