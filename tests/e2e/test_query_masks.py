"""Masks of RF-DETR-Seg through a pipeline: tracked, drawn, written and exported as COCO."""

import json
from pathlib import Path

import cv2
import numpy as np
from support.shaped_networks import shaped

from streamkit.ops import rle

TRUTH = np.load(Path(__file__).parents[1] / "models" / "families" / "truth" / "rfdetr_seg.npz")
PIPELINE = """
sources: {{street: {root}/samples/street.mp4}}
stages:
  segment: {{model: best.onnx, min_score: 0.4}}
  track: {{}}
  collect: {{path: collected, low_score: [0, 1], duplicates: keep, every: 0s}}
  draw: {{}}
  video: {{path: out.mp4}}
  jsonl: {{path: out.jsonl}}
"""


def test_masks_are_tracked_drawn_and_exported(root, tmp_path, here):
    outputs = {name: TRUTH[name] for name in ("dets", "labels", "masks")}
    sizes = {name: list(array.shape) for name, array in outputs.items()}
    shaped(tmp_path / "best.onnx", sizes, image=[1, 3, 96, 96], values=outputs)
    (tmp_path / "labels.txt").write_text("a\nb\nc\nd\ne")
    (tmp_path / "pipeline.yaml").write_text(PIPELINE.format(root=root))
    assert here("pipeline.yaml", "--device", "cpu", "--limit", "3", cwd=tmp_path).returncode == 0
    assert here("export", "collected", "--format", "coco", "--out", "coco", cwd=tmp_path).returncode == 0

    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    frames = [record["objects"] for record in records]
    assert len(frames) == 3
    tracks = [{detection.get("track_id"): detection["box"] for detection in objects} for objects in frames]
    assert len(tracks[0]) > 5
    assert tracks[0] == tracks[2]
    annotations = json.loads(next((tmp_path / "coco" / "annotations").iterdir()).read_text())["annotations"]
    masks = [detection["mask"] for objects in frames for detection in objects]
    assert [annotation["segmentation"] for annotation in annotations] == masks
    capture = cv2.VideoCapture(str(tmp_path / "out.mp4"))
    drawn = capture.read()[1]
    plain = cv2.VideoCapture(f"{root}/samples/street.mp4").read()[1]
    largest = max((detection["mask"] for detection in frames[0]), key=rle.area)
    changed = np.abs(drawn.astype(int) - plain).max(axis=2) > 16
    assert changed[rle.decode(largest)].mean() > 0.5
