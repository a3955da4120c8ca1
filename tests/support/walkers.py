"""Boxes that move through synthetic frames, and their track ids by `track`."""

import numpy as np

from streamkit.stages.analytics.track import Track
from streamkit.testing.kit import detections, frames, run_stage
from streamkit.tracking.methods import BUILT_IN

METHODS = tuple(BUILT_IN)


def walkers(count, places, source="a", step_s=0.04, speed=50.0, size=(40, 80), **columns):
    """Return frames of a source in which boxes at these (x, y) move to the right at `speed` pixels a second."""
    walker_frames = frames(count, source, step_s=step_s)
    for frame in walker_frames:
        boxes = [[x + speed * frame.pts_s, y, x + speed * frame.pts_s + size[0], y + size[1]] for x, y in places]
        frame.tables = {"detect": detections(boxes, [0.9] * len(boxes), labels=("car", "person"), **columns)}
    return walker_frames


def without(frame, *rows):
    """Remove objects from a frame's table."""
    table = frame.detections
    frame.tables = {"detect": table[np.setdiff1d(np.arange(len(table)), rows)]}


def ids(done):
    return [frame.detections.track_id.tolist() for frame in done]


def track(input_frames, batch=4, **options):
    return ids(run_stage(Track(**options), input_frames, batch=batch))
