"""Drawn scenes that a moving camera films: pans, zooms and shakes, with exact truth and simulated detections.

A street is drawn larger than the picture, and the picture is a part of it, resized: a zooming camera that turns on the
spot. Boxes follow the same arithmetic, so they are exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import cv2
import numpy as np

from samples.paint import Painter
from samples.scene import plan
from streamkit.core.data import Color, Frame, Surface
from streamkit.ops.color import from_rgb
from streamkit.testing.kit import detections, frames
from support.mot import LABELS

WIDTH = 640
HEIGHT = 360
FPS = 25.0
FIRST_S = 3.0  # when people begin to cross and cars to overtake
CANVAS = (960, 540)
KINDS = ("pan", "zoom", "shake", "mixed")
SEEDS = range(100, 120)
"""Of the scenes that are measured, of each kind in turn."""


class MovingScene(NamedTuple):
    """A drawn scene.

    Attributes:
        pictures: (n, 360, 640, 3) uint8 RGB.
        truth: a record a frame, as `samples/draw_street.py` writes them.
        cameras: (n, 2, 3) float64, the transform from the canvas to each picture.
    """

    pictures: np.ndarray
    truth: list[dict]
    cameras: np.ndarray


def camera_path(kind: str, count: int, seed: int) -> np.ndarray:
    """Return (n, 3) float64: center x, y on the canvas, and how many pixels one of the canvas becomes.

    A kind of `KINDS`, or `still`.
    """
    rng = np.random.default_rng([seed, 77])
    clock_s = np.arange(count) / FPS
    path = np.tile([CANVAS[0] / 2, CANVAS[1] / 2, 0.85], (count, 1))
    if kind in ("pan", "mixed"):  # it turns, stops, turns back
        path[:, 0] += 110 * _legs(rng, clock_s)
        path[:, 1] += 40 * _legs(rng, clock_s)
    if kind in ("zoom", "mixed"):
        path[:, 2] *= np.exp(0.22 * _legs(rng, clock_s))
    if kind in ("shake", "mixed"):  # a hand, or a pole in the wind: 1 to 6 turns a second
        for axis, amplitude in ((0, 12), (1, 8)):
            for turns in rng.uniform(1, 6, 4):
                phase = rng.uniform(0, 2 * np.pi)
                path[:, axis] += amplitude / turns**0.5 * np.sin(2 * np.pi * turns * clock_s + phase)
    half = np.array([WIDTH, HEIGHT]) / 2 / path[:, 2:]
    path[:, :2] = np.clip(path[:, :2], half, np.array(CANVAS) - half)
    return path


def _legs(rng: np.random.Generator, clock_s: np.ndarray) -> np.ndarray:
    """Return (n,) -1 to 1: moves between random places, each of 0.3 to 0.8 s, with pauses."""
    times = np.cumsum(rng.uniform(0.3, 0.8, 64))
    places = np.repeat(rng.uniform(-1, 1, 32), 2)
    return np.interp(clock_s, times - times[0], places)


def moving_scene(kind: str, seed: int, seconds: float = 8.0) -> MovingScene:
    """Draw a scene that a camera of this kind films."""
    scene = plan(seed, size=CANVAS)
    painter = Painter(scene)
    count = round(seconds * FPS)
    first = round(FIRST_S * FPS)
    path = camera_path(kind, count, seed)
    cameras = np.zeros((count, 2, 3))
    cameras[:, 0, 0] = cameras[:, 1, 1] = path[:, 2]
    cameras[:, 0, 2] = WIDTH / 2 - path[:, 0] * path[:, 2]
    cameras[:, 1, 2] = HEIGHT / 2 - path[:, 1] * path[:, 2]
    pictures = np.empty((count, HEIGHT, WIDTH, 3), np.uint8)
    truth = []
    for number, camera in enumerate(cameras):
        canvas, objects = painter.frame(first + number)
        pictures[number] = _filmed(canvas, camera)
        truth.append({"frame": number, "pts_s": number / FPS, "objects": list(_seen(objects, camera))})
    return MovingScene(pictures, truth, cameras)


def _filmed(canvas: np.ndarray, camera: np.ndarray) -> np.ndarray:
    pixels = camera.copy()  # OpenCV's pixels have their centers at whole numbers, boxes their borders
    pixels[:, 2] += camera[:, :2] @ (0.5, 0.5) - 0.5
    return cv2.warpAffine(canvas, pixels, (WIDTH, HEIGHT), flags=cv2.INTER_LINEAR)


def _seen(objects: list[dict], camera: np.ndarray) -> Iterator[dict]:
    """The objects of a canvas that reach into the picture; `visible` is less by the share outside of it."""
    for actor in objects:
        box = np.array(actor["box"]).reshape(2, 2) @ camera[:, :2].T + camera[:, 2]
        inside = np.clip(box, 0, (WIDTH, HEIGHT))
        if (inside[1] - inside[0] >= 1).all():
            share = (inside[1] - inside[0]).prod() / (box[1] - box[0]).prod()
            visible = round(float(actor["visible"] * share), 3)
            yield {**actor, "box": inside.round(2).ravel().tolist(), "visible": visible}


def kind_of(seed: int) -> str:
    """How the camera of a scene moves."""
    return KINDS[seed % len(KINDS)]


def footage(scene: MovingScene, seed: int) -> list[Frame]:
    """Frames of a scene with its pictures and simulated detections."""
    scene_frames = frames(len(scene.truth), width=WIDTH, height=HEIGHT, step_s=1 / FPS)
    rows_by_frame = simulated_detections(scene.truth, seed)
    for frame, picture, rows in zip(scene_frames, scene.pictures, rows_by_frame, strict=True):
        frame.surface = Surface(from_rgb(picture, Color()), Color())
        labels = [LABELS[int(class_id)] for class_id in rows[:, 5]]
        frame.tables = {"detect": detections(rows[:, :4], rows[:, 4], label=labels, labels=LABELS)}
    return scene_frames


def simulated_detections(truth: list[dict], seed: int) -> list[np.ndarray]:
    """Return (n, 6) float64 for each frame, x1, y1, x2, y2, score and class, as a detector could give them.

    3 % are missed; the others lie beside by 2.5 % of their size, up to three times as much where something is in front,
    and their score is about the share that is visible. A frame in ten has a false object.
    """
    rng = np.random.default_rng([seed, 78])
    detections = []
    for record in truth:
        rows = []
        for actor in record["objects"]:
            visible = actor["visible"]
            box = np.array(actor["box"])
            size = np.tile(box[2:] - box[:2], 2)
            shaken = box + rng.normal(0, 0.025, 4) * size * (3 - 2 * visible)
            score = min(0.99, visible * rng.uniform(0.85, 1.05))
            if score > 0.12 and rng.random() > 0.03:
                rows.append((*shaken, score, actor["class_id"]))
        if rng.random() < 0.1:
            corner = rng.uniform((0, 0), (WIDTH - 60, HEIGHT - 90))
            rows.append((*corner, *(corner + rng.uniform((20, 30), (60, 90))), rng.uniform(0.1, 0.5), rng.integers(3)))
        detections.append(np.array(rows).reshape(-1, 6))
    return detections
