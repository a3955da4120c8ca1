"""Write rtmpose.npz: where rtmlib 0.0.16 puts the keypoints of SimCC outputs for two boxes.

Run it with rtmlib and opencv-python installed: `python rtmpose.py`. No network with weights is needed: the outputs are
random, `x` (2, 17, 96) and `y` (2, 17, 128) float16 for an input of `size` 48 x 64.

The file also holds `boxes` (2, 4) x1, y1, x2, y2 in source pixels, and `keypoints` (2, 17, 2), counted from the center
of the first pixel.
"""

from pathlib import Path

import numpy as np
from rtmlib.tools.pose_estimation.pre_processings import bbox_xyxy2cs, top_down_affine
from rtmlib.tools.pose_estimation.rtmpose import RTMPose

SIZE = (48, 64)
BOXES = np.array([[40.0, 30, 100, 190], [150, 20, 300, 90]])


def main() -> None:
    """Decode random outputs with the authors' code."""
    rng = np.random.default_rng(5)
    x, y = (rng.random((2, 17, 2 * side)).astype(np.float16) for side in SIZE)
    pose = RTMPose.__new__(RTMPose)  # without a network
    pose.model_input_size = SIZE
    picture = np.zeros((240, 320, 3), np.uint8)
    keypoints = []
    for across, down, box in zip(x, y, BOXES, strict=True):
        center, scale = bbox_xyxy2cs(box, padding=1.25)
        scale = top_down_affine(SIZE, scale, center, picture)[1]
        keypoints.append(pose.postprocess([across[None], down[None]], center, scale)[0][0])
    np.savez_compressed(
        Path(__file__).with_suffix(".npz"), x=x, y=y, size=SIZE, boxes=BOXES, keypoints=np.array(keypoints, np.float32)
    )


main()
