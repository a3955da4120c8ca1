"""Write detectnet.npz: what the postprocessor of nvidia-tao-deploy 7.3.0 makes of random outputs of DetectNet_v2.

Run it with nvidia-tao-deploy (without its dependencies on a GPU), scikit-learn and NumPy: `python detectnet.py`.

The file holds `scores` (1, 2, 5, 8) and `distances` (1, 8, 5, 8), as a network of 128 x 80 pixels gives them; `frame`,
width and height; `objects` (n, 5) class and box in pixels of the frame, with `clustering_algorithm: nms`. The scores
that the authors' code returns with it belong to other boxes: it sorts them in place, and not the boxes.
"""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
from nvidia_tao_deploy.cv.detectnet_v2.postprocessor import BboxHandler

CLASSES = ("car", "person")
SIZE = (128, 80)
FRAME = (640, 360)
SCORE = 0.3
IOU = 0.5


def outputs() -> tuple[np.ndarray, np.ndarray]:
    """Return maps around two objects of each class, whose edges are at other distances from each point."""
    random = np.random.default_rng(2)
    scores = random.uniform(0, 0.2, (1, 2, 5, 8))
    distances = random.normal(0, 0.3, (1, 2, 4, 5, 8))
    points = np.stack(np.meshgrid(np.arange(8), np.arange(5)), -1) * 16 + 0.5
    for label, box in ((0, (10, 8, 60, 40)), (0, (70, 20, 120, 75)), (1, (30, 10, 60, 70)), (1, (90, 5, 125, 60))):
        inside = ((points > box[:2]) & (points < box[2:])).all(-1)
        for y, x in np.argwhere(inside):
            noisy = np.array(box) + random.normal(0, 1, 4)
            scores[0, label, y, x] = random.uniform(0.5, 0.95)
            distances[0, label, :, y, x] = (np.tile(points[y, x], 2) - noisy) * (1, 1, -1, -1) / 35
    return scores.astype(np.float32), distances.reshape(1, 8, 5, 8).astype(np.float32)


def main() -> None:
    """Read the outputs as the authors' inference does, and save."""
    scores, distances = outputs()
    cluster = SimpleNamespace(
        clustering_algorithm=1,
        nms_iou_threshold=IOU,
        nms_confidence_threshold=SCORE,
        dbscan_confidence_threshold=SCORE,
        dbscan_eps=0.3,
        dbscan_min_samples=1,
        coverage_threshold=SCORE,
        minimum_bounding_box_height=0,
    )
    parameters = {name: SimpleNamespace(clustering_config=cluster) for name in CLASSES}
    handler = BboxHandler(
        frame_width=SIZE[0], frame_height=SIZE[1], target_classes=CLASSES, classwise_cluster_params=parameters
    )
    columns_first = [array.transpose(0, 1, 3, 2) for array in (scores, distances)]  # as `trt_output_process_fn` does
    raw = {
        name: {
            "cov": columns_first[0][:, label].copy(),
            "bbox": columns_first[1][:, 4 * label : 4 * label + 4].copy(),
        }
        for label, name in enumerate(CLASSES)
    }
    detections = handler.cluster_detections(handler.bbox_preprocessing(raw))
    numbers = {name: label for label, name in enumerate(CLASSES)}
    (objects,) = handler.postprocess(detections, 1, [FRAME], SIZE, numbers)
    np.savez_compressed(
        Path(__file__).with_suffix(".npz"),
        scores=scores,
        distances=distances,
        frame=np.array(FRAME),
        objects=np.delete(objects, 1, axis=1),
    )


if __name__ == "__main__":
    main()
