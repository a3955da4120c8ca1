"""Write yolo_nas.npz: what super-gradients 3.7.1 makes of its own YOLO-NAS-S, weights random.

Run it on a picture, with super-gradients, onnx_graphsurgeon and onnxruntime installed: `python yolo_nas.py p.jpg`. It
also leaves the networks, nas.onnx and nas_nms.onnx, in the folder in which it runs.

The file holds, of the picture stretched to an input of 96 x 96 pixels: `boxes` (1, 189, 4) and `scores` (1, 189, 3),
the outputs of `convert_to_onnx`; `count`, `pred_boxes`, `pred_scores` and `pred_classes`, those of `export` with
non-max suppression; and `objects` (n, 6) box, score and class of the authors' post-prediction callback.
"""

import sys
from pathlib import Path

import cv2
import numpy as np
import onnxruntime
import torch
from super_gradients.conversion import DetectionOutputFormatMode
from super_gradients.training import models

SIDE = 96
MIN_SCORE = 0.25
IOU = 0.6


def detector(picture: np.ndarray) -> torch.nn.Module:
    """Draw weights whose boxes and scores vary over the picture, as trained ones do."""
    torch.manual_seed(1)
    network = models.get("yolo_nas_s", num_classes=3)
    for layer in network.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.momentum = 1.0  # the statistics are those of the crops; without them, the features vanish
    network.train()
    crops = cv2.resize(picture, (3 * SIDE, 3 * SIDE)).reshape(3, SIDE, 3, SIDE, 3).transpose(0, 2, 4, 1, 3)
    network(torch.from_numpy(crops.reshape(9, 3, SIDE, SIDE) / 255).float())
    network.eval()
    for name, layer in network.heads.named_modules():
        if name.endswith("cls_pred"):
            torch.nn.init.normal_(layer.weight, 0, 0.01)
            torch.nn.init.constant_(layer.bias, -1.5)
        elif name.endswith("reg_pred"):
            torch.nn.init.normal_(layer.weight, 0, 0.02)
    return network


def outputs_of(file: str, image: np.ndarray) -> list[np.ndarray]:
    """Run an export."""
    session = onnxruntime.InferenceSession(file)
    return session.run(None, {session.get_inputs()[0].name: image})


def main() -> None:
    """Export, predict and save."""
    picture = cv2.imread(sys.argv[1])
    image = cv2.resize(picture, (SIDE, SIDE))[..., ::-1].transpose(2, 0, 1)[None].astype(np.float32) / 255
    callback = {"nms_top_k": 200, "max_predictions": 100, "multi_label_per_box": False, "class_agnostic_nms": False}
    network = detector(picture)
    select = network.get_post_prediction_callback(conf=MIN_SCORE, iou=IOU, **callback)
    with torch.no_grad():
        objects = select(network(torch.from_numpy(image.copy())))[0].numpy()
    detector(picture).export(
        "nas_nms.onnx",
        preprocessing=False,
        postprocessing=True,
        input_image_shape=(SIDE, SIDE),
        onnx_simplify=False,
        num_pre_nms_predictions=189,
        max_predictions_per_image=100,
        nms_threshold=IOU,
        confidence_threshold=MIN_SCORE,
        output_predictions_format=DetectionOutputFormatMode.BATCH_FORMAT,
    )
    models.convert_to_onnx(model=network, input_shape=(3, SIDE, SIDE), out_path="nas.onnx")
    plain = dict(zip(("boxes", "scores"), outputs_of("nas.onnx", image), strict=True))
    names = ("count", "pred_boxes", "pred_scores", "pred_classes")
    selected = dict(zip(names, outputs_of("nas_nms.onnx", image), strict=True))
    np.savez_compressed(Path(__file__).with_suffix(".npz"), objects=objects, **plain, **selected)


if __name__ == "__main__":
    main()
