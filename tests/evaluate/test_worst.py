"""The picture of the worst frames: which they are, and what is where."""

import contextlib
from types import SimpleNamespace

import cv2
import numpy as np
import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.evaluate.boxes import EvaluatedFrame, FlatBoxes
from streamkit.evaluate.detection import match
from streamkit.evaluate.observe import Observations, detectors_of
from streamkit.evaluate.worst import draw_worst, worst_frames

NAMES = ("car", "person")
BOX = (200, 100, 400, 300)
ELSEWHERE = (40, 200, 120, 300)


def boxes(by_frame):
    """Boxes of class 0 by frame."""
    return FlatBoxes.of(
        (
            frame,
            np.array(rows, float).reshape(-1, 4),
            np.full(len(rows), 0.9),
            np.zeros(len(rows), int),
            np.full(len(rows), -1),
            np.zeros(len(rows), bool),
        )
        for frame, rows in sorted(by_frame.items())
    )


def evaluation(root, truth, objects, count=40):
    text = f"sources: {{a: {root}/samples/street.mp4}}\nstages:\n  detect: {{model: demo}}\n"
    graph = build(read_text(text, folder=root))
    frames = [EvaluatedFrame("a", number, number / 25, 640, 360) for number in range(count)]
    parts = boxes(truth), boxes(objects), boxes(objects), boxes(objects)
    inferred = np.arange(count)
    seen = Observations(frames, NAMES, 2, *parts, inferred, True, detectors_of(graph), graph, [], [], 0, {}, [])
    return SimpleNamespace(seen=seen, matches=match(seen.truth, seen.detections, frames, NAMES))


def test_the_worst_frames_come_first_without_their_neighbors(root):
    truth = {3: [BOX], 8: [BOX], 20: [BOX, ELSEWHERE], 26: [BOX], 33: [BOX]}
    objects = {20: [(500, 10, 600, 60)], 8: [(500, 10, 600, 60)], 33: [BOX], 39: [(1, 1, 30, 30)]}
    evaluated = evaluation(root, truth, objects)
    assert worst_frames(evaluated) == [20, 8, 26, 39]  # 3 is a neighbor of 8, and 33 has no error
    assert worst_frames(evaluated, 2) == [20, 8]


def test_at_most_six_frames_are_shown(root):
    evaluated = evaluation(root, {number: [BOX] for number in range(0, 400, 8)}, {}, count=400)
    assert worst_frames(evaluated) == [0, 8, 16, 24, 32, 40]


@pytest.mark.parametrize(("count", "columns", "rows"), [(1, 1, 1), (2, 2, 1), (3, 3, 1), (4, 3, 2)])
def test_frames_are_in_three_columns_below_a_legend(root, tmp_path, count, columns, rows):
    evaluated = evaluation(root, {8 * number: [BOX] for number in range(count)}, {})
    assert draw_worst(evaluated, tmp_path / "w.png", lambda _: contextlib.nullcontext()) == count
    image = cv2.imread(str(tmp_path / "w.png"))
    assert image.shape == (36 + rows * (36 + 360), columns * 640, 3)


def test_misses_are_red_and_false_positives_orange(root, tmp_path):
    evaluated = evaluation(root, {0: [BOX]}, {0: [ELSEWHERE]})
    assert draw_worst(evaluated, tmp_path / "w.png", lambda _: contextlib.nullcontext()) == 1
    image = cv2.imread(str(tmp_path / "w.png"))[72:].astype(int)  # below the legend and the caption
    missed, false = (
        image[y2 - 1 : y2 + 1, x1 + 10 : x2 - 10].reshape(-1, 3).mean(axis=0) for x1, _, x2, y2 in (BOX, ELSEWHERE)
    )  # the lower edges, in the order blue, green, red
    assert missed[2] > max(missed[0], missed[1]) + 60
    assert false[2] > false[1] + 20 > false[0] + 50


def test_no_file_is_written_without_errors(root, tmp_path):
    evaluated = evaluation(root, {0: [BOX]}, {0: [BOX]})
    assert draw_worst(evaluated, tmp_path / "w.png", lambda _: contextlib.nullcontext()) == 0
    assert list(tmp_path.iterdir()) == []
