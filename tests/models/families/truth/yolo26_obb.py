"""Write yolo26_obb.npz: what ultralytics 8.4.190 makes of its own end-to-end export of YOLO26n-obb, weights random.

Run it on a picture, with ultralytics, onnx and onnxruntime installed: `python yolo26_obb.py picture.jpg`.

The file holds `output` (1, 50, 7), the network's rows for the picture; `size` and `frame`, width and height of the
input and of the picture; `corners` (n, 4, 2) in source pixels, `score` and `class_id` of the authors' predictor.
"""

import sys
from pathlib import Path

import cv2
import numpy as np
import torch
from ultralytics import YOLO

HIGH = 96
WIDE = 128
MIN_SCORE = 0.25


def randomize(network: YOLO, picture: np.ndarray) -> None:
    """Draw weights whose boxes, scores and angles vary over the picture, as trained ones do."""
    torch.manual_seed(4)
    small = cv2.resize(picture, (3 * WIDE, 3 * HIGH))
    crops = torch.from_numpy(
        small.reshape(3, HIGH, 3, WIDE, 3).transpose(0, 2, 4, 1, 3).reshape(9, 3, HIGH, WIDE) / 255
    )
    layers = network.model
    for part in layers.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.momentum = 1.0  # the statistics are those of the crops; without them, the features vanish
    layers.train()
    layers(crops.float())
    layers.eval()
    head = layers.model[-1]
    for branch, center, spread in (
        (head.one2one_cv2, 2.0, 0.02),
        (head.one2one_cv3, -3.0, 0.01),
        (head.one2one_cv4, 0.4, 0.006),
    ):
        for part in branch:
            torch.nn.init.normal_(part[-1].weight, 0, spread)
            torch.nn.init.constant_(part[-1].bias, center)


def main() -> None:
    """Export, predict and save."""
    picture = cv2.imread(sys.argv[1])[:400, :640]  # both sides fit the input at one scale
    network = YOLO("yolo26n-obb.yaml")
    randomize(network, picture)
    export = network.export(format="onnx", imgsz=(HIGH, WIDE), nms=False, max_det=50, simplify=False, opset=17)
    exported = YOLO(export, task="obb")
    objects = exported.predict(picture, conf=MIN_SCORE, verbose=False)[0].obb
    rows = exported.predictor.model(exported.predictor.preprocess([picture]))
    np.savez_compressed(
        Path(__file__).with_suffix(".npz"),
        output=np.asarray(rows, np.float32),
        size=np.array([WIDE, HIGH]),
        frame=np.array(picture.shape[1::-1]),
        corners=objects.xyxyxyxy.numpy(),
        score=objects.conf.numpy(),
        class_id=objects.cls.numpy().astype(np.int32),
    )


if __name__ == "__main__":
    main()
