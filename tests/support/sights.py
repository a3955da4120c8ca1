"""Scenes for `snapshot` with a colored object and events, and a reader of the snapshots."""

from pathlib import Path

import numpy as np

from streamkit.core.data import Color, Surface
from streamkit.ops.color import from_rgb
from streamkit.stages.video.snapshot import Snapshot
from streamkit.testing.kit import detections, frames, run_stage

WIDTH = 320
HEIGHT = 240


def painted(x1, y1, x2, y2, color, detail=True):
    """Return a gray image with a colored rectangle, with or without stripes."""
    rgb = np.full((HEIGHT, WIDTH, 3), 90, np.uint8)
    rgb[y1:y2, x1:x2] = color
    if detail:
        rgb[y1:y2:4, x1:x2] //= 2
    return Surface(from_rgb(rgb, Color()), Color())


RED = (200, 40, 40)
GREEN = (40, 180, 40)
BLUE = (40, 40, 220)


def scene(views, source="gate", track=7, step_s=1.0):
    """Return a frame for each view, which is (box, color, detail) of its object, or None."""
    scene_frames = frames(len(views), source, width=WIDTH, height=HEIGHT, step_s=step_s)
    for frame, view in zip(scene_frames, views, strict=True):
        boxes = [] if view is None else [view[0]]
        frame.surface = painted(0, 0, 2, 2, RED) if view is None else painted(*view[0], *view[1:])
        frame.tables = {"detect": detections(boxes, track_id=[track] * len(boxes), label=["person"] * len(boxes))}
    return scene_frames


SMALL = (40, 40, 80, 100)
LARGE = (120, 60, 200, 200)


def happen(frame, kind="crossed", track=7):
    frame._state.stage = "door"
    frame.emit(kind, track, direction="in")


def snap(input_frames, batch=4, **options):
    stage = Snapshot(
        **{"when": "door.crossed", "path": "snaps/{source}/{date}/{time}_{label}_{track_id}.jpg", **options}
    )
    output_frames = run_stage(stage, input_frames, batch=batch)
    return output_frames, dict(stage.context.counters.values)


def files():
    return sorted(path.as_posix() for path in Path("snaps").rglob("*") if path.is_file())


def looks(path):
    """Return the RGB color of the middle of an image, and its size (h, w)."""
    import cv2

    picture = cv2.imread(str(path))[..., ::-1].astype(int)
    height, width = picture.shape[:2]
    part = picture[height // 3 : 2 * height // 3, width // 3 : 2 * width // 3]
    return np.median(part, axis=(0, 1)), (height, width)


def near(color, other):
    return np.abs(np.asarray(color) - other).max() < 40


def saved(saved_frames):
    return [(frame.index, event) for frame in saved_frames for event in frame.events if event.kind == "saved"]
