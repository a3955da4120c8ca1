"""Write vitpose.npz: what transformers 5.24.0 makes of the outputs of its own ViTPose for two boxes, weights random.

Run it on a picture, with torch, transformers, scipy and opencv-python installed: `python vitpose.py picture.jpg`.

The file holds `heatmaps` (2, 17, 16, 12) float16, the network's outputs for the crops of the boxes; `size`, width and
height of the input; `boxes` (2, 4) left, top, width, height in source pixels; and of the authors' postprocessor
`keypoints` (2, 17, 2), counted from the center of the first pixel, and `scores` (2, 17).
"""

import sys
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import torch
from transformers import VitPoseBackboneConfig, VitPoseConfig, VitPoseForPoseEstimation, VitPoseImageProcessor

SIZE = (48, 64)
TOP = 0.8


def network() -> VitPoseForPoseEstimation:
    """Return a small network with random weights."""
    torch.manual_seed(3)
    backbone = VitPoseBackboneConfig(
        image_size=[SIZE[1], SIZE[0]],
        patch_size=[16, 16],
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        out_indices=[2],
    )
    return VitPoseForPoseEstimation(VitPoseConfig(backbone_config=backbone, num_labels=17)).eval()


def main() -> None:
    """Run the network on the crops, and the postprocessor on its outputs as they are stored."""
    picture = cv2.cvtColor(cv2.imread(sys.argv[1]), cv2.COLOR_BGR2RGB)
    high, wide = picture.shape[:2]
    boxes = np.array(
        [[0.1 * wide, 0.2 * high, 0.3 * wide, 0.7 * high], [0.4 * wide, 0.3 * high, 0.5 * wide, 0.4 * high]]
    )
    processor = VitPoseImageProcessor(size={"height": SIZE[1], "width": SIZE[0]})
    images = processor(picture, boxes=[boxes.tolist()], return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        raw = network()(images).heatmaps
    raw = raw - raw.amin((2, 3), keepdim=True)
    heatmaps = (TOP * raw / raw.amax((2, 3), keepdim=True)).numpy().astype(np.float16)
    outputs = SimpleNamespace(heatmaps=torch.from_numpy(heatmaps.astype(np.float32)))
    (people,) = processor.post_process_pose_estimation(outputs, boxes=[boxes.tolist()])
    np.savez_compressed(
        Path(__file__).with_suffix(".npz"),
        heatmaps=heatmaps,
        size=SIZE,
        boxes=boxes,
        keypoints=np.stack([person["keypoints"].numpy() for person in people]),
        scores=np.stack([person["scores"].numpy() for person in people]),
    )


main()
