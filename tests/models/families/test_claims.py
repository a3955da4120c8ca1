"""Which outputs of a network each family explains, and the columns that its tables have."""

import numpy as np
import pytest
from support.detector_forms import SINGLE_CLASS, reader_of

from streamkit.models.families import ReadOptions, family, unpack
from streamkit.models.families.base import unclaimed

FACES = {
    f"{kind}_{stride}": ("N", None, width)
    for kind, width in {"cls": 1, "obj": 1, "bbox": 4, "kps": 10}.items()
    for stride in (8, 16, 32)
}
TENSORFLOW = {"detection_boxes": (1, 9, 4), "detection_scores": (1, 9), "detection_classes": (1, 9)}
COUNTED = {"num_dets": (1, 1), "det_boxes": (1, 9, 4), "det_scores": (1, 9), "det_classes": (1, 9)}
RAW_DETR = {"logits": (1, 9, 3), "pred_boxes": (1, 9, 4)}
YOLOV5 = {"output": (1, 2646, 8)}


@pytest.mark.parametrize(
    ("name", "outputs", "unread"),
    [
        ("yolox", YOLOV5 | {"masks": (1, 9, 28, 28)}, ["masks"]),
        ("yolov5", YOLOV5 | {"a": (1, 3, 26, 26, 8), "b": (1, 3, 13, 13, 8), "c": (1, 3, 7, 7, 8)}, ["a", "b", "c"]),
        ("yolov5", YOLOV5 | {"a": (1, 3, 21, 42, 8)}, []),
        ("yolov5", YOLOV5 | {"a": (1, 3, "h", "w", 8)}, []),
        ("yolov5", {"output": (1, "anchors", 8), "a": (1, 3, 21, 42, 8)}, []),
        ("yolov5", YOLOV5 | {"a": (1, 3, 21, 42, 9)}, ["a"]),
        ("yolov8", {"more": (1, 5), "output": (1, 7, 84)}, ["more"]),
        ("yolov8_seg", {"output": (1, 9, 84), "maps": (1, 2, 8, 8), "count": (1,)}, ["count"]),
        ("yolo_e2e_seg", {"output": (1, 9, 8), "maps": (1, 2, 8, 8)}, []),
        ("yolo_e2e_obb", {"output": (1, 9, 7), "angles": (1, 9)}, ["angles"]),
        ("detectnet", {"a_cov": (1, 3, 8, 8), "a_bbox": (1, 12, 8, 8), "masks": (1, 3, 8, 8)}, ["masks"]),
        ("efficient_nms", COUNTED | {"det_masks": (1, 9, 100)}, ["det_masks"]),
        ("mmdeploy", {"dets": (1, 9, 5), "labels": (1, 9), "masks": (1, 9, 8, 8)}, ["masks"]),
        ("deepstream_yolo", {"output": (1, 84, 6), "points": (1, 84, 34, 2)}, ["points"]),
        ("deepstream_yolo", {"boxes": (1, 84, 4), "scores": (1, 84, 1), "classes": (1, 84, 1)}, []),
        ("ppyoloe", {"boxes": (1, 84, 4), "scores": (1, 3, 84), "ids": (1, 84)}, ["ids"]),
        ("ppyoloe_e2e", {"rows": ("K", 6), "count": (1,), "masks": ("K", 28, 28)}, ["masks"]),
        ("yolo_world", {"boxes": (1, 84, 4), "scores": (1, 84, 3), "ids": (1, 84)}, ["ids"]),
        ("detr", RAW_DETR | {"masks": (1, 9, 4, 4), "angles": (1, 9)}, ["masks", "angles"]),
        ("detr", RAW_DETR | {"text_embeds": (3, 8), "image_embeds": (1, 2, 2, 8), "objectness_logits": (1, 9)}, []),
        ("detr", RAW_DETR | {"last_hidden_state": (1, 9, 8), "decoder_hidden_states": (1, 9, 8)}, []),
        ("detr", {"labels": (1, 9), "boxes": (1, 9, 4), "scores": (1, 9), "masks": (1, 9, 2, 2)}, ["masks"]),
        ("rtdetr", {"output": (1, 9, 7), "more": (1, 2)}, ["more"]),
        ("ssd", TENSORFLOW | {"num_detections": (1,), "raw_detection_boxes": (1, 99, 4)}, []),
        ("ssd", TENSORFLOW | {"raw_detection_scores": (1, 99, 4), "detection_multiclass_scores": (1, 9, 4)}, []),
        (
            "ssd",
            TENSORFLOW | {"detection_anchor_indices": (1, 9), "detection_masks": (1, 9, 8, 8)},
            ["detection_masks"],
        ),
        ("ssd", {"boxes": ("K", 4), "labels": ("K",), "scores": ("K",), "num_detections": (1,)}, ["num_detections"]),
        ("ssd", {"detection_out": (1, 1, 9, 7), "more": (1, 2)}, ["more"]),
        ("yunet", FACES | {"more": (1, 2)}, ["more"]),
        ("movenet", {"output_0": (1, 1, 17, 3), "more": (1, 2)}, ["more"]),
        ("simcc", {"simcc_x": (1, 17, 384), "simcc_y": (1, 17, 512), "simcc_z": (1, 17, 288)}, ["simcc_z"]),
        ("heatmaps_udp", {"heatmaps": (1, 17, 64, 48), "more": (1, 2)}, ["more"]),
        ("semantic", {"map": (1, 3, 8, 8), "more": (1, 2)}, ["more"]),
        ("logits", {"output": (1, 3), "last_hidden_state": (1, 9, 8)}, ["last_hidden_state"]),
        ("embedding", {"last_hidden_state": (1, 9, 8), "pooler_output": (1, 8)}, []),
        ("ctc", {"output": (1, 20, 4), "features": (1, 20, 9)}, ["features"]),
        ("slots", {"region": (1, 9), "plate": (1, 7, 4)}, ["region"]),
    ],
)
def test_unexplained_outputs_are_listed(name, outputs, unread):
    reads = family(name)
    reads.check(outputs, 1 if reads.label else 3)
    assert unclaimed(reads, outputs, 1 if reads.label else 3) == unread


