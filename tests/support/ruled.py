"""Scenes of a few objects, and the events of rules on them."""

from pathlib import Path

import numpy as np

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.testing.kit import detections, frames, run_nodes

ROOT = Path(__file__).resolve().parents[2]
ZONE = "  zone: {polygon: {door: [[100, 0], [300, 0], [300, 360], [100, 360]]}, track_ttl: 1s}\n"
MONDAY = 1772409600.0  # 2 March 2026, 00:00 UTC


def nodes(stages):
    text = f"sources: {{a: 'test://', b: 'test://'}}\nstages:\n  detect: {{model: demo}}\n  track: {{}}\n{stages}"
    graph = build(read_text(text, folder=ROOT))
    return [node for node in graph.nodes.values() if not node.id.startswith(("detect", "track", "color", "weather"))]


def shown(input_frames, *ids, batch=4):
    """Return (time, stage or its rule, kind, track) of each event of rules."""
    return [
        (event.pts_s, event.data["rule"], event.kind, event.track_id)
        for frame in run_nodes(input_frames, *ids, batch=batch)
        for event in frame.events
        if "rule" in event.data
    ]


def rule_events(rule, input_frames, stages="", batch=4):
    return shown(nodes(f"{stages}  r: {{stage: rule, {rule}}}\n"), input_frames, batch=batch)


def scene(*each, step_s=1.0, source="a"):
    """A frame a second; each is a list of (label, track, x) or of (label, track, x, columns)."""
    scene_frames = frames(len(each), source, step_s=step_s)
    for frame, objects in zip(scene_frames, each, strict=True):
        names = {name for *_, last in objects if isinstance(last, dict) for name in last}
        extra = {name: np.array([entry[3].get(name) for entry in objects]) for name in names}
        frame.tables["detect"] = detections(
            [[entry[2] - 10, 100, entry[2] + 10, 150] for entry in objects],
            label=[entry[0] for entry in objects],
            labels=("car", "person", "bike"),
            track_id=[entry[1] for entry in objects],
            **extra,
        )
    return scene_frames


def people(*counts):
    return scene(*([("person", i, 30 * i + 20) for i in range(n)] for n in counts))
