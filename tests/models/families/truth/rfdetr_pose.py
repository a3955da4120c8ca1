"""Write rfdetr_pose.npz: what rfdetr 1.11.2 makes of its own export of RF-DETR's keypoint network, weights random.

Run it on a picture, with rfdetr, onnx and onnxruntime installed: `python rfdetr_pose.py picture.jpg`.

The file holds the network's outputs for the picture, `dets`, `labels` and `keypoints`; `size` and `frame`, width and
height of the input and of the picture; `xyxy`, `score`, `class_id` and `points` (n, points, 3) of the authors'
postprocessor.
"""

import sys
import tempfile
from pathlib import Path

import cv2
import numpy as np
import onnxruntime
import torch
from rfdetr import RFDETRKeypointPreview
from rfdetr.models.postprocess import PostProcess

SIZE = 96
QUERIES = 20
POINTS = [5, 5]


def randomize(layers: torch.nn.Module) -> None:
    """Draw weights whose boxes, scores and points vary over the queries, as trained ones do."""
    torch.manual_seed(3)
    decoder = layers.transformer
    torch.nn.init.normal_(layers.refpoint_embed.weight, 0, 0.6)
    torch.nn.init.normal_(layers.query_feat.weight, 0, 1)
    for heads in (layers.class_embed, *decoder.enc_out_class_embed):
        torch.nn.init.normal_(heads.weight, 0, 0.15)
        torch.nn.init.constant_(heads.bias, -0.5)
    for name, part in layers.named_modules():
        if "keypoint" in name and isinstance(part, torch.nn.Linear):
            torch.nn.init.normal_(part.weight, 0, 0.1)


def main() -> None:
    """Export, run and save."""
    picture = cv2.imread(sys.argv[1])[:200, :300, ::-1]
    detector = RFDETRKeypointPreview(
        pretrain_weights=None,
        device="cpu",
        num_queries=QUERIES,
        num_select=QUERIES,
        num_classes=len(POINTS) - 1,
        resolution=SIZE,
        positional_encoding_size=SIZE // 12,
        num_keypoints_per_class=POINTS,
    )
    resized = cv2.resize(picture, (SIZE, SIZE), interpolation=cv2.INTER_LINEAR) / 255
    image = ((resized - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)).transpose(2, 0, 1)[None].astype(np.float32)
    randomize(detector.model.model)
    with tempfile.TemporaryDirectory() as folder:
        path = detector.export(output_dir=folder, shape=(SIZE, SIZE), verbose=False)
        session = onnxruntime.InferenceSession(path)
        names = [output.name for output in session.get_outputs()]
        outputs = dict(zip(names, session.run(None, {session.get_inputs()[0].name: image}), strict=True))
    keys = {"dets": "pred_boxes", "labels": "pred_logits", "keypoints": "pred_keypoints"}
    tensors = {keys[name]: torch.from_numpy(array) for name, array in outputs.items()}
    objects = PostProcess(QUERIES, POINTS)(tensors, torch.tensor([picture.shape[:2]]))[0]
    np.savez_compressed(
        Path(__file__).with_suffix(".npz"),
        **outputs,
        size=np.array([SIZE, SIZE]),
        frame=np.array(picture.shape[1::-1]),
        xyxy=objects["boxes"].numpy(),
        score=objects["scores"].numpy(),
        class_id=objects["labels"].numpy().astype(np.int32),
        points=objects["keypoints"].numpy(),
    )
    print(names, {name: array.shape for name, array in outputs.items()}, objects["scores"], objects["keypoints"][0])


if __name__ == "__main__":
    main()
