"""Write ppyoloe.npz: what PaddleDetection 2.6 and Paddle2ONNX 1.2 make of a small PP-YOLOE, weights random.

Run it on a picture, with paddlepaddle 2.6.2, paddledet 2.6.0, paddle2onnx 1.2.11, scikit-learn, onnxruntime and NumPy 1
installed: `python ppyoloe.py picture.jpg`. It also leaves the networks in the folder in which it runs.

The file holds, of the picture stretched to the input: `boxes`, `scores`, `rows` and `count`, the outputs of both
exports with `scale_factor` 1; `size` and `frame`, width and height of the input and of the picture; of PaddleDetection
itself, with the `scale_factor` of the picture, `objects` (n, 6) class, score and box in source pixels, and `candidates`
(1, 189, 4), its boxes before non-max suppression.
"""

import sys
from pathlib import Path

import cv2
import numpy as np
import onnxruntime
import paddle
import paddle2onnx
from paddle.static import InputSpec
from ppdet.modeling.architectures.yolo import YOLOv3
from ppdet.modeling.assigners import ATSSAssigner
from ppdet.modeling.backbones.cspresnet import CSPResNet
from ppdet.modeling.heads.ppyoloe_head import PPYOLOEHead
from ppdet.modeling.layers import MultiClassNMS
from ppdet.modeling.necks.custom_pan import CustomCSPPAN

SIDE = 96
CLASSES = 3


def detector(picture: np.ndarray, exclude_nms: bool) -> YOLOv3:
    """Draw weights whose boxes and scores vary over the picture, as trained ones do."""
    paddle.seed(1)
    backbone = CSPResNet([1, 1, 1, 1], [16, 16, 32, 64, 64], return_idx=[1, 2, 3], use_large_stem=True, use_alpha=True)
    channels = [shape.channels for shape in backbone.out_shape]
    neck = CustomCSPPAN(channels, [48, 32, 16], stage_num=1, block_num=1, act="swish", spp=True)
    head = PPYOLOEHead(
        [shape.channels for shape in neck.out_shape],
        num_classes=CLASSES,
        static_assigner=ATSSAssigner(),
        nms=MultiClassNMS(nms_top_k=200, keep_top_k=30, score_threshold=0.05, nms_threshold=0.6),
        exclude_nms=exclude_nms,
    )
    network = YOLOv3(backbone=backbone, neck=neck, yolo_head=head)
    network.post_process = None
    for layer in network.sublayers():
        if isinstance(layer, paddle.nn.BatchNorm2D):
            layer._momentum = 0.0  # the statistics are those of the crops; without them, the features vanish
    network.train()
    crops = cv2.resize(picture, (3 * SIDE, 3 * SIDE)).reshape(3, SIDE, 3, SIDE, 3).transpose(0, 2, 4, 1, 3)
    network.neck(
        network.backbone({"image": paddle.to_tensor((crops.reshape(9, 3, SIDE, SIDE) / 255).astype("float32"))})
    )
    network.eval()
    for layers, spread in ((head.pred_cls, 0.001), (head.pred_reg, 0.002)):
        for layer in layers:
            layer.weight.set_value(paddle.randn(layer.weight.shape) * spread)
    for layer in head.pred_cls:
        layer.bias.set_value(paddle.full(layer.bias.shape, -1.5))
    return network


def exported(network: YOLOv3, name: str) -> onnxruntime.InferenceSession:
    """Export as PaddleDetection and Paddle2ONNX do."""
    inputs = {
        "image": InputSpec([None, 3, SIDE, SIDE], name="image"),
        "scale_factor": InputSpec([None, 2], name="scale_factor"),
    }
    paddle.jit.save(paddle.jit.to_static(network, input_spec=[inputs]), name)
    files = [f"{name}.pdmodel", f"{name}.pdiparams"]
    Path(f"{name}.onnx").write_bytes(paddle2onnx.export(*files, opset_version=13))
    return onnxruntime.InferenceSession(f"{name}.onnx")


def main() -> None:
    """Export, predict and save."""
    picture = cv2.imread(sys.argv[1])
    high, wide = picture.shape[:2]
    image = cv2.resize(picture, (SIDE, SIDE))[..., ::-1].transpose(2, 0, 1)[None].astype(np.float32) / 255
    unscaled = {"image": image, "scale_factor": np.ones((1, 2), np.float32)}
    scaled = {"image": image, "scale_factor": np.array([[SIDE / high, SIDE / wide]], np.float32)}
    arrays = {}
    for name, outputs, truth in (
        ("ppyoloe", ("boxes", "scores"), "candidates"),
        ("ppyoloe_e2e", ("rows", "count"), "objects"),
    ):
        network = detector(picture, name == "ppyoloe")
        arrays[truth] = network({key: paddle.to_tensor(value) for key, value in scaled.items()})["bbox"].numpy()
        arrays |= dict(zip(outputs, exported(network, name).run(None, unscaled), strict=True))
    size = np.array([SIDE, SIDE])
    np.savez_compressed(Path(__file__).with_suffix(".npz"), size=size, frame=np.array([wide, high]), **arrays)


if __name__ == "__main__":
    main()
