"""Write rfdetr_seg.npz: what rfdetr 1.11.2 makes of its own export of RF-DETR-Seg Nano, weights random.

Run it on a picture, with rfdetr, onnx and onnxruntime installed: `python rfdetr_seg.py picture.jpg`.

The file holds the network's outputs for the picture, `dets`, `labels` and `masks`; `size` and `frame`, width and height
of the input and of the picture; `xyxy`, `score`, `class_id` and `mask` (n, height, width), bits, of the authors'
postprocessor.
"""

import sys
import tempfile
from pathlib import Path

import cv2
import numpy as np
import onnxruntime
import torch
from rfdetr import RFDETRSegNano
from rfdetr.models.postprocess import PostProcess

SIZE = 96
QUERIES = 20
CLASSES = 4
MIN_SCORE = 0.3


def randomize(layers: torch.nn.Module, picture: torch.Tensor) -> None:
    """Draw weights whose boxes, scores and masks vary over the queries, as trained ones do."""
    torch.manual_seed(3)
    decoder = layers.transformer
    torch.nn.init.normal_(layers.refpoint_embed.weight, 0, 0.6)
    torch.nn.init.normal_(layers.query_feat.weight, 0, 1)
    for heads in (layers.class_embed, *decoder.enc_out_class_embed):
        torch.nn.init.normal_(heads.weight, 0, 0.15)
        torch.nn.init.constant_(heads.bias, -1.5)
    for heads in (layers.bbox_embed, *decoder.enc_out_bbox_embed):
        torch.nn.init.normal_(heads.layers[-1].weight, 0, 0.05)
    torch.nn.init.constant_(layers.bbox_embed.layers[-1].bias[2:], 1.5)  # larger boxes
    layers.eval()
    with torch.no_grad():
        masks = layers(picture)["pred_masks"]
        layers.segmentation_head.bias -= masks.median()


def main() -> None:
    """Export, run and save."""
    picture = cv2.imread(sys.argv[1])[:200, :300, ::-1]
    detector = RFDETRSegNano(
        pretrain_weights=None,
        device="cpu",
        num_queries=QUERIES,
        num_select=QUERIES,
        num_classes=CLASSES,
        resolution=SIZE,
        positional_encoding_size=SIZE // 12,
    )
    resized = cv2.resize(picture, (SIZE, SIZE), interpolation=cv2.INTER_LINEAR) / 255
    image = ((resized - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)).transpose(2, 0, 1)[None].astype(np.float32)
    randomize(detector.model.model, torch.from_numpy(image))
    with tempfile.TemporaryDirectory() as folder:
        path = detector.export(output_dir=folder, shape=(SIZE, SIZE), verbose=False)
        session = onnxruntime.InferenceSession(path)
        names = [output.name for output in session.get_outputs()]
        outputs = dict(zip(names, session.run(None, {session.get_inputs()[0].name: image}), strict=True))
    outputs["masks"] = outputs["masks"].astype(np.float16).astype(np.float32)
    keys = {"dets": "pred_boxes", "labels": "pred_logits", "masks": "pred_masks"}
    tensors = {keys[name]: torch.from_numpy(array) for name, array in outputs.items()}
    objects = PostProcess(QUERIES)(tensors, torch.tensor([picture.shape[:2]]), MIN_SCORE)[0]
    np.savez_compressed(
        Path(__file__).with_suffix(".npz"),
        dets=outputs["dets"],
        labels=outputs["labels"],
        masks=outputs["masks"].astype(np.float16),
        size=np.array([SIZE, SIZE]),
        frame=np.array(picture.shape[1::-1]),
        xyxy=objects["boxes"].numpy(),
        score=objects["scores"].numpy(),
        class_id=objects["labels"].numpy().astype(np.int32),
        mask=np.packbits(objects["masks"][:, 0].numpy(), axis=-1),
    )
    print(names, {name: array.shape for name, array in outputs.items()}, len(objects["scores"]), objects["boxes"][:3])


if __name__ == "__main__":
    main()
