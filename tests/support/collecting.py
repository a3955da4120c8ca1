"""Runs `collect` on frames, and reads what it has written."""

import json
from pathlib import Path

import cv2

from streamkit.stages.video.collect import Collect
from streamkit.testing.kit import run_stage


def collect(given, batch=4, **options):
    """The frames, the counts, and the lines of the folder."""
    made = Collect(**{"path": "collected", **options})
    found = run_stage(made, given, batch=batch)
    return found, dict(made.context.counters.values), lines(options.get("path", "collected"))


def lines(folder="collected"):
    """The lines, each of an image that opens."""
    found = [json.loads(line) for line in (Path(folder) / "collected.jsonl").read_text().splitlines()]
    for one in found:
        height, width = cv2.imread(str(Path(folder) / one["image"])).shape[:2]
        assert (width, height) == (one["width"], one["height"])
    return found


def reasons(found):
    """Frame and reason of each line."""
    return [(one["frame"], one["reason"]) for one in found]
