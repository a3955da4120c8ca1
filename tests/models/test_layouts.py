"""What is derived of the outputs of networks in use: their family, a question, or a refusal; never a wrong family.

Each network is made up, with the names and shapes that its export has. What its values are differs: zeros, noise around
zero, and numbers from 0 to 1. None of them may make a network one that it is not.
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from support.shaped_networks import shaped

from streamkit.core.errors import ModelError
from streamkit.models.derive import derive
from streamkit.models.facts import Underivable

SIZES = {"orig_target_sizes": ["N", 2]}
BOXES = {"dets": ["N", 100, 4], "labels": ["N", 100, 91]}


@dataclass
class Layout:
    """A network's outputs.

    Attributes:
        outputs: shapes by name.
        image: shape of the image input.
        labels: number of names in the labels.txt beside it; 0 for no such file.
        extra: further inputs.
        integers: outputs of int64.
        values: outputs as the network has them for a gray image; by default only what it must not be taken for counts.
    """

    outputs: dict[str, list]
    image: list = field(default_factory=lambda: ["N", 3, 640, 640])
    labels: int = 0
    extra: dict[str, list] = field(default_factory=dict)
    integers: tuple[str, ...] = ()
    values: dict[str, np.ndarray] = field(default_factory=dict)

    def write(self, folder: Path, fill: str = "zeros") -> Path:
        """Write the network, filled with zeros, noise or shares, and its labels."""
        random = np.random.default_rng(7)
        values = dict(self.values)
        for name, shape in self.outputs.items():
            plain = [size if isinstance(size, int) else 1 for size in shape]
            if name not in values and fill != "zeros":
                values[name] = random.normal(0, 3, plain) if fill == "noise" else random.random(plain)
        if self.labels:
            (folder / "labels.txt").write_text("\n".join(f"class {number}" for number in range(self.labels)))
        return shaped(
            folder / "best.onnx",
            self.outputs,
            image=self.image,
            extra=self.extra,
            integers=self.integers,
            values=values,
        )


def anchors(*behind: np.ndarray, count: int = 8400) -> np.ndarray:
    """(count, 4 + values) center and size over an input of 640 pixels, then what is behind them."""
    centers = np.linspace(4, 636, count)[:, None]
    sizes = np.linspace(8, 200, count)[:, None]
    return np.concatenate([centers, centers, sizes, sizes, *behind], axis=1)


def corners(*behind: np.ndarray, count: int = 300) -> np.ndarray:
    """(count, 4 + values) x1, y1, x2, y2 in pixels, then what is behind them."""
    low = np.linspace(0, 600, count)[:, None]
    return np.concatenate([low, low, low + 30, low + 40, *behind], axis=1)


def scores(rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(1).random((rows, columns)) * 0.9


def classes(rows: int, count: int = 80) -> np.ndarray:
    return np.random.default_rng(2).integers(0, count, (rows, 1)).astype(float)


def points(rows: int, count: int) -> np.ndarray:
    values = np.random.default_rng(3).random((rows, count, 3))
    values[:, :, :2] *= 640
    return values.reshape(rows, 3 * count)


ROWS_OF_SIX = corners(scores(300, 1), classes(300))
SMALL = ["N", 3, 256, 192]
IMAGENET = ["N", 3, 224, 224]

READ = {
    "videomae": ("clip_logits", Layout({"logits": [1, 400]}, image=[1, 16, 3, 224, 224], labels=400)),
    "x3d": (
        "clip_probabilities",
        Layout(
            {"output": ["N", 400]},
            image=["N", 3, 13, 160, 160],
            labels=400,
            values={"output": np.full((1, 400), 0.0025)},
        ),
    ),
    "a clip of open length": (
        "clip_logits",
        Layout({"logits": ["N", 5]}, image=["N", 3, "frames", 112, 112], labels=5),
    ),
    "a clip with named channels": (
        "clip_logits",
        Layout({"logits": ["N", 5]}, image=["N", "num_frames", "num_channels", 112, 112], labels=5),
    ),
    "yolo26": ("yolo_e2e", Layout({"output0": ["N", 300, 6]}, labels=80, values={"output0": ROWS_OF_SIX[None]})),
    "yolo26-seg": (
        "yolo_e2e_seg",
        Layout(
            {"output0": ["N", 300, 38], "output1": ["N", 32, 160, 160]},
            labels=80,
            values={"output0": corners(scores(300, 1), classes(300), points(300, 11)[:, :32])[None]},
        ),
    ),
    "yolo26-pose": (
        "yolo_e2e_pose",
        Layout(
            {"output0": ["N", 300, 57]},
            labels=1,
            values={"output0": corners(scores(300, 1), classes(300, 1), points(300, 17))[None]},
        ),
    ),
    "yolo26-obb": (
        "yolo_e2e_obb",
        Layout(
            {"output0": ["N", 300, 7]},
            image=["N", 3, 1024, 1024],
            labels=15,
            values={"output0": anchors(scores(300, 1), classes(300, 15), scores(300, 1), count=300)[None]},
        ),
    ),
    "yolo26-obb of as many classes as rows of other networks have scores": (
        "yolo_e2e_obb",
        Layout(
            {"output0": ["N", 300, 7]},
            labels=3,
            values={"output0": anchors(scores(300, 1), classes(300, 3), scores(300, 1), count=300)[None]},
        ),
    ),
    "oriented boxes after non-max suppression that finds nothing": (
        "yolo_e2e_obb",
        Layout({"output0": ["N", 300, 7]}, labels=3, values={"output0": np.zeros((1, 300, 7))}),
    ),
    "yolov8": (
        "yolov8",
        Layout({"output0": ["N", 84, 8400]}, labels=80, values={"output0": anchors(scores(8400, 80)).T[None]}),
    ),
    "yolov8-pose": (
        "yolov8_pose",
        Layout(
            {"output0": ["N", 56, 8400]},
            labels=1,
            values={"output0": anchors(scores(8400, 1), points(8400, 17)).T[None]},
        ),
    ),
    "yolov8-seg": (
        "yolov8_seg",
        Layout(
            {"output0": ["N", 116, 8400], "output1": ["N", 32, 160, 160]},
            labels=80,
            values={"output0": anchors(scores(8400, 80), points(8400, 11)[:, :32]).T[None]},
        ),
    ),
    "yolov5 with its raw outputs": (
        "yolov5",
        Layout(
            {
                "output": ["N", 25200, 85],
                "350": ["N", 3, 80, 80, 85],
                "498": ["N", 3, 40, 40, 85],
                "646": ["N", 3, 20, 20, 85],
            },
            labels=80,
            values={"output": anchors(scores(25200, 81), count=25200)[None]},
        ),
    ),
    "yolox of a small input": (
        "yolox",
        Layout(
            {"output": ["N", 756, 6]},
            image=["N", 3, 192, 192],
            labels=1,
            values={"output": np.concatenate([scores(756, 4) * 3, scores(756, 2)], axis=1)[None]},
        ),
    ),
    "rf-detr": ("detr", Layout({"dets": ["N", 300, 4], "labels": ["N", 300, 91]}, labels=91)),
    "rf-detr-seg": (
        "detr_seg",
        Layout(BOXES | {"masks": ["N", 100, 78, 78]}, image=["N", 3, 312, 312], labels=91),
    ),
    "rf-detr-keypoint": (
        "rfdetr_pose",
        Layout(
            {"dets": ["N", 100, 4], "labels": ["N", 100, 2], "keypoints": ["N", 100, 34, 8]},
            image=["N", 3, 576, 576],
            labels=2,
        ),
    ),
    "detrpose": (
        "detrpose",
        Layout(
            {"scores": ["N", 60], "labels": ["N", 60], "keypoints": ["N", 60, 17, 2]},
            labels=1,
            extra=SIZES,
            integers=("labels",),
        ),
    ),
    "mask2former": (
        "mask_queries",
        Layout(
            {"class_queries_logits": ["N", 100, 81], "masks_queries_logits": ["N", 100, 96, 96]},
            image=["N", 3, 384, 384],
            labels=80,
        ),
    ),
    "d-fine, deim, rt-detr of the authors": (
        "detr",
        Layout(
            {"labels": ["N", 300], "boxes": ["N", 300, 4], "scores": ["N", 300]},
            labels=80,
            extra=SIZES,
            integers=("labels",),
        ),
    ),
    "detr of hugging face": ("detr", Layout({"logits": ["N", 300, 80], "pred_boxes": ["N", 300, 4]}, labels=80)),
    "owlv2": (
        "detr",
        Layout(
            {
                "logits": ["N", 3600, 2],
                "pred_boxes": ["N", 3600, 4],
                "objectness_logits": ["N", 3600],
                "text_embeds": [1, 2, 512],
                "image_embeds": ["N", 60, 60, 512],
            },
            labels=2,
        ),
    ),
    "dinov3 beside other labels": (
        "embedding",
        Layout({"last_hidden_state": ["N", 201, 384], "pooler_output": ["N", 384]}, image=IMAGENET, labels=3),
    ),
    "tao rt-detr": (
        "detr",
        Layout({"pred_logits": ["N", 300, 5], "pred_boxes": ["N", 300, 4]}, image=["N", 3, 544, 960], labels=5),
    ),
    "torchvision": (
        "ssd",
        Layout(
            {"boxes": ["K", 4], "labels": ["K"], "scores": ["K"]},
            image=[1, 3, 640, 640],
            labels=91,
            integers=("labels",),
        ),
    ),
    "tensorflow ssd": (
        "ssd",
        Layout(
            {
                "detection_boxes": [1, 100, 4],
                "detection_scores": [1, 100],
                "detection_classes": [1, 100],
                "num_detections": [1],
                "raw_detection_boxes": [1, 1917, 4],
            },
            labels=91,
        ),
    ),
    "yolo-nas": (
        "yolo_world",
        Layout(
            {"boxes": ["N", 8400, 4], "scores": ["N", 8400, 80]},
            labels=80,
            values={"boxes": corners(count=8400)[None], "scores": scores(8400, 80)[None]},
        ),
    ),
    "deepstream-yolo": (
        "deepstream_yolo",
        Layout(
            {"output": ["N", 8400, 6]},
            labels=80,
            values={"output": corners(scores(8400, 1), classes(8400), count=8400)[None]},
        ),
    ),
    "deepstream-yolo of one class, as many values as yolov5 and yolox of one class": (
        "deepstream_yolo",
        Layout(
            {"output": ["N", 8400, 6]},
            labels=1,
            values={"output": corners(scores(8400, 1), classes(8400, 1), count=8400)[None]},
        ),
    ),
    "deepstream-yolo of yolov5, with three anchors for a cell": (
        "deepstream_yolo",
        Layout(
            {"output": ["N", 25200, 6]},
            labels=3,
            values={"output": corners(scores(25200, 1), classes(25200, 3), count=25200)[None]},
        ),
    ),
    "an older deepstream-yolo": (
        "deepstream_yolo",
        Layout(
            {"boxes": ["N", 8400, 4], "scores": ["N", 8400, 1], "classes": ["N", 8400, 1]},
            labels=3,
            values={
                "boxes": corners(count=8400)[None],
                "scores": scores(8400, 1)[None],
                "classes": classes(8400, 3)[None],
            },
        ),
    ),
    "yolov5 of one class": (
        "yolov5",
        Layout(
            {"output": ["N", 25200, 6]},
            labels=1,
            values={"output": anchors(scores(25200, 2), count=25200)[None]},
        ),
    ),
    "tao detectnet_v2": (
        "detectnet",
        Layout(
            {"output_cov/Sigmoid:0": ["N", 3, 34, 60], "output_bbox/BiasAdd:0": ["N", 12, 34, 60]},
            image=["N", 3, 544, 960],
            labels=3,
        ),
    ),
    "mmdeploy": ("mmdeploy", Layout({"dets": ["N", 100, 5], "labels": ["N", 100]}, labels=80, integers=("labels",))),
    "efficientnms": (
        "efficient_nms",
        Layout(
            {"num_dets": ["N", 1], "det_boxes": ["N", 100, 4], "det_scores": ["N", 100], "det_classes": ["N", 100]},
            labels=80,
            integers=("num_dets", "det_classes"),
        ),
    ),
    "yolo-world of mmyolo with non-max suppression": (
        "efficient_nms",
        Layout(
            {"num_dets": ["N", 1], "boxes": ["N", 100, 4], "scores": ["N", 100], "labels": ["N", 100]},
            labels=80,
            integers=("num_dets", "labels"),
        ),
    ),
    "yolo-nas with non-max suppression": (
        "efficient_nms",
        Layout(
            {
                "graph2_num_predictions": ["N", 1],
                "graph2_pred_boxes": ["N", 100, 4],
                "graph2_pred_scores": ["N", 100],
                "graph2_pred_classes": ["N", 100],
            },
            labels=80,
            integers=("graph2_num_predictions", "graph2_pred_classes"),
        ),
    ),
    "pp-yoloe": (
        "ppyoloe_e2e",
        Layout(
            {"multiclass_nms3_0.tmp_0": ["K", 6], "multiclass_nms3_0.tmp_2": ["N"]},
            extra={"scale_factor": ["N", 2]},
            labels=80,
            integers=("multiclass_nms3_0.tmp_2",),
        ),
    ),
    "pp-yoloe without non-max suppression": (
        "ppyoloe",
        Layout(
            {"concat_14.tmp_0": ["N", 8400, 4], "tmp_16": ["N", 80, 8400]}, extra={"scale_factor": ["N", 2]}, labels=80
        ),
    ),
    "pp-yoloe without non-max suppression and scale": (
        "ppyoloe",
        Layout(
            {"boxes": ["N", 8400, 4], "scores": ["N", 80, 8400]},
            labels=80,
            values={"boxes": corners(count=8400)[None], "scores": scores(80, 8400)[None]},
        ),
    ),
    "yolo-nas with numbers for names": (
        "yolo_world",
        Layout(
            {"1135": ["N", 8400, 4], "1127": ["N", 8400, 80]},
            labels=80,
            values={"1135": corners(count=8400)[None], "1127": scores(8400, 80)[None]},
        ),
    ),
    "dinov3": (
        "embedding",
        Layout({"last_hidden_state": ["N", 201, 384], "pooler_output": ["N", 384]}, image=IMAGENET),
    ),
    "rtmpose": ("simcc", Layout({"simcc_x": ["N", 17, 384], "simcc_y": ["N", 17, 512]}, image=SMALL)),
    "rtmpose beside a label": (
        "simcc",
        Layout({"simcc_x": ["N", 17, 384], "simcc_y": ["N", 17, 512]}, image=SMALL, labels=1),
    ),
    "rtmpose without names": ("simcc", Layout({"a": ["N", 26, 512], "b": ["N", 26, 384]}, image=SMALL)),
    "tokens of dinov3": ("embedding", Layout({"last_hidden_state": ["N", 201, 384]}, image=IMAGENET)),
    "tokens of vit": ("embedding", Layout({"last_hidden_state": ["N", 50, 768]}, image=IMAGENET)),
    "clip with two vectors": (
        "embedding",
        Layout(
            {"last_hidden_state": ["N", 50, 768], "pooler_output": ["N", 768], "image_embeds": ["N", 512]},
            image=IMAGENET,
        ),
    ),
    "segformer with labels": (
        "semantic",
        Layout({"logits": ["N", 150, 128, 128]}, image=["N", 3, 512, 512], labels=150),
    ),
    "a map of classes": (
        "semantic",
        Layout({"output": ["N", 512, 512]}, image=["N", 3, 512, 512], labels=19, integers=("output",)),
    ),
}


@pytest.mark.parametrize("name", READ)
def test_the_family_is_identified_by_the_outputs(name, tmp_path):
    family, layout = READ[name]
    card = derive(layout.write(tmp_path), assume=True).card()
    assert card.family == family
    assert card.ignore_outputs == ()


ANOMALY = {"pred_score": [1, 1], "pred_label": [1, 1], "anomaly_map": [1, 1, 256, 256], "pred_mask": [1, 1, 256, 256]}
READ["anomalib"] = "anomalib", Layout(ANOMALY, image=[1, 3, 256, 256])
READ["anomalib without a map"] = "anomalib", Layout({"pred_score": ["N"], "pred_label": ["N"]}, labels=3)

AMBIGUOUS = {
    "segformer": ("semantic", Layout({"logits": ["N", 150, 128, 128]}, image=["N", 3, 512, 512])),
    "a map beside other labels": (
        "semantic",
        Layout({"logits": ["N", 150, 128, 128]}, image=["N", 3, 512, 512], labels=3),
    ),
    "an old rt-detr of ultralytics": (
        "rtdetr",
        Layout({"output0": ["N", 300, 84]}, labels=80, values={"output0": scores(300, 84)[None]}),
    ),
    "rows that may be of three classes, or oriented boxes": (
        "rtdetr",
        Layout({"output0": ["N", 300, 7]}, labels=3, values={"output0": scores(300, 7)[None]}),
    ),
    "a map without a name": ("semantic", Layout({"output": ["N", 18, 64, 48]}, image=SMALL)),
    "hrnet": (
        "heatmaps",
        Layout(
            {"output": ["N", 17, 64, 48]},
            image=SMALL,
            values={"output": scores(17, 3072).reshape(1, 17, 64, 48) / 9},
        ),
    ),
    "vitpose of other authors": ("heatmaps_udp", Layout({"heatmaps": ["N", 17, 64, 48]}, image=SMALL)),
    "vitpose with names of points": ("heatmaps_udp", Layout({"heatmaps": ["N", 17, 64, 48]}, image=SMALL, labels=17)),
    "a vector": ("logits", Layout({"output": ["N", 256]}, image=SMALL)),
    "depth anything": ("inverse_depth", Layout({"predicted_depth": ["N", 518, 518]}, image=["N", 3, 518, 518])),
    "depth anything with labels": (
        "relative_depth",
        Layout({"predicted_depth": ["N", 518, 518]}, image=["N", 3, 518, 518], labels=514),
    ),
    "yolo26-depth without metadata": ("metric_depth", Layout({"output0": ["N", 1, 640, 640]})),
    "a vector beside other labels": ("embedding", Layout({"output": ["N", 256]}, image=SMALL, labels=80)),
}


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_an_ambiguous_network_is_reported_with_the_possible_families(name, tmp_path):
    family, layout = AMBIGUOUS[name]
    with pytest.raises(Underivable) as caught:
        derive(layout.write(tmp_path), assume=True)
    (problem,) = caught.value.problems
    assert family in problem.text
    assert "decide with streamkit models new" in problem.text
    assert problem.text.endswith("none of these: write a family in a plugin")


@pytest.mark.parametrize(
    ("name", "labels"), [("segformer", 150), ("an old rt-detr of ultralytics", 80), ("a vector", 256)]
)
def test_the_family_option_selects_among_possible_families(name, labels, tmp_path):
    family, layout = AMBIGUOUS[name]
    path = layout.write(tmp_path)
    (tmp_path / "names.txt").write_text("\n".join(map(str, range(labels))))
    card = derive(path, family=family, labels=str(tmp_path / "names.txt"), assume=True).card()
    assert card.family == family


NO_FAMILY = "no family reads its outputs "
NOT_ALL = "no family reads all of its outputs "

REFUSED = {
    "fastestdet": (
        "not semantic: its values are neither logits nor probabilities of classes",
        Layout(
            {"output": [1, 85, 22, 22]},
            image=[1, 3, 352, 352],
            values={"output": scores(85, 484).reshape(1, 85, 22, 22) - 0.3},
        ),
    ),
    "rf-detr with angles": ("family detr does not read angles", Layout(BOXES | {"angles": ["N", 100]}, labels=91)),
    "rf-detr with angles of rank 3": (NO_FAMILY, Layout(BOXES | {"angles": ["N", 100, 1]}, labels=91)),
    "grounding dino": (
        "no family has a value for input_ids",
        Layout(
            {"logits": ["N", 900, 256], "pred_boxes": ["N", 900, 4]},
            extra={"input_ids": ["N", 256], "attention_mask": ["N", 256]},
        ),
    ),
    "sam 2": (
        NO_FAMILY,
        Layout(
            {
                "high_res_feats_0": [1, 32, 256, 256],
                "high_res_feats_1": [1, 64, 128, 128],
                "image_embed": [1, 256, 64, 64],
            },
            image=[1, 3, 1024, 1024],
        ),
    ),
    "sam 3": (
        "family detr does not read presence_logits, pred_masks, semantic_seg",
        Layout(
            {
                "pred_logits": ["N", 200, 1],
                "pred_boxes": ["N", 200, 4],
                "presence_logits": ["N", 1],
                "pred_masks": ["N", 200, 28, 28],
                "semantic_seg": ["N", 1, 28, 28],
            },
            image=["N", 3, 1008, 1008],
            labels=1,
        ),
    ),
    "tokens of siglip": (NO_FAMILY, Layout({"last_hidden_state": ["N", 196, 768]}, image=IMAGENET)),
    "an anomaly map": (NO_FAMILY, Layout({"anomaly_map": [1, 1, 256, 256]}, image=[1, 3, 256, 256], labels=2)),
    "videomae without labels": (
        "no source names 400 classes (family clip_",
        Layout({"logits": [1, 400]}, image=[1, 16, 3, 224, 224]),
    ),
    "a clip of 3 frames": (
        "with 2 axes of 3 for the colors, which does not say where the frames are; export it as",
        Layout({"logits": [1, 400]}, image=[1, 3, 3, 224, 224], labels=400),
    ),
    "a clip without colors": (
        "with no axis of 3 for the colors",
        Layout({"logits": [1, 400]}, image=[1, 2, 16, 224, 224], labels=400),
    ),
    "mmdeploy with masks": (
        "family mmdeploy does not read masks",
        Layout(
            {"dets": ["N", 100, 5], "labels": ["N", 100], "masks": ["N", 100, 28, 28]},
            labels=80,
            integers=("labels",),
        ),
    ),
    "detectnet_v2 with logits": (
        "not detectnet: its scores are not from 0 to 1",
        Layout(
            {"output_cov/BiasAdd:0": ["N", 3, 40, 40], "output_bbox/BiasAdd:0": ["N", 12, 40, 40]},
            labels=3,
            values={"output_cov/BiasAdd:0": scores(3, 1600).reshape(1, 3, 40, 40) * 9 - 6},
        ),
    ),
    "detectnet_v2 of another stride": (
        NO_FAMILY,
        Layout({"output_cov/Sigmoid:0": ["N", 3, 80, 80], "output_bbox/BiasAdd:0": ["N", 12, 80, 80]}, labels=3),
    ),
    "efficientnms with shares of the input": (
        "not efficient_nms: its boxes are shares of the input",
        Layout(
            {"num_dets": ["N", 1], "det_boxes": ["N", 100, 4], "det_scores": ["N", 100], "det_classes": ["N", 100]},
            labels=80,
            integers=("num_dets", "det_classes"),
            values={"num_dets": np.full((1, 1), 9), "det_boxes": scores(100, 4)[None]},
        ),
    ),
    "deepstream-yolo with center and size": (
        "not deepstream_yolo: its boxes are not corners",
        Layout(
            {"output": ["N", 8400, 6]},
            labels=80,
            values={"output": anchors(scores(8400, 1), classes(8400))[None]},
        ),
    ),
    "rt-detr of paddledetection": (
        "no family has a value for im_shape",
        Layout({"rows": ["K", 6], "count": ["N"]}, extra={"im_shape": ["N", 2], "scale_factor": ["N", 2]}, labels=80),
    ),
    "rows of boxes in pixels and three scores": (
        "not yolo_e2e_obb: its classes are not whole numbers",
        Layout(
            {"output0": ["N", 300, 7]},
            labels=3,
            values={"output0": anchors(scores(300, 3), count=300)[None]},
        ),
    ),
    "rows with a number behind the class that is no angle": (
        "not yolo_e2e_obb: its last column is no angle",
        Layout(
            {"output0": ["N", 300, 7]},
            labels=3,
            values={"output0": anchors(scores(300, 1), classes(300, 3), points(300, 1)[:, :1], count=300)[None]},
        ),
    ),
    "rows and their number without a scale": (
        NO_FAMILY,
        Layout({"rows": ["K", 6], "count": ["N"]}, labels=80),
    ),
    "mask r-cnn of torchvision": (
        "family ssd does not read masks",
        Layout(
            {"boxes": ["K", 4], "labels": ["K"], "scores": ["K"], "masks": ["K", 1, 28, 28]},
            image=[1, 3, 640, 640],
            labels=91,
            integers=("labels",),
        ),
    ),
    "ultraface": (
        NO_FAMILY,
        Layout({"scores": ["N", 4420, 2], "boxes": ["N", 4420, 4]}, image=["N", 3, 240, 320], labels=2),
    ),
    "yolov5-seg": (NO_FAMILY, Layout({"o": [1, 25200, 117], "p": [1, 32, 160, 160]}, labels=80)),
    "nanodet": (
        "not yolov5: its box centers are raw offsets",
        Layout(
            {"output": [1, 2125, 112]},
            image=[1, 3, 320, 320],
            labels=80,
            values={"output": np.concatenate([scores(2125, 80), scores(2125, 32) * 9], axis=1)[None]},
        ),
    ),
    "a super-resolution": (NO_FAMILY, Layout({"output": [1, 1, 512, 512]}, image=[1, 3, 256, 256])),
}
"""The text of the refusal, and the layout."""


CASES = [
    (name, fill)
    for name, (_, layout) in REFUSED.items()
    for fill in ("zeros", "noise", "shares")
    if fill == "zeros" or not layout.values
]


@pytest.mark.parametrize(("name", "fill"), CASES)
def test_a_network_without_a_matching_family_is_refused(name, fill, tmp_path):
    expected, layout = REFUSED[name]
    with pytest.raises(ModelError) as caught:
        derive(layout.write(tmp_path, fill), assume=True)
    assert expected in str(caught.value)
