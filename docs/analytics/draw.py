"""Draw the pictures of docs/analytics.md: `python docs/analytics/draw.py`, from the folder of the checkout.

What they show as counted is what the stages count: each walk goes through the stage, and its events are drawn where
they happen.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import cv2
import numpy as np

from streamkit.stages.analytics.line_counter import LineCounter
from streamkit.stages.analytics.zone import Zone
from streamkit.testing.kit import detections, frames, run_stage

FOLDER = Path(__file__).resolve().parent
WIDTH = 640
HEIGHT = 240
SCALE = 2
WHITE = (255, 255, 255)
INK = (60, 50, 40)
GRAY = (190, 185, 180)
BAND = (214, 232, 250)
# blue, green and red of each, as OpenCV has them
IN = (80, 160, 40)
OUT = (60, 60, 220)
SHAPE = (200, 110, 30)


def canvas():
    """An empty picture."""
    return np.full((HEIGHT * SCALE, WIDTH * SCALE, 3), 255, np.uint8)


def at(point):
    """A place as OpenCV wants it."""
    return tuple(round(value * SCALE) for value in point)


def write(picture, text, point, color=INK, size=0.42):
    """Put a text at a place."""
    cv2.putText(picture, text, at(point), cv2.FONT_HERSHEY_SIMPLEX, size * SCALE, color, SCALE, cv2.LINE_AA)


def arrow(picture, a, b, color, thick=1.5, tip=0.05):
    """Draw an arrow."""
    cv2.arrowedLine(picture, at(a), at(b), color, round(thick * SCALE), cv2.LINE_AA, tipLength=tip)


def band(picture, line, margin):
    """The places nearer to a line than the margin."""
    for a, b in itertools.pairwise(line):
        cv2.line(picture, at(a), at(b), BAND, round(2 * margin * SCALE), cv2.LINE_AA)
    for a in line:
        cv2.circle(picture, at(a), round(margin * SCALE), BAND, -1, cv2.LINE_AA)


def events(stage, places):
    """What the stage says of one track that is at these places."""
    track_frames = frames(len(places), width=WIDTH, height=HEIGHT)
    for frame, (x, y) in zip(track_frames, places, strict=True):
        frame.detections = detections([[x - 3, y - 9, x + 3, y]], track_id=[1], label=["person"])
    return [(event.frame, event) for frame in run_stage(stage, track_frames) for event in frame.events]


def path(picture, places, color=INK):
    """Draw a walk."""
    for a, b in itertools.pairwise(places):
        cv2.line(picture, at(a), at(b), color, SCALE, cv2.LINE_AA)
    for place in places:
        cv2.circle(picture, at(place), 2 * SCALE, color, -1, cv2.LINE_AA)
    arrow(picture, places[-2], places[-1], color, 1, 0.4)


def direction():
    """Which way is in."""
    picture = canvas()
    for x, a, b, title in (
        (160, (160, 200), (160, 50), "drawn upwards"),
        (480, (380, 125), (580, 125), "drawn to the right"),
    ):
        arrow(picture, a, b, SHAPE, 2.5, 0.08)
        cv2.circle(picture, at(a), 4 * SCALE, SHAPE, -1, cv2.LINE_AA)
        write(picture, title, (x - 60, 228))
        across = ((x - 70, 0), (70, 0)) if a[0] == b[0] else ((0, -50), (0, 50))
        middle = np.array([(a[0] + b[0]) / 2, (a[1] + b[1]) / 2])
        shift = np.array([0, 25]) if a[0] == b[0] else np.array([45, 0])
        side = np.array(across[1] if a[0] != b[0] else (70, 0))
        for sign, offset, name in ((1, -shift, IN), (-1, shift, OUT)):
            start = middle - sign * side + offset
            end = middle + sign * side + offset
            (crossing,) = events(LineCounter(line=(a, b)), [tuple(start), tuple(end)])
            arrow(picture, start, end, name, 1.5, 0.15)
            shift_text = np.array([6, 4] if a[0] == b[0] and sign > 0 else [-26, -6])
            write(picture, crossing[1].data["direction"], end + shift_text, name)
    return picture


WALKS = (
    ("jitters, then continues: 1 crossing", [(-40, 0), (-4, 0), (4, 4), (-5, 8), (5, 12), (-3, 16), (6, 20), (40, 24)]),
    ("jitters, then turns back: no crossing", [(-40, 0), (-4, 0), (5, 4), (-5, 8), (6, 12), (-4, 16), (-40, 22)]),
    ("crosses, then returns: 2 crossings", [(-40, 0), (0, 2), (40, 6), (0, 16), (-40, 22)]),
    ("starts within the margin: no crossing", [(-3, 0), (12, 4), (40, 10)]),
)


def margin():
    """Four walks at a line."""
    picture = canvas()
    for i, (title, steps) in enumerate(WALKS):
        x = 85 + 155 * i
        y = 90
        line = ((x, 195), (x, 40))
        band(picture, line, 12)
        arrow(picture, *line, SHAPE, 2, 0.06)
        places = [(x + dx, y + 2 * dy) for dx, dy in steps]
        path(picture, places)
        for frame, event in events(LineCounter(line=line, margin=12), places):
            color = IN if event.data["direction"] == "in" else OUT
            cv2.circle(picture, at(places[frame]), 5 * SCALE, color, 2 * SCALE, cv2.LINE_AA)
            x_text, y_text = places[frame]
            write(picture, event.data["direction"], (x_text - (-8 if x_text > x else 30), y_text - 9), color)
        first, _, second = title.partition(": ")
        write(picture, first, (x - 70, 220), size=0.36)
        write(picture, second, (x - 70, 234), size=0.36)
    return picture


def zone():
    """Three walks at a zone."""
    picture = canvas()
    area = ((180, 60), (430, 40), (470, 190), (210, 200))
    band(picture, (*area, area[0]), 12)
    cv2.fillPoly(picture, [np.array([at(p) for p in area])], (240, 246, 235))
    cv2.polylines(picture, [np.array([at(p) for p in area])], True, SHAPE, 2 * SCALE, cv2.LINE_AA)
    walks = (
        [(90, 100), (150, 102), (195, 104), (260, 108), (340, 104), (420, 100), (462, 98), (500, 96), (570, 94)],
        [(90, 180), (170, 172), (196, 168), (201, 160), (197, 152), (206, 146), (198, 138), (150, 150), (90, 155)],
        [(320, 130), (330, 150), (345, 165), (350, 182), (352, 203), (356, 190), (360, 170)],
    )
    for places in walks:
        path(picture, places)
        for frame, event in events(Zone(polygon=area, margin=12), places):
            color = IN if event.kind == "entered" else OUT
            cv2.circle(picture, at(places[frame]), 5 * SCALE, color, 2 * SCALE, cv2.LINE_AA)
            write(picture, event.kind, (places[frame][0] + 5, places[frame][1] - 9), color)
    write(picture, "margin: a track inside it has not left", (180, 232))
    return picture


def main() -> None:
    """Draw all, half as large as they are painted."""
    for picture in (direction, margin, zone):
        small = cv2.resize(picture(), (WIDTH * 3 // 2, HEIGHT * 3 // 2), interpolation=cv2.INTER_AREA)
        cv2.imwrite(str(FOLDER / f"{picture.__name__}.png"), small)
    sys.stdout.write(f"drawn into {FOLDER}\n")


if __name__ == "__main__":
    main()
