"""Ground truth must match its video: wrong frame numbers or sizes are errors, another video is a note."""

import json

import numpy as np
import pytest

from streamkit.core.errors import ConfigError
from streamkit.evaluate.alignment import check_alignment
from streamkit.evaluate.boxes import EvaluatedFrame, FlatBoxes
from streamkit.evaluate.observe import Observations, _truth_boxes
from streamkit.evaluate.truth import Truth, TruthOptions

COUNT = 60
FRAMES = [EvaluatedFrame("a", n, n / 25, 640, 360) for n in range(COUNT)]


def box_of(index, frame):
    """An object that moves 8 pixels a frame; every object at another height."""
    x = 40 + 8 * frame
    y = 20 + 80 * index
    return [x, y, x + 50, y + 40]


def truth_of(folder, *, shift=0, scale=1.0, boxes=box_of):
    path = folder / "truth.jsonl"
    with path.open("w") as file:
        for frame in range(COUNT):
            objects = [
                {"label": "car", "box": [scale * value for value in boxes(index, frame - shift)]} for index in range(4)
            ]
            file.write(json.dumps({"frame": frame, "objects": objects}) + "\n")
    return Truth(TruthOptions(str(path)), ["a"], ["car"])


def checked(truth, *, inferred=range(COUNT), objects=4):
    flat = FlatBoxes.of(
        (
            frame,
            np.array([box_of(n, frame) for n in range(objects)], float).reshape(-1, 4),
            np.full(objects, 0.9),
            np.zeros(objects, int),
            np.full(objects, -1),
            np.zeros(objects, bool),
        )
        for frame in inferred
    )
    ran = np.array(inferred, np.int64)
    seen = Observations(
        FRAMES, ("car",), 1, _truth_boxes(truth, FRAMES), flat, flat, flat, ran, True, [], None, [], [], 0, {}, []
    )
    return check_alignment(seen, truth)


@pytest.mark.parametrize("inferred", [range(COUNT), range(0, COUNT, 3)])
def test_a_matching_truth_gives_no_note(tmp_path, inferred):
    assert checked(truth_of(tmp_path), inferred=inferred) == []


@pytest.mark.parametrize(
    ("shift", "message"),
    [(1, "1 frame earlier"), (-2, "2 frames later"), (20, "20 frames earlier"), (-20, "20 frames later")],
)
def test_another_frame_numbering_is_noted(tmp_path, shift, message):
    with pytest.raises(
        ConfigError, match=rf"truth.jsonl fits the source a better {message}: .* by 1.00 on average"
    ) as it:
        checked(truth_of(tmp_path, shift=shift))
    assert f"{'Add' if shift < 0 else 'Subtract'} {abs(shift)} " in str(it.value)


def test_yolo_labels_from_0_are_noted_with_the_option(tmp_path):
    (tmp_path / "labels").mkdir()
    (tmp_path / "classes.txt").write_text("car\n")
    for frame in range(1, COUNT):  # the first has no file, so the names seem to count from 1
        boxes = np.array([box_of(n, frame) for n in range(4)]) / [640, 360, 640, 360]
        lines = [f"0 {(x + X) / 2} {(y + Y) / 2} {X - x} {Y - y}\n" for x, y, X, Y in boxes if X < 1]
        (tmp_path / "labels" / f"shot_{frame:03}.txt").write_text("".join(lines))
    with pytest.raises(ConfigError, match=r"fits the source a better 1 frame later: .* Try --first-frame 0"):
        checked(Truth(TruthOptions(str(tmp_path)), ["a"], ["car"]))
    assert checked(Truth(TruthOptions(str(tmp_path), first_frame=0), ["a"], ["car"])) == []


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        (3.0, "times 1/3, "),
        (2.0, "times 1/2, "),
        (1.5, "times 2/3, "),
        (4 / 3, "times 3/4, "),
        (0.75, "times 4/3, "),
        (2 / 3, "times 3/2, "),
        (0.5, "times 2, "),
        (1 / 3, "times 3, "),
    ],
)
def test_boxes_of_another_size_are_noted(tmp_path, scale, message):
    with pytest.raises(ConfigError, match=f"is of another size than the source a: {message}its boxes .* by 1.00"):
        checked(truth_of(tmp_path, scale=scale))


def test_the_truth_of_another_video_is_noted(tmp_path):
    rng = np.random.default_rng(0)
    elsewhere = truth_of(tmp_path, boxes=lambda *_: [x := rng.uniform(0, 500), y := rng.uniform(0, 300), x + 9, y + 9])
    (note,) = checked(elsewhere)
    assert "as if it were the truth of another video than the source a" in note
    assert checked(elsewhere, objects=0) == []  # a network that finds nothing
