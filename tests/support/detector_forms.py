"""The forms of output that are tried, as words: a family, and for `detr` which of its raw outputs; random ones."""

import numpy as np

from streamkit.models.families import Family, family

_SELECTS = {"detr best": "best_class", "detr softmax": "softmax"}


def reader_of(form: str) -> Family:
    """Return the reader of outputs of this form."""
    return family(form.split()[0]).selecting(_SELECTS.get(form, ""))


CLASSES = 5
STRIDES = (8, 16, 32)


def random_outputs(form: str, n: int, dtype, seed: int = 0, size: tuple[int, int] = (96, 64)):
    """Return random outputs of a family and form, for an input of width and height `size`."""
    rng = np.random.default_rng(seed)
    w, h = size
    anchors = sum((w // s) * (h // s) for s in STRIDES)

    def boxes(k):
        corner = rng.uniform(-10, 70, (n, k, 2))
        return np.concatenate([corner, corner + rng.uniform(2, 50, (n, k, 2))], axis=2)

    def centerd(k):
        return np.concatenate([rng.uniform(0, 80, (n, k, 2)), rng.uniform(2, 40, (n, k, 2))], axis=2)

    rows = boxes(60)
    scores = rng.random((n, 60))
    labels = rng.integers(-1, CLASSES + 1, (n, 60))
    if form == "yolox":
        raw = rng.normal(0.5, 0.7, (n, anchors, 4))
        outputs = {"output": np.concatenate([raw, rng.random((n, anchors, 1 + CLASSES))], axis=2)}
    elif form == "yolov5":
        outputs = {"output": np.concatenate([centerd(200), rng.random((n, 200, 1 + CLASSES))], axis=2)}
    elif form == "yolov8":
        outputs = {"output0": np.concatenate([centerd(300), rng.random((n, 300, CLASSES))], axis=2).transpose(0, 2, 1)}
    elif form == "yolov8_obb":
        values = [centerd(300), rng.random((n, 300, CLASSES)), rng.uniform(-0.8, 2.4, (n, 300, 1))]
        outputs = {"output0": np.concatenate(values, axis=2).transpose(0, 2, 1)}
    elif form == "yolov8_seg":
        values = [centerd(300), rng.random((n, 300, CLASSES)), rng.normal(0, 1, (n, 300, 8))]
        outputs = {
            "output0": np.concatenate(values, axis=2).transpose(0, 2, 1),
            "output1": rng.normal(0, 1, (n, 8, 16, 24)),
        }
    elif form == "yolov8_pose":
        points = np.concatenate([rng.uniform(0, 90, (n, 300, 4, 2)), rng.random((n, 300, 4, 1))], axis=3)
        values = [centerd(300), rng.random((n, 300, 1)), points.reshape(n, 300, 12)]
        outputs = {"output0": np.concatenate(values, axis=2).transpose(0, 2, 1)}
    elif form == "movenet":
        outputs = {"output_0": rng.random((n, 1, 17, 3))}
    elif form == "simcc":
        outputs = {"simcc_x": rng.random((n, 17, 2 * w)), "simcc_y": rng.random((n, 17, 2 * h))}
    elif form in TOP_DOWN:
        row, column = np.mgrid[: h // 4, : w // 4]
        top = rng.uniform(0, 1, (n, 17, 2, 1, 1)) * np.array([w // 4, h // 4]).reshape(2, 1, 1)
        away = (column - top[:, :, 0]) ** 2 + (row - top[:, :, 1]) ** 2
        outputs = {"heatmaps": rng.uniform(0.2, 0.9, (n, 17, 1, 1)) * np.exp(-away / 6) + 0.002}
    elif form == "yolo_e2e":
        outputs = {"output0": np.concatenate([rows, scores[..., None], labels[..., None]], axis=2)}
    elif form == "yolo_e2e_obb":
        angle = rng.uniform(-0.8, 2.4, (n, 60, 1))
        outputs = {"output0": np.concatenate([centerd(60), scores[..., None], labels[..., None], angle], axis=2)}
    elif form == "yolo_e2e_pose":
        points = np.concatenate([rng.uniform(0, 90, (n, 60, 4, 2)), rng.random((n, 60, 4, 1))], axis=3)
        outputs = {
            "output0": np.concatenate([rows, scores[..., None], labels[..., None], points.reshape(n, 60, 12)], 2)
        }
    elif form == "yolo_e2e_seg":
        values = [rows, scores[..., None], labels[..., None], rng.normal(0, 1, (n, 60, 8))]
        outputs = {"output0": np.concatenate(values, axis=2), "output1": rng.normal(0, 1, (n, 8, 16, 24))}
    elif form in ("rtdetr", "rtdetr_e2e"):
        rest = [rng.random((n, 60, CLASSES))] if form == "rtdetr" else [scores[..., None], labels[..., None]]
        outputs = {"output0": np.concatenate([rng.uniform(0.05, 0.8, (n, 60, 4)), *rest], axis=2)}
    elif form == "detr":
        outputs = {"labels": labels.astype(np.int64), "boxes": rows * 3, "scores": scores}
    elif form == "detr softmax":
        outputs = {"logits": rng.normal(0, 2, (n, 60, CLASSES + 1)), "pred_boxes": rng.uniform(0.05, 0.8, (n, 60, 4))}
    elif form in ("detr raw", "detr best"):
        outputs = {"logits": rng.normal(0, 2, (n, 60, CLASSES)), "pred_boxes": rng.uniform(0.05, 0.8, (n, 60, 4))}
    elif form == "ssd openvino":
        row = np.zeros((n, 60, 1))
        outputs = {
            "detection_out": np.concatenate([row, labels[..., None], scores[..., None], rows / 96], axis=2)[:, None]
        }
    elif form == "ssd tensorflow":
        outputs = {"detection_boxes": rows / 96, "detection_scores": scores, "detection_classes": labels * 1.0}
    elif form == "ssd torchvision":
        outputs = {"boxes": rows, "labels": labels.astype(np.int64), "scores": scores}
    elif form == "detectnet":
        cells = h // 16, w // 16
        outputs = {
            "output_cov/Sigmoid:0": rng.random((n, CLASSES, *cells)),
            "output_bbox/BiasAdd:0": rng.uniform(-0.1, 1.2, (n, 4 * CLASSES, *cells)),
        }
    elif form == "efficient_nms":
        outputs = {
            "num_dets": rng.integers(20, 50, (n, 1)).astype(np.int32),
            "det_boxes": rows,
            "det_scores": scores,
            "det_classes": labels.astype(np.int32),
        }
    elif form == "mmdeploy":
        outputs = {"dets": np.concatenate([rows, scores[..., None]], axis=2), "labels": labels.astype(np.int64)}
    elif form == "deepstream_yolo":
        outputs = {"output": np.concatenate([rows, scores[..., None], labels[..., None]], axis=2)}
    elif form == "ppyoloe":
        outputs = {"boxes": boxes(200), "scores": rng.random((n, CLASSES, 200))}
    elif form == "ppyoloe_e2e":
        outputs = {
            "rows": np.concatenate([labels[..., None], scores[..., None], rows], axis=2),
            "count": rng.integers(20, 50, (n, 1)).astype(np.int32),
        }
    elif form == "deepstream_yolo parts":
        outputs = {"boxes": rows, "scores": scores[..., None], "classes": labels[..., None] * 1.0}
    else:
        assert form == "yunet"
        outputs = {}
        for stride in STRIDES:
            cells = (w // stride) * (h // stride)
            for kind, width in (("cls", 1), ("obj", 1), ("bbox", 4), ("kps", 10)):
                unit = rng.uniform(-0.1, 1.1, (n, cells, 1))
                outputs[f"{kind}_{stride}"] = unit if width == 1 else rng.normal(0.3, 0.6, (n, cells, width))
    return {
        name: np.ascontiguousarray(value.astype(dtype) if value.dtype.kind == "f" else value)
        for name, value in outputs.items()
    }


TOP_DOWN = ("simcc", "heatmaps", "heatmaps_udp")
"""The forms of one object, as large as the picture."""
SINGLE_CLASS = ("yunet", "yolov8_pose", "movenet", *TOP_DOWN)
"""The forms of one class, whose objects have keypoints."""
FORMS = (
    "yolox",
    "yolov5",
    "yolov8",
    "yolov8_obb",
    "yolov8_seg",
    "yolov8_pose",
    "movenet",
    "simcc",
    "heatmaps",
    "heatmaps_udp",
    "yolo_e2e",
    "yolo_e2e_obb",
    "detr",
    "detr raw",
    "yolo_e2e_pose",
    "yolo_e2e_seg",
    "rtdetr",
    "rtdetr_e2e",
    "detr best",
    "detr softmax",
    "ssd openvino",
    "ssd tensorflow",
    "ssd torchvision",
    "yunet",
    "detectnet",
    "efficient_nms",
    "mmdeploy",
    "deepstream_yolo",
    "deepstream_yolo parts",
    "ppyoloe",
    "ppyoloe_e2e",
)
