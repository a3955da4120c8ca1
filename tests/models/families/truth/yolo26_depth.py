"""Write yolo26_depth.npz: what Ultralytics 8.4.190 gives for a picture with YOLO26n-depth, weights random.

Run it on a picture, with ultralytics and onnxruntime installed: `python yolo26_depth.py picture.jpg`. It leaves the
network, yolo26n-depth.onnx, in the folder in which it runs.

The file holds `output0` (1, 1, 32, 64) of the export; `frame`, width and height; `metadata`, names and texts; and, of
the authors' own predictor on the picture: `boxes` (n, 4) in source pixels and the median of each, `medians`, in meters.
"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from ultralytics import YOLO

BOXES = [[10, 20, 90, 120], [200, 40, 420, 300], [0, 0, 640, 426], [500, 300, 560, 420]]


def main():
    torch.manual_seed(3)
    network = YOLO("yolo26n-depth.yaml")
    with torch.no_grad():
        head = network.model.model[-1].head[-1]
        head.weight.copy_(torch.randn_like(head.weight) * 2)
    network.predict(sys.argv[1], imgsz=(32, 64), verbose=False)  # makes the predictor
    pixels = {}
    network.predictor.model.register_forward_hook(lambda module, images, output: pixels.update(image=images[0]))
    (result,) = network.predict(sys.argv[1], imgsz=(32, 64), verbose=False)
    depth = result.depth.data.cpu().numpy()
    file = network.export(format="onnx", imgsz=(32, 64), dynamic=True, simplify=False)
    session = onnxruntime.InferenceSession(file)
    (output,) = session.run(None, {"images": pixels["image"].cpu().numpy()})
    metadata = session.get_modelmeta().custom_metadata_map
    kept = {key: metadata[key] for key in ("task", "names", "stride", "imgsz", "description")}
    np.savez_compressed(
        Path(__file__).with_suffix(".npz"),
        output0=output,
        frame=np.array(result.orig_shape[::-1]),
        metadata=np.array(list(kept.items())),
        boxes=np.array(BOXES, np.float32),
        medians=np.array([np.median(depth[y1:y2, x1:x2]) for x1, y1, x2, y2 in BOXES], np.float32),
    )


if __name__ == "__main__":
    main()
