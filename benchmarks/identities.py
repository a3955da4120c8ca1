"""Accuracy of `identify` on drawn crossings that two cameras see: cross-camera IDF1 of each scene.

    python benchmarks/identities.py --seeds 101-112

Both films are one sequence for TrackEval, in which an object has one id. The boxes are the true ones of the people and
cars that are at least 0.3 visible, without ids; decoder, tracker, embedding network and `identify` are real. Prints the
rows of a table. Needs the extras `test` and `eval`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from support import mot

from samples.draw_street import draw_views
from samples.scene import views
from samples.score import ignored
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Device
from streamkit.runtime.pipeline import PipelineRun

ROOT = Path(__file__).resolve().parents[1]
CAMERAS = ("north", "south")
LABELS = ("person", "car")
YAML = """
device: DEVICE
sources: {north: SCENE-north.mp4, south: SCENE-south.mp4}
stages:
  detections: {path: "boxes-{source}.jsonl"}
  track: {}
  look: {stage: embed, model: stripes, of: detections, every: 200ms, min_size: 10}
  place: {stage: identify, from: look, left_after: 5s, planes: PLANES}
  look_only: {stage: identify, from: look}
  with_planes: {stage: jsonl, from: place, path: "planes-{source}.jsonl"}
  without: {stage: jsonl, from: look_only, path: "look-{source}.jsonl"}
"""

Records = dict[str, list[dict[str, Any]]]
"""The records of each camera's film."""


def truth(scene: Path, camera: str) -> list[dict[str, Any]]:
    """The truth of a camera, of the classes that are identified; the files of a scene are named SCENE-CAMERA."""
    records = mot.truth_of(scene.with_name(f"{scene.name}-{camera}.truth.jsonl"))
    return [
        {**record, "objects": [target for target in record["objects"] if target["label"] in LABELS]}
        for record in records
    ]


def identified(scene: Path, device: Literal["cpu", "cuda"], folder: Path) -> dict[str, Records]:
    """Run both films of a scene in a folder; return the records with `planes`, and by `look` alone."""
    for camera in CAMERAS:
        lines = [
            {
                **record,
                "objects": [
                    {k: target[k] for k in ("box", "label", "class_id")}
                    for target in record["objects"]
                    if not ignored(target)
                ],
            }
            for record in truth(scene, camera)
        ]
        (folder / f"boxes-{camera}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in lines))
    planes = ", ".join(f"{camera}: {{file: '{scene}-{camera}.ground.txt'}}" for camera in CAMERAS)
    text = YAML.replace("PLANES", f"{{{planes}}}").replace("DEVICE", device).replace("SCENE", str(scene))
    text = text.replace('path: "', f'path: "{folder}/')
    assert PipelineRun(build(read_text(text, folder=ROOT)), Device(device)).run() == 0
    return {
        kind: {
            camera: [json.loads(line) for line in (folder / f"{kind}-{camera}.jsonl").read_text().splitlines()]
            for camera in CAMERAS
        }
        for kind in ("planes", "look")
    }


def cross_camera_idf1(scene: Path, records: Records) -> float:
    """TrackEval's IDF1 of both films as one sequence, in which ids are those of all cameras."""
    pairs = []
    for camera in CAMERAS:
        boxes = []
        for record in records[camera]:
            identified_objects = [target for target in record["objects"] if "identity" in target]
            ids = np.array([target["identity"] for target in identified_objects], np.int64)
            boxes.append((ids, np.array([target["box"] for target in identified_objects], float).reshape(-1, 4)))
        pairs.append(mot.counted(truth(scene, camera), boxes))
    sides = [[frame for pair in pairs for frame in pair[side]] for side in (0, 1)]
    return float(mot.scores(*sides)["IDF1"])


def main() -> None:
    """Draw the scene of each seed, and print its scores and their mean."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="101-112", metavar="FIRST-LAST")
    first, last = map(int, parser.parse_args().seeds.split("-"))
    scores = []
    print("| seed | by look alone | with planes |\n| --- | --- | --- |")
    for seed in range(first, last + 1):
        with tempfile.TemporaryDirectory() as folder:
            scene = Path(folder, "crossing")
            draw_views(views(seed), scene.with_suffix(".mp4"))
            records = identified(scene, "cpu", Path(folder))
            scores.append([cross_camera_idf1(scene, records[kind]) for kind in ("look", "planes")])
        print(f"| {seed} | {scores[-1][0]:.3f} | {scores[-1][1]:.3f} |", flush=True)
    look, planes = np.mean(scores, axis=0)
    print(f"| mean | {look:.3f} | {planes:.3f} |")


if __name__ == "__main__":
    main()
