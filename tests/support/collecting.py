"""Runs `collect` on frames, and reads its output."""

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np

from streamkit.core.data import Skeleton
from streamkit.io.collected_folder import read_lines
from streamkit.ops import rle
from streamkit.stages.video.collect import Collect
from streamkit.testing.kit import detections, frames, run_stage


def collect(input_frames, batch=4, **options):
    """Run `collect`; return the frames, the counts, and the lines of the folder."""
    stage = Collect(**{"path": "collected", **options})
    output_frames = run_stage(stage, input_frames, batch=batch)
    return output_frames, dict(stage.context.counters.values), lines(options.get("path", "collected"))


def lines(folder="collected"):
    """Return the lines, and check that their images open."""
    records = [line for _, line in read_lines(Path(folder)) if line is not None]
    for record in records:
        height, width = cv2.imread(str(Path(folder) / record["image"])).shape[:2]
        assert (width, height) == (record["width"], record["height"])
    return records


def reasons(records):
    """Return frame and reason of each line."""
    return [(record["frame"], record["reason"]) for record in records]


LABELS = ("car", "person")
POINTS = ("head", "left foot", "right foot")


def labeled_folder(folder, images=3):
    """Collect images of two detectors: boxes of `detect`, masks and keypoints of `seg`; some of the same objects."""
    random = np.random.default_rng(0)
    labeled_frames = []
    for i in range(images):
        small = random.integers(0, 256, (6, 8, 3), np.uint8)
        (frame,) = frames(1, "gate", pixels=cv2.resize(small, (321, 240)), start=i, step_s=10.0)
        corners = np.array([[20, 20], [180, 20], [20, 130], [180, 130]]) + random.uniform(0, 20, (4, 2))
        boxes = np.hstack([corners, corners + random.uniform(60, 85, (4, 2))]).astype(np.float32)
        masks = np.full(3, None)
        points = np.full((3, 3, 3), np.nan, np.float32)
        for row in range(2):
            canvas = np.zeros((240, 321), np.uint8)
            x1, y1, x2, y2 = boxes[row].round().astype(int).tolist()
            cv2.ellipse(canvas, ((x1 + x2) // 2, (y1 + y2) // 2), ((x2 - x1) // 2, (y2 - y1) // 2), 0, 0, 360, 1, -1)
            masks[row] = rle.encode(canvas.astype(bool), 321, 240)
            points[row] = [[x1 + 4.25, y1 + 4, 0.9], [x1 + 4, y2 - 4, 0.5], [x2 - 4, y2 - 4, 0.0]]
        frame.tables = {
            "detect": detections(boxes, [0.9, 0.41, 0.3, 0.75], class_id=[1, 0, 0, 1], labels=LABELS),
            "seg": replace(
                detections(
                    boxes[:3],
                    [0.8, 0.7, 0.6],
                    label=["person", "person", "car"],
                    labels=LABELS,
                    mask=masks,
                    keypoints=points,
                ),
                skeleton=Skeleton(POINTS, ((0, 1), (0, 2))),
            ),
        }
        labeled_frames.append(frame)
    return collect(labeled_frames, low_score=(0.4, 0.5), path=folder)[2]
