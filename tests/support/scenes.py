"""Input of tracker measurements: detections of the demo network on drawn scenes, and of YOLOX-nano on a real video."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from samples.draw_street import SEED, draw
from samples.scene import plan
from streamkit.core.data import Frame
from streamkit.models.card import load_card
from streamkit.stages.inference.detectors import Detect
from streamkit.stages.sources.source import VideoSource
from streamkit.testing.kit import run_stage
from support import mot

ROOT = Path(__file__).resolve().parents[2]


def detect_in(film: Path, **options) -> list[Frame]:
    """Return the frames of a video with the detections of a detector, without pixels."""
    frames = run_stage(Detect(**options), run_stage(VideoSource(uri=str(film))))
    return [dataclasses.replace(frame, surface=None) for frame in frames]


def scene(seed: int, folder: Path) -> tuple[list[Frame], list[dict]]:
    """A drawn scene: the frames with the demo network's detections, and the truth. Its film goes into the folder."""
    if seed == SEED:
        film = ROOT / "samples" / "street.mp4"
        truth = mot.truth_of(ROOT / "samples" / "street.truth.jsonl")
    else:
        film = folder / f"{seed}.mp4"
        truth = draw(plan(seed), film)
    return detect_in(film, model=load_card(ROOT / "models" / "demo.yaml"), min_score=0.1), truth


def campus(data: Path) -> list[Frame]:
    """The frames of vtest_480x360.mp4 with the people that YOLOX-nano finds there."""
    card = load_card(ROOT / "models" / "yolox-nano.yaml")
    card = card.with_file(data / "models" / "yolox_nano_dyn.onnx")
    return detect_in(data / "videos" / "vtest_480x360.mp4", model=card, labels=["person"], min_score=0.1)
