"""One job by streamkit, a plain OpenCV loop, ultralytics and Roboflow Inference: the objects of each frame of a video.

    python benchmarks/peers.py VIDEO --model best.onnx [--device cuda:0] [--limit 300] [--runs 3]
    python benchmarks/peers.py VIDEO --model best.onnx --python ultralytics=/path/to/its/environment/bin/python

A peer that is not installed is left out, and the table says so; `--python` names the interpreter of an environment that
has it. Every side runs in a process of its own, in turns, and writes a line of JSON for each frame. Loading
a network does not count; the figures are medians.

All sides run the same network file, one in the output format of YOLOv8 (YOLOv8, YOLO11), but Roboflow Inference, which
runs its own copy of the network named by `--roboflow`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

PEERS = ("streamkit", "opencv", "ultralytics", "inference")
MODULES = {"streamkit": "streamkit", "opencv": "cv2", "ultralytics": "ultralytics", "inference": "inference"}

HEAD = """\
import json, sys, time
video, network, device, limit, out = sys.argv[1:]
limit = int(limit)
times_s = []
lines = open(out, "w")

def write(frame, boxes, scores, labels):
    objects = [{"box": b, "score": s, "label": l} for b, s, l in zip(boxes, scores, labels)]
    lines.write(json.dumps({"frame": frame, "objects": objects}) + "\\n")
    times_s.append(time.perf_counter())
"""
TAIL = """
lines.close()
print(json.dumps({"frames": len(times_s), "seconds": times_s[-1] - times_s[0]}))
"""
PROGRAMS = {
    "ultralytics": HEAD
    + """
import onnxruntime
from ultralytics import YOLO

shape = onnxruntime.InferenceSession(network).get_inputs()[0].shape
size_hw = [length if isinstance(length, int) else 640 for length in shape[2:]]
model = YOLO(network, task="detect")
gpu = device.removeprefix("cuda").lstrip(":") or "0"
options = {"imgsz": size_hw, "rect": False, "stream": True, "verbose": False}
results = model.predict(video, **options, device="cpu" if device == "cpu" else gpu)
for number, result in enumerate(results):
    boxes = result.boxes
    write(number, boxes.xyxy.tolist(), boxes.conf.tolist(), boxes.cls.tolist())
    if number + 1 == limit:
        break
"""
    + TAIL,
    "inference": HEAD
    + """
import cv2
from inference import get_model

model = get_model(network)
capture = cv2.VideoCapture(video)
for number in range(limit):
    there, image = capture.read()
    if not there:
        break
    predictions = model.infer(image)[0].predictions
    boxes = [[p.x - p.width / 2, p.y - p.height / 2, p.x + p.width / 2, p.y + p.height / 2] for p in predictions]
    write(number, boxes, [p.confidence for p in predictions], [p.class_name for p in predictions])
"""
    + TAIL,
    "opencv": """\
import json, sys
from pathlib import Path
from streamkit.bench.plain_loop import run
from streamkit.models.derive import open_model

video, network, device, limit, out = sys.argv[1:]
provider = "CPUExecutionProvider" if device == "cpu" else "CUDAExecutionProvider"
figures = run(Path(video), open_model(network), Path(out), int(limit), provider)
print(json.dumps({"frames": figures["frames"], "seconds": figures["seconds"]}))
""",
    "streamkit": """\
import json, sys
import streamkit

video, network, device, limit, out = sys.argv[1:]
stages = {"detect": {"model": network}, "jsonl": {"path": out}}
report = streamkit.Pipeline({"video": video}, stages=stages, device=device, limit=int(limit)).run()
print(json.dumps({"frames": report["frames"], "seconds": report["seconds"]}))
""",
}


@dataclass(slots=True)
class Side:
    """One way to do the job.

    Attributes:
        name: of `PEERS`.
        python: the interpreter that has it.
        network: what it runs.
        fps: frames per second of each run.
        missing: why it cannot run; empty if it can.
    """

    name: str
    python: str
    network: str
    fps: list[float] = field(default_factory=list)
    missing: str = ""

    def run(self, video: Path, device: str, limit: int, folder: Path) -> None:
        """Run it once and note its speed, or why it cannot."""
        out = folder / f"{self.name}.jsonl"
        command = [self.python, "-c", PROGRAMS[self.name], str(video), self.network, device, str(limit), str(out)]
        completed = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [line for line in completed.stdout.splitlines() if line.startswith("{")]
        if completed.returncode or not lines:
            self.missing = (completed.stderr.strip().splitlines() or ["it gave no figures"])[-1][:160]
            return
        figures = json.loads(lines[-1])
        self.fps.append(figures["frames"] / figures["seconds"])


def installed(python: str, module: str) -> bool:
    """Whether an interpreter's environment has a module."""
    test = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([python, "-c", test], check=False).returncode == 0


def sides_of(pythons: dict[str, str], network: str, roboflow: str) -> list[Side]:
    """Return all sides; those that are not installed say so."""
    sides = []
    for name in PEERS:
        python = pythons.get(name, sys.executable)
        side = Side(name, python, roboflow if name == "inference" else network)
        if not installed(python, MODULES[name]):
            side.missing = f"not installed; name an environment that has it with --python {name}=PYTHON"
        sides.append(side)
    return sides


def table(sides: Sequence[Side]) -> str:
    """Return the table: frames/s, and how many times as fast streamkit is."""
    reference = next((statistics.median(side.fps) for side in sides if side.name == "streamkit" and side.fps), 0.0)
    lines = [f"{'side':<12} {'frames/s':>9}  streamkit is"]
    for side in sides:
        if side.fps and not side.missing:
            fps = statistics.median(side.fps)
            lines.append(f"{side.name:<12} {fps:>9.1f}  {reference / fps:.2f} times as fast")
        else:
            lines.append(f"{side.name:<12} {'':>9}  {side.missing}")
    return "\n".join(lines)


def main() -> int:
    """Measure all sides in turns and print the table."""
    parser = argparse.ArgumentParser(description="Compare the speed of the same job by several programs.")
    parser.add_argument("video", type=Path)
    parser.add_argument("--model", required=True, help="an ONNX file in the output format of YOLOv8")
    parser.add_argument("--roboflow", default="yolov8n-640", help="the network's name in Roboflow Inference")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--limit", type=int, default=300, help="frames")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--python", action="append", default=[], metavar="PEER=PYTHON")
    arguments = parser.parse_args()
    pythons = dict(entry.split("=", 1) for entry in arguments.python)
    sides = sides_of(pythons, str(Path(arguments.model).resolve()), arguments.roboflow)
    with tempfile.TemporaryDirectory(prefix="streamkit-peers-") as folder:
        for _ in range(arguments.runs):
            for side in sides:
                if not side.missing:
                    side.run(arguments.video.resolve(), arguments.device, arguments.limit, Path(folder))
    print(table(sides))
    return 0


if __name__ == "__main__":
    sys.exit(main())