COLUMNS = {
    "yolov8_obb": ("corners", (4, 2)),
    "yolo_e2e_obb": ("corners", (4, 2)),
    "yolov8_pose": ("keypoints", (4, 3)),
    "yolo_e2e_pose": ("keypoints", (4, 3)),
    "yunet": ("keypoints", (5, 3)),
    "movenet": ("keypoints", (17, 3)),
    "simcc": ("keypoints", (17, 3)),
    "heatmaps": ("keypoints", (17, 3)),
    "heatmaps_udp": ("keypoints", (17, 3)),
    "yolov8_seg": ("coefficients", (8,)),
    "yolo_e2e_seg": ("coefficients", (8,)),
}


def test_tables_have_the_columns_of_their_family(form, outputs_for):
    """The values behind an object's class, each column in its shape."""
    reads = reader_of(form)
    options = ReadOptions(np.full(1 if form in SINGLE_CLASS else 5, 0.1, np.float32))
    geometry = np.array([[1, 1, 0, 0]], np.float32)
    packed = reads.read(outputs_for(form, 1, np.float32), geometry, np.array([[96, 64]]), (96, 64), options)
    table = unpack(packed.rows, packed.counts, tuple("abcde"), reads.columns)
    name, shape = COLUMNS.get(form, ("", ()))
    assert list(table.extra) == ([name] if name else [])
    assert len(table)
    if name:
        assert table.extra[name].shape == (len(table), *shape)
        width = int(np.prod(shape))
        assert np.array_equal(table.extra[name].reshape(len(table), width), packed.rows[0, : len(table), 6 : 6 + width])
